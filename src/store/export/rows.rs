//! The history as rows of flat tables, read piece by piece.

use super::What;
use super::table::{Cell, Column, Kind};
use crate::{Resolution, Rollup, Store, StoreError, wait};
use fleet::{Forecast, MemberId, Observation, Outcome, Signal, Span, TargetId, Timestamp, WorkloadWindow};
use std::collections::BTreeMap;

/// What a row is handed to.
type Put<'a> = &'a mut dyn FnMut(Vec<Cell>) -> Result<(), StoreError>;

/// A row of the cells its values make.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$(Cell::from($value)),*] };
}

const OBSERVATIONS: &[Column] = &[
    Column::of("source", Kind::Text),
    Column::maybe("member", Kind::Text),
    Column::of("signal", Kind::Text),
    Column::maybe("part", Kind::Text),
    Column::of("observed", Kind::Instant),
    Column::of("received", Kind::Instant),
    Column::of("value", Kind::Number),
];

const ROLLUPS: &[Column] = &[
    Column::of("source", Kind::Text),
    Column::maybe("member", Kind::Text),
    Column::of("signal", Kind::Text),
    Column::maybe("part", Kind::Text),
    Column::of("start", Kind::Instant),
    Column::of("length_s", Kind::Integer),
    Column::of("count", Kind::Integer),
    Column::of("mean", Kind::Number),
    Column::of("min", Kind::Number),
    Column::of("max", Kind::Number),
    Column::of("last", Kind::Number),
];

const WINDOWS: &[Column] = &[
    Column::of("workload", Kind::Text),
    Column::of("start", Kind::Instant),
    Column::of("length_s", Kind::Integer),
    Column::maybe("arrivals_per_s", Kind::Number),
    Column::maybe("peak_per_s", Kind::Number),
    Column::maybe("refused_per_s", Kind::Number),
    Column::maybe("finished_per_s", Kind::Number),
    Column::maybe("sequences_per_request", Kind::Number),
    Column::maybe("input_tokens", Kind::Number),
    Column::maybe("output_tokens", Kind::Number),
    Column::maybe("prefix_hit_rate", Kind::Number),
    Column::maybe("waiting", Kind::Number),
    Column::maybe("running", Kind::Number),
    Column::maybe("inter_token_s", Kind::Number),
    Column::maybe("first_tokens", Kind::Number),
    Column::maybe("first_tokens_in_time", Kind::Number),
    Column::of("ready", Kind::Integer),
    Column::of("completeness", Kind::Number),
    Column::of("saturated", Kind::Flag),
];

const FORECASTS: &[Column] = &[
    Column::of("forecast", Kind::Text),
    Column::of("workload", Kind::Text),
    Column::of("forecaster", Kind::Text),
    Column::of("calibration", Kind::Integer),
    Column::of("origin", Kind::Instant),
    Column::of("start", Kind::Instant),
    Column::of("length_s", Kind::Integer),
    Column::of("step", Kind::Integer),
    Column::of("level", Kind::Number),
    Column::of("requests_per_s", Kind::Number),
];

const OUTCOMES: &[Column] = &[
    Column::of("outcome", Kind::Text),
    Column::of("start", Kind::Instant),
    Column::of("length_s", Kind::Integer),
    Column::maybe("plan", Kind::Text),
    Column::of("applied", Kind::Flag),
    Column::of("workload", Kind::Text),
    Column::maybe("observed_per_s", Kind::Number),
    Column::maybe("peak_per_s", Kind::Number),
    Column::maybe("promised_per_s", Kind::Number),
    Column::maybe("attainment", Kind::Number),
    Column::of("ready", Kind::Integer),
    Column::of("censored", Kind::Flag),
    Column::of("completeness", Kind::Number),
];

const JOBS: &[Column] = &[
    Column::of("outcome", Kind::Text),
    Column::of("start", Kind::Instant),
    Column::of("length_s", Kind::Integer),
    Column::maybe("plan", Kind::Text),
    Column::of("job", Kind::Text),
    Column::of("remaining_s", Kind::Number),
    Column::of("ended", Kind::Flag),
    Column::of("late", Kind::Flag),
];

const STARTS: &[Column] = &[
    Column::of("outcome", Kind::Text),
    Column::of("start", Kind::Instant),
    Column::of("length_s", Kind::Integer),
    Column::maybe("plan", Kind::Text),
    Column::of("replica", Kind::Text),
    Column::of("variant", Kind::Text),
    Column::of("expected_s", Kind::Number),
    Column::of("observed_s", Kind::Number),
];

pub(super) fn columns(what: What) -> &'static [Column] {
    match what {
        What::Observations(Resolution::Raw) => OBSERVATIONS,
        What::Observations(Resolution::Minute | Resolution::Hour) => ROLLUPS,
        What::Windows => WINDOWS,
        What::Forecasts => FORECASTS,
        What::Outcomes => OUTCOMES,
        What::Jobs => JOBS,
        What::Starts => STARTS,
    }
}

