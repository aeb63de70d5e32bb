//! GPUs by short names.

use fleet::{GpuId, NodeId, Problem};
use std::collections::BTreeMap;

/// GPUs in short: `n2/4-7` where ids are positions on a node, else the node with the number of GPUs (`n2 (4)`).
#[must_use]
pub fn gpu_names(gpus: &[GpuId], problem: &Problem) -> String {
    let mut positions: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for gpu in gpus {
        match gpu.as_str().rsplit_once('/').and_then(|(node, index)| Some((node, index.parse().ok()?))) {
            Some((node, index)) => positions.entry(node).or_default().push(index),
            None => *others.entry(problem.gpu(gpu).map_or(gpu.as_str(), |slot| NodeId::as_str(&slot.node))).or_default() += 1,
        }
    }
    let near = positions.into_iter().map(|(node, indices)| format!("{node}/{}", ranges(indices)));
    let far = others.into_iter().map(|(node, n)| if n == 1 && gpus.len() == 1 { node.to_owned() } else { format!("{node} ({n})") });
    near.chain(far).collect::<Vec<_>>().join(" ")
}

fn ranges(mut indices: Vec<u32>) -> String {
    indices.sort_unstable();
    indices.dedup();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for index in indices {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => parts.push((index, index)),
        }
    }
    let texts: Vec<String> = parts.into_iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(ranges(vec![7, 4, 5, 6]), "4-7");
        assert_eq!(ranges(vec![0, 2, 3]), "0,2-3");
    }
}
