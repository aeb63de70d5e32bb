//! The second opinion: a plan against its problem, without the solver.
//!
//! [`verify`] reads a [`Plan`] as a consumer would, counts again what sits on every GPU in every step, what is ready, what is served and
//! what work gets done, and holds all of it to the rules of the [`Problem`]. It shares no code with the solver and gates publication: a plan
//! with a single [`Violation`] is never published. [`objective`] recomputes the money from windows, outlook and routes alone.
//!
//! | file | rules |
//! |---|---|
//! | `document` | schema, fingerprints, parent, validity, steps, finite numbers, bound and gap, objective |
//! | `windows` | named GPUs: usable, one island, memory, one occupant at a time, boundaries, cold start, residents, stops |
//! | `traffic` | demand = served + short, capacity of what is ready, replica bounds, listed shortfalls |
//! | `gangs` | jobs: earliest start, minimum run, preemption only from a checkpoint and its price |
//! | `outlook` | counts that continue, shares, pool capacity |
//! | `margins` | holds and heirs |
//! | `tally` | what all of them count with |
//! | `objective` | the money |

mod document;
mod gangs;
mod margins;
mod objective;
mod outlook;
mod tally;
mod traffic;
mod verdict;
mod windows;

#[cfg(test)]
mod tests;

pub use objective::objective;
pub use verdict::{Code, Verdict, Violation};

use fleet::{Plan, Problem};
use tally::Tally;

/// Relative and absolute tolerance of every comparison of loads, counts and money: linear programs are solved to 1e-7, and a sum over a
/// day of steps keeps a digit less.
const TOLERANCE: f64 = 1e-6;

/// Whether `found <= limit`, up to the tolerance. False when either is no number.
fn at_most(found: f64, limit: f64) -> bool {
    found <= limit + TOLERANCE * (1.0 + limit.abs())
}

/// Whether the two agree, up to the tolerance of the larger. False when either is no number.
fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= TOLERANCE * (1.0 + a.abs().max(b.abs()))
}

/// Holds `plan` to every rule of `problem`.
///
/// A problem that is not valid itself ([`Problem::validate`]) is a violation too, and nothing else is then looked at.
#[must_use]
pub fn verify(problem: &Problem, plan: &Plan) -> Verdict {
    if let Err(error) = problem.validate() {
        let violation = Violation::new(Code::Problem, format!("the problem itself is not valid: {error}"));
        return Verdict { violations: vec![violation], objective: fleet::Objective::default() };
    }
    let mut violations = document::check(problem, plan);
    // Counting needs the steps and the numbers to be what they should.
    if violations.iter().any(|v| matches!(v.code, Code::Steps | Code::Number)) {
        return Verdict { violations, objective: fleet::Objective::default() };
    }
    let tally = Tally::new(problem, plan);
    violations.extend(windows::check(&tally));
    violations.extend(traffic::check(&tally));
    violations.extend(gangs::check(&tally));
    violations.extend(outlook::check(&tally));
    violations.extend(margins::check(&tally));
    let objective = objective::of(&tally);
    violations.extend(document::check_money(problem, plan, &objective));
    Verdict { violations, objective }
}
