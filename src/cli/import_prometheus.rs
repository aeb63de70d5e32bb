//! The past of a Prometheus as history: read in chunks, turned into windows as if each look had been ours, written chunk by chunk.

use crate::import::Arguments;
use crate::import_mark::{kept, name_of};
use crate::{Failure, Outcome, Screen, interrupt::Interrupt, progress::Phase, situation};
use config::Config;
use fleet::{Scrape, Span, Target, TargetId, Timestamp, Workload, WorkloadWindow};
use ingest::query::{Access, Backfill, Prometheus, instance_labels, selector};
use ingest::{Catalogue, Reader};
use serde::{Deserialize, Serialize};
use series::Windows;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use store::{Batch, Store, wait};
use wire::{Auth, Client, Secret};

/// Shape of a mark; another shape is begun anew.
const VERSION: u32 = 1;
/// Largest answer of one chunk.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// A chunk of many replicas takes a server a while.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);
/// Instances of one service, at most.
const INSTANCES_MAX: usize = 2_000;
/// Notes that are told.
const NOTES_MAX: usize = 5;

/// How far the past was read, and the bookkeeping at that point.
#[derive(Debug, Serialize, Deserialize)]
struct Reached {
    version: u32,
    from: Timestamp,
    /// Last step read.
    to: Timestamp,
    windows: Windows,
    kept: u64,
}

/// What is to be read.
pub(crate) struct Past<'a> {
    pub service: &'a Workload,
    /// Labels every series of the service has.
    pub select: BTreeMap<String, String>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Spacing of looks.
    pub step: Span,
    /// Length of a window.
    pub length: Span,
    /// Windows that are there already make way.
    pub replace: bool,
}

/// What became of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Filled {
    /// Engines found.
    pub instances: usize,
    /// Windows written by this run.
    pub new: u64,
    /// Windows kept of this back-fill in all.
    pub kept: u64,
    /// Last step read.
    pub reached: Option<Timestamp>,
    /// All was read.
    pub complete: bool,
    /// What the server warned of.
    pub notes: BTreeSet<String>,
}

pub(crate) fn run(arguments: &Arguments, url: &str, config: &Config, length: Span, interrupt: &Interrupt, screen: &Screen) -> Result<Outcome, Failure> {
    let Some(service) = config.workloads.iter().find(|w| w.id == arguments.service) else {
        return Err(Failure::new(format!("there is no service {}", arguments.service)));
    };
    let to = situation::now().floor(length);
    let select = labels(&arguments.selector)?;
    let past = Past { service, select, from: to - Span::hours(i64::from(arguments.days) * 24), to, step: arguments.step, length, replace: arguments.replace };
    let server = server(url, arguments.token_file.as_deref())?;
    let catalogue = Catalogue::with(config.engines.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let targets = runtime.block_on(targets(&server, &catalogue, &past))?;
    if arguments.dry_run {
        let names: Vec<&str> = targets.iter().map(|(t, _)| t.id.as_str()).collect();
        screen.document(&serde_json::json!({ "service": service.id, "dry_run": true, "from": past.from, "to": past.to, "instances": names }))?;
        screen.say(&format!("{} instances of {} would be read from {} to {}: {}.", names.len(), service.id, past.from, past.to, names.join(", ")))?;
        return Ok(Outcome::Done);
    }
    let _claim = daemon::claim(config)?;
    let store = situation::open_store(config)?;
    let phase = Phase::begin(&format!("importing {}", service.id), steps(past.to.since(past.from), past.step), screen.is_json());
    let mark = name_of(&service.id, &format!("prometheus {} {:?} {} {}", server.shown(), past.select, past.step.0, length.0));
    let filled = runtime.block_on(back_fill(&server, &catalogue, &past, &targets, &store, &mark, interrupt, |left| phase.at(left)));
    phase.end();
    show(&filled?, &past, screen)
}

fn show(filled: &Filled, past: &Past<'_>, screen: &Screen) -> Result<Outcome, Failure> {
    screen.document(&serde_json::json!({ "service": past.service.id, "window_s": past.length.0, "stopped": !filled.complete, "filled": filled }))?;
    let reached = filled.reached.map_or("nothing was read".to_owned(), |to| format!("read up to {to}"));
    screen
        .say(&format!("{}: {} instances, {reached}, {} windows written, {} kept of it in all.", past.service.id, filled.instances, filled.new, filled.kept))?;
    for note in filled.notes.iter().take(NOTES_MAX) {
        screen.say(&format!("Note: {note}"))?;
    }
    if filled.complete {
        return Ok(Outcome::Done);
    }
    screen.say("Stopped. The same command goes on from there.")?;
    Ok(Outcome::Stopped)
}

/// A Prometheus to be asked.
pub(crate) fn server(url: &str, token_file: Option<&Path>) -> Result<Prometheus, Failure> {
    let auth = match token_file {
        None => Auth::None,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| Failure::file("read the token file", path, &error))?;
            Auth::Bearer(Secret::new(text.trim()))
        }
    };
    let limits = wire::Limits { timeout: ANSWER_TIMEOUT, read_timeout: ANSWER_TIMEOUT, body_bytes_max: ANSWER_BYTES_MAX, ..wire::Limits::default() };
    let client = Client::new(&wire::Options { limits, ..wire::Options::default() })?;
    Ok(Prometheus::new(client, Access { url: url.to_owned(), auth, tenant: None }))
}

