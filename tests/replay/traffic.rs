//! Two weeks of `ServeGen` traffic, scaled to the made fleet; where the record is lost, what came a day before, and a blackout.

use crate::fleet::{SERVICES, START, ServiceSpec, name};
use datasets::{ClientTraces, Tokens};
use fleet::{Series, Span, Timestamp};
use sim::{Blackout, Traffic};
use std::collections::BTreeMap;
use std::path::Path;

/// Windows of a day, of ten minutes each.
const DAY: usize = 144;
/// Coefficient of variation from minute to minute.
const MINUTE_CV: f64 = 0.05;

/// One service's two weeks.
pub struct Replayed {
    pub traffic: Traffic,
    pub blackouts: Vec<Blackout>,
    /// Simulated / recorded requests.
    pub scale: f64,
    /// Mean and highest hour, requests/s, after scaling.
    pub mean: f64,
    pub peak: f64,
    /// Tokens per request: prompt, generated.
    pub tokens: (f64, f64),
}

/// Traffic of every service, in the order of [`SERVICES`].
pub fn replayed(data: &Path) -> Vec<Replayed> {
    (0_u64..).zip(&SERVICES).map(|(seed, spec)| replay(data, spec, seed)).collect()
}

fn replay(data: &Path, spec: &ServiceSpec, seed: u64) -> Replayed {
    let traces = datasets::read_servegen(&data.join("language").join(spec.id), Some(&data.join("token_means.csv.gz")), START).unwrap();
    let known = &traces.rate;
    let filled = filled(known);
    let hours: Vec<f64> = filled.values.chunks(6).map(|h| h.iter().flatten().sum::<f64>() / 6.0).collect();
    let highest = hours.iter().copied().fold(0.0, f64::max);
    let variant = &spec.variants[0];
    let scale = spec.peak_gpus / f64::from(variant.gpus) * variant.rate.0 / highest;
    let tokens = tokens(&traces);
    let of = Tokens { input: tokens.0, output: tokens.1, prefix_hit_rate: 0.3 };
    let made = datasets::Traffic::from_rates(name(spec.id), &filled, scale, of, MINUTE_CV, seed);
    let per_minute = made.minutes.iter().map(|m| m.unwrap().arrivals_per_s).collect();
    Replayed {
        traffic: Traffic { workload: name(spec.id), per_minute, input_tokens: tokens.0, output_tokens: tokens.1, hit_rate: of.prefix_hit_rate },
        blackouts: blackouts(spec.id, known),
        scale,
        mean: mean(hours.iter().copied()) * scale,
        peak: highest * scale,
        tokens,
    }
}

pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
    sum / n
}

fn tokens(traces: &ClientTraces) -> (f64, f64) {
    let over_time = |series: &Option<Series>| mean(series.as_ref().unwrap().values.iter().flatten().copied());
    (over_time(&traces.input_tokens), over_time(&traces.output_tokens))
}

/// Gaps take what came at the same time of the day before; on the first day, of the day after.
fn filled(known: &Series) -> Series {
    let mut values = known.values.clone();
    for i in 0..values.len() {
        if values[i].is_none() {
            values[i] = if i >= DAY { values[i - DAY] } else { (1..14).find_map(|day| known.values[i + day * DAY]) };
        }
    }
    assert!(values.iter().all(Option::is_some));
    Series { start: known.start, step: known.step, values }
}

/// One for each run of gaps.
fn blackouts(workload: &str, known: &Series) -> Vec<Blackout> {
    let mut out: Vec<Blackout> = Vec::new();
    let mut from: Timestamp = known.start;
    for value in &known.values {
        let until = from + known.step;
        if value.is_none() {
            match out.last_mut() {
                Some(last) if last.until == from => last.until = until,
                _ => out.push(Blackout { workload: name(workload), from, until }),
            }
        }
        from = until;
    }
    out
}

/// Time of the service's hour that is dark.
pub fn dark(blackouts: &[Blackout], workload: &fleet::WorkloadId, hour: Timestamp) -> Span {
    let end = hour + Span::HOUR;
    let parts = blackouts.iter().filter(|b| &b.workload == workload).map(|b| b.until.min(end).since(b.from.max(hour)));
    parts.filter(|s| *s > Span::ZERO).fold(Span::ZERO, |a, b| Span(a.0 + b.0))
}

/// The prior tokens of each service, for the set-up.
pub fn token_priors(replayed: &[Replayed]) -> BTreeMap<&'static str, (f64, f64)> {
    SERVICES.iter().zip(replayed).map(|(s, r)| (s.id, r.tokens)).collect()
}
