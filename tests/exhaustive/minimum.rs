//! The minimum by trying everything: step by step, every way to stop what may be stopped and to start what may be started on every free
//! GPU. Situations that differ only in the names of GPUs alike, or in how they came about, are followed once, at the least cost so far; a
//! branch is cut where even all the value of the work still possible, for nothing, could not make it better than a plan already known.
//!
//! Every instance has only committed steps, and every variant serves one service, so the best split of traffic is plain: serve all one can.

use fleet::{Availability, Occupant, Problem, Timestamp};
use std::collections::BTreeMap;

/// The least money, and what it is made of.
#[derive(Debug, Clone, Copy)]
pub struct Best {
    pub total: f64,
    /// Of it, starts and stops of replicas.
    pub changes: f64,
    /// Of it, work lost to preemptions.
    pub preemptions: f64,
    /// Requests/s not served, summed over steps.
    pub short: f64,
}

/// Something on GPUs. `until` is the protection of a resident; times are seconds since `as_of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Replica { variant: usize, ready: i64, protected: i64 },
    Run { job: usize, ready: i64, protected: i64, resident: bool },
}

/// What holds each GPU: an entry a GPU; the GPUs of one holder carry the same number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Seats(Vec<Option<(Holder, u8)>>);

/// Work on a job so far, seconds at speed 1.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Work {
    done: f64,
    by_deadline: f64,
    redo: f64,
}

#[derive(Debug, Clone)]
struct State {
    seats: Seats,
    work: Vec<Work>,
    stops: u32,
    best: Best,
}

struct World<'a> {
    problem: &'a Problem,
    /// Index of the pool of every GPU.
    pool: Vec<usize>,
    /// First GPU of the island of every GPU.
    island: Vec<usize>,
    /// By service: replicas that run now.
    residents: Vec<u32>,
    /// Money of the best plan known.
    known: f64,
}

/// The least money any plan for `problem` costs.
pub fn minimum(problem: &Problem) -> Best {
    let mut world = World::new(problem);
    let steps = problem.steps.len();
    let mut layer = vec![world.first()];
    for t in 0..steps {
        // To change nothing from here on is a plan, for every state that is left.
        world.known = layer.iter().filter_map(|state| world.unchanged(state, t)).fold(world.known, f64::min);
        let mut next: BTreeMap<Vec<u64>, State> = BTreeMap::new();
        for state in &layer {
            world.stop_from(state.clone(), t, 0, &mut |stopped| {
                world.start_from(stopped, t, 0, 0, &mut |begun| {
                    let Some(after) = world.run(begun, t).filter(|after| world.may_be_best(after, t + 1)) else { return };
                    let key = world.key(&after);
                    match next.get_mut(&key) {
                        Some(known) if known.best.total <= after.best.total => {}
                        Some(known) => *known = after,
                        None => drop(next.insert(key, after)),
                    }
                });
            });
        }
        layer = next.into_values().collect();
    }
    let ends = layer.into_iter().map(|state| world.late(&state));
    ends.min_by(|a, b| a.total.total_cmp(&b.total)).expect("to change nothing is a plan")
}

impl<'a> World<'a> {
    fn new(problem: &'a Problem) -> Self {
        let index = |id| problem.pools.iter().position(|p| p.id == id).expect("a valid problem");
        let pool = problem.gpus.iter().map(|g| index(g.pool.clone())).collect();
        let island = problem.gpus.iter().map(|g| problem.gpus.iter().position(|o| o.island == g.island).expect("itself")).collect();
        let runs = |s: &fleet::ServiceSpec| {
            problem.residents.iter().filter(|r| matches!(&r.occupant, Occupant::Replica { variant, .. } if s.capacity.contains_key(variant))).count()
        };
        let residents = problem.services.iter().map(|s| u32::try_from(runs(s)).expect("few")).collect();
        Self { problem, pool, island, residents, known: f64::INFINITY }
    }

    fn seconds(&self, at: Timestamp) -> i64 {
        at.0 - self.problem.as_of.0
    }

    fn step(&self, t: usize) -> (i64, i64) {
        let step = &self.problem.steps[t];
        (self.seconds(step.start), self.seconds(step.end()))
    }

