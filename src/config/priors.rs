//! Speed of a model nobody has measured here: a preset's, scaled by size. A prior until observed, and called so wherever it is shown.

use crate::preset_models::preset_variants;
use fleet::{Span, SpeedProfile, Variant};

/// Start of an engine without reading weights, seconds, and weights read per second, bytes: as for the presets.
const COLD_START_BASE_S: f64 = 60.0;
const WEIGHTS_PER_S: f64 = 1e9;
/// Parameters assumed where a name tells no size, in thousands of millions: the middle of what the presets have.
const PARAMETERS_UNKNOWN: f64 = 30.0;

/// An estimate of how fast a model runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Prior {
    /// Step times.
    pub speed: SpeedProfile,
    /// Time to read the weights and to start.
    pub cold_start: Span,
    /// The preset variant it is scaled from.
    pub from: String,
    /// Whether it is that preset's own, unscaled.
    pub measured: bool,
}

/// What a model's name tells of its size.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Size {
    /// Parameters held, in thousands of millions.
    total: f64,
    /// Parameters a token passes through.
    active: f64,
    /// Bytes of each.
    bytes: f64,
}

impl Size {
    fn sparse(self) -> bool {
        self.active < 0.9 * self.total
    }
}

/// The prior of a model on `gpus` GPUs of a kind, from the preset that is nearest in GPU kind, then in sparsity, then in size. `None` only when there are
/// no presets of such speeds.
#[must_use]
pub fn prior(model: &str, kind: &str, gpus: u32) -> Option<Prior> {
    let size = size(model);
    let share = |size: Size, gpus: u32| size.total * size.bytes / f64::from(gpus.max(1));
    let far = |preset: &Variant| {
        let other = size_of(preset);
        let ratio = (share(size, gpus) / share(other, preset.gpus)).ln().abs();
        let another = (other.bytes.total_cmp(&size.bytes).is_ne(), preset.gpus != gpus);
        ((preset.kind.as_str() != kind, other.sparse() != size.sparse()), ratio, another)
    };
    let nearest = preset_variants().into_iter().min_by(|a, b| {
        let (a, b) = (far(a), far(b));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    })?;
    let SpeedProfile::Linear { alpha_ms, beta_ms, gamma_ms, delta_ms, max_batch } = nearest.speed else { return None };
    let other = size_of(&nearest);
    // A decode step reads the weights of a GPU once; a prefill multiplies every prompt token with the active ones.
    let read = share(size, gpus) / share(other, nearest.gpus);
    let multiplied = (size.active / f64::from(gpus.max(1))) / (other.active / f64::from(nearest.gpus));
    let measured = nearest.kind.as_str() == kind && nearest.gpus == gpus && size == other;
    let speed = SpeedProfile::Linear { alpha_ms: alpha_ms * read, beta_ms: beta_ms * multiplied, gamma_ms, delta_ms: delta_ms * multiplied, max_batch };
    #[expect(clippy::cast_possible_truncation, reason = "seconds of a start, far below 2^53")]
    let cold_start = Span((COLD_START_BASE_S + size.total * 1e9 * size.bytes / WEIGHTS_PER_S).round() as i64);
    Some(Prior { speed, cold_start, from: nearest.id.to_string(), measured })
}

/// GPUs of `memory_bytes` each that a model needs at least, as a power of two: weights in half of the memory, the rest is cache and workspace.
#[must_use]
pub fn gpus_needed(model: &str, memory_bytes: u64) -> u32 {
    let size = size(model);
    #[expect(clippy::cast_precision_loss, reason = "sizes of GPUs")]
    let room = memory_bytes as f64 / 2.0;
    let weights = size.total * 1e9 * size.bytes;
    (0..6).map(|power| 1_u32 << power).find(|gpus| weights <= room * f64::from(*gpus)).unwrap_or(64)
}

