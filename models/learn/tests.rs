use super::*;
use crate::mixture;
use crate::{LINEAR, PUBLISHED, SEASONAL_NAIVE};
use fleet::{OutcomeId, ReplicaId, ServiceOutcome, Span, StartOutcome, VariantId, WorkloadId};
use std::collections::BTreeMap;

fn service() -> ServiceOutcome {
    ServiceOutcome {
        workload: WorkloadId::new("chat").unwrap(),
        forecast: BTreeMap::new(),
        observed_per_s: None,
        peak_per_s: None,
        promised_per_s: None,
        attainment: None,
        ready: [(variant(), 2)].into(),
        saturated_per_replica: BTreeMap::new(),
        sustained_per_replica: BTreeMap::new(),
        prior_per_replica: [(variant(), 9.0)].into(),
        censored: false,
        completeness: 1.0,
    }
}

fn variant() -> VariantId {
    VariantId::new("chat-h100").unwrap()
}

fn outcome(service: ServiceOutcome) -> Outcome {
    let id = OutcomeId::new("o").unwrap();
    Outcome { id, start: Timestamp(0), length: Span::HOUR, plan: None, applied: true, services: vec![service], jobs: Vec::new(), starts: Vec::new() }
}

fn prior() -> Calibration {
    Calibration::prior(Timestamp(0))
}

fn taught(calibration: &Calibration, service: ServiceOutcome) -> Calibration {
    learn(calibration, &outcome(service), Timestamp(3_600))
}

/// Noise in -1..1 that is the same every run.
fn noise(index: u32) -> f64 {
    let mixed = index.wrapping_mul(2_654_435_761) ^ (index << 7);
    f64::from(mixed.wrapping_mul(1_664_525) >> 8) / f64::from(1_u32 << 23) - 1.0
}

fn factor(calibration: &Calibration) -> f64 {
    calibration.capacity_factor(&WorkloadId::new("chat").unwrap(), &variant()).map_or(1.0, |e| e.value)
}

fn row(centre: f64, half_width: f64) -> Vec<f64> {
    [-1.0, -0.8, -0.4, 0.0, 0.4, 0.8, 1.0, 1.2].iter().map(|w| centre + w * half_width).collect()
}

#[test]
fn a_new_version_is_made_and_a_frozen_one_is_repeated() {
    let saturated = ServiceOutcome { saturated_per_replica: [(variant(), 6.75)].into(), ..service() };
    let next = taught(&prior(), saturated.clone());
    assert_eq!((next.generation, next.made_at), (2, Timestamp(3_600)));
    assert!(factor(&next) < 1.0);
    let frozen = Calibration { frozen: true, ..prior() };
    assert_eq!(taught(&frozen, saturated), frozen);
}

#[test]
fn a_capacity_a_quarter_below_the_prior_is_found_within_a_day_and_kept() {
    let mut calibration = prior();
    for window in 0..24 * 14 {
        let reading = 9.0 * 0.75 * (1.0 + 0.05 * noise(window));
        calibration = taught(&calibration, ServiceOutcome { saturated_per_replica: [(variant(), reading)].into(), ..service() });
        if window >= 23 {
            assert!((factor(&calibration) / 0.75 - 1.0).abs() < 0.05, "window {window}: {}", factor(&calibration));
        }
    }
}

#[test]
fn a_step_is_clamped_and_a_lone_wild_reading_is_not_adopted() {
    let saturated = |per_s: f64| ServiceOutcome { saturated_per_replica: [(variant(), per_s)].into(), ..service() };
    let first = taught(&prior(), saturated(4.5));
    assert!((factor(&first) - 0.9).abs() < 1e-9, "no more than a tenth a window");
    let mut calibration = prior();
    for _ in 0..24 {
        calibration = taught(&calibration, saturated(6.75));
    }
    let before = factor(&calibration);
    assert!((factor(&taught(&calibration, saturated(60.0))) - before).abs() < 1e-12);
    // The same reading for a day is no accident.
    for _ in 0..24 {
        calibration = taught(&calibration, saturated(9.0));
    }
    assert!((factor(&calibration) - 1.0).abs() < 0.05, "{}", factor(&calibration));
    for bad in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
        assert!((factor(&taught(&calibration, saturated(bad))) - factor(&calibration)).abs() < 1e-12);
    }
}

#[test]
fn serving_in_time_only_raises_a_capacity_and_only_where_it_ran() {
    let sustained = |per_s: f64| ServiceOutcome { sustained_per_replica: [(variant(), per_s)].into(), ..service() };
    assert!((factor(&taught(&prior(), sustained(3.0))) - 1.0).abs() < 1e-12);
    assert!(factor(&taught(&prior(), sustained(10.0))) > 1.05);
    let absent = Outcome { applied: false, ..outcome(ServiceOutcome { ready: BTreeMap::new(), ..sustained(10.0) }) };
    assert!((factor(&learn(&prior(), &absent, Timestamp(0))) - 1.0).abs() < 1e-12);
}

