//! The document: whose it is, how long it holds, and whether its figures agree.

use crate::{Code, TOLERANCE, Violation, agree, at_most};
use fleet::{Objective, Plan, Problem, SolveStatus, Step};

/// Identity, validity, steps and numbers.
pub(crate) fn check(problem: &Problem, plan: &Plan) -> Vec<Violation> {
    let mut out = check_numbers(plan);
    out.extend(check_steps(problem, plan));
    let mut refuse = |broken: bool, code, what: String| {
        if broken {
            out.push(Violation::new(code, what));
        }
    };
    refuse(plan.schema != Plan::SCHEMA, Code::Schema, format!("schema is {:?}, this program knows {:?}", plan.schema, Plan::SCHEMA));
    let content = plan.content_id();
    refuse(plan.id != content, Code::ContentId, format!("id is {}, the content's fingerprint {content}", plan.id));
    let id = problem.id();
    refuse(plan.problem != id, Code::Problem, format!("it answers problem {}, not {id}", plan.problem));
    refuse(plan.as_of != problem.as_of, Code::Problem, format!("made for {}, the problem is of {}", plan.as_of, problem.as_of));
    refuse(plan.currency != problem.currency, Code::Problem, format!("money in {}, the problem's in {}", plan.currency, problem.currency));
    let parent = problem.parent.as_ref();
    refuse(plan.parent.as_ref() != parent.map(|p| &p.id), Code::Parent, "it does not follow the plan in force".into());
    let generation = parent.map_or(1, |p| p.generation + 1);
    refuse(plan.generation != generation, Code::Generation, format!("generation {} where {generation} follows", plan.generation));
    let until = problem.as_of + problem.policy.validity;
    refuse(plan.valid_from != problem.as_of, Code::Validity, format!("valid from {}, should be {}", plan.valid_from, problem.as_of));
    refuse(plan.valid_until != until, Code::Validity, format!("valid until {}, should be {until}", plan.valid_until));
    refuse(plan.unlocated != problem.unlocated, Code::Problem, "pools without known residency are not those of the problem".into());
    refuse(plan.advisory != problem.policy.advisory, Code::Validity, format!("advisory is {}, the policy says {}", plan.advisory, problem.policy.advisory));
    out
}

fn check_steps(problem: &Problem, plan: &Plan) -> Vec<Violation> {
    let (committed, outlook): (Vec<Step>, Vec<Step>) = problem.steps.iter().partition(|s| s.committed);
    let mut out = Vec::new();
    if plan.committed.steps != committed {
        out.push(Violation::new(Code::Steps, "the committed steps are not those of the problem"));
    }
    if !plan.outlook.iter().map(|o| &o.step).eq(&outlook) {
        out.push(Violation::new(Code::Steps, "the outlook's steps are not those of the problem"));
    }
    out
}

/// Every number of the plan: finite, and not below zero where a negative makes no sense (a solver's -1e-9 is let through).
fn check_numbers(plan: &Plan) -> Vec<Violation> {
    let mut amounts: Vec<(String, f64)> = Vec::new();
    for r in &plan.committed.routes {
        amounts.push((format!("load of {} through {} in step {}", r.workload, r.variant, r.step), r.load));
    }
    for s in &plan.committed.shortfalls {
        amounts.extend(
            [("load", s.load), ("replicas", s.replicas), ("cost", s.cost)].map(|(what, x)| (format!("{what} short of {} in step {}", s.workload, s.step), x)),
        );
    }
    for p in &plan.committed.preemptions {
        amounts.extend(
            [("redo", p.redo_s), ("lost GPU-minutes", p.lost_gpu_minutes), ("cost", p.cost)]
                .map(|(what, x)| (format!("{what} of the preemption of {}", p.job), x)),
        );
    }
    for o in &plan.outlook {
        let at = o.step.start;
        for (what, map) in [("replicas", &o.replicas), ("starts", &o.starts), ("stops", &o.stops)] {
            amounts.extend(map.iter().flat_map(|(pool, m)| m.iter().map(move |(v, x)| (format!("{what} of {v} on {pool} at {at}"), *x))));
        }
        for (what, map) in [("share", &o.jobs), ("share started", &o.job_starts)] {
            amounts.extend(map.iter().flat_map(|(pool, m)| m.iter().map(move |(j, x)| (format!("{what} of {j} on {pool} at {at}"), *x))));
        }
        amounts.extend(o.routes.iter().flat_map(|(w, m)| m.iter().map(move |(v, x)| (format!("load of {w} through {v} at {at}"), *x))));
    }
    amounts.extend(plan.report.shadow_prices.iter().map(|p| (format!("shadow price of {:?}", p.of), p.value)));
    amounts.extend(plan.report.relaxations.iter().map(|r| (format!("price of {:?}", r.rule), r.cost)));
    amounts.push(("gap".into(), plan.report.gap));
    let objective = &plan.report.objective;
    amounts.extend(parts(objective).map(|(name, x)| (format!("{name} in the objective"), x)));
    let mut out: Vec<Violation> = amounts
        .into_iter()
        .filter(|(_, x)| !(x.is_finite() && *x >= -TOLERANCE))
        .map(|(what, x)| Violation::new(Code::Number, format!("{what} is not a usable number")).figures(x, 0.0))
        .collect();
    if !plan.report.bound.is_finite() {
        out.push(Violation::new(Code::Number, "the bound is not a number").figures(plan.report.bound, objective.total()));
    }
    out
}

/// The reported money against the recomputed one, then bound and gap.
pub(crate) fn check_money(problem: &Problem, plan: &Plan, objective: &Objective) -> Vec<Violation> {
    let report = &plan.report;
    let mut out = Vec::new();
    // A part that is small against the others inherits the tolerance of the whole: the parts trade against each other in one program.
    let scale = 1.0 + parts(objective).map(|(_, x)| x.abs()).into_iter().sum::<f64>();
    let close = |a: f64, b: f64| (a - b).abs() <= TOLERANCE * scale;
    for ((name, found), (_, real)) in parts(&report.objective).into_iter().zip(parts(objective)) {
        if !close(found, real) {
            out.push(Violation::new(Code::Objective, format!("{name} is not what the plan comes to")).of(name).figures(found, real));
        }
    }
    let total = report.objective.total();
    if !(report.bound <= total || close(report.bound, total)) {
        out.push(Violation::new(Code::Bound, "the bound lies above the objective").figures(report.bound, total));
    }
    let gap = ((total - report.bound) / total.abs().max(1e-9)).max(0.0);
    if !agree(report.gap, gap) && !close(report.bound, total) {
        out.push(Violation::new(Code::Gap, "the gap is not that of objective and bound").figures(report.gap, gap));
    }
    if report.status == SolveStatus::Optimal && !at_most(gap, problem.policy.mip_gap) && !close(report.bound, total) {
        out.push(Violation::new(Code::Gap, "called optimal, but the gap is wider than asked for").figures(gap, problem.policy.mip_gap));
    }
    out
}

fn parts(o: &Objective) -> [(&'static str, f64); 8] {
    [
        ("shortfall", o.shortfall),
        ("bounds", o.bounds),
        ("starts", o.starts),
        ("stops", o.stops),
        ("rent", o.rent),
        ("lateness", o.lateness),
        ("preemptions", o.preemptions),
        ("value", o.value),
    ]
}
