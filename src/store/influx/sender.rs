//! Empties the queue into the server, in order, for as long as the back end lives.

use super::link::Link;
use super::outbox::{Load, Outbox};
use super::settings::Bucket;
use super::verdict::{Lost, Verdict, Wait, verdict};
use super::{flux, line};
use crate::StoreError;
use backon::{BackoffBuilder, ExponentialBuilder};
use fleet::{Span, Timestamp};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};

/// How often to look for points that another process of the same queue left.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often to ask how long the buckets keep their points.
const RETENTION_EVERY: Duration = Duration::from_hours(1);

/// How soon to ask again after that failed.
const RETENTION_AGAIN: Duration = Duration::from_mins(1);

/// Age at which observations may be too old for the server's tasks, which look back three hours at most every hour.
const LATE_AFTER: Span = Span(3_600);

/// What the tasks of the back end share.
pub(crate) struct Shared {
    pub link: Link,
    pub outbox: Outbox,
    /// Something was queued.
    news: Notify,
    /// Somebody waits for what was queued.
    urgent: Notify,
    /// Up to which row somebody waits.
    wanted: AtomicI64,
    /// Attempts that ended, well or not.
    progress: watch::Sender<Progress>,
    state: Mutex<State>,
    kept_for: Mutex<Option<(Instant, BTreeMap<Bucket, Span>)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Progress {
    sent: u64,
    failed: u64,
}

/// What the sender is at.
#[derive(Debug, Clone, Default)]
struct State {
    /// First failed attempt of the present row of them.
    away_since: Option<Timestamp>,
    /// How the present wait is measured.
    waiting: Option<Wait>,
    /// The last thing that went wrong, whether or not it is over.
    last_error: Option<String>,
    /// Attempts that failed.
    failures: u64,
}

/// What the daemon can tell of the traffic with the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InfluxStatus {
    /// Points that wait.
    pub queued_points: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// When the oldest of them was queued.
    pub oldest_queued: Option<Timestamp>,
    /// Since when no attempt succeeded; nothing while the server answers.
    pub away_since: Option<Timestamp>,
    /// The last thing that went wrong, without secrets.
    pub last_error: Option<String>,
    /// Attempts that failed, in this process.
    pub failed_attempts: u64,
    /// Points the server took, since the queue's file was made.
    pub sent_points: u64,
    /// Points lost because they are older than their bucket keeps.
    pub lost_beyond_retention: u64,
    /// Points lost because the server refused them: another type of the field, or not to be read.
    pub lost_refused: u64,
    /// Points lost because the queue was full.
    pub lost_queue_full: u64,
}

/// The wall clock, in whole seconds.
pub(crate) fn wall() -> Timestamp {
    Timestamp(wall_ms().div_euclid(1_000))
}

