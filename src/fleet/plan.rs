//! A plan: what sits on which GPU, when, why, and how good that is.

use crate::{Class, Currency, GpuId, JobId, PlanId, PoolId, ProblemId, ReplicaId, Span, Step, Timestamp, VariantId, WorkloadId, fingerprint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What holds GPUs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Occupant {
    /// A copy of a variant.
    Replica {
        /// Which copy.
        replica: ReplicaId,
        /// Of what.
        variant: VariantId,
    },
    /// A job's gang.
    Job {
        /// Which.
        job: JobId,
    },
}

impl Occupant {
    /// Name for messages.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Replica { replica, .. } => replica.to_string(),
            Self::Job { job } => job.to_string(),
        }
    }
}

/// An immutable decision. Made by `solver`, checked by `verify`, published by `publish`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Version of this document's schema: `turnaround.plan/1`. Fields are only added within a major version.
    pub schema: String,
    /// Fingerprint of the rest.
    pub id: PlanId,
    /// The plan it follows.
    pub parent: Option<PlanId>,
    /// Its number; never goes back.
    pub generation: u64,
    /// True: what we would do, not a request to do it.
    pub advisory: bool,
    /// Instant it was made for.
    pub as_of: Timestamp,
    /// Start of its validity.
    pub valid_from: Timestamp,
    /// End of its validity. A consumer that sees an expired plan keeps what runs.
    pub valid_until: Timestamp,
    /// The problem it answers.
    pub problem: ProblemId,
    /// Currency of all money in it.
    pub currency: Currency,
    /// The next two hours: whole replicas and gangs on named GPUs, with times.
    pub committed: Committed,
    /// The hours after: counts per pool, which may be fractional.
    pub outlook: Vec<OutlookStep>,
    /// For every usable GPU, what takes it if it is freed early.
    pub heirs: Vec<Heir>,
    /// Pools of which only the number of GPUs counts: what runs there is known, but not on which GPU, so that the names below mean nothing.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unlocated: BTreeSet<PoolId>,
    /// How good it is and why it is so.
    pub report: PlanReport,
}

/// The part others act on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// The steps it is made of.
    pub steps: Vec<Step>,
    /// Replicas, ordered by first GPU and time.
    pub replicas: Vec<ReplicaWindow>,
    /// Job windows, ordered by first GPU and time.
    pub jobs: Vec<JobWindow>,
    /// Which variant serves how much of which service.
    pub routes: Vec<Route>,
    /// Load left unmet.
    pub shortfalls: Vec<Shortfall>,
    /// GPUs kept free for a forecast burst.
    pub holds: Vec<Hold>,
    /// Jobs stopped to make room.
    pub preemptions: Vec<Preemption>,
}

/// What happens to something in the committed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Runs before, throughout and after.
    Keep,
    /// Begins in this plan.
    Start,
    /// Ends in this plan.
    Stop,
    /// Begins and ends in this plan.
    Visit,
}

/// A replica on named GPUs over a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaWindow {
    /// Which.
    pub replica: ReplicaId,
    /// Of what.
    pub variant: VariantId,
    /// Its pool.
    pub pool: PoolId,
    /// Its GPUs, all in one island.
    pub gpus: Vec<GpuId>,
    /// What happens to it.
    pub verb: Verb,
    /// First instant it holds the GPUs (`as_of` when it runs already).
    pub from: Timestamp,
    /// First instant it serves; may lie before `from` when it runs already.
    pub ready_at: Timestamp,
    /// First instant after it; the end of the committed part when it goes on.
    pub until: Timestamp,
}

/// A job's gang on named GPUs over a time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobWindow {
    /// Which.
    pub job: JobId,
    /// Its class.
    pub class: Class,
    /// Its pool.
    pub pool: PoolId,
    /// Its GPUs, all in one island.
    pub gpus: Vec<GpuId>,
    /// What happens to it.
    pub verb: Verb,
    /// First instant it holds the GPUs.
    pub from: Timestamp,
    /// First instant it makes progress.
    pub ready_at: Timestamp,
    /// First instant after it; the end of the committed part when it goes on.
    pub until: Timestamp,
}

/// Traffic of one service through one variant in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Whose.
    pub workload: WorkloadId,
    /// Through what.
    pub variant: VariantId,
    /// Index into the committed steps.
    pub step: usize,
    /// Requests/s.
    pub load: f64,
}

/// Load or replicas the plan leaves unmet in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shortfall {
    /// Whose.
    pub workload: WorkloadId,
    /// Index into all steps of the problem.
    pub step: usize,
    /// Requests/s not served.
    pub load: f64,
    /// Replicas below the minimum.
    pub replicas: f64,
    /// Money it costs in that step.
    pub cost: f64,
}

/// A GPU kept free on purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hold {
    /// Which.
    pub gpu: GpuId,
    /// From.
    pub from: Timestamp,
    /// Until its heir takes it.
    pub until: Timestamp,
    /// For whom.
    pub heir: Occupant,
}

/// A job stopped to make room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preemption {
    /// Which.
    pub job: JobId,
    /// When.
    pub at: Timestamp,
    /// Work to be done again, seconds of the gang at speed 1.
    pub redo_s: f64,
    /// GPU-minutes lost.
    pub lost_gpu_minutes: f64,
    /// Money lost.
    pub cost: f64,
}

