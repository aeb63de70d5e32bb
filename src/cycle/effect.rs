//! What the loop asks its shell to do.

use crate::WorkOrder;
use fleet::{Calibration, Forecast, GpuId, JobId, Outcome, Plan, Problem, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Keep this.
    Append(Record),
    /// Run [`crate::work`] on this order, and answer with `Worked` or `WorkFailed`. At most one is out at any time.
    Work(Box<WorkOrder>),
    /// Publish this plan; it has passed the verifier.
    Publish(Box<Plan>),
    /// Tell people.
    Notice(Timestamp, String),
}

/// Something to be kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Windows that closed.
    Windows(Vec<WorkloadWindow>),
    /// What happened in a window.
    Outcome(Box<Outcome>),
    /// What was learned.
    Calibration(Box<Calibration>),
    /// Forecasts that were planned with.
    Forecasts(Vec<Forecast>),
    /// A decision and what it answers.
    Decision(Box<Problem>, Box<Plan>),
}

/// Why a cycle runs out of turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The adjustment interval is over.
    Interval,
    /// A job finished and freed its GPUs.
    JobEnded(JobId),
    /// A GPU failed.
    GpuLost(GpuId),
    /// A GPU is back.
    GpuReturned(GpuId),
    /// A workload's priority changed.
    PriorityChanged(WorkloadId),
    /// Demand left its band.
    DemandOutsideBand(WorkloadId),
    /// Requests wait longer than the service promises.
    QueueFormed(WorkloadId),
    /// A target stopped answering.
    TargetSilent(TargetId),
    /// A consumer refused the plan: with its words.
    PlanRefused(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval => write!(f, "the adjustment interval is over"),
            Self::JobEnded(job) => write!(f, "{job} ended"),
            Self::GpuLost(gpu) => write!(f, "gpu {gpu} was lost"),
            Self::GpuReturned(gpu) => write!(f, "gpu {gpu} is back"),
            Self::PriorityChanged(workload) => write!(f, "the priority of {workload} changed"),
            Self::DemandOutsideBand(workload) => write!(f, "demand of {workload} left its band"),
            Self::QueueFormed(workload) => write!(f, "a queue formed at {workload}"),
            Self::TargetSilent(target) => write!(f, "target {target} stopped answering"),
            Self::PlanRefused(why) => write!(f, "a consumer refused the plan: {why}"),
        }
    }
}

/// A condition of readiness or health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Condition {
    /// What is asked: `sources_fresh`, `plan_verified`, ...
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// Why not, or on what evidence it does.
    pub reason: String,
    /// Since when it is so.
    pub since: Timestamp,
}
