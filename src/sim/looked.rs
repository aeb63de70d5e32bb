//! What the loop gets to see: pages of replicas, readings of GPUs and jobs. Nothing of the truth passes here but what such pages would show.

use crate::gpu::Holder;
use crate::replica::{Counters, Replica, TTFT_BOUNDS_S};
use crate::world::World;
use cycle::{JobReading, JobState};
use fleet::{GpuReading, GpuStatus, Histogram, Reading, ReplicaId, Sample, Scrape, Signal, Span, Target, TargetId};

/// Whose page a target serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// One service's counters of a replica (position in the variant's services).
    Replica(ReplicaId, usize),
    /// The router of a service none of whose replicas is ready: it shows the queue.
    Router(usize),
}

/// An endpoint and what is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub target: Target,
    pub page: Page,
}

/// All endpoints there are now.
pub(crate) fn endpoints(world: &World) -> Vec<Endpoint> {
    let mut out = Vec::new();
    for (id, replica) in &world.replicas {
        let variant = &world.catalogue.variants[replica.variant];
        for (slot, service) in variant.services.iter().enumerate() {
            let workload = world.catalogue.services[*service].id.clone();
            let name = if variant.services.len() == 1 { id.to_string() } else { format!("{id}#{workload}") };
            let Ok(target) = TargetId::new(name) else { continue };
            let gpus = replica.gpus.iter().map(|g| world.catalogue.gpus[*g].id.clone()).collect();
            let target = Target { id: target, workload, variant: Some(variant.id.clone()), replica: Some(id.clone()), gpus, pod: None };
            out.push(Endpoint { target, page: Page::Replica(id.clone(), slot) });
        }
    }
    for (at, service) in world.catalogue.services.iter().enumerate() {
        let served = world.replicas.values().any(|r| r.is_ready(world.now) && service.variants.contains(&r.variant));
        let (false, Ok(id)) = (served, TargetId::new(format!("router/{}", service.id))) else { continue };
        let target = Target { id, workload: service.id.clone(), variant: None, replica: None, gpus: Vec::new(), pod: None };
        out.push(Endpoint { target, page: Page::Router(at) });
    }
    out
}

/// The service whose page it is; none when its replica is gone.
fn service_of(world: &World, page: &Page) -> Option<usize> {
    match page {
        Page::Replica(id, slot) => world.replicas.get(id).map(|r| world.catalogue.variants[r.variant].services[*slot]),
        Page::Router(service) => Some(*service),
    }
}

/// Whether the endpoint would answer.
pub(crate) fn answers(world: &World, page: &Page) -> bool {
    if service_of(world, page).is_some_and(|s| world.is_dark(s)) {
        return false;
    }
    match page {
        Page::Replica(id, _) => world.replicas.get(id).is_some_and(|r| r.is_ready(world.now)),
        Page::Router(_) => true,
    }
}

/// One look at an endpoint.
pub(crate) fn scrape(world: &World, endpoint: &Endpoint) -> Scrape {
    let at = world.now;
    let target = endpoint.target.id.clone();
    if service_of(world, &endpoint.page).is_some_and(|s| world.is_dark(s)) {
        return Scrape::failed(target, at, "no answer in time");
    }
    let samples = match &endpoint.page {
        Page::Router(service) => router_page(world.queues[*service].waiting()),
        Page::Replica(id, slot) => match world.replicas.get(id) {
            Some(replica) if replica.is_ready(at) => {
                let service = world.catalogue.variants[replica.variant].services[*slot];
                replica_page(&replica.counters[*slot], waiting_at(world, service, replica))
            }
            Some(_) => return Scrape::failed(target, at, "connection refused"),
            None => return Scrape::failed(target, at, "no route to host"),
        },
    };
    Scrape::read(target, at, samples)
}

