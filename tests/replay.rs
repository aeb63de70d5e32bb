//! Two weeks of what users of a large provider really asked for, through the real loop on a made fleet.
//!
//! The traffic of three models of the `ServeGen` release, scaled down, meets 24 H100 and 8 L40S with eight jobs. Hours whose record is lost in
//! the release stay so: users are served, and every look fails. The figures are printed (run with `--nocapture`); asserted is what must hold
//! whatever they are.

#[path = "replay/fleet.rs"]
mod fleet;
#[path = "replay/traffic.rs"]
mod traffic;

use ::fleet::{HourKind, LEVELS, Span, Timestamp, WorkloadId};
use fleet::{GPUS, SERVICES, START};
use sim::{Blackout, DemandPoint, LoopReport, Options, PolicyKind, Run, Scenario};
use std::time::Instant;
use traffic::{Replayed, dark, mean};

const DAYS: i64 = 14;

fn scenario(replayed: &[Replayed]) -> Scenario {
    Scenario {
        setup: fleet::setup(&traffic::token_priors(replayed)),
        traffic: replayed.iter().map(|r| r.traffic.clone()).collect(),
        truth: fleet::truth(),
        faults: Vec::new(),
        blackouts: replayed.iter().flat_map(|r| r.blackouts.clone()).collect(),
        seed: 1,
        start: START,
        length: Span(DAYS * 86_400),
    }
}

fn print_scale(replayed: &[Replayed]) {
    let (mut means, mut peaks) = (0.0, 0.0);
    for (spec, r) in SERVICES.iter().zip(replayed) {
        let gpus = |rate: f64| rate / spec.variants[0].rate.0 * f64::from(spec.variants[0].gpus);
        let lost: i64 = r.blackouts.iter().map(|b| b.until.since(b.from).0 / 60).sum();
        eprintln!(
            "{}: scale {:.4}, mean {:.1} requests/s ({:.1} GPUs at the prior), highest hour {:.1} ({:.1} GPUs); {:.0}+{:.0} tokens; {} min lost in {} runs",
            spec.id,
            r.scale,
            r.mean,
            gpus(r.mean),
            r.peak,
            gpus(r.peak),
            r.tokens.0,
            r.tokens.1,
            lost,
            r.blackouts.len()
        );
        (means, peaks) = (means + gpus(r.mean), peaks + gpus(r.peak));
    }
    eprintln!(
        "together {:.1} % of the fleet on average, {:.1} % if all peaked at once; jobs {:.0} GPU-hours, {:.1} %",
        means / GPUS * 100.0,
        peaks / GPUS * 100.0,
        fleet::job_gpu_hours(),
        fleet::job_gpu_hours() / (GPUS * Span(DAYS * 86_400).as_hours()) * 100.0
    );
}

/// In time / (in time + late) over hours no part of which is dark; of all services, or of one, in some days.
fn attainment(run: &Run, blackouts: &[Blackout], workload: Option<&str>, days: std::ops::Range<i64>) -> f64 {
    let day = |at: Timestamp| at.since(START).0 / 86_400;
    let seen = |w: &WorkloadId, at| workload.is_none_or(|id| w.as_str() == id) && days.contains(&day(at)) && dark(blackouts, w, at) == Span::ZERO;
    let hours = run.service_hours.iter().filter(|h| seen(&h.workload, h.start));
    let (good, bad) = hours.fold((0.0, 0.0), |(g, b), h| (g + h.in_time, b + h.late));
    good / (good + bad)
}

/// Weighted quantile loss of the published forecasts and of seasonal naive, on the same windows, from a day on.
fn wql(report: &LoopReport, workload: &str, from_day: i64) -> (f64, f64, usize) {
    let full = |p: &&DemandPoint| {
        p.workload.as_str() == workload && p.start >= START + Span(from_day * 86_400) && !p.censored && !p.published.is_empty() && !p.seasonal_naive.is_empty()
    };
    let scored: Vec<(&DemandPoint, f64)> = report.demand.iter().filter(full).filter_map(|p| Some((p, p.observed_per_s?))).collect();
    let total: f64 = scored.iter().map(|(_, y)| y).sum();
    let pinball = |level: f64, q: f64, y: f64| if y >= q { level * (y - q) } else { (1.0 - level) * (q - y) };
    let loss = |pick: fn(&DemandPoint) -> &Vec<f64>| {
        let row = |(p, y): &(&DemandPoint, f64)| mean(LEVELS.iter().zip(pick(p)).map(|(level, q)| pinball(*level, *q, *y)));
        2.0 * scored.iter().map(row).sum::<f64>() / total
    };
    (loss(|p| &p.published), loss(|p| &p.seasonal_naive), scored.len())
}

