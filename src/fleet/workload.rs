//! What asks for compute: models, variants, and workloads of the seven classes with their defaults.

use crate::{Bytes, GpuKindId, ModelId, Span, Timestamp, VariantId, WorkloadId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What users call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Model {
    /// Its name.
    pub id: ModelId,
    /// Quality score per task, 0..=1, where known.
    pub quality: BTreeMap<String, f64>,
}

/// A model at a precision and a tensor-parallel degree on a GPU kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// Its name.
    pub id: VariantId,
    /// The model.
    pub model: ModelId,
    /// The GPU kind it is made for.
    pub kind: GpuKindId,
    /// GPUs one replica holds, all in one island (tensor-parallel degree).
    pub gpus: u32,
    /// Memory held on each of them: weights, cache and workspace.
    pub memory_per_gpu: Bytes,
    /// From the decision to the first token served. A prior until learned.
    pub cold_start: Span,
    /// How fast it is.
    pub speed: SpeedProfile,
}

/// How fast a variant is on its GPU kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SpeedProfile {
    /// Requests per second of one replica at the service target, given outright.
    RequestsPerS(f64),
    /// Linear step times: `decode step = alpha + beta * batch`, `prefill = gamma + delta * uncached prompt tokens`, all in milliseconds.
    Linear {
        /// ms a decode step takes whatever the batch.
        alpha_ms: f64,
        /// ms each further sequence adds to it.
        beta_ms: f64,
        /// ms a prefill takes whatever its length.
        gamma_ms: f64,
        /// ms each uncached prompt token adds to it.
        delta_ms: f64,
        /// Largest batch.
        max_batch: u32,
    },
}

/// The seven classes of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Someone waits for every answer.
    RealTime,
    /// Throughput within hours.
    Batch,
    /// Days to weeks on the largest GPUs.
    Training,
    /// Hours; someone waits for the result.
    FineTuning,
    /// Peak memory, briefly.
    Quantisation,
    /// Throughput on small GPUs.
    Embedding,
    /// As the model tested.
    Evaluation,
}

/// What a class implies unless a workload says otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClassDefaults {
    /// Order in which shortage is borne: lower is served first.
    pub priority: u32,
    /// May be stopped to make room (and only with a checkpoint interval).
    pub preemptible: bool,
    /// Time between checkpoints, when the class usually writes them.
    pub checkpoint: Option<Span>,
    /// Money a useful GPU-hour is worth, as a multiple of the fleet's mean price per GPU-hour.
    pub value_per_price: f64,
    /// Money an hour of lateness costs per GPU of the gang, in the same multiple.
    pub lateness_per_price: f64,
    /// Time to load and resume.
    pub startup: Span,
}

impl Class {
    /// All of them, in the order of the design.
    pub const ALL: [Self; 7] = [Self::RealTime, Self::Batch, Self::Training, Self::FineTuning, Self::Quantisation, Self::Embedding, Self::Evaluation];

    /// Its name as written in configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RealTime => "real-time",
            Self::Batch => "batch",
            Self::Training => "training",
            Self::FineTuning => "fine-tuning",
            Self::Quantisation => "quantisation",
            Self::Embedding => "embedding",
            Self::Evaluation => "evaluation",
        }
    }

    /// Whether what it does cannot wait, for the accounting of useful hours.
    #[must_use]
    pub fn cannot_wait(self) -> bool {
        self == Self::RealTime
    }

    /// What the class implies. The multiples are ours: they order the classes as the design does (real time first, fine-tuning before
    /// training since someone waits) and are meant to be overridden by money where the user knows it.
    #[must_use]
    pub fn defaults(self) -> ClassDefaults {
        let (priority, preemptible, checkpoint, value_per_price, lateness_per_price, startup) = match self {
            Self::RealTime => (0, false, None, 4.0, 40.0, 0),
            Self::FineTuning => (1, true, Some(1_800), 1.8, 3.0, 180),
            Self::Quantisation => (2, false, None, 1.5, 1.5, 120),
            Self::Evaluation => (2, true, Some(900), 1.4, 1.5, 120),
            Self::Training => (3, true, Some(3_600), 1.6, 1.0, 300),
            Self::Batch => (4, true, Some(900), 1.2, 1.0, 180),
            Self::Embedding => (5, true, Some(300), 1.1, 0.5, 60),
        };
        ClassDefaults { priority, preemptible, checkpoint: checkpoint.map(Span), value_per_price, lateness_per_price, startup: Span(startup) }
    }
}

