//! `turnaround forecast`: demand by hour with bands, and how good such forecasts were.

use crate::{Failure, Outcome, Screen, config_file, progress::Phase, situation, traces};
use datasets::{Format, Tokens};
use fleet::{Calibration, Forecast, Series, Span, Timestamp, WorkloadId};
use models::{ModelError, Request};
use report::BacktestRow;
use std::path::{Path, PathBuf};

/// Hours of demand that must lie before the first origin of a back-test.
const BACKTEST_KNOWN_HOURS: i64 = 72;
/// Hours between two origins: not a divisor of a day, so that they fall on different hours.
const BACKTEST_SPACING_HOURS: i64 = 19;
/// Origins of a back-test, at most.
const BACKTEST_ORIGINS_MAX: usize = 16;
/// Hours ahead a back-test looks.
const BACKTEST_HORIZON: usize = 24;

/// Forecast demand by hour, with bands
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 4 when nothing can be forecast.\n\nExamples:\n  turnaround forecast\n  turnaround forecast --service chat --hours 48 --backtest\n  turnaround forecast --trace m-large/ --trace AzureLLMInferenceTrace_conv.csv"
)]
pub(crate) struct Arguments {
    /// Only this service
    #[arg(long, value_name = "NAME")]
    service: Option<WorkloadId>,
    /// Hours ahead
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=336))]
    hours: u16,
    /// Score the forecasters over the past instead, from rolling origins
    #[arg(long)]
    backtest: bool,
    /// Recorded traffic instead of the store, in any format that turnaround import recognises by itself (repeatable)
    #[arg(long, value_name = "PATH")]
    trace: Vec<PathBuf>,
    /// Forecast from this instant instead of now (with --trace: instead of its end)
    #[arg(long, value_name = "INSTANT")]
    as_of: Option<Timestamp>,
}

/// Demand to be forecast.
struct Subject {
    workload: WorkloadId,
    hourly: Series,
    zone: String,
    origin: Timestamp,
}

pub(crate) fn run(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let phase = Phase::begin(if arguments.backtest { "back-testing" } else { "forecasting" }, 0, screen.is_json());
    let (mut subjects, calibration) = if arguments.trace.is_empty() { from_config(arguments, path)? } else { (from_traces(arguments)?, None) };
    if let Some(service) = &arguments.service {
        let known = subjects.iter().map(|s| s.workload.to_string()).collect::<Vec<_>>().join(", ");
        subjects.retain(|s| &s.workload == service);
        if subjects.is_empty() {
            phase.end();
            return Err(Failure::with_help(format!("there is no service {service}"), format!("known: {known}")));
        }
    }
    if arguments.backtest {
        let rows: Vec<BacktestRow> = subjects.iter().flat_map(backtest).collect();
        phase.end();
        return show_backtest(&rows, screen);
    }
    let results: Vec<(WorkloadId, Result<Forecast, ModelError>)> =
        subjects.iter().map(|s| (s.workload.clone(), forecast(s, arguments, calibration.as_ref()))).collect();
    phase.end();
    show(&results, screen)
}

fn from_config(arguments: &Arguments, path: &Path) -> Result<(Vec<Subject>, Option<Calibration>), Failure> {
    let config = config_file::load(path)?.config;
    let now = arguments.as_of.unwrap_or_else(situation::now);
    let store = situation::existing_store(&config)?;
    let state = situation::state(&config, store.as_ref(), now)?;
    let subject = |w: &fleet::Workload| {
        let service = w.service()?;
        Some(Subject { workload: w.id.clone(), hourly: situation::hourly(&state, &w.id, now), zone: service.zone.clone(), origin: now })
    };
    Ok((config.workloads.iter().filter_map(subject).collect(), Some(state.calibration().clone())))
}

