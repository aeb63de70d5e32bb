//! The baseline: the same hour one season before.
//!
//! `f(T + h) = y(T + h - k s)` with the smallest `k` whose value is known; the season `s` is 24 hours, or 168 where two weeks are known and last
//! week's value was the better guess. Quantiles add those of past differences `y(t) - y(t - s)` of the last four weeks (Hyndman and
//! Athanasopoulos, *Forecasting: principles and practice*, section 5.2).

use crate::history::{CONSTANT_HOURS_MIN, History};
use crate::quantiles::{Row, sound_rows};
use crate::spread::Errors;

/// Hours of differences used: four weeks.
const DIFFERENCE_HOURS: usize = 4 * 168;

/// How much better (mean absolute difference) the week has to be than the day to be taken.
const WEEK_MARGIN: f64 = 0.9;

/// Multiples of the last level when no season has been seen yet: a band as wide as the daily swing of most services, our assumption.
const UNSEEN: Row = [0.25, 0.4, 0.7, 1.0, 1.5, 2.2, 3.0, 5.0];

/// Quantiles of demand for each of `horizon` steps.
pub(crate) fn rows(history: &History, horizon: usize) -> Option<Vec<Row>> {
    let season = season(history);
    let mut errors = Errors::default();
    let from = history.len().saturating_sub(DIFFERENCE_HOURS).max(season);
    for index in from..history.len() {
        if let (Some(now), Some(before)) = (history.known[index], history.known[index - season]) {
            errors.add(1, now - before);
        }
    }
    let constant = history.constant().filter(|_| history.count() >= CONSTANT_HOURS_MIN);
    let spread = errors.spread(1.0);
    let row = |step: usize| {
        let z = if history.count() < 24 { last_level(history) } else { value(history, season, step) };
        match (&spread, constant) {
            (_, Some(z)) => [history.demand(z); 8],
            (Some(spread), None) => spread.at(1).map(|error| history.demand(z + error)),
            (None, None) => UNSEEN.map(|multiple| history.demand(z) * multiple),
        }
    };
    sound_rows((0..horizon).map(row).collect())
}

/// The season in hours.
fn season(history: &History) -> usize {
    let difference = |lag: usize| {
        let pairs = (336.min(history.len())..history.len()).filter_map(|t| Some((history.known[t]? - history.known[t - lag]?).abs()));
        let (sum, n) = pairs.fold((0.0, 0_u32), |(sum, n), d| (sum + d, n + 1));
        (n >= 48).then(|| sum / f64::from(n))
    };
    match (difference(24), difference(168)) {
        (Some(day), Some(week)) if week < WEEK_MARGIN * day => 168,
        _ => 24,
    }
}

/// The value one or more seasons before step `step`.
fn value(history: &History, season: usize, step: usize) -> f64 {
    let target = history.len() + step;
    let mut seasons = (1..=target / season).map(|k| target - k * season).filter(|index| *index < history.len());
    seasons.find_map(|index| history.known[index]).unwrap_or_else(|| last_level(history))
}

/// Mean of the last three known hours.
#[expect(clippy::cast_precision_loss, reason = "three")]
fn last_level(history: &History) -> f64 {
    let last: Vec<f64> = history.known.iter().rev().flatten().take(3).copied().collect();
    last.iter().sum::<f64>() / last.len().max(1) as f64
}
