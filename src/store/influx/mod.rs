//! The history in an `InfluxDB` 2 server, behind a durable local queue.
//!
//! [`append`](crate::History::append) puts a batch into the queue, one `SQLite` file, and answers once it is synced there. One task empties the
//! queue into the server, in order: bounded requests, gzip, a time-out on every attempt, waits that grow with jitter, `Retry-After` honoured, the
//! token read again where it is refused. What the server took leaves the queue; a crash in between sends the same points once more, and the same
//! point written twice is one point. So nothing acknowledged is lost but what the bounds say, and that is counted ([`InfluxStatus`]). Questions
//! first wait for the queue to be empty, and answer [`StoreError::Away`] where the server cannot be asked; the latest plan, its problem, the
//! latest calibration and all states are kept beside the queue too, and are there without it.
//!
//! # Measurements
//!
//! All numbers are floats. Instants are those of the value, to the second; documents carry the hash of their id as fraction of that second.
//! Names with a control character, a backslash or a `%` before two hexadecimal digits have those written as `%XX`.
//!
//! | bucket | measurement | tags | fields |
//! |---|---|---|---|
//! | `_raw` | `engine`, `gpu` | `source` (the target), `member`, `signal`, `part` (`sum`, `count`, `le=0.5` of a histogram) | `value` (in the signal's unit), `lag_s` (seconds from observed to received) |
//! | `_1m`, `_1h` | `engine`, `gpu` | the same | `count`, `mean`, `min`, `max`, `last` of the minute or hour that starts then |
//! | `_decisions` | `demand` | `workload`, `length` (seconds) | `arrivals_per_s`, `peak_per_s`, `finished_per_s`, `refused_per_s` (requests/s); `input_tokens`, `output_tokens` (per request); `waiting`, `running`, `first_tokens`, `first_tokens_in_time` (requests); `inter_token_s`; `ready` (replicas); `completeness` (share); `saturated` (0, 1); `body` (JSON) |
//! | | `cache` | `workload`, `length` | `prefix_hit_rate` (share) |
//! | | `forecast` | `workload`, `chunk` | `q05` ... `q99` (requests/s in the first step), `steps`, `step_s`, `id`, `body` |
//! | | `problem` | `chunk` | `gpus`, `services`, `jobs`, `id`, `body` |
//! | | `plan` | `chunk` | `generation`, `cost`, `bound` (money over the horizon), `gap`, `replicas`, `jobs`, `shortfall_per_s`, `preemptions`, `relaxations`, `advisory` (0, 1), `id`, `body` |
//! | | `outcome` | `chunk`; or `workload` | `applied` (0, 1), `length_s`, `starts`, `id`, `body`; or `observed_per_s`, `peak_per_s`, `promised_per_s` (requests/s), `attainment`, `completeness` (shares), `censored` (0, 1) |
//! | | `calibration` | `chunk`; or `workload`, `variant` | `generation`, `frozen` (0, 1), `id`, `body`; or `capacity_factor`, `std_error`, `evidence` |
//! | | `state` | `name`, `chunk` | `id`, `body`, all at the beginning of 1970 |
//!
//! `body` of all but `demand` is packed and cut into chunks; see the module `documents`. A window that is written again with fewer known numbers
//! keeps the old ones in their fields; the `body` is what is read back.

mod documents;
mod flux;
mod init;
mod line;
mod link;
mod outbox;
mod points;
mod read;
mod retain;
mod rollups;
mod sender;
mod settings;
#[cfg(test)]
mod tests;
mod verdict;

pub use init::{InitStep, StoreInit};
pub use sender::InfluxStatus;
pub use settings::{InfluxLimits, InfluxSettings, Token};

use crate::{Ack, Answer, Batch, Compacted, History, Removed, Resolution, Rollup, SeriesKept, Store, StoreError, admit::admit};
use fleet::{Calibration, Forecast, Observation, Outcome, Plan, PlanId, Problem, ProblemId, Signal, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use sender::Shared;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::{runtime::Handle, sync::watch};

/// How long a stop waits for what is under way.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// A history in an `InfluxDB` 2 server. Clones share it; the last one to go, and the last answer under way, close it.
#[derive(Clone)]
pub struct Influx {
    life: Arc<Life>,
}

/// The thread of the back end, and what its tasks share.
struct Life {
    shared: Arc<Shared>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    /// The plans and calibrations of the server are known.
    learned: Arc<AtomicBool>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so already.
            let _ = thread.join();
        }
    }
}

