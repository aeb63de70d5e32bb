//! A plan of any size, for tests.

use fleet::{
    Binding, Committed, Currency, Objective, Plan, PlanId, PlanReport, PoolId, ProblemId, Reason, ReplicaId, ReplicaWindow, SolveStatus, Span, Timestamp,
    VariantId, Verb,
};

/// A sealed plan of that generation, of at least `bytes` bytes when written.
pub(crate) fn plan(generation: u64, bytes: usize) -> Plan {
    let as_of = Timestamp(1_700_000_000);
    let reason = |index: usize| Reason { of: Binding::Plan, text: format!("reason {index} {}", "with its evidence ".repeat(50)) };
    Plan {
        schema: Plan::SCHEMA.into(),
        id: PlanId::new("unnamed").unwrap(),
        parent: None,
        generation,
        advisory: true,
        as_of,
        valid_from: as_of,
        valid_until: as_of + Span::HOUR,
        problem: ProblemId::new("problem").unwrap(),
        currency: Currency::new("EUR").unwrap(),
        committed: Committed {
            steps: Vec::new(),
            replicas: vec![replica("r1", "chat-h100", 0), replica("r2", "chat-h100", 600)],
            jobs: Vec::new(),
            routes: Vec::new(),
            shortfalls: Vec::new(),
            holds: Vec::new(),
            preemptions: Vec::new(),
        },
        outlook: Vec::new(),
        heirs: Vec::new(),
        unlocated: std::collections::BTreeSet::new(),
        report: PlanReport {
            status: SolveStatus::Optimal,
            reproducible: true,
            objective: Objective { rent: 0.1 + 0.2, ..Objective::default() },
            bound: 1.0 / 3.0,
            gap: 0.0125,
            shadow_prices: Vec::new(),
            relaxations: Vec::new(),
            reasons: (0..bytes.div_ceil(900)).map(reason).collect(),
            size: [0; 4],
            calibration: 2,
            priors: Vec::new(),
        },
    }
    .sealed()
}

/// A replica that begins so many seconds after the plan.
fn replica(name: &str, variant: &str, after: i64) -> ReplicaWindow {
    let from = Timestamp(1_700_000_000 + after);
    ReplicaWindow {
        replica: ReplicaId::new(name).unwrap(),
        variant: VariantId::new(variant).unwrap(),
        pool: PoolId::new("h100").unwrap(),
        gpus: Vec::new(),
        verb: Verb::Start,
        from,
        ready_at: from,
        until: Timestamp(1_700_000_000) + Span::HOUR,
    }
}
