//! The search: `HiGHS` on one thread with a fixed seed, and what its statuses mean.

use crate::dive::dive;
use crate::hot::{Hot, Linear};
use crate::program::Program;
use crate::rounding::whole;
use fleet::{PolicySpec, SolveStatus};
use highs::{HighsModelStatus, HighsSolutionStatus, Model, SolvedModel};

/// Seed of every random choice inside `HiGHS`.
const SEED: i32 = 1;

/// Integrality tolerance of the second attempt, when a value of the first was not whole.
const STRICT: f64 = 1e-9;

/// Up to this many integer columns the heuristics that solve smaller programs inside the program take longer than the tree.
const INTEGERS_SMALL: u64 = 400;

/// What became of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A solution to use, and what to call it.
    Use(SolveStatus),
    /// A limit was reached and nothing was found: the plan in force stays.
    TimedOut,
    /// The search itself went wrong.
    Failed,
}

/// How a search ended, without `HiGHS`' many words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It proved what it was asked for.
    Proved,
    /// It ran into a limit of nodes or time.
    Limit,
    /// Anything else.
    Error,
}

/// Tells the four cases apart. The gap decides what a solution is called, not the status: a search may stop at a limit within the gap.
pub(crate) fn judge(ended: Ended, incumbent: bool, gap: f64, target: f64) -> Verdict {
    match (ended, incumbent) {
        (Ended::Error, _) | (Ended::Proved, false) => Verdict::Failed,
        (Ended::Limit, false) => Verdict::TimedOut,
        (_, true) if gap <= target + 1e-9 => Verdict::Use(SolveStatus::Optimal),
        (_, true) => Verdict::Use(SolveStatus::Feasible),
    }
}

/// A feasible solution and how it was found.
#[derive(Debug, Clone)]
pub(crate) struct Incumbent {
    /// Value of each column; integer columns hold whole numbers.
    pub values: Vec<f64>,
    /// Its objective, constant included.
    pub objective: f64,
    /// No solution of the program costs less, constant included.
    pub bound: f64,
    /// How the search ended.
    pub ended: Ended,
    /// Nodes of the tree.
    pub nodes: u64,
    /// False when the watchdog cut it short.
    pub reproducible: bool,
}

impl Incumbent {
    /// Whether solution and bound agree with the way the search ended: a proof within the gap asked for, or a limit.
    fn holds(&self, target: f64) -> bool {
        let gap = (self.objective - self.bound) / self.objective.abs().max(1e-9);
        self.ended != Ended::Proved || gap <= target + 1e-6 || self.objective - self.bound <= 1e-6
    }
}

/// A search without a solution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Nothing {
    /// A limit was reached first.
    TimedOut,
    /// It went wrong, in words.
    Failed(String),
}

/// Searches for whole numbers: by a dive from the relaxation, and where that is not within the gap by branch and bound from the best
/// solution known, "everything stays" if there is no other. Also the linear program, still warm.
///
/// # Errors
/// When there is no solution to use.
pub(crate) fn search(program: &Program, policy: &PolicySpec) -> Result<(Incumbent, Hot), Nothing> {
    let mut hot = Hot::new(program, policy.watchdog.as_secs_f64().max(0.0)).map_err(Nothing::Failed)?;
    let relaxed = hot.solve();
    if let Some(relaxed) = &relaxed {
        // Within the gap of whatever lies between: `found - relaxed <= gap |found|`.
        let budget = policy.mip_gap * relaxed.objective.abs() / (1.0 + policy.mip_gap);
        let cutoff = relaxed.objective + budget;
        // Without a tree whatever the dive finds is taken, and called feasible with its gap.
        let (cutoff, ended) = if policy.nodes_max == 0 { (f64::INFINITY, Ended::Limit) } else { (cutoff, Ended::Proved) };
        let dived = dive(program, &mut hot, relaxed, budget, cutoff);
        if let Some((values, objective)) = dived.and_then(|dived| Some((round(program, &dived)?, dived.objective))) {
            return Ok((Incumbent { values, objective, bound: relaxed.objective, ended, nodes: 0, reproducible: true }, hot));
        }
    }
    // What the integers really cost comes from the linear program, not from the search: the two have been seen to differ.
    let mut cost = |found: Result<Incumbent, f64>| {
        found.map(|found| {
            hot.fix(program, &found.values);
            let objective = hot.solve().map_or(f64::INFINITY, |linear| linear.objective);
            Incumbent { objective, ..found }
        })
    };
    let first = cost(branch(program, policy, Attempt::Quick)?);
    let found = match first {
        Ok(found) if found.holds(policy.mip_gap) => found,
        // A proof that its own solution belies, or a value that is not whole: once more, from nothing and with care.
        doubtful => match (branch(program, policy, Attempt::Careful).map(&mut cost), doubtful) {
            (Ok(Ok(careful)), Ok(quick)) if quick.objective < careful.objective => Incumbent { bound: careful.bound, ..quick },
            (Ok(Ok(careful)), _) => careful,
            (_, Ok(quick)) => quick,
            (Ok(Err(value)), Err(_)) => return Err(Nothing::Failed(format!("the search returned {value} for a whole number, twice"))),
            (Err(nothing), Err(_)) => return Err(nothing),
        },
    };
    Ok((found, hot))
}