    fn first(&self) -> State {
        let mut seats = vec![None; self.problem.gpus.len()];
        for (number, r) in (0_u8..).zip(&self.problem.residents) {
            let (ready, protected) = (self.seconds(r.ready_at), r.protected_until.map_or(i64::MIN, |p| self.seconds(p)));
            let holder = match &r.occupant {
                Occupant::Replica { variant, .. } => {
                    Holder::Replica { variant: self.problem.variants.iter().position(|v| v.id == *variant).expect("known"), ready, protected }
                }
                Occupant::Job { job } => {
                    Holder::Run { job: self.problem.jobs.iter().position(|j| j.id == *job).expect("known"), ready, protected, resident: true }
                }
            };
            for gpu in &r.gpus {
                seats[self.problem.gpus.iter().position(|g| g.id == *gpu).expect("known")] = Some((holder, number));
            }
        }
        let work = vec![Work { done: 0.0, by_deadline: 0.0, redo: 0.0 }; self.problem.jobs.len()];
        State { seats: Seats(seats), work, stops: 0, best: Best { total: 0.0, changes: 0.0, preemptions: 0.0, short: 0.0 } }
    }

    /// Money of the plan that changes nothing from step `t` on.
    fn unchanged(&self, state: &State, t: usize) -> Option<f64> {
        let end = (t..self.problem.steps.len()).try_fold(state.clone(), |state, t| self.run(state, t))?;
        Some(self.late(&end).total)
    }

    /// Whether the state could still lead to the best plan, with `t` the first step that lies ahead.
    fn may_be_best(&self, state: &State, t: usize) -> bool {
        let Some(step) = self.problem.steps.get(t) else { return true };
        let (from, end) = (self.seconds(step.start), self.seconds(self.problem.end()));
        let worth = (1.0 - self.problem.policy.delay_per_hour * seconds(from) / 3_600.0).max(0.0);
        let value = |(job, work): (usize, &Work)| {
            let spec = &self.problem.jobs[job];
            // A preemption adds work, and costs as much as all the value of that work.
            let possible = (spec.remaining_s + work.redo - work.done).min(self.fastest(job) * seconds(end - from));
            spec.value_per_hour * possible / 3_600.0 * worth
        };
        let value: f64 = state.work.iter().enumerate().map(value).sum();
        state.best.total - value <= self.known + 1e-9 * (1.0 + self.known.abs())
    }

    fn fastest(&self, job: usize) -> f64 {
        self.problem.jobs[job].speed.values().copied().fold(0.0, f64::max)
    }

    fn speed(&self, job: usize, gpu: usize) -> Option<f64> {
        self.problem.jobs[job].speed.get(&self.problem.gpus[gpu].pool).copied()
    }

    /// Calls `then` with every way to stop holders from GPU `gpu` on, at the start of step `t`.
    fn stop_from(&self, state: State, t: usize, gpu: usize, then: &mut dyn FnMut(State)) {
        if gpu == state.seats.0.len() {
            return then(state);
        }
        if let Some(stopped) = self.stop(&state, t, gpu) {
            self.stop_from(stopped, t, gpu + 1, then);
        }
        self.stop_from(state, t, gpu + 1, then);
    }

    /// The state with the holder whose first GPU is `gpu` stopped, where that may be.
    fn stop(&self, state: &State, t: usize, gpu: usize) -> Option<State> {
        let (holder, number) = state.seats.0[gpu]?;
        if state.seats.0[..gpu].iter().flatten().any(|(_, n)| *n == number) {
            return None;
        }
        let (now, _) = self.step(t);
        let mut after = state.clone();
        after.seats.0.iter_mut().filter(|s| s.is_some_and(|(_, n)| n == number)).for_each(|s| *s = None);
        match holder {
            Holder::Replica { variant, ready, protected } => {
                after.stops += 1;
                if now < ready || now < protected || self.problem.policy.stops_max.is_some_and(|most| after.stops > most) {
                    return None;
                }
                after.best.changes += self.problem.variants[variant].stop_cost;
                after.best.total += self.problem.variants[variant].stop_cost;
            }
            Holder::Run { job, ready, protected, resident } => {
                let spec = &self.problem.jobs[job];
                if spec.remaining_s / self.fastest(job) <= seconds(now) {
                    return Some(after);
                }
                let checkpoint = spec.checkpoint_s.filter(|_| resident && spec.preemptible && now >= protected)?;
                let redo = (spec.since_checkpoint_s + self.speed(job, gpu).unwrap_or(0.0) * seconds((now - ready.max(0)).max(0))) % checkpoint;
                after.work[job].redo = redo;
                after.best.preemptions += spec.value_per_hour * redo / 3_600.0;
                after.best.total += spec.value_per_hour * redo / 3_600.0;
            }
        }
        Some(after)
    }

