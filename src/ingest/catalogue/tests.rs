//! Pages made by hand, one an engine and a fault.

mod devices;

use super::*;
use fleet::{Histogram, MemberId, Reading};
use proptest::prelude::*;

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

fn read_as(engine: Option<&str>, select: &[(&str, &str)], page: &str) -> Scrape {
    let select = select.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).collect();
    let how = ReadAs { target: &TargetId::new("a").unwrap(), engine, select: &select, names: &Names::new() };
    Catalogue::builtin().read_text(&how, Timestamp(0), page.as_bytes(), &Limits::default())
}

fn engine_of(scrape: &Scrape) -> &str {
    scrape.server.as_ref().map_or("", |server| server.engine.as_str())
}

/// Values by member.
fn by_member(scrape: &Scrape, signal: Signal) -> Vec<(&str, f64)> {
    let scalar = |reading: &Reading| match reading {
        Reading::Scalar(value) => *value,
        Reading::Histogram(histogram) => histogram.count,
    };
    scrape.members(signal).map(|(member, reading)| (member.map_or("", MemberId::as_str), scalar(reading))).collect()
}

#[test]
fn every_table_of_the_house_can_be_used() {
    let catalogue = Catalogue::builtin();
    for table in &catalogue.tables {
        assert_eq!(table.engine.validate(), Ok(()), "{}", table.engine.name);
        assert!(!table.marks.is_empty() && !table.expected.is_empty(), "{}", table.engine.name);
        for other in &table.engine.instead_of {
            assert!(catalogue.table(other).is_some(), "{} stands instead of {other}, which is no table", table.engine.name);
        }
    }
    let names: BTreeSet<&str> = catalogue.engines().collect();
    assert_eq!(names.len(), catalogue.tables.len(), "names are unique");
    for name in ["vllm:prompt_tokens_total", "vllm:e2e_request_latency_seconds_bucket", "DCGM_FI_DEV_FB_USED", "turnaround_gpu_energy_joules_total"] {
        assert!(catalogue.metric_names().contains(name), "{name}");
    }
    let rows = catalogue.describe();
    assert!(rows.iter().any(|row| row.spelled == "1048576 * (DCGM_FI_DEV_FB_USED)" && row.unit == "bytes"), "{rows:#?}");
    assert!(rows.iter().any(|row| row.engine == "dynamo" && row.spelled == "dynamo_frontend_inflight_requests - dynamo_frontend_queued_requests"));
}

/// Every spelling of every table is read: a page with nothing but one spelling (and what recognises the table) gives its signal.
#[test]
fn every_spelling_is_read() {
    for table in &Catalogue::builtin().tables {
        for row in &table.engine.signals {
            for spelling in &row.names {
                let made = spelling.made();
                let labels: Vec<String> = made.only.iter().map(|(label, values)| format!("{label}=\"{}\"", values.last().unwrap())).collect();
                let device = if row.signal.of_gpu() { table.engine.device.uuid.first().map(|uuid| format!("{uuid}=\"GPU-1\"")) } else { None };
                let labels = labels.into_iter().chain(device).collect::<Vec<_>>().join(",");
                let middle = row.range.unwrap_or_else(|| plausible(row.signal));
                let value = if row.signal == Signal::BootTime { 1.7e9 } else { middle[0].max(0.0) + 1.0 };
                let page: String = made
                    .sum
                    .iter()
                    .chain(&made.events)
                    .map(|name| match row.signal.kind() {
                        fleet::SignalKind::Histogram if made.events.is_empty() => format!("{name}_sum{{{labels}}} {value}\n{name}_count{{{labels}}} 1\n"),
                        _ => format!("{name}{{{labels}}} {value}\n"),
                    })
                    .collect();
                let scrape = read_as(Some(&table.engine.name), &[], &page);
                let found = scrape.samples.iter().any(|sample| sample.signal == row.signal);
                assert!(found, "{}: {} is not read from\n{page}{scrape:#?}", table.engine.name, row.signal.name());
            }
        }
    }
}

