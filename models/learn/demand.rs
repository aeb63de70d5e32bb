//! What forecasters are taught by the demand that came.

use crate::experts::PUBLISHED;
use crate::mixture::weights_from_losses;
use crate::pinball::mean_pinball;
use crate::quantiles::{level, row};
use fleet::{Estimate, ForecasterState, LEVELS, Span};
use std::collections::BTreeMap;

/// Share of the past that a new window replaces: a memory of about four days of hours, so that a better expert is preferred within the week.
const FORGET: f64 = 0.01;

/// Windows after which learned weights count half against equal ones: two outcomes are no proof.
const TRUST_WINDOWS: f64 = 12.0;

/// Step of an offset, as a share of the forecaster's mean pinball loss, which is a quarter to a third of its typical error.
const OFFSET_STEP: f64 = 0.4;

/// Bounds of that step, in shares of the level.
const OFFSET_STEP_RANGE: (f64, f64) = (0.001, 0.05);

/// Largest offset either way, in shares of the level.
const OFFSET_MAX: f64 = 1.0;

/// Requests a window needs for its peak to mean anything: below that it is the noise of counting.
const PEAK_REQUESTS_MIN: f64 = 60.0;

/// Largest ratio of peak to mean believed of one window.
const PEAK_RATIO_MAX: f64 = 10.0;

/// Weight of a new window in the peak ratio, once there are many.
const PEAK_FORGET: f64 = 0.02;

/// Updates losses, weights, coverage and offsets by what was forecast (quantiles by forecaster) for a window in which `y` requests/s came.
///
/// Losses are divided by the window's level (the larger of what came and the forecasters' mean), so that they compare over day and night.
pub(super) fn score(state: &mut ForecasterState, forecast: &BTreeMap<String, Vec<f64>>, y: f64) {
    let rows: BTreeMap<&str, _> = forecast.iter().filter_map(|(name, values)| Some((name.as_str(), row(values)?))).collect();
    if rows.is_empty() {
        return;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of forecasters")]
    let said = rows.values().map(level).sum::<f64>() / rows.len() as f64;
    let unit = y.max(said);
    let share = new_share(state.scored);
    for (name, row) in &rows {
        // An empty hour forecast as empty is no error.
        let loss = if unit > 0.0 { mean_pinball(row, y) / unit } else { 0.0 };
        let known = state.losses.entry((*name).to_owned()).or_insert(loss);
        *known += share * (loss - *known);
    }
    state.weights = weights(&state.losses, state.scored + 1);
    if let Some(row) = rows.get(PUBLISHED) {
        let loss = state.losses.get(PUBLISHED).copied().unwrap_or(0.0);
        calibrate(state, row, y, share, loss);
    }
    state.scored += 1;
}

/// Share of a discounted mean that the next window makes up: a plain mean at first.
#[expect(clippy::cast_precision_loss, reason = "counts of windows")]
fn new_share(scored: u64) -> f64 {
    FORGET.max(1.0 / (scored as f64 + 1.0))
}

/// Exponential weights of the experts' losses, mixed with equal ones while few windows were scored.
#[expect(clippy::cast_precision_loss, reason = "counts of windows")]
fn weights(losses: &BTreeMap<String, f64>, scored: u64) -> BTreeMap<String, f64> {
    let experts: BTreeMap<String, f64> = losses.iter().filter(|(name, _)| *name != PUBLISHED).map(|(name, loss)| (name.clone(), *loss)).collect();
    let equal = 1.0 / experts.len().max(1) as f64;
    let trust = scored as f64 / (scored as f64 + TRUST_WINDOWS);
    weights_from_losses(&experts).into_iter().map(|(name, w)| (name, trust * w + (1.0 - trust) * equal)).collect()
}

/// Coverage and offsets. Adaptive conformal inference (Gibbs and Candes 2021) in the form that tracks the quantile itself (Angelopoulos, Candes
/// and Tibshirani 2023): `offset_q += step (q - 1{y <= f_q})`; over time the share at or below `f_q` tends to `q` whatever the demand does.
fn calibrate(state: &mut ForecasterState, row: &[f64; LEVELS.len()], y: f64, share: f64, loss: f64) {
    if state.offsets.len() != LEVELS.len() {
        state.offsets = vec![0.0; LEVELS.len()];
    }
    if state.coverage.len() != LEVELS.len() {
        state.coverage = LEVELS.to_vec();
    }
    let step = (OFFSET_STEP * loss).clamp(OFFSET_STEP_RANGE.0, OFFSET_STEP_RANGE.1);
    // Where the row has no level (nothing expected), an offset would have changed nothing and is not judged by it.
    let judged = level(row) > 0.0;
    for (index, q) in LEVELS.iter().enumerate() {
        let covered = f64::from(u8::from(y <= row[index]));
        state.coverage[index] += share * (covered - state.coverage[index]);
        if judged {
            state.offsets[index] = (state.offsets[index] + step * (q - covered)).clamp(-OFFSET_MAX, OFFSET_MAX);
        }
    }
}

/// Updates the ratio of the highest rate inside a window to its mean.
pub(super) fn peak(state: &mut ForecasterState, mean: f64, peak: Option<f64>, length: Span) {
    let Some(peak) = peak.filter(|p| p.is_finite() && mean * length.as_secs_f64() >= PEAK_REQUESTS_MIN) else { return };
    let ratio = (peak / mean).clamp(1.0, PEAK_RATIO_MAX);
    state.peak_ratio = Some(match state.peak_ratio {
        None => Estimate { value: ratio, std_error: 0.5 * ratio, evidence: 1 },
        Some(known) => discounted(known, ratio, PEAK_FORGET),
    });
}

/// A discounted mean with its standard error: `m += a d`, `s^2 = (1 - a)(s^2 + a d^2)` with `d = x - m` and `a = max(forget, 1 / (n + 1))`; the
/// error is `s` over the root of the observations that count.
#[expect(clippy::cast_precision_loss, reason = "counts of windows")]
pub(super) fn discounted(known: Estimate, x: f64, forget: f64) -> Estimate {
    let counted = |n: u64| (n as f64).min(1.0 / forget);
    let a = forget.max(1.0 / (known.evidence as f64 + 1.0));
    let d = x - known.value;
    let variance = known.std_error.powi(2) * counted(known.evidence).max(1.0);
    let variance = (1.0 - a) * (variance + a * d * d);
    let evidence = known.evidence + 1;
    Estimate { value: known.value + a * d, std_error: (variance / counted(evidence)).sqrt(), evidence }
}
