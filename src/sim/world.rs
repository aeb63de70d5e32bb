//! The world: what really happens, minute by minute.

use crate::account::Books;
use crate::catalogue::{Catalogue, minutes_f64};
use crate::gpu::{GpuNow, Holder};
use crate::jobs::{JobMinute, JobNow, JobRun};
use crate::queue::Queue;
use crate::replica::{Counters, MinuteOfService, Replica};
use crate::{FaultKind, Scenario};
use fleet::{GpuId, ReplicaId, Span, SpeedProfile, Timestamp, VariantId, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A stop and a start of the same variant within this time are one move.
const MOVE_WITHIN: Span = Span::minutes(15);
/// A stopped replica finishes what it has begun and leaves after this.
pub(crate) const DRAIN: Span = Span::MINUTE;
/// Time between tokens where the profile does not say, seconds: a usual pace of interactive serving.
const ITL_ASSUMED_S: f64 = 0.025;
/// Prefill where the profile does not say, seconds.
const PREFILL_ASSUMED_S: f64 = 0.2;

/// The life of one replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLife {
    /// Which.
    pub replica: ReplicaId,
    /// Of what.
    pub variant: VariantId,
    /// For whom (the first service of the variant).
    pub workload: Option<WorkloadId>,
    /// Where.
    pub gpus: Vec<GpuId>,
    /// When it took its GPUs.
    pub started: Timestamp,
    /// When it served.
    pub ready: Timestamp,
    /// When it left them. `None`: it ran to the end.
    pub stopped: Option<Timestamp>,
}

/// Share of a replica's minute spent serving.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Use {
    pub cannot_wait: f64,
    pub can_wait: f64,
}

/// What became of a service's requests in one hour.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HourOfService {
    pub arrived: f64,
    pub in_time: f64,
    pub late: f64,
    pub ready_minutes: f64,
}

/// Since the last look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes {
    /// Something took or left GPUs, failed or returned.
    pub placement: bool,
    /// A replica began to serve.
    pub ready: bool,
    /// Jobs that ended, with the GPUs they left.
    pub ended: Vec<(usize, Vec<usize>)>,
}

/// Counts of change in the scored part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Turns {
    pub starts: u32,
    pub stops: u32,
    pub moves: u32,
    pub preemptions: u32,
    pub killed: u32,
}

pub(crate) struct World<'a> {
    pub catalogue: Catalogue,
    pub now: Timestamp,
    pub minute: usize,
    pub gpus: Vec<GpuNow>,
    pub replicas: BTreeMap<ReplicaId, Replica>,
    pub jobs: Vec<JobNow>,
    pub queues: Vec<Queue>,
    pub books: Books,
    /// By service: what became of its requests, hour by hour.
    pub hours: Vec<Vec<HourOfService>>,
    pub lives: Vec<ReplicaLife>,
    pub turns: Turns,
    pub changes: Changes,
    /// Of the minute just lived through: shares of each replica's use, by service what could be and was served, what each job did.
    pub used: BTreeMap<ReplicaId, Use>,
    pub capacity_now: Vec<f64>,
    pub served_now: Vec<f64>,
    pub job_minutes: Vec<JobMinute>,
    scenario: &'a Scenario,
    score_from: Timestamp,
    next_fault: usize,
    faults: Vec<(Timestamp, usize, FaultKind)>,
    recent_stops: Vec<(usize, Timestamp)>,
}

impl<'a> World<'a> {
    pub fn new(scenario: &'a Scenario, score_from: Timestamp) -> Self {
        let catalogue = Catalogue::new(scenario);
        let mut faults: Vec<(Timestamp, usize, FaultKind)> =
            scenario.faults.iter().filter_map(|f| Some((f.at, catalogue.gpus.iter().position(|g| g.id == f.gpu)?, f.kind))).collect();
        faults.sort_by_key(|f| (f.0, f.1));
        let hours = catalogue.minutes.div_ceil(60);
        Self {
            now: scenario.start,
            minute: 0,
            gpus: vec![GpuNow::default(); catalogue.gpus.len()],
            replicas: BTreeMap::new(),
            jobs: catalogue.jobs.iter().map(|j| JobNow::new(&j.job)).collect(),
            queues: vec![Queue::default(); catalogue.services.len()],
            books: Books::default(),
            hours: vec![vec![HourOfService::default(); hours]; catalogue.services.len()],
            lives: Vec::new(),
            turns: Turns::default(),
            changes: Changes { placement: true, ..Changes::default() },
            used: BTreeMap::new(),
            capacity_now: vec![0.0; catalogue.services.len()],
            served_now: vec![0.0; catalogue.services.len()],
            job_minutes: vec![JobMinute { loading: 0.0, working: 0.0, safe: false }; catalogue.jobs.len()],
            catalogue,
            scenario,
            score_from,
            next_fault: 0,
            faults,
            recent_stops: Vec::new(),
        }
    }

