//! Asking again, ever more slowly.

use crate::WireError;
use backon::{ExponentialBuilder, Retryable};
use std::{future::Future, time::Duration};

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

/// Runs `ask` until it succeeds, fails for good, or was tried often enough; the last error is returned.
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
            Err(WireError::Status { url: Redacted::new("http://h"), status })
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
}
