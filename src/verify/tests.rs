//! A plan made and priced by hand, then broken in every way we know.

use super::*;
use fleet::{
    Availability, Bytes, CalibrationId, Capacity, Class, Committed, Currency, GpuId, GpuSlot, Heir, Hold, JobId, JobSpec, JobWindow, ModelId, Objective,
    Occupant, OutlookStep, PlanId, PlanRef, PlanReport, PolicySpec, PoolId, PoolSpec, Preemption, Provenance, ReplicaId, ReplicaWindow, Resident, Route,
    ServiceSpec, Shortfall, SolveStatus, Span, Step, StepDemand, Timestamp, VariantId, VariantSpec, Verb, WorkloadId,
};
use std::collections::{BTreeMap, BTreeSet};

/// 2026-01-05T08:00:00Z.
const T0: i64 = 1_767_600_000;

fn at(s: i64) -> Timestamp {
    Timestamp(T0 + s)
}

/// Any id, from its name.
fn id<T: TryFrom<String>>(name: &str) -> T
where
    T::Error: std::fmt::Debug,
{
    T::try_from(name.to_owned()).unwrap()
}

fn slot(name: &str, pool: &str, island: &str, availability: Availability) -> GpuSlot {
    GpuSlot { id: id(name), pool: id(pool), node: id("n1"), island: id(island), availability }
}

fn variant(name: &str, pool: &str, gpus: u32, memory: Bytes) -> VariantSpec {
    VariantSpec {
        id: id(name),
        model: id::<ModelId>("m"),
        pools: BTreeSet::from([id::<PoolId>(pool)]),
        gpus,
        memory_per_gpu: memory,
        cold_start: Span(300),
        cold_start_provenance: Provenance::Prior,
        start_cost: 0.5,
        stop_cost: 0.2,
    }
}

fn job(name: &str, class: Class, gang: u32, pool: &str, speed: f64, remaining_s: f64) -> JobSpec {
    JobSpec {
        id: id(name),
        class,
        gang,
        memory_per_gpu: Bytes::from_gib(20),
        speed: BTreeMap::from([(id(pool), speed)]),
        remaining_s,
        earliest: at(0),
        deadline: None,
        value_per_hour: 3.6,
        lateness_per_hour: 7.2,
        checkpoint_s: None,
        since_checkpoint_s: 0.0,
        preemptible: false,
        startup: Span(300),
    }
}

fn resident(occupant: Occupant, gpus: &[&str]) -> Resident {
    Resident { occupant, gpus: gpus.iter().map(|g| id(g)).collect(), since: at(-7_200), ready_at: at(-6_900), protected_until: None }
}

fn replica(name: &str) -> Occupant {
    Occupant::Replica { replica: id(name), variant: id("chat-a") }
}

