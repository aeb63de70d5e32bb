//! The embedded back end: one `SQLite` file in WAL mode, one thread that writes, a few that read.

use crate::dictionary::Dictionary;
use crate::error::{StoreError, from_sqlite, location, refused};
use crate::history::{Ack, Answer, Batch, Compacted, History, Options, Removed, Retention, SeriesKept};
use crate::observed::{self, Wanted};
use crate::{Resolution, Rollup, check, migrate, read, retain, write};
use fleet::{Calibration, Forecast, Observation, Outcome, Plan, PlanId, Problem, ProblemId, Signal, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use rusqlite::Connection;
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// What one thread works with.
struct Desk {
    connection: Connection,
    /// Only the thread that writes fills it.
    dictionary: Dictionary,
}

/// How long to wait for another process that writes to the same file.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Pages the writing connection keeps in memory, in KiB: a minute of 80,000 series every 15 s, raw and summed up, stays in it.
const WRITER_CACHE_KIB: i64 = 32 << 10;

/// The journal is cut back to this size after a checkpoint.
const JOURNAL_BYTES_MAX: i64 = 64 << 20;

/// The back end. Each [`Answer`] shares the queues, so an answer outlives the handle it came from.
pub(crate) struct Embedded {
    lanes: Arc<Lanes>,
    retention: Retention,
}

/// The queues to the threads.
struct Lanes {
    location: String,
    write: mpsc::Sender<Job>,
    read: mpsc::Sender<Job>,
    threads: Vec<JoinHandle<()>>,
}

impl Embedded {
    pub(crate) fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder { path: folder.to_owned(), source })?;
        }
        let location = path.display().to_string();
        let open = || Connection::open(path).map_err(|source| from_sqlite(location.clone(), "open", "the file".into(), source));
        let mut writer = open()?;
        prepare_writer(&writer)?;
        migrate::migrate(&mut writer, migrate::MIGRATIONS)?;
        let mut readers = Vec::new();
        for _ in 0..options.readers.max(1) {
            let reader = open()?;
            prepare_reader(&reader)?;
            readers.push(reader);
        }
        let (write, writing) = spawn("store-write", vec![writer], options.queue);
        let (read, mut threads) = spawn("store-read", readers, options.queue);
        threads.extend(writing);
        Ok(Self { lanes: Arc::new(Lanes { location, write, read, threads }), retention: options.retention })
    }

    /// One connection serves both queues: an `SQLite` database in memory belongs to its connection.
    pub(crate) fn in_memory(options: Options) -> Result<Self, StoreError> {
        let location = "in memory".to_owned();
        let mut connection = Connection::open_in_memory().map_err(|source| from_sqlite(location.clone(), "open", "a database".into(), source))?;
        migrate::migrate(&mut connection, migrate::MIGRATIONS)?;
        let (write, threads) = spawn("store", vec![connection], options.queue);
        Ok(Self { lanes: Arc::new(Lanes { location, read: write.clone(), write, threads }), retention: options.retention })
    }

    fn writing<T: Send + 'static>(&self, work: impl FnOnce(&mut Desk) -> Result<T, StoreError> + Send + 'static) -> Answer<T> {
        self.ask(|lanes| &lanes.write, work)
    }

    fn reading<T: Send + 'static>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static) -> Answer<T> {
        self.ask(|lanes| &lanes.read, |desk| work(&desk.connection))
    }

    fn ask<T: Send + 'static>(
        &self,
        queue: fn(&Lanes) -> &mpsc::Sender<Job>,
        work: impl FnOnce(&mut Desk) -> Result<T, StoreError> + Send + 'static,
    ) -> Answer<T> {
        let lanes = Arc::clone(&self.lanes);
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let job: Job = Box::new(move |desk| {
                // Nobody waits any more when this fails.
                let _ = reply.send(work(desk));
            });
            let closed = || StoreError::Closed { location: lanes.location.clone() };
            queue(&lanes).send(job).await.map_err(|_| closed())?;
            answer.await.map_err(|_| closed())?
        })
    }
}

