//! Observations: what was read, where, and when. Missing is never zero, and a number that is not finite never gets in.

use crate::{GpuId, ReplicaId, TargetId, Timestamp, VariantId, WorkloadId};
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

/// The canonical signals the house plans with, whatever an engine calls them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Requests in the running batch (requests; engines of one target summed).
    RequestsRunning,
    /// Requests waiting (requests; summed).
    RequestsWaiting,
    /// Requests that finished, whatever the reason (requests).
    RequestsFinished,
    /// Prompt tokens processed (tokens).
    PromptTokens,
    /// Tokens generated (tokens).
    GenerationTokens,
    /// Prompt tokens looked up in the prefix cache (tokens).
    PrefixQueries,
    /// Prompt tokens found there (tokens).
    PrefixHits,
    /// Prefix-cache hit rate where an old engine reports only that (share).
    PrefixHitRate,
    /// Mean KV-cache use over the engines of a target (share).
    KvUsageMean,
    /// Highest KV-cache use among the engines of a target (share).
    KvUsageMax,
    /// Requests preempted by the engine (events).
    Preemptions,
    /// Time to first token (seconds), queueing included.
    TimeToFirstToken,
    /// Time between two tokens (seconds).
    InterTokenLatency,
    /// Time from arrival to last token (seconds).
    EndToEnd,
    /// Time spent waiting (seconds).
    QueueTime,
    /// Share of time a kernel ran on the GPU (share).
    GpuUtilisation,
    /// GPU memory in use (bytes).
    GpuMemoryUsed,
    /// GPU memory built in (bytes).
    GpuMemoryTotal,
    /// Power drawn (watts).
    GpuPower,
    /// Processes computing on the GPU (processes).
    GpuProcesses,
}

impl Signal {
    /// How the signal behaves over time.
    #[must_use]
    pub fn kind(self) -> SignalKind {
        match self {
            Self::RequestsFinished | Self::PromptTokens | Self::GenerationTokens | Self::PrefixQueries | Self::PrefixHits | Self::Preemptions => {
                SignalKind::Counter
            }
            Self::TimeToFirstToken | Self::InterTokenLatency | Self::EndToEnd | Self::QueueTime => SignalKind::Histogram,
            Self::RequestsRunning
            | Self::RequestsWaiting
            | Self::PrefixHitRate
            | Self::KvUsageMean
            | Self::KvUsageMax
            | Self::GpuUtilisation
            | Self::GpuMemoryUsed
            | Self::GpuMemoryTotal
            | Self::GpuPower
            | Self::GpuProcesses => SignalKind::Gauge,
        }
    }

    /// Base unit, in the spelling metric names use.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::RequestsRunning | Self::RequestsWaiting | Self::RequestsFinished => "requests",
            Self::PromptTokens | Self::GenerationTokens | Self::PrefixQueries | Self::PrefixHits => "tokens",
            Self::PrefixHitRate | Self::KvUsageMean | Self::KvUsageMax | Self::GpuUtilisation => "ratio",
            Self::Preemptions => "events",
            Self::TimeToFirstToken | Self::InterTokenLatency | Self::EndToEnd | Self::QueueTime => "seconds",
            Self::GpuMemoryUsed | Self::GpuMemoryTotal => "bytes",
            Self::GpuPower => "watts",
            Self::GpuProcesses => "processes",
        }
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
    /// Its value: finite, never a stand-in for "missing".
    pub value: Reading,
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
    /// What was read, each signal once (engines of one target already joined).
    pub samples: Vec<Sample>,
    /// What was left out.
    pub skipped: Vec<SkippedSample>,
}

impl Scrape {
    /// A look that saw nothing.
    #[must_use]
    pub fn failed(target: TargetId, at: Timestamp, reason: impl Into<String>) -> Self {
        Self { target, at, status: ScrapeStatus::Failed(reason.into()), samples: Vec::new(), skipped: Vec::new() }
    }

    /// Whether the page was read.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status == ScrapeStatus::Ok
    }

    /// Gauge or counter total of a signal.
    #[must_use]
    pub fn scalar(&self, signal: Signal) -> Option<f64> {
        self.samples.iter().find_map(|s| match &s.value {
            Reading::Scalar(v) if s.signal == signal => Some(*v),
            _ => None,
        })
    }

    /// Histogram totals of a signal.
    #[must_use]
    pub fn histogram(&self, signal: Signal) -> Option<&Histogram> {
        self.samples.iter().find_map(|s| match &s.value {
            Reading::Histogram(h) if s.signal == signal => Some(h),
            _ => None,
        })
    }

    /// One observation a number, for the store.
    #[must_use]
    pub fn observations(&self, received: Timestamp) -> Vec<Observation> {
        let mut out = Vec::new();
        for sample in &self.samples {
            let mut push = |part: Option<String>, value: f64| {
                out.push(Observation { source: self.target.clone(), signal: sample.signal, part, value, observed: self.at, received });
            };
            match &sample.value {
                Reading::Scalar(value) => push(None, *value),
                Reading::Histogram(h) => {
                    push(Some("sum".into()), h.sum);
                    push(Some("count".into()), h.count);
                    for (bound, count) in &h.buckets {
                        push(Some(format!("le={bound}")), *count);
                    }
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

/// What a scraped endpoint stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// Its name.
    pub id: TargetId,
    /// The workload whose traffic it shows.
    pub workload: WorkloadId,
    /// The variant that runs there.
    pub variant: VariantId,
    /// The replica, where one of our plans started it.
    pub replica: Option<ReplicaId>,
    /// The GPUs it holds, where known.
    pub gpus: Vec<GpuId>,
}