fn size_of(preset: &Variant) -> Size {
    let bytes = if preset.id.as_str().contains("-fp8-") { 1.0 } else { 2.0 };
    Size { bytes, ..size(preset.model.as_str()) }
}

/// Reads sizes such as `70B`, `8x7B`, `30B-A3B`, and precisions such as `FP8` or `AWQ`, off a model's name.
fn size(model: &str) -> Size {
    let lower = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let parts: Vec<&str> = lower.split(['-', '_', ' ', ':']).collect();
    let billions = |text: &str| text.strip_suffix('b').and_then(|number| number.parse::<f64>().ok()).filter(|number| *number > 0.0 && number.is_finite());
    let mixture = |text: &str| {
        let (experts, each) = text.split_once('x')?;
        // Attention is shared by the experts: about a sixth of what each would hold alone; two of them see a token.
        let (experts, each) = (experts.parse::<f64>().ok()?, billions(each)?);
        Some((experts * each * 5.0 / 6.0, 2.0 * each * 0.92))
    };
    let (total, active) = parts
        .iter()
        .find_map(|part| mixture(part))
        .or_else(|| {
            let total = parts.iter().find_map(|part| billions(part))?;
            Some((total, parts.iter().find_map(|part| billions(part.strip_prefix('a')?)).unwrap_or(total)))
        })
        .unwrap_or((PARAMETERS_UNKNOWN, PARAMETERS_UNKNOWN));
    let any = |words: &[&str]| words.iter().any(|word| parts.iter().any(|part| part.contains(word)));
    let bytes = if any(&["fp8", "int8", "w8a8", "q8"]) {
        1.0
    } else if any(&["awq", "gptq", "int4", "fp4", "w4a16", "q4", "4bit"]) {
        0.5
    } else {
        2.0
    };
    Size { total, active, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_sizes() {
        let told = |name: &str| {
            let Size { total, active, bytes } = size(name);
            ((total * 10.0).round() / 10.0, (active * 10.0).round() / 10.0, bytes)
        };
        assert_eq!(told("meta-llama/Llama-3.1-70B-Instruct"), (70.0, 70.0, 2.0));
        assert_eq!(told("Qwen/Qwen3-30B-A3B-FP8"), (30.0, 3.0, 1.0));
        assert_eq!(told("mistralai/Mixtral-8x7B-Instruct-v0.1"), (46.7, 12.9, 2.0));
        assert_eq!(told("TheBloke/Llama-2-13b-chat-AWQ"), (13.0, 13.0, 0.5));
        assert_eq!(told("my-model"), (PARAMETERS_UNKNOWN, PARAMETERS_UNKNOWN, 2.0));
    }

    #[test]
    fn a_preset_is_its_own_prior_and_others_are_scaled_by_size() {
        let own = prior("meta-llama/Llama-3.1-70B-Instruct", "H100-80GB", 4).unwrap();
        assert_eq!((own.from.as_str(), own.measured), ("llama-3.3-70b-bf16-tp4-h100-80gb", true));
        let alpha = |prior: &Prior| match prior.speed {
            SpeedProfile::Linear { alpha_ms, .. } => alpha_ms,
            SpeedProfile::RequestsPerS(_) => f64::NAN,
        };
        assert!((alpha(&own) - 15.186).abs() < 1e-9);
        assert_eq!(own.cold_start, Span(200));
        let (half, whole) = (prior("x-16B", "H100-80GB", 1).unwrap(), prior("x-32B", "H100-80GB", 2).unwrap());
        assert!(!half.measured && (alpha(&half) / alpha(&whole) - 1.0).abs() < 1e-9);
        // On a kind without presets, some other kind's.
        assert!(prior("x-8B", "GH200", 1).is_some_and(|prior| !prior.measured));
        assert_eq!((gpus_needed("x-70B", 80 << 30), gpus_needed("x-8B", 80 << 30), gpus_needed("x-70B-FP8", 80 << 30)), (4, 1, 2));
    }
}
