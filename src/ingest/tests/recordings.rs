//! Recorded pages of real vLLM servers, read and joined as a live daemon would, against the request log of the client that made the load.

use flate2::read::GzDecoder;
use fleet::{Scrape, Span, Target, TargetId, Timestamp, VariantId, WorkloadId, WorkloadWindow};
use series::Windows;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

/// Spacing of the recorded scrapes, seconds.
const SCRAPE_S: f64 = 5.0;

/// One request as its client saw it.
struct Request {
    start_s: f64,
    first_token_s: Option<f64>,
    end_s: Option<f64>,
    ok: bool,
    refused: bool,
    /// As the server's usage block says; of one that hung up the words sent and the pieces received are known.
    prompt: f64,
    output: f64,
}

fn folder(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/metrics-pages")).join(name);
    if !path.exists() {
        eprintln!("skipped: no recording at {}", path.display());
        return None;
    }
    Some(path)
}

fn unpack(path: &std::path::Path) -> String {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

fn requests(path: &std::path::Path) -> Vec<Request> {
    let text = unpack(path);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let rows: Vec<HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
    let number = |row: &HashMap<String, String>, key: &str| row[key].parse::<f64>().ok();
    rows.iter()
        .map(|row| {
            let start_s = number(row, "start_unix_s").unwrap();
            Request {
                start_s,
                // An answer without any text has a first token that its client never saw.
                first_token_s: number(row, "ttft_s").or_else(|| number(row, "e2e_s").filter(|_| row["state"] == "ok")).map(|ttft| start_s + ttft),
                end_s: number(row, "e2e_s").map(|e2e| start_s + e2e),
                ok: row["state"] == "ok",
                refused: row["state"] == "http_400",
                prompt: number(row, "prompt_tokens").or_else(|| number(row, "prompt_words")).unwrap_or(0.0),
                output: number(row, "output_tokens").or_else(|| number(row, "content_chunks")).unwrap_or(0.0),
            }
        })
        .collect()
}

fn target() -> Target {
    Target {
        id: TargetId::new("vllm-0").unwrap(),
        workload: WorkloadId::new("chat").unwrap(),
        variant: Some(VariantId::new("tiny-llama").unwrap()),
        replica: None,
        gpus: vec![],
        pod: None,
    }
}

/// Windows closed as time goes by.
fn windows(scrapes: &[Scrape], length: Span) -> Vec<WorkloadWindow> {
    let mut state = Windows::new(length);
    let mut out = Vec::new();
    for scrape in scrapes {
        state.observe(&target(), 0.5, scrape);
        out.extend(state.close(scrape.at, &[target()]));
    }
    let last = scrapes.last().unwrap().at;
    out.extend(state.close(last + length, &[target()]));
    out
}

/// What a rate amounts to in the part of the window that was observed.
fn amount(window: &WorkloadWindow, rate: Option<f64>) -> f64 {
    rate.unwrap_or(0.0) * window.length.as_secs_f64() * window.completeness
}

#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    arrived: f64,
    started: f64,
    finished: f64,
    prompt: f64,
    output: f64,
}

fn seen(windows: &[WorkloadWindow]) -> Totals {
    let sum = |of: fn(&WorkloadWindow) -> f64| windows.iter().map(of).sum();
    Totals {
        arrived: sum(|w| amount(w, w.arrivals_per_s)),
        started: sum(|w| w.first_tokens.unwrap_or(0.0)),
        finished: sum(|w| amount(w, w.finished_per_s)),
        prompt: sum(|w| w.input_tokens.unwrap_or(0.0) * w.first_tokens.unwrap_or(0.0)),
        output: sum(|w| w.output_tokens.unwrap_or(0.0) * amount(w, w.finished_per_s)),
    }
}

