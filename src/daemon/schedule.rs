//! When each source is looked at. Looks run side by side and in the background: one that hangs delays neither the others nor a decision.

use config::{GpuPageConfig, TargetConfig};
use cycle::JobReading;
use fleet::{Scrape, Span, Target, TargetId, Timestamp};
use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::JoinSet};

/// Looks under way at once. The first look at a fleet of a thousand endpoints takes turns.
const LOOKS_MAX: usize = 64;
/// A look that begins this long after it was due is a late one.
const LATE: Span = Span(1);

/// One look, under way.
pub(crate) type Looking = Pin<Box<dyn Future<Output = Look> + Send>>;

/// Something that is looked at on a schedule.
pub(crate) trait Source: Send + Sync {
    /// Looks now. A source that fails gives failed scrapes or nothing, never an error: what it could not see is unknown.
    fn look(&self, now: Timestamp) -> Looking;
}

/// What one look gave.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Looks at targets.
    pub scrapes: Vec<Scrape>,
    /// Looks at pages that tell of GPUs.
    pub gpu_pages: Vec<Scrape>,
    /// Looks at jobs.
    pub jobs: Vec<JobReading>,
    /// What sources found that finds its own targets.
    pub found: Vec<Found>,
}

/// Everything a source stands for from now on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Found {
    /// The source.
    pub source: TargetId,
    /// The targets, where they are of a service.
    pub targets: Vec<Target>,
    /// Pages that are to be looked at, where the source does not do it itself.
    pub pages: Vec<FoundPage>,
}

/// A page that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FoundPage {
    /// Of a replica or router.
    Target(TargetConfig),
    /// Of GPUs.
    Gpus(GpuPageConfig),
}

/// How looks kept to their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Punctuality {
    /// Looks begun.
    pub begun: u64,
    /// Looks that began late, or not at all because the one before was still under way.
    pub late: u64,
}

/// A source on the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

struct Entry {
    source: Arc<dyn Source>,
    interval: Span,
    next: Timestamp,
    /// Time from the first look to the second: spreads a fleet over the interval.
    offset: Span,
    under_way: bool,
}

/// All sources with their times.
pub(crate) struct Schedule {
    entries: BTreeMap<Ticket, Entry>,
    issued: u64,
    under_way: JoinSet<(Ticket, Look)>,
    room: Arc<Semaphore>,
    punctuality: Punctuality,
}

impl Schedule {
    pub fn new() -> Self {
        Self { entries: BTreeMap::new(), issued: 0, under_way: JoinSet::new(), room: Arc::new(Semaphore::new(LOOKS_MAX)), punctuality: Punctuality::default() }
    }

    /// Everything is looked at once before the first decision; then spread over the interval, so that a fleet is not asked all at once.
    pub fn add(&mut self, source: impl Source + 'static, interval: Span, offset: Span, now: Timestamp) -> Ticket {
        let ticket = Ticket(self.issued);
        self.issued += 1;
        self.entries.insert(ticket, Entry { source: Arc::new(source), interval: Span(interval.0.max(1)), next: now, offset, under_way: false });
        ticket
    }

    /// Looks at it no more. A look under way is still given back.
    pub fn remove(&mut self, ticket: Ticket) {
        self.entries.remove(&ticket);
    }

    pub fn next_due(&self) -> Timestamp {
        self.entries.values().map(|e| e.next).min().unwrap_or(Timestamp(i64::MAX))
    }

