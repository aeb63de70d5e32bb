//! Models known without being written down, and how fast they are: documented priors, marked `prior` in every output until fitted.

use crate::preset_kinds::preset_kind;
use fleet::{Bytes, GpuKindId, ModelId, Span, SpeedProfile, Variant, VariantId};

/// Share of a GPU's memory a replica holds: vLLM's default for `gpu_memory_utilization` (weights, workspace, and the rest as KV cache).
const MEMORY_SHARE_PERCENT: u64 = 90;

/// Start of the engine without reading weights, seconds: our assumption, corrected by the first observed starts.
const COLD_START_BASE_S: i64 = 60;

/// One model at one precision on one GPU kind.
pub(crate) struct Preset {
    model: &'static str,
    precision: &'static str,
    kind: &'static str,
    gpus: u32,
    /// alpha, beta, gamma, delta in milliseconds.
    step_ms: [f64; 4],
    max_batch: u32,
}

/// From NVIDIA's `aiconfigurator-core` 0.12.0 (Apache-2.0; interpolated operator measurements under vLLM, memory share 0.9): alpha and beta are
/// the least-squares line of the decode step over the batch at a context of 1,024 tokens, gamma and delta the line through the prefill times
/// at 512 and 8,192 tokens. For each pair the smallest tensor-parallel degree that still holds 64 sequences; batches are cut at 256, vLLM's
/// default. The figures of the 70B model are those of Llama 3.1, whose architecture 3.3 shares.
#[rustfmt::skip]
pub(crate) const PRESETS: [Preset; 33] = [
    Preset::new("Llama-3.1-8B", "bf16", "H100-80GB", 1, [6.458, 0.051_45, 0.0, 0.0244], 256),
    Preset::new("Llama-3.1-8B", "bf16", "H200-141GB", 1, [4.927, 0.040_49, 0.0, 0.0244], 256),
    Preset::new("Llama-3.1-8B", "bf16", "B200", 1, [3.385, 0.022_59, 0.7, 0.0118], 256),
    Preset::new("Llama-3.1-8B", "bf16", "A100-80GB", 1, [11.295, 0.121_68, 1.3, 0.0678], 256),
    Preset::new("Llama-3.1-8B", "bf16", "RTX-PRO-6000", 1, [10.766, 0.108_29, 2.0, 0.0459], 256),
    Preset::new("Llama-3.1-8B", "bf16", "L40S", 1, [22.088, 0.246_91, 0.0, 0.0861], 170),
    Preset::new("Llama-3.3-70B", "fp8", "H100-80GB", 2, [16.206, 0.068_99, 5.6, 0.0732], 256),
    Preset::new("Llama-3.3-70B", "fp8", "H200-141GB", 1, [20.937, 0.118_04, 0.0, 0.1191], 256),
    Preset::new("Llama-3.3-70B", "fp8", "B200", 1, [15.564, 0.055_05, 0.9, 0.0664], 256),
    Preset::new("Llama-3.3-70B", "fp8", "RTX-PRO-6000", 1, [50.231, 0.109_08, 3.9, 0.2257], 86),
    Preset::new("Llama-3.3-70B", "fp8", "L40S", 4, [31.694, 1.140_21, 0.0, 1.2068], 256),
    Preset::new("Llama-3.3-70B", "bf16", "H100-80GB", 4, [15.186, 0.059_83, 1.3, 0.0702], 256),
    Preset::new("Llama-3.3-70B", "bf16", "H200-141GB", 2, [20.667, 0.077_88, 0.0, 0.1159], 256),
    Preset::new("Llama-3.3-70B", "bf16", "B200", 2, [14.27, 0.055_13, 5.1, 0.0595], 256),
    Preset::new("Llama-3.3-70B", "bf16", "A100-80GB", 4, [27.407, 0.162_91, 20.9, 0.1649], 256),
    Preset::new("Llama-3.3-70B", "bf16", "RTX-PRO-6000", 2, [50.003, 0.187_66, 6.8, 0.2679], 100),
    Preset::new("Qwen3-30B-A3B", "bf16", "H100-80GB", 1, [6.776, 0.308_73, 20.4, 0.0162], 115),
    Preset::new("Qwen3-30B-A3B", "bf16", "H200-141GB", 1, [8.062, 0.082_83, 15.1, 0.0151], 256),
    Preset::new("Qwen3-30B-A3B", "bf16", "B200", 1, [5.144, 0.050_41, 12.0, 0.0077], 256),
    Preset::new("Qwen3-30B-A3B", "bf16", "A100-80GB", 1, [10.675, 0.5421, 37.3, 0.0563], 115),
    Preset::new("Qwen3-30B-A3B", "bf16", "RTX-PRO-6000", 1, [16.779, 0.213_38, 32.1, 0.0366], 256),
    Preset::new("Qwen3-30B-A3B", "bf16", "L40S", 2, [13.021, 0.419_63, 42.2, 0.0483], 163),
    Preset::new("Qwen3-32B", "fp8", "H100-80GB", 1, [14.27, 0.0916, 0.0, 0.0704], 256),
    Preset::new("Qwen3-32B", "fp8", "H200-141GB", 1, [11.129, 0.088_72, 0.1, 0.0633], 256),
    Preset::new("Qwen3-32B", "fp8", "B200", 1, [8.816, 0.0336, 4.4, 0.0329], 256),
    Preset::new("Qwen3-32B", "fp8", "RTX-PRO-6000", 1, [22.823, 0.157_66, 0.0, 0.1203], 256),
    Preset::new("Qwen3-32B", "fp8", "L40S", 2, [28.551, 0.219_51, 0.0, 0.1992], 256),
    Preset::new("Qwen3-8B", "bf16", "H100-80GB", 1, [6.637, 0.057_74, 0.2, 0.0248], 256),
    Preset::new("Qwen3-8B", "bf16", "H200-141GB", 1, [5.073, 0.0447, 0.0, 0.0246], 256),
    Preset::new("Qwen3-8B", "bf16", "B200", 1, [3.476, 0.025_64, 2.1, 0.012], 256),
    Preset::new("Qwen3-8B", "bf16", "A100-80GB", 1, [11.472, 0.132_13, 1.6, 0.0692], 256),
    Preset::new("Qwen3-8B", "bf16", "RTX-PRO-6000", 1, [11.093, 0.119_25, 2.4, 0.0476], 256),
    Preset::new("Qwen3-8B", "bf16", "L40S", 1, [22.362, 0.278_57, 0.0, 0.0897], 149),
];

