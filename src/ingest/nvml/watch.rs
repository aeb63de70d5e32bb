//! Looks in a row, with the critical events (XID) the driver tells of between them.

use super::reading::{NvmlReading, Xid};
use super::{GPUS_MAX, Host, driver_version, read, scrape_of};
use crate::IngestError;
use fleet::{Scrape, TargetId, Timestamp};
use nvml_wrapper::{EventSet, Nvml};
use std::collections::BTreeMap;

/// Events taken from one GPU at one look; the others wait for the next.
const EVENTS_MAX: usize = 64;

/// The GPUs of this machine, watched. Events are asked for once, when the watch begins, and each look takes those that have come without
/// waiting for any.
pub struct Watch<'nvml> {
    nvml: &'nvml Nvml,
    /// One set a GPU: a GPU that refuses events costs nobody else theirs.
    sets: BTreeMap<u32, EventSet<'nvml>>,
    last: BTreeMap<u32, Xid>,
}

impl<'nvml> Watch<'nvml> {
    /// Begins to watch. Of a GPU that does not tell events, none are known.
    #[must_use]
    pub fn new(nvml: &'nvml Nvml) -> Self {
        let count = nvml.device_count().unwrap_or(0).min(GPUS_MAX);
        let sets: BTreeMap<u32, EventSet<'nvml>> = (0..count).filter_map(|index| Some((index, events(nvml, index)?))).collect();
        let last = sets.keys().map(|index| (*index, Xid::NoneSeen)).collect();
        Self { nvml, sets, last }
    }

    /// Looks at every GPU as [`read`] does, and says which critical event came last.
    ///
    /// # Errors
    /// When the driver does not even say how many GPUs there are.
    pub fn read(&mut self, at: Timestamp) -> Result<Vec<NvmlReading>, IngestError> {
        for (index, set) in &self.sets {
            if let Some(code) = last_code(set) {
                tracing::warn!(index, code, "XID event");
                self.last.insert(*index, Xid::Last { code, at });
            }
        }
        let mut readings = read(self.nvml, at)?;
        for reading in &mut readings {
            reading.xid = self.last.get(&reading.index).copied();
        }
        Ok(readings)
    }

    /// One look as a scrape: see [`scrape_of`].
    pub fn scrape(&mut self, target: &TargetId, host: &Host, at: Timestamp) -> Scrape {
        let readings = self.read(at);
        scrape_of(target, host, driver_version(self.nvml), readings.as_deref(), at)
    }
}

/// A set of the critical events of one GPU.
#[cfg(target_os = "linux")]
fn events(nvml: &Nvml, index: u32) -> Option<EventSet<'_>> {
    use nvml_wrapper::bitmasks::event::EventTypes;
    let device = nvml.device_by_index(index).ok()?;
    let set = nvml.create_event_set().ok()?;
    match device.register_events(EventTypes::CRITICAL_XID_ERROR, set) {
        Ok(set) => Some(set),
        Err(error) => {
            tracing::debug!(index, error = %error.error, "this GPU tells no events");
            None
        }
    }
}

/// Only the Linux driver tells events.
#[cfg(not(target_os = "linux"))]
fn events(_: &Nvml, _: u32) -> Option<EventSet<'_>> {
    None
}

/// The code of the last event that is there now; none is waited for.
fn last_code(set: &EventSet<'_>) -> Option<u64> {
    use nvml_wrapper::enums::event::XidError;
    let waiting = std::iter::from_fn(|| set.wait(0).ok()).take(EVENTS_MAX);
    let codes = waiting.filter_map(|event| event.event_data).map(|code| match code {
        XidError::Value(code) => code,
        XidError::Unknown => 999,
    });
    codes.last()
}
