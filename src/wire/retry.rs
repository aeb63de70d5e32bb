//! Asking again, ever more slowly.

use crate::WireError;
use backon::{ExponentialBuilder, Retryable};
use std::{future::Future, time::Duration};

/// The longest wait a server may ask for: beyond it we ask again all the same.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// How often and how slowly to ask again. Only errors that may pass are retried ([`WireError::is_transient`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Tries after the first one.
    pub again_max: usize,
    /// Wait before the second try; it doubles from try to try, with jitter.
    pub first_wait: Duration,
    /// Longest wait between two tries.
    pub wait_max: Duration,
}

impl Default for Retry {
    /// Three more tries after 0.5 s, 1 s and 2 s: an endpoint that restarts is back, and a scheduler is not held up.
    fn default() -> Self {
        Self { again_max: 3, first_wait: Duration::from_millis(500), wait_max: Duration::from_secs(10) }
    }
}

/// Runs `ask` until it succeeds, fails for good, or was tried often enough; the last error is returned. A server that says `Retry-After` is
/// left alone for that long, five minutes at most.
///
/// # Errors
/// Whatever the last try returned.
pub async fn retry<T, F, Fut>(policy: Retry, ask: F) -> Result<T, WireError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, WireError>>,
{
    let waits = ExponentialBuilder::default().with_min_delay(policy.first_wait).with_max_delay(policy.wait_max).with_max_times(policy.again_max).with_jitter();
    ask.retry(waits)
        .when(WireError::is_transient)
        .adjust(|error, wait| wait.map(|wait| error.retry_after().map_or(wait, |asked| wait.max(asked.min(RETRY_AFTER_MAX)))))
        .notify(|error: &WireError, wait: Duration| tracing::debug!(%error, wait_ms = wait.as_millis(), "asking again"))
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Redacted;
    use std::sync::atomic::{AtomicUsize, Ordering};

    async fn tries(status: u16) -> usize {
        let tries = AtomicUsize::new(0);
        let policy = Retry { again_max: 3, first_wait: Duration::ZERO, wait_max: Duration::ZERO };
        let answer: Result<(), _> = retry(policy, || async {
            tries.fetch_add(1, Ordering::Relaxed);
            Err(WireError::Status { url: Redacted::new("http://h"), status, retry_after: None })
        })
        .await;
        assert!(answer.is_err());
        tries.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn only_what_may_pass_is_tried_again() {
        assert_eq!(tries(503).await, 4);
        assert_eq!(tries(401).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_says_when_is_left_alone_until_then() {
        let policy = Retry { again_max: 1, first_wait: Duration::ZERO, wait_max: Duration::ZERO };
        for (asked, waited) in [(30, 30), (86_400, 300)] {
            let start = tokio::time::Instant::now();
            let _last: Result<(), _> = retry(policy, || async {
                Err(WireError::Status { url: Redacted::new("http://h"), status: 429, retry_after: Some(Duration::from_secs(asked)) })
            })
            .await;
            assert_eq!(start.elapsed().as_secs(), waited);
        }
    }
}
