//! The demo's scenario: two weeks of three services and twelve jobs on 24 GPUs, and the truth the planner is not told.
//!
//! Everything here is an assumption, made to be plausible and documented so that it can be argued with. Prices of magnitude: public lists of
//! 2025 and 2026 ask 2 to 4 an hour for an H100 and 0.8 to 1.9 for an L40S; owned cards in steady use come to the lower ends, here 2.60 and
//! 0.90 EUR. Rates a replica serves lie between what vLLM measurements at a time to first token of seconds suggest for a 70B model in 8 bits
//! on two H100, a 32B model on one, and an 8B model on an L40S. Sized so that the services' own peaks take some three fifths of
//! the fleet (a pool for each, with the usual headroom, most of it), while their mean needs a quarter: whoever plans the troughs gets the jobs
//! done.

use crate::{Launch, Shape, Tokens, Traffic, jobs};
use fleet::{
    Bytes, Class, Currency, Fleet, Gpu, GpuId, GpuKind, GpuKindId, IslandId, LatencyTarget, Model, ModelId, Node, NodeId, Ownership, Pool, PoolId, Service,
    Span, SpeedProfile, Timestamp, Variant, VariantId, Workload, WorkloadId, WorkloadKind,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::BTreeMap;

/// Seed of the demo: the year and the day it plays.
pub const DEMO_SEED: u64 = 20_260_105;

/// Monday, 2026-01-05T00:00:00Z.
const START: Timestamp = Timestamp(1_767_571_200);
/// Two weeks.
const LENGTH: Span = Span(14 * 86_400);

/// What really happens, as far as it differs from what the planner is told at first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Truth {
    /// True requests/s of a ready replica over those of its variant's profile, at the start.
    pub capacity: BTreeMap<VariantId, f64>,
    /// Relative change of all capacities a day (prompts grow, engines age).
    pub capacity_drift_per_day: f64,
    /// Coefficient of variation of a replica's capacity from minute to minute.
    pub capacity_cv: f64,
    /// True cold start over that of the variant.
    pub cold_start: BTreeMap<VariantId, f64>,
    /// Coefficient of variation of single cold starts.
    pub cold_start_cv: f64,
    /// True speed of jobs over that of their specification.
    pub job_speed: f64,
}

/// Something that happens to the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

/// What can happen to the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A GPU fails, and what runs on it with it.
    GpuLost(GpuId),
    /// It is back.
    GpuReturned(GpuId),
}

/// Everything a simulation needs: what the planner is told, what users ask, and what is true.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Scenario {
    /// GPUs and prices.
    pub fleet: Fleet,
    /// Models, in order of id.
    pub models: Vec<Model>,
    /// Variants, in order of id.
    pub variants: Vec<Variant>,
    /// Services, then jobs, each in order of id.
    pub workloads: Vec<Workload>,
    /// Demand, one a service, in order of id.
    pub traffic: Vec<Traffic>,
    /// What the planner is not told.
    pub truth: Truth,
    /// What happens to the fleet, in order of time.
    pub events: Vec<Event>,
    /// First instant.
    pub start: Timestamp,
    /// How long it lasts.
    pub length: Span,
}

impl Scenario {
    /// Two weeks from Monday, 2026-01-05: `chat` with office days, `code` on working days only, `agents` through the evening and at weekends.
    /// On the second Saturday a launch more than doubles `chat`.
    #[must_use]
    pub fn demo(seed: u64) -> Self {
        let fleet = fleet();
        let mut workloads = Vec::new();
        let mut traffic = Vec::new();
        let minutes = usize::try_from(LENGTH.0 / Traffic::STEP.0).unwrap_or(0);
        for (index, spec) in (0_u64..).zip(services()) {
            let id: WorkloadId = name(spec.name);
            let mut rng = Pcg64Mcg::seed_from_u64(seed.wrapping_add(index));
            traffic.push(Traffic::new(id, START, spec.shape.minutes(START, minutes, &mut rng), spec.tokens));
            workloads.push(spec.workload());
        }
        workloads.extend(jobs::jobs(START, mean_price(&fleet)));
        Self { fleet, models: models(), variants: variants(), workloads, traffic, truth: truth(), events: events(), start: START, length: LENGTH }
    }

    /// First instant after it.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.start + self.length
    }

    /// Requests/s of one replica as the planner is told.
    #[must_use]
    pub fn prior_capacity(&self, variant: &VariantId) -> Option<f64> {
        self.variants.iter().find(|v| &v.id == variant).and_then(|v| match v.speed {
            SpeedProfile::RequestsPerS(rate) => Some(rate),
            SpeedProfile::Linear { .. } => None,
        })
    }
}

/// An id from a name in this file.
///
/// # Panics
/// Never: the names are short and plain.
pub(crate) fn name<T: TryFrom<String, Error = fleet::IdError>>(text: &str) -> T {
    T::try_from(text.to_owned()).expect("a plain name")
}

