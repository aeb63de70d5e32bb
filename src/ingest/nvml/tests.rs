//! Every value, and every way a driver has of not giving it, against a driver made for it.

use super::*;
use fleet::{Bytes, MemberId, MigSlice, Reading, Scrape, ScrapeStatus, Share, Signal, TargetId};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// Compiles the fake driver with `faults` defined into `folder`.
fn fake(folder: &Path, faults: &[&str]) -> PathBuf {
    let library = folder.join(format!("libnvidia-ml-{}.so", faults.join("-")));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/nvml_fake.c");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    cc.args(faults.iter().map(|fault| format!("-D{fault}")));
    let made = cc.output().expect("a C compiler is needed by the build anyway");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

/// What is done with a driver that has these faults.
fn with<T>(faults: &[&str], what: impl FnOnce(&Nvml) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    what(&open(Some(&fake(folder.path(), faults))).unwrap())
}

fn look(faults: &[&str]) -> Vec<NvmlReading> {
    with(faults, |nvml| read(nvml, Timestamp(7)).unwrap())
}

fn host() -> Host {
    Host { node: "n1".into(), boot_time: Some(Timestamp(1_700_000_000)) }
}

fn target() -> TargetId {
    TargetId::new("nvml/n1").unwrap()
}

fn scraped(faults: &[&str]) -> Scrape {
    with(faults, |nvml| scrape(nvml, &target(), &host(), Timestamp(7)))
}

fn value(scrape: &Scrape, member: &str, signal: Signal) -> Option<f64> {
    scrape.members(signal).find_map(|(of, value)| match value {
        Reading::Scalar(value) if of.is_some_and(|of| of.as_str() == member) => Some(*value),
        _ => None,
    })
}

#[test]
fn every_value_of_a_healthy_gpu_is_read() {
    let readings = look(&[]);
    assert_eq!(readings.len(), 2);
    let first = &readings[0];
    assert_eq!((first.at, first.index, first.uuid.as_deref(), first.name.as_deref()), (Timestamp(7), 0, Some("GPU-fake-0"), Some("Fake H100 80GB")));
    let gib = |gib| Some(Bytes::from_gib(gib));
    assert_eq!((first.memory_total, first.memory_used, first.memory_free), (gib(80), gib(60), gib(20)));
    assert_eq!((first.utilisation.map(Share::get), first.power_w, first.mig), (Some(0.75), Some(350.5), Some(false)));
    assert_eq!((first.energy_j, first.temperature_c), (Some(5_000_000_000.5), Some(64.0)));
    assert_eq!((first.ecc_uncorrected, first.row_remap_failed), (Some(0), Some(false)));
    // The power cap and idleness hold the clocks down too; they are no fault.
    assert_eq!((&first.throttled, &readings[1].throttled), (&Some(BTreeSet::new()), &Some(BTreeSet::new())));
    let running = [GpuProcess { pid: 41, memory: None }, GpuProcess { pid: 42, memory: gib(5) }];
    assert_eq!((first.running.as_deref(), first.processes(), &first.slices), (Some(&running[..]), Some(2), &None));
    // The second is idle: that is a zero, and not unknown.
    assert_eq!((readings[1].utilisation.map(Share::get), readings[1].processes(), &readings[1].lost), (Some(0.0), Some(0), &None));
    assert_eq!(first.xid, None, "a single look has watched nothing");
}

/// A value that is refused, or that an old library does not have at all, is unknown, not idle; the others are read.
#[test]
fn what_is_not_supported_is_unknown_and_never_idle() {
    for fault in ["NOT_SUPPORTED", "OLD_LIBRARY"] {
        let readings = with(&[fault], |nvml| Watch::new(nvml).read(Timestamp(7)).unwrap());
        for reading in readings {
            let found = NvmlReading { uuid: None, name: None, memory_total: None, memory_used: None, memory_free: None, mig: None, ..reading.clone() };
            assert_eq!(found, NvmlReading::unknown(Timestamp(7), reading.index), "{fault}");
            assert_eq!((reading.memory_total, &reading.lost), (Some(Bytes::from_gib(80)), &None), "{fault}");
        }
    }
}

/// Field case 37: the utilisation a driver shows for a GPU that is split says nothing, and a slice has none. Unknown is never idle.
#[test]
fn a_split_gpu_has_no_utilisation_and_its_slices_have_their_own_memory() {
    let readings = look(&["MIG"]);
    assert_eq!((readings[0].mig, readings[0].utilisation), (Some(true), None));
    assert_eq!((readings[1].mig, &readings[1].slices), (Some(false), &None));
    let slices = readings[0].slices.as_deref().unwrap();
    assert_eq!(slices.len(), 2, "places without a slice are none");
    let shape = |s: &SliceReading| (s.index, s.uuid.clone().unwrap(), s.profile.clone().unwrap(), s.gpu_instance, s.compute_instance, s.instance());
    assert_eq!(shape(&slices[0]), (0, "MIG-fake-a".into(), "1g.10gb".into(), Some(7), Some(0), "7".into()));
    assert_eq!(shape(&slices[1]), (3, "MIG-fake-b".into(), "3g.40gb".into(), Some(2), Some(1), "2/1".into()));
    assert_eq!((slices[0].memory_used, slices[0].memory_free), (Some(Bytes::from_gib(6)), Some(Bytes::from_gib(4))));
    assert_eq!((slices[0].processes(), slices[1].processes()), (Some(1), Some(0)));

    let scrape = scraped(&["MIG"]);
    let members: Vec<_> = scrape.devices.iter().map(|d| (d.member.as_str(), d.uuid.as_deref(), d.mig.clone().map(|m| (m.profile, m.instance)))).collect();
    let mig = |profile: &str, instance: &str| Some((profile.to_owned(), instance.to_owned()));
    assert_eq!(
        members,
        [
            ("GPU-fake-0", Some("GPU-fake-0"), None),
            ("GPU-fake-0/7", Some("GPU-fake-0"), mig("1g.10gb", "7")),
            ("GPU-fake-0/2/1", Some("GPU-fake-0"), mig("3g.40gb", "2/1")),
            ("GPU-fake-1", Some("GPU-fake-1"), None),
        ]
    );
    // Memory and processes are told once: by the slices. The rest is the whole GPU's.
    let of = |member, signal| value(&scrape, member, signal);
    assert_eq!((of("GPU-fake-0", Signal::GpuMemoryUsed), of("GPU-fake-0", Signal::GpuProcesses)), (None, None));
    assert_eq!((of("GPU-fake-0/7", Signal::GpuProcesses), of("GPU-fake-0/2/1", Signal::GpuProcesses)), (Some(1.0), Some(0.0)));
    assert_eq!((of("GPU-fake-0", Signal::GpuPower), of("GPU-fake-0/7", Signal::GpuPower)), (Some(350.5), None));
    assert_eq!(scrape.members(Signal::GpuUtilisation).count(), 1);
    let held: Vec<_> = readings[0].process_memory("n1");
    assert_eq!(held, [(MemberId::new("GPU-fake-0/7").unwrap(), 42, Bytes::from_gib(5))]);
}

/// A driver that splits without naming: shapes come from the attributes, numbers from the place in the list. One that does not list the
/// slices leaves the whole GPU's memory and processes, which are then known.
#[test]
fn slices_are_told_apart_as_well_as_the_driver_lets_us() {
    let readings = look(&["MIG_WITHOUT_PROFILE"]);
    let slices = readings[0].slices.as_deref().unwrap();
    let shapes: Vec<_> = slices.iter().map(|s| (s.profile.as_deref().unwrap(), s.instance())).collect();
    assert_eq!(shapes, [("1g.10gb", "#0".to_owned()), ("2c.3g.40gb", "#3".to_owned())]);
    let scrape = scraped(&["MIG_UNLISTED"]);
    assert_eq!((scrape.devices.len(), value(&scrape, "GPU-fake-0", Signal::GpuProcesses)), (2, Some(2.0)));
    assert_eq!(value(&scrape, "GPU-fake-0", Signal::GpuUtilisation), None);
}

#[test]
fn faults_of_the_hardware_are_seen() {
    let readings = look(&["ECC", "ROW_REMAP", "THROTTLED"]);
    assert_eq!((readings[0].ecc_uncorrected, readings[1].ecc_uncorrected), (Some(3), Some(0)));
    assert_eq!((readings[0].row_remap_failed, readings[1].row_remap_failed), (Some(true), Some(false)));
    let reasons = |index: usize| readings[index].throttled.clone().unwrap();
    assert_eq!((reasons(0), reasons(1)), (BTreeSet::from([Throttle::HardwareSlowdown, Throttle::PowerBrake]), BTreeSet::from([Throttle::Thermal])));
    let scrape = scraped(&["ECC", "ROW_REMAP", "THROTTLED"]);
    let of = |signal| (value(&scrape, "GPU-fake-0", signal), value(&scrape, "GPU-fake-1", signal));
    assert_eq!(of(Signal::GpuEccUncorrected), (Some(3.0), Some(0.0)));
    assert_eq!((of(Signal::GpuRowRemapFailed), of(Signal::GpuThrottled)), ((Some(1.0), Some(0.0)), (Some(1.0), Some(1.0))));
}

/// Field case 39: a code is the last one seen and when, told once and kept, and is never taken for the state of now.
#[test]
fn the_last_critical_event_of_each_gpu_is_kept_with_its_time() {
    with(&["XID"], |nvml| {
        let mut watch = Watch::new(nvml);
        let xids = |readings: Vec<NvmlReading>| readings.into_iter().map(|r| r.xid).collect::<Vec<_>>();
        let seen = [Some(Xid::Last { code: 79, at: Timestamp(7) }), Some(Xid::NoneSeen)];
        assert_eq!(xids(watch.read(Timestamp(7)).unwrap()), seen);
        assert_eq!(xids(watch.read(Timestamp(60)).unwrap()), seen, "no new event: its time stays");
        let scrape = watch.scrape(&target(), &host(), Timestamp(90));
        assert_eq!((value(&scrape, "GPU-fake-0", Signal::GpuXid), value(&scrape, "GPU-fake-1", Signal::GpuXid)), (Some(79.0), Some(0.0)));
    });
}

#[test]
fn a_lost_gpu_is_listed_as_lost_and_the_other_is_read() {
    let readings = look(&["GPU_LOST"]);
    assert!(readings[0].lost.as_deref().is_some_and(|why| !why.is_empty()));
    assert_eq!((readings[0].uuid.as_deref(), readings[0].memory_used, readings[0].processes()), (Some("GPU-fake-0"), None, None));
    assert_eq!((&readings[1].lost, readings[1].processes()), (&None, Some(0)));
    let readings = look(&["NO_HANDLE"]);
    assert!(readings[0].lost.is_some() && readings[0].uuid.is_none() && readings[1].lost.is_none());
    let scrape = scraped(&["NO_HANDLE"]);
    assert_eq!(scrape.devices.iter().map(|d| d.member.as_str()).collect::<Vec<_>>(), ["n1/0", "GPU-fake-1"]);
    assert!(!scrape.samples.iter().any(|s| s.member.as_ref().is_some_and(|m| m.as_str() == "n1/0")));
    assert!(scrape.skipped[0].metric == "GPU 0" && scrape.skipped[0].reason.starts_with("lost: "), "{:?}", scrape.skipped);
}

#[test]
fn a_scrape_says_what_answered_and_where() {
    let scrape = scraped(&[]);
    assert_eq!((scrape.status.clone(), scrape.at, scrape.skipped.len()), (ScrapeStatus::Ok, Timestamp(7), 0));
    let server = scrape.server.clone().unwrap();
    assert_eq!((server.engine.as_str(), server.version.as_deref()), (ENGINE, Some("570.1.2")));
    let first = &scrape.devices[0];
    assert_eq!((first.node.as_deref(), first.index, first.product.as_deref(), &first.mig), (Some("n1"), Some(0), Some("Fake H100 80GB"), &None::<MigSlice>));
    assert_eq!(scrape.scalar(Signal::BootTime), Some(1_700_000_000.0));
    assert_eq!(value(&scrape, "GPU-fake-0", Signal::GpuEnergy), Some(5_000_000_000.5));
    let none = scraped(&["NO_GPU"]);
    assert_eq!(none.status, ScrapeStatus::Failed("the driver knows no GPU".into()));
}

#[test]
fn the_time_of_the_last_boot_is_read() {
    assert_eq!(boot_time("cpu  1 2 3\nctxt 9\nbtime 1700000000\nprocesses 7\n"), Some(Timestamp(1_700_000_000)));
    for absent in ["", "btime", "btime x\n", "btime 0\n", "xbtime 12\n", "btime -5\n"] {
        assert_eq!(boot_time(absent), None, "{absent:?}");
    }
}

#[test]
fn a_machine_without_a_driver_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libnvidia-ml.so.1");
    let error = open(Some(&path)).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("libnvidia-ml.so.1") && matches!(error, IngestError::NvmlOpen { .. }), "{error}");
    std::fs::write(&path, "no library").unwrap();
    assert!(matches!(open(Some(&path)), Err(IngestError::NvmlOpen { .. })));
}
