//! Reasons: one plain sentence for every start, stop, preemption and hold, with the figures it rests on.

use crate::score;
use crate::sets::Sets;
use fleet::{Binding, Committed, JobWindow, OutlookStep, PoolId, Provenance, Reason, Relaxation, ReplicaWindow, Span, Timestamp, VariantId, Verb};
use std::collections::BTreeMap;

/// How far ahead a start or stop is explained by the load.
const AHEAD: Span = Span::hours(4);

/// Money below this is not worth a line.
const MONEY_MIN: f64 = 1e-6;

/// All reasons, in order of what they are about.
pub(crate) fn reasons(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], notes: &[String]) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = notes.iter().map(|text| Reason { of: Binding::Plan, text: text.clone() }).collect();
    let mut starts: BTreeMap<(Timestamp, &PoolId, &VariantId), usize> = BTreeMap::new();
    let mut stops = starts.clone();
    for r in &committed.replicas {
        if matches!(r.verb, Verb::Start | Verb::Visit) {
            *starts.entry((r.from, &r.pool, &r.variant)).or_default() += 1;
        }
        if matches!(r.verb, Verb::Stop | Verb::Visit) {
            *stops.entry((r.until, &r.pool, &r.variant)).or_default() += 1;
        }
    }
    reasons.extend(starts.iter().map(|((at, pool, variant), n)| start(sets, committed, outlook, *at, pool, variant, *n)));
    reasons.extend(stops.iter().map(|((at, pool, variant), n)| stop(sets, committed, outlook, *at, pool, variant, *n)));
    for window in &committed.jobs {
        reasons.extend(job(sets, committed, window));
    }
    reasons.extend(waiting(sets, committed, outlook));
    reasons.extend(holds(committed, sets));
    reasons.sort_by(|a, b| a.of.cmp(&b.of));
    reasons
}

/// The service a variant is started or stopped for: the one with most load planned through it, else the first it may serve.
fn service_of(sets: &Sets, committed: &Committed, variant: &VariantId) -> Option<usize> {
    let load = |w: usize| committed.routes.iter().filter(|r| r.variant == *variant && r.workload == sets.service(w).id).map(|r| r.load).sum::<f64>();
    let mut best: Option<(usize, f64)> = None;
    for w in (0..sets.problem.services.len()).filter(|w| sets.service(*w).capacity.contains_key(variant)) {
        if best.is_none_or(|(_, most)| load(w) > most) {
            best = Some((w, load(w)));
        }
    }
    best.map(|(w, _)| w)
}

/// Load of `w` at `at`, and the highest and lowest of the hours after, with their instants.
fn loads(sets: &Sets, w: usize, at: Timestamp) -> (f64, (f64, Timestamp), (f64, Timestamp)) {
    let steps = sets.problem.steps.iter().zip(&sets.service(w).demand);
    let ahead: Vec<(f64, Timestamp)> = steps.filter(|(s, _)| s.end() > at && s.start.since(at) <= AHEAD).map(|(s, d)| (d.planned, s.start.max(at))).collect();
    let now = ahead.first().map_or(0.0, |(load, _)| *load);
    let mut high = (now, at);
    let mut low = (now, at);
    for (load, when) in ahead {
        if load > high.0 {
            high = (load, when);
        }
        if load < low.0 {
            low = (load, when);
        }
    }
    (now, high, low)
}

fn binding(sets: &Sets, service: Option<usize>) -> Binding {
    service.map_or(Binding::Plan, |w| Binding::Service(sets.service(w).id.clone()))
}

fn held_before(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], w: usize, at: Timestamp) -> f64 {
    match sets.near().find(|t| sets.start(*t) == at).and_then(|t| t.checked_sub(1)) {
        Some(before) => score::held(sets, committed, outlook, w, before),
        None => f64::from(sets.resident_count(w)),
    }
}

fn start(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], at: Timestamp, pool: &PoolId, variant: &VariantId, n: usize) -> Reason {
    let service = service_of(sets, committed, variant);
    let cold_start = sets.problem.variant(variant).map_or(Span::ZERO, |v| v.cold_start);
    let why = service.map_or_else(String::new, |w| {
        let spec = sets.service(w);
        let (now, (high, when), _) = loads(sets, w, at);
        let held = held_before(sets, committed, outlook, w, at);
        if held < f64::from(spec.min_replicas) {
            format!("{} has {held:.0} of at least {} replicas; planned load {now:.1} req/s", spec.id, spec.min_replicas)
        } else if high > now {
            format!("planned load of {} rises from {now:.1} to {high:.1} req/s at {}", spec.id, when.clock())
        } else {
            format!("planned load of {} is {now:.1} req/s, and {held:.0} replicas were held", spec.id)
        }
    });
    let text = format!("start {variant} x{n} on {pool} at {}: {why}, cold start {cold_start}, ready {}", at.clock(), (at + cold_start).clock());
    Reason { of: binding(sets, service), text }
}

