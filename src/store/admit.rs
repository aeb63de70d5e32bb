//! What may enter the history, whatever keeps it: what is admitted here comes back identical, the rest is refused with its reason.

use crate::{Batch, StoreError};
use fleet::{Observation, Timestamp};

/// Longest text kept as part of a series' name or as the name of a snapshot, in bytes: that of an id.
const TEXT_BYTES_MAX: usize = 128;

/// Furthest instant from 1970 that is kept, in seconds: `InfluxDB` counts nanoseconds in 64 bits (the years 1677 to 2262).
const INSTANT_MAX: i64 = i64::MAX / 1_000_000_000 - 1;

/// The rules that every back end shares, before anything of the batch is written.
pub(crate) fn admit(batch: &Batch) -> Result<(), StoreError> {
    batch.observations.iter().try_for_each(admit_observation)?;
    for window in &batch.windows {
        instant("window", || window.workload.to_string(), window.start)?;
    }
    for (name, _) in &batch.snapshots {
        text(name).map_err(|reason| refused("snapshot", format!("{name:?}"), format!("its name {reason}")))?;
    }
    let dated = batch.forecasts.iter().map(|f| ("forecast", f.id.as_str(), f.origin));
    let dated = dated.chain(batch.outcomes.iter().map(|o| ("outcome", o.id.as_str(), o.start)));
    let dated = dated.chain(batch.plans.iter().map(|p| ("plan", p.id.as_str(), p.as_of)));
    for (kind, id, at) in dated {
        instant(kind, || id.to_owned(), at)?;
    }
    batch.problems.iter().try_for_each(|problem| instant("problem", || problem.id().to_string(), problem.as_of))?;
    batch.calibrations.iter().try_for_each(|calibration| instant("calibration", || calibration.id().to_string(), calibration.made_at))
}

fn admit_observation(o: &Observation) -> Result<(), StoreError> {
    let name = || format!("{} {} at {}", o.source, o.signal.name(), o.observed);
    if !o.value.is_finite() {
        return Err(StoreError::Number { kind: "observation", object: name(), detail: o.value.to_string() });
    }
    if let Some(part) = &o.part {
        text(part).map_err(|reason| refused("observation", name(), format!("its part {part:?} {reason}")))?;
    }
    instant("observation", name, o.observed)?;
    instant("observation", name, o.received)
}

fn text(text: &str) -> Result<(), String> {
    if text.is_empty() {
        Err("is empty, which reads back as none".into())
    } else if text.len() > TEXT_BYTES_MAX {
        Err(format!("is longer than {TEXT_BYTES_MAX} bytes"))
    } else if text.chars().any(char::is_control) {
        Err("holds a control character".into())
    } else {
        Ok(())
    }
}

fn instant(kind: &'static str, object: impl Fn() -> String, at: Timestamp) -> Result<(), StoreError> {
    if (-INSTANT_MAX..=INSTANT_MAX).contains(&at.0) {
        return Ok(());
    }
    Err(refused(kind, object(), format!("its instant {at} lies outside the years 1678 to 2262")))
}

fn refused(kind: &'static str, object: String, reason: String) -> StoreError {
    StoreError::Unkept { kind, object, reason }
}
