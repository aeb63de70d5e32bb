//! `turnaround init`: a configuration to begin with.

use crate::discover::{self, Discovered, counted};
use crate::discover_diff::diff;
use crate::discover_look::{Asking, at_pages, through_prometheus};
use crate::discover_text::{Place, render, selector};
use crate::doctor::message;
use crate::{Failure, Outcome, Screen, import, progress::Phase};
use clap::Parser as _;
use report::wrap;
use std::{
    ffi::OsString,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
};

/// Write a commented configuration that runs as it is
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("from").required(true).args(["sample", "prometheus", "endpoint"]),
    after_help = "A file that is there is left as it is, and what would change is shown. Exit code 0 when written, or when nothing would change; 1 when a \
                  file is there or nothing answers; 4 when what was found does not make a plan (no GPUs, or no service).\n\nExamples:\n  \
                  turnaround init --prometheus http://prometheus:9090\n  turnaround init --endpoint http://gpu001:8000 --endpoint http://gpu001:9400\n  \
                  turnaround init --sample\n  turnaround init --sample --out fleet.toml\n  turnaround init --sample --force      replace what is there"
)]
pub(crate) struct Arguments {
    /// The fleet and workloads of the demo, fed by the traffic that comes with the program
    #[arg(long)]
    sample: bool,
    /// What a Prometheus knows: services, engines, replicas, GPUs and who holds them (also `VictoriaMetrics`, Thanos, Mimir)
    #[arg(long, value_name = "URL")]
    prometheus: Option<String>,
    /// What these metrics pages tell: serving engines, routers, DCGM exporters (repeatable)
    #[arg(long, value_name = "URL")]
    endpoint: Vec<String>,
    #[command(flatten)]
    asking: Asking,
    /// Where to write it
    #[arg(long, value_name = "FILE", default_value = "turnaround.toml")]
    out: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// Leave the past of the Prometheus where it is; otherwise its last 14 days become history
    #[arg(long, requires = "prometheus")]
    no_history: bool,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    if arguments.sample {
        return sample(arguments, screen);
    }
    let (found, place) = look(arguments, screen)?;
    if !found.is_plannable() {
        return nothing(&found, screen);
    }
    let text = render(&found, &place, daemon::Clock::system().now());
    // What was found is only written when it can be read again.
    if let Err(faults) = config::parse(&text, &arguments.out.display().to_string()) {
        return Err(Failure::ConfigFaults { text, faults });
    }
    if !put(&text, &arguments.out, arguments.force, screen)? {
        return Ok(Outcome::Done);
    }
    let path = arguments.out.display().to_string();
    screen.document(&document(&found, &path, &text))?;
    screen.show(&told(&found, &path, &text, screen))?;
    match &arguments.prometheus {
        Some(url) if !arguments.no_history && !screen.is_json() => back_fill(url, arguments, &found, screen),
        _ => Ok(Outcome::Done),
    }
}

/// An import, as the command line would have it.
#[derive(clap::Parser)]
struct Import {
    #[command(flatten)]
    arguments: import::Arguments,
}

/// Makes the past of each service its history. What does not work is told; the configuration stands without it. (With --json there is one document a
/// command, so the past is a matter of `turnaround import` then.)
fn back_fill(url: &str, arguments: &Arguments, found: &Discovered, screen: &Screen) -> Result<Outcome, Failure> {
    for service in &found.services {
        let selector = selector(&service.select, None).unwrap_or_else(|| "{}".to_owned());
        let mut words: Vec<OsString> = ["import", "--prometheus", url, "--service", &service.name, "--match", &selector].map(OsString::from).into();
        if let Some(file) = &arguments.asking.token_file {
            words.extend([OsString::from("--token-file"), file.into()]);
        }
        let import = Import::try_parse_from(words)?;
        match import::run(&import.arguments, &arguments.out, screen) {
            Ok(Outcome::Stopped) => return Ok(Outcome::Stopped),
            Ok(_) => {}
            Err(failure) => screen.say(&format!("Note: the past of {} was not read: {}", service.name, message(&failure)))?,
        }
    }
    Ok(Outcome::Done)
}

fn look(arguments: &Arguments, screen: &Screen) -> Result<(Discovered, Place), Failure> {
    let now = daemon::Clock::system().now();
    let phase = Phase::begin("looking for what runs", 0, screen.is_json());
    let instances = match &arguments.prometheus {
        Some(url) => through_prometheus(url, &arguments.asking, now).map(|known| known.instances),
        None => at_pages(&arguments.endpoint, &arguments.asking, now),
    };
    phase.end();
    let found = discover::fleet(&instances?);
    let mut access = Vec::new();
    let files = [("token_file", &arguments.asking.token_file), ("ca_file", &arguments.asking.ca_file)];
    for (key, path) in files {
        // Paths in a configuration are taken from its own folder.
        access.extend(path.as_ref().map(|path| (key, std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string())));
    }
    access.extend(arguments.asking.tenant.clone().filter(|_| arguments.prometheus.is_some()).map(|tenant| ("tenant", tenant)));
    Ok((found, Place { prometheus: arguments.prometheus.clone(), access }))
}

/// Says what is missing for a plan.
fn nothing(found: &Discovered, screen: &Screen) -> Result<Outcome, Failure> {
    let why = if found.services.is_empty() { "no page of a serving engine was found" } else { "no page tells of GPUs that can be planned with" };
    screen.document(&serde_json::json!({ "written": null, "reason": why, "gpus": found.gpus(), "remarks": found.remarks }))?;
    screen.show(&format!("Nothing was written: {why}, so there is nothing to plan. {} GPUs were seen.\n", found.gpus()))?;
    screen.show(&remarks(found, screen))?;
    screen.say("`turnaround init --sample` shows what a configuration holds; engines that are not known are described under [[engine]].")?;
    Ok(Outcome::Impossible)
}

