//! Services as pages of serving engines tell of them: one a model, with what each replica runs on.

use crate::discover::{Instance, Labels, lacking};
use crate::discover_gpus::{Found, Gpu, Pool};
use config::GPU_KIND_PRESETS;
use fleet::{Bytes, Signal};
use std::collections::{BTreeMap, BTreeSet};

/// Labels under which scrapers put the pod of a page, and its namespace.
const POD: [&str; 4] = ["pod", "exported_pod", "pod_name", "kubernetes_pod_name"];
const NAMESPACE: [&str; 3] = ["namespace", "exported_namespace", "kubernetes_namespace"];
/// Requests from which the mean number of their tokens says something.
const REQUESTS_MIN: f64 = 100.0;
/// Letters Kubernetes makes random names of: no vowels, nothing that looks like another.
const RANDOM_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
/// GPU kind that is written down where no page tells of any GPU, to be corrected.
const KIND_ASSUMED: &str = "H100-80GB";

/// A service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Service {
    pub name: String,
    /// As its pages name it; empty where they do not.
    pub model: String,
    /// Engines with the versions that are told.
    pub engines: BTreeMap<String, BTreeSet<String>>,
    /// What its replicas run on, the most frequent first.
    pub variants: Vec<Variant>,
    /// Mean prompt and output tokens of its requests so far.
    pub tokens: Option<(f64, f64)>,
    /// Signals that no replica shows.
    pub missing: BTreeSet<Signal>,
    /// Labels that select its series.
    pub select: Labels,
    /// Pods of its replicas.
    pub pods: BTreeSet<String>,
    /// Its pages show other models too.
    pub shared: bool,
}

/// What some of its replicas run on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variant {
    pub kind: String,
    pub gpus: u32,
    /// No page tells which GPUs they hold.
    pub assumed: bool,
    /// Their pages, in order: `instance` labels, and addresses where they were asked directly.
    pub instances: Vec<String>,
    pub urls: Vec<String>,
    /// Hosts they run on.
    pub hosts: BTreeSet<String>,
}

