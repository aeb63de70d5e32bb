//! `turnaround demo`: the whole loop on bundled traffic in fast time.

use crate::{Failure, Outcome, Screen, demo_scenario, demo_summary, demo_summary::Runs, progress::Phase};
use datasets::DEMO_SEED;
use fleet::{Span, Timestamp};
use sim::{Options, PolicyKind, Run, Scenario};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};

/// Run two weeks of a made-up fleet under three policies: a static pool per workload, next free GPU, and Turnaround
///
/// Synthetic traffic of three services and twelve jobs on 24 GPUs, minute by minute; the loop sees only what its scrapes would show and must
/// learn the rest. Writes plan.json, problem.json and report.html.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The same seed gives the same bytes.\n\nExamples:\n  turnaround demo\n  turnaround demo --seed 7 --out /tmp/demo\n  turnaround demo --json | jq '.policies | map_values(.cost_per_useful_gpu_hour)'"
)]
pub(crate) struct Arguments {
    /// Seed of traffic and noise
    #[arg(long, default_value_t = DEMO_SEED)]
    seed: u64,
    /// Where the files go
    #[arg(long, value_name = "FOLDER", default_value = "turnaround-demo")]
    out: PathBuf,
    /// Days to simulate; the second half is compared
    #[arg(long, default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=14))]
    days: u16,
    /// Also write the three runs in full, hour by hour and replica by replica, as JSON (for notebooks)
    #[arg(long, value_name = "FILE")]
    runs: Option<PathBuf>,
}

/// Minutes between two rounds of scrapes in the simulated world.
const SCRAPE_EVERY: u32 = 5;

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    std::fs::create_dir_all(&arguments.out).map_err(|e| Failure::file("make the folder", &arguments.out, &e))?;
    let scenario = demo_scenario::scenario(arguments.seed, arguments.days)?;
    let runs = simulate(&scenario, arguments.days, screen)?;
    if let Some(file) = &arguments.runs {
        let all = [&runs.static_peak, &runs.next_free_gpu, &runs.turnaround];
        std::fs::write(file, fleet::canonical_bytes(&all)).map_err(|e| Failure::file("write", file, &e))?;
    }
    let phase = Phase::begin("weighing decisions, drawing", 0, screen.is_json());
    let report = demo_summary::report(&runs, &scenario)?;
    let files = write(&arguments.out, &report, &runs.turnaround)?;
    phase.end();
    screen.document(&report.summary)?;
    let last = [("Written", files), ("Next", format!("{} init --sample", program()))];
    screen.show(&report::demo_text(&report.summary, Some(begun.elapsed().as_secs()), &last, screen.look()))?;
    Ok(Outcome::Done)
}

/// The two baselines run beside ours.
fn simulate(scenario: &Scenario, days: u16, screen: &Screen) -> Result<Runs, Failure> {
    let from = scenario.start + Span(i64::from(days / 2) * 86_400);
    let minutes = u64::try_from(scenario.minutes())?;
    let phase = Phase::begin("simulating hours", minutes / 60, screen.is_json());
    let (baselines, ours) = std::thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let static_peak = one(scenario, PolicyKind::StaticPeak, from, &mut |_| {})?;
            Ok::<_, sim::ScenarioError>((static_peak, one(scenario, PolicyKind::NextFreeGpu, from, &mut |_| {})?))
        });
        let ours = one(scenario, PolicyKind::Turnaround, from, &mut |p| phase.at(u64::try_from(p.minute / 60).unwrap_or(0)));
        (beside.join(), ours)
    });
    let (static_peak, next_free_gpu) = baselines.map_err(|_| Failure::new("a baseline's simulation broke off"))??;
    let turnaround = ours?;
    phase.end();
    Ok(Runs { static_peak, next_free_gpu, turnaround })
}

fn one(scenario: &Scenario, kind: PolicyKind, score_from: Timestamp, progress: &mut dyn FnMut(sim::Progress)) -> Result<Run, sim::ScenarioError> {
    sim::run(scenario, kind, &mut Options { score_from, scrape_every: SCRAPE_EVERY, progress })
}

/// Writes the files and names them.
fn write(folder: &Path, report: &report::Report, ours: &Run) -> Result<String, Failure> {
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        std::fs::write(&path, bytes).map_err(|e| Failure::file("write", &path, &e)).map(|()| path.display().to_string())
    };
    let mut names = vec![put("report.html", report::html(report)?.as_bytes())?];
    if let Some(told) = &ours.turnaround
        && let (Some(plan), Some(problem)) = (&told.last_plan, &told.last_problem)
    {
        names.push(put("plan.json", &fleet::canonical_bytes(plan.as_ref()))?);
        names.push(put("problem.json", &fleet::canonical_bytes(problem.as_ref()))?);
    }
    Ok(names.join(", "))
}

/// How the user calls this program.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_else(|| "turnaround".to_owned());
    let here = std::env::current_dir().ok();
    let path = Path::new(&called);
    here.and_then(|here| path.strip_prefix(here).ok()).unwrap_or(path).display().to_string()
}