/// Metrics that are read of the past: those of the catalogue without the buckets of its histograms, which are most of the series.
fn names(catalogue: &Catalogue) -> impl Iterator<Item = &String> {
    catalogue.metric_names().iter().filter(|name| !name.ends_with("_bucket"))
}

/// The instances that show the service, each as a replica.
///
/// # Errors
/// When the server cannot be asked, or knows none.
pub(crate) async fn targets(server: &Prometheus, catalogue: &Catalogue, past: &Past<'_>) -> Result<Vec<(Target, Reader)>, Failure> {
    let wanted = selector(names(catalogue).map(String::as_str), &past.select);
    let series = server.series(&[wanted], past.from, past.to).await?;
    let variant = past.service.service().and_then(|s| s.variants.first().cloned());
    let mut found = BTreeMap::new();
    for labels in series {
        let identity: BTreeMap<String, String> = instance_labels().into_iter().filter_map(|name| Some((name.clone(), labels.get(&name)?.clone()))).collect();
        let id = TargetId::new(identity.values().cloned().collect::<Vec<_>>().join("/"))?;
        let select: BTreeMap<String, String> = past.select.clone().into_iter().chain(identity).collect();
        let target = Target { id: id.clone(), workload: past.service.id.clone(), variant: variant.clone(), replica: None, gpus: Vec::new(), pod: None };
        found.insert(id.clone(), (target, Reader { select, ..Reader::of(id) }));
    }
    match found.len() {
        0 => Err(Failure::with_help(
            format!("{} has no serving engine's series that match", server.shown()),
            "turnaround doctor lists what it has; --match names labels the service's engines carry, such as {job=\"vllm\"}",
        )),
        n if n > INSTANCES_MAX => {
            Err(Failure::with_help(format!("{n} instances match, at most {INSTANCES_MAX} are read at once"), "narrow --match to one service"))
        }
        _ => Ok(found.into_values().collect()),
    }
}

