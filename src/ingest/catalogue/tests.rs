//! Pages made by hand, one an engine and a fault.

use super::*;
use fleet::{Device, Histogram, Holder, MemberId, MigSlice, Reading};

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
