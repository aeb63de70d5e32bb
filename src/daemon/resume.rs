//! From the store back to a running loop.

use crate::{DaemonError, setup_of};
use config::Config;
use cycle::State;
use fleet::Timestamp;
use store::{Options, Retention, Store};

/// Opens the history the configuration names.
///
/// # Errors
/// When it cannot be opened.
pub fn open_store(config: &Config) -> Result<Store, DaemonError> {
    let retention = Retention { observations: config.store.retention_raw, windows: config.store.retention_windows, ..Retention::default() };
    Ok(Store::open(&config.store.path, Options { retention, ..Options::default() })?)
}

/// The loop as it was when the store was last written.
///
/// # Errors
/// When the store cannot be read.
pub async fn resume(config: &Config, store: &Store, now: Timestamp) -> Result<State, DaemonError> {
    let setup = setup_of(config, now);
    let windows = store.windows(None, now - setup.policy.history, now).await?;
    let calibration = store.latest_calibration().await?;
    let plan = store.latest_plan().await?;
    Ok(State::resume(setup, now, windows, calibration, plan))
}
