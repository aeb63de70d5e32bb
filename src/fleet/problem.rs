//! A problem: everything the solver needs, and nothing that could change while it works.

use crate::{
    Bytes, CalibrationId, Class, Currency, ForecastId, GpuId, IslandId, JobId, ModelId, NodeId, Occupant, PlanId, PoolId, ProblemId, Provenance, Span, Step,
    Timestamp, VariantId, WorkloadId, fingerprint,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A problem that is not one.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// A number that is not finite or negative where it must not be (a solver would accept it in silence).
    #[error("{what} is {value}, which is not usable")]
    Number {
        /// Which number.
        what: String,
        /// Its value.
        value: f64,
    },
    /// A name that nothing answers to.
    #[error("{what} refers to {name:?}, which is not part of the problem")]
    Dangling {
        /// Who refers.
        what: String,
        /// To what.
        name: String,
    },
    /// Steps that do not join, or committed ones after the outlook began.
    #[error("steps must join without gaps, committed ones first: {0}")]
    Steps(String),
    /// Two residents on one GPU beyond its memory, or one GPU listed twice.
    #[error("gpu {gpu}: {reason}")]
    Resident {
        /// Where.
        gpu: GpuId,
        /// What is wrong.
        reason: String,
    },
}

/// The decision to be made, closed: the solver needs nothing else.
///
/// All money is in `currency`; all loads and capacities are in requests per second at the service target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Instant the decision is made for; start of the first step.
    pub as_of: Timestamp,
    /// Currency of all money.
    pub currency: Currency,
    /// Steps, joined, committed ones first.
    pub steps: Vec<Step>,
    /// Pools, in order of id.
    pub pools: Vec<PoolSpec>,
    /// GPUs, in a fixed order; placement prefers earlier ones.
    pub gpus: Vec<GpuSlot>,
    /// Variants, in order of id.
    pub variants: Vec<VariantSpec>,
    /// Services, in order of id.
    pub services: Vec<ServiceSpec>,
    /// Jobs not yet finished, in order of id.
    pub jobs: Vec<JobSpec>,
    /// What runs now, in order of its first GPU.
    pub residents: Vec<Resident>,
    /// Limits and prices of change.
    pub policy: PolicySpec,
    /// The plan in force.
    pub parent: Option<PlanRef>,
    /// What was learned, by content.
    pub calibration: CalibrationId,
    /// Its generation.
    pub calibration_generation: u64,
    /// Forecasts the demand came from, in order of service.
    pub forecasts: Vec<ForecastId>,
    /// What was noticed while the problem was made (a pin dropped, a silent source, a floor raised), in words.
    pub notes: Vec<String>,
    /// Pools in which replicas are known to run, but not on which GPUs: the names given to them here only stand for a number.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unlocated: BTreeSet<PoolId>,
}

/// A plan by name and number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanRef {
    /// Its id.
    pub id: PlanId,
    /// Its number.
    pub generation: u64,
}

/// A pool, as the solver needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PoolSpec {
    /// Its name.
    pub id: PoolId,
    /// Memory of each GPU.
    pub memory: Bytes,
    /// Money per GPU and hour that is saved by not using it (rent; power of owned GPUs). What is paid anyway does not enter the decision.
    pub marginal_per_gpu_hour: f64,
    /// Money per GPU and calendar hour or hour held: prices GPU time lost to loading, for reports and start costs.
    pub price_per_gpu_hour: f64,
}

/// Whether a GPU may be planned with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// Free, or held by one of [`Problem::residents`].
    Usable,
    /// Held by something that is not ours, or not observed: with the reason.
    Occupied(String),
    /// Out of order: with the reason.
    Failed(String),
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuSlot {
    /// Which.
    pub id: GpuId,
    /// Its pool.
    pub pool: PoolId,
    /// Its host.
    pub node: NodeId,
    /// Its island: whatever needs several GPUs takes them from one island.
    pub island: IslandId,
    /// May it be planned with.
    pub availability: Availability,
}

