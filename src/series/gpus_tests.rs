//! Tests of what pages say of GPUs.

use super::*;
use fleet::Sample;

const MIB: f64 = 1_048_576.0;

fn member(name: &str) -> MemberId {
    MemberId::new(name).unwrap()
}

/// A device of node n1 with index 0, named by its UUID.
fn device(uuid: &str) -> Device {
    Device { member: member(uuid), uuid: Some(uuid.into()), node: Some("n1".into()), index: None, product: None, mig: None, holder: None }
}

#[expect(clippy::unnecessary_wraps, reason = "as a device has it")]
fn pod(namespace: &str, pod: &str) -> Option<Holder> {
    Some(Holder { namespace: Some(namespace.into()), pod: pod.into(), container: None })
}

fn page(at: i64, devices: Vec<Device>, values: &[(&str, Signal, f64)]) -> Scrape {
    let samples = values.iter().map(|(of, signal, value)| Sample {
        signal: *signal,
        member: Some(*of).filter(|of| !of.is_empty()).map(member),
        value: Reading::Scalar(*value),
    });
    let scrape = Scrape::read(TargetId::new("dcgm-n1").unwrap(), Timestamp(at), samples.collect());
    Scrape { devices, ..scrape }
}

fn idle(of: &str) -> [(&str, Signal, f64); 2] {
    [(of, Signal::GpuEngineActive, 0.0), (of, Signal::GpuMemoryUsed, 4.0 * MIB)]
}

fn state(gpus: &Gpus, at: i64, uuid: &str) -> DeviceState {
    let mut of = gpus.states(Timestamp(at)).into_iter().filter(|state| state.uuid.as_deref() == Some(uuid));
    let state = of.next().unwrap();
    assert!(of.next().is_none(), "two of {uuid}");
    state
}

/// Field case 17: who holds a GPU is what the page says now; a GPU that changes hands stays one GPU.
#[test]
fn a_gpu_that_changes_hands_stays_one_gpu() {
    let mut gpus = Gpus::default();
    let held = |uuid, holder| Device { holder, ..device(uuid) };
    let all = || [idle("GPU-a"), idle("GPU-b"), idle("GPU-c")].concat();
    gpus.observe(&page(0, vec![held("GPU-a", pod("prod", "serve-a-0")), held("GPU-b", pod("prod", "serve-a-1")), held("GPU-c", None)], &all()));
    assert_eq!(state(&gpus, 0, "GPU-a").holder, pod("prod", "serve-a-0"));
    assert_eq!(state(&gpus, 0, "GPU-c").holder, None);
    // A pod holds it although nothing runs: not free.
    assert!(matches!(state(&gpus, 0, "GPU-b").status(), GpuStatus::Occupied(why) if why.contains("prod/serve-a-1")));
    assert_eq!(state(&gpus, 0, "GPU-c").status(), GpuStatus::Free);
    gpus.observe(&page(15, vec![held("GPU-a", pod("prod", "serve-b-0")), held("GPU-b", None), held("GPU-c", None)], &all()));
    let (a, b) = (state(&gpus, 15, "GPU-a"), state(&gpus, 15, "GPU-b"));
    assert_eq!((a.holder, a.since, b.status(), b.since), (pod("prod", "serve-b-0"), Timestamp(15), GpuStatus::Free, Timestamp(15)));
    assert_eq!(gpus.states(Timestamp(15)).len(), 3);
}

