//! Rolling origins: what each expert would have said, and how it came.

use crate::calendar;
use crate::experts::{self, Opinions, PUBLISHED};
use crate::history::History;
use crate::mixture;
use crate::pinball::{Score, Tally};
use fleet::{Series, Span, Timestamp};
use jiff::tz::TimeZone;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Origins the first choice of weights is made on.
const CHOICE_ORIGINS: i64 = 4;

/// Hours between them: not a divisor of a day, so that they fall on different hours.
const CHOICE_SPACING_HOURS: i64 = 31;

/// Hours ahead it looks.
const CHOICE_HORIZON: usize = 24;

/// Known hours before an origin from which it is scored at all.
const CHOICE_KNOWN_MIN: usize = 48;

/// Scores every expert, and the mixture named `published`, at each of `origins` over `horizon` hours. Only values before an origin are used
/// at it; the mixture's weights come from the origins before. Hours that are missing are not scored. An expert is scored where it speaks;
/// an unknown zone counts as UTC. `history` is hourly, in any unit.
#[must_use]
pub fn backtest(history: &Series, zone: &str, origins: &[Timestamp], horizon: usize) -> BTreeMap<String, Score> {
    let zone = calendar::zone(zone).unwrap_or(TimeZone::UTC);
    let mut ordered = origins.to_vec();
    ordered.sort();
    let opinions: Vec<(Timestamp, Opinions)> = ordered.into_par_iter().map(|origin| (origin, at(history, &zone, origin, horizon))).collect();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for (origin, mut opinions) in opinions {
        let weights = weights(&tallies, &opinions);
        if !opinions.is_empty() {
            opinions.insert(PUBLISHED, mixture::publish(&opinions, &weights, &[]));
        }
        for (name, rows) in opinions {
            let tally = tallies.entry(name.to_owned()).or_default();
            for (step, row) in rows.iter().enumerate() {
                if let Some(y) = actual(history, origin, step) {
                    tally.add(row, y);
                }
            }
        }
    }
    tallies.into_iter().map(|(name, tally)| (name, tally.score())).collect()
}

fn at(history: &Series, zone: &TimeZone, origin: Timestamp, horizon: usize) -> Opinions {
    History::new(history, origin, horizon, zone).map(|h| experts::ask(&h, horizon)).unwrap_or_default()
}

fn actual(history: &Series, origin: Timestamp, step: usize) -> Option<f64> {
    history.at(origin.hour() + Span::hours(i64::try_from(step).ok()?))
}

/// Weights for the experts that spoke, by their mean loss so far; one without a loss is taken for as good as the mean of the others.
#[expect(clippy::cast_precision_loss, reason = "a handful of experts")]
fn weights(tallies: &BTreeMap<String, Tally>, opinions: &Opinions) -> BTreeMap<String, f64> {
    let losses: Vec<(&str, Option<f64>)> = opinions.keys().map(|name| (*name, tallies.get(*name).and_then(Tally::mean_loss))).collect();
    let known: Vec<f64> = losses.iter().filter_map(|(_, loss)| *loss).collect();
    let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
    mixture::weights_from_losses(&losses.into_iter().map(|(name, loss)| (name.to_owned(), loss.unwrap_or(mean))).collect())
}

/// The weights a workload starts with: those of a rolling origin over its own last days, by pinball loss. The best expert gets the largest,
/// close ones share. Experts that only now have enough history count as the mean.
pub(crate) fn first_weights(history: &Series, zone: &TimeZone, origin: Timestamp, opinions: &Opinions) -> BTreeMap<String, f64> {
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    for index in 1..=CHOICE_ORIGINS {
        let origin = origin.hour() - Span::hours(index * CHOICE_SPACING_HOURS);
        let Some(past) = History::new(history, origin, CHOICE_HORIZON, zone).filter(|h| h.count() >= CHOICE_KNOWN_MIN) else { continue };
        for (name, rows) in experts::ask(&past, CHOICE_HORIZON) {
            let tally = tallies.entry(name.to_owned()).or_default();
            for (step, row) in rows.iter().enumerate() {
                if let Some(y) = actual(history, origin, step) {
                    tally.add(row, y);
                }
            }
        }
    }
    weights(&tallies, opinions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field case 51: the scores of a flat history are not ruined.
    #[test]
    fn flat_histories_are_forecast_without_error() {
        for value in [5.0, 0.0] {
            let series = Series::new(Timestamp(0), Span::HOUR, vec![Some(value); 168]).unwrap();
            let origins: Vec<Timestamp> = (0..6).map(|i| Timestamp(0) + Span::hours(96 + 12 * i)).collect();
            for (name, score) in backtest(&series, "UTC", &origins, 12) {
                assert!(score.n == 72 && score.wape.is_none_or(|w| w < 1e-9) && score.wql.is_none_or(|w| w < 1e-9), "{name} {score:?}");
            }
        }
    }

    #[test]
    fn a_change_after_the_origin_changes_nothing_but_the_score() {
        let values = |spike: f64| (0..400).map(|h| Some(if h < 300 { 10.0 + f64::from(h % 24) } else { spike })).collect::<Vec<_>>();
        let zone = TimeZone::UTC;
        let said = |spike: f64| at(&Series::new(Timestamp(0), Span::HOUR, values(spike)).unwrap(), &zone, Timestamp(0) + Span::hours(300), 24);
        assert_eq!(said(0.0), said(1e6));
    }
}