impl Influx {
    /// Opens the queue and begins to empty it. The server need not be there.
    ///
    /// # Errors
    /// When the settings will not do, there is no token, the queue's file cannot be used, or no thread can be started.
    pub fn open(settings: InfluxSettings) -> Result<Self, StoreError> {
        let outbox = outbox::Outbox::open(&settings.queue, settings.limits.queue_bytes_max)?;
        let shared = Arc::new(Shared::new(link::Link::new(settings)?, outbox));
        let failed = |error: std::io::Error| shared.link.failed("start", "its thread", error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let handle = runtime.handle().clone();
        let own = Arc::clone(&shared);
        let run = move || {
            runtime.block_on(sender::drain(own, stopped));
            runtime.shutdown_timeout(STOP_WAIT);
        };
        let thread = thread::Builder::new().name("store-influx".into()).spawn(run).map_err(failed)?;
        Ok(Self { life: Arc::new(Life { shared, runtime: handle, stop, thread: Some(thread), learned: Arc::default() }) })
    }

    /// This history behind the seam.
    #[must_use]
    pub fn store(&self) -> Store {
        Store(Arc::new(self.clone()))
    }

    /// The traffic with the server as of now.
    ///
    /// # Errors
    /// When the queue's file cannot be read.
    pub fn status(&self) -> Result<InfluxStatus, StoreError> {
        self.life.shared.status()
    }

    /// Creates the buckets, how long they keep their points, and the tasks that sum observations up, where they are missing or otherwise. The token
    /// must be allowed to.
    #[must_use]
    pub fn init(&self) -> Answer<StoreInit> {
        self.ask("its buckets and tasks", |shared| async move { init::init(&shared.link).await })
    }

    /// Waits, but not for ever, until the server has what was appended before.
    #[must_use]
    pub fn flush(&self) -> Answer<()> {
        self.ask("the queue", |shared| async move { shared.flush().await })
    }

    /// Runs work on the back end's own thread, so that answers need no particular runtime.
    fn ask<T, F>(&self, object: &'static str, work: impl FnOnce(Arc<Shared>) -> F + Send + 'static) -> Answer<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let life = Arc::clone(&self.life);
        Box::pin(async move {
            let shared = Arc::clone(&life.shared);
            match life.runtime.spawn(work(shared)).await {
                Ok(answer) => answer.map_err(|error| life.shared.counted(error)),
                Err(error) if error.is_panic() => Err(life.shared.link.failed("read", object, "the answer makes no sense".into())),
                Err(_) => Err(StoreError::Closed { location: life.shared.link.location().to_owned() }),
            }
        })
    }
}

/// Queues a batch. Plans and calibrations need to know those of the server first, once a run; a machine that knew some before does without
/// while the server is away.
async fn append(shared: Arc<Shared>, learned: Arc<AtomicBool>, batch: Batch) -> Result<Ack, StoreError> {
    let numbered = [("plan", batch.plans.is_empty()), ("calibration", batch.calibrations.is_empty())];
    let numbered: Vec<&str> = numbered.into_iter().filter(|(_, none)| !none).map(|(kind, _)| kind).collect();
    let parcels = shared.blocking(move |_| admit(&batch).and_then(|()| points::parcels(&batch, sender::wall_ms()))).await?;
    if !numbered.is_empty() && !learned.load(Ordering::Acquire) {
        match read::learn(&shared).await {
            Ok(()) => learned.store(true, Ordering::Release),
            Err(away @ StoreError::Away { .. }) => {
                let known = move |shared: &Shared| numbered.into_iter().try_fold(true, |known, kind| Ok(known && shared.outbox.knows(kind)?));
                if !shared.blocking(known).await? {
                    return Err(away);
                }
            }
            Err(error) => return Err(error),
        }
    }
    let (rows, _last) = shared.blocking(move |shared| shared.outbox.append(&parcels, sender::wall())).await?;
    shared.queued();
    Ok(Ack { rows })
}

impl History for Influx {
    fn location(&self) -> String {
        self.life.shared.link.location().to_owned()
    }

    fn append(&self, batch: Batch) -> Answer<Ack> {
        let learned = Arc::clone(&self.life.learned);
        self.ask("a batch", move |shared| append(shared, learned, batch))
    }

