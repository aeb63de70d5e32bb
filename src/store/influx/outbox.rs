//! The local queue: what was acknowledged is on disk here until the server has it.

use super::points::{Entry, Parcel, Rank};
use super::settings::Bucket;
use super::verdict::Lost;
use crate::StoreError;
use crate::error::{location, refused};
use crate::migrate::{Migration, migrate};
use fleet::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::{
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

const MIGRATIONS: &[Migration] = &[Migration { name: "0001_queue", sql: include_str!("queue.sql") }];

/// How long to wait for another process that writes to the same file.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Lines of one row of the queue: what is sent, and given up, together.
const ROW_POINTS_MAX: usize = 1_000;

/// Bytes of one row.
const ROW_BYTES_MAX: usize = 1 << 20;

/// The journal is cut back to this size after a checkpoint.
const JOURNAL_BYTES_MAX: i64 = 64 << 20;

/// The queue in its file.
pub(crate) struct Outbox {
    inner: Mutex<Inner>,
    bytes_max: u64,
}

struct Inner {
    connection: Connection,
    /// Bytes waiting, as far as this process knows; counted anew before anything is given up.
    bytes: u64,
    /// Rows up to this one are being sent and are not given up.
    in_flight: i64,
}

/// Rows of the queue that go together, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// The rows.
    pub ids: Vec<i64>,
    /// Their lines by bucket, in order.
    pub lines: Vec<(Bucket, String)>,
    /// Points in them.
    pub points: usize,
    /// Bytes in them.
    pub bytes: usize,
    /// When the first was queued.
    pub queued_at: i64,
}

/// What waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Waiting {
    pub points: u64,
    pub bytes: u64,
    /// When the oldest was queued.
    pub oldest: Option<Timestamp>,
    /// The last row.
    pub last: i64,
}

