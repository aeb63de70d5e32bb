//! What engines call the signals we plan with: a table, and how a page is read by it.
//!
//! vLLM 0.9 to 0.32 so far (names and kinds checked on recorded pages of 0.9.2, 0.12.0 and 0.32.0). A signal's names are listed newest
//! first; the first one a page has complete is used and the others are ignored, so a page that prints old and new names side by side counts
//! once. Kinds are those of [`Signal::kind`]: there is no way to read a counter as a gauge. A TYPE line that contradicts the kind wins: the
//! family is left out and reported.

use crate::exposition::{ExpositionError, Family, Limits, Line, Page, parse};
use fleet::{Histogram, Reading, Sample, Scrape, Share, Signal, SignalKind, SkippedSample, TargetId, Timestamp};
use std::collections::BTreeMap;

/// How the series of one family (one an engine, one a reason, ...) become one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Join {
    /// Loads and totals add up; histograms add up by bucket.
    Sum,
    /// Mean of shares.
    Mean,
    /// Largest of shares.
    Max,
}

/// One row of the table.
struct Row {
    signal: Signal,
    join: Join,
    /// Names, newest first, without `_total`, `_bucket`, `_sum`, `_count`.
    names: &'static [&'static str],
}

const fn row(signal: Signal, join: Join, names: &'static [&'static str]) -> Row {
    Row { signal, join, names }
}

