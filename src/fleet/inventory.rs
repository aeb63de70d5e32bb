//! The fleet: nodes, GPUs, islands, pools, and what is known of each GPU now.

use crate::{Bytes, Currency, GpuId, GpuKindId, IslandId, JobId, NodeId, PoolId, ReplicaId, Timestamp, VariantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything owned or rented that can compute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fleet {
    /// Currency of every price.
    pub currency: Currency,
    /// Kinds of GPU, by id.
    pub kinds: BTreeMap<GpuKindId, GpuKind>,
    /// Pools, in order of id.
    pub pools: Vec<Pool>,
    /// Nodes, in order of id.
    pub nodes: Vec<Node>,
    /// GPUs, ordered by node and index.
    pub gpus: Vec<Gpu>,
}

impl Fleet {
    /// The GPU of that id.
    #[must_use]
    pub fn gpu(&self, id: &GpuId) -> Option<&Gpu> {
        self.gpus.iter().find(|g| &g.id == id)
    }

    /// The pool of that id.
    #[must_use]
    pub fn pool(&self, id: &PoolId) -> Option<&Pool> {
        self.pools.iter().find(|p| &p.id == id)
    }
}

/// A kind of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuKind {
    /// Its name.
    pub id: GpuKindId,
    /// Memory that programs can use.
    pub memory: Bytes,
}

/// Who pays, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// Costs every hour of the calendar.
    Owned,
    /// Costs while it is held.
    Rented,
}

/// A set of interchangeable GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pool {
    /// Its name.
    pub id: PoolId,
    /// Kind of all its GPUs.
    pub kind: GpuKindId,
    /// Who pays, and when.
    pub ownership: Ownership,
    /// Money per GPU and calendar hour (owned) or hour held (rented). `None`: the user gave none; unknown is never free.
    pub price_per_gpu_hour: Option<f64>,
    /// Region, labels and other marks that placement may ask for.
    pub labels: BTreeMap<String, String>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Its name.
    pub id: NodeId,
    /// The pool of its GPUs.
    pub pool: PoolId,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// UUID where known, else `node/index`.
    pub id: GpuId,
    /// Its host.
    pub node: NodeId,
    /// Position on the host.
    pub index: u32,
    /// The fast-link island it belongs to.
    pub island: IslandId,
    /// The pool it belongs to.
    pub pool: PoolId,
}

/// What holds a GPU now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GpuStatus {
    /// Observed to be free.
    Free,
    /// Holds a replica. `ready_at` lies ahead while it loads.
    Replica {
        /// Which.
        replica: ReplicaId,
        /// Of what.
        variant: VariantId,
        /// When it serves, or began to.
        ready_at: Timestamp,
    },
    /// Runs a job.
    Job(JobId),
    /// Busy with something unexplained, or not observed at all: not ours to use.
    Occupied(String),
    /// Cannot be used.
    Failed(String),
}

/// One look at one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GpuReading {
    /// Which.
    pub gpu: GpuId,
    /// When.
    pub at: Timestamp,
    /// What holds it.
    pub status: GpuStatus,
}
