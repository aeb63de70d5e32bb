//! `[[pool]]` and `[[gpu_kind]]`: who owns which GPUs.

use crate::{
    error::{Code, Findings},
    node_range,
    preset_kinds::{GPU_KIND_PRESETS, preset_kind},
    typed,
    written::At,
};
use fleet::{Bytes, Currency, Fleet, Gpu, GpuId, GpuKind, GpuKindId, IslandId, Node, NodeId, Ownership, Pool, PoolId};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// Most GPUs a node may have: more is a typing error.
const GPUS_PER_NODE_MAX: i64 = 256;

/// The fleet, and how its silence is to be read.
pub(crate) struct Inventory {
    pub(crate) fleet: Fleet,
    pub(crate) unobserved_free: BTreeSet<NodeId>,
}

/// GPUs under way.
struct Builder {
    fleet: Fleet,
    unobserved_free: BTreeSet<NodeId>,
    /// Where each UUID was read, to tell a second one.
    uuids: BTreeMap<String, Range<usize>>,
}

pub(crate) fn resolve(typed: &typed::File, findings: &mut Findings<'_>) -> Inventory {
    let kinds = kinds(typed, findings);
    let currency = currency(typed.currency.as_ref(), findings);
    let fleet = Fleet { currency, kinds: BTreeMap::new(), pools: Vec::new(), nodes: Vec::new(), gpus: Vec::new() };
    let mut builder = Builder { fleet, unobserved_free: BTreeSet::new(), uuids: BTreeMap::new() };
    for table in &typed.pool {
        builder.pool(table, &kinds, findings);
    }
    if typed.pool.is_empty() {
        let at = 0..findings.text_len().min(1);
        findings.refuse(Code::Nothing, at, "there is no [[pool]], so no GPU", "no GPUs", "add one: nodes, kind, gpus_per_node");
    }
    let Builder { mut fleet, unobserved_free, .. } = builder;
    fleet.pools.sort_by(|a, b| a.id.cmp(&b.id));
    fleet.nodes.sort_by(|a, b| a.id.cmp(&b.id));
    fleet.gpus.sort_by(|a, b| (&a.node, a.index).cmp(&(&b.node, b.index)));
    Inventory { fleet, unobserved_free }
}

fn currency(typed: Option<&At<String>>, findings: &mut Findings<'_>) -> Currency {
    let chosen = typed.map_or("EUR", |at| at.get().as_str());
    match (Currency::new(chosen), typed) {
        (Ok(currency), _) => currency,
        (Err(error), at) => {
            let span = at.map_or(0..0, At::span);
            let upper = chosen.to_uppercase();
            let help =
                if Currency::new(upper.as_str()).is_ok() { format!("did you mean {upper:?}?") } else { "write its ISO 4217 code, such as \"EUR\"".to_owned() };
            findings.refuse(Code::Currency, span, error.to_string(), "not a currency code", help);
            Currency::new("XXX").unwrap_or_else(|_| unreachable!("XXX is three capital letters: no currency, in ISO 4217"))
        }
    }
}

/// Presets and what the file adds to them.
fn kinds(typed: &typed::File, findings: &mut Findings<'_>) -> BTreeMap<GpuKindId, GpuKind> {
    let mut kinds: BTreeMap<GpuKindId, GpuKind> =
        GPU_KIND_PRESETS.iter().filter_map(|(name, _)| preset_kind(name)).map(|kind| (kind.id.clone(), kind)).collect();
    let mut own = BTreeSet::new();
    for table in &typed.gpu_kind {
        let kind = table.get();
        let memory = findings.size(&kind.memory, "memory");
        let Some(id) = findings.id::<GpuKindId>(&kind.name) else { continue };
        if !own.insert(id.clone()) {
            findings.duplicate(kind.name.span(), "GPU kind", id.as_str());
        }
        // A stand-in keeps later tables readable; the finding keeps it from being used.
        kinds.insert(id.clone(), GpuKind { id, memory: memory.unwrap_or(Bytes(u64::MAX)) });
    }
    kinds
}

