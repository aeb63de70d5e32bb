//! Observations: what was read, where, and when. Missing is never zero, and a number that is not finite never gets in.

use crate::{GpuId, MemberId, ReplicaId, TargetId, Timestamp, VariantId, WorkloadId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a signal behaves over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// Grows until its process restarts; only differences mean anything.
    Counter,
    /// A level now.
    Gauge,
    /// Cumulative counts by upper bound, with their sum.
    Histogram,
}

/// How the values of a target's members (engines of a data-parallel server, GPUs of a node) become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Join {
    /// Loads and totals add up; histograms add up by bucket.
    Sum,
    /// Mean of shares.
    Mean,
    /// Largest of levels.
    Max,
}

/// The canonical signals the house plans with, whatever an engine calls them. The unit stands in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Requests in the running batch. (requests)
    RequestsRunning,
    /// Requests waiting for room in it. (requests)
    RequestsWaiting,
    /// Sequences that finished, whatever the reason. An engine counts each sequence of a request that asks for several. (requests)
    RequestsFinished,
    /// Requests taken in by a router or server, whatever became of them. (requests)
    RequestsReceived,
    /// Requests turned away for want of a backend or of room. (requests)
    RequestsRefused,
    /// Sequences asked for by one request: the sum counts sequences, the count requests. (sequences)
    SequencesPerRequest,
    /// Prompt tokens processed, those found in the prefix cache included. (tokens)
    PromptTokens,
    /// Tokens generated. (tokens)
    GenerationTokens,
    /// Prompt tokens looked up in the prefix cache. (tokens)
    PrefixQueries,
    /// Prompt tokens found there. (tokens)
    PrefixHits,
    /// Prefix-cache hit rate where an engine reports only that. (ratio)
    PrefixHitRate,
    /// Mean KV-cache use over the engines of a target. (ratio)
    KvUsageMean,
    /// Highest KV-cache use among the engines of a target. (ratio)
    KvUsageMax,
    /// Requests preempted by the engine. (events)
    Preemptions,
    /// Time to first token, queueing included. (seconds)
    TimeToFirstToken,
    /// Time between two tokens. (seconds)
    InterTokenLatency,
    /// Time from arrival to last token. (seconds)
    EndToEnd,
    /// Time spent waiting. (seconds)
    QueueTime,
    /// How long the server says its own start took. (seconds)
    StartupTime,
    /// Share of time a kernel ran on the GPU. Means nothing on a GPU that is split. (ratio)
    GpuUtilisation,
    /// Share of time the graphics or compute engine was active. Holds for slices, too. (ratio)
    GpuEngineActive,
    /// Share of cycles the tensor cores were active. (ratio)
    GpuTensorActive,
    /// Share of cycles the device memory was sending or receiving. (ratio)
    GpuMemoryActive,
    /// GPU memory in use. (bytes)
    GpuMemoryUsed,
    /// GPU memory free. (bytes)
    GpuMemoryFree,
    /// GPU memory built in. (bytes)
    GpuMemoryTotal,
    /// Power drawn. (watts)
    GpuPower,
    /// Energy drawn. (joules)
    GpuEnergy,
    /// Temperature of the GPU. (celsius)
    GpuTemperature,
    /// Processes computing on the GPU. (processes)
    GpuProcesses,
    /// Last XID code the driver reported. History, not state: it stays after the GPU has recovered. (code)
    GpuXid,
    /// Memory errors that could not be corrected. (events)
    GpuEccUncorrected,
    /// 1 when a faulty memory row could not be replaced. (flag)
    GpuRowRemapFailed,
    /// 1 while heat or the power brake holds the clocks down. (flag)
    GpuThrottled,
    /// When the node, or the process where a page tells only that, started, in seconds since the epoch. (seconds)
    BootTime,
}

