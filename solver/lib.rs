//! A problem in, a plan out: one mixed-integer program over services and jobs on pools, then named GPUs.
//!
//! [`solve`] is a pure function: no clock, no file, one thread, a fixed seed. The wall clock is only a watchdog.
//!
//! # Formulation
//!
//! **Sets.** Services `w`, variants `v`, jobs `j`, pools `p`, steps `t` of length `L[t]`; the first `C` are committed, the rest is the
//! outlook. Islands hold interchangeable GPUs; a bin `b` is a set of islands of one pool (see `bins`).
//!
//! **Variables.** Committed: replicas held `r[v,b,t]` (integer), started `s`, stopped `d`; `k[j,t]`: the resident run goes on (binary);
//! `g[j,b,tau,t]`: a run begun at `start(tau)` goes on (binary). Outlook, continuous: replicas `R[v,p,t]`, `S`, `D`; shares of gangs
//! `y[j,p,t]` and their starts `z`. Everywhere: load `x[w,v,t]`, shortfall `u[w,t]`, replicas below and above the bounds, useful work
//! `w[j,t]` in hours at speed 1, lateness.
//!
//! **Minimise** shortfall + bounds + starts + stops + rent + lateness + preemptions - value of work:
//!
//! ```text
//!   sum_{w,t} shortfall_per_request[w] u[w,t] 3600 L[t]  +  sum bound_price[w] (below + above) L[t]
//! + sum start_cost[v] (s + S)  +  sum stop_cost[v] (d + D)  +  sum marginal[p] (GPUs held) L[t]
//! + sum_j lateness[j] late[j]  +  sum_{j,t} value[j] redo[j,t] (k[j,t-1] - k[j,t])
//! - sum_{j,t} value[j] max(0, 1 - delay (start(t) - as_of)) w[j,t]
//! ```
//!
//! **Subject to**
//!
//! | file | rule |
//! |---|---|
//! | `balance` | `sum_v x + u = demand`; `sum_w x / capacity <= ready[v,t]` |
//! | `cold_start` | `r[t] = r[t-1] + s - d`; `ready` leaves out what loads; what loads or is protected stays |
//! | `gpus` | GPUs of a bin or pool; packing of items into islands |
//! | `bounds` | minimum (priced), maximum (hard beyond what runs), number of stops |
//! | `jobs` | `k` and `g` never rise and fall only where a run may end; one run at a time; `w <= progress`, `sum w <= remaining + redo`; lateness |
//! | `objective` | the money above |
//!
//! **After the search** (`search`): values are rounded (`rounding`), counts become islands (`placement`) and GPUs (`naming`); a bin that
//! cannot be placed is split and the program solved again. Then the integers are fixed and the linear program is solved once more: its
//! loads and shares fill the `document`, its duals are the `shadow` prices. `score` reads the money off the document, not off the program;
//! `explain` and `margins` say why, and who is next.

mod balance;
mod bins;
mod bounds;
mod cold_start;
mod dive;
mod document;
mod explain;
mod finish;
mod gpus;
mod hot;
mod jobs;
mod margins;
mod naming;
mod objective;
mod placement;
mod program;
mod rounding;
mod score;
mod search;
mod sets;
mod shadow;

#[cfg(test)]
mod tests;

use bins::Bins;
use fleet::{Plan, PlanReport, Problem, SolveStatus};
use hot::Hot;
use placement::Seat;
use program::Program;
use search::{Ended, Incumbent, Nothing, Verdict};
use sets::Sets;

/// Times a program may be solved again because counts could not be placed; after that every island is a bin of its own.
const SPLITS_MAX: u32 = 6;

/// What came of a problem. The four cases are told apart: optimal and feasible by [`PlanReport::status`].
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A plan, with its bound and gap.
    Planned(Box<Plan>),
    /// A limit was reached before any solution was found: the plan in force stays.
    TimedOut,
    /// The problem is not one, or the search went wrong: in words. The plan in force stays.
    Failed(String),
}

/// Makes a plan.
///
/// Validates the problem first. Never panics, and never fails for want of GPUs: what cannot be met is short, at its price.
#[must_use]
pub fn solve(problem: &Problem) -> Answer {
    match plan(problem) {
        Ok((plan, _)) => Answer::Planned(Box::new(plan)),
        Err(Nothing::TimedOut) => Answer::TimedOut,
        Err(Nothing::Failed(why)) => Answer::Failed(why),
    }
}