fn stop(sets: &Sets, committed: &Committed, outlook: &[OutlookStep], at: Timestamp, pool: &PoolId, variant: &VariantId, n: usize) -> Reason {
    let service = service_of(sets, committed, variant);
    let heirs = beginners(committed, at, pool, variant);
    let why = match service {
        None => "it serves no service".to_owned(),
        Some(w) => {
            let spec = sets.service(w);
            let (now, _, (low, when)) = loads(sets, w, at);
            let held = held_before(sets, committed, outlook, w, at);
            let mut why = if held > f64::from(spec.max_replicas) {
                format!("{} holds {held:.0} replicas, more than its maximum of {}", spec.id, spec.max_replicas)
            } else if low < now {
                format!("planned load of {} falls from {now:.1} to {low:.1} req/s at {}", spec.id, when.clock())
            } else {
                format!("planned load of {} is {now:.1} req/s and {held:.0} replicas were held", spec.id)
            };
            if !heirs.is_empty() {
                why = format!("{why}; room for {}", heirs.join(", "));
            }
            why
        }
    };
    Reason { of: binding(sets, service), text: format!("stop {variant} x{n} on {pool} at {}: {why}", at.clock()) }
}

/// What begins on a pool at an instant, other than a given variant.
fn beginners(committed: &Committed, at: Timestamp, pool: &PoolId, but: &VariantId) -> Vec<String> {
    let begins = |verb: Verb, from: Timestamp, p: &PoolId| matches!(verb, Verb::Start | Verb::Visit) && from == at && p == pool;
    let replicas = committed.replicas.iter().filter(|r| begins(r.verb, r.from, &r.pool) && r.variant != *but).map(|r| r.variant.to_string());
    let jobs = committed.jobs.iter().filter(|j| begins(j.verb, j.from, &j.pool)).map(|j| j.job.to_string());
    let mut names: Vec<String> = replicas.chain(jobs).collect();
    names.sort();
    names.dedup();
    names
}

/// What takes GPUs of `window` next in the committed part.
fn takers(committed: &Committed, window: &JobWindow) -> Vec<String> {
    let takes = |from: Timestamp, gpus: &[fleet::GpuId]| from >= window.until && gpus.iter().any(|g| window.gpus.contains(g));
    let replicas = committed.replicas.iter().filter(|r: &&ReplicaWindow| takes(r.from, &r.gpus)).map(|r| r.variant.to_string());
    let jobs = committed.jobs.iter().filter(|j| j.job != window.job && takes(j.from, &j.gpus)).map(|j| j.job.to_string());
    let mut names: Vec<String> = replicas.chain(jobs).collect();
    names.sort();
    names.dedup();
    names
}

fn job(sets: &Sets, committed: &Committed, window: &JobWindow) -> Vec<Reason> {
    let Some(spec) = sets.problem.job(&window.job) else { return Vec::new() };
    let (pool, currency) = (&window.pool, &sets.problem.currency);
    let mut texts = Vec::new();
    if matches!(window.verb, Verb::Start | Verb::Visit) {
        let deadline = spec.deadline.map_or(String::new(), |d| format!(", wanted by {d}"));
        let (gang, left, value) = (spec.gang, spec.remaining_s / 3_600.0, spec.value_per_hour);
        texts.push(format!(
            "begin {} on {pool} at {}: {gang} GPUs for {left:.1} h of work worth {value:.2} {currency} an hour{deadline}",
            spec.id,
            window.from.clock()
        ));
    }
    if matches!(window.verb, Verb::Stop | Verb::Visit) {
        let at = window.until.clock();
        let preemption = committed.preemptions.iter().find(|p| p.job == spec.id && p.at == window.until && window.verb == Verb::Stop);
        texts.push(match preemption {
            None => format!("end {} on {pool} at {at}: it can be complete by then", spec.id),
            Some(p) => {
                let takers = takers(committed, window);
                let heirs = if takers.is_empty() {
                    "it is worth less than what it costs to keep".to_owned()
                } else {
                    format!("its {} GPUs go to {}", spec.gang, takers.join(", "))
                };
                let (redo, lost, cost) = (p.redo_s / 60.0, p.lost_gpu_minutes, p.cost);
                format!(
                    "preempt {} on {pool} at {at}: {heirs}; {redo:.1} min since its last checkpoint, {lost:.1} GPU-minutes lost ({cost:.2} {currency})",
                    spec.id
                )
            }
        });
    }
    texts.into_iter().map(|text| Reason { of: Binding::Job(spec.id.clone()), text }).collect()
}

