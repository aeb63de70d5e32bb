//! First come, first served: whoever has asked longest takes the next GPUs that are free, and nobody is stopped to make room.
//!
//! Jobs ask from their release until they run. A service asks for one more replica when the load of the last minutes exceeds a threshold of
//! what its replicas are believed to serve, or a queue has formed; it gives one back after a calm spell. This is the reactive autoscaling of
//! Knative and KEDA, with their usual figures, beside a plain queue of jobs.

use crate::account::Kept;
use crate::placement::{room_for_job, room_for_replica};
use crate::policy::Policy;
use crate::turnaround::LoopReport;
use crate::world::World;
use fleet::{ReplicaId, Span, Timestamp};

/// Share of the believed capacity above which one more replica is asked for (Knative's default target utilisation).
const FILL_MAX: f64 = 0.7;
/// Load is averaged over so many minutes.
const LOOK_BACK: usize = 2;
/// Calm time after which a replica goes (between the five minutes of Kubernetes' default and the half hour of careful teams).
const CALM: Span = Span::minutes(20);

#[derive(Default)]
pub(crate) struct NextFreeGpu {
    /// By service: since when it asks for more.
    asks_since: Vec<Option<Timestamp>>,
    /// By service: since when one less would do.
    calm_since: Vec<Option<Timestamp>>,
    started: u64,
}

enum Asker {
    Service(usize),
    Job(usize),
}

impl NextFreeGpu {
    /// What one service wants in this minute: updates its clocks, stops what it no longer needs.
    fn look(&mut self, world: &mut World, at: usize) {
        let now = world.now;
        let service = &world.catalogue.services[at];
        let mine: Vec<(ReplicaId, usize, bool)> = world
            .replicas
            .iter()
            .filter(|(_, r)| r.leaves.is_none() && service.variants.contains(&r.variant))
            .map(|(id, r)| (id.clone(), r.variant, r.is_ready(now)))
            .collect();
        let from = world.minute.saturating_sub(LOOK_BACK);
        let seen = &service.arrivals[from..world.minute];
        let load = if seen.is_empty() { 0.0 } else { seen.iter().sum::<f64>() / crate::catalogue::minutes_f64(seen.len()) / 60.0 };
        let believed: f64 = mine.iter().map(|(_, v, _)| service.prior(*v)).sum();
        let queued = world.queues[at].waiting() > 0.5 && mine.iter().all(|(_, _, ready)| *ready);
        let short = mine.len() < service.min_replicas.max(1) || load > FILL_MAX * believed || queued;
        let wants = short && mine.len() < service.max_replicas;
        self.asks_since[at] = wants.then(|| self.asks_since[at].unwrap_or(now));
        // The newest ready replica is the one that could go.
        let last = mine.iter().filter(|(_, _, ready)| *ready).max_by_key(|(id, _, _)| world.replicas[id].started);
        let spare = last.filter(|(_, v, _)| mine.len() > service.min_replicas.max(1) && load < FILL_MAX * (believed - service.prior(*v)) && !queued);
        let since = spare.map(|_| self.calm_since[at].unwrap_or(now));
        self.calm_since[at] = since;
        if let (Some((id, _, _)), Some(since)) = (spare, since)
            && now.since(since) >= CALM
        {
            self.calm_since[at] = None;
            world.drain_replica(id);
        }
    }

    fn start(&mut self, world: &mut World, at: usize) {
        for variant in world.catalogue.services[at].variants.clone() {
            let Some(gpus) = room_for_replica(world, variant, |_| true) else { continue };
            self.started += 1;
            let name = format!("{}@{}", world.catalogue.variants[variant].id, self.started);
            if ReplicaId::new(name).is_ok_and(|id| world.start_replica(&id, variant, &gpus, world.now)) {
                self.asks_since[at] = None;
                return;
            }
        }
    }
}

impl Policy for NextFreeGpu {
    fn act(&mut self, world: &mut World) {
        let services = world.catalogue.services.len();
        self.asks_since.resize(services, None);
        self.calm_since.resize(services, None);
        for at in 0..services {
            self.look(world, at);
        }
        let mut queue: Vec<(Timestamp, u8, Asker)> = (0..services).filter_map(|at| Some((self.asks_since[at]?, 0, Asker::Service(at)))).collect();
        queue.extend(world.waiting_jobs().into_iter().map(|job| (world.catalogue.jobs[job].job.release, 1, Asker::Job(job))));
        queue.sort_by_key(|(since, class, _)| (*since, *class));
        for (_, _, asker) in queue {
            match asker {
                Asker::Service(at) => self.start(world, at),
                Asker::Job(job) => {
                    if let Some(gpus) = room_for_job(world, job, |_| true) {
                        world.start_job(job, &gpus);
                    }
                }
            }
        }
    }

    fn kept(&self, _: &World) -> Kept {
        Kept::default()
    }

    fn report(self: Box<Self>, _: &World) -> Option<LoopReport> {
        None
    }
}
