//! Recorded traffic as history: moved by whole weeks so that it ends now, hour of day and day of week kept.

use crate::Failure;
use config::{Config, TraceConfig, TraceFormat, TraceInput};
use datasets::{DEMO_SEED, DemandOptions, Format, Scenario, Tokens, Traffic};
use fleet::{Span, Timestamp, WorkloadId, WorkloadWindow};
use std::{collections::BTreeMap, path::Path};

/// A week: recordings are moved by whole ones.
const WEEK: Span = Span(7 * 86_400);
/// Variation inside a trace's step when its record is coarser than a minute (see `datasets`).
const MINUTE_CV: f64 = 0.1;
/// Seed of that variation: a recording always replays the same.
const SEED: u64 = 1;

/// The windows every traced service had before `now`, as far back as the policy's history or its recording goes.
pub(crate) fn windows(config: &Config, window: Span, now: Timestamp) -> Result<BTreeMap<WorkloadId, Vec<WorkloadWindow>>, Failure> {
    let mut by = BTreeMap::new();
    for trace in &config.traces {
        let traffic = read(config, trace)?;
        by.insert(trace.service.clone(), replayed(&traffic, &trace.service, trace.scale, window, config.policy.history, now));
    }
    Ok(by)
}

/// How far ahead a recording is replayed by one run of the daemon.
const REPLAYED_AHEAD: Span = Span(28 * 86_400);

/// The windows that go on from `now` as if live, of traced services that no endpoint shows.
pub(crate) fn ahead(config: &Config, window: Span, now: Timestamp) -> Result<Vec<WorkloadWindow>, Failure> {
    let mut out = Vec::new();
    for trace in config.traces.iter().filter(|trace| !config.targets.iter().any(|t| t.target.workload == trace.service)) {
        let traffic = read(config, trace)?;
        let from = now.floor(window);
        out.extend(between(&traffic, &trace.service, trace.scale, window, from, from + REPLAYED_AHEAD));
    }
    Ok(out)
}

fn read(config: &Config, trace: &TraceConfig) -> Result<Traffic, Failure> {
    match &trace.input {
        TraceInput::Bundled(name) => bundled(name),
        TraceInput::File { path, format } => {
            let service = config.workloads.iter().find(|w| w.id == trace.service).and_then(|w| w.service());
            let (input, output) = service.map_or((0.0, 0.0), |s| s.tokens_prior);
            file(path, *format, &trace.service, Tokens { input, output, prefix_hit_rate: 0.0 })
        }
    }
}

/// Traffic that comes with the program.
fn bundled(name: &str) -> Result<Traffic, Failure> {
    let mut scenario = Scenario::demo(DEMO_SEED);
    let names: Vec<String> = scenario.traffic.iter().map(|t| t.workload.to_string()).collect();
    match scenario.traffic.iter().position(|t| t.workload.as_str() == name) {
        Some(at) => Ok(scenario.traffic.swap_remove(at)),
        None => Err(Failure::with_help(format!("no traffic named {name:?} comes with the program"), format!("write bundled = one of: {}", names.join(", ")))),
    }
}

/// A trace file of somebody else's.
pub(crate) fn file(path: &Path, format: TraceFormat, workload: &WorkloadId, tokens: Tokens) -> Result<Traffic, Failure> {
    match format {
        TraceFormat::AzureLlm2023 => of_format(path, Format::AzureLlm2023, workload, tokens),
        TraceFormat::ServeGen => of_format(path, Format::ServeGen, workload, tokens),
    }
}

/// Where a recording begins that carries no date: 1970-01-05 was a Monday.
pub(crate) const MONDAY: Timestamp = Timestamp(4 * 86_400);

/// A trace of demand in any format.
pub(crate) fn of_format(path: &Path, format: Format, workload: &WorkloadId, tokens: Tokens) -> Result<Traffic, Failure> {
    if format == Format::ServeGen {
        let traces = datasets::read_servegen(path, None, MONDAY)?;
        return Ok(Traffic::from_rates(workload.clone(), &traces.rate, 1.0, tokens, MINUTE_CV, SEED));
    }
    let records = datasets::read_demand(path, format, &DemandOptions { origin: MONDAY, ..DemandOptions::default() })?;
    Ok(Traffic::from_records(workload.clone(), records, format.describe().silence_max, tokens)?)
}

