//! What sources other than a replica's page do to plans: a router that wakes a service, a clock that was set, a GPU that fails and comes back.

use super::*;
use fleet::{Availability, Device, Holder, MemberId};

fn scalar(signal: Signal, value: f64) -> Sample {
    Sample::of_target(signal, Reading::Scalar(value))
}

/// Field case 23: with nothing running, a router's counter is what wakes the service, in the interval in which it moved, and it stays awake for the
/// stabilisation time.
#[test]
fn a_router_wakes_a_service_at_zero() {
    let mut setup = setup();
    if let WorkloadKind::Service(service) = &mut setup.workloads[0].kind {
        service.min_replicas = 0;
        service.stabilisation = Span::minutes(15);
    }
    let mut bench = Bench { state: Some(State::new(setup, BEGIN)), targets: Vec::new(), replicas: 0, now: BEGIN };
    let router = Target { id: id("router"), workload: id("w"), variant: None, replica: None, gpus: Vec::new(), pod: None };
    bench.send(Event::Targets(vec![router.clone()]));
    let mut planned = Vec::new();
    for minute in 0..60_i64 {
        for _ in 0..4 {
            bench.now = bench.now + EVERY;
            // Three requests found no backend in the twelfth minute; the queue gauge never shows one.
            let refused = if minute < 12 { 0.0 } else { 3.0 };
            let samples = vec![scalar(Signal::RequestsReceived, refused), scalar(Signal::RequestsRefused, refused), scalar(Signal::RequestsWaiting, 0.0)];
            bench.send(Event::Scraped(Scrape::read(router.id.clone(), bench.now, samples)));
        }
        if (minute + 1) % 5 == 0 {
            bench.look_at_gpus();
            bench.send(Event::Tick(bench.now));
            planned.push((minute + 1, bench.planned()));
        }
    }
    let at = |minute| planned.iter().find(|(m, _)| *m == minute).map(|(_, n)| *n);
    assert_eq!((at(10), at(15), at(25)), (Some(0), Some(1), Some(1)), "{planned:?}");
    assert_eq!(at(60), Some(0), "nobody asked for three quarters of an hour: {planned:?}");
    let window = bench.state.as_ref().unwrap().history(&id("w")).iter().find(|w| w.refused_per_s.is_some_and(|r| r > 0.0)).cloned();
    assert!(window.is_some_and(|w| (w.refused_per_s.unwrap_or(0.0) - 0.01).abs() < 1e-9), "three in five minutes");
}

/// Field case 27: the wall clock goes back ten hours and later returns; demand is known all the while, never negative, and planning goes on.
#[test]
fn a_clock_that_was_set_costs_neither_data_nor_plans() {
    let mut bench = Bench::new(2);
    bench.run(30, |at, _| Some(counted(4.0, at, at)));
    let back = Span::hours(-10);
    let before = bench.state.as_ref().unwrap().plan().unwrap().generation;
    bench.now = bench.now + back;
    let now = bench.now;
    bench.send(Event::ClockSet(now));
    // What the servers counted goes on, whatever the clock says.
    bench.run(30, |at, _| Some(counted(4.0, at - back.0, at - back.0)));
    let state = bench.state.as_ref().unwrap();
    assert!(state.plan().unwrap().generation >= before + 5, "planning went on");
    let known: Vec<f64> = state.history(&id("w")).iter().filter(|w| w.start >= now).filter_map(|w| w.arrivals_per_s).collect();
    assert!(known.len() >= 4, "{known:?}");
    assert!(known.iter().all(|rate| (rate - 8.0).abs() < 1.0), "{known:?}");
    assert!(state.history(&id("w")).iter().all(|w| w.start + w.length <= bench.now), "nothing lies ahead");
}