impl Signal {
    /// Every signal, in order.
    pub const ALL: [Self; 35] = [
        Self::RequestsRunning,
        Self::RequestsWaiting,
        Self::RequestsFinished,
        Self::RequestsReceived,
        Self::RequestsRefused,
        Self::SequencesPerRequest,
        Self::PromptTokens,
        Self::GenerationTokens,
        Self::PrefixQueries,
        Self::PrefixHits,
        Self::PrefixHitRate,
        Self::KvUsageMean,
        Self::KvUsageMax,
        Self::Preemptions,
        Self::TimeToFirstToken,
        Self::InterTokenLatency,
        Self::EndToEnd,
        Self::QueueTime,
        Self::StartupTime,
        Self::GpuUtilisation,
        Self::GpuEngineActive,
        Self::GpuTensorActive,
        Self::GpuMemoryActive,
        Self::GpuMemoryUsed,
        Self::GpuMemoryFree,
        Self::GpuMemoryTotal,
        Self::GpuPower,
        Self::GpuEnergy,
        Self::GpuTemperature,
        Self::GpuProcesses,
        Self::GpuXid,
        Self::GpuEccUncorrected,
        Self::GpuRowRemapFailed,
        Self::GpuThrottled,
        Self::BootTime,
    ];

    /// How the signal behaves over time.
    #[must_use]
    pub fn kind(self) -> SignalKind {
        match self {
            Self::RequestsRunning
            | Self::RequestsWaiting
            | Self::PrefixHitRate
            | Self::KvUsageMean
            | Self::KvUsageMax
            | Self::StartupTime
            | Self::GpuUtilisation
            | Self::GpuEngineActive
            | Self::GpuTensorActive
            | Self::GpuMemoryActive
            | Self::GpuMemoryUsed
            | Self::GpuMemoryFree
            | Self::GpuMemoryTotal
            | Self::GpuPower
            | Self::GpuTemperature
            | Self::GpuProcesses
            | Self::GpuXid
            | Self::GpuRowRemapFailed
            | Self::GpuThrottled
            | Self::BootTime => SignalKind::Gauge,
            Self::RequestsFinished
            | Self::RequestsReceived
            | Self::RequestsRefused
            | Self::PromptTokens
            | Self::GenerationTokens
            | Self::PrefixQueries
            | Self::PrefixHits
            | Self::Preemptions
            | Self::GpuEnergy
            | Self::GpuEccUncorrected => SignalKind::Counter,
            Self::SequencesPerRequest | Self::TimeToFirstToken | Self::InterTokenLatency | Self::EndToEnd | Self::QueueTime => SignalKind::Histogram,
        }
    }

    /// Base unit, in the spelling metric names use.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::RequestsRunning | Self::RequestsWaiting | Self::RequestsFinished | Self::RequestsReceived | Self::RequestsRefused => "requests",
            Self::SequencesPerRequest => "sequences",
            Self::PromptTokens | Self::GenerationTokens | Self::PrefixQueries | Self::PrefixHits => "tokens",
            Self::PrefixHitRate
            | Self::KvUsageMean
            | Self::KvUsageMax
            | Self::GpuUtilisation
            | Self::GpuEngineActive
            | Self::GpuTensorActive
            | Self::GpuMemoryActive => "ratio",
            Self::Preemptions | Self::GpuEccUncorrected => "events",
            Self::TimeToFirstToken | Self::InterTokenLatency | Self::EndToEnd | Self::QueueTime | Self::StartupTime | Self::BootTime => "seconds",
            Self::GpuMemoryUsed | Self::GpuMemoryFree | Self::GpuMemoryTotal => "bytes",
            Self::GpuPower => "watts",
            Self::GpuEnergy => "joules",
            Self::GpuTemperature => "celsius",
            Self::GpuProcesses => "processes",
            Self::GpuXid => "code",
            Self::GpuRowRemapFailed | Self::GpuThrottled => "flag",
        }
    }

    /// How the members of a target become one value.
    #[must_use]
    pub fn join(self) -> Join {
        match self {
            Self::RequestsRunning
            | Self::RequestsWaiting
            | Self::RequestsFinished
            | Self::RequestsReceived
            | Self::RequestsRefused
            | Self::SequencesPerRequest
            | Self::PromptTokens
            | Self::GenerationTokens
            | Self::PrefixQueries
            | Self::PrefixHits
            | Self::Preemptions
            | Self::TimeToFirstToken
            | Self::InterTokenLatency
            | Self::EndToEnd
            | Self::QueueTime
            | Self::GpuMemoryUsed
            | Self::GpuMemoryFree
            | Self::GpuMemoryTotal
            | Self::GpuPower
            | Self::GpuEnergy
            | Self::GpuProcesses
            | Self::GpuEccUncorrected => Join::Sum,
            Self::PrefixHitRate | Self::KvUsageMean | Self::GpuUtilisation | Self::GpuEngineActive | Self::GpuTensorActive | Self::GpuMemoryActive => {
                Join::Mean
            }
            Self::KvUsageMax | Self::StartupTime | Self::GpuTemperature | Self::GpuXid | Self::GpuRowRemapFailed | Self::GpuThrottled | Self::BootTime => {
                Join::Max
            }
        }
    }

    /// Whether it tells of a GPU, not of a server.
    #[must_use]
    pub fn of_gpu(self) -> bool {
        (Self::GpuUtilisation..=Self::GpuThrottled).contains(&self)
    }

    /// The name used in the store, in JSON and in messages.
    #[must_use]
    pub fn name(self) -> String {
        serde_json::to_value(self).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// A cumulative histogram as Prometheus has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
pub struct Histogram {
    /// Sum of all values seen, in the unit of the signal.
    pub sum: f64,
    /// Number of values seen.
    pub count: f64,
    /// (upper bound, values at or below it), bounds ascending, `+Inf` left out (it equals `count`).
    pub buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Adds another one by bucket. Only bounds both have are kept, so that each bucket stays a count over both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let buckets = self.buckets.iter().filter_map(|(bound, count)| {
            let (_, more) = other.buckets.iter().find(|(theirs, _)| theirs.total_cmp(bound).is_eq())?;
            Some((*bound, count + more))
        });
        Self { sum: self.sum + other.sum, count: self.count + other.count, buckets: buckets.collect() }
    }
}

