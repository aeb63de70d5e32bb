//! Every minute of every GPU gets its name, for all policies by the same rule.
//!
//! Serving: useful = served / what the replica could have served at its target; of what it could serve and did not, as much as the plan in
//! force needs for load forecast later is held, the rest idle. Loading and draining are loading. Job work is useful once a checkpoint keeps
//! it; what a stop throws away is booked as work to be done again. A free GPU is held when the plan in force says so, else idle.

use crate::gpu::Holder;
use crate::map::MapMaker;
use crate::world::World;
use fleet::{HourKind, Ledger, ReplicaId, Span};
use std::collections::BTreeMap;

/// A GPU-minute of a job whose name is not known before the next checkpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingMinute {
    price: f64,
    loading: f64,
    working: f64,
}

/// What the policy keeps for what it expects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    /// GPUs kept free, by position; shorter means none.
    pub gpus: Vec<bool>,
    /// Load expected in the next hours, requests/s, by service position; shorter means none.
    pub load: Vec<f64>,
}

/// The books.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub ledger: Ledger,
    /// A GPU without a price was used: the bill is not known.
    pub unpriced: bool,
    /// GPU-minutes that had to be named: every minute of owned GPUs, those held of rented ones.
    pub calendar_minutes: u64,
}

/// Shares are computed from sums of others; rounding must not make a minute longer than itself.
const ROUNDING: f64 = 1e-9;

impl Books {
    fn book(&mut self, price: Option<f64>, shares: &[(HourKind, f64)], rest: HourKind) {
        self.unpriced |= price.is_none();
        let total: f64 = shares.iter().map(|(_, s)| s.max(0.0)).sum();
        let scale = if total > 1.0 { (1.0 - ROUNDING) / total } else { 1.0 };
        let mut sound = [(HourKind::Idle, 0.0); 4];
        for (slot, (kind, share)) in sound.iter_mut().zip(shares) {
            *slot = (*kind, share.max(0.0) * scale);
        }
        let booked = self.ledger.book(Span::MINUTE, price.unwrap_or(0.0), &sound[..shares.len()], rest);
        debug_assert!(booked.is_ok(), "{booked:?}");
    }

    fn book_pending(&mut self, minute: PendingMinute, kept: bool) {
        let work = if kept { HourKind::UsefulLater } else { HourKind::LoadingOrRedo };
        self.book(Some(minute.price), &[(HourKind::LoadingOrRedo, minute.loading), (work, minute.working)], HourKind::Idle);
    }

    /// A job's work since its checkpoint is now safe (or lost).
    pub fn settle(&mut self, pending: &mut Vec<PendingMinute>, kept: bool) {
        for minute in pending.drain(..) {
            self.book_pending(minute, kept);
        }
    }

    /// Books the minute the world has just lived through.
    pub fn minute(&mut self, world: &mut World, kept: &Kept, map: &mut MapMaker) {
        let scored = world.is_scored();
        let spare_kept = spare_kept(world, kept);
        for at in 0..world.gpus.len() {
            let entry = &world.catalogue.gpus[at];
            let holder = world.gpus[at].holder.clone();
            map.mark(at, letter(world, map, at));
            if !scored || (entry.rented && holder.is_none()) {
                continue;
            }
            let price = entry.price;
            self.calendar_minutes += 1;
            match holder {
                _ if world.gpus[at].failed => self.book(price, &[], HourKind::Failed),
                None if kept.gpus.get(at) == Some(&true) => self.book(price, &[], HourKind::Held),
                None => self.book(price, &[], HourKind::Idle),
                Some(Holder::Replica(id)) => self.replica_minute(world, &id, price, &spare_kept),
                Some(Holder::Job(job)) => {
                    self.unpriced |= price.is_none();
                    let minute = world.job_minutes[job];
                    world.jobs[job].pending.push(PendingMinute { price: price.unwrap_or(0.0), loading: minute.loading, working: minute.working });
                }
            }
        }
        for job in 0..world.jobs.len() {
            if world.job_minutes[job].safe {
                self.settle(&mut world.jobs[job].pending, true);
            }
        }
        map.end_minute(world.now);
    }

    fn replica_minute(&mut self, world: &World, id: &ReplicaId, price: Option<f64>, spare_kept: &BTreeMap<usize, f64>) {
        let Some(replica) = world.replicas.get(id) else { return self.book(price, &[], HourKind::Idle) };
        let serving = replica.serving_share(world.now);
        let used = world.used.get(id).copied().unwrap_or_default();
        let spare = (serving - used.cannot_wait - used.can_wait).max(0.0);
        let shares = [
            (HourKind::UsefulNow, used.cannot_wait),
            (HourKind::UsefulLater, used.can_wait),
            (HourKind::Held, spare * spare_kept.get(&replica.variant).copied().unwrap_or(0.0)),
            (HourKind::LoadingOrRedo, 1.0 - serving),
        ];
        self.book(price, &shares, HourKind::Idle);
    }
}

/// What the GPU's minute looks like on the map.
fn letter(world: &World, map: &MapMaker, gpu: usize) -> char {
    match &world.gpus[gpu].holder {
        _ if world.gpus[gpu].failed => 'X',
        None => '.',
        Some(Holder::Replica(id)) => match world.replicas.get(id) {
            Some(replica) if replica.serving_share(world.now) >= 0.5 => map.service(&world.catalogue, replica.variant),
            _ => 'L',
        },
        Some(Holder::Job(job)) if world.job_minutes[*job].loading > 0.5 => 'L',
        Some(Holder::Job(job)) => map.job(world.catalogue.jobs[*job].class),
    }
}

/// Share of the spare capacity of each variant's ready replicas that the load expected later will need.
fn spare_kept(world: &World, kept: &Kept) -> BTreeMap<usize, f64> {
    let mut shares = BTreeMap::new();
    for (at, service) in world.catalogue.services.iter().enumerate() {
        let (ready, served) = (world.capacity_now[at], world.served_now[at] / 60.0);
        let Some(later) = kept.load.get(at).copied().filter(|l| *l > served && ready > served) else { continue };
        let share = ((later.min(ready) - served) / (ready - served)).clamp(0.0, 1.0);
        for variant in &service.variants {
            let known = shares.entry(*variant).or_insert(0.0_f64);
            *known = known.max(share);
        }
    }
    shares
}