/// Field case 37: the utilisation gauge says nothing of a slice; without the profiling field a slice is unknown, and unknown is not free.
#[test]
fn slices_are_judged_by_their_engines_only() {
    let slice = |name: &str| Device { member: member(name), mig: Some(MigSlice { profile: "1g.12gb".into(), instance: name.into() }), ..device("GPU-a") };
    let mut gpus = Gpus::default();
    let values = [
        ("7", Signal::GpuUtilisation, 0.0),
        ("7", Signal::GpuEngineActive, 0.92),
        ("7", Signal::GpuMemoryUsed, 0.0),
        ("8", Signal::GpuUtilisation, 0.0),
        ("8", Signal::GpuMemoryUsed, 0.0),
    ];
    gpus.observe(&page(0, vec![slice("7"), slice("8")], &values));
    let states = gpus.states(Timestamp(0));
    assert_eq!(states.iter().map(|s| (s.busy, s.utilisation)).collect::<Vec<_>>(), [(Some(true), Some(0.92)), (None, None)]);
    assert!(matches!(states[1].status(), GpuStatus::Occupied(why) if why.contains("not known to be free")));
    // Nor does it say anything of the whole GPU that is split.
    gpus.observe(&page(15, vec![device("GPU-a"), slice("7")], &[("GPU-a", Signal::GpuUtilisation, 0.0), ("GPU-a", Signal::GpuMemoryUsed, 0.0)]));
    let whole = gpus.states(Timestamp(15)).into_iter().find(|s| s.mig.is_none()).unwrap();
    assert_eq!((whole.busy, whole.utilisation), (None, None));
}

/// Free needs proof of both; an old proof is none.
#[test]
fn unknown_is_never_free() {
    let mut gpus = Gpus::default();
    for (values, busy) in [
        (vec![], None),
        (vec![("GPU-a", Signal::GpuEngineActive, 0.0)], None),
        (vec![("GPU-a", Signal::GpuUtilisation, 0.0), ("GPU-a", Signal::GpuMemoryUsed, 700.0 * MIB)], Some(false)),
        (vec![("GPU-a", Signal::GpuMemoryUsed, 40_000.0 * MIB)], Some(true)),
        (vec![("GPU-a", Signal::GpuMemoryUsed, 0.0), ("GPU-a", Signal::GpuProcesses, 1.0)], Some(true)),
        (vec![("GPU-a", Signal::GpuProcesses, 0.0), ("GPU-a", Signal::GpuUtilisation, 0.4)], Some(true)),
        // A sentinel is no reading.
        (vec![("GPU-a", Signal::GpuUtilisation, 9.2e18), ("GPU-a", Signal::GpuMemoryUsed, 0.0)], None),
    ] {
        let mut gpus = Gpus::default();
        gpus.observe(&page(0, vec![device("GPU-a")], &values));
        assert_eq!(state(&gpus, 0, "GPU-a").busy, busy, "{values:?}");
    }
    gpus.observe(&page(0, vec![device("GPU-a")], &idle("GPU-a")));
    assert_eq!(state(&gpus, 300, "GPU-a").status(), GpuStatus::Free);
    assert_eq!(state(&gpus, 301, "GPU-a").busy, None);
    gpus.observe(&Scrape::failed(TargetId::new("dcgm-n1").unwrap(), Timestamp(400), "refused"));
    assert!(matches!(state(&gpus, 400, "GPU-a").status(), GpuStatus::Occupied(_)));
}

/// Field case 39: a faulty GPU is out of use until its node has booted without errors; an application's error takes nothing away.
#[test]
fn a_faulty_gpu_is_out_until_there_is_evidence() {
    let mut gpus = Gpus::default();
    let look = |at, ecc: f64, boot_s: f64| {
        let mut values = [idle("GPU-bbbb"), idle("GPU-cccc")].concat();
        values.extend([
            ("GPU-bbbb", Signal::GpuEccUncorrected, ecc),
            ("GPU-bbbb", Signal::GpuXid, 79.0),
            ("GPU-cccc", Signal::GpuXid, 31.0),
            ("", Signal::BootTime, boot_s),
        ]);
        page(at, vec![device("GPU-bbbb"), device("GPU-cccc")], &values)
    };
    gpus.observe(&look(100, 1.0, 50.0));
    let failed = state(&gpus, 100, "GPU-bbbb");
    assert_eq!((failed.fault.as_ref().unwrap().since, failed.since), (Timestamp(100), Timestamp(100)));
    let reading = failed.reading().unwrap();
    assert!(reading.gpu.as_str() == "GPU-bbbb" && matches!(reading.status, GpuStatus::Failed(why) if why.contains("XID 79") && why.contains("since 1970")));
    let warned = state(&gpus, 100, "GPU-cccc");
    assert!(warned.status() == GpuStatus::Free && warned.warning.is_some());
    gpus.observe(&look(900, 1.0, 50.0));
    assert_eq!(state(&gpus, 900, "GPU-bbbb").since, Timestamp(100));
    // The state is kept over a restart of ours.
    let mut gpus: Gpus = serde_json::from_str(&serde_json::to_string(&gpus).unwrap()).unwrap();
    gpus.observe(&look(1_900, 0.0, 1_700.0));
    let back = state(&gpus, 1_900, "GPU-bbbb");
    assert_eq!((back.status(), back.since, back.fault), (GpuStatus::Free, Timestamp(1_900), None));
}

