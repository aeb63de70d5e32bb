//! The document: seats with names and the values of the outlook become windows, routes, shares and shortfalls.

use crate::placement::{Seat, Sitter};
use crate::program::Program;
use crate::score::{self, Account};
use crate::sets::Sets;
use fleet::{Committed, GpuId, JobWindow, Occupant, OutlookStep, PoolId, Preemption, ReplicaId, ReplicaWindow, Route, Shortfall, Verb};
use std::collections::BTreeMap;

/// Digits kept of loads, counts and shares: one more than the tolerance of the linear program needs.
const DIGITS: f64 = 1e9;

/// Loads and replicas short below this share of what is asked for are noise of the linear program.
const SHORT_MIN: f64 = 1e-7;

/// Characters kept of the name of a new replica that would be too long to be an id (of at most 4 bytes each).
const NAME_CHARS_MAX: usize = 32;

/// Counts by pool and name.
type Counts<K> = BTreeMap<PoolId, BTreeMap<K, f64>>;

/// Decimal noise removed; never below zero.
fn clean(value: f64) -> f64 {
    ((value * DIGITS).round() / DIGITS).max(0.0) + 0.0
}

/// Committed part and outlook, without holds and heirs.
pub(crate) fn write(program: &Program, seats: &[Seat], gpus: &[Vec<usize>], values: &[f64]) -> (Committed, Vec<OutlookStep>) {
    let sets = program.sets;
    let mut committed = Committed {
        steps: sets.problem.steps[sets.near()].to_vec(),
        replicas: replica_windows(sets, seats, gpus),
        jobs: job_windows(sets, seats, gpus),
        routes: routes(program, values),
        shortfalls: Vec::new(),
        holds: Vec::new(),
        preemptions: Vec::new(),
    };
    let mut outlook = outlook(program, seats, values);
    let accounts: Vec<Account> = (0..sets.problem.jobs.len()).map(|j| score::account(sets, &committed, &outlook, j)).collect();
    for (j, account) in accounts.iter().enumerate() {
        committed.preemptions.extend(preemption(sets, j, account));
        forget_after_completion(sets, j, account, &mut outlook);
    }
    committed.preemptions.sort_by(|a, b| (a.at, &a.job).cmp(&(b.at, &b.job)));
    committed.shortfalls = shortfalls(sets, &committed, &outlook);
    (committed, outlook)
}

/// Order of windows: first GPU, then time.
fn in_order<'a>(sets: &Sets, seats: &'a [Seat], gpus: &'a [Vec<usize>]) -> Vec<(&'a Seat, &'a [usize])> {
    let mut order: Vec<(&Seat, &[usize])> = seats.iter().zip(gpus.iter().map(Vec::as_slice)).collect();
    order.sort_by_key(|(seat, gpus)| (gpus.first().copied(), sets.start(seat.from), seat.until, seat.sitter));
    order
}

fn verb(sets: &Sets, seat: &Seat) -> Verb {
    match (seat.resident.is_some(), seat.until >= sets.committed) {
        (true, true) => Verb::Keep,
        (true, false) => Verb::Stop,
        (false, true) => Verb::Start,
        (false, false) => Verb::Visit,
    }
}

fn ids(sets: &Sets, gpus: &[usize]) -> Vec<GpuId> {
    gpus.iter().map(|g| sets.problem.gpus[*g].id.clone()).collect()
}

