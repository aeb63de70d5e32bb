//! Recorded pages of real engines with one signal taken away, or held still, from some scrape on: the demand that is derived never falls for it, and
//! what is gone is told.

use flate2::read::GzDecoder;
use fleet::{Scrape, Signal, Span, Target, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use ingest::recorded_scrapes;
use series::Windows;
use std::io::Read;
use std::path::PathBuf;

/// Length of a window: short, so that a recording of two minutes has several.
const WINDOW: Span = Span(30);
/// Requests that may be hidden once by a level that stands still (about one batch of the recorded servers), and between two estimates of a window.
const HIDDEN_MAX: f64 = 12.0;
/// Signals without which demand can be told must be told as missing.
const TOLD: [Signal; 6] =
    [Signal::RequestsRunning, Signal::RequestsWaiting, Signal::RequestsFinished, Signal::PromptTokens, Signal::GenerationTokens, Signal::TimeToFirstToken];

fn recording(name: &str) -> Option<Vec<Scrape>> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/metrics-pages")).join(name).join("pages.txt.gz");
    if !path.exists() {
        eprintln!("skipped: no recording at {}", path.display());
        return None;
    }
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    Some(recorded_scrapes(&target().id, &text).collect())
}

fn target() -> Target {
    Target {
        id: TargetId::new("server").unwrap(),
        workload: WorkloadId::new("chat").unwrap(),
        variant: Some(fleet::VariantId::new("v").unwrap()),
        replica: None,
        gpus: Vec::new(),
        pod: None,
    }
}

/// The windows of scrapes, and what is missing at their end.
fn derived(scrapes: &[Scrape]) -> (Vec<WorkloadWindow>, Vec<Signal>, Vec<Signal>) {
    let mut state = Windows::new(WINDOW);
    let mut windows = Vec::new();
    for scrape in scrapes {
        state.observe(&target(), 0.5, scrape);
        windows.extend(state.close(scrape.at, &[target()]));
    }
    let last = scrapes.last().unwrap().at;
    windows.extend(state.close(last + WINDOW, &[target()]));
    let fresh = state.freshness(last);
    let of = |pick: fn(&series::SignalFreshness) -> bool| fresh.iter().filter(|f| pick(f)).map(|f| f.signal).collect();
    (windows, of(|f| f.missing_since.is_some()), of(|f| f.frozen_since.is_some()))
}

/// Requests in the windows that both know, as each has them.
fn in_both(whole: &[WorkloadWindow], lost: &[WorkloadWindow]) -> (f64, f64) {
    let amount = |w: &WorkloadWindow| w.arrivals_per_s.map(|rate| rate * w.length.as_secs_f64());
    let pairs = whole.iter().zip(lost).filter_map(|(a, b)| {
        assert_eq!(a.start, b.start);
        Some((amount(a)?, amount(b)?))
    });
    pairs.fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y))
}

fn check(name: &str, freeze: bool) {
    let Some(scrapes) = recording(name) else { return };
    let (whole, gone, _) = derived(&scrapes);
    let from = scrapes.len() / 3;
    let signals: std::collections::BTreeSet<Signal> = scrapes.iter().flat_map(|s| s.samples.iter().map(|x| x.signal)).collect();
    let mut tried = 0;
    for signal in signals {
        let without: Vec<Scrape> = scrapes.iter().enumerate().map(|(i, s)| if i < from { s.clone() } else { deleted(s, signal) }).collect();
        let (lost, missing, _) = derived(&without);
        let (true_demand, seen) = in_both(&whole, &lost);
        assert!(seen + HIDDEN_MAX + 0.02 * true_demand >= true_demand, "{name}: without {signal:?}: {seen} of {true_demand} requests");
        let was_there = scrapes[..from].iter().any(|s| s.samples.iter().any(|x| x.signal == signal));
        if was_there && TOLD.contains(&signal) && !gone.contains(&signal) {
            assert!(missing.contains(&signal), "{name}: {signal:?} is gone and nobody says so: {missing:?}");
        }
        tried += 1;
        if !freeze {
            continue;
        }
        let (lost, ..) = derived(&frozen(&scrapes, signal, from));
        let (true_demand, seen) = in_both(&whole, &lost);
        assert!(seen + HIDDEN_MAX + 0.02 * true_demand >= true_demand, "{name}: with {signal:?} frozen: {seen} of {true_demand} requests");
    }
    println!("{name}: {tried} signals deleted{}", if freeze { " and frozen" } else { "" });
}

fn deleted(scrape: &Scrape, signal: Signal) -> Scrape {
    let mut scrape = scrape.clone();
    scrape.samples.retain(|sample| sample.signal != signal);
    scrape
}

/// From the scrape `from` on, the signal has the values it had there.
fn frozen(scrapes: &[Scrape], signal: Signal, from: usize) -> Vec<Scrape> {
    let held: Vec<_> =
        scrapes[..=from].iter().rev().find(|s| s.is_ok()).map_or(Vec::new(), |s| s.samples.iter().filter(|x| x.signal == signal).cloned().collect());
    let hold = |s: &Scrape| {
        let mut s = deleted(s, signal);
        s.samples.extend(held.iter().cloned());
        s
    };
    scrapes.iter().enumerate().map(|(i, s)| if i < from || !s.is_ok() { s.clone() } else { hold(s) }).collect()
}

/// Field case 13 and its kind, on every engine that was recorded.
#[test]
fn no_signal_that_goes_or_stands_still_lowers_the_demand() {
    for name in ["vllm-0.9.2", "vllm-0.12.0", "vllm-0.32.0", "vllm-0.32.0-dp2", "llama.cpp-b11434"] {
        check(name, true);
    }
    // Ray's pages move in steps of ten seconds and its replicas come and go: a counter that stands still there cannot be told from a quiet spell yet.
    check("ray-serve-2.60.0", false);
}

#[test]
fn nothing_at_all_is_unknown_not_idle() {
    let failed: Vec<Scrape> = (0..10).map(|i| Scrape::failed(target().id, Timestamp(i * 15), "refused")).collect();
    let (windows, ..) = derived(&failed);
    assert!(windows.iter().all(|w| w.arrivals_per_s.is_none() && w.completeness == 0.0));
}
