//! Reads observations and what they sum up to.
//!
//! Both tables begin with the instant, so one source is found minute by minute (or hour by hour): each step looks for the next instant that
//! holds anything, and there for each series of the source.

use crate::error::{StoreError, refused};
use crate::history::SeriesKept;
use crate::read::damaged;
use crate::rollup::{Resolution, Rollup, Summary};
use crate::summing;
use fleet::{MemberId, Observation, Signal, Span, TargetId, Timestamp};
use rusqlite::{Connection, Params, Row};
use std::collections::BTreeMap;

/// Observations of one source whose instant lies in a span: ?1 source, ?2 signal or NULL, ?3 from, ?4 to, ?5 and ?6 the first and last minute.
const OBSERVATIONS: &str = "WITH RECURSIVE minutes (at) AS (
        SELECT (SELECT minute FROM observation WHERE minute >= ?5 AND minute <= ?6 ORDER BY minute LIMIT 1)
        UNION ALL
        SELECT (SELECT minute FROM observation WHERE minute > at AND minute <= ?6 ORDER BY minute LIMIT 1) FROM minutes WHERE at IS NOT NULL
    )
    SELECT id, minute * 60 + second AS observed, lag, value
    FROM minutes CROSS JOIN series CROSS JOIN observation ON minute = at AND series = id
    WHERE source = ?1 AND (?2 IS NULL OR signal = ?2) AND observed >= ?3 AND observed < ?4";

/// Roll-ups of one source whose start lies in a span: ?1 source, ?2 signal or NULL, ?3 from, ?4 to, ?5 length.
const ROLLUPS: &str = "WITH RECURSIVE starts (at) AS (
        SELECT (SELECT start FROM rollup WHERE length = ?5 AND start >= ?3 AND start < ?4 ORDER BY start LIMIT 1)
        UNION ALL
        SELECT (SELECT start FROM rollup WHERE length = ?5 AND start > at AND start < ?4 ORDER BY start LIMIT 1) FROM starts WHERE at IS NOT NULL
    )
    SELECT id, at, count, mean, min, max, last
    FROM starts CROSS JOIN series CROSS JOIN rollup ON length = ?5 AND start = at AND series = id
    WHERE source = ?1 AND (?2 IS NULL OR signal = ?2)";

/// What to read.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub source: TargetId,
    pub signal: Option<Signal>,
    pub from: Timestamp,
    pub to: Timestamp,
}

/// What tells one series of a source from another.
#[derive(Debug, Clone)]
struct Name {
    signal: Signal,
    member: Option<MemberId>,
    part: Option<String>,
}

/// The series wanted in the order they are answered in, each with its number and the rows found of it, which are in order of time.
type Found<T> = Vec<(i64, Name, Vec<T>)>;

pub(crate) fn observations(connection: &Connection, wanted: &Wanted) -> Result<Vec<Observation>, StoreError> {
    let failed = || refused(connection, "read", format!("observations of {}", wanted.source));
    let view = connection.unchecked_transaction().map_err(failed())?;
    let mut found = series(&view, wanted)?;
    raw(&view, wanted, |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?))), &mut found).map_err(failed())?;
    let each = |name: Name, (observed, lag, value): (i64, i64, f64)| {
        let (observed, received) = (Timestamp(observed), Timestamp(observed + lag));
        Observation { source: wanted.source.clone(), member: name.member, signal: name.signal, part: name.part, value, observed, received }
    };
    Ok(listed(found, each))
}

pub(crate) fn rollups(connection: &Connection, wanted: &Wanted, resolution: Resolution) -> Result<Vec<Rollup>, StoreError> {
    if resolution == Resolution::Raw {
        return Ok(observations(connection, wanted)?.into_iter().map(Rollup::raw).collect());
    }
    let failed = || refused(connection, "read", format!("roll-ups of {}", wanted.source));
    let view = connection.unchecked_transaction().map_err(failed())?;
    let mut found = series(&view, wanted)?;
    let length = resolution.length();
    fill(&view, wanted, length, &mut found).map_err(failed())?;
    let each = |name: Name, (start, summary): (i64, Summary)| Rollup {
        source: wanted.source.clone(),
        member: name.member,
        signal: name.signal,
        part: name.part,
        start: Timestamp(start),
        length,
        summary,
    };
    Ok(listed(found, each))
}

