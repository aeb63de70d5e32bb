//! What happened between two looks at one target.

use fleet::{Histogram, Scrape, Signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The last known totals of a target. A signal that a page lacks keeps its last total: the next page that has it shows the change since.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    scalars: BTreeMap<Signal, f64>,
    histograms: BTreeMap<Signal, Histogram>,
    /// A page was read to its end before, so a total that was absent then counts from zero.
    whole_page_seen: bool,
    /// First tokens still owed by requests that left the queue and were prefilling when last looked at (see [`Change::arrivals`]).
    owed: f64,
}

/// The counters whose changes are summed over a window.
pub(crate) const COUNTERS: [Signal; 6] =
    [Signal::RequestsFinished, Signal::PromptTokens, Signal::GenerationTokens, Signal::PrefixQueries, Signal::PrefixHits, Signal::Preemptions];

/// What happened between two looks. Signals that one of them lacked are missing here, too.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Change {
    /// Increase of counters.
    pub counters: BTreeMap<Signal, f64>,
    /// Requests that arrived.
    ///
    /// `first tokens + change in waiting`: completions would omit those who hang up, and would lag in overload. A request that left the
    /// queue and is still in its prefill at the look is in neither term. It was counted when it joined the queue; leaving makes the sum
    /// negative by one until its first token makes it positive again. That deficit is carried over (`owed`), but never beyond the number of
    /// requests running: what is missing beyond them left the queue by hanging up and will never have a first token. A request that starts
    /// without queueing counts at its first token. Preemption cancels out: back in the queue plus one, out again minus one.
    ///
    /// Engines without a time-to-first-token histogram: `finished + change in running + change in waiting`.
    pub arrivals: Option<f64>,
    /// First tokens that came.
    pub first_tokens: Option<f64>,
    /// Of these, how many within the target (interpolated linearly inside the bucket that holds it; where the target lies beyond the last
    /// bound, only those below that bound are known to be in time).
    pub in_time: Option<f64>,
    /// Sum and number of times between tokens.
    pub inter_token: Option<(f64, f64)>,
    /// Some total fell: the process restarted in between.
    pub restarted: bool,
}

impl Change {
    /// No total moved and nobody arrived.
    pub(crate) fn is_idle(&self) -> bool {
        let mut amounts = self.counters.values().copied().chain(self.arrivals).chain(self.first_tokens);
        amounts.all(|amount| amount <= 0.0)
    }
}

impl Totals {
    /// Takes the next look and says what happened since the last one.
    pub(crate) fn advance(&mut self, scrape: &Scrape, ttft_target_s: f64) -> Change {
        let mut change = Change::default();
        for signal in COUNTERS {
            if let Some((increase, restarted)) = self.counter(scrape, signal) {
                change.counters.insert(signal, increase);
                change.restarted |= restarted;
            }
        }
        if let Some((grown, restarted)) = self.grown(scrape, Signal::TimeToFirstToken) {
            change.first_tokens = Some(grown.count);
            change.in_time = at_or_below(&grown, ttft_target_s);
            change.restarted |= restarted;
        }
        change.inter_token = self.grown(scrape, Signal::InterTokenLatency).map(|(grown, _)| (grown.sum, grown.count));
        if change.restarted {
            // The queue and batch of the old process are gone with it.
            self.owed = 0.0;
            for gauge in [Signal::RequestsWaiting, Signal::RequestsRunning] {
                self.scalars.entry(gauge).and_modify(|level| *level = 0.0);
            }
        }
        let waiting = self.level(scrape, Signal::RequestsWaiting);
        let running = self.level(scrape, Signal::RequestsRunning);
        change.arrivals = match (change.first_tokens, change.counters.get(&Signal::RequestsFinished)) {
            (Some(started), _) => Some(self.settle(started + waiting.unwrap_or(0.0))),
            (None, Some(finished)) => running.map(|running| (finished + running + waiting.unwrap_or(0.0)).max(0.0)),
            (None, None) => None,
        };
        self.whole_page_seen |= scrape.skipped.is_empty();
        change
    }

