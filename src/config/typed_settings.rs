//! The first stage, settings: store, policy, publication.

use crate::written::{At, WrittenLatency, WrittenSize, WrittenSpan};
use schemars::JsonSchema;
use serde::Deserialize;

/// The history.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Store {
    /// File of the embedded store. Default: .turnaround/store.sqlite.
    pub(crate) path: Option<At<String>>,
    /// Time readings are kept as they came. Default: 7d.
    pub(crate) retention_raw: Option<At<WrittenSpan>>,
    /// Time readings are kept by the minute. Default: 30d.
    pub(crate) retention_1m: Option<At<WrittenSpan>>,
    /// Time readings are kept by the hour. Default: 400d.
    pub(crate) retention_1h: Option<At<WrittenSpan>>,
    /// Time windows of demand, outcomes and plans are kept. Default: 400d.
    pub(crate) retention_windows: Option<At<WrittenSpan>>,
    /// An `InfluxDB` 2 that keeps the history instead of the file.
    pub(crate) influxdb: Option<At<InfluxStore>>,
}

/// An `InfluxDB` 2 that keeps the history.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InfluxStore {
    /// Its address.
    pub(crate) url: At<String>,
    /// The organisation, by name.
    pub(crate) org: At<String>,
    /// What the names of its buckets begin with. Default: turnaround.
    pub(crate) prefix: Option<At<String>>,
    /// File that holds the token. The token itself never stands in this file; it is read again when it is refused.
    pub(crate) token_file: Option<At<String>>,
    /// Environment variable that holds the token.
    pub(crate) token_env: Option<At<String>>,
    /// Certificates (PEM) trusted beside those of the system.
    pub(crate) ca_file: Option<At<String>>,
    /// File that keeps what could not be written yet. Default: .turnaround/queue.
    pub(crate) queue: Option<At<String>>,
    /// Largest size of that file. Beyond it the oldest readings are kept only by the hour. Default: 1GiB.
    pub(crate) queue_size: Option<At<WrittenSize>>,
    /// Points written at once, at most. Default: 5000.
    pub(crate) batch_points: Option<At<i64>>,
    /// Time a point waits for others, at most. Default: 1s.
    pub(crate) batch_age: Option<At<WrittenLatency>>,
    /// Time after which a request is given up. Default: 10s.
    pub(crate) timeout: Option<At<WrittenLatency>>,
}

/// How plans are made.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Policy {
    /// Time between two cycles. Default: 5m.
    pub(crate) interval: Option<At<WrittenSpan>>,
    /// How far ahead a plan looks. Default: 24h.
    pub(crate) horizon: Option<At<WrittenSpan>>,
    /// Plans say what would be done and ask nobody to act. Default: true.
    pub(crate) advisory: Option<bool>,
    /// Relative gap to the best possible at which the search may stop. Default: 0.01.
    pub(crate) mip_gap: Option<At<f64>>,
    /// Nodes of the search after which it stops: the limit that is the same on every host. Default: 2000.
    pub(crate) nodes_max: Option<At<i64>>,
    /// Time after which the search is cut short, and its plan marked as not reproducible. Default: 60s.
    pub(crate) watchdog: Option<At<WrittenSpan>>,
    /// Time after which the process that computes is killed. Default: 120s.
    pub(crate) worker_deadline: Option<At<WrittenSpan>>,
    /// Time a plan stays valid. Default: three intervals.
    pub(crate) validity: Option<At<WrittenSpan>>,
    /// Replicas that may be stopped by one plan. Default: any number.
    pub(crate) stops_max: Option<At<i64>>,
    /// A start costs the GPU time of its cold start times this. Default: 1.
    pub(crate) start_cost: Option<At<f64>>,
    /// A stop costs this many hours of the GPUs it frees. Default: 0.02.
    pub(crate) stop_cost_hours: Option<At<f64>>,
    /// Nothing is learned any more. Default: false.
    pub(crate) learning_frozen: Option<bool>,
    /// Services may shrink below what runs before a full day was seen. Default: false.
    pub(crate) shrink_before_season: Option<bool>,
    /// Share by which a job's value falls for every hour it is put off. Default: 0.002.
    pub(crate) delay_per_hour: Option<At<f64>>,
    /// Time without an answer after which an endpoint counts as silent. Default: 3m.
    pub(crate) silent_after: Option<At<WrittenSpan>>,
    /// History used for forecasts. Default: 42d.
    pub(crate) history: Option<At<WrittenSpan>>,
}

/// Where plans go.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Publish {
    /// The plan in force, as JSON. Default: plan.json.
    pub(crate) plan_file: Option<At<String>>,
    /// Address of the HTTP interface. Default: 127.0.0.1:9464.
    pub(crate) listen: Option<At<String>>,
    /// Other hosts may reach it. Default: false.
    pub(crate) allow_remote: Option<bool>,
}
