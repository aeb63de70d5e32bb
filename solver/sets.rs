//! Sets: what the program counts over, by index. Variants `v`, bins `b`, pools `p`, services `w`, jobs `j`, steps `t`.

use fleet::{Availability, GpuId, JobSpec, Occupant, Problem, ServiceSpec, Timestamp, VariantSpec};
use std::collections::{BTreeMap, BTreeSet};

/// GPUs of one pool that lie in one island and may be used. Within it they are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Island {
    /// Index of its pool.
    pub pool: usize,
    /// Indices of its GPUs, in the order of the problem.
    pub gpus: Vec<usize>,
}

impl Island {
    /// GPUs it has.
    pub fn size(&self) -> u32 {
        u32::try_from(self.gpus.len()).unwrap_or(u32::MAX)
    }
}

/// A replica that runs now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResidentReplica {
    /// Index into the residents of the problem.
    pub resident: usize,
    /// Its variant.
    pub variant: usize,
    /// Its island.
    pub island: usize,
    /// When it serves.
    pub ready_at: Timestamp,
    /// It is not stopped before: loading or protected until then.
    pub stoppable_from: Timestamp,
}

/// A run of a job that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResidentRun {
    /// Index into the residents of the problem.
    pub resident: usize,
    /// Its island.
    pub island: usize,
    /// Its pool.
    pub pool: usize,
    /// When it makes progress.
    pub ready_at: Timestamp,
    /// It is not preempted before.
    pub protected_until: Option<Timestamp>,
}

/// The index sets of a problem, and what follows from them alone.
#[derive(Debug)]
pub(crate) struct Sets<'p> {
    /// The problem.
    pub problem: &'p Problem,
    /// Number of committed steps.
    pub committed: usize,
    /// Number of steps.
    pub steps: usize,
    /// Islands with at least one usable GPU, in order of their first GPU.
    pub islands: Vec<Island>,
    /// Usable GPUs by pool.
    pub usable: Vec<u32>,
    /// Resident replicas, in the order of the problem.
    pub replicas: Vec<ResidentReplica>,
    /// Resident run of each job.
    pub runs: Vec<Option<ResidentRun>>,
    /// `may_start[v][p]`.
    pub may_start: Vec<Vec<bool>>,
    /// Speed of job `j` on pool `p`, where it may begin.
    pub speed: Vec<Vec<Option<f64>>>,
}

impl<'p> Sets<'p> {
    /// Reads the sets off a problem that is valid.
    ///
    /// # Errors
    /// In words: no committed step, a resident of another size than its variant or gang, a job that runs twice, a name used twice.
    pub fn new(problem: &'p Problem) -> Result<Self, String> {
        let committed = problem.steps.iter().filter(|s| s.committed).count();
        if committed == 0 {
            return Err("no step of the problem is committed".into());
        }
        refuse_doubles(problem)?;
        let pool_of: BTreeMap<_, usize> = problem.pools.iter().enumerate().map(|(p, spec)| (&spec.id, p)).collect();
        let mut islands: Vec<Island> = Vec::new();
        let mut known = BTreeMap::new();
        let mut island_of: BTreeMap<&GpuId, usize> = BTreeMap::new();
        for (g, slot) in problem.gpus.iter().enumerate().filter(|(_, slot)| slot.availability == Availability::Usable) {
            let Some(&pool) = pool_of.get(&slot.pool) else { return Err(format!("gpu {} has no pool", slot.id)) };
            let i = *known.entry((pool, &slot.island)).or_insert(islands.len());
            if i == islands.len() {
                islands.push(Island { pool, gpus: Vec::new() });
            }
            islands[i].gpus.push(g);
            island_of.insert(&slot.id, i);
        }
        let pools = problem.pools.len();
        let (mut usable, mut largest) = (vec![0; pools], vec![0; pools]);
        for island in &islands {
            usable[island.pool] += island.size();
            largest[island.pool] = island.size().max(largest[island.pool]);
        }
        let may_start = problem.variants.iter().map(|v| (0..pools).map(|p| may_start(problem, v, p, largest[p])).collect()).collect();
        let speed = problem.jobs.iter().map(|j| (0..pools).map(|p| may_run(problem, j, p, largest[p])).collect()).collect();
        let mut sets = Self {
            problem,
            committed,
            steps: problem.steps.len(),
            islands,
            usable,
            replicas: Vec::new(),
            runs: vec![None; problem.jobs.len()],
            may_start,
            speed,
        };
        sets.read_residents(&island_of)?;
        Ok(sets)
    }

