//! The scenario's names as positions, so that a minute of the world is arithmetic on arrays; and everything that is drawn by chance, drawn
//! beforehand, so that every policy meets the same traffic, the same noise and the same starts.

use crate::{Scenario, TrueCapacity};
use fleet::{Class, GpuId, IslandId, Job, JobId, SpeedProfile, Timestamp, VariantId, WorkloadId};
use rand::SeedableRng;
use rand_distr::{Distribution, Poisson, StandardNormal};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// A GPU with what placement asks of it.
pub(crate) struct GpuEntry {
    pub id: GpuId,
    pub island: IslandId,
    pub kind: fleet::GpuKindId,
    pub memory: fleet::Bytes,
    /// Money per hour; `None` when the user gave none.
    pub price: Option<f64>,
    /// Costs only while held.
    pub rented: bool,
}

pub(crate) struct VariantEntry {
    pub id: VariantId,
    pub kind: fleet::GpuKindId,
    pub gpus: usize,
    pub memory: fleet::Bytes,
    /// What people believe a start takes, seconds.
    pub cold_start_prior_s: f64,
    pub cold_start_s: f64,
    pub cold_start_spread: f64,
    /// Services it may serve.
    pub services: Vec<usize>,
    pub speed: SpeedProfile,
}

pub(crate) struct ServiceEntry {
    pub id: WorkloadId,
    pub class: Class,
    pub priority: u32,
    /// Positions of its variants, best first.
    pub variants: Vec<usize>,
    pub min_replicas: usize,
    pub max_replicas: usize,
    pub ttft_s: f64,
    pub input_tokens: f64,
    pub output_tokens: f64,
    pub hit_rate: f64,
    /// Requests that come in each minute.
    pub arrivals: Vec<f64>,
    /// Mean of what may come, requests/s: what a planner with perfect knowledge would size for.
    pub mean_per_s: Vec<f64>,
    /// By variant position.
    pub capacity: BTreeMap<usize, TrueCapacity>,
    /// Noise factor on capacity, by variant position, one a minute.
    noise: BTreeMap<usize, Vec<f64>>,
}

impl ServiceEntry {
    /// Requests/s one replica of the variant serves in that minute.
    pub fn capacity_in(&self, variant: usize, minute: usize) -> f64 {
        let days = minutes_f64(minute) / 1_440.0;
        let noise = self.noise.get(&variant).and_then(|n| n.get(minute)).copied().unwrap_or(1.0);
        self.capacity.get(&variant).map_or(0.0, |c| c.at(days) * noise)
    }

    /// The same as people believe it before anything ran.
    pub fn prior(&self, variant: usize) -> f64 {
        self.capacity.get(&variant).map_or(0.0, |c| c.prior)
    }
}

pub(crate) struct JobEntry {
    pub id: JobId,
    pub class: Class,
    pub job: Job,
}

impl JobEntry {
    /// Speed on that GPU; `None` where it cannot run.
    pub fn speed_on(&self, gpu: &GpuEntry) -> Option<f64> {
        if self.job.memory_per_gpu > gpu.memory {
            return None;
        }
        self.job.speed.get(&gpu.kind).copied().filter(|s| *s > 0.0)
    }
}

/// Everything by position.
pub(crate) struct Catalogue {
    pub gpus: Vec<GpuEntry>,
    pub variants: Vec<VariantEntry>,
    pub services: Vec<ServiceEntry>,
    pub jobs: Vec<JobEntry>,
    /// Service positions, those served first (lower priority number) first.
    pub by_priority: Vec<usize>,
    pub start: Timestamp,
    pub minutes: usize,
    seed: u64,
}

#[expect(clippy::cast_precision_loss, reason = "minutes of a simulation lie far below 2^52")]
pub(crate) fn minutes_f64(minutes: usize) -> f64 {
    minutes as f64
}

