//! `turnaround init`: a configuration to begin with.

use crate::{Failure, Outcome, Screen};
use std::{
    io::{ErrorKind, Write},
    path::PathBuf,
};

/// Write a commented configuration that runs as it is
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  turnaround init --sample\n  turnaround init --sample --out fleet.toml\n  turnaround init --sample --force      replace what is there"
)]
pub(crate) struct Arguments {
    /// The fleet and workloads of the demo, fed by the traffic that comes with the program
    #[arg(long, required = true)]
    sample: bool,
    /// Where to write it
    #[arg(long, value_name = "FILE", default_value = "turnaround.toml")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    debug_assert!(arguments.sample, "asked for by the command line");
    let text = config::sample();
    let out = &arguments.out;
    let mut options = std::fs::OpenOptions::new();
    if arguments.force {
        options.write(true).create(true).truncate(true)
    } else {
        options.write(true).create_new(true)
    };
    let written = options.open(out).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::with_help(format!("{} is there already and was left as it is", out.display()), "--out writes another file, --force replaces this one")
        }
        ErrorKind::NotFound => Failure::with_help(format!("cannot write {}: its folder does not exist", out.display()), "make the folder first"),
        _ => Failure::file("write", out, &error),
    })?;
    let path = out.display().to_string();
    let config = if path == "turnaround.toml" { String::new() } else { format!(" --config {path}") };
    screen.document(&serde_json::json!({ "written": path, "bytes": text.len() }))?;
    screen.show(&format!("Wrote {path}: 24 GPUs, three services on recorded traffic, three jobs. It runs as it is.\nNext     turnaround plan{config}\n"))?;
    Ok(Outcome::Done)
}