/// Objective of the program without integers, with one bin a pool: no plan can cost less. `None` when the problem is not valid.
#[must_use]
pub fn relaxation(problem: &Problem) -> Option<f64> {
    problem.validate().ok()?;
    let sets = Sets::new(problem).ok()?;
    let bins = Bins::by_pool(&sets);
    let program = Program::new(&sets, &bins);
    let mut hot = Hot::new(&program, problem.policy.watchdog.as_secs_f64()).ok()?;
    hot.solve().map(|linear| linear.objective)
}

/// The plan, and the objective of its linear program.
fn plan(problem: &Problem) -> Result<(Plan, f64), Nothing> {
    problem.validate().map_err(|error| Nothing::Failed(error.to_string()))?;
    let sets = Sets::new(problem).map_err(Nothing::Failed)?;
    let mut bins = Bins::by_pool(&sets);
    let mut notes = Vec::new();
    for round in 0_u32.. {
        let program = Program::new(&sets, &bins);
        let (mut incumbent, hot) = search::search(&program, &problem.policy)?;
        finish::finish_runs(&program, &mut incumbent.values);
        match placement::place(&program, &incumbent.values) {
            Ok(seats) => return write(&program, &incumbent, hot, &seats, &notes),
            Err(failed) => {
                notes.extend(failed.iter().map(|b| fragmented(&sets, &bins, *b)));
                let which = if round < SPLITS_MAX { failed } else { (0..bins.list.len()).collect() };
                if !bins.split(&sets, &which) {
                    return Err(Nothing::Failed("counts of single islands could not be placed".into()));
                }
            }
        }
    }
    Err(Nothing::Failed("placement did not end".into()))
}

fn fragmented(sets: &Sets, bins: &Bins, b: usize) -> String {
    let bin = &bins.list[b];
    format!(
        "{}: what runs there leaves the counts no place in its {} islands taken together; planned in smaller parts",
        sets.problem.pools[bin.pool].id,
        bin.islands.len()
    )
}

fn write(program: &Program, incumbent: &Incumbent, mut hot: Hot, seats: &[Seat], notes: &[String]) -> Result<(Plan, f64), Nothing> {
    let (sets, problem) = (program.sets, program.sets.problem);
    hot.fix(program, &incumbent.values);
    let seconds = problem.policy.watchdog.as_secs_f64();
    let linear = hot
        .solve()
        .or_else(|| Hot::careful(program, seconds, &incumbent.values))
        .ok_or_else(|| Nothing::Failed("with its integers fixed the program has no optimum: they were not feasible".into()))?;
    let gpus = naming::name(sets, seats);
    let (mut committed, outlook) = document::write(program, seats, &gpus, &linear.values);
    committed.holds = margins::holds(sets, &committed, &outlook);
    let objective = score::objective(sets, &committed, &outlook);
    let bound = incumbent.bound.min(objective.total());
    let gap = ((objective.total() - bound) / objective.total().abs().max(1e-9)).max(0.0);
    let ended = if incumbent.ended == Ended::Error { Ended::Limit } else { incumbent.ended };
    let status = match search::judge(ended, true, gap, problem.policy.mip_gap) {
        Verdict::Use(status) => status,
        Verdict::TimedOut | Verdict::Failed => SolveStatus::Feasible,
    };
    let [columns, rows, integers] = program.size();
    let report = PlanReport {
        status,
        reproducible: incumbent.reproducible,
        objective,
        bound,
        gap,
        shadow_prices: shadow::prices(program, &linear),
        relaxations: explain::relaxations(sets, &committed, &outlook),
        reasons: explain::reasons(sets, &committed, &outlook, notes),
        size: [columns, rows, integers, incumbent.nodes],
        calibration: problem.calibration_generation,
        priors: explain::priors(sets),
    };
    let heirs = margins::heirs(sets, &committed, &outlook);
    let unnamed = fleet::PlanId::new("unnamed").map_err(|e| Nothing::Failed(e.to_string()))?;
    let plan = Plan {
        schema: Plan::SCHEMA.to_owned(),
        id: unnamed,
        parent: problem.parent.as_ref().map(|p| p.id.clone()),
        generation: problem.parent.as_ref().map_or(1, |p| p.generation + 1),
        advisory: problem.policy.advisory,
        as_of: problem.as_of,
        valid_from: problem.as_of,
        valid_until: problem.as_of + problem.policy.validity,
        problem: problem.id(),
        currency: problem.currency.clone(),
        committed,
        outlook,
        heirs,
        unlocated: problem.unlocated.clone(),
        report,
    };
    Ok((plan.sealed(), linear.objective))
}
