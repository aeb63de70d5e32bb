//! A problem with one feature taken away. What was allowed before is allowed still, at the same money, so the minimum can only fall.

use super::instance::id;
use fleet::{JobSpec, Occupant, Problem, Resident, Span};

/// Replicas that begin now serve at once.
pub fn warm(problem: &Problem) -> Problem {
    let mut relaxed = problem.clone();
    relaxed.variants.iter_mut().for_each(|v| v.cold_start = Span(0));
    relaxed
}

/// Starts and stops cost nothing.
pub fn free_changes(problem: &Problem) -> Problem {
    let mut relaxed = problem.clone();
    relaxed.variants.iter_mut().for_each(|v| (v.start_cost, v.stop_cost) = (0.0, 0.0));
    relaxed
}

/// All GPUs of a pool are joined.
pub fn one_island(problem: &Problem) -> Problem {
    let mut relaxed = problem.clone();
    relaxed.gpus.iter_mut().for_each(|g| g.island = id(format!("all-{}", g.pool)));
    relaxed
}

/// A gang becomes single GPUs, each with the whole time and its part of the money, free to run by themselves.
pub fn without_gangs(problem: &Problem) -> Problem {
    let mut relaxed = problem.clone();
    relaxed.jobs = problem.jobs.iter().flat_map(parts).collect();
    relaxed.residents = problem.residents.iter().flat_map(resident_parts).collect();
    relaxed
}

fn parts(job: &JobSpec) -> Vec<JobSpec> {
    let share = 1.0 / f64::from(job.gang);
    (0..job.gang)
        .map(|k| JobSpec {
            id: id(format!("{}-{k}", job.id)),
            gang: 1,
            value_per_hour: job.value_per_hour * share,
            lateness_per_hour: job.lateness_per_hour * share,
            ..job.clone()
        })
        .collect()
}

fn resident_parts(resident: &Resident) -> Vec<Resident> {
    match &resident.occupant {
        Occupant::Replica { .. } => vec![resident.clone()],
        Occupant::Job { job } => resident
            .gpus
            .iter()
            .enumerate()
            .map(|(k, gpu)| Resident { occupant: Occupant::Job { job: id(format!("{job}-{k}")) }, gpus: vec![gpu.clone()], ..resident.clone() })
            .collect(),
    }
}