/// What asks for compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// Its name.
    pub id: WorkloadId,
    /// Its class.
    pub class: Class,
    /// Who it is for.
    pub tenant: Option<String>,
    /// Order in which shortage is borne: lower is served first.
    pub priority: u32,
    /// A demand per second, or an amount of work.
    pub kind: WorkloadKind,
}

impl Workload {
    /// The service, when it is one.
    #[must_use]
    pub fn service(&self) -> Option<&Service> {
        match &self.kind {
            WorkloadKind::Service(service) => Some(service),
            WorkloadKind::Job(_) => None,
        }
    }

    /// The job, when it is one.
    #[must_use]
    pub fn job(&self) -> Option<&Job> {
        match &self.kind {
            WorkloadKind::Job(job) => Some(job),
            WorkloadKind::Service(_) => None,
        }
    }
}

/// A demand per second, or an amount of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// A demand per second with a service target.
    Service(Service),
    /// An amount of work with a deadline.
    Job(Job),
}

/// What a service promises its users.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyTarget {
    /// Time to first token, queueing included, seconds.
    pub ttft_s: f64,
    /// Time per output token, seconds, where promised.
    pub tpot_s: Option<f64>,
    /// Share of requests that must meet both, such as 0.99.
    pub share: f64,
}

/// A demand per second with a service target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Service {
    /// Variants that may serve it, best first.
    pub variants: Vec<VariantId>,
    /// What it promises.
    pub target: LatencyTarget,
    /// Replicas kept whatever the demand.
    pub min_replicas: u32,
    /// Replicas never exceeded.
    pub max_replicas: u32,
    /// Money a request costs that is not served in time. `None`: unknown, so shortage is borne in order of priority.
    pub penalty_per_request: Option<f64>,
    /// Quantile of load that is planned for; `None`: from money (newsvendor).
    pub level: Option<f64>,
    /// Time zone of its users, for calendars.
    pub zone: String,
    /// Idle time after which replicas above the minimum may go.
    pub stabilisation: Span,
    /// Tokens per request to assume until some were observed: (input, output).
    pub tokens_prior: (f64, f64),
}

/// An amount of work with a deadline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Job {
    /// Time the whole gang needs at speed 1.
    pub work: Span,
    /// GPUs that run together, all in one island.
    pub gang: u32,
    /// Memory held on each of them.
    pub memory_per_gpu: Bytes,
    /// Speed by GPU kind; kinds not named cannot run it.
    pub speed: BTreeMap<GpuKindId, f64>,
    /// Not before.
    pub release: Timestamp,
    /// Wanted by.
    pub deadline: Option<Timestamp>,
    /// Time between checkpoints. `None`: never preempted.
    pub checkpoint: Option<Span>,
    /// May be stopped to make room.
    pub preemptible: bool,
    /// Money a useful GPU-hour of it is worth.
    pub value_per_gpu_hour: f64,
    /// Money an hour of lateness costs.
    pub lateness_per_hour: f64,
    /// Time to load and resume, during which no progress is made.
    pub startup: Span,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_keep_the_order_of_the_design() {
        assert_eq!(Class::ALL.len(), 7);
        assert!(Class::ALL.iter().all(|c| c.cannot_wait() == (c.defaults().priority == 0)));
        // A class without checkpoints is never preempted.
        assert!(Class::ALL.iter().map(|c| c.defaults()).all(|d| d.checkpoint.is_some() == d.preemptible));
        assert!(Class::ALL.iter().all(|c| serde_json::to_value(c).unwrap() == c.name()));
    }
}
