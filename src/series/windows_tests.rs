//! Tests of the way from scrapes to windows.

use super::*;
use fleet::{Histogram, Reading, Sample, SkippedSample, VariantId};
use proptest::prelude::*;

const TTFT_S: f64 = 1.0;

fn target(id: &str) -> Target {
    Target {
        id: TargetId::new(id).unwrap(),
        workload: WorkloadId::new("chat").unwrap(),
        variant: Some(VariantId::new("m@fp8").unwrap()),
        replica: None,
        gpus: vec![],
        pod: None,
    }
}

/// A page with these totals and levels; a first-token histogram of `started` requests, a quarter of them over the target.
fn page(id: &str, at: i64, started: f64, scalars: &[(Signal, f64)]) -> Scrape {
    let mut samples: Vec<Sample> = scalars.iter().map(|(signal, value)| Sample::of_target(*signal, Reading::Scalar(*value))).collect();
    let ttft = Histogram { sum: started, count: started, buckets: vec![(0.5, started / 2.0), (1.0, started * 0.75)] };
    samples.push(Sample::of_target(Signal::TimeToFirstToken, Reading::Histogram(ttft)));
    Scrape::read(TargetId::new(id).unwrap(), Timestamp(at), samples)
}

fn failed(id: &str, at: i64) -> Scrape {
    Scrape::failed(TargetId::new(id).unwrap(), Timestamp(at), "refused")
}

/// Observes scrapes of one or more targets and closes at `until`.
fn windows(length: i64, scrapes: &[Scrape], until: i64, targets: &[&str]) -> Vec<WorkloadWindow> {
    let mut windows = Windows::new(Span(length));
    for scrape in scrapes {
        windows.observe(&target(scrape.target.as_str()), TTFT_S, scrape);
    }
    let targets: Vec<Target> = targets.iter().map(|id| target(id)).collect();
    windows.close(Timestamp(until), &targets)
}

fn near(value: Option<f64>, expected: f64) {
    let value = value.unwrap_or(f64::NAN);
    assert!((value - expected).abs() < 1e-9 * expected.abs().max(1.0), "{value} is not {expected}");
}

/// Field case 3: rates and ratios come from differences of counters, and no queries mean no hit rate.
#[test]
fn a_hit_rate_is_taken_from_differences() {
    let look = |at, queries, hits, tokens| {
        page(
            "a",
            at,
            0.0,
            &[(Signal::PrefixQueries, queries), (Signal::PrefixHits, hits), (Signal::GenerationTokens, tokens), (Signal::RequestsFinished, tokens / 100.0)],
        )
    };
    let scrapes = [look(0, 1_000.0, 400.0, 60_000.0), look(60, 3_000.0, 1_900.0, 66_000.0), look(120, 3_000.0, 1_900.0, 66_000.0)];
    let out = windows(60, &scrapes, 120, &["a"]);
    near(out[0].prefix_hit_rate, 0.75);
    // 100 tokens/s: 100 tokens a request, one request a second.
    near(out[0].output_tokens.zip(out[0].finished_per_s).map(|(tokens, rate)| tokens * rate), 100.0);
    assert_eq!((out[1].prefix_hit_rate, out[1].output_tokens), (None, None));
    near(out[1].finished_per_s, 0.0);
}

/// Field case 3: more hits than queries is no share, and the gauge of old engines is accepted where counters are missing.
#[test]
fn a_hit_rate_stays_between_zero_and_one() {
    let look = |at, queries, hits| page("a", at, 0.0, &[(Signal::PrefixQueries, queries), (Signal::PrefixHits, hits)]);
    assert_eq!(windows(60, &[look(0, 0.0, 0.0), look(60, 100.0, 150.0)], 60, &["a"])[0].prefix_hit_rate, None);
    let legacy = |at, rate| page("a", at, 0.0, &[(Signal::PrefixHitRate, rate)]);
    near(windows(60, &[legacy(0, 0.75), legacy(30, 0.75), legacy(60, 1.75)], 60, &["a"])[0].prefix_hit_rate, 0.75);
}

/// Field cases 7 and 11: a healthy page whose totals stand still is a true zero, whatever the totals are; lengths are then unknown.
#[test]
fn totals_that_stand_still_are_zero_load() {
    let still: Vec<Scrape> =
        (0..5).map(|i| page("a", i * 15, 50.0, &[(Signal::RequestsFinished, 50.0), (Signal::RequestsWaiting, 0.0), (Signal::PromptTokens, 9e4)])).collect();
    let out = windows(60, &still, 60, &["a"]);
    near(out[0].arrivals_per_s, 0.0);
    near(out[0].peak_per_s, 0.0);
    assert_eq!((out[0].input_tokens, out[0].output_tokens, out[0].inter_token_s), (None, None, None));
    assert!((out[0].completeness - 1.0).abs() < 1e-12 && !out[0].saturated);
}