impl Outbox {
    pub(crate) fn open(path: &Path, bytes_max: u64) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder { path: folder.to_owned(), source })?;
        }
        let shown = path.display().to_string();
        let mut connection = Connection::open(path).map_err(|source| crate::error::from_sqlite(shown, "open", "the queue".into(), source))?;
        prepare(&connection).map_err(refused(&connection, "set up", "the queue"))?;
        migrate(&mut connection, MIGRATIONS)?;
        let bytes = waiting(&connection).map_err(refused(&connection, "read", "the queue"))?.bytes;
        Ok(Self { inner: Mutex::new(Inner { connection, bytes, in_flight: 0 }), bytes_max })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the parcels, all or none, and answers how many values were new and the last row. What no longer fits is given up by rank and age.
    pub(crate) fn append(&self, parcels: &[Parcel], now: Timestamp) -> Result<(u64, i64), StoreError> {
        let mut inner = self.lock();
        let Inner { connection, bytes, in_flight } = &mut *inner;
        let failed = refused(connection, "begin", "a batch");
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let (mut rows, mut added) = (0, 0);
        for parcel in parcels {
            if let Some((new, size)) = enter(&transaction, parcel, now)? {
                rows += new;
                added += size;
            }
        }
        let mut total = *bytes + added;
        if total > self.bytes_max {
            total = make_room(&transaction, self.bytes_max, *in_flight).map_err(refused(&transaction, "make room in", "the queue"))?;
        }
        let last = transaction.query_row("SELECT coalesce(max(id), 0) FROM queue", [], |row| row.get(0)).map_err(refused(&transaction, "read", "the queue"))?;
        let failed = refused(&transaction, "commit", "a batch");
        transaction.commit().map_err(failed)?;
        *bytes = total;
        Ok((rows, last))
    }

    /// The oldest rows that fit into one load, at least one; they are not given up until [`Outbox::sent`] or the next peek.
    pub(crate) fn peek(&self, points_max: usize, bytes_max: usize) -> Result<Option<Load>, StoreError> {
        let mut inner = self.lock();
        let load = peek(&inner.connection, points_max, bytes_max).map_err(refused(&inner.connection, "read", "the queue"))?;
        inner.in_flight = load.ids.last().copied().unwrap_or(0);
        Ok((!load.ids.is_empty()).then_some(load))
    }

    /// Takes rows out, now that the server has their points, save those that are lost. `late` bounds the instants (seconds) of observations that
    /// came too late to be summed up in passing.
    pub(crate) fn sent(&self, ids: &[i64], points: u64, lost: &[(Lost, u64)], late: Option<(i64, i64)>) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let Inner { connection, bytes, in_flight } = &mut *inner;
        let failed = refused(connection, "take", "sent points from the queue");
        let mut take = || {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut freed = 0;
            for id in ids {
                let size: Option<i64> =
                    transaction.prepare_cached("DELETE FROM queue WHERE id = ?1 RETURNING bytes")?.query_row([id], |row| row.get(0)).optional()?;
                freed += u64::try_from(size.unwrap_or(0)).unwrap_or(0);
            }
            tally(&transaction, "sent", points)?;
            for (why, points) in lost {
                tally(&transaction, why.name(), *points)?;
            }
            if let Some((first, last)) = late {
                let sql = "INSERT INTO late VALUES (0, ?1, ?2) ON CONFLICT (id) DO UPDATE SET first = min(first, ?1), last = max(last, ?2)";
                transaction.execute(sql, [first, last])?;
            }
            transaction.commit()?;
            Ok(freed)
        };
        let freed = take().map_err(failed)?;
        *bytes = bytes.saturating_sub(freed);
        *in_flight = 0;
        Ok(())
    }

    fn read<T>(&self, object: &str, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let inner = self.lock();
        read(&inner.connection).map_err(refused(&inner.connection, "read", object))
    }

    pub(crate) fn waiting(&self) -> Result<Waiting, StoreError> {
        self.read("the queue", waiting)
    }

    /// The first row that waits.
    pub(crate) fn first(&self) -> Result<Option<i64>, StoreError> {
        self.read("the queue", |connection| connection.query_row("SELECT min(id) FROM queue", [], |row| row.get(0)))
    }

    /// Points counted under a name since the file was made.
    pub(crate) fn tally(&self, name: &str) -> Result<u64, StoreError> {
        let sql = "SELECT points FROM tally WHERE name = ?1";
        let points: Option<i64> = self.read("the tally", |connection| connection.query_row(sql, [name], |row| row.get(0)).optional())?;
        Ok(points.and_then(|points| u64::try_from(points).ok()).unwrap_or(0))
    }

    /// The bounds of the observations that came too late to be summed up in passing, in seconds.
    pub(crate) fn late(&self) -> Result<Option<(i64, i64)>, StoreError> {
        self.read("late observations", |connection| connection.query_row("SELECT first, last FROM late", [], |row| Ok((row.get(0)?, row.get(1)?))).optional())
    }

    /// They are summed up, unless there are others by now.
    pub(crate) fn summed_up(&self, (first, last): (i64, i64)) -> Result<(), StoreError> {
        let sql = "DELETE FROM late WHERE first = ?1 AND last = ?2";
        self.read("late observations", |connection| connection.execute(sql, [first, last]).map(drop))
    }

    /// What is kept here of a kind, under a name or the one there is: when (a state: milliseconds since 1970), and the value.
    pub(crate) fn kept(&self, kind: &str, name: Option<&str>) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
        let sql = "SELECT kept_at, body FROM kept WHERE kind = ?1 AND (?2 IS NULL OR name = ?2) ORDER BY kept_at DESC LIMIT 1";
        self.read("what is kept here", |connection| connection.query_row(sql, params![kind, name], |row| Ok((row.get(0)?, row.get(1)?))).optional())
    }

    /// Where a document stands, if it is known here.
    pub(crate) fn document(&self, kind: &str, id: &str) -> Result<Option<i64>, StoreError> {
        let sql = "SELECT at FROM document WHERE kind = ?1 AND id = ?2";
        self.read("the documents", |connection| connection.query_row(sql, [kind, id], |row| row.get(0)).optional())
    }

    /// Whether any document of a kind is known here.
    pub(crate) fn knows(&self, kind: &str) -> Result<bool, StoreError> {
        self.read("the documents", |connection| connection.query_row("SELECT EXISTS (SELECT 1 FROM document WHERE kind = ?1)", [kind], |row| row.get(0)))
    }

    /// Enters documents that the server holds.
    pub(crate) fn learn(&self, entries: &[Entry]) -> Result<(), StoreError> {
        let mut inner = self.lock();
        let failed = refused(&inner.connection, "enter", "what the server holds");
        let mut enter = || {
            let transaction = inner.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for entry in entries {
                let values = params![entry.kind, entry.id, entry.generation, entry.at];
                transaction.prepare_cached("INSERT OR IGNORE INTO document VALUES (?1, ?2, ?3, ?4)")?.execute(values)?;
            }
            transaction.commit()
        };
        enter().map_err(failed)
    }

    /// Forgets the documents of a kind that stand before `at`, save those of the highest generation.
    pub(crate) fn forget(&self, kind: &str, at: i64) -> Result<(), StoreError> {
        let sql = "DELETE FROM document WHERE kind = ?1 AND at < ?2
                   AND (generation = 0 OR generation < (SELECT max(generation) FROM document WHERE kind = ?1))";
        self.read("the documents", |connection| connection.execute(sql, params![kind, at]).map(drop))
    }

    /// Whether the file is whole.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let found: String = self.read("every page of the queue", |connection| connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)))?;
        let inner = self.lock();
        let damaged = || StoreError::Damaged { location: location(&inner.connection), operation: "check", object: "every page".into(), detail: found.clone() };
        if found == "ok" { Ok(()) } else { Err(damaged()) }
    }

    /// Gives unused room back to the disk; answers the bytes of the file before and after.
    pub(crate) fn compact(&self) -> Result<(u64, u64), StoreError> {
        let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
        let bytes = |connection: &Connection| connection.query_row(size, [], |row| row.get::<_, i64>(0)).map(|bytes| u64::try_from(bytes).unwrap_or(0));
        let before = self.read("the size of the queue", bytes)?;
        self.read("the queue to compact it", |connection| connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"))?;
        Ok((before, self.read("the size of the queue", bytes)?))
    }
}

