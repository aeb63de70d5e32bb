//! Sums up what is left to sum up, then removes what is older than its retention, in one transaction. The file does not shrink; the room is
//! used again, or given back by compacting.

use crate::dictionary::Dictionary;
use crate::error::{StoreError, location, refused};
use crate::history::{Compacted, Removed, Retention};
use crate::summing::{self, Mark};
use fleet::{Span, Timestamp};
use rusqlite::{Connection, Transaction, TransactionBehavior};

pub(crate) fn retain(connection: &mut Connection, dictionary: &mut Dictionary, retention: &Retention, now: Timestamp) -> Result<Removed, StoreError> {
    while !sum_up(connection, now).map_err(refused(connection, "sum up", format!("observations before {now}")))? {}
    let failed = refused(connection, "remove", format!("what is past its retention at {now}"));
    dictionary.forget();
    remove(connection, retention, now).map_err(failed)
}

/// One step; whether it was the last.
fn sum_up(connection: &mut Connection, now: Timestamp) -> rusqlite::Result<bool> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = summing::advance(&transaction, Mark::at(now))?;
    transaction.commit()?;
    Ok(done)
}

fn remove(connection: &mut Connection, retention: &Retention, now: Timestamp) -> rusqlite::Result<Removed> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let decisions = (now - retention.decisions).0;
    let before = |sql: &str, limit: i64| transaction.execute(sql, [limit]).map(|rows| rows as u64);
    // Whole hours only: neither a minute nor an hour is left with a part of what it was made of.
    let mark = summing::mark(&transaction)?.map_or(i64::MIN, Mark::hours);
    let observations = (now - retention.observations).hour().0.min(mark);
    let (minutes, hours) = ((now - retention.minutes).hour().0.min(mark), (now - retention.hours).hour().0.min(mark));
    let removed = Removed {
        observations: before("DELETE FROM observation WHERE minute < ?1", observations.div_euclid(60))?,
        minutes: rollups(&transaction, Span::MINUTE, minutes)?,
        hours: rollups(&transaction, Span::HOUR, hours)?,
        windows: before("DELETE FROM workload_window WHERE start < ?1", (now - retention.windows).0)?,
        forecasts: before("DELETE FROM forecast WHERE origin < ?1", (now - retention.forecasts).0)?,
        // The latest plan and calibration stay: without them the next generation could go back.
        plans: before("DELETE FROM plan WHERE as_of < ?1 AND generation < (SELECT max(generation) FROM plan)", decisions)?,
        problems: before("DELETE FROM problem WHERE as_of < ?1 AND id NOT IN (SELECT problem FROM plan)", decisions)?,
        outcomes: before("DELETE FROM outcome WHERE start < ?1", decisions)?,
        calibrations: before("DELETE FROM calibration WHERE made_at < ?1 AND generation < (SELECT max(generation) FROM calibration)", decisions)?,
    };
    // A series with nothing left leaves the dictionary.
    before("DELETE FROM series WHERE seen < ?1", observations.min(minutes).min(hours))?;
    transaction.commit()?;
    Ok(removed)
}

fn rollups(transaction: &Transaction<'_>, length: Span, limit: i64) -> rusqlite::Result<u64> {
    Ok(transaction.execute("DELETE FROM rollup WHERE length = ?1 AND start < ?2", (length.0, limit))? as u64)
}

/// Gives the room of what was removed back to the disk: `VACUUM` writes the whole file anew, then the journal is folded in.
pub(crate) fn compact(connection: &Connection) -> Result<Compacted, StoreError> {
    let failed = || refused(connection, "compact", "the file");
    let bytes = |connection: &Connection| -> rusqlite::Result<u64> {
        let value = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
        Ok((value("page_count")? * value("page_size")?).cast_unsigned())
    };
    let bytes_before = bytes(connection).map_err(failed())?;
    connection.execute_batch("VACUUM").map_err(failed())?;
    // Busy (1) where a reader still looks at the file as it was; the next checkpoint does it then.
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).map_err(failed())?;
    if busy != 0 {
        tracing::debug!(store = location(connection), "compacted; the journal is folded in when its readers are done");
    }
    Ok(Compacted { bytes_before, bytes_after: bytes(connection).map_err(failed())? })
}
