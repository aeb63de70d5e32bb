//! Where the server is, how its queue is bounded, and where its token comes from.

use crate::{Retention, StoreError};
use std::{path::PathBuf, time::Duration};
use wire::Secret;

/// Where the token comes from. A file is read again when the server refuses what it held.
#[derive(Debug, Clone)]
pub enum Token {
    /// Given as it is.
    Given(Secret),
    /// Held by a file, alone; white space around it is left out.
    File(PathBuf),
}

impl Token {
    /// The token as of now.
    pub(crate) fn read(&self) -> Result<Secret, String> {
        match self {
            Self::Given(secret) => Ok(secret.clone()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read the token file {}: {error}", path.display()))?;
                let token = text.trim();
                if token.is_empty() { Err(format!("the token file {} is empty", path.display())) } else { Ok(Secret::new(token)) }
            }
        }
    }
}

/// An `InfluxDB` 2 server and the queue in front of it.
#[derive(Clone)]
pub struct InfluxSettings {
    /// Its address, such as `http://127.0.0.1:8086`.
    pub url: String,
    /// The organisation the buckets belong to.
    pub org: String,
    /// Buckets are named `PREFIX_raw`, `PREFIX_1m`, `PREFIX_1h` and `PREFIX_decisions`.
    pub prefix: String,
    /// Where its token comes from.
    pub token: Token,
    /// The file of the local queue: everything that was acknowledged and has not reached the server, and the latest state.
    pub queue: PathBuf,
    /// How long each kind is kept.
    pub retention: Retention,
    /// Whom to trust, and who we are, over TLS.
    pub tls: wire::Tls,
    /// Bounds.
    pub limits: InfluxLimits,
}

impl std::fmt::Debug for InfluxSettings {
    /// Without a password that the address may hold.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InfluxSettings").field("server", &self.location()).field("queue", &self.queue).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Every bound of the traffic with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfluxLimits {
    /// Bytes of points that may wait. Beyond it raw observations are dropped, oldest first, then windows, then decisions.
    pub queue_bytes_max: u64,
    /// Points of one request.
    pub batch_points_max: usize,
    /// Bytes of one request before compression.
    pub batch_bytes_max: usize,
    /// How long a point may wait for others to share its request.
    pub batch_age: Duration,
    /// Longest time to a connection.
    pub connect_timeout: Duration,
    /// Longest time of one attempt to write.
    pub write_timeout: Duration,
    /// Longest time of one question.
    pub query_timeout: Duration,
    /// Largest answer that is read, bytes after decompression.
    pub answer_bytes_max: usize,
    /// Longest time a question waits for what was written before it to reach the server.
    pub flush_max: Duration,
    /// Wait after the first failed attempt; it doubles from attempt to attempt, with jitter.
    pub wait_first: Duration,
    /// Longest such wait.
    pub wait_max: Duration,
    /// Wait after the token was refused or a bucket is missing: that takes somebody to set it right.
    pub wait_refused: Duration,
    /// Longest `Retry-After` that is honoured.
    pub retry_after_max: Duration,
}

impl Default for InfluxLimits {
    /// A GiB of queue holds about a day of 1,000 endpoints at 15 s. 5,000 points a request is what `InfluxDB` recommends. A question may
    /// take a minute and 256 MiB: a year of windows of 100 workloads.
    fn default() -> Self {
        Self {
            queue_bytes_max: 1 << 30,
            batch_points_max: 5_000,
            batch_bytes_max: 4 << 20,
            batch_age: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(3),
            write_timeout: Duration::from_secs(15),
            query_timeout: Duration::from_mins(1),
            answer_bytes_max: 256 << 20,
            flush_max: Duration::from_secs(10),
            wait_first: Duration::from_millis(500),
            wait_max: Duration::from_secs(30),
            wait_refused: Duration::from_secs(30),
            retry_after_max: Duration::from_mins(5),
        }
    }
}

/// The buckets, in the order of [`Bucket::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Bucket {
    /// Observations as they were made.
    Raw,
    /// Summed up by minutes.
    Minute,
    /// Summed up by hours.
    Hour,
    /// Windows, and what was forecast, decided, seen and learned.
    Decisions,
}

impl Bucket {
    pub(crate) const ALL: [Self; 4] = [Self::Raw, Self::Minute, Self::Hour, Self::Decisions];

    /// What follows the prefix in its name.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Minute => "1m",
            Self::Hour => "1h",
            Self::Decisions => "decisions",
        }
    }

    pub(crate) fn of(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bucket| bucket.suffix() == suffix)
    }
}

/// Longest prefix of bucket names, bytes.
const PREFIX_BYTES_MAX: usize = 64;

impl InfluxSettings {
    /// Settings for a server, everything else as by default.
    #[must_use]
    pub fn new(url: impl Into<String>, org: impl Into<String>, prefix: impl Into<String>, token: Token, queue: impl Into<PathBuf>) -> Self {
        Self {
            url: url.into(),
            org: org.into(),
            prefix: prefix.into(),
            token,
            queue: queue.into(),
            retention: Retention::default(),
            tls: wire::Tls::default(),
            limits: InfluxLimits::default(),
        }
    }

    /// The full name of a bucket.
    pub(crate) fn bucket(&self, bucket: Bucket) -> String {
        format!("{}_{}", self.prefix, bucket.suffix())
    }

    /// Where the history is, for messages: without secrets.
    pub(crate) fn location(&self) -> String {
        format!("{} (organisation {}, buckets {}_*)", wire::Redacted::new(&self.url), self.org, self.prefix)
    }

    /// Tells what will not do.
    pub(crate) fn validate(&self) -> Result<(), StoreError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let detail = if !self.url.starts_with("http://") && !self.url.starts_with("https://") {
            "the address must begin with http:// or https://".to_owned()
        } else if self.prefix.is_empty() || self.prefix.len() > PREFIX_BYTES_MAX || self.prefix.starts_with('_') || !self.prefix.chars().all(plain) {
            format!(
                "the bucket prefix {:?} must be 1 to {PREFIX_BYTES_MAX} letters, digits, dots, dashes and underscores, and not begin with an underscore",
                self.prefix
            )
        } else if self.org.is_empty() || self.org.chars().any(char::is_control) {
            format!("the organisation {:?} is no name", self.org)
        } else if self.limits.batch_points_max == 0 || self.limits.batch_bytes_max == 0 {
            "a request must be allowed at least one point".to_owned()
        } else {
            return Ok(());
        };
        Err(StoreError::Server { location: self.location(), operation: "use", object: "its settings".into(), detail })
    }
}