/// A kind of GPU of the demo, and where it stands.
struct KindSpec {
    kind: &'static str,
    pool: &'static str,
    /// Memory that programs see, as the driver reports it.
    mib: u64,
    /// EUR per GPU and hour.
    price: f64,
    nodes: [&'static str; 2],
    gpus_per_node: u32,
    gpus_per_island: u32,
}

const KINDS: [KindSpec; 2] = [
    KindSpec { kind: "H100-80GB", pool: "h100", mib: 81_559, price: 2.60, nodes: ["n1", "n2"], gpus_per_node: 8, gpus_per_island: 4 },
    KindSpec { kind: "L40S-48GB", pool: "l40s", mib: 46_068, price: 0.90, nodes: ["n3", "n4"], gpus_per_node: 4, gpus_per_island: 2 },
];

fn fleet() -> Fleet {
    let mut fleet = Fleet {
        currency: Currency::new("EUR").expect("three capital letters"),
        kinds: BTreeMap::new(),
        pools: Vec::new(),
        nodes: Vec::new(),
        gpus: Vec::new(),
    };
    for spec in KINDS {
        let (kind, pool): (GpuKindId, PoolId) = (name(spec.kind), name(spec.pool));
        fleet.kinds.insert(kind.clone(), GpuKind { id: kind.clone(), memory: Bytes::from_mib(spec.mib) });
        fleet.pools.push(Pool { id: pool.clone(), kind, ownership: Ownership::Owned, price_per_gpu_hour: Some(spec.price), labels: BTreeMap::new() });
        for node in spec.nodes {
            let id: NodeId = name(node);
            fleet.nodes.push(Node { id: id.clone(), pool: pool.clone() });
            fleet.gpus.extend((0..spec.gpus_per_node).map(|index| {
                let first = index / spec.gpus_per_island * spec.gpus_per_island;
                let island: IslandId = name(&format!("{node}/{first}-{}", first + spec.gpus_per_island - 1));
                Gpu { id: name(&format!("{node}/{index}")), node: id.clone(), index, island, pool: pool.clone() }
            }));
        }
    }
    fleet
}

/// Mean price of a GPU-hour, the unit of the classes' values.
fn mean_price(fleet: &Fleet) -> f64 {
    let prices = fleet.gpus.iter().filter_map(|g| fleet.pool(&g.pool)?.price_per_gpu_hour);
    let (sum, n) = prices.fold((0.0, 0.0), |(sum, n), p| (sum + p, n + 1.0));
    sum / n
}

fn models() -> Vec<Model> {
    [("agents-8b", 0.68), ("chat-70b", 0.83), ("code-32b", 0.79)]
        .map(|(id, quality)| Model { id: name(id), quality: BTreeMap::from([("general".into(), quality)]) })
        .to_vec()
}

/// A variant of the demo, and how it really is.
struct VariantSpec {
    name: &'static str,
    model: &'static str,
    kind: &'static str,
    gpus: u32,
    /// GiB on each GPU.
    gib: u64,
    /// What is said: seconds to ready, requests/s of a replica.
    cold_start: i64,
    rate: f64,
    /// What is true, over what is said.
    true_cold_start: f64,
    true_rate: f64,
}

const fn variant(name: &'static str, place: (&'static str, &'static str, u32, u64), said: (i64, f64), truth: (f64, f64)) -> VariantSpec {
    let (model, kind, gpus, gib) = place;
    VariantSpec { name, model, kind, gpus, gib, cold_start: said.0, rate: said.1, true_cold_start: truth.0, true_rate: truth.1 }
}

/// In order of name. `chat` is a sixth slower than said and takes nearly twice as long to load.
const VARIANTS: [VariantSpec; 5] = [
    variant("agents-8b-h100", ("agents-8b", "H100-80GB", 1, 40), (100, 15.0), (1.3, 0.95)),
    variant("agents-8b-l40s", ("agents-8b", "L40S-48GB", 1, 40), (120, 7.0), (1.3, 0.93)),
    variant("chat-70b-h100", ("chat-70b", "H100-80GB", 2, 72), (240, 9.0), (1.93, 0.833)),
    variant("code-32b-h100", ("code-32b", "H100-80GB", 1, 64), (180, 6.0), (1.4, 1.05)),
    variant("code-32b-l40s", ("code-32b", "L40S-48GB", 1, 43), (240, 2.2), (1.4, 1.0)),
];

fn variants() -> Vec<Variant> {
    let made = |v: &VariantSpec| Variant {
        id: name(v.name),
        model: name::<ModelId>(v.model),
        kind: name(v.kind),
        gpus: v.gpus,
        memory_per_gpu: Bytes::from_gib(v.gib),
        cold_start: Span(v.cold_start),
        speed: SpeedProfile::RequestsPerS(v.rate),
    };
    VARIANTS.iter().map(made).collect()
}

fn truth() -> Truth {
    Truth {
        capacity: VARIANTS.iter().map(|v| (name(v.name), v.true_rate)).collect(),
        capacity_drift_per_day: -0.001,
        capacity_cv: 0.02,
        cold_start: VARIANTS.iter().map(|v| (name(v.name), v.true_cold_start)).collect(),
        cold_start_cv: 0.05,
        job_speed: 0.97,
    }
}

/// A card fails on the second Tuesday afternoon and is replaced the next morning.
fn events() -> Vec<Event> {
    let gpu: GpuId = name("n2/5");
    let day = |d: i64, h: i64| START + Span::hours(24 * d + h);
    vec![Event { at: day(8, 15), kind: EventKind::GpuLost(gpu.clone()) }, Event { at: day(9, 9), kind: EventKind::GpuReturned(gpu) }]
}

/// A service of the demo.
struct ServiceSpec {
    name: &'static str,
    variants: &'static [&'static str],
    max_replicas: u32,
    /// EUR per request not served in time. A replica-hour of late requests comes to 20 times its GPUs' price and more.
    penalty: f64,
    target: LatencyTarget,
    tokens: Tokens,
    shape: Shape,
}

