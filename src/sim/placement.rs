//! Where a gang finds room: for the policies that place by themselves. A plan names its GPUs.

use crate::world::World;
use std::collections::BTreeMap;

/// So many free GPUs of one island among those `fits` accepts. The island with the least room that suffices is taken, so that large gaps stay
/// for large gangs; among equals the first.
pub(crate) fn free_gang(world: &World, count: usize, fits: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    let mut islands: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for (at, entry) in world.catalogue.gpus.iter().enumerate() {
        if world.gpus[at].is_free() && fits(at) {
            let island = islands.entry(entry.island.as_str()).or_default();
            if island.is_empty() {
                order.push(entry.island.as_str());
            }
            island.push(at);
        }
    }
    let island = order.iter().filter(|i| islands[**i].len() >= count).min_by_key(|i| islands[**i].len())?;
    Some(islands[*island][..count].to_vec())
}

/// Room for a replica of the variant.
pub(crate) fn room_for_replica(world: &World, variant: usize, allowed: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    let entry = &world.catalogue.variants[variant];
    free_gang(world, entry.gpus, |g| allowed(g) && world.catalogue.gpus[g].kind == entry.kind && world.catalogue.gpus[g].memory >= entry.memory)
}

/// Room for a job's gang, on the fastest kind of GPU that has it.
pub(crate) fn room_for_job(world: &World, job: usize, allowed: impl Fn(usize) -> bool) -> Option<Vec<usize>> {
    let entry = &world.catalogue.jobs[job];
    let mut speeds: Vec<f64> = entry.job.speed.values().copied().collect();
    speeds.sort_by(|a, b| b.total_cmp(a));
    speeds.dedup();
    let gang = entry.job.gang as usize;
    speeds.into_iter().find_map(|speed| free_gang(world, gang, |g| allowed(g) && entry.speed_on(&world.catalogue.gpus[g]) == Some(speed)))
}