fn replica_windows(sets: &Sets, seats: &[Seat], gpus: &[Vec<usize>]) -> Vec<ReplicaWindow> {
    let mut windows = Vec::new();
    for (seat, gpus) in in_order(sets, seats, gpus) {
        let Sitter::Replica(v) = seat.sitter else { continue };
        let (spec, pool) = (sets.variant(v), sets.islands[seat.island].pool);
        let resident = seat.resident.map(|r| &sets.problem.residents[r]);
        let (mut replica, mut ready_at) = (None, sets.start(seat.from) + spec.cold_start);
        if let Some(resident) = resident {
            ready_at = resident.ready_at;
            if let Occupant::Replica { replica: id, .. } = &resident.occupant {
                replica = Some(id.clone());
            }
        }
        let Some(replica) = replica.or_else(|| new_replica(sets, v, seat, gpus)) else { continue };
        windows.push(ReplicaWindow {
            replica,
            variant: spec.id.clone(),
            pool: sets.problem.pools[pool].id.clone(),
            gpus: resident.map_or_else(|| ids(sets, gpus), |r| r.gpus.clone()),
            verb: verb(sets, seat),
            from: sets.start(seat.from),
            ready_at,
            until: sets.start(seat.until),
        });
    }
    windows
}

/// The name of a new replica: variant, start and first GPU; of a name too long only its last characters, which hold both.
fn new_replica(sets: &Sets, v: usize, seat: &Seat, gpus: &[usize]) -> Option<ReplicaId> {
    let first = &sets.problem.gpus[*gpus.first()?].id;
    let name = format!("{}@{}/{first}", sets.variant(v).id, sets.start(seat.from));
    let last = name.chars().count().saturating_sub(NAME_CHARS_MAX);
    ReplicaId::new(name.as_str()).or_else(|_| ReplicaId::new(name.chars().skip(last).collect::<String>().trim())).ok()
}

fn job_windows(sets: &Sets, seats: &[Seat], gpus: &[Vec<usize>]) -> Vec<JobWindow> {
    let mut windows = Vec::new();
    for (seat, gpus) in in_order(sets, seats, gpus) {
        let Sitter::Run(j) = seat.sitter else { continue };
        let (spec, pool) = (sets.job(j), sets.islands[seat.island].pool);
        let resident = seat.resident.map(|r| &sets.problem.residents[r]);
        windows.push(JobWindow {
            job: spec.id.clone(),
            class: spec.class,
            pool: sets.problem.pools[pool].id.clone(),
            gpus: resident.map_or_else(|| ids(sets, gpus), |r| r.gpus.clone()),
            verb: verb(sets, seat),
            from: sets.start(seat.from),
            ready_at: resident.map_or(sets.start(seat.from) + spec.startup, |r| r.ready_at),
            until: sets.start(seat.until),
        });
    }
    windows
}

fn routes(program: &Program, values: &[f64]) -> Vec<Route> {
    let sets = program.sets;
    let mut routes = Vec::new();
    for t in sets.near() {
        for w in 0..sets.problem.services.len() {
            for (v, load) in loads(program, values, w, t) {
                routes.push(Route { workload: sets.service(w).id.clone(), variant: sets.variant(v).id.clone(), step: t, load });
            }
        }
    }
    routes
}

/// Load of `w` through each variant in step `t`, where there is any.
fn loads(program: &Program, values: &[f64], w: usize, t: usize) -> Vec<(usize, f64)> {
    let columns = program.columns.load.range((w, 0, 0)..(w + 1, 0, 0)).filter(|((_, _, step), _)| *step == t);
    columns.map(|((_, v, _), column)| (*v, clean(values[column.index]))).filter(|(_, load)| *load > 0.0).collect()
}

