//! `[[service]]`: work that arrives per second and has a service target.

use crate::{
    error::{Code, Findings},
    pools::{largest_island, replicas_that_fit},
    settings, typed,
    variants::Catalogue,
    written::At,
};
use fleet::{Class, Fleet, LatencyTarget, Service, Span, SpeedProfile, Variant, VariantId, Workload, WorkloadId, WorkloadKind};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Most replicas a service may name.
const REPLICAS_MAX: i64 = 100_000;
/// Priorities run from 0 (first) to this.
pub(crate) const PRIORITY_MAX: i64 = 1_000;
/// Classes that arrive per second.
const CLASSES: [Class; 4] = [Class::RealTime, Class::Batch, Class::Embedding, Class::Evaluation];

/// What a service promises and expects unless it says otherwise. Ours: a chat answer begins within two seconds and is read at ten tokens a
/// second; work that can wait has a target only so that it has a capacity. Tokens: Azure's public conversation traces of 2023 average 1,155 in and
/// 211 out.
struct ServiceDefaults {
    ttft_s: f64,
    tpot_s: Option<f64>,
    share: f64,
    tokens: (f64, f64),
}

fn defaults(class: Class) -> ServiceDefaults {
    match class {
        Class::RealTime => ServiceDefaults { ttft_s: 2.0, tpot_s: Some(0.1), share: 0.99, tokens: (1_000.0, 250.0) },
        Class::Embedding => ServiceDefaults { ttft_s: 30.0, tpot_s: None, share: 0.95, tokens: (500.0, 1.0) },
        _ => ServiceDefaults { ttft_s: 600.0, tpot_s: None, share: 0.95, tokens: (1_000.0, 250.0) },
    }
}

pub(crate) fn resolve(
    typed: &typed::File,
    fleet: &Fleet,
    catalogue: &Catalogue,
    zone: &str,
    names: &mut BTreeMap<WorkloadId, Range<usize>>,
    findings: &mut Findings<'_>,
) -> Vec<Workload> {
    typed.service.iter().filter_map(|table| workload(table, fleet, catalogue, zone, names, findings)).collect()
}

fn workload(
    table: &At<typed::Service>,
    fleet: &Fleet,
    catalogue: &Catalogue,
    zone: &str,
    names: &mut BTreeMap<WorkloadId, Range<usize>>,
    findings: &mut Findings<'_>,
) -> Option<Workload> {
    let typed = table.get();
    let id = name(&typed.name, names, findings);
    let class = match &typed.class {
        Some(at) => class(at, &CLASSES, "work with a fixed amount is a [[job]]", findings)?,
        None => Class::RealTime,
    };
    let priority = priority(typed.priority.as_ref(), class, findings);
    let tokens_prior = tokens(typed, class, findings);
    let target = target(typed, class, findings);
    let penalty_per_request = typed.penalty.as_ref().and_then(|at| findings.number(at, "penalty", 0.0..=f64::MAX));
    let level = typed.level.as_ref().and_then(|at| findings.number(at, "level", 0.05..=0.99));
    let zone = settings::zone(typed.zone.as_ref(), zone, findings);
    let stabilisation = typed.stabilisation.as_ref().map_or(Some(Span::minutes(10)), |at| findings.span(at, "stabilisation", Span::ZERO, Span::DAY));
    let candidates = candidates(table, catalogue, findings);
    let able = match (&target, tokens_prior) {
        (Some(target), Some(tokens)) => able(typed, &candidates, *target, tokens, fleet, findings),
        _ => candidates,
    };
    let (min_replicas, max_replicas) = bounds(typed, &able, fleet, findings)?;
    let variants: Vec<VariantId> = able.iter().map(|variant| variant.id.clone()).collect();
    let service = Service {
        variants,
        target: target?,
        min_replicas,
        max_replicas,
        penalty_per_request,
        level,
        zone,
        stabilisation: stabilisation?,
        tokens_prior: tokens_prior?,
    };
    Some(Workload { id: id?, class, tenant: typed.tenant.clone(), priority: priority?, kind: WorkloadKind::Service(service) })
}

/// A workload's name, which no other has: services and jobs share one space of names.
pub(crate) fn name(at: &At<String>, names: &mut BTreeMap<WorkloadId, Range<usize>>, findings: &mut Findings<'_>) -> Option<WorkloadId> {
    let id = findings.id::<WorkloadId>(at)?;
    if names.insert(id.clone(), at.span()).is_some() {
        findings.duplicate(at.span(), "workload", id.as_str());
        return None;
    }
    Some(id)
}

