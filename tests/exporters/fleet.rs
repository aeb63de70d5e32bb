//! A fleet of 300 GPUs: four services, training that no page explains, and GPUs that are free.

use super::{dcgm, vllm};

/// A service of the fleet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Service {
    /// The model it serves, as vLLM names it.
    pub model: &'static str,
    /// Prefix of its pods.
    pub pod: &'static str,
    /// Replicas, and GPUs of each.
    pub replicas: usize,
    /// GPUs of a replica.
    pub gpus: usize,
    /// On the large kind of GPU, or on the small one.
    pub large: bool,
    /// Requests per second at the daily peak.
    pub peak_per_s: f64,
    /// Prompt tokens, output tokens, cached share.
    pub tokens: (f64, f64, f64),
    /// Seconds a request takes.
    pub takes_s: f64,
}

/// The services, in the order in which they take GPUs.
pub const SERVICES: [Service; 4] = [
    Service {
        model: "meta-llama/Llama-3.1-70B-Instruct",
        pod: "chat-70b",
        replicas: 18,
        gpus: 4,
        large: true,
        peak_per_s: 60.0,
        tokens: (1_400.0, 320.0, 0.35),
        takes_s: 11.0,
    },
    Service {
        model: "Qwen/Qwen2.5-Coder-32B-Instruct",
        pod: "coder-32b",
        replicas: 20,
        gpus: 2,
        large: true,
        peak_per_s: 45.0,
        tokens: (2_600.0, 180.0, 0.55),
        takes_s: 7.0,
    },
    Service {
        model: "meta-llama/Llama-3.1-8B-Instruct",
        pod: "assist-8b",
        replicas: 36,
        gpus: 1,
        large: true,
        peak_per_s: 240.0,
        tokens: (700.0, 150.0, 0.2),
        takes_s: 3.0,
    },
    Service {
        model: "Qwen/Qwen2.5-7B-Instruct",
        pod: "extract-7b",
        replicas: 28,
        gpus: 1,
        large: false,
        peak_per_s: 70.0,
        tokens: (900.0, 90.0, 0.1),
        takes_s: 3.0,
    },
];
/// Nodes of eight large GPUs, and of four small ones.
const LARGE_NODES: usize = 30;
const SMALL_NODES: usize = 15;
/// Large GPUs that train something no serving page tells of.
const TRAINING: usize = 56;

/// A server with the node it runs on and the name of its pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its page.
    pub server: vllm::Server,
}

/// Everything there is.
#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    /// Serving pods.
    pub pods: Vec<Pod>,
    /// GPU nodes.
    pub nodes: Vec<dcgm::Node>,
}

/// The fleet, all of whose servers started at `started_s` (seconds since the epoch).
#[must_use]
pub fn fleet(started_s: f64) -> Fleet {
    let mut nodes = (0..LARGE_NODES).map(|n| node("h", n, "NVIDIA H100 80GB HBM3", 8, 81_559.0)).collect::<Vec<_>>();
    nodes.extend((0..SMALL_NODES).map(|n| node("l", n, "NVIDIA L40S", 4, 46_068.0)));
    let mut pods = Vec::new();
    // A replica never spans nodes: 8 and 4 are multiples of what each takes, and larger ones come first.
    let (mut large, mut small) = (0, LARGE_NODES * 8);
    for service in SERVICES {
        for index in 0..service.replicas {
            let next = if service.large { &mut large } else { &mut small };
            let name = format!("{}-{index}", service.pod);
            for gpu in *next..*next + service.gpus {
                hold(&mut nodes, gpu, "serving", &name, 0.55);
            }
            let at = place(*next).0;
            *next += service.gpus;
            #[expect(clippy::cast_precision_loss, reason = "a few dozen replicas")]
            let share = 1.0 / service.replicas as f64;
            let Service { model, peak_per_s, tokens, takes_s, .. } = service;
            let server = vllm::Server { model: model.into(), share, peak_per_s, started_s, tokens, takes_s };
            pods.push(Pod { name, node: nodes[at].name.clone(), server });
        }
    }
    for gpu in large..large + TRAINING {
        hold(&mut nodes, gpu, "research", &format!("train-{}", (gpu - large) / 8), 0.97);
    }
    Fleet { pods, nodes }
}

fn node(prefix: &str, n: usize, product: &str, gpus: usize, total_mib: f64) -> dcgm::Node {
    let name = format!("{prefix}{:03}", n + 1);
    let gpu = |index| dcgm::Gpu { uuid: format!("GPU-{prefix}{:03}-{index}", n + 1), active: 0.0, used_mib: 4.0, total_mib, pod: None };
    dcgm::Node { name, product: product.into(), gpus: (0..gpus).map(gpu).collect() }
}

/// Node and index of a GPU by its number.
fn place(gpu: usize) -> (usize, usize) {
    let large = LARGE_NODES * 8;
    if gpu < large { (gpu / 8, gpu % 8) } else { (LARGE_NODES + (gpu - large) / 4, (gpu - large) % 4) }
}

fn hold(nodes: &mut [dcgm::Node], gpu: usize, namespace: &str, pod: &str, active: f64) {
    let (node, index) = place(gpu);
    let gpu = &mut nodes[node].gpus[index];
    (gpu.active, gpu.used_mib, gpu.pod) = (active, gpu.total_mib * 0.9, Some((namespace.into(), pod.into())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_300_gpus_and_no_replica_spans_nodes() {
        let fleet = fleet(0.0);
        assert_eq!(fleet.nodes.iter().map(|n| n.gpus.len()).sum::<usize>(), 300);
        for pod in &fleet.pods {
            let holding = fleet.nodes.iter().filter(|n| n.gpus.iter().any(|g| g.pod.as_ref().is_some_and(|(_, p)| *p == pod.name))).count();
            assert_eq!(holding, 1, "{}", pod.name);
        }
        let held = fleet.nodes.iter().flat_map(|n| &n.gpus).filter(|g| g.pod.is_some()).count();
        assert_eq!(held, 18 * 4 + 20 * 2 + 36 + 28 + TRAINING);
    }
}