/// Field case 13: demand comes from counters; a throughput gauge that keeps its last value is not read at all.
#[test]
fn sglang_is_read_and_its_frozen_gauge_is_not() {
    let page = concat!(
        "sglang:gen_throughput{model_name=\"m\"} 812.5\n# TYPE sglang:generation_tokens_total counter\nsglang:generation_tokens_total{model_name=\"m\"} 90000\n",
        "sglang:num_running_reqs{model_name=\"m\"} 0\nsglang:num_queue_reqs{model_name=\"m\"} 2\nsglang:token_usage{model_name=\"m\"} 0.25\n",
        "sglang:prompt_tokens_total{is_streaming=\"true\",model_name=\"m\"} 700\nsglang:prompt_tokens_total{is_streaming=\"false\",model_name=\"m\"} 300\n",
        "sglang:cached_tokens_total{cache_source=\"device\",model_name=\"m\"} 300\nsglang:cached_tokens_total{cache_source=\"host\",model_name=\"m\"} 100\n",
        "sglang:num_requests_total{model_name=\"m\"} 12\nsglang:startup_time_seconds{phase=\"load_weight\"} 40\nsglang:startup_time_seconds{phase=\"e2e\"} 77.5\n",
        "sglang:time_per_output_token_seconds_sum 3\nsglang:time_per_output_token_seconds_count 100\n",
    );
    let scrape = read(page);
    assert_eq!((engine_of(&scrape), scrape.server.as_ref().unwrap().models.as_slice()), ("sglang", ["m".to_owned()].as_slice()));
    let scalars = [
        (Signal::GenerationTokens, 90_000.0),
        (Signal::RequestsRunning, 0.0),
        (Signal::RequestsWaiting, 2.0),
        (Signal::RequestsFinished, 12.0),
        (Signal::PromptTokens, 1000.0),
        (Signal::PrefixQueries, 1000.0),
        (Signal::PrefixHits, 400.0),
        (Signal::KvUsageMax, 0.25),
        (Signal::StartupTime, 77.5),
    ];
    for (signal, value) in scalars {
        assert_eq!(scrape.scalar(signal), Some(value), "{}", signal.name());
    }
    assert_eq!(scrape.histogram(Signal::InterTokenLatency).map(|h| h.sum / h.count), Some(0.03));
    assert!(!scrape.samples.iter().any(|sample| matches!(sample.value, Reading::Scalar(value) if value.to_bits() == 812.5_f64.to_bits())));
    assert_eq!(Catalogue::builtin().missing_signals(&scrape), [Signal::TimeToFirstToken, Signal::EndToEnd]);
    // An idle ratio that reads NaN costs itself (field case 5), and newer builds write another prefix.
    let idle = read("sglang:fwd_occupancy NaN\nsglang:cache_hit_rate 0.6\nsglang:num_running_reqs 3\n");
    assert_eq!((idle.is_ok(), idle.skipped.len(), idle.skipped[0].metric.as_str()), (true, 1, "sglang:fwd_occupancy"));
    assert_eq!((idle.scalar(Signal::PrefixHitRate), idle.scalar(Signal::RequestsRunning)), (Some(0.6), Some(3.0)));
    assert_eq!(read("sglang_num_running_reqs 3\nsglang_num_queue_reqs 1\n").scalar(Signal::RequestsWaiting), Some(1.0));
}

/// Field case 15: ranks of one engine repeat a series and count once, data-parallel engines count each, a priority's share is part of the whole.
#[test]
fn sglang_ranks_are_copies_and_data_parallel_engines_are_not() {
    let ranks = read("sglang:num_running_reqs{tp_rank=\"0\"} 4\nsglang:num_running_reqs{tp_rank=\"1\"} 4\nsglang:num_running_reqs{tp_rank=\"10\"} 9\n");
    assert_eq!(by_member(&ranks, Signal::RequestsRunning), [("", 4.0)]);
    let engines = read("sglang:num_running_reqs{dp_rank=\"0\",tp_rank=\"0\"} 4\nsglang:num_running_reqs{dp_rank=\"1\",tp_rank=\"1\"} 5\n");
    assert_eq!(by_member(&engines, Signal::RequestsRunning), [("0", 4.0), ("1", 5.0)]);
    let shares = read("sglang:num_queue_reqs{priority=\"\"} 7\nsglang:num_queue_reqs{priority=\"0\"} 3\nsglang:num_queue_reqs{priority=\"5\"} 4\n");
    assert_eq!(by_member(&shares, Signal::RequestsWaiting), [("", 7.0)]);
}

