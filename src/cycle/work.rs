//! `work`: forecast, build the problem, solve, verify. Pure, and the only long part of a cycle.

use crate::{demand, order::WorkOrder, problem};
use fleet::{Plan, Problem, Timestamp, VariantId, WorkloadId};
use models::ForecastSet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