    /// Calls `then` with every way to start something on free GPUs from `gpu` on. On GPUs of one island that are alike, choices only rise:
    /// the same things in another order are the same.
    fn start_from(&self, state: State, t: usize, gpu: usize, least: usize, then: &mut dyn FnMut(State)) {
        if gpu == state.seats.0.len() {
            return then(state);
        }
        if !self.may_be_best(&state, t) {
            return;
        }
        let least = if gpu > 0 && self.island[gpu] == self.island[gpu - 1] { least } else { 0 };
        let free = |g: usize| state.seats.0[g].is_none() && self.problem.gpus[g].availability == Availability::Usable;
        if !free(gpu) {
            return self.start_from(state, t, gpu + 1, least, then);
        }
        let others: Vec<usize> = (gpu + 1..state.seats.0.len()).filter(|g| self.island[*g] == self.island[gpu] && free(*g)).collect();
        for choice in least..self.problem.variants.len() + self.problem.jobs.len() {
            if let Some(begun) = self.start(&state, t, gpu, &others, choice) {
                self.start_from(begun, t, gpu + 1, choice, then);
            }
        }
        // Free comes last: what follows on this island stays free too.
        self.start_from(state, t, gpu + 1, usize::MAX, then);
    }

    /// The state with variant or job number `choice` begun on `gpu` and as many of the `others` as it needs.
    fn start(&self, state: &State, t: usize, gpu: usize, others: &[usize], choice: usize) -> Option<State> {
        let (now, _) = self.step(t);
        let pool = &self.problem.pools[self.pool[gpu]];
        let mut after = state.clone();
        let (holder, count) = if let Some(v) = self.problem.variants.get(choice) {
            if !v.pools.contains(&pool.id) || v.memory_per_gpu > pool.memory {
                return None;
            }
            after.best.changes += v.start_cost;
            after.best.total += v.start_cost;
            (Holder::Replica { variant: choice, ready: now + v.cold_start.0, protected: i64::MIN }, v.gpus)
        } else {
            let job = choice - self.problem.variants.len();
            let spec = &self.problem.jobs[job];
            let runs = state.seats.0.iter().flatten().any(|(h, _)| matches!(h, Holder::Run { job: j, .. } if *j == job));
            if runs || self.seconds(spec.earliest) > now || spec.memory_per_gpu > pool.memory {
                return None;
            }
            self.speed(job, gpu)?;
            (Holder::Run { job, ready: now + spec.startup.0, protected: i64::MIN, resident: false }, spec.gang)
        };
        let more = usize::try_from(count).expect("few") - 1;
        let number = (0..=u8::MAX).find(|n| !state.seats.0.iter().flatten().any(|(_, m)| m == n))?;
        for g in std::iter::once(&gpu).chain(others.get(..more)?) {
            after.seats.0[*g] = Some((holder, number));
        }
        Some(after)
    }

