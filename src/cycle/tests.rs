//! The loop from readings to plan: scripted targets on a small fleet, work done in place.

use crate::{Answer, Cause, Effect, Event, LoopPolicy, Setup, State, step, work};
use fleet::{
    Bytes, Class, Currency, Fleet, Gpu, GpuId, GpuKind, GpuKindId, GpuReading, GpuStatus, Histogram, LatencyTarget, ModelId, Node, NodeId, Ownership, Pool,
    PoolId, Reading, ReplicaId, Sample, Scrape, Service, Signal, Span, SpeedProfile, Target, TargetId, Timestamp, Variant, VariantId, Workload, WorkloadKind,
};
use std::collections::{BTreeMap, BTreeSet};

const BEGIN: Timestamp = Timestamp(1_768_806_000);
const EVERY: Span = Span(15);

fn id<T: for<'a> TryFrom<&'a str>>(name: &str) -> T {
    T::try_from(name).unwrap_or_else(|_| panic!("{name} is a usable id"))
}

/// Eight GPUs, one service of 10 requests/s a replica, one to eight replicas.
fn setup() -> Setup {
    let gpus = (0..8).map(|i| Gpu { id: id(&format!("n1/{i}")), node: id("n1"), index: i, island: id("n1"), pool: id("p") });
    let service = Service {
        variants: vec![id("v")],
        target: LatencyTarget { ttft_s: 2.0, tpot_s: None, share: 0.99 },
        min_replicas: 1,
        max_replicas: 8,
        penalty_per_request: Some(0.01),
        // The median: how wide a band two hours of history deserve is a matter of its own.
        level: Some(0.5),
        zone: "UTC".into(),
        stabilisation: Span::minutes(5),
        tokens_prior: (500.0, 100.0),
    };
    Setup {
        fleet: Fleet {
            currency: Currency::new("EUR").unwrap(),
            kinds: BTreeMap::from([(id::<GpuKindId>("k"), GpuKind { id: id("k"), memory: Bytes::from_gib(80) })]),
            pools: vec![Pool { id: id::<PoolId>("p"), kind: id("k"), ownership: Ownership::Owned, price_per_gpu_hour: Some(2.0), labels: BTreeMap::new() }],
            nodes: vec![Node { id: id("n1"), pool: id("p") }],
            gpus: gpus.collect(),
        },
        variants: vec![Variant {
            id: id("v"),
            model: id::<ModelId>("m"),
            kind: id("k"),
            gpus: 1,
            memory_per_gpu: Bytes::from_gib(60),
            cold_start: Span::minutes(2),
            speed: SpeedProfile::RequestsPerS(10.0),
        }],
        workloads: vec![Workload { id: id("w"), class: Class::RealTime, tenant: None, priority: 0, kind: WorkloadKind::Service(service) }],
        policy: LoopPolicy { shrink_before_season: true, stop_cost_hours: 0.0, started_at: BEGIN, ..LoopPolicy::default() },
        unobserved_free: BTreeSet::<NodeId>::new(),
    }
}

/// A loop with `replicas` running, each behind a target of its own; the other GPUs are free.
struct Bench {
    state: Option<State>,
    targets: Vec<Target>,
    replicas: usize,
    now: Timestamp,
}

impl Bench {
    fn new(replicas: usize) -> Self {
        let targets = (0..replicas).map(|i| Target {
            id: id(&format!("t{i}")),
            workload: id("w"),
            variant: Some(id("v")),
            replica: Some(id::<ReplicaId>(&format!("r{i}"))),
            gpus: vec![id(&format!("n1/{i}"))],
            pod: None,
        });
        let mut bench = Self { state: Some(State::new(setup(), BEGIN)), targets: targets.collect(), replicas, now: BEGIN };
        bench.send(Event::Targets(bench.targets.clone()));
        bench.look_at_gpus();
        bench
    }

    fn look_at_gpus(&mut self) {
        let replica = |i: usize| GpuStatus::Replica { replica: id(&format!("r{i}")), variant: id::<VariantId>("v"), ready_at: BEGIN };
        let readings = (0..8).map(|i| {
            let status = if i < self.replicas { replica(i) } else { GpuStatus::Free };
            GpuReading { gpu: id::<GpuId>(&format!("n1/{i}")), at: self.now, status }
        });
        let readings = readings.collect();
        self.send(Event::Gpus(readings));
    }

    /// Hands an event to the loop and does the work it asks for.
    fn send(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            let (state, effects) = step(self.state.take().unwrap(), event);
            self.state = Some(state);
            for effect in effects {
                if let Effect::Work(order) = effect {
                    let output = work(&order);
                    assert!(matches!(output.answer, Answer::Planned { .. }), "{:?}", output.answer);
                    events.push(Event::Worked(Box::new(output)));
                }
            }
        }
    }

    /// Scrapes every target every 15 s for `minutes`, with a tick every five minutes. `page(total seconds, target)` gives requests counted so far, or
    /// nothing when the look fails.
    fn run(&mut self, minutes: i64, page: impl Fn(i64, usize) -> Option<f64>) {
        for _ in 0..minutes * 60 / EVERY.0 {
            self.now = self.now + EVERY;
            // May lie before the beginning, when a test sets the clock.
            let at = self.now.0 - BEGIN.0;
            for (i, target) in self.targets.clone().into_iter().enumerate() {
                let scrape = page(at, i).map_or_else(|| Scrape::failed(target.id.clone(), self.now, "refused"), |n| healthy(&target.id, self.now, n));
                self.send(Event::Scraped(scrape));
            }
            if at % 300 == 0 {
                self.look_at_gpus();
                self.send(Event::Tick(self.now));
            }
        }
    }

    /// Replicas the plan in force holds at the end of its committed part.
    fn planned(&self) -> usize {
        let plan = self.state.as_ref().unwrap().plan().expect("a plan");
        let end = plan.committed.steps.last().unwrap().end();
        plan.replicas_at(end - Span(1)).count()
    }
}