/// Field case 9: refused connections and empty pages are unknown, never zero.
#[test]
fn silence_is_unknown_and_never_zero() {
    let mut scrapes: Vec<Scrape> = (0..5).map(|i| page("a", i * 15, f64::from(i32::try_from(i).unwrap()) * 600.0, &[])).collect();
    let empty = Scrape { status: fleet::ScrapeStatus::Ok, ..failed("a", 75) };
    scrapes.extend([empty, failed("a", 90), failed("a", 105), failed("a", 120)]);
    let out = windows(60, &scrapes, 120, &["a"]);
    near(out[0].arrivals_per_s, 40.0);
    assert_eq!((out[1].arrivals_per_s, out[1].peak_per_s, out[1].waiting, out[1].first_tokens), (None, None, None, None));
    assert_eq!((out[1].completeness, out[1].ready.len()), (0.0, 0));
}

/// Field case 15: two servers of one workload are added up, whatever the order their looks come in.
#[test]
fn targets_are_added_up_in_any_order() {
    let a = [page("a", 0, 0.0, &[(Signal::RequestsRunning, 7.0)]), page("a", 60, 60.0, &[(Signal::RequestsRunning, 7.0)])];
    let b = [page("b", 0, 1_000.0, &[(Signal::RequestsRunning, 0.0)]), page("b", 60, 1_120.0, &[(Signal::RequestsRunning, 0.0)])];
    let one = windows(60, &[&a[..], &b[..]].concat(), 60, &["a", "b"]);
    assert_eq!(one, windows(60, &[b[0].clone(), a[0].clone(), b[1].clone(), a[1].clone()], 60, &["a", "b"]));
    near(one[0].arrivals_per_s, 3.0);
    near(one[0].running, 7.0);
    assert_eq!(one[0].ready.values().copied().collect::<Vec<_>>(), [2]);
    near(one[0].first_tokens, 180.0);
    near(one[0].first_tokens_in_time, 135.0);
}

/// Field case 21: requests that wait are demand, before any of them was started; and those that then start are not counted again.
#[test]
fn waiting_is_demand_and_is_counted_once() {
    let scrapes = [
        page("a", 0, 0.0, &[(Signal::RequestsWaiting, 0.0), (Signal::RequestsRunning, 0.0)]),
        page("a", 60, 0.0, &[(Signal::RequestsWaiting, 30.0), (Signal::RequestsRunning, 0.0)]),
        // Ten left the queue and are prefilling: in no counter yet.
        page("a", 120, 0.0, &[(Signal::RequestsWaiting, 20.0), (Signal::RequestsRunning, 10.0)]),
        page("a", 180, 10.0, &[(Signal::RequestsWaiting, 20.0), (Signal::RequestsRunning, 10.0)]),
        // The rest hangs up; six new ones come and start at once.
        page("a", 240, 10.0, &[(Signal::RequestsWaiting, 0.0), (Signal::RequestsRunning, 0.0)]),
        page("a", 300, 16.0, &[(Signal::RequestsWaiting, 0.0), (Signal::RequestsRunning, 2.0)]),
    ];
    let out = windows(60, &scrapes, 300, &["a"]);
    let arrived: Vec<f64> = out.iter().map(|w| w.arrivals_per_s.unwrap() * 60.0).collect();
    assert_eq!(arrived, [30.0, 0.0, 0.0, 0.0, 6.0]);
    near(out[0].waiting, 30.0);
}

#[test]
fn a_restart_counts_from_zero() {
    let queue = |n| [(Signal::RequestsWaiting, n), (Signal::RequestsFinished, 0.0)];
    let scrapes = [page("a", 0, 500.0, &queue(9.0)), page("a", 30, 530.0, &queue(9.0)), page("a", 60, 20.0, &queue(4.0))];
    // 30 started, then the queue of 9 died with its process, 20 started and 4 wait in the new one.
    near(windows(60, &scrapes, 60, &["a"])[0].arrivals_per_s.map(|rate| rate * 60.0), 54.0);
}

