//! One workload's recent hours, made ready for the experts.

use crate::calendar::{self, LocalHour};
use fleet::{Series, Span, Timestamp};
use jiff::tz::TimeZone;

/// Hours of history used at most: six weeks. Older demand says little about tomorrow and costs time.
pub(crate) const HISTORY_HOURS_MAX: usize = 6 * 168;

/// Values above this are taken for unknown: no demand is that large, and sums of squares stay finite below it.
const VALUE_MAX: f64 = 1e15;

/// Hours a series must not have moved at all for what lies before to be forgotten: longer than a flat weekend.
const FLAT_HOURS: usize = 72;

/// Known hours from which a history that never moved is forecast as a constant, without a spread: a day.
pub(crate) const CONSTANT_HOURS_MIN: usize = 24;

/// Hours a step up must have lasted to be taken for good.
const SHIFT_HOURS: usize = 6;

/// How far above the highest hour before it every hour since must lie.
const SHIFT_MARGIN: f64 = 1.5;

/// Hours known before the step: two days, so that the highest of them means something.
const SHIFT_BEFORE: usize = 48;

/// Hours back a step is looked for: after two days the experts have seen the new level themselves.
const SHIFT_WINDOW: usize = 72;

/// One workload's recent hours. Demand is kept as `z = sqrt(demand / scale)`: the root evens out the spread of counts, which grows with their
/// level, and turns back into a demand that cannot be negative.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// The hour after the last one, which is the first one forecast.
    pub(crate) origin_hour: Timestamp,
    /// Mean of what is known, in requests/s; one for a history of zeros.
    pub(crate) scale: f64,
    /// `z` by hour; gaps stay gaps.
    pub(crate) known: Vec<Option<f64>>,
    /// `z` by hour with gaps filled from the same hour of other days.
    pub(crate) filled: Vec<f64>,
    /// The calendar of the hours above and of the horizon after them.
    pub(crate) calendar: Vec<LocalHour>,
}

impl History {
    /// The hours of `series` before the hour that holds `origin`: at most six weeks, beginning with the first known one, cut where the series
    /// stopped moving. Values that are negative, not finite or absurdly large are unknown. `None` when nothing is known.
    ///
    /// The caller has made sure that the series is hourly.
    pub(crate) fn new(series: &Series, origin: Timestamp, horizon: usize, zone: &TimeZone) -> Option<Self> {
        let origin_hour = origin.hour();
        let usable = |value: &f64| (0.0..=VALUE_MAX).contains(value);
        let hours = i64::try_from(HISTORY_HOURS_MAX).unwrap_or(i64::MAX);
        let at = |back: i64| series.at(origin_hour - Span::hours(back)).filter(usable);
        let values: Vec<Option<f64>> = (1..=hours).rev().map(at).skip_while(Option::is_none).collect();
        let mut values = values[flat_since(&values)..].to_vec();
        lift(&mut values);
        let present: Vec<f64> = values.iter().copied().flatten().collect();
        if present.is_empty() {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "at most six weeks of hours")]
        let mean = present.iter().sum::<f64>() / present.len() as f64;
        let scale = if mean > f64::MIN_POSITIVE { mean } else { 1.0 };
        let known: Vec<Option<f64>> = values.iter().map(|value| value.map(|v| (v / scale).sqrt())).collect();
        let filled = fill(&known);
        let first = origin_hour - Span::hours(i64::try_from(known.len()).unwrap_or(0));
        let calendar = (0..known.len() + horizon).map(|index| calendar::local_hour(first + Span::hours(i64::try_from(index).unwrap_or(0)), zone)).collect();
        Some(Self { origin_hour, scale, known, filled, calendar })
    }

    /// Hours from the first known one to the origin.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Hours known.
    pub(crate) fn count(&self) -> usize {
        self.known.iter().flatten().count()
    }

    /// Every known hour has the same value.
    pub(crate) fn constant(&self) -> Option<f64> {
        let mut values = self.known.iter().flatten();
        let first = *values.next()?;
        values.all(|value| (value - first).abs() <= 1e-12).then_some(first)
    }

    /// `z` back in requests/s. A negative `z` is no demand.
    pub(crate) fn demand(&self, z: f64) -> f64 {
        if z.is_nan() { f64::NAN } else { z.max(0.0).powi(2) * self.scale }
    }
}

