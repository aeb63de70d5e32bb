//! Scores: of forecasts against what came, of the worst hour, of what was learned against the truth.

use crate::catalogue::Catalogue;
use crate::world::HourOfService;
use fleet::{Calibration, LEVELS, Outcome, Span, Timestamp, VariantId, WorkloadId};
use serde::{Deserialize, Serialize};

/// One service in one scored window: what was forecast and what was observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemandPoint {
    /// Whose.
    pub workload: WorkloadId,
    /// Start of the window.
    pub start: Timestamp,
    /// Its length.
    pub length: Span,
    /// Quantiles that were planned with, one a level of [`fleet::LEVELS`], requests/s; empty when there were none.
    pub published: Vec<f64>,
    /// The same of the baseline.
    pub seasonal_naive: Vec<f64>,
    /// Requests/s the loop saw.
    pub observed_per_s: Option<f64>,
    /// Share of first tokens in time, as the loop saw it.
    pub attainment: Option<f64>,
    /// What was seen is no demand to be learned or scored.
    pub censored: bool,
}

impl DemandPoint {
    /// The forecast at one of the levels.
    #[must_use]
    pub fn quantile(&self, level: f64) -> Option<f64> {
        (self.published.len() == LEVELS.len()).then(|| fleet::quantile_at(&LEVELS, &self.published, level))
    }
}

/// How good the forecasts were.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ForecastScore {
    /// Weighted quantile loss of what was planned with.
    pub wql: f64,
    /// The same of seasonal naive, on the same windows.
    pub seasonal_naive_wql: f64,
    /// Windows scored.
    pub windows: u64,
}

/// The service-hour with the most late requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Miss {
    /// Whose.
    pub workload: WorkloadId,
    /// Start of the hour.
    pub hour: Timestamp,
    /// Requests that were late or hung up.
    pub late: f64,
    /// Requests that came.
    pub arrived: f64,
    /// The same a second.
    pub came_per_s: f64,
    /// Median forecast, requests/s, where there was one.
    pub p50: Option<f64>,
    /// Forecast at level 0.95.
    pub p95: Option<f64>,
}

/// What was learned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Requests/s of one replica.
    Capacity(WorkloadId, VariantId),
    /// Seconds from the decision to the first token.
    ColdStart(VariantId),
}

/// A learned figure beside its prior and the truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Of what.
    pub quantity: Quantity,
    /// When.
    pub at: Timestamp,
    /// What was believed at first.
    pub prior: f64,
    /// What is believed now.
    pub learned: f64,
    /// What is so (median, without noise).
    pub truth: f64,
    /// Observations behind it.
    pub evidence: u64,
}

impl Learned {
    /// |learned - truth| / truth.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.learned - self.truth).abs() / self.truth
    }
}

/// Pinball loss of a quantile at `level` (Koenker and Bassett 1978).
fn pinball(level: f64, quantile: f64, observed: f64) -> f64 {
    if observed >= quantile { level * (observed - quantile) } else { (1.0 - level) * (quantile - observed) }
}

/// Weighted quantile loss: mean over levels of `2 * sum(pinball) / sum(|observed|)`.
fn wql(points: &[(&[f64], f64)]) -> Option<f64> {
    let scale: f64 = points.iter().map(|(_, y)| y.abs()).sum();
    if points.is_empty() || scale <= 0.0 {
        return None;
    }
    let of_level = |l: usize| 2.0 * points.iter().map(|(q, y)| pinball(LEVELS[l], q[l], *y)).sum::<f64>() / scale;
    let levels: Vec<f64> = (0..LEVELS.len()).map(of_level).collect();
    Some(levels.iter().sum::<f64>() / crate::catalogue::minutes_f64(levels.len()))
}

/// Scores windows that start at `from` or later and have both forecasts and an observation.
pub(crate) fn forecast_score(points: &[DemandPoint], from: Timestamp) -> Option<ForecastScore> {
    let full = |p: &&DemandPoint| p.start >= from && !p.censored && p.published.len() == LEVELS.len() && p.seasonal_naive.len() == LEVELS.len();
    let scored: Vec<(&DemandPoint, f64)> = points.iter().filter(full).filter_map(|p| Some((p, p.observed_per_s?))).collect();
    let published: Vec<(&[f64], f64)> = scored.iter().map(|(p, y)| (p.published.as_slice(), *y)).collect();
    let naive: Vec<(&[f64], f64)> = scored.iter().map(|(p, y)| (p.seasonal_naive.as_slice(), *y)).collect();
    Some(ForecastScore { wql: wql(&published)?, seasonal_naive_wql: wql(&naive)?, windows: scored.len() as u64 })
}

