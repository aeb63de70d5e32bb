//! What happened in an hour, beside what was forecast and promised for it.

use crate::{JobState, State};
use fleet::{JobOutcome, Outcome, OutcomeId, Service, ServiceOutcome, Span, Timestamp, VariantId, WorkloadId, WorkloadWindow, fingerprint};
use std::collections::BTreeMap;

/// Mean of what is known.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_u32), |(s, n), v| (s + v, n + 1));
    (n > 0).then(|| sum / f64::from(n))
}

pub(crate) fn outcome_of_hour(state: &State, hour: Timestamp) -> Outcome {
    let end = hour + Span::HOUR;
    let services: Vec<ServiceOutcome> = state.services().filter_map(|w| Some(service_outcome(state, &w.id, w.service()?, hour))).collect();
    let jobs = state
        .jobs
        .values()
        .map(|reading| {
            let deadline = state.setup.workloads.iter().find(|w| w.id.as_str() == reading.job.as_str()).and_then(|w| w.job()).and_then(|j| j.deadline);
            let ended = state.ended.contains(&reading.job);
            let unfinished = reading.state != JobState::Done;
            JobOutcome {
                job: reading.job.clone(),
                remaining_s: if unfinished { reading.remaining_s } else { 0.0 },
                ended,
                late: deadline.is_some_and(|d| if unfinished { d < end } else { ended && d < reading.at }),
            }
        })
        .collect();
    let mut outcome = Outcome {
        id: unnamed(),
        start: hour,
        length: Span::HOUR,
        plan: state.plan.as_ref().map(|p| p.id.clone()),
        applied: applied(state, &services, end),
        services,
        jobs,
        starts: state.started.clone(),
    };
    if let Ok(id) = OutcomeId::new(fingerprint(&outcome)) {
        outcome.id = id;
    }
    outcome
}

fn unnamed() -> OutcomeId {
    OutcomeId::new("unnamed").unwrap_or_else(|_| unreachable!("a usable id"))
}

/// Whether what answered at the end of the window is what the plan in force says, service by service.
fn applied(state: &State, services: &[ServiceOutcome], end: Timestamp) -> bool {
    let Some(plan) = &state.plan else { return false };
    let at = end - Span(1);
    if at >= plan.committed.steps.last().map_or(plan.as_of, fleet::Step::end) {
        return false;
    }
    let mut promised: BTreeMap<&VariantId, u32> = BTreeMap::new();
    for window in plan.replicas_at(at).filter(|r| r.ready_at <= at) {
        *promised.entry(&window.variant).or_default() += 1;
    }
    let mut seen: BTreeMap<&VariantId, u32> = BTreeMap::new();
    for service in services {
        for (variant, count) in &service.ready {
            let known = seen.entry(variant).or_default();
            *known = (*known).max(*count);
        }
    }
    seen.retain(|_, count| *count > 0);
    promised == seen
}

fn service_outcome(state: &State, id: &WorkloadId, service: &Service, hour: Timestamp) -> ServiceOutcome {
    let end = hour + Span::HOUR;
    let all = state.history(id);
    let first = all.partition_point(|w| w.start < hour);
    let windows: Vec<&WorkloadWindow> = all[first..].iter().take_while(|w| w.start < end).collect();
    let completeness = windows.iter().map(|w| w.completeness * w.length.as_secs_f64()).sum::<f64>() / Span::HOUR.as_secs_f64();
    let first_tokens: f64 = windows.iter().filter_map(|w| w.first_tokens).sum();
    let in_time: f64 = windows.iter().filter_map(|w| w.first_tokens_in_time).sum();
    let per_variant = |pick: &dyn Fn(&WorkloadWindow, &VariantId) -> Option<f64>| -> BTreeMap<VariantId, f64> {
        service.variants.iter().filter_map(|v| Some((v.clone(), mean(windows.iter().filter_map(|w| pick(w, v)))?))).collect()
    };
    ServiceOutcome {
        workload: id.clone(),
        forecast: state.predictions.get(&hour).and_then(|by| by.get(id)).cloned().unwrap_or_default(),
        observed_per_s: mean(windows.iter().filter_map(|w| w.arrivals_per_s)),
        peak_per_s: windows.iter().filter_map(|w| w.peak_per_s.or(w.arrivals_per_s)).reduce(f64::max),
        promised_per_s: promised(state, id, hour),
        attainment: fleet::Share::of(in_time.min(first_tokens), first_tokens).map(fleet::Share::get),
        ready: windows.last().map(|w| w.ready.clone()).unwrap_or_default(),
        saturated_per_replica: per_variant(&|w, v| w.saturated_per_replica.get(v).copied()),
        sustained_per_replica: sustained(service, &windows),
        prior_per_replica: state.priors.get(id).cloned().unwrap_or_default(),
        censored: censored(&windows),
        completeness: completeness.clamp(0.0, 1.0),
    }
}

/// Requests/s the plan in force means to serve at the beginning of the hour.
fn promised(state: &State, id: &WorkloadId, hour: Timestamp) -> Option<f64> {
    let plan = state.plan.as_ref()?;
    let (index, _) = plan.committed.steps.iter().enumerate().find(|(_, s)| s.start <= hour && hour < s.end())?;
    Some(plan.committed.routes.iter().filter(|r| &r.workload == id && r.step == index).map(|r| r.load).sum())
}

/// The most one replica served while first tokens were in time: known only where one variant served alone.
fn sustained(service: &Service, windows: &[&WorkloadWindow]) -> BTreeMap<VariantId, f64> {
    let mut best: BTreeMap<VariantId, f64> = BTreeMap::new();
    for window in windows.iter().filter(|w| !w.saturated && w.completeness > 0.9) {
        let in_time = match (window.first_tokens_in_time, window.first_tokens) {
            (Some(good), Some(all)) if all > 0.0 => good / all >= service.target.share,
            _ => false,
        };
        let mut alone = window.ready.iter().filter(|(_, n)| **n > 0);
        if let (true, Some((variant, count)), None, Some(rate)) = (in_time, alone.next(), alone.next(), window.finished_per_s) {
            let known = best.entry(variant.clone()).or_default();
            *known = known.max(rate / f64::from(*count));
        }
    }
    best
}

/// Readings were lost for more than half of the hour: what came is not known as demand. Saturation alone does not censor, since those who wait
/// are counted as arrivals.
fn censored(windows: &[&WorkloadWindow]) -> bool {
    let known: f64 = windows.iter().filter(|w| w.arrivals_per_s.is_some()).map(|w| w.length.as_secs_f64()).sum();
    known < 0.5 * Span::HOUR.as_secs_f64()
}
