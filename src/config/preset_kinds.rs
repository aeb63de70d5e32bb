//! GPU kinds known without being written down.

use fleet::{Bytes, GpuKind, GpuKindId};

/// Name and memory in MiB, as the vendors' tools report it for one card: `nvidia-smi --query-gpu=memory.total` (with ECC where the card has it),
/// `amd-smi` for the MI300X. It is a little less than the name says; a file may give another figure under `[[gpu_kind]]`.
pub const GPU_KIND_PRESETS: [(&str, u64); 11] = [
    ("A10G", 23_028),
    ("A100-40GB", 40_960),
    ("A100-80GB", 81_920),
    ("B200", 183_359),
    ("H100-80GB", 81_559),
    ("H200-141GB", 143_771),
    ("L4", 23_034),
    ("L40S", 46_068),
    ("MI300X", 196_592),
    ("RTX-PRO-6000", 97_887),
    ("T4", 15_360),
];

/// The preset of that name.
pub(crate) fn preset_kind(name: &str) -> Option<GpuKind> {
    let (_, mib) = GPU_KIND_PRESETS.iter().find(|(known, _)| *known == name)?;
    Some(GpuKind { id: GpuKindId::new(name).ok()?, memory: Bytes::from_mib(*mib) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_found_by_their_exact_name() {
        assert!(GPU_KIND_PRESETS.iter().all(|(name, _)| preset_kind(name).is_some()));
        assert_eq!(preset_kind("H100-80GB").unwrap().memory, Bytes::from_mib(81_559));
        assert!(preset_kind("h100").is_none());
    }
}