/// The windows of an outcome.
pub(crate) fn demand_points(outcome: &Outcome) -> impl Iterator<Item = DemandPoint> + '_ {
    outcome.services.iter().map(|s| DemandPoint {
        workload: s.workload.clone(),
        start: outcome.start,
        length: outcome.length,
        published: s.forecast.get("published").cloned().unwrap_or_default(),
        seasonal_naive: s.forecast.get("seasonal_naive").cloned().unwrap_or_default(),
        observed_per_s: s.observed_per_s,
        attainment: s.attainment,
        censored: s.censored,
    })
}

/// Every learned figure of a calibration. `prior` gives the capacity the loop started from.
pub(crate) fn learned(calibration: &Calibration, catalogue: &Catalogue, prior: impl Fn(&WorkloadId, &VariantId) -> Option<f64>) -> Vec<Learned> {
    let at = calibration.made_at;
    let days = at.since(catalogue.start).as_hours() / 24.0;
    let mut out = Vec::new();
    for service in &catalogue.services {
        for variant in &service.variants {
            let id = &catalogue.variants[*variant].id;
            let (Some(estimate), Some(truth)) = (calibration.capacity_factor(&service.id, id), service.capacity.get(variant)) else { continue };
            let believed = prior(&service.id, id).unwrap_or(truth.prior);
            out.push(Learned {
                quantity: Quantity::Capacity(service.id.clone(), id.clone()),
                at,
                prior: believed,
                learned: believed * estimate.value,
                truth: truth.at(days),
                evidence: estimate.evidence,
            });
        }
    }
    for variant in &catalogue.variants {
        let Some(estimate) = calibration.cold_start.get(&variant.id) else { continue };
        out.push(Learned {
            quantity: Quantity::ColdStart(variant.id.clone()),
            at,
            prior: variant.cold_start_prior_s,
            learned: estimate.value,
            truth: variant.cold_start_s,
            evidence: estimate.evidence,
        });
    }
    out
}

/// The service-hour with the most late requests from `from` on; none when nobody was late.
pub(crate) fn worst_miss(catalogue: &Catalogue, hours: &[Vec<HourOfService>], points: &[DemandPoint], from: Timestamp) -> Option<Miss> {
    let mut worst: Option<(usize, usize, f64)> = None;
    for (service, of_service) in hours.iter().enumerate() {
        for (index, hour) in of_service.iter().enumerate() {
            if hour_start(catalogue, index) >= from && hour.late > worst.map_or(0.0, |w| w.2) {
                worst = Some((service, index, hour.late));
            }
        }
    }
    let (service, index, late) = worst?;
    let (workload, hour) = (catalogue.services[service].id.clone(), hour_start(catalogue, index));
    let arrived = hours[service][index].arrived;
    let forecast = points.iter().find(|p| p.workload == workload && p.start <= hour && hour < p.start + p.length);
    let at = |level| forecast.and_then(|p| p.quantile(level));
    Some(Miss { p50: at(0.5), p95: at(0.95), came_per_s: arrived / 3_600.0, workload, hour, late, arrived })
}

pub(crate) fn hour_start(catalogue: &Catalogue, index: usize) -> Timestamp {
    catalogue.start + Span::hours(i64::try_from(index).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_perfect_forecast_scores_zero_and_a_wide_one_more() {
        let exact = [5.0; LEVELS.len()];
        assert!(wql(&[(&exact, 5.0)]).unwrap().abs() < 1e-12);
        // Always 4 where 5 came: the loss at a level is that level, twice; the mean level is 0.54875; relative to 5.
        let low = [4.0; LEVELS.len()];
        let mean_level = LEVELS.iter().sum::<f64>() / 8.0;
        assert!((wql(&[(&low, 5.0)]).unwrap() - 2.0 * mean_level / 5.0).abs() < 1e-12);
        assert_eq!(wql(&[(&exact, 0.0)]), None);
    }
}
