//! How long a replica really takes from the decision to its first token.

use super::demand::discounted;
use fleet::{Estimate, StartOutcome, VariantId};
use std::collections::BTreeMap;

/// Bounds of one observation, as multiples of what was expected: beyond them something else went wrong.
const RANGE: (f64, f64) = (0.2, 10.0);

/// Observations the prior counts as: the first start moves the estimate two thirds of the way.
const PRIOR_WEIGHT: f64 = 0.5;

/// Weight of a new start once there are many: loading gets faster or slower with its disks.
const FORGET: f64 = 0.1;

/// Standard error of a prior, as a share of it.
const PRIOR_ERROR: f64 = 0.5;

/// Updates the cold start of the variant that became ready.
pub(super) fn update(cold_starts: &mut BTreeMap<VariantId, Estimate>, start: &StartOutcome) {
    let usable = |seconds: f64| seconds.is_finite() && seconds > 0.0;
    if !usable(start.expected_s) || !usable(start.observed_s) {
        return;
    }
    let seen = start.observed_s.clamp(RANGE.0 * start.expected_s, RANGE.1 * start.expected_s);
    let next = match cold_starts.get(&start.variant) {
        None => {
            let value = (PRIOR_WEIGHT * start.expected_s + seen) / (PRIOR_WEIGHT + 1.0);
            Estimate { value, std_error: PRIOR_ERROR * value, evidence: 1 }
        }
        Some(known) => discounted(*known, seen, FORGET),
    };
    cold_starts.insert(start.variant.clone(), next);
}
