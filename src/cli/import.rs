//! `turnaround import`: recorded traffic, or the past of a Prometheus, as history of a service.

use crate::import_mark::{Mark, Moved};
use crate::import_trace::{Part, Place, Setup, Written, apart, shift};
use crate::interrupt::Interrupt;
use crate::{Failure, Outcome, Screen, config_file, import_prometheus, progress::Phase, situation};
use config::Config;
use datasets::{DemandOptions, Format, Mapping};
use fleet::{Span, Timestamp, WorkloadId};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use store::{Store, wait};

/// Fill the history of a service from recorded traffic or from a Prometheus
///
/// A trace is looked through first: a damaged row is named with its file and line, and nothing is written. Then its windows go into the store
/// the configuration names. What the record does not show stays unknown: a pause longer than the format's limit (--silence) is a gap, not idleness.
///
/// The same file twice is the same history. An import that was stopped or killed goes on where it was when the command is given again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 done, 1 something could not be read or written, 64 the command line is wrong, 78 the configuration is wrong, 130 stopped by
Ctrl-C (what was written is kept; the same command goes on).

Formats: azure-llm-2023, azure-llm-2024, burstgpt, mooncake, servegen (a folder), sageserve (with --model), and tables: csv, parquet.
Tables: --map time=COLUMN,in=COLUMN,out=COLUMN,cached=COLUMN,model=COLUMN says which column is what; common names are found without it.
  clock=rfc3339|unix|unix_ms|unix_us|unix_ns|s|ms   how times are written (guessed from the first; s and ms count from the start)
  duration=COLUMN                                   seconds a request took: the time is then when it ended
  count=COLUMN,every=1m                             rows are counts of requests in intervals of that length

Examples:
  turnaround import AzureLLMInferenceTrace_conv.csv.gz --service chat --align now
  turnaround import m-large/ --service chat --start 2026-11-02T00:00:00Z --scale 0.1
  turnaround import access.csv --service chat --map time=ts,in=prompt,out=completion,clock=unix_ms --dry-run
  turnaround import --prometheus http://localhost:9090 --service chat --match '{job=\"vllm\"}' --days 14")]
pub(crate) struct Arguments {
    /// Traces, plain or gzipped; several are parts of one recording
    #[arg(value_name = "FILE", required_unless_present = "prometheus", conflicts_with = "prometheus")]
    files: Vec<PathBuf>,
    /// The service whose traffic it is
    #[arg(long, value_name = "NAME")]
    pub service: WorkloadId,
    /// Format of the files; auto recognises it
    #[arg(long, value_name = "F", default_value = "auto")]
    format: Choice,
    /// Which column of a table is what
    #[arg(long, value_name = "KEY=COLUMN,...")]
    map: Option<Mapping>,
    /// Only the requests of this model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Table of mean tokens beside a folder of `ServeGen` traces
    #[arg(long, value_name = "FILE")]
    token_means: Option<PathBuf>,
    /// Factor on the number of requests
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    scale: f64,
    /// Let it begin at this instant
    #[arg(long, value_name = "INSTANT", conflicts_with = "align")]
    start: Option<Timestamp>,
    /// Move it by whole weeks, so that hours and weekdays stay, and let it end now: what would lie ahead comes before its beginning
    #[arg(long, value_enum)]
    align: Option<Align>,
    /// Length of a window; the length the loop works with when not given
    #[arg(long, value_name = "SPAN")]
    interval: Option<Span>,
    /// Longest pause between two requests that was idleness; a longer one is a lost record
    #[arg(long, value_name = "SPAN")]
    silence: Option<Span>,
    /// Replace windows that are there already
    #[arg(long)]
    pub replace: bool,
    /// Only say what would be written
    #[arg(long)]
    pub dry_run: bool,
    /// Read the past of a Prometheus (`VictoriaMetrics`, Thanos, Mimir) instead
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    /// Selector of the service's engines there
    #[arg(long = "match", value_name = "SELECTOR", requires = "prometheus", default_value = "{}")]
    pub selector: String,
    /// Days of the past
    #[arg(long, value_name = "N", requires = "prometheus", default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=400))]
    pub days: u16,
    /// Spacing of looks: twice the scrape interval of the Prometheus, or more; short ones show peaks inside windows, and take longer
    #[arg(long, value_name = "SPAN", requires = "prometheus", default_value = "5m")]
    pub step: Span,
    /// File with the bearer token of the Prometheus
    #[arg(long, value_name = "FILE", requires = "prometheus")]
    pub token_file: Option<PathBuf>,
}

