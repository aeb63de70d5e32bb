//! The resolved configuration as what the loop is set up with.

use config::Config;
use cycle::{LoopPolicy, Setup};
use fleet::Timestamp;

/// What the loop runs with, learning from `started_at` on.
#[must_use]
pub fn setup_of(config: &Config, started_at: Timestamp) -> Setup {
    let policy = &config.policy;
    Setup {
        fleet: config.fleet.clone(),
        variants: config.variants.clone(),
        workloads: config.workloads.clone(),
        unobserved_free: config.unobserved_free.clone(),
        policy: LoopPolicy {
            interval: policy.interval,
            horizon: policy.horizon,
            advisory: policy.advisory,
            mip_gap: policy.mip_gap,
            nodes_max: policy.nodes_max,
            watchdog: policy.watchdog,
            validity: policy.validity,
            stops_max: policy.stops_max,
            delay_per_hour: policy.delay_per_hour,
            start_cost_factor: policy.start_cost_factor,
            stop_cost_hours: policy.stop_cost_hours,
            learning_frozen: policy.learning_frozen,
            shrink_before_season: policy.shrink_before_season,
            silent_after: policy.silent_after,
            history: policy.history,
            started_at,
            ..LoopPolicy::default()
        },
    }
}
