//! The money: what a plan costs and earns, from its windows, outlook and routes alone.

use crate::tally::{Tally, pairs};
use fleet::{JobSpec, Objective, Plan, Problem, Timestamp};

/// Recomputes the money of `plan` under `problem`, whatever the plan's own report says. Shortfall is demand less routes; work of a job is
/// taken as early as the windows and shares allow. What the problem does not know costs nothing here: [`crate::verify`] refuses it.
#[must_use]
pub fn objective(problem: &Problem, plan: &Plan) -> Objective {
    of(&Tally::new(problem, plan))
}

/// [`objective`] of what is counted already.
pub(crate) fn of(tally: &Tally) -> Objective {
    let mut money = Objective::default();
    for t in 0..tally.problem.steps.len() {
        add_services(tally, t, &mut money);
        add_rent(tally, t, &mut money);
    }
    add_changes(tally, &mut money);
    for job in &tally.problem.jobs {
        add_job(tally, job, &mut money);
    }
    money
}

fn add_services(tally: &Tally, t: usize, money: &mut Objective) {
    let length = tally.problem.steps[t].length;
    for service in &tally.problem.services {
        money.shortfall += service.shortfall_per_request * tally.unserved(service, t).max(0.0) * length.as_secs_f64();
        let held = tally.held_for(service, t);
        let (below, above) = ((f64::from(service.min_replicas) - held).max(0.0), (held - f64::from(service.max_replicas)).max(0.0));
        money.bounds += service.bound_price_per_hour * (below + above) * length.as_hours();
    }
}

fn add_rent(tally: &Tally, t: usize, money: &mut Objective) {
    let hours = tally.problem.steps[t].length.as_hours();
    let price = |pool| tally.problem.pool(pool).map_or(0.0, |p| p.marginal_per_gpu_hour);
    for ((pool, variant), n) in tally.held(t) {
        money.rent += price(pool) * n * tally.problem.variant(variant).map_or(0.0, |v| f64::from(v.gpus)) * hours;
    }
    for ((pool, job), share) in tally.gangs(t) {
        money.rent += price(pool) * share * tally.problem.job(job).map_or(0.0, |j| f64::from(j.gang)) * hours;
    }
}

fn add_changes(tally: &Tally, money: &mut Objective) {
    for (window, origin) in tally.replicas() {
        let Some(variant) = tally.problem.variant(&window.variant) else { continue };
        if origin.is_none() {
            money.starts += variant.start_cost;
        }
        if window.until < tally.end {
            money.stops += variant.stop_cost;
        }
    }
    for step in &tally.plan.outlook {
        for ((_, variant), n) in pairs(&step.starts) {
            money.starts += tally.problem.variant(variant).map_or(0.0, |v| v.start_cost) * n;
        }
        for ((_, variant), n) in pairs(&step.stops) {
            money.stops += tally.problem.variant(variant).map_or(0.0, |v| v.stop_cost) * n;
        }
    }
}

fn add_job(tally: &Tally, job: &JobSpec, money: &mut Objective) {
    if let Some((_, redo)) = tally.preempted(job) {
        money.preemptions += job.value_per_hour * redo / 3_600.0;
    }
    let work = useful_work(tally, job);
    for (step, done) in tally.problem.steps.iter().zip(&work) {
        let waited = step.start.since(tally.problem.as_of).as_hours();
        money.value += job.value_per_hour * done / 3_600.0 * (1.0 - tally.problem.policy.delay_per_hour * waited).max(0.0);
    }
    if let Some(deadline) = job.deadline {
        money.lateness += job.lateness_per_hour / 3_600.0 * late(tally, job, &work, deadline);
    }
}

/// Work that counts in each step: what can be done, as early as it can, until nothing is left. Seconds at speed 1.
fn useful_work(tally: &Tally, job: &JobSpec) -> Vec<f64> {
    let mut left = tally.need(job);
    let mut work = tally.progress(job);
    for done in &mut work {
        *done = done.min(left).max(0.0);
        left -= *done;
    }
    work
}

/// Work not done by the deadline, seconds at speed 1. The step that holds the deadline counts pro rata of time; a deadline that has passed
/// or lies at or beyond the horizon counts the whole of it, and one beyond it the time left at the job's best speed as well.
fn late(tally: &Tally, job: &JobSpec, work: &[f64], deadline: Timestamp) -> f64 {
    let (as_of, end) = (tally.problem.as_of, tally.problem.end());
    let whole = deadline <= as_of || deadline >= end;
    let done = |(step, done): (&fleet::Step, &f64)| {
        let share = if whole { 1.0 } else { deadline.since(step.start).as_secs_f64() / step.length.as_secs_f64() };
        done * share.min(1.0)
    };
    let by_deadline: f64 = tally.problem.steps.iter().zip(work).map(done).sum();
    let after = deadline.since(end).as_secs_f64() * job.speed.values().copied().fold(0.0, f64::max);
    (tally.need(job) - by_deadline - after).max(0.0)
}