    /// Lets step `t` pass and adds its money; `None` when a service has more replicas than it may.
    fn run(&self, mut state: State, t: usize) -> Option<State> {
        let (from, until) = self.step(t);
        let (length, hours) = (seconds(until - from), seconds(until - from) / 3_600.0);
        let mut holders: BTreeMap<u8, (Holder, usize)> = BTreeMap::new();
        let mut cost = 0.0;
        for (gpu, seat) in state.seats.0.iter().enumerate() {
            if let Some((holder, number)) = seat {
                holders.insert(*number, (*holder, gpu));
                cost += self.problem.pools[self.pool[gpu]].marginal_per_gpu_hour * hours;
            }
        }
        for (s, service) in self.problem.services.iter().enumerate() {
            let (mut held, mut able) = (0, 0.0);
            for (holder, _) in holders.values() {
                if let Holder::Replica { variant, ready, .. } = holder
                    && let Some(capacity) = service.capacity.get(&self.problem.variants[*variant].id)
                {
                    held += 1;
                    able += if *ready <= from { capacity.per_replica } else { 0.0 };
                }
            }
            if held > service.max_replicas.max(self.residents[s]) {
                return None;
            }
            let short = (service.demand[t].planned - able).max(0.0);
            state.best.short += short;
            let outside = service.min_replicas.saturating_sub(held) + held.saturating_sub(service.max_replicas);
            cost += service.shortfall_per_request * short * length + service.bound_price_per_hour * f64::from(outside) * hours;
        }
        for (holder, gpu) in holders.values() {
            if let Holder::Run { job, ready, .. } = holder {
                let worked = self.speed(*job, *gpu).unwrap_or(0.0) * seconds((until - from.max(*ready)).max(0));
                cost -= self.work(&mut state.work[*job], *job, t, worked);
            }
        }
        state.best.total += cost;
        Some(state)
    }

    /// Adds what `worked` brings to a job in step `t`, and tells its value.
    fn work(&self, work: &mut Work, job: usize, t: usize, worked: f64) -> f64 {
        let spec = &self.problem.jobs[job];
        let (from, until) = self.step(t);
        let useful = worked.min(spec.remaining_s + work.redo - work.done).max(0.0);
        work.done += useful;
        if let Some(deadline) = spec.deadline.map(|d| self.seconds(d)) {
            let end = self.seconds(self.problem.end());
            let share = if deadline <= 0 || deadline >= end { 1.0 } else { seconds((deadline - from).clamp(0, until - from)) / seconds(until - from) };
            work.by_deadline += useful * share;
        }
        spec.value_per_hour * useful / 3_600.0 * (1.0 - self.problem.policy.delay_per_hour * seconds(from) / 3_600.0).max(0.0)
    }

    /// The money at the end, with what comes too late.
    fn late(&self, state: &State) -> Best {
        let mut best = state.best;
        for (job, (spec, work)) in self.problem.jobs.iter().zip(&state.work).enumerate() {
            let Some(deadline) = spec.deadline else { continue };
            let beyond = seconds((deadline.0 - self.problem.end().0).max(0)) * self.fastest(job);
            best.total += spec.lateness_per_hour / 3_600.0 * (spec.remaining_s + work.redo - work.by_deadline - beyond).max(0.0);
        }
        best
    }

    /// What the future depends on, without the names of GPUs that are alike.
    fn key(&self, state: &State) -> Vec<u64> {
        // A broken GPU is not a free one.
        let mut islands: BTreeMap<usize, Vec<(bool, Option<Holder>)>> = BTreeMap::new();
        for (gpu, seat) in state.seats.0.iter().enumerate() {
            let usable = self.problem.gpus[gpu].availability == Availability::Usable;
            islands.entry(self.island[gpu]).or_default().push((usable, seat.map(|(h, _)| h)));
        }
        let mut key = vec![u64::from(state.stops)];
        for work in &state.work {
            key.extend([work.done.to_bits(), work.by_deadline.to_bits(), work.redo.to_bits()]);
        }
        let mut alike: Vec<_> = islands.into_iter().map(|(first, holders)| (self.pool[first], holders)).collect();
        for (_, holders) in &mut alike {
            holders.sort();
        }
        alike.sort();
        for (pool, holders) in alike {
            key.push(bits(pool));
            for (usable, holder) in holders {
                key.extend(match holder {
                    None => [0, u64::from(usable), 0, 0],
                    Some(Holder::Replica { variant, ready, protected }) => [1, bits(variant), ready.cast_unsigned(), protected.cast_unsigned()],
                    Some(Holder::Run { job, ready, protected, resident }) => {
                        [2 + u64::from(resident), bits(job), ready.cast_unsigned(), protected.cast_unsigned()]
                    }
                });
            }
        }
        key
    }
}

fn bits(index: usize) -> u64 {
    u64::try_from(index).expect("small")
}

#[expect(clippy::cast_precision_loss, reason = "an hour or two of seconds")]
fn seconds(s: i64) -> f64 {
    s as f64
}
