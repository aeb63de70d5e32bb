//! A small fleet and its workloads, for experiments and tests.

use cycle::{LoopPolicy, Setup};
use fleet::{
    Bytes, Class, Currency, Fleet, Gpu, GpuId, GpuKind, GpuKindId, IdError, IslandId, Job, LatencyTarget, ModelId, Node, NodeId, Ownership, Pool, PoolId,
    Service, Span, SpeedProfile, Timestamp, UnitError, Variant, VariantId, Workload, WorkloadId, WorkloadKind,
};
use std::collections::{BTreeMap, BTreeSet};

/// A name of ours was not usable: cannot happen with the names below.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SmallError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error(transparent)]
    Unit(#[from] UnitError),
}

/// Kind of every GPU in a small fleet.
const KIND: &str = "H100-80GB";
/// Money per GPU-hour.
pub(crate) const PRICE: f64 = 2.0;

/// Nodes of four GPUs, one island each, one pool.
pub(crate) fn small_fleet(nodes: u32) -> Result<Fleet, SmallError> {
    let kind = GpuKindId::new(KIND)?;
    let pool = PoolId::new("main")?;
    let mut fleet = Fleet {
        currency: Currency::new("EUR")?,
        kinds: BTreeMap::from([(kind.clone(), GpuKind { id: kind.clone(), memory: Bytes::from_gib(80) })]),
        pools: vec![Pool { id: pool.clone(), kind, ownership: Ownership::Owned, price_per_gpu_hour: Some(PRICE), labels: BTreeMap::new() }],
        nodes: Vec::new(),
        gpus: Vec::new(),
    };
    for n in 1..=nodes {
        let node = NodeId::new(format!("n{n}"))?;
        fleet.nodes.push(Node { id: node.clone(), pool: pool.clone() });
        for index in 0..4 {
            fleet.gpus.push(Gpu {
                id: GpuId::new(format!("{node}/{index}"))?,
                node: node.clone(),
                index,
                island: IslandId::new(format!("{node}"))?,
                pool: pool.clone(),
            });
        }
    }
    Ok(fleet)
}

/// A variant that serves so many requests/s as people believe.
pub(crate) fn variant(id: &str, gpus: u32, per_s: f64, cold_start: Span) -> Result<Variant, SmallError> {
    Ok(Variant {
        id: VariantId::new(id)?,
        model: ModelId::new(id)?,
        kind: GpuKindId::new(KIND)?,
        gpus,
        memory_per_gpu: Bytes::from_gib(60),
        cold_start,
        speed: SpeedProfile::RequestsPerS(per_s),
    })
}

/// A service of someone who waits, on one variant.
pub(crate) fn service(id: &str, variant: &str, replicas: (u32, u32), level: Option<f64>) -> Result<Workload, SmallError> {
    Ok(Workload {
        id: WorkloadId::new(id)?,
        class: Class::RealTime,
        tenant: None,
        priority: 0,
        kind: WorkloadKind::Service(Service {
            variants: vec![VariantId::new(variant)?],
            target: LatencyTarget { ttft_s: 2.0, tpot_s: None, share: 0.99 },
            min_replicas: replicas.0,
            max_replicas: replicas.1,
            penalty_per_request: Some(0.02),
            level,
            zone: "UTC".into(),
            stabilisation: Span::minutes(10),
            tokens_prior: (600.0, 200.0),
        }),
    })
}

/// A job with its class's defaults.
pub(crate) fn job(id: &str, class: Class, gang: u32, work: Span, release: Timestamp, deadline: Option<Timestamp>) -> Result<Workload, SmallError> {
    let defaults = class.defaults();
    Ok(Workload {
        id: WorkloadId::new(id)?,
        class,
        tenant: None,
        priority: defaults.priority,
        kind: WorkloadKind::Job(Job {
            work,
            gang,
            memory_per_gpu: Bytes::from_gib(60),
            speed: BTreeMap::from([(GpuKindId::new(KIND)?, 1.0)]),
            release,
            deadline,
            checkpoint: defaults.checkpoint,
            preemptible: defaults.preemptible,
            value_per_gpu_hour: defaults.value_per_price * PRICE,
            lateness_per_hour: defaults.lateness_per_price * PRICE * f64::from(gang),
            startup: defaults.startup,
        }),
    })
}

/// Everything together, in order of id, with hourly cycles.
pub(crate) fn setup(fleet: Fleet, mut variants: Vec<Variant>, mut workloads: Vec<Workload>, start: Timestamp) -> Setup {
    variants.sort_by(|a, b| a.id.cmp(&b.id));
    workloads.sort_by(|a, b| a.id.cmp(&b.id));
    let policy = LoopPolicy {
        interval: Span::HOUR,
        validity: Span::minutes(90),
        mip_gap: 0.02,
        nodes_max: 200,
        shrink_before_season: true,
        started_at: start,
        ..LoopPolicy::default()
    };
    Setup { fleet, variants, workloads, policy, unobserved_free: BTreeSet::new() }
}

/// Requests/s by minute: low at night, high by day, the same every day.
pub(crate) fn daily(days: u32, low: f64, high: f64, peak_hour: f64) -> Vec<f64> {
    let minute_of = |m: u32| {
        let hour = f64::from(m % 1_440) / 60.0;
        let phase = (hour - peak_hour) / 24.0 * std::f64::consts::TAU;
        low + (high - low) * (0.5 + 0.5 * phase.cos()).powf(1.5)
    };
    (0..days * 1_440).map(minute_of).collect()
}
