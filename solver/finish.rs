//! Runs that are complete give their GPUs back, also where nobody wants them and the program does not care.

use crate::placement::{Origin, run_in};
use crate::program::Program;

/// Work within this many hours of what is needed counts as all of it.
const SLACK_HOURS: f64 = 1e-9;

/// Ends every run at the first instant at which it is complete and may end.
pub(crate) fn finish_runs(program: &Program, values: &mut [f64]) {
    let sets = program.sets;
    for j in (0..sets.problem.jobs.len()).filter(|j| sets.is_worth_running(*j)) {
        let mut done = 0.0;
        let need = sets.job(j).remaining_s / 3_600.0 + redone(program, values, j);
        for t in sets.near() {
            if done >= need - SLACK_HOURS && sets.free(j, t) {
                end_from(program, values, j, t);
                break;
            }
            for (b, bin) in program.bins.list.iter().enumerate() {
                done += match run_in(program, values, j, b, t) {
                    None => 0.0,
                    Some(Origin::Resident) => sets.resident_speed(j) * sets.runs[j].as_ref().map_or(0.0, |r| sets.hours_after(r.ready_at, t)),
                    Some(Origin::Begun(tau)) => sets.speed[j][bin.pool].unwrap_or(0.0) * sets.hours_after(sets.start(tau) + sets.job(j).startup, t),
                };
            }
        }
    }
}

fn redone(program: &Program, values: &[f64], j: usize) -> f64 {
    let kept = |t: usize| program.columns.kept.get(&(j, t)).map(|c| values[c.index] > 0.5);
    let ends = program.sets.near().find(|t| kept(*t) == Some(false));
    ends.map_or(0.0, |t| program.sets.redo(j, t) / 3_600.0)
}

/// Where a job may be complete every step has columns of its own, so that later ones can be cleared alone.
fn end_from(program: &Program, values: &mut [f64], j: usize, t: usize) {
    for later in t..program.sets.committed {
        if let Some(kept) = program.columns.kept.get(&(j, later)) {
            values[kept.index] = 0.0;
        }
        for b in 0..program.bins.list.len() {
            for tau in 0..=later {
                if let Some(going) = program.columns.going.get(&(j, b, tau, later)) {
                    values[going.index] = 0.0;
                }
            }
        }
    }
}
