//! Series on a regular grid with explicit gaps, and the windows they are made of.

use crate::{Span, Timestamp, VariantId, WorkloadId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A series that contradicts itself.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SeriesError {
    /// The step is not positive.
    #[error("series step must be positive, got {0} s")]
    Step(i64),
    /// A value is not finite.
    #[error("series value {value} at index {index} is not finite; a gap is written as a missing value")]
    Value {
        /// Where.
        index: usize,
        /// What.
        value: f64,
    },
}

/// Values on a regular grid in UTC. `None` is a gap: nothing is known, which is never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Start of the first step.
    pub start: Timestamp,
    /// Grid spacing.
    pub step: Span,
    /// One value a step; the value at index `i` covers `[start + i*step, start + (i+1)*step)`.
    pub values: Vec<Option<f64>>,
}

impl Series {
    /// A checked series.
    ///
    /// # Errors
    /// When the step is not positive or a value is not finite.
    pub fn new(start: Timestamp, step: Span, values: Vec<Option<f64>>) -> Result<Self, SeriesError> {
        if step.0 <= 0 {
            return Err(SeriesError::Step(step.0));
        }
        if let Some((index, value)) = values.iter().enumerate().find_map(|(i, v)| v.filter(|v| !v.is_finite()).map(|v| (i, v))) {
            return Err(SeriesError::Value { index, value });
        }
        Ok(Self { start, step, values })
    }

    /// First instant after the last step.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        Timestamp(self.start.0 + self.step.0 * i64::try_from(self.values.len()).unwrap_or(i64::MAX / self.step.0.max(1)))
    }

    /// Start of step `index`.
    #[must_use]
    pub fn time(&self, index: usize) -> Timestamp {
        Timestamp(self.start.0 + self.step.0 * i64::try_from(index).unwrap_or(0))
    }

    /// The value whose step holds `at`, when known.
    #[must_use]
    pub fn at(&self, at: Timestamp) -> Option<f64> {
        let index = usize::try_from((at.0 - self.start.0).div_euclid(self.step.0)).ok()?;
        self.values.get(index).copied().flatten()
    }

    /// How many steps are known.
    #[must_use]
    pub fn known(&self) -> usize {
        self.values.iter().flatten().count()
    }
}

/// What one workload did in one window, joined over its targets. `None` is unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkloadWindow {
    /// Whose.
    pub workload: WorkloadId,
    /// Start of the window.
    pub start: Timestamp,
    /// Its length.
    pub length: Span,
    /// Requests that arrived, per second: those started plus the change in those waiting.
    pub arrivals_per_s: Option<f64>,
    /// The highest of the rates between two scrapes inside the window, per second.
    pub peak_per_s: Option<f64>,
    /// Requests turned away, per second; they are part of the arrivals.
    #[serde(default)]
    pub refused_per_s: Option<f64>,
    /// Sequences that finished, per second (requests, where each asks for one).
    pub finished_per_s: Option<f64>,
    /// Sequences asked for by one request.
    #[serde(default)]
    pub sequences_per_request: Option<f64>,
    /// Prompt tokens per request started.
    pub input_tokens: Option<f64>,
    /// Generated tokens per request finished.
    pub output_tokens: Option<f64>,
    /// Share of prompt tokens found in the prefix cache.
    pub prefix_hit_rate: Option<f64>,
    /// Requests waiting at the end of the window.
    pub waiting: Option<f64>,
    /// Requests running, mean over the window's scrapes.
    pub running: Option<f64>,
    /// Mean time between tokens, seconds.
    pub inter_token_s: Option<f64>,
    /// Requests whose first token came in the window.
    pub first_tokens: Option<f64>,
    /// Of these, how many came within the workload's time-to-first-token target.
    pub first_tokens_in_time: Option<f64>,
    /// Replicas that answered at the end of the window, by variant.
    pub ready: BTreeMap<VariantId, u32>,
    /// Requests finished per second and replica while requests waited at both ends, by variant: throughput at saturation.
    pub saturated_per_replica: BTreeMap<VariantId, f64>,
    /// Share of (targets x time) that was really observed.
    pub completeness: f64,
    /// Requests waited throughout: what finished was limited by us, not by demand.
    pub saturated: bool,
}

impl WorkloadWindow {
    /// A window of which nothing is known.
    #[must_use]
    pub fn unknown(workload: WorkloadId, start: Timestamp, length: Span) -> Self {
        Self {
            workload,
            start,
            length,
            arrivals_per_s: None,
            peak_per_s: None,
            refused_per_s: None,
            finished_per_s: None,
            sequences_per_request: None,
            input_tokens: None,
            output_tokens: None,
            prefix_hit_rate: None,
            waiting: None,
            running: None,
            inter_token_s: None,
            first_tokens: None,
            first_tokens_in_time: None,
            ready: BTreeMap::new(),
            saturated_per_replica: BTreeMap::new(),
            completeness: 0.0,
            saturated: false,
        }
    }
}
