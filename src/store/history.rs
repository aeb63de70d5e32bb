//! The seam: what every back end of the history can do.

use crate::{Resolution, Rollup, StoreError};
use fleet::{
    Calibration, Forecast, MemberId, Observation, Outcome, Plan, PlanId, Problem, ProblemId, Signal, Span, TargetId, Timestamp, WorkloadId, WorkloadWindow,
};
use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

/// The answer to a question to the store: a future that runs under any executor, and under [`wait`].
///
/// Nothing is done before it is first polled. Dropping it later does not take back what was already handed to the store.
pub type Answer<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Everything written together: all of it is kept, or none.
///
/// Writing the same batch again changes nothing that can be read. So a back-fill of old observations and windows may be cut off anywhere and
/// begun again; where it keeps its progress as a snapshot of the same batch (by a name such as `import/PROMETHEUS`), it goes on after the last
/// batch that is whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Numbers read. A number already kept for the same series and instant is replaced.
    pub observations: Vec<Observation>,
    /// Windows. One already kept of the same workload, start and length is replaced.
    pub windows: Vec<WorkloadWindow>,
    /// Forecasts, kept by id; one already kept is left as it is.
    pub forecasts: Vec<Forecast>,
    /// Problems, kept by the fingerprint of their content.
    pub problems: Vec<Problem>,
    /// Plans in order of generation, kept by the fingerprint of their content.
    pub plans: Vec<Plan>,
    /// Outcomes, kept by id; one already kept is left as it is.
    pub outcomes: Vec<Outcome>,
    /// Calibrations in order of generation.
    pub calibrations: Vec<Calibration>,
    /// States of the program by name, as bytes; an earlier one of the same name is replaced.
    pub snapshots: Vec<(String, Vec<u8>)>,
}

/// What was written, now that it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ack {
    /// Rows added or replaced; duplicates that were left as they are do not count.
    pub rows: u64,
}

/// How long each kind is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Raw observations, by the instant observed.
    pub observations: Span,
    /// Observations summed up by minutes, by their start.
    pub minutes: Span,
    /// Observations summed up by hours, by their start.
    pub hours: Span,
    /// Windows, by their start.
    pub windows: Span,
    /// Forecasts, by their origin.
    pub forecasts: Span,
    /// Plans, problems, outcomes and calibrations, by the instant they are for. The latest plan, its problem and the latest calibration stay.
    pub decisions: Span,
}

impl Default for Retention {
    /// A week of raw observations (enough to rebuild windows after a fault), a month of minutes, a year and its season of hours, windows and
    /// decisions, a quarter of forecasts (their scores live on in the outcomes).
    fn default() -> Self {
        let days = |n: i64| Span::hours(n * 24);
        Self { observations: days(7), minutes: days(30), hours: days(400), windows: days(400), forecasts: days(90), decisions: days(400) }
    }
}

/// How a store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long each kind is kept.
    pub retention: Retention,
    /// Threads that read beside the one that writes, at least one.
    pub readers: usize,
    /// Questions waiting for a thread; the next one waits for room.
    pub queue: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { retention: Retention::default(), readers: 2, queue: 256 }
    }
}

/// What retention removed, in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Removed {
    /// Observations.
    pub observations: u64,
    /// Minutes of series.
    pub minutes: u64,
    /// Hours of series.
    pub hours: u64,
    /// Windows.
    pub windows: u64,
    /// Forecasts.
    pub forecasts: u64,
    /// Plans.
    pub plans: u64,
    /// Problems.
    pub problems: u64,
    /// Outcomes.
    pub outcomes: u64,
    /// Calibrations.
    pub calibrations: u64,
}

/// What is kept of one series at one resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesKept {
    /// The target it was read from.
    pub source: TargetId,
    /// The engine or GPU of the target, where it tells them apart.
    pub member: Option<MemberId>,
    /// What it is.
    pub signal: Signal,
    /// Part of a histogram, or nothing.
    pub part: Option<String>,
    /// The first instant observed, or the start of the first minute or hour.
    pub first: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// Observations, minutes or hours.
    pub points: u64,
}

