//! From what the experts say to what is published: weights, then conformal offsets.

use crate::experts::Opinions;
use crate::quantiles::{Row, level, sound};
use fleet::{ForecasterState, LEVELS};
use std::collections::BTreeMap;

/// How sharply weights follow losses: an expert worse by a tenth weighs `exp(-1)` of the best.
const SHARPNESS: f64 = 10.0;

/// Weights from losses: `w_i ~ exp(-10 (L_i / L_min - 1))`, exponential weights (Littlestone and Warmuth 1994; Cesa-Bianchi and Lugosi 2006)
/// at a rate that does not depend on the unit of demand. All weigh the same while none was ever wrong.
pub(crate) fn weights_from_losses(losses: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let least = losses.values().copied().fold(f64::INFINITY, f64::min);
    let raw = |loss: f64| {
        let excess = if least > 0.0 { loss / least - 1.0 } else { f64::from(u8::from(loss > 0.0)) };
        (-SHARPNESS * excess).exp()
    };
    normalised(losses.iter().map(|(name, loss)| (name.clone(), raw(*loss))).collect())
}

/// The same weights, adding up to one; equal ones when they are unusable.
pub(crate) fn normalised(weights: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let total: f64 = weights.values().sum();
    let n = weights.len();
    if total.is_finite() && total > 0.0 && weights.values().all(|w| *w >= 0.0) {
        weights.into_iter().map(|(name, w)| (name, w / total)).collect()
    } else {
        #[expect(clippy::cast_precision_loss, reason = "a handful of experts")]
        weights.into_keys().map(|name| (name, 1.0 / n as f64)).collect()
    }
}

/// The weights of a state for the experts that spoke: one without a weight gets an equal share.
#[expect(clippy::cast_precision_loss, reason = "a handful of experts")]
pub(crate) fn weights_from_state(state: &ForecasterState, opinions: &Opinions) -> BTreeMap<String, f64> {
    let equal = 1.0 / opinions.len().max(1) as f64;
    let weight = |name: &str| state.weights.get(name).copied().filter(|w| w.is_finite() && *w >= 0.0).unwrap_or(equal);
    normalised(opinions.keys().map(|name| ((*name).to_owned(), weight(name))).collect())
}

/// Averages the experts' quantiles level by level (Vincentisation: the mixture is as sharp as its experts, where averaging probabilities would
/// widen it), then adds the learned offsets.
pub(crate) fn publish(opinions: &Opinions, weights: &BTreeMap<String, f64>, offsets: &[f64]) -> Vec<Row> {
    let steps = opinions.values().map(Vec::len).min().unwrap_or(0);
    let mix = |step: usize| {
        let mut row = [0.0; LEVELS.len()];
        for (name, rows) in opinions {
            let weight = weights.get(*name).copied().unwrap_or(0.0);
            for (sum, value) in row.iter_mut().zip(rows[step]) {
                *sum += weight * value;
            }
        }
        corrected(row, offsets)
    };
    (0..steps).map(mix).collect()
}

/// A row moved by its offsets (shares of its level); the row itself when they are not usable.
fn corrected(row: Row, offsets: &[f64]) -> Row {
    let Some(offsets) = crate::quantiles::row(offsets) else { return row };
    let level = level(&row);
    let mut moved = row;
    for (value, offset) in moved.iter_mut().zip(offsets) {
        *value += offset * level;
    }
    sound(moved).unwrap_or(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_better_expert_weighs_more_and_offsets_keep_the_order() {
        let weights = weights_from_losses(&[("a".to_owned(), 0.1), ("b".to_owned(), 0.2)].into());
        assert!(weights["a"] > 0.99);
        let row = corrected([1.0; 8], &[0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -2.0]);
        assert!(row.windows(2).all(|w| w[0] <= w[1]) && row[0] >= 0.0);
        assert_eq!(corrected([1.0; 8], &[0.5]).to_vec(), vec![1.0; 8]);
    }

    #[test]
    fn weights_of_nothing_or_of_perfection_are_equal() {
        let weights = weights_from_losses(&[("a".to_owned(), 0.0), ("b".to_owned(), 0.0)].into());
        assert!((weights["a"] - 0.5).abs() < 1e-12);
        assert!(weights_from_losses(&BTreeMap::new()).is_empty());
    }
}