#[test]
fn tgi_is_read() {
    let page = concat!(
        "tgi_queue_size 7\ntgi_batch_current_size 4\n# TYPE tgi_request_count counter\ntgi_request_count 50\ntgi_request_success 44\n",
        "tgi_request_failure{err=\"overloaded\"} 2\ntgi_request_failure{err=\"validation\"} 1\n",
        "# TYPE tgi_request_input_length histogram\ntgi_request_input_length_bucket{le=\"128\"} 40\ntgi_request_input_length_sum 4400\ntgi_request_input_length_count 44\n",
        "tgi_request_generated_tokens_sum 8123\ntgi_request_generated_tokens_count 44\n",
        "# TYPE tgi_request_duration histogram\ntgi_request_duration_bucket{le=\"1\"} 4\ntgi_request_duration_bucket{le=\"+Inf\"} 44\ntgi_request_duration_sum 88\ntgi_request_duration_count 44\n",
        "tgi_request_queue_duration_sum 4.4\ntgi_request_queue_duration_count 44\ntgi_request_mean_time_per_token_duration_sum 2.2\ntgi_request_mean_time_per_token_duration_count 44\n",
    );
    let scrape = read(page);
    assert_eq!((engine_of(&scrape), Catalogue::builtin().missing_signals(&scrape)), ("tgi", vec![]));
    let counts = [Signal::RequestsFinished, Signal::RequestsReceived, Signal::RequestsRefused, Signal::PromptTokens, Signal::GenerationTokens];
    assert_eq!(counts.map(|signal| scrape.scalar(signal)), [Some(47.0), Some(50.0), Some(2.0), Some(4400.0), Some(8123.0)]);
    assert_eq!(scrape.histogram(Signal::EndToEnd), Some(Histogram { sum: 88.0, count: 44.0, buckets: vec![(1.0, 4.0)] }));
    // Before its first failure there is no counter of them.
    assert_eq!(read("tgi_request_success 44\n").scalar(Signal::RequestsFinished), Some(44.0));
    // A summary is no histogram.
    let summary = read("# TYPE tgi_request_duration summary\ntgi_request_duration_sum 88\ntgi_request_duration_count 44\ntgi_queue_size 1\n");
    assert_eq!((summary.histogram(Signal::EndToEnd), summary.skipped.len()), (None, 1));
}

/// Field case 47: Triton's durations are of requests that succeeded, in microseconds, and have no distribution.
#[test]
fn triton_is_read_model_by_model() {
    let page = concat!(
        "# TYPE nv_inference_request_success counter\nnv_inference_request_success{model=\"resnet\",version=\"1\"} 880\nnv_inference_request_success{model=\"bert\",version=\"1\"} 10\n",
        "nv_inference_request_failure{model=\"resnet\",version=\"1\",reason=\"REJECTED\"} 15\nnv_inference_request_failure{model=\"resnet\",version=\"1\",reason=\"OTHER\"} 5\n",
        "nv_inference_request_failure{model=\"bert\",version=\"1\"} 0\n",
        "nv_inference_count{model=\"resnet\",version=\"1\"} 7040\nnv_inference_pending_request_count{model=\"resnet\",version=\"1\"} 3\n",
        "nv_inference_request_duration_us{model=\"resnet\",version=\"1\"} 88000000\nnv_inference_request_duration_us{model=\"bert\",version=\"1\"} 1000000\n",
        "nv_inference_queue_duration_us{model=\"resnet\",version=\"1\"} 4400000\nnv_inference_queue_duration_us{model=\"bert\",version=\"1\"} 0\n",
        "nv_gpu_utilization{gpu_uuid=\"GPU-aaa\"} 0.91\nnv_gpu_utilization{gpu_uuid=\"GPU-bbb\"} 0.12\nnv_gpu_memory_used_bytes{gpu_uuid=\"GPU-aaa\"} 34359738368\n",
        "# TYPE nv_energy_consumption counter\nnv_energy_consumption{gpu_uuid=\"GPU-aaa\"} 1000\n",
    );
    let all = read(page);
    assert_eq!((engine_of(&all), all.server.as_ref().unwrap().models.join(" ")), ("triton", "bert resnet".to_owned()));
    assert_eq!(all.scalar(Signal::RequestsFinished), Some(910.0));
    let one = read_as(None, &[("model", "resnet")], page);
    assert_eq!(one.scalar(Signal::RequestsFinished), Some(900.0));
    let e2e = one.histogram(Signal::EndToEnd).unwrap();
    assert!((e2e.sum - 88.0).abs() < 1e-9 && e2e.count.total_cmp(&880.0).is_eq() && e2e.buckets.is_empty(), "{e2e:?}");
    assert_eq!(one.histogram(Signal::QueueTime).map(|h| (h.sum / h.count * 1e6).round()), Some(5000.0));
    assert_eq!(one.scalar(Signal::RequestsWaiting), Some(3.0));
    let backend = read(
        "nv_inference_pending_request_count{model=\"m\"} 1\nnv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\"} 6\nnv_trt_llm_request_metrics{model=\"m\",request_type=\"max\"} 512\n",
    );
    assert_eq!((backend.scalar(Signal::RequestsWaiting), backend.scalar(Signal::RequestsRunning)), (Some(6.0), None));
    // Its GPUs are the server's, whatever model is selected.
    assert_eq!(by_member(&one, Signal::GpuUtilisation), [("GPU-aaa", 0.91), ("GPU-bbb", 0.12)]);
    assert_eq!((one.devices.len(), one.scalar(Signal::GpuMemoryUsed), one.scalar(Signal::GpuEnergy)), (2, Some(34_359_738_368.0), Some(1000.0)));
    assert!(!read_as(None, &[("model", "nobody")], "nv_inference_request_success{model=\"a\"} 1\n").is_ok());
}

