//! The first stage: keys and shapes as they are typed. The comments here become the descriptions of the JSON Schema.
//!
//! No `flatten` and no tagged tables: both lose the position of what is wrong.

use crate::{
    typed_settings::{Policy, Publish, Store},
    typed_sources::Sources,
    written::{At, OneOrMany, WrittenInstant, WrittenLatency, WrittenSize, WrittenSpan},
};
use fleet::EngineTable;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `turnaround.toml`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// Currency of every price in this file, as its three-letter code. Default: EUR.
    pub(crate) currency: Option<At<String>>,
    /// Time zone of users, where a service does not name its own. Default: UTC.
    pub(crate) zone: Option<At<String>>,
    /// GPU kinds beside the presets, or other figures for a preset.
    #[serde(default)]
    pub(crate) gpu_kind: Vec<At<GpuKind>>,
    /// GPUs by pool: interchangeable ones, of one kind and price.
    #[serde(default)]
    pub(crate) pool: Vec<At<Pool>>,
    /// Models beside the presets.
    #[serde(default)]
    pub(crate) model: Vec<At<Model>>,
    /// Variants of models. A model with variants of its own does not use its presets.
    #[serde(default)]
    pub(crate) variant: Vec<At<Variant>>,
    /// Work that arrives per second and has a service target.
    #[serde(default)]
    pub(crate) service: Vec<At<Service>>,
    /// Work of a known amount, with a deadline or without.
    #[serde(default)]
    pub(crate) job: Vec<At<Job>>,
    /// Where readings come from.
    #[serde(default)]
    pub(crate) source: Sources,
    /// Serving engines and exporters beside those known, or other names for one of them.
    #[serde(default)]
    pub(crate) engine: Vec<At<EngineTable>>,
    /// The history on disk.
    #[serde(default)]
    pub(crate) store: Store,
    /// How plans are made.
    #[serde(default)]
    pub(crate) policy: Policy,
    /// Where plans go.
    #[serde(default)]
    pub(crate) publish: Publish,
}

/// A GPU kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuKind {
    /// Its name.
    pub(crate) name: At<String>,
    /// Memory that programs can use, as `nvidia-smi` reports it: "46068MiB".
    pub(crate) memory: At<WrittenSize>,
}

/// Interchangeable GPUs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pool {
    /// Its name. Default: the GPU kind in lower case.
    pub(crate) name: Option<At<String>>,
    /// Nodes, as a range "gpu[001-038]" or a list of ranges.
    pub(crate) nodes: At<OneOrMany>,
    /// GPU kind: a preset such as "H100-80GB" or the name of a `[[gpu_kind]]`.
    pub(crate) kind: At<String>,
    /// GPUs of each node.
    pub(crate) gpus_per_node: At<i64>,
    /// GPUs joined by fast links; work on several GPUs stays within them. Default: all of a node.
    pub(crate) island: Option<At<i64>>,
    /// Money per GPU and hour, in the currency of the file: of the calendar when owned, of use when rented. Left out: unknown, and work is ordered by
    /// priority and deadline.
    pub(crate) price: Option<At<f64>>,
    /// Owned (costs every hour) or rented (costs while held). Default: true.
    pub(crate) owned: Option<bool>,
    /// Region and other marks.
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    /// GPU UUIDs by node, in order of index. Without them GPUs are named node/index.
    #[serde(default)]
    pub(crate) uuids: BTreeMap<String, At<Vec<At<String>>>>,
    /// GPUs that nothing reports on are "occupied" (default: not ours to use) or "free".
    pub(crate) unobserved: Option<At<String>>,
}

/// A model: what users call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// Its name.
    pub(crate) name: At<String>,
    /// Quality by task, from 0 to 1.
    #[serde(default)]
    pub(crate) quality: BTreeMap<String, At<f64>>,
}

/// A model at a precision and a tensor-parallel degree on a GPU kind.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    /// Its name.
    pub(crate) name: At<String>,
    /// The model: a preset or the name of a `[[model]]`.
    pub(crate) model: At<String>,
    /// GPU kind it runs on.
    pub(crate) kind: At<String>,
    /// GPUs of one replica (tensor-parallel degree). Default: 1.
    pub(crate) gpus: Option<At<i64>>,
    /// Memory held on each of them. Default: nine tenths, as vLLM takes.
    pub(crate) memory: Option<At<WrittenSize>>,
    /// From the decision to the first token served. Default: 2m; corrected by what is observed.
    pub(crate) cold_start: Option<At<WrittenSpan>>,
    /// Speed, outright: requests per second of one replica that still meets the target. Corrected by what is observed. Instead of the four step times.
    pub(crate) requests_per_s: Option<At<f64>>,
    /// Refused, with a word on why: demand and targets count requests.
    #[schemars(skip)]
    pub(crate) tokens_per_s: Option<At<f64>>,
    /// Speed by step times: a decode step takes alpha + beta * batch.
    pub(crate) alpha: Option<At<WrittenLatency>>,
    /// What each further sequence adds to a decode step.
    pub(crate) beta: Option<At<WrittenLatency>>,
    /// Speed by step times: a prefill takes gamma + delta * uncached prompt tokens. Default: 0ms.
    pub(crate) gamma: Option<At<WrittenLatency>>,
    /// What each uncached prompt token adds to a prefill.
    pub(crate) delta: Option<At<WrittenLatency>>,
    /// Largest batch. Default: 256.
    pub(crate) max_batch: Option<At<i64>>,
}