/// A page of an idle-looking server that has counted `n` requests.
fn healthy(target: &TargetId, at: Timestamp, n: f64) -> Scrape {
    let scalar = |signal, value| Sample::of_target(signal, Reading::Scalar(value));
    let ttft = Histogram { sum: 0.1 * n, count: n, buckets: vec![(0.5, n)] };
    let samples = vec![
        scalar(Signal::RequestsRunning, 0.0),
        scalar(Signal::RequestsWaiting, 0.0),
        scalar(Signal::RequestsFinished, n),
        scalar(Signal::PromptTokens, 500.0 * n),
        scalar(Signal::GenerationTokens, 100.0 * n),
        Sample::of_target(Signal::TimeToFirstToken, Reading::Histogram(ttft)),
    ];
    Scrape::read(target.clone(), at, samples)
}

/// Requests counted by `at` seconds at a rate that ends at `end` seconds.
#[expect(clippy::cast_precision_loss, reason = "seconds of a test")]
fn counted(rate: f64, at: i64, end: i64) -> f64 {
    (rate * at.min(end) as f64).floor()
}

/// Field case 7: a counter that stands still is a rate of zero, whatever its total says.
#[test]
fn a_counter_that_stands_still_is_no_load() {
    let mut bench = Bench::new(1);
    bench.run(10, |_, _| Some(50.0));
    assert_eq!(bench.planned(), 1);
}

/// Field case 11: a healthy page on which nothing arrives is a true zero; after the stabilisation window one replica is left.
#[test]
fn real_idleness_releases_what_is_not_needed() {
    let mut bench = Bench::new(4);
    let busy = Span::minutes(20).0;
    bench.run(20, |at, _| Some(counted(8.0, at, busy)));
    assert!(bench.planned() >= 4, "32 requests/s need four replicas, planned {}", bench.planned());
    bench.run(100, |at, _| Some(counted(8.0, at, busy)));
    assert_eq!(bench.planned(), 1);
}

/// Field case 9, with the settings of case 11: nothing is known, so nothing is released.
#[test]
fn unknown_is_not_idle() {
    let mut bench = Bench::new(4);
    let busy = Span::minutes(20).0;
    bench.run(20, |at, _| Some(counted(8.0, at, busy)));
    bench.run(100, |_, _| None);
    let state = bench.state.as_ref().unwrap();
    assert_eq!(state.silent_targets(bench.now).count(), 4);
    assert!(state.conditions().any(|c| c.name == "sources_fresh" && !c.ok));
    let plan = state.plan().unwrap();
    assert!(plan.committed.replicas.iter().all(|r| r.verb != fleet::Verb::Stop), "{:?}", plan.committed.replicas);
}

/// A loop whose work is lost keeps its plan, says so, and goes on with what happened meanwhile.
#[test]
fn lost_work_keeps_the_plan_in_force() {
    let mut bench = Bench::new(2);
    bench.run(5, |at, _| Some(counted(5.0, at, at)));
    let before = bench.state.as_ref().unwrap().plan().unwrap().generation;
    let state = bench.state.take().unwrap();
    let (state, effects) = step(state, Event::Tick(bench.now + Span::minutes(5)));
    assert!(effects.iter().any(|e| matches!(e, Effect::Work(_))));
    let (state, effects) = step(state, Event::Trigger(bench.now + Span::minutes(6), Cause::PlanRefused("busy".into())));
    assert!(!effects.iter().any(|e| matches!(e, Effect::Work(_))), "one order at a time");
    let (state, effects) = step(state, Event::WorkFailed(bench.now + Span::minutes(7), "killed".into()));
    assert!(effects.iter().any(|e| matches!(e, Effect::Work(order) if order.cause == Cause::PlanRefused("busy".into()))));
    assert_eq!((state.plan().unwrap().generation, state.tally.killed), (before, 1));
    assert!(state.conditions().any(|c| c.name == "plan_verified" && !c.ok));
}

/// The state is a value: it survives its JSON.
#[test]
fn state_and_orders_survive_their_json() {
    let mut bench = Bench::new(2);
    bench.run(10, |at, _| Some(counted(5.0, at, at)));
    let state = bench.state.unwrap();
    let back: State = serde_json::from_slice(&serde_json::to_vec(&state).unwrap()).unwrap();
    assert_eq!(back, state);
}

#[path = "tests_sources.rs"]
mod sources;