fn replayed(traffic: &Traffic, workload: &WorkloadId, scale: f64, window: Span, history: Span, now: Timestamp) -> Vec<WorkloadWindow> {
    if window.0 < 60 {
        return Vec::new();
    }
    let end = now.floor(window);
    between(traffic, workload, scale, window, (end - Span(period(traffic).0.min(history.0))).floor(window), end)
}

/// Length of a recording in whole weeks.
fn period(traffic: &Traffic) -> Span {
    let length = traffic.end().since(traffic.start);
    Span((length.0 + WEEK.0 - 1) / WEEK.0 * WEEK.0)
}

fn between(traffic: &Traffic, workload: &WorkloadId, scale: f64, window: Span, from: Timestamp, to: Timestamp) -> Vec<WorkloadWindow> {
    let period = period(traffic);
    let mut out = Vec::new();
    let mut at = from;
    while at < to && period.0 > 0 {
        out.extend(one(traffic, workload, scale, window, period, at));
        at = at + window;
    }
    out
}

/// The window at `at`, from the same time of the recording; nothing where the recording has nothing.
fn one(traffic: &Traffic, workload: &WorkloadId, scale: f64, window: Span, period: Span, at: Timestamp) -> Option<WorkloadWindow> {
    let minutes = (0..window.0 / 60).map(|m| {
        let then = Timestamp(traffic.start.0 + (at.0 + 60 * m - traffic.start.0).rem_euclid(period.0));
        traffic.at(then)
    });
    let minutes: Vec<_> = minutes.collect();
    let known: Vec<_> = minutes.iter().flatten().collect();
    if known.is_empty() {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful of minutes")]
    let (all, n) = (minutes.len() as f64, known.len() as f64);
    let rate = known.iter().map(|m| m.arrivals_per_s).sum::<f64>() / n * scale;
    let peak = known.iter().map(|m| m.arrivals_per_s).fold(0.0, f64::max) * scale;
    let tokens = known[0].tokens;
    Some(WorkloadWindow {
        arrivals_per_s: Some(rate),
        peak_per_s: Some(peak),
        input_tokens: Some(tokens.input),
        output_tokens: Some(tokens.output),
        prefix_hit_rate: Some(tokens.prefix_hit_rate),
        completeness: n / all,
        ..WorkloadWindow::unknown(workload.clone(), at, window)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_ends_now_and_keeps_hour_and_weekday() {
        let traffic = bundled("chat").unwrap_or_else(|f| panic!("{f:?}"));
        let now = Timestamp(1_800_000_000);
        let windows = replayed(&traffic, &traffic.workload, 2.0, Span::minutes(5), Span(42 * 86_400), now);
        assert_eq!(windows.len(), 14 * 288);
        let last = windows.last().unwrap();
        assert!(last.start + last.length <= now);
        let then = (0..10_000).map(|k| Timestamp(last.start.0 - k * WEEK.0)).find(|t| *t < traffic.end()).unwrap();
        let mean = (0..5).map(|m| traffic.at(then + Span::minutes(m)).unwrap().arrivals_per_s).sum::<f64>() / 5.0;
        assert!((last.arrivals_per_s.unwrap() - 2.0 * mean).abs() < 1e-9);
        assert_eq!(then.weekday(), last.start.weekday());
    }

    #[test]
    fn a_gap_of_the_recording_stays_one() {
        let mut traffic = bundled("chat").unwrap_or_else(|f| panic!("{f:?}"));
        traffic.minutes.iter_mut().take(600).for_each(|m| *m = None);
        let windows = replayed(&traffic, &traffic.workload, 1.0, Span::minutes(5), Span(42 * 86_400), Timestamp(1_800_000_000));
        assert_eq!(windows.len(), 14 * 288 - 120);
    }

    #[test]
    fn an_unknown_name_names_the_known_ones() {
        let Err(Failure::Fault { help: Some(help), .. }) = bundled("cat") else { panic!("accepted") };
        assert!(help.contains("chat"), "{help}");
    }
}
