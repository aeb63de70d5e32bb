//! Margins: GPUs kept free on purpose, and who takes a GPU that is freed early.

use crate::sets::Sets;
use fleet::{Committed, GpuId, Heir, Hold, Occupant, OutlookStep, ReplicaId, Span, Timestamp};
use std::collections::BTreeMap;

/// A GPU free at the end of the committed part counts as kept for a start of the outlook at most so long ahead.
const AHEAD_MAX: Span = Span::hours(6);

/// What holds a GPU, from when until when.
type Stay = (Timestamp, Timestamp, Occupant);

/// Stays of each usable GPU, in order of time.
fn stays<'p>(sets: &Sets<'p>, committed: &Committed) -> Vec<(usize, &'p GpuId, Vec<Stay>)> {
    let mut by_gpu: BTreeMap<&GpuId, Vec<Stay>> = BTreeMap::new();
    for r in committed.replicas.iter().filter(|r| r.from < r.until) {
        let occupant = Occupant::Replica { replica: r.replica.clone(), variant: r.variant.clone() };
        r.gpus.iter().for_each(|g| by_gpu.entry(g).or_default().push((r.from, r.until, occupant.clone())));
    }
    for j in committed.jobs.iter().filter(|j| j.from < j.until) {
        j.gpus.iter().for_each(|g| by_gpu.entry(g).or_default().push((j.from, j.until, Occupant::Job { job: j.job.clone() })));
    }
    let mut usable: Vec<(usize, usize)> = sets.islands.iter().enumerate().flat_map(|(i, island)| island.gpus.iter().map(move |g| (*g, i))).collect();
    usable.sort_unstable();
    let problem = sets.problem;
    usable
        .into_iter()
        .map(|(g, island)| {
            let id = &problem.gpus[g].id;
            let mut stays = by_gpu.remove(id).unwrap_or_default();
            stays.sort();
            (island, id, stays)
        })
        .collect()
}

/// GPUs free from a committed step on and taken later in the committed part, or kept for a start of the outlook while a job waits.
pub(crate) fn holds(sets: &Sets, committed: &Committed, outlook: &[OutlookStep]) -> Vec<Hold> {
    let mut holds = Vec::new();
    let stays = stays(sets, committed);
    for (_, gpu, stays) in &stays {
        let mut free_from = sets.problem.as_of;
        for (from, until, occupant) in stays {
            if free_from < *from {
                holds.push(Hold { gpu: (*gpu).clone(), from: free_from, until: *from, heir: occupant.clone() });
            }
            free_from = *until;
        }
    }
    holds.extend(holds_for_outlook(sets, &stays, committed, outlook));
    holds
}

fn holds_for_outlook(sets: &Sets, stays: &[(usize, &GpuId, Vec<Stay>)], committed: &Committed, outlook: &[OutlookStep]) -> Vec<Hold> {
    let end = sets.problem.committed_end();
    let free_from = |stays: &[Stay]| stays.last().map_or(sets.problem.as_of, |(_, until, _)| *until);
    let mut free: Vec<(usize, &GpuId, Timestamp)> = stays.iter().map(|(island, gpu, s)| (*island, *gpu, free_from(s))).filter(|(_, _, f)| *f < end).collect();
    let mut holds = Vec::new();
    for step in outlook.iter().filter(|o| o.step.start.since(end) <= AHEAD_MAX) {
        for (pool, starts) in &step.starts {
            for (variant, number) in starts {
                let gpus = sets.problem.variant(variant).map_or(0, |v| v.gpus);
                let mut wanted = number * f64::from(gpus);
                while wanted > 0.5 {
                    let kept = free.iter().position(|(island, _, from)| {
                        sets.problem.pools[sets.islands[*island].pool].id == *pool && a_job_could_use(sets, committed, *island, *from, &free)
                    });
                    let Some(kept) = kept else { break };
                    let (_, gpu, from) = free.remove(kept);
                    if let Ok(replica) = ReplicaId::new(format!("{variant}@{}/{gpu}", step.step.start)) {
                        let heir = Occupant::Replica { replica, variant: variant.clone() };
                        holds.push(Hold { gpu: gpu.clone(), from, until: step.step.start, heir });
                    }
                    wanted -= 1.0;
                }
            }
        }
    }
    holds
}

/// Whether a job without a GPU at the end of the committed part could have used this one.
fn a_job_could_use(sets: &Sets, committed: &Committed, island: usize, from: Timestamp, free: &[(usize, &GpuId, Timestamp)]) -> bool {
    let here = free.iter().filter(|(i, _, f)| *i == island && *f <= from).count();
    let end = sets.problem.committed_end();
    (0..sets.problem.jobs.len()).any(|j| {
        let spec = sets.job(j);
        let runs = committed.jobs.iter().any(|w| w.job == spec.id && w.until >= end);
        !runs && sets.is_worth_running(j) && spec.earliest <= from && sets.speed[j][sets.islands[island].pool].is_some() && spec.gang as usize <= here
    })
}