/// Index of the first hour to keep: where a demand that has since stood still at one value above zero for three days began to do so. Zeros do
/// not count: a service that is idle for days comes back.
fn flat_since(values: &[Option<f64>]) -> usize {
    let Some(last) = values.last().copied().flatten().filter(|v| *v > 0.0) else { return 0 };
    let moved = values.iter().rposition(|value| value.is_none_or(|v| (v - last).abs() > 1e-9 * last));
    let since = moved.map_or(0, |index| index + 1);
    if values.len() - since >= FLAT_HOURS { since } else { 0 }
}

/// Brings what was before a lasting step up to the level after it. Experts that expect a day like those before would hang back for as long;
/// demand six hours long half as high again as in any hour of the weeks before is taken to stay. A step down is not treated so: it may be an
/// outage, and releasing too late costs less than too early.
fn lift(values: &mut [Option<f64>]) {
    let from = values.len().saturating_sub(SHIFT_WINDOW);
    let mean = |part: &[Option<f64>]| {
        let (sum, n) = part.iter().flatten().fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
        (n > 0.0).then_some(sum / n)
    };
    // Where the step began: the first hour from which nothing falls back below the margin.
    let highest: Vec<f64> = values.iter().scan(0.0_f64, |top, value| Some(std::mem::replace(top, value.map_or(*top, |v| top.max(v))))).collect();
    let mut lowest = f64::INFINITY;
    let mut known = 0;
    let mut since = None;
    for index in (from..values.len()).rev() {
        let Some(value) = values[index] else { continue };
        lowest = lowest.min(value);
        known += 1;
        if known >= SHIFT_HOURS && lowest > SHIFT_MARGIN * highest[index] && values[..index].iter().flatten().count() >= SHIFT_BEFORE {
            since = Some(index);
        }
    }
    let Some(since) = since else { return };
    let (before, after) = values.split_at_mut(since);
    if let (Some(low), Some(high)) = (mean(before).filter(|m| *m > 0.0), mean(after)) {
        for value in before.iter_mut().flatten() {
            *value *= high / low;
        }
    }
}

/// Fills gaps from the same hour of the nearest day before, then after, then from the nearest hour known before, then after.
fn fill(known: &[Option<f64>]) -> Vec<f64> {
    let n = known.len();
    let same_hour = |index: usize| {
        let before = (1..=index / 24).find_map(|day| known[index - 24 * day]);
        before.or_else(|| (index + 24..n).step_by(24).find_map(|later| known[later]))
    };
    let nearest = |index: usize| known[..index].iter().rev().chain(&known[index..]).find_map(|value| *value);
    (0..n).map(|index| known[index].or_else(|| same_hour(index)).or_else(|| nearest(index)).unwrap_or(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(values: &[Option<f64>]) -> Option<History> {
        let series = Series::new(Timestamp(0), Span::HOUR, values.to_vec()).unwrap();
        History::new(&series, series.end(), 0, &TimeZone::UTC)
    }

    #[test]
    fn a_gap_is_filled_from_yesterday_and_stays_a_gap() {
        let mut values: Vec<Option<f64>> = (0..48).map(|h| Some(f64::from(h % 24))).collect();
        values[30] = None;
        let history = history(&values).unwrap();
        assert_eq!(history.known[30], None);
        assert!((history.demand(history.filled[30]) - 6.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_a_demand_is_unknown() {
        assert!(history(&[None, Some(-3.0), Some(1e300)]).is_none());
        assert_eq!(history(&[Some(1.0), Some(-3.0), None]).unwrap().count(), 1);
    }

    #[test]
    fn three_flat_days_make_what_was_before_forgotten_but_idle_days_do_not() {
        let steps = |a: f64, b: f64| [vec![Some(a); 72], vec![Some(b); 72]].concat();
        assert_eq!(history(&steps(22.76, 12.99)).unwrap().len(), 72);
        assert_eq!(history(&steps(22.76, 0.0)).unwrap().len(), 144);
    }
}
