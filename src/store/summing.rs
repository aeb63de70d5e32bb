//! Sums observations up, raw -> minute -> hour, inside the transaction that writes them.
//!
//! A mark stands at a minute: everything before it is summed up. The mark moves on when observations of later minutes arrive; what arrives for
//! a minute before it sums that minute, and its hour, up again. Both happen in the transaction of the observations, so no crash comes between,
//! and both only compute a value from what is kept, so doing it twice changes nothing. What lies after the mark is summed up when it is read.

use crate::rollup::{Sum, Summary};
use fleet::{Observation, Span, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, Statement, Transaction};
use std::collections::{BTreeMap, BTreeSet};

/// Minutes summed up in one transaction, so that an append after a long back-fill stays short; the next ones go on.
const MINUTES_MAX: usize = 60;

/// The mark stays this far behind: the scrapes of two minutes come in interleaved.
const BEHIND: Span = Span::MINUTE;

/// Writes one roll-up, unless the one kept was made of more values: then the raw observations of its minute were removed since.
const PUT: &str = "INSERT INTO rollup (length, start, series, count, mean, min, max, last) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
    ON CONFLICT DO UPDATE SET count = excluded.count, mean = excluded.mean, min = excluded.min, max = excluded.max, last = excluded.last
    WHERE excluded.count >= count";

/// The mark: everything before it is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark(Timestamp);

impl Mark {
    /// First instant of the minutes that are not summed up.
    pub(crate) fn minutes(self) -> i64 {
        self.0.0
    }

    /// First instant of the hours that are not summed up.
    pub(crate) fn hours(self) -> i64 {
        self.0.hour().0
    }

    /// First instant that is not summed up to spans of this length.
    pub(crate) fn of(self, length: Span) -> i64 {
        self.0.floor(length).0
    }

    /// Where the clock of the program allows the mark to be, once an observation was made at `observed` and learned at `received`: an
    /// instant ahead of its own arrival does not move it there.
    pub(crate) fn after(o: &Observation) -> Self {
        Self::at(o.observed.min(o.received))
    }

    /// Where the mark may be at `now`.
    pub(crate) fn at(now: Timestamp) -> Self {
        Self((now - BEHIND).floor(Span::MINUTE))
    }
}

/// The mark, if anything was summed up yet.
pub(crate) fn mark(connection: &Connection) -> rusqlite::Result<Option<Mark>> {
    let minute: Option<i64> = connection.prepare_cached("SELECT minute FROM summed_up")?.query_row([], |row| row.get(0)).optional()?;
    Ok(minute.map(|minute| Mark(Timestamp(minute * 60))))
}

/// Sums up again the minutes, and their hours, that observations arrived for although they were summed up: (start of the minute, series).
pub(crate) fn again(transaction: &Transaction<'_>, mark: Mark, late: &BTreeSet<(i64, i64)>) -> rusqlite::Result<()> {
    let mut observations = transaction.prepare_cached("SELECT value FROM observation WHERE minute = ?1 AND series = ?2 ORDER BY second")?;
    let mut put = transaction.prepare_cached(PUT)?;
    let mut hours = BTreeSet::new();
    for &(start, series) in late {
        let values = observations.query_map((start / 60, series), |row| row.get(0))?.collect::<rusqlite::Result<Vec<f64>>>()?;
        if let Some(summary) = Summary::of(values) {
            keep(&mut put, Span::MINUTE, start, series, &summary)?;
        }
        let hour = Timestamp(start).hour().0;
        if hour < mark.hours() {
            hours.insert((hour, series));
        }
    }
    let sql = "SELECT count, mean, min, max, last FROM rollup WHERE length = 60 AND start = ?1 AND series = ?2";
    let mut minute = transaction.prepare_cached(sql)?;
    for (hour, series) in hours {
        let mut parts = Vec::new();
        for start in (hour..hour + 3_600).step_by(60) {
            parts.extend(minute.query_row((start, series), |row| summary(row, 0)).optional()?);
        }
        if let Some(summary) = Summary::join(parts) {
            keep(&mut put, Span::HOUR, hour, series, &summary)?;
        }
    }
    Ok(())
}

