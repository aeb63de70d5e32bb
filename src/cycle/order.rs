//! What one cycle's work is given: the loop's knowledge at one instant, as a value that can be handed to another process.

use crate::{Cause, JobReading, Setup, State};
use fleet::{Calibration, GpuSlot, PlanRef, PoolId, Resident, Series, Span, Timestamp, Workload, WorkloadId, WorkloadWindow};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Tokens per request and hit rates are smooth: the last day says what they are.
const LATELY: Span = Span::DAY;
/// Everything one cycle's work needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkOrder {
    /// Instant the decision is made for.
    pub as_of: Timestamp,
    /// Why now.
    pub cause: Cause,
    /// Fleet, variants, workloads, policy.
    pub setup: Setup,
    /// What was learned.
    pub calibration: Calibration,
    /// The plan in force.
    pub parent: Option<PlanRef>,
    /// What is known of each service, in order of id.
    pub services: Vec<ServiceInput>,
    /// GPUs, with what may be planned with.
    pub slots: Vec<GpuSlot>,
    /// What runs.
    pub residents: Vec<Resident>,
    /// Pools in which something is known to run, but not on which GPUs.
    pub unlocated: BTreeSet<PoolId>,
    /// How far jobs are.
    pub jobs: Vec<JobReading>,
    /// What was noticed on the way, in words.
    pub notes: Vec<String>,
}

/// What is known of one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceInput {
    /// Which.
    pub workload: WorkloadId,
    /// Arrivals by hour, requests/s, whole hours before `as_of`; gaps stay gaps.
    pub hourly: Series,
    /// Arrivals in the last windows, requests/s, newest last; only known ones.
    pub recent: Vec<f64>,
    /// Requests waiting now.
    pub waiting: f64,
    /// Prompt tokens per request, lately.
    pub input_tokens: Option<f64>,
    /// Generated tokens per request, lately.
    pub output_tokens: Option<f64>,
    /// Prefix-cache hit rate, lately.
    pub prefix_hit_rate: Option<f64>,
}

impl ServiceInput {
    /// What the state knows of a service at `now`.
    pub(crate) fn of(state: &State, workload: &Workload, now: Timestamp) -> Self {
        let windows = state.history(&workload.id);
        let from = windows.first().map_or(now.hour(), |w| w.start.hour());
        let to = now.hour();
        let hourly = series::hourly(windows, &workload.id, from, to, |w| w.arrivals_per_s);
        let stabilisation = workload.service().map_or(Span::minutes(10), |s| s.stabilisation).max(state.setup.policy.window);
        let recent = windows.iter().filter(|w| w.start + w.length > now - stabilisation).filter_map(|w| w.arrivals_per_s).collect();
        let lately = |pick: fn(&WorkloadWindow) -> Option<f64>| mean_lately(windows, now, pick);
        Self {
            workload: workload.id.clone(),
            hourly,
            recent,
            waiting: windows.last().filter(|w| now.since(w.start) <= Span::minutes(15)).and_then(|w| w.waiting).unwrap_or(0.0),
            input_tokens: lately(|w| w.input_tokens),
            output_tokens: lately(|w| w.output_tokens),
            prefix_hit_rate: lately(|w| w.prefix_hit_rate),
        }
    }
}

/// Mean of a window's figure over the last day, newer windows weighing more (half-life six hours).
fn mean_lately(windows: &[WorkloadWindow], now: Timestamp, pick: fn(&WorkloadWindow) -> Option<f64>) -> Option<f64> {
    let (mut sum, mut weights) = (0.0, 0.0);
    for window in windows.iter().rev().take_while(|w| now.since(w.start) <= LATELY) {
        if let Some(value) = pick(window) {
            let weight = (0.5_f64).powf(now.since(window.start).as_hours() / 6.0);
            sum += weight * value;
            weights += weight;
        }
    }
    (weights > 0.0).then(|| sum / weights)
}