/// Durable at each commit: WAL with `synchronous = FULL` syncs the journal before a commit returns.
fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_WAIT)?;
    let _mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update_and_check(None, "journal_size_limit", JOURNAL_BYTES_MAX, |_| Ok(()))
}

/// Enters one parcel; answers the values that are new and the bytes queued, or nothing when it is known already.
fn enter(transaction: &Transaction<'_>, parcel: &Parcel, now: Timestamp) -> Result<Option<(u64, u64)>, StoreError> {
    let mut name = "";
    if let Some(entry) = &parcel.entry {
        let failed = |error| refused(transaction, "append", format!("{} {}", entry.kind, entry.id))(error);
        if parcel.rank == Rank::States {
            name = &entry.id;
            transaction.execute("DELETE FROM queue WHERE name = ?1", [name]).map_err(failed)?;
        } else if !is_new(transaction, entry)? {
            return Ok(None);
        }
        keep(transaction, entry, now).map_err(failed)?;
    }
    let mut bytes = 0;
    for lines in rows(&parcel.lines) {
        let text = lines.concat();
        bytes += text.len() as u64;
        let values = params![parcel.rank as i64, parcel.bucket.suffix(), name, whole(lines.len()), now.0, whole(text.len()), text];
        transaction
            .prepare_cached("INSERT INTO queue (rank, bucket, name, points, queued_at, bytes, lines) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
            .and_then(|mut statement| statement.execute(values))
            .map_err(refused(transaction, "append", "points to the queue"))?;
    }
    Ok(Some((parcel.rows, bytes)))
}

/// A length as `SQLite` counts.
fn whole(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

/// Lines by rows: bounded in number and bytes, at least one line a row.
fn rows(lines: &[String]) -> Vec<&[String]> {
    let mut rows = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(ROW_POINTS_MAX).take_while(|line| {
            bytes += line.len();
            bytes <= ROW_BYTES_MAX
        });
        let (row, after) = rest.split_at(fits.count().max(1));
        rows.push(row);
        rest = after;
    }
    rows
}

/// Enters a document's name; answers whether it was new. A generation never goes back.
fn is_new(transaction: &Transaction<'_>, entry: &Entry) -> Result<bool, StoreError> {
    let failed = |error| refused(transaction, "append", format!("{} {}", entry.kind, entry.id))(error);
    let sql = "SELECT max(generation), max(id = ?2) FROM document WHERE kind = ?1";
    let (latest, known): (Option<i64>, Option<bool>) =
        transaction.query_row(sql, [entry.kind, &entry.id], |row| Ok((row.get(0)?, row.get(1)?))).map_err(failed)?;
    if known == Some(true) {
        return Ok(false);
    }
    if let Some(latest) = latest.filter(|latest| matches!(entry.kind, "plan" | "calibration") && entry.generation <= *latest) {
        let number = |generation| u64::try_from(generation).unwrap_or_default();
        return Err(StoreError::Generation { kind: entry.kind, id: entry.id.clone(), offered: number(entry.generation), latest: number(latest) });
    }
    let values = params![entry.kind, entry.id, entry.generation, entry.at];
    transaction.execute("INSERT INTO document VALUES (?1, ?2, ?3, ?4)", values).map_err(failed)?;
    Ok(true)
}

/// Keeps the latest of what a restart needs: of plans and calibrations the last, the problem of that plan, and every state.
fn keep(transaction: &Transaction<'_>, entry: &Entry, now: Timestamp) -> rusqlite::Result<()> {
    let Some(body) = &entry.body else { return Ok(()) };
    if matches!(entry.kind, "plan" | "calibration") {
        transaction.execute("DELETE FROM kept WHERE kind = ?1", [entry.kind])?;
    }
    if let Some(problem) = &entry.problem {
        transaction.execute("DELETE FROM kept WHERE kind = 'problem' AND name != ?1", [problem])?;
    }
    let kept_at = if entry.kind == "state" { entry.at } else { now.0 };
    transaction.execute("INSERT OR REPLACE INTO kept VALUES (?1, ?2, ?3, ?4)", params![entry.kind, entry.id, kept_at, body]).map(drop)
}

/// Gives up rows until the rest fits: the lowest rank first, the oldest of it first. Answers the bytes that are left.
fn make_room(transaction: &Transaction<'_>, bytes_max: u64, in_flight: i64) -> rusqlite::Result<u64> {
    let mut total = waiting(transaction)?.bytes;
    let mut lost = 0;
    let mut oldest = transaction.prepare("SELECT id, points, bytes FROM queue WHERE id > ?1 ORDER BY rank, id")?;
    let mut rows = oldest.query([in_flight])?;
    let mut given_up = Vec::new();
    while total > bytes_max {
        let Some(row) = rows.next()? else { break };
        given_up.push(row.get::<_, i64>(0)?);
        lost += u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
        total = total.saturating_sub(u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0));
    }
    for id in given_up {
        transaction.prepare_cached("DELETE FROM queue WHERE id = ?1")?.execute([id])?;
    }
    tally(transaction, Lost::QueueFull.name(), lost)?;
    Ok(total)
}

