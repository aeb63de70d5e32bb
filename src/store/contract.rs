//! What every back end of the history must do. [`suite`] asks for fresh, empty stores and runs every rule against them; a back end's own
//! test calls it. What is a matter of one back end alone (when exactly retention removes, what compacting gives back) stands in its own tests.

use crate::contract_history as history;
use crate::{Batch, Store, StoreError, wait};
use fleet::{
    Calibration, Committed, Currency, Forecast, ForecastId, LEVELS, Objective, Observation, Outcome, OutcomeId, Plan, PlanId, PlanReport, PolicySpec, Problem,
    Signal, SolveStatus, Span, TargetId, Timestamp, WorkloadId, WorkloadWindow,
};

/// Every rule, each on a store of its own.
pub(crate) fn suite(fresh: &dyn Fn() -> Store) {
    for rule in [
        everything_reads_back_as_written,
        spans_are_half_open_and_filters_hold,
        a_batch_is_whole_or_absent,
        the_same_key_again,
        generations_never_go_back,
        numbers_that_cannot_be_kept_are_refused,
        an_answer_outlives_its_handle,
        history::members_of_a_target_are_told_apart,
        history::rollups_are_what_their_observations_sum_up_to,
        history::late_and_corrected_observations_are_summed_up_again,
        history::a_back_fill_twice_is_a_back_fill_once,
        history::what_is_admitted_comes_back_identical,
        history::what_cannot_come_back_is_refused_with_its_reason,
    ] {
        let store = fresh();
        rule(&store);
        wait(store.check()).unwrap();
    }
}

/// Beginning of all samples.
pub(crate) const T0: Timestamp = Timestamp(1_700_000_000);

pub(crate) fn observation(source: &str, signal: Signal, part: Option<&str>, at: i64, value: f64) -> Observation {
    let observed = T0 + Span(at);
    Observation { source: TargetId::new(source).unwrap(), member: None, signal, part: part.map(Into::into), value, observed, received: observed + Span(1) }
}

pub(crate) fn window(workload: &str, at: i64, arrivals: Option<f64>) -> WorkloadWindow {
    WorkloadWindow {
        arrivals_per_s: arrivals,
        finished_per_s: Some(0.1 + 0.2),
        completeness: 1.0,
        ..WorkloadWindow::unknown(WorkloadId::new(workload).unwrap(), T0 + Span(at), Span::minutes(5))
    }
}

fn forecast(id: &str, workload: &str, at: i64) -> Forecast {
    Forecast {
        id: ForecastId::new(id).unwrap(),
        workload: WorkloadId::new(workload).unwrap(),
        origin: T0 + Span(at),
        start: T0 + Span(at),
        step: Span::HOUR,
        levels: LEVELS.to_vec(),
        values: vec![vec![1.0 / 3.0; LEVELS.len()]; 3],
        forecaster: "seasonal_naive".into(),
        calibration: 1,
    }
}

fn problem(at: i64) -> Problem {
    Problem {
        as_of: T0 + Span(at),
        currency: Currency::new("EUR").unwrap(),
        steps: Vec::new(),
        pools: Vec::new(),
        gpus: Vec::new(),
        variants: Vec::new(),
        services: Vec::new(),
        jobs: Vec::new(),
        residents: Vec::new(),
        policy: PolicySpec {
            advisory: true,
            stops_max: None,
            mip_gap: 0.01,
            nodes_max: 1_000,
            watchdog: Span(60),
            validity: Span::HOUR,
            delay_per_hour: 0.001,
        },
        parent: None,
        calibration: Calibration::prior(T0).id(),
        calibration_generation: 1,
        forecasts: Vec::new(),
        notes: Vec::new(),
        unlocated: std::collections::BTreeSet::new(),
    }
}

fn plan(generation: u64, at: i64) -> Plan {
    Plan {
        schema: Plan::SCHEMA.into(),
        id: PlanId::new("unnamed").unwrap(),
        parent: None,
        generation,
        advisory: true,
        as_of: T0 + Span(at),
        valid_from: T0 + Span(at),
        valid_until: T0 + Span(at + 3_600),
        problem: problem(at).id(),
        currency: Currency::new("EUR").unwrap(),
        committed: Committed {
            steps: Vec::new(),
            replicas: Vec::new(),
            jobs: Vec::new(),
            routes: Vec::new(),
            shortfalls: Vec::new(),
            holds: Vec::new(),
            preemptions: Vec::new(),
        },
        outlook: Vec::new(),
        heirs: Vec::new(),
        unlocated: std::collections::BTreeSet::new(),
        report: PlanReport {
            status: SolveStatus::Feasible,
            reproducible: true,
            objective: Objective { rent: 0.1 + 0.2, ..Objective::default() },
            bound: 5e-324,
            gap: 0.07,
            shadow_prices: Vec::new(),
            relaxations: Vec::new(),
            reasons: Vec::new(),
            size: [1, 2, 3, 4],
            calibration: 1,
            priors: Vec::new(),
        },
    }
    .sealed()
}

