//! The score: what a plan costs and earns, read off its windows, shares and routes, and not off the program that made it.

use crate::sets::Sets;
use fleet::{Committed, JobWindow, Objective, OutlookStep, PoolId, Timestamp, Verb};
use std::collections::BTreeMap;

/// What becomes of one job.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Account {
    /// Work it needs, what a preemption adds included, seconds at speed 1.
    pub need_s: f64,
    /// Work that counts, by step, as early as it can be done.
    pub work_s: Vec<f64>,
    /// Work not done by the deadline.
    pub late_s: f64,
    /// When its resident run is stopped before it can be complete.
    pub preempted_at: Option<Timestamp>,
    /// Work that stop makes it do again.
    pub redo_s: f64,
}

/// The money of committed part and outlook.
pub(crate) fn objective(sets: &Sets, committed: &Committed, outlook: &[OutlookStep]) -> Objective {
    let mut money = Objective::default();
    for t in 0..sets.steps {
        let hours = sets.hours(t);
        for (w, spec) in sets.problem.services.iter().enumerate() {
            money.shortfall += spec.shortfall_per_request * unserved(sets, committed, outlook, w, t) * hours * 3_600.0;
            let held = held(sets, committed, outlook, w, t);
            let outside = (f64::from(spec.min_replicas) - held).max(0.0) + (held - f64::from(spec.max_replicas)).max(0.0);
            money.bounds += spec.bound_price_per_hour * outside * hours;
        }
        money.rent += rent(sets, committed, outlook, t);
    }
    for window in &committed.replicas {
        let Some(spec) = sets.problem.variant(&window.variant) else { continue };
        money.starts += if matches!(window.verb, Verb::Start | Verb::Visit) { spec.start_cost } else { 0.0 };
        money.stops += if matches!(window.verb, Verb::Stop | Verb::Visit) { spec.stop_cost } else { 0.0 };
    }
    for step in outlook {
        money.starts += each(&step.starts).map(|(_, id, n)| n * sets.problem.variant(id).map_or(0.0, |v| v.start_cost)).sum::<f64>();
        money.stops += each(&step.stops).map(|(_, id, n)| n * sets.problem.variant(id).map_or(0.0, |v| v.stop_cost)).sum::<f64>();
    }
    for (j, spec) in sets.problem.jobs.iter().enumerate() {
        let account = account(sets, committed, outlook, j);
        money.preemptions += spec.value_per_hour * account.redo_s / 3_600.0;
        money.lateness += spec.lateness_per_hour * account.late_s / 3_600.0;
        money.value += account.work_s.iter().enumerate().map(|(t, work)| spec.value_per_hour * work / 3_600.0 * sets.freshness(t)).sum::<f64>();
    }
    money
}

/// Entries of nested counts.
fn each<K>(counts: &BTreeMap<PoolId, BTreeMap<K, f64>>) -> impl Iterator<Item = (&PoolId, &K, f64)> {
    counts.iter().flat_map(|(pool, inner)| inner.iter().map(move |(key, n)| (pool, key, *n)))
}

fn rent(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], t: usize) -> f64 {
    let price = |pool: &PoolId| sets.problem.pool(pool).map_or(0.0, |p| p.marginal_per_gpu_hour);
    let per_hour: f64 = if let Some(k) = t.checked_sub(sets.committed) {
        let gpus = each(&outlook[k].replicas).map(|(p, id, n)| price(p) * n * sets.problem.variant(id).map_or(0.0, |v| f64::from(v.gpus)));
        let gangs = each(&outlook[k].jobs).map(|(p, id, n)| price(p) * n * sets.problem.job(id).map_or(0.0, |j| f64::from(j.gang)));
        gpus.sum::<f64>() + gangs.sum::<f64>()
    } else {
        let now = sets.start(t);
        let replicas = committed.replicas.iter().filter(|r| r.from <= now && now < r.until).map(|r| (&r.pool, r.gpus.len()));
        let jobs = committed.jobs.iter().filter(|j| j.from <= now && now < j.until).map(|j| (&j.pool, j.gpus.len()));
        replicas.chain(jobs).map(|(p, n)| price(p) * f64::from(u32::try_from(n).unwrap_or(u32::MAX))).sum()
    };
    per_hour * sets.hours(t)
}

/// Load of `w` not served in step `t`, requests/s.
pub(crate) fn unserved(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], w: usize, t: usize) -> f64 {
    let spec = sets.service(w);
    let served: f64 = match t.checked_sub(sets.committed) {
        None => committed.routes.iter().filter(|r| r.step == t && r.workload == spec.id).map(|r| r.load).sum(),
        Some(k) => outlook[k].routes.get(&spec.id).map_or(0.0, |by_variant| by_variant.values().sum()),
    };
    (spec.demand[t].planned - served).max(0.0)
}

