//! The past, through a Prometheus: in chunks that never exceed what a server gives, each a place to resume at.

use super::answer::AnswerError;
use super::follow::Watched;
use super::pages::scrapes;
use super::{Prometheus, RANGE_POINTS_MAX, matching, selector};
use crate::{Catalogue, IngestError, Reader};
use fleet::{Scrape, Span, Timestamp};
use std::collections::BTreeMap;

/// Steps of a chunk to begin with: 30 series of 300 replicas make an answer of about 50 MB.
const CHUNK_STEPS: i64 = 240;

/// Reads the past of targets from a Prometheus.
///
/// Each step holds the last sample within the step before it (`last_over_time`), so a target that was away is absent there, and not shown at
/// its last values. Steps lie on multiples of `step`: the same stretch read twice gives the same scrapes.
#[derive(Debug)]
pub struct Backfill {
    watched: Watched,
    next: Timestamp,
    to: Timestamp,
    step: Span,
    chunk_steps: i64,
}

/// A stretch of the past.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// Its first step.
    pub from: Timestamp,
    /// Its last step: a later back-fill may begin one step after it.
    pub to: Timestamp,
    /// Scrapes in order of time, then of target. A target that has none was not seen.
    pub scrapes: Vec<Scrape>,
    /// What the server warned of.
    pub warnings: Vec<String>,
    /// Whether it said that part of the data is missing.
    pub partial: bool,
}

impl Backfill {
    /// Reads `targets` from `from` to `to`, a scrape every `step` (twice the spacing at which Prometheus scrapes, or more). `names` and
    /// `select` as in [`Follow::new`](super::Follow::new); buckets are better left out of a long past.
    #[must_use]
    pub fn new(
        targets: Vec<Reader>,
        names: impl IntoIterator<Item = String>,
        select: BTreeMap<String, String>,
        (from, to): (Timestamp, Timestamp),
        step: Span,
    ) -> Self {
        let step = Span(step.0.max(1));
        let first = from.floor(step);
        let next = if first < from { first + step } else { first };
        Self { watched: Watched::new(targets, names, select), next, to, step, chunk_steps: CHUNK_STEPS }
    }

    /// Tells instances apart by these labels instead of `job` and `instance`.
    #[must_use]
    pub fn by(mut self, labels: Vec<String>) -> Self {
        self.watched.by = labels;
        self
    }

    /// Narrows every query by matchers as a user writes them (`{job=~"vllm.*"}`).
    #[must_use]
    pub fn matching(mut self, matchers: Option<String>) -> Self {
        self.watched.matchers = matchers;
        self
    }

    /// With at most this many steps in a chunk.
    #[must_use]
    pub fn chunked(mut self, steps: i64) -> Self {
        self.chunk_steps = steps.clamp(1, RANGE_POINTS_MAX - 1);
        self
    }

    /// How much is still to be read: for progress.
    #[must_use]
    pub fn left(&self) -> Span {
        Span((self.to.0 - self.next.0 + self.step.0).max(0) / self.step.0 * self.step.0)
    }

    /// The next stretch; nothing when all is read. After an error the same stretch is tried again.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers with something else.
    pub async fn next(&mut self, server: &Prometheus, catalogue: &Catalogue) -> Result<Option<Chunk>, IngestError> {
        let query = format!(
            "last_over_time({}[{}s])",
            matching(&selector(self.watched.names.iter().map(String::as_str), &self.watched.select), self.watched.matchers.as_deref()),
            self.step.0
        );
        while self.next <= self.to {
            let (from, to) = (self.next, self.chunk_end());
            match server.range(&query, from, to, self.step).await {
                Ok(answer) => {
                    self.next = to + self.step;
                    let scrapes = scrapes(&answer.series, catalogue, &self.watched.targets, &self.watched.by);
                    return Ok(Some(Chunk { from, to, scrapes, warnings: answer.warnings, partial: answer.partial }));
                }
                Err(error) if (error.is_too_large() || took_too_long(&error)) && self.chunk_steps > 1 => self.chunk_steps /= 2,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    fn chunk_end(&self) -> Timestamp {
        let last = self.to.floor(self.step);
        last.min(self.next + Span(self.step.0 * (self.chunk_steps - 1)))
    }
}

/// Whether the server gave up on a query that took it too long. (A connection that hangs is no such case: asking for less does not help.)
fn took_too_long(error: &IngestError) -> bool {
    matches!(error, IngestError::Answer { reason: AnswerError::Refused { kind, .. }, .. } if kind == "timeout")
}
