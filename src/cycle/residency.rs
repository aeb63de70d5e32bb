//! What runs where, from readings alone. What is not known to be free is occupied.

use crate::{
    JobState, State,
    state::{StartWatch, TargetState},
};
use fleet::{Availability, Gpu, GpuId, GpuSlot, GpuStatus, Occupant, PoolId, ReplicaId, Resident, Span, Target, TargetId, Timestamp, VariantId};
use std::collections::{BTreeMap, BTreeSet};

/// A replica that has not answered after this many times the cold start expected of it is a failed start.
const LOAD_DEADLINE_FACTOR: f64 = 2.0;
/// No start is given up before this.
const LOAD_DEADLINE_MIN_S: f64 = 300.0;

/// When a start that has not answered is given up.
fn load_deadline(watch: &StartWatch) -> Timestamp {
    watch.started_at + Span(round_up((LOAD_DEADLINE_FACTOR * watch.expected_s).max(LOAD_DEADLINE_MIN_S)))
}

/// Whether a start has missed its deadline.
pub(crate) fn is_overdue(watch: &StartWatch, now: Timestamp) -> bool {
    watch.ready_at.is_none() && now > load_deadline(watch)
}

/// The fleet as the solver may use it.
pub(crate) struct Snapshot {
    pub slots: Vec<GpuSlot>,
    pub residents: Vec<Resident>,
    pub notes: Vec<String>,
    /// Pools in which replicas run on GPUs nobody knows.
    pub unlocated: BTreeSet<PoolId>,
}

/// A replica as readings show it.
struct Seen {
    variant: VariantId,
    gpus: Vec<GpuId>,
    since: Timestamp,
    ready_at: Timestamp,
    protected_until: Option<Timestamp>,
}

pub(crate) fn snapshot(state: &State, now: Timestamp) -> Snapshot {
    let mut notes = Vec::new();
    let mut blocked: BTreeMap<GpuId, Availability> = BTreeMap::new();
    let mut replicas = replicas_on_gpus(state, now, &mut blocked, &mut notes);
    let unlocated = replicas_behind_targets(state, now, &mut replicas, &mut blocked, &mut notes);
    let mut residents: Vec<Resident> = replicas
        .into_iter()
        .map(|(replica, seen)| Resident {
            occupant: Occupant::Replica { replica, variant: seen.variant },
            gpus: seen.gpus,
            since: seen.since,
            ready_at: seen.ready_at,
            protected_until: seen.protected_until,
        })
        .collect();
    residents.extend(jobs_on_gpus(state, now, &blocked));
    let explained: BTreeSet<&GpuId> = residents.iter().flat_map(|r| &r.gpus).collect();
    let mut slots: Vec<GpuSlot> = state.setup.fleet.gpus.iter().map(|gpu| slot(state, gpu, &blocked, explained.contains(&gpu.id))).collect();
    drop_impossible(state, &mut residents, &mut slots, &mut notes);
    residents.sort_by(|a, b| a.gpus.first().cmp(&b.gpus.first()).then_with(|| a.occupant.cmp(&b.occupant)));
    let held: BTreeSet<&GpuId> = residents.iter().flat_map(|r| &r.gpus).collect();
    for slot in slots.iter_mut().filter(|s| s.availability == Availability::Usable && !held.contains(&s.id)) {
        let reading = state.gpus.get(&slot.id);
        let stale = reading.is_some_and(|r| now.since(r.at) > state.setup.policy.silent_after);
        match reading.map(|r| &r.status) {
            Some(GpuStatus::Free) if !stale => {}
            Some(GpuStatus::Free) => slot.availability = Availability::Occupied("was free when last seen, which is too long ago".into()),
            None if state.setup.unobserved_free.contains(&slot.node) => {}
            Some(_) => slot.availability = Availability::Occupied("holds something that is not planned with".into()),
            None => slot.availability = Availability::Occupied("not observed to be free".into()),
        }
    }
    Snapshot { slots, residents, notes, unlocated }
}

/// A GPU that is busy is ours to plan with when a resident explains why.
fn slot(state: &State, gpu: &Gpu, blocked: &BTreeMap<GpuId, Availability>, explained: bool) -> GpuSlot {
    let availability = blocked.get(&gpu.id).cloned().unwrap_or_else(|| match state.gpus.get(&gpu.id).map(|r| &r.status) {
        Some(GpuStatus::Failed(why)) => Availability::Failed(why.clone()),
        Some(GpuStatus::Occupied(why)) if !explained => Availability::Occupied(why.clone()),
        _ => Availability::Usable,
    });
    GpuSlot { id: gpu.id.clone(), pool: gpu.pool.clone(), node: gpu.node.clone(), island: gpu.island.clone(), availability }
}

