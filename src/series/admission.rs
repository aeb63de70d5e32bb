//! What a value can be: what lies outside is a fault of its source, and is neither counted nor learned from.

use fleet::{Histogram, Reading, Signal, SignalKind};

/// More requests than any one server holds at once. Engines that do not know a limit print 2^63 here.
const REQUESTS_AT_ONCE_MAX: f64 = 1e6;
/// More than any total reaches in the life of a process; exporters print 2^63 and neighbours for "no value".
const TOTAL_MAX: f64 = 1e18;
/// The largest GPU of 2026 has 288 GiB; a node's members are never added up here.
const GPU_BYTES_MAX: f64 = 1e13;
/// A GPU draws up to 1.4 kW.
const GPU_WATTS_MAX: f64 = 1e5;
/// Silicon stops below 120 degrees.
const GPU_CELSIUS_MAX: f64 = 250.0;
/// XID codes have three digits; processes on a GPU are few.
const SMALL_NUMBER_MAX: f64 = 1e5;
/// Seconds since the epoch, until the year 5138.
const SECONDS_MAX: f64 = 1e11;

/// Requests one target can take in, start or finish in a second. The largest embedding servers reach about a thousand.
const REQUESTS_PER_S_MAX: f64 = 1e4;
/// Prompt tokens one target can book in a second. A node prefills up to 10^6; those found in the cache cost nothing and come on top.
const PROMPT_TOKENS_PER_S_MAX: f64 = 1e8;
/// Tokens one target can generate in a second. A node of eight GPUs reaches about 10^5.
const TOKENS_PER_S_MAX: f64 = 1e7;

/// Whether the value is one its signal can have: finite, not negative, shares and flags at most 1, amounts within reason.
pub(crate) fn plausible(signal: Signal, value: &Reading) -> bool {
    match value {
        Reading::Scalar(value) => value.is_finite() && (0.0..=largest(signal)).contains(value),
        Reading::Histogram(h) => plausible_histogram(h),
    }
}

fn plausible_histogram(h: &Histogram) -> bool {
    let total = |x: f64| x.is_finite() && (0.0..=TOTAL_MAX).contains(&x);
    total(h.sum) && total(h.count) && h.buckets.iter().all(|(bound, count)| !bound.is_nan() && total(*count))
}

fn largest(signal: Signal) -> f64 {
    if signal.kind() == SignalKind::Counter {
        return TOTAL_MAX;
    }
    match signal.unit() {
        "ratio" | "flag" => 1.0,
        "requests" => REQUESTS_AT_ONCE_MAX,
        "bytes" => GPU_BYTES_MAX,
        "watts" => GPU_WATTS_MAX,
        "celsius" => GPU_CELSIUS_MAX,
        "code" | "processes" => SMALL_NUMBER_MAX,
        "seconds" => SECONDS_MAX,
        _ => TOTAL_MAX,
    }
}

/// The fastest that a total (of a histogram: its count) can grow, per second.
pub(crate) fn increase_per_s_max(signal: Signal) -> f64 {
    match signal {
        Signal::PromptTokens | Signal::PrefixQueries | Signal::PrefixHits => PROMPT_TOKENS_PER_S_MAX,
        Signal::GenerationTokens | Signal::InterTokenLatency => TOKENS_PER_S_MAX,
        _ => REQUESTS_PER_S_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_negatives_and_shares_above_one_are_refused() {
        for (signal, value, good) in [
            (Signal::KvUsageMean, 1.0, true),
            (Signal::KvUsageMean, 1.01, false),
            (Signal::PrefixHitRate, -0.1, false),
            (Signal::RequestsWaiting, 9.22e18, false),
            (Signal::RequestsWaiting, f64::NAN, false),
            (Signal::RequestsFinished, 9_223_372_036_854_775_794.0, false),
            (Signal::RequestsFinished, 1e12, true),
            (Signal::GpuPower, f64::INFINITY, false),
            (Signal::BootTime, 1.7e9, true),
        ] {
            assert_eq!(plausible(signal, &Reading::Scalar(value)), good, "{signal:?} {value}");
        }
        let h = |sum| Reading::Histogram(Histogram { sum, count: 1.0, buckets: vec![(0.5, 1.0)] });
        assert!(plausible(Signal::EndToEnd, &h(0.2)) && !plausible(Signal::EndToEnd, &h(f64::NAN)));
    }
}
