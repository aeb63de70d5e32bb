//! Counting: what is held, ready, served and worked in every step, from the plan's own words.

use fleet::{
    Availability, GpuId, IslandId, JobId, JobSpec, JobWindow, Occupant, Plan, PoolId, Problem, ReplicaWindow, Resident, ServiceSpec, Timestamp, VariantId,
    WorkloadId,
};
use std::collections::{BTreeMap, BTreeSet};

/// Counts by pool and what stands there.
pub(crate) type Counts<'a, T> = BTreeMap<(&'a PoolId, &'a T), f64>;

/// A problem and a plan, with what both together say.
pub(crate) struct Tally<'a> {
    pub problem: &'a Problem,
    pub plan: &'a Plan,
    /// Number of committed steps.
    pub committed: usize,
    /// First instant after the committed part.
    pub end: Timestamp,
    /// For every replica window: the resident it continues.
    pub replica_origin: Vec<Option<&'a Resident>>,
    /// For every job window: the resident it continues.
    pub job_origin: Vec<Option<&'a Resident>>,
}

impl<'a> Tally<'a> {
    /// Looks up which windows continue what runs. The plan's committed steps must be those of the problem.
    pub fn new(problem: &'a Problem, plan: &'a Plan) -> Self {
        let mut claimed = BTreeSet::new();
        let mut claim = |is_same: &dyn Fn(&Resident) -> bool, from: Timestamp| -> Option<&'a Resident> {
            let (index, resident) = problem.residents.iter().enumerate().find(|(i, r)| from == problem.as_of && !claimed.contains(i) && is_same(r))?;
            claimed.insert(index);
            Some(resident)
        };
        let replica_origin = plan.committed.replicas.iter().map(|w| claim(&|r| is_replica(r, w), w.from)).collect();
        let job_origin = plan.committed.jobs.iter().map(|w| claim(&|r| is_run(r, w), w.from)).collect();
        Self { problem, plan, committed: problem.steps.iter().filter(|s| s.committed).count(), end: problem.committed_end(), replica_origin, job_origin }
    }

    /// Residents that no window continues.
    pub fn forgotten(&self) -> impl Iterator<Item = &'a Resident> {
        let known: Vec<&Resident> = self.replica_origin.iter().chain(&self.job_origin).flatten().copied().collect();
        self.problem.residents.iter().filter(move |r| !known.iter().any(|k| std::ptr::eq(*k, *r)))
    }

    /// Replica windows with the resident they continue.
    pub fn replicas(&self) -> impl Iterator<Item = (&'a ReplicaWindow, Option<&'a Resident>)> {
        self.plan.committed.replicas.iter().zip(self.replica_origin.iter().copied())
    }

    /// Job windows with the resident they continue.
    pub fn runs(&self) -> impl Iterator<Item = (&'a JobWindow, Option<&'a Resident>)> {
        self.plan.committed.jobs.iter().zip(self.job_origin.iter().copied())
    }

    /// Whether `[from, until)` covers the whole step.
    pub fn covers(&self, from: Timestamp, until: Timestamp, t: usize) -> bool {
        let step = &self.problem.steps[t];
        from <= step.start && step.end() <= until
    }

    /// Replicas that hold GPUs in step `t`.
    pub fn held(&self, t: usize) -> Counts<'a, VariantId> {
        match t.checked_sub(self.committed) {
            None => count(self.replicas().filter(|(w, _)| self.covers(w.from, w.until, t)).map(|(w, _)| ((&w.pool, &w.variant), 1.0))),
            Some(k) => self.plan.outlook.get(k).map_or_else(BTreeMap::new, |o| count(pairs(&o.replicas))),
        }
    }

    /// Replicas that serve in step `t`; in the outlook a replica that becomes ready inside the step counts in part.
    pub fn ready(&self, t: usize) -> Counts<'a, VariantId> {
        let step = &self.problem.steps[t];
        if t < self.committed {
            let serving = self.replicas().filter(|(w, _)| self.covers(w.from, w.until, t) && w.ready_at <= step.start);
            return count(serving.map(|(w, _)| ((&w.pool, &w.variant), 1.0)));
        }
        let mut ready = self.held(t);
        for (w, _) in self.replicas().filter(|(w, _)| w.until >= self.end) {
            *ready.entry((&w.pool, &w.variant)).or_default() -= 1.0 - step.availability(w.ready_at);
        }
        for tau in self.committed..=t {
            let begun = self.problem.steps[tau].start;
            let Some(outlook) = self.plan.outlook.get(tau - self.committed) else { continue };
            for (key, starts) in pairs(&outlook.starts) {
                let Some(variant) = self.problem.variant(key.1) else { continue };
                *ready.entry(key).or_default() -= (1.0 - step.availability(begun + variant.cold_start)) * starts;
            }
        }
        ready
    }

    /// Load served in step `t`, by service and variant.
    pub fn served(&self, t: usize) -> BTreeMap<(&'a WorkloadId, &'a VariantId), f64> {
        let mut served = BTreeMap::new();
        match t.checked_sub(self.committed) {
            None => {
                for r in self.plan.committed.routes.iter().filter(|r| r.step == t) {
                    *served.entry((&r.workload, &r.variant)).or_default() += r.load;
                }
            }
            Some(k) => {
                for (workload, by_variant) in self.plan.outlook.get(k).iter().flat_map(|o| &o.routes) {
                    served.extend(by_variant.iter().map(|(variant, load)| ((workload, variant), *load)));
                }
            }
        }
        served
    }

    /// Load of a service that is not served in step `t`.
    pub fn unserved(&self, service: &ServiceSpec, t: usize) -> f64 {
        let served: f64 = self.served(t).iter().filter(|((w, _), _)| **w == service.id).map(|(_, load)| load).sum();
        service.demand.get(t).map_or(0.0, |d| d.planned) - served
    }

    /// Replicas of a service that hold GPUs in step `t`.
    pub fn held_for(&self, service: &ServiceSpec, t: usize) -> f64 {
        self.held(t).iter().filter(|((_, v), _)| service.capacity.contains_key(*v)).map(|(_, n)| n).sum()
    }

    /// Replicas of a service that run now.
    pub fn resident_for(&self, service: &ServiceSpec) -> f64 {
        let serves = |r: &&Resident| matches!(&r.occupant, Occupant::Replica { variant, .. } if service.capacity.contains_key(variant));
        self.problem.residents.iter().filter(serves).map(|_| 1.0).sum()
    }

    /// Share of each job's gang that holds GPUs in step `t`.
    pub fn gangs(&self, t: usize) -> Counts<'a, JobId> {
        match t.checked_sub(self.committed) {
            None => count(self.runs().filter(|(w, _)| self.covers(w.from, w.until, t)).map(|(w, _)| ((&w.pool, &w.job), 1.0))),
            Some(k) => self.plan.outlook.get(k).map_or_else(BTreeMap::new, |o| count(pairs(&o.jobs))),
        }
    }

    /// Usable GPUs of a pool.
    pub fn usable(&self, pool: &PoolId) -> f64 {
        self.problem.gpus.iter().filter(|g| &g.pool == pool && g.availability == Availability::Usable).map(|_| 1.0).sum()
    }

    /// The island of a GPU.
    pub fn island(&self, gpu: &GpuId) -> Option<&'a IslandId> {
        self.problem.gpu(gpu).map(|g| &g.island)
    }

    /// Whether the job could be complete by `at` had it run on its fastest pool since `as_of`: from then on its runs may end.
    pub fn could_be_complete(&self, job: &JobSpec, at: Timestamp) -> bool {
        let fastest = job.speed.values().copied().fold(0.0, f64::max);
        fastest > 0.0 && job.remaining_s / fastest <= at.since(self.problem.as_of).as_secs_f64()
    }

    /// The run that a preemption ends, when this plan preempts the job: its window, and the work to be done again, in seconds at speed 1.
    pub fn preempted(&self, job: &JobSpec) -> Option<(&'a JobWindow, f64)> {
        let (window, _) = self.runs().find(|(w, origin)| w.job == job.id && origin.is_some())?;
        if window.until >= self.end || self.could_be_complete(job, window.until) {
            return None;
        }
        let speed = job.speed.get(&window.pool).copied().unwrap_or(0.0);
        let worked = speed * window.until.since(self.problem.as_of.max(window.ready_at)).as_secs_f64();
        let since = job.since_checkpoint_s + worked;
        Some((window, job.checkpoint_s.map_or(since, |interval| since % interval)))
    }

    /// Work the job still needs: what is left and what a preemption makes it do again, seconds at speed 1.
    pub fn need(&self, job: &JobSpec) -> f64 {
        job.remaining_s + self.preempted(job).map_or(0.0, |(_, redo)| redo)
    }

    /// Work that can be done on the job in each step, seconds at speed 1.
    pub fn progress(&self, job: &JobSpec) -> Vec<f64> {
        (0..self.problem.steps.len()).map(|t| if t < self.committed { self.committed_progress(job, t) } else { self.outlook_progress(job, t) }).collect()
    }

    fn committed_progress(&self, job: &JobSpec, t: usize) -> f64 {
        let step = &self.problem.steps[t];
        let mine = self.runs().filter(|(w, _)| w.job == job.id);
        mine.map(|(w, _)| job.speed.get(&w.pool).copied().unwrap_or(0.0) * overlap((w.ready_at.max(w.from), w.until), (step.start, step.end()))).sum()
    }

    fn outlook_progress(&self, job: &JobSpec, t: usize) -> f64 {
        let step = &self.problem.steps[t];
        let length = step.length.as_secs_f64();
        let startup = job.startup.as_secs_f64().min(length);
        let (shares, before) = (self.gangs(t), self.gangs_before(t));
        let starts: BTreeMap<_, _> = self.plan.outlook.get(t - self.committed).into_iter().flat_map(|o| pairs(&o.job_starts)).collect();
        let mut work = 0.0;
        for (pool, speed) in &job.speed {
            let key = (pool, &job.id);
            let share = shares.get(&key).copied().unwrap_or(0.0);
            let begun = (share - before.get(&key).copied().unwrap_or(0.0)).max(starts.get(&key).copied().unwrap_or(0.0)).max(0.0);
            work += speed * (share * length - startup * begun);
        }
        for (w, _) in self.runs().filter(|(w, _)| w.job == job.id && w.until >= self.end) {
            work -= job.speed.get(&w.pool).copied().unwrap_or(0.0) * overlap((w.from, w.ready_at), (step.start, step.end()));
        }
        work.max(0.0)
    }

    /// Shares in the step before `t`, an outlook step: after the committed part, 1 where a run lasts to its end.
    pub fn gangs_before(&self, t: usize) -> Counts<'a, JobId> {
        if t > self.committed {
            return self.gangs(t - 1);
        }
        count(self.runs().filter(|(w, _)| w.until >= self.end).map(|(w, _)| ((&w.pool, &w.job), 1.0)))
    }

    /// Replicas held just before `t`, an outlook step.
    pub fn held_before(&self, t: usize) -> Counts<'a, VariantId> {
        if t > self.committed {
            return self.held(t - 1);
        }
        count(self.replicas().filter(|(w, _)| w.until >= self.end).map(|(w, _)| ((&w.pool, &w.variant), 1.0)))
    }
}

