//! The simulator as a whole.

use crate::catalogue::minutes_f64;
use crate::fixture::{START, run_small, small_scenario};
use crate::small::{service, setup, small_fleet, variant};
use crate::{Blackout, DemandPoint, FaultKind, PolicyKind, Run, Scenario, ScenarioError, Traffic, TrueCapacity, TrueColdStart, Truth};
use fleet::{HourKind, Span, VariantId, WorkloadId, canonical_bytes};
use std::collections::BTreeMap;

fn summary(run: &Run) -> String {
    let hours: Vec<String> = run.hours.iter().map(|(k, h)| format!("{} {h:.1}", k.name())).collect();
    let loop_part = run.turnaround.as_ref().map_or(String::new(), |t| {
        format!(
            "; cycles {} published {} refused {} failed {} generation {} {:?}",
            t.cycles, t.plans_published, t.plans_refused, t.plans_failed, t.calibration_generation, t.forecast
        )
    });
    format!(
        "{}: on time {:.2} %, late jobs {}/{}, useful {:.1} %, {}; starts {} stops {} moves {} preemptions {}{loop_part}",
        run.policy.name(),
        run.attainment.unwrap_or(0.0) * 100.0,
        run.jobs_late,
        run.jobs_total,
        run.useful_utilisation.unwrap_or(0.0) * 100.0,
        hours.join(", "),
        run.starts,
        run.stops,
        run.moves,
        run.preemptions
    )
}

/// What must hold of every run, whoever decides.
fn holds(scenario: &Scenario, run: &Run) {
    eprintln!("{}", summary(run));
    // Rows add up to GPUs x calendar.
    let calendar = minutes_f64(scenario.setup.fleet.gpus.len()) * scenario.length.as_hours();
    assert!((run.hours.values().sum::<f64>() - calendar).abs() < 1e-6, "{:?}", run.hours);
    assert!((run.calendar_gpu_hours - calendar).abs() < 1e-9);
    assert!((run.bill.unwrap() - calendar * crate::small::PRICE).abs() < 1e-6 * calendar);
    // Requests that came were in time, late or still wait.
    for service in &run.services {
        let waiting = run.waiting_at_end[&service.workload];
        assert!((service.arrived - service.in_time - service.late - waiting).abs() < 1e-6 * service.arrived, "{service:?} {waiting}");
        assert!(service.arrived > 10_000.0);
    }
    // A GPU out of order is booked as failed as long as it is.
    let broken = scenario.faults.iter().find(|f| f.kind == FaultKind::Lost).unwrap().at;
    let mended = scenario.faults.iter().find(|f| f.kind == FaultKind::Returned).unwrap().at;
    assert!((run.hours[&HourKind::Failed] - mended.since(broken).as_hours()).abs() < 1e-9);
    // The work of jobs that ended was booked once, and only once, as useful.
    let done: f64 = run.jobs.iter().filter(|j| j.done_at.is_some()).map(|j| gang_hours(scenario, j.job.as_str())).sum();
    let booked = run.hours[&HourKind::UsefulLater];
    let unfinished: f64 = run.jobs.iter().filter(|j| j.done_at.is_none()).map(|j| gang_hours(scenario, j.job.as_str())).sum();
    assert!(booked > done - 0.01 && booked < done + unfinished + 0.01, "{booked} of {done}");
    // One letter a GPU and hour.
    assert!(run.map.rows.iter().all(|r| r.chars().count() == scenario.minutes() / 60));
}

fn gang_hours(scenario: &Scenario, job: &str) -> f64 {
    let job = scenario.setup.workloads.iter().find(|w| w.id.as_str() == job).and_then(|w| w.job()).unwrap();
    job.work.as_hours() * f64::from(job.gang)
}

#[test]
fn a_static_pool_adds_up() {
    let scenario = small_scenario(3);
    let run = run_small(&scenario, PolicyKind::StaticPeak);
    holds(&scenario, &run);
    assert!(run.hours[&HourKind::Held].abs() < 1e-12);
    assert_eq!(run.preemptions, 0);
}

#[test]
fn first_come_first_served_adds_up() {
    let scenario = small_scenario(3);
    let run = run_small(&scenario, PolicyKind::NextFreeGpu);
    holds(&scenario, &run);
    assert!(run.starts > 2 && run.stops > 2, "it reacts: {} starts", run.starts);
    assert_eq!(run.preemptions, 0);
}

#[test]
fn the_loop_adds_up_and_the_same_seed_gives_the_same_bytes() {
    let scenario = small_scenario(3);
    let first = run_small(&scenario, PolicyKind::Turnaround);
    holds(&scenario, &first);
    let report = first.turnaround.as_ref().unwrap();
    assert_eq!((report.plans_refused, report.plans_failed), (0, 0), "{:?}", report.notices);
    assert!(report.plans_published >= 72 && report.calibration_generation > 1);
    let mut other = small_scenario(1);
    other.faults.clear();
    assert_eq!(canonical_bytes(&run_small(&other, PolicyKind::Turnaround)), canonical_bytes(&run_small(&other, PolicyKind::Turnaround)));
    let this_seed = canonical_bytes(&run_small(&other, PolicyKind::StaticPeak));
    other.seed += 1;
    assert_ne!(this_seed, canonical_bytes(&run_small(&other, PolicyKind::StaticPeak)));
}