fn outcome(id: &str, at: i64) -> Outcome {
    Outcome {
        id: OutcomeId::new(id).unwrap(),
        start: T0 + Span(at),
        length: Span::HOUR,
        plan: None,
        applied: false,
        services: Vec::new(),
        jobs: Vec::new(),
        starts: Vec::new(),
    }
}

fn calibration(generation: u64, at: i64) -> Calibration {
    Calibration { generation, ..Calibration::prior(T0 + Span(at)) }
}

/// One of each, for instants from `at`.
pub(crate) fn one_of_each(at: i64, generation: u64) -> Batch {
    Batch {
        observations: vec![
            observation("chat-1", Signal::RequestsRunning, None, at, 3.0),
            observation("chat-1", Signal::QueueTime, Some("le=0.5"), at, 7.0),
            observation("chat-1", Signal::QueueTime, Some("sum"), at, 0.1 + 0.2),
        ],
        windows: vec![window("chat", at, Some(2.5))],
        forecasts: vec![forecast(&format!("f{at}"), "chat", at)],
        problems: vec![problem(at)],
        plans: vec![plan(generation, at)],
        outcomes: vec![outcome(&format!("o{at}"), at)],
        calibrations: vec![calibration(generation, at)],
        snapshots: vec![("cycle".into(), vec![0, 255, u8::try_from(at % 251).unwrap()])],
    }
}

/// From the first sample to ten hours after it.
fn whole() -> (Timestamp, Timestamp) {
    (T0, T0 + Span::hours(10))
}

fn everything_reads_back_as_written(store: &Store) {
    let (from, to) = whole();
    let batch = one_of_each(0, 1);
    let ack = wait(store.append(batch.clone())).unwrap();
    assert_eq!(ack.rows, 10);
    let mut observed = wait(store.observations(&TargetId::new("chat-1").unwrap(), None, from, to)).unwrap();
    observed.sort_by_key(|o| (o.signal, o.part.clone()));
    assert_eq!(observed, batch.observations);
    assert_eq!(wait(store.windows(None, from, to)).unwrap(), batch.windows);
    assert_eq!(wait(store.forecasts(None, from, to)).unwrap(), batch.forecasts);
    assert_eq!(wait(store.outcomes(from, to)).unwrap(), batch.outcomes);
    assert_eq!(wait(store.plans(from, to)).unwrap(), batch.plans);
    assert_eq!(wait(store.latest_plan()).unwrap().as_ref(), batch.plans.first());
    assert_eq!(wait(store.plan(&batch.plans[0].id)).unwrap().map(|p| p.content_id()).as_ref(), Some(&batch.plans[0].id));
    assert_eq!(wait(store.problem(&batch.problems[0].id())).unwrap().as_ref(), batch.problems.first());
    assert_eq!(wait(store.calibrations()).unwrap(), batch.calibrations);
    assert_eq!(wait(store.latest_calibration()).unwrap().as_ref(), batch.calibrations.first());
    assert_eq!(wait(store.snapshot("cycle")).unwrap().as_ref(), Some(&batch.snapshots[0].1));
    assert_eq!(wait(store.snapshot("other")).unwrap(), None);
    assert_eq!(wait(store.plan(&PlanId::new("none").unwrap())).unwrap(), None);
}

fn spans_are_half_open_and_filters_hold(store: &Store) {
    let observations = (0..4).map(|at| observation("a", Signal::RequestsWaiting, None, at, 1.0)).collect();
    let windows = vec![window("b", 300, Some(2.0)), window("a", 0, None), window("a", 300, Some(0.0))];
    let forecasts = vec![forecast("f2", "b", 0), forecast("f1", "a", 300)];
    wait(store.append(Batch { observations, windows, forecasts, ..Batch::default() })).unwrap();
    let source = TargetId::new("a").unwrap();
    let count = |signal, from, to| wait(store.observations(&source, signal, T0 + Span(from), T0 + Span(to))).unwrap().len();
    assert_eq!((count(None, 1, 3), count(Some(Signal::RequestsWaiting), 0, 4), count(Some(Signal::RequestsRunning), 0, 4)), (2, 4, 0));
    let (from, to) = whole();
    let a = WorkloadId::new("a").unwrap();
    let found = wait(store.windows(Some(&a), from, to)).unwrap();
    assert_eq!(found, [window("a", 0, None), window("a", 300, Some(0.0))], "a gap stays a gap, a zero a zero");
    assert_eq!(wait(store.windows(None, T0, T0 + Span(300))).unwrap(), [window("a", 0, None)]);
    let order: Vec<_> = wait(store.forecasts(None, from, to)).unwrap().into_iter().map(|f| f.id.to_string()).collect();
    assert_eq!(order, ["f2", "f1"]);
    assert_eq!(wait(store.forecasts(Some(&a), from, to)).unwrap(), [forecast("f1", "a", 300)]);
}

