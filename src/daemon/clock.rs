//! The clock of the daemon, as an argument.
//!
//! Wall clock and monotonic clock never mix: the wall clock is read at the start, and time runs on from there by the monotonic one, so that a step
//! of the system's clock neither stops nor repeats a cycle. That it was set is noticed, and followed in one step that everybody is told of.

use fleet::{Span, Timestamp};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// What time it is, and how to wait for a later one.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Real time.
    System {
        /// Wall clock at the start.
        epoch: Timestamp,
        /// Monotonic clock at the start.
        start: Instant,
    },
    /// Time as somebody sets it.
    Manual(watch::Receiver<Timestamp>),
}

impl Clock {
    /// Real time from now on.
    #[must_use]
    pub fn system() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self::System { epoch: Timestamp(i64::try_from(wall).unwrap_or(0)), start: Instant::now() }
    }

    /// A clock that stands until it is set through the sender.
    #[must_use]
    pub fn manual(start: Timestamp) -> (watch::Sender<Timestamp>, Self) {
        let (sender, receiver) = watch::channel(start);
        (sender, Self::Manual(receiver))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System { epoch, start } => Timestamp(epoch.0 + i64::try_from(start.elapsed().as_secs()).unwrap_or(0)),
            Self::Manual(receiver) => *receiver.borrow(),
        }
    }

    /// Takes over the wall clock where it was set since: by at least `step_min`, more than drift makes of a day. Gives the size of the step.
    pub fn follow(&mut self, step_min: Span) -> Option<Span> {
        let Self::System { epoch, start } = self else { return None };
        let ours = Timestamp(epoch.0 + i64::try_from(start.elapsed().as_secs()).unwrap_or(0));
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|d| i64::try_from(d.as_secs()).ok()).map(Timestamp)?;
        let step = Span(wall.0 - ours.0);
        if step.0.abs() < step_min.0 {
            return None;
        }
        (*epoch, *start) = (wall, Instant::now());
        Some(step)
    }

    /// Waits until the clock shows `at` or later. A manual clock whose setter is gone waits for ever.
    pub async fn wait_until(&mut self, at: Timestamp) {
        match self {
            Self::System { epoch, start } => {
                let due = *start + Duration::from_secs(u64::try_from((at.0 - epoch.0).max(0)).unwrap_or(0));
                tokio::time::sleep_until(due.into()).await;
            }
            Self::Manual(receiver) => {
                if receiver.wait_for(|now| *now >= at).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}
