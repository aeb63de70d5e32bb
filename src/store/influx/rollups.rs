//! Observations summed up by minutes and hours: what the server keeps, and what it can still make of finer ones. Where both are there, the one
//! made of more observations counts.

use super::flux::{self, Row, quoted, time};
use super::init;
use super::points::{self, SECOND};
use super::read::{END, FIRST, floor, range, signal_named};
use super::sender::{self, Shared};
use super::settings::Bucket;
use crate::{Resolution, Rollup, SeriesKept, StoreError, Summary};
use fleet::{MemberId, Signal, Span, TargetId, Timestamp};
use std::{collections::BTreeMap, sync::Arc};

/// The numbers of a roll-up: names of its fields, and of Flux's functions that make them.
pub(crate) const FIELDS: [&str; 5] = ["count", "mean", "min", "max", "last"];

/// Source, signal's name, member, part, start in seconds: their order is that of the answers.
type Key = (String, String, Option<String>, Option<String>, i64);

/// The same without the start.
type Series = (String, String, Option<String>, Option<String>);

/// Roll-ups by series and start.
type Summaries = BTreeMap<Key, Summary>;

/// What is asked for: one source or all, one signal or all, and the bounds of the starts in seconds, whole windows.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub source: Option<TargetId>,
    pub signal: Option<Signal>,
    pub from: i64,
    pub to: i64,
}

impl Scope {
    fn filter(&self) -> String {
        let is = |tag: &str, value: &str| format!(" and r.{tag} == {}", quoted(&super::line::stored(value)));
        let source = self.source.as_ref().map(|source| is("source", source.as_str())).unwrap_or_default();
        let signal = self.signal.map(|signal| is("signal", &signal.name())).unwrap_or_default();
        format!("(r._measurement == \"engine\" or r._measurement == \"gpu\"){source}{signal}")
    }

    fn bucket(&self, shared: &Shared, bucket: Bucket) -> String {
        let (from, to) = (self.from.saturating_mul(SECOND), self.to.saturating_mul(SECOND));
        format!("from(bucket: {}) |> {}", quoted(&shared.link.settings.bucket(bucket)), range(from, to))
    }
}

fn word(length: Span) -> &'static str {
    if length == Span::HOUR { "1h" } else { "1m" }
}

/// What the server can make of raw observations.
async fn made(shared: &Shared, scope: &Scope, length: Span) -> Result<Summaries, StoreError> {
    let points = format!("points = {} |> filter(fn: (r) => {} and r._field == \"value\")\n", scope.bucket(shared, Bucket::Raw), scope.filter());
    let window = word(length);
    let one =
        |name: &&str| format!("points |> aggregateWindow(every: {window}, fn: {name}, createEmpty: false, timeSrc: \"_start\") |> yield(name: \"{name}\")\n");
    let flux = std::iter::once(points).chain(FIELDS.iter().map(one)).collect();
    summaries(shared, &shared.link.rows("roll-ups", flux).await?, "result")
}

/// What the server keeps.
async fn kept(shared: &Shared, scope: &Scope, bucket: Bucket) -> Result<Summaries, StoreError> {
    let flux = format!("{} |> filter(fn: (r) => {})", scope.bucket(shared, bucket), scope.filter());
    summaries(shared, &shared.link.rows("roll-ups", flux).await?, "_field")
}