/// A class by name, one of those allowed here.
pub(crate) fn class(at: &At<String>, allowed: &[Class], otherwise: &str, findings: &mut Findings<'_>) -> Option<Class> {
    let Some(class) = Class::ALL.into_iter().find(|class| class.name() == at.get()) else {
        let known: Vec<&str> = allowed.iter().map(|class| class.name()).collect();
        findings.word(at.span(), "class", at.get(), &known);
        return None;
    };
    if allowed.contains(&class) {
        return Some(class);
    }
    let message = format!("class {} does not belong here", class.name());
    findings.refuse(Code::Word, at.span(), message, "another kind of work", otherwise);
    None
}

pub(crate) fn priority(at: Option<&At<i64>>, class: Class, findings: &mut Findings<'_>) -> Option<u32> {
    at.map_or(Some(class.defaults().priority), |at| findings.count(at, "priority", 0, PRIORITY_MAX))
}

fn tokens(typed: &typed::Service, class: Class, findings: &mut Findings<'_>) -> Option<(f64, f64)> {
    let (default_in, default_out) = defaults(class).tokens;
    let input = typed.tokens_in.as_ref().map_or(Some(default_in), |at| findings.positive(at, "tokens_in"));
    let output = typed.tokens_out.as_ref().map_or(Some(default_out), |at| findings.positive(at, "tokens_out"));
    Some((input?, output?))
}

fn target(typed: &typed::Service, class: Class, findings: &mut Findings<'_>) -> Option<LatencyTarget> {
    let defaults = defaults(class);
    let ttft_s = typed.ttft.as_ref().map_or(Some(defaults.ttft_s), |at| findings.latency_ms(at, "ttft", false).map(|ms| ms / 1_000.0));
    let tpot_s = match &typed.tpot {
        Some(at) => Some(findings.latency_ms(at, "tpot", false)? / 1_000.0),
        None => defaults.tpot_s,
    };
    // At 1 every single request would have to be on time: no finite capacity promises that.
    let share = typed.target.as_ref().map_or(Some(defaults.share), |at| findings.number(at, "target", 0.5..=0.9999));
    Some(LatencyTarget { ttft_s: ttft_s?, tpot_s, share: share? })
}

