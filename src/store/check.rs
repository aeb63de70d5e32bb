//! Reads everything once and tells whether it is whole.

use crate::error::{StoreError, location, refused};
use crate::read::{body, damaged};
use crate::rollup::Summary;
use crate::summing;
use fleet::{Plan, Span, Timestamp};
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minutes, and hours, that are summed up again and compared: spread evenly over those that still have what they were made of.
const SAMPLES: i64 = 24;

/// `SQLite`'s own check of every page and index, then ours: plans still have the content their id was made of, and
/// roll-ups are what they sum up.
pub(crate) fn check(connection: &Connection) -> Result<(), StoreError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(refused(connection, "check", "every page"))?;
    if found != "ok" {
        return Err(StoreError::Damaged { location: location(connection), operation: "check", object: "every page".into(), detail: found });
    }
    let ids = connection
        .prepare("SELECT id FROM plan ORDER BY generation")
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>())
        .map_err(refused(connection, "check", "plans"))?;
    for id in ids {
        let plan: Option<Plan> = body(connection, "plan", "SELECT id, body FROM plan WHERE id = ?1", [&id])?;
        if let Some(content) = plan.map(|plan| plan.content_id()).filter(|content| content.as_str() != id) {
            return Err(damaged(connection, format!("plan {id}"), format!("its content has the fingerprint {content}")));
        }
    }
    rollups(connection)
}

fn rollups(connection: &Connection) -> Result<(), StoreError> {
    let failed = || refused(connection, "check", "roll-ups");
    // One view of the whole: a writer may go on meanwhile.
    let view = connection.unchecked_transaction().map_err(failed())?;
    let Some(mark) = summing::mark(&view).map_err(failed())? else { return Ok(()) };
    let minutes = "SELECT minute FROM observation WHERE minute >= ?1 AND minute < ?2 ORDER BY minute LIMIT 1";
    for minute in spread(&view, minutes, mark.minutes() / 60).map_err(failed())? {
        let made_of = summing::minute_of(&view, minute).map_err(failed())?;
        compare(&view, Span::MINUTE, Timestamp(minute * 60), &made_of)?;
    }
    let hours = "SELECT start / 3600 FROM rollup WHERE length = 60 AND start >= ?1 * 3600 AND start < ?2 * 3600 ORDER BY start LIMIT 1";
    for hour in spread(&view, hours, mark.hours() / 3_600).map_err(failed())? {
        let made_of = summing::hour_of(&view, hour * 3_600).map_err(failed())?;
        compare(&view, Span::HOUR, Timestamp(hour * 3_600), &made_of)?;
    }
    Ok(())
}

/// Up to [`SAMPLES`] numbers below `end` that `next` (the first one in `?1..?2`) finds, about evenly spread.
fn spread(connection: &Connection, next: &str, end: i64) -> rusqlite::Result<Vec<i64>> {
    use rusqlite::OptionalExtension;
    let mut next = connection.prepare_cached(next)?;
    let mut found = Vec::new();
    // Far enough back for every instant that is admitted, and no overflow when it is turned into seconds.
    let Some(first) = next.query_row((-(1_i64 << 40), end), |row| row.get::<_, i64>(0)).optional()? else { return Ok(found) };
    let step = ((end - first) / SAMPLES).max(1);
    let mut from = first;
    while let Some(one) = next.query_row((from, end), |row| row.get(0)).optional()? {
        found.push(one);
        from = one + step;
    }
    Ok(found)
}

/// Every series of one minute or hour against what it is made of. A roll-up of more values than are left of it cannot be judged.
fn compare(connection: &Connection, length: Span, start: Timestamp, made_of: &BTreeMap<i64, Summary>) -> Result<(), StoreError> {
    let sql = "SELECT series, count, mean, min, max, last FROM rollup WHERE length = ?1 AND start = ?2";
    let kept = connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let rows = statement.query_map((length.0, start.0), |row| Ok((row.get(0)?, summing::summary(row, 1)?)))?;
            rows.collect::<rusqlite::Result<BTreeMap<i64, Summary>>>()
        })
        .map_err(refused(connection, "check", "roll-ups"))?;
    for (series, summary) in made_of {
        let found = kept.get(series);
        if found.is_none_or(|found| found.count <= summary.count && found != summary) {
            let object = format!("roll-up of series {series} over {} s at {start}", length.0);
            return Err(damaged(connection, object, format!("it is {found:?}, and what it sums up makes {summary:?}")));
        }
    }
    Ok(())
}