/// A format, or none in particular.
#[derive(Debug, Clone, Copy)]
struct Choice(Option<Format>);

impl FromStr for Choice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self(None)) } else { text.parse().map(|format| Self(Some(format))) }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Align {
    /// It ends now
    Now,
}

/// What became of one file, for machines.
#[derive(Debug, Serialize)]
struct Told {
    file: String,
    format: &'static str,
    #[serde(flatten)]
    seen: datasets::Gathered,
    /// Seconds it was moved by.
    moved_s: i64,
    /// Windows kept of it now.
    kept: u64,
    /// Of these, written just now.
    new: u64,
    complete: bool,
}

pub(crate) fn run(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let config = config_file::load(path)?.config;
    known(&config, &arguments.service)?;
    let interrupt = Interrupt::watch();
    let usual = daemon::setup_of(&config, situation::now()).policy.window;
    if let Some(url) = &arguments.prometheus {
        return import_prometheus::run(arguments, url, &config, usual, &interrupt, screen);
    }
    let setup = Setup {
        service: arguments.service.clone(),
        length: arguments.interval.unwrap_or(usual),
        scale: arguments.scale,
        silence_max: arguments.silence,
        reading: DemandOptions {
            origin: crate::traces::MONDAY,
            mapping: arguments.map.clone().unwrap_or_default(),
            model: arguments.model.clone(),
            token_means: arguments.token_means.clone(),
        },
    };
    let Some(parts) = look(arguments, &setup, &interrupt, screen)? else { return stopped(&[], screen) };
    import(arguments, &config, &setup, &parts, &interrupt, screen)
}

/// The service must be one of the configuration's.
fn known(config: &Config, service: &WorkloadId) -> Result<(), Failure> {
    let services: Vec<&WorkloadId> = config.workloads.iter().filter(|w| w.service().is_some()).map(|w| &w.id).collect();
    if services.contains(&service) {
        return Ok(());
    }
    let names: Vec<&str> = services.iter().map(|s| s.as_str()).collect();
    Err(Failure::with_help(format!("there is no service {service}"), format!("known: {}", names.join(", "))))
}

fn look(arguments: &Arguments, setup: &Setup, interrupt: &Interrupt, screen: &Screen) -> Result<Option<Vec<Part>>, Failure> {
    let mut parts = Vec::new();
    for file in &arguments.files {
        let phase = Phase::begin(&format!("looking through {}", file.display()), 0, screen.is_json());
        let part = setup.look(file, arguments.format.0, interrupt);
        phase.end();
        match part? {
            Some(part) => parts.push(part),
            None => return Ok(None),
        }
    }
    Ok(Some(parts))
}

fn import(arguments: &Arguments, config: &Config, setup: &Setup, parts: &[Part], interrupt: &Interrupt, screen: &Screen) -> Result<Outcome, Failure> {
    let now = situation::now();
    let place = match (arguments.start, arguments.align) {
        (Some(at), _) => Place::Start(at),
        (None, Some(Align::Now)) => Place::EndNow,
        (None, None) => Place::Own,
    };
    let moved = shift(parts, place, setup.length, now)?;
    apart(parts, setup.length, moved)?;
    if arguments.dry_run {
        let told: Vec<Told> = parts.iter().map(|part| told(part, moved, Written { kept: 0, new: 0, complete: false })).collect();
        return show(&told, setup, config, now, true, screen);
    }
    let _claim = daemon::claim(config)?;
    let store = situation::open_store(config)?;
    // The same recording aligned again stays where it was put first: nothing is there twice.
    let marks: Vec<Option<Mark>> = parts.iter().map(|part| Mark::read(&store, &part.name)).collect::<Result<_, _>>()?;
    let moved = match (place, marks.iter().flatten().next()) {
        (Place::EndNow, Some(mark)) if !arguments.replace => mark.moved,
        _ => moved,
    };
    let mut done = Vec::new();
    for (part, mark) in parts.iter().zip(marks) {
        let mark = mark.filter(|mark| !arguments.replace && mark.moved == moved);
        let from = if let Some(mark) = mark { mark } else { begun(arguments, &store, setup, part, moved)? };
        let written = if from.complete {
            Written { kept: from.written, new: 0, complete: true }
        } else {
            let phase = Phase::begin(&format!("importing {}", part.path.display()), part.seen.windows.max(1), screen.is_json());
            let written = setup.write(&store, part, &from, interrupt, |n| phase.at(n));
            phase.end();
            written?
        };
        done.push(told(part, moved, written));
        if !written.complete {
            return stopped(&done, screen);
        }
    }
    show(&done, setup, config, now, false, screen)
}