/// How a search is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// From "everything stays", in small programs without the heuristics that take longer than the tree.
    Quick,
    /// From nothing, with all heuristics and a strict tolerance.
    Careful,
}

/// The values with whole numbers in integer columns; `None` when one is none.
fn round(program: &Program, linear: &Linear) -> Option<Vec<f64>> {
    let columns = linear.values.iter().zip(program.limits());
    columns.map(|(value, limits)| if limits.integer { whole(*value) } else { Some(*value) }).collect()
}

/// One run of `HiGHS`. The inner error is a value that is not whole.
fn branch(program: &Program, policy: &PolicySpec, attempt: Attempt) -> Result<Result<Incumbent, f64>, Nothing> {
    let mut model = program.model(program.limits()).map_err(Nothing::Failed)?;
    configure(&mut model, policy, program.size()[2], attempt).map_err(Nothing::Failed)?;
    if program.limits().is_empty() {
        return Ok(Ok(Incumbent {
            values: Vec::new(),
            objective: program.constant(),
            bound: program.constant(),
            ended: Ended::Proved,
            nodes: 0,
            reproducible: true,
        }));
    }
    if attempt == Attempt::Quick {
        let start = program.staying();
        model.try_set_solution(Some(&start), None, None, None).map_err(|e| Nothing::Failed(format!("HiGHS refuses a start solution: {e:?}")))?;
    }
    let solved = model.try_solve().map_err(|e| Nothing::Failed(format!("HiGHS could not run: {e:?}")))?;
    let status = solved.status();
    let ended = match status {
        HighsModelStatus::Optimal | HighsModelStatus::ModelEmpty => Ended::Proved,
        HighsModelStatus::ReachedTimeLimit
        | HighsModelStatus::ReachedSolutionLimit
        | HighsModelStatus::ReachedIterationLimit
        | HighsModelStatus::ReachedInterrupt
        | HighsModelStatus::ReachedMemoryLimit => Ended::Limit,
        _ => Ended::Error,
    };
    let incumbent = status == HighsModelStatus::ModelEmpty || solved.primal_solution_status() == HighsSolutionStatus::Feasible;
    match judge(ended, incumbent, f64::INFINITY, policy.mip_gap) {
        Verdict::Failed => return Err(Nothing::Failed(format!("the search ended with {status:?}"))),
        Verdict::TimedOut => return Err(Nothing::TimedOut),
        Verdict::Use(_) => {}
    }
    let mut values = solved.get_solution().columns().to_vec();
    for (value, limits) in values.iter_mut().zip(program.limits()).filter(|(_, limits)| limits.integer) {
        match whole(*value) {
            Some(rounded) if (limits.least..=limits.most).contains(&rounded) => *value = rounded,
            _ => return Ok(Err(*value)),
        }
    }
    let bound = bound(program, &solved) + program.constant();
    let nodes = nodes(&solved);
    let objective = solved.objective_value() + program.constant();
    Ok(Ok(Incumbent { values, objective, bound, ended, nodes, reproducible: status != HighsModelStatus::ReachedTimeLimit }))
}

/// The dual bound of a MIP; the objective where there are no integers to search for.
fn bound(program: &Program, solved: &SolvedModel) -> f64 {
    let bound = solved.double_info_value(c"mip_dual_bound").ok().filter(|b| b.is_finite() && program.limits().iter().any(|l| l.integer));
    bound.unwrap_or_else(|| solved.objective_value())
}