    /// Requests that arrived, given the raw balance: what is owed is paid first, a deficit is owed on.
    fn settle(&mut self, balance: f64) -> f64 {
        let net = balance - self.owed;
        let running = self.scalars.get(&Signal::RequestsRunning).copied().unwrap_or(0.0);
        self.owed = (-net).clamp(0.0, running.max(0.0));
        net.max(0.0)
    }

    /// Increase of a counter, and whether it was reset. A fall means that the process restarted and the new total counts from zero
    /// (Prometheus' rule). Of a total never seen nothing is known, unless earlier pages were whole and lacked it: then it counts from zero.
    fn counter(&mut self, scrape: &Scrape, signal: Signal) -> Option<(f64, bool)> {
        let total = scrape.scalar(signal).filter(|total| total.is_finite() && *total >= 0.0)?;
        match self.scalars.insert(signal, total) {
            Some(last) if total >= last => Some((total - last, false)),
            Some(_) => Some((total, true)),
            None if self.whole_page_seen => Some((total, false)),
            None => None,
        }
    }

    /// Change of a gauge since it was last known.
    fn level(&mut self, scrape: &Scrape, signal: Signal) -> Option<f64> {
        let level = scrape.scalar(signal).filter(|level| level.is_finite())?;
        match self.scalars.insert(signal, level) {
            Some(last) => Some(level - last),
            None if self.whole_page_seen => Some(level),
            None => None,
        }
    }

    /// What a histogram gained, and whether it was reset; same rules as for counters, judged by its count.
    fn grown(&mut self, scrape: &Scrape, signal: Signal) -> Option<(Histogram, bool)> {
        let total = scrape.histogram(signal).filter(|h| h.count.is_finite() && h.sum.is_finite())?;
        let from_zero = self.whole_page_seen;
        match self.histograms.insert(signal, total.clone()) {
            Some(last) if total.count >= last.count => Some((difference(&total, &last), false)),
            Some(_) => Some((total, true)),
            None if from_zero => Some((total, false)),
            None => None,
        }
    }
}

/// What was added between two totals. Bounds that only one of them has are left out.
fn difference(total: &Histogram, last: &Histogram) -> Histogram {
    let buckets = total.buckets.iter().filter_map(|(bound, count)| {
        let (_, before) = last.buckets.iter().find(|(other, _)| other.total_cmp(bound).is_eq())?;
        Some((*bound, (count - before).max(0.0)))
    });
    Histogram { sum: (total.sum - last.sum).max(0.0), count: total.count - last.count, buckets: buckets.collect() }
}

/// How many values lie at or below `target`, interpolated as Prometheus' `histogram_quantile` does: evenly inside a bucket, the first
/// bucket beginning at 0. `None` without buckets.
fn at_or_below(histogram: &Histogram, target: f64) -> Option<f64> {
    let (mut low, mut below) = (0.0, 0.0);
    histogram.buckets.first()?;
    for (bound, count) in &histogram.buckets {
        if target < *bound {
            let part = if *bound > low { ((target - low) / (bound - low)).clamp(0.0, 1.0) } else { 0.0 };
            return Some(below + (count - below).max(0.0) * part);
        }
        (low, below) = (*bound, *count);
    }
    Some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_time_is_interpolated_inside_the_bucket() {
        let h = Histogram { sum: 9.0, count: 12.0, buckets: vec![(0.5, 2.0), (1.0, 10.0)] };
        for (target, expected) in [(0.25, 1.0), (0.5, 2.0), (0.75, 6.0), (1.0, 10.0), (60.0, 10.0)] {
            assert!((at_or_below(&h, target).unwrap() - expected).abs() < 1e-12, "{target}");
        }
        assert_eq!(at_or_below(&Histogram::default(), 1.0), None);
    }
}
