//! One decision of the demo told whole: what else could have been done with GPUs that a job left, and what each way is worth.
//!
//! The ways are plans of the same problem in which only one waiting job may begin before the burst: the one that was taken, another one, none.
//! What a way is worth is what its plan saves against holding the GPUs, less what they cost meanwhile. All of it is computed after the run.

use fleet::{JobId, JobWindow, Occupant, Plan, Problem, ServiceSpec, Timestamp, VariantId, Verb};
use report::{DecisionOption, DecisionResult, DecisionSummary};
use sim::{Decision, Run};

/// Nearest burst that is worth telling of.
const BURST_NEAREST_H: f64 = 1.5;
/// Farthest burst that one would hold GPUs for.
const BURST_FARTHEST_H: f64 = 12.0;

/// Gap and nodes of the search behind each way.
const GAP: f64 = 0.005;
const NODES_MAX: u32 = 60;

/// A rise of one service's need on a pool.
struct Burst<'a> {
    service: &'a ServiceSpec,
    at: Timestamp,
    step: usize,
    gpus: f64,
}

/// Decisions looked at in earnest.
const CANDIDATES_MAX: usize = 12;

/// The decision that shows most: GPUs freed ahead of a burst, a job put there in between, and the most lost had they been held instead (by the
/// relaxations of both ways, which cost little and carry no noise of a search).
pub(crate) fn most_telling(run: &Run) -> Option<&Decision> {
    let decisions = &run.turnaround.as_ref()?.decisions;
    let mut candidates: Vec<(f64, &Decision)> = decisions.iter().filter(|d| !placed(d).is_empty()).filter_map(|d| Some((burst(d)?.gpus, d))).collect();
    // Stable: of equal rises the earlier decision stays first.
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
    candidates.truncate(CANDIDATES_MAX);
    let mut best: Option<(f64, &Decision)> = None;
    for (_, decision) in candidates {
        let gain = gain(decision).unwrap_or(0.0);
        if best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, decision));
        }
    }
    best.map(|(_, decision)| decision)
}

/// What is lost, about, when the GPUs are held instead of used as they were, money.
fn gain(decision: &Decision) -> Option<f64> {
    let burst = burst(decision)?;
    let ids: Vec<JobId> = placed(decision).iter().map(|w| w.job.clone()).collect();
    let cost = |allowed: &[JobId]| solver::relaxation(&restricted(&decision.problem, allowed, burst.at));
    Some(cost(&[])? - cost(&ids)?)
}

/// The decision in words and money.
pub(crate) fn summary(decision: &Decision, run: &Run) -> Option<DecisionSummary> {
    let burst = burst(decision)?;
    let chosen = placed(decision);
    let n = decision.gpus.len();
    let price = decision.problem.pools.iter().find(|p| Some(&p.id) == pool(decision)).map_or(0.0, |p| p.price_per_gpu_hour);
    #[expect(clippy::cast_precision_loss, reason = "a handful of GPUs")]
    let idle = n as f64 * burst.at.since(decision.at).as_hours() * price;
    let ids: Vec<JobId> = chosen.iter().map(|w| w.job.clone()).collect();
    let hold = solve(&decision.problem, &[], burst.at);
    let worth = |plan: Option<&Plan>| Some(hold.as_ref()?.report.objective.total() - plan?.report.objective.total() - idle);
    let mut options = Vec::new();
    let taken = solve(&decision.problem, &ids, burst.at);
    options.push(option(&ids, true, worth(taken.as_ref()), taken.as_ref().unwrap_or(&decision.plan), hold.as_ref(), &burst));
    let hours = burst.at.since(decision.at).as_hours();
    options.push(DecisionOption { text: "hold now".into(), chosen: false, value: worth(hold.as_ref()), note: format!("idle {hours:.1} h") });
    if let Some(other) = others(decision, &ids) {
        let other = [other];
        if let Some(plan) = solve(&decision.problem, &other, burst.at).filter(|plan| starts(plan, &other[0])) {
            options.push(option(&other, false, worth(Some(&plan)), &plan, hold.as_ref(), &burst));
        }
    }
    let gpus = if n == 1 { "GPU".to_owned() } else { format!("{n} GPUs") };
    let question = format!("{} ended. Hold its {gpus} for {}'s {} burst?", decision.job, burst.service.id, burst.at.clock());
    Some(DecisionSummary { at: decision.at, question, options, result: result(decision, &burst, run) })
}

fn pool(decision: &Decision) -> Option<&fleet::PoolId> {
    decision.gpus.first().and_then(|g| decision.problem.gpu(g)).map(|g| &g.pool)
}

/// Runs that the plan begins on the freed GPUs in the committed part.
fn placed(decision: &Decision) -> Vec<&JobWindow> {
    let begins = |w: &&JobWindow| matches!(w.verb, Verb::Start | Verb::Visit) && w.gpus.iter().any(|g| decision.gpus.contains(g));
    decision.plan.committed.jobs.iter().filter(begins).collect()
}

/// GPUs a load needs on the variant, by what the problem reckons with.
fn need(problem: &Problem, service: &ServiceSpec, variant: &VariantId, load: f64) -> f64 {
    let gpus = problem.variant(variant).map_or(0.0, |v| f64::from(v.gpus));
    service.capacity.get(variant).map_or(0.0, |c| load / c.per_replica * gpus)
}

