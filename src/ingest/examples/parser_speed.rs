//! How fast pages are read: ours beside a Rust crate and beside Python's `prometheus_client`, in one run on the same recorded pages.
//!
//! `cargo run --release -p ingest --example parser_speed [folder of recordings]` prints a table to stderr and one line of JSON to stdout. MB are
//! 10^6 bytes. What cannot be measured (no recordings, no Python, no package) is the text "not measured".

use flate2::read::GzDecoder;
use fleet::{TargetId, Timestamp};
use ingest::exposition::{Limits, parse};
use ingest::{Catalogue, Names, ReadAs, split_recording};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Rounds over all pages go on for this long.
const MEASURED_FOR: Duration = Duration::from_millis(1_500);
/// Pages of one recording: more of the same adds nothing.
const PAGES_A_RECORDING: usize = 8;
/// What is installed for comparison.
const PROMETHEUS_CLIENT: &str = "prometheus_client==0.26.0";
/// Reads lengths and pages from its input and parses them as often as time allows; prints seconds, rounds and samples of one round.
const PYTHON: &str = r"
import sys, time
from prometheus_client.parser import text_string_to_metric_families
data, pages = sys.stdin.buffer, []
for line in data:
    pages.append(data.read(int(line)).decode())
read = lambda: sum(len(family.samples) for page in pages for family in text_string_to_metric_families(page))
samples, rounds, start = read(), 0, time.perf_counter()
while rounds == 0 or time.perf_counter() - start < float(sys.argv[1]):
    read()
    rounds += 1
print(time.perf_counter() - start, rounds, samples)
";

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = std::env::args_os().nth(1).map_or_else(|| here.join("../../../shared/data/metrics-pages"), PathBuf::from);
    let pages = recorded(&folder)?;
    if pages.is_empty() {
        eprintln!("no recordings at {}", folder.display());
        println!("{}", json!({ "parser_mb_s": "not measured", "prometheus_client_mb_s": "not measured" }));
        return Ok(());
    }
    let bytes: usize = pages.iter().map(String::len).sum();
    let samples: usize = pages.iter().filter_map(|page| parse(page.as_bytes(), &Limits::default()).ok()).map(|page| page.len()).sum();
    let parser = mb_per_s(&pages, |page| drop(black_box(parse(page.as_bytes(), &Limits::default()))));
    let (target, none, names) = (TargetId::new("page")?, BTreeMap::new(), Names::new());
    let how = ReadAs { target: &target, engine: None, select: &none, names: &names };
    let signals = mb_per_s(&pages, |page| drop(black_box(Catalogue::builtin().read_text(&how, Timestamp(0), page.as_bytes(), &Limits::default()))));
    let (accepted, refused): (Vec<String>, Vec<String>) = pages.iter().cloned().partition(|page| prom_text_format_parser::Scrape::parse(page).is_ok());
    let reference = if accepted.is_empty() { None } else { Some(mb_per_s(&accepted, |page| drop(black_box(prom_text_format_parser::Scrape::parse(page))))) };
    let python = prometheus_client(&here.join("../../target/parser-speed"), &pages);
    let (python_speed, python_samples) = match &python {
        Ok((speed, samples)) => (Some(*speed), json!(samples)),
        Err(why) => {
            eprintln!("prometheus_client: not measured: {why}");
            (None, json!("not measured"))
        }
    };
    let ratio = |other: Option<f64>| other.map_or(json!("not measured"), |other| rounded(parser / other));
    let speed = |speed: Option<f64>| speed.map_or(json!("not measured"), rounded);
    let answer = json!({
        "pages": pages.len(), "bytes": bytes, "samples": samples,
        "parser_mb_s": rounded(parser), "page_to_signals_mb_s": rounded(signals),
        "reference": "prom_text_format_parser 0.1.0", "reference_mb_s": speed(reference), "reference_pages_refused": refused.len(), "ratio_to_reference": ratio(reference),
        "prometheus_client": PROMETHEUS_CLIENT, "prometheus_client_mb_s": speed(python_speed), "prometheus_client_samples": python_samples,
        "ratio_to_prometheus_client": ratio(python_speed),
    });
    for (key, value) in answer.as_object().into_iter().flatten() {
        eprintln!("{key:>28}  {value}");
    }
    println!("{answer}");
    Ok(())
}

fn rounded(value: f64) -> Value {
    json!((value * 10.0).round() / 10.0)
}

/// The last pages of every recording below a folder.
fn recorded(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let Ok(entries) = folder.read_dir() else { return Ok(Vec::new()) };
    let mut files: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path().join("pages.txt.gz")).filter(|file| file.exists()).collect();
    files.sort();
    let mut pages = Vec::new();
    for file in files {
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(file)?).read_to_string(&mut text)?;
        let answered = split_recording(&text).into_iter().rev().filter_map(|page| page.page);
        pages.extend(answered.take(PAGES_A_RECORDING).map(str::to_owned));
    }
    Ok(pages)
}

fn mb_per_s(pages: &[String], read: impl Fn(&str)) -> f64 {
    let round = || pages.iter().for_each(|page| read(page));
    round();
    let (start, mut bytes) = (Instant::now(), 0.0);
    let size = pages.iter().map(|page| f64::from(u32::try_from(page.len()).unwrap_or(u32::MAX))).sum::<f64>();
    while start.elapsed() < MEASURED_FOR {
        round();
        bytes += size;
    }
    bytes / start.elapsed().as_secs_f64() / 1e6
}

/// Speed of Python's client and the samples it saw, from an environment of its own below `folder`.
fn prometheus_client(folder: &Path, pages: &[String]) -> Result<(f64, usize), Box<dyn Error>> {
    let python = folder.join("bin/python");
    if !python.exists() {
        succeeded(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    }
    let installed = Command::new(&python).args(["-m", "pip", "freeze"]).output()?;
    if !String::from_utf8_lossy(&installed.stdout).lines().any(|line| line == PROMETHEUS_CLIENT) {
        succeeded(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PROMETHEUS_CLIENT]))?;
    }
    let seconds = MEASURED_FOR.as_secs_f64().to_string();
    let mut child = Command::new(&python).args(["-c", PYTHON, &seconds]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().ok_or("no input")?;
    for page in pages {
        writeln!(input, "{}", page.len())?;
        input.write_all(page.as_bytes())?;
    }
    drop(input);
    let output = child.wait_with_output()?;
    let text = String::from_utf8(output.stdout)?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let [seconds, rounds, samples] = words[..] else { return Err(format!("an answer that is none: {text:?}").into()) };
    let bytes = pages.iter().map(|page| f64::from(u32::try_from(page.len()).unwrap_or(u32::MAX))).sum::<f64>() * rounds.parse::<f64>()?;
    Ok((bytes / seconds.parse::<f64>()? / 1e6, samples.parse()?))
}

fn succeeded(command: &mut Command) -> Result<(), Box<dyn Error>> {
    let output = command.output()?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into()) }
}