    fn read_residents(&mut self, island_of: &BTreeMap<&GpuId, usize>) -> Result<(), String> {
        let problem = self.problem;
        for (index, resident) in problem.residents.iter().enumerate() {
            let name = resident.occupant.name();
            let islands: BTreeSet<usize> = resident.gpus.iter().filter_map(|g| island_of.get(g).copied()).collect();
            let Some(&island) = islands.first() else { return Err(format!("{name} runs but holds no GPU")) };
            if islands.len() > 1 {
                return Err(format!("{name} runs in several islands"));
            }
            let wanted = match &resident.occupant {
                Occupant::Replica { variant, .. } => self.problem.variant(variant).map_or(0, |v| v.gpus),
                Occupant::Job { job } => self.problem.job(job).map_or(0, |j| j.gang),
            };
            if resident.gpus.len() != wanted as usize {
                return Err(format!("{name} runs on {} GPUs, but {wanted} are what it takes", resident.gpus.len()));
            }
            match &resident.occupant {
                Occupant::Replica { variant, .. } => {
                    let Some(variant) = problem.variants.iter().position(|v| &v.id == variant) else { return Err(format!("{name} is of no variant")) };
                    let stoppable_from = resident.protected_until.map_or(resident.ready_at, |p| p.max(resident.ready_at));
                    self.replicas.push(ResidentReplica { resident: index, variant, island, ready_at: resident.ready_at, stoppable_from });
                }
                Occupant::Job { job } => {
                    let Some(j) = problem.jobs.iter().position(|spec| &spec.id == job) else { return Err(format!("{name} is no job")) };
                    if self.runs[j].is_some() {
                        return Err(format!("{name} runs twice"));
                    }
                    let pool = self.islands[island].pool;
                    let (ready_at, protected_until) = (resident.ready_at, resident.protected_until);
                    self.runs[j] = Some(ResidentRun { resident: index, island, pool, ready_at, protected_until });
                }
            }
        }
        Ok(())
    }

    /// Start of step `t`; the end of the last for `t = steps`.
    pub fn start(&self, t: usize) -> Timestamp {
        self.problem.steps.get(t).map_or(self.problem.end(), |s| s.start)
    }

    /// Length of step `t` in hours.
    pub fn hours(&self, t: usize) -> f64 {
        self.problem.steps[t].length.as_hours()
    }

    /// Committed steps.
    pub fn near(&self) -> std::ops::Range<usize> {
        0..self.committed
    }

    /// Steps of the outlook.
    pub fn far(&self) -> std::ops::Range<usize> {
        self.committed..self.steps
    }

