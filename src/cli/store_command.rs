//! `turnaround store`: the history itself.

use crate::{Failure, Outcome, Screen, config_file, progress::Phase, situation, tokens};
use clap::{Subcommand, ValueEnum};
use fleet::{Bytes, Span, Timestamp};
use std::path::{Path, PathBuf};
use store::{
    Resolution,
    export::{Export, Format, What, export},
    influx::InitStep,
    wait,
};

/// Look after the history: prepare its server, check it, compact it, export it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 1 when the history is damaged, away, or cannot be written.\n\nExamples:\n  turnaround store init\n  turnaround store check\n  turnaround store export windows --out windows.parquet --days 30\n  turnaround store export observations --resolution hour --out gpu.csv"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Make what is missing: the file, or the buckets, retention and down-sampling tasks of an `InfluxDB`
    Init,
    /// Read everything once and tell whether it is whole
    Check,
    /// Give the room of what was removed back to the disk
    Compact,
    /// Copy a part of it into a file that other programs read
    Export(ExportArguments),
}

#[derive(Debug, clap::Args)]
struct ExportArguments {
    /// What to export
    what: Kind,
    /// The file; .csv makes a CSV, anything else Parquet
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Days back from now
    #[arg(long, value_name = "N", default_value_t = 14, value_parser = clap::value_parser!(u16).range(1..=3650))]
    days: u16,
    /// Of observations: as they came, or summed up
    #[arg(long, default_value = "raw")]
    resolution: Grain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Numbers read
    Observations,
    /// Demand by window
    Windows,
    /// Forecasts by step and quantile
    Forecasts,
    /// What came of plans for services
    Outcomes,
    /// What came of plans for jobs
    Jobs,
    /// Cold starts seen
    Starts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Grain {
    Raw,
    Minute,
    Hour,
}

pub(crate) fn run(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let config = config_file::load(path)?.config;
    match &arguments.what {
        Task::Init => init(&config, screen),
        Task::Check => check(&config, screen),
        Task::Compact => compact(&config, screen),
        Task::Export(wanted) => write(&config, wanted, screen),
    }
}

fn init(config: &config::Config, screen: &Screen) -> Result<Outcome, Failure> {
    let kept = daemon::open_store(config, &tokens::reader())?;
    let location = kept.store.location();
    let Some(influx) = kept.influx else {
        screen.document(&serde_json::json!({ "location": location }))?;
        screen.show(&format!("The history is {location}; its file makes itself.\n"))?;
        return Ok(Outcome::Done);
    };
    let made = wait(influx.init())?;
    let step = |step: &InitStep| format!("{step:?}").to_lowercase();
    let list = |all: &[(String, InitStep)]| all.iter().map(|(name, s)| serde_json::json!({ "name": name, "step": step(s) })).collect::<Vec<_>>();
    screen.document(&serde_json::json!({ "location": location, "version": made.version, "buckets": list(&made.buckets), "tasks": list(&made.tasks) }))?;
    let mut text = format!("{location}, InfluxDB {}\n", made.version.as_deref().unwrap_or("of unknown version"));
    for (kind, all) in [("bucket", &made.buckets), ("task", &made.tasks)] {
        text.extend(all.iter().map(|(name, s)| format!("  {kind} {name}: {}\n", step(s))));
    }
    screen.show(&text)?;
    Ok(Outcome::Done)
}

fn check(config: &config::Config, screen: &Screen) -> Result<Outcome, Failure> {
    let store = there(config)?;
    let phase = Phase::begin("reading everything once", 0, screen.is_json());
    let whole = wait(store.check());
    phase.end();
    let mut series = 0;
    let mut points = 0;
    if whole.is_ok() {
        for kept in wait(store.series_kept(Resolution::Raw))? {
            series += 1;
            points += kept.points;
        }
    }
    let error = whole.as_ref().err().map(ToString::to_string);
    screen
        .document(&serde_json::json!({ "location": store.location(), "whole": error.is_none(), "error": error, "series": series, "observations": points }))?;
    match &error {
        None => screen.show(&format!("{} is whole: {points} observations in {series} series.\n", store.location()))?,
        Some(error) => screen.say(error)?,
    }
    Ok(if error.is_none() { Outcome::Done } else { Outcome::Wrong })
}

fn compact(config: &config::Config, screen: &Screen) -> Result<Outcome, Failure> {
    let _claim = daemon::claim(config)?;
    let store = there(config)?;
    let phase = Phase::begin("compacting", 0, screen.is_json());
    let done = wait(store.compact());
    phase.end();
    let done = done?;
    screen.document(&serde_json::json!({ "location": store.location(), "bytes_before": done.bytes_before, "bytes_after": done.bytes_after }))?;
    screen.show(&format!("{}: {} before, {} now.\n", store.location(), Bytes(done.bytes_before), Bytes(done.bytes_after)))?;
    Ok(Outcome::Done)
}

fn write(config: &config::Config, wanted: &ExportArguments, screen: &Screen) -> Result<Outcome, Failure> {
    let store = there(config)?;
    let now = situation::now();
    let resolution = match wanted.resolution {
        Grain::Raw => Resolution::Raw,
        Grain::Minute => Resolution::Minute,
        Grain::Hour => Resolution::Hour,
    };
    let what = match wanted.what {
        Kind::Observations => What::Observations(resolution),
        Kind::Windows => What::Windows,
        Kind::Forecasts => What::Forecasts,
        Kind::Outcomes => What::Outcomes,
        Kind::Jobs => What::Jobs,
        Kind::Starts => What::Starts,
    };
    let csv = wanted.out.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    let format = if csv { Format::Csv } else { Format::Parquet };
    let from = now - Span::hours(24 * i64::from(wanted.days));
    let to: Timestamp = now + Span(1);
    let phase = Phase::begin(&format!("writing {}", wanted.out.display()), 0, screen.is_json());
    let done = export(&store, Export { what, format, from, to }, &wanted.out, &mut |_| {});
    phase.end();
    let done = done?;
    screen.document(&serde_json::json!({ "file": wanted.out, "rows": done.rows, "bytes": done.bytes, "from": from, "to": to }))?;
    screen.show(&format!("Wrote {}: {} rows, {}.\n", wanted.out.display(), done.rows, Bytes(done.bytes)))?;
    Ok(Outcome::Done)
}

/// The history, which must be there.
fn there(config: &config::Config) -> Result<store::Store, Failure> {
    let missing = || Failure::with_help(format!("there is no history at {} yet", config.store.path.display()), "turnaround run, plan or import makes it");
    situation::existing_store(config)?.ok_or_else(missing)
}
