//! Demand, capacity, replica bounds and shortfalls, step by step. Since windows begin and end on steps, what holds in every step holds at
//! every moment: a moved service has its new replica ready before the old one goes, or a shortfall is listed.

use crate::tally::Tally;
use crate::{Code, TOLERANCE, Violation, agree, at_most};
use fleet::{ServiceSpec, VariantId};
use std::collections::{BTreeMap, BTreeSet};

/// Balance, capacity, bounds and the list of shortfalls.
pub(crate) fn check(tally: &Tally) -> Vec<Violation> {
    let mut out = Vec::new();
    check_names(tally, &mut out);
    for t in 0..tally.problem.steps.len() {
        check_capacity(tally, t, &mut out);
        for service in &tally.problem.services {
            check_service(tally, service, t, &mut out);
        }
    }
    out
}

fn check_names(tally: &Tally, out: &mut Vec<Violation>) {
    for t in 0..tally.problem.steps.len() {
        for (workload, variant) in tally.served(t).into_keys() {
            if tally.problem.service(workload).is_none_or(|s| !s.capacity.contains_key(variant)) {
                out.push(Violation::new(Code::Reference, format!("{variant} does not serve {workload}")).of(workload).step(t));
            }
        }
    }
    let mut routes = BTreeSet::new();
    for r in &tally.plan.committed.routes {
        if r.step >= tally.committed || !routes.insert((&r.workload, &r.variant, r.step)) {
            out.push(Violation::new(Code::Reference, "a route of no committed step, or listed twice").of(&r.workload).step(r.step));
        }
    }
    let mut listed = BTreeSet::new();
    for s in &tally.plan.committed.shortfalls {
        if s.step >= tally.problem.steps.len() || tally.problem.service(&s.workload).is_none() || !listed.insert((&s.workload, s.step)) {
            out.push(Violation::new(Code::Shortfall, "of no service or step of the problem, or listed twice").of(&s.workload).step(s.step));
        }
    }
}

fn check_capacity(tally: &Tally, t: usize, out: &mut Vec<Violation>) {
    let mut ready: BTreeMap<&VariantId, f64> = BTreeMap::new();
    for ((pool, variant), n) in tally.ready(t) {
        if n < -TOLERANCE {
            out.push(Violation::new(Code::Protected, format!("replicas that still load are stopped on {pool}")).of(variant).step(t).figures(n, 0.0));
        }
        *ready.entry(variant).or_default() += n;
    }
    let mut busy: BTreeMap<&VariantId, f64> = BTreeMap::new();
    for ((workload, variant), load) in tally.served(t) {
        let Some(capacity) = tally.problem.service(workload).and_then(|s| s.capacity.get(variant)) else { continue };
        *busy.entry(variant).or_default() += load / capacity.per_replica;
    }
    for (variant, needed) in busy {
        let there = ready.get(variant).copied().unwrap_or(0.0);
        if !at_most(needed, there) {
            out.push(Violation::new(Code::Capacity, "serves more than its ready replicas can").of(variant).step(t).figures(needed, there));
        }
    }
}

fn check_service(tally: &Tally, service: &ServiceSpec, t: usize, out: &mut Vec<Violation>) {
    let new = |code, what: &str| Violation::new(code, what).of(&service.id).step(t);
    let (demand, short) = (service.demand[t].planned, tally.unserved(service, t));
    let listed = tally.plan.committed.shortfalls.iter().find(|s| s.workload == service.id && s.step == t);
    if !agree(demand - short + listed.map_or(0.0, |s| s.load), demand) {
        out.push(new(Code::Balance, "served and short do not add up to the demand").figures(demand - short + listed.map_or(0.0, |s| s.load), demand));
    }
    let held = tally.held_for(service, t);
    let most = f64::from(service.max_replicas).max(tally.resident_for(service));
    if !at_most(held, most) {
        out.push(new(Code::Maximum, "holds more replicas than it may").figures(held, most));
    }
    let below = (f64::from(service.min_replicas) - held).max(0.0);
    if !agree(listed.map_or(0.0, |s| s.replicas), below) {
        out.push(new(Code::Shortfall, "replicas below the minimum are not listed as they are").figures(listed.map_or(0.0, |s| s.replicas), below));
    }
    let length = tally.problem.steps[t].length;
    let cost = service.shortfall_per_request * short.max(0.0) * length.as_secs_f64() + service.bound_price_per_hour * below * length.as_hours();
    // A load short within tolerance may stay unlisted, whatever the price makes of it.
    let slack = TOLERANCE * (1.0 + demand) * service.shortfall_per_request * length.as_secs_f64();
    if let Some(listed) = listed
        && !agree(listed.cost, cost)
        && (listed.cost - cost).abs() > slack
    {
        out.push(new(Code::Shortfall, "costs something else").figures(listed.cost, cost));
    }
}
