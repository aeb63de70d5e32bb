//! One scenario under one policy, and what came of it.

use crate::catalogue::minutes_f64;
use crate::map::MapMaker;
use crate::policy::{PolicyKind, policy};
use crate::score::hour_start;
use crate::turnaround::LoopReport;
use crate::world::{HourOfService, ReplicaLife, World};
use crate::{GpuMap, Scenario, ScenarioError};
use fleet::{Class, HourKind, JobId, Ledger, Timestamp, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How to run it.
pub struct Options<'a> {
    /// Scores and books begin here; before, the policies warm up.
    pub score_from: Timestamp,
    /// Minutes between two rounds of scrapes.
    pub scrape_every: u32,
    /// Called now and then.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Whose run.
    pub policy: PolicyKind,
    /// Minutes simulated.
    pub minute: usize,
    /// Minutes to simulate.
    pub minutes: usize,
    /// Cycles of the loop so far.
    pub cycles: u64,
}

/// What became of one service's requests in the scored part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceScore {
    /// Whose.
    pub workload: WorkloadId,
    /// Requests that came.
    pub arrived: f64,
    /// First token in time.
    pub in_time: f64,
    /// Late, or hung up.
    pub late: f64,
    /// In time / (in time + late).
    pub attainment: Option<f64>,
}

/// One service in one hour, as it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceHour {
    /// Whose.
    pub workload: WorkloadId,
    /// Start of the hour.
    pub start: Timestamp,
    /// Requests that came.
    pub arrived: f64,
    /// First token in time.
    pub in_time: f64,
    /// Late, or hung up.
    pub late: f64,
    /// Ready replicas, mean over the hour.
    pub ready: f64,
}

/// What became of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobScore {
    /// Which.
    pub job: JobId,
    /// Its class.
    pub class: Class,
    /// When it was released.
    pub release: Timestamp,
    /// When it is wanted.
    pub deadline: Option<Timestamp>,
    /// When it first held GPUs.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub done_at: Option<Timestamp>,
    /// Work left at the end, gang-seconds at speed 1.
    pub remaining_s: f64,
    /// How often it was stopped to make room.
    pub preempted: u32,
    /// It missed a deadline that lies before the end.
    pub late: bool,
    /// It counts: its deadline lies in the scored part (or it has none).
    pub scored: bool,
}

/// What came of a scenario under a policy. The same seed gives the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Who decided.
    pub policy: PolicyKind,
    /// Seed of the scenario.
    pub seed: u64,
    /// Start of the simulation.
    pub start: Timestamp,
    /// Start of the scored part.
    pub scored_from: Timestamp,
    /// End of both.
    pub end: Timestamp,
    /// Hours simulated, warm-up included.
    pub hours_simulated: f64,
    /// GPU-hours that the rows must add up to: all of owned GPUs, those held of rented ones, in the scored part.
    pub calendar_gpu_hours: f64,
    /// GPU-hours by kind.
    pub hours: BTreeMap<HourKind, f64>,
    /// The books.
    pub ledger: Ledger,
    /// Money owed; unknown when a GPU has no price.
    pub bill: Option<f64>,
    /// Useful / all.
    pub useful_utilisation: Option<f64>,
    /// Bill / useful hours.
    pub cost_per_useful_gpu_hour: Option<f64>,
    /// Requests in time / all that were served or hung up, over services that cannot wait (over all, when there are none).
    pub attainment: Option<f64>,
    /// The same by service.
    pub services: Vec<ServiceScore>,
    /// Hour by hour, from the start.
    pub service_hours: Vec<ServiceHour>,
    /// Requests still waiting at the end, by service.
    pub waiting_at_end: BTreeMap<WorkloadId, f64>,
    /// Jobs that count and missed their deadline.
    pub jobs_late: usize,
    /// Jobs that count.
    pub jobs_total: usize,
    /// All jobs.
    pub jobs: Vec<JobScore>,
    /// Replicas started.
    pub starts: u32,
    /// Replicas stopped.
    pub stops: u32,
    /// Stops followed at once by a start of the same variant elsewhere.
    pub moves: u32,
    /// Jobs stopped to make room.
    pub preemptions: u32,
    /// Every replica that ever ran.
    pub replicas: Vec<ReplicaLife>,
    /// GPU x hour.
    pub map: GpuMap,
    /// What the loop has to tell, when it decided.
    pub turnaround: Option<LoopReport>,
}

/// Minutes between two calls of the progress function.
const PROGRESS_EVERY: usize = 360;