fn tally(transaction: &Transaction<'_>, name: &str, points: u64) -> rusqlite::Result<()> {
    let points = i64::try_from(points).unwrap_or(i64::MAX);
    let sql = "INSERT INTO tally VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET points = points + ?2";
    if points == 0 { Ok(()) } else { transaction.execute(sql, params![name, points]).map(drop) }
}

fn waiting(connection: &Connection) -> rusqlite::Result<Waiting> {
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    let sql = "SELECT coalesce(sum(points), 0), coalesce(sum(bytes), 0), coalesce(max(id), 0), (SELECT queued_at FROM queue ORDER BY id LIMIT 1) FROM queue";
    connection.query_row(sql, [], |row| {
        let oldest: Option<i64> = row.get(3)?;
        Ok(Waiting { points: number(row.get(0)?), bytes: number(row.get(1)?), last: row.get(2)?, oldest: oldest.map(Timestamp) })
    })
}

fn peek(connection: &Connection, points_max: usize, bytes_max: usize) -> rusqlite::Result<Load> {
    let mut load = Load::default();
    let mut oldest = connection.prepare_cached("SELECT id, bucket, points, queued_at, lines FROM queue ORDER BY id")?;
    let mut rows = oldest.query([])?;
    while let Some(row) = rows.next()? {
        let (points, lines): (i64, String) = (row.get(2)?, row.get(4)?);
        let points = usize::try_from(points).unwrap_or(0);
        let fits = load.points + points <= points_max && load.bytes + lines.len() <= bytes_max;
        if !fits && !load.ids.is_empty() {
            break;
        }
        if load.ids.is_empty() {
            load.queued_at = row.get(3)?;
        }
        load.ids.push(row.get(0)?);
        load.points += points;
        load.bytes += lines.len();
        let suffix: String = row.get(1)?;
        if let Some(bucket) = Bucket::of(&suffix) {
            load.lines.push((bucket, lines));
        }
    }
    Ok(load)
}

