//! Time that is not now: the past read late, and a clock that was set.

use crate::State;
use fleet::{Timestamp, WorkloadWindow};

impl State {
    /// Adds windows older than what is known of their workload. They were kept by whoever gave them.
    pub(crate) fn take_past(&mut self, windows: Vec<WorkloadWindow>) {
        for window in windows {
            let known = self.history.entry(window.workload.clone()).or_default();
            if let Err(place) = known.binary_search_by_key(&window.start, |w| w.start) {
                known.insert(place, window);
            }
        }
    }

    /// The wall clock was set to `now`. What lies ahead of it was stamped by a clock that was wrong: it is forgotten, or taken to be of now, so that
    /// nothing waits for hours until the old time comes again.
    pub(crate) fn clock_set(&mut self, now: Timestamp) {
        for windows in self.history.values_mut() {
            windows.retain(|w| w.start + w.length <= now);
        }
        self.scored_until = self.scored_until.min(now.hour());
        let mut known: Vec<&mut Option<Timestamp>> = Vec::new();
        for target in self.targets.values_mut() {
            known.extend([&mut target.last_ok, &mut target.failing_since]);
        }
        known.extend(self.gpu_pages.values_mut().map(|page| &mut page.last_ok));
        known.extend(self.starts.values_mut().map(|start| &mut start.ready_at));
        for at in known.into_iter().flatten() {
            *at = (*at).min(now);
        }
        self.starts.values_mut().for_each(|start| start.started_at = start.started_at.min(now));
        self.gpus.values_mut().for_each(|reading| reading.at = reading.at.min(now));
        self.jobs.values_mut().for_each(|reading| reading.at = reading.at.min(now));
        self.band_alarm.retain(|_, at| *at <= now);
        self.dark.values_mut().for_each(|at| *at = (*at).min(now));
        self.conditions.values_mut().for_each(|condition| condition.since = condition.since.min(now));
    }
}
