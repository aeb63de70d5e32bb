//! One workload's forecast, and many at once.

use crate::ModelError;
use crate::backtest::first_weights;
use crate::calendar;
use crate::experts::{self, PUBLISHED};
use crate::history::History;
use crate::mixture;
use crate::quantiles::Row;
use fleet::{Forecast, ForecastId, ForecasterState, LEVELS, Series, Span, Timestamp, WorkloadId, fingerprint};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Steps a forecast may have: two weeks of hours.
pub const HORIZON_STEPS_MAX: usize = 336;

/// Instants are taken for nonsense beyond this (about the year 300,000).
const SECONDS_MAX: i64 = 10_000_000_000_000;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Whose demand.
    pub workload: &'a WorkloadId,
    /// Requests/s by hour, gaps allowed. Only hours that ended by `origin` are looked at, and of these the last six weeks.
    pub history: &'a Series,
    /// Last instant used.
    pub origin: Timestamp,
    /// Hours ahead, the current one included.
    pub horizon_steps: usize,
    /// Time zone of the workload's users, as in the IANA database.
    pub zone: &'a str,
    /// What was learned of this workload's forecasters, if anything.
    pub state: Option<&'a ForecasterState>,
    /// Generation of the calibration `state` is from.
    pub calibration: u64,
}

/// The forecast that is planned with, and what each expert said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ForecastSet {
    /// The mixture, corrected.
    pub published: Forecast,
    /// By name; an expert that cannot say anything of this history is absent.
    pub experts: BTreeMap<String, Forecast>,
}

/// Forecasts one workload. The first step is the hour that holds the origin: its demand is forecast whole, from the hours before it.
///
/// Weights come from `state`; while nothing was scored they come from a rolling origin over the workload's own last days, which favours the
/// best expert.
///
/// # Errors
/// When nothing is known of the last six weeks, the history is not hourly, the zone is unknown or the horizon too long.
pub fn forecast(request: &Request) -> Result<ForecastSet, ModelError> {
    let workload = request.workload;
    if request.history.step != Span::HOUR {
        return Err(ModelError::Step { workload: workload.clone(), step: request.history.step });
    }
    if request.horizon_steps > HORIZON_STEPS_MAX {
        return Err(ModelError::Horizon { workload: workload.clone(), steps: request.horizon_steps });
    }
    let zone = calendar::zone(request.zone).ok_or_else(|| ModelError::Zone { workload: workload.clone(), zone: request.zone.to_owned() })?;
    let sane = |at: Timestamp| (-SECONDS_MAX..=SECONDS_MAX).contains(&at.0);
    let history = Some(request.history).filter(|series| sane(series.start) && sane(request.origin));
    let history = history.and_then(|series| History::new(series, request.origin, request.horizon_steps, &zone));
    let history = history.ok_or_else(|| ModelError::NoHistory(workload.clone()))?;
    let opinions = experts::ask(&history, request.horizon_steps);
    if opinions.is_empty() {
        return Err(ModelError::NoHistory(workload.clone()));
    }
    let weights = match request.state.filter(|state| state.scored > 0) {
        Some(state) => mixture::weights_from_state(state, &opinions),
        None => first_weights(request.history, &zone, request.origin, &opinions),
    };
    let offsets = request.state.map_or(&[][..], |state| state.offsets.as_slice());
    let published = mixture::publish(&opinions, &weights, offsets);
    let document = |name: &str, rows: &[Row]| document(request, history.origin_hour, name, rows);
    Ok(ForecastSet {
        published: document(PUBLISHED, &published),
        experts: opinions.iter().map(|(name, rows)| ((*name).to_owned(), document(name, rows))).collect(),
    })
}

/// Forecasts many workloads at once, in the order of the requests.
#[must_use]
pub fn forecast_all(requests: &[Request]) -> Vec<Result<ForecastSet, ModelError>> {
    requests.par_iter().map(forecast).collect()
}

fn document(request: &Request, start: Timestamp, name: &str, rows: &[Row]) -> Forecast {
    let values: Vec<Vec<f64>> = rows.iter().map(|row| row.to_vec()).collect();
    let content = (request.workload, request.origin, start, Span::HOUR, LEVELS, &values, name, request.calibration);
    Forecast {
        id: ForecastId::new(fingerprint(&content)).expect("hexadecimal digits are a usable id"),
        workload: request.workload.clone(),
        origin: request.origin,
        start,
        step: Span::HOUR,
        levels: LEVELS.to_vec(),
        values,
        forecaster: name.to_owned(),
        calibration: request.calibration,
    }
}

#[cfg(test)]
mod tests;
