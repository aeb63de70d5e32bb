//! How fast the embedded store keeps up with a large fleet: 1,000 targets of 80 series each, scraped every 15 s, written one scrape of all
//! targets at a time. Prints one JSON line.
//!
//! `cargo run --release -p store --example write_speed [SCRAPES]`; the file is made in the system's temporary folder and removed.

use fleet::{Observation, Signal, Span, TargetId, Timestamp};
use std::time::{Duration, Instant};
use store::{Batch, Options, Resolution, Store, wait};

const TARGETS: usize = 1_000;
const SERIES: usize = 80;
/// Start of an hour.
const START: i64 = 1_700_002_800;
/// A scrape interval.
const EVERY: Span = Span(15);
/// Ten minutes and what sums up the last of them. With 250, an hour is summed up too.
const SCRAPES: i64 = 48;

/// One scrape of all targets: counters that grow, gauges that wander, buckets of histograms, spread over the interval.
fn scrape(targets: &[TargetId], at: Timestamp) -> Vec<Observation> {
    let parts: Vec<Option<String>> = (0..SERIES).map(|s| (s >= 30).then(|| format!("le={}", s - 30))).collect();
    let mut out = Vec::with_capacity(targets.len() * SERIES);
    for (t, source) in targets.iter().enumerate() {
        let observed = at + Span(i64::try_from(t).unwrap_or(0) % EVERY.0);
        let seconds = u32::try_from(observed.0 - START).unwrap_or(0);
        for (s, part) in parts.iter().enumerate() {
            let signal = Signal::ALL[if s < 30 { s } else { 11 + s % 4 }];
            let rate = f64::from(u32::try_from(t * SERIES + s).unwrap_or(0)).sin().abs();
            let value = if s % 3 == 0 { (f64::from(seconds) * rate).sin() } else { (f64::from(seconds) * rate * 50.0).floor() };
            out.push(Observation { source: source.clone(), member: None, signal, part: part.clone(), value, observed, received: observed + Span(1) });
        }
    }
    out
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scrapes = std::env::args().nth(1).map_or(Ok(SCRAPES), |text| text.parse())?;
    let targets = (0..TARGETS).map(|n| TargetId::new(format!("vllm-{n:04}"))).collect::<Result<Vec<_>, _>>()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("history.sqlite");
    let store = Store::open(&path, Options::default())?;
    let (mut spent, mut longest, mut rows) = (Duration::ZERO, Duration::ZERO, 0);
    for n in 0..scrapes {
        let observations = scrape(&targets, Timestamp(START + n * EVERY.0));
        let began = Instant::now();
        rows += wait(store.append(Batch { observations, ..Batch::default() }))?.rows;
        let took = began.elapsed();
        (spent, longest) = (spent + took, longest.max(took));
    }
    let began = Instant::now();
    let end = Timestamp(START + scrapes * EVERY.0);
    let read = wait(store.observations(&targets[7], None, end - Span::HOUR, end))?.len();
    let read_s = began.elapsed().as_secs_f64();
    let minutes = wait(store.rollups(&targets[7], None, Resolution::Minute, end - Span::HOUR, end))?.len();
    let bytes = wait(store.compact())?.bytes_after;
    println!(
        "{}",
        serde_json::json!({
            "targets": TARGETS, "series": TARGETS * SERIES, "scrapes": scrapes, "points": rows,
            "points_per_s": round(ratio(rows, spent.as_secs_f64())), "append_mean_s": spent.as_secs_f64() / f64::from(u32::try_from(scrapes)?),
            "append_longest_s": longest.as_secs_f64(), "share_of_interval": round(spent.as_secs_f64() / ratio_of(scrapes) * 1e4) / 1e4,
            "bytes_per_point_with_rollups": round(ratio(bytes, 1.0) / ratio(rows, 1.0) * 10.0) / 10.0,
            "an_hour_of_a_target_read_s": read_s, "points_read": read, "minutes_read": minutes,
        })
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "printed to a few digits")]
fn ratio(count: u64, by: f64) -> f64 {
    count as f64 / by
}

#[expect(clippy::cast_precision_loss, reason = "printed to a few digits")]
fn ratio_of(scrapes: i64) -> f64 {
    (scrapes * EVERY.0) as f64
}

fn round(value: f64) -> f64 {
    value.round()
}