fn a_batch_is_whole_or_absent(store: &Store) {
    wait(store.append(one_of_each(0, 5))).unwrap();
    let mut batch = one_of_each(3_600, 6);
    batch.calibrations = vec![calibration(4, 3_600)];
    assert!(wait(store.append(batch)).is_err());
    let (from, to) = whole();
    assert_eq!(wait(store.windows(None, from, to)).unwrap().len(), 1);
    assert_eq!(wait(store.latest_plan()).unwrap().map(|p| p.generation), Some(5));
    assert_eq!(wait(store.snapshot("cycle")).unwrap(), Some(one_of_each(0, 5).snapshots[0].1.clone()));
}

fn the_same_key_again(store: &Store) {
    let (from, to) = whole();
    let batch = one_of_each(0, 1);
    wait(store.append(batch.clone())).unwrap();
    wait(store.append(batch.clone())).unwrap();
    assert_eq!(wait(store.plans(from, to)).unwrap().len(), 1);
    let corrected = Batch {
        observations: vec![observation("chat-1", Signal::RequestsRunning, None, 0, 9.0)],
        windows: vec![window("chat", 0, Some(4.0))],
        snapshots: vec![("cycle".into(), b"later".to_vec())],
        ..Batch::default()
    };
    wait(store.append(corrected.clone())).unwrap();
    let found = wait(store.observations(&TargetId::new("chat-1").unwrap(), Some(Signal::RequestsRunning), from, to)).unwrap();
    assert_eq!(found, corrected.observations);
    assert_eq!(wait(store.windows(None, from, to)).unwrap(), corrected.windows);
    assert_eq!(wait(store.snapshot("cycle")).unwrap().as_deref(), Some(b"later".as_slice()));
    // An old plan again is a duplicate, not a step back.
    wait(store.append(Batch { plans: vec![plan(2, 60)], ..Batch::default() })).unwrap();
    assert_eq!(wait(store.append(Batch { plans: batch.plans, ..Batch::default() })).unwrap().rows, 0);
}

fn generations_never_go_back(store: &Store) {
    wait(store.append(one_of_each(0, 3))).unwrap();
    for offered in [2, 3] {
        let error = wait(store.append(Batch { plans: vec![plan(offered, 60)], ..Batch::default() })).unwrap_err();
        assert!(matches!(error, StoreError::Generation { kind: "plan", latest: 3, .. }), "{error}");
        let error = wait(store.append(Batch { calibrations: vec![calibration(offered, 60)], ..Batch::default() })).unwrap_err();
        assert!(matches!(error, StoreError::Generation { kind: "calibration", latest: 3, .. }), "{error}");
    }
    let steps = Batch { plans: vec![plan(4, 60), plan(9, 120)], calibrations: vec![calibration(4, 60)], ..Batch::default() };
    wait(store.append(steps)).unwrap();
    assert_eq!(wait(store.latest_plan()).unwrap(), Some(plan(9, 120)));
    let mut foreign = plan(10, 180);
    foreign.advisory = false;
    assert!(matches!(wait(store.append(Batch { plans: vec![foreign], ..Batch::default() })), Err(StoreError::Fingerprint { .. })));
}

fn numbers_that_cannot_be_kept_are_refused(store: &Store) {
    let nan = Batch { observations: vec![observation("a", Signal::GpuPower, None, 0, f64::NAN)], ..Batch::default() };
    let gap = Batch { windows: vec![window("a", 0, Some(f64::INFINITY))], ..Batch::default() };
    let huge = Batch { plans: vec![plan(u64::MAX, 0)], ..Batch::default() };
    for batch in [nan, gap, huge] {
        assert!(matches!(wait(store.append(batch)), Err(StoreError::Number { .. })));
    }
}

fn an_answer_outlives_its_handle(store: &Store) {
    let answer = store.clone().append(one_of_each(0, 1));
    assert_eq!(wait(answer).unwrap().rows, 10);
    let pending: Vec<_> = (1..400).map(|at| store.append(Batch { windows: vec![window("chat", at, None)], ..Batch::default() })).collect();
    for answer in pending {
        wait(answer).unwrap();
    }
}