/// One hour of the outlook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutlookStep {
    /// The step.
    pub step: Step,
    /// Replicas held, by pool and variant.
    pub replicas: BTreeMap<PoolId, BTreeMap<VariantId, f64>>,
    /// Replicas started in the step, by pool and variant.
    pub starts: BTreeMap<PoolId, BTreeMap<VariantId, f64>>,
    /// Replicas stopped at its beginning, by pool and variant.
    pub stops: BTreeMap<PoolId, BTreeMap<VariantId, f64>>,
    /// Share of each job's gang that runs, by pool.
    pub jobs: BTreeMap<PoolId, BTreeMap<JobId, f64>>,
    /// Share of each job's gang started in the step, by pool.
    pub job_starts: BTreeMap<PoolId, BTreeMap<JobId, f64>>,
    /// Load served, by service and variant, requests/s.
    pub routes: BTreeMap<WorkloadId, BTreeMap<VariantId, f64>>,
}

/// Who takes a GPU if it is freed early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Heir {
    /// Which GPU.
    pub gpu: GpuId,
    /// What holds it now, if anything of ours.
    pub holder: Option<Occupant>,
    /// What takes it: a job that can use it at once, or a service.
    pub heir: Option<String>,
    /// Why.
    pub reason: String,
}

/// How the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SolveStatus {
    /// Within the gap asked for.
    Optimal,
    /// A limit was reached; the best feasible solution is used, with its gap.
    Feasible,
}

/// Money by what it is for, over the horizon. Costs are positive, value is what work done earns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
pub struct Objective {
    /// Requests not served.
    pub shortfall: f64,
    /// Replicas below a minimum or above a maximum.
    pub bounds: f64,
    /// Starts of replicas.
    pub starts: f64,
    /// Stops of replicas.
    pub stops: f64,
    /// Rent and power.
    pub rent: f64,
    /// Work not done by its deadline.
    pub lateness: f64,
    /// Work to be done again after preemptions, at the value of that work.
    pub preemptions: f64,
    /// Value of work done (subtracted).
    pub value: f64,
}

impl Objective {
    /// What is minimised: costs less value.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.shortfall + self.bounds + self.starts + self.stops + self.rent + self.lateness + self.preemptions - self.value
    }
}

/// What one more unit would be worth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShadowPrice {
    /// What is scarce.
    pub of: Binding,
    /// Index into all steps of the problem.
    pub step: usize,
    /// Money per GPU-hour (a pool) or per request/s and hour (a service).
    pub value: f64,
}

/// What a shadow price, a reason or a relaxation is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// GPUs of a pool.
    Pool(PoolId),
    /// Demand of a service.
    Service(WorkloadId),
    /// Work of a job.
    Job(JobId),
    /// The whole plan.
    Plan,
}

/// A rule that was softened, and its price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Relaxation {
    /// Whose rule.
    pub of: Binding,
    /// What was softened, in words: "workload b short by 2 replicas".
    pub rule: String,
    /// Money it costs over the horizon.
    pub cost: f64,
}

/// Why something is as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// What it is about.
    pub of: Binding,
    /// One plain sentence with its evidence.
    pub text: String,
}

/// How good a plan is and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlanReport {
    /// How the search ended.
    pub status: SolveStatus,
    /// The same input gives the same bytes; false when the watchdog cut the search short.
    pub reproducible: bool,
    /// Money by what it is for.
    pub objective: Objective,
    /// No plan can cost less than this.
    pub bound: f64,
    /// (objective - bound) / max(|objective|, 1e-9).
    pub gap: f64,
    /// What one more unit would be worth; only those above zero.
    pub shadow_prices: Vec<ShadowPrice>,
    /// Rules softened, with their price.
    pub relaxations: Vec<Relaxation>,
    /// Why.
    pub reasons: Vec<Reason>,
    /// Columns, rows and integer columns of the program, and nodes searched.
    pub size: [u64; 4],
    /// Generation of the calibration used.
    pub calibration: u64,
    /// Figures that are still priors, in words.
    pub priors: Vec<String>,
}

impl Plan {
    /// Version of the document written by this program.
    pub const SCHEMA: &'static str = "turnaround.plan/1";

    /// The fingerprint a plan of this content must carry: that of the plan with a fixed id.
    ///
    /// # Panics
    /// Never: the stand-in is a usable id.
    #[must_use]
    pub fn content_id(&self) -> PlanId {
        let mut bare = self.clone();
        bare.id = PlanId::new("unnamed").expect("a usable id");
        PlanId::new(fingerprint(&bare)).expect("hexadecimal digits")
    }

    /// The plan with its content's id.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.id = self.content_id();
        self
    }

    /// Time left at `now` before a consumer must stop acting on it.
    #[must_use]
    pub fn remaining_validity(&self, now: Timestamp) -> Span {
        self.valid_until.since(now)
    }

    /// Replicas that hold GPUs at `at`.
    pub fn replicas_at(&self, at: Timestamp) -> impl Iterator<Item = &ReplicaWindow> {
        self.committed.replicas.iter().filter(move |r| r.from <= at && at < r.until)
    }

    /// Jobs that hold GPUs at `at`.
    pub fn jobs_at(&self, at: Timestamp) -> impl Iterator<Item = &JobWindow> {
        self.committed.jobs.iter().filter(move |j| j.from <= at && at < j.until)
    }
}