/// The wall clock, in milliseconds.
pub(crate) fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Shared {
    pub(crate) fn new(link: Link, outbox: Outbox) -> Self {
        Self {
            link,
            outbox,
            news: Notify::new(),
            urgent: Notify::new(),
            wanted: AtomicI64::new(0),
            progress: watch::Sender::new(Progress::default()),
            state: Mutex::default(),
            kept_for: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs work on the queue's file where it holds nobody up.
    pub(crate) async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(self);
        let closed = || StoreError::Closed { location: self.link.location().to_owned() };
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(|_| closed())?
    }

    /// Says that something was queued.
    pub(crate) fn queued(&self) {
        self.news.notify_one();
    }

    /// Waits until the server has everything that was queued before, but not for ever.
    ///
    /// # Errors
    /// [`StoreError::Away`] when it does not get there.
    pub(crate) async fn flush(self: &Arc<Self>) -> Result<(), StoreError> {
        let mut progress = self.progress.subscribe();
        let failed_before = progress.borrow_and_update().failed;
        let last = self.blocking(|shared| shared.outbox.waiting()).await?.last;
        if last == 0 {
            return Ok(());
        }
        self.wanted.fetch_max(last, Ordering::SeqCst);
        let asked_to_wait = matches!(self.state().waiting, Some(Wait::Asked(_) | Wait::Token | Wait::Somebody));
        self.urgent.notify_one();
        self.news.notify_one();
        let arrived = async {
            while progress.borrow_and_update().failed == failed_before && !asked_to_wait {
                if self.blocking(|shared| shared.outbox.first()).await?.is_none_or(|first| first > last) {
                    return Ok(true);
                }
                if progress.changed().await.is_err() {
                    break;
                }
            }
            Ok(self.blocking(|shared| shared.outbox.first()).await?.is_none_or(|first| first > last))
        };
        match tokio::time::timeout(self.link.settings.limits.flush_max, arrived).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Err(error)) => Err(error),
            Ok(Ok(false)) | Err(_) => {
                let reason = self.state().last_error.clone().unwrap_or_else(|| "what waits has not reached it in time".into());
                Err(self.counted(self.link.away(reason)))
            }
        }
    }

    /// Enters how many points wait.
    pub(crate) fn counted(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Away { location, reason, .. } => {
                StoreError::Away { location, reason, waiting: self.outbox.waiting().map_or(0, |waiting| waiting.points) }
            }
            other => other,
        }
    }

    pub(crate) fn status(&self) -> Result<InfluxStatus, StoreError> {
        let (waiting, state) = (self.outbox.waiting()?, self.state().clone());
        Ok(InfluxStatus {
            queued_points: waiting.points,
            queued_bytes: waiting.bytes,
            oldest_queued: waiting.oldest,
            away_since: state.away_since,
            last_error: state.last_error,
            failed_attempts: state.failures,
            sent_points: self.outbox.tally("sent")?,
            lost_beyond_retention: self.outbox.tally(Lost::BeyondRetention.name())?,
            lost_refused: self.outbox.tally(Lost::Refused.name())?,
            lost_queue_full: self.outbox.tally(Lost::QueueFull.name())?,
        })
    }

    /// An attempt failed, and the wait for the next one begins.
    fn failed(&self, wait: Wait, words: &str) {
        let mut state = self.state();
        state.failures += 1;
        state.waiting = Some(wait);
        state.last_error = Some(words.to_owned());
        let first = state.away_since.is_none();
        state.away_since.get_or_insert_with(wall);
        drop(state);
        if first {
            tracing::warn!(store = self.link.location(), reason = words, "the server does not take points; they wait in the local queue");
        } else {
            tracing::debug!(store = self.link.location(), reason = words, "the server still does not take points");
        }
        self.progress.send_modify(|progress| progress.failed += 1);
    }

    /// The server answered.
    fn answered(&self) {
        let mut state = self.state();
        state.waiting = None;
        if let Some(since) = state.away_since.take() {
            drop(state);
            tracing::info!(store = self.link.location(), away_s = wall().since(since).0, "the server takes points again");
        }
    }

    /// Points are lost.
    fn lost(&self, why: Lost, points: u64, words: &str) {
        tracing::warn!(store = self.link.location(), points, why = why.name(), reason = words, "points are lost");
        self.state().last_error = Some(words.to_owned());
    }

    /// How long the buckets keep their points, as far as the server says.
    async fn retention(&self, bucket: Bucket) -> Option<Span> {
        let known = self.kept_for.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, spans)) = known.filter(|(until, _)| Instant::now() < *until) {
            return spans.get(&bucket).copied();
        }
        let (spans, again) = match super::init::retentions(&self.link).await {
            Ok(spans) => (spans, RETENTION_EVERY),
            Err(error) => {
                tracing::debug!(%error, "how long the buckets keep their points is not known");
                (BTreeMap::new(), RETENTION_AGAIN)
            }
        };
        let span = spans.get(&bucket).copied();
        *self.kept_for.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now() + again, spans));
        span
    }
}

/// What became of the points of a load.
#[derive(Debug, Default)]
struct Delivered {
    sent: u64,
    lost: BTreeMap<Lost, u64>,
    /// Bounds of the observations too old for the server's tasks, seconds since 1970.
    late: Option<(i64, i64)>,
}

/// Ends when told to stop; what waits then waits for the next run.
pub(crate) async fn drain(shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let mut stopping = stop.clone();
    tokio::select! {
        _ = stopping.wait_for(|stop| *stop) => {}
        () = drain_for_ever(&shared, &mut stop) => {}
    }
}

async fn drain_for_ever(shared: &Arc<Shared>, stop: &mut watch::Receiver<bool>) {
    let limits = shared.link.settings.limits;
    let peek = || shared.blocking(move |shared| shared.outbox.peek(limits.batch_points_max, limits.batch_bytes_max));
    while !*stop.borrow() {
        let mut load = peek().await;
        if let Ok(Some(early)) = &load
            && !is_due(shared, early)
        {
            tokio::select! { () = sleep(limits.batch_age) => {}, () = shared.urgent.notified() => {} }
            load = peek().await;
        }
        match load {
            Ok(Some(load)) => {
                let delivered = deliver(shared, &load).await;
                let lost: Vec<_> = delivered.lost.into_iter().collect();
                let settled = shared.blocking(move |shared| shared.outbox.sent(&load.ids, delivered.sent, &lost, delivered.late)).await;
                if let Err(error) = settled {
                    unreadable(shared, &error).await;
                }
                shared.progress.send_modify(|progress| progress.sent += 1);
            }
            Ok(None) => tokio::select! { () = shared.news.notified() => {}, () = sleep(LOOK_EVERY) => {} },
            Err(error) => unreadable(shared, &error).await,
        }
    }
}

/// Whether a load need not wait for more.
fn is_due(shared: &Shared, load: &Load) -> bool {
    let limits = shared.link.settings.limits;
    let full = load.points * 2 >= limits.batch_points_max || load.bytes * 2 >= limits.batch_bytes_max;
    full || load.ids.first().is_some_and(|first| *first <= shared.wanted.load(Ordering::SeqCst))
}

