//! `turnaround plan`: one planning run now, as a diff.

use crate::{Failure, Outcome, Screen, config_file, look_once, progress::Phase, situation, tokens};
use config::Config;
use cycle::{Answer, Effect, Event, Record, State, WorkOutput};
use fleet::{Plan, Problem, Timestamp};
use report::PlanDiff;
use std::path::{Path, PathBuf};
use store::{Batch, Store, wait};

/// Plan once, now: print what would change, write the plan
///
/// Reads the history of the store (or recorded traffic), looks at every endpoint once, forecasts, solves, verifies. Keeps the plan in the
/// store and writes it to the plan file, unless --dry-run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0 when nothing is to change, 2 when there are changes, 3 when the verifier refused, 4 when no plan is possible.\n\nExamples:\n  turnaround plan\n  turnaround plan --all --dry-run\n  turnaround plan --out plan.json --problem-out problem.json && echo nothing to do"
)]
pub(crate) struct Arguments {
    /// Where to write the plan; the configuration's plan file without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Where to write the problem the plan answers
    #[arg(long, value_name = "FILE")]
    problem_out: Option<PathBuf>,
    /// Show what goes on unchanged too
    #[arg(long)]
    all: bool,
    /// Write nothing, keep nothing
    #[arg(long)]
    dry_run: bool,
    /// Plan for this instant instead of now, such as 2026-12-01T08:00:00Z; nothing is kept, and only --out is written
    #[arg(long, value_name = "INSTANT")]
    as_of: Option<Timestamp>,
}

pub(crate) fn run(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let config = config_file::load(path)?.config;
    tokens::check(&config)?;
    let now = arguments.as_of.unwrap_or_else(situation::now);
    // A plan for another instant is a question, not a plan to be put in force.
    let dry_run = arguments.dry_run || arguments.as_of.is_some();
    let _claim = if dry_run { None } else { Some(daemon::claim(&config)?) };
    let store = if dry_run { situation::existing_store(&config)? } else { Some(situation::open_store(&config)?) };
    let phase = Phase::begin("looking, forecasting, planning", 0, screen.is_json());
    let state = situation::state(&config, store.as_ref(), now)?;
    let seen = look_once::look(&config, arguments.as_of.unwrap_or_else(|| daemon::Clock::system().now()))?;
    let mut decided = decide(state, seen.events, now);
    phase.end();
    decided.notes.splice(0..0, seen.notes);
    match &decided.output.answer {
        Answer::Planned { problem, plan } => planned(arguments, &config, screen, store.as_ref(), &decided, (problem, plan)),
        Answer::Refused(violations) => {
            screen.document(&serde_json::json!({ "plan": null, "refused": violations, "notes": decided.notes }))?;
            screen.show(&format!("The verifier refused the plan; the one in force stays:\n{}", list(violations)))?;
            Ok(Outcome::Refused)
        }
        Answer::TimedOut => impossible(screen, &decided, "the search reached its limit before it found a plan"),
        Answer::Failed(reason) => impossible(screen, &decided, reason),
    }
}

/// What one cycle came to.
struct Decided {
    output: WorkOutput,
    records: Vec<Record>,
    notes: Vec<String>,
}

/// One cycle in place. The loop has at most one order out; whichever event asked for it, it is answered here.
fn decide(mut state: State, mut events: Vec<Event>, now: Timestamp) -> Decided {
    events.push(Event::Tick(now));
    let mut effects = Vec::new();
    for event in events {
        let (next, more) = cycle::step(state, event);
        state = next;
        effects.extend(more);
    }
    let order = effects.iter().find_map(|e| if let Effect::Work(order) = e { Some(order.clone()) } else { None });
    let mut decided = Decided {
        output: WorkOutput {
            as_of: now,
            forecasts: Vec::new(),
            priors: std::collections::BTreeMap::new(),
            answer: Answer::Failed("the loop ordered no work".into()),
        },
        records: Vec::new(),
        notes: Vec::new(),
    };
    if let Some(order) = order {
        decided.notes.extend(order.notes.iter().cloned());
        decided.output = cycle::work(&order);
        let (_, more) = cycle::step(state, Event::Worked(Box::new(decided.output.clone())));
        effects.extend(more);
    }
    for effect in effects {
        match effect {
            Effect::Append(record) => decided.records.push(record),
            Effect::Notice(_, text) => decided.notes.push(text),
            Effect::Work(_) | Effect::Publish(_) => {}
        }
    }
    decided
}

fn planned(
    arguments: &Arguments,
    config: &Config,
    screen: &Screen,
    store: Option<&Store>,
    decided: &Decided,
    (problem, plan): (&Problem, &Plan),
) -> Result<Outcome, Failure> {
    let mut written = None;
    let in_force = !arguments.dry_run && arguments.as_of.is_none();
    if let (true, Some(store)) = (in_force, store) {
        keep(store, &decided.records)?;
    }
    let asked = arguments.out.as_ref().filter(|_| !arguments.dry_run);
    if let Some(file) = asked.or(in_force.then_some(&config.publish.plan_file)) {
        publish::plan_file::write(file, plan)?;
        written = Some(file.display().to_string());
    }
    if let Some(file) = &arguments.problem_out {
        std::fs::write(file, fleet::canonical_bytes(problem)).map_err(|e| Failure::file("write", file, &e))?;
    }
    let diff = PlanDiff::of(plan, problem);
    let notes: Vec<&String> = problem.notes.iter().chain(decided.notes.iter().filter(|n| !problem.notes.contains(n))).collect();
    screen.document(&serde_json::json!({ "plan": plan, "diff": diff, "changes": diff.asks_for_action(), "notes": notes, "written": written }))?;
    screen.show(&report::plan_text(plan, problem, screen.look(), arguments.all))?;
    for note in notes {
        screen.say(&format!("Note: {note}"))?;
    }
    if let Some(file) = written {
        screen.show(&format!("Wrote {file}\n"))?;
    }
    Ok(if diff.asks_for_action() { Outcome::Changes } else { Outcome::Done })
}

/// Keeps what the cycle wants kept: windows and what was learned as well as the decision.
fn keep(store: &Store, records: &[Record]) -> Result<(), Failure> {
    let mut batch = Batch::default();
    records.iter().cloned().for_each(|record| daemon::put_in_batch(&mut batch, record));
    wait(store.append(batch))?;
    Ok(())
}

fn impossible(screen: &Screen, decided: &Decided, reason: &str) -> Result<Outcome, Failure> {
    screen.document(&serde_json::json!({ "plan": null, "reason": reason, "notes": decided.notes }))?;
    screen.show(&format!("No plan: {reason}\n{}", list(&decided.notes)))?;
    Ok(Outcome::Impossible)
}

fn list(lines: &[String]) -> String {
    lines.iter().flat_map(|line| ["  ! ", line, "\n"]).collect()
}
