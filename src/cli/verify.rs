//! `turnaround verify`: a plan held to every rule of its problem, without the solver.

use crate::{Failure, Outcome, Screen, config_file, situation};
use fleet::{Plan, Problem};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use store::wait;

/// Check a plan against its problem, independently of the solver
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 3 when a rule is broken.\n\nExamples:\n  turnaround verify plan.json                                 its problem comes from the store\n  turnaround verify turnaround-demo/plan.json --problem turnaround-demo/problem.json"
)]
pub(crate) struct Arguments {
    /// The plan
    plan: PathBuf,
    /// Its problem; without it, it is looked up in the store the configuration names
    #[arg(long, value_name = "FILE")]
    problem: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, config: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let plan: Plan = read(&arguments.plan, "plan")?;
    let problem: Problem = match &arguments.problem {
        Some(path) => read(path, "problem")?,
        None => from_store(&plan, config)?,
    };
    let verdict = ::verify::verify(&problem, &plan);
    screen.document(&serde_json::json!({
        "plan": plan.id,
        "generation": plan.generation,
        "problem": problem.id(),
        "ok": verdict.is_ok(),
        "violations": verdict.violations,
        "objective": verdict.objective,
    }))?;
    if verdict.is_ok() {
        let cost = report::money(verdict.objective.total(), &plan.currency);
        screen.show(&format!("Plan g{} ({}) keeps every rule of its problem; counted again, it costs {cost} over its horizon.\n", plan.generation, plan.id))?;
        return Ok(Outcome::Done);
    }
    let n = verdict.violations.len();
    screen.show(&format!("Plan g{} ({}) breaks its problem's rules {n} time{}:\n", plan.generation, plan.id, if n == 1 { "" } else { "s" }))?;
    for violation in &verdict.violations {
        screen.say(&format!("  ! {violation}"))?;
    }
    Ok(Outcome::Refused)
}

fn read<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T, Failure> {
    let text = std::fs::read(path).map_err(|e| Failure::file("read", path, &e))?;
    serde_json::from_slice(&text).map_err(|e| {
        Failure::with_help(format!("{} does not hold a {what}: {e}", path.display()), format!("turnaround schema {what} says what one looks like"))
    })
}

fn from_store(plan: &Plan, config: &Path) -> Result<Problem, Failure> {
    let config = config_file::load(config)?.config;
    let lacking = || {
        let message = format!("the problem {} of this plan is not in the store {}", plan.problem, config.store.path.display());
        Failure::with_help(message, "name its file with --problem, or the configuration whose store has it with --config")
    };
    let store = situation::existing_store(&config)?.ok_or_else(lacking)?;
    wait(store.problem(&plan.problem))?.ok_or_else(lacking)
}
