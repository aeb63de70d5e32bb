//! `turnaround status`: how the running daemon stands.

use crate::{Failure, Outcome, Screen, config_file};
use fleet::Timestamp;
use publish::{Condition, Reliance, SourceStatus};
use report::{Align, Grid};
use serde::Deserialize;
use std::path::Path;
use wire::{Auth, Client};

/// Show how the running daemon stands: readiness, the plan in force, and every source whose readings cannot be relied on
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 0 when the daemon is ready, 1 when it is not, or not there.\n\nExamples:\n  turnaround status\n  turnaround status --all\n  turnaround status --json | jq '.sources[] | select(.ok | not) | .name'"
)]
pub(crate) struct Arguments {
    /// Show every source and signal, not only those in doubt
    #[arg(long)]
    all: bool,
}

/// What `/v1/status` says.
#[derive(Debug, Deserialize)]
struct Status {
    ready: bool,
    conditions: Vec<Condition>,
    plan: Option<PlanInForce>,
}

#[derive(Debug, Deserialize)]
struct PlanInForce {
    generation: u64,
    valid_until: Timestamp,
}

pub(crate) fn run(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let config = config_file::load(path)?.config;
    let base = format!("http://{}", config.publish.listen);
    let client = Client::new(&wire::Options::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let fetched = runtime.block_on(async {
        let status = client.get(&format!("{base}/v1/status"), &Auth::None, &[]).await?.success()?;
        let sources = client.get(&format!("{base}/v1/sources"), &Auth::None, &[]).await?.success()?;
        Ok::<_, wire::WireError>((status.body, sources.body))
    });
    let (status, sources) =
        fetched.map_err(|error| Failure::with_help(error.to_string(), "turnaround run starts the daemon; [publish] listen says where it answers"))?;
    let raw: serde_json::Value = serde_json::from_slice(&status)?;
    let status: Status = serde_json::from_value(raw.clone())?;
    let sources: Vec<SourceStatus> = serde_json::from_slice(&sources)?;
    screen.document(&serde_json::json!({ "ready": status.ready, "conditions": status.conditions, "plan": raw["plan"], "sources": sources }))?;
    screen.show(&text(&status, &sources, arguments.all, screen))?;
    Ok(if status.ready { Outcome::Done } else { Outcome::Wrong })
}

fn text(status: &Status, sources: &[SourceStatus], all: bool, screen: &Screen) -> String {
    let look = screen.look();
    let mut lines = vec![match &status.plan {
        Some(plan) => format!("{}; plan g{} is valid until {}", if status.ready { "Ready" } else { "Not ready" }, plan.generation, plan.valid_until),
        None => format!("{}; no plan yet", if status.ready { "Ready" } else { "Not ready" }),
    }];
    for condition in status.conditions.iter().filter(|c| all || !c.ok) {
        let mark = if condition.ok { "ok" } else { "!!" };
        lines.extend(report::wrap(&format!("  {mark} {} (since {}): {}", condition.name, condition.since, condition.reason), look.width));
    }
    let doubtful: Vec<&SourceStatus> = sources.iter().filter(|s| all || !s.is_whole()).collect();
    let mut grid = Grid::new(&[Align::Left, Align::Left, Align::Left, Align::Left, Align::Left], 4);
    for source in &doubtful {
        let server = source.server.as_ref().map_or_else(String::new, |s| format!("{} {}", s.engine, s.version.as_deref().unwrap_or("")).trim().to_owned());
        let state = if source.ok { "answers" } else { "silent" };
        let last = source.last_answer.map_or_else(|| "never".to_owned(), |at| at.to_string());
        let style = if source.ok { look.palette.dim } else { look.palette.short };
        grid.row(style, [source.name.clone(), server, state.to_owned(), last, doubts(source)]);
    }
    lines.extend(grid.lines(look.width, look.ascii));
    let hidden = sources.len() - doubtful.len();
    lines.push(match (sources.len(), hidden) {
        (0, _) => "No source was looked at yet.".to_owned(),
        (n, hidden) if hidden == n => format!("All {n} sources answer, and every signal is fresh."),
        (n, 0) => format!("{n} sources."),
        (n, hidden) => format!("{n} sources, {hidden} of them without any doubt (--all shows them)."),
    });
    lines.join("\n") + "\n"
}

/// What is wrong with the signals of a source, shortest first.
fn doubts(source: &SourceStatus) -> String {
    if let (false, Some(reason)) = (source.ok, &source.reason) {
        return reason.clone();
    }
    let of = |state: Reliance| source.signals.iter().filter(move |s| s.state == state).map(|s| s.signal.name()).collect::<Vec<_>>().join(", ");
    let parts = [("missing", Reliance::Missing), ("frozen", Reliance::Frozen), ("stale", Reliance::Stale)];
    let parts = parts.into_iter().map(|(word, state)| (word, of(state))).filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(word, names)| format!("{word}: {names}")).collect();
    if parts.is_empty() { format!("{} signals fresh", source.signals.len()) } else { parts.join("; ") }
}
