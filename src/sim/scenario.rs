//! What a simulation starts from: the set-up the loop knows, and the truth it does not.

use cycle::Setup;
use fleet::{GpuId, Span, Timestamp, VariantId, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A scenario that cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// Somebody refers to something that is not part of the set-up.
    #[error("{what} names {name:?}, which the scenario does not have")]
    Unknown {
        /// Who refers.
        what: &'static str,
        /// To what.
        name: String,
    },
    /// A number that cannot be true.
    #[error("{what} is {value}, which cannot be")]
    Number {
        /// Which.
        what: String,
        /// Its value, as text.
        value: String,
    },
    /// Start, length or traffic not on whole minutes, or no traffic for a service.
    #[error("the scenario does not fit its minutes: {0}")]
    Grid(String),
}

/// Everything a simulation needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// What the loop is set up with: fleet, variants, workloads, habits. Plans are carried out whatever `advisory` says.
    pub setup: Setup,
    /// Demand, one entry a service.
    pub traffic: Vec<Traffic>,
    /// What the loop does not know.
    pub truth: Truth,
    /// GPUs lost and returned.
    pub faults: Vec<Fault>,
    /// Spans in which a service's endpoints answer nobody who looks, although they serve. None: `Vec::new()`.
    #[serde(default)]
    pub blackouts: Vec<Blackout>,
    /// Seed of all randomness.
    pub seed: u64,
    /// First instant, on a whole minute.
    pub start: Timestamp,
    /// Length, in whole minutes.
    pub length: Span,
}

/// Demand of one service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Whose.
    pub workload: WorkloadId,
    /// Mean arrivals in each minute from the scenario's start, requests/s. What comes is drawn from a Poisson distribution.
    pub per_minute: Vec<f64>,
    /// Prompt tokens per request.
    pub input_tokens: f64,
    /// Generated tokens per request.
    pub output_tokens: f64,
    /// Share of prompt tokens found in the prefix cache.
    pub hit_rate: f64,
}

/// What is so, whatever anybody assumes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// What a replica serves, by service and variant.
    pub capacity: BTreeMap<WorkloadId, BTreeMap<VariantId, TrueCapacity>>,
    /// How long a start takes, by variant; variants not named take what their prior says.
    pub cold_start: BTreeMap<VariantId, TrueColdStart>,
    /// Standard deviation of the logarithm of capacity from one spell (about an hour) to another.
    pub noise: f64,
    /// Requests that have waited this long hang up.
    pub patience: Span,
}

/// What one replica serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrueCapacity {
    /// What people believe before anything ran, requests/s of one replica. The baselines size by it.
    pub prior: f64,
    /// Truth / prior at the start.
    pub factor: f64,
    /// Change of the factor in a day, as a share of it.
    pub drift_per_day: f64,
}

impl TrueCapacity {
    /// Requests/s of one replica, `days` after the start, without noise.
    #[must_use]
    pub fn at(&self, days: f64) -> f64 {
        self.prior * self.factor * (1.0 + self.drift_per_day * days).max(0.05)
    }
}

/// How long a start takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TrueColdStart {
    /// Its median, seconds.
    pub median_s: f64,
    /// Standard deviation of its logarithm from start to start.
    pub spread: f64,
}

/// Something breaks, or is mended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// When.
    pub at: Timestamp,
    /// Which GPU.
    pub gpu: GpuId,
    /// Which of the two.
    pub kind: FaultKind,
}

/// Lost or returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// What runs on the GPU dies and nothing can start there.
    Lost,
    /// It can be used again.
    Returned,
}

/// The record of a service is lost for a while: every look at its endpoints fails (those of its replicas, those of replicas that start
/// meanwhile, its router's), while requests come and are served as ever. GPU and job readings are not affected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blackout {
    /// Whose endpoints.
    pub workload: WorkloadId,
    /// First instant at which looks fail.
    pub from: Timestamp,
    /// First instant at which they succeed again.
    pub until: Timestamp,
}

impl Blackout {
    /// Whether a look at that instant fails.
    #[must_use]
    pub fn covers(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.until
    }
}

impl Scenario {
    /// First instant after the last minute.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.start + self.length
    }

    /// Minutes simulated.
    #[must_use]
    pub fn minutes(&self) -> usize {
        usize::try_from(self.length.0 / 60).unwrap_or(0)
    }

    /// Tells whether the scenario can be simulated.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        if self.start.0 % 60 != 0 || self.length.0 % 60 != 0 || self.length.0 <= 0 {
            return Err(ScenarioError::Grid("start and length must be whole minutes".into()));
        }
        for workload in &self.setup.workloads {
            let Some(service) = workload.service() else { continue };
            let Some(traffic) = self.traffic.iter().find(|t| t.workload == workload.id) else {
                return Err(ScenarioError::Grid(format!("service {} has no traffic", workload.id)));
            };
            if traffic.per_minute.len() < self.minutes() {
                return Err(ScenarioError::Grid(format!("traffic of {} covers {} of {} minutes", workload.id, traffic.per_minute.len(), self.minutes())));
            }
            for variant in &service.variants {
                if !self.setup.variants.iter().any(|v| &v.id == variant) {
                    return Err(ScenarioError::Unknown { what: "a service", name: variant.to_string() });
                }
                if !self.truth.capacity.get(&workload.id).is_some_and(|by| by.contains_key(variant)) {
                    return Err(ScenarioError::Unknown { what: "the truth about capacity", name: format!("{} on {variant}", workload.id) });
                }
            }
        }
        if let Some(fault) = self.faults.iter().find(|f| self.setup.fleet.gpu(&f.gpu).is_none()) {
            return Err(ScenarioError::Unknown { what: "a fault", name: fault.gpu.to_string() });
        }
        for blackout in &self.blackouts {
            if !self.traffic.iter().any(|t| t.workload == blackout.workload) {
                return Err(ScenarioError::Unknown { what: "a blackout", name: blackout.workload.to_string() });
            }
            if blackout.until <= blackout.from {
                return Err(ScenarioError::Grid(format!("a blackout of {} from {} ends at {}", blackout.workload, blackout.from, blackout.until)));
            }
        }
        self.validate_numbers()
    }

    fn validate_numbers(&self) -> Result<(), ScenarioError> {
        let refuse = |what: String, value: f64| Err(ScenarioError::Number { what, value: value.to_string() });
        for traffic in &self.traffic {
            if let Some(bad) = traffic.per_minute.iter().find(|v| !(0.0..1e7).contains(*v)) {
                return refuse(format!("arrivals of {}", traffic.workload), *bad);
            }
            if !(0.0..=1.0).contains(&traffic.hit_rate) {
                return refuse(format!("hit rate of {}", traffic.workload), traffic.hit_rate);
            }
        }
        for (workload, by) in &self.truth.capacity {
            for (variant, c) in by {
                if !(c.prior > 0.0 && c.factor > 0.0 && c.prior.is_finite() && c.factor.is_finite() && c.drift_per_day.is_finite()) {
                    return refuse(format!("capacity of {workload} on {variant}"), c.prior * c.factor);
                }
            }
        }
        for (variant, c) in &self.truth.cold_start {
            if !(c.median_s >= 0.0 && c.median_s.is_finite() && (0.0..1.0).contains(&c.spread)) {
                return refuse(format!("cold start of {variant}"), c.median_s);
            }
        }
        if !(0.0..1.0).contains(&self.truth.noise) {
            return refuse("noise".into(), self.truth.noise);
        }
        Ok(())
    }
}