/// Moves the mark towards `target`, [`MINUTES_MAX`] minutes that hold anything at most; whether it got there.
pub(crate) fn advance(transaction: &Transaction<'_>, target: Mark) -> rusqlite::Result<bool> {
    let before = mark(transaction)?;
    if before.is_some_and(|before| before >= target) {
        return Ok(true);
    }
    let sql = "SELECT minute FROM observation WHERE minute >= ?1 AND minute < ?2 ORDER BY minute LIMIT 1";
    let mut next = transaction.prepare_cached(sql)?;
    let limit = target.minutes() / 60;
    let (mut from, mut reached) = (before.map_or(i64::MIN, |before| before.minutes() / 60), target);
    let mut hours = BTreeSet::new();
    for count in 0.. {
        let Some(minute): Option<i64> = next.query_row((from, limit), |row| row.get(0)).optional()? else { break };
        if count == MINUTES_MAX {
            reached = Mark(Timestamp(minute * 60));
            break;
        }
        sum_up_minute(transaction, minute)?;
        hours.insert(Timestamp(minute * 60).hour().0);
        from = minute + 1;
    }
    // An hour may have been left open by the mark before, with nothing new in it.
    hours.extend(before.map(Mark::hours));
    for hour in hours.into_iter().filter(|hour| *hour < reached.hours()) {
        sum_up_hour(transaction, hour)?;
    }
    transaction.prepare_cached("INSERT OR REPLACE INTO summed_up (only, minute) VALUES (0, ?1)")?.execute([reached.minutes() / 60])?;
    Ok(reached == target)
}

/// All series of one minute, in one pass over its observations, which lie together.
fn sum_up_minute(transaction: &Transaction<'_>, minute: i64) -> rusqlite::Result<()> {
    let sums = minute_of(transaction, minute)?;
    let mut put = transaction.prepare_cached(PUT)?;
    sums.iter().try_for_each(|(series, summary)| keep(&mut put, Span::MINUTE, minute * 60, *series, summary))
}

/// What the observations of one minute sum up to, by series.
pub(crate) fn minute_of(connection: &Connection, minute: i64) -> rusqlite::Result<BTreeMap<i64, Summary>> {
    let mut statement = connection.prepare_cached("SELECT series, value FROM observation WHERE minute = ?1 ORDER BY series, second")?;
    gather(statement.query_map([minute], |row| Ok((row.get(0)?, Summary::one(row.get(1)?))))?)
}

/// All series of one hour, from their minutes.
fn sum_up_hour(transaction: &Transaction<'_>, hour: i64) -> rusqlite::Result<()> {
    let sums = hour_of(transaction, hour)?;
    let mut put = transaction.prepare_cached(PUT)?;
    sums.iter().try_for_each(|(series, summary)| keep(&mut put, Span::HOUR, hour, *series, summary))
}

/// What the minutes of one hour sum up to, by series.
pub(crate) fn hour_of(connection: &Connection, hour: i64) -> rusqlite::Result<BTreeMap<i64, Summary>> {
    let sql = "SELECT series, count, mean, min, max, last FROM rollup WHERE length = 60 AND start >= ?1 AND start < ?1 + 3600 ORDER BY start, series";
    gather(connection.prepare_cached(sql)?.query_map([hour], |row| Ok((row.get(0)?, summary(row, 1)?)))?)
}

fn gather(rows: impl Iterator<Item = rusqlite::Result<(i64, Summary)>>) -> rusqlite::Result<BTreeMap<i64, Summary>> {
    let mut sums: BTreeMap<i64, Sum> = BTreeMap::new();
    for row in rows {
        let (series, part) = row?;
        sums.entry(series).and_modify(|sum| sum.add(part)).or_insert_with(|| Sum::begin(part));
    }
    Ok(sums.into_iter().map(|(series, sum)| (series, sum.summary())).collect())
}

fn keep(put: &mut Statement<'_>, length: Span, start: i64, series: i64, s: &Summary) -> rusqlite::Result<()> {
    put.execute((length.0, start, series, s.count.cast_signed(), s.mean, s.min, s.max, s.last))?;
    Ok(())
}

/// The five columns of a summary, from this one on.
pub(crate) fn summary(row: &Row<'_>, at: usize) -> rusqlite::Result<Summary> {
    let count = row.get::<_, i64>(at)?.cast_unsigned();
    Ok(Summary { count, mean: row.get(at + 1)?, min: row.get(at + 2)?, max: row.get(at + 3)?, last: row.get(at + 4)? })
}