impl ServiceSpec {
    fn workload(&self) -> Workload {
        let service = Service {
            variants: self.variants.iter().map(|v| name(v)).collect(),
            target: self.target,
            min_replicas: 1,
            max_replicas: self.max_replicas,
            penalty_per_request: Some(self.penalty),
            level: None,
            zone: "UTC".into(),
            stabilisation: Span::minutes(15),
            tokens_prior: (self.tokens.input, self.tokens.output),
        };
        let class = Class::RealTime;
        Workload { id: name(self.name), class, tenant: None, priority: class.defaults().priority, kind: WorkloadKind::Service(service) }
    }
}

fn services() -> [ServiceSpec; 3] {
    [agents(), chat(), code()]
}

/// Programs that call an API: never quiet, busiest in the evening, somewhat more at weekends.
fn agents() -> ServiceSpec {
    let day = [0.50, 0.42, 0.38, 0.36, 0.36, 0.38, 0.42, 0.48, 0.52, 0.55, 0.58, 0.60, 0.62, 0.62, 0.62, 0.64, 0.68, 0.76, 0.88, 0.97, 1.00, 0.96, 0.82, 0.64];
    ServiceSpec {
        name: "agents",
        variants: &["agents-8b-l40s", "agents-8b-h100"],
        max_replicas: 8,
        penalty: 0.001,
        target: LatencyTarget { ttft_s: 3.0, tpot_s: None, share: 0.95 },
        tokens: Tokens { input: 1_200.0, output: 200.0, prefix_hit_rate: 0.20 },
        shape: Shape { peak: 28.0, day, week: [1.0, 0.98, 0.98, 1.0, 1.03, 1.07, 1.05], growth_per_week: 0.02, day_cv: 0.02, minute_cv: 0.05, launch: None },
    }
}

/// People at work who talk to an assistant: up at eight, a dip at noon, quiet at night and at weekends; a launch on the second Saturday.
fn chat() -> ServiceSpec {
    let day = [0.16, 0.13, 0.11, 0.10, 0.10, 0.13, 0.22, 0.42, 0.72, 0.90, 0.97, 0.98, 0.88, 0.90, 0.98, 1.00, 0.96, 0.82, 0.62, 0.48, 0.40, 0.34, 0.27, 0.21];
    let launch = Launch { at: START + Span::hours(12 * 24 + 10), height: 21.0, rise: Span::minutes(20), plateau: Span::hours(2), fade: Span::hours(3) };
    ServiceSpec {
        name: "chat",
        variants: &["chat-70b-h100"],
        max_replicas: 8,
        penalty: 0.004,
        target: LatencyTarget { ttft_s: 2.0, tpot_s: Some(0.08), share: 0.99 },
        tokens: Tokens { input: 900.0, output: 280.0, prefix_hit_rate: 0.35 },
        shape: Shape {
            peak: 28.0,
            day,
            week: [1.0, 1.02, 1.0, 0.99, 0.93, 0.40, 0.36],
            growth_per_week: 0.02,
            day_cv: 0.03,
            minute_cv: 0.05,
            launch: Some(launch),
        },
    }
}

/// Completions in an editor: business hours on working days, next to nothing else.
fn code() -> ServiceSpec {
    let day = [0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.04, 0.12, 0.45, 0.85, 1.00, 0.98, 0.70, 0.78, 0.97, 1.00, 0.92, 0.66, 0.32, 0.15, 0.10, 0.06, 0.04, 0.03];
    ServiceSpec {
        name: "code",
        variants: &["code-32b-h100", "code-32b-l40s"],
        max_replicas: 6,
        penalty: 0.004,
        target: LatencyTarget { ttft_s: 1.0, tpot_s: None, share: 0.99 },
        tokens: Tokens { input: 2_000.0, output: 30.0, prefix_hit_rate: 0.55 },
        shape: Shape { peak: 15.0, day, week: [0.98, 1.0, 1.0, 1.0, 0.88, 0.04, 0.04], growth_per_week: 0.02, day_cv: 0.03, minute_cv: 0.06, launch: None },
    }
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
