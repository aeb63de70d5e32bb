//! What verification answers.

use fleet::{GpuId, Objective};
use serde::Serialize;
use std::fmt;

/// The rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The document's schema is not the one we know.
    Schema,
    /// The id is not the fingerprint of the content.
    ContentId,
    /// It answers another problem, or one that is not valid.
    Problem,
    /// It follows another plan than the one in force.
    Parent,
    /// Its number is not the parent's plus one.
    Generation,
    /// It begins or ends to be valid at another time, or hides that it is advisory.
    Validity,
    /// Its steps are not those of the problem.
    Steps,
    /// A number is not finite, or negative where it must not be.
    Number,
    /// Something is named that the problem does not know, or named twice.
    Reference,
    /// A window begins or ends inside a step, before `as_of` or after the committed part, or has no length.
    Boundary,
    /// A GPU that is unknown or not usable.
    Gpu,
    /// Another number of GPUs than the variant or gang needs.
    GpuCount,
    /// Two occupants on one GPU at a time.
    Overlap,
    /// A pool that may not be used, or that is not the pool of the GPUs.
    Pool,
    /// More memory than the GPU has.
    Memory,
    /// GPUs of several islands.
    Island,
    /// Something that runs now is neither kept nor stopped, or is moved without a stop.
    Resident,
    /// A new replica does not carry the name that its variant, start and first GPU give it.
    ReplicaName,
    /// Ready at another time than the cold start or start-up allows.
    ReadyAt,
    /// The verb says something else than the times.
    Verb,
    /// A replica is stopped while it loads or is protected.
    Protected,
    /// More replicas are stopped than one plan may.
    StopsMax,
    /// Served and short do not add up to the demand.
    Balance,
    /// More is served than what is ready can serve.
    Capacity,
    /// More replicas than the service may have.
    Maximum,
    /// The list of shortfalls does not say what is short.
    Shortfall,
    /// A job begins before it may.
    JobEarly,
    /// Two runs of one job at a time.
    JobOverlap,
    /// A job is stopped that may not be.
    NotPreemptible,
    /// A new run is ended before its job could be complete.
    MinimumRun,
    /// The list of preemptions does not say what is lost.
    Preemption,
    /// A count of the outlook does not follow from the one before.
    Continuity,
    /// A share of a job outside 0..=1, or a start that is not counted.
    JobShare,
    /// More GPUs of a pool than are usable.
    PoolCapacity,
    /// A GPU said to be held free is not.
    Hold,
    /// A usable GPU has no heir, or two.
    Heir,
    /// The money is not what windows, outlook and routes cost.
    Objective,
    /// The bound lies above the objective.
    Bound,
    /// The gap is not that of objective and bound, or too wide for the status claimed.
    Gap,
}

impl Code {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> String {
        // Kebab case of the variant's own name, which serde derives.
        let mut out = String::new();
        for c in format!("{self:?}").chars() {
            if c.is_ascii_uppercase() && !out.is_empty() {
                out.push('-');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }
}

/// One broken rule: which, where, and the two figures.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Violation {
    /// The rule.
    pub code: Code,
    /// What is wrong, in words.
    pub what: String,
    /// The GPU, where the rule is about one.
    pub gpu: Option<GpuId>,
    /// Index into the problem's steps, where the rule is about one.
    pub step: Option<usize>,
    /// The replica, service, job, variant or pool it is about.
    pub subject: Option<String>,
    /// The figure in the plan.
    pub found: Option<f64>,
    /// The figure it should be, or be bounded by.
    pub allowed: Option<f64>,
}

impl Violation {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), gpu: None, step: None, subject: None, found: None, allowed: None }
    }

    pub(crate) fn of(mut self, subject: impl fmt::Display) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    pub(crate) fn gpu(mut self, gpu: &GpuId) -> Self {
        self.gpu = Some(gpu.clone());
        self
    }

    pub(crate) fn step(mut self, step: usize) -> Self {
        self.step = Some(step);
        self
    }

    pub(crate) fn figures(mut self, found: f64, allowed: f64) -> Self {
        self.found = Some(found);
        self.allowed = Some(allowed);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.what)?;
        let mut place = Vec::new();
        place.extend(self.subject.clone());
        place.extend(self.gpu.as_ref().map(|g| format!("gpu {g}")));
        place.extend(self.step.map(|s| format!("step {s}")));
        if !place.is_empty() {
            write!(f, " [{}]", place.join(", "))?;
        }
        match (self.found, self.allowed) {
            (Some(found), Some(allowed)) => write!(f, ": {found} against {allowed}"),
            _ => Ok(()),
        }
    }
}

/// The answer: what is wrong, and what the plan really costs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Broken rules, in the order they were looked at.
    pub violations: Vec<Violation>,
    /// The money, recomputed. Zero when the plan's steps or numbers did not allow it.
    pub objective: Objective,
}

impl Verdict {
    /// Whether the plan may be published.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.violations.is_empty()
    }
}
