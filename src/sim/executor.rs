//! Carries out the plan in force, minute by minute.

use crate::account::Kept;
use crate::world::{DRAIN, World};
use fleet::{GpuId, JobWindow, Plan, ReplicaId, ReplicaWindow, Span, Timestamp, Verb};
use std::collections::{BTreeMap, BTreeSet};

/// How far ahead load that a plan expects counts as a burst for which spare capacity is held: the committed part's two hours.
const HOLD_AHEAD: Span = Span::hours(2);

#[derive(Default)]
pub(crate) struct Executor {
    plan: Option<Plan>,
}

/// Whether a window goes on beyond the committed part.
fn lasts(verb: Verb) -> bool {
    matches!(verb, Verb::Keep | Verb::Start)
}

fn covers(from: Timestamp, until: Timestamp, verb: Verb, now: Timestamp) -> bool {
    from <= now && (now < until || lasts(verb))
}

impl Executor {
    /// A newer plan replaces the one in force.
    pub fn adopt(&mut self, plan: Plan) {
        self.plan = Some(plan);
    }

    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The plan, unless it has expired: then what runs is kept as it is.
    fn in_force(&self, now: Timestamp) -> Option<&Plan> {
        self.plan.as_ref().filter(|p| now < p.valid_until)
    }

    /// Brings the world to what the plan says for this minute.
    pub fn act(&self, world: &mut World) {
        let Some(plan) = self.in_force(world.now) else { return };
        stop_replicas(world, plan);
        preempt_jobs(world, plan);
        start_replicas(world, &plan.committed.replicas);
        start_jobs(world, &plan.committed.jobs);
    }

    /// What the plan in force keeps for what it expects.
    pub fn kept(&self, world: &World) -> Kept {
        let now = world.now;
        let Some(plan) = self.in_force(now) else { return Kept::default() };
        let mut kept = Kept { gpus: vec![false; world.gpus.len()], load: vec![0.0; world.catalogue.services.len()] };
        for hold in plan.committed.holds.iter().filter(|h| h.from <= now && now < h.until) {
            if let Some(at) = world.catalogue.gpus.iter().position(|g| g.id == hold.gpu) {
                kept.gpus[at] = true;
            }
        }
        for (at, service) in world.catalogue.services.iter().enumerate() {
            let mut by_step: BTreeMap<usize, f64> = BTreeMap::new();
            for route in plan.committed.routes.iter().filter(|r| r.workload == service.id) {
                if plan.committed.steps.get(route.step).is_some_and(|s| s.end() > now) {
                    *by_step.entry(route.step).or_default() += route.load;
                }
            }
            let near = plan.outlook.iter().filter(|o| o.step.start < now + HOLD_AHEAD);
            let later = near.filter_map(|o| o.routes.get(&service.id)).map(|by| by.values().sum::<f64>());
            kept.load[at] = by_step.into_values().chain(later).fold(0.0, f64::max);
        }
        kept
    }
}

/// Stops what the plan does not keep. GPUs it does not plan with (it names an heir for each of those it does) are left alone, and so is
/// what runs there: a replica that nobody could look at may well be serving.
fn stop_replicas(world: &mut World, plan: &Plan) {
    let now = world.now;
    let windows = &plan.committed.replicas;
    let planned: BTreeSet<&GpuId> = plan.heirs.iter().map(|h| &h.gpu).collect();
    let is_planned = |gpu: &usize| planned.contains(&world.catalogue.gpus[*gpu].id);
    // A window that ends at t is drained before, so that its GPUs are free at t.
    let stays = |w: &ReplicaWindow| w.from <= now && (w.until > now + DRAIN || lasts(w.verb));
    let ours = world.replicas.iter().filter(|(_, r)| r.gpus.iter().all(is_planned));
    let running: Vec<(ReplicaId, bool)> = ours.map(|(id, _)| (id.clone(), windows.iter().any(|w| &w.replica == id && stays(w)))).collect();
    for (id, stays) in running {
        if stays {
            world.keep_replica(&id);
        } else {
            world.drain_replica(&id);
        }
    }
}

/// Only what the plan lists as a preemption is stopped: a job that should have been through by now may finish.
fn preempt_jobs(world: &mut World, plan: &Plan) {
    let now = world.now;
    for at in 0..world.jobs.len() {
        let Some(since) = world.jobs[at].run.as_ref().map(|r| r.from) else { continue };
        let id = &world.catalogue.jobs[at].id;
        if plan.committed.preemptions.iter().any(|p| &p.job == id && p.at <= now && since < p.at) {
            world.preempt_job(at);
        }
    }
}

fn positions(world: &World, gpus: &[GpuId]) -> Option<Vec<usize>> {
    gpus.iter().map(|id| world.catalogue.gpus.iter().position(|g| &g.id == id)).collect()
}

