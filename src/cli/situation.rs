//! What is known now: the store's history, recorded traffic, and the loop's state made of both.

use crate::{Failure, tokens, traces};
use config::Config;
use cycle::State;
use fleet::{Series, Timestamp, WorkloadId, WorkloadWindow};
use store::{Store, wait};

/// The wall clock, in whole minutes.
pub(crate) fn now() -> Timestamp {
    daemon::Clock::system().now().floor(fleet::Span::MINUTE)
}

/// The history, made where it is missing.
pub(crate) fn open_store(config: &Config) -> Result<Store, Failure> {
    Ok(daemon::open_store(config, &tokens::reader())?.store)
}

/// The history, when there is one already; nothing is created.
pub(crate) fn existing_store(config: &Config) -> Result<Option<Store>, Failure> {
    let there = config.store.influxdb.is_some() || config.store.path.exists();
    there.then(|| open_store(config)).transpose()
}

/// The loop as it would be at `now`.
pub(crate) fn state(config: &Config, store: Option<&Store>, now: Timestamp) -> Result<State, Failure> {
    let setup = daemon::setup_of(config, now);
    let windows = history(config, store, setup.policy.window, now)?;
    let (calibration, plan) = match store {
        Some(store) => (wait(store.latest_calibration())?, wait(store.latest_plan())?),
        None => (None, None),
    };
    Ok(State::resume(setup, now, windows, calibration, plan))
}

/// Windows before `now`: those of the store, and recorded ones of services of which the store has none.
fn history(config: &Config, store: Option<&Store>, window: fleet::Span, now: Timestamp) -> Result<Vec<WorkloadWindow>, Failure> {
    let mut windows = match store {
        Some(store) => wait(store.windows(None, now - config.policy.history, now))?,
        None => Vec::new(),
    };
    for (service, recorded) in traces::windows(config, window, now)? {
        if !windows.iter().any(|w| w.workload == service) {
            windows.extend(recorded);
        }
    }
    Ok(windows)
}

/// Puts recorded traffic into the store, for services of which it has nothing yet.
pub(crate) fn back_fill(config: &Config, store: &Store, now: Timestamp) -> Result<usize, Failure> {
    let window = daemon::setup_of(config, now).policy.window;
    let mut filled = 0;
    for (service, recorded) in traces::windows(config, window, now)? {
        if wait(store.windows(Some(&service), now - config.policy.history, now))?.is_empty() {
            filled += recorded.len();
            wait(store.append(store::Batch { windows: recorded, ..store::Batch::default() }))?;
        }
    }
    Ok(filled)
}

/// Hourly demand of a service before `now`, requests/s, gaps as gaps.
pub(crate) fn hourly(state: &State, workload: &WorkloadId, now: Timestamp) -> Series {
    let windows = state.history(workload);
    let from = windows.first().map_or(now.hour(), |w| w.start.hour());
    series::hourly(windows, workload, from, now.hour(), |w| w.arrivals_per_s)
}