impl Drop for Lanes {
    /// Lets the threads finish what is queued and close their connections.
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel(1);
        self.read = closed.clone();
        self.write = closed;
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Threads that share one bounded queue, one a connection.
fn spawn(name: &str, connections: Vec<Connection>, queue: usize) -> (mpsc::Sender<Job>, Vec<JoinHandle<()>>) {
    let (sender, receiver) = mpsc::channel::<Job>(queue.max(1));
    let receiver = Arc::new(Mutex::new(receiver));
    let serve = |connection: Connection| {
        let receiver = Arc::clone(&receiver);
        let mut desk = Desk { connection, dictionary: Dictionary::default() };
        move || {
            loop {
                // The lock is held while waiting and given back before working, so that idle threads queue behind it.
                let job = receiver.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                let Some(job) = job else { break };
                job(&mut desk);
            }
        }
    };
    let start = |connection| thread::Builder::new().name(name.to_owned()).spawn(serve(connection));
    // A thread that cannot be started leaves its share to the others; without any, every question is answered "closed".
    let threads = connections.into_iter().filter_map(|connection| start(connection).ok()).collect();
    (sender, threads)
}

/// Durable at each commit: WAL with `synchronous = FULL` syncs the journal before a commit returns.
fn prepare_writer(connection: &Connection) -> Result<(), StoreError> {
    let set = || {
        connection.busy_timeout(BUSY_WAIT)?;
        let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
        if mode != "wal" {
            tracing::warn!(store = location(connection), mode, "the file system gives no write-ahead log: reads wait for writes");
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        connection.pragma_update_and_check(None, "journal_size_limit", JOURNAL_BYTES_MAX, |_| Ok(()))
    };
    set().map_err(refused(connection, "set up", "the writing connection"))
}

fn prepare_reader(connection: &Connection) -> Result<(), StoreError> {
    let set = || {
        connection.busy_timeout(BUSY_WAIT)?;
        connection.pragma_update(None, "query_only", true)
    };
    set().map_err(refused(connection, "set up", "a reading connection"))
}

/// The condition on ?1 that keeps one workload's rows, or all. Two texts, so that `SQLite` can use the index where there is a name.
fn of(workload: Option<&WorkloadId>) -> (&'static str, Option<String>) {
    let condition = if workload.is_some() { "workload = ?1" } else { "?1 IS NULL" };
    (condition, workload.map(ToString::to_string))
}

impl History for Embedded {
    fn location(&self) -> String {
        self.lanes.location.clone()
    }

    fn append(&self, batch: Batch) -> Answer<Ack> {
        self.writing(move |desk| write::append(&mut desk.connection, &mut desk.dictionary, &batch))
    }

    fn windows(&self, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Answer<Vec<WorkloadWindow>> {
        let (condition, workload) = of(workload);
        let sql = format!("SELECT workload, body FROM workload_window WHERE {condition} AND start >= ?2 AND start < ?3 ORDER BY workload, start, length");
        self.reading(move |connection| read::bodies(connection, "window", &sql, (workload, from.0, to.0)))
    }

    fn observations(&self, source: &TargetId, signal: Option<Signal>, from: Timestamp, to: Timestamp) -> Answer<Vec<Observation>> {
        let wanted = Wanted { source: source.clone(), signal, from, to };
        self.reading(move |connection| observed::observations(connection, &wanted))
    }

    fn rollups(&self, source: &TargetId, signal: Option<Signal>, resolution: Resolution, from: Timestamp, to: Timestamp) -> Answer<Vec<Rollup>> {
        let wanted = Wanted { source: source.clone(), signal, from, to };
        self.reading(move |connection| observed::rollups(connection, &wanted, resolution))
    }

    fn series_kept(&self, resolution: Resolution) -> Answer<Vec<SeriesKept>> {
        self.reading(move |connection| observed::series_kept(connection, resolution))
    }

    fn latest_plan(&self) -> Answer<Option<Plan>> {
        self.reading(|connection| read::body(connection, "plan", "SELECT id, body FROM plan ORDER BY generation DESC LIMIT 1", []))
    }

    fn plan(&self, id: &PlanId) -> Answer<Option<Plan>> {
        let id = id.to_string();
        self.reading(move |connection| read::body(connection, "plan", "SELECT id, body FROM plan WHERE id = ?1", [id]))
    }

    fn problem(&self, id: &ProblemId) -> Answer<Option<Problem>> {
        let id = id.to_string();
        self.reading(move |connection| read::body(connection, "problem", "SELECT id, body FROM problem WHERE id = ?1", [id]))
    }

    fn plans(&self, from: Timestamp, to: Timestamp) -> Answer<Vec<Plan>> {
        let sql = "SELECT id, body FROM plan WHERE as_of >= ?1 AND as_of < ?2 ORDER BY generation";
        self.reading(move |connection| read::bodies(connection, "plan", sql, (from.0, to.0)))
    }

    fn latest_calibration(&self) -> Answer<Option<Calibration>> {
        let sql = "SELECT id, body FROM calibration ORDER BY generation DESC LIMIT 1";
        self.reading(move |connection| read::body(connection, "calibration", sql, []))
    }

    fn calibrations(&self) -> Answer<Vec<Calibration>> {
        self.reading(|connection| read::bodies(connection, "calibration", "SELECT id, body FROM calibration ORDER BY generation", []))
    }

    fn forecasts(&self, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Answer<Vec<Forecast>> {
        let (condition, workload) = of(workload);
        let sql = format!("SELECT id, body FROM forecast WHERE {condition} AND origin >= ?2 AND origin < ?3 ORDER BY origin, workload, id");
        self.reading(move |connection| read::bodies(connection, "forecast", &sql, (workload, from.0, to.0)))
    }

    fn outcomes(&self, from: Timestamp, to: Timestamp) -> Answer<Vec<Outcome>> {
        let sql = "SELECT id, body FROM outcome WHERE start >= ?1 AND start < ?2 ORDER BY start, id";
        self.reading(move |connection| read::bodies(connection, "outcome", sql, (from.0, to.0)))
    }

    fn snapshot(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.reading(move |connection| read::snapshot(connection, &name))
    }

    fn retain(&self, now: Timestamp) -> Answer<Removed> {
        let retention = self.retention;
        self.writing(move |desk| retain::retain(&mut desk.connection, &mut desk.dictionary, &retention, now))
    }

    fn check(&self) -> Answer<()> {
        self.reading(check::check)
    }

    fn compact(&self) -> Answer<Compacted> {
        self.writing(|desk| retain::compact(&desk.connection))
    }
}