    pub fn is_scored(&self) -> bool {
        self.now >= self.score_from
    }

    /// Whether looks at a service's endpoints fail now, whatever they would show.
    pub fn is_dark(&self, service: usize) -> bool {
        let id = &self.catalogue.services[service].id;
        self.scenario.blackouts.iter().any(|b| b.covers(self.now) && &b.workload == id)
    }

    /// What happens by itself at the start of a minute: faults, replicas that leave or become ready, jobs whose end was reached.
    pub fn settle(&mut self) {
        while let Some((_, gpu, kind)) = self.faults.get(self.next_fault).copied().filter(|f| f.0 <= self.now) {
            self.next_fault += 1;
            self.changes.placement = true;
            match kind {
                FaultKind::Lost => self.lose(gpu),
                FaultKind::Returned => self.gpus[gpu].failed = false,
            }
        }
        let leaving: Vec<ReplicaId> = self.replicas.iter().filter(|(_, r)| r.leaves.is_some_and(|at| at <= self.now)).map(|(id, _)| id.clone()).collect();
        for id in leaving {
            self.remove(&id);
        }
        let now = self.now;
        self.changes.ready |= self.replicas.values().any(|r| r.ready <= now && r.ready.0 > now.0 - 60);
        for at in 0..self.jobs.len() {
            let job = &mut self.jobs[at];
            if job.done_at.is_some()
                && let Some(run) = job.run.take()
            {
                for gpu in &run.gpus {
                    self.gpus[*gpu].holder = None;
                }
                self.changes.placement = true;
                self.changes.ended.push((at, run.gpus));
            }
        }
    }

    fn lose(&mut self, gpu: usize) {
        match self.gpus[gpu].holder.clone() {
            Some(Holder::Replica(id)) => self.remove(&id),
            Some(Holder::Job(job)) => {
                self.turns.killed += u32::from(self.is_scored());
                self.evict(job);
            }
            None => {}
        }
        self.gpus[gpu].failed = true;
    }

    fn remove(&mut self, id: &ReplicaId) {
        let Some(replica) = self.replicas.remove(id) else { return };
        for gpu in &replica.gpus {
            self.gpus[*gpu].holder = None;
        }
        if let Some(life) = self.lives.iter_mut().rev().find(|l| &l.replica == id && l.stopped.is_none()) {
            life.stopped = Some(self.now);
        }
        self.recent_stops.push((replica.variant, self.now));
        self.turns.stops += u32::from(self.is_scored());
        self.changes.placement = true;
    }

    /// Starts a replica where all the GPUs are free, hold its memory and share an island. `expected_ready` is what the one who starts it believes.
    pub fn start_replica(&mut self, id: &ReplicaId, variant: usize, gpus: &[usize], expected_ready: Timestamp) -> bool {
        let entry = &self.catalogue.variants[variant];
        let fits = |g: &usize| self.gpus[*g].is_free() && self.catalogue.gpus[*g].kind == entry.kind && self.catalogue.gpus[*g].memory >= entry.memory;
        if gpus.len() != entry.gpus || !gpus.iter().all(fits) || !self.in_one_island(gpus) || self.replicas.contains_key(id) {
            return false;
        }
        #[expect(clippy::cast_possible_truncation, reason = "a cold start is seconds to hours")]
        let cold_start = self.catalogue.cold_start_s(variant, self.minute).round() as i64;
        let ready = self.now + Span(cold_start);
        for gpu in gpus {
            self.gpus[*gpu].holder = Some(Holder::Replica(id.clone()));
        }
        let counters = vec![Counters::default(); entry.services.len()];
        self.lives.push(ReplicaLife {
            replica: id.clone(),
            variant: entry.id.clone(),
            workload: entry.services.first().map(|s| self.catalogue.services[*s].id.clone()),
            gpus: gpus.iter().map(|g| self.catalogue.gpus[*g].id.clone()).collect(),
            started: self.now,
            ready,
            stopped: None,
        });
        self.replicas.insert(id.clone(), Replica { variant, gpus: gpus.to_vec(), started: self.now, ready, expected_ready, leaves: None, counters });
        let now = self.now;
        self.recent_stops.retain(|(_, at)| now.since(*at) <= MOVE_WITHIN);
        if let Some(stop) = self.recent_stops.iter().position(|(v, _)| *v == variant) {
            self.recent_stops.remove(stop);
            self.turns.moves += u32::from(self.is_scored());
        }
        self.turns.starts += u32::from(self.is_scored());
        self.changes.placement = true;
        true
    }