fn start_replicas(world: &mut World, windows: &[ReplicaWindow]) {
    let now = world.now;
    for window in windows.iter().filter(|w| covers(w.from, w.until, w.verb, now)) {
        let known = world.replicas.contains_key(&window.replica);
        let variant = world.catalogue.variants.iter().position(|v| v.id == window.variant);
        if let (false, Some(variant), Some(gpus)) = (known, variant, positions(world, &window.gpus)) {
            let expected = now + window.ready_at.since(window.from);
            world.start_replica(&window.replica, variant, &gpus, expected);
        }
    }
}

fn start_jobs(world: &mut World, windows: &[JobWindow]) {
    let now = world.now;
    for window in windows.iter().filter(|w| covers(w.from, w.until, w.verb, now)) {
        let job = world.catalogue.jobs.iter().position(|j| j.id == window.job);
        if let (Some(job), Some(gpus)) = (job, positions(world, &window.gpus)) {
            world.start_job(job, &gpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{START, small_scenario};
    use fleet::{Committed, Currency, Heir, Objective, PlanId, PlanReport, ProblemId, SolveStatus};

    fn plan(valid_until: Timestamp, replicas: Vec<ReplicaWindow>) -> Plan {
        Plan {
            schema: Plan::SCHEMA.into(),
            id: PlanId::new("p").unwrap(),
            parent: None,
            generation: 1,
            advisory: false,
            as_of: START,
            valid_from: START,
            valid_until,
            problem: ProblemId::new("q").unwrap(),
            currency: Currency::new("EUR").unwrap(),
            committed: Committed {
                steps: Vec::new(),
                replicas,
                jobs: Vec::new(),
                routes: Vec::new(),
                shortfalls: Vec::new(),
                holds: Vec::new(),
                preemptions: Vec::new(),
            },
            outlook: Vec::new(),
            heirs: vec![Heir { gpu: GpuId::new("n1/0").unwrap(), holder: None, heir: None, reason: "nobody waits".into() }],
            unlocated: std::collections::BTreeSet::new(),
            report: PlanReport {
                status: SolveStatus::Optimal,
                reproducible: true,
                objective: Objective::default(),
                bound: 0.0,
                gap: 0.0,
                shadow_prices: Vec::new(),
                relaxations: Vec::new(),
                reasons: Vec::new(),
                size: [0; 4],
                calibration: 1,
                priors: Vec::new(),
            },
        }
    }

    fn window(from: i64, until: i64, verb: Verb) -> ReplicaWindow {
        ReplicaWindow {
            replica: ReplicaId::new("chat-fp8@1").unwrap(),
            variant: fleet::VariantId::new("chat-fp8").unwrap(),
            pool: fleet::PoolId::new("main").unwrap(),
            gpus: vec![GpuId::new("n1/0").unwrap()],
            verb,
            from: START + Span::minutes(from),
            ready_at: START + Span::minutes(from + 5),
            until: START + Span::minutes(until),
        }
    }

    /// Minutes in which the replica holds its GPU, of the first `minutes`.
    fn held(plan: Plan, minutes: usize) -> Vec<usize> {
        let scenario = small_scenario(1);
        let mut world = World::new(&scenario, START);
        let mut executor = Executor::default();
        executor.adopt(plan);
        let mut held = Vec::new();
        for minute in 0..minutes {
            world.settle();
            executor.act(&mut world);
            if world.gpus[0].holder.is_some() {
                held.push(minute);
            }
            world.live();
            world.pass();
        }
        held
    }

    #[test]
    fn a_window_is_kept_to_the_minute_and_drained_before_its_end() {
        let valid = START + Span::hours(1);
        assert_eq!(held(plan(valid, vec![window(5, 20, Verb::Visit)]), 40), (5..20).collect::<Vec<_>>());
        assert_eq!(held(plan(valid, vec![window(5, 20, Verb::Start)]), 40), (5..40).collect::<Vec<_>>(), "it goes on after the committed part");
    }

    #[test]
    fn what_runs_on_gpus_that_are_not_planned_with_is_left_alone() {
        let scenario = small_scenario(1);
        let mut world = World::new(&scenario, START);
        let id = ReplicaId::new("chat-fp8@1").unwrap();
        assert!(world.start_replica(&id, 0, &[0], START));
        let mut executor = Executor::default();
        let mut silent = plan(START + Span::hours(1), Vec::new());
        let heirs = std::mem::take(&mut silent.heirs);
        executor.adopt(silent.clone());
        executor.act(&mut world);
        assert_eq!(world.replicas[&id].leaves, None);
        executor.adopt(Plan { heirs, ..silent });
        executor.act(&mut world);
        assert_eq!(world.replicas[&id].leaves, Some(START + DRAIN));
    }

    #[test]
    fn an_expired_plan_stops_and_starts_nothing() {
        let expires = START + Span::minutes(10);
        assert_eq!(held(plan(expires, vec![window(5, 20, Verb::Visit)]), 40), (5..40).collect::<Vec<_>>(), "what runs is kept");
        assert_eq!(held(plan(expires, vec![window(15, 30, Verb::Start)]), 40), Vec::<usize>::new());
    }
}
