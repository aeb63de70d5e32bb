//! A plan against what runs now: the changes as values, before anybody decides how to print them.

use crate::names::gpu_names;
use fleet::{Binding, GpuId, JobWindow, Occupant, Plan, PoolId, Problem, Reason, ReplicaWindow, Timestamp, VariantId, Verb, WorkloadId};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What kind of change a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Replicas begin.
    Start,
    /// A replica stops here and starts there.
    Move,
    /// Replicas end.
    Stop,
    /// A job begins, ends or is preempted.
    Job,
    /// GPUs are kept free on purpose.
    Hold,
    /// Something is left unmet.
    Short,
}

/// One row of the difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// What kind.
    pub kind: ChangeKind,
    /// What happens: `start`, `move`, `stop`, `begin`, `preempt`, `end`, `hold`, `short`, `late`.
    pub verb: &'static str,
    /// Variant, job or workload.
    pub what: String,
    /// How much: "3 replicas", "4 GPUs", "2.10 req/s".
    pub amount: String,
    /// Pool and GPUs.
    pub place: String,
    /// Time, UTC.
    pub time: String,
    /// The plan's reason, where it gives one.
    pub why: Option<String>,
    /// Things this row stands for: replicas, jobs, holds or unmet rules.
    pub count: usize,
    /// Money it costs over the horizon, where the plan says.
    pub cost: Option<f64>,
}

/// The difference between what runs and what the plan wants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlanDiff {
    /// The rows: starts, moves, stops, jobs, holds, shortfalls.
    pub changes: Vec<Change>,
    /// What goes on as it is.
    pub kept: Vec<Change>,
    /// GPUs held now less GPUs held at the end of the committed part.
    pub gpus_freed: i64,
    /// Change of what is paid by the hour for GPUs in use (rent, power): end of the committed part less now.
    pub running_cost_per_hour: f64,
    /// Requests the plan expects not to serve, over its horizon.
    pub unserved_requests: f64,
    /// Money that all shortfalls cost.
    pub shortfall_cost: f64,
}

impl PlanDiff {
    /// Compares.
    #[must_use]
    pub fn of(plan: &Plan, problem: &Problem) -> Self {
        let reader = Reader { plan, problem };
        let (mut changes, mut kept) = reader.replicas();
        reader.jobs(&mut changes, &mut kept);
        changes.extend(reader.holds());
        changes.extend(reader.shortfalls(&changes));
        changes.extend(reader.relaxations());
        let (gpus_freed, running_cost_per_hour) = reader.use_of_gpus();
        let seconds = |step: usize| problem.steps.get(step).map_or(0.0, |s| s.length.as_secs_f64());
        // Folded, not summed: an empty sum of floats is minus zero.
        let unserved_requests = plan.committed.shortfalls.iter().map(|s| s.load * seconds(s.step)).fold(0.0, |sum, part| sum + part);
        let shortfall_cost = plan.committed.shortfalls.iter().map(|s| s.cost).fold(0.0, |sum, part| sum + part);
        Self { changes, kept, gpus_freed, running_cost_per_hour, unserved_requests, shortfall_cost }
    }

    /// Whether anything would be started, moved, stopped or run: the plan asks for action.
    #[must_use]
    pub fn asks_for_action(&self) -> bool {
        self.changes.iter().any(|c| !matches!(c.kind, ChangeKind::Hold | ChangeKind::Short))
    }

    /// Things counted by kind.
    #[must_use]
    pub fn count(&self, kind: ChangeKind) -> usize {
        self.changes.iter().filter(|c| c.kind == kind).map(|c| c.count).sum()
    }
}

struct Reader<'a> {
    plan: &'a Plan,
    problem: &'a Problem,
}

