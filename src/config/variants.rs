//! `[[model]]`, `[[variant]]` and the presets: what can serve, and how fast.

use crate::{
    error::{Code, Findings},
    pools::largest_island,
    preset_models::{held_memory, preset_models, preset_variants},
    typed,
    written::At,
};
use fleet::{Bytes, Fleet, GpuKindId, Model, ModelId, Span, SpeedProfile, Variant, VariantId, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Most GPUs of one replica.
const TENSOR_PARALLEL_MAX: i64 = 64;
/// Largest batch accepted.
const BATCH_MAX: i64 = 100_000;
/// Cold start of a variant that names none: our assumption, corrected by the first observed starts.
const COLD_START_PRIOR: Span = Span(120);
/// Longest cold start accepted: beyond a day it is a typing error.
const COLD_START_MAX: Span = Span::DAY;

/// Everything that could serve.
pub(crate) struct Catalogue {
    models: BTreeMap<ModelId, Model>,
    /// In order of preference: as listed in the file, then the presets.
    variants: Vec<Variant>,
    /// Names of variants that a fault was noted for, and of their models: what they leave missing is not worth a second fault.
    broken: BTreeSet<String>,
}

impl Catalogue {
    /// The model of that name.
    pub(crate) fn has_model(&self, name: &str) -> bool {
        self.models.keys().any(|id| id.as_str() == name)
    }

    /// Names of all models.
    pub(crate) fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(ModelId::as_str)
    }

    /// Variants of a model, in order of preference.
    pub(crate) fn of_model(&self, model: &str) -> Vec<&Variant> {
        self.variants.iter().filter(|variant| variant.model.as_str() == model).collect()
    }

    /// The variant of that name.
    pub(crate) fn variant(&self, name: &str) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.id.as_str() == name)
    }

    /// Whether a fault was noted for the variant of that name, or for one of the model of that name.
    pub(crate) fn is_broken(&self, name: &str) -> bool {
        self.broken.contains(name)
    }

    /// Names of all variants.
    pub(crate) fn variant_names(&self) -> impl Iterator<Item = &str> {
        self.variants.iter().map(|variant| variant.id.as_str())
    }

    /// What some service may use, in order of id.
    pub(crate) fn into_used(self, workloads: &[Workload]) -> (Vec<Model>, Vec<Variant>) {
        let used: BTreeSet<&VariantId> = workloads.iter().filter_map(Workload::service).flat_map(|service| &service.variants).collect();
        let mut variants: Vec<Variant> = self.variants.into_iter().filter(|variant| used.contains(&variant.id)).collect();
        variants.sort_by(|a, b| a.id.cmp(&b.id));
        let needed: BTreeSet<&ModelId> = variants.iter().map(|variant| &variant.model).collect();
        let models = self.models.into_values().filter(|model| needed.contains(&model.id)).collect();
        (models, variants)
    }
}

pub(crate) fn resolve(typed: &typed::File, fleet: &Fleet, findings: &mut Findings<'_>) -> Catalogue {
    let models = models(typed, findings);
    let mut variants: Vec<Variant> = Vec::new();
    let mut own_models = BTreeSet::new();
    let mut broken = BTreeSet::new();
    for table in &typed.variant {
        own_models.insert(table.get().model.get().as_str());
        let Some(variant) = variant(table, &models, fleet, findings) else {
            broken.extend([table.get().name.get().clone(), table.get().model.get().clone()]);
            continue;
        };
        if variants.iter().any(|other| other.id == variant.id) {
            findings.duplicate(table.get().name.span(), "variant", variant.id.as_str());
        } else {
            variants.push(variant);
        }
    }
    // Presets only on kinds the fleet has, with the memory the file gives those kinds.
    for mut preset in preset_variants() {
        let Some(kind) = fleet.kinds.get(&preset.kind) else { continue };
        preset.memory_per_gpu = held_memory(kind.memory);
        let taken = own_models.contains(preset.model.as_str()) || variants.iter().any(|other| other.id == preset.id);
        if !taken {
            variants.push(preset);
        }
    }
    Catalogue { models, variants, broken }
}

fn models(typed: &typed::File, findings: &mut Findings<'_>) -> BTreeMap<ModelId, Model> {
    let mut models: BTreeMap<ModelId, Model> =
        preset_models().into_iter().filter_map(|name| ModelId::new(name).ok()).map(|id| (id.clone(), Model { id, quality: BTreeMap::new() })).collect();
    let mut own = BTreeSet::new();
    for table in &typed.model {
        let model = table.get();
        let mut quality = BTreeMap::new();
        for (task, at) in &model.quality {
            if let Some(score) = findings.number(at, &format!("quality for {task}"), 0.0..=1.0) {
                quality.insert(task.clone(), score);
            }
        }
        let Some(id) = findings.id::<ModelId>(&model.name) else { continue };
        if !own.insert(id.clone()) {
            findings.duplicate(model.name.span(), "model", id.as_str());
        }
        models.insert(id.clone(), Model { id, quality });
    }
    models
}

