//! The second stage: what the rest of the house works with.

use crate::{
    ConfigError,
    resolved_sources::{Access, Sources, TargetConfig},
};
use fleet::{EngineTable, Fleet, GpuId, JobId, Model, NodeId, Span, Timestamp, Variant, Workload, WorkloadId};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

/// A configuration with every name, range, preset and unit resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Nodes, GPUs, pools, prices.
    pub fleet: Fleet,
    /// Models that a workload may use, in order of id.
    pub models: Vec<Model>,
    /// Variants that a workload may use, in order of id.
    pub variants: Vec<Variant>,
    /// Services and jobs, in order of id.
    pub workloads: Vec<Workload>,
    /// Metrics pages of replicas and routers, in the order of the file.
    pub targets: Vec<TargetConfig>,
    /// Everything else readings come from.
    pub sources: Sources,
    /// Engines and exporters beside those known, in the order of the file.
    pub engines: Vec<EngineTable>,
    /// Recorded traffic to replay, in the order of the file.
    pub traces: Vec<TraceConfig>,
    /// GPUs of this host.
    pub nvml: Option<NvmlConfig>,
    /// Nodes whose GPUs count as free when nothing reports on them. GPUs of all others are then occupied.
    pub unobserved_free: BTreeSet<NodeId>,
    /// Jobs that run already, in order of id.
    pub running_jobs: Vec<RunningJob>,
    /// The history.
    pub store: StoreConfig,
    /// How plans are made.
    pub policy: Policy,
    /// Where plans go.
    pub publish: Publish,
    /// What works and is probably not meant, ordered by position.
    pub warnings: Vec<ConfigError>,
}

impl Config {
    /// Whether every GPU counts as free when nothing reports on it.
    #[must_use]
    pub fn all_unobserved_free(&self) -> bool {
        self.fleet.nodes.iter().all(|node| self.unobserved_free.contains(&node.id))
    }

    /// Relative paths, taken from `folder` from now on: that of the file they stand in.
    pub fn place(&mut self, folder: &Path) {
        let join = |path: &mut PathBuf| *path = folder.join(&*path);
        join(&mut self.store.path);
        join(&mut self.publish.plan_file);
        if let Some(influxdb) = &mut self.store.influxdb {
            join(&mut influxdb.queue);
            influxdb.access.place(folder);
        }
        for trace in &mut self.traces {
            if let TraceInput::File { path, .. } = &mut trace.input {
                join(path);
            }
        }
        self.targets.iter_mut().for_each(|target| target.access.place(folder));
        self.sources.place(folder);
    }
}

/// Recorded traffic.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceConfig {
    /// Whose traffic it is.
    pub service: WorkloadId,
    /// Where it is found.
    pub input: TraceInput,
    /// Factor on its rate.
    pub scale: f64,
}

/// Where recorded traffic is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceInput {
    /// In a file, relative to the configuration.
    File {
        /// Which.
        path: PathBuf,
        /// In what form.
        format: TraceFormat,
    },
    /// It comes with the program, under this name.
    Bundled(String),
}

/// Form of a trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceFormat {
    /// Client traces of `ServeGen`.
    ServeGen,
    /// The traces Azure published in 2023.
    AzureLlm2023,
}

/// How the GPUs of this host are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmlConfig {
    /// The management library, where it is not found by itself.
    pub library: Option<PathBuf>,
    /// Time between two looks.
    pub interval: Span,
    /// The node this host is.
    pub node: NodeId,
}

/// A job that runs already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningJob {
    /// Which.
    pub job: JobId,
    /// Where, all in one island.
    pub gpus: Vec<GpuId>,
    /// Since when it holds them.
    pub since: Timestamp,
    /// Work done before that, in gang time.
    pub done: Span,
}

/// The history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// File of the embedded store.
    pub path: PathBuf,
    /// Time readings are kept as they came.
    pub retention_raw: Span,
    /// Time readings are kept by the minute; never shorter than as they came.
    pub retention_minute: Span,
    /// Time readings are kept by the hour; never shorter than by the minute.
    pub retention_hour: Span,
    /// Time windows of demand, outcomes and plans are kept.
    pub retention_windows: Span,
    /// What keeps the history instead of the file.
    pub influxdb: Option<InfluxStoreConfig>,
}

/// An `InfluxDB` 2 that keeps the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfluxStoreConfig {
    /// Its address, without credentials.
    pub url: String,
    /// The organisation.
    pub org: String,
    /// What the names of its buckets begin with.
    pub prefix: String,
    /// Who asks (always a token), and whom to trust.
    pub access: Access,
    /// File that keeps what could not be written yet.
    pub queue: PathBuf,
    /// Largest size of that file, bytes.
    pub queue_bytes_max: u64,
    /// Points of one request, at most.
    pub batch_points_max: usize,
    /// Time a point waits for others, at most.
    pub batch_age: Duration,
    /// Longest time from a request to the last byte of its answer.
    pub timeout: Duration,
}

/// How plans are made.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Time between two cycles.
    pub interval: Span,
    /// How far ahead a plan looks.
    pub horizon: Span,
    /// Plans say what would be done and ask nobody to act.
    pub advisory: bool,
    /// Relative gap at which the search may stop.
    pub mip_gap: f64,
    /// Nodes of the search after which it stops.
    pub nodes_max: u32,
    /// Wall-clock limit of the search.
    pub watchdog: Span,
    /// Time after which the worker process is killed.
    pub worker_deadline: Span,
    /// Time a plan stays valid.
    pub validity: Span,
    /// Replicas that may be stopped by one plan.
    pub stops_max: Option<u32>,
    /// A start costs the GPU time of its cold start times this.
    pub start_cost_factor: f64,
    /// A stop costs this many hours of the GPUs it frees.
    pub stop_cost_hours: f64,
    /// Nothing is learned any more.
    pub learning_frozen: bool,
    /// Services may shrink below what runs before a full day was seen.
    pub shrink_before_season: bool,
    /// Share by which a job's value falls for every hour it is put off.
    pub delay_per_hour: f64,
    /// Time without an answer after which an endpoint counts as silent.
    pub silent_after: Span,
    /// History used for forecasts.
    pub history: Span,
}

/// Where plans go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// The plan in force, as JSON.
    pub plan_file: PathBuf,
    /// Address of the HTTP interface.
    pub listen: SocketAddr,
}