impl Reader<'_> {
    /// Replica windows: stops and starts of one variant pair up as moves, equal ones join in one row.
    fn replicas(&self) -> (Vec<Change>, Vec<Change>) {
        let windows = &self.plan.committed.replicas;
        let mut starts: Vec<&ReplicaWindow> = windows.iter().filter(|w| w.verb == Verb::Start).collect();
        let mut stops: Vec<&ReplicaWindow> = Vec::new();
        let mut moves: Vec<Change> = Vec::new();
        for stop in windows.iter().filter(|w| w.verb == Verb::Stop) {
            // The new replica is ready before the old one drains, hence the latest start that still precedes the stop comes first.
            match starts.iter().position(|start| start.variant == stop.variant) {
                Some(at) => moves.push(self.moved(stop, starts.remove(at))),
                None => stops.push(stop),
            }
        }
        let visits = windows.iter().filter(|w| w.verb == Verb::Visit);
        let mut changes: Vec<Change> = group(&starts, |w| w.from).iter().map(|g| self.started(g)).collect();
        changes.extend(group(&visits.collect::<Vec<_>>(), |w| w.from).iter().map(|g| self.visited(g)));
        changes.extend(moves);
        changes.extend(group(&stops, |w| w.until).iter().map(|g| self.row(ChangeKind::Stop, "stop", g, format!("until {}", g[0].until.clock()))));
        let keeps: Vec<&ReplicaWindow> = windows.iter().filter(|w| w.verb == Verb::Keep).collect();
        let kept = group(&keeps, |_| self.plan.as_of).iter().map(|g| self.row(ChangeKind::Start, "keep", g, String::new())).collect();
        self.explain_once(&mut changes);
        (changes, kept)
    }

    fn started(&self, group: &[&ReplicaWindow]) -> Change {
        let first = group[0];
        let time = if first.from == self.plan.as_of {
            format!("ready {}", first.ready_at.clock())
        } else {
            format!("{}, ready {}", first.from.clock(), first.ready_at.clock())
        };
        self.row(ChangeKind::Start, "start", group, time)
    }

    fn visited(&self, group: &[&ReplicaWindow]) -> Change {
        let first = group[0];
        self.row(ChangeKind::Start, "start", group, format!("ready {}, until {}", first.ready_at.clock(), first.until.clock()))
    }

    fn row(&self, kind: ChangeKind, verb: &'static str, group: &[&ReplicaWindow], time: String) -> Change {
        let gpus: Vec<GpuId> = group.iter().flat_map(|w| w.gpus.iter().cloned()).collect();
        Change {
            kind,
            verb,
            what: group[0].variant.to_string(),
            amount: crate::number::count(group.len(), "replica"),
            place: self.place(&group[0].pool, &gpus),
            time,
            why: None,
            count: group.len(),
            cost: None,
        }
    }

    fn moved(&self, stop: &ReplicaWindow, start: &ReplicaWindow) -> Change {
        Change {
            kind: ChangeKind::Move,
            verb: "move",
            what: stop.variant.to_string(),
            amount: "1 replica".into(),
            place: self.places(stop, start),
            time: format!("ready {}", start.ready_at.clock()),
            why: Some(format!("the old one drains at {}", stop.until.clock())),
            count: 1,
            cost: None,
        }
    }

    fn jobs(&self, changes: &mut Vec<Change>, kept: &mut Vec<Change>) {
        for window in &self.plan.committed.jobs {
            let preemption = self.plan.committed.preemptions.iter().find(|p| p.job == window.job && p.at == window.until);
            let until = window.until.clock();
            let (verb, time) = match (window.verb, preemption) {
                (Verb::Keep, _) => ("keep", String::new()),
                (Verb::Start, _) => ("begin", window.from.clock()),
                (Verb::Visit, _) => ("begin", format!("{}-{until}", window.from.clock())),
                (Verb::Stop, Some(_)) => ("preempt", format!("at {until}")),
                (Verb::Stop, None) => ("end", format!("by {until}")),
            };
            let mut change = self.job(window, verb, time);
            if let Some(p) = preemption {
                change.cost = Some(p.cost);
                let lost = format!("{} GPU-min to redo, {}", crate::decimal(p.lost_gpu_minutes, 0), crate::money(p.cost, &self.plan.currency));
                change.why = Some(change.why.map_or_else(|| lost.clone(), |why| format!("{why}; {lost}")));
            }
            if window.verb == Verb::Keep { kept.push(change) } else { changes.push(change) }
        }
    }

    fn job(&self, window: &JobWindow, verb: &'static str, time: String) -> Change {
        Change {
            kind: ChangeKind::Job,
            verb,
            what: window.job.to_string(),
            amount: crate::number::count(window.gpus.len(), "GPU"),
            place: self.place(&window.pool, &window.gpus),
            time,
            why: self.reason(&Binding::Job(window.job.clone())),
            count: 1,
            cost: None,
        }
    }

    fn holds(&self) -> Vec<Change> {
        let mut groups: BTreeMap<(String, Timestamp, Timestamp), Vec<GpuId>> = BTreeMap::new();
        for hold in &self.plan.committed.holds {
            let heir = match &hold.heir {
                Occupant::Replica { variant, .. } => variant.to_string(),
                Occupant::Job { job } => job.to_string(),
            };
            groups.entry((heir, hold.from, hold.until)).or_default().push(hold.gpu.clone());
        }
        let row = |((heir, from, until), gpus): ((String, Timestamp, Timestamp), Vec<GpuId>)| Change {
            kind: ChangeKind::Hold,
            verb: "hold",
            what: format!("for {heir}"),
            amount: crate::number::count(gpus.len(), "GPU"),
            place: self.names(&gpus),
            time: format!("{}-{}", from.clock(), until.clock()),
            why: None,
            count: gpus.len(),
            cost: None,
        };
        groups.into_iter().map(row).collect()
    }

    /// Shortfalls of one workload join in one row: worst load, first to last step, what it all costs.
    fn shortfalls(&self, before: &[Change]) -> Vec<Change> {
        let mut by: BTreeMap<&WorkloadId, Vec<&fleet::Shortfall>> = BTreeMap::new();
        for shortfall in &self.plan.committed.shortfalls {
            by.entry(&shortfall.workload).or_default().push(shortfall);
        }
        by.into_iter().map(|(workload, parts)| self.short(workload, &parts, before)).collect()
    }

    fn short(&self, workload: &WorkloadId, parts: &[&fleet::Shortfall], before: &[Change]) -> Change {
        let load = parts.iter().map(|s| s.load).fold(0.0, f64::max);
        let replicas = parts.iter().map(|s| s.replicas).fold(0.0, f64::max);
        let amount = if load > 0.0 { format!("{} req/s", crate::rate(load)) } else { format!("{} below minimum", crate::decimal(replicas, 0)) };
        let steps = || parts.iter().filter_map(|s| self.problem.steps.get(s.step));
        let (first, last) = (steps().map(|s| s.start).min(), steps().map(fleet::Step::end).max());
        let cost: f64 = parts.iter().map(|s| s.cost).fold(0.0, |sum, part| sum + part);
        let price = crate::money(cost, &self.plan.currency);
        // A reason that a row above gave already is not told again.
        let untold = |why: &String| !before.iter().any(|c| c.why.as_ref().is_some_and(|told| told.contains(why)));
        let reason = self.reason(&Binding::Service(workload.clone())).filter(untold);
        let why = reason.map_or_else(|| price.clone(), |why| format!("{price}; {why}"));
        Change {
            kind: ChangeKind::Short,
            verb: "short",
            what: workload.to_string(),
            amount,
            place: String::new(),
            time: first.zip(last).map_or_else(String::new, |(a, b)| between(a, b)),
            why: Some(why),
            count: 1,
            cost: Some(cost),
        }
    }

    /// Rules softened that no shortfall row tells of already.
    fn relaxations(&self) -> Vec<Change> {
        let told: BTreeSet<&WorkloadId> = self.plan.committed.shortfalls.iter().map(|s| &s.workload).collect();
        let untold = self.plan.report.relaxations.iter().filter(|r| !matches!(&r.of, Binding::Service(w) if told.contains(w)));
        let row = |r: &fleet::Relaxation| Change {
            kind: ChangeKind::Short,
            verb: if matches!(r.of, Binding::Job(_)) { "late" } else { "soft" },
            what: match &r.of {
                Binding::Pool(id) => id.to_string(),
                Binding::Service(id) => id.to_string(),
                Binding::Job(id) => id.to_string(),
                Binding::Plan => "plan".into(),
            },
            amount: String::new(),
            place: String::new(),
            time: String::new(),
            why: Some(format!("{}; {}", r.rule, crate::money(r.cost, &self.plan.currency))),
            count: 1,
            cost: Some(r.cost),
        };
        untold.map(row).collect()
    }

    /// Gives each service's reason to the first row that is about it.
    fn explain_once(&self, changes: &mut [Change]) {
        let mut told: BTreeSet<&WorkloadId> = BTreeSet::new();
        for change in changes.iter_mut() {
            let serves = |w: &&fleet::ServiceSpec| w.capacity.keys().any(|v| VariantId::as_str(v) == change.what);
            if let Some(service) = self.problem.services.iter().find(serves)
                && told.insert(&service.id)
                && let Some(reason) = self.reason(&Binding::Service(service.id.clone()))
            {
                change.why = Some(change.why.as_ref().map_or_else(|| reason.clone(), |why| format!("{why}; {reason}")));
            }
        }
    }

    fn reason(&self, of: &Binding) -> Option<String> {
        self.plan.report.reasons.iter().find(|r: &&Reason| &r.of == of).map(|r| r.text.clone())
    }

    /// Pool and GPUs; the pool alone where nobody knows which GPU holds what, since a name would be a guess.
    fn place(&self, pool: &PoolId, gpus: &[GpuId]) -> String {
        if self.plan.unlocated.contains(pool) { pool.to_string() } else { format!("{pool} {}", gpu_names(gpus, self.problem)) }
    }

    fn places(&self, stop: &ReplicaWindow, start: &ReplicaWindow) -> String {
        let name = |w: &ReplicaWindow| if self.plan.unlocated.contains(&w.pool) { w.pool.to_string() } else { gpu_names(&w.gpus, self.problem) };
        format!("{} → {}", name(stop), name(start))
    }

    fn names(&self, gpus: &[GpuId]) -> String {
        let pool = gpus.first().and_then(|g| self.problem.gpu(g)).map(|slot| &slot.pool);
        pool.filter(|pool| self.plan.unlocated.contains(pool)).map_or_else(|| gpu_names(gpus, self.problem), PoolId::to_string)
    }

    fn use_of_gpus(&self) -> (i64, f64) {
        let price = |gpu: &GpuId| self.problem.gpu(gpu).and_then(|g| self.problem.pool(&g.pool)).map_or(0.0, |p| p.marginal_per_gpu_hour);
        let now: BTreeSet<&GpuId> = self.problem.residents.iter().flat_map(|r| &r.gpus).collect();
        let end = self.problem.committed_end();
        let replicas = self.plan.committed.replicas.iter().filter(|w| w.until >= end).flat_map(|w| &w.gpus);
        let jobs = self.plan.committed.jobs.iter().filter(|w| w.until >= end).flat_map(|w| &w.gpus);
        let later: BTreeSet<&GpuId> = replicas.chain(jobs).collect();
        let sum = |gpus: &BTreeSet<&GpuId>| gpus.iter().map(|g| price(g)).sum::<f64>();
        let count = |gpus: &BTreeSet<&GpuId>| i64::try_from(gpus.len()).unwrap_or(i64::MAX);
        (count(&now) - count(&later), sum(&later) - sum(&now))
    }
}

/// "09:55-10:30", with the days when it spans midnight.
fn between(from: Timestamp, to: Timestamp) -> String {
    let days = (to.floor(fleet::Span::DAY).0 - from.floor(fleet::Span::DAY).0) / fleet::Span::DAY.0;
    let later = if days > 0 { format!(" +{days}d") } else { String::new() };
    format!("{}-{}{later}", from.clock(), to.clock())
}

/// Joins windows of the same variant, pool and time, in the order of their first member.
fn group<'a>(windows: &[&'a ReplicaWindow], time: impl Fn(&ReplicaWindow) -> Timestamp) -> Vec<Vec<&'a ReplicaWindow>> {
    let mut groups: Vec<Vec<&ReplicaWindow>> = Vec::new();
    for window in windows {
        let same = |g: &&mut Vec<&ReplicaWindow>| g[0].variant == window.variant && g[0].pool == window.pool && time(g[0]) == time(window);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(window),
            None => groups.push(vec![window]),
        }
    }
    groups
}