impl Service {
    /// Engines in words, with their versions.
    pub fn engine(&self) -> String {
        let one = |(name, versions): (&String, &BTreeSet<String>)| {
            if versions.is_empty() { name.clone() } else { format!("{name} {}", versions.iter().cloned().collect::<Vec<_>>().join(" and ")) }
        };
        self.engines.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Replicas that answer.
    pub fn replicas(&self) -> usize {
        self.variants.iter().map(|v| v.instances.len()).sum()
    }

    /// Whether a router means this one by that name: as the pages name it, or without the owner.
    pub fn is_model(&self, name: &str) -> bool {
        let short = |text: &str| text.rsplit('/').next().unwrap_or(text).to_lowercase();
        !self.model.is_empty() && short(&self.model) == short(name) || self.name == name
    }
}

/// A name without what numbers it: the ordinal of a stateful set, or the random letters of a deployment's pods.
pub(crate) fn unnumbered(pod: &str) -> &str {
    let random = |part: &str| part.len() == 5 && part.bytes().all(|b| RANDOM_LETTERS.contains(&b));
    let set = |part: &str| (6..=10).contains(&part.len()) && part.bytes().all(|b| RANDOM_LETTERS.contains(&b)) && part.bytes().any(|b| b.is_ascii_digit());
    let Some((front, last)) = pod.rsplit_once('-') else { return pod };
    if last.bytes().all(|b| b.is_ascii_digit()) {
        return front;
    }
    match front.rsplit_once('-') {
        Some((name, hash)) if random(last) && set(hash) => name,
        _ if random(last) && last.bytes().any(|b| b.is_ascii_digit()) => front,
        _ => pod,
    }
}

/// Services by model.
pub(crate) fn services(instances: &[&Instance], found: &Found, remarks: &mut Vec<String>) -> Vec<Service> {
    let mut by_model: BTreeMap<String, Vec<&Instance>> = BTreeMap::new();
    for instance in instances {
        by_model.entry(model_of(instance)).or_default().push(instance);
    }
    let mut services: Vec<Service> = Vec::new();
    for (model, replicas) in &by_model {
        let strangers: Vec<&Instance> = instances.iter().copied().filter(|other| !replicas.iter().any(|own| std::ptr::eq(*own, *other))).collect();
        let variants = variants(model, replicas, found, instances, remarks);
        if variants.is_empty() {
            continue;
        }
        let mut name = name_of(model, replicas);
        if services.iter().any(|other| other.name == name) {
            name = format!("{name}-{}", services.len() + 1);
        }
        let shared = replicas.iter().any(|i| i.scrape.server.as_ref().is_some_and(|s| s.models.len() > 1));
        if shared {
            remarks.push(format!("{name}: its pages show several models; the others are left out"));
        }
        services.push(Service {
            name,
            model: model.clone(),
            engines: engines(replicas),
            variants,
            tokens: tokens(replicas),
            missing: replicas.iter().map(|i| lacking(&i.scrape)).reduce(|a, b| &a & &b).unwrap_or_default(),
            select: select(model, replicas, &strangers),
            pods: replicas.iter().filter_map(|i| i.label(&POD)).map(str::to_owned).collect(),
            shared,
        });
    }
    services.sort_by(|a, b| a.name.cmp(&b.name));
    services
}

fn model_of(instance: &Instance) -> String {
    instance.scrape.server.as_ref().and_then(|server| server.models.first().cloned()).unwrap_or_default()
}

fn engines(replicas: &[&Instance]) -> BTreeMap<String, BTreeSet<String>> {
    let mut engines: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for server in replicas.iter().filter_map(|i| i.scrape.server.as_ref()) {
        engines.entry(server.engine.clone()).or_default().extend(server.version.clone());
    }
    engines
}

/// What its pods are all called, else the model, else where it answers.
fn name_of(model: &str, replicas: &[&Instance]) -> String {
    let pods: BTreeSet<Option<&str>> = replicas.iter().map(|i| i.label(&POD).map(unnumbered)).collect();
    let name = match pods.into_iter().collect::<Vec<_>>().as_slice() {
        [Some(only)] => (*only).to_owned(),
        _ if !model.is_empty() => model.rsplit('/').next().unwrap_or(model).to_owned(),
        _ => replicas.first().and_then(|i| i.host()).unwrap_or("service").to_owned(),
    };
    let plain: String = name.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' }).take(64).collect();
    plain.trim_matches('-').to_owned()
}

/// Mean tokens of a request over the lives of all replicas.
fn tokens(replicas: &[&Instance]) -> Option<(f64, f64)> {
    let sum = |signal| replicas.iter().map(|i| i.scrape.scalar(signal)).sum::<Option<f64>>();
    let requests = sum(Signal::RequestsFinished).filter(|requests| *requests >= REQUESTS_MIN)?;
    let (input, output) = (sum(Signal::PromptTokens)? / requests, sum(Signal::GenerationTokens)? / requests);
    (input >= 1.0 && output >= 0.5).then(|| (input.round(), output.round().max(1.0)))
}

/// The fewest labels that select these and no other server: the job, or the job and the model.
fn select(model: &str, replicas: &[&Instance], strangers: &[&Instance]) -> Labels {
    let mut select = Labels::new();
    let jobs: BTreeSet<Option<&String>> = replicas.iter().map(|i| i.labels.get("job")).collect();
    if let [Some(job)] = jobs.into_iter().collect::<Vec<_>>().as_slice() {
        select.insert("job".into(), (*job).clone());
    }
    let alone = !select.is_empty() && !strangers.iter().any(|i| i.labels.get("job") == select.get("job"));
    if let Some(label) = replicas.iter().find_map(|i| i.model_label.clone()).filter(|_| !alone && !model.is_empty()) {
        select.insert(label, model.to_owned());
    }
    select
}

/// What replicas run on: the GPUs their pods hold, else their share of the busy ones of their node, else what the model needs at least.
fn variants(model: &str, replicas: &[&Instance], found: &Found, servers: &[&Instance], remarks: &mut Vec<String>) -> Vec<Variant> {
    let mut variants: BTreeMap<(String, u32), Variant> = BTreeMap::new();
    for instance in replicas {
        let held = held(instance, found);
        if held.iter().any(|gpu| gpu.node != held[0].node) {
            remarks.push(format!("{} holds GPUs of several nodes, which is not planned for: it is left out", instance.scrape.target));
            continue;
        }
        let (kind, gpus, assumed) = match held.first() {
            Some(first) => (first.kind.clone(), held.len(), false),
            None => share_of_node(instance, found, servers).map_or_else(|| needed(model, instance, found), |(kind, gpus)| (kind, gpus, false)),
        };
        let gpus = u32::try_from(gpus).unwrap_or(u32::MAX);
        let new = Variant { kind: kind.clone(), gpus, assumed, instances: Vec::new(), urls: Vec::new(), hosts: BTreeSet::new() };
        let variant = variants.entry((kind, gpus)).or_insert(new);
        variant.assumed |= assumed;
        variant.instances.push(instance.label(&["instance"]).unwrap_or(instance.scrape.target.as_str()).to_owned());
        variant.urls.extend(instance.url.clone());
        variant.hosts.extend(node_of(instance).map(str::to_owned));
    }
    let mut variants: Vec<Variant> = variants.into_values().collect();
    for variant in &mut variants {
        variant.instances.sort();
    }
    variants.sort_by_key(|variant| std::cmp::Reverse(variant.instances.len()));
    variants
}

/// The GPUs that pages say the instance's pod holds.
fn held<'f>(instance: &Instance, found: &'f Found) -> Vec<&'f Gpu> {
    let Some(pod) = instance.label(&POD) else { return Vec::new() };
    let namespace = instance.label(&NAMESPACE);
    let holds = |gpu: &&Gpu| gpu.holder.as_ref().is_some_and(|h| h.pod == pod && h.namespace.as_deref().zip(namespace).is_none_or(|(a, b)| a == b));
    found.gpus.iter().filter(holds).collect()
}

