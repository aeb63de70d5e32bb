//! A scenario for tests: two services, three jobs, eight GPUs, three days, one fault.

use crate::small::{daily, job, service, setup, small_fleet, variant};
use crate::{Fault, FaultKind, Options, PolicyKind, Run, Scenario, Traffic, TrueCapacity, TrueColdStart, Truth, run};
use fleet::{Class, GpuId, Span, Timestamp, VariantId, WorkloadId};
use std::collections::BTreeMap;

/// 2026-03-02, a Monday.
pub(crate) const START: Timestamp = Timestamp(1_772_409_600);

fn traffic(workload: &str, per_minute: Vec<f64>) -> Traffic {
    Traffic { workload: WorkloadId::new(workload).unwrap(), per_minute, input_tokens: 600.0, output_tokens: 200.0, hit_rate: 0.3 }
}

fn capacity(workload: &str, variant: &str, prior: f64, factor: f64) -> (WorkloadId, BTreeMap<VariantId, TrueCapacity>) {
    let truth = TrueCapacity { prior, factor, drift_per_day: 0.001 };
    (WorkloadId::new(workload).unwrap(), BTreeMap::from([(VariantId::new(variant).unwrap(), truth)]))
}

pub(crate) fn small_scenario(days: u32) -> Scenario {
    let at = |hours: i64| START + Span::hours(hours);
    let workloads = vec![
        service("chat", "chat-fp8", (1, 6), Some(0.9)).unwrap(),
        service("search", "search-bf16", (1, 4), Some(0.9)).unwrap(),
        job("embed", Class::Embedding, 1, Span::hours(5), at(1), Some(at(30))).unwrap(),
        job("summaries", Class::Batch, 2, Span::hours(8), at(2), Some(at(40))).unwrap(),
        job("train", Class::Training, 2, Span::hours(12), at(3), Some(at(60))).unwrap(),
    ];
    let variants = vec![variant("chat-fp8", 1, 9.0, Span::minutes(4)).unwrap(), variant("search-bf16", 1, 20.0, Span::minutes(3)).unwrap()];
    Scenario {
        setup: setup(small_fleet(2).unwrap(), variants, workloads, START),
        traffic: vec![traffic("chat", daily(days, 3.0, 26.0, 14.0)), traffic("search", daily(days, 5.0, 25.0, 10.0))],
        truth: Truth {
            capacity: BTreeMap::from([capacity("chat", "chat-fp8", 9.0, 0.9), capacity("search", "search-bf16", 20.0, 1.05)]),
            cold_start: BTreeMap::from([(VariantId::new("chat-fp8").unwrap(), TrueColdStart { median_s: 400.0, spread: 0.1 })]),
            noise: 0.02,
            patience: Span::minutes(10),
        },
        faults: vec![
            Fault { at: at(20), gpu: GpuId::new("n2/3").unwrap(), kind: FaultKind::Lost },
            Fault { at: at(25), gpu: GpuId::new("n2/3").unwrap(), kind: FaultKind::Returned },
        ],
        blackouts: Vec::new(),
        seed: 11,
        start: START,
        length: Span(86_400 * i64::from(days)),
    }
}

pub(crate) fn run_small(scenario: &Scenario, policy: PolicyKind) -> Run {
    let mut options = Options { score_from: scenario.start, scrape_every: 5, progress: &mut |_| {} };
    run(scenario, policy, &mut options).unwrap()
}
