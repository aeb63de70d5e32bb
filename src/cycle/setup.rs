//! What the loop is set up with: the resolved configuration, as values.

use fleet::{Fleet, NodeId, Span, Timestamp, Variant, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Everything that does not change while the loop runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setup {
    /// Nodes, GPUs, pools, prices.
    pub fleet: Fleet,
    /// Variants, in order of id.
    pub variants: Vec<Variant>,
    /// Services and jobs, in order of id.
    pub workloads: Vec<Workload>,
    /// Limits and habits.
    pub policy: LoopPolicy,
    /// Nodes whose GPUs count as free when nothing reports on them. On all others they are not ours to use.
    pub unobserved_free: BTreeSet<NodeId>,
}

/// Limits and habits of the loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopPolicy {
    /// Time between two cycles.
    pub interval: Span,
    /// How far ahead a plan looks.
    pub horizon: Span,
    /// Length of the windows readings are joined in.
    pub window: Span,
    /// Plans are what we would do, not requests.
    pub advisory: bool,
    /// Relative gap at which the search may stop.
    pub mip_gap: f64,
    /// Nodes after which the search stops.
    pub nodes_max: u32,
    /// Wall-clock watchdog of the search.
    pub watchdog: Span,
    /// Time a plan stays valid.
    pub validity: Span,
    /// Replicas that may be stopped in the committed part of one plan.
    pub stops_max: Option<u32>,
    /// Share by which a job's value falls for every hour it is put off.
    pub delay_per_hour: f64,
    /// A start costs the GPU time of its cold start times this.
    pub start_cost_factor: f64,
    /// A stop costs this many hours of the GPUs it frees.
    pub stop_cost_hours: f64,
    /// Nothing is learned any more.
    pub learning_frozen: bool,
    /// Services may shrink below what runs before a full day was seen.
    pub shrink_before_season: bool,
    /// A target that has not answered for this long is silent.
    pub silent_after: Span,
    /// History kept for forecasting.
    pub history: Span,
    /// Start of learning: calibrations made before are priors.
    pub started_at: Timestamp,
}

impl Default for LoopPolicy {
    fn default() -> Self {
        Self {
            interval: Span::minutes(5),
            horizon: Span::hours(24),
            window: Span::minutes(5),
            advisory: true,
            mip_gap: 0.01,
            nodes_max: 2_000,
            watchdog: Span(60),
            validity: Span::minutes(15),
            stops_max: None,
            delay_per_hour: 0.002,
            start_cost_factor: 1.0,
            stop_cost_hours: 0.02,
            learning_frozen: false,
            shrink_before_season: false,
            silent_after: Span::minutes(3),
            history: Span(42 * 86_400),
            started_at: Timestamp(0),
        }
    }
}