    /// The variant.
    pub fn variant(&self, v: usize) -> &'p VariantSpec {
        &self.problem.variants[v]
    }

    /// The service.
    pub fn service(&self, w: usize) -> &'p ServiceSpec {
        &self.problem.services[w]
    }

    /// The job.
    pub fn job(&self, j: usize) -> &'p JobSpec {
        &self.problem.jobs[j]
    }

    /// Variants that may serve `w`, with requests/s of one replica.
    pub fn serving(&self, w: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let capacity = &self.problem.services[w].capacity;
        self.problem.variants.iter().enumerate().filter_map(|(v, spec)| capacity.get(&spec.id).map(|c| (v, c.per_replica)))
    }

    /// Replicas of variants that serve `w` and run now.
    pub fn resident_count(&self, w: usize) -> u32 {
        let capacity = &self.problem.services[w].capacity;
        let count = self.replicas.iter().filter(|r| capacity.contains_key(&self.variant(r.variant).id)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Best speed of a job over all pools it names.
    pub fn best_speed(&self, j: usize) -> f64 {
        self.job(j).speed.values().copied().fold(0.0, f64::max)
    }

    /// Whether job `j` could be complete by `start(t)` had it run at its best speed since `as_of`: from then on its runs may end.
    pub fn free(&self, j: usize, t: usize) -> bool {
        let best = self.best_speed(j);
        best > 0.0 && self.job(j).remaining_s / best <= self.start(t).since(self.problem.as_of).as_secs_f64()
    }

    /// Whether the resident run of `j` may end at `start(t)`, `t < C`.
    pub fn may_end(&self, j: usize, t: usize) -> bool {
        let spec = self.job(j);
        let protected = self.runs[j].as_ref().and_then(|r| r.protected_until).is_some_and(|until| self.start(t) < until);
        self.free(j, t) || (spec.preemptible && spec.checkpoint_s.is_some() && !protected)
    }

    /// Speed of the resident run of `j`; 0 where its pool has none.
    pub fn resident_speed(&self, j: usize) -> f64 {
        self.runs[j].as_ref().and_then(|r| self.job(j).speed.get(&self.problem.pools[r.pool].id)).copied().unwrap_or(0.0)
    }

    /// Work to be done again when the resident run of `j` ends at `start(t)`, seconds at speed 1: what was done since the last checkpoint.
    /// Zero where the job may be complete (then it is no preemption).
    pub fn redo(&self, j: usize, t: usize) -> f64 {
        let (Some(run), false) = (&self.runs[j], self.free(j, t)) else { return 0.0 };
        let spec = self.job(j);
        let worked = self.resident_speed(j) * self.start(t).since(run.ready_at.max(self.problem.as_of)).as_secs_f64();
        let since = spec.since_checkpoint_s + worked;
        spec.checkpoint_s.map_or(since, |interval| since % interval)
    }

    /// Hours of step `t` after `ready`.
    pub fn hours_after(&self, ready: Timestamp, t: usize) -> f64 {
        let step = &self.problem.steps[t];
        step.end().since(ready.max(step.start)).as_hours()
    }

    /// Hours of step `t` before `ready`.
    pub fn hours_before(&self, ready: Timestamp, t: usize) -> f64 {
        let step = &self.problem.steps[t];
        ready.min(step.end()).since(step.start).as_hours()
    }

    /// What an hour of work in step `t` is worth of its value: it falls for every hour it is put off.
    pub fn freshness(&self, t: usize) -> f64 {
        (1.0 - self.problem.policy.delay_per_hour * self.start(t).since(self.problem.as_of).as_hours()).max(0.0)
    }

    /// Whether anything is gained by working on `j`.
    pub fn is_worth_running(&self, j: usize) -> bool {
        let spec = self.job(j);
        spec.remaining_s > 0.0 && (spec.value_per_hour > 0.0 || (spec.deadline.is_some() && spec.lateness_per_hour > 0.0))
    }
}

fn refuse_doubles(problem: &Problem) -> Result<(), String> {
    let names = (problem.pools.iter().map(|x| format!("pool {}", x.id)))
        .chain(problem.gpus.iter().map(|x| format!("gpu {}", x.id)))
        .chain(problem.variants.iter().map(|x| format!("variant {}", x.id)))
        .chain(problem.services.iter().map(|x| format!("service {}", x.id)))
        .chain(problem.jobs.iter().map(|x| format!("job {}", x.id)));
    let mut seen = BTreeSet::new();
    for name in names {
        if seen.contains(&name) {
            return Err(format!("{name} is listed twice"));
        }
        seen.insert(name);
    }
    Ok(())
}

/// A variant may start where it is allowed, fits the memory and an island, and serves somebody.
fn may_start(problem: &Problem, v: &VariantSpec, p: usize, largest: u32) -> bool {
    let pool = &problem.pools[p];
    let serves = problem.services.iter().any(|s| s.capacity.contains_key(&v.id));
    serves && v.pools.contains(&pool.id) && v.memory_per_gpu <= pool.memory && (1..=largest).contains(&v.gpus)
}

fn may_run(problem: &Problem, j: &JobSpec, p: usize, largest: u32) -> Option<f64> {
    let pool = &problem.pools[p];
    let fits = j.memory_per_gpu <= pool.memory && (1..=largest).contains(&j.gang);
    if fits { j.speed.get(&pool.id).copied() } else { None }
}