impl Preset {
    const fn new(model: &'static str, precision: &'static str, kind: &'static str, gpus: u32, step_ms: [f64; 4], max_batch: u32) -> Self {
        Self { model, precision, kind, gpus, step_ms, max_batch }
    }

    /// Seconds to read the weights: one per 10^9 bytes, a local disk or a warm page cache at 1 GB/s. Parameters times bytes per parameter.
    fn weights_s(&self) -> i64 {
        match (self.model, self.precision) {
            ("Llama-3.3-70B", "bf16") => 141,
            ("Llama-3.3-70B", _) => 71,
            ("Qwen3-30B-A3B", _) => 61,
            ("Qwen3-32B", _) => 33,
            _ => 16,
        }
    }

    /// Its id: `llama-3.3-70b-fp8-tp2-h100-80gb`.
    fn id(&self) -> String {
        format!("{}-{}-tp{}-{}", self.model, self.precision, self.gpus, self.kind).to_lowercase()
    }

    /// The variant it stands for, on a kind with that much memory.
    fn variant(&self, memory: Bytes) -> Option<Variant> {
        let [alpha_ms, beta_ms, gamma_ms, delta_ms] = self.step_ms;
        Some(Variant {
            id: VariantId::new(self.id()).ok()?,
            model: ModelId::new(self.model).ok()?,
            kind: GpuKindId::new(self.kind).ok()?,
            gpus: self.gpus,
            memory_per_gpu: held_memory(memory),
            cold_start: Span(COLD_START_BASE_S + self.weights_s()),
            speed: SpeedProfile::Linear { alpha_ms, beta_ms, gamma_ms, delta_ms, max_batch: self.max_batch },
        })
    }
}

/// Memory a replica holds of a GPU unless it says otherwise.
pub(crate) fn held_memory(gpu: Bytes) -> Bytes {
    Bytes(gpu.0 / 100 * MEMORY_SHARE_PERCENT)
}

/// Names of the models known without being written down, in order.
#[must_use]
pub fn preset_models() -> Vec<&'static str> {
    let mut names: Vec<&str> = PRESETS.iter().map(|preset| preset.model).collect();
    names.dedup();
    names
}

/// Every preset variant, in the order of the table: per model the fast kinds first, lower precision before higher.
pub(crate) fn preset_variants() -> Vec<Variant> {
    PRESETS.iter().filter_map(|preset| preset.variant(preset_kind(preset.kind)?.memory)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs};

    #[test]
    fn every_preset_is_a_variant_of_its_own() {
        let variants = preset_variants();
        assert_eq!(variants.len(), PRESETS.len());
        assert_eq!(variants.iter().map(|v| &v.id).collect::<BTreeSet<_>>().len(), PRESETS.len());
        assert_eq!(preset_models(), ["Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-30B-A3B", "Qwen3-32B", "Qwen3-8B"]);
        assert!(variants.iter().any(|v| v.id.as_str() == "llama-3.3-70b-fp8-tp2-h100-80gb" && v.gpus == 2));
    }

    /// The table against the measurements it was made of, where they are at hand.
    #[test]
    fn figures_are_those_of_their_source() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/profiles/estimated_fits.csv");
        let Ok(table) = fs::read_to_string(path) else {
            eprintln!("skipped: no profiles at ../shared/data/profiles/estimated_fits.csv");
            return;
        };
        let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split(',').collect()).collect();
        for preset in &PRESETS {
            let [alpha, beta, gamma, delta] = preset.step_ms;
            let row = rows.iter().find(|row| row[5] == alpha.to_string() && row[2] == preset.gpus.to_string()).unwrap_or_else(|| panic!("{}", preset.id()));
            let value = |column: usize| row[column].parse::<f64>().unwrap();
            let (short, long) = (512_000.0 / value(13), 8_192_000.0 / value(15));
            let slope = (long - short) / 7_680.0;
            assert!((value(6) - beta).abs() < 1e-9, "{} beta", preset.id());
            assert!((slope - delta).abs() < 1e-4, "{} delta", preset.id());
            assert!(((short - 512.0 * slope).max(0.0) - gamma).abs() < 0.06, "{} gamma", preset.id());
            assert_eq!(preset.max_batch, row[7].parse::<u32>().unwrap().min(256), "{} batch", preset.id());
        }
    }
}