fn from_traces(arguments: &Arguments) -> Result<Vec<Subject>, Failure> {
    let subject = |path: &PathBuf| {
        let name = path.file_stem().map_or_else(|| "trace".to_owned(), |n| n.to_string_lossy().into_owned());
        let workload = WorkloadId::new(name)?;
        let traffic = traces::of_format(path, Format::detect(path)?, &workload, Tokens { input: 0.0, output: 0.0, prefix_hit_rate: 0.0 })?;
        let mut hourly = traffic.hourly();
        // Traces need not begin on the hour; their hours are then counted from their start, which is near enough for a picture by hour.
        hourly.start = hourly.start.hour();
        let origin = arguments.as_of.unwrap_or(hourly.end());
        Ok(Subject { workload, hourly, zone: "UTC".into(), origin })
    };
    arguments.trace.iter().map(subject).collect()
}

fn forecast(subject: &Subject, arguments: &Arguments, calibration: Option<&Calibration>) -> Result<Forecast, ModelError> {
    let request = Request {
        workload: &subject.workload,
        history: &subject.hourly,
        origin: subject.origin,
        horizon_steps: usize::from(arguments.hours),
        zone: &subject.zone,
        state: calibration.and_then(|c| c.forecasters.get(&subject.workload)),
        calibration: calibration.map_or(1, |c| c.generation),
    };
    models::forecast(&request).map(|set| set.published)
}

fn show(results: &[(WorkloadId, Result<Forecast, ModelError>)], screen: &Screen) -> Result<Outcome, Failure> {
    let made: Vec<&Forecast> = results.iter().filter_map(|(_, r)| r.as_ref().ok()).collect();
    let failed: Vec<String> = results.iter().filter_map(|(_, r)| r.as_ref().err().map(ToString::to_string)).collect();
    screen.document(&serde_json::json!({ "forecasts": made, "not_possible": failed }))?;
    let blocks: Vec<String> = made.iter().map(|f| report::forecast_text(f, screen.look())).collect();
    screen.show(&blocks.join("\n"))?;
    for reason in &failed {
        screen.show(&format!("No forecast: {reason}\n"))?;
    }
    if results.is_empty() {
        screen.show("No forecast: the configuration has no service\n")?;
    }
    Ok(if made.is_empty() { Outcome::Impossible } else { Outcome::Done })
}

/// Scores of every expert and of the published mixture at rolling origins.
fn backtest(subject: &Subject) -> Vec<BacktestRow> {
    let known_from = subject.hourly.start + Span::hours(BACKTEST_KNOWN_HOURS);
    let last = subject.hourly.end().min(subject.origin) - Span::hours(24);
    let origins: Vec<Timestamp> =
        (0..).map(|k| last - Span::hours(k * BACKTEST_SPACING_HOURS)).take_while(|at| *at >= known_from).take(BACKTEST_ORIGINS_MAX).collect();
    let scores = models::backtest(&subject.hourly, &subject.zone, &origins, BACKTEST_HORIZON);
    let row = |(name, score): (String, models::Score)| BacktestRow {
        workload: subject.workload.to_string(),
        chosen: name == models::PUBLISHED,
        forecaster: name,
        wql: score.wql,
        // Levels 0.05 and 0.95 are the first and the last but one.
        coverage: score.coverage.get(fleet::LEVELS.len() - 2).zip(score.coverage.first()).map(|(high, low)| high - low),
        scored: usize::try_from(score.n).unwrap_or(usize::MAX),
    };
    scores.into_iter().map(row).collect()
}

fn show_backtest(rows: &[BacktestRow], screen: &Screen) -> Result<Outcome, Failure> {
    screen.document(&serde_json::json!({ "backtest": rows, "horizon_hours": BACKTEST_HORIZON }))?;
    if rows.is_empty() {
        screen.show(&format!("No back-test: {BACKTEST_KNOWN_HOURS} hours of demand are needed before the first origin\n"))?;
        return Ok(Outcome::Impossible);
    }
    screen.show(&report::backtest_text(rows, screen.look()))?;
    screen.say(&format!("WQL: mean pinball loss by demand (0 is perfect), {BACKTEST_HORIZON} hours ahead; 90% in p5-p95 is wanted."))?;
    Ok(Outcome::Done)
}
