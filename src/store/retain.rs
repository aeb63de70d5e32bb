//! Removes what is older than its retention, in one transaction. The file does not shrink; the room is used again.

use crate::error::{StoreError, refused};
use crate::{Removed, Retention};
use fleet::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub(crate) fn retain(connection: &mut Connection, retention: &Retention, now: Timestamp) -> Result<Removed, StoreError> {
    let failed = refused(connection, "remove", format!("what is past its retention at {now}"));
    remove(connection, retention, now).map_err(failed)
}

fn remove(connection: &mut Connection, retention: &Retention, now: Timestamp) -> rusqlite::Result<Removed> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let decisions = (now - retention.decisions).0;
    let before = |sql: &str, limit: i64| transaction.execute(sql, [limit]).map(|rows| rows as u64);
    let removed = Removed {
        observations: observations(&transaction, (now - retention.observations).0)?,
        minutes: 0,
        hours: 0,
        windows: before("DELETE FROM workload_window WHERE start < ?1", (now - retention.windows).0)?,
        forecasts: before("DELETE FROM forecast WHERE origin < ?1", (now - retention.forecasts).0)?,
        // The latest plan and calibration stay: without them the next generation could go back.
        plans: before("DELETE FROM plan WHERE as_of < ?1 AND generation < (SELECT max(generation) FROM plan)", decisions)?,
        problems: before("DELETE FROM problem WHERE as_of < ?1 AND id NOT IN (SELECT problem FROM plan)", decisions)?,
        outcomes: before("DELETE FROM outcome WHERE start < ?1", decisions)?,
        calibrations: before("DELETE FROM calibration WHERE made_at < ?1 AND generation < (SELECT max(generation) FROM calibration)", decisions)?,
    };
    transaction.commit()?;
    Ok(removed)
}

/// Series by series, so that each removal is one range of the table; a series without points leaves the dictionary.
fn observations(transaction: &Transaction<'_>, limit: i64) -> rusqlite::Result<u64> {
    let series = transaction.prepare("SELECT id FROM series")?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<i64>>>()?;
    let mut removed = 0;
    let mut statement = transaction.prepare("DELETE FROM observation WHERE series = ?1 AND observed < ?2")?;
    for id in series {
        removed += statement.execute((id, limit))? as u64;
    }
    transaction.execute("DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM observation WHERE series = id)", [])?;
    Ok(removed)
}
