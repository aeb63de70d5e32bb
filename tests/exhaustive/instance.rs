//! Random tiny problems.

use fleet::{
    Availability, Bytes, CalibrationId, Capacity, Class, Currency, GpuSlot, IdError, JobSpec, Occupant, PolicySpec, PoolId, PoolSpec, Problem, Provenance,
    Resident, ServiceSpec, Span, Step, StepDemand, Timestamp, VariantSpec,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::{BTreeMap, BTreeSet};

/// 2026-01-05T08:00:00Z.
const AS_OF: Timestamp = Timestamp(1_767_600_000);

pub fn id<T: TryFrom<String, Error = IdError>>(name: String) -> T {
    T::try_from(name).expect("a plain name")
}

/// GPUs x steps plus everything else: what is smaller is easier to understand.
pub fn size(problem: &Problem) -> usize {
    problem.gpus.len() * problem.steps.len() + problem.variants.len() + problem.jobs.len() + problem.residents.len()
}

struct Dice(Pcg64Mcg);

impl Dice {
    fn chance(&mut self, p: f64) -> bool {
        self.0.random_bool(p)
    }

    fn whole(&mut self, from: i64, to: i64) -> i64 {
        self.0.random_range(from..=to)
    }

    fn index(&mut self, len: usize) -> usize {
        self.0.random_range(0..len)
    }

    fn real(&mut self, from: f64, to: f64) -> f64 {
        self.0.random_range(from..to)
    }
}

/// The problem of a seed.
pub fn instance(seed: u64) -> Problem {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let steps = steps(&mut dice);
    let pools = pools(&mut dice);
    let gpus = gpus(&mut dice, &pools);
    let (variants, services) = services(&mut dice, &pools, steps.len());
    let jobs = jobs(&mut dice, &pools);
    let mut problem = Problem {
        as_of: AS_OF,
        currency: Currency::new("EUR").expect("three capital letters"),
        steps,
        pools,
        gpus,
        variants,
        services,
        jobs,
        residents: vec![],
        policy: PolicySpec {
            advisory: true,
            stops_max: None,
            mip_gap: 0.0,
            nodes_max: 1_000_000,
            watchdog: Span(600),
            validity: Span(900),
            delay_per_hour: dice.real(0.005, 0.05),
        },
        parent: None,
        calibration: id::<CalibrationId>("c".into()),
        calibration_generation: 1,
        forecasts: vec![],
        notes: vec![],
        unlocated: std::collections::BTreeSet::new(),
    };
    if dice.chance(0.2) {
        problem.policy.stops_max = Some(u32::try_from(dice.whole(0, 1)).unwrap_or(0));
    }
    problem.residents = residents(&mut dice, &problem);
    for job in &mut problem.jobs {
        let runs = problem.residents.iter().any(|r| matches!(&r.occupant, Occupant::Job { job: j } if *j == job.id));
        if runs {
            // No round figures: work since a checkpoint never is an exact multiple of the interval.
            job.since_checkpoint_s = dice.real(1.0, 800.0);
            job.earliest = AS_OF;
        }
    }
    problem
}

fn steps(dice: &mut Dice) -> Vec<Step> {
    let mut at = AS_OF;
    let count = if dice.chance(0.6) { 3 } else { 2 };
    (0..count)
        .map(|_| {
            let length = Span::minutes([5, 10, 15, 30][dice.index(4)]);
            let step = Step { start: at, length, committed: true };
            at = step.end();
            step
        })
        .collect()
}

/// The problem with two to four hours of outlook behind its committed part.
pub fn with_outlook(problem: &Problem, seed: u64) -> Problem {
    let mut dice = Dice(Pcg64Mcg::seed_from_u64(seed));
    let mut longer = problem.clone();
    for _ in 0..dice.whole(2, 4) {
        let (start, length) = (longer.end(), Span::minutes(dice.whole(30, 89)));
        longer.steps.push(Step { start, length, committed: false });
        for service in &mut longer.services {
            let planned = service.demand[0].planned * dice.real(0.2, 2.0);
            service.demand.push(StepDemand { planned, median: 0.8 * planned });
        }
    }
    longer
}

fn pools(dice: &mut Dice) -> Vec<PoolSpec> {
    (0..dice.whole(1, 2))
        .map(|p| PoolSpec {
            id: id(format!("p{p}")),
            memory: Bytes::from_gib(if dice.chance(0.3) { 40 } else { 80 }),
            marginal_per_gpu_hour: if dice.chance(0.5) { dice.real(0.1, 2.0) } else { 0.0 },
            price_per_gpu_hour: 2.0,
        })
        .collect()
}

fn gpus(dice: &mut Dice, pools: &[PoolSpec]) -> Vec<GpuSlot> {
    let count = dice.whole(3, 5);
    let mut gpus = Vec::new();
    let mut island = 0;
    while i64::try_from(gpus.len()).unwrap_or(0) < count {
        let size = dice.whole(1, 2);
        let pool = pools[dice.index(pools.len())].id.clone();
        for _ in 0..size {
            let availability = if dice.chance(0.05) { Availability::Failed("broken".into()) } else { Availability::Usable };
            gpus.push(GpuSlot { id: id(format!("g{}", gpus.len())), pool: pool.clone(), node: id("n".into()), island: id(format!("i{island}")), availability });
        }
        island += 1;
    }
    gpus
}

fn services(dice: &mut Dice, pools: &[PoolSpec], steps: usize) -> (Vec<VariantSpec>, Vec<ServiceSpec>) {
    let (mut variants, mut services) = (Vec::new(), Vec::new());
    for s in 0..dice.whole(1, 2) {
        let mut capacity = BTreeMap::new();
        for v in 0..dice.whole(1, 2) {
            let gpus = if dice.chance(0.35) { 2 } else { 1 };
            let variant = VariantSpec {
                id: id(format!("v{s}{v}")),
                model: id(format!("m{s}")),
                pools: some_pools(dice, pools),
                gpus,
                memory_per_gpu: Bytes::from_gib(if dice.chance(0.15) { 60 } else { 30 }),
                cold_start: Span::minutes([0, 3, 5, 8, 15][dice.index(5)]),
                cold_start_provenance: Provenance::Prior,
                start_cost: dice.real(0.05, 1.5),
                stop_cost: dice.real(0.0, 0.8),
            };
            capacity.insert(variant.id.clone(), Capacity { per_replica: f64::from(gpus) * dice.real(4.0, 7.0), provenance: Provenance::Prior });
            variants.push(variant);
        }
        let height = dice.real(2.0, 16.0);
        let demand = (0..steps).map(|_| height * dice.real(0.3, 1.3)).map(|x| StepDemand { planned: x, median: 0.8 * x }).collect();
        services.push(ServiceSpec {
            id: id(format!("s{s}")),
            class: Class::RealTime,
            priority: 0,
            demand,
            level: 0.9,
            capacity,
            min_replicas: u32::try_from(dice.whole(0, 1)).unwrap_or(0),
            max_replicas: u32::try_from(dice.whole(1, 3)).unwrap_or(0),
            shortfall_per_request: dice.real(0.0002, 0.004),
            bound_price_per_hour: dice.real(0.5, 5.0),
        });
    }
    (variants, services)
}

fn some_pools(dice: &mut Dice, pools: &[PoolSpec]) -> BTreeSet<PoolId> {
    let first = dice.index(pools.len());
    pools.iter().enumerate().filter(|(i, _)| *i == first || dice.chance(0.6)).map(|(_, p)| p.id.clone()).collect()
}

fn jobs(dice: &mut Dice, pools: &[PoolSpec]) -> Vec<JobSpec> {
    let classes = [Class::Batch, Class::Training, Class::Embedding];
    (0..dice.whole(0, 2))
        .map(|j| {
            let gang = if dice.chance(0.6) { 2 } else { 1 };
            let gpus = f64::from(gang);
            JobSpec {
                id: id(format!("j{j}")),
                class: classes[dice.index(3)],
                gang,
                memory_per_gpu: Bytes::from_gib(if dice.chance(0.15) { 60 } else { 30 }),
                speed: some_pools(dice, pools).into_iter().map(|p| (p, dice.real(0.5, 1.5))).collect(),
                remaining_s: dice.real(200.0, 6_000.0),
                earliest: if dice.chance(0.25) { AS_OF + Span::minutes(dice.whole(1, 20)) } else { AS_OF },
                deadline: dice.chance(0.6).then(|| AS_OF + Span::minutes(dice.whole(-10, 90))),
                value_per_hour: gpus * dice.real(1.0, 6.0),
                lateness_per_hour: gpus * dice.real(0.5, 6.0),
                checkpoint_s: dice.chance(0.75).then(|| dice.real(300.0, 1_800.0)),
                since_checkpoint_s: 0.0,
                preemptible: dice.chance(0.85),
                startup: Span::minutes([0, 1, 3][dice.index(3)]),
            }
        })
        .collect()
}

/// What runs now: replicas and jobs on the first free place of a random island.
fn residents(dice: &mut Dice, problem: &Problem) -> Vec<Resident> {
    let mut free: Vec<&GpuSlot> = problem.gpus.iter().filter(|g| g.availability == Availability::Usable).collect();
    let mut residents: Vec<Resident> = Vec::new();
    let mut running = BTreeSet::new();
    for n in 0..dice.whole(0, 3) {
        let (occupant, gpus, allowed): (Occupant, u32, BTreeSet<&PoolId>) = if dice.chance(0.5) && !problem.jobs.is_empty() {
            let job = &problem.jobs[dice.index(problem.jobs.len())];
            if !running.insert(&job.id) {
                continue;
            }
            (Occupant::Job { job: job.id.clone() }, job.gang, job.speed.keys().filter(|p| fits(problem, p, job.memory_per_gpu)).collect())
        } else {
            let variant = &problem.variants[dice.index(problem.variants.len())];
            let allowed = variant.pools.iter().filter(|p| fits(problem, p, variant.memory_per_gpu)).collect();
            (Occupant::Replica { replica: id(format!("r{n}")), variant: variant.id.clone() }, variant.gpus, allowed)
        };
        let islands: BTreeSet<_> = free.iter().filter(|g| allowed.contains(&g.pool)).map(|g| &g.island).collect();
        let wanted = usize::try_from(gpus).unwrap_or(0);
        let places: Vec<_> = islands.into_iter().filter(|i| free.iter().filter(|g| g.island == **i).count() >= wanted).collect();
        if places.is_empty() {
            continue;
        }
        let island = places[dice.index(places.len())];
        let taken: Vec<_> = free.iter().filter(|g| g.island == *island).take(wanted).map(|g| g.id.clone()).collect();
        free.retain(|g| !taken.contains(&g.id));
        let loading = dice.chance(0.2);
        let ready_at = AS_OF + Span(if loading { 60 * dice.whole(1, 12) } else { -60 * dice.whole(10, 100) });
        let protected_until = dice.chance(0.15).then(|| AS_OF + Span::minutes(dice.whole(1, 20)));
        residents.push(Resident { occupant, gpus: taken, since: AS_OF + Span::minutes(-120), ready_at, protected_until });
    }
    residents.sort_by(|a, b| a.gpus.cmp(&b.gpus));
    residents
}

fn fits(problem: &Problem, pool: &PoolId, memory: Bytes) -> bool {
    problem.pool(pool).is_some_and(|p| memory <= p.memory)
}