/// Hands over every row of the span, in order of time; observations source by source.
pub(super) fn each(store: &Store, what: What, from: Timestamp, to: Timestamp, put: Put<'_>) -> Result<(), StoreError> {
    match what {
        What::Observations(resolution) => by_source(store, resolution, from, to, put),
        What::Windows => pieces(from, to, Span::DAY, |from, to| wait(store.windows(None, from, to))?.into_iter().try_for_each(|w| put(window(w)))),
        // A forecast holds thousands of numbers, and there is one an adjustment interval and workload.
        What::Forecasts => pieces(from, to, Span::HOUR, |from, to| wait(store.forecasts(None, from, to))?.iter().try_for_each(|f| forecast(f, put))),
        What::Outcomes => pieces(from, to, Span::DAY, |from, to| wait(store.outcomes(from, to))?.iter().try_for_each(|o| services(o, put))),
        What::Jobs => pieces(from, to, Span::DAY, |from, to| wait(store.outcomes(from, to))?.iter().try_for_each(|o| jobs(o, put))),
        What::Starts => pieces(from, to, Span::DAY, |from, to| wait(store.outcomes(from, to))?.iter().try_for_each(|o| starts(o, put))),
    }
}

/// The span in pieces of a length, the last one shorter.
fn pieces(from: Timestamp, to: Timestamp, length: Span, mut piece: impl FnMut(Timestamp, Timestamp) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let mut start = from;
    while start < to {
        let end = (start + length).min(to);
        piece(start, end)?;
        start = end;
    }
    Ok(())
}

fn by_source(store: &Store, resolution: Resolution, from: Timestamp, to: Timestamp, put: Put<'_>) -> Result<(), StoreError> {
    let mut sources: BTreeMap<TargetId, (Timestamp, Timestamp)> = BTreeMap::new();
    for series in wait(store.series_kept(resolution))? {
        let (first, last) = sources.entry(series.source).or_insert((series.first, series.last));
        (*first, *last) = ((*first).min(series.first), (*last).max(series.last));
    }
    // Some 10,000 to 100,000 rows of a source with eighty series.
    let length = match resolution {
        Resolution::Raw => Span::hours(4),
        Resolution::Minute => Span::DAY,
        Resolution::Hour => Span::hours(24 * 30),
    };
    for (source, (first, last)) in sources {
        pieces(from.max(first), to.min(last + Span(1)), length, |from, to| {
            if resolution == Resolution::Raw {
                wait(store.observations(&source, None, from, to))?.into_iter().try_for_each(|o| put(observation(o)))
            } else {
                wait(store.rollups(&source, None, resolution, from, to))?.into_iter().try_for_each(|r| put(rollup(r)))
            }
        })?;
    }
    Ok(())
}

fn named(source: TargetId, member: Option<MemberId>, signal: Signal, part: Option<String>) -> Vec<Cell> {
    row![String::from(source), member.map(String::from), signal.name(), part]
}

fn observation(o: Observation) -> Vec<Cell> {
    [named(o.source, o.member, o.signal, o.part), row![o.observed, o.received, o.value]].concat()
}

fn rollup(r: Rollup) -> Vec<Cell> {
    let s = r.summary;
    [named(r.source, r.member, r.signal, r.part), row![r.start, r.length, s.count, s.mean, s.min, s.max, s.last]].concat()
}

fn window(w: WorkloadWindow) -> Vec<Cell> {
    row![
        String::from(w.workload),
        w.start,
        w.length,
        w.arrivals_per_s,
        w.peak_per_s,
        w.refused_per_s,
        w.finished_per_s,
        w.sequences_per_request,
        w.input_tokens,
        w.output_tokens,
        w.prefix_hit_rate,
        w.waiting,
        w.running,
        w.inter_token_s,
        w.first_tokens,
        w.first_tokens_in_time,
        w.ready.values().copied().map(u64::from).sum::<u64>(),
        w.completeness,
        w.saturated,
    ]
}

fn forecast(f: &Forecast, put: Put<'_>) -> Result<(), StoreError> {
    let mut start = f.start;
    for (step, values) in (1_u64..).zip(&f.values) {
        for (level, value) in f.levels.iter().zip(values) {
            let head = row![f.id.to_string(), f.workload.to_string(), f.forecaster.clone(), f.calibration, f.origin];
            put([head, row![start, f.step, step, *level, *value]].concat())?;
        }
        start = start + f.step;
    }
    Ok(())
}

/// Columns that all tables of outcomes begin with.
fn head(o: &Outcome) -> Vec<Cell> {
    row![o.id.to_string(), o.start, o.length, o.plan.as_ref().map(ToString::to_string)]
}

fn services(o: &Outcome, put: Put<'_>) -> Result<(), StoreError> {
    for s in &o.services {
        let ready = s.ready.values().copied().map(u64::from).sum::<u64>();
        let numbers = row![s.observed_per_s, s.peak_per_s, s.promised_per_s, s.attainment, ready, s.censored, s.completeness];
        put([head(o), row![o.applied, s.workload.to_string()], numbers].concat())?;
    }
    Ok(())
}

fn jobs(o: &Outcome, put: Put<'_>) -> Result<(), StoreError> {
    o.jobs.iter().try_for_each(|j| put([head(o), row![j.job.to_string(), j.remaining_s, j.ended, j.late]].concat()))
}

fn starts(o: &Outcome, put: Put<'_>) -> Result<(), StoreError> {
    o.starts.iter().try_for_each(|s| put([head(o), row![s.replica.to_string(), s.variant.to_string(), s.expected_s, s.observed_s]].concat()))
}
