//! A running copy of a variant and the counters its page would show.

use crate::queue::Served;
use fleet::{Histogram, Span, Timestamp};

/// Upper bounds of the time-to-first-token buckets, seconds.
pub(crate) const TTFT_BOUNDS_S: [f64; 15] = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0];
/// Upper bounds of the inter-token-latency buckets, seconds.
pub(crate) const ITL_BOUNDS_S: [f64; 8] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0];

/// A running copy.
#[derive(Debug, Clone)]
pub(crate) struct Replica {
    pub variant: usize,
    pub gpus: Vec<usize>,
    pub started: Timestamp,
    /// When it really serves.
    pub ready: Timestamp,
    /// When whoever started it expects that.
    pub expected_ready: Timestamp,
    /// It takes no new work and leaves at this instant.
    pub leaves: Option<Timestamp>,
    /// One a service it may serve, in the order of the variant's services.
    pub counters: Vec<Counters>,
}

impl Replica {
    /// Share of the minute from `now` in which it serves.
    pub fn serving_share(&self, now: Timestamp) -> f64 {
        if self.leaves.is_some() { 0.0 } else { ((now + Span::MINUTE).since(self.ready).as_minutes()).min(1.0) }
    }

    pub fn is_ready(&self, now: Timestamp) -> bool {
        self.ready <= now
    }
}

/// Totals since the process began.
#[derive(Debug, Clone)]
pub(crate) struct Counters {
    pub finished: f64,
    pub prompt_tokens: f64,
    pub generation_tokens: f64,
    pub prefix_queries: f64,
    pub prefix_hits: f64,
    /// Running now.
    pub running: f64,
    pub ttft: Histogram,
    pub itl: Histogram,
}

impl Default for Counters {
    fn default() -> Self {
        let empty = |bounds: &[f64]| Histogram { sum: 0.0, count: 0.0, buckets: bounds.iter().map(|b| (*b, 0.0)).collect() };
        Self {
            finished: 0.0,
            prompt_tokens: 0.0,
            generation_tokens: 0.0,
            prefix_queries: 0.0,
            prefix_hits: 0.0,
            running: 0.0,
            ttft: empty(&TTFT_BOUNDS_S),
            itl: empty(&ITL_BOUNDS_S),
        }
    }
}

/// What a service's replicas did in a minute, to be shared among them.
pub(crate) struct MinuteOfService {
    pub count: f64,
    pub ttft_sum_s: f64,
    pub ttft_at_or_below: [f64; TTFT_BOUNDS_S.len()],
}

impl MinuteOfService {
    /// Of the requests served, each of which waits for its prefill after it left the queue.
    pub fn new(served: &[Served], prefill_s: f64) -> Self {
        let count = served.iter().map(|s| s.count).sum();
        let ttft_sum_s = served.iter().map(|s| s.wait_sum_s() + s.count * prefill_s).sum();
        let ttft_at_or_below = TTFT_BOUNDS_S.map(|bound| served.iter().map(|s| s.within(bound - prefill_s)).sum());
        Self { count, ttft_sum_s, ttft_at_or_below }
    }
}

impl Counters {
    /// Adds this replica's share of a minute. `input` and `output` are tokens per request, `itl_s` the time between two of them.
    pub fn add(&mut self, minute: &MinuteOfService, share: f64, input: f64, output: f64, hit_rate: f64, itl_s: f64) {
        let requests = minute.count * share;
        self.finished += requests;
        self.prompt_tokens += requests * input;
        self.generation_tokens += requests * output;
        self.prefix_queries += requests * input;
        self.prefix_hits += requests * input * hit_rate;
        self.ttft.count += requests;
        self.ttft.sum += minute.ttft_sum_s * share;
        for (bucket, below) in self.ttft.buckets.iter_mut().zip(minute.ttft_at_or_below) {
            bucket.1 += below * share;
        }
        let gaps = requests * (output - 1.0).max(0.0);
        self.itl.count += gaps;
        self.itl.sum += gaps * itl_s;
        for bucket in self.itl.buckets.iter_mut().filter(|b| itl_s <= b.0) {
            bucket.1 += gaps;
        }
        // Little's law: those running are the rate times the time each of them runs.
        self.running = requests / 60.0 * output * itl_s;
    }
}