/// A variant, as the solver needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VariantSpec {
    /// Its name.
    pub id: VariantId,
    /// Its model.
    pub model: ModelId,
    /// Pools it may run on.
    pub pools: BTreeSet<PoolId>,
    /// GPUs of one replica.
    pub gpus: u32,
    /// Memory held on each.
    pub memory_per_gpu: Bytes,
    /// From start to ready.
    pub cold_start: Span,
    /// Prior or fitted.
    pub cold_start_provenance: Provenance,
    /// Money a start costs: GPU time while loading, cache lost.
    pub start_cost: f64,
    /// Money a stop costs: draining, disturbance. With the start elsewhere it makes the price of a move.
    pub stop_cost: f64,
}

/// Load of one service in one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepDemand {
    /// Load that is planned for: the service's quantile, with the peak inside the step, requests/s.
    pub planned: f64,
    /// Median of the forecast, requests/s, for reports.
    pub median: f64,
}

/// What one replica serves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Capacity {
    /// Requests/s of one ready replica at the service target.
    pub per_replica: f64,
    /// Prior or fitted.
    pub provenance: Provenance,
}

/// A service, as the solver needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceSpec {
    /// Its name.
    pub id: WorkloadId,
    /// Its class.
    pub class: Class,
    /// Lower is served first when money does not say.
    pub priority: u32,
    /// Load, one a step.
    pub demand: Vec<StepDemand>,
    /// Level of the quantile planned for.
    pub level: f64,
    /// What a replica serves, by variant; variants not named may not serve it.
    pub capacity: BTreeMap<VariantId, Capacity>,
    /// Replicas (held, loading included) kept in every step; short of it is priced.
    pub min_replicas: u32,
    /// Replicas never exceeded beyond what runs already.
    pub max_replicas: u32,
    /// Money per request not served.
    pub shortfall_per_request: f64,
    /// Money per replica and hour below the minimum or above the maximum.
    pub bound_price_per_hour: f64,
}

/// A job, as the solver needs it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobSpec {
    /// Its name.
    pub id: JobId,
    /// Its class.
    pub class: Class,
    /// GPUs that run together in one island.
    pub gang: u32,
    /// Memory held on each.
    pub memory_per_gpu: Bytes,
    /// Speed by pool; pools not named cannot run it.
    pub speed: BTreeMap<PoolId, f64>,
    /// Work left, seconds of the gang at speed 1.
    pub remaining_s: f64,
    /// Not before.
    pub earliest: Timestamp,
    /// Wanted by.
    pub deadline: Option<Timestamp>,
    /// Money an hour of useful gang time at speed 1 is worth.
    pub value_per_hour: f64,
    /// Money an hour of work (at speed 1) not done by the deadline costs.
    pub lateness_per_hour: f64,
    /// Time between checkpoints; without it the job is never preempted.
    pub checkpoint_s: Option<f64>,
    /// Work since the last checkpoint, seconds, while it runs.
    pub since_checkpoint_s: f64,
    /// May be stopped to make room.
    pub preemptible: bool,
    /// Time to load and resume after a start.
    pub startup: Span,
}

/// Something that runs now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resident {
    /// What.
    pub occupant: Occupant,
    /// Where; all in one island.
    pub gpus: Vec<GpuId>,
    /// When it began to hold them.
    pub since: Timestamp,
    /// When it serves, or began to.
    pub ready_at: Timestamp,
    /// Not to be stopped before (loading, minimum time up, no checkpoint). `None`: any time.
    pub protected_until: Option<Timestamp>,
}

