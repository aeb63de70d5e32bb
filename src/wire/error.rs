//! What can go wrong on the way out. No variant can hold a secret: addresses are redacted when the error is made.

use crate::Redacted;
use std::time::Duration;

/// A request that brought no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The client could not be set up.
    #[error("cannot set up the HTTP client: {reason}")]
    Setup {
        /// Why.
        reason: String,
    },
    /// The address is not one.
    #[error("{url} is not an http:// or https:// address: {reason}")]
    Address {
        /// What was given.
        url: Redacted,
        /// Why it will not do.
        reason: String,
    },
    /// Nobody answered at that address.
    #[error("cannot connect to {url}: {reason}")]
    Connect {
        /// Where to.
        url: Redacted,
        /// Why.
        reason: String,
    },
    /// No answer in time.
    #[error("{url} did not answer within {timeout_ms} ms")]
    Timeout {
        /// Who did not.
        url: Redacted,
        /// The limit that was reached, milliseconds.
        timeout_ms: u128,
    },
    /// The body is larger than allowed.
    #[error("the answer of {url} is larger than the limit of {body_bytes_max} bytes")]
    TooLarge {
        /// Whose answer.
        url: Redacted,
        /// The limit.
        body_bytes_max: usize,
    },
    /// An answer that is not a success.
    #[error("{url} answered with HTTP status {status}")]
    Status {
        /// Whose answer.
        url: Redacted,
        /// The status.
        status: u16,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// A redirect that is not followed.
    #[error("{url} redirects, which is not followed: {reason}")]
    Redirect {
        /// Who redirects.
        url: Redacted,
        /// Why it ends there.
        reason: String,
    },
    /// The exchange broke off, or made no sense.
    #[error("the exchange with {url} failed: {reason}")]
    Exchange {
        /// With whom.
        url: Redacted,
        /// Why.
        reason: String,
    },
}

impl WireError {
    /// Whether asking again later may help: no connection, no answer in time, a broken exchange, HTTP 408, 429 or 5xx.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Timeout { .. } | Self::Exchange { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            Self::Setup { .. } | Self::Address { .. } | Self::TooLarge { .. } | Self::Redirect { .. } => false,
        }
    }

    /// How long the server asked to be left alone, if it did.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Sorts an error of the HTTP library into ours, leaving its address out.
    pub(crate) fn sort(error: reqwest::Error, url: Redacted, timeout: Duration) -> Self {
        let error = error.without_url();
        if error.is_connect() {
            Self::Connect { url, reason: innermost(&error) }
        } else if error.is_timeout() {
            Self::Timeout { url, timeout_ms: timeout.as_millis() }
        } else if error.is_builder() {
            Self::Address { url, reason: innermost(&error) }
        } else {
            Self::Exchange { url, reason: innermost(&error) }
        }
    }
}

/// The cause at the bottom of a chain: the outer layers only say that a request failed.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