/// Pool a: two islands of two large GPUs. Pool b: a card of 46068 MiB that works, one that is free, one that failed.
fn problem() -> Problem {
    let step = |start, length, committed| Step { start: at(start), length: Span(length), committed };
    let usable = || Availability::Usable;
    let demand = [15.0, 15.0, 25.0, 25.0, 32.0].map(|x| StepDemand { planned: x, median: x }).to_vec();
    let capacity = [("chat-a", 10.0), ("pair-a", 22.0), ("fat-b", 5.0)].map(|(v, x)| (id(v), Capacity { per_replica: x, provenance: Provenance::Prior }));
    let train = JobSpec { checkpoint_s: Some(3_600.0), since_checkpoint_s: 100.0, preemptible: true, ..job("train", Class::Training, 2, "a", 1.0, 36_000.0) };
    let embed = JobSpec { earliest: at(300), deadline: Some(at(2_400)), startup: Span(60), ..job("embed", Class::Embedding, 1, "b", 0.5, 1_000.0) };
    let pool = |name, memory, rent| PoolSpec { id: id(name), memory, marginal_per_gpu_hour: rent, price_per_gpu_hour: 3.6 };
    Problem {
        as_of: at(0),
        currency: Currency::new("EUR").unwrap(),
        steps: vec![step(0, 300, true), step(300, 300, true), step(600, 600, true), step(1_200, 2_400, false), step(3_600, 3_600, false)],
        pools: vec![pool("a", Bytes::from_gib(80), 3.6), pool("b", Bytes::from_mib(46_068), 0.0)],
        gpus: vec![
            slot("a0", "a", "i0", usable()),
            slot("a1", "a", "i0", usable()),
            slot("a2", "a", "i1", usable()),
            slot("a3", "a", "i1", usable()),
            slot("b0", "b", "i2", usable()),
            slot("b1", "b", "i3", usable()),
            slot("b2", "b", "i4", Availability::Failed("XID 79".into())),
        ],
        // 46,100 MiB are less than the card's 48,306 MB, and more than it has.
        variants: vec![
            variant("chat-a", "a", 1, Bytes::from_gib(60)),
            variant("fat-b", "b", 1, Bytes::from_mib(46_100)),
            variant("pair-a", "a", 2, Bytes::from_gib(60)),
        ],
        services: vec![ServiceSpec {
            id: id("chat"),
            class: Class::RealTime,
            priority: 0,
            demand,
            level: 0.9,
            capacity: BTreeMap::from(capacity),
            min_replicas: 1,
            max_replicas: 3,
            shortfall_per_request: 0.01,
            bound_price_per_hour: 1.0,
        }],
        jobs: vec![embed, train],
        residents: vec![resident(replica("r1"), &["a0"]), resident(replica("r2"), &["a1"]), resident(Occupant::Job { job: id("train") }, &["a2", "a3"])],
        policy: PolicySpec {
            advisory: true,
            stops_max: Some(1),
            mip_gap: 0.01,
            nodes_max: 1_000,
            watchdog: Span(60),
            validity: Span(900),
            delay_per_hour: 0.12,
        },
        parent: Some(PlanRef { id: id::<PlanId>("before"), generation: 6 }),
        calibration: id::<CalibrationId>("c"),
        calibration_generation: 1,
        forecasts: vec![],
        notes: vec![],
        unlocated: std::collections::BTreeSet::new(),
    }
}

fn window(name: &str, gpu: &str, verb: Verb, times: [i64; 3]) -> ReplicaWindow {
    let [from, ready_at, until] = times.map(at);
    ReplicaWindow { replica: id::<ReplicaId>(name), variant: id("chat-a"), pool: id("a"), gpus: vec![id(gpu)], verb, from, ready_at, until }
}

fn run(name: &str, class: Class, place: (&str, &[&str]), verb: Verb, times: [i64; 3]) -> JobWindow {
    let [from, ready_at, until] = times.map(at);
    JobWindow { job: id(name), class, pool: id(place.0), gpus: place.1.iter().map(|g| id::<GpuId>(g)).collect(), verb, from, ready_at, until }
}

fn by_pool<T: TryFrom<String> + Ord>(pool: &str, name: &str, x: f64) -> BTreeMap<PoolId, BTreeMap<T, f64>>
where
    T::Error: std::fmt::Debug,
{
    BTreeMap::from([(id(pool), BTreeMap::from([(id(name), x)]))])
}