/// The names of NIM could be anybody's: they count where several stand together and nobody else is known, or where the config says so.
#[test]
fn nim_is_recognised_only_by_company_or_by_name() {
    let few = "num_requests_running 3\nprompt_tokens_total 9\n";
    let page = format!("{few}num_requests_waiting 1\ngpu_cache_usage_perc 0.5\nrequest_finish_total{{finished_reason=\"stop\"}} 4\n");
    let scrape = read(&page);
    assert_eq!((engine_of(&scrape), scrape.scalar(Signal::RequestsRunning), scrape.scalar(Signal::RequestsFinished)), ("nim", Some(3.0), Some(4.0)));
    assert!(!read(few).is_ok());
    assert_eq!(read_as(Some("nim"), &[], few).scalar(Signal::PromptTokens), Some(9.0));
    let beside = read(&format!("{page}vllm:num_requests_running 8\n"));
    assert_eq!((engine_of(&beside), beside.scalar(Signal::RequestsRunning), beside.scalar(Signal::PromptTokens)), ("vllm", Some(8.0), None));
    let unknown = read_as(Some("nym"), &[], &page);
    assert_eq!(unknown.status, fleet::ScrapeStatus::Failed("no engine is called \"nym\"".into()));
}

/// Field case 3: llama.cpp counts prompt tokens without the cached ones, other engines with them; a signal means the same for all.
#[test]
fn prompt_tokens_include_cached_ones_whatever_the_engine_counts() {
    let new = read(
        "llamacpp:prompt_tokens_total 900\nllamacpp:prompt_tokens_cached_total 100\nllamacpp:tokens_predicted_seconds_total 2\nllamacpp:tokens_predicted_total 100\n",
    );
    assert_eq!([Signal::PromptTokens, Signal::PrefixQueries, Signal::PrefixHits].map(|signal| new.scalar(signal)), [Some(1000.0), Some(1000.0), Some(100.0)]);
    assert_eq!(new.histogram(Signal::InterTokenLatency).map(|h| h.sum / h.count), Some(0.02));
    let old = read("llamacpp:prompt_tokens_total 900\nllamacpp:kv_cache_usage_ratio 0.5\nllamacpp:predicted_tokens_seconds nan\n");
    assert_eq!([Signal::PromptTokens, Signal::PrefixHits, Signal::KvUsageMax].map(|signal| old.scalar(signal)), [Some(900.0), None, Some(0.5)]);
}