/// Limits and prices of change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicySpec {
    /// The plan says "advisory": nobody is asked to act on it.
    pub advisory: bool,
    /// Replicas that may be stopped in the committed part of one plan.
    pub stops_max: Option<u32>,
    /// Relative MIP gap at which the search may stop.
    pub mip_gap: f64,
    /// Nodes of the branch-and-bound tree after which it stops: the reproducible limit. 0: no tree, only the dive from the relaxation.
    pub nodes_max: u32,
    /// Wall-clock limit, a watchdog only: a plan it cut short is not reproducible.
    pub watchdog: Span,
    /// Time a plan stays valid.
    pub validity: Span,
    /// Share by which a job's value falls for every hour it is put off: prefers sooner, breaks ties.
    pub delay_per_hour: f64,
}

impl Problem {
    /// Fingerprint of the canonical bytes.
    ///
    /// # Panics
    /// Never: a fingerprint is a usable id.
    #[must_use]
    pub fn id(&self) -> ProblemId {
        ProblemId::new(fingerprint(self)).expect("hexadecimal digits")
    }

    /// First instant after the last step.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.steps.last().map_or(self.as_of, Step::end)
    }

    /// First instant after the committed part.
    #[must_use]
    pub fn committed_end(&self) -> Timestamp {
        self.steps.iter().rev().find(|s| s.committed).map_or(self.as_of, Step::end)
    }

    /// The pool of that id.
    #[must_use]
    pub fn pool(&self, id: &PoolId) -> Option<&PoolSpec> {
        self.pools.iter().find(|p| &p.id == id)
    }

    /// The GPU of that id.
    #[must_use]
    pub fn gpu(&self, id: &GpuId) -> Option<&GpuSlot> {
        self.gpus.iter().find(|g| &g.id == id)
    }

    /// The variant of that id.
    #[must_use]
    pub fn variant(&self, id: &VariantId) -> Option<&VariantSpec> {
        self.variants.iter().find(|v| &v.id == id)
    }

    /// The service of that id.
    #[must_use]
    pub fn service(&self, id: &WorkloadId) -> Option<&ServiceSpec> {
        self.services.iter().find(|s| &s.id == id)
    }

    /// The job of that id.
    #[must_use]
    pub fn job(&self, id: &JobId) -> Option<&JobSpec> {
        self.jobs.iter().find(|j| &j.id == id)
    }

    /// Tells whether the problem is closed and every number usable.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn validate(&self) -> Result<(), ProblemError> {
        self.validate_steps()?;
        self.validate_numbers()?;
        self.validate_names()?;
        self.validate_residents()
    }

    fn validate_steps(&self) -> Result<(), ProblemError> {
        let refuse = |why: &str| Err(ProblemError::Steps(why.to_owned()));
        let Some(first) = self.steps.first() else { return refuse("there are none") };
        if first.start != self.as_of {
            return refuse("the first does not start at as_of");
        }
        if self.steps.iter().any(|s| s.length.0 <= 0) {
            return refuse("one has no length");
        }
        if self.steps.windows(2).any(|w| w[0].end() != w[1].start) {
            return refuse("two do not join");
        }
        if self.steps.windows(2).any(|w| !w[0].committed && w[1].committed) {
            return refuse("a committed one follows the outlook");
        }
        if let Some(short) = self.services.iter().find(|s| s.demand.len() != self.steps.len()) {
            return refuse(&format!("service {} has demand for {} of {} steps", short.id, short.demand.len(), self.steps.len()));
        }
        Ok(())
    }

    fn validate_numbers(&self) -> Result<(), ProblemError> {
        let mut numbers: Vec<(String, f64)> = Vec::new();
        for p in &self.pools {
            numbers.push((format!("marginal price of pool {}", p.id), p.marginal_per_gpu_hour));
            numbers.push((format!("price of pool {}", p.id), p.price_per_gpu_hour));
        }
        for v in &self.variants {
            numbers.push((format!("start cost of {}", v.id), v.start_cost));
            numbers.push((format!("stop cost of {}", v.id), v.stop_cost));
        }
        for s in &self.services {
            numbers.push((format!("shortfall price of {}", s.id), s.shortfall_per_request));
            numbers.push((format!("price of replica bounds of {}", s.id), s.bound_price_per_hour));
            numbers.extend(s.demand.iter().map(|d| (format!("demand of {}", s.id), d.planned)));
            numbers.extend(s.demand.iter().map(|d| (format!("median demand of {}", s.id), d.median)));
            numbers
                .extend(s.capacity.iter().map(|(v, c)| (format!("capacity of {} for {v}", s.id), if c.per_replica > 0.0 { c.per_replica } else { f64::NAN })));
        }
        for j in &self.jobs {
            numbers.push((format!("work left of {}", j.id), j.remaining_s));
            numbers.push((format!("value of {}", j.id), j.value_per_hour));
            numbers.push((format!("lateness price of {}", j.id), j.lateness_per_hour));
            numbers.push((format!("work since checkpoint of {}", j.id), j.since_checkpoint_s));
            numbers.extend(j.checkpoint_s.map(|c| (format!("checkpoint interval of {}", j.id), if c > 0.0 { c } else { f64::NAN })));
            numbers.extend(j.speed.iter().map(|(p, s)| (format!("speed of {} on {p}", j.id), if *s > 0.0 { *s } else { f64::NAN })));
        }
        numbers.push(("mip gap".into(), self.policy.mip_gap));
        numbers.push(("delay share".into(), self.policy.delay_per_hour));
        match numbers.into_iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
            Some((what, value)) => Err(ProblemError::Number { what, value }),
            None => Ok(()),
        }
    }

    fn validate_names(&self) -> Result<(), ProblemError> {
        let dangling = |what: String, name: &str| Err(ProblemError::Dangling { what, name: name.to_owned() });
        for g in &self.gpus {
            if self.pool(&g.pool).is_none() {
                return dangling(format!("gpu {}", g.id), g.pool.as_str());
            }
        }
        for v in &self.variants {
            if let Some(pool) = v.pools.iter().find(|p| self.pool(p).is_none()) {
                return dangling(format!("variant {}", v.id), pool.as_str());
            }
        }
        for s in &self.services {
            if let Some(variant) = s.capacity.keys().find(|v| self.variant(v).is_none()) {
                return dangling(format!("service {}", s.id), variant.as_str());
            }
        }
        for j in &self.jobs {
            if let Some(pool) = j.speed.keys().find(|p| self.pool(p).is_none()) {
                return dangling(format!("job {}", j.id), pool.as_str());
            }
        }
        for r in &self.residents {
            let known = match &r.occupant {
                Occupant::Replica { variant, .. } => self.variant(variant).is_some(),
                Occupant::Job { job } => self.job(job).is_some(),
            };
            if !known {
                return dangling("a resident".into(), &r.occupant.name());
            }
        }
        Ok(())
    }

    fn validate_residents(&self) -> Result<(), ProblemError> {
        let mut taken: BTreeSet<&GpuId> = BTreeSet::new();
        for r in &self.residents {
            let mut islands = BTreeSet::new();
            for gpu in &r.gpus {
                let Some(slot) = self.gpu(gpu) else {
                    return Err(ProblemError::Dangling { what: r.occupant.name(), name: gpu.to_string() });
                };
                islands.insert(&slot.island);
                if slot.availability != Availability::Usable {
                    return Err(ProblemError::Resident { gpu: gpu.clone(), reason: format!("holds {} but is not usable", r.occupant.name()) });
                }
                if !taken.insert(gpu) {
                    return Err(ProblemError::Resident { gpu: gpu.clone(), reason: "is held twice".into() });
                }
            }
            if let (Some(gpu), false) = (r.gpus.first(), islands.len() == 1) {
                return Err(ProblemError::Resident { gpu: gpu.clone(), reason: format!("{} spreads over several islands", r.occupant.name()) });
            }
        }
        Ok(())
    }
}
