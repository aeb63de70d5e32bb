//! `turnaround`: the one binary. Each command is one file with its arguments, its help and its `run`; this file parses, and is the only
//! one that picks an exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; for `plan`: nothing to change |
//! | 1 | an error: something could not be read, written or reached |
//! | 2 | `plan`: there are changes |
//! | 3 | the verifier refused a plan |
//! | 4 | no forecast or plan is possible: too little data, infeasible, out of time |
//! | 64 | the command line is wrong |
//! | 78 | the configuration is wrong |
//! | 130 | stopped by Ctrl-C half-way; what was done is kept |

mod agent;
mod config_file;
mod demo;
mod demo_charts;
mod demo_decision;
mod demo_scenario;
mod demo_summary;
mod diagnostics;
mod discover;
mod discover_diff;
mod discover_gpus;
mod discover_look;
mod discover_nodes;
mod discover_services;
mod discover_text;
mod doctor;
mod doctor_found;
mod explain;
mod failure;
mod forecast;
mod import;
mod import_mark;
mod import_prometheus;
mod import_trace;
mod init;
mod interrupt;
mod look_once;
mod plan;
mod progress;
mod run;
mod schema;
mod screen;
mod situation;
mod status;
mod store_command;
mod tokens;
mod traces;
mod verify;
mod worker;

#[cfg(test)]
mod discover_tests;

use clap::{Args, Parser, Subcommand};
use failure::{Failure, USAGE};
use screen::Screen;
use std::{ffi::OsString, path::PathBuf, process::ExitCode};

const EXIT_CODES: &str = "\
Exit codes:
  0   done; for `plan`: nothing to change
  1   an error: something could not be read, written or reached
  2   `plan`: there are changes
  3   the verifier refused a plan
  4   no forecast or plan is possible: too little data, infeasible, out of time
  64  the command line is wrong
  78  the configuration is wrong
  130 stopped by Ctrl-C half-way; what was done is kept

Examples:
  turnaround demo                        two weeks of the whole loop in a minute, no GPU needed
  turnaround init --sample               a commented configuration that runs as it is
  turnaround plan                        what would be done now, as a diff; exit code 2 when there are changes
  turnaround plan --json | jq .diff      the same for machines
  turnaround run                         the daemon";

/// A forecasting autoscaler with feedback learning for GPU fleets.
#[derive(Debug, Parser)]
#[command(name = "turnaround", version, after_help = EXIT_CODES, max_term_width = 110, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// What every command understands.
#[derive(Debug, Args)]
struct Common {
    /// The configuration
    #[arg(long, global = true, value_name = "FILE", default_value = "turnaround.toml")]
    config: PathBuf,
    /// Machine-readable output: one JSON document on standard output, and nothing else there
    #[arg(long, global = true)]
    json: bool,
    /// Only ASCII characters in texts
    #[arg(long, global = true)]
    ascii: bool,
    /// Say more on standard error (twice: everything)
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::Arguments),
    Init(init::Arguments),
    Run(run::Arguments),
    Import(Box<import::Arguments>),
    Forecast(forecast::Arguments),
    Plan(plan::Arguments),
    Verify(verify::Arguments),
    Status(status::Arguments),
    Store(store_command::Arguments),
    Doctor(doctor::Arguments),
    Agent(agent::Arguments),
    Schema(schema::Arguments),
    Explain(explain::Arguments),
    #[command(hide = true)]
    Worker(worker::Arguments),
}

/// How a command ended, when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Done, or nothing to change.
    Done,
    /// Done, and something is found wrong.
    Wrong,
    /// There are changes.
    Changes,
    /// The verifier said no.
    Refused,
    /// No forecast or plan can be made.
    Impossible,
    /// Ended by Ctrl-C half-way; what was done is kept.
    Stopped,
}

impl Outcome {
    fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Wrong => 1,
            Self::Changes => 2,
            Self::Refused => 3,
            Self::Impossible => 4,
            // 128 + SIGINT, as shells have it.
            Self::Stopped => 130,
        }
    }
}

fn main() -> ExitCode {
    let raw: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&raw) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, raw.iter().any(|a| a == "--json")),
    };
    let screen = Screen::new(cli.common.json, cli.common.ascii);
    listen(&cli);
    match dispatch(&cli, &screen) {
        Ok(outcome) => ExitCode::from(outcome.code()),
        Err(failure) => {
            diagnostics::report(&failure, &screen);
            ExitCode::from(failure.code())
        }
    }
}

fn dispatch(cli: &Cli, screen: &Screen) -> Result<Outcome, Failure> {
    let config = &cli.common.config;
    match &cli.command {
        Command::Demo(arguments) => demo::run(arguments, screen),
        Command::Init(arguments) => init::run(arguments, screen),
        Command::Run(arguments) => run::run(arguments, config, screen),
        Command::Import(arguments) => import::run(arguments, config, screen),
        Command::Forecast(arguments) => forecast::run(arguments, config, screen),
        Command::Plan(arguments) => plan::run(arguments, config, screen),
        Command::Verify(arguments) => verify::run(arguments, config, screen),
        Command::Status(arguments) => status::run(arguments, config, screen),
        Command::Store(arguments) => store_command::run(arguments, config, screen),
        Command::Doctor(arguments) => doctor::run(arguments, config, screen),
        Command::Agent(arguments) => agent::run(arguments, screen),
        Command::Schema(arguments) => schema::run(arguments, screen),
        Command::Explain(arguments) => explain::run(arguments, screen),
        Command::Worker(arguments) => worker::run(arguments),
    }
}

/// Help and version are no errors; anything else is a wrong command line.
fn usage(error: &clap::Error, json: bool) -> ExitCode {
    let wrong = error.use_stderr();
    // When the terminal is gone there is nobody left to tell.
    let _ = error.print();
    if wrong && json {
        let first = error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        println!("{}", serde_json::json!({ "error": { "message": first, "exit_code": USAGE } }));
    }
    ExitCode::from(if wrong { USAGE } else { 0 })
}

/// What happens is told on standard error. `TURNAROUND_LOG` takes the filters of `tracing`, such as `ingest=debug`.
fn listen(cli: &Cli) {
    let daemon = matches!(cli.command, Command::Run(_) | Command::Agent(_));
    let level = match (cli.common.verbose, daemon) {
        (0, false) => "error",
        (0, true) | (1, _) => "info",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("TURNAROUND_LOG").unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).with_target(false);
    // A second subscriber cannot be set; there is only this one.
    let _ = if matches!(&cli.command, Command::Run(run) if run.log_json) {
        log.json().try_init()
    } else {
        log.with_ansi(console::colors_enabled_stderr()).try_init()
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn outcomes_have_codes_of_their_own() {
        let codes: std::collections::BTreeSet<u8> = [Outcome::Done, Outcome::Wrong, Outcome::Changes, Outcome::Refused, Outcome::Impossible, Outcome::Stopped]
            .map(Outcome::code)
            .into_iter()
            .chain([USAGE])
            .collect();
        assert_eq!(codes.len(), 7);
    }
}