impl Builder {
    fn pool(&mut self, table: &At<typed::Pool>, kinds: &BTreeMap<GpuKindId, GpuKind>, findings: &mut Findings<'_>) {
        let pool = table.get();
        let per_node = findings.count(&pool.gpus_per_node, "gpus_per_node", 1, GPUS_PER_NODE_MAX);
        let island = island(pool, findings);
        let price = pool.price.as_ref().and_then(|at| findings.number(at, "price", 0.0..=f64::MAX));
        let free = match pool.unobserved.as_ref().map(|at| (at.get().as_str(), at)) {
            None | Some(("occupied", _)) => false,
            Some(("free", _)) => true,
            Some((word, at)) => {
                findings.word(at.span(), "unobserved", word, &["occupied", "free"]);
                false
            }
        };
        let kind = kinds.values().find(|kind| kind.id.as_str() == pool.kind.get()).cloned();
        if kind.is_none() {
            findings.dangling(pool.kind.span(), "pool", "GPU kind", pool.kind.get(), kinds.keys().map(GpuKindId::as_str));
        }
        let id = self.pool_id(pool, findings);
        let (Some(kind), Some(id), Some(per_node), Some(island)) = (kind, id, per_node, island) else { return };
        let nodes = self.nodes(pool, findings);
        check_uuid_nodes(pool, &nodes, findings);
        for node in nodes {
            if free {
                self.unobserved_free.insert(node.clone());
            }
            self.gpus(&node, &id, (per_node, island), pool.uuids.get(node.as_str()), findings);
            self.fleet.nodes.push(Node { id: node, pool: id.clone() });
        }
        let ownership = if pool.owned.unwrap_or(true) { Ownership::Owned } else { Ownership::Rented };
        self.fleet.pools.push(Pool { id, kind: kind.id.clone(), ownership, price_per_gpu_hour: price, labels: pool.labels.clone() });
        self.fleet.kinds.insert(kind.id.clone(), kind);
    }

    fn pool_id(&self, pool: &typed::Pool, findings: &mut Findings<'_>) -> Option<PoolId> {
        let (id, span) = match &pool.name {
            Some(name) => (findings.id::<PoolId>(name)?, name.span()),
            None => (PoolId::new(pool.kind.get().to_lowercase()).ok()?, pool.kind.span()),
        };
        if self.fleet.pool(&id).is_some() {
            let help = if pool.name.is_some() {
                "give one of them another name"
            } else {
                "give this pool a `name`, or list its nodes with the other's: nodes = [\"a[1-2]\", \"b[1-2]\"]"
            };
            findings.refuse(Code::Duplicate, span, format!("pool {:?} is listed twice", id.as_str()), "second of that name", help);
            return None;
        }
        Some(id)
    }

    /// Nodes of a pool that no other has.
    fn nodes(&self, pool: &typed::Pool, findings: &mut Findings<'_>) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = Vec::new();
        for (text, span) in pool.nodes.entries() {
            let names = match node_range::expand(text) {
                Ok(names) => names,
                Err(why) => {
                    findings.refuse(
                        Code::Range,
                        span,
                        format!("{text:?} is not a range of nodes: {why}"),
                        "not a range",
                        "write it as gpu[001-038] or n[1,3,7-9]",
                    );
                    continue;
                }
            };
            for name in names {
                let Ok(id) = NodeId::new(name.as_str()) else {
                    findings.refuse(
                        Code::Range,
                        span.clone(),
                        format!("{name:?} is not a usable node name"),
                        "not a name",
                        "write host names without white space",
                    );
                    continue;
                };
                if nodes.contains(&id) || self.fleet.nodes.iter().any(|node| node.id == id) {
                    let message = format!("node {id} is listed twice, so its GPUs would be counted twice");
                    findings.refuse(Code::Duplicate, span.clone(), message, "overlaps with another entry", "list each node once");
                } else {
                    nodes.push(id);
                }
            }
        }
        nodes
    }