/// The variants a service names, or those of its models.
fn candidates<'c>(table: &At<typed::Service>, catalogue: &'c Catalogue, findings: &mut Findings<'_>) -> Vec<&'c Variant> {
    let typed = table.get();
    let who = format!("service {:?}", typed.name.get());
    let mut found: Vec<&Variant> = Vec::new();
    match (&typed.models, &typed.variants) {
        (Some(_), Some(variants)) => {
            findings.refuse(Code::Conflict, variants.span(), format!("{who} names models and variants"), "one or the other", "remove `models`, or `variants`");
        }
        (None, None) => {
            findings.refuse(Code::Shape, table.span(), format!("{who} names no model"), "needs models", "add models = \"...\" (or variants)");
        }
        (Some(models), None) => {
            for (name, span) in models.entries() {
                if !catalogue.has_model(name) {
                    findings.dangling(span, &who, "model", name, catalogue.model_names());
                    continue;
                }
                let before = found.len();
                found.extend(catalogue.of_model(name));
                if found.len() == before && findings.fleet_is_sound() && !catalogue.is_broken(name) {
                    let message = format!("{who}: model {name:?} has no variant on a GPU kind of this fleet");
                    findings.refuse(Code::Dangling, span, message, "no variant", format!("add a [[variant]] with model = {name:?}"));
                }
            }
        }
        (None, Some(variants)) => {
            for (name, span) in variants.entries() {
                match catalogue.variant(name) {
                    Some(variant) => found.push(variant),
                    None if catalogue.is_broken(name) => {}
                    None => findings.dangling(span, &who, "variant", name, catalogue.variant_names()),
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    found.retain(|variant| seen.insert(&variant.id));
    found
}

/// Fastest a variant can be: prefill of a prompt of that length alone, and one decode step of one sequence, in seconds.
fn floors(variant: &Variant, tokens_in: f64) -> Option<(f64, f64)> {
    match variant.speed {
        SpeedProfile::RequestsPerS(_) => None,
        SpeedProfile::Linear { alpha_ms, beta_ms, gamma_ms, delta_ms, .. } => {
            Some(((gamma_ms + delta_ms * tokens_in) / 1_000.0, (alpha_ms + beta_ms) / 1_000.0))
        }
    }
}

/// The variants that can meet the target when nothing else runs, and that fit an island. Refused when none can; those left out are named.
fn able<'c>(
    typed: &typed::Service,
    candidates: &[&'c Variant],
    target: LatencyTarget,
    (tokens_in, _): (f64, f64),
    fleet: &Fleet,
    findings: &mut Findings<'_>,
) -> Vec<&'c Variant> {
    let who = format!("service {:?}", typed.name.get());
    let (mut able, mut slow, mut large) = (Vec::new(), Vec::new(), Vec::new());
    for variant in candidates {
        let (prefill, step) = floors(variant, tokens_in).unwrap_or((0.0, 0.0));
        if prefill > target.ttft_s || target.tpot_s.is_some_and(|tpot| step > tpot) {
            slow.push((*variant, prefill, step));
        } else if variant.gpus > largest_island(fleet, &BTreeSet::from([variant.kind.clone()])) && findings.fleet_is_sound() {
            large.push(*variant);
        } else {
            able.push(*variant);
        }
    }
    let list = |left: &[&Variant]| left.iter().map(|variant| variant.id.as_str()).collect::<Vec<_>>().join(", ");
    if !able.is_empty() || candidates.is_empty() {
        let left_out: Vec<&Variant> = slow.iter().map(|(variant, ..)| *variant).chain(large).collect();
        if !left_out.is_empty() {
            let message = format!("{who} does not use {}: too slow for its target, or larger than an island", list(&left_out));
            findings.warn(Code::LeftOut, typed.name.span(), message, "not all variants are used", "name the variants that are meant (variants = [...])");
        }
        return able;
    }
    if let Some(prefill) = slow.iter().map(|(_, prefill, _)| *prefill).min_by(f64::total_cmp).filter(|prefill| *prefill > target.ttft_s) {
        let span = typed.ttft.as_ref().map_or_else(|| typed.name.span(), At::span);
        let message =
            format!("{who} promises a first token in {:.0} ms, but prefill of {tokens_in:.0} tokens alone takes {:.0} ms", target.ttft_s * 1e3, prefill * 1e3);
        let help = format!("raise ttft above {:.0}ms, lower tokens_in if prompts are shorter, or use a faster variant", (prefill * 1e3).ceil());
        findings.refuse(Code::Latency, span, message, "cannot be met", help);
    } else if !slow.is_empty() {
        let step = slow.iter().map(|(_, _, step)| *step).min_by(f64::total_cmp).unwrap_or(0.0);
        let span = typed.tpot.as_ref().map_or_else(|| typed.name.span(), At::span);
        let message = format!(
            "{who} promises {:.1} ms per output token, but a decode step of one sequence takes {:.1} ms",
            target.tpot_s.unwrap_or(0.0) * 1e3,
            step * 1e3
        );
        findings.refuse(Code::Latency, span, message, "cannot be met", format!("raise tpot above {:.0}ms, or use a faster variant", (step * 1e3).ceil()));
    } else {
        let message = format!("{who}: no island is large enough for {}", list(&large));
        findings.refuse(Code::Island, typed.name.span(), message, "fits nowhere", "use variants with fewer GPUs, or check `island` of the pools");
    }
    Vec::new()
}

/// Replica bounds: at least what is asked for, at most what the fleet holds.
fn bounds(typed: &typed::Service, variants: &[&Variant], fleet: &Fleet, findings: &mut Findings<'_>) -> Option<(u32, u32)> {
    let min = typed.min_replicas.as_ref().map_or(Some(1), |at| findings.count(at, "min_replicas", 0, REPLICAS_MAX));
    let max = typed.max_replicas.as_ref().map(|at| findings.count(at, "max_replicas", 1, REPLICAS_MAX));
    let (min, max) = (min?, max.map_or(Some(None), |max| max.map(Some))?);
    let who = format!("service {:?}", typed.name.get());
    if let Some(max) = max.filter(|max| min > *max) {
        let at = typed.min_replicas.as_ref().or(typed.max_replicas.as_ref());
        let help = format!("raise max_replicas to {min} or more, or lower min_replicas to {max}");
        let message = format!("{who} asks for at least {min} replicas but at most {max}");
        findings.refuse(Code::MinAboveMax, at.map_or(0..0, At::span), message, format!("larger than max_replicas = {max}"), help);
        return None;
    }
    let mut by_kind: BTreeMap<_, u32> = BTreeMap::new();
    for variant in variants {
        let fits = replicas_that_fit(fleet, &variant.kind, variant.gpus);
        let most = by_kind.entry(&variant.kind).or_default();
        *most = fits.max(*most);
    }
    let fits = by_kind.values().sum::<u32>();
    if let Some(at) = typed.min_replicas.as_ref().filter(|_| min > fits && !variants.is_empty() && findings.fleet_is_sound()) {
        let message = format!("{who} asks for at least {min} replicas, but the whole fleet holds {fits}");
        findings.refuse(Code::FleetSize, at.span(), message, "more than the fleet holds", format!("lower min_replicas to {fits}, or add GPUs"));
    }
    Some((min, max.unwrap_or(fits.max(min).max(1))))
}