/// Replicas that GPU readings name.
fn replicas_on_gpus(state: &State, now: Timestamp, blocked: &mut BTreeMap<GpuId, Availability>, notes: &mut Vec<String>) -> BTreeMap<ReplicaId, Seen> {
    let mut seen: BTreeMap<ReplicaId, Seen> = BTreeMap::new();
    for gpu in &state.setup.fleet.gpus {
        let Some(GpuStatus::Replica { replica, variant, .. }) = state.gpus.get(&gpu.id).map(|r| &r.status) else { continue };
        if let Some(known) = seen.get_mut(replica) {
            known.gpus.push(gpu.id.clone());
            continue;
        }
        let Some(watch) = state.starts.get(replica) else { continue };
        let expected = Span(round_up(state.cold_start_s(variant)));
        let (ready_at, protected_until) = if let Some(at) = watch.ready_at {
            (at, None)
        } else {
            // Later than expected: some more time, up to the deadline.
            let ready = (watch.started_at + expected).max(now + Span(round_up(0.2 * expected.as_secs_f64()).max(60)));
            (ready, Some(load_deadline(watch).max(ready)))
        };
        let entry = Seen { variant: variant.clone(), gpus: vec![gpu.id.clone()], since: watch.started_at, ready_at, protected_until };
        seen.insert(replica.clone(), entry);
    }
    // A loading replica that missed its deadline is a failed start; a ready one whose target fell silent is no supply.
    let silent = silent_replicas(state, now);
    seen.retain(|replica, known| {
        let late = state.starts.get(replica).is_some_and(|w| w.given_up && w.ready_at.is_none());
        let reason = if late {
            Some(format!("failed start: {replica} has been loading since {}", known.since))
        } else {
            silent.get(replica).map(|since| format!("{replica} is silent since {since}"))
        };
        if let Some(reason) = &reason {
            notes.push(reason.clone());
            blocked.extend(known.gpus.iter().map(|g| (g.clone(), Availability::Occupied(reason.clone()))));
        }
        reason.is_none()
    });
    seen
}

fn silent_replicas(state: &State, now: Timestamp) -> BTreeMap<ReplicaId, Timestamp> {
    // When all of them are silent it is the source that is: what GPUs show is held then.
    let silent = |t: &&TargetState| t.last_ok.is_some() && state.is_silent(t, now) && !state.is_dark(&t.target.workload);
    state.targets.values().filter(silent).filter_map(|t| Some((t.target.replica.clone()?, t.last_ok?))).collect()
}

/// Replicas that only their configured targets show: on the GPUs the target names or, where it names none, on GPUs that nobody saw free.
fn replicas_behind_targets(
    state: &State,
    now: Timestamp,
    replicas: &mut BTreeMap<ReplicaId, Seen>,
    blocked: &mut BTreeMap<GpuId, Availability>,
    notes: &mut Vec<String>,
) -> BTreeSet<PoolId> {
    let mut assumed: BTreeMap<PoolId, (usize, &TargetId)> = BTreeMap::new();
    let mut taken: BTreeSet<GpuId> = replicas.values().flat_map(|s| s.gpus.clone()).collect();
    taken.extend(state.targets.values().flat_map(|t| t.target.gpus.clone()));
    taken.extend(state.jobs.values().flat_map(|j| j.gpus.clone()));
    for known in state.targets.values() {
        let target = &known.target;
        // A router holds no GPU.
        let (None, Some(variant)) = (&target.replica, &target.variant) else { continue };
        let Ok(replica) = ReplicaId::new(format!("{variant}@{}", target.id)) else { continue };
        let mut gpus = if target.gpus.is_empty() { held_by_pod(state, target) } else { target.gpus.clone() };
        if gpus.is_empty() {
            gpus = assumed_gpus(state, variant, &taken);
            if gpus.is_empty() {
                notes.push(format!("target {} names no GPUs and none could be its own: its replica is not planned with", target.id));
                continue;
            }
            taken.extend(gpus.iter().cloned());
            if let Some(pool) = state.setup.fleet.gpu(&gpus[0]).map(|g| g.pool.clone()) {
                assumed.entry(pool).or_insert((0, &target.id)).0 += 1;
            }
        }
        match known.last_ok {
            Some(at) if !state.is_silent(known, now) || state.is_dark(&target.workload) => {
                let since = at.min(now);
                replicas.insert(replica, Seen { variant: variant.clone(), gpus, since, ready_at: since, protected_until: None });
            }
            last => {
                let reason =
                    last.map_or_else(|| format!("target {} has not answered yet", target.id), |at| format!("target {} is silent since {at}", target.id));
                blocked.extend(gpus.into_iter().map(|g| (g, Availability::Occupied(reason.clone()))));
            }
        }
    }
    notes.extend(
        assumed.iter().map(|(pool, (n, first))| {
            format!("{n} replicas run in pool {pool}, on GPUs nobody names ({first} first): GPUs of the pool are counted, not named")
        }),
    );
    assumed.into_keys().collect()
}