/// Nodes of the branch-and-bound tree.
#[expect(unsafe_code, reason = "the safe binding does not read 64-bit figures")]
fn nodes(solved: &SolvedModel) -> u64 {
    let mut nodes: i64 = 0;
    // SAFETY: the pointer is that of a live model, the name ends in NUL, and HiGHS writes one int64 for a figure of that type.
    let status = unsafe { highs_sys::Highs_getInt64InfoValue(solved.as_ptr(), c"mip_node_count".as_ptr(), &raw mut nodes) };
    if status == highs_sys::STATUS_OK { u64::try_from(nodes).unwrap_or(0) } else { 0 }
}

fn configure(model: &mut Model, policy: &PolicySpec, integers: u64, attempt: Attempt) -> Result<(), String> {
    let refused = |name: &str| format!("HiGHS refuses the option {name}");
    settle(model)?;
    model.try_set_option("mip_rel_gap", policy.mip_gap).map_err(|_| refused("mip_rel_gap"))?;
    model.try_set_option("mip_max_nodes", i32::try_from(policy.nodes_max).unwrap_or(i32::MAX)).map_err(|_| refused("mip_max_nodes"))?;
    model.try_set_option("time_limit", policy.watchdog.as_secs_f64().max(0.0)).map_err(|_| refused("time_limit"))?;
    if attempt == Attempt::Quick && integers <= INTEGERS_SMALL {
        for name in ["mip_heuristic_run_rens", "mip_heuristic_run_rins", "mip_heuristic_run_root_reduced_cost", "mip_heuristic_run_feasibility_jump"] {
            model.try_set_option(name, false).map_err(|_| refused(name))?;
        }
        model.try_set_option("mip_detect_symmetry", false).map_err(|_| refused("mip_detect_symmetry"))?;
    }
    if attempt == Attempt::Careful {
        model.try_set_option("mip_feasibility_tolerance", STRICT).map_err(|_| refused("mip_feasibility_tolerance"))?;
    }
    Ok(())
}

/// What every run has in common: the same input gives the same bytes.
pub(crate) fn settle(model: &mut Model) -> Result<(), String> {
    let refused = |name: &str| format!("HiGHS refuses the option {name}");
    model.try_set_option("threads", 1).map_err(|_| refused("threads"))?;
    model.try_set_option("parallel", "off").map_err(|_| refused("parallel"))?;
    model.try_set_option("random_seed", SEED).map_err(|_| refused("random_seed"))
}

impl Program<'_> {
    /// The integers of "everything that runs stays, nothing begins", which no rule forbids. Other columns are 0, for `HiGHS` to complete.
    fn staying(&self) -> Vec<f64> {
        let mut values = vec![0.0; self.limits().len()];
        for ((v, b, _), held) in &self.columns.held {
            let islands = &self.bins.list[*b].islands;
            values[held.index] = self.sets.replicas.iter().filter(|r| r.variant == *v && islands.contains(&r.island)).map(|_| 1.0).sum();
        }
        for kept in self.columns.kept.values() {
            values[kept.index] = 1.0;
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Field case 57: a time-out is neither optimal nor infeasible, and a good solution found before the limit is used.
    #[test]
    fn the_four_ends_are_told_apart() {
        assert_eq!(judge(Ended::Limit, true, 0.12, 0.01), Verdict::Use(SolveStatus::Feasible));
        assert_eq!(judge(Ended::Limit, false, f64::INFINITY, 0.01), Verdict::TimedOut);
        assert_eq!(judge(Ended::Proved, true, 0.004, 0.01), Verdict::Use(SolveStatus::Optimal));
        assert_eq!(judge(Ended::Error, true, 0.0, 0.01), Verdict::Failed);
        // Judged by gap, not by status: a limit reached within the gap, and an "optimal" that is not.
        assert_eq!(judge(Ended::Limit, true, 0.004, 0.01), Verdict::Use(SolveStatus::Optimal));
        assert_eq!(judge(Ended::Proved, true, 0.12, 0.01), Verdict::Use(SolveStatus::Feasible));
        assert_eq!(judge(Ended::Limit, true, f64::NAN, 0.01), Verdict::Use(SolveStatus::Feasible));
    }
}