/// Field case 23: what a router received and refused is known while no replica exists.
#[test]
fn routers_tell_what_they_received_and_refused() {
    let page = concat!(
        "# TYPE router_requests_total counter\nrouter_requests_total{model=\"org/model-7b\",outcome=\"no_backend\"} 3\n",
        "router_requests_total{model=\"org/model-7b\",outcome=\"ok\"} 40\nrouter_requests_total{model=\"other\",outcome=\"ok\"} 5\nrouter_queue_size{model=\"org/model-7b\"} 0\n",
    );
    let one = read_as(None, &[("model", "org/model-7b")], page);
    assert_eq!((engine_of(&one), one.scalar(Signal::RequestsReceived), one.scalar(Signal::RequestsRefused)), ("router", Some(43.0), Some(3.0)));
    assert_eq!((one.scalar(Signal::RequestsWaiting), read(page).scalar(Signal::RequestsReceived)), (Some(0.0), Some(48.0)));
    let picker = concat!(
        "inference_objective_request_total{model_name=\"m\",target_model_name=\"m-1\"} 9\n",
        "inference_objective_request_error_total{error_code=\"ServiceUnavailable\",model_name=\"m\"} 2\ninference_objective_request_error_total{error_code=\"BadRequest\",model_name=\"m\"} 1\n",
    );
    let picker = read(picker);
    assert_eq!(
        (engine_of(&picker), picker.scalar(Signal::RequestsReceived), picker.scalar(Signal::RequestsRefused)),
        ("inference-gateway", Some(9.0), Some(2.0))
    );
    assert_eq!(read("inference_model_request_total 9\n").scalar(Signal::RequestsReceived), Some(9.0));
    let stack = read(
        "vllm:num_incoming_requests_total{model=\"m\"} 6\nvllm:num_requests_running{server=\"http://a\"} 2\nvllm:num_requests_running{server=\"http://b\"} 1\n",
    );
    assert_eq!((engine_of(&stack), stack.scalar(Signal::RequestsReceived), stack.scalar(Signal::RequestsRunning)), ("vllm-router", Some(6.0), Some(3.0)));
    let smg = read("sgl_router_requests_total{route=\"/generate\"} 6\n");
    assert_eq!((engine_of(&smg), smg.scalar(Signal::RequestsReceived)), ("sglang-router", Some(6.0)));
}

/// Field case 47: one request for four sequences is one request, four sequences and forty prompt tokens, each under its own name.
#[test]
fn requests_sequences_and_tokens_keep_their_names() {
    let page = concat!(
        "vllm:request_params_n_sum 4\nvllm:request_params_n_count 1\nvllm:e2e_request_latency_seconds_sum 8\nvllm:e2e_request_latency_seconds_count 4\n",
        "vllm:prompt_tokens_total 40\n",
    );
    let scrape = read(page);
    let n = scrape.histogram(Signal::SequencesPerRequest).unwrap();
    assert_eq!((n.count, n.sum, scrape.histogram(Signal::EndToEnd).unwrap().count, scrape.scalar(Signal::PromptTokens)), (1.0, 4.0, 4.0, Some(40.0)));
}