/// The GPUs that GPU pages say a target's pod holds.
fn held_by_pod(state: &State, target: &Target) -> Vec<GpuId> {
    let Some(pod) = &target.pod else { return Vec::new() };
    state.gpu_holders.iter().filter(|(_, holder)| *holder == pod).map(|(gpu, _)| gpu.clone()).collect()
}

/// The first GPUs of one island of the variant's kind that nothing claims and nobody saw free.
fn assumed_gpus(state: &State, variant: &VariantId, taken: &BTreeSet<GpuId>) -> Vec<GpuId> {
    let Some(variant) = state.setup.variants.iter().find(|v| &v.id == variant) else { return Vec::new() };
    let mut by_island: BTreeMap<_, Vec<&Gpu>> = BTreeMap::new();
    for gpu in &state.setup.fleet.gpus {
        let right_kind = state.setup.fleet.pool(&gpu.pool).is_some_and(|p| p.kind == variant.kind);
        let status = state.gpus.get(&gpu.id).map(|r| &r.status);
        // A GPU that a pod is known to hold is that pod's.
        if right_kind && !taken.contains(&gpu.id) && !state.gpu_holders.contains_key(&gpu.id) && matches!(status, None | Some(GpuStatus::Occupied(_))) {
            by_island.entry(&gpu.island).or_default().push(gpu);
        }
    }
    let wanted = variant.gpus as usize;
    by_island.values().find(|g| g.len() >= wanted).map_or_else(Vec::new, |g| g.iter().take(wanted).map(|g| g.id.clone()).collect())
}

fn jobs_on_gpus(state: &State, now: Timestamp, blocked: &BTreeMap<GpuId, Availability>) -> Vec<Resident> {
    let failed = |gpu: &GpuId| blocked.contains_key(gpu) || matches!(state.gpus.get(gpu).map(|r| &r.status), Some(GpuStatus::Failed(_)));
    let running = state.jobs.values().filter(|j| j.state == JobState::Running && !j.gpus.is_empty() && !j.gpus.iter().any(failed));
    running
        .filter_map(|reading| {
            let workload = state.setup.workloads.iter().find(|w| w.id.as_str() == reading.job.as_str())?;
            let since = reading.since.unwrap_or(now);
            Some(Resident {
                occupant: Occupant::Job { job: reading.job.clone() },
                gpus: reading.gpus.clone(),
                since,
                ready_at: since + workload.job()?.startup,
                protected_until: None,
            })
        })
        .collect()
}

/// Residents that contradict the fleet (unknown GPU, several islands, a GPU that is out of order, two on one GPU) are not planned with; their
/// GPUs stay occupied.
fn drop_impossible(state: &State, residents: &mut Vec<Resident>, slots: &mut [GpuSlot], notes: &mut Vec<String>) {
    let mut taken: BTreeSet<GpuId> = BTreeSet::new();
    residents.retain(|resident| {
        let places: Vec<&GpuSlot> = resident.gpus.iter().filter_map(|g| slots.iter().find(|s| &s.id == g)).collect();
        let islands: BTreeSet<_> = places.iter().map(|s| &s.island).collect();
        let wanted = match &resident.occupant {
            Occupant::Replica { variant, .. } => state.setup.variants.iter().find(|v| &v.id == variant).map(|v| v.gpus),
            Occupant::Job { job } => state.setup.workloads.iter().find(|w| w.id.as_str() == job.as_str()).and_then(|w| w.job()).map(|j| j.gang),
        };
        let sound = places.len() == resident.gpus.len()
            && islands.len() == 1
            && wanted.is_some_and(|w| w as usize == resident.gpus.len())
            && places.iter().all(|s| s.availability == Availability::Usable)
            && resident.gpus.iter().all(|g| !taken.contains(g));
        if sound {
            taken.extend(resident.gpus.iter().cloned());
        } else {
            let reason = format!("{} is seen on {} GPUs where it cannot be; they are left alone", resident.occupant.name(), resident.gpus.len());
            let left = |s: &&mut GpuSlot| resident.gpus.contains(&s.id) && s.availability == Availability::Usable && !taken.contains(&s.id);
            for slot in slots.iter_mut().filter(left) {
                slot.availability = Availability::Occupied(reason.clone());
            }
            notes.push(reason);
        }
        sound
    });
}

/// Whole seconds, never too few. Negative or absurd values are cut to a day.
#[expect(clippy::cast_possible_truncation, reason = "clamped to a day")]
pub(crate) fn round_up(seconds: f64) -> i64 {
    if seconds.is_finite() { seconds.clamp(0.0, 86_400.0).ceil() as i64 } else { 86_400 }
}
