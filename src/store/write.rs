//! Writes one batch in one transaction.

use crate::error::{StoreError, refused};
use crate::{Ack, Batch};
use fleet::{Calibration, Forecast, Observation, Outcome, Plan, Problem, Signal, WorkloadWindow, canonical_bytes};
use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, TransactionBehavior, params};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

/// Writes the batch and returns once `SQLite` has synced it; on any error nothing of it is kept.
pub(crate) fn append(connection: &mut Connection, batch: &Batch) -> Result<Ack, StoreError> {
    let failed = refused(connection, "begin", "a batch");
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let mut rows = observations(&transaction, &batch.observations)?;
    for window in &batch.windows {
        rows += keep_window(&transaction, window)?;
    }
    for forecast in &batch.forecasts {
        rows += keep_forecast(&transaction, forecast)?;
    }
    for problem in &batch.problems {
        rows += keep_problem(&transaction, problem)?;
    }
    for plan in &batch.plans {
        rows += keep_plan(&transaction, plan)?;
    }
    for outcome in &batch.outcomes {
        rows += keep_outcome(&transaction, outcome)?;
    }
    for calibration in &batch.calibrations {
        rows += keep_calibration(&transaction, calibration)?;
    }
    for (name, bytes) in &batch.snapshots {
        rows += put(&transaction, "snapshot", name, "INSERT OR REPLACE INTO snapshot VALUES (?1, ?2)", params![name, bytes])?;
    }
    let failed = refused(&transaction, "commit", "a batch");
    transaction.commit().map_err(failed)?;
    Ok(Ack { rows })
}

/// One row; answers how many were written.
fn put(transaction: &Transaction<'_>, kind: &'static str, object: &str, sql: &str, values: &[&dyn ToSql]) -> Result<u64, StoreError> {
    let written = transaction.prepare_cached(sql).and_then(|mut statement| statement.execute(values));
    written.map(|rows| rows as u64).map_err(|error| refused(transaction, "append", format!("{kind} {object}"))(error))
}

/// The canonical bytes, once it is certain that they read back as the same value: JSON would turn a number that is not finite into a gap.
fn body<T: Serialize + DeserializeOwned + PartialEq>(kind: &'static str, object: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    let bytes = canonical_bytes(value);
    let lost = |detail: String| StoreError::Number { kind, object: object.to_owned(), detail };
    match serde_json::from_slice::<T>(&bytes) {
        Ok(back) if &back == value => Ok(bytes),
        Ok(_) => Err(lost("it reads back as another value".into())),
        Err(error) => Err(lost(error.to_string())),
    }
}

fn observations(transaction: &Transaction<'_>, observations: &[Observation]) -> Result<u64, StoreError> {
    let mut series: BTreeMap<(&str, Signal, Option<&str>), i64> = BTreeMap::new();
    let mut rows = 0;
    for o in observations {
        let name = || format!("{} {} at {}", o.source, o.signal.name(), o.observed);
        if !o.value.is_finite() {
            return Err(StoreError::Number { kind: "observation", object: name(), detail: o.value.to_string() });
        }
        let key = (o.source.as_str(), o.signal, o.part.as_deref());
        let id = if let Some(id) = series.get(&key) {
            *id
        } else {
            let id = series_id(transaction, o).map_err(refused(transaction, "append", name()))?;
            *series.entry(key).or_insert(id)
        };
        let values = params![id, o.observed.0, o.received.0, o.value];
        rows += put(transaction, "observation", o.source.as_str(), "INSERT OR REPLACE INTO observation VALUES (?1, ?2, ?3, ?4)", values)?;
    }
    Ok(rows)
}

/// The series of an observation, entered in the dictionary when new.
fn series_id(transaction: &Transaction<'_>, o: &Observation) -> rusqlite::Result<i64> {
    let values = (o.source.as_str(), o.signal.name(), o.part.as_deref().unwrap_or_default());
    transaction.prepare_cached("INSERT OR IGNORE INTO series (source, signal, part) VALUES (?1, ?2, ?3)")?.execute(values.clone())?;
    transaction.prepare_cached("SELECT id FROM series WHERE source = ?1 AND signal = ?2 AND part = ?3")?.query_row(values, |row| row.get(0))
}

