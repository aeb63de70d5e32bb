//! The made fleet of the replay: 24 H100 in three nodes and 8 L40S in two, three services, eight jobs.

use cycle::{LoopPolicy, Setup};
use fleet::{
    Bytes, Class, Currency, Fleet, Gpu, GpuKind, Job, LatencyTarget, Node, Ownership, Pool, Service, Span, SpeedProfile, Timestamp, Variant, VariantId,
    Workload, WorkloadKind,
};
use sim::{TrueCapacity, TrueColdStart, Truth};
use std::collections::{BTreeMap, BTreeSet};

/// 2026-01-05, a Monday.
pub const START: Timestamp = Timestamp(1_767_571_200);
/// GPUs of the fleet.
pub const GPUS: f64 = 32.0;
/// Mean price of a GPU-hour, the unit of the classes' values.
const MEAN_PRICE: f64 = (24.0 * 2.6 + 8.0 * 0.9) / GPUS;

pub fn name<T: TryFrom<String, Error = fleet::IdError>>(text: &str) -> T {
    T::try_from(text.to_owned()).unwrap()
}

/// Kind, GiB, money per GPU-hour, nodes, GPUs in each; islands are of four.
const KINDS: [(&str, u64, f64, &[&str], u32); 2] = [("H100-80GB", 80, 2.6, &["n1", "n2", "n3"], 8), ("L40S-48GB", 45, 0.9, &["n4", "n5"], 4)];

fn fleet() -> Fleet {
    let mut fleet = Fleet { currency: Currency::new("EUR").unwrap(), kinds: BTreeMap::new(), pools: Vec::new(), nodes: Vec::new(), gpus: Vec::new() };
    for (kind, gib, price, nodes, gpus) in KINDS {
        let pool = kind.to_lowercase();
        fleet.kinds.insert(name(kind), GpuKind { id: name(kind), memory: Bytes::from_gib(gib) });
        fleet.pools.push(Pool { id: name(&pool), kind: name(kind), ownership: Ownership::Owned, price_per_gpu_hour: Some(price), labels: BTreeMap::new() });
        for node in nodes {
            fleet.nodes.push(Node { id: name(node), pool: name(&pool) });
            let gpu = |index| Gpu {
                id: name(&format!("{node}/{index}")),
                node: name(node),
                index,
                island: name(&format!("{node}/{}", index / 4)),
                pool: name(&pool),
            };
            fleet.gpus.extend((0..gpus).map(gpu));
        }
    }
    fleet
}

/// A variant: what is said of it, and what is so.
pub struct VariantSpec {
    pub id: &'static str,
    pub kind: &'static str,
    pub gpus: u32,
    pub gib: u64,
    /// Seconds to ready: said, true.
    pub cold_start_s: (i64, f64),
    /// Requests/s of a replica: said, and the truth as a share of that.
    pub rate: (f64, f64),
}

const fn variant(id: &'static str, kind: &'static str, size: (u32, u64), cold_start_s: (i64, f64), rate: (f64, f64)) -> VariantSpec {
    VariantSpec { id, kind, gpus: size.0, gib: size.1, cold_start_s, rate }
}

/// A service: the model whose traffic it has, its variants, and how large it is.
pub struct ServiceSpec {
    pub id: &'static str,
    pub variants: &'static [VariantSpec],
    /// GPUs of its first variant that its highest hour takes, at what is said of it.
    pub peak_gpus: f64,
    ttft_s: f64,
    penalty: f64,
    max_replicas: u32,
}

/// Together 23.5 GPUs at their peaks.
pub const SERVICES: [ServiceSpec; 3] = [
    ServiceSpec {
        id: "m-large",
        variants: &[variant("large-70b-h100", "H100-80GB", (2, 72), (240, 460.0), (9.0, 0.85))],
        peak_gpus: 10.5,
        ttft_s: 2.0,
        penalty: 0.004,
        max_replicas: 10,
    },
    ServiceSpec {
        id: "m-mid",
        variants: &[variant("mid-32b-h100", "H100-80GB", (1, 64), (180, 250.0), (6.0, 1.05))],
        peak_gpus: 9.0,
        ttft_s: 2.0,
        penalty: 0.003,
        max_replicas: 16,
    },
    ServiceSpec {
        id: "m-small",
        variants: &[
            variant("small-8b-l40s", "L40S-48GB", (1, 40), (120, 160.0), (7.0, 0.93)),
            variant("small-8b-h100", "H100-80GB", (1, 40), (100, 130.0), (15.0, 0.95)),
        ],
        peak_gpus: 4.0,
        ttft_s: 3.0,
        penalty: 0.001,
        max_replicas: 10,
    },
];

fn service(spec: &ServiceSpec, tokens_prior: (f64, f64)) -> Workload {
    let service = Service {
        variants: spec.variants.iter().map(|v| name(v.id)).collect(),
        target: LatencyTarget { ttft_s: spec.ttft_s, tpot_s: None, share: 0.99 },
        min_replicas: 1,
        max_replicas: spec.max_replicas,
        penalty_per_request: Some(spec.penalty),
        level: None,
        zone: "UTC".into(),
        stabilisation: Span::minutes(15),
        tokens_prior,
    };
    Workload { id: name(spec.id), class: Class::RealTime, tenant: None, priority: 0, kind: WorkloadKind::Service(service) }
}

