//! The targets of a workload, joined into one window.

use crate::tally::{Tally, bin_count};
use fleet::{Share, Signal, Span, Target, Timestamp, VariantId, WorkloadId, WorkloadWindow};
use std::collections::BTreeMap;

/// A target counts as seen in a window when at least this share of it was observed; a shorter glimpse says too little of a rate.
pub(crate) const SEEN_SHARE_MIN: f64 = 0.25;

/// One target's part in a window.
pub(crate) struct Part<'a> {
    pub target: &'a Target,
    /// What was seen, if anything.
    pub tally: Option<&'a Tally>,
    /// Its last known demand, requests per second, where that is still held.
    pub held: Option<f64>,
}

impl Part<'_> {
    /// The tally, when enough was seen.
    fn seen(&self, length: Span) -> Option<&Tally> {
        self.tally.filter(|tally| tally.observed_s >= SEEN_SHARE_MIN * length.as_secs_f64())
    }

    /// Its arrival rate as observed.
    pub(crate) fn rate(&self, length: Span) -> Option<f64> {
        self.seen(length).and_then(|tally| tally.arrivals.rate())
    }
}

/// Joins the parts of one workload. Demand of silent targets is held at its last known rate, so a dead server's users are not forgotten;
/// everything else is of the targets seen only. With no target seen, all is unknown.
pub(crate) fn join(workload: &WorkloadId, start: Timestamp, length: Span, parts: &[Part<'_>]) -> WorkloadWindow {
    let seen: Vec<(&Target, &Tally)> = parts.iter().filter_map(|part| part.seen(length).map(|tally| (part.target, tally))).collect();
    let known = parts.iter().any(|part| part.rate(length).is_some());
    let held_or_seen = |part: &Part<'_>| part.rate(length).or(part.held);
    let finished = rate_of(&seen, Signal::RequestsFinished);
    let started = total(seen.iter().map(|(_, tally)| tally.first_tokens));
    let observed: f64 = parts.iter().filter_map(|part| part.tally).map(|tally| (tally.observed_s / length.as_secs_f64()).min(1.0)).sum();
    WorkloadWindow {
        workload: workload.clone(),
        start,
        length,
        arrivals_per_s: known.then(|| parts.iter().filter_map(held_or_seen).sum()),
        peak_per_s: known.then(|| peak(parts, length)).flatten(),
        refused_per_s: None,
        finished_per_s: finished,
        sequences_per_request: None,
        input_tokens: ratio(amount(&seen, Signal::PromptTokens), started.or_else(|| amount(&seen, Signal::RequestsFinished))),
        output_tokens: ratio(amount(&seen, Signal::GenerationTokens), amount(&seen, Signal::RequestsFinished)),
        prefix_hit_rate: hit_rate(&seen),
        waiting: total(seen.iter().map(|(_, tally)| tally.waiting)),
        running: total(seen.iter().map(|(_, tally)| tally.running.mean())),
        inter_token_s: ratio(Some(seen.iter().map(|(_, t)| t.inter_token.0).sum()), Some(seen.iter().map(|(_, t)| t.inter_token.1).sum())),
        first_tokens: started,
        first_tokens_in_time: total(seen.iter().map(|(_, tally)| tally.in_time)),
        ready: ready(parts),
        saturated_per_replica: saturated_per_replica(&seen),
        completeness: if parts.is_empty() { 0.0 } else { (observed / count(parts.len())).min(1.0) },
        saturated: !seen.is_empty() && seen.iter().all(|(_, tally)| tally.saturated()),
    }
}

/// Highest joined rate over the parts of the window. A target that was not seen for half of such a part counts there with its mean.
fn peak(parts: &[Part<'_>], length: Span) -> Option<f64> {
    let bins = bin_count(length);
    let enough = length.as_secs_f64() / count(bins) / 2.0;
    let of_bin = |index: usize| {
        let own = |part: &Part<'_>| part.seen(length)?.bins.get(index).filter(|bin| bin.seconds >= enough)?.rate();
        parts.iter().any(|part| own(part).is_some()).then(|| parts.iter().filter_map(|part| own(part).or_else(|| part.rate(length)).or(part.held)).sum::<f64>())
    };
    (0..bins).filter_map(of_bin).max_by(f64::total_cmp)
}

/// Replicas whose last look inside the window was answered. Held demand is not supply: silent targets are not among them.
fn ready(parts: &[Part<'_>]) -> BTreeMap<VariantId, u32> {
    let mut ready = BTreeMap::new();
    for part in parts.iter().filter(|part| part.tally.is_some_and(|tally| tally.answered)) {
        if let Some(variant) = &part.target.variant {
            *ready.entry(variant.clone()).or_insert(0) += 1;
        }
    }
    ready
}

/// Mean rate of finished requests over the replicas of a variant that had a queue throughout.
fn saturated_per_replica(seen: &[(&Target, &Tally)]) -> BTreeMap<VariantId, f64> {
    let mut sums: BTreeMap<VariantId, (f64, f64)> = BTreeMap::new();
    for (target, tally) in seen.iter().filter(|(_, tally)| tally.saturated()) {
        if let (Some(variant), Some(rate)) = (&target.variant, tally.counters.get(&Signal::RequestsFinished).and_then(|flow| flow.rate())) {
            let (sum, replicas) = sums.entry(variant.clone()).or_default();
            *sum += rate;
            *replicas += 1.0;
        }
    }
    sums.into_iter().map(|(variant, (sum, replicas))| (variant, sum / replicas)).collect()
}

/// Hits over queries; where an engine has no such counters, the mean of its gauge. Without queries there is no rate.
fn hit_rate(seen: &[(&Target, &Tally)]) -> Option<f64> {
    if let (Some(hits), Some(queries)) = (amount(seen, Signal::PrefixHits), amount(seen, Signal::PrefixQueries)) {
        return Share::of(hits, queries).map(Share::get);
    }
    let rates: Vec<f64> = seen.iter().filter_map(|(_, tally)| tally.hit_rate.mean()).collect();
    ratio(Some(rates.iter().sum()), Some(count(rates.len())))
}

/// Sum of what is known; unknown when nothing is.
fn total(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    values.flatten().fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

fn amount(seen: &[(&Target, &Tally)], signal: Signal) -> Option<f64> {
    total(seen.iter().map(|(_, tally)| tally.counters.get(&signal).map(|flow| flow.amount)))
}

fn rate_of(seen: &[(&Target, &Tally)], signal: Signal) -> Option<f64> {
    total(seen.iter().map(|(_, tally)| tally.counters.get(&signal).and_then(|flow| flow.rate())))
}

/// A quotient; unknown without a positive divisor.
fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    whole.filter(|whole| *whole > 0.0).and_then(|whole| part.map(|part| part / whole)).filter(|ratio| ratio.is_finite())
}

#[expect(clippy::cast_precision_loss, reason = "counts of targets and bins lie far below 2^52")]
fn count(n: usize) -> f64 {
    n as f64
}
