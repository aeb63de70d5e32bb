//! `[[job]]`: work of a known amount.

use crate::{
    error::{Code, Findings},
    gpu_refs,
    pools::{largest_island, mean_price},
    preset_models::held_memory,
    resolved::RunningJob,
    services::{class, name, priority},
    typed,
    written::At,
};
use fleet::{Bytes, Class, Fleet, Gpu, GpuId, GpuKindId, Job, JobId, Span, Timestamp, Workload, WorkloadId, WorkloadKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Most GPUs a gang may have.
const GANG_MAX: i64 = 1_024;
/// Longest work accepted: a year of gang time.
const WORK_MAX: Span = Span(365 * 86_400);
/// Fastest speed accepted, relative to the kind the work was stated for.
const SPEED_MAX: f64 = 1_000.0;
/// Classes with a fixed amount of work: all but real-time inference, which has no end.
const CLASSES: [Class; 6] = [Class::Batch, Class::Training, Class::FineTuning, Class::Quantisation, Class::Embedding, Class::Evaluation];

pub(crate) fn resolve(
    typed: &typed::File,
    fleet: &Fleet,
    names: &mut BTreeMap<WorkloadId, Range<usize>>,
    findings: &mut Findings<'_>,
) -> (Vec<Workload>, Vec<RunningJob>) {
    let (mut jobs, mut running) = (Vec::new(), Vec::new());
    let mut taken: BTreeSet<GpuId> = BTreeSet::new();
    let price = mean_price(fleet);
    for table in &typed.job {
        let Some(workload) = workload(table, fleet, price, names, findings) else { continue };
        if let (Some(at), Some(job)) = (&table.get().running, workload.job())
            && let Some(run) = run(at, &workload.id, job, fleet, &mut taken, findings)
        {
            running.push(run);
        }
        jobs.push(workload);
    }
    running.sort_by(|a, b| a.job.cmp(&b.job));
    (jobs, running)
}

fn workload(
    table: &At<typed::Job>,
    fleet: &Fleet,
    price: f64,
    names: &mut BTreeMap<WorkloadId, Range<usize>>,
    findings: &mut Findings<'_>,
) -> Option<Workload> {
    let typed = table.get();
    let who = format!("job {:?}", typed.name.get());
    let id = name(&typed.name, names, findings);
    let work = findings.span(&typed.work, "work", Span(1), WORK_MAX);
    let gang = typed.gang.as_ref().map_or(Some(1), |at| findings.count(at, "gang", 1, GANG_MAX));
    let class = class(&typed.class, &CLASSES, "work that arrives per second is a [[service]]", findings);
    let placement = placement(table, &who, fleet, findings);
    let times = times(typed, &who, findings);
    let (work, gang, class, (speed, memory_per_gpu), (release, deadline)) = (work?, gang?, class?, placement?, times?);
    check_gang(typed, &who, gang, &speed, fleet, findings);
    check_deadline(typed, &who, work, release, deadline, &speed, findings);
    let defaults = class.defaults();
    let (checkpoint, preemptible) = checkpoint(typed, &who, class, findings);
    let value = typed.value.as_ref().map_or(Some(defaults.value_per_price * price), |at| findings.number(at, "value", 0.0..=f64::MAX));
    let lateness_default = defaults.lateness_per_price * price * f64::from(gang);
    let lateness = typed.lateness.as_ref().map_or(Some(lateness_default), |at| findings.number(at, "lateness", 0.0..=f64::MAX));
    let startup = typed.startup.as_ref().map_or(Some(defaults.startup), |at| findings.span(at, "startup", Span::ZERO, Span::DAY));
    let priority = priority(typed.priority.as_ref(), class, findings);
    let job = Job {
        work,
        gang,
        memory_per_gpu,
        speed,
        release: release.unwrap_or_default(),
        deadline,
        checkpoint,
        preemptible,
        value_per_gpu_hour: value?,
        lateness_per_hour: lateness?,
        startup: startup?,
    };
    Some(Workload { id: id?, class, tenant: typed.tenant.clone(), priority: priority?, kind: WorkloadKind::Job(job) })
}

/// Where a job may run, how fast, and what it holds there.
fn placement(table: &At<typed::Job>, who: &str, fleet: &Fleet, findings: &mut Findings<'_>) -> Option<(BTreeMap<GpuKindId, f64>, Bytes)> {
    let typed = table.get();
    let memory = match &typed.memory {
        Some(at) => Some(findings.size(at, "memory")?),
        None => None,
    };
    let named = named_kinds(table, who, fleet, findings);
    let all = matches!(named, Named::No);
    let mut speed = match (named, memory) {
        (Named::Faulty, _) => return None,
        (Named::Kinds(kinds), _) => kinds,
        (Named::No, Some(_)) => fleet.kinds.keys().map(|kind| (kind.clone(), 1.0)).collect(),
        (Named::No, None) => {
            let help = "add memory = \"60GiB\" (what it holds of each GPU), or on = [\"...\"] (the kinds it may run on)";
            findings.refuse(Code::Shape, table.span(), format!("{who} does not say which GPUs it may run on"), "needs memory or on", help);
            return None;
        }
    };
    let of = |kind: &GpuKindId| fleet.kinds.get(kind).map_or(Bytes(0), |kind| kind.memory);
    let smallest = speed.keys().map(of).min().unwrap_or(Bytes(0));
    let Some(memory) = memory else { return Some((speed, held_memory(smallest))) };
    let largest = speed.keys().map(of).max().unwrap_or(Bytes(0));
    if memory > largest && findings.fleet_is_sound() {
        let place = if all { "any GPU kind of the fleet" } else { "the kinds it may run on" };
        let span = typed.memory.as_ref().map_or_else(|| table.span(), At::span);
        let message = format!("{who} holds {memory} of each GPU, but the largest of {place} has {largest}");
        findings.refuse(Code::Memory, span, message, "more than any GPU has", "raise gang and lower memory, or allow a larger kind");
        return None;
    }
    speed.retain(|kind, _| of(kind) >= memory);
    Some((speed, memory))
}

/// GPU kinds a job names.
enum Named {
    /// A fault was noted.
    Faulty,
    /// It names none.
    No,
    /// These, with their speed.
    Kinds(BTreeMap<GpuKindId, f64>),
}

fn named_kinds(table: &At<typed::Job>, who: &str, fleet: &Fleet, findings: &mut Findings<'_>) -> Named {
    let typed = table.get();
    let entries: Vec<(&str, Range<usize>, Option<f64>)> = match (&typed.on, &typed.speed) {
        (None, None) => return Named::No,
        (Some(on), Some(_)) => {
            let help = "remove `on`: the kinds named in `speed` are those it may run on";
            findings.refuse(Code::Conflict, on.span(), format!("{who} has both on and speed"), "one or the other", help);
            return Named::Faulty;
        }
        (Some(on), None) => on.entries().into_iter().map(|(name, span)| (name, span, Some(1.0))).collect(),
        (None, Some(speed)) => {
            let read = |(name, at): (_, &At<f64>)| (name, at.span(), findings.above_zero(at, &format!("speed on {name}"), SPEED_MAX));
            speed.get().iter().map(|(name, at)| (name.as_str(), at)).map(read).collect()
        }
    };
    if entries.is_empty() {
        findings.refuse(Code::Conflict, table.span(), format!("{who} may run on no GPU kind"), "an empty list", "name at least one kind, or leave the key out");
        return Named::Faulty;
    }
    let mut kinds = BTreeMap::new();
    let count = entries.len();
    for (name, span, speed) in entries {
        let known = fleet.kinds.keys().find(|kind| kind.as_str() == name);
        if known.is_none() && findings.fleet_is_sound() {
            findings.dangling(span, who, "GPU kind of a pool", name, fleet.kinds.keys().map(GpuKindId::as_str));
        }
        kinds.extend(known.cloned().zip(speed));
    }
    if kinds.len() == count { Named::Kinds(kinds) } else { Named::Faulty }
}

type Times = (Option<Timestamp>, Option<Timestamp>);

fn times(typed: &typed::Job, who: &str, findings: &mut Findings<'_>) -> Option<Times> {
    let release = match &typed.release {
        Some(at) => Some(findings.instant(at, "release")?),
        None => None,
    };
    let deadline = match &typed.deadline {
        Some(at) => Some(findings.instant(at, "deadline")?),
        None => None,
    };
    if let (Some(from), Some(until), Some(at)) = (release, deadline, &typed.deadline)
        && until <= from
    {
        let message = format!("{who} is wanted by {until} but may not start before {from}");
        findings.refuse(Code::MinAboveMax, at.span(), message, "not after release", "move the deadline or the release");
        return None;
    }
    Some((release, deadline))
}

/// Work between release and deadline must be possible at the best speed, alone on the fleet.
fn check_deadline(
    typed: &typed::Job,
    who: &str,
    work: Span,
    release: Option<Timestamp>,
    deadline: Option<Timestamp>,
    speed: &BTreeMap<GpuKindId, f64>,
    findings: &mut Findings<'_>,
) {
    let (Some(from), Some(until), Some(at)) = (release, deadline, &typed.deadline) else { return };
    let best = speed.values().copied().fold(0.0, f64::max);
    if best > 0.0 && work.as_secs_f64() / best > until.since(from).as_secs_f64() {
        let message = format!("{who} needs {work} of work (best speed {best}), but has {} between release and deadline", until.since(from));
        findings.refuse(Code::Instant, at.span(), message, "cannot be met", "move the deadline, release it earlier, or allow a faster kind");
    }
}

fn check_gang(typed: &typed::Job, who: &str, gang: u32, speed: &BTreeMap<GpuKindId, f64>, fleet: &Fleet, findings: &mut Findings<'_>) {
    let kinds: BTreeSet<GpuKindId> = speed.keys().cloned().collect();
    let largest = largest_island(fleet, &kinds);
    if let Some(at) = typed.gang.as_ref().filter(|_| gang > largest && findings.fleet_is_sound()) {
        let names: Vec<&str> = kinds.iter().map(GpuKindId::as_str).collect();
        let message = format!("{who} needs {gang} GPUs in one island, but islands of {} hold at most {largest}", names.join(", "));
        findings.refuse(
            Code::Island,
            at.span(),
            message,
            "larger than any island",
            format!("lower gang to {largest}, allow other kinds, or check `island` of the pool"),
        );
    }
}

/// Checkpoint interval and whether the job may be stopped; without the former never.
fn checkpoint(typed: &typed::Job, who: &str, class: Class, findings: &mut Findings<'_>) -> (Option<Span>, bool) {
    let defaults = class.defaults();
    let checkpoint = match &typed.checkpoint {
        Some(at) if at.get().0.text == "never" => None,
        Some(at) => findings.span(at, "checkpoint", Span(1), WORK_MAX),
        None => defaults.checkpoint,
    };
    let said = typed.preemptible.as_ref().map(|at| (*at.get(), at));
    if let (Some((true, at)), None) = (said, checkpoint) {
        let help = "add checkpoint = \"30m\", or remove preemptible: a job without checkpoints is never stopped";
        findings.refuse(Code::Conflict, at.span(), format!("{who} is preemptible but writes no checkpoints"), "would lose all its work", help);
    }
    // Writing checkpoints is what makes a class that usually does not stoppable.
    let preemptible = said.map_or(defaults.preemptible || typed.checkpoint.is_some(), |(said, _)| said);
    (checkpoint, preemptible && checkpoint.is_some())
}

/// Where a job runs already.
fn run(at: &At<typed::Running>, id: &WorkloadId, job: &Job, fleet: &Fleet, taken: &mut BTreeSet<GpuId>, findings: &mut Findings<'_>) -> Option<RunningJob> {
    let typed = at.get();
    let who = format!("job {:?}", id.as_str());
    let since = findings.instant(&typed.since, "since");
    let done = typed.done.as_ref().map_or(Some(Span::ZERO), |at| findings.span(at, "done", Span::ZERO, job.work));
    let gpus: Vec<&Gpu> = gpu_refs::gpus(&typed.gpus.entries(), &who, fleet, findings)?;
    if !gpu_refs::fit(&gpus, job.gang, &who, typed.gpus.span(), findings) {
        return None;
    }
    let allowed = |gpu: &Gpu| fleet.pool(&gpu.pool).is_some_and(|pool| job.speed.contains_key(&pool.kind));
    if let Some(gpu) = gpus.iter().find(|gpu| !allowed(gpu)) {
        findings.refuse(
            Code::Placement,
            typed.gpus.span(),
            format!("{who} may not run on the kind of GPU {}", gpu.id),
            "another kind",
            "add its kind to `on`, or name other GPUs",
        );
        return None;
    }
    for gpu in &gpus {
        if !taken.insert(gpu.id.clone()) {
            findings.refuse(Code::Duplicate, typed.gpus.span(), format!("GPU {} runs two jobs", gpu.id), "held by another job", "a GPU runs one job at a time");
            return None;
        }
    }
    Some(RunningJob { job: JobId::new(id.as_str()).ok()?, gpus: gpus.iter().map(|gpu| gpu.id.clone()).collect(), since: since?, done: done? })
}