fn document(found: &Discovered, path: &str, text: &str) -> serde_json::Value {
    let services: Vec<_> = found
        .services
        .iter()
        .map(|s| {
            let variants: Vec<_> =
                s.variants.iter().map(|v| serde_json::json!({ "kind": v.kind, "gpus": v.gpus, "replicas": v.instances.len(), "assumed": v.assumed })).collect();
            serde_json::json!({ "name": s.name, "model": s.model, "engines": s.engines, "variants": variants, "missing_signals": s.missing })
        })
        .collect();
    let pools: Vec<_> = found.pools.iter().map(|p| serde_json::json!({ "kind": p.kind, "nodes": p.nodes.len(), "gpus_per_node": p.gpus_per_node })).collect();
    serde_json::json!({
        "written": path, "bytes": text.len(), "lines": text.lines().count(), "gpus": found.gpus(), "pools": pools, "services": services,
        "held_otherwise": found.held_otherwise, "not_held": found.not_held, "remarks": found.remarks,
    })
}

fn told(found: &Discovered, path: &str, text: &str, screen: &Screen) -> String {
    let mut lines = vec![format!("Wrote {path}: {}. It runs as it is.", counted(text.lines().count(), "line"))];
    let row = |number: usize, what: &str| format!("  {number:>4} GPUs  {what}");
    lines.extend(found.pools.iter().map(|pool| {
        let assumed = if pool.assumed { ", assumed" } else { "" };
        row(pool.nodes.len() * pool.gpus_per_node as usize, &format!("{} on {}{assumed}", pool.kind, counted(pool.nodes.len(), "node")))
    }));
    for service in &found.services {
        let on = service.variants.iter().map(|variant| {
            let assumed = if variant.assumed { " (assumed)" } else { "" };
            row(
                variant.instances.len() * variant.gpus as usize,
                &format!("{}: {} of {} {}{assumed}", service.name, counted(variant.instances.len(), "replica"), variant.gpus, variant.kind),
            )
        });
        lines.extend(on.map(|line| format!("{line}, {}", service.engine())));
    }
    let others: usize = found.held_otherwise.values().sum();
    if others > 0 {
        let names: Vec<&str> = found.held_otherwise.keys().take(5).map(String::as_str).collect();
        lines.push(row(others, &format!("held by {}: no serving page tells of it, so occupied", names.join(", "))));
    }
    if found.not_held > 0 {
        lines.push(row(found.not_held, "not in use, as far as pages tell"));
    }
    let config = if path == "turnaround.toml" { String::new() } else { format!(" --config {path}") };
    let next = format!("Prices are not known; add them to the pools. Next  turnaround doctor{config}; turnaround plan{config}\n");
    format!("{}\n{}{next}", lines.join("\n"), remarks(found, screen))
}

fn remarks(found: &Discovered, screen: &Screen) -> String {
    let lines = found.remarks.iter().flat_map(|remark| wrap(&format!("Note: {remark}"), screen.look().width));
    lines.map(|line| line + "\n").collect()
}

fn sample(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    let text = config::sample();
    let path = arguments.out.display().to_string();
    if !put(&text, &arguments.out, arguments.force, screen)? {
        return Ok(Outcome::Done);
    }
    let config = if path == "turnaround.toml" { String::new() } else { format!(" --config {path}") };
    screen.document(&serde_json::json!({ "written": path, "bytes": text.len() }))?;
    screen.show(&format!("Wrote {path}: 24 GPUs, three services on recorded traffic, three jobs. It runs as it is.\nNext     turnaround plan{config}\n"))?;
    Ok(Outcome::Done)
}

/// Writes a file that is not there yet. One that is there is left as it is: the same is told, another gives the difference. Tells whether it was
/// written.
fn put(text: &str, out: &Path, force: bool, screen: &Screen) -> Result<bool, Failure> {
    let mut options = std::fs::OpenOptions::new();
    if force {
        options.write(true).create(true).truncate(true)
    } else {
        options.write(true).create_new(true)
    };
    match options.open(out).and_then(|mut file| file.write_all(text.as_bytes())) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let old = std::fs::read_to_string(out).unwrap_or_default();
            // The first line of what was found tells when that was.
            let change = diff(&undated(&old), &undated(text));
            if change.is_empty() {
                screen.document(&serde_json::json!({ "written": null, "unchanged": out.display().to_string() }))?;
                screen.show(&format!("{} says the same already.\n", out.display()))?;
                return Ok(false);
            }
            screen.show(&change)?;
            Err(Failure::with_help(format!("{} is there already and was left as it is", out.display()), "--out writes another file, --force replaces this one"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Failure::with_help(format!("cannot write {}: its folder does not exist", out.display()), "make the folder first"))
        }
        Err(error) => Err(Failure::file("write", out, &error)),
    }
}

/// A text without the instant in its first line.
fn undated(text: &str) -> String {
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("# Found ") => {
            let first: Vec<&str> = first.split(' ').filter(|word| word.strip_suffix(':').unwrap_or(word).parse::<fleet::Timestamp>().is_err()).collect();
            format!("{}\n{rest}", first.join(" "))
        }
        _ => text.to_owned(),
    }
}