fn committed(problem: &Problem) -> Committed {
    let route = |step, load| Route { workload: id("chat"), variant: id("chat-a"), step, load };
    Committed {
        steps: problem.steps[..3].to_vec(),
        replicas: vec![
            window("r1", "a0", Verb::Keep, [0, -6_900, 1_200]),
            window("r2", "a1", Verb::Keep, [0, -6_900, 1_200]),
            window("chat-a@2026-01-05T08:05:00Z/a2", "a2", Verb::Start, [300, 600, 1_200]),
        ],
        jobs: vec![
            run("train", Class::Training, ("a", &["a2", "a3"]), Verb::Stop, [0, -6_900, 300]),
            run("embed", Class::Embedding, ("b", &["b0"]), Verb::Start, [300, 360, 1_200]),
        ],
        routes: vec![route(0, 15.0), route(1, 15.0), route(2, 25.0)],
        shortfalls: vec![Shortfall { workload: id("chat"), step: 4, load: 2.0, replicas: 0.0, cost: 72.0 }],
        holds: vec![Hold { gpu: id("a3"), from: at(300), until: at(1_200), heir: Occupant::Job { job: id("train") } }],
        // 100 s before the plan and 300 s in it since the last checkpoint, on two GPUs.
        preemptions: vec![Preemption { job: id("train"), at: at(300), redo_s: 400.0, lost_gpu_minutes: 400.0 * 2.0 / 60.0, cost: 0.4 }],
    }
}

fn plan(problem: &Problem) -> Plan {
    let outlook = |k: usize, load, embed, started: f64| {
        let mut jobs = by_pool::<JobId>("a", "train", 0.5);
        if embed > 0.0 {
            jobs.extend(by_pool("b", "embed", embed));
        }
        OutlookStep {
            step: problem.steps[k],
            replicas: by_pool::<VariantId>("a", "chat-a", 3.0),
            starts: BTreeMap::new(),
            stops: BTreeMap::new(),
            jobs,
            job_starts: by_pool("a", "train", started),
            routes: BTreeMap::from([(id("chat"), BTreeMap::from([(id("chat-a"), load)]))]),
        }
    };
    // Each figure by hand; rent of pool a is 0.001 a GPU and second, work is worth 0.001 a second, less 12 % an hour.
    let objective = Objective {
        shortfall: 2.0 * 3_600.0 * 0.01,
        bounds: 0.0,
        starts: 0.5,
        stops: 0.0,
        rent: 0.001 * (4.0 * 300.0 + 3.0 * 300.0 + 3.0 * 600.0 + 4.0 * 2_400.0 + 4.0 * 3_600.0),
        // embed: 120 + 300 s done, then half of the 580 s that are left lie before the deadline.
        lateness: 0.002 * 290.0,
        preemptions: 0.4,
        // train: 300 s, then half its gang for 2,400 s (less half a start-up) and 3,600 s.
        value: 0.001 * (120.0 * 0.99 + 300.0 * 0.98 + 580.0 * 0.96) + 0.001 * (300.0 + (1_200.0 - 150.0) * 0.96 + 1_800.0 * 0.88),
    };
    let bound = 97.0;
    Plan {
        schema: Plan::SCHEMA.into(),
        id: id("unnamed"),
        parent: Some(id("before")),
        generation: 7,
        advisory: true,
        as_of: at(0),
        valid_from: at(0),
        valid_until: at(900),
        problem: problem.id(),
        currency: problem.currency.clone(),
        committed: committed(problem),
        outlook: vec![outlook(3, 25.0, 1.0, 0.5), outlook(4, 30.0, 0.0, 0.0)],
        heirs: ["a0", "a1", "a2", "a3", "b0", "b1"].map(|g| Heir { gpu: id(g), holder: None, heir: None, reason: "nobody waits".into() }).to_vec(),
        unlocated: std::collections::BTreeSet::new(),
        report: PlanReport {
            status: SolveStatus::Optimal,
            reproducible: true,
            objective,
            bound,
            gap: (objective.total() - bound) / objective.total(),
            shadow_prices: vec![],
            relaxations: vec![],
            reasons: vec![],
            size: [10, 10, 3, 1],
            calibration: 1,
            priors: vec![],
        },
    }
    .sealed()
}

/// Codes of the violations after a change to the plan, sealed again.
fn codes(change: impl FnOnce(&mut Plan)) -> BTreeSet<Code> {
    let problem = problem();
    let mut plan = plan(&problem);
    change(&mut plan);
    verify(&problem, &plan.sealed()).violations.into_iter().map(|v| v.code).collect()
}