/// Name, class, gang, hours of work, GiB, speed on (H100, L40S; zero: does not run there), days of release and deadline.
type JobSpec = (&'static str, Class, u32, f64, u64, (f64, f64), (f64, f64));

const JOBS: [JobSpec; 8] = [
    ("batch-ocr", Class::Batch, 1, 190.0, 40, (1.4, 1.0), (1.0, 13.0)),
    ("batch-summaries", Class::Batch, 2, 115.0, 42, (1.0, 0.5), (1.0, 9.5)),
    ("embed-corpus", Class::Embedding, 2, 190.0, 20, (1.6, 1.0), (0.0, 12.0)),
    ("eval-suite", Class::Evaluation, 2, 60.0, 72, (1.0, 0.0), (4.0, 8.5)),
    ("finetune-support", Class::FineTuning, 4, 60.0, 72, (1.0, 0.0), (7.0, 12.0)),
    ("quantise-70b", Class::Quantisation, 2, 3.0, 76, (1.0, 0.0), (5.4, 6.5)),
    ("train-7b", Class::Training, 4, 170.0, 74, (1.0, 0.0), (0.0, 13.0)),
    ("train-reward", Class::Training, 4, 150.0, 74, (1.0, 0.0), (3.0, 13.5)),
];

#[expect(clippy::cast_possible_truncation, reason = "at most two weeks of seconds")]
fn seconds(s: f64) -> Span {
    Span(s.round() as i64)
}

fn job(spec: &JobSpec) -> Workload {
    let (id, class, gang, hours, gib, (h100, l40s), (release, deadline)) = *spec;
    let defaults = class.defaults();
    let job = Job {
        work: seconds(hours * 3_600.0),
        gang,
        memory_per_gpu: Bytes::from_gib(gib),
        speed: [(KINDS[0].0, h100), (KINDS[1].0, l40s)].into_iter().filter(|(_, s)| *s > 0.0).map(|(kind, s)| (name(kind), s)).collect(),
        release: START + seconds(release * 86_400.0),
        deadline: Some(START + seconds(deadline * 86_400.0)),
        checkpoint: defaults.checkpoint,
        preemptible: defaults.preemptible,
        value_per_gpu_hour: defaults.value_per_price * MEAN_PRICE,
        lateness_per_hour: defaults.lateness_per_price * MEAN_PRICE * f64::from(gang),
        startup: defaults.startup,
    };
    Workload { id: name(id), class, tenant: None, priority: defaults.priority, kind: WorkloadKind::Job(job) }
}

/// GPU-hours of all jobs at speed 1.
pub fn job_gpu_hours() -> f64 {
    JOBS.iter().map(|j| f64::from(j.2) * j.3).sum()
}

/// The set-up with hourly cycles; `tokens` are the prior tokens per request of each service.
pub fn setup(tokens: &BTreeMap<&str, (f64, f64)>) -> Setup {
    let made = |v: &VariantSpec| Variant {
        id: name(v.id),
        model: name(v.id.rsplit_once('-').unwrap().0),
        kind: name(v.kind),
        gpus: v.gpus,
        memory_per_gpu: Bytes::from_gib(v.gib),
        cold_start: Span(v.cold_start_s.0),
        speed: SpeedProfile::RequestsPerS(v.rate.0),
    };
    let mut variants: Vec<Variant> = SERVICES.iter().flat_map(|s| s.variants).map(made).collect();
    variants.sort_by(|a, b| a.id.cmp(&b.id));
    let mut workloads: Vec<Workload> = SERVICES.iter().map(|s| service(s, tokens[s.id])).chain(JOBS.iter().map(job)).collect();
    workloads.sort_by(|a, b| a.id.cmp(&b.id));
    let policy = LoopPolicy {
        interval: Span::HOUR,
        validity: Span::minutes(90),
        mip_gap: 0.01,
        nodes_max: 0,
        shrink_before_season: true,
        advisory: false,
        started_at: START,
        ..LoopPolicy::default()
    };
    Setup { fleet: fleet(), variants, workloads, policy, unobserved_free: BTreeSet::new() }
}

/// What is so: capacities and cold starts differ from what is said, and drift.
pub fn truth() -> Truth {
    let capacity = |s: &ServiceSpec| {
        let of = |v: &VariantSpec| (name::<VariantId>(v.id), TrueCapacity { prior: v.rate.0, factor: v.rate.1, drift_per_day: -0.001 });
        (name(s.id), s.variants.iter().map(of).collect())
    };
    let cold_start = |v: &VariantSpec| (name(v.id), TrueColdStart { median_s: v.cold_start_s.1, spread: 0.05 });
    Truth {
        capacity: SERVICES.iter().map(capacity).collect(),
        cold_start: SERVICES.iter().flat_map(|s| s.variants).map(cold_start).collect(),
        noise: 0.02,
        patience: Span::minutes(5),
    }
}