impl Catalogue {
    /// Of a valid scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let setup = &scenario.setup;
        let gpus: Vec<GpuEntry> = setup
            .fleet
            .gpus
            .iter()
            .filter_map(|g| {
                let pool = setup.fleet.pool(&g.pool)?;
                let kind = setup.fleet.kinds.get(&pool.kind)?;
                let rented = pool.ownership == fleet::Ownership::Rented;
                Some(GpuEntry {
                    id: g.id.clone(),
                    island: g.island.clone(),
                    kind: kind.id.clone(),
                    memory: kind.memory,
                    price: pool.price_per_gpu_hour,
                    rented,
                })
            })
            .collect();
        let position = |id: &VariantId| setup.variants.iter().position(|v| &v.id == id);
        let mut services = Vec::new();
        for (stream, workload) in setup.workloads.iter().enumerate() {
            let (Some(service), Some(traffic)) = (workload.service(), scenario.traffic.iter().find(|t| t.workload == workload.id)) else { continue };
            let variants: Vec<usize> = service.variants.iter().filter_map(position).collect();
            let truths = scenario.truth.capacity.get(&workload.id);
            let capacity: BTreeMap<usize, TrueCapacity> = service.variants.iter().filter_map(|id| Some((position(id)?, *truths?.get(id)?))).collect();
            let draw = |purpose: u64| stream_of(scenario.seed, purpose, stream as u64);
            let mean_per_s: Vec<f64> = traffic.per_minute.iter().take(scenario.minutes()).copied().collect();
            let mut chance = draw(1);
            let arrivals = mean_per_s.iter().map(|mean| poisson(mean * 60.0, &mut chance)).collect();
            let noise = variants.iter().map(|v| (*v, spells(scenario.truth.noise, scenario.minutes(), &mut draw(1_000 + *v as u64)))).collect();
            services.push(ServiceEntry {
                id: workload.id.clone(),
                class: workload.class,
                priority: workload.priority,
                variants,
                min_replicas: service.min_replicas as usize,
                max_replicas: service.max_replicas as usize,
                ttft_s: service.target.ttft_s,
                input_tokens: traffic.input_tokens,
                output_tokens: traffic.output_tokens,
                hit_rate: traffic.hit_rate,
                arrivals,
                mean_per_s,
                capacity,
                noise,
            });
        }
        let variants = setup
            .variants
            .iter()
            .enumerate()
            .map(|(at, v)| {
                let prior = v.cold_start.as_secs_f64();
                let truth = scenario.truth.cold_start.get(&v.id);
                VariantEntry {
                    id: v.id.clone(),
                    kind: v.kind.clone(),
                    gpus: v.gpus as usize,
                    memory: v.memory_per_gpu,
                    cold_start_prior_s: prior,
                    cold_start_s: truth.map_or(prior, |t| t.median_s),
                    cold_start_spread: truth.map_or(0.0, |t| t.spread),
                    services: (0..services.len()).filter(|s| services[*s].variants.contains(&at)).collect(),
                    speed: v.speed.clone(),
                }
            })
            .collect();
        let jobs =
            setup.workloads.iter().filter_map(|w| Some(JobEntry { id: JobId::new(w.id.as_str()).ok()?, class: w.class, job: w.job()?.clone() })).collect();
        let mut by_priority: Vec<usize> = (0..services.len()).collect();
        by_priority.sort_by(|a, b| services[*a].priority.cmp(&services[*b].priority).then_with(|| services[*a].id.cmp(&services[*b].id)));
        Self { gpus, variants, services, jobs, by_priority, start: scenario.start, minutes: scenario.minutes(), seed: scenario.seed }
    }

    /// How long a start of the variant in that minute takes, seconds: the same whoever asks.
    pub fn cold_start_s(&self, variant: usize, minute: usize) -> f64 {
        let entry = &self.variants[variant];
        let mut chance = stream_of(self.seed, 2_000 + variant as u64, minute as u64);
        let z: f64 = StandardNormal.sample(&mut chance);
        // Beyond three standard deviations a start would be an accident, which is what faults are for.
        entry.cold_start_s * (entry.cold_start_spread * z.clamp(-3.0, 3.0)).exp()
    }
}

/// A stream of chance of its own for each purpose.
fn stream_of(seed: u64, purpose: u64, stream: u64) -> Pcg64 {
    // An odd multiplier (from the golden ratio, as in SplitMix64) keeps streams of neighbouring numbers apart.
    let mixed = seed ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Pcg64::seed_from_u64(mixed)
}

fn poisson(mean: f64, chance: &mut Pcg64) -> f64 {
    // A mean of zero is no distribution but has one outcome.
    Poisson::new(mean).map_or(0.0, |p| p.sample(chance))
}

/// A factor that wanders around one: first-order autoregression of its logarithm with a memory of about an hour.
fn spells(sd: f64, minutes: usize, chance: &mut Pcg64) -> Vec<f64> {
    const MEMORY: f64 = 0.983; // exp(-1/60)
    let mut level: f64 = StandardNormal.sample(chance);
    (0..minutes)
        .map(|_| {
            let z: f64 = StandardNormal.sample(chance);
            level = MEMORY * level + (1.0 - MEMORY * MEMORY).sqrt() * z;
            (sd * level).exp()
        })
        .collect()
}