/// Work that arrives per second and has a service target.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Service {
    /// Its name.
    pub(crate) name: At<String>,
    /// real-time (default), batch, embedding or evaluation.
    #[schemars(with = "Option<fleet::Class>")]
    pub(crate) class: Option<At<String>>,
    /// Models that may serve it, best first: all their variants that fit the fleet.
    pub(crate) models: Option<At<OneOrMany>>,
    /// Variants that may serve it, best first. Instead of `models`.
    pub(crate) variants: Option<At<OneOrMany>>,
    /// Time to first token promised, queueing included. Default by class: real-time 2s, embedding 30s, batch and evaluation 10m.
    pub(crate) ttft: Option<At<WrittenLatency>>,
    /// Time per output token promised. Default: 100ms for real-time, none for the others.
    pub(crate) tpot: Option<At<WrittenLatency>>,
    /// Share of requests that must meet both. Default: 0.99 for real-time, 0.95 for the others.
    pub(crate) target: Option<At<f64>>,
    /// Replicas kept whatever the demand. Default: 1.
    pub(crate) min_replicas: Option<At<i64>>,
    /// Replicas never exceeded. Default: what the fleet holds.
    pub(crate) max_replicas: Option<At<i64>>,
    /// Money a request costs that is not served in time. Left out: shortage is borne in order of priority.
    pub(crate) penalty: Option<At<f64>>,
    /// Quantile of load that is planned for, between 0 and 1. Left out: it follows from money.
    pub(crate) level: Option<At<f64>>,
    /// Time zone of its users. Default: that of the file.
    pub(crate) zone: Option<At<String>>,
    /// Time without need after which replicas above the minimum may go. Default: 10m.
    pub(crate) stabilisation: Option<At<WrittenSpan>>,
    /// Prompt tokens per request to assume until some were observed. Default: 1000; embedding 500.
    pub(crate) tokens_in: Option<At<f64>>,
    /// Output tokens per request to assume until some were observed. Default: 250; embedding 1.
    pub(crate) tokens_out: Option<At<f64>>,
    /// Order in which shortage is borne: lower is served first. Default by class.
    pub(crate) priority: Option<At<i64>>,
    /// Who it is for.
    pub(crate) tenant: Option<String>,
}

/// Work of a known amount.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    /// Its name.
    pub(crate) name: At<String>,
    /// batch, training, fine-tuning, quantisation, embedding or evaluation.
    #[schemars(with = "fleet::Class")]
    pub(crate) class: At<String>,
    /// Time the whole gang needs at speed 1.
    pub(crate) work: At<WrittenSpan>,
    /// GPUs that run together, all in one island. Default: 1.
    pub(crate) gang: Option<At<i64>>,
    /// Memory held on each of them. Default: half of the smallest kind it may run on.
    pub(crate) memory: Option<At<WrittenSize>>,
    /// GPU kinds it may run on, at speed 1. Default: every kind with the memory.
    pub(crate) on: Option<At<OneOrMany>>,
    /// GPU kinds it may run on, with their speed. Instead of `on`.
    pub(crate) speed: Option<At<BTreeMap<String, At<f64>>>>,
    /// Not before. Default: at once.
    pub(crate) release: Option<At<WrittenInstant>>,
    /// Wanted by.
    pub(crate) deadline: Option<At<WrittenInstant>>,
    /// Time between its checkpoints; "never" says that it writes none, and is then never preempted. Default by class.
    pub(crate) checkpoint: Option<At<WrittenSpan>>,
    /// May be stopped to make room. Default by class.
    pub(crate) preemptible: Option<At<bool>>,
    /// Money a useful GPU-hour of it is worth. Default: by class, from the mean price of the fleet.
    pub(crate) value: Option<At<f64>>,
    /// Money an hour of lateness costs. Default: by class, from the mean price of the fleet and the gang.
    pub(crate) lateness: Option<At<f64>>,
    /// Time to load and resume. Default by class.
    pub(crate) startup: Option<At<WrittenSpan>>,
    /// Order in which shortage is borne: lower is served first. Default by class.
    pub(crate) priority: Option<At<i64>>,
    /// Who it is for.
    pub(crate) tenant: Option<String>,
    /// It runs already.
    pub(crate) running: Option<At<Running>>,
}

/// Where a job runs already.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Running {
    /// Its GPUs: "gpu001/0-3", UUIDs, or a list of both.
    pub(crate) gpus: At<OneOrMany>,
    /// Since when it holds them.
    pub(crate) since: At<WrittenInstant>,
    /// Work done before that, in gang time. Default: none.
    pub(crate) done: Option<At<WrittenSpan>>,
}