    /// No look is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    pub fn punctuality(&self) -> Punctuality {
        self.punctuality
    }

    /// Begins every look that is due. Times that were missed are not made up for; a source still being looked at is left to finish.
    pub fn begin(&mut self, now: Timestamp) {
        for (ticket, entry) in self.entries.iter_mut().filter(|(_, e)| e.next <= now) {
            self.punctuality.late += u64::from(entry.under_way || now.since(entry.next) > LATE);
            entry.next = entry.next + std::mem::replace(&mut entry.offset, Span::ZERO);
            while entry.next <= now {
                entry.next = entry.next + entry.interval;
            }
            if std::mem::replace(&mut entry.under_way, true) {
                continue;
            }
            self.punctuality.begun += 1;
            let (ticket, source, room) = (*ticket, entry.source.clone(), self.room.clone());
            self.under_way.spawn(async move {
                // The semaphore is never closed; without a permit the look would only be less patient.
                let _turn = room.acquire_owned().await;
                (ticket, source.look(now).await)
            });
        }
    }

    /// The clock was set: nothing waits for a time that will not come for hours.
    pub fn clock_set(&mut self, now: Timestamp) {
        for entry in self.entries.values_mut() {
            entry.next = entry.next.min(now + entry.interval).max(now);
        }
    }

    /// Waits until some look is done and gives back all that are; never, when none is under way.
    pub async fn finished(&mut self) -> Look {
        let mut all = Look::default();
        match self.under_way.join_next().await {
            Some(done) => self.take(done, &mut all),
            None => std::future::pending().await,
        }
        while let Some(done) = self.under_way.try_join_next() {
            self.take(done, &mut all);
        }
        all
    }

    /// Waits for everything under way, but no longer than `grace`.
    pub async fn settle(&mut self, grace: Duration) -> Look {
        let mut all = Look::default();
        let deadline = tokio::time::Instant::now() + grace;
        while let Ok(Some(done)) = tokio::time::timeout_at(deadline, self.under_way.join_next()).await {
            self.take(done, &mut all);
        }
        all
    }

    fn take(&mut self, done: Result<(Ticket, Look), tokio::task::JoinError>, all: &mut Look) {
        match done {
            Ok((ticket, look)) => {
                if let Some(entry) = self.entries.get_mut(&ticket) {
                    entry.under_way = false;
                }
                all.join(look);
            }
            Err(error) => {
                tracing::error!(%error, "a look broke off");
                // Which one is not known; one that is done may be begun again.
                if self.under_way.is_empty() {
                    self.entries.values_mut().for_each(|e| e.under_way = false);
                }
            }
        }
    }
}

impl Look {
    fn join(&mut self, other: Look) {
        self.scrapes.extend(other.scrapes);
        self.gpu_pages.extend(other.gpu_pages);
        self.jobs.extend(other.jobs);
        self.found.extend(other.found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    struct Held(Arc<AtomicUsize>, Option<Arc<Notify>>);

    impl Source for Held {
        fn look(&self, _: Timestamp) -> Looking {
            let (begun, until) = (self.0.clone(), self.1.clone());
            Box::pin(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                if let Some(until) = until {
                    until.notified().await;
                }
                Look { found: vec![Found { source: TargetId::new("s").unwrap(), targets: Vec::new(), pages: Vec::new() }], ..Look::default() }
            })
        }
    }

    #[tokio::test]
    async fn one_that_hangs_delays_nobody_and_is_not_asked_twice() {
        let (quick, slow, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let mut schedule = Schedule::new();
        schedule.add(Held(quick.clone(), None), Span(15), Span::ZERO, Timestamp(0));
        schedule.add(Held(slow.clone(), Some(release.clone())), Span(15), Span::ZERO, Timestamp(0));
        for at in [0, 15, 30] {
            assert_eq!(schedule.next_due(), Timestamp(at));
            schedule.begin(Timestamp(at));
            assert_eq!(schedule.finished().await.found.len(), 1);
        }
        assert_eq!((quick.load(Ordering::SeqCst), slow.load(Ordering::SeqCst)), (3, 1));
        assert_eq!(schedule.punctuality(), Punctuality { begun: 4, late: 2 });
        release.notify_one();
        schedule.settle(Duration::from_secs(5)).await;
        assert!(schedule.is_idle());
    }

    #[tokio::test]
    async fn looks_are_spread_after_the_first_and_a_clock_set_back_starves_nobody() {
        let mut schedule = Schedule::new();
        schedule.add(Held(Arc::default(), None), Span(15), Span(7), Timestamp(100));
        schedule.begin(Timestamp(100));
        assert_eq!(schedule.next_due(), Timestamp(107));
        schedule.settle(Duration::from_secs(5)).await;
        schedule.clock_set(Timestamp(40));
        assert_eq!(schedule.next_due(), Timestamp(55));
    }
}
