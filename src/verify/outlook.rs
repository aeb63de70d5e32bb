//! The outlook: counts that continue from the committed part, shares of jobs, and the capacity of every pool in every step.

use crate::tally::{Tally, pairs};
use crate::{Code, TOLERANCE, Violation, agree, at_most};
use fleet::{JobId, PoolId};
use std::collections::{BTreeMap, BTreeSet};

/// Continuity, shares, pool capacity.
pub(crate) fn check(tally: &Tally) -> Vec<Violation> {
    let mut out = Vec::new();
    for t in 0..tally.problem.steps.len() {
        check_pools(tally, t, &mut out);
    }
    for t in tally.committed..tally.problem.steps.len() {
        check_replicas(tally, t, &mut out);
        check_jobs(tally, t, &mut out);
    }
    out
}

fn check_pools(tally: &Tally, t: usize, out: &mut Vec<Violation>) {
    let mut used: BTreeMap<&PoolId, f64> = BTreeMap::new();
    for ((pool, variant), n) in tally.held(t) {
        *used.entry(pool).or_default() += n * tally.problem.variant(variant).map_or(0.0, |v| f64::from(v.gpus));
    }
    for ((pool, job), share) in tally.gangs(t) {
        *used.entry(pool).or_default() += share * tally.problem.job(job).map_or(0.0, |j| f64::from(j.gang));
    }
    for (pool, gpus) in used {
        let usable = tally.usable(pool);
        if !at_most(gpus, usable) {
            out.push(Violation::new(Code::PoolCapacity, "more GPUs than are usable").of(pool).step(t).figures(gpus, usable));
        }
    }
}

fn check_replicas(tally: &Tally, t: usize, out: &mut Vec<Violation>) {
    let step = &tally.plan.outlook[t - tally.committed];
    let (now, before) = (tally.held(t), tally.held_before(t));
    let (starts, stops): (BTreeMap<_, _>, BTreeMap<_, _>) = (pairs(&step.starts).collect(), pairs(&step.stops).collect());
    let keys: BTreeSet<_> = now.keys().chain(before.keys()).chain(starts.keys()).chain(stops.keys()).copied().collect();
    for key @ (pool, variant) in keys {
        let of = |map: &BTreeMap<_, f64>| map.get(&key).copied().unwrap_or(0.0);
        let new = |code, what: &str| Violation::new(code, format!("{what} on {pool}")).of(variant).step(t);
        let Some(spec) = tally.problem.variant(variant) else {
            out.push(new(Code::Reference, "the problem knows no such variant"));
            continue;
        };
        let expected = of(&before) + of(&starts) - of(&stops);
        if !agree(of(&now), expected) {
            out.push(new(Code::Continuity, "replicas are not those before, plus starts, less stops").figures(of(&now), expected));
        }
        if of(&starts) > TOLERANCE && !spec.pools.contains(pool) {
            out.push(new(Code::Pool, "may not start").figures(of(&starts), 0.0));
        }
        if let Some(p) = tally.problem.pool(pool)
            && of(&starts) > TOLERANCE
            && spec.memory_per_gpu > p.memory
        {
            out.push(new(Code::Memory, "does not fit").figures(spec.memory_per_gpu.as_gib(), p.memory.as_gib()));
        }
    }
}

fn check_jobs(tally: &Tally, t: usize, out: &mut Vec<Violation>) {
    let step = &tally.plan.outlook[t - tally.committed];
    let (now, before) = (tally.gangs(t), tally.gangs_before(t));
    let starts: BTreeMap<_, _> = pairs(&step.job_starts).collect();
    let mut whole: BTreeMap<&JobId, f64> = BTreeMap::new();
    let keys: BTreeSet<_> = now.keys().chain(starts.keys()).copied().collect();
    for key @ (pool, job) in keys {
        let of = |map: &BTreeMap<_, f64>| map.get(&key).copied().unwrap_or(0.0);
        let new = |code, what: &str| Violation::new(code, format!("{what} on {pool}")).of(job).step(t);
        let Some(spec) = tally.problem.job(job) else {
            out.push(new(Code::Reference, "the problem knows no such job"));
            continue;
        };
        *whole.entry(job).or_default() += of(&now);
        let begun = of(&now) - of(&before);
        if !at_most(begun, of(&starts)) {
            out.push(new(Code::JobShare, "begins more than its starts say").figures(of(&starts), begun));
        }
        if of(&now) > TOLERANCE && tally.problem.steps[t].start < spec.earliest && of(&before) <= TOLERANCE {
            out.push(new(Code::JobEarly, &format!("runs before {}", spec.earliest)).figures(of(&now), 0.0));
        }
        if begun > TOLERANCE && !spec.speed.contains_key(pool) {
            out.push(new(Code::Pool, "may not run").figures(of(&now), 0.0));
        }
        if let Some(p) = tally.problem.pool(pool)
            && begun > TOLERANCE
            && spec.memory_per_gpu > p.memory
        {
            out.push(new(Code::Memory, "does not fit").figures(spec.memory_per_gpu.as_gib(), p.memory.as_gib()));
        }
    }
    for (job, share) in whole.into_iter().filter(|(_, share)| !at_most(*share, 1.0)) {
        out.push(Violation::new(Code::JobShare, "runs more than once").of(job).step(t).figures(share, 1.0));
    }
}
