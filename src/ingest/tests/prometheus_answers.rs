//! What a real Prometheus 2.42 answered over 13 minutes of a vLLM server with a crash, read by our client: values, gaps and rates.

#[path = "../../../tests/servers/extrapolation.rs"]
mod extrapolation;

use flate2::read::GzDecoder;
use fleet::{Scrape, ScrapeStatus, Signal, TargetId};
use ingest::query::{AnswerLimits, Series, instance_labels, parse_answer, scrapes};
use ingest::{Catalogue, Reader};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn folder() -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/metrics-pages/vllm-0.32.0/prometheus"));
    if !path.exists() {
        eprintln!("skipped: no recording at {}", path.display());
        return None;
    }
    Some(path)
}

/// The series of one recorded answer.
fn answer(path: &Path) -> Vec<Series> {
    let recorded: serde_json::Value = serde_json::from_reader(GzDecoder::new(std::fs::File::open(path).unwrap())).unwrap();
    parse_answer(recorded["answer"].to_string().as_bytes(), &AnswerLimits::default()).unwrap().series
}

fn stored(folder: &Path) -> Vec<Series> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder.join("raw")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().flat_map(|file| answer(file)).collect()
}

fn near(ours: f64, theirs: f64, tolerance: f64) -> bool {
    (ours - theirs).abs() <= tolerance * theirs.abs().max(1e-3)
}

/// What Prometheus stored gives, by its own rule of extrapolation, the rates it answered with: at every step.
#[test]
fn stored_samples_give_the_recorded_rates() {
    let Some(folder) = folder() else { return };
    let stored = stored(&folder);
    for (range, name, seconds, is_rate) in [
        ("prompt_token_rate_1m", "vllm:prompt_tokens_total", 60, true),
        ("prompt_token_rate_30s", "vllm:prompt_tokens_total", 30, true),
        ("generation_token_rate_1m", "vllm:generation_tokens_total", 60, true),
        ("generation_tokens_increase_5m", "vllm:generation_tokens_total", 300, false),
    ] {
        let samples = &stored.iter().find(|series| series.name() == name).unwrap().points;
        let answered = answer(&folder.join(format!("range/{range}.json.gz")));
        let mut compared = 0;
        for (at_ms, theirs) in &answered[0].points {
            let increase = extrapolation::increase(samples, *at_ms, seconds * 1000).unwrap_or_else(|| panic!("{range} at {at_ms}: no samples"));
            let ours = if is_rate { increase / f64::from(i32::try_from(seconds).unwrap()) } else { increase };
            assert!(near(ours, *theirs, 1e-4), "{range} at {at_ms}: {ours} is not {theirs}");
            compared += 1;
        }
        assert!(compared > 30, "{range}: only {compared} steps");
    }
}

/// Series of one instance are the scrapes Prometheus took: each once, failed where it could not, with the values it stored; and the rates a
/// reader of scrapes takes from them are those of Prometheus but for whole seconds.
#[test]
fn stored_samples_are_the_scrapes_that_were_taken() {
    let Some(folder) = folder() else { return };
    let stored = stored(&folder);
    let target = Reader { select: BTreeMap::from([("instance".to_owned(), "vllm-0".to_owned())]), ..Reader::of(TargetId::new("a").unwrap()) };
    let scrapes = scrapes(&stored, Catalogue::builtin(), &[target], &instance_labels());
    let up = &stored.iter().find(|series| series.name() == "up").unwrap().points;
    assert_eq!(scrapes.len(), up.len());
    let failed: BTreeSet<i64> = scrapes.iter().filter(|scrape| !scrape.is_ok()).map(|scrape| scrape.at.0).collect();
    let down: BTreeSet<i64> = up.iter().filter(|(_, up)| *up == 0.0).map(|(ms, _)| ms / 1000).collect();
    assert!(!down.is_empty() && failed == down, "{failed:?} is not {down:?}");
    assert!(scrapes.iter().all(|scrape| scrape.is_ok() || matches!(&scrape.status, ScrapeStatus::Failed(reason) if reason.contains("up is 0"))));
    let whole = |signal: Signal, name: &str| {
        let series: Vec<&Series> = stored.iter().filter(|series| series.name() == name).collect();
        for scrape in scrapes.iter().filter(|scrape| scrape.is_ok()) {
            let theirs: f64 = series.iter().flat_map(|series| &series.points).filter(|(ms, _)| ms / 1000 == scrape.at.0).map(|(_, value)| value).sum();
            assert_eq!(scrape.scalar(signal), Some(theirs), "{name} at {}", scrape.at);
        }
    };
    whole(Signal::PromptTokens, "vllm:prompt_tokens_total");
    whole(Signal::RequestsFinished, "vllm:request_success_total");
    whole(Signal::KvUsageMax, "vllm:kv_cache_usage_perc");
    let ttft: Vec<f64> = scrapes.iter().filter_map(|scrape| Some(scrape.histogram(Signal::TimeToFirstToken)?.count)).collect();
    assert_eq!(ttft.len(), scrapes.len() - failed.len());
    rates_agree(&folder, &scrapes);
}

fn rates_agree(folder: &Path, scrapes: &[Scrape]) {
    let tokens: Vec<(i64, f64)> = scrapes.iter().filter_map(|scrape| Some((scrape.at.0, scrape.scalar(Signal::PromptTokens)?))).collect();
    let mut compared = 0;
    for (at_ms, theirs) in &answer(&folder.join("range/prompt_token_rate_1m.json.gz"))[0].points {
        let at = at_ms / 1000;
        let inside: Vec<(i64, f64)> = tokens.iter().copied().filter(|(second, _)| (at - 60..=at).contains(second)).collect();
        let [first, .., last] = &inside[..] else { continue };
        let sampled = f64::from(i32::try_from(last.0 - first.0).unwrap());
        // Where samples lie at both ends, and the counter is past its first minute, nothing is extrapolated but whole seconds.
        if sampled < 54.0 || last.1 < first.1 || first.1 * sampled < (last.1 - first.1) * 6.0 {
            continue;
        }
        let ours = (last.1 - first.1) / sampled;
        assert!(near(ours, *theirs, 0.04), "at {at}: {ours} is not {theirs}");
        compared += 1;
    }
    assert!(compared > 15, "only {compared} steps");
}
