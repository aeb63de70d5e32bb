//! Tiny problems, solved twice: by the solver, and by trying every assignment of windows to named GPUs.
//!
//! For each of 200 seeds the plan must pass `verify`, and its objective, recomputed from the plan's own JSON, must be the minimum that the
//! search finds. The instances must also be worth it: each feature (cold start, gang, island, price of a move, shortfall) decides some of
//! them, and many have an integrality gap. The counts are printed; run with `--nocapture` to see them.

#[path = "exhaustive/instance.rs"]
mod instance;
#[path = "exhaustive/minimum.rs"]
mod minimum;
#[path = "exhaustive/relax.rs"]
mod relax;

use fleet::{Plan, Problem};
use minimum::Best;
use solver::Answer;
use std::sync::atomic::{AtomicU64, Ordering};

/// Instances.
const COUNT: u64 = 200;

/// What an instance may show. The first five must decide one in twenty of them, the sixth one in five.
const FEATURES: [&str; 8] = ["cold start", "gang", "island", "price of a move", "shortfall", "integrality gap", "preemption", "start or stop"];

/// Whether `a` is clearly below `b`.
fn below(a: f64, b: f64) -> bool {
    a < b - 1e-6 * (1.0 + b.abs())
}

/// Solves `problem` both ways. The message says what differs.
fn compare(problem: &Problem, best: &Best) -> Result<(), String> {
    let plan = match solver::solve(problem) {
        Answer::Planned(plan) => plan,
        other => return Err(format!("no plan: {other:?}")),
    };
    let json = serde_json::to_string(&*plan).map_err(|e| e.to_string())?;
    let plan: Plan = serde_json::from_str(&json).map_err(|e| e.to_string())?;
    let verdict = verify::verify(problem, &plan);
    if !verdict.is_ok() {
        return Err(verdict.violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    }
    let found = verify::objective(problem, &plan).total();
    if (found - best.total).abs() > 1e-6 * (1.0 + best.total.abs()) {
        return Err(format!("the plan costs {found}, the minimum is {}: {:?} against {best:?}", best.total, verdict.objective));
    }
    Ok(())
}

/// Which of the [`FEATURES`] an instance shows.
fn shows(problem: &Problem, best: &Best) -> [bool; 8] {
    // By the solver: this test shows that it can be trusted with that, and it is the faster where less is forbidden.
    let relaxed = |change: fn(&Problem) -> Problem| match solver::solve(&change(problem)) {
        Answer::Planned(plan) => plan.report.objective.total(),
        other => panic!("no plan without the feature: {other:?}"),
    };
    let linear = solver::relaxation(problem).expect("the instance is valid");
    [
        below(relaxed(relax::warm), best.total),
        below(relaxed(relax::without_gangs), best.total),
        below(relaxed(relax::one_island), best.total),
        // Free changes make other decisions worth it, beyond what was paid for the same ones.
        below(relaxed(relax::free_changes), best.total - best.changes),
        best.short > 1e-6,
        below(linear, best.total),
        best.preemptions > 0.0,
        best.changes > 0.0,
    ]
}

#[test]
fn the_solver_finds_what_trying_everything_finds() {
    let next = AtomicU64::new(0);
    let work = || {
        let mut out = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= COUNT {
                return out;
            }
            let problem = instance::instance(seed);
            problem.validate().expect("the generator makes valid problems");
            let best = minimum::minimum(&problem);
            out.push((seed, compare(&problem, &best), shows(&problem, &best)));
        }
    };
    let results: Vec<(u64, Result<(), String>, [bool; 8])> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..std::thread::available_parallelism().map_or(2, usize::from).min(4)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("no thread panics")).collect()
    });
    let counts: [usize; 8] = std::array::from_fn(|k| results.iter().filter(|(_, _, shows)| shows[k]).count());
    println!("of {COUNT} instances: {:?}", FEATURES.iter().zip(counts).collect::<Vec<_>>());
    let mut wrong: Vec<(usize, u64, &String)> =
        results.iter().filter_map(|(seed, result, _)| Some((instance::size(&instance::instance(*seed)), *seed, result.as_ref().err()?))).collect();
    wrong.sort();
    for (size, seed, message) in &wrong {
        println!("seed {seed} (size {size}): {message}");
    }
    assert!(wrong.is_empty(), "{} of {COUNT} instances differ; the smallest is seed {}", wrong.len(), wrong[0].1);
    let least = usize::try_from(COUNT).unwrap_or(0) / 20;
    assert!(counts[..5].iter().all(|n| *n >= least), "a feature decides fewer than {least} instances: {counts:?} of {FEATURES:?}");
    assert!(counts[5] >= 4 * least, "only {} instances have an integrality gap", counts[5]);
}

/// With an outlook there is too much to try, but a plan must still pass, be priced as it is, and not lie below its own bound.
#[test]
fn plans_with_an_outlook_pass_verification() {
    let mut wrong = Vec::new();
    for seed in 0..COUNT / 2 {
        let problem = instance::with_outlook(&instance::instance(seed), seed);
        let plan = match solver::solve(&problem) {
            Answer::Planned(plan) => plan,
            other => panic!("seed {seed}: no plan: {other:?}"),
        };
        let verdict = verify::verify(&problem, &plan);
        let linear = solver::relaxation(&problem).expect("the instance is valid");
        let mut message = verdict.violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        if below(verdict.objective.total(), linear) {
            message = format!("costs {}, less than its linear program's {linear}; {message}", verdict.objective.total());
        }
        if !message.is_empty() {
            wrong.push((instance::size(&problem), seed, message));
        }
    }
    wrong.sort();
    for (size, seed, message) in &wrong {
        println!("seed {seed} (size {size}): {message}");
    }
    assert!(wrong.is_empty(), "{} plans do not pass; the smallest is that of seed {}", wrong.len(), wrong[0].1);
}
