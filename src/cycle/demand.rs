//! From history to the load each step is planned for.

use crate::order::{ServiceInput, WorkOrder};
use fleet::{Forecast, ForecasterState, Span, Step, StepDemand, Timestamp};
use models::{ForecastSet, Request};

/// Steps that begin within this time must at least serve what came lately.
const NEAR: Span = Span::minutes(20);
/// A surprise (demand above the band) fades from the plan over this time.
const SURPRISE_FADES: Span = Span::hours(2);
/// Peak over mean inside an hour until it was learned: a Poisson stream of 5 requests/s seen by the minute peaks about 15 % above its mean.
const PEAK_RATIO_PRIOR: f64 = 1.15;
/// Time in which a queue that has formed should be gone.
const DRAIN: Span = Span::minutes(10);

/// One set of forecasts a service, in order of service; services without any history have none.
pub(crate) fn forecasts(order: &WorkOrder) -> Vec<ForecastSet> {
    let steps = usize::try_from(order.setup.policy.horizon.0 / 3_600 + 3).unwrap_or(27);
    let requests: Vec<Request<'_>> = order
        .services
        .iter()
        .map(|input| {
            let zone = order.setup.workloads.iter().find(|w| w.id == input.workload).and_then(|w| w.service()).map_or("UTC", |s| s.zone.as_str());
            Request {
                workload: &input.workload,
                history: &input.hourly,
                origin: order.as_of,
                horizon_steps: steps,
                zone,
                state: order.calibration.forecasters.get(&input.workload),
                calibration: order.calibration.generation,
            }
        })
        .collect();
    models::forecast_all(&requests).into_iter().filter_map(Result::ok).collect()
}

/// Load of one service in every step.
///
/// The forecast is by hour. Demand may step at the full hour or rise evenly towards the next: so the hour's own level is planned for from its first
/// minute on, and half-way to the line between the middles of neighbouring hours where that lies above. Both are raised by the learned ratio of
/// the peak to the mean, since capacity is bought for the peak. The near steps serve at least what came lately and the queue that has formed; a
/// surprise above the band fades over two hours.
pub(crate) fn planned(
    input: &ServiceInput,
    forecast: Option<&Forecast>,
    state: Option<&ForecasterState>,
    level: f64,
    steps: &[Step],
    as_of: Timestamp,
) -> Vec<StepDemand> {
    let peak = state.and_then(|s| s.peak_ratio).map_or(PEAK_RATIO_PRIOR, |e| e.value.max(1.0));
    let lately = input.recent.iter().copied().fold(0.0, f64::max);
    let surprise = forecast.and_then(|f| f.quantile(as_of, 0.95)).map_or(1.0, |high| if high > 0.0 && lately > high { lately / high } else { 1.0 });
    steps
        .iter()
        .map(|step| {
            let ahead = step.start.since(as_of);
            let from_forecast = |level: f64| forecast.and_then(|f| highest_in(f, step, level));
            let fade = 1.0 - (ahead.as_secs_f64() / SURPRISE_FADES.as_secs_f64()).min(1.0);
            let lift = 1.0 + (surprise - 1.0) * fade;
            // Without a forecast what came lately is held.
            let median = from_forecast(0.5).unwrap_or(lately);
            let mut planned = with_peak(median, from_forecast(level).unwrap_or(lately), peak) * lift;
            if ahead < NEAR {
                planned = planned.max(lately);
            }
            if ahead < DRAIN {
                planned += input.waiting / DRAIN.as_secs_f64();
            }
            StepDemand { planned, median }
        })
        .collect()
}

/// Load at a quantile with the peak inside the hour. How far the hour's mean lies above its median, and how far the peak lies above the mean, are
/// independent of each other: their relative excesses add up as squares. The product of the two would buy for a bad hour and a bad minute
/// in it at once, which is rarer than either.
fn with_peak(median: f64, quantile: f64, peak: f64) -> f64 {
    if median <= 0.0 || quantile <= median {
        return quantile * peak;
    }
    let (above, peaked) = (quantile / median - 1.0, peak - 1.0);
    median * (1.0 + above.hypot(peaked))
}

