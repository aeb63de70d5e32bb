//! Changes summed over one window of one target.

use crate::change::Change;
use crate::totals::Look;
use fleet::{Scrape, Share, Signal, Span, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Shortest time a peak is measured over: shorter ones show the noise of single requests and the engine's own rhythm.
const PEAK_BIN: Span = Span::MINUTE;

/// An amount and the time it belongs to. The time may reach back over the window's start by less than a scrape, when the window before it
/// was closed before that scrape came; rates are amounts over times, so nothing is lost and nothing counted twice.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Flow {
    pub amount: f64,
    pub seconds: f64,
}

impl Flow {
    fn add(&mut self, amount: f64, seconds: f64) {
        self.amount += amount;
        self.seconds += seconds;
    }

    /// Per second; unknown without time.
    pub(crate) fn rate(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.amount / self.seconds)
    }
}

/// Sum and number of looks at a gauge.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Looks {
    pub sum: f64,
    pub count: f64,
}

impl Looks {
    pub(crate) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    pub(crate) fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// What one target did in one window, as far as it was seen.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// Seconds between scrapes close enough to each other.
    pub observed_s: f64,
    /// Requests that arrived.
    pub arrivals: Flow,
    /// The same in parts of the window of a minute or more, in order.
    pub bins: Vec<Flow>,
    /// Increases of counters.
    pub counters: BTreeMap<Signal, Flow>,
    /// Sequences a request asks for, as last known.
    pub sequences_per_request: Option<f64>,
    /// First tokens, and those in time, in requests.
    pub first_tokens: Option<f64>,
    pub in_time: Option<f64>,
    /// Sum and number of times between tokens.
    pub inter_token: (f64, f64),
    /// Requests running, over the looks.
    pub running: Looks,
    /// Hit rate as a gauge, over the looks (old engines).
    pub hit_rate: Looks,
    /// Requests waiting at the last look.
    pub waiting: Option<f64>,
    /// Looks that said how many waited (the one before the window's first included), and how many of them saw a queue.
    pub queue_looks: u32,
    pub queue_seen: u32,
    /// The last look was answered.
    pub answered: bool,
}

/// A stretch of time inside a window over which a share of a change is spread.
pub(crate) struct Stretch {
    /// Start of the window it is booked in.
    pub window: Timestamp,
    /// Length of that window.
    pub length: Span,
    /// The stretch, cut to the window; empty for time carried over from a window closed before.
    pub from: Timestamp,
    pub to: Timestamp,
    /// Seconds of it, those carried over included.
    pub seconds: f64,
    /// Its part of the whole change.
    pub share: f64,
    /// Close enough together to count as observed.
    pub observed: bool,
}

impl Tally {
    /// Books a share of a change.
    pub(crate) fn book(&mut self, change: &Change, stretch: &Stretch) {
        let Stretch { seconds, share, observed, .. } = *stretch;
        if observed {
            self.observed_s += seconds;
        }
        for (signal, increase) in &change.counters {
            self.counters.entry(*signal).or_default().add(increase * share, seconds);
        }
        if let Some(arrivals) = change.arrivals {
            let seconds = seconds + change.arrivals_before.as_secs_f64() * share;
            self.arrivals.add(arrivals * share, seconds);
            self.book_bins(arrivals * share / seconds, stretch);
        }
        self.sequences_per_request = change.sequences_per_request.or(self.sequences_per_request);
        let add = |sum: &mut Option<f64>, part: Option<f64>| {
            if let Some(part) = part {
                *sum = Some(sum.unwrap_or(0.0) + part * share);
            }
        };
        add(&mut self.first_tokens, change.first_tokens);
        add(&mut self.in_time, change.in_time);
        if let Some((sum, count)) = change.inter_token {
            self.inter_token.0 += sum * share;
            self.inter_token.1 += count * share;
        }
    }

    fn book_bins(&mut self, rate: f64, stretch: &Stretch) {
        let parts = bin_count(stretch.length);
        self.bins.resize(parts, Flow::default());
        let part_s = stretch.length.0 / i64::try_from(parts).unwrap_or(1);
        let mut start = stretch.window.0;
        for (index, bin) in self.bins.iter_mut().enumerate() {
            // The last part takes what the division left over.
            let end = if index + 1 == parts { stretch.window.0 + stretch.length.0 } else { start + part_s };
            let seconds = Span((stretch.to.0.min(end) - stretch.from.0.max(start)).max(0)).as_secs_f64();
            bin.add(rate * seconds, seconds);
            start = end;
        }
    }

    /// Notes the levels that an answered look showed. `before` is the queue at the look before, where that was recent.
    pub(crate) fn look(&mut self, scrape: &Scrape, look: &Look, before: Option<f64>) {
        if let Some(running) = look.levels.get(&Signal::RequestsRunning) {
            self.running.add(*running);
        }
        if let Some(rate) = scrape.scalar(Signal::PrefixHitRate).and_then(|rate| Share::new(rate).ok()) {
            self.hit_rate.add(rate.get());
        }
        if self.queue_looks == 0
            && let Some(before) = before
        {
            self.look_at_queue(before);
        }
        if let Some(waiting) = look.levels.get(&Signal::RequestsWaiting) {
            self.waiting = Some(*waiting);
            self.look_at_queue(*waiting);
        }
    }

    /// A number of sequences, in requests.
    pub(crate) fn requests(&self, sequences: f64) -> f64 {
        sequences / self.sequences_per_request.unwrap_or(1.0)
    }

    /// Adds what was seen of a window that a step of the clock cut short.
    pub(crate) fn merge(&mut self, cut: &Self) {
        self.observed_s += cut.observed_s;
        self.arrivals.add(cut.arrivals.amount, cut.arrivals.seconds);
        for (signal, flow) in &cut.counters {
            self.counters.entry(*signal).or_default().add(flow.amount, flow.seconds);
        }
        for (own, theirs) in [(&mut self.first_tokens, cut.first_tokens), (&mut self.in_time, cut.in_time)] {
            *own = own.map_or(theirs, |own| Some(own + theirs.unwrap_or(0.0)));
        }
        self.inter_token.0 += cut.inter_token.0;
        self.inter_token.1 += cut.inter_token.1;
        self.sequences_per_request = self.sequences_per_request.or(cut.sequences_per_request);
    }

    fn look_at_queue(&mut self, waiting: f64) {
        self.queue_looks += 1;
        self.queue_seen += u32::from(waiting > 0.0);
    }

    /// Requests waited at every look, at both ends at least, and some finished: what finished was limited by the server, not by demand.
    pub(crate) fn saturated(&self) -> bool {
        let finished = self.counters.get(&Signal::RequestsFinished).is_some_and(|flow| flow.amount > 0.0);
        self.queue_looks >= 2 && self.queue_seen == self.queue_looks && finished
    }
}

/// Parts of a window that a peak is looked for in: as many as fit with a minute or more each.
pub(crate) fn bin_count(length: Span) -> usize {
    usize::try_from(length.0 / PEAK_BIN.0).unwrap_or(0).max(1)
}
