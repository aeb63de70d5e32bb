//! Reads the history back as the values that were written.

use crate::error::{StoreError, location, refused};
use fleet::{Observation, Plan, Signal, TargetId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use serde::de::DeserializeOwned;

/// The bodies a query selects (first column: name for messages, second: body), in its order.
pub(crate) fn bodies<T: DeserializeOwned>(connection: &Connection, kind: &'static str, sql: &str, values: impl Params) -> Result<Vec<T>, StoreError> {
    let rows = connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_map(values, named)?.collect::<rusqlite::Result<Vec<_>>>())
        .map_err(refused(connection, "read", format!("{kind}s")))?;
    rows.iter().map(|(name, body)| decode(connection, kind, name, body)).collect()
}

/// The one body a query selects, if there is one.
pub(crate) fn body<T: DeserializeOwned>(connection: &Connection, kind: &'static str, sql: &str, values: impl Params) -> Result<Option<T>, StoreError> {
    let row = connection.prepare_cached(sql).and_then(|mut statement| statement.query_row(values, named).optional()).map_err(refused(
        connection,
        "read",
        format!("a {kind}"),
    ))?;
    row.map(|(name, body)| decode(connection, kind, &name, &body)).transpose()
}

fn named(row: &Row<'_>) -> rusqlite::Result<(String, Vec<u8>)> {
    Ok((row.get(0)?, row.get(1)?))
}

fn decode<T: DeserializeOwned>(connection: &Connection, kind: &str, name: &str, body: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(body).map_err(|error| damaged(connection, format!("{kind} {name}"), error.to_string()))
}

fn damaged(connection: &Connection, object: String, detail: String) -> StoreError {
    StoreError::Damaged { location: location(connection), operation: "read", object, detail }
}

/// Observations of one source, in order of signal, part and instant.
pub(crate) fn observations(
    connection: &Connection,
    source: &TargetId,
    signal: Option<Signal>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Observation>, StoreError> {
    let sql = "SELECT signal, part, observed, received, value FROM series JOIN observation ON series = id
               WHERE source = ?1 AND (?2 IS NULL OR signal = ?2) AND observed >= ?3 AND observed < ?4 ORDER BY signal, part, observed";
    let parts = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?, row.get(2)?, row.get(3)?, row.get(4)?));
    let rows = connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let values = (source.as_str(), signal.map(Signal::name), from.0, to.0);
            statement.query_map(values, parts)?.collect::<rusqlite::Result<Vec<_>>>()
        })
        .map_err(refused(connection, "read", format!("observations of {source}")))?;
    let read = |(signal, part, observed, received, value): (String, String, i64, i64, f64)| {
        let signal = serde_json::from_value(serde_json::Value::String(signal))
            .map_err(|error| damaged(connection, format!("observations of {source}"), error.to_string()))?;
        let part = (!part.is_empty()).then_some(part);
        Ok(Observation { source: source.clone(), member: None, signal, part, value, observed: Timestamp(observed), received: Timestamp(received) })
    };
    rows.into_iter().map(read).collect()
}

/// The state last kept under a name.
pub(crate) fn snapshot(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    connection.query_row("SELECT body FROM snapshot WHERE name = ?1", [name], |row| row.get(0)).optional().map_err(refused(
        connection,
        "read",
        format!("snapshot {name}"),
    ))
}

/// `SQLite`'s own check of every page and index, then ours: plans still have the content their id was made of.
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
    Ok(())
}
