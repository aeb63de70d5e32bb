//! The GPUs of this machine, through NVIDIA's management library.
//!
//! The library is loaded when asked for; a machine without it is an expected state and gives an error that says so. Each value is read on
//! its own, since drivers refuse some of them (utilisation of a MIG device, for one): what cannot be read is `None`, which is unknown and
//! never idle.

use crate::IngestError;
use fleet::{Bytes, Share, Timestamp};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// GPUs looked at on one machine.
pub const GPUS_MAX: u32 = 64;

/// One look at one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NvmlReading {
    /// When.
    pub at: Timestamp,
    /// Index on this machine.
    pub index: u32,
    /// The device does not answer any more: it fell off the bus, or cannot be opened. Nothing else is known then.
    pub lost: Option<String>,
    /// UUID (`GPU-...`).
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Memory built in.
    pub memory_total: Option<Bytes>,
    /// Memory in use, the driver's share included.
    pub memory_used: Option<Bytes>,
    /// Share of the last sample period in which a kernel ran. Unknown on MIG devices.
    pub utilisation: Option<Share>,
    /// Power drawn, watts.
    pub power_w: Option<f64>,
    /// Split into MIG devices.
    pub mig: Option<bool>,
    /// Compute processes, as the driver lists them (host's process numbers).
    pub pids: Option<Vec<u32>>,
}

impl NvmlReading {
    /// Number of compute processes.
    #[must_use]
    pub fn processes(&self) -> Option<u32> {
        self.pids.as_ref().and_then(|pids| u32::try_from(pids.len()).ok())
    }
}

/// Opens NVML: the system's library, or the one at `library`.
///
/// # Errors
/// When it cannot be loaded or initialised; the reason names what was looked for.
pub fn open(library: Option<&Path>) -> Result<Nvml, IngestError> {
    let mut builder = Nvml::builder();
    if let Some(path) = library {
        builder.lib_path(path.as_os_str());
    }
    builder.init().map_err(|error| IngestError::NvmlOpen { library: library.map(Path::to_path_buf), reason: reason(&error) })
}

/// Looks at every GPU, in order of index. A GPU that does not answer is in the list, marked lost.
///
/// # Errors
/// When the driver does not even say how many GPUs there are.
pub fn read(nvml: &Nvml, at: Timestamp) -> Result<Vec<NvmlReading>, IngestError> {
    let count = nvml.device_count().map_err(|error| IngestError::NvmlCount { reason: reason(&error) })?;
    if count > GPUS_MAX {
        tracing::warn!(count, GPUS_MAX, "only the first GPUS_MAX GPUs of this machine are looked at");
    }
    Ok((0..count.min(GPUS_MAX)).map(|index| read_one(nvml, index, at)).collect())
}

fn read_one(nvml: &Nvml, index: u32, at: Timestamp) -> NvmlReading {
    let unknown = NvmlReading {
        at,
        index,
        lost: None,
        uuid: None,
        name: None,
        memory_total: None,
        memory_used: None,
        utilisation: None,
        power_w: None,
        mig: None,
        pids: None,
    };
    let device = match nvml.device_by_index(index) {
        Ok(device) => device,
        Err(error) => return NvmlReading { lost: Some(reason(&error)), ..unknown },
    };
    read_device(&device, &unknown).unwrap_or_else(|lost| NvmlReading { lost: Some(lost), uuid: device.uuid().ok(), ..unknown })
}

/// Reads what the device will tell; the error says that it is gone.
fn read_device(device: &Device<'_>, unknown: &NvmlReading) -> Result<NvmlReading, String> {
    let uuid = known(device.uuid())?;
    let name = known(device.name())?;
    let memory = known(device.memory_info())?;
    let utilisation = known(device.utilization_rates())?;
    let power = known(device.power_usage())?;
    let mig = known(device.mig_mode())?;
    let processes = known(device.running_compute_processes())?;
    let split = mig.map(|mode| mode.current != 0);
    Ok(NvmlReading {
        uuid,
        name,
        memory_total: memory.as_ref().map(|memory| Bytes(memory.total)),
        memory_used: memory.as_ref().map(|memory| Bytes(memory.used)),
        // Some drivers say 0 instead of "not supported" for a GPU that is split.
        utilisation: utilisation.filter(|_| split != Some(true)).and_then(|rates| Share::new(f64::from(rates.gpu) / 100.0).ok()),
        power_w: power.map(|milliwatts| f64::from(milliwatts) / 1_000.0),
        mig: split,
        pids: processes.map(|list| {
            let mut pids: Vec<u32> = list.iter().map(|process| process.pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids
        }),
        ..unknown.clone()
    })
}

/// A value, or nothing where the driver has none to give; the error when the GPU is gone.
fn known<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, String> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(error.to_string()),
        Err(error) => {
            tracing::trace!(%error, "NVML value not available");
            Ok(None)
        }
    }
}

/// The library's own words, with the loader's below them.
fn reason(error: &NvmlError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn look(faults: &[&str]) -> Vec<NvmlReading> {
        let folder = tempfile::tempdir().unwrap();
        let nvml = open(Some(&fake(folder.path(), faults))).unwrap();
        read(&nvml, Timestamp(7)).unwrap()
    }

    #[test]
    fn every_value_of_a_healthy_gpu_is_read() {
        let readings = look(&[]);
        assert_eq!(readings.len(), 2);
        let first = &readings[0];
        assert_eq!((first.at, first.index, first.uuid.as_deref(), first.name.as_deref()), (Timestamp(7), 0, Some("GPU-fake-0"), Some("Fake H100 80GB")));
        assert_eq!((first.memory_total, first.memory_used), (Some(Bytes::from_gib(80)), Some(Bytes::from_gib(60))));
        assert_eq!((first.utilisation.map(Share::get), first.power_w, first.mig), (Some(0.75), Some(350.5), Some(false)));
        assert_eq!((first.pids.as_deref(), first.processes()), (Some(&[41, 42][..]), Some(2)));
        // The second is idle: that is a zero, and not unknown.
        assert_eq!((readings[1].utilisation.map(Share::get), readings[1].processes(), &readings[1].lost), (Some(0.0), Some(0), &None));
    }

    /// A value that is refused, or that an old library does not have at all, is unknown, not idle; the others are read.
    #[test]
    fn what_is_not_supported_is_unknown_and_never_idle() {
        for fault in ["NOT_SUPPORTED", "OLD_LIBRARY"] {
            for reading in look(&[fault]) {
                assert_eq!((reading.utilisation, reading.power_w, reading.processes()), (None, None, None), "{fault}");
                assert_eq!((reading.memory_total, &reading.lost), (Some(Bytes::from_gib(80)), &None), "{fault}");
            }
        }
    }

    #[test]
    fn a_split_gpu_has_no_utilisation_whatever_the_driver_says() {
        let readings = look(&["MIG"]);
        assert_eq!((readings[0].mig, readings[0].utilisation), (Some(true), None));
    }

    #[test]
    fn a_lost_gpu_is_listed_as_lost_and_the_other_is_read() {
        let readings = look(&["GPU_LOST"]);
        assert!(readings[0].lost.as_deref().is_some_and(|why| !why.is_empty()));
        assert_eq!((readings[0].uuid.as_deref(), readings[0].memory_used, readings[0].processes()), (Some("GPU-fake-0"), None, None));
        assert_eq!((&readings[1].lost, readings[1].processes()), (&None, Some(0)));
        let readings = look(&["NO_HANDLE"]);
        assert!(readings[0].lost.is_some() && readings[0].uuid.is_none() && readings[1].lost.is_none());
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
}