/// What the log says had happened by `until` (seconds since the epoch). Refused requests never reach an engine.
fn logged(requests: &[Request], until: f64) -> Totals {
    let admitted = || requests.iter().filter(|r| !r.refused);
    let count = |n: usize| f64::from(u32::try_from(n).unwrap());
    let by = |time: Option<f64>| time.is_some_and(|time| time <= until);
    Totals {
        arrived: count(admitted().filter(|r| r.start_s <= until).count()),
        started: count(admitted().filter(|r| by(r.first_token_s)).count()),
        finished: count(admitted().filter(|r| r.ok && by(r.end_s)).count()),
        prompt: admitted().filter(|r| by(r.first_token_s)).map(|r| r.prompt).sum(),
        output: admitted().filter(|r| by(r.first_token_s)).map(|r| r.output).sum(),
    }
}

/// Compares within what one scrape's time can hold: what the log places within one scrape of each of `edges` (the ends of the pages, and
/// the kill), plus what those who hung up leave uncertain (their token counts are not in the log: three tokens of template and as many as
/// were on their way).
fn compare(name: &str, seen: Totals, log: Totals, requests: &[Request], edges: &[f64]) {
    let near = |time: f64| edges.iter().any(|edge| (time - edge).abs() <= SCRAPE_S);
    let touched: Vec<&Request> =
        requests.iter().filter(|r| !r.refused && (near(r.start_s) || r.first_token_s.is_some_and(near) || r.end_s.is_some_and(near))).collect();
    let hung_up: Vec<&Request> = requests.iter().filter(|r| !r.refused && !r.ok).collect();
    let count = |n: usize| f64::from(u32::try_from(n).unwrap());
    let requests_off = count(touched.len());
    let prompt_off = touched.iter().map(|r| r.prompt).sum::<f64>() + 3.0 * count(hung_up.len());
    let output_off = touched.iter().map(|r| r.output).sum::<f64>() + 10.0 * count(hung_up.len());
    eprintln!(
        "{name}: windows {seen:.3?}\n{name}: log     {log:.0?}\n{name}: allowed requests {requests_off} prompt {prompt_off} output {output_off}; {} hung up",
        hung_up.len()
    );
    for (what, ours, theirs, off) in [
        ("arrived", seen.arrived, log.arrived, requests_off),
        ("started", seen.started, log.started, requests_off),
        ("finished", seen.finished, log.finished, requests_off),
        ("prompt tokens", seen.prompt, log.prompt, prompt_off),
        ("generated tokens", seen.output, log.output, output_off),
    ] {
        assert!((ours - theirs).abs() <= off, "{name}: {what} {ours} against {theirs} of the log, {off} allowed");
    }
}

fn unix_s(at: Timestamp) -> f64 {
    Span(at.0).as_secs_f64()
}

/// Thirteen minutes with overload, hang-ups, kill -9 and restart: totals and every minute agree with the log.
#[test]
fn thirteen_minutes_with_a_crash_agree_with_the_request_log() {
    let Some(folder) = folder("vllm-0.32.0") else { return };
    let recording = unpack(&folder.join("pages.txt.gz"));
    let requests = requests(&folder.join("requests.csv.gz"));
    let id = target().id;
    let scrapes: Vec<Scrape> = ingest::recorded_scrapes(&id, &recording).collect();
    assert_eq!((scrapes.len(), scrapes.iter().filter(|scrape| !scrape.is_ok()).count()), (146, 23));
    assert!(scrapes.iter().all(|scrape| scrape.skipped.is_empty()));
    assert!(scrapes.iter().filter(|scrape| scrape.is_ok()).all(|scrape| ingest::missing_signals(scrape).is_empty()));
    let minutes = windows(&scrapes, Span::MINUTE);
    let (first_failed, last) = (scrapes.iter().find(|scrape| !scrape.is_ok()).unwrap().at, scrapes.last().unwrap().at);
    // Times of pages are cut to whole seconds; a second more holds all that a page could show.
    let end = unix_s(last) + 1.0;
    compare("0.32.0", seen(&minutes), logged(&requests, end), &requests, &[unix_s(first_failed) - SCRAPE_S, end]);
    every_minute_agrees(&minutes, &requests, end);
    silent_while_it_restarts(&minutes, first_failed);
    // The burst lasts 75 s and is cut by the minutes; half of one is saturated throughout.
    let saturated: Vec<WorkloadWindow> = windows(&scrapes, Span(30)).into_iter().filter(|w| w.saturated).collect();
    assert!(!saturated.is_empty() && saturated.iter().all(|w| w.waiting.is_some_and(|waiting| waiting > 0.0)));
    for window in &saturated {
        eprintln!("saturated at {}: {:?} finished/s a replica, {:?} waiting", window.start, window.saturated_per_replica, window.waiting);
    }
}