    /// The replica takes no new work and leaves in a minute.
    pub fn drain_replica(&mut self, id: &ReplicaId) {
        let leaves = self.now + DRAIN;
        if let Some(replica) = self.replicas.get_mut(id).filter(|r| r.leaves.is_none()) {
            replica.leaves = Some(leaves);
        }
    }

    /// The replica that was to leave stays.
    pub fn keep_replica(&mut self, id: &ReplicaId) {
        if let Some(replica) = self.replicas.get_mut(id) {
            replica.leaves = None;
        }
    }

    /// Starts a job's gang where all the GPUs are free, can run it and share an island.
    pub fn start_job(&mut self, at: usize, gpus: &[usize]) -> bool {
        let entry = &self.catalogue.jobs[at];
        let Some(speed) = gpus.first().and_then(|g| entry.speed_on(&self.catalogue.gpus[*g])) else { return false };
        let fits = |g: &usize| self.gpus[*g].is_free() && entry.speed_on(&self.catalogue.gpus[*g]) == Some(speed);
        let waiting = self.jobs[at].is_waiting(&entry.job, self.now);
        if !waiting || gpus.len() != entry.job.gang as usize || !gpus.iter().all(fits) || !self.in_one_island(gpus) {
            return false;
        }
        for gpu in gpus {
            self.gpus[*gpu].holder = Some(Holder::Job(at));
        }
        let job = &mut self.jobs[at];
        job.first_started.get_or_insert(self.now);
        job.run = Some(JobRun { gpus: gpus.to_vec(), speed, from: self.now, ready: self.now + entry.job.startup });
        self.changes.placement = true;
        true
    }

    /// Stops a job to make room. What it did since its last checkpoint is lost.
    pub fn preempt_job(&mut self, at: usize) {
        if self.jobs[at].run.is_some() {
            self.jobs[at].preempted += 1;
            self.turns.preemptions += u32::from(self.is_scored());
            self.evict(at);
        }
    }

    fn evict(&mut self, at: usize) {
        for gpu in self.jobs[at].stop() {
            self.gpus[gpu].holder = None;
        }
        let mut pending = std::mem::take(&mut self.jobs[at].pending);
        self.books.settle(&mut pending, false);
        self.changes.placement = true;
    }

    /// Jobs that were released and wait, first released first.
    pub fn waiting_jobs(&self) -> Vec<usize> {
        let mut waiting: Vec<usize> = (0..self.jobs.len()).filter(|j| self.jobs[*j].is_waiting(&self.catalogue.jobs[*j].job, self.now)).collect();
        waiting.sort_by_key(|j| (self.catalogue.jobs[*j].job.release, *j));
        waiting
    }

    fn in_one_island(&self, gpus: &[usize]) -> bool {
        gpus.windows(2).all(|w| self.catalogue.gpus[w[0]].island == self.catalogue.gpus[w[1]].island && w[0] != w[1])
    }

    /// Lets the minute from `now` pass: queues are served, jobs progress.
    pub fn live(&mut self) {
        self.used = self.replicas.keys().map(|id| (id.clone(), Use::default())).collect();
        let mut left: BTreeMap<ReplicaId, f64> = self.replicas.iter().map(|(id, r)| (id.clone(), r.serving_share(self.now))).collect();
        for at in self.catalogue.by_priority.clone() {
            self.serve(at, &mut left);
        }
        for at in 0..self.jobs.len() {
            let entry = &self.catalogue.jobs[at];
            let idle = JobMinute { loading: 0.0, working: 0.0, safe: false };
            self.job_minutes[at] = self.jobs[at].progress(&entry.job, self.now).unwrap_or(idle);
        }
    }