/// Runs a scenario under a policy.
///
/// # Errors
/// When the scenario contradicts itself.
pub fn run(scenario: &Scenario, kind: PolicyKind, options: &mut Options<'_>) -> Result<Run, ScenarioError> {
    scenario.validate()?;
    let mut world = World::new(scenario, options.score_from);
    let mut decider = policy(kind, scenario, options.score_from, options.scrape_every);
    let mut map = MapMaker::new(&world.catalogue);
    let minutes = world.catalogue.minutes;
    while world.minute < minutes {
        world.settle();
        decider.act(&mut world);
        let kept = decider.kept(&world);
        world.live();
        let mut books = std::mem::take(&mut world.books);
        books.minute(&mut world, &kept, &mut map);
        world.books = books;
        world.pass();
        if world.minute.is_multiple_of(PROGRESS_EVERY) || world.minute == minutes {
            (options.progress)(Progress { policy: kind, minute: world.minute, minutes, cycles: decider.cycles() });
        }
    }
    world.settle();
    // What no stop has thrown away by the end is taken as done.
    for at in 0..world.jobs.len() {
        let mut pending = std::mem::take(&mut world.jobs[at].pending);
        world.books.settle(&mut pending, true);
    }
    let report = decider.report(&world);
    Ok(result(scenario, kind, options.score_from, &world, map, report))
}

fn result(scenario: &Scenario, kind: PolicyKind, from: Timestamp, world: &World, map: MapMaker, turnaround: Option<LoopReport>) -> Run {
    let ledger = world.books.ledger.clone();
    let bill = (!world.books.unpriced).then(|| ledger.bill());
    let services: Vec<ServiceScore> = world.catalogue.services.iter().enumerate().map(|(at, s)| service_score(world, at, s.id.clone(), from)).collect();
    let urgent: Vec<&ServiceScore> = services.iter().zip(&world.catalogue.services).filter(|(_, s)| s.class.cannot_wait()).map(|(score, _)| score).collect();
    let counted = if urgent.is_empty() { services.iter().collect() } else { urgent };
    let (good, bad) = counted.iter().fold((0.0, 0.0), |(g, b), s| (g + s.in_time, b + s.late));
    let jobs: Vec<JobScore> = (0..world.jobs.len()).map(|at| job_score(world, at, from, scenario.end())).collect();
    Run {
        policy: kind,
        seed: scenario.seed,
        start: scenario.start,
        scored_from: from,
        end: scenario.end(),
        hours_simulated: scenario.length.as_hours(),
        #[expect(clippy::cast_precision_loss, reason = "GPU-minutes of a simulation lie far below 2^52")]
        calendar_gpu_hours: world.books.calendar_minutes as f64 / 60.0,
        hours: HourKind::ALL.into_iter().map(|k| (k, ledger.hours(k))).collect(),
        bill,
        useful_utilisation: ledger.useful_utilisation(),
        cost_per_useful_gpu_hour: bill.and_then(|_| ledger.cost_per_useful_hour()),
        ledger,
        attainment: share(good, bad),
        service_hours: service_hours(world),
        waiting_at_end: world.catalogue.services.iter().zip(&world.queues).map(|(s, q)| (s.id.clone(), q.waiting())).collect(),
        services,
        jobs_late: jobs.iter().filter(|j| j.scored && j.late).count(),
        jobs_total: jobs.iter().filter(|j| j.scored).count(),
        jobs,
        starts: world.turns.starts,
        stops: world.turns.stops,
        moves: world.turns.moves,
        preemptions: world.turns.preemptions,
        replicas: world.lives.clone(),
        map: map.finish(&world.catalogue),
        turnaround,
    }
}

fn share(good: f64, bad: f64) -> Option<f64> {
    (good + bad > 0.0).then(|| (good / (good + bad)).clamp(0.0, 1.0))
}

fn service_score(world: &World, at: usize, workload: WorkloadId, from: Timestamp) -> ServiceScore {
    let scored = world.hours[at].iter().enumerate().filter(|(h, _)| hour_start(&world.catalogue, *h) >= from).map(|(_, h)| h);
    let sum = scored.fold(HourOfService::default(), |mut sum, h| {
        sum.arrived += h.arrived;
        sum.in_time += h.in_time;
        sum.late += h.late;
        sum
    });
    ServiceScore { workload, arrived: sum.arrived, in_time: sum.in_time, late: sum.late, attainment: share(sum.in_time, sum.late) }
}

fn service_hours(world: &World) -> Vec<ServiceHour> {
    let mut out = Vec::new();
    for (service, hours) in world.catalogue.services.iter().zip(&world.hours) {
        out.extend(hours.iter().enumerate().map(|(index, h)| ServiceHour {
            workload: service.id.clone(),
            start: hour_start(&world.catalogue, index),
            arrived: h.arrived,
            in_time: h.in_time,
            late: h.late,
            ready: h.ready_minutes / minutes_f64((world.catalogue.minutes - index * 60).clamp(1, 60)),
        }));
    }
    out
}

fn job_score(world: &World, at: usize, from: Timestamp, end: Timestamp) -> JobScore {
    let (entry, now) = (&world.catalogue.jobs[at], &world.jobs[at]);
    let deadline = entry.job.deadline;
    JobScore {
        job: entry.id.clone(),
        class: entry.class,
        release: entry.job.release,
        deadline,
        started_at: now.first_started,
        done_at: now.done_at,
        remaining_s: now.remaining_s,
        preempted: now.preempted,
        late: deadline.is_some_and(|d| d <= end && now.done_at.is_none_or(|done| done > d)),
        scored: deadline.is_none_or(|d| d > from),
    }
}
