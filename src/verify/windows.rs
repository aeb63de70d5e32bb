//! The committed part on named GPUs: where, when, and what becomes of what runs.

use crate::tally::{Tally, same_gpus};
use crate::{Code, Violation};
use fleet::{Availability, Bytes, GpuId, PoolId, ReplicaWindow, Resident, Timestamp, Verb};
use std::collections::{BTreeMap, BTreeSet};

/// What replicas and gangs have in common.
struct Seat<'a> {
    name: String,
    pool: &'a PoolId,
    gpus: &'a [GpuId],
    verb: Verb,
    from: Timestamp,
    ready_at: Timestamp,
    until: Timestamp,
    resident: Option<&'a Resident>,
    /// GPUs it needs, memory on each, time from start to ready, pools allowed. `None`: the plan names what the problem does not know.
    needs: Option<(u32, Bytes, fleet::Span, BTreeSet<&'a PoolId>)>,
}

/// GPUs, memory, islands, times, verbs, residents, stops.
pub(crate) fn check(tally: &Tally) -> Vec<Violation> {
    let seats = seats(tally);
    let mut out = Vec::new();
    for seat in &seats {
        check_place(tally, seat, &mut out);
        check_times(tally, seat, &mut out);
    }
    check_overlaps(&seats, &mut out);
    for resident in tally.forgotten() {
        let what = "runs now, but is neither kept nor stopped where it is";
        out.push(Violation::new(Code::Resident, what).of(resident.occupant.name()));
    }
    check_replicas(tally, &mut out);
    out
}

fn seats<'a>(tally: &Tally<'a>) -> Vec<Seat<'a>> {
    let replicas = tally.replicas().map(|(w, resident)| Seat {
        name: w.replica.to_string(),
        pool: &w.pool,
        gpus: &w.gpus,
        verb: w.verb,
        from: w.from,
        ready_at: w.ready_at,
        until: w.until,
        resident,
        needs: tally.problem.variant(&w.variant).map(|v| (v.gpus, v.memory_per_gpu, v.cold_start, v.pools.iter().collect())),
    });
    let runs = tally.runs().map(|(w, resident)| Seat {
        name: w.job.to_string(),
        pool: &w.pool,
        gpus: &w.gpus,
        verb: w.verb,
        from: w.from,
        ready_at: w.ready_at,
        until: w.until,
        resident,
        needs: tally.problem.job(&w.job).map(|j| (j.gang, j.memory_per_gpu, j.startup, j.speed.keys().collect())),
    });
    replicas.chain(runs).collect()
}

fn check_place(tally: &Tally, seat: &Seat, out: &mut Vec<Violation>) {
    let new = |code, what: &str| Violation::new(code, what).of(&seat.name);
    let Some((gpus, memory, _, pools)) = &seat.needs else {
        out.push(new(Code::Reference, "the problem knows no such variant or job"));
        return;
    };
    for gpu in seat.gpus {
        match tally.problem.gpu(gpu) {
            None => out.push(new(Code::Gpu, "the problem knows no such GPU").gpu(gpu)),
            Some(slot) if slot.availability != Availability::Usable => out.push(new(Code::Gpu, "the GPU is not usable").gpu(gpu)),
            Some(slot) if slot.pool != *seat.pool => out.push(new(Code::Pool, "the GPU belongs to another pool").gpu(gpu)),
            Some(_) => {}
        }
    }
    let distinct: BTreeSet<&GpuId> = seat.gpus.iter().collect();
    let wanted = usize::try_from(*gpus).unwrap_or(usize::MAX);
    if distinct.len() != seat.gpus.len() || seat.gpus.len() != wanted {
        #[expect(clippy::cast_precision_loss, reason = "numbers of GPUs lie far below 2^52")]
        out.push(new(Code::GpuCount, "another number of distinct GPUs than it needs").figures(distinct.len() as f64, f64::from(*gpus)));
    }
    if seat.gpus.iter().map(|g| tally.island(g)).collect::<BTreeSet<_>>().len() > 1 {
        out.push(new(Code::Island, "its GPUs lie in several islands"));
    }
    // What runs already has shown that it fits; only where it may start is ruled.
    if seat.resident.is_some() {
        return;
    }
    if !pools.contains(seat.pool) {
        out.push(new(Code::Pool, &format!("may not run on pool {}", seat.pool)));
    }
    if let Some(pool) = tally.problem.pool(seat.pool)
        && *memory > pool.memory
    {
        out.push(
            new(Code::Memory, &format!("needs {memory} on each GPU, pool {} has {}", pool.id, pool.memory)).figures(memory.as_gib(), pool.memory.as_gib()),
        );
    }
}