#[test]
fn the_operator_can_release_and_a_node_can_say_that_it_booted() {
    let look = |at| page(at, vec![Device { index: Some(3), ..device("GPU-a") }], &[idle("GPU-a").as_slice(), &[("GPU-a", Signal::GpuXid, 95.0)]].concat());
    let mut gpus = Gpus::default();
    gpus.observe(&look(0));
    assert!(!gpus.release(&GpuId::new("n1/4").unwrap(), Timestamp(5)));
    assert!(gpus.release(&GpuId::new("n1/3").unwrap(), Timestamp(5)));
    gpus.observe(&look(10));
    assert_eq!(state(&gpus, 10, "GPU-a").status(), GpuStatus::Free);
    let mut gpus = Gpus::default();
    gpus.booted("n1", 1_000.0, Timestamp(0));
    gpus.observe(&look(0));
    gpus.booted("n1", 1_000.0, Timestamp(1));
    assert!(state(&gpus, 1, "GPU-a").fault.is_some());
    gpus.booted("n1", 5_000.0, Timestamp(20));
    assert_eq!(state(&gpus, 20, "GPU-a").fault, None);
}

/// A GPU known by its place becomes the one with that UUID, and sources that each know a part are joined.
#[test]
fn two_sources_make_one_gpu() {
    let mut gpus = Gpus::default();
    let agent = |at| {
        let known = Device { member: member("0"), uuid: None, index: Some(0), ..device("x") };
        let scrape = page(at, vec![known], &[("0", Signal::GpuUtilisation, 0.0), ("0", Signal::GpuProcesses, 0.0)]);
        Scrape { target: TargetId::new("agent-n1").unwrap(), ..scrape }
    };
    gpus.observe(&agent(0));
    let dcgm = Device { index: Some(0), holder: pod("prod", "p"), ..device("GPU-a") };
    gpus.observe(&page(1, vec![dcgm.clone()], &[("GPU-a", Signal::GpuMemoryUsed, 0.0)]));
    // The agent names no pod, which says nothing; under time slicing the first pod named keeps it.
    gpus.observe(&agent(2));
    gpus.observe(&page(3, vec![dcgm.clone(), Device { holder: pod("prod", "q"), ..dcgm }], &[("GPU-a", Signal::GpuMemoryUsed, 0.0)]));
    let states = gpus.states(Timestamp(3));
    assert_eq!(states.len(), 1);
    assert_eq!((states[0].busy, &states[0].holder, states[0].uuid.as_deref()), (Some(false), &pod("prod", "p"), Some("GPU-a")));
}

#[test]
fn gpus_unseen_for_a_day_are_forgotten_unless_they_failed() {
    let mut gpus = Gpus::default();
    gpus.observe(&page(0, vec![device("GPU-a"), device("GPU-b")], &[("GPU-b", Signal::GpuXid, 79.0)]));
    gpus.observe(&page(2 * 86_400, vec![device("GPU-c")], &[]));
    let left: Vec<Option<String>> = gpus.states(Timestamp(2 * 86_400)).into_iter().map(|state| state.uuid).collect();
    assert_eq!(left, [Some("GPU-b".into()), Some("GPU-c".into())]);
}