/// Arrivals of each fully observed minute against the log. At each of its two ends a scrape's worth may fall on the other side, and a
/// request that neither waits nor has its first token yet is in flight: no more than the 16 the engine runs at once.
fn every_minute_agrees(windows: &[WorkloadWindow], requests: &[Request], end: f64) {
    let mut compared = 0;
    for window in windows.iter().filter(|w| w.completeness > 0.9 && unix_s(w.start + w.length) <= end) {
        let (from, to) = (unix_s(window.start), unix_s(window.start + window.length));
        let within =
            |from: f64, to: f64| f64::from(u32::try_from(requests.iter().filter(|r| !r.refused && r.start_s > from && r.start_s <= to).count()).unwrap());
        let (log, ours) = (within(from, to), amount(window, window.arrivals_per_s));
        let off = within(from - SCRAPE_S, from + 1.0) + within(to - SCRAPE_S, to + 1.0) + 16.0;
        eprintln!("minute {from}: arrived {ours:.1}, log {log}, allowed {off}, waiting {:?}", window.waiting);
        assert!((ours - log).abs() <= off, "minute {from}: {ours} against {log}, {off} allowed");
        compared += 1;
    }
    assert!(compared >= 8, "{compared} minutes compared");
    assert!(windows.iter().any(|w| w.prefix_hit_rate.is_some_and(|rate| rate > 0.5)), "shared prefixes hit");
    assert!(windows.iter().all(|w| w.first_tokens_in_time <= w.first_tokens));
}

/// While nothing answers, nothing is known. The minute in which the idle server was killed is a true zero, seen for a part, with nobody ready
/// at its end.
fn silent_while_it_restarts(windows: &[WorkloadWindow], killed: Timestamp) {
    let last = windows.iter().find(|w| w.start < killed && killed <= w.start + w.length).unwrap();
    assert_eq!((last.arrivals_per_s, last.input_tokens, last.ready.len()), (Some(0.0), None, 0));
    assert!((0.25..0.9).contains(&last.completeness), "{}", last.completeness);
    let dead: Vec<&WorkloadWindow> = windows.iter().filter(|w| w.start >= killed && w.start + w.length <= killed + Span(110)).collect();
    assert!(!dead.is_empty() && dead.iter().all(|w| w.arrivals_per_s.is_none() && w.ready.is_empty() && w.completeness == 0.0));
}

/// Older names, names half way, and two engines behind one page (field cases 1 and 15): the same totals as their logs.
#[test]
fn other_releases_and_two_engines_agree_with_their_logs() {
    for name in ["vllm-0.9.2", "vllm-0.12.0", "vllm-0.32.0-dp2"] {
        let Some(folder) = folder(name) else { return };
        let recording = unpack(&folder.join("pages.txt.gz"));
        let requests = requests(&folder.join("requests.csv.gz"));
        let id = target().id;
        let scrapes: Vec<Scrape> = ingest::recorded_scrapes(&id, &recording).collect();
        let last = scrapes.last().unwrap();
        assert_eq!(ingest::missing_signals(last), [], "{name}");
        assert!(scrapes.iter().all(|scrape| scrape.skipped.is_empty()), "{name}");
        let end = unix_s(last.at) + 1.0;
        compare(name, seen(&windows(&scrapes, Span::MINUTE)), logged(&requests, end), &requests, &[end]);
    }
}
