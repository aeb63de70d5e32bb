//! What a replica really serves, as a factor on its prior.
//!
//! A scalar Kalman filter: state `f` with variance `P`, `P += Q` a window; a saturated replica measures `m = saturated / prior` with
//! variance `R`; gain `K = P / (P + R)`; `f += K (m - f)` clamped to a tenth of `f` a window. A reading more than four standard deviations off
//! is not adopted but widens `P`, so that a lone wild one passes by and a lasting change is believed after a few windows.

use fleet::{Estimate, ServiceOutcome, VariantId};
use std::collections::BTreeMap;

/// Where a factor starts: the prior is right within a third, says the spread of published profiles against other set-ups.
const START: Estimate = Estimate { value: 1.0, std_error: 0.3, evidence: 0 };

/// Standard deviation by which a true factor drifts in a window.
const DRIFT: f64 = 0.005;

/// Standard deviation of one window's measurement, as a share of the factor: that of throughput over an hour.
const NOISE: f64 = 0.06;

/// Largest change a window, as a share of the factor.
const CHANGE_MAX: f64 = 0.1;

/// Bounds of a factor.
const FACTOR_RANGE: (f64, f64) = (0.2, 5.0);

/// Innovation, in standard deviations, beyond which a reading is not adopted.
const WILD: f64 = 4.0;

/// Most that a wild reading adds to the variance, as a standard deviation.
const DOUBT_MAX: f64 = 0.1;

/// Updates the factors of one service by what its replicas did. Only what ran is scored: without a sign that replicas of a variant answered,
/// or that the plan was applied, a reading is left alone.
pub(super) fn update(factors: &mut BTreeMap<VariantId, Estimate>, service: &ServiceOutcome, applied: bool) {
    for (variant, prior) in &service.prior_per_replica {
        let ran = applied || service.ready.get(variant).is_some_and(|replicas| *replicas > 0);
        if !ran || !prior.is_finite() || *prior <= 0.0 {
            continue;
        }
        let factor = |readings: &BTreeMap<VariantId, f64>| readings.get(variant).map(|r| r / prior).filter(|m| m.is_finite() && *m > 0.0);
        let known = factors.get(variant).copied();
        if let Some(measured) = factor(&service.saturated_per_replica) {
            factors.insert(variant.clone(), step(known.unwrap_or(START), measured));
        } else if let Some(bound) = factor(&service.sustained_per_replica).filter(|bound| *bound > known.unwrap_or(START).value) {
            // In time at this rate: the capacity is at least that. Lower rates say nothing.
            factors.insert(variant.clone(), step(known.unwrap_or(START), bound));
        }
    }
}

fn step(known: Estimate, measured: f64) -> Estimate {
    let noise = (NOISE * known.value).powi(2);
    let variance = known.std_error.powi(2) + DRIFT.powi(2);
    let innovation = measured - known.value;
    let total = variance + noise;
    if innovation.abs() > WILD * total.sqrt() {
        let doubt = (0.5 * innovation.abs()).min(DOUBT_MAX).powi(2);
        return Estimate { std_error: (variance + doubt).sqrt(), ..known };
    }
    let limit = CHANGE_MAX * known.value;
    let change = (variance / total * innovation).clamp(-limit, limit);
    let gain = if innovation.abs() > 0.0 { change / innovation } else { variance / total };
    Estimate { value: (known.value + change).clamp(FACTOR_RANGE.0, FACTOR_RANGE.1), std_error: ((1.0 - gain) * variance).sqrt(), evidence: known.evidence + 1 }
}