/// One value of one signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    /// Gauge, or counter total.
    Scalar(f64),
    /// Histogram totals.
    Histogram(Histogram),
}

/// One signal of one target at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// What was read.
    pub signal: Signal,
    /// The member of the target it belongs to, where the page tells several apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// Its value: finite, never a stand-in for "missing".
    pub value: Reading,
}

impl Sample {
    /// A value of the target as a whole.
    #[must_use]
    pub fn of_target(signal: Signal, value: Reading) -> Self {
        Self { signal, member: None, value }
    }
}

/// What answered, as far as its page tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    /// Engine or exporter, by the name of its table (`vllm`, `dcgm`).
    pub engine: String,
    /// Its version, where the page says it.
    pub version: Option<String>,
    /// Models it serves, in order.
    pub models: Vec<String>,
}

/// One GPU, or one slice of a GPU, that a page tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// The member whose samples are its.
    pub member: MemberId,
    /// UUID, of the whole GPU.
    pub uuid: Option<String>,
    /// Its host, as the page names it.
    pub node: Option<String>,
    /// Position on the host.
    pub index: Option<u32>,
    /// Product name.
    pub product: Option<String>,
    /// The slice, where the GPU is split.
    pub mig: Option<MigSlice>,
    /// Who runs on it.
    pub holder: Option<Holder>,
}

/// A slice of a GPU that is split.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct MigSlice {
    /// Its shape, such as `1g.12gb`.
    pub profile: String,
    /// Its number on the GPU.
    pub instance: String,
}

/// Who a page says runs on a device: the workload, never the exporter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// The pod.
    pub pod: String,
    /// Its container.
    pub container: Option<String>,
}

/// A line of a page that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedSample {
    /// Name as the page has it.
    pub metric: String,
    /// Why it was skipped.
    pub reason: String,
}

/// How a scrape went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrapeStatus {
    /// The page was read; some samples may have been skipped.
    Ok,
    /// Nothing is known of this target for this instant.
    Failed(String),
}

/// One look at one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scrape {
    /// Where.
    pub target: TargetId,
    /// When, by our clock.
    pub at: Timestamp,
    /// How it went.
    pub status: ScrapeStatus,
    /// What answered.
    #[serde(default)]
    pub server: Option<Server>,
    /// The GPUs it tells of, in order of member.
    #[serde(default)]
    pub devices: Vec<Device>,
    /// What was read: each signal of each member once.
    pub samples: Vec<Sample>,
    /// What was left out.
    pub skipped: Vec<SkippedSample>,
}