fn outlook(program: &Program, seats: &[Seat], values: &[f64]) -> Vec<OutlookStep> {
    let sets = program.sets;
    let lasting = |sitter: Sitter, p: usize| {
        seats.iter().filter(|s| s.sitter == sitter && s.until == sets.committed && sets.islands[s.island].pool == p).map(|_| 1.0).sum::<f64>()
    };
    let mut replicas: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut shares: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    for p in 0..sets.usable.len() {
        replicas.extend((0..sets.problem.variants.len()).map(|v| ((p, v), lasting(Sitter::Replica(v), p))));
        shares.extend((0..sets.problem.jobs.len()).map(|j| ((p, j), lasting(Sitter::Run(j), p))));
    }
    let mut steps = Vec::new();
    for t in sets.far() {
        let mut step = OutlookStep {
            step: sets.problem.steps[t],
            replicas: BTreeMap::new(),
            starts: BTreeMap::new(),
            stops: BTreeMap::new(),
            jobs: BTreeMap::new(),
            job_starts: BTreeMap::new(),
            routes: BTreeMap::new(),
        };
        for ((p, v), before) in &mut replicas {
            let now = program.columns.far_held.get(&(*v, *p, t)).map_or(0.0, |c| clean(values[c.index]));
            let (pool, variant) = (&sets.problem.pools[*p].id, &sets.variant(*v).id);
            note(&mut step.replicas, pool, variant, now);
            note(&mut step.starts, pool, variant, clean(now - *before));
            note(&mut step.stops, pool, variant, clean(*before - now));
            *before = now;
        }
        for ((p, j), before) in &mut shares {
            let now = program.columns.share.get(&(*j, *p, t)).map_or(0.0, |c| clean(values[c.index]).min(1.0));
            let (pool, job) = (&sets.problem.pools[*p].id, &sets.job(*j).id);
            note(&mut step.jobs, pool, job, now);
            note(&mut step.job_starts, pool, job, clean(now - *before));
            *before = now;
        }
        for w in 0..sets.problem.services.len() {
            let loads: BTreeMap<_, _> = loads(program, values, w, t).into_iter().map(|(v, load)| (sets.variant(v).id.clone(), load)).collect();
            if !loads.is_empty() {
                step.routes.insert(sets.service(w).id.clone(), loads);
            }
        }
        steps.push(step);
    }
    steps
}

fn note<K: Ord + Clone>(counts: &mut Counts<K>, pool: &PoolId, key: &K, value: f64) {
    if value > 0.0 {
        counts.entry(pool.clone()).or_default().insert(key.clone(), value);
    }
}

/// A job that is complete holds nothing in the outlook: without rent the program does not care.
fn forget_after_completion(sets: &Sets, j: usize, account: &Account, outlook: &mut [OutlookStep]) {
    let id = &sets.job(j).id;
    for (k, step) in outlook.iter_mut().enumerate() {
        let done: f64 = account.work_s[..sets.committed + k].iter().sum();
        if done < account.need_s - 1e-6 {
            continue;
        }
        for counts in [&mut step.jobs, &mut step.job_starts] {
            for by_job in counts.values_mut() {
                by_job.remove(id);
            }
            counts.retain(|_, by_job| !by_job.is_empty());
        }
    }
}

fn preemption(sets: &Sets, j: usize, account: &Account) -> Option<Preemption> {
    let at = account.preempted_at?;
    let spec = sets.job(j);
    let speed = if sets.resident_speed(j) > 0.0 { sets.resident_speed(j) } else { 1.0 };
    Some(Preemption {
        job: spec.id.clone(),
        at,
        redo_s: account.redo_s,
        lost_gpu_minutes: account.redo_s / speed * f64::from(spec.gang) / 60.0,
        cost: spec.value_per_hour * account.redo_s / 3_600.0,
    })
}

fn shortfalls(sets: &Sets, committed: &Committed, outlook: &[OutlookStep]) -> Vec<Shortfall> {
    let mut shortfalls = Vec::new();
    for t in 0..sets.steps {
        for (w, spec) in sets.problem.services.iter().enumerate() {
            let load = score::unserved(sets, committed, outlook, w, t);
            let replicas = (f64::from(spec.min_replicas) - score::held(sets, committed, outlook, w, t)).max(0.0);
            if load <= SHORT_MIN * (1.0 + spec.demand[t].planned) && replicas <= SHORT_MIN {
                continue;
            }
            let cost = spec.shortfall_per_request * load * sets.hours(t) * 3_600.0 + spec.bound_price_per_hour * replicas * sets.hours(t);
            shortfalls.push(Shortfall { workload: spec.id.clone(), step: t, load, replicas, cost });
        }
    }
    shortfalls
}
