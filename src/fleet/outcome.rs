//! What happened, beside what was forecast and promised.

use crate::{JobId, OutcomeId, PlanId, ReplicaId, Span, Timestamp, VariantId, WorkloadId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One window: what was forecast, promised and observed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// Fingerprint of the rest.
    pub id: OutcomeId,
    /// Start of the window.
    pub start: Timestamp,
    /// Its length.
    pub length: Span,
    /// The plan in force in it, if any.
    pub plan: Option<PlanId>,
    /// What ran is what the plan said. Without it the forecast is scored and the promise is not.
    pub applied: bool,
    /// By service, in order of id.
    pub services: Vec<ServiceOutcome>,
    /// By job, in order of id.
    pub jobs: Vec<JobOutcome>,
    /// Replicas that became ready in the window.
    pub starts: Vec<StartOutcome>,
}

/// One service in one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceOutcome {
    /// Which.
    pub workload: WorkloadId,
    /// Quantiles forecast for the window by each forecaster (requests/s, one a level of [`crate::LEVELS`]); `published` is what was planned with.
    pub forecast: BTreeMap<String, Vec<f64>>,
    /// Requests/s that came. `None`: unknown.
    pub observed_per_s: Option<f64>,
    /// The highest rate between two looks, requests/s.
    pub peak_per_s: Option<f64>,
    /// Requests/s the plan in force promised to serve.
    pub promised_per_s: Option<f64>,
    /// Share of first tokens in time.
    pub attainment: Option<f64>,
    /// Replicas that answered, by variant.
    pub ready: BTreeMap<VariantId, u32>,
    /// Requests/s and replica at saturation, by variant.
    pub saturated_per_replica: BTreeMap<VariantId, f64>,
    /// Requests/s and replica while all first tokens were in time, by variant: a lower bound of capacity.
    pub sustained_per_replica: BTreeMap<VariantId, f64>,
    /// Prior capacity the plan's figure started from, requests/s and replica, by variant.
    pub prior_per_replica: BTreeMap<VariantId, f64>,
    /// What came was capped by us or by lost readings: not to be learned as demand.
    pub censored: bool,
    /// Share of (targets x time) observed.
    pub completeness: f64,
}

/// One job in one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobOutcome {
    /// Which.
    pub job: JobId,
    /// Work left at the end of the window, gang-seconds at speed 1.
    pub remaining_s: f64,
    /// It ended in the window.
    pub ended: bool,
    /// It missed its deadline.
    pub late: bool,
}

/// A replica that became ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StartOutcome {
    /// Which.
    pub replica: ReplicaId,
    /// Of what.
    pub variant: VariantId,
    /// Cold start the plan reckoned with, seconds.
    pub expected_s: f64,
    /// Cold start seen, seconds.
    pub observed_s: f64,
}