#[test]
fn a_plan_made_and_priced_by_hand_passes() {
    let problem = problem();
    let verdict = verify(&problem, &plan(&problem));
    assert!(verdict.is_ok(), "{}", verdict.violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("\n"));
    assert!((verdict.objective.total() - 97.5184).abs() < 1e-9, "{:?}", verdict.objective);
}

/// One way to break a plan, and the rule that must refuse it.
type Break = (&'static str, Code, fn(&mut Plan));

const DOCUMENT: &[Break] = &[
    ("another schema", Code::Schema, |p| p.schema = "turnaround.plan/2".into()),
    ("another problem", Code::Problem, |p| p.problem = id("other")),
    ("an orphan", Code::Parent, |p| p.parent = None),
    ("generation stands still", Code::Generation, |p| p.generation = 6),
    ("valid for ever", Code::Validity, |p| p.valid_until = at(9_000)),
    ("an order where advice was asked for", Code::Validity, |p| p.advisory = false),
    ("a step longer", Code::Steps, |p| p.committed.steps[2].length = Span(900)),
    ("an hour of outlook missing", Code::Steps, |p| drop(p.outlook.pop())),
    ("no number", Code::Number, |p| p.committed.routes[0].load = f64::NAN),
    ("negative load", Code::Number, |p| p.committed.routes[0].load = -1.0),
    ("infinite bound", Code::Number, |p| p.report.bound = f64::NEG_INFINITY),
    ("cheaper than it is", Code::Objective, |p| p.report.objective.rent -= 0.01),
    ("value earned twice", Code::Objective, |p| p.report.objective.value *= 2.0),
    ("bound above", Code::Bound, |p| p.report.bound = 98.0),
    ("gap made smaller", Code::Gap, |p| p.report.gap = 0.0),
    ("optimal by name only", Code::Gap, |p| {
        p.report.bound = 90.0;
        p.report.gap = (p.report.objective.total() - 90.0) / p.report.objective.total();
    }),
];

const WINDOWS: &[Break] = &[
    ("ends inside a step", Code::Boundary, |p| p.committed.replicas[0].until = at(700)),
    ("begins before now", Code::Boundary, |p| p.committed.jobs[1].from = at(-300)),
    ("a GPU nobody has", Code::Gpu, |p| p.committed.jobs[1].gpus = vec![id("b9")]),
    ("a GPU that failed", Code::Gpu, |p| p.committed.jobs[1].gpus = vec![id("b2")]),
    ("a gang with a GPU too many", Code::GpuCount, |p| p.committed.jobs[1].gpus.push(id("b1"))),
    ("the same GPU twice", Code::GpuCount, |p| p.committed.jobs[0].gpus = vec![id("a2"), id("a2")]),
    ("two on one GPU", Code::Overlap, |p| p.committed.replicas[2].gpus = vec![id("a1")]),
    ("before the gang has gone", Code::Overlap, |p| {
        p.committed.replicas[2].from = at(0);
        p.committed.replicas[2].ready_at = at(300);
    }),
    ("two islands", Code::Island, |p| {
        p.committed.replicas[2].variant = id("pair-a");
        p.committed.replicas[2].gpus = vec![id("a1"), id("a2")];
    }),
    ("pool not allowed", Code::Pool, |p| {
        p.committed.replicas[2].pool = id("b");
        p.committed.replicas[2].gpus = vec![id("b1")];
    }),
    ("GPU of another pool", Code::Pool, |p| p.committed.replicas[2].gpus = vec![id("b1")]),
    ("a resident left out", Code::Resident, |p| drop(p.committed.replicas.remove(1))),
    ("a resident moved in silence", Code::Resident, |p| p.committed.replicas[1].gpus = vec![id("a3")]),
    ("a resident turned into another variant", Code::Resident, |p| p.committed.replicas[1].variant = id("fat-b")),
    ("a wrong name", Code::ReplicaName, |p| p.committed.replicas[2].replica = id("chat-a-3")),
    ("a name used twice", Code::Reference, |p| p.committed.replicas[2].replica = id("r1")),
    ("warm at once", Code::ReadyAt, |p| p.committed.replicas[2].ready_at = at(300)),
    ("keeps what it stops", Code::Verb, |p| p.committed.jobs[0].verb = Verb::Keep),
    ("stops a loading replica", Code::Protected, |p| {
        p.committed.replicas[2].until = at(600);
        p.committed.replicas[2].ready_at = at(700);
        p.committed.replicas[2].verb = Verb::Visit;
    }),
    ("stops two where one may be", Code::StopsMax, |p| {
        for w in &mut p.committed.replicas[..2] {
            (w.until, w.verb) = (at(600), Verb::Stop);
        }
    }),
    ("an unknown variant", Code::Reference, |p| p.committed.replicas[2].variant = id("chat-c")),
];

const TRAFFIC: &[Break] = &[
    ("load lost", Code::Balance, |p| p.committed.routes[1].load = 14.0),
    ("load invented", Code::Balance, |p| p.committed.routes[1].load = 16.0),
    ("a shortfall hidden", Code::Balance, |p| p.committed.shortfalls.clear()),
    ("a shortfall that is none", Code::Balance, |p| {
        p.committed.shortfalls.push(Shortfall { workload: id("chat"), step: 0, load: 1.0, replicas: 0.0, cost: 3.0 });
    }),
    ("replicas said to be short", Code::Shortfall, |p| p.committed.shortfalls[0].replicas = 1.0),
    ("a shortfall too cheap", Code::Shortfall, |p| p.committed.shortfalls[0].cost = 7.2),
    // The old replica drains before the new one is ready: nothing serves the 15 requests/s of step 1 in full.
    ("old one gone before the new is ready", Code::Capacity, |p| (p.committed.replicas[1].until, p.committed.replicas[1].verb) = (at(300), Verb::Stop)),
    ("more than the outlook's replicas serve", Code::Capacity, |p| {
        p.outlook[1].routes.get_mut(&id::<WorkloadId>("chat")).unwrap().insert(id("chat-a"), 32.0);
        p.committed.shortfalls.clear();
    }),
    ("through a variant that is not there", Code::Capacity, |p| p.committed.routes[1].variant = id("fat-b")),
    ("to a variant that does not serve it", Code::Reference, |p| p.committed.routes[1].variant = id("chat-x")),
    ("a route listed twice", Code::Reference, |p| {
        p.committed.routes[1].load = 7.5;
        let twice = p.committed.routes[1].clone();
        p.committed.routes.push(twice);
    }),
    ("one above the maximum", Code::Maximum, |p| {
        let extra = window("chat-a@2026-01-05T08:05:00Z/a3", "a3", Verb::Start, [300, 600, 1_200]);
        p.committed.replicas.push(extra);
    }),
];

const JOBS: &[Break] = &[
    ("before its release", Code::JobEarly, |p| {
        p.committed.jobs[1].from = at(0);
        p.committed.jobs[1].ready_at = at(60);
    }),
    ("twice at a time", Code::JobOverlap, |p| {
        let mut twice = p.committed.jobs[1].clone();
        twice.gpus = vec![id("b1")];
        p.committed.jobs.push(twice);
    }),
    ("a new run cut short", Code::MinimumRun, |p| (p.committed.jobs[1].until, p.committed.jobs[1].verb) = (at(600), Verb::Visit)),
    ("stopped, not listed", Code::Preemption, |p| p.committed.preemptions.clear()),
    ("redoes less than it lost", Code::Preemption, |p| p.committed.preemptions[0].redo_s = 100.0),
    ("lost GPU time made small", Code::Preemption, |p| p.committed.preemptions[0].lost_gpu_minutes = 1.0),
    ("preempted at another time", Code::Preemption, |p| p.committed.preemptions[0].at = at(600)),
    ("listed, not stopped", Code::Preemption, |p| {
        let mut other = p.committed.preemptions[0].clone();
        other.job = id("embed");
        p.committed.preemptions.push(other);
    }),
    ("of another class", Code::Reference, |p| p.committed.jobs[1].class = Class::RealTime),
];

const OUTLOOK: &[Break] = &[
    ("a replica from nowhere", Code::Continuity, |p| p.outlook[1].replicas = by_pool("a", "chat-a", 3.2)),
    ("a stop that stops nothing", Code::Continuity, |p| p.outlook[1].stops = by_pool("a", "chat-a", 1.0)),
    ("two gangs of one job", Code::JobShare, |p| *p.outlook[0].jobs.get_mut(&id::<PoolId>("b")).unwrap() = BTreeMap::from([(id("embed"), 1.5)])),
    ("a start not counted", Code::JobShare, |p| p.outlook[0].job_starts.clear()),
    ("a negative share", Code::Number, |p| p.outlook[0].jobs = by_pool("a", "train", -0.5)),
    ("more GPUs than there are", Code::PoolCapacity, |p| {
        p.outlook[0].jobs.insert(id("a"), BTreeMap::from([(id("train"), 1.0)]));
        p.outlook[0].job_starts.insert(id("a"), BTreeMap::from([(id("train"), 1.0)]));
    }),
    ("does not fit", Code::Memory, |p| {
        p.outlook[0].replicas.extend(by_pool("b", "fat-b", 1.0));
        p.outlook[0].starts = by_pool("b", "fat-b", 1.0);
    }),
    ("a loading replica stopped", Code::Protected, |p| {
        p.outlook[0].starts = by_pool("a", "chat-a", 0.5);
        p.outlook[0].replicas = by_pool("a", "chat-a", 0.0);
        p.outlook[0].stops = by_pool("a", "chat-a", 3.5);
    }),
    ("a held GPU that is taken", Code::Hold, |p| p.committed.holds[0].gpu = id("a2")),
    ("an heir missing", Code::Heir, |p| drop(p.heirs.pop())),
    ("an heir of a failed GPU", Code::Heir, |p| p.heirs[5].gpu = id("b2")),
];

#[test]
fn every_way_to_break_a_plan_is_refused_by_its_own_rule() {
    for (name, code, change) in [DOCUMENT, WINDOWS, TRAFFIC, JOBS, OUTLOOK].concat() {
        let found = codes(change);
        assert!(found.contains(&code), "{name}: {code:?} expected, found {found:?}");
    }
}

#[test]
fn a_plan_changed_after_it_was_sealed_is_refused() {
    let problem = problem();
    let mut plan = plan(&problem);
    plan.heirs[0].reason = "somebody else's".into();
    let verdict = verify(&problem, &plan);
    assert_eq!(verdict.violations.iter().map(|v| v.code).collect::<Vec<_>>(), [Code::ContentId]);
}

#[test]
fn a_job_without_checkpoint_or_under_protection_is_never_stopped() {
    for harden in [
        (|p: &mut Problem| p.jobs[1].checkpoint_s = None) as fn(&mut Problem),
        |p| p.jobs[1].preemptible = false,
        |p| p.residents[2].protected_until = Some(at(301)),
    ] {
        let mut problem = problem();
        harden(&mut problem);
        let mut plan = plan(&problem);
        plan.problem = problem.id();
        assert!(verify(&problem, &plan.sealed()).violations.iter().any(|v| v.code == Code::NotPreemptible));
    }
}

#[test]
fn a_run_that_can_be_complete_may_end_without_being_preempted() {
    let mut problem = problem();
    problem.jobs[1].remaining_s = 300.0;
    let mut plan = plan(&problem);
    plan.committed.preemptions.clear();
    assert!(!verify(&problem, &plan.sealed()).violations.iter().any(|v| v.code == Code::Preemption));
}

/// Field case 45: a card of 46068 MiB does not hold 46100 MiB, although 46100 is less than its size in MB.
#[test]
fn a_card_in_mib_does_not_hold_what_only_fits_in_mb() {
    let found = codes(|p| {
        let w = &mut p.committed.replicas[2];
        (w.variant, w.pool, w.gpus, w.replica) = (id("fat-b"), id("b"), vec![id("b1")], id("fat-b@2026-01-05T08:05:00Z/b1"));
    });
    assert!(found.contains(&Code::Memory), "{found:?}");
}

/// Field case 59: whatever rounding made of 0.9999997 replicas, the whole windows are counted again on every GPU; a count that only a
/// tolerance could save is refused, one within it passes.
#[test]
fn rounded_values_are_counted_again_on_every_gpu() {
    // Half a replica rounded up: a second one on a GPU that is full.
    let rounded_up = codes(|p| p.committed.replicas.push(window("chat-a@2026-01-05T08:05:00Z/a1", "a1", Verb::Start, [300, 600, 1_200])));
    assert!(rounded_up.contains(&Code::Overlap), "{rounded_up:?}");
    // 0.9999997 truncated to none: the load it was to serve has nobody.
    let truncated = codes(|p| drop(p.committed.replicas.pop()));
    assert!(truncated.contains(&Code::Capacity), "{truncated:?}");
    // Noise of a solver in the outlook passes, a real fraction does not.
    assert_eq!(codes(|p| p.outlook[1].replicas = by_pool("a", "chat-a", 3.0 - 3e-9)), BTreeSet::new());
    assert!(codes(|p| p.outlook[1].replicas = by_pool("a", "chat-a", 2.9)).contains(&Code::Capacity));
}

/// Every figure of the plan matters: changed by itself, by 3 %, each is refused.
#[test]
fn no_figure_can_be_changed_unseen() {
    let problem = problem();
    let good = serde_json::to_value(plan(&problem)).unwrap();
    let mut places = Vec::new();
    numbers(&good, &mut String::new(), &mut places);
    let watched: Vec<&String> = places.iter().filter(|p| !p.starts_with("/report/size") && *p != "/report/calibration").collect();
    assert!(watched.len() > 35, "{watched:?}");
    for place in watched {
        let mut bad = good.clone();
        let number = bad.pointer_mut(place).unwrap();
        *number = match number.as_u64() {
            Some(whole) => (whole + 1).into(),
            None => (number.as_f64().unwrap() * 1.03 + 0.03).into(),
        };
        let plan: Plan = serde_json::from_value(bad).unwrap();
        assert!(!verify(&problem, &plan.sealed()).is_ok(), "{place} was changed and nobody noticed");
    }
}

fn numbers(value: &serde_json::Value, path: &mut String, places: &mut Vec<String>) {
    let length = path.len();
    let mut descend = |key: &str, inner: &serde_json::Value| {
        path.push('/');
        path.push_str(key);
        numbers(inner, path, places);
        path.truncate(length);
    };
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, inner)| descend(key, inner)),
        serde_json::Value::Array(list) => list.iter().enumerate().for_each(|(i, inner)| descend(&i.to_string(), inner)),
        serde_json::Value::Number(_) => places.push(path.clone()),
        _ => {}
    }
}

#[test]
fn codes_print_as_they_serialise() {
    for code in [Code::ContentId, Code::Gpu, Code::StopsMax, Code::PoolCapacity] {
        assert_eq!(serde_json::to_value(code).unwrap(), code.name());
    }
    let violation = Violation::new(Code::Capacity, "too much").of("chat-a").step(2).figures(2.5, 2.0);
    assert_eq!(violation.to_string(), "capacity: too much [chat-a, step 2]: 2.5 against 2");
}