/// The roll-ups that are kept, then those of what lies after the mark: hours of minutes, minutes of observations.
fn fill(view: &Connection, wanted: &Wanted, length: Span, found: &mut Found<(i64, Summary)>) -> rusqlite::Result<()> {
    kept(view, wanted, length, found)?;
    let open = summing::mark(view)?.map_or(i64::MIN, |mark| mark.of(length));
    // Starts in the span are starts of whole minutes or hours: all of the last one belongs to it.
    let from = Timestamp(ceiling(wanted.from.0, length).max(open));
    let whole = Wanted { from, to: Timestamp(ceiling(wanted.to.0, length)), ..wanted.clone() };
    if whole.from >= whole.to {
        return Ok(());
    }
    let mut parts: Found<(i64, Summary)> = found.iter().map(|(id, name, _)| (*id, name.clone(), Vec::new())).collect();
    if length == Span::HOUR {
        fill(view, &whole, Span::MINUTE, &mut parts)?;
    } else {
        raw(view, &whole, |row| Ok((row.get(0)?, (row.get(1)?, Summary::one(row.get(3)?)))), &mut parts)?;
    }
    for ((.., rows), (.., parts)) in found.iter_mut().zip(parts) {
        for spell in parts.chunk_by(|(one, _), (next, _)| Timestamp(*one).floor(length) == Timestamp(*next).floor(length)) {
            let summary = Summary::join(spell.iter().map(|(_, summary)| *summary));
            rows.extend(summary.map(|summary| (Timestamp(spell[0].0).floor(length).0, summary)));
        }
    }
    Ok(())
}

/// The first multiple of the length that is not before the instant; the last one there is where that would be past all numbers.
fn ceiling(at: i64, length: Span) -> i64 {
    at.checked_add(length.0 - 1).map_or(i64::MAX, |at| at.div_euclid(length.0) * length.0)
}

fn raw<T>(view: &Connection, wanted: &Wanted, read: impl FnMut(&Row<'_>) -> rusqlite::Result<(i64, T)>, found: &mut Found<T>) -> rusqlite::Result<()> {
    let Wanted { source, signal, from, to } = wanted;
    let values = (source.as_str(), signal.map(Signal::name), from.0, to.0, from.0.div_euclid(60), to.0.div_euclid(60));
    sort_in(view, OBSERVATIONS, values, read, found)
}

fn kept(view: &Connection, wanted: &Wanted, length: Span, found: &mut Found<(i64, Summary)>) -> rusqlite::Result<()> {
    let Wanted { source, signal, from, to } = wanted;
    let values = (source.as_str(), signal.map(Signal::name), from.0, to.0, length.0);
    sort_in(view, ROLLUPS, values, |row| Ok((row.get(0)?, (row.get(1)?, summing::summary(row, 2)?))), found)
}

/// Adds each row to its series. A statement answers in order of time.
fn sort_in<T>(
    view: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<(i64, T)>,
    found: &mut Found<T>,
) -> rusqlite::Result<()> {
    let place: BTreeMap<i64, usize> = found.iter().enumerate().map(|(index, (id, ..))| (*id, index)).collect();
    for row in view.prepare_cached(sql)?.query_map(values, read)? {
        let (id, value) = row?;
        if let Some(index) = place.get(&id) {
            found[*index].2.push(value);
        }
    }
    Ok(())
}

fn listed<T, U>(found: Found<T>, each: impl Fn(Name, T) -> U) -> Vec<U> {
    found.into_iter().flat_map(|(_, name, rows)| rows.into_iter().map(move |row| (name.clone(), row))).map(|(name, row)| each(name, row)).collect()
}

/// The series of the source, in the order of answers, without rows.
fn series<T>(view: &Connection, wanted: &Wanted) -> Result<Found<T>, StoreError> {
    let object = || format!("series of {}", wanted.source);
    let sql = "SELECT signal, member, part, id FROM series WHERE source = ?1 AND (?2 IS NULL OR signal = ?2) ORDER BY signal, member, part";
    let rows = view
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let values = (wanted.source.as_str(), wanted.signal.map(Signal::name));
            statement.query_map(values, |row| Ok((texts(row, 0)?, row.get(3)?)))?.collect::<rusqlite::Result<Vec<_>>>()
        })
        .map_err(refused(view, "read", object()))?;
    rows.into_iter().map(|(texts, id)| Ok((id, name(view, &object(), texts)?, Vec::new()))).collect()
}