/// The queue's file cannot be used for the moment: a full disk, another process.
async fn unreadable(shared: &Shared, error: &StoreError) {
    tracing::error!(%error, "the local queue cannot be used");
    shared.state().last_error = Some(error.to_string());
    sleep(shared.link.settings.limits.wait_max).await;
}

/// Sends a load, bucket by bucket, each in its order.
async fn deliver(shared: &Arc<Shared>, load: &Load) -> Delivered {
    let mut delivered = Delivered::default();
    for bucket in Bucket::ALL {
        let mut lines: Vec<&str> = load.lines.iter().filter(|(of, _)| *of == bucket).flat_map(|(_, lines)| lines.split_inclusive('\n')).collect();
        if lines.is_empty() {
            continue;
        }
        if let Some(span) = shared.retention(bucket).await {
            let oldest = (wall() - span).0.saturating_mul(super::points::SECOND);
            let before = lines.len();
            lines.retain(|line| line::instant(line).is_none_or(|at| at >= oldest));
            let old = (before - lines.len()) as u64;
            if old > 0 {
                *delivered.lost.entry(Lost::BeyondRetention).or_default() += old;
                shared.lost(Lost::BeyondRetention, old, "older than the bucket keeps");
            }
        }
        if bucket == Bucket::Raw {
            delivered.late = late(&lines);
        }
        for part in batches(&lines, shared.link.settings.limits.batch_points_max, shared.link.settings.limits.batch_bytes_max) {
            deliver_part(shared, bucket, part, &mut delivered).await;
        }
    }
    delivered
}

/// The bounds, in seconds, of observations that the server's tasks no longer look at.
fn late(lines: &[&str]) -> Option<(i64, i64)> {
    let recent = (wall() - LATE_AFTER).0;
    let late = || lines.iter().filter_map(|line| line::instant(line)).map(|at| at.div_euclid(super::points::SECOND)).filter(|at| *at < recent);
    Some((late().min()?, late().max()?))
}

/// Lines by requests: bounded in number and bytes, at least one line a request.
fn batches<'a, 'b>(lines: &'a [&'b str], points_max: usize, bytes_max: usize) -> Vec<&'a [&'b str]> {
    let mut parts = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(points_max).take_while(|line| {
            bytes += line.len();
            bytes <= bytes_max
        });
        let (part, after) = rest.split_at(fits.count().max(1));
        parts.push(part);
        rest = after;
    }
    parts
}

/// Sends lines until each is kept or given up. Those that cannot be read are looked for by halves.
async fn deliver_part(shared: &Shared, bucket: Bucket, lines: &[&str], delivered: &mut Delivered) {
    let mut parts = vec![lines];
    while let Some(part) = parts.pop() {
        let points = part.len() as u64;
        match send(shared, bucket, part).await {
            Verdict::Written => delivered.sent += points,
            Verdict::Partly { dropped, why, words } => {
                delivered.sent += points - dropped.min(points);
                *delivered.lost.entry(why).or_default() += dropped;
                shared.lost(why, dropped, &words);
            }
            Verdict::Unreadable { words } if part.len() == 1 => {
                *delivered.lost.entry(Lost::Refused).or_default() += 1;
                shared.lost(Lost::Refused, 1, &words);
            }
            Verdict::Unreadable { .. } => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            // Never: that is what it tries again for.
            Verdict::Later { .. } => parts.push(part),
        }
    }
}

/// Sends lines again and again until the server has said something final about them.
async fn send(shared: &Shared, bucket: Bucket, lines: &[&str]) -> Verdict {
    let limits = shared.link.settings.limits;
    let growing = || ExponentialBuilder::default().with_min_delay(limits.wait_first).with_max_delay(limits.wait_max).without_max_times().with_jitter().build();
    let mut waits = growing();
    let body = lines.concat();
    loop {
        let verdict = verdict(&shared.link.write(bucket, &body).await, lines.len());
        let Verdict::Later { wait, words } = verdict else {
            shared.answered();
            return verdict;
        };
        let words = match wait {
            Wait::Token => match shared.link.reread_token() {
                Ok(()) => words,
                Err(why) => format!("{words}; {why}"),
            },
            Wait::Somebody => format!("{words}: `turnaround store init` creates the buckets"),
            Wait::Grow | Wait::Asked(_) => words,
        };
        shared.failed(wait, &flux::short(&words));
        match wait {
            Wait::Grow => {
                let wait = waits.next().unwrap_or(limits.wait_max);
                // Somebody who asks shortens the wait, but not to nothing.
                let asked = async {
                    sleep(limits.wait_first.min(wait)).await;
                    shared.urgent.notified().await;
                };
                tokio::select! { () = sleep(wait) => {}, () = asked => {} }
            }
            Wait::Asked(asked) => sleep(asked.clamp(limits.wait_first, limits.retry_after_max)).await,
            Wait::Token | Wait::Somebody => sleep(limits.wait_refused).await,
        }
        if wait != Wait::Grow {
            waits = growing();
        }
    }
}