#[test]
fn a_total_that_one_page_lacked_is_not_lost_and_not_counted_whole() {
    let mut damaged = page("a", 30, 0.0, &[(Signal::RequestsFinished, 130.0)]);
    damaged.samples.retain(|sample| sample.signal != Signal::TimeToFirstToken);
    damaged.skipped.push(SkippedSample { metric: "vllm:time_to_first_token_seconds_count".into(), reason: "NaN".into() });
    let whole = |at, n| page("a", at, n, &[(Signal::RequestsFinished, 100.0 + n - 1_000.0)]);
    let out = windows(60, &[whole(0, 1_000.0), damaged, whole(60, 1_060.0)], 60, &["a"]);
    near(out[0].first_tokens, 60.0);
    // The very first page damaged: what the second one shows first is no increase.
    let mut first = page("a", 0, 0.0, &[(Signal::RequestsFinished, 1.0)]);
    first.samples.pop();
    first.skipped.push(SkippedSample { metric: "x".into(), reason: "NaN".into() });
    let out = windows(60, &[first, page("a", 60, 5_000.0, &[(Signal::RequestsFinished, 1.0)])], 60, &["a"]);
    assert_eq!(out[0].first_tokens, None);
    // A whole first page without the counter: the engine makes it with the first request, so it counts from zero.
    let mut first = page("a", 0, 0.0, &[(Signal::RequestsFinished, 0.0)]);
    first.samples.pop();
    let out = windows(60, &[first, page("a", 60, 6.0, &[(Signal::RequestsFinished, 1.0)])], 60, &["a"]);
    near(out[0].first_tokens, 6.0);
}

#[test]
fn repeated_and_late_looks_are_ignored() {
    let good = [page("a", 0, 0.0, &[]), page("a", 30, 30.0, &[]), page("a", 60, 60.0, &[])];
    let noisy = [good[0].clone(), good[1].clone(), good[1].clone(), page("a", 15, 7.0, &[]), good[2].clone(), page("b", 60, 1e6, &[])];
    let mut state = Windows::new(Span(60));
    for scrape in &noisy {
        // The last one is of another target than it is said to be.
        state.observe(&target("a"), TTFT_S, scrape);
    }
    assert_eq!(state.close(Timestamp(60), &[target("a")]), windows(60, &good, 60, &["a"]));
}

/// Demand of a dead server is held, and it is no supply.
#[test]
fn a_dead_server_keeps_its_demand_and_loses_its_place() {
    let mut scrapes = Vec::new();
    for i in 0..=20_i32 {
        let at = i64::from(i) * 15;
        scrapes.push(page("a", at, f64::from(i) * 30.0, &[]));
        scrapes.push(if i <= 4 { page("b", at, f64::from(i) * 60.0, &[]) } else { failed("b", at) });
    }
    let out = windows(60, &scrapes, 300, &["a", "b"]);
    for (index, window) in out.iter().enumerate() {
        near(window.arrivals_per_s, 6.0);
        near(window.peak_per_s, 6.0);
        let dead = index >= 1;
        assert_eq!(window.ready.values().sum::<u32>(), if dead { 1 } else { 2 });
        assert!((window.completeness - if dead { 0.5 } else { 1.0 }).abs() < 1e-12, "{index}: {}", window.completeness);
    }
    // Taken out of the fleet, it is no longer held.
    near(windows(60, &scrapes, 300, &["a"])[4].arrivals_per_s, 2.0);
}