/// A new import, unless it would replace what is known.
fn begun(arguments: &Arguments, store: &Store, setup: &Setup, part: &Part, moved: Moved) -> Result<Mark, Failure> {
    if let (Some(seen), false) = (part.seen.first.zip(part.seen.last), arguments.replace) {
        let (first, last) = moved.span(seen);
        let there = wait(store.windows(Some(&setup.service), first.floor(setup.length), last))?;
        let there = there.iter().filter(|w| w.length == setup.length).count();
        if there > 0 {
            return Err(Failure::with_help(
                format!("the history of {} has {there} windows between {first} and {last} already", setup.service),
                "choose another --start or --service, or let this import replace them with --replace",
            ));
        }
    }
    Ok(Mark::new(moved))
}

fn told(part: &Part, moved: Moved, written: Written) -> Told {
    let (first, last) = part.seen.first.zip(part.seen.last).map(|seen| moved.span(seen)).unzip();
    let seen = datasets::Gathered { first, last, ..part.seen };
    let (kept, new, complete) = (written.kept, written.new, written.complete);
    Told { file: part.path.display().to_string(), format: part.format.name(), seen, moved_s: moved.by.0, kept, new, complete }
}

fn show(told: &[Told], setup: &Setup, config: &Config, now: Timestamp, dry: bool, screen: &Screen) -> Result<Outcome, Failure> {
    screen.document(&serde_json::json!({ "service": setup.service, "window_s": setup.length.0, "dry_run": dry, "stopped": false, "files": told }))?;
    for part in told {
        let seen = &part.seen;
        let span = seen.first.zip(seen.last).map_or("no time at all".to_owned(), |(first, last)| format!("{first} to {last}"));
        let gaps = if seen.gaps == 0 { "no gaps".to_owned() } else { format!("{} gaps of {} in all", seen.gaps, Span(seen.gap_s)) };
        screen.say(&format!("{} ({}): {:.0} requests in {} rows, {span}, {gaps}.", part.file, part.format, seen.requests, seen.records))?;
        if part.moved_s != 0 {
            screen.say(&format!("Moved by {} days.", part.moved_s / Span::DAY.0))?;
        }
        let kept = match (dry, part.new) {
            (true, _) => format!("About {} windows of {} would be written.", seen.windows, setup.length),
            (false, 0) => format!("All {} windows of {} were there already.", part.kept, setup.length),
            (false, new) => format!("{new} windows of {} written, {} kept of it in all.", setup.length, part.kept),
        };
        screen.say(&kept)?;
    }
    let last = told.iter().filter_map(|t| t.seen.last).max();
    if last.is_some_and(|last| last < now - config.policy.history) {
        screen.say(&format!("Note: it ends before the {} that forecasts look back; --align now moves it to the present.", config.policy.history))?;
    }
    Ok(Outcome::Done)
}

fn stopped(done: &[Told], screen: &Screen) -> Result<Outcome, Failure> {
    screen.document(&serde_json::json!({ "stopped": true, "files": done }))?;
    let kept: u64 = done.iter().map(|t| t.kept).sum();
    screen.say(&format!("Stopped. {kept} windows are kept; the same command goes on from there."))?;
    Ok(Outcome::Stopped)
}