fn is_replica(resident: &Resident, window: &ReplicaWindow) -> bool {
    matches!(&resident.occupant, Occupant::Replica { replica, .. } if *replica == window.replica)
}

fn is_run(resident: &Resident, window: &JobWindow) -> bool {
    matches!(&resident.occupant, Occupant::Job { job } if *job == window.job) && same_gpus(&resident.gpus, &window.gpus) && resident.ready_at == window.ready_at
}

/// Whether two lists name the same GPUs, in any order.
pub(crate) fn same_gpus(a: &[GpuId], b: &[GpuId]) -> bool {
    a.len() == b.len() && a.iter().collect::<BTreeSet<_>>() == b.iter().collect::<BTreeSet<_>>()
}

/// Seconds that two intervals have in common.
pub(crate) fn overlap(a: (Timestamp, Timestamp), b: (Timestamp, Timestamp)) -> f64 {
    a.1.min(b.1).since(a.0.max(b.0)).as_secs_f64()
}

/// A nested map as pairs of keys.
pub(crate) fn pairs<T: Ord>(map: &BTreeMap<PoolId, BTreeMap<T, f64>>) -> impl Iterator<Item = ((&PoolId, &T), f64)> {
    map.iter().flat_map(|(pool, inner)| inner.iter().map(move |(key, value)| ((pool, key), *value)))
}

fn count<'a, T: Ord>(items: impl Iterator<Item = ((&'a PoolId, &'a T), f64)>) -> Counts<'a, T> {
    let mut counts = BTreeMap::new();
    for (key, n) in items {
        *counts.entry(key).or_default() += n;
    }
    counts
}
