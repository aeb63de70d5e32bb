//! Readings in the words of the house, so that a local GPU and one on a remote agent's page are the same to everybody else.

use super::reading::{NvmlReading, SliceReading, Xid};
use super::{read, reason};
use crate::IngestError;
use fleet::{Bytes, Device, MemberId, MigSlice, Reading, Sample, Scrape, Server, Share, Signal, SkippedSample, TargetId, Timestamp};
use nvml_wrapper::Nvml;

/// The name a scrape of NVML gives for what answered.
pub const ENGINE: &str = "nvml";

/// The machine the GPUs are in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub node: String,
    /// When it started, where known.
    pub boot_time: Option<Timestamp>,
}

/// Takes one look at the GPUs of this machine; `at` is the time it is booked under.
#[must_use]
pub fn scrape(nvml: &Nvml, target: &TargetId, host: &Host, at: Timestamp) -> Scrape {
    scrape_of(target, host, driver_version(nvml), read(nvml, at).as_deref(), at)
}

/// The driver's version.
#[must_use]
pub fn driver_version(nvml: &Nvml) -> Option<String> {
    nvml.sys_driver_version().map_err(|error| tracing::trace!(error = reason(&error), "no driver version")).ok()
}

/// A look as a scrape. It failed when the driver did not answer or knows no GPU; a single GPU that is lost is listed without a sample, and
/// named with its reason among what was skipped.
#[must_use]
pub fn scrape_of(target: &TargetId, host: &Host, driver: Option<String>, readings: Result<&[NvmlReading], &IngestError>, at: Timestamp) -> Scrape {
    let readings = match readings {
        Ok([]) => return Scrape::failed(target.clone(), at, "the driver knows no GPU"),
        Ok(readings) => readings,
        Err(error) => return Scrape::failed(target.clone(), at, error.to_string()),
    };
    let mut samples: Vec<Sample> = readings.iter().flat_map(|reading| reading.samples(&host.node)).collect();
    #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch lie far below 2^52")]
    samples.extend(host.boot_time.map(|boot| Sample::of_target(Signal::BootTime, Reading::Scalar(boot.0 as f64))));
    let lost = readings.iter().filter_map(|reading| Some((reading.index, reading.lost.as_ref()?)));
    Scrape {
        server: Some(Server { engine: ENGINE.to_owned(), version: driver, models: Vec::new() }),
        devices: readings.iter().flat_map(|reading| reading.devices(&host.node)).collect(),
        skipped: lost.map(|(index, why)| SkippedSample { metric: format!("GPU {index}"), reason: format!("lost: {why}") }).collect(),
        ..Scrape::read(target.clone(), at, samples)
    }
}

/// When a Linux machine started, from the text of its `/proc/stat`.
#[must_use]
pub fn boot_time(stat: &str) -> Option<Timestamp> {
    let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    (0 < seconds).then_some(Timestamp(seconds))
}

impl NvmlReading {
    /// The GPU and, where it is split, its slices.
    #[must_use]
    pub fn devices(&self, node: &str) -> Vec<Device> {
        let gpu = self.member(node).map(|member| Device {
            member,
            uuid: self.uuid.clone(),
            node: Some(node.to_owned()),
            index: Some(self.index),
            product: self.name.clone(),
            mig: None,
            holder: None,
        });
        let slices = self.slices.iter().flatten().filter_map(|slice| {
            let mig = MigSlice { profile: slice.profile.clone().unwrap_or_default(), instance: slice.instance() };
            Some(Device { member: self.slice_member(node, slice)?, mig: Some(mig), ..gpu.clone()? })
        });
        gpu.clone().into_iter().chain(slices).collect()
    }