/// The service's queue is one; each replica that has served for a minute shows its part of it.
fn waiting_at(world: &World, service: usize, replica: &Replica) -> f64 {
    let now = world.now;
    let entry = &world.catalogue.services[service];
    let settled = |r: &Replica| r.ready.0 <= now.0 - 60 && r.leaves.is_none();
    let mine = |r: &&Replica| entry.variants.contains(&r.variant);
    let any_settled = world.replicas.values().filter(mine).any(settled);
    let shows = |r: &Replica| if any_settled { settled(r) } else { r.is_ready(now) && r.leaves.is_none() };
    if !shows(replica) {
        return 0.0;
    }
    let sharing = world.replicas.values().filter(mine).filter(|r| shows(r)).count();
    world.queues[service].waiting() / crate::catalogue::minutes_f64(sharing.max(1))
}

fn scalar(signal: Signal, value: f64) -> Sample {
    Sample::of_target(signal, Reading::Scalar(value))
}

fn histogram(signal: Signal, value: &Histogram) -> Sample {
    Sample::of_target(signal, Reading::Histogram(value.clone()))
}

fn replica_page(counters: &Counters, waiting: f64) -> Vec<Sample> {
    vec![
        scalar(Signal::RequestsRunning, counters.running),
        scalar(Signal::RequestsWaiting, waiting),
        scalar(Signal::RequestsFinished, counters.finished),
        scalar(Signal::PromptTokens, counters.prompt_tokens),
        scalar(Signal::GenerationTokens, counters.generation_tokens),
        scalar(Signal::PrefixQueries, counters.prefix_queries),
        scalar(Signal::PrefixHits, counters.prefix_hits),
        histogram(Signal::TimeToFirstToken, &counters.ttft),
        histogram(Signal::InterTokenLatency, &counters.itl),
    ]
}

fn router_page(waiting: f64) -> Vec<Sample> {
    let none_yet = Histogram { sum: 0.0, count: 0.0, buckets: TTFT_BOUNDS_S.iter().map(|b| (*b, 0.0)).collect() };
    vec![scalar(Signal::RequestsRunning, 0.0), scalar(Signal::RequestsWaiting, waiting), histogram(Signal::TimeToFirstToken, &none_yet)]
}

/// One look at every GPU.
pub(crate) fn gpu_readings(world: &World) -> Vec<GpuReading> {
    let at = world.now;
    let status = |gpu: usize| {
        if world.gpus[gpu].failed {
            return GpuStatus::Failed("fell off the bus".into());
        }
        match &world.gpus[gpu].holder {
            None => GpuStatus::Free,
            Some(Holder::Job(job)) => GpuStatus::Job(world.catalogue.jobs[*job].id.clone()),
            Some(Holder::Replica(id)) => world.replicas.get(id).map_or(GpuStatus::Free, |replica| GpuStatus::Replica {
                replica: id.clone(),
                variant: world.catalogue.variants[replica.variant].id.clone(),
                // While it loads nobody knows the truth: what was expected, or a minute more once that has passed.
                ready_at: if replica.is_ready(at) { replica.ready } else { replica.expected_ready.max(at + Span::MINUTE) },
            }),
        }
    };
    (0..world.gpus.len()).map(|gpu| GpuReading { gpu: world.catalogue.gpus[gpu].id.clone(), at, status: status(gpu) }).collect()
}

/// One look at every job.
pub(crate) fn job_readings(world: &World) -> Vec<JobReading> {
    let entries = world.jobs.iter().zip(&world.catalogue.jobs);
    entries
        .map(|(job, entry)| JobReading {
            job: entry.id.clone(),
            at: world.now,
            state: match (&job.run, job.done_at) {
                (_, Some(_)) => JobState::Done,
                (Some(_), None) => JobState::Running,
                (None, None) => JobState::Waiting,
            },
            remaining_s: job.remaining_s,
            since_checkpoint_s: job.since_checkpoint_s,
            gpus: job.run.as_ref().map_or_else(Vec::new, |r| r.gpus.iter().map(|g| world.catalogue.gpus[*g].id.clone()).collect()),
            since: job.run.as_ref().map(|r| r.from),
        })
        .collect()
}