/// Jobs that could begin but hold nothing in the committed part.
fn waiting(sets: &Sets, committed: &Committed, outlook: &[OutlookStep]) -> Vec<Reason> {
    let mut reasons = Vec::new();
    for (j, spec) in sets.problem.jobs.iter().enumerate() {
        let idle = sets.is_worth_running(j) && spec.earliest < sets.problem.committed_end() && committed.jobs.iter().all(|w| w.job != spec.id);
        if !idle {
            continue;
        }
        let text = if sets.speed[j].iter().all(Option::is_none) {
            format!("{} cannot run: no pool it names has {} usable GPUs of enough memory in one island", spec.id, spec.gang)
        } else {
            let begins = outlook.iter().find(|o| o.jobs.values().any(|m| m.contains_key(&spec.id)));
            let when = begins.map_or("not within the horizon".to_owned(), |o| format!("from {} on", o.step.start.clock()));
            format!("{} waits: its {} GPUs are worth more to others until {}; runs {when}", spec.id, spec.gang, sets.problem.committed_end().clock())
        };
        reasons.push(Reason { of: Binding::Job(spec.id.clone()), text });
    }
    reasons
}

fn holds(committed: &Committed, sets: &Sets) -> Vec<Reason> {
    let mut groups: BTreeMap<(String, Timestamp, Timestamp, String), usize> = BTreeMap::new();
    for hold in &committed.holds {
        let pool = sets.problem.gpu(&hold.gpu).map_or(String::new(), |g| g.pool.to_string());
        let heir = match &hold.heir {
            fleet::Occupant::Replica { variant, .. } => variant.to_string(),
            fleet::Occupant::Job { job } => job.to_string(),
        };
        *groups.entry((pool, hold.from, hold.until, heir)).or_default() += 1;
    }
    let text = |((pool, from, until, heir), n): (&(String, Timestamp, Timestamp, String), &usize)| {
        format!("hold {n} GPUs of {pool} from {} until {} for {heir}", from.clock(), until.clock())
    };
    groups.iter().map(|group| Reason { of: Binding::Plan, text: text(group) }).collect()
}

/// Rules softened, with their price: minima, maxima, load not served, deadlines.
pub(crate) fn relaxations(sets: &Sets, committed: &Committed, outlook: &[OutlookStep]) -> Vec<Relaxation> {
    let mut found = Vec::new();
    for (w, spec) in sets.problem.services.iter().enumerate() {
        let of = || Binding::Service(spec.id.clone());
        let (mut below, mut above, mut short) = ((0.0_f64, 0.0), (0.0_f64, 0.0), (0.0_f64, 0.0));
        for t in 0..sets.steps {
            let held = score::held(sets, committed, outlook, w, t);
            let price = spec.bound_price_per_hour * sets.hours(t);
            let note = |worst: &mut (f64, f64), by: f64, price: f64| *worst = (worst.0.max(by), worst.1 + by.max(0.0) * price);
            note(&mut below, f64::from(spec.min_replicas) - held, price);
            note(&mut above, held - f64::from(spec.max_replicas), price);
            let load = score::unserved(sets, committed, outlook, w, t);
            note(&mut short, load, spec.shortfall_per_request * sets.hours(t) * 3_600.0);
        }
        if below.0 > MONEY_MIN {
            found.push(Relaxation { of: of(), rule: format!("workload {} short by {}", spec.id, replicas(below.0)), cost: below.1 });
        }
        if above.0 > MONEY_MIN {
            found.push(Relaxation { of: of(), rule: format!("workload {} above its maximum by {}", spec.id, replicas(above.0)), cost: above.1 });
        }
        if short.0 > 1e-4 * (1.0 + spec.demand.iter().fold(0.0, |most, d| d.planned.max(most))) {
            found.push(Relaxation { of: of(), rule: format!("workload {} short of up to {:.2} req/s", spec.id, short.0), cost: short.1 });
        }
    }
    for (j, spec) in sets.problem.jobs.iter().enumerate() {
        let late = score::account(sets, committed, outlook, j).late_s;
        if let (Some(deadline), true) = (spec.deadline, late > 1.0) {
            let rule = format!("job {} has {:.2} h of work left at its deadline {deadline}", spec.id, late / 3_600.0);
            found.push(Relaxation { of: Binding::Job(spec.id.clone()), rule, cost: spec.lateness_per_hour * late / 3_600.0 });
        }
    }
    found
}

/// `2 replicas`, `1 replica`, `0.4 replicas`.
fn replicas(n: f64) -> String {
    let text = if (n - n.round()).abs() < 1e-6 { format!("{n:.0}") } else { format!("{n:.1}") };
    if text == "1" { "1 replica".into() } else { format!("{text} replicas") }
}

/// Figures that nobody has measured yet.
pub(crate) fn priors(sets: &Sets) -> Vec<String> {
    let mut priors = Vec::new();
    for spec in &sets.problem.services {
        let assumed = spec.capacity.iter().filter(|(_, c)| c.provenance == Provenance::Prior);
        priors.extend(assumed.map(|(variant, _)| format!("capacity of {variant} for {} is a prior", spec.id)));
    }
    let assumed = sets.problem.variants.iter().filter(|v| v.cold_start_provenance == Provenance::Prior);
    priors.extend(assumed.map(|v| format!("cold start of {} is a prior", v.id)));
    priors
}