/// The table.
const CATALOGUE: [Row; 15] = [
    row(Signal::RequestsRunning, Join::Sum, &["vllm:num_requests_running"]),
    row(Signal::RequestsWaiting, Join::Sum, &["vllm:num_requests_waiting"]),
    row(Signal::RequestsFinished, Join::Sum, &["vllm:request_success"]),
    row(Signal::PromptTokens, Join::Sum, &["vllm:prompt_tokens"]),
    row(Signal::GenerationTokens, Join::Sum, &["vllm:generation_tokens"]),
    row(Signal::PrefixQueries, Join::Sum, &["vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"]),
    row(Signal::PrefixHits, Join::Sum, &["vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"]),
    row(Signal::PrefixHitRate, Join::Mean, &["vllm:prefix_cache_hit_rate", "vllm:gpu_prefix_cache_hit_rate"]),
    row(Signal::KvUsageMean, Join::Mean, &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
    row(Signal::KvUsageMax, Join::Max, &["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]),
    row(Signal::Preemptions, Join::Sum, &["vllm:num_preemptions"]),
    row(Signal::TimeToFirstToken, Join::Sum, &["vllm:time_to_first_token_seconds"]),
    row(Signal::InterTokenLatency, Join::Sum, &["vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"]),
    row(Signal::EndToEnd, Join::Sum, &["vllm:e2e_request_latency_seconds"]),
    row(Signal::QueueTime, Join::Sum, &["vllm:request_queue_time_seconds"]),
];

/// The signals every serving page should have. (Load gauges of a server with several engines appear with its first request.)
pub const EXPECTED: [Signal; 12] = [
    Signal::RequestsRunning,
    Signal::RequestsWaiting,
    Signal::RequestsFinished,
    Signal::PromptTokens,
    Signal::GenerationTokens,
    Signal::PrefixQueries,
    Signal::PrefixHits,
    Signal::KvUsageMax,
    Signal::TimeToFirstToken,
    Signal::InterTokenLatency,
    Signal::EndToEnd,
    Signal::QueueTime,
];

/// Which of the [`EXPECTED`] signals an answered scrape lacks. Never an answer to "how much": a missing signal is not zero.
#[must_use]
pub fn missing_signals(scrape: &Scrape) -> Vec<Signal> {
    EXPECTED.into_iter().filter(|signal| !scrape.samples.iter().any(|sample| sample.signal == *signal)).collect()
}

/// Reads a page within the default limits.
#[must_use]
pub fn read_page(target: &TargetId, at: Timestamp, page: &str) -> Scrape {
    read_page_within(target, at, page.as_bytes(), &Limits::default())
}

/// Names of signals that one page spells differently from the catalogue.
pub type Names = BTreeMap<Signal, String>;

/// Reads a page with the catalogue's names.
#[must_use]
pub fn read_page_within(target: &TargetId, at: Timestamp, page: &[u8], limits: &Limits) -> Scrape {
    read_page_named(target, at, page, limits, &Names::new())
}

/// Reads a page; a signal named in `names` is looked for under that name only. A page that is refused as a whole, and one that has none of our signals (an empty one, or some other server's), is a failed
/// scrape.
#[must_use]
pub fn read_page_named(target: &TargetId, at: Timestamp, page: &[u8], limits: &Limits, names: &Names) -> Scrape {
    let page = match parse(page, limits) {
        Ok(page) => page,
        Err(error @ (ExpositionError::PageBytes { .. } | ExpositionError::Samples { .. })) => return Scrape::failed(target.clone(), at, error.to_string()),
    };
    let families = Families::of(&page);
    let mut skipped = page.skipped.clone();
    let mut samples = Vec::new();
    for row in &CATALOGUE {
        let value = match names.get(&row.signal) {
            Some(own) => families.read(row, own.strip_suffix("_total").unwrap_or(own), &mut skipped),
            None => row.names.iter().find_map(|name| families.read(row, name, &mut skipped)),
        };
        if let Some(value) = value {
            samples.push(Sample::of_target(row.signal, value));
        }
    }
    // Two rows that read one family report it twice.
    skipped.sort_by(|a, b| (&a.metric, &a.reason).cmp(&(&b.metric, &b.reason)));
    skipped.dedup();
    if page.skipped_more > 0 {
        skipped.push(SkippedSample { metric: String::new(), reason: format!("{} more lines were skipped", page.skipped_more) });
    }
    if samples.is_empty() {
        let mut failed = Scrape::failed(target.clone(), at, "the page shows none of the known signals");
        failed.skipped = skipped;
        return failed;
    }
    Scrape { skipped, ..Scrape::read(target.clone(), at, samples) }
}

/// A page's samples by name.
struct Families<'a> {
    page: &'a Page<'a>,
    by_name: BTreeMap<&'a str, Vec<&'a Line<'a>>>,
}

impl<'a> Families<'a> {
    fn of(page: &'a Page<'a>) -> Self {
        let mut by_name: BTreeMap<&str, Vec<&Line<'_>>> = BTreeMap::new();
        for line in &page.samples {
            let lines = by_name.entry(line.name).or_default();
            // The same series twice would count twice; the first one stays.
            if line.labels.is_empty() && lines.is_empty() || !lines.iter().any(|other| other.labels == line.labels) {
                lines.push(line);
            }
        }
        Self { page, by_name }
    }

    /// The value of a row under one of its names, if the page has it complete.
    fn read(&self, row: &Row, name: &str, skipped: &mut Vec<SkippedSample>) -> Option<Reading> {
        match row.signal.kind() {
            SignalKind::Counter => {
                let total = format!("{name}_total");
                let spelling = if self.by_name.contains_key(total.as_str()) { &total } else { name };
                self.admit(name, &total, Family::Counter, skipped)?;
                self.joined(spelling, row.join, skipped).map(Reading::Scalar)
            }
            SignalKind::Gauge => {
                self.admit(name, name, Family::Gauge, skipped)?;
                self.joined(name, row.join, skipped).map(Reading::Scalar)
            }
            SignalKind::Histogram => {
                self.admit(name, name, Family::Histogram, skipped)?;
                self.histogram(name, skipped).map(Reading::Histogram)
            }
        }
    }

    /// Whether TYPE lines agree with the table. A family without one is taken at the table's word.
    fn admit(&self, name: &str, other: &str, wanted: Family, skipped: &mut Vec<SkippedSample>) -> Option<()> {
        let said = self.page.types.get(other).or_else(|| self.page.types.get(name));
        match said {
            Some(family) if *family != wanted && *family != Family::Other => {
                let reason = format!("its TYPE line says {family:?}, a {wanted:?} is needed").to_lowercase();
                skipped.push(SkippedSample { metric: name.to_owned(), reason });
                None
            }
            _ => Some(()),
        }
    }

    /// All series of a name joined; nothing when one of them was damaged, since a part is not the whole.
    fn joined(&self, name: &str, join: Join, skipped: &mut Vec<SkippedSample>) -> Option<f64> {
        let lines = self.by_name.get(name).filter(|_| !self.page.incomplete.contains(name))?;
        let mut refuse = |value: f64, why: &str| skipped.push(SkippedSample { metric: name.to_owned(), reason: format!("{value} is {why}") });
        if let Some(line) = lines.iter().find(|line| line.value < 0.0) {
            refuse(line.value, "negative");
            return None;
        }
        if join != Join::Sum
            && let Some(line) = lines.iter().find(|line| Share::new(line.value).is_err())
        {
            refuse(line.value, "not a share of one");
            return None;
        }
        let sum: f64 = lines.iter().map(|line| line.value).sum();
        let joined = match join {
            Join::Sum => sum,
            Join::Mean => sum / lines.iter().map(|_| 1.0).sum::<f64>(),
            Join::Max => lines.iter().map(|line| line.value).fold(0.0, f64::max),
        };
        joined.is_finite().then_some(joined)
    }

    /// Histograms of all series, added up by bucket. Only bounds that every series has are kept, so that each bucket is a sum over all.
    fn histogram(&self, name: &str, skipped: &mut Vec<SkippedSample>) -> Option<Histogram> {
        let sum = self.joined(&format!("{name}_sum"), Join::Sum, skipped)?;
        let count_name = format!("{name}_count");
        let count = self.joined(&count_name, Join::Sum, skipped)?;
        let series = self.by_name.get(count_name.as_str()).map_or(0, Vec::len);
        // Bounds by their order as numbers: the bits of a non-negative float order as it does.
        let mut by_bound: BTreeMap<u64, (f64, f64, usize)> = BTreeMap::new();
        for line in self.by_name.get(format!("{name}_bucket").as_str()).into_iter().flatten() {
            let bound = line.label("le").and_then(|le| le.parse::<f64>().ok()).filter(|bound| bound.is_finite() && *bound >= 0.0);
            if let Some(bound) = bound {
                let (_, total, parts) = by_bound.entry(bound.to_bits()).or_insert((bound, 0.0, 0));
                *total += line.value;
                *parts += 1;
            }
        }
        let buckets: Vec<(f64, f64)> = by_bound.into_values().filter(|(_, _, parts)| *parts == series).map(|(bound, total, _)| (bound, total)).collect();
        let ascending = buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1) && buckets.last().is_none_or(|(_, total)| *total <= count);
        if !ascending {
            skipped.push(SkippedSample { metric: name.to_owned(), reason: "its buckets do not ascend".into() });
            return None;
        }
        Some(Histogram { sum, count, buckets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> Scrape {
        read_page(&TargetId::new("a").unwrap(), Timestamp(0), page)
    }

    /// Field case 1: renamed gauges feed one signal; both names count once; neither is missing, never zero.
    #[test]
    fn old_and_new_names_feed_one_signal() {
        let old = read("vllm:gpu_cache_usage_perc{model_name=\"org/model-7b\"} 0.91\n");
        let new = read("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"org/model-7b\"} 0.88\n");
        let both = read("vllm:gpu_cache_usage_perc 0.90\nvllm:kv_cache_usage_perc 0.90\n");
        assert_eq!([&old, &new, &both].map(|scrape| scrape.scalar(Signal::KvUsageMax)), [Some(0.91), Some(0.88), Some(0.90)]);
        let neither = read("vllm:num_requests_running 3\n");
        assert_eq!(neither.scalar(Signal::KvUsageMax), None);
        assert!(missing_signals(&neither).contains(&Signal::KvUsageMax) && !missing_signals(&neither).contains(&Signal::RequestsRunning));
        // A counter under both names, `_total` or not, is one counter.
        for page in ["vllm:gpu_prefix_cache_hits_total 7\nvllm:prefix_cache_hits_total 7\n", "vllm:prefix_cache_hits 7\n", "vllm:gpu_prefix_cache_hits 7\n"] {
            assert_eq!(read(page).scalar(Signal::PrefixHits), Some(7.0), "{page}");
        }
    }

    /// Field case 3: the gauge of old engines is accepted, a value outside 0..1 is not.
    #[test]
    fn a_legacy_hit_rate_is_accepted_if_it_is_a_share() {
        assert_eq!(read("vllm:gpu_prefix_cache_hit_rate 0.75\n").scalar(Signal::PrefixHitRate), Some(0.75));
        let wrong = read("vllm:gpu_prefix_cache_hit_rate 1.75\nvllm:num_requests_running 3\n");
        assert_eq!((wrong.scalar(Signal::PrefixHitRate), wrong.skipped.len()), (None, 1));
    }

    /// Field case 5: the scrape is ok, one sample skipped and named; a sum with a damaged part is missing, not too small.
    #[test]
    fn a_damaged_sample_is_named_and_its_sum_is_missing() {
        let scrape = read(
            "vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running 3\nvllm:num_requests_waiting{engine=\"0\"} 4\nvllm:num_requests_waiting{engine=\"1\"} 0.32%\n",
        );
        assert!(scrape.is_ok());
        assert_eq!(scrape.skipped.iter().map(|s| s.metric.as_str()).collect::<Vec<_>>(), ["vllm:kv_cache_usage_perc", "vllm:num_requests_waiting"]);
        assert_eq!(scrape.scalar(Signal::RequestsRunning), Some(3.0));
        assert_eq!(scrape.scalar(Signal::RequestsWaiting), None);
        // Damaged under the new name, whole under the old one.
        assert_eq!(read("vllm:kv_cache_usage_perc NaN\nvllm:gpu_cache_usage_perc 0.5\n").scalar(Signal::KvUsageMean), Some(0.5));
    }

    /// Field case 7: the kind comes from the TYPE line, else from the table; a counter cannot become a gauge.
    #[test]
    fn a_type_line_that_contradicts_the_table_wins() {
        let scrape = read("# TYPE vllm:num_requests_running counter\nvllm:num_requests_running 50\nvllm:prompt_tokens_total 9\n");
        assert_eq!((scrape.scalar(Signal::RequestsRunning), scrape.scalar(Signal::PromptTokens)), (None, Some(9.0)));
        assert_eq!(scrape.skipped[0].reason, "its type line says counter, a gauge is needed");
        // OpenMetrics names the family without `_total`.
        assert_eq!(read("# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 9\n").scalar(Signal::PromptTokens), Some(9.0));
        assert!(!read("# TYPE vllm:prompt_tokens_total gauge\nvllm:prompt_tokens_total 9\n").is_ok());
    }

    /// Field case 9: an empty page, and the page of something else, are failed scrapes.
    #[test]
    fn a_page_without_our_signals_is_a_failed_scrape() {
        for page in ["", "# EOF\n", "up 1\n", "<html>sign in</html>"] {
            assert!(!read(page).is_ok(), "{page:?}");
        }
    }

    /// Field case 15: engines of one page are joined, in whatever order their lines come.
    #[test]
    fn engines_are_joined() {
        let lines = [
            "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 7",
            "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 0",
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.9",
            "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.1",
            "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"1.0\"} 20",
            "vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"1.0\"} 9",
            "vllm:e2e_request_latency_seconds_bucket{engine=\"0\",le=\"+Inf\"} 30",
            "vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"+Inf\"} 10",
            "vllm:e2e_request_latency_seconds_bucket{engine=\"1\",le=\"0.5\"} 4",
            "vllm:e2e_request_latency_seconds_sum{engine=\"0\"} 60",
            "vllm:e2e_request_latency_seconds_sum{engine=\"1\"} 5",
            "vllm:e2e_request_latency_seconds_count{engine=\"0\"} 30",
            "vllm:e2e_request_latency_seconds_count{engine=\"1\"} 10",
        ];
        let forth = read(&lines.join("\n"));
        let back = read(&lines.iter().rev().copied().collect::<Vec<_>>().join("\n"));
        assert_eq!(forth, back);
        assert_eq!(forth.scalar(Signal::RequestsRunning), Some(7.0));
        assert_eq!((forth.scalar(Signal::KvUsageMean), forth.scalar(Signal::KvUsageMax)), (Some(0.5), Some(0.9)));
        // The bound that only one engine has is left out.
        assert_eq!(forth.histogram(Signal::EndToEnd), Some(Histogram { sum: 65.0, count: 40.0, buckets: vec![(1.0, 29.0)] }));
        let single = read("vllm:num_requests_running{engine=\"0\"} 7\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.9\n");
        assert_eq!((single.scalar(Signal::RequestsRunning), single.scalar(Signal::KvUsageMean)), (Some(7.0), Some(0.9)));
    }

    #[test]
    fn a_series_printed_twice_counts_once_and_buckets_must_ascend() {
        assert_eq!(read("vllm:num_requests_running{engine=\"0\"} 7\nvllm:num_requests_running{engine=\"0\"} 7\n").scalar(Signal::RequestsRunning), Some(7.0));
        let h = |low: u32| {
            format!(
                "vllm:num_requests_running 1\nvllm:time_to_first_token_seconds_bucket{{le=\"0.1\"}} {low}\nvllm:time_to_first_token_seconds_bucket{{le=\"1\"}} 5\nvllm:time_to_first_token_seconds_sum 3\nvllm:time_to_first_token_seconds_count 6\n"
            )
        };
        assert!(read(&h(4)).histogram(Signal::TimeToFirstToken).is_some());
        assert_eq!(read(&h(6)).histogram(Signal::TimeToFirstToken), None);
    }
}