    /// What is known of it, a sample a value. Memory and processes of a GPU with slices are told by the slices, so that nothing counts
    /// twice.
    #[must_use]
    pub fn samples(&self, node: &str) -> Vec<Sample> {
        let Some(member) = self.member(node) else { return Vec::new() };
        let slices = self.slices.as_deref().unwrap_or_default();
        let whole = slices.is_empty();
        let own = [
            (Signal::GpuUtilisation, self.utilisation.map(Share::get)),
            (Signal::GpuMemoryUsed, self.memory_used.filter(|_| whole).map(bytes)),
            (Signal::GpuMemoryFree, self.memory_free.filter(|_| whole).map(bytes)),
            (Signal::GpuMemoryTotal, self.memory_total.filter(|_| whole).map(bytes)),
            (Signal::GpuProcesses, self.processes().filter(|_| whole).map(f64::from)),
            (Signal::GpuPower, self.power_w),
            (Signal::GpuEnergy, self.energy_j),
            (Signal::GpuTemperature, self.temperature_c),
            (Signal::GpuXid, self.xid.map(xid)),
            (Signal::GpuEccUncorrected, self.ecc_uncorrected.map(count)),
            (Signal::GpuRowRemapFailed, self.row_remap_failed.map(flag)),
            (Signal::GpuThrottled, self.throttled.as_ref().map(|reasons| flag(!reasons.is_empty()))),
        ];
        let mut samples = of(&member, own);
        for slice in slices {
            let Some(member) = self.slice_member(node, slice) else { continue };
            let own = [
                (Signal::GpuMemoryUsed, slice.memory_used.map(bytes)),
                (Signal::GpuMemoryFree, slice.memory_free.map(bytes)),
                (Signal::GpuMemoryTotal, slice.memory_total.map(bytes)),
                (Signal::GpuProcesses, slice.processes().map(f64::from)),
            ];
            samples.extend(of(&member, own));
        }
        samples
    }

    /// Memory held by each process, by the GPU or slice it runs on; processes of which the driver does not say it are left out.
    #[must_use]
    pub fn process_memory(&self, node: &str) -> Vec<(MemberId, u32, Bytes)> {
        let slices = self.slices.as_deref().unwrap_or_default();
        let on_slices = slices.iter().map(|slice| (self.slice_member(node, slice), slice.running.as_deref()));
        let on_gpu = slices.is_empty().then(|| (self.member(node), self.running.as_deref()));
        let all = on_gpu.into_iter().chain(on_slices).filter_map(|(member, running)| Some((member?, running?)));
        all.flat_map(|(member, running)| running.iter().filter_map(move |process| Some((member.clone(), process.pid, process.memory?)))).collect()
    }

    /// Its identity among the members of a target: the UUID, else its place.
    fn member(&self, node: &str) -> Option<MemberId> {
        let by_uuid = self.uuid.as_ref().and_then(|uuid| MemberId::new(uuid.as_str()).ok());
        by_uuid.or_else(|| MemberId::new(format!("{node}/{}", self.index)).ok())
    }

    fn slice_member(&self, node: &str, slice: &SliceReading) -> Option<MemberId> {
        MemberId::new(format!("{}/{}", self.member(node)?, slice.instance())).ok()
    }
}

fn of<const N: usize>(member: &MemberId, values: [(Signal, Option<f64>); N]) -> Vec<Sample> {
    let known = values.into_iter().filter_map(|(signal, value)| Some((signal, value?)));
    known.map(|(signal, value)| Sample { signal, member: Some(member.clone()), value: Reading::Scalar(value) }).collect()
}

#[expect(clippy::cast_precision_loss, reason = "bytes of GPU memory lie far below 2^52")]
fn bytes(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

#[expect(clippy::cast_precision_loss, reason = "a GPU with 2^52 errors has other problems")]
fn count(count: u64) -> f64 {
    count as f64
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

/// The last code; 0 when none was seen, as DCGM has it.
fn xid(xid: Xid) -> f64 {
    match xid {
        Xid::NoneSeen => 0.0,
        Xid::Last { code, .. } => count(code),
    }
}
