//! Recorded pages of real engines and routers: what is recognised, what is found, how totals agree with the clients' own logs, and what happens
//! when any one name goes.

use flate2::read::GzDecoder;
use fleet::{Scrape, Signal, TargetId, Timestamp};
use ingest::exposition::{Limits, parse};
use ingest::{Catalogue, Names, ReadAs, split_recording};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;

fn recording(name: &str, file: &str) -> Option<String> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/metrics-pages")).join(name).join(file);
    if !path.exists() {
        eprintln!("skipped: no recording at {}", path.display());
        return None;
    }
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    Some(text)
}

/// One request as its client saw it, by column.
fn requests(name: &str) -> Vec<BTreeMap<String, String>> {
    let text = recording(name, "requests.csv.gz").unwrap();
    csv::Reader::from_reader(text.as_bytes()).deserialize().map(Result::unwrap).collect()
}

fn total(rows: &[BTreeMap<String, String>], column: &str) -> f64 {
    rows.iter().filter_map(|row| row[column].parse::<f64>().ok()).sum()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap())
}

fn read(page: &str, select: &[(&str, &str)]) -> Scrape {
    let select = select.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    let how = ReadAs { target: &TargetId::new("a").unwrap(), engine: None, select: &select, names: &Names::new() };
    Catalogue::builtin().read_text(&how, Timestamp(0), page.as_bytes(), &Limits::default())
}

/// Pages of a recording that were answered, of one kind where it holds several.
fn pages<'a>(recording: &'a str, which: Option<&str>) -> Vec<&'a str> {
    split_recording(recording).into_iter().filter(|page| which.is_none() || page.which == which).filter_map(|page| page.page).collect()
}

/// Folder, page (where it holds several) and engine of every recording.
const RECORDED: [(&str, Option<&str>, &str); 10] = [
    ("vllm-0.9.2", None, "vllm"),
    ("vllm-0.12.0", None, "vllm"),
    ("vllm-0.32.0", None, "vllm"),
    ("vllm-0.32.0-dp2", None, "vllm"),
    ("litellm-1.99.4", Some("litellm"), "litellm"),
    ("litellm-1.99.4", Some("vllm"), "vllm"),
    ("dynamo-1.6.1", Some("frontend"), "dynamo"),
    ("dynamo-1.6.1", Some("worker"), "dynamo-worker"),
    ("llama.cpp-b11434", None, "llama.cpp"),
    ("ray-serve-2.60.0", None, "ray-serve"),
];

#[test]
fn every_recorded_engine_is_recognised_and_complete() {
    for (name, which, engine) in RECORDED {
        let Some(recording) = recording(name, "pages.txt.gz") else { return };
        let pages = pages(&recording, which);
        let last = read(pages.last().unwrap(), &[]);
        let server = last.server.clone().unwrap_or_else(|| panic!("{name} {which:?}: {last:?}"));
        let (version, models) = match engine {
            "ray-serve" => (Some("2.60.0"), "Echo ToyLlm"),
            "llama.cpp" => (None, ""),
            _ => (None, "tiny-llama"),
        };
        assert_eq!((server.engine.as_str(), server.version.as_deref(), server.models.join(" ").as_str()), (engine, version, models), "{name}");
        assert_eq!(Catalogue::builtin().missing_signals(&last), [], "{name} {which:?}");
        assert!(pages.iter().all(|page| read(page, &[]).skipped.is_empty()), "{name} {which:?}");
        let whole = parse(pages.last().unwrap().as_bytes(), &Limits::default()).unwrap();
        assert_eq!(Catalogue::builtin().recognise(&whole).first(), Some(&server), "{name}: with every line read");
    }
}

