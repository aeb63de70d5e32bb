//! GPUs as exporters tell of them: products, nodes, who holds them; and the pools they make.

use crate::discover::Instance;
use config::GPU_KIND_PRESETS;
use fleet::{Bytes, Device, Holder, MemberId, Reading, Signal};
use std::collections::{BTreeMap, BTreeSet};

/// Share of memory in use from which a GPU that nobody is said to hold counts as busy: an idle driver holds a percent or two.
const BUSY_SHARE: f64 = 0.05;
/// How far memory may lie from a preset's: exporters leave reserved memory out of what is used and free.
const MEMORY_TOLERANCE: f64 = 0.03;

/// A GPU that a page tells of.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gpu {
    pub node: String,
    /// What tells it from others of its node.
    pub place: String,
    pub kind: String,
    pub memory: Option<Bytes>,
    pub holder: Option<Holder>,
    /// Something uses it, whoever that is.
    pub busy: bool,
    /// It is cut into slices.
    pub split: bool,
}

/// All GPUs, and nodes where that is all that is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pub gpus: Vec<Gpu>,
}

/// Nodes with the same number of GPUs of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pool {
    /// Written only where the kind alone does not tell pools apart.
    pub name: Option<String>,
    pub kind: String,
    /// Memory, where the kind is none of the presets.
    pub memory: Option<Bytes>,
    pub gpus_per_node: u32,
    pub nodes: Vec<String>,
    /// No page told of it: taken from where replicas run.
    pub assumed: bool,
}

/// The GPUs that pages tell of, each once.
pub(crate) fn gpus(instances: &[&Instance], remarks: &mut Vec<String>) -> Found {
    let mut by_place: BTreeMap<(String, String), Gpu> = BTreeMap::new();
    let (mut nameless, mut seen_names) = (0, BTreeSet::new());
    for instance in instances {
        for device in &instance.scrape.devices {
            let Some(node) = device.node.as_deref().or_else(|| instance.label(&["node"])).or_else(|| instance.host()) else {
                nameless += 1;
                continue;
            };
            let gpu = gpu(instance, device, node);
            seen_names.insert(device.product.clone().unwrap_or_default());
            let place = (gpu.node.clone(), gpu.place.clone());
            let known = by_place.entry(place).or_insert_with(|| gpu.clone());
            // A slice in use makes its GPU busy; the first holder that is told stays.
            known.busy |= gpu.busy;
            known.split |= gpu.split;
            known.holder = known.holder.take().or(gpu.holder);
            known.memory = known.memory.max(gpu.memory);
        }
    }
    if nameless > 0 {
        remarks.push(format!("{nameless} GPUs are told of without a node and are left out"));
    }
    let split = by_place.values().filter(|gpu| gpu.split).count();
    if split > 0 {
        remarks.push(format!("{split} GPUs are cut into slices (MIG): each is planned as one GPU"));
    }
    Found { gpus: by_place.into_values().collect() }
}

fn gpu(instance: &Instance, device: &Device, node: &str) -> Gpu {
    let memory = memory(instance, &device.member).filter(|_| device.mig.is_none());
    let place = device.index.map(|index| index.to_string()).or_else(|| device.uuid.clone()).unwrap_or_else(|| device.member.to_string());
    let used = value(instance, Signal::GpuMemoryUsed, &device.member);
    let active = value(instance, Signal::GpuEngineActive, &device.member).or_else(|| value(instance, Signal::GpuUtilisation, &device.member));
    let busy = active.is_some_and(|active| active > BUSY_SHARE) || used.zip(memory).is_some_and(|(used, memory)| used > BUSY_SHARE * as_f64(memory));
    Gpu {
        node: node.to_owned(),
        place,
        kind: kind_of(device.product.as_deref().unwrap_or("unknown GPU"), memory),
        memory,
        holder: device.holder.clone(),
        busy: busy || device.holder.is_some(),
        split: device.mig.is_some(),
    }
}

fn value(instance: &Instance, signal: Signal, member: &MemberId) -> Option<f64> {
    instance.scrape.members(signal).find_map(|(of, reading)| match reading {
        Reading::Scalar(value) if of == Some(member) => Some(*value),
        _ => None,
    })
}

/// Memory built in, or what is used and free together.
fn memory(instance: &Instance, member: &MemberId) -> Option<Bytes> {
    let read = |signal| value(instance, signal, member);
    let bytes = read(Signal::GpuMemoryTotal).or_else(|| Some(read(Signal::GpuMemoryUsed)? + read(Signal::GpuMemoryFree)?))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the catalogue believes sizes between 0 and 100 TB")]
    let bytes = Bytes(bytes as u64);
    (bytes.0 > 0).then_some(bytes)
}

