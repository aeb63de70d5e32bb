//! Learning: the next version of what is known, from one window's outcome.

mod capacity;
mod cold_start;
mod demand;

use fleet::{Calibration, Outcome, Timestamp};

/// Share of a window that must have been observed for it to teach anything.
const COMPLETENESS_MIN: f64 = 0.5;

/// The version after `calibration`, made at `now`, with what `outcome` teaches:
///
/// - forecasters of a service whose demand is known and was not capped: losses, weights, coverage, offsets, peak ratio;
/// - capacity factors, from saturated replicas (a measurement) and from replicas that served in time (a lower bound), where they ran;
/// - cold starts, from replicas that became ready.
///
/// Every step is clamped. A frozen calibration is repeated unchanged, generation included.
#[must_use]
pub fn learn(calibration: &Calibration, outcome: &Outcome, now: Timestamp) -> Calibration {
    let mut next = calibration.clone();
    if calibration.frozen {
        return next;
    }
    next.generation += 1;
    next.made_at = now;
    for service in &outcome.services {
        let observed_enough = service.completeness >= COMPLETENESS_MIN;
        if let Some(y) = service.observed_per_s.filter(|y| y.is_finite() && *y >= 0.0 && observed_enough && !service.censored) {
            let state = next.forecasters.entry(service.workload.clone()).or_default();
            demand::score(state, &service.forecast, y);
            demand::peak(state, y, service.peak_per_s, outcome.length);
        }
        if observed_enough {
            let factors = next.capacity.entry(service.workload.clone()).or_default();
            capacity::update(factors, service, outcome.applied);
            if factors.is_empty() {
                next.capacity.remove(&service.workload);
            }
        }
    }
    for start in &outcome.starts {
        cold_start::update(&mut next.cold_start, start);
    }
    next
}

#[cfg(test)]
mod tests;
