//! Records put on the clock, minute by minute: what is known of each, and which are not known at all.
//!
//! Rows that are counts say themselves which seconds they cover; a second no row covers is a gap. Single requests say nothing of the time between
//! them: a pause up to `silence_max` was idle, a longer one is a lost record. Before the first and after the last request nothing is known.

use crate::demand::{Count, LATE_MAX, Record, Request};
use fleet::{Span, Timestamp};
use std::collections::BTreeMap;

/// Minutes held open for rows that come late: a row may be an hour late, and its request may have begun an hour before.
const HELD_MINUTES: i64 = 2 * LATE_MAX.0 / 60 + 1;
/// Every second of a minute.
const WHOLE: u64 = (1 << 60) - 1;

/// A sum, and what it is of.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    pub fn join(&mut self, other: Self) {
        self.sum += other.sum;
        self.weight += other.weight;
    }

    pub fn get(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// What is known of a minute.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct MinuteSums {
    /// Seconds that are known, a bit each.
    covered: u64,
    /// Requests that arrived in them.
    pub requests: f64,
    /// Prompt tokens of one.
    pub input: Mean,
    /// Generated tokens of one.
    pub output: Mean,
    /// Share of prompt tokens that a cache could answer.
    pub cached: Mean,
    /// Longest interval its counts are of.
    pub resolution: Span,
}

impl MinuteSums {
    /// A whole minute without a request.
    fn idle() -> Self {
        Self { covered: WHOLE, ..Self::default() }
    }

    /// Seconds that are known.
    pub fn seconds(&self) -> f64 {
        f64::from(self.covered.count_ones())
    }

    /// Whether all of it is known.
    pub fn is_whole(&self) -> bool {
        self.covered == WHOLE
    }

    fn add(&mut self, request: &Request) {
        self.covered = WHOLE;
        self.requests += 1.0;
        self.input.add(request.input_tokens, 1.0);
        self.output.add(request.output_tokens, 1.0);
        if let (Some(cached), Some(input)) = (request.cached_tokens, request.input_tokens.filter(|i| *i > 0.0)) {
            self.cached.add(Some(cached / input), input);
        }
    }

    fn add_part(&mut self, count: &Count, requests: f64) {
        self.requests += requests;
        self.input.add(count.input_tokens, requests);
        self.output.add(count.output_tokens, requests);
        self.resolution = self.resolution.max(count.length);
    }
}

/// Bits of the seconds `from..to` of a minute.
fn bits(from: i64, to: i64) -> u64 {
    let below = |second: i64| if second >= 60 { WHOLE } else { (1_u64 << second.max(0)) - 1 };
    below(to) & !below(from)
}

/// Minutes that are known, in order; those in between are gaps.
pub(crate) type Known = Vec<(Timestamp, MinuteSums)>;

/// From records to minutes.
#[derive(Debug, Clone)]
pub(crate) struct Minutes {
    /// Longest pause that is idleness; none for counts.
    silence_max: Option<Span>,
    open: BTreeMap<i64, MinuteSums>,
    newest: i64,
    /// First and last second of single requests.
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    settled: Option<i64>,
    /// Rows that came too late.
    pub late: u64,
}

impl Minutes {
    pub fn new(silence_max: Option<Span>) -> Self {
        Self { silence_max, open: BTreeMap::new(), newest: i64::MIN, first: None, last: None, settled: None, late: 0 }
    }

    /// Takes a record and gives back the minutes that are now settled.
    pub fn take(&mut self, record: &Record, shift: Span) -> Known {
        let at = record.at() + shift;
        let minute = at.0.div_euclid(60);
        if self.settled.is_some_and(|settled| minute <= settled) {
            self.late += 1;
            return Known::new();
        }
        match record {
            Record::Request(request) => {
                self.open.entry(minute).or_default().add(request);
                self.first = Some(self.first.map_or(at, |first| first.min(at)));
                self.last = Some(self.last.map_or(at, |last| last.max(at)));
            }
            Record::Count(count) => self.spread(count, at),
        }
        self.newest = self.newest.max(minute);
        self.settle(self.newest - HELD_MINUTES)
    }

    /// Spreads a count evenly over its interval.
    fn spread(&mut self, count: &Count, at: Timestamp) {
        let end = at + count.length;
        let mut from = at;
        while from < end {
            let minute = from.0.div_euclid(60);
            let to = end.min(Timestamp((minute + 1) * 60));
            let sums = self.open.entry(minute).or_default();
            sums.covered |= bits(from.0 - minute * 60, to.0 - minute * 60);
            sums.add_part(count, count.requests * to.since(from).as_secs_f64() / count.length.as_secs_f64());
            from = to;
        }
    }

    /// The rest.
    pub fn finish(&mut self) -> Known {
        self.settle(i64::MAX)
    }

    /// Gives back all minutes before `until`.
    fn settle(&mut self, until: i64) -> Known {
        let mut out = Known::new();
        while let Some((minute, mut sums)) = self.open.first_key_value().filter(|(m, _)| **m < until).map(|(m, s)| (*m, *s)) {
            self.open.remove(&minute);
            if let (Some(silence_max), Some(settled)) = (self.silence_max, self.settled)
                && Span::minutes(minute - settled - 1) <= silence_max
            {
                out.extend((settled + 1..minute).map(|m| (Timestamp(m * 60), MinuteSums::idle())));
            }
            let start = minute * 60;
            // The minutes at the ends of a log are known from its first to its last request.
            if let Some(first) = self.first.filter(|_| self.settled.is_none()) {
                sums.covered &= bits(first.0 - start, 60);
            }
            if let Some(last) = self.last.filter(|_| until == i64::MAX && self.open.is_empty()) {
                sums.covered &= bits(0, last.0 - start + 1);
            }
            out.push((Timestamp(start), sums));
            self.settled = Some(minute);
        }
        out
    }
}