/// Field case 15: two engines behind one page stay two members.
#[test]
fn members_of_a_recorded_server_stay_apart() {
    let Some(recording) = recording("vllm-0.32.0-dp2", "pages.txt.gz") else { return };
    let last = read(pages(&recording, None).last().unwrap(), &[]);
    let of = |signal: Signal| last.members(signal).map(|(member, _)| member.map(|member| member.as_str().to_owned())).collect::<Vec<_>>();
    for signal in [Signal::PromptTokens, Signal::RequestsRunning, Signal::KvUsageMax, Signal::TimeToFirstToken] {
        assert_eq!(of(signal), [Some("0".to_owned()), Some("1".to_owned())], "{}", signal.name());
    }
    assert_eq!((of(Signal::RequestsRefused), last.scalar(Signal::RequestsFinished)), (vec![None], Some(682.0)));
}

/// A request that was on its way when recording began is on the page and not in the log: differences are compared.
#[test]
fn a_dynamo_frontend_agrees_with_its_client() {
    let Some(recording) = recording("dynamo-1.6.1", "pages.txt.gz") else { return };
    let pages = pages(&recording, Some("frontend"));
    let (first, last, log) = (read(pages[1], &[]), read(pages.last().unwrap(), &[]), requests("dynamo-1.6.1"));
    let grown = |signal: Signal| last.scalar(signal).unwrap() - first.scalar(signal).unwrap();
    for (signal, logged) in [
        (Signal::RequestsReceived, count(log.len())),
        (Signal::RequestsFinished, count(log.len())),
        (Signal::PromptTokens, total(&log, "prompt_tokens")),
        (Signal::GenerationTokens, total(&log, "output_tokens")),
    ] {
        assert_eq!(grown(signal).total_cmp(&logged), std::cmp::Ordering::Equal, "{}: {} against {logged}", signal.name(), grown(signal));
    }
    assert!(pages.iter().all(|page| read(page, &[]).scalar(Signal::RequestsRunning).unwrap_or_default() >= 0.0));
    // One prompt was too long: its error came in a stream that had begun, and gave no first token.
    assert_eq!(last.histogram(Signal::TimeToFirstToken).map(|ttft| ttft.count), Some(836.0));
}

#[test]
fn a_litellm_proxy_agrees_with_its_client() {
    let Some(recording) = recording("litellm-1.99.4", "pages.txt.gz") else { return };
    let last = read(pages(&recording, Some("litellm")).last().unwrap(), &[("model", "tiny-llama")]);
    let log = requests("litellm-1.99.4");
    let finished: Vec<_> = log.iter().filter(|row| row["state"] == "ok").cloned().collect();
    let counted = log.iter().filter(|row| row["state"] != "cancelled_by_client").count();
    for (signal, logged) in [
        (Signal::RequestsReceived, count(counted)),
        (Signal::RequestsFinished, count(finished.len())),
        (Signal::PromptTokens, total(&finished, "prompt_tokens")),
        (Signal::GenerationTokens, total(&finished, "output_tokens")),
    ] {
        assert_eq!(last.scalar(signal), Some(logged), "{}", signal.name());
    }
}

/// After its restart the server's totals are the log's, cached prompt tokens included; before the kill, up to the two that were running.
#[test]
fn llama_cpp_agrees_with_its_client_before_and_after_a_kill() {
    let Some(recording) = recording("llama.cpp-b11434", "pages.txt.gz") else { return };
    let scrapes: Vec<(f64, Option<Scrape>)> =
        split_recording(&recording).iter().map(|page| (fleet::Span(page.at.0).as_secs_f64(), page.page.map(|page| read(page, &[])))).collect();
    let killed = scrapes.iter().position(|(_, scrape)| scrape.is_none()).unwrap();
    let log: Vec<_> = requests("llama.cpp-b11434").into_iter().filter(|row| row["state"] == "ok").collect();
    let (after, before): (Vec<_>, Vec<_>) = log.into_iter().partition(|row| row["start_unix_s"].parse::<f64>().unwrap() > scrapes[killed].0);
    let seen = |scrape: &(f64, Option<Scrape>), signal: Signal| scrape.1.as_ref().unwrap().scalar(signal).unwrap();
    let last = scrapes.last().unwrap();
    assert_eq!((seen(last, Signal::PromptTokens), seen(last, Signal::GenerationTokens)), (total(&after, "prompt_tokens"), total(&after, "output_tokens")));
    let at_kill = &scrapes[killed - 1];
    let running = seen(at_kill, Signal::PromptTokens) - total(&before, "prompt_tokens");
    assert!((0.0..2.0 * 1_024.0).contains(&running), "{running} tokens of prompts that never finished");
    assert!(
        scrapes.iter().any(|(_, scrape)| scrape.as_ref().is_some_and(|scrape| scrape.scalar(Signal::RequestsWaiting) >= Some(140.0))),
        "the queue was long"
    );
}

