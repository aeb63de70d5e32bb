//! The order becomes a problem: demand, capacity, jobs and prices, all in one currency.

use crate::{
    JobReading, JobState,
    demand::planned,
    order::{ServiceInput, WorkOrder},
    residency::round_up,
};
use fleet::{
    Capacity, Estimate, Forecast, Job, JobId, JobSpec, Occupant, PolicySpec, Pool, PoolId, PoolSpec, Problem, Provenance, Service, ServiceSpec, Span, Step,
    Timestamp, Variant, VariantId, VariantSpec, Workload, WorkloadId, planning_steps,
};
use models::ForecastSet;
use std::collections::{BTreeMap, BTreeSet};

/// Price of a GPU-hour where the user gave none: one unit of the currency. Unknown is never free, and only proportions matter then.
const NOMINAL_PRICE: f64 = 1.0;
/// Part of the time (per cent) beyond the horizon that a job can count on: the rest of its days services need the GPUs. (In the bundled scenario services need
/// their peak for some ten hours of a working day.) Without it work is put off until its deadline can no longer be met.
const COUNTED_ON_PERCENT: i64 = 60;
/// What a spare replica could earn instead, as a multiple of its price: the value the classes of jobs put on their hours, about.
const SPARE_HOUR_WORTH: f64 = 1.5;
/// Known hours of history before a service may shrink below what runs: one season.
const SEASON_HOURS: usize = 24;

/// A problem with the priors it started from.
pub(crate) struct Built {
    pub problem: Problem,
    pub priors: BTreeMap<WorkloadId, BTreeMap<VariantId, f64>>,
}

pub(crate) fn build(order: &WorkOrder, forecasts: &[ForecastSet]) -> Built {
    let steps = planning_steps(order.as_of, order.setup.policy.horizon);
    let mut notes = order.notes.clone();
    notes.extend(
        order
            .setup
            .fleet
            .pools
            .iter()
            .filter(|p| p.price_per_gpu_hour.is_none())
            .map(|p| format!("pool {} has no price: one {} per GPU-hour stands in for it", p.id, order.setup.fleet.currency)),
    );
    let mut priors: BTreeMap<WorkloadId, BTreeMap<VariantId, f64>> = BTreeMap::new();
    let mut services = Vec::new();
    for input in &order.services {
        let Some((workload, service)) = order.setup.workloads.iter().find(|w| w.id == input.workload).and_then(|w| Some((w, w.service()?))) else { continue };
        let published = forecasts.iter().find(|s| s.published.workload == workload.id).map(|s| &s.published);
        let prior = prior_capacities(order, input, service);
        services.push(service_spec(order, workload, service, input, published, &prior, &steps, &mut notes));
        priors.insert(workload.id.clone(), prior);
    }
    let end = steps.last().map_or(order.as_of, Step::end);
    let problem = Problem {
        as_of: order.as_of,
        currency: order.setup.fleet.currency.clone(),
        pools: order.setup.fleet.pools.iter().map(|p| pool_spec(order, p)).collect(),
        gpus: order.slots.clone(),
        variants: order.setup.variants.iter().map(|v| variant_spec(order, v)).collect(),
        services,
        jobs: order
            .setup
            .workloads
            .iter()
            .filter_map(|w| Some((w, w.job()?)))
            .filter(|(_, job)| job.release < end)
            .filter_map(|(w, job)| job_spec(order, w, job, end))
            .collect(),
        residents: order.residents.iter().filter(|r| is_known(order, r)).cloned().collect(),
        policy: policy_spec(order),
        parent: order.parent.clone(),
        calibration: order.calibration.id(),
        calibration_generation: order.calibration.generation,
        forecasts: forecasts.iter().map(|s| s.published.id.clone()).collect(),
        steps,
        notes,
        unlocated: order.unlocated.clone(),
    };
    Built { problem, priors }
}

fn price(pool: &Pool) -> f64 {
    pool.price_per_gpu_hour.unwrap_or(NOMINAL_PRICE)
}

/// Mean price of a GPU-hour over the pools of a kind.
fn kind_price(order: &WorkOrder, variant: &Variant) -> f64 {
    let pools = order.setup.fleet.pools.iter().filter(|p| p.kind == variant.kind);
    let (sum, count) = pools.fold((0.0, 0_u32), |(sum, count), pool| (sum + price(pool), count + 1));
    if count == 0 { NOMINAL_PRICE } else { sum / f64::from(count) }
}

