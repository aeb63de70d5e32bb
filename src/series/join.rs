//! The targets of a workload, joined into one window.

use crate::tally::{Tally, bin_count};
use fleet::{Share, Signal, Span, Target, Timestamp, VariantId, WorkloadId, WorkloadWindow};
use std::collections::BTreeMap;

/// A target counts as seen in a window when at least this share of it was observed; a shorter glimpse says too little of a rate.
pub(crate) const SEEN_SHARE_MIN: f64 = 0.25;
/// Its arrivals are known when they are for all of what was observed, but for rounding: a signal that is lost at the beginning of a burst would otherwise leave
/// the quiet part to speak for all of the window.
const KNOWN_SHARE_MIN: f64 = 0.999;

/// One target's part in a window.
pub(crate) struct Part<'a> {
    pub target: &'a Target,
    /// What was seen, if anything.
    pub tally: Option<&'a Tally>,
    /// Its last known demand, requests per second, where that is still held.
    pub held: Option<f64>,
}

impl<'a> Part<'a> {
    /// The tally, when enough was seen.
    fn seen(&self, length: Span) -> Option<&'a Tally> {
        self.tally.filter(|tally| tally.observed_s >= SEEN_SHARE_MIN * length.as_secs_f64())
    }

    /// Its arrival rate as observed.
    pub(crate) fn rate(&self, length: Span) -> Option<f64> {
        let tally = self.seen(length)?;
        let known = tally.arrivals.seconds >= KNOWN_SHARE_MIN * tally.observed_s;
        tally.arrivals.rate().filter(|_| known)
    }
}

/// The parts of one side of a workload: the routers in front, or the replicas behind them.
struct Side<'a, 'b> {
    parts: Vec<&'b Part<'a>>,
    length: Span,
}

impl<'a> Side<'a, '_> {
    fn seen(&self) -> Vec<(&'a Target, &'a Tally)> {
        self.parts.iter().filter_map(|part| Some((part.target, part.seen(self.length)?))).collect()
    }

    /// Whether the rate of any part, and of every part, is known.
    fn known(&self) -> bool {
        self.parts.iter().any(|part| part.rate(self.length).is_some())
    }

    fn all_known(&self) -> bool {
        self.known() && self.parts.iter().all(|part| part.rate(self.length).is_some())
    }

    /// Sum of what `pick` finds; of parts where it finds nothing their mean rate, or what is held of them.
    fn rate(&self, held: bool, pick: impl Fn(&Part<'_>) -> Option<f64>) -> f64 {
        let or_held = |part: &&Part<'_>| pick(part).or_else(|| part.rate(self.length)).or(part.held.filter(|_| held));
        self.parts.iter().filter_map(or_held).sum()
    }
}

/// Joins the parts of one workload. Demand of silent targets is held at its last known rate, so a dead server's users are not forgotten;
/// everything else is of the targets seen only. With no target seen, all is unknown.
///
/// Routers and the replicas behind them count the same requests, so the arrivals are the larger of the two sums: a router alone is enough
/// at zero replicas, and counts those it turned away; replicas may be asked past the router. Where every router is known, what silent
/// replicas last did is not held on top: their users come through the router. Load, speed and lengths are of the replicas, and of the
/// routers only where no replica is seen.
pub(crate) fn join(workload: &WorkloadId, start: Timestamp, length: Span, parts: &[Part<'_>]) -> WorkloadWindow {
    let (replicas, routers): (Vec<&Part<'_>>, Vec<&Part<'_>>) = parts.iter().partition(|part| part.target.variant.is_some());
    let (replicas, routers) = (Side { parts: replicas, length }, Side { parts: routers, length });
    let known = replicas.known() || routers.known();
    let served = replicas.seen();
    let routed = routers.seen();
    let seen = if served.is_empty() { &routed } else { &served };
    let waiting = |side: &[(&Target, &Tally)]| total(side.iter().map(|(_, tally)| tally.waiting.map(|waiting| tally.requests(waiting))));
    let started = total(seen.iter().map(|(_, tally)| tally.first_tokens));
    let finished = total(seen.iter().map(|(_, tally)| tally.counters.get(&Signal::RequestsFinished).map(|flow| tally.requests(flow.amount))));
    let observed: f64 = parts.iter().filter_map(|part| part.tally).map(|tally| (tally.observed_s / length.as_secs_f64()).min(1.0)).sum();
    WorkloadWindow {
        arrivals_per_s: known.then(|| larger(&replicas, &routers, |_| None)),
        peak_per_s: known.then(|| peak(&replicas, &routers, length)).flatten(),
        refused_per_s: rate_of(&routed, Signal::RequestsRefused).into_iter().chain(rate_of(&served, Signal::RequestsRefused)).reduce(f64::max),
        finished_per_s: rate_of(seen, Signal::RequestsFinished),
        sequences_per_request: mean_of(seen.iter().filter_map(|(_, tally)| tally.sequences_per_request)),
        input_tokens: ratio(amount(seen, Signal::PromptTokens), started.or(finished)),
        output_tokens: ratio(amount(seen, Signal::GenerationTokens), finished),
        prefix_hit_rate: hit_rate(seen),
        waiting: total([waiting(&served), waiting(&routed)].into_iter()),
        running: total(seen.iter().map(|(_, tally)| tally.running.mean().map(|running| tally.requests(running)))),
        inter_token_s: ratio(Some(seen.iter().map(|(_, t)| t.inter_token.0).sum()), Some(seen.iter().map(|(_, t)| t.inter_token.1).sum())),
        first_tokens: started,
        first_tokens_in_time: total(seen.iter().map(|(_, tally)| tally.in_time)),
        ready: ready(parts),
        saturated_per_replica: saturated_per_replica(&served),
        completeness: if parts.is_empty() { 0.0 } else { (observed / count(parts.len())).min(1.0) },
        saturated: !served.is_empty() && served.iter().all(|(_, tally)| tally.saturated()),
        ..WorkloadWindow::unknown(workload.clone(), start, length)
    }
}

/// The larger of what routers and replicas say, by `pick` where it finds something.
fn larger(replicas: &Side<'_, '_>, routers: &Side<'_, '_>, pick: impl Fn(&Part<'_>) -> Option<f64>) -> f64 {
    replicas.rate(!routers.all_known(), &pick).max(routers.rate(!replicas.all_known(), &pick))
}

/// Highest joined rate over the parts of the window. A target that was not seen for half of such a part counts there with its mean.
fn peak(replicas: &Side<'_, '_>, routers: &Side<'_, '_>, length: Span) -> Option<f64> {
    let bins = bin_count(length);
    let enough = length.as_secs_f64() / count(bins) / 2.0;
    let of_bin = |index: usize| {
        let own = |part: &Part<'_>| part.seen(length)?.bins.get(index).filter(|bin| bin.seconds >= enough)?.rate();
        let any = replicas.parts.iter().chain(&routers.parts).any(|part| own(part).is_some());
        any.then(|| larger(replicas, routers, own))
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
            *sum += tally.requests(rate);
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
    mean_of(seen.iter().filter_map(|(_, tally)| tally.hit_rate.mean()))
}

/// Mean of what is known; unknown when nothing is.
fn mean_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
    ratio(Some(sum), Some(n))
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