/// What compacting did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compacted {
    /// Bytes the history took before.
    pub bytes_before: u64,
    /// Bytes it takes now.
    pub bytes_after: u64,
}

/// What a back end of the history does. Spans of time are half open: `from` is in them, `to` is not.
///
/// Every answer fails with [`StoreError`] when the back end refuses or is damaged.
pub trait History: Send + Sync {
    /// Where the history is kept, for messages.
    fn location(&self) -> String;

    /// Writes a batch and answers when all of it is durable.
    ///
    /// A plan or calibration that is kept already is left as it is; a new one must have a higher generation than all before it, else
    /// the whole batch is refused with [`StoreError::Generation`]. A plan whose id is not its fingerprint and a value with a number
    /// that is not finite are refused too, and so is, with its reason, any text or instant that would not come back as it is
    /// ([`StoreError::Unkept`]).
    fn append(&self, batch: Batch) -> Answer<Ack>;

    /// Windows that start in the span, of one workload or of all, in order of workload, start and length.
    fn windows(&self, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Answer<Vec<WorkloadWindow>>;

    /// Observations of one source in the span, of one signal or of all, in order of the signal's name, member, part (none before
    /// some) and instant.
    fn observations(&self, source: &TargetId, signal: Option<Signal>, from: Timestamp, to: Timestamp) -> Answer<Vec<Observation>>;

    /// What observations of one source in the span sum up to, of one signal or of all, in order of the signal's name, member, part (none
    /// before some) and start. `from` and `to` bound the starts. Late observations are in them, and so are those of the minute or hour that
    /// has not ended yet. Where the raw observations of a minute are gone and some come again, the roll-up made of more of them stays.
    fn rollups(&self, source: &TargetId, signal: Option<Signal>, resolution: Resolution, from: Timestamp, to: Timestamp) -> Answer<Vec<Rollup>>;

    /// The series kept at a resolution, in order of source, signal's name, member and part.
    fn series_kept(&self, resolution: Resolution) -> Answer<Vec<SeriesKept>>;

    /// The plan of the highest generation.
    fn latest_plan(&self) -> Answer<Option<Plan>>;

    /// A plan.
    fn plan(&self, id: &PlanId) -> Answer<Option<Plan>>;

    /// A problem.
    fn problem(&self, id: &ProblemId) -> Answer<Option<Problem>>;

    /// Plans made for instants in the span, in order of generation.
    fn plans(&self, from: Timestamp, to: Timestamp) -> Answer<Vec<Plan>>;

    /// The calibration of the highest generation.
    fn latest_calibration(&self) -> Answer<Option<Calibration>>;

    /// All calibrations kept, in order of generation.
    fn calibrations(&self) -> Answer<Vec<Calibration>>;

    /// Forecasts with an origin in the span, of one workload or of all, in order of origin, workload and id.
    fn forecasts(&self, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Answer<Vec<Forecast>>;

    /// Outcomes of windows that start in the span, in order of start and id.
    fn outcomes(&self, from: Timestamp, to: Timestamp) -> Answer<Vec<Outcome>>;

    /// The state last kept under a name.
    fn snapshot(&self, name: &str) -> Answer<Option<Vec<u8>>>;

    /// Sums up what is not summed up yet, then removes what is older than its retention at `now`. A back end whose server does both by itself
    /// answers that it removed nothing.
    fn retain(&self, now: Timestamp) -> Answer<Removed>;

    /// Reads everything once and tells whether it is whole.
    fn check(&self) -> Answer<()>;

    /// Gives the room of what was removed back to the disk. Takes as long as copying the history, and as much room again meanwhile.
    fn compact(&self) -> Answer<Compacted>;
}

/// Runs a future on this thread until it is done: the blocking way to use an [`Answer`]. Not for code inside an async runtime, whose
/// thread it would hold.
pub fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // A wake-up before this line makes it return at once.
            Poll::Pending => thread::park(),
        }
    }
}