fn node_of(instance: &Instance) -> Option<&str> {
    instance.label(&["node", "kubernetes_node"]).or_else(|| instance.host())
}

/// The busy GPUs of its node that no pod holds, divided among the servers there.
fn share_of_node(instance: &Instance, found: &Found, servers: &[&Instance]) -> Option<(String, usize)> {
    let node = node_of(instance)?;
    let busy: Vec<&Gpu> = found.gpus.iter().filter(|gpu| gpu.node == node && gpu.busy && gpu.holder.is_none()).collect();
    let beside = servers.iter().filter(|other| node_of(other) == Some(node) && held(other, found).is_empty()).count();
    let first = busy.first()?;
    (beside > 0 && busy.len().is_multiple_of(beside)).then(|| (first.kind.clone(), busy.len() / beside))
}

/// The least a model needs, on the kind its node has, or the most frequent one.
fn needed(model: &str, instance: &Instance, found: &Found) -> (String, usize, bool) {
    let on_node = found.gpus.iter().find(|gpu| Some(gpu.node.as_str()) == node_of(instance));
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in &found.gpus {
        *kinds.entry(&gpu.kind).or_default() += 1;
    }
    let most = kinds.into_iter().max_by_key(|(_, count)| *count).map(|(kind, _)| kind);
    let kind = on_node.map(|gpu| gpu.kind.as_str()).or(most).unwrap_or(KIND_ASSUMED);
    let told = found.gpus.iter().filter(|gpu| gpu.kind == kind).find_map(|gpu| gpu.memory);
    let preset = GPU_KIND_PRESETS.iter().find(|(name, _)| *name == kind).map(|(_, mib)| Bytes::from_mib(*mib));
    let memory = told.or(preset).unwrap_or(Bytes::from_gib(80));
    (kind.to_owned(), config::gpus_needed(model, memory.0) as usize, true)
}

/// Pools for replicas on hosts of which no page tells GPUs: as many as they need at least, to be corrected.
pub(crate) fn assumed_pools(services: &[Service], known: &[Pool], remarks: &mut Vec<String>) -> Option<Pool> {
    if !known.is_empty() || services.is_empty() {
        return None;
    }
    let variants = || services.iter().flat_map(|service| &service.variants);
    let mut by_host: BTreeMap<&str, u32> = BTreeMap::new();
    for variant in variants() {
        let on_each = variant.gpus * u32::try_from(variant.instances.len().div_ceil(variant.hosts.len().max(1))).unwrap_or(1);
        variant.hosts.iter().for_each(|host| *by_host.entry(host).or_default() += on_each);
    }
    let gpus_per_node = by_host.values().copied().max()?;
    remarks.push(format!("no page tells of GPUs: {gpus_per_node} of kind {KIND_ASSUMED} on each host are assumed; correct the pool, or add a DCGM exporter"));
    let nodes = by_host.keys().map(|host| (*host).to_owned()).collect();
    Some(Pool { name: None, kind: KIND_ASSUMED.into(), memory: None, gpus_per_node, nodes, assumed: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_without_their_numbers() {
        for (pod, name) in [
            ("chat-70b-17", "chat-70b"),
            ("chat-70b-7d9f8c6b5-x2x4z", "chat-70b"),
            ("dcgm-exporter-x4x2z", "dcgm-exporter"),
            ("gateway", "gateway"),
            ("my-model-large", "my-model-large"),
            ("train-a-b2c4d", "train-a"),
        ] {
            assert_eq!(unnumbered(pod), name, "{pod}");
        }
    }
}