#[test]
fn ray_serve_agrees_with_its_client() {
    let Some(recording) = recording("ray-serve-2.60.0", "pages.txt.gz") else { return };
    let pages = pages(&recording, None);
    let log = requests("ray-serve-2.60.0");
    let of = |status: &[&str]| count(log.iter().filter(|row| row["route"] == "/llm" && status.contains(&row["status"].as_str())).count());
    let app = read(pages.last().unwrap(), &[("application", "llm_app")]);
    let deployment = read(pages.last().unwrap(), &[("deployment", "ToyLlm")]);
    for (signal, logged) in
        [(Signal::RequestsReceived, of(&["200", "500", "503"])), (Signal::RequestsRefused, of(&["503"])), (Signal::RequestsFinished, of(&["200", "500"]))]
    {
        assert_eq!((app.scalar(signal), deployment.scalar(signal)), (Some(logged), Some(logged)), "{}", signal.name());
    }
    // Milliseconds became seconds.
    let e2e = deployment.histogram(Signal::EndToEnd).unwrap();
    assert!((0.05..5.0).contains(&(e2e.sum / e2e.count)) && e2e.buckets.first().is_some_and(|(bound, _)| *bound < 0.1), "{e2e:?}");
}

/// Any one name gone, or renamed, changes nothing but the signals that are spelled with it; those that every page should have are reported.
#[test]
fn no_name_takes_other_signals_with_it() {
    for (name, which, engine) in RECORDED {
        let Some(recording) = recording(name, "pages.txt.gz") else { return };
        let page = *pages(&recording, which).last().unwrap();
        let whole = read(page, &[]);
        let spelled: Vec<_> = Catalogue::builtin().describe().into_iter().filter(|row| row.engine == engine).collect();
        let names = Catalogue::builtin().metric_names();
        let on_page: BTreeSet<&str> = page.lines().filter_map(|line| line.split(['{', ' ']).next()).filter(|name| names.contains(*name)).collect();
        for gone in on_page {
            let is_gone = |line: &str| line.split(['{', ' ']).next() == Some(gone);
            let rest = page.lines().filter(|line| !is_gone(line)).collect::<Vec<_>>().join("\n");
            let renamed = page.lines().map(|line| if is_gone(line) { Cow::Owned(format!("renamed_{line}")) } else { Cow::Borrowed(line) });
            let renamed = renamed.collect::<Vec<_>>().join("\n");
            let scrape = read(&rest, &[]);
            assert_eq!(read(&renamed, &[]).samples, scrape.samples, "{name}: {gone} renamed");
            let base = ["_total", "_bucket", "_sum", "_count"].iter().find_map(|suffix| gone.strip_suffix(suffix)).unwrap_or(gone);
            for signal in Signal::ALL {
                let (before, after): (Vec<_>, Vec<_>) = (whole.members(signal).collect(), scrape.members(signal).collect());
                let touched = spelled.iter().any(|row| row.signal == signal && row.spelled.contains(base));
                assert!(before == after || touched, "{name}: without {gone}, {} changed from {before:?} to {after:?}", signal.name());
                let expected = Catalogue::builtin().expected(engine).contains(&signal);
                let reported = Catalogue::builtin().missing_signals(&scrape).contains(&signal);
                assert_eq!(after.is_empty() && expected, reported, "{name}: without {gone}, {}", signal.name());
            }
        }
    }
}