    fn gpus(&mut self, node: &NodeId, pool: &PoolId, (per_node, island): (u32, u32), uuids: Option<&At<Vec<At<String>>>>, findings: &mut Findings<'_>) {
        if let Some(list) = uuids.filter(|list| list.get().len() != per_node as usize) {
            let message = format!("node {node} has {per_node} GPUs, but {} UUIDs are listed", list.get().len());
            findings.refuse(Code::Placement, list.span(), message, "another number of GPUs", "list one UUID a GPU, in order of index (nvidia-smi -L)");
        }
        for index in 0..per_node {
            let first = index / island * island;
            let last = (first + island).min(per_node) - 1;
            let group = if first == last { format!("{node}/{first}") } else { format!("{node}/{first}-{last}") };
            let uuid = uuids.and_then(|list| list.get().get(index as usize));
            if let Some(at) = uuid
                && self.uuids.insert(at.get().clone(), at.span()).is_some()
            {
                findings.duplicate(at.span(), "GPU", at.get());
                continue;
            }
            let name = uuid.map_or_else(|| format!("{node}/{index}"), |at| at.get().clone());
            let (Ok(id), Ok(island)) = (GpuId::new(name.as_str()), IslandId::new(group)) else {
                let span = uuid.map_or(0..0, At::span);
                findings.refuse(Code::Range, span, format!("{name:?} is not a usable GPU name"), "not a name", "copy the UUID that nvidia-smi -L prints");
                continue;
            };
            self.fleet.gpus.push(Gpu { id, node: node.clone(), index, island, pool: pool.clone() });
        }
    }
}

/// Size of an island; all of a node unless said otherwise.
fn island(pool: &typed::Pool, findings: &mut Findings<'_>) -> Option<u32> {
    let per_node = *pool.gpus_per_node.get();
    let Some(at) = &pool.island else { return u32::try_from(per_node).ok().filter(|n| *n > 0) };
    let island = findings.count(at, "island", 1, GPUS_PER_NODE_MAX)?;
    if i64::from(island) > per_node {
        let message = format!("island is {island} but gpus_per_node is {per_node}");
        findings.refuse(Code::MinAboveMax, at.span(), message, "larger than the node", "islands lie within a node: lower island or raise gpus_per_node");
        return None;
    }
    if per_node % i64::from(island) != 0 {
        let message = format!("gpus_per_node {per_node} is not a multiple of island {island}");
        findings.refuse(Code::Conflict, at.span(), message, "leaves a remainder", "list such nodes as a pool of their own");
        return None;
    }
    Some(island)
}

fn check_uuid_nodes(pool: &typed::Pool, nodes: &[NodeId], findings: &mut Findings<'_>) {
    for (node, list) in &pool.uuids {
        if !nodes.iter().any(|id| id.as_str() == node) {
            findings.dangling(list.span(), "uuids", "node", node, nodes.iter().map(NodeId::as_str));
        }
    }
}

/// GPUs of the largest island among pools of the kinds named.
pub(crate) fn largest_island(fleet: &Fleet, kinds: &BTreeSet<GpuKindId>) -> u32 {
    let mut sizes: BTreeMap<&IslandId, u32> = BTreeMap::new();
    let pools: BTreeSet<&PoolId> = fleet.pools.iter().filter(|pool| kinds.contains(&pool.kind)).map(|pool| &pool.id).collect();
    for gpu in fleet.gpus.iter().filter(|gpu| pools.contains(&gpu.pool)) {
        *sizes.entry(&gpu.island).or_default() += 1;
    }
    sizes.into_values().max().unwrap_or(0)
}

/// Replicas of `gpus` GPUs that fit on a kind, islands respected.
pub(crate) fn replicas_that_fit(fleet: &Fleet, kind: &GpuKindId, gpus: u32) -> u32 {
    let mut sizes: BTreeMap<&IslandId, u32> = BTreeMap::new();
    let pools: BTreeSet<&PoolId> = fleet.pools.iter().filter(|pool| &pool.kind == kind).map(|pool| &pool.id).collect();
    for gpu in fleet.gpus.iter().filter(|gpu| pools.contains(&gpu.pool)) {
        *sizes.entry(&gpu.island).or_default() += 1;
    }
    sizes.into_values().map(|size| size / gpus.max(1)).sum()
}

/// Mean price per GPU-hour over the GPUs that have one; 1 when none has, which orders work by the multiples of its class alone.
pub(crate) fn mean_price(fleet: &Fleet) -> f64 {
    let priced: BTreeMap<&PoolId, f64> = fleet.pools.iter().filter_map(|pool| Some((&pool.id, pool.price_per_gpu_hour?))).collect();
    let (sum, count) = fleet.gpus.iter().filter_map(|gpu| priced.get(&gpu.pool)).fold((0.0, 0_u32), |(sum, count), price| (sum + price, count + 1));
    if count == 0 || sum <= 0.0 { 1.0 } else { sum / f64::from(count) }
}