/// Puts the five numbers together; `named` is the column that tells which one a row has.
fn summaries(shared: &Shared, rows: &[Row], named: &str) -> Result<Summaries, StoreError> {
    let mut parts: BTreeMap<Key, [Option<f64>; FIELDS.len()]> = BTreeMap::new();
    for row in rows {
        let key = key(row, "_time").ok_or_else(|| shared.link.failed("read", "roll-ups", "a row names no series".into()))?;
        let field = row.cell(named).and_then(|name| FIELDS.iter().position(|field| *field == name));
        if let Some(field) = field {
            parts.entry(key).or_default()[field] = row.number("_value");
        }
    }
    let whole = |(key, [count, mean, min, max, last]): (Key, [Option<f64>; FIELDS.len()])| {
        Some((key, Summary { count: whole(count?)?, mean: mean?, min: min?, max: max?, last: last? }))
    };
    Ok(parts.into_iter().filter_map(whole).collect())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count that was written from an integer far below 2^53")]
fn whole(count: f64) -> Option<u64> {
    (count.fract() == 0.0 && count >= 1.0).then_some(count as u64)
}

fn key(row: &Row, instant: &str) -> Option<Key> {
    let start = row.time(instant)?.div_euclid(SECOND);
    Some((row.text("source")?, row.text("signal")?, row.text("member"), row.text("part"), start))
}

/// Of two, the one made of more.
fn fuller(mut one: Summaries, other: Summaries) -> Summaries {
    for (key, summary) in other {
        let slot = one.entry(key).or_insert(summary);
        if summary.count > slot.count {
            *slot = summary;
        }
    }
    one
}

async fn minutes(shared: &Shared, scope: &Scope) -> Result<Summaries, StoreError> {
    Ok(fuller(made(shared, scope, Span::MINUTE).await?, kept(shared, scope, Bucket::Minute).await?))
}

/// Hours are made of raw observations, or kept; of minutes only where those hold more than either: there the raw ones are gone.
async fn hours(shared: &Shared, scope: &Scope) -> Result<Summaries, StoreError> {
    let mut hours = fuller(made(shared, scope, Span::HOUR).await?, kept(shared, scope, Bucket::Hour).await?);
    let counts = format!(
        "{} |> filter(fn: (r) => {} and r._field == \"count\") |> aggregateWindow(every: 1h, fn: sum, createEmpty: false, timeSrc: \"_start\")",
        scope.bucket(shared, Bucket::Minute),
        scope.filter()
    );
    let counts = shared.link.rows("roll-ups", counts).await?;
    let counts = counts.iter().filter_map(|row| Some((key(row, "_time")?, whole(row.number("_value")?)?)));
    let missed: Vec<Key> = counts.filter(|(key, count)| hours.get(key).is_none_or(|hour| hour.count < *count)).map(|(key, _)| key).collect();
    let starts = || missed.iter().map(|key| key.4);
    let (Some(first), Some(last)) = (starts().min(), starts().max()) else { return Ok(hours) };
    let minutes = minutes(shared, &Scope { from: first, to: last + Span::HOUR.0, ..scope.clone() }).await?;
    let mut joined: BTreeMap<Key, Vec<Summary>> = missed.into_iter().map(|key| (key, Vec::new())).collect();
    for ((source, signal, member, part, start), summary) in minutes {
        if let Some(parts) = joined.get_mut(&(source, signal, member, part, floor(start, Span::HOUR))) {
            parts.push(summary);
        }
    }
    hours = fuller(hours, joined.into_iter().filter_map(|(key, parts)| Some((key, Summary::join(&parts)?))).collect());
    Ok(hours)
}

/// The roll-ups of a scope, in the order of the seam.
pub(crate) async fn rollups(shared: &Arc<Shared>, resolution: Resolution, mut scope: Scope) -> Result<Vec<Rollup>, StoreError> {
    let length = resolution.length();
    // Starts from `from` on and before `to`: whole windows only.
    scope.from = -floor(-scope.from, length);
    scope.to = -floor(-scope.to, length);
    if scope.from >= scope.to {
        return Ok(Vec::new());
    }
    let found = if resolution == Resolution::Hour { hours(shared, &scope).await? } else { minutes(shared, &scope).await? };
    found.into_iter().map(|(key, summary)| rollup(shared, key, length, summary)).collect()
}

fn rollup(shared: &Shared, (source, signal, member, part, start): Key, length: Span, summary: Summary) -> Result<Rollup, StoreError> {
    let strange = |what: String| shared.link.failed("read", "roll-ups", what);
    Ok(Rollup {
        source: TargetId::new(source).map_err(|error| strange(error.to_string()))?,
        member: member.map(MemberId::new).transpose().map_err(|error| strange(error.to_string()))?,
        signal: signal_named(&signal).ok_or_else(|| strange(format!("{signal:?} is no signal")))?,
        part,
        start: Timestamp(start),
        length,
        summary,
    })
}

/// Sums up what starts in a span of seconds at one resolution and keeps it where it is fuller than what was kept, or corrected.
async fn keep(shared: &Shared, resolution: Resolution, from: i64, to: i64) -> Result<(), StoreError> {
    let length = resolution.length();
    let scope = Scope { source: None, signal: None, from: floor(from, length), to: -floor(-to, length) };
    let hour = resolution == Resolution::Hour;
    let bucket = if hour { Bucket::Hour } else { Bucket::Minute };
    let (fullest, kept) = (if hour { hours(shared, &scope).await? } else { minutes(shared, &scope).await? }, kept(shared, &scope, bucket).await?);
    let better = fullest.into_iter().filter(|(key, summary)| kept.get(key) != Some(summary));
    let lines = better.map(|(key, summary)| rollup(shared, key, length, summary).map(|rollup| points::rollup(&rollup)));
    let lines: Vec<String> = lines.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    for part in lines.chunks(shared.link.settings.limits.batch_points_max) {
        let answer = shared.link.write(bucket, &part.concat()).await.map_err(|error| shared.link.away(error.to_string()))?;
        if answer.status != 204 {
            let words = flux::short(&String::from_utf8_lossy(&answer.body));
            return Err(shared.link.failed("keep", "roll-ups", format!("HTTP {}: {words}", answer.status)));
        }
    }
    Ok(())
}

/// The same before an instant, ahead of the removal of what they are made of.
pub(crate) async fn keep_before(shared: &Shared, resolution: Resolution, limit: i64) -> Result<(), StoreError> {
    keep(shared, resolution, FIRST / SECOND + 1, limit).await
}

/// How far back from now the server is asked to sum up again what its tasks may not have come to, and how far ahead clocks may be.
const RECENT: Span = Span(3 * 3_600);

/// Sums up whatever is not summed up yet. What is younger than its retention is all there, and the server does it; of what is older, some may be
/// gone, and only what is fuller than before is kept.
pub(crate) async fn sum_up(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let now = sender::wall();
    let oldest = floor((now - shared.link.settings.retention.observations).0, Span::HOUR);
    let (recent, ahead) = ((now - RECENT).0, (now + RECENT).0);
    let late = shared.blocking(|shared| shared.outbox.late()).await?;
    if let Some((first, last)) = late {
        if first < oldest {
            keep(shared, Resolution::Minute, first, oldest.min(last + 1)).await?;
            keep(shared, Resolution::Hour, first, oldest.min(last + 1)).await?;
        }
        on_server(shared, first.max(oldest), last.min(recent)).await?;
    }
    on_server(shared, recent.max(oldest), ahead).await?;
    match late {
        Some(late) => shared.blocking(move |shared| shared.outbox.summed_up(late)).await,
        None => Ok(()),
    }
}

/// Lets the server sum up the hours from one instant to another, both in seconds and included.
async fn on_server(shared: &Shared, first: i64, last: i64) -> Result<(), StoreError> {
    if first > last {
        return Ok(());
    }
    let [start, stop] = [floor(first, Span::HOUR), floor(last, Span::HOUR) + Span::HOUR.0].map(|at| time(at.saturating_mul(SECOND)));
    for (bucket, window) in [(Bucket::Minute, "1m"), (Bucket::Hour, "1h")] {
        shared.link.rows("observations to sum up", init::summing_up(&shared.link, bucket, window, &start, &stop)).await?;
    }
    Ok(())
}

/// The series of a bucket: their first and last instants and how many points they have.
pub(crate) async fn series_kept(shared: &Arc<Shared>, resolution: Resolution) -> Result<Vec<SeriesKept>, StoreError> {
    if resolution != Resolution::Raw {
        sum_up(shared).await?;
    }
    let (bucket, field) = match resolution {
        Resolution::Raw => (Bucket::Raw, "value"),
        Resolution::Minute => (Bucket::Minute, "count"),
        Resolution::Hour => (Bucket::Hour, "count"),
    };
    let bucket = quoted(&shared.link.settings.bucket(bucket));
    let points = format!(
        "points = from(bucket: {bucket}) |> {}\n    |> filter(fn: (r) => (r._measurement == \"engine\" or r._measurement == \"gpu\") and r._field == \"{field}\")\n",
        range(FIRST, END)
    );
    let one = |name| format!("points |> {name}() |> yield(name: \"{name}\")\n");
    let flux = std::iter::once(points).chain(["first", "last", "count"].map(one)).collect();
    let mut found: BTreeMap<Series, (i64, i64, u64)> = BTreeMap::new();
    for row in shared.link.rows("the series", flux).await? {
        let (Some(source), Some(signal)) = (row.text("source"), row.text("signal")) else { continue };
        let series = found.entry((source, signal, row.text("member"), row.text("part"))).or_default();
        let seconds = row.time("_time").map_or(0, |at| at.div_euclid(SECOND));
        match row.cell("result") {
            Some("first") => series.0 = seconds,
            Some("last") => series.1 = seconds,
            _ => series.2 = row.count("_value").unwrap_or(0),
        }
    }
    let strange = |what: String| shared.link.failed("read", "the series", what);
    let one = |((source, signal, member, part), (first, last, points)): (Series, (i64, i64, u64))| {
        Ok(SeriesKept {
            source: TargetId::new(source).map_err(|error| strange(error.to_string()))?,
            member: member.map(MemberId::new).transpose().map_err(|error| strange(error.to_string()))?,
            signal: signal_named(&signal).ok_or_else(|| strange(format!("{signal:?} is no signal")))?,
            part,
            first: Timestamp(first),
            last: Timestamp(last),
            points,
        })
    };
    found.into_iter().map(one).collect()
}
