//! The learning experiment: what is believed is wrong, and the loop finds out (or, frozen, does not).
//!
//! A replica really serves a quarter less than its prior says and takes twice as long to start. Batch work competes for every GPU, so a loop
//! that believes its prior plans too few replicas, too late. The service is planned at level 0.6, close to its median, so that no generous
//! margin hides the error.

use crate::score::{Learned, Quantity};
use crate::small::{SmallError, daily, job, service, setup, small_fleet, variant};
use crate::{Options, PolicyKind, Run, Scenario, Traffic, TrueCapacity, TrueColdStart, Truth, run};
use fleet::{Class, Span, Timestamp, VariantId, WorkloadId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One day of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningDay {
    /// 1 is the first.
    pub day: u32,
    /// Share of requests in time.
    pub attainment: f64,
    /// Capacity believed at its end, requests/s of one replica.
    pub capacity: f64,
    /// Cold start believed at its end, seconds.
    pub cold_start_s: f64,
}

/// What came of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningRun {
    /// Learning was switched off.
    pub frozen: bool,
    /// Capacity believed at first, requests/s of one replica.
    pub capacity_prior: f64,
    /// The truth.
    pub capacity_true: f64,
    /// Cold start believed at first, seconds.
    pub cold_start_prior_s: f64,
    /// The truth.
    pub cold_start_true_s: f64,
    /// Day by day.
    pub days: Vec<LearningDay>,
}

const DAYS: u32 = 3;
const CAPACITY_PRIOR: f64 = 9.0;
const CAPACITY_FACTOR: f64 = 0.75;
const COLD_START_PRIOR: Span = Span::minutes(4);
const COLD_START_FACTOR: f64 = 2.0;
/// 2026-03-02, a Monday.
const START: Timestamp = Timestamp(1_772_409_600);

/// Runs it: three days of one service on sixteen GPUs beside batch work.
///
/// # Panics
/// Never: its scenario is fixed and valid, which a test holds.
#[must_use]
pub fn learning_experiment(frozen: bool) -> LearningRun {
    let scenario = scenario(frozen).unwrap_or_else(|broken| unreachable!("the experiment's names are usable: {broken}"));
    let mut options = Options { score_from: START, scrape_every: 5, progress: &mut |_| {} };
    let run = run(&scenario, PolicyKind::Turnaround, &mut options).unwrap_or_else(|broken| unreachable!("the experiment is consistent: {broken}"));
    let cold_start_prior_s = COLD_START_PRIOR.as_secs_f64();
    LearningRun {
        frozen,
        capacity_prior: CAPACITY_PRIOR,
        capacity_true: CAPACITY_PRIOR * CAPACITY_FACTOR,
        cold_start_prior_s,
        cold_start_true_s: cold_start_prior_s * COLD_START_FACTOR,
        days: (0..DAYS).map(|day| day_of(&run, day)).collect(),
    }
}

fn day_of(run: &Run, day: u32) -> LearningDay {
    let (from, to) = (START + Span(86_400 * i64::from(day)), START + Span(86_400 * i64::from(day + 1)));
    let hours = run.service_hours.iter().filter(|h| from <= h.start && h.start < to);
    let (good, all) = hours.fold((0.0, 0.0), |(g, a), h| (g + h.in_time, a + h.in_time + h.late));
    let learned = run.turnaround.as_ref().map_or(&[] as &[Learned], |t| t.learning.as_slice());
    let believed = |capacity: bool, prior: f64| {
        let of_kind = |l: &&Learned| matches!(l.quantity, Quantity::Capacity(..)) == capacity && l.at <= to;
        learned.iter().rev().find(of_kind).map_or(prior, |l| l.learned)
    };
    LearningDay {
        day: day + 1,
        attainment: if all > 0.0 { good / all } else { 0.0 },
        capacity: believed(true, CAPACITY_PRIOR),
        cold_start_s: believed(false, COLD_START_PRIOR.as_secs_f64()),
    }
}

fn scenario(frozen: bool) -> Result<Scenario, SmallError> {
    let chat = "chat-fp8";
    let mut workloads = vec![service("chat", chat, (1, 16), Some(0.6))?];
    for n in 1..=4 {
        workloads.push(job(&format!("batch-{n:02}"), Class::Batch, 4, Span::hours(24 * 30), START, None)?);
    }
    let mut setup = setup(small_fleet(4)?, vec![variant(chat, 1, CAPACITY_PRIOR, COLD_START_PRIOR)?], workloads, START);
    setup.policy.learning_frozen = frozen;
    // Batch work never ends and a night's plan is made in the evening: half a day ahead is all that matters here.
    setup.policy.horizon = Span::hours(12);
    let workload = WorkloadId::new("chat")?;
    let variant = VariantId::new(chat)?;
    let capacity = TrueCapacity { prior: CAPACITY_PRIOR, factor: CAPACITY_FACTOR, drift_per_day: 0.0 };
    Ok(Scenario {
        setup,
        traffic: vec![Traffic {
            workload: workload.clone(),
            per_minute: daily(DAYS, 12.0, 70.0, 14.0),
            input_tokens: 600.0,
            output_tokens: 200.0,
            hit_rate: 0.3,
        }],
        truth: Truth {
            capacity: BTreeMap::from([(workload, BTreeMap::from([(variant.clone(), capacity)]))]),
            cold_start: BTreeMap::from([(variant, TrueColdStart { median_s: COLD_START_PRIOR.as_secs_f64() * COLD_START_FACTOR, spread: 0.05 })]),
            noise: 0.01,
            patience: Span::minutes(10),
        },
        faults: Vec::new(),
        blackouts: Vec::new(),
        seed: 7,
        start: START,
        length: Span(86_400 * i64::from(DAYS)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(run: &LearningRun) {
        eprintln!("frozen: {}; true capacity {:.2} requests/s, true cold start {:.0} s", run.frozen, run.capacity_true, run.cold_start_true_s);
        for d in &run.days {
            eprintln!("  day {}: on time {:.1} %, capacity {:.2}, cold start {:.0} s", d.day, d.attainment * 100.0, d.capacity, d.cold_start_s);
        }
    }

    /// A capacity a quarter below its prior and a cold start twice its prior are found by the third day and requests are in time again; frozen,
    /// they are not.
    #[test]
    fn what_is_wrong_is_learned_and_service_recovers_but_not_when_frozen() {
        let (learning, frozen) = std::thread::scope(|scope| {
            let other = scope.spawn(|| learning_experiment(true));
            (learning_experiment(false), other.join().unwrap())
        });
        print(&learning);
        print(&frozen);
        let day3 = &learning.days[2];
        assert!((day3.capacity / learning.capacity_true - 1.0).abs() < 0.05, "{day3:?}");
        assert!((day3.cold_start_s / learning.cold_start_true_s - 1.0).abs() < 0.15, "{day3:?}");
        let frozen3 = &frozen.days[2];
        assert!(day3.attainment > 0.99, "{day3:?}");
        assert!(frozen3.attainment < 0.9, "{frozen3:?}");
        assert!((frozen3.capacity - CAPACITY_PRIOR).abs() < 1e-9);
    }
}
