//! Reads the history back as the values that were written.

use crate::error::{StoreError, location, refused};
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

pub(crate) fn damaged(connection: &Connection, object: String, detail: String) -> StoreError {
    StoreError::Damaged { location: location(connection), operation: "read", object, detail }
}

/// The state last kept under a name.
pub(crate) fn snapshot(connection: &Connection, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    connection.query_row("SELECT body FROM snapshot WHERE name = ?1", [name], |row| row.get(0)).optional().map_err(refused(
        connection,
        "read",
        format!("snapshot {name}"),
    ))
}