    /// The minute is over.
    pub fn pass(&mut self) {
        self.now = self.now + Span::MINUTE;
        self.minute += 1;
    }

    fn serve(&mut self, at: usize, left: &mut BTreeMap<ReplicaId, f64>) {
        let service = &self.catalogue.services[at];
        let minute = self.minute;
        let start_s = minutes_f64(minute) * 60.0;
        // What each replica could give this service, requests/s.
        let mut offers: Vec<(ReplicaId, usize, f64)> = Vec::new();
        let mut ready = 0.0;
        for (id, replica) in self.replicas.iter().filter(|(_, r)| service.variants.contains(&r.variant)) {
            let share = left.get(id).copied().unwrap_or(0.0);
            if share > 0.0 {
                ready += 1.0;
                offers.push((id.clone(), replica.variant, share * service.capacity_in(replica.variant, minute)));
            }
        }
        let rate: f64 = offers.iter().map(|o| o.2).sum();
        let arrivals = service.arrivals.get(minute).copied().unwrap_or(0.0);
        let gone = self.queues[at].hang_up(start_s, self.scenario.truth.patience.as_secs_f64());
        let served = self.queues[at].serve(start_s, 60.0, arrivals, rate);
        let prefill_s = offers.first().map_or(PREFILL_ASSUMED_S, |o| self.prefill_s(at, o.1));
        let service = &self.catalogue.services[at];
        let sums = MinuteOfService::new(&served, prefill_s);
        let in_time: f64 = served.iter().map(|s| s.within(service.ttft_s - prefill_s)).sum();
        let use_share = if rate > 0.0 { (sums.count / (rate * 60.0)).clamp(0.0, 1.0) } else { 0.0 };
        let cannot_wait = service.class.cannot_wait();
        for (id, variant, offer) in &offers {
            let itl_s = itl_s(&self.catalogue.variants[*variant].speed, service.output_tokens, sums.count / 60.0 * offer / rate);
            let slot = self.catalogue.variants[*variant].services.iter().position(|s| *s == at);
            if let (Some(replica), Some(slot)) = (self.replicas.get_mut(id), slot) {
                replica.counters[slot].add(&sums, offer / rate, service.input_tokens, service.output_tokens, service.hit_rate, itl_s);
            }
            let whole = left.get_mut(id).map_or(0.0, |l| {
                let taken = *l * use_share;
                *l -= taken;
                taken
            });
            let entry = self.used.entry(id.clone()).or_default();
            if cannot_wait {
                entry.cannot_wait += whole;
            } else {
                entry.can_wait += whole;
            }
        }
        self.capacity_now[at] = rate;
        self.served_now[at] = sums.count;
        let hour = &mut self.hours[at][minute / 60];
        hour.arrived += arrivals;
        hour.in_time += in_time;
        hour.late += sums.count - in_time + gone;
        hour.ready_minutes += ready;
    }

    /// Time from leaving the queue to the first token, seconds.
    fn prefill_s(&self, service: usize, variant: usize) -> f64 {
        let entry = &self.catalogue.services[service];
        match self.catalogue.variants[variant].speed {
            SpeedProfile::Linear { gamma_ms, delta_ms, .. } => (gamma_ms + delta_ms * entry.input_tokens * (1.0 - entry.hit_rate)) / 1_000.0,
            // The target itself may be shorter than what is assumed; then a request that does not wait is in time.
            SpeedProfile::RequestsPerS(_) => PREFILL_ASSUMED_S.min(entry.ttft_s * 0.5),
        }
    }
}

/// Time between two tokens of a replica that serves `per_s` requests/s, seconds. With step time `alpha + beta * batch` and the batch by Little's
/// law, `batch = per_s * output * step`, hence `step = alpha / (1 - beta * per_s * output)`.
fn itl_s(speed: &SpeedProfile, output_tokens: f64, per_s: f64) -> f64 {
    match speed {
        SpeedProfile::RequestsPerS(_) => ITL_ASSUMED_S,
        SpeedProfile::Linear { alpha_ms, beta_ms, max_batch, .. } => {
            let fullest = (alpha_ms + beta_ms * f64::from(*max_batch)) / 1_000.0;
            let slowing = 1.0 - beta_ms / 1_000.0 * per_s * output_tokens;
            if slowing > 0.0 { (alpha_ms / 1_000.0 / slowing).min(fullest) } else { fullest }
        }
    }
}