/// A page of a GPU exporter on `n1` whose GPU `index` shows these.
fn gpu_page(at: Timestamp, faulty: &[(u32, Signal, f64)], boot_s: f64, held: usize) -> Scrape {
    let member = |index: u32| MemberId::new(format!("n1/{index}")).unwrap();
    let mut samples = vec![scalar(Signal::BootTime, boot_s)];
    let mut devices = Vec::new();
    for index in 0..8_u32 {
        let busy = (index as usize) < held;
        let one = |signal, value| Sample { signal, member: Some(member(index)), value: Reading::Scalar(value) };
        samples.extend([one(Signal::GpuEngineActive, if busy { 0.6 } else { 0.0 }), one(Signal::GpuMemoryUsed, if busy { 6e10 } else { 4e6 })]);
        let signs = [Signal::GpuXid, Signal::GpuEccUncorrected];
        samples.extend(signs.map(|s| one(s, faulty.iter().find(|(i, signal, _)| *i == index && *signal == s).map_or(0.0, |(_, _, value)| *value))));
        let holder = busy.then(|| Holder { namespace: Some("prod".into()), pod: format!("serve-{index}"), container: None });
        devices.push(Device { member: member(index), uuid: None, node: Some("n1".into()), index: Some(index), product: None, mig: None, holder });
    }
    Scrape { devices, ..Scrape::read(id("dcgm/n1"), at, samples) }
}

/// Field case 39: a GPU with an uncorrected error and a hardware XID is excluded with its reason, and its replica is no supply; an application's XID is
/// not enough; the fault ends with a new boot, not because a gauge stays as it is.
#[test]
fn a_faulty_gpu_is_excluded_until_there_is_evidence_that_it_is_well() {
    let targets: Vec<Target> = (0..2)
        .map(|i| Target {
            id: id(&format!("t{i}")),
            workload: id("w"),
            variant: Some(id("v")),
            replica: None,
            gpus: Vec::new(),
            pod: Some(format!("serve-{i}")),
        })
        .collect();
    let mut bench = Bench { state: Some(State::new(setup(), BEGIN)), targets: targets.clone(), replicas: 0, now: BEGIN };
    bench.send(Event::Targets(targets.clone()));
    let hour = |bench: &mut Bench, faulty: &[(u32, Signal, f64)], boot_s: f64| {
        for _ in 0..20 {
            bench.now = bench.now + EVERY;
            let now = bench.now;
            bench.send(Event::GpuPage(gpu_page(now, faulty, boot_s, 2)));
            for target in &targets {
                bench.send(Event::Scraped(healthy(&target.id, now, counted(4.0, now.since(BEGIN).0, i64::MAX))));
            }
        }
        let now = bench.now;
        // The order is looked at instead of the plan: what may be planned with is decided there.
        let (state, effects) = step(bench.state.take().unwrap(), Event::Tick(now));
        let order = effects.into_iter().find_map(|e| if let Effect::Work(order) = e { Some(order) } else { None }).expect("an order");
        let (state, _) = step(state, Event::Worked(Box::new(work(&order))));
        bench.state = Some(state);
        order
    };
    let healthy = hour(&mut bench, &[], 1e9);
    assert_eq!(healthy.residents.iter().map(|r| r.gpus.clone()).collect::<Vec<_>>(), [vec![id::<GpuId>("n1/0")], vec![id("n1/1")]], "located by their pods");
    assert!(healthy.unlocated.is_empty());
    let signs = [(1, Signal::GpuEccUncorrected, 1.0), (1, Signal::GpuXid, 79.0), (0, Signal::GpuXid, 13.0)];
    let faulty = hour(&mut bench, &signs, 1e9);
    let slot = |order: &crate::WorkOrder, gpu: &str| order.slots.iter().find(|s| s.id.as_str() == gpu).unwrap().availability.clone();
    assert!(
        matches!(slot(&faulty, "n1/1"), Availability::Failed(why) if why.contains("79") || why.contains("ECC") || why.contains("uncorrect")),
        "{:?}",
        slot(&faulty, "n1/1")
    );
    assert_eq!(slot(&faulty, "n1/0"), Availability::Usable, "an application's error is a warning");
    assert!(faulty.residents.iter().all(|r| !r.gpus.contains(&id("n1/1"))));
    // The gauges still show both codes, and the node has booted since.
    let still = [(1, Signal::GpuXid, 79.0), (0, Signal::GpuXid, 13.0)];
    let same_boot = hour(&mut bench, &still, 1e9);
    assert!(matches!(slot(&same_boot, "n1/1"), Availability::Failed(_)));
    let rebooted = hour(&mut bench, &still, 1.1e9);
    assert_eq!(slot(&rebooted, "n1/1"), Availability::Usable);
}