fn variant(table: &At<typed::Variant>, models: &BTreeMap<ModelId, Model>, fleet: &Fleet, findings: &mut Findings<'_>) -> Option<Variant> {
    let typed = table.get();
    let gpus = typed.gpus.as_ref().map_or(Some(1), |at| findings.count(at, "gpus", 1, TENSOR_PARALLEL_MAX));
    let memory = match &typed.memory {
        Some(at) => Some(findings.size(at, "memory")?),
        None => None,
    };
    let cold_start = typed.cold_start.as_ref().map_or(Some(COLD_START_PRIOR), |at| findings.span(at, "cold_start", Span::ZERO, COLD_START_MAX));
    let speed = speed(table, findings);
    let model = models.keys().find(|id| id.as_str() == typed.model.get());
    if model.is_none() {
        findings.dangling(typed.model.span(), &format!("variant {:?}", typed.name.get()), "model", typed.model.get(), models.keys().map(ModelId::as_str));
    }
    let kind = kind_in_fleet(typed, fleet, findings);
    let id = findings.id::<VariantId>(&typed.name);
    let (kind, gpus) = (kind?, gpus?);
    let memory_per_gpu = memory.unwrap_or_else(|| held_memory(kind.1));
    let fits = check_fit(typed, (&kind.0, kind.1), gpus, memory_per_gpu, fleet, findings);
    let variant = Variant { id: id?, model: model?.clone(), kind: kind.0, gpus, memory_per_gpu, cold_start: cold_start?, speed: speed? };
    fits.then_some(variant)
}

/// The kind a variant is made for, with its memory; noted when no pool has it.
fn kind_in_fleet(typed: &typed::Variant, fleet: &Fleet, findings: &mut Findings<'_>) -> Option<(GpuKindId, Bytes)> {
    let found = fleet.kinds.values().find(|kind| kind.id.as_str() == typed.kind.get());
    if found.is_none() && findings.fleet_is_sound() {
        findings.dangling(
            typed.kind.span(),
            &format!("variant {:?}", typed.name.get()),
            "GPU kind of a pool",
            typed.kind.get(),
            fleet.kinds.keys().map(GpuKindId::as_str),
        );
    }
    found.map(|kind| (kind.id.clone(), kind.memory))
}

fn check_fit(typed: &typed::Variant, (kind, available): (&GpuKindId, Bytes), gpus: u32, memory: Bytes, fleet: &Fleet, findings: &mut Findings<'_>) -> bool {
    if !findings.fleet_is_sound() {
        return true;
    }
    let name = typed.name.get();
    if let Some(at) = typed.memory.as_ref().filter(|_| memory > available) {
        let message = format!("variant {name:?} holds {memory} of each GPU, but {kind} has {available}");
        findings.refuse(
            Code::Memory,
            at.span(),
            message,
            "more than the GPU has",
            "spread it over more GPUs (gpus), choose a lower precision, or a larger kind",
        );
        return false;
    }
    let largest = largest_island(fleet, &BTreeSet::from([kind.clone()]));
    if let Some(at) = typed.gpus.as_ref().filter(|_| gpus > largest) {
        let message = format!("variant {name:?} needs {gpus} GPUs in one island, but islands of {kind} hold at most {largest}");
        findings.refuse(Code::Island, at.span(), message, "larger than any island", format!("use at most {largest}, or check `island` of the pool"));
        return false;
    }
    true
}

/// Speed outright or by step times, never both, never half.
fn speed(table: &At<typed::Variant>, findings: &mut Findings<'_>) -> Option<SpeedProfile> {
    let typed = table.get();
    if let Some(at) = &typed.tokens_per_s {
        let message = format!("variant {:?} gives its capacity in tokens/s, but demand and targets are in requests/s", typed.name.get());
        let help = "write requests_per_s (tokens/s divided by the tokens of a request), or the step times alpha, beta, gamma, delta";
        findings.refuse(Code::Unit, at.span(), message, "tokens/s", help);
        return None;
    }
    let step_times = [&typed.alpha, &typed.beta, &typed.gamma, &typed.delta];
    if let Some(at) = &typed.requests_per_s {
        let rate = findings.positive(at, "requests_per_s");
        if step_times.iter().any(|time| time.is_some()) || typed.max_batch.is_some() {
            findings.refuse(
                Code::Conflict,
                at.span(),
                "the speed is given outright and by step times",
                "one or the other",
                "remove requests_per_s, or alpha, beta, gamma, delta and max_batch",
            );
        }
        return rate.map(SpeedProfile::RequestsPerS);
    }
    let (Some(alpha), Some(beta), Some(delta)) = (&typed.alpha, &typed.beta, &typed.delta) else {
        let message = format!("variant {:?} has no speed", typed.name.get());
        findings.refuse(Code::Conflict, table.span(), message, "no speed", "add requests_per_s, or alpha, beta and delta (gamma and max_batch where known)");
        return None;
    };
    let alpha_ms = findings.latency_ms(alpha, "alpha", false);
    let beta_ms = findings.latency_ms(beta, "beta", true);
    let delta_ms = findings.latency_ms(delta, "delta", true);
    let gamma_ms = typed.gamma.as_ref().map_or(Some(0.0), |at| findings.latency_ms(at, "gamma", true));
    let max_batch = typed.max_batch.as_ref().map_or(Some(256), |at| findings.count(at, "max_batch", 1, BATCH_MAX));
    Some(SpeedProfile::Linear { alpha_ms: alpha_ms?, beta_ms: beta_ms?, gamma_ms: gamma_ms?, delta_ms: delta_ms?, max_batch: max_batch? })
}