fn check_times(tally: &Tally, seat: &Seat, out: &mut Vec<Violation>) {
    let new = |code, what: String| Violation::new(code, what).of(&seat.name);
    let starts = || tally.problem.steps.iter().filter(|s| s.committed).map(|s| s.start);
    if !starts().any(|s| s == seat.from) {
        out.push(new(Code::Boundary, format!("begins at {}, which is not the start of a committed step", seat.from)));
    }
    if seat.until != tally.end && !starts().any(|s| s == seat.until) {
        out.push(new(Code::Boundary, format!("ends at {}, which is not the start of a committed step, nor the end of the last", seat.until)));
    }
    // Something that runs may be stopped at once; nothing begins for no time at all.
    if seat.until < seat.from || (seat.resident.is_none() && seat.until == seat.from) {
        out.push(new(Code::Boundary, format!("ends at {}, begins at {}", seat.until, seat.from)));
    }
    let ready_at = match (seat.resident, &seat.needs) {
        (Some(resident), _) => resident.ready_at,
        (None, Some((_, _, loading, _))) => seat.from + *loading,
        (None, None) => seat.ready_at,
    };
    if seat.ready_at != ready_at {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 lie far below 2^52")]
        out.push(new(Code::ReadyAt, format!("is ready at {}, not {}", ready_at, seat.ready_at)).figures(seat.ready_at.0 as f64, ready_at.0 as f64));
    }
    let verb = match (seat.resident.is_some(), seat.until >= tally.end) {
        (true, true) => Verb::Keep,
        (true, false) => Verb::Stop,
        (false, true) => Verb::Start,
        (false, false) => Verb::Visit,
    };
    if seat.verb != verb {
        out.push(new(Code::Verb, format!("says {:?}, the times say {verb:?}", seat.verb)));
    }
    if let Some(resident) = seat.resident
        && !same_gpus(&resident.gpus, seat.gpus)
    {
        out.push(new(Code::Resident, "runs on other GPUs than the plan says; a move is a stop and a start".into()));
    }
}

fn check_overlaps(seats: &[Seat], out: &mut Vec<Violation>) {
    let mut by_gpu: BTreeMap<&GpuId, Vec<&Seat>> = BTreeMap::new();
    for seat in seats.iter().filter(|s| s.from < s.until) {
        for gpu in seat.gpus {
            by_gpu.entry(gpu).or_default().push(seat);
        }
    }
    for (gpu, mut taken) in by_gpu {
        taken.sort_by_key(|s| (s.from, s.until));
        for pair in taken.windows(2).filter(|p| p[1].from < p[0].until) {
            let what = format!("{} is still there until {} when {} begins at {}", pair[0].name, pair[0].until, pair[1].name, pair[1].from);
            out.push(Violation::new(Code::Overlap, what).gpu(gpu));
        }
    }
}

fn check_replicas(tally: &Tally, out: &mut Vec<Violation>) {
    let mut names = BTreeSet::new();
    for (window, resident) in tally.replicas() {
        let new = |code, what: String| Violation::new(code, what).of(&window.replica);
        if !names.insert(&window.replica) {
            out.push(new(Code::Reference, "named twice".into()));
        }
        if resident.is_none() && window.replica.as_str() != name(window) {
            out.push(new(Code::ReplicaName, format!("should be called {}", name(window))));
        }
        if let Some(fleet::Occupant::Replica { variant, .. }) = resident.map(|r| &r.occupant)
            && *variant != window.variant
        {
            out.push(new(Code::Resident, format!("is a {variant}, not a {}", window.variant)));
        }
        let protected = resident.and_then(|r| r.protected_until).map_or(window.ready_at, |p| p.max(window.ready_at));
        if window.until < tally.end && window.until < protected {
            out.push(new(Code::Protected, format!("stopped at {}, not to be stopped before {protected}", window.until)));
        }
    }
    let stopped = tally.replicas().filter(|(w, _)| w.until < tally.end).map(|_| 1.0).sum::<f64>();
    if let Some(most) = tally.problem.policy.stops_max.map(f64::from)
        && stopped > most
    {
        out.push(Violation::new(Code::StopsMax, "more replicas are stopped than one plan may").figures(stopped, most));
    }
}

/// The name of a new replica: variant, start and first GPU.
fn name(window: &ReplicaWindow) -> String {
    let first = window.gpus.first().map_or("", GpuId::as_str);
    format!("{}@{}/{first}", window.variant, window.from)
}
