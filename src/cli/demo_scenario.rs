//! The bundled scenario as the simulator takes it.

use crate::Failure;
use cycle::{LoopPolicy, Setup};
use datasets::{EventKind, Scenario};
use fleet::{Span, SpeedProfile};
use sim::{Fault, FaultKind, Traffic, TrueCapacity, TrueColdStart, Truth};
use std::collections::{BTreeMap, BTreeSet};

/// Requests that waited this long hang up.
const PATIENCE: Span = Span::minutes(5);

/// Fleet, workloads, traffic and truth of the first `days` of the demo's two weeks.
pub(crate) fn scenario(seed: u64, days: u16) -> Result<sim::Scenario, Failure> {
    let made = Scenario::demo(seed);
    let length = Span(made.length.0.min(i64::from(days) * 86_400));
    let minutes = usize::try_from(length.0 / 60)?;
    let mut workloads = made.workloads.clone();
    workloads.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(sim::Scenario {
        traffic: made.traffic.iter().map(|t| traffic(t, minutes)).collect(),
        truth: truth(&made),
        faults: made.events.iter().map(fault).filter(|f| f.at < made.start + length).collect(),
        blackouts: Vec::new(),
        setup: Setup { fleet: made.fleet, variants: made.variants, workloads, policy: policy(made.start), unobserved_free: BTreeSet::new() },
        seed,
        start: made.start,
        length,
    })
}

/// Hourly cycles, and a plan that outlives two of them.
fn policy(start: fleet::Timestamp) -> LoopPolicy {
    LoopPolicy {
        interval: Span::HOUR,
        validity: Span::minutes(90),
        mip_gap: 0.005,
        // Without a tree: the dive from the relaxation is within a few per cent, and 400 plans take seconds instead of minutes.
        nodes_max: 0,
        // The baselines may shrink from the first minute, so ours may too.
        shrink_before_season: true,
        advisory: false,
        started_at: start,
        ..LoopPolicy::default()
    }
}

fn traffic(made: &datasets::Traffic, minutes: usize) -> Traffic {
    let tokens = made.minutes.iter().flatten().next().map(|m| m.tokens);
    let (input_tokens, output_tokens, hit_rate) = tokens.map_or((0.0, 0.0, 0.0), |t| (t.input, t.output, t.prefix_hit_rate));
    // The bundled traffic has no gaps; a minute without a record would be one without requests.
    let per_minute = made.minutes.iter().take(minutes).map(|m| m.map_or(0.0, |m| m.arrivals_per_s)).collect();
    Traffic { workload: made.workload.clone(), per_minute, input_tokens, output_tokens, hit_rate }
}

fn truth(made: &Scenario) -> Truth {
    let factor = |v: &fleet::VariantId| made.truth.capacity.get(v).copied().unwrap_or(1.0);
    let capacity = |w: &fleet::Workload| {
        let variants = &w.service()?.variants;
        let of = |v: &fleet::VariantId| {
            let drift_per_day = made.truth.capacity_drift_per_day;
            Some((v.clone(), TrueCapacity { prior: made.prior_capacity(v)?, factor: factor(v), drift_per_day }))
        };
        Some((w.id.clone(), variants.iter().filter_map(of).collect::<BTreeMap<_, _>>()))
    };
    let cold_start = |v: &fleet::Variant| {
        let factor = made.truth.cold_start.get(&v.id).copied().unwrap_or(1.0);
        (v.id.clone(), TrueColdStart { median_s: v.cold_start.as_secs_f64() * factor, spread: made.truth.cold_start_cv })
    };
    debug_assert!(made.variants.iter().all(|v| matches!(v.speed, SpeedProfile::RequestsPerS(_))), "the demo's speeds are given outright");
    Truth {
        capacity: made.workloads.iter().filter_map(capacity).collect(),
        cold_start: made.variants.iter().map(cold_start).collect(),
        noise: made.truth.capacity_cv,
        patience: PATIENCE,
    }
}

fn fault(event: &datasets::Event) -> Fault {
    let (gpu, kind) = match &event.kind {
        EventKind::GpuLost(gpu) => (gpu.clone(), FaultKind::Lost),
        EventKind::GpuReturned(gpu) => (gpu.clone(), FaultKind::Returned),
    };
    Fault { at: event.at, gpu, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bundled_scenario_can_be_simulated() {
        for days in [1, 14, 20] {
            let scenario = scenario(1, days).unwrap_or_else(|f| panic!("{f:?}"));
            assert!(scenario.validate().is_ok(), "{:?}", scenario.validate());
            assert_eq!(scenario.length, Span(86_400 * i64::from(days.min(14))));
        }
    }
}