/// Three hours in which nobody can look at `chat`: its users are served as before, and the loop sees a gap, never an hour without demand.
#[test]
fn a_lost_record_is_a_gap_and_not_an_hour_without_demand() {
    let mut scenario = small_scenario(2);
    scenario.faults.clear();
    let chat = WorkloadId::new("chat").unwrap();
    let lost = Blackout { workload: chat.clone(), from: START + Span::hours(34), until: START + Span::hours(37) };
    scenario.blackouts.push(lost.clone());
    let run = run_small(&scenario, PolicyKind::Turnaround);
    eprintln!("{}", summary(&run));
    let report = run.turnaround.as_ref().unwrap();
    assert_eq!((report.plans_refused, report.plans_failed), (0, 0), "{:?}", report.notices);
    let dark = |p: &&DemandPoint| lost.covers(p.start);
    let (of_chat, of_search): (Vec<_>, Vec<_>) = report.demand.iter().filter(dark).partition(|p| p.workload == chat);
    assert!(of_chat.len() == 3 && of_chat.iter().all(|p| p.observed_per_s.is_none() && p.censored), "{of_chat:?}");
    assert!(of_search.iter().all(|p| p.observed_per_s.is_some_and(|rate| rate > 1.0)), "{of_search:?}");
    let served = run.service_hours.iter().filter(|h| h.workload == chat && lost.covers(h.start));
    assert!(served.inspect(|h| eprintln!("{h:?}")).all(|h| h.ready >= 2.0 && h.in_time > 0.9 * h.arrived));
    // What nobody could look at is not stopped for that.
    let running =
        |at: fleet::Timestamp| run.replicas.iter().filter(move |r| r.started < at && r.stopped.is_none_or(|s| s > at) && r.workload.as_ref() == Some(&chat));
    assert!(running(lost.from).all(|r| r.stopped.is_none_or(|at| at > lost.until)));
}

#[test]
fn every_policy_meets_the_same_traffic() {
    let scenario = small_scenario(1);
    let came = |policy| run_small(&scenario, policy).services.iter().map(|s| s.arrived).collect::<Vec<_>>();
    assert_eq!(came(PolicyKind::StaticPeak), came(PolicyKind::NextFreeGpu));
}

#[test]
fn a_scenario_that_contradicts_itself_is_refused() {
    let mut scenario = small_scenario(1);
    scenario.traffic.pop();
    assert!(matches!(scenario.validate(), Err(ScenarioError::Grid(_))));
    let mut scenario = small_scenario(1);
    scenario.traffic[0].per_minute[7] = f64::NAN;
    assert!(matches!(scenario.validate(), Err(ScenarioError::Number { .. })));
    let blackout = |workload: &str, hours| Blackout { workload: WorkloadId::new(workload).unwrap(), from: START, until: START + Span::hours(hours) };
    for (bad, known) in [(blackout("nobody", 1), false), (blackout("chat", 0), true)] {
        let mut scenario = small_scenario(1);
        scenario.blackouts.push(bad);
        match scenario.validate() {
            Err(ScenarioError::Unknown { name, .. }) => assert!(!known && name == "nobody"),
            Err(ScenarioError::Grid(_)) => assert!(known),
            other => panic!("{other:?}"),
        }
    }
    let mut scenario = small_scenario(1);
    scenario.truth.capacity.clear();
    assert!(matches!(scenario.validate(), Err(ScenarioError::Unknown { .. })));
}

/// Field case 21: no replica is wanted at rest, one request comes, loading takes 720 s (420 s are
/// expected) and the idle time is 120 s. The replica must become ready
/// and must not be taken back before.
#[test]
fn a_loading_replica_is_not_taken_back_before_it_is_ready() {
    let variant_id = "rare-bf16";
    let mut rare = service("rare", variant_id, (0, 2), Some(0.9)).unwrap();
    if let fleet::WorkloadKind::Service(s) = &mut rare.kind {
        s.stabilisation = Span(120);
        s.penalty_per_request = Some(50.0);
    }
    let mut setup = setup(small_fleet(1).unwrap(), vec![variant(variant_id, 1, 5.0, Span(420)).unwrap()], vec![rare], START);
    setup.policy.interval = Span::minutes(5);
    setup.policy.validity = Span::minutes(15);
    // One request a minute from the third minute on, then silence.
    let per_minute: Vec<f64> = (0..90).map(|m| if (3..12).contains(&m) { 0.1 } else { 0.0 }).collect();
    let workload = WorkloadId::new("rare").unwrap();
    let variant = VariantId::new(variant_id).unwrap();
    let truth = TrueCapacity { prior: 5.0, factor: 1.0, drift_per_day: 0.0 };
    let scenario = Scenario {
        setup,
        traffic: vec![Traffic { workload: workload.clone(), per_minute, input_tokens: 600.0, output_tokens: 200.0, hit_rate: 0.0 }],
        truth: Truth {
            capacity: BTreeMap::from([(workload, BTreeMap::from([(variant.clone(), truth)]))]),
            cold_start: BTreeMap::from([(variant, TrueColdStart { median_s: 720.0, spread: 0.0 })]),
            noise: 0.0,
            patience: Span::hours(1),
        },
        faults: Vec::new(),
        blackouts: Vec::new(),
        seed: 3,
        start: START,
        length: Span::minutes(90),
    };
    let run = crate::run(&scenario, PolicyKind::Turnaround, &mut crate::Options { score_from: START, scrape_every: 1, progress: &mut |_| {} }).unwrap();
    let report = run.turnaround.as_ref().unwrap();
    eprintln!("{:?}\n{:?}", run.replicas, report.notices);
    assert!(!run.replicas.is_empty(), "the waiting request is demand");
    for life in &run.replicas {
        assert!(life.stopped.is_none_or(|at| at >= life.ready), "{life:?}");
    }
    assert_eq!(run.replicas.len(), 1, "nothing was taken back and started again");
    let served = &run.services[0];
    assert!(served.arrived > 0.0 && run.waiting_at_end.values().all(|w| *w < 1e-9), "{served:?}");
}