#[expect(clippy::cast_precision_loss, reason = "sizes of GPUs")]
fn as_f64(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

/// The preset a product is, by the words of its name and its memory; else a name made of the product's own.
pub(crate) fn kind_of(product: &str, memory: Option<Bytes>) -> String {
    let words = |text: &str| text.to_uppercase().split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let told = words(product);
    let is_size = |word: &str| word.strip_suffix("GB").is_some_and(|number| number.parse::<u32>().is_ok());
    let preset = GPU_KIND_PRESETS.iter().find(|(name, mib)| {
        let close = memory.is_none_or(|memory| (as_f64(memory) / as_f64(Bytes::from_mib(*mib)) - 1.0).abs() < MEMORY_TOLERANCE);
        words(name).iter().all(|word| told.contains(word) || is_size(word) && !told.iter().any(|w| is_size(w)) && close)
            && (close || told.iter().any(|w| is_size(w)))
    });
    if let Some((name, _)) = preset {
        return (*name).to_owned();
    }
    let own: Vec<String> = product.split_whitespace().filter(|word| !matches!(*word, "NVIDIA" | "AMD" | "Instinct" | "Tesla")).map(str::to_owned).collect();
    if own.is_empty() { product.replace(' ', "-") } else { own.join("-") }
}

/// Nodes that are alike, and the memory of their GPUs.
type Alike<'n> = (BTreeSet<&'n str>, Option<Bytes>);

/// Nodes of one kind and number of GPUs together. Kinds that are no presets carry their memory.
pub(crate) fn pools(found: &Found, remarks: &mut Vec<String>) -> Vec<Pool> {
    let mut nodes: BTreeMap<(&str, &str), Vec<&Gpu>> = BTreeMap::new();
    for gpu in &found.gpus {
        nodes.entry((&gpu.node, &gpu.kind)).or_default().push(gpu);
    }
    let mixed: BTreeSet<&str> = nodes.keys().filter(|(node, kind)| nodes.keys().any(|(n, k)| n == node && k != kind)).map(|(node, _)| *node).collect();
    for node in &mixed {
        remarks.push(format!("node {node} has GPUs of several kinds, which a pool cannot hold: it is left out"));
    }
    let mut groups: BTreeMap<(&str, usize), Alike<'_>> = BTreeMap::new();
    for ((node, kind), gpus) in nodes.iter().filter(|((node, _), _)| !mixed.contains(node)) {
        let (members, memory) = groups.entry((kind, gpus.len())).or_default();
        members.insert(node);
        *memory = gpus.iter().filter_map(|gpu| gpu.memory).chain(*memory).max();
    }
    let mut pools = Vec::new();
    for ((kind, gpus), (members, memory)) in &groups {
        let preset = GPU_KIND_PRESETS.iter().any(|(name, _)| name == kind);
        if !preset && memory.is_none() {
            remarks.push(format!("{kind} is not known, and no page tells its memory: {} nodes are left out", members.len()));
            continue;
        }
        let alone = groups.keys().filter(|(other, _)| other == kind).count() == 1;
        pools.push(Pool {
            name: (!alone).then(|| format!("{}-x{gpus}", kind.to_lowercase())),
            kind: (*kind).to_owned(),
            memory: memory.filter(|_| !preset),
            gpus_per_node: u32::try_from(*gpus).unwrap_or(u32::MAX),
            nodes: members.iter().map(|node| (*node).to_owned()).collect(),
            assumed: false,
        });
    }
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.nodes.len() * pool.gpus_per_node as usize));
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_told_by_words_and_memory() {
        let mib = |mib| Some(Bytes::from_mib(mib));
        for (product, memory, kind) in [
            ("NVIDIA H100 80GB HBM3", mib(81_559), "H100-80GB"),
            ("NVIDIA H100 80GB HBM3", mib(80_920), "H100-80GB"),
            ("NVIDIA H100 PCIe", mib(81_559), "H100-80GB"),
            ("NVIDIA H100 NVL", mib(95_830), "H100-NVL"),
            ("NVIDIA A100-SXM4-80GB", None, "A100-80GB"),
            ("NVIDIA A100-PCIE-40GB", None, "A100-40GB"),
            ("A100-SXM-80GB", mib(81_251), "A100-80GB"),
            ("NVIDIA H200", mib(143_771), "H200-141GB"),
            ("NVIDIA L40S", mib(46_068), "L40S"),
            ("NVIDIA L4", mib(23_034), "L4"),
            ("NVIDIA L40", mib(46_068), "L40"),
            ("NVIDIA A10G", None, "A10G"),
            ("NVIDIA A10", mib(23_028), "A10"),
            ("Tesla T4", mib(15_360), "T4"),
            ("NVIDIA B200", mib(183_359), "B200"),
            ("AMD Instinct MI300X OAM", mib(196_592), "MI300X"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", mib(97_887), "RTX-PRO-6000"),
            ("NVIDIA GH200 480GB", mib(97_871), "GH200-480GB"),
            ("Tesla V100-SXM2-16GB", mib(16_384), "V100-SXM2-16GB"),
        ] {
            assert_eq!(kind_of(product, memory), kind, "{product} with {memory:?}");
        }
    }
}