fn keep_window(transaction: &Transaction<'_>, window: &WorkloadWindow) -> Result<u64, StoreError> {
    let object = format!("{} at {}", window.workload, window.start);
    let body = body("window", &object, window)?;
    let values = params![window.workload.as_str(), window.start.0, window.length.0, body];
    put(transaction, "window", &object, "INSERT OR REPLACE INTO workload_window VALUES (?1, ?2, ?3, ?4)", values)
}

fn keep_forecast(transaction: &Transaction<'_>, forecast: &Forecast) -> Result<u64, StoreError> {
    let id = forecast.id.as_str();
    let body = body("forecast", id, forecast)?;
    let values = params![id, forecast.workload.as_str(), forecast.origin.0, body];
    put(transaction, "forecast", id, "INSERT OR IGNORE INTO forecast VALUES (?1, ?2, ?3, ?4)", values)
}

fn keep_problem(transaction: &Transaction<'_>, problem: &Problem) -> Result<u64, StoreError> {
    let id = problem.id();
    let body = body("problem", id.as_str(), problem)?;
    put(transaction, "problem", id.as_str(), "INSERT OR IGNORE INTO problem VALUES (?1, ?2, ?3)", params![id.as_str(), problem.as_of.0, body])
}

fn keep_outcome(transaction: &Transaction<'_>, outcome: &Outcome) -> Result<u64, StoreError> {
    let id = outcome.id.as_str();
    let body = body("outcome", id, outcome)?;
    put(transaction, "outcome", id, "INSERT OR IGNORE INTO outcome VALUES (?1, ?2, ?3)", params![id, outcome.start.0, body])
}

fn keep_plan(transaction: &Transaction<'_>, plan: &Plan) -> Result<u64, StoreError> {
    let id = plan.id.as_str();
    let body = body("plan", id, plan)?;
    let content = plan.content_id();
    if content != plan.id {
        return Err(StoreError::Fingerprint { id: id.to_owned(), content: content.to_string() });
    }
    let Some(generation) = next_generation(transaction, "plan", id, plan.generation)? else { return Ok(0) };
    let values = params![id, generation, plan.as_of.0, plan.problem.as_str(), body];
    put(transaction, "plan", id, "INSERT INTO plan (id, generation, as_of, problem, body) VALUES (?1, ?2, ?3, ?4, ?5)", values)
}

fn keep_calibration(transaction: &Transaction<'_>, calibration: &Calibration) -> Result<u64, StoreError> {
    let id = calibration.id();
    let body = body("calibration", id.as_str(), calibration)?;
    let Some(generation) = next_generation(transaction, "calibration", id.as_str(), calibration.generation)? else { return Ok(0) };
    let values = params![generation, id.as_str(), calibration.made_at.0, body];
    put(transaction, "calibration", id.as_str(), "INSERT INTO calibration (generation, id, made_at, body) VALUES (?1, ?2, ?3, ?4)", values)
}

/// The number to keep a new plan or calibration under; `None` when it is kept already.
fn next_generation(transaction: &Transaction<'_>, kind: &'static str, id: &str, offered: u64) -> Result<Option<i64>, StoreError> {
    let known = transaction.query_row(&format!("SELECT 1 FROM {kind} WHERE id = ?1"), [id], |_| Ok(())).optional().map_err(refused(
        transaction,
        "look for",
        format!("{kind} {id}"),
    ))?;
    if known.is_some() {
        return Ok(None);
    }
    let latest: Option<i64> = transaction.query_row(&format!("SELECT max(generation) FROM {kind}"), [], |row| row.get(0)).map_err(refused(
        transaction,
        "read",
        format!("the latest generation of {kind}"),
    ))?;
    let too_large = || StoreError::Number { kind, object: id.to_owned(), detail: format!("generation {offered}") };
    let generation = i64::try_from(offered).map_err(|_| too_large())?;
    match latest {
        Some(latest) if generation <= latest => {
            Err(StoreError::Generation { kind, id: id.to_owned(), offered, latest: u64::try_from(latest).unwrap_or_default() })
        }
        _ => Ok(Some(generation)),
    }
}