/// Replicas of `w` that hold GPUs in step `t`.
pub(crate) fn held(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], w: usize, t: usize) -> f64 {
    let capacity = &sets.service(w).capacity;
    match t.checked_sub(sets.committed) {
        None => {
            let now = sets.start(t);
            committed.replicas.iter().filter(|r| r.from <= now && now < r.until && capacity.contains_key(&r.variant)).map(|_| 1.0).sum()
        }
        Some(k) => each(&outlook[k].replicas).filter(|(_, variant, _)| capacity.contains_key(*variant)).map(|(_, _, n)| n).sum(),
    }
}

/// What becomes of job `j`.
pub(crate) fn account(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], j: usize) -> Account {
    let spec = sets.job(j);
    let windows: Vec<&JobWindow> = committed.jobs.iter().filter(|w| w.job == spec.id).collect();
    let stopped = windows.iter().filter(|w| w.verb == Verb::Stop).find_map(|w| sets.near().find(|t| sets.start(*t) == w.until && !sets.free(j, *t)));
    let redo_s = stopped.map_or(0.0, |t| sets.redo(j, t));
    let need_s = spec.remaining_s + redo_s;
    let mut left = need_s;
    let mut work_s = Vec::with_capacity(sets.steps);
    for t in 0..sets.steps {
        let progress = match t.checked_sub(sets.committed) {
            None => windows.iter().map(|w| speed(sets, j, &w.pool) * overlap_s(sets, t, w.ready_at.max(w.from), w.until)).sum(),
            Some(k) => outlook_progress(sets, j, &windows, &outlook[k], k.checked_sub(1).map(|before| &outlook[before]), t),
        };
        let work = left.min(progress).max(0.0);
        left -= work;
        work_s.push(work);
    }
    let late_s = spec.deadline.map_or(0.0, |deadline| late(sets, j, need_s, &work_s, deadline));
    Account { need_s, work_s, late_s, preempted_at: stopped.map(|t| sets.start(t)), redo_s }
}

fn speed(sets: &Sets, j: usize, pool: &PoolId) -> f64 {
    sets.job(j).speed.get(pool).copied().unwrap_or(0.0)
}

/// Seconds of step `t` in `[from, until)`.
fn overlap_s(sets: &Sets, t: usize, from: Timestamp, until: Timestamp) -> f64 {
    let step = &sets.problem.steps[t];
    until.min(step.end()).since(from.max(step.start)).as_secs_f64()
}

fn outlook_progress(sets: &Sets, j: usize, windows: &[&JobWindow], now: &OutlookStep, before: Option<&OutlookStep>, t: usize) -> f64 {
    let spec = sets.job(j);
    let length = sets.problem.steps[t].length.as_secs_f64();
    let lasts = |w: &&&JobWindow| matches!(w.verb, Verb::Keep | Verb::Start);
    let share = |step: &OutlookStep, pool: &PoolId| step.jobs.get(pool).and_then(|m| m.get(&spec.id)).copied().unwrap_or(0.0);
    let mut progress = 0.0;
    for (pool, speed) in &spec.speed {
        let previous = before.map_or_else(|| windows.iter().filter(lasts).filter(|w| w.pool == *pool).map(|_| 1.0).sum(), |step| share(step, pool));
        let share = share(now, pool);
        progress += speed * (share * length - spec.startup.as_secs_f64().min(length) * (share - previous).max(0.0));
    }
    for w in windows.iter().filter(lasts) {
        progress -= speed(sets, j, &w.pool) * overlap_s(sets, t, w.from, w.ready_at);
    }
    progress.max(0.0)
}

/// Work not done by the deadline. One that has passed, or lies beyond the horizon, counts the whole of it, and the latter the time that
/// is left after it at the job's best speed.
fn late(sets: &Sets, j: usize, need_s: f64, work_s: &[f64], deadline: Timestamp) -> f64 {
    let whole = deadline <= sets.problem.as_of || deadline >= sets.problem.end();
    let share = |t: usize| if whole { 1.0 } else { (deadline.since(sets.start(t)).as_secs_f64() / sets.problem.steps[t].length.as_secs_f64()).min(1.0) };
    let done: f64 = work_s.iter().enumerate().map(|(t, work)| share(t) * work).sum();
    (need_s - done - deadline.since(sets.problem.end()).as_secs_f64() * sets.best_speed(j)).max(0.0)
}