fn pool_spec(order: &WorkOrder, pool: &Pool) -> PoolSpec {
    let memory = order.setup.fleet.kinds.get(&pool.kind).map_or(fleet::Bytes(0), |k| k.memory);
    let price = price(pool);
    let marginal = match pool.ownership {
        fleet::Ownership::Owned => 0.0,
        fleet::Ownership::Rented => price,
    };
    PoolSpec { id: pool.id.clone(), memory, marginal_per_gpu_hour: marginal, price_per_gpu_hour: price }
}

fn variant_spec(order: &WorkOrder, variant: &Variant) -> VariantSpec {
    let learned: Option<&Estimate> = order.calibration.cold_start.get(&variant.id);
    let cold_start = learned.map_or(variant.cold_start, |e| fleet::Span(round_up(e.value)));
    let gpu_hour = kind_price(order, variant) * f64::from(variant.gpus);
    let policy = &order.setup.policy;
    VariantSpec {
        id: variant.id.clone(),
        model: variant.model.clone(),
        pools: order.setup.fleet.pools.iter().filter(|p| p.kind == variant.kind).map(|p| p.id.clone()).collect(),
        gpus: variant.gpus,
        memory_per_gpu: variant.memory_per_gpu,
        cold_start,
        cold_start_provenance: if learned.is_some() { Provenance::Fitted } else { Provenance::Prior },
        start_cost: policy.start_cost_factor * cold_start.as_hours() * gpu_hour,
        stop_cost: policy.stop_cost_hours * gpu_hour,
    }
}

/// Requests/s of one replica by the documented priors, at the tokens and hit rate seen lately.
fn prior_capacities(order: &WorkOrder, input: &ServiceInput, service: &Service) -> BTreeMap<VariantId, f64> {
    let tokens_in = input.input_tokens.unwrap_or(service.tokens_prior.0);
    let tokens_out = input.output_tokens.unwrap_or(service.tokens_prior.1);
    let hit_rate = input.prefix_hit_rate.unwrap_or(0.0);
    let variants = service.variants.iter().filter_map(|id| order.setup.variants.iter().find(|v| &v.id == id));
    variants
        .map(|v| (v.id.clone(), models::capacity::requests_per_s(&v.speed, tokens_in, tokens_out, hit_rate, &service.target)))
        .filter(|(_, rate)| rate.is_finite() && *rate > 0.0)
        .collect()
}

#[expect(clippy::too_many_arguments, reason = "one service's share of an order, spelled out")]
fn service_spec(
    order: &WorkOrder,
    workload: &Workload,
    service: &Service,
    input: &ServiceInput,
    published: Option<&Forecast>,
    prior: &BTreeMap<VariantId, f64>,
    steps: &[Step],
    notes: &mut Vec<String>,
) -> ServiceSpec {
    let capacity: BTreeMap<VariantId, Capacity> = prior
        .iter()
        .map(|(variant, rate)| {
            let learned = order.calibration.capacity_factor(&workload.id, variant);
            let provenance = if learned.is_some() { Provenance::Fitted } else { Provenance::Prior };
            (variant.clone(), Capacity { per_replica: rate * learned.map_or(1.0, |e| e.value), provenance })
        })
        .collect();
    if capacity.is_empty() {
        notes.push(format!("{}: no variant can meet its target; its demand is a shortfall until the target or the variants change", workload.id));
    }
    let replica_hour =
        service.variants.iter().filter_map(|id| order.setup.variants.iter().find(|v| &v.id == id)).map(|v| kind_price(order, v) * f64::from(v.gpus));
    let replica_hour = replica_hour.fold(NOMINAL_PRICE, f64::max);
    let best = capacity.values().map(|c| c.per_replica).fold(0.0, f64::max);
    let defaults = workload.class.defaults();
    // Unknown penalty: as lateness of the class, per request of a fully used replica.
    let shortfall = service
        .penalty_per_request
        .unwrap_or_else(|| if best > 0.0 { defaults.lateness_per_price * replica_hour / (best * 3_600.0) } else { defaults.lateness_per_price });
    let level = service.level.unwrap_or_else(|| {
        // One replica too few makes late not only what it would have served: a queue forms, and all who join it wait.
        let usual = published.and_then(|f| f.quantile(order.as_of, 0.5)).unwrap_or(0.0);
        models::service_level(shortfall, best.max(usual), replica_hour * SPARE_HOUR_WORTH)
    });
    let state = order.calibration.forecasters.get(&workload.id);
    let running = replicas_of(order, service);
    let mut min_replicas = service.min_replicas;
    if !order.setup.policy.shrink_before_season && input.hourly.known() < SEASON_HOURS && running > min_replicas {
        min_replicas = running.min(service.max_replicas.max(service.min_replicas));
        notes.push(format!("{}: {} of {SEASON_HOURS} h seen, so it keeps the {running} replicas it has", workload.id, input.hourly.known()));
    }
    // A price per request would let a few requests go unserved; whoever asks at all has it running until nobody did for the stabilisation time.
    if min_replicas == 0 && service.max_replicas > 0 && (input.waiting > 0.0 || input.recent.iter().any(|rate| *rate > 0.0)) {
        min_replicas = 1;
    }
    if input.recent.is_empty() {
        notes.push(format!("{}: nothing known of its demand now; the forecast or what runs is held", workload.id));
        min_replicas = min_replicas.max(running.min(service.max_replicas));
    }
    ServiceSpec {
        id: workload.id.clone(),
        class: workload.class,
        priority: workload.priority,
        demand: planned(input, published, state, level, steps, order.as_of),
        level,
        capacity,
        min_replicas,
        max_replicas: service.max_replicas,
        shortfall_per_request: shortfall,
        bound_price_per_hour: defaults.lateness_per_price * replica_hour,
    }
}

