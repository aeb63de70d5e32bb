//! `work`: forecast, build the problem, solve, verify. Pure, and the only long part of a cycle.

use crate::{Cause, JobReading, Setup, State, demand, problem};
use fleet::{Calibration, GpuSlot, Plan, PlanRef, Problem, Resident, Series, Span, Timestamp, VariantId, Workload, WorkloadId};
use models::ForecastSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
        let lately = |pick: fn(&fleet::WorkloadWindow) -> Option<f64>| demand::mean_lately(windows, now, pick);
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

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkOutput {
    /// Instant the decision was made for.
    pub as_of: Timestamp,
    /// Forecasts by service and forecaster.
    pub forecasts: Vec<ForecastSet>,
    /// Prior capacities, requests/s and replica.
    pub priors: BTreeMap<WorkloadId, BTreeMap<VariantId, f64>>,
    /// The decision, or why there is none.
    pub answer: Answer,
}

/// The four ways a decision can end, told apart everywhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A plan that passed the verifier.
    Planned {
        /// What was asked.
        problem: Box<Problem>,
        /// What was decided.
        plan: Box<Plan>,
    },
    /// The verifier refused what the solver made: its words.
    Refused(Vec<String>),
    /// A limit was reached and nothing feasible was found.
    TimedOut,
    /// The problem or the search was broken: why.
    Failed(String),
}

/// Forecasts, builds the problem, solves and verifies.
#[must_use]
pub fn work(order: &WorkOrder) -> WorkOutput {
    let forecasts = demand::forecasts(order);
    let built = problem::build(order, &forecasts);
    let answer = match built.problem.validate() {
        Err(broken) => Answer::Failed(broken.to_string()),
        Ok(()) => decide(built.problem),
    };
    WorkOutput { as_of: order.as_of, forecasts, priors: built.priors, answer }
}

fn decide(problem: Problem) -> Answer {
    match solver::solve(&problem) {
        solver::Answer::Planned(plan) => {
            let verdict = verify::verify(&problem, &plan);
            if verdict.is_ok() {
                Answer::Planned { problem: Box::new(problem), plan }
            } else {
                Answer::Refused(verdict.violations.iter().map(ToString::to_string).collect())
            }
        }
        solver::Answer::TimedOut => Answer::TimedOut,
        solver::Answer::Failed(reason) => Answer::Failed(reason),
    }
}