/// Reads the past and writes it, a chunk and its mark at a time; `progress` is told the steps done. Called again it goes on where it was, and
/// later it goes on to the later end.
///
/// # Errors
/// When the server or the store fails; what was written stays, with its mark.
#[expect(clippy::too_many_arguments, reason = "where from, what, where to, and who watches")]
pub(crate) async fn back_fill(
    server: &Prometheus,
    catalogue: &Catalogue,
    past: &Past<'_>,
    targets: &[(Target, Reader)],
    store: &Store,
    mark: &str,
    interrupt: &Interrupt,
    progress: impl Fn(u64),
) -> Result<Filled, Failure> {
    let before = kept::<Reached>(store, mark)?.filter(|r| r.version == VERSION && !past.replace && r.from <= past.from && r.to >= past.from);
    let mut reached =
        before.unwrap_or_else(|| Reached { version: VERSION, from: past.from, to: past.from - past.step, windows: Windows::new(past.length), kept: 0 });
    let readers = targets.iter().map(|(_, reader)| reader.clone()).collect();
    let span = (reached.to + past.step, past.to);
    let mut source = Backfill::new(readers, names(catalogue).cloned(), past.select.clone(), span, past.step);
    let mut filled = Filled { instances: targets.len(), kept: reached.kept, reached: Some(reached.to), ..Filled::default() };
    while !interrupt.is_asked() {
        let Some(chunk) = source.next(server, catalogue).await? else {
            filled.complete = true;
            break;
        };
        filled.notes.extend(chunk.warnings);
        if chunk.partial {
            filled.notes.insert("the server said that part of its data is missing".to_owned());
        }
        let windows = observe(&mut reached.windows, past, targets, &chunk.scrapes, chunk.to);
        let windows = if past.replace { windows } else { more_complete(store, past, windows)? };
        filled.new += u64::try_from(windows.len()).unwrap_or(0);
        reached.to = chunk.to;
        reached.kept += u64::try_from(windows.len()).unwrap_or(0);
        let snapshots = vec![(mark.to_owned(), serde_json::to_vec(&reached)?)];
        wait(store.append(Batch { windows, snapshots, ..Batch::default() }))?;
        (filled.kept, filled.reached) = (reached.kept, Some(reached.to));
        progress(steps(chunk.to.since(past.from), past.step));
    }
    Ok(filled)
}

/// The windows that scrapes of a chunk complete. What was not observed is no window.
fn observe(windows: &mut Windows, past: &Past<'_>, targets: &[(Target, Reader)], scrapes: &[Scrape], to: Timestamp) -> Vec<WorkloadWindow> {
    let ttft_s = past.service.service().map_or(f64::INFINITY, |s| s.target.ttft_s);
    for scrape in scrapes {
        if let Some((target, _)) = targets.iter().find(|(t, _)| t.id == scrape.target) {
            windows.observe(target, ttft_s, scrape);
        }
    }
    let all: Vec<Target> = targets.iter().map(|(t, _)| t.clone()).collect();
    windows.close(to, &all).into_iter().filter(|w| w.completeness > 0.0).collect()
}

/// Leaves out windows of which the history has a fuller one: what was seen live stays.
fn more_complete(store: &Store, past: &Past<'_>, windows: Vec<WorkloadWindow>) -> Result<Vec<WorkloadWindow>, Failure> {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return Ok(windows) };
    let there = wait(store.windows(Some(&past.service.id), first.start, last.start + past.length))?;
    let there: BTreeMap<Timestamp, f64> = there.iter().filter(|w| w.length == past.length).map(|w| (w.start, w.completeness)).collect();
    Ok(windows.into_iter().filter(|w| there.get(&w.start).is_none_or(|completeness| w.completeness > *completeness)).collect())
}

fn steps(span: Span, step: Span) -> u64 {
    u64::try_from(span.0 / step.0.max(1)).unwrap_or(0)
}

/// Labels and values of a selector: `{job="vllm",cluster="a"}`.
pub(crate) fn labels(text: &str) -> Result<BTreeMap<String, String>, Failure> {
    let refuse = |part: &str| {
        Failure::usage(
            format!("{part:?} in --match is no label with a value"),
            "write it as {job=\"vllm\",cluster=\"a\"}: equality only, no regular expressions",
        )
    };
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).ok_or_else(|| refuse(text))?;
    let mut labels = BTreeMap::new();
    for part in inner.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').ok_or_else(|| refuse(part))?;
        let value = value.trim().strip_prefix('"').and_then(|v| v.strip_suffix('"')).ok_or_else(|| refuse(part))?;
        let name = name.trim();
        if name.is_empty() || name.ends_with('!') || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(refuse(part));
        }
        labels.insert(name.to_owned(), value.to_owned());
    }
    Ok(labels)
}

#[cfg(test)]
#[path = "import_prometheus_tests.rs"]
mod tests;