/// A page with several models gives each target its own; names of one target stand in for the catalogue's.
#[test]
fn selections_and_names_of_one_target_hold() {
    let page = "vllm:num_requests_running{model_name=\"a\"} 3\nvllm:num_requests_running{model_name=\"b\"} 4\nmine_waiting{model_name=\"b\"} 6\nprocess_start_time_seconds 1.7e9\n";
    let (one, both) = (read_as(None, &[("model_name", "b")], page), read_as(None, &[], page));
    assert_eq!((one.scalar(Signal::RequestsRunning), both.scalar(Signal::RequestsRunning)), (Some(4.0), Some(7.0)));
    assert_eq!((one.server.unwrap().models, both.server.unwrap().models), (vec!["b".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(read_as(None, &[("model", "a")], page).scalar(Signal::BootTime), Some(1.7e9));
    let names = Names::from([(Signal::RequestsWaiting, "mine_waiting".to_owned())]);
    let named = read_page_named(&TargetId::new("a").unwrap(), Timestamp(0), page.as_bytes(), &Limits::default(), &names);
    assert_eq!((named.scalar(Signal::RequestsWaiting), named.scalar(Signal::RequestsRunning)), (Some(6.0), Some(7.0)));
    let alone = read_page_named(&TargetId::new("a").unwrap(), Timestamp(0), b"mine_waiting 6\n", &Limits::default(), &names);
    assert_eq!((alone.scalar(Signal::RequestsWaiting), alone.server), (Some(6.0), None));
}

/// A user's table comes before those of the house; one with a known name lies over it.
#[test]
fn tables_of_users_come_first() {
    let table = |text: &str| toml::from_str::<EngineTable>(text).unwrap();
    let mine = "name = \"mine\"\nprefixes = [\"mine_\"]\nrecognised = { by_prefix = true }\nmodels = [\"model\"]\n[[signal]]\nsignal = \"requests_running\"\nnames = [\"mine_running\"]\n[[signal]]\nsignal = \"end_to_end\"\nnames = [{ sum = [\"mine_ms\"], scale = 0.001 }]\n";
    let over = "name = \"vllm\"\n[[signal]]\nsignal = \"requests_waiting\"\nnames = [\"vllm:my_waiting\"]\n";
    let catalogue = Catalogue::with(vec![table(mine), table(over)]).unwrap();
    let read = |page: &str| {
        let how = ReadAs { target: &TargetId::new("a").unwrap(), engine: None, select: &BTreeMap::new(), names: &Names::new() };
        catalogue.read_text(&how, Timestamp(0), page.as_bytes(), &Limits::default())
    };
    let scrape = read("mine_running 4\nmine_ms_bucket{le=\"500\"} 1\nmine_ms_sum 900\nmine_ms_count 2\n");
    assert_eq!((engine_of(&scrape), scrape.scalar(Signal::RequestsRunning)), ("mine", Some(4.0)));
    assert_eq!(scrape.histogram(Signal::EndToEnd), Some(Histogram { sum: 0.9, count: 2.0, buckets: vec![(0.5, 1.0)] }));
    assert_eq!((catalogue.expected("mine"), catalogue.expected("nobody")), ([Signal::RequestsRunning, Signal::EndToEnd].as_slice(), [].as_slice()));
    let over = read("vllm:my_waiting{engine=\"1\"} 9\nvllm:num_requests_waiting{engine=\"1\"} 2\nvllm:num_requests_running{engine=\"1\"} 3\n");
    assert_eq!((by_member(&over, Signal::RequestsWaiting), over.scalar(Signal::RequestsRunning)), (vec![("1", 9.0)], Some(3.0)));
    let twice = Catalogue::with(vec![table(mine), table(mine)]).unwrap_err();
    assert!(twice.to_string().contains("two tables have this name"));
    let gauge = Catalogue::with(vec![table("name = \"bad\"\n[[signal]]\nsignal = \"requests_running\"\nnames = [\"bad_total\"]\n")]).unwrap_err();
    assert!(gauge.to_string().contains("a running total is no level"), "{gauge}");
}

/// Names of the catalogue with any labels and any values, damaged lines among them.
fn any_page() -> impl Strategy<Value = String> {
    let names: Vec<String> = Catalogue::builtin().metric_names().iter().cloned().collect();
    let label = prop::sample::select(vec![
        "engine",
        "le",
        "UUID",
        "gpu",
        "GPU_I_ID",
        "GPU_I_PROFILE",
        "pod",
        "exported_pod",
        "tp_rank",
        "dp_rank",
        "priority",
        "model_name",
    ]);
    let labels = prop::collection::btree_map(label, prop::sample::select(vec!["", "0", "1", "+Inf", "0.5", "1g.5gb", " x ", "a"]), 0..4);
    let values = ["0", "1", "0.5", "NaN", "-1", "1e308", "1.7e308", "65535", "9223372036854775794", "1e18", "x", "1796000000"];
    let line = (prop::sample::select(names), labels, prop::sample::select(values.to_vec()), any::<bool>()).prop_map(|(name, labels, value, typed)| {
        let labels: Vec<String> = labels.iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let typed = if typed { format!("# TYPE {name} gauge\n") } else { String::new() };
        format!("{typed}{name}{{{}}} {value}\n", labels.join(","))
    });
    prop::collection::vec(line, 0..40).prop_map(|lines| lines.concat())
}

proptest! {
    #[test]
    fn whatever_a_page_says_readings_are_believable(page in any_page()) {
        let scrape = read(&page);
        for sample in &scrape.samples {
            match &sample.value {
                Reading::Scalar(value) => prop_assert!(value.is_finite() && *value >= 0.0 || sample.signal == Signal::GpuTemperature, "{sample:?}"),
                Reading::Histogram(h) => {
                    prop_assert!(h.sum.is_finite() && h.count.is_finite() && h.sum >= 0.0 && h.count >= 0.0, "{sample:?}");
                    prop_assert!(h.buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{sample:?}");
                }
            }
        }
        prop_assert!(scrape.is_ok() != scrape.samples.is_empty());
        prop_assert_eq!(&read(&page), &scrape);
    }
}