/// For every usable GPU, in the order of the problem: what takes it if it is freed now.
pub(crate) fn heirs(sets: &Sets, committed: &Committed, outlook: &[OutlookStep]) -> Vec<Heir> {
    let mut holders: BTreeMap<&GpuId, &fleet::Resident> = BTreeMap::new();
    for resident in &sets.problem.residents {
        holders.extend(resident.gpus.iter().map(|g| (g, resident)));
    }
    let mut usable: Vec<(usize, usize)> = sets.islands.iter().enumerate().flat_map(|(i, island)| island.gpus.iter().map(move |g| (*g, i))).collect();
    usable.sort_unstable();
    let mut heirs = Vec::with_capacity(usable.len());
    for (g, island) in usable {
        let gpu = &sets.problem.gpus[g].id;
        let holder = holders.get(gpu);
        let free = sets.islands[island].gpus.iter().filter(|g| !holders.contains_key(&sets.problem.gpus[**g].id)).count();
        let freed = free + holder.map_or(0, |r| r.gpus.len());
        let (heir, reason) = next_in_line(sets, committed, outlook, island, freed);
        heirs.push(Heir { gpu: gpu.clone(), holder: holder.map(|r| r.occupant.clone()), heir, reason });
    }
    heirs
}

fn next_in_line(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], island: usize, freed: usize) -> (Option<String>, String) {
    let (pool, currency) = (sets.islands[island].pool, &sets.problem.currency);
    if let Some((j, worth)) = best_waiting(sets, committed, pool, |gang| gang as usize <= freed) {
        let spec = sets.job(j);
        let deadline = spec.deadline.map_or(String::new(), |d| format!(", wanted by {d}"));
        return (Some(spec.id.to_string()), format!("waits; needs {} GPUs, worth {worth:.2} {currency} per GPU-hour{deadline}", spec.gang));
    }
    let fits = |variant: &fleet::VariantId| {
        sets.problem.variants.iter().position(|v| &v.id == variant).filter(|v| sets.may_start[*v][pool] && sets.variant(*v).gpus as usize <= freed)
    };
    let near = committed.shortfalls.iter().find(|s| {
        s.step < sets.committed && s.load > 0.0 && sets.problem.service(&s.workload).is_some_and(|spec| spec.capacity.keys().any(|v| fits(v).is_some()))
    });
    if let Some(short) = near {
        return (Some(short.workload.to_string()), format!("short of {:.1} req/s at {}", short.load, sets.start(short.step).clock()));
    }
    let id = &sets.problem.pools[pool].id;
    let soon = committed.replicas.iter().filter(|r| r.pool == *id && r.from > sets.problem.as_of).min_by_key(|r| r.from).map(|r| (r.variant.clone(), r.from));
    let later = || outlook.iter().find_map(|o| o.starts.get(id)?.keys().find(|v| fits(v).is_some()).map(|v| (v.clone(), o.step.start)));
    if let Some((variant, at)) = soon.filter(|(v, _)| fits(v).is_some()).or_else(later) {
        let service = sets.problem.services.iter().find(|s| s.capacity.contains_key(&variant));
        return (service.map(|s| s.id.to_string()), format!("{variant} starts on {id} at {}", at.clock()));
    }
    match best_waiting(sets, committed, pool, |_| true) {
        Some((j, _)) => (None, format!("nothing that waits fits: {} needs {} GPUs in one island", sets.job(j).id, sets.job(j).gang)),
        None => (None, "nothing waits".into()),
    }
}

/// The waiting job that is worth most per GPU-hour on a pool, and that worth.
fn best_waiting(sets: &Sets, committed: &Committed, pool: usize, fits: impl Fn(u32) -> bool) -> Option<(usize, f64)> {
    let as_of = sets.problem.as_of;
    let mut best: Option<(usize, f64)> = None;
    for j in 0..sets.problem.jobs.len() {
        let (spec, Some(speed)) = (sets.job(j), sets.speed[j][pool]) else { continue };
        let runs = committed.jobs.iter().any(|w| w.job == spec.id && w.from == as_of);
        if runs || !sets.is_worth_running(j) || spec.earliest > as_of || !fits(spec.gang) {
            continue;
        }
        let worth = (spec.value_per_hour + spec.deadline.map_or(0.0, |_| spec.lateness_per_hour)) * speed / f64::from(spec.gang);
        if best.is_none_or(|(_, most)| worth > most) {
            best = Some((j, worth));
        }
    }
    best
}