#[test]
fn a_long_gap_is_spread_and_does_not_count_as_observed() {
    let mut scrapes: Vec<Scrape> = (0..=4).map(|i| page("a", i * 15, 0.0, &[])).collect();
    // 240 s without a look, then 480 requests more.
    scrapes.extend((20..=24).map(|i| page("a", i * 15, 480.0, &[])));
    let out = windows(60, &scrapes, 360, &["a"]);
    let completeness: Vec<f64> = out.iter().map(|w| w.completeness).collect();
    assert_eq!(completeness, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    near(out[0].arrivals_per_s, 0.0);
    near(out[5].arrivals_per_s, 0.0);
    assert!(out[1..5].iter().all(|w| w.arrivals_per_s.is_none()));
    // The gap ends inside a window: its part of the change is that window's, not the whole.
    scrapes.truncate(5);
    scrapes.extend([page("a", 270, 420.0, &[]), page("a", 285, 420.0, &[]), page("a", 300, 420.0, &[])]);
    let out = windows(60, &scrapes, 300, &["a"]);
    near(out[4].first_tokens, 60.0);
    near(out[4].arrivals_per_s, 1.0);
    assert!((out[4].completeness - 0.5).abs() < 1e-12);
}

#[test]
fn slow_schedules_are_no_gaps() {
    let scrapes: Vec<Scrape> = (0..=4_i32).map(|i| page("a", i64::from(i) * 3_600, f64::from(i) * 7_200.0, &[])).collect();
    let out = windows(3_600, &scrapes, 4 * 3_600, &["a"]);
    assert!(out.iter().all(|w| (w.completeness - 1.0).abs() < 1e-12));
    near(out[3].arrivals_per_s, 2.0);
}

#[test]
fn saturation_needs_a_queue_at_every_look() {
    let look = |id: &str, i: i32, waiting: f64| {
        page(id, i64::from(i) * 15, f64::from(i) * 30.0, &[(Signal::RequestsFinished, f64::from(i) * 45.0), (Signal::RequestsWaiting, waiting)])
    };
    let full: Vec<Scrape> = (0..=4).map(|i| look("a", i, 5.0)).collect();
    let out = windows(60, &full, 60, &["a"]);
    assert!(out[0].saturated);
    near(out[0].saturated_per_replica.values().next().copied(), 3.0);
    let mut dip = full.clone();
    dip[2] = look("a", 2, 0.0);
    let out = windows(60, &dip, 60, &["a"]);
    assert!(!out[0].saturated && out[0].saturated_per_replica.is_empty());
    // One of two has a queue: its throughput is known, but the workload as a whole is not limited.
    let both: Vec<Scrape> = full.into_iter().chain((0..=4).map(|i| look("b", i, 0.0))).collect();
    let out = windows(60, &both, 60, &["a", "b"]);
    assert!(!out[0].saturated);
    near(out[0].saturated_per_replica.values().next().copied(), 3.0);
}

#[test]
fn the_peak_is_the_highest_minute() {
    let scrapes: Vec<Scrape> = (0..=20_i32).map(|i| page("a", i64::from(i) * 15, f64::from(i.clamp(8, 12) - 8) * 150.0, &[])).collect();
    let out = windows(300, &scrapes, 300, &["a"]);
    near(out[0].peak_per_s, 10.0);
    near(out[0].arrivals_per_s, 2.0);
}

#[test]
fn the_state_survives_its_json_and_goes_on_the_same() {
    let mut state = Windows::new(Span(60));
    for i in 0..=5_i32 {
        state.observe(&target("a"), TTFT_S, &page("a", i64::from(i) * 15, f64::from(i), &[(Signal::RequestsWaiting, 1.0)]));
    }
    let mut restored: Windows = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(restored, state);
    for windows in [&mut state, &mut restored] {
        windows.observe(&target("a"), TTFT_S, &page("a", 120, 9.0, &[]));
    }
    assert_eq!(restored.close(Timestamp(120), &[target("a")]), state.close(Timestamp(120), &[target("a")]));
}

#[test]
fn a_leap_of_the_clock_costs_a_bounded_number_of_windows() {
    let scrapes = [page("a", 0, 0.0, &[]), page("a", 1_000_000_000, 9.0, &[])];
    let out = windows(1, &scrapes, 1_000_000_000, &["a"]);
    assert_eq!(out.len(), 10_000);
    assert!(out.iter().all(|w| w.arrivals_per_s.is_none()));
}

proptest! {
    /// Whatever the spacing of the looks and however late windows are closed, every request is counted once.
    #[test]
    fn no_request_is_lost_or_counted_twice(steps in proptest::collection::vec((1_i64..20, 0_u32..50), 2..60), every in 1_usize..7) {
        let mut state = Windows::new(Span(60));
        let targets = [target("a")];
        let (mut at, mut total) = (0, 0.0);
        // A steady beginning sets the schedule, so that no later spacing is a gap.
        for _ in 0..3 {
            at += 20;
            state.observe(&targets[0], TTFT_S, &page("a", at, total, &[]));
        }
        let mut out = Vec::new();
        for (index, (spacing, arrived)) in steps.iter().enumerate() {
            at += if spacing % 2 == 0 { 20 } else { 17 + spacing % 4 };
            total += f64::from(*arrived);
            state.observe(&targets[0], TTFT_S, &page("a", at, total, &[]));
            if index % every == 0 {
                out.extend(state.close(Timestamp(at), &targets));
            }
        }
        at += 20;
        state.observe(&targets[0], TTFT_S, &page("a", at, total, &[]));
        at += 120;
        out.extend(state.close(Timestamp(at), &targets));
        let counted: f64 = out.iter().filter_map(|w| w.first_tokens).sum();
        prop_assert!((counted - total).abs() < 1e-6, "{} of {}", counted, total);
        prop_assert!(out.windows(2).all(|w| w[1].start.0 == w[0].start.0 + 60));
    }
}