impl Scrape {
    /// A look that saw nothing.
    #[must_use]
    pub fn failed(target: TargetId, at: Timestamp, reason: impl Into<String>) -> Self {
        Self { status: ScrapeStatus::Failed(reason.into()), ..Self::read(target, at, Vec::new()) }
    }

    /// A look that saw these samples and nothing else.
    #[must_use]
    pub fn read(target: TargetId, at: Timestamp, samples: Vec<Sample>) -> Self {
        Self { target, at, status: ScrapeStatus::Ok, server: None, devices: Vec::new(), samples, skipped: Vec::new() }
    }

    /// Whether the page was read.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status == ScrapeStatus::Ok
    }

    /// The values of a signal by member.
    pub fn members(&self, signal: Signal) -> impl Iterator<Item = (Option<&MemberId>, &Reading)> {
        self.samples.iter().filter(move |s| s.signal == signal).map(|s| (s.member.as_ref(), &s.value))
    }

    /// Gauge or counter total of a signal, joined over the members.
    #[must_use]
    pub fn scalar(&self, signal: Signal) -> Option<f64> {
        let values = self.members(signal).filter_map(|(_, value)| match value {
            Reading::Scalar(v) => Some(*v),
            Reading::Histogram(_) => None,
        });
        let (count, sum, max) = values.fold((0.0, 0.0, f64::NEG_INFINITY), |(n, sum, max), v| (n + 1.0, sum + v, f64::max(max, v)));
        (count > 0.0).then_some(match signal.join() {
            Join::Sum => sum,
            Join::Mean => sum / count,
            Join::Max => max,
        })
    }

    /// Histogram totals of a signal, added up over the members.
    #[must_use]
    pub fn histogram(&self, signal: Signal) -> Option<Histogram> {
        let parts = self.members(signal).filter_map(|(_, value)| match value {
            Reading::Histogram(h) => Some(h),
            Reading::Scalar(_) => None,
        });
        parts.fold(None, |sum: Option<Histogram>, part| Some(sum.map_or_else(|| part.clone(), |sum| sum.plus(part))))
    }

    /// One observation a number, for the store. Of a histogram these are its sum and count: its buckets, five times as many numbers as all the
    /// rest, are used while they are at hand (the share of first tokens in time stands in each [`crate::WorkloadWindow`]) and not kept.
    #[must_use]
    pub fn observations(&self, received: Timestamp) -> Vec<Observation> {
        let mut out = Vec::new();
        for sample in &self.samples {
            let mut push = |part: Option<String>, value: f64| {
                let (source, member) = (self.target.clone(), sample.member.clone());
                out.push(Observation { source, member, signal: sample.signal, part, value, observed: self.at, received });
            };
            match &sample.value {
                Reading::Scalar(value) => push(None, *value),
                Reading::Histogram(h) => {
                    push(Some("sum".into()), h.sum);
                    push(Some("count".into()), h.count);
                }
            }
        }
        out
    }
}

/// One number of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Observation {
    /// The target it was read from.
    pub source: TargetId,
    /// The member of the target, where several were told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberId>,
    /// What it is.
    pub signal: Signal,
    /// Part of a histogram (`sum`, `count`, `le=0.5`), or nothing.
    pub part: Option<String>,
    /// The value in the signal's unit.
    pub value: f64,
    /// When it was true.
    pub observed: Timestamp,
    /// When we learned it.
    pub received: Timestamp,
}

/// What a scraped endpoint stands for: a replica of a service, or a router in front of its replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Its name.
    pub id: TargetId,
    /// The workload whose traffic it shows.
    pub workload: WorkloadId,
    /// The variant that runs there. `None`: a router or gateway in front of replicas.
    pub variant: Option<VariantId>,
    /// The replica, where one of our plans started it.
    pub replica: Option<ReplicaId>,
    /// The GPUs it holds, where known.
    pub gpus: Vec<GpuId>,
    /// Its pod, where known: a GPU that a page says the pod holds is its.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
}
