//! Seasons by MSTL, the rest by exponential smoothing with a damped trend.
//!
//! Multiple seasonal-trend decomposition by loess with periods of 24 and 168 hours (Bandara, Hyndman and Bergmeir 2021, arXiv:2107.13462) on
//! the root of demand; ETS(A, Ad, N) (Hyndman et al. 2008) on what is left: `l(t) = l(t-1) + phi b(t-1) + alpha e(t)`, forecast
//! `l(T) + (phi + ... + phi^h) b(T)` plus the last cycle of each season.
//!
//! The library's intervals come from the trend alone and cover too little. Ours are the errors of the same rule at earlier origins, with the
//! decomposition and the parameters kept, which costs one pass instead of a fit an origin.

use crate::history::{CONSTANT_HOURS_MIN, History};
use crate::quantiles::{Row, sound_rows};
use crate::spread::Errors;
use augurs::ets::AutoETS;
use augurs::mstl::MSTLModel;
use augurs::prelude::{Fit, Predict};

/// Known hours needed: two days for the daily season, with some to spare for the smoothing.
const KNOWN_HOURS_MIN: usize = 60;

/// From two weeks on there is a weekly season.
const WEEKLY_HOURS_MIN: usize = 2 * 168;

/// Hours whose errors are used: four weeks.
const ERROR_HOURS: usize = 4 * 168;

/// The decomposition has seen the hours whose errors are measured; this makes up for part of it. On the public hourly series as a whole the
/// mixture's 0.95 quantile then covers 0.95; more makes this expert's own coverage better and the mixture worse.
const INFLATION: f64 = 1.15;

/// Longest lead whose errors are measured; longer ones take the last band's.
const LEAD_MAX: usize = 72;

/// Quantiles of demand for each of `horizon` steps; `None` when the history is too short or the library finds no model.
pub(crate) fn rows(history: &History, horizon: usize) -> Option<Vec<Row>> {
    if let Some(z) = history.constant().filter(|_| history.count() >= CONSTANT_HOURS_MIN) {
        return sound_rows(vec![[history.demand(z); 8]; horizon]);
    }
    if history.count() < KNOWN_HOURS_MIN {
        return None;
    }
    let periods = if history.len() >= WEEKLY_HOURS_MIN { vec![24, 168] } else { vec![24] };
    let trend = AutoETS::new(1, "AAN").ok()?.damped(true).ok()?.into_trend_model();
    let fitted = MSTLModel::new(periods.clone(), trend).fit(&history.filled).ok()?;
    let path = fitted.predict(horizon, None).ok()?.point;
    let in_sample = fitted.predict_in_sample(None).ok()?.point;
    let seasonal = fitted.fit().seasonal();
    if path.len() != horizon || in_sample.len() != history.len() || seasonal.iter().any(|s| s.len() != history.len()) {
        return None;
    }
    let seasons: Vec<(usize, Vec<f64>)> =
        periods.iter().zip(seasonal).map(|(period, values)| (*period, values.iter().map(|v| f64::from(*v)).collect())).collect();
    let spread = errors(history, &in_sample, &seasons, horizon).spread(INFLATION)?;
    let row = |step: usize| spread.at(step + 1).map(|error| history.demand(path[step] + error));
    sound_rows((0..horizon).map(row).collect())
}

/// Errors at earlier origins: the level smoothed up to then (the one-step forecast, taken flat) plus each season's cycle before the origin.
fn errors(history: &History, in_sample: &[f64], seasons: &[(usize, Vec<f64>)], horizon: usize) -> Errors {
    let n = history.len();
    let longest = seasons.iter().map(|(period, _)| *period).max().unwrap_or(24);
    let season = |t: usize| seasons.iter().map(|(_, values)| values[t]).sum::<f64>();
    // Season expected at t when the last hour known is before `origin`.
    let expected = |t: usize, origin: usize| {
        let last = |period: usize| t - (t - origin + period) / period * period;
        seasons.iter().map(|(period, values)| values[last(*period)]).sum::<f64>()
    };
    let mut errors = Errors::default();
    for (origin, said) in in_sample.iter().enumerate().skip(n.saturating_sub(ERROR_HOURS).max(longest)) {
        let level = said - season(origin);
        for t in origin..n.min(origin + horizon.clamp(24, LEAD_MAX)) {
            if let Some(actual) = history.known[t] {
                errors.add(t - origin + 1, actual - level - expected(t, origin));
            }
        }
    }
    errors
}