fn print_run(run: &Run, blackouts: &[Blackout]) {
    eprintln!("\n{}:", run.policy.name());
    let by_service: Vec<String> = SERVICES
        .iter()
        .map(|s| {
            format!(
                "{} {:.2} % (second week {:.2} %)",
                s.id,
                attainment(run, blackouts, Some(s.id), 0..7) * 100.0,
                attainment(run, blackouts, Some(s.id), 7..14) * 100.0
            )
        })
        .collect();
    eprintln!(
        "  in time, lost hours left out: {:.2} %, first week by service: {}; with them {:.2} %",
        attainment(run, blackouts, None, 0..14) * 100.0,
        by_service.join(", "),
        run.attainment.unwrap_or(0.0) * 100.0
    );
    let daily: Vec<String> = (0..DAYS).map(|d| format!("{:.1}", attainment(run, blackouts, None, d..d + 1) * 100.0)).collect();
    eprintln!("  day by day: {}", daily.join(" "));
    for spec in &SERVICES {
        let of = || run.service_hours.iter().filter(|h| h.workload.as_str() == spec.id);
        let (came, ready) = (mean(of().map(|h| h.arrived / 3_600.0)), mean(of().map(|h| h.ready)));
        eprintln!("  {}: {came:.1} requests/s came on average, {ready:.1} replicas were ready", spec.id);
    }
    let hours: Vec<String> = run.hours.iter().map(|(k, h)| format!("{} {h:.0}", k.name())).collect();
    eprintln!(
        "  useful {:.1} %; {}; jobs late {}/{}; starts {} stops {} moves {} preemptions {}",
        run.useful_utilisation.unwrap_or(0.0) * 100.0,
        hours.join(", "),
        run.jobs_late,
        run.jobs_total,
        run.starts,
        run.stops,
        run.moves,
        run.preemptions
    );
}

fn print_loop(run: &Run, report: &LoopReport) {
    eprintln!(
        "  cycles {}, plans published {}, refused {}, failed {}, calibration {}",
        report.cycles, report.plans_published, report.plans_refused, report.plans_failed, report.calibration_generation
    );
    for spec in &SERVICES {
        let ((all, naive, windows), (second, second_naive, _)) = (wql(report, spec.id, 0), wql(report, spec.id, 7));
        eprintln!("  {}: WQL {all:.4} beside {naive:.4} of seasonal naive on {windows} windows; second week {second:.4} beside {second_naive:.4}", spec.id);
    }
    eprintln!("  {:?}", report.forecast);
    for l in &report.learned {
        eprintln!(
            "  learned {:?}: {:.2}, said {:.2}, true {:.2}, {} observations, off by {:.1} %",
            l.quantity,
            l.learned,
            l.prior,
            l.truth,
            l.evidence,
            l.error() * 100.0
        );
    }
    eprintln!("  worst: {:?}", report.worst_miss);
    let failed = report.notices.iter().filter(|(_, text)| text.starts_with("failed start")).count();
    let silent = report.notices.iter().filter(|(_, text)| text.contains("stopped answering")).count();
    eprintln!("  notices {} (failed starts {failed}, silent targets {silent})", report.notices.len());
    for job in run.jobs.iter().filter(|j| j.late || j.preempted > 4) {
        eprintln!("  {}: late {}, preempted {}, {:.1} h left", job.job, job.late, job.preempted, job.remaining_s / 3_600.0);
    }
}

fn run(scenario: &Scenario, kind: PolicyKind) -> Run {
    let began = Instant::now();
    let run = sim::run(scenario, kind, &mut Options { score_from: START, scrape_every: 5, progress: &mut |_| {} }).unwrap();
    print_run(&run, &scenario.blackouts);
    eprintln!("  {:.1} s", began.elapsed().as_secs_f64());
    run
}

/// What must hold of every run: rows add up to the calendar, requests that came were in time, late or still wait.
fn adds_up(scenario: &Scenario, run: &Run) {
    let calendar = GPUS * scenario.length.as_hours();
    assert!((run.hours.values().sum::<f64>() - calendar).abs() < 1e-6 * calendar, "{:?}", run.hours);
    assert!((run.calendar_gpu_hours - calendar).abs() < 1e-6);
    assert!(run.hours[&HourKind::Failed].abs() < 1e-9);
    for service in &run.services {
        let waiting = run.waiting_at_end[&service.workload];
        assert!(service.arrived > 1e6 && (service.arrived - service.in_time - service.late - waiting).abs() < 1e-6 * service.arrived, "{service:?} {waiting}");
    }
}

/// What no look could show is neither forecast from nor learned from as an hour without demand.
fn gaps_stay_gaps(scenario: &Scenario, run: &Run, report: &LoopReport) {
    let mut lost = 0;
    for point in &report.demand {
        let dark = dark(&scenario.blackouts, &point.workload, point.start);
        if dark > Span::ZERO {
            let came = run.service_hours.iter().find(|h| h.workload == point.workload && h.start == point.start).unwrap().arrived / 3_600.0;
            // A part of an hour, or what the replicas of another hour said of it, is a guess; nothing is none.
            assert!(point.observed_per_s.is_none_or(|seen| seen > 0.3 * came), "{came} came: {point:?}");
        }
        if dark == Span::HOUR {
            lost += 1;
            assert!(point.censored && point.observed_per_s.is_none(), "{point:?}");
        }
    }
    assert!(lost >= 10, "{lost} hours lost");
}

#[test]
fn two_weeks_of_real_traffic_through_the_loop() {
    let Some(data) = tests::public_data("servegen") else { return };
    let replayed = traffic::replayed(&data);
    print_scale(&replayed);
    let scenario = scenario(&replayed);
    let fcfs = run(&scenario, PolicyKind::NextFreeGpu);
    adds_up(&scenario, &fcfs);
    let run = run(&scenario, PolicyKind::Turnaround);
    let report = run.turnaround.as_ref().unwrap();
    print_loop(&run, report);
    adds_up(&scenario, &run);
    gaps_stay_gaps(&scenario, &run, report);
    assert_eq!(report.plans_refused, 0, "{:?}", report.notices);
    assert!(report.forecast.is_some_and(|f| f.wql.is_finite() && f.windows > 500), "{:?}", report.forecast);
    assert!(report.calibration_generation > 1);
}