/// The largest rise ahead of a service that may use the freed GPUs; it comes when half of it is there.
fn burst(decision: &Decision) -> Option<Burst<'_>> {
    let problem = &*decision.problem;
    let pool = pool(decision)?;
    let ahead = |t: usize| problem.steps[t].start.since(decision.at).as_hours();
    let mut best: Option<Burst<'_>> = None;
    for service in &problem.services {
        let fits = |v: &&VariantId| problem.variant(v).is_some_and(|spec| spec.pools.contains(pool));
        let Some(variant) = service.capacity.keys().find(fits) else { continue };
        let needs: Vec<f64> = service.demand.iter().map(|d| need(problem, service, variant, d.planned)).collect();
        let now = needs.first().copied().unwrap_or(0.0);
        let near: Vec<usize> = (0..needs.len()).filter(|t| ahead(*t) <= BURST_FARTHEST_H).collect();
        let top = near.iter().map(|t| needs[*t]).fold(now, f64::max);
        let Some(step) = near.into_iter().find(|t| needs[*t] >= now + (top - now) / 2.0) else { continue };
        let gpus = top - now;
        if gpus >= 1.0 && ahead(step) >= BURST_NEAREST_H && best.as_ref().is_none_or(|b| gpus > b.gpus) {
            best = Some(Burst { service, at: problem.steps[step].start, step, gpus });
        }
    }
    best
}

/// The problem in which only these of the waiting jobs may begin before the burst.
fn restricted(problem: &Problem, allowed: &[JobId], burst: Timestamp) -> Problem {
    let runs = |job: &JobId| problem.residents.iter().any(|r| matches!(&r.occupant, Occupant::Job { job: j } if j == job));
    let mut restricted = problem.clone();
    // Ways are told apart by a few EUR, so they are searched for more closely than the loop has time for.
    restricted.policy.mip_gap = GAP;
    restricted.policy.nodes_max = NODES_MAX;
    for job in &mut restricted.jobs {
        if !allowed.contains(&job.id) && !runs(&job.id) {
            job.earliest = job.earliest.max(burst);
        }
    }
    restricted
}

/// The best plan of it.
fn solve(problem: &Problem, allowed: &[JobId], burst: Timestamp) -> Option<Plan> {
    match solver::solve(&restricted(problem, allowed, burst)) {
        solver::Answer::Planned(plan) => Some(*plan),
        _ => None,
    }
}

fn starts(plan: &Plan, job: &JobId) -> bool {
    plan.committed.jobs.iter().any(|w| &w.job == job && matches!(w.verb, Verb::Start | Verb::Visit))
}

/// The waiting job worth most that could have had the GPUs too.
fn others(decision: &Decision, taken: &[JobId]) -> Option<JobId> {
    let problem = &decision.problem;
    let pool = pool(decision)?;
    let resident = |job: &JobId| problem.residents.iter().any(|r| matches!(&r.occupant, Occupant::Job { job: j } if j == job));
    let could = |j: &&fleet::JobSpec| {
        let fits = usize::try_from(j.gang).is_ok_and(|gang| gang <= decision.gpus.len()) && j.speed.contains_key(pool);
        fits && j.earliest <= decision.at && !resident(&j.id) && !taken.contains(&j.id)
    };
    problem.jobs.iter().filter(could).max_by(|a, b| a.value_per_hour.total_cmp(&b.value_per_hour)).map(|j| j.id.clone())
}

fn option(jobs: &[JobId], chosen: bool, value: Option<f64>, plan: &Plan, hold: Option<&Plan>, burst: &Burst<'_>) -> DecisionOption {
    let names = jobs.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let until = jobs.first().and_then(|job| until(plan, job));
    let text = until.map_or_else(|| names.clone(), |at| format!("{names} until {}", at.clock()));
    // Only what is short because of this way: holding may fall short too.
    let short = |plan: &Plan| plan.committed.shortfalls.iter().filter(|s| s.workload == burst.service.id && s.load > 0.0).map(|s| s.cost).sum::<f64>();
    let more = short(plan) - hold.map_or(0.0, short);
    let note = if more >= 1.0 { format!("{} short: -{}", burst.service.id, report::money(more, &plan.currency)) } else { String::new() };
    DecisionOption { text, chosen, value, note }
}

/// When the plan takes the GPUs from a job again: the end of its window, or the hour of the outlook in which less than half of it runs.
fn until(plan: &Plan, job: &JobId) -> Option<Timestamp> {
    let end = plan.committed.steps.last()?.end();
    let window = plan.committed.jobs.iter().filter(|w| &w.job == job).map(|w| w.until).max()?;
    if window < end {
        return Some(window);
    }
    let share = |o: &fleet::OutlookStep| o.jobs.values().filter_map(|by| by.get(job)).sum::<f64>();
    plan.outlook.iter().find(|o| share(o) < 0.5).map(|o| o.step.start)
}

fn result(decision: &Decision, burst: &Burst<'_>, run: &Run) -> Option<DecisionResult> {
    let points = &run.turnaround.as_ref()?.demand;
    let service = &burst.service.id;
    let hour = burst.at.hour();
    debug_assert!(burst.step < decision.problem.steps.len(), "found among the steps");
    let point = points.iter().find(|p| &p.workload == service && p.start <= hour && hour < p.start + p.length)?;
    let lives = run.replicas.iter().filter(|r| r.workload.as_ref() == Some(service) && r.started > decision.at && r.ready <= burst.at + fleet::Span::HOUR);
    let here = lives.clone().filter(|r| r.gpus.iter().any(|g| decision.gpus.contains(g))).map(|r| r.ready).min();
    let ready_at = here.or_else(|| lives.map(|r| r.ready).min());
    Some(DecisionResult { at: hour, p50: point.quantile(0.5)?, p95: point.quantile(0.95)?, came: point.observed_per_s, ready_at })
}