/// Signal, member and part as they are in the file, from this column on.
fn texts(row: &Row<'_>, at: usize) -> rusqlite::Result<[String; 3]> {
    Ok([row.get(at)?, row.get(at + 1)?, row.get(at + 2)?])
}

fn name(view: &Connection, object: &str, [signal, member, part]: [String; 3]) -> Result<Name, StoreError> {
    let unreadable = |detail: String| damaged(view, object.to_owned(), detail);
    let signal = serde_json::from_value(serde_json::Value::String(signal)).map_err(|error| unreadable(error.to_string()))?;
    let member = (!member.is_empty()).then(|| MemberId::new(member)).transpose().map_err(|error| unreadable(error.to_string()))?;
    Ok(Name { signal, member, part: (!part.is_empty()).then_some(part) })
}

/// The series kept at a resolution. ?1: its length; ?2: first instant that is not summed up to it; ?3: first minute that is not summed up.
pub(crate) fn series_kept(connection: &Connection, resolution: Resolution) -> Result<Vec<SeriesKept>, StoreError> {
    let points = match resolution {
        Resolution::Raw => "SELECT series, minute * 60 + second AS at FROM observation WHERE ?1 + ?2 + ?3 IS NOT NULL",
        Resolution::Minute | Resolution::Hour => {
            "SELECT series, start AS at FROM rollup WHERE length = ?1 AND start < ?2
             UNION ALL
             SELECT DISTINCT series, at - (at % ?1 + ?1) % ?1 FROM (
                 SELECT series, start AS at FROM rollup WHERE length = 60 AND start >= ?2
                 UNION ALL SELECT series, minute * 60 FROM observation WHERE minute >= ?3
             )"
        }
    };
    let sql = format!(
        "SELECT signal, member, part, source, first, last, points
         FROM (SELECT series, min(at) AS first, max(at) AS last, count(*) AS points FROM ({points}) GROUP BY series) JOIN series ON id = series
         ORDER BY source, signal, member, part"
    );
    let failed = || refused(connection, "read", "the series kept");
    let view = connection.unchecked_transaction().map_err(failed())?;
    let mark = summing::mark(&view).map_err(failed())?;
    let (closed, minute) = mark.map_or((i64::MIN, i64::MIN), |mark| (mark.of(resolution.length().max(Span::MINUTE)), mark.minutes() / 60));
    let read = |row: &Row<'_>| Ok((texts(row, 0)?, row.get::<_, String>(3)?, row.get(4)?, row.get(5)?, row.get::<_, i64>(6)?));
    let rows = view
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_map((resolution.length().0, closed, minute), read)?.collect::<rusqlite::Result<Vec<_>>>())
        .map_err(failed())?;
    let each = |(texts, source, first, last, points): ([String; 3], String, i64, i64, i64)| {
        let Name { signal, member, part } = name(&view, &format!("series of {source}"), texts)?;
        let source = TargetId::new(source).map_err(|error| damaged(&view, "the series kept".into(), error.to_string()))?;
        Ok(SeriesKept { source, member, signal, part, first: Timestamp(first), last: Timestamp(last), points: points.cast_unsigned() })
    };
    rows.into_iter().map(each).collect()
}
