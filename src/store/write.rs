//! Writes one batch in one transaction.

use crate::admit::admit;
use crate::dictionary::Dictionary;
use crate::error::{StoreError, refused};
use crate::summing::{self, Mark};
use crate::{Ack, Batch};
use fleet::{Calibration, Forecast, Observation, Outcome, Plan, Problem, Span, WorkloadWindow, canonical_bytes};
use rusqlite::{Connection, OptionalExtension, ToSql, Transaction, TransactionBehavior, params};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeSet;

/// Writes the batch and returns once `SQLite` has synced it; on any error nothing of it is kept.
pub(crate) fn append(connection: &mut Connection, dictionary: &mut Dictionary, batch: &Batch) -> Result<Ack, StoreError> {
    admit(batch)?;
    let written = write(connection, dictionary, batch);
    if written.is_err() {
        dictionary.forget();
    }
    written
}

fn write(connection: &mut Connection, dictionary: &mut Dictionary, batch: &Batch) -> Result<Ack, StoreError> {
    let failed = refused(connection, "begin", "a batch");
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let mut rows = observations(&transaction, dictionary, &batch.observations)?;
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
pub(crate) fn body<T: Serialize + DeserializeOwned + PartialEq>(kind: &'static str, object: &str, value: &T) -> Result<Vec<u8>, StoreError> {
    let bytes = canonical_bytes(value);
    let lost = |detail: String| StoreError::Number { kind, object: object.to_owned(), detail };
    match serde_json::from_slice::<T>(&bytes) {
        Ok(back) if &back == value => Ok(bytes),
        Ok(_) => Err(lost("it reads back as another value".into())),
        Err(error) => Err(lost(error.to_string())),
    }
}

/// Writes the numbers and sums them up as far as they go.
fn observations(transaction: &Transaction<'_>, dictionary: &mut Dictionary, observations: &[Observation]) -> Result<u64, StoreError> {
    if observations.is_empty() {
        return Ok(0);
    }
    dictionary.refresh(transaction)?;
    let failed = |o: &Observation| refused(transaction, "append", format!("observation {} {} at {}", o.source, o.signal.name(), o.observed));
    let summing = || refused(transaction, "sum up", "observations");
    let mark = summing::mark(transaction).map_err(summing())?;
    let insert = transaction.prepare_cached("INSERT OR REPLACE INTO observation (minute, series, second, lag, value) VALUES (?1, ?2, ?3, ?4, ?5)");
    let mut insert = insert.map_err(refused(transaction, "append", "observations"))?;
    let (mut rows, mut late) = (0, BTreeSet::new());
    for o in observations {
        let series = dictionary.number(transaction, o).map_err(|error| failed(o)(error))?;
        let minute = o.observed.floor(Span::MINUTE).0;
        let values = (minute / 60, series, o.observed.0 - minute, o.received.0 - o.observed.0, o.value);
        rows += insert.execute(values).map_err(|error| failed(o)(error))? as u64;
        if mark.is_some_and(|mark| minute < mark.minutes()) {
            late.insert((minute, series));
        }
    }
    if let Some(mark) = mark {
        summing::again(transaction, mark, &late).map_err(summing())?;
    }
    if let Some(target) = observations.iter().map(Mark::after).max() {
        summing::advance(transaction, target).map_err(summing())?;
    }
    Ok(rows)
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