fn replicas_of(order: &WorkOrder, service: &Service) -> u32 {
    let serves = |o: &Occupant| matches!(o, Occupant::Replica { variant, .. } if service.variants.contains(variant));
    u32::try_from(order.residents.iter().filter(|r| serves(&r.occupant)).count()).unwrap_or(u32::MAX)
}

/// A deadline beyond the horizon, drawn in by the time that cannot be counted on.
fn counted_on(deadline: Timestamp, horizon: Timestamp) -> Timestamp {
    if deadline <= horizon { deadline } else { horizon + Span(deadline.since(horizon).0 * COUNTED_ON_PERCENT / 100) }
}

fn job_spec(order: &WorkOrder, workload: &Workload, job: &Job, end: Timestamp) -> Option<JobSpec> {
    let id = JobId::new(workload.id.as_str()).ok()?;
    let reading: Option<&JobReading> = order.jobs.iter().find(|r| r.job == id);
    let (remaining, since_checkpoint) = match reading {
        Some(r) if r.state == JobState::Done => return None,
        Some(r) => (r.remaining_s.max(1.0), r.since_checkpoint_s.max(0.0)),
        None => (job.work.as_secs_f64(), 0.0),
    };
    let pools = order.setup.fleet.pools.iter();
    let speed: BTreeMap<PoolId, f64> = pools.filter_map(|p| Some((p.id.clone(), *job.speed.get(&p.kind)?))).collect();
    let gang = f64::from(job.gang);
    let overdue = job.deadline.is_some_and(|d| d <= order.as_of);
    // Overdue work is worth what its lateness costs as well: every hour sooner saves it.
    let value = job.value_per_gpu_hour * gang + if overdue { job.lateness_per_hour } else { 0.0 };
    Some(JobSpec {
        id,
        class: workload.class,
        gang: job.gang,
        memory_per_gpu: job.memory_per_gpu,
        speed,
        remaining_s: remaining,
        earliest: job.release.max(order.as_of),
        deadline: job.deadline.map(|d| counted_on(d, end)),
        value_per_hour: value,
        lateness_per_hour: job.lateness_per_hour,
        checkpoint_s: job.checkpoint.map(fleet::Span::as_secs_f64),
        since_checkpoint_s: since_checkpoint,
        preemptible: job.preemptible && job.checkpoint.is_some(),
        startup: job.startup,
    })
}

/// Residents whose job is finished or was never asked for are not part of the problem.
fn is_known(order: &WorkOrder, resident: &fleet::Resident) -> bool {
    let jobs: BTreeSet<&str> = order.setup.workloads.iter().filter(|w| w.job().is_some()).map(|w| w.id.as_str()).collect();
    match &resident.occupant {
        Occupant::Replica { variant, .. } => order.setup.variants.iter().any(|v| &v.id == variant),
        Occupant::Job { job } => jobs.contains(job.as_str()) && !order.jobs.iter().any(|r| &r.job == job && r.state == JobState::Done),
    }
}

fn policy_spec(order: &WorkOrder) -> PolicySpec {
    let policy = &order.setup.policy;
    PolicySpec {
        advisory: policy.advisory,
        stops_max: policy.stops_max,
        mip_gap: policy.mip_gap,
        nodes_max: policy.nodes_max,
        watchdog: policy.watchdog,
        validity: policy.validity,
        delay_per_hour: policy.delay_per_hour,
    }
}