    fn windows(&self, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Answer<Vec<WorkloadWindow>> {
        let workload = workload.cloned();
        self.ask("windows", move |shared| async move { read::windows(&shared, workload.as_ref(), from, to).await })
    }

    fn observations(&self, source: &TargetId, signal: Option<Signal>, from: Timestamp, to: Timestamp) -> Answer<Vec<Observation>> {
        let source = source.clone();
        self.ask("observations", move |shared| async move { read::observations(&shared, &source, signal, from, to).await })
    }

    fn rollups(&self, source: &TargetId, signal: Option<Signal>, resolution: Resolution, from: Timestamp, to: Timestamp) -> Answer<Vec<Rollup>> {
        let source = source.clone();
        self.ask("roll-ups", move |shared| async move {
            if resolution == Resolution::Raw {
                return Ok(read::observations(&shared, &source, signal, from, to).await?.into_iter().map(Rollup::raw).collect());
            }
            shared.flush().await?;
            let [from, to] = [from, to].map(|at| at.0.clamp(read::FIRST / points::SECOND + 1, read::END / points::SECOND - 1));
            rollups::rollups(&shared, resolution, rollups::Scope { source: Some(source), signal, from, to }).await
        })
    }

    fn series_kept(&self, resolution: Resolution) -> Answer<Vec<SeriesKept>> {
        self.ask("the series", move |shared| async move {
            shared.flush().await?;
            rollups::series_kept(&shared, resolution).await
        })
    }

    fn latest_plan(&self) -> Answer<Option<Plan>> {
        self.ask("the latest plan", |shared| async move { read::latest(&shared, "plan", |plan: &Plan| plan.generation).await })
    }

    fn plan(&self, id: &PlanId) -> Answer<Option<Plan>> {
        let id = id.to_string();
        self.ask("a plan", move |shared| async move { read::by_id(&shared, "plan", id).await })
    }

    fn problem(&self, id: &ProblemId) -> Answer<Option<Problem>> {
        let id = id.to_string();
        self.ask("a problem", move |shared| async move { read::by_id(&shared, "problem", id).await })
    }

    fn plans(&self, from: Timestamp, to: Timestamp) -> Answer<Vec<Plan>> {
        self.ask("plans", move |shared| async move {
            let mut plans: Vec<Plan> = read::values(&shared, "plan", None, from, to).await?;
            plans.sort_by_key(|plan| plan.generation);
            Ok(plans)
        })
    }

    fn latest_calibration(&self) -> Answer<Option<Calibration>> {
        self.ask("the latest calibration", |shared| async move { read::latest(&shared, "calibration", |c: &Calibration| c.generation).await })
    }

    fn calibrations(&self) -> Answer<Vec<Calibration>> {
        self.ask("calibrations", |shared| async move {
            let mut all: Vec<Calibration> = read::values(&shared, "calibration", None, Timestamp(i64::MIN), Timestamp(i64::MAX)).await?;
            all.sort_by_key(|calibration| calibration.generation);
            Ok(all)
        })
    }

    fn forecasts(&self, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Answer<Vec<Forecast>> {
        let workload = workload.cloned();
        self.ask("forecasts", move |shared| async move {
            let mut all: Vec<Forecast> = read::values(&shared, "forecast", workload.as_ref(), from, to).await?;
            all.sort_by(|a, b| (a.origin, &a.workload, &a.id).cmp(&(b.origin, &b.workload, &b.id)));
            Ok(all)
        })
    }

    fn outcomes(&self, from: Timestamp, to: Timestamp) -> Answer<Vec<Outcome>> {
        self.ask("outcomes", move |shared| async move {
            let mut all: Vec<Outcome> = read::values(&shared, "outcome", None, from, to).await?;
            all.sort_by(|a, b| (a.start, &a.id).cmp(&(b.start, &b.id)));
            Ok(all)
        })
    }

    fn snapshot(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        let name = name.to_owned();
        self.ask("a state", move |shared| async move { read::snapshot(&shared, name).await })
    }

    fn retain(&self, now: Timestamp) -> Answer<Removed> {
        self.ask("what is past its retention", move |shared| async move { retain::retain(&shared, now).await })
    }

    fn check(&self) -> Answer<()> {
        self.ask("everything", |shared| async move { read::check(&shared).await })
    }

    /// The server compacts itself; this gives back what the queue no longer needs.
    fn compact(&self) -> Answer<Compacted> {
        self.ask("the queue", |shared| async move {
            let (bytes_before, bytes_after) = shared.blocking(|shared| shared.outbox.compact()).await?;
            Ok(Compacted { bytes_before, bytes_after })
        })
    }
}