#[test]
fn capped_or_half_seen_windows_teach_nothing_of_demand() {
    let seen = ServiceOutcome { forecast: [(SEASONAL_NAIVE.to_owned(), row(5.0, 1.0))].into(), observed_per_s: Some(5.0), ..service() };
    let scored = |service: ServiceOutcome| taught(&prior(), service).forecasters.values().map(|s| s.scored).sum::<u64>();
    assert_eq!(scored(seen.clone()), 1);
    assert_eq!(scored(ServiceOutcome { censored: true, ..seen.clone() }), 0);
    assert_eq!(scored(ServiceOutcome { completeness: 0.4, ..seen.clone() }), 0);
    assert_eq!(scored(ServiceOutcome { observed_per_s: None, ..seen.clone() }), 0);
    assert_eq!(scored(ServiceOutcome { observed_per_s: Some(f64::NAN), ..seen }), 0);
}

#[test]
fn weight_moves_to_the_better_expert_and_the_published_one_is_not_weighed() {
    let mut calibration = prior();
    for window in 0..48 {
        let y = 10.0 + noise(window);
        let forecast = [(SEASONAL_NAIVE.to_owned(), row(13.0, 2.0)), (LINEAR.to_owned(), row(10.0, 1.0)), (PUBLISHED.to_owned(), row(11.0, 1.5))];
        calibration = taught(&calibration, ServiceOutcome { forecast: forecast.into(), observed_per_s: Some(y), ..service() });
    }
    let state = &calibration.forecasters[&WorkloadId::new("chat").unwrap()];
    assert!(state.weights[LINEAR] > 0.85, "{:?}", state.weights);
    assert!(!state.weights.contains_key(PUBLISHED));
    assert!((state.weights.values().sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(state.scored, 48);
}

/// A forecaster three times too sure of itself: after a fortnight of corrections its 0.95 quantile covers what it says.
#[test]
fn offsets_mend_the_coverage_of_an_overconfident_forecaster() {
    let mut calibration = prior();
    let workload = WorkloadId::new("chat").unwrap();
    let (mut covered, mut without, mut n) = (0, 0, 0);
    for window in 0..24 * 21 {
        let y = 10.0 + 3.0 * noise(window);
        let raw = row(10.0, 0.9);
        let opinions = [(LINEAR, vec![raw.clone().try_into().unwrap()])].into();
        let state = calibration.forecasters.get(&workload);
        let offsets = state.map_or(&[][..], |s| s.offsets.as_slice());
        let published = mixture::publish(&opinions, &[(LINEAR.to_owned(), 1.0)].into(), offsets)[0];
        if window >= 24 * 14 {
            covered += u32::from(y <= published[6]);
            without += u32::from(y <= raw[6]);
            n += 1;
        }
        let forecast = [(LINEAR.to_owned(), raw), (PUBLISHED.to_owned(), published.to_vec())].into();
        calibration = taught(&calibration, ServiceOutcome { forecast, observed_per_s: Some(y), ..service() });
    }
    let share = |count: u32| f64::from(count) / f64::from(n);
    assert!(share(without) < 0.75, "{}", share(without));
    assert!(share(covered) > 0.9, "{}", share(covered));
    let coverage = &calibration.forecasters[&workload].coverage;
    assert!(coverage[6] > 0.88 && coverage[0] < 0.2, "{coverage:?}");
}

#[test]
fn a_cold_start_twice_the_prior_is_known_after_three_starts() {
    let start = |expected_s: f64, observed_s: f64| StartOutcome { replica: ReplicaId::new("r").unwrap(), variant: variant(), expected_s, observed_s };
    let mut calibration = prior();
    for _ in 0..3 {
        let expected_s = calibration.cold_start.get(&variant()).map_or(240.0, |e| e.value);
        let outcome = Outcome { starts: vec![start(expected_s, 480.0)], ..outcome(service()) };
        calibration = learn(&calibration, &outcome, Timestamp(0));
    }
    let learned = calibration.cold_start[&variant()];
    assert!((learned.value / 480.0 - 1.0).abs() < 0.15 && learned.std_error > 0.0 && learned.evidence == 3, "{learned:?}");
    let wild = Outcome { starts: vec![start(240.0, 1e9), start(240.0, f64::NAN)], ..outcome(service()) };
    assert!(learn(&prior(), &wild, Timestamp(0)).cold_start[&variant()].value <= 2_400.0);
}

#[test]
fn the_peak_inside_an_hour_is_learned_as_a_ratio() {
    let mut calibration = prior();
    for window in 0..200 {
        let peak_per_s = Some(10.0 * (1.5 + 0.1 * noise(window)));
        calibration = taught(&calibration, ServiceOutcome { observed_per_s: Some(10.0), peak_per_s, ..service() });
    }
    let ratio = calibration.forecasters[&WorkloadId::new("chat").unwrap()].peak_ratio.unwrap();
    assert!((ratio.value - 1.5).abs() < 0.05 && ratio.std_error < 0.1, "{ratio:?}");
    let few = ServiceOutcome { observed_per_s: Some(0.001), peak_per_s: Some(1.0), ..service() };
    assert_eq!(taught(&prior(), few).forecasters.values().filter_map(|s| s.peak_ratio).count(), 0);
}