/// The highest level in a step.
fn highest_in(forecast: &Forecast, step: &Step, level: f64) -> Option<f64> {
    let last = step.end() - Span(1);
    let mut points = vec![step.start, last];
    // Middles of hours inside the step are where the line can bend.
    let half = Span(forecast.step.0 / 2);
    let mut middle = step.start.floor(forecast.step) + half;
    while middle <= last {
        if middle >= step.start {
            points.push(middle);
        }
        middle = middle + forecast.step;
    }
    points.into_iter().filter_map(|at| level_at(forecast, at, level)).reduce(f64::max)
}

fn level_at(forecast: &Forecast, at: Timestamp, level: f64) -> Option<f64> {
    let half = Span(forecast.step.0 / 2);
    let here = forecast.quantile(at, level)?;
    let middle = at.floor(forecast.step) + half;
    let (neighbour, away) = if at < middle { (at - forecast.step, middle.since(at)) } else { (at + forecast.step, at.since(middle)) };
    let there = forecast.quantile(neighbour, level).unwrap_or(here);
    let line = here + (there - here) * away.as_secs_f64() / forecast.step.as_secs_f64();
    Some(here.max(here.midpoint(line)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{ForecastId, LEVELS, Series, WorkloadId, planning_steps};

    fn forecast(rows: &[f64]) -> Forecast {
        Forecast {
            id: ForecastId::new("f").unwrap(),
            workload: WorkloadId::new("w").unwrap(),
            origin: Timestamp(0),
            start: Timestamp(0),
            step: Span::HOUR,
            levels: LEVELS.to_vec(),
            values: rows.iter().map(|v| vec![*v; LEVELS.len()]).collect(),
            forecaster: "seasonal_naive".into(),
            calibration: 1,
        }
    }

    fn input(recent: Vec<f64>, waiting: f64) -> ServiceInput {
        ServiceInput {
            workload: WorkloadId::new("w").unwrap(),
            hourly: Series::new(Timestamp(0), Span::HOUR, Vec::new()).unwrap(),
            recent,
            waiting,
            input_tokens: None,
            output_tokens: None,
            prefix_hit_rate: None,
        }
    }

    #[test]
    fn an_hour_is_planned_for_from_its_first_minute_and_a_rise_from_before_it() {
        let f = forecast(&[10.0, 30.0, 30.0]);
        assert_eq!(level_at(&f, Timestamp(1_800), 0.5), Some(10.0));
        assert_eq!(level_at(&f, Timestamp(3_599), 0.5).map(f64::round), Some(15.0));
        assert_eq!(level_at(&f, Timestamp(3_600), 0.5), Some(30.0));
        assert_eq!(level_at(&f, Timestamp(5_400), 0.5), Some(30.0));
    }

    #[test]
    fn what_came_lately_is_held_without_a_forecast() {
        let steps = planning_steps(Timestamp(0), Span::hours(3));
        let demand = planned(&input(vec![4.0, 8.0], 0.0), None, None, 0.9, &steps, Timestamp(0));
        assert!(demand.iter().all(|d| (d.planned - 8.0 * PEAK_RATIO_PRIOR).abs() < 1e-9), "{demand:?}");
    }

    #[test]
    fn a_surprise_fades_and_a_queue_is_drained() {
        let f = forecast(&[10.0; 26]);
        let steps = planning_steps(Timestamp(0), Span::hours(4));
        let calm = planned(&input(vec![10.0], 0.0), Some(&f), None, 0.9, &steps, Timestamp(0));
        let wild = planned(&input(vec![40.0], 600.0), Some(&f), None, 0.9, &steps, Timestamp(0));
        assert!(wild[0].planned >= 40.0 * PEAK_RATIO_PRIOR + 1.0 - 1e-9);
        assert!(wild[3].planned > calm[3].planned && wild[3].planned < wild[0].planned);
        assert!((wild[7].planned - calm[7].planned).abs() < 1e-9);
    }
}
