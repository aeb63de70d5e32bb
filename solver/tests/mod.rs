//! Small problems in which each feature decides the outcome, random ones, and a clock.

mod features;
mod jobs;
mod random;
mod speed;

use crate::{Answer, solve};
use fleet::{
    Availability, Bytes, CalibrationId, Capacity, Class, Currency, GpuId, GpuSlot, IslandId, JobId, JobSpec, ModelId, NodeId, Occupant, Plan, PolicySpec,
    PoolId, PoolSpec, Problem, Provenance, ReplicaId, Resident, ServiceSpec, Span, StepDemand, Timestamp, VariantId, VariantSpec, WorkloadId, planning_steps,
};
use std::collections::{BTreeMap, BTreeSet};

/// 2026-12-01T08:00:00Z.
const AS_OF: Timestamp = Timestamp(1_796_112_000);

fn id<T: TryFrom<String>>(name: &str) -> T {
    T::try_from(name.to_owned()).unwrap_or_else(|_| panic!("{name} is an id"))
}

/// A pool `a` of islands with so many GPUs each, named `i/k`, and nothing else.
fn house(islands: &[u32]) -> Problem {
    let mut problem = Problem {
        as_of: AS_OF,
        currency: Currency::new("EUR").unwrap(),
        steps: planning_steps(AS_OF, Span::hours(24)),
        pools: Vec::new(),
        gpus: Vec::new(),
        variants: Vec::new(),
        services: Vec::new(),
        jobs: Vec::new(),
        residents: Vec::new(),
        policy: PolicySpec {
            advisory: true,
            stops_max: None,
            mip_gap: 1e-6,
            nodes_max: 100_000,
            watchdog: Span(60),
            validity: Span::minutes(30),
            delay_per_hour: 0.001,
        },
        parent: None,
        calibration: id::<CalibrationId>("c"),
        calibration_generation: 1,
        forecasts: Vec::new(),
        notes: Vec::new(),
        unlocated: std::collections::BTreeSet::new(),
    };
    add_pool(&mut problem, "a", islands);
    problem
}

fn add_pool(problem: &mut Problem, name: &str, islands: &[u32]) {
    problem.pools.push(PoolSpec { id: id(name), memory: Bytes::from_gib(80), marginal_per_gpu_hour: 0.0, price_per_gpu_hour: 2.0 });
    for (i, size) in islands.iter().enumerate() {
        for k in 0..*size {
            problem.gpus.push(GpuSlot {
                id: id::<GpuId>(&format!("{name}{i}/{k}")),
                pool: id(name),
                node: id::<NodeId>(&format!("{name}{i}")),
                island: id::<IslandId>(&format!("{name}{i}")),
                availability: Availability::Usable,
            });
        }
    }
}

/// A variant of one GPU a replica on every pool, serving a service of the same name.
fn add_service(problem: &mut Problem, name: &str, gpus: u32, per_replica: f64, demand: impl Fn(Timestamp) -> f64) -> usize {
    problem.variants.push(VariantSpec {
        id: id(name),
        model: id::<ModelId>(name),
        pools: problem.pools.iter().map(|p| p.id.clone()).collect::<BTreeSet<PoolId>>(),
        gpus,
        memory_per_gpu: Bytes::from_gib(40),
        cold_start: Span::minutes(4),
        cold_start_provenance: Provenance::Prior,
        start_cost: 0.2,
        stop_cost: 0.1,
    });
    problem.services.push(ServiceSpec {
        id: id::<WorkloadId>(name),
        class: Class::RealTime,
        priority: 0,
        demand: problem.steps.iter().map(|s| StepDemand { planned: demand(s.start), median: demand(s.start) }).collect(),
        level: 0.9,
        capacity: BTreeMap::from([(id::<VariantId>(name), Capacity { per_replica, provenance: Provenance::Prior })]),
        min_replicas: 0,
        max_replicas: 100,
        shortfall_per_request: 0.01,
        bound_price_per_hour: 50.0,
    });
    problem.services.len() - 1
}

fn add_job(problem: &mut Problem, name: &str, gang: u32, hours: f64) -> usize {
    problem.jobs.push(JobSpec {
        id: id::<JobId>(name),
        class: Class::Training,
        gang,
        memory_per_gpu: Bytes::from_gib(60),
        speed: problem.pools.iter().map(|p| (p.id.clone(), 1.0)).collect(),
        remaining_s: hours * 3_600.0,
        earliest: AS_OF,
        deadline: None,
        value_per_hour: 2.0 * f64::from(gang),
        lateness_per_hour: 4.0 * f64::from(gang),
        checkpoint_s: Some(3_600.0),
        since_checkpoint_s: 0.0,
        preemptible: true,
        startup: Span::minutes(2),
    });
    problem.jobs.len() - 1
}

fn occupy(problem: &mut Problem, occupant: Occupant, gpus: &[&str]) {
    let gpus = gpus.iter().map(|g| id(g)).collect();
    problem.residents.push(Resident { occupant, gpus, since: AS_OF - Span::hours(3), ready_at: AS_OF - Span::hours(2), protected_until: None });
}

/// A replica that has been running for hours.
fn run_replica(problem: &mut Problem, variant: &str, gpus: &[&str]) {
    let replica = id::<ReplicaId>(&format!("{variant}-{}", gpus[0]));
    occupy(problem, Occupant::Replica { replica, variant: id(variant) }, gpus);
}

/// A job that has been running for hours.
fn run_job(problem: &mut Problem, job: &str, gpus: &[&str]) {
    occupy(problem, Occupant::Job { job: id(job) }, gpus);
}

fn at(hour: i64, minute: i64) -> Timestamp {
    AS_OF + Span::hours(hour - 8) + Span::minutes(minute)
}

#[track_caller]
fn planned(problem: &Problem) -> Plan {
    match solve(problem) {
        Answer::Planned(plan) => *plan,
        other => panic!("no plan: {other:?}"),
    }
}

/// Nothing overlaps, nothing unusable is used, nothing spreads over islands; figures agree with the program.
#[track_caller]
fn assert_sound(problem: &Problem, plan: &Plan) {
    let replicas = plan.committed.replicas.iter().map(|r| (r.replica.to_string(), &r.gpus, r.from, r.until));
    let jobs = plan.committed.jobs.iter().map(|j| (j.job.to_string(), &j.gpus, j.from, j.until));
    let windows: Vec<_> = replicas.chain(jobs).collect();
    for (k, (name, gpus, from, until)) in windows.iter().enumerate() {
        assert!(!gpus.is_empty() && from <= until, "{name}");
        let slots: Vec<_> = gpus.iter().map(|g| problem.gpu(g).unwrap()).collect();
        assert!(slots.iter().all(|s| s.availability == Availability::Usable && s.island == slots[0].island && s.pool == slots[0].pool), "{name}");
        for (other, others, begins, ends) in &windows[k + 1..] {
            let apart = until <= begins || ends <= from || gpus.iter().all(|g| !others.contains(g));
            assert!(apart, "{name} and {other} overlap");
        }
    }
    assert_eq!(plan.id, plan.content_id());
    assert!(plan.report.bound <= plan.report.objective.total() + 1e-6);
}

fn texts(plan: &Plan) -> String {
    plan.report.reasons.iter().map(|r| r.text.as_str()).collect::<Vec<_>>().join("\n")
}

fn rules(plan: &Plan) -> String {
    plan.report.relaxations.iter().map(|r| r.rule.as_str()).collect::<Vec<_>>().join("\n")
}