impl Lost {
    /// Its name in the tally.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::BeyondRetention => "beyond_retention",
            Self::Refused => "refused",
            Self::QueueFull => "queue_full",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(rank: Rank, lines: impl IntoIterator<Item = String>) -> Parcel {
        let lines: Vec<String> = lines.into_iter().collect();
        Parcel { bucket: if rank == Rank::Observations { Bucket::Raw } else { Bucket::Decisions }, rank, entry: None, rows: lines.len() as u64, lines }
    }

    fn line(index: u64) -> String {
        format!("m v={index}.0 {index}\n")
    }

    fn drain(outbox: &Outbox, points_max: usize) -> String {
        let mut all = String::new();
        while let Some(load) = outbox.peek(points_max, 1 << 20).unwrap() {
            all.extend(load.lines.iter().map(|(_, lines)| lines.as_str()));
            outbox.sent(&load.ids, load.points as u64, &[], None).unwrap();
        }
        all
    }

    #[test]
    fn points_leave_in_the_order_they_came_and_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made/queue.db");
        let outbox = Outbox::open(&path, 1 << 20).unwrap();
        for start in [0, 2_500] {
            outbox.append(&[parcel(Rank::Observations, (start..start + 2_500).map(line))], Timestamp(7)).unwrap();
        }
        let load = outbox.peek(1_500, 1 << 20).unwrap().unwrap();
        assert_eq!((load.points, load.ids.len(), load.queued_at), (1_000, 1, 7), "a row is never cut");
        drop(outbox);
        let outbox = Outbox::open(&path, 1 << 20).unwrap();
        assert_eq!(outbox.waiting().unwrap().points, 5_000);
        assert_eq!(drain(&outbox, 3_000), (0..5_000).map(line).collect::<String>());
        assert_eq!((outbox.waiting().unwrap(), outbox.tally("sent").unwrap()), (Waiting::default(), 5_000));
    }

    /// The queue is full: observations go first, oldest first; windows and decisions stay, and every loss is counted.
    #[test]
    fn a_full_queue_gives_up_the_oldest_observations_first() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = Outbox::open(&folder.path().join("queue.db"), 1_000).unwrap();
        let window = |at: u64| parcel(Rank::Windows, [format!("demand v={at}.0 {at}\n")]);
        let mut points = 0;
        for at in 0..60 {
            outbox.append(&[window(at), parcel(Rank::Observations, [line(at)])], Timestamp(0)).unwrap();
            points += 2;
        }
        let waiting = outbox.waiting().unwrap();
        assert!(waiting.bytes <= 1_000, "{waiting:?}");
        let lost = outbox.tally("queue_full").unwrap();
        assert_eq!(waiting.points + lost, points);
        let left = drain(&outbox, 10);
        assert!(!left.contains("m v="), "observations stayed while windows went: {left}");
        let kept: Vec<u64> = left.lines().map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect();
        assert!(kept.windows(2).all(|pair| pair[0] < pair[1]) && kept.last() == Some(&59), "{kept:?}");
    }

    #[test]
    fn what_is_being_sent_is_not_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = Outbox::open(&folder.path().join("queue.db"), 300).unwrap();
        outbox.append(&[parcel(Rank::Observations, (0..10).map(line))], Timestamp(0)).unwrap();
        let load = outbox.peek(10, 1_000).unwrap().unwrap();
        for at in 10..100 {
            outbox.append(&[parcel(Rank::Observations, [line(at)])], Timestamp(0)).unwrap();
        }
        assert_eq!(outbox.peek(10, 1_000).unwrap().unwrap().ids, load.ids);
    }
}
