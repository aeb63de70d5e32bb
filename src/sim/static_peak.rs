//! A pool for each service, sized for its peak and never shared; what is left is a pool for jobs, first released, first served.
//!
//! The peak is the highest hour before scoring begins (of everything, when nothing lies before), as a careful team would read it from last
//! week's charts, at the capacity people believe in and with the usual headroom.

use crate::account::Kept;
use crate::catalogue::ServiceEntry;
use crate::placement::{room_for_job, room_for_replica};
use crate::policy::Policy;
use crate::turnaround::LoopReport;
use crate::world::World;
use fleet::{ReplicaId, Timestamp};

/// Share of the believed capacity a static pool is filled to at its peak: the usual 80 % rule of capacity planning.
const PEAK_FILL: f64 = 0.8;

pub(crate) struct StaticPeak {
    score_from: Timestamp,
    /// Variant and GPUs of each place for a replica.
    places: Option<Vec<(usize, Vec<usize>)>>,
    /// By GPU: belongs to a service.
    owned: Vec<bool>,
    /// Failed and drained places start again under a new number.
    started: u64,
}

impl StaticPeak {
    pub fn new(score_from: Timestamp) -> Self {
        Self { score_from, places: None, owned: Vec::new(), started: 0 }
    }

    fn allot(&mut self, world: &World) -> Vec<(usize, Vec<usize>)> {
        self.owned = vec![false; world.gpus.len()];
        let mut places = Vec::new();
        let known = usize::try_from(self.score_from.since(world.catalogue.start).0 / 60).unwrap_or(0);
        for at in &world.catalogue.by_priority {
            let service = &world.catalogue.services[*at];
            let mut unmet = peak_per_s(service, known) / PEAK_FILL;
            let mut replicas = 0;
            for variant in &service.variants {
                while replicas < service.max_replicas && (unmet > 0.0 || replicas < service.min_replicas) {
                    let Some(gpus) = room_for_replica(world, *variant, |g| !self.owned[g]) else { break };
                    for gpu in &gpus {
                        self.owned[*gpu] = true;
                    }
                    unmet -= service.prior(*variant);
                    replicas += 1;
                    places.push((*variant, gpus));
                }
            }
        }
        places
    }
}

/// The highest hourly mean in the first `known` minutes, or in all when there are none.
fn peak_per_s(service: &ServiceEntry, known: usize) -> f64 {
    let seen = if known >= 60 { &service.mean_per_s[..known.min(service.mean_per_s.len())] } else { &service.mean_per_s[..] };
    seen.chunks(60).map(|hour| hour.iter().sum::<f64>() / crate::catalogue::minutes_f64(hour.len())).fold(0.0, f64::max)
}

impl Policy for StaticPeak {
    fn act(&mut self, world: &mut World) {
        let places = match self.places.take() {
            Some(places) => places,
            None => self.allot(world),
        };
        for (variant, gpus) in &places {
            if gpus.iter().all(|g| world.gpus[*g].is_free()) {
                self.started += 1;
                let name = format!("{}@{}", world.catalogue.variants[*variant].id, self.started);
                if let Ok(id) = ReplicaId::new(name) {
                    world.start_replica(&id, *variant, gpus, world.now);
                }
            }
        }
        self.places = Some(places);
        for job in world.waiting_jobs() {
            if let Some(gpus) = room_for_job(world, job, |g| !self.owned[g]) {
                world.start_job(job, &gpus);
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
