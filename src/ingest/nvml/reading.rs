//! What one look at one GPU found.

use fleet::{Bytes, Share, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One look at one GPU. Nothing means: not known.
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
    /// Memory that can still be given out.
    pub memory_free: Option<Bytes>,
    /// Share of the last sample period in which a kernel ran. Unknown on a GPU that is split.
    pub utilisation: Option<Share>,
    /// Power drawn, watts.
    pub power_w: Option<f64>,
    /// Energy drawn since the driver was loaded, joules.
    pub energy_j: Option<f64>,
    /// Temperature of the chip, degrees Celsius.
    pub temperature_c: Option<f64>,
    /// Memory errors that ECC could not correct, since the driver was loaded or the GPU was reset: a recovered GPU begins at 0 again.
    pub ecc_uncorrected: Option<u64>,
    /// Replacing a bad row of memory failed: the GPU wants repair.
    pub row_remap_failed: Option<bool>,
    /// What holds the clocks down against the user's will; empty when nothing does. Limits that are normal under load (the power cap, an
    /// idle GPU, clocks somebody set) are not among them.
    pub throttled: Option<BTreeSet<Throttle>>,
    /// The last critical event the driver told of, where events are watched.
    pub xid: Option<Xid>,
    /// Split into MIG slices.
    pub mig: Option<bool>,
    /// Those slices, in the driver's order. None where the driver does not list them.
    pub slices: Option<Vec<SliceReading>>,
    /// Compute processes, as the driver lists them, in order of process number.
    pub running: Option<Vec<GpuProcess>>,
}

/// A slice of a GPU that is split. Its utilisation is not among what a driver tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceReading {
    /// Its place in the driver's list.
    pub index: u32,
    /// UUID (`MIG-...`): what processes name in `CUDA_VISIBLE_DEVICES`.
    pub uuid: Option<String>,
    /// Its shape, such as `1g.12gb`.
    pub profile: Option<String>,
    /// Number of the GPU instance on its GPU.
    pub gpu_instance: Option<u32>,
    /// Number of the compute instance in its GPU instance: 0 unless that one is split again.
    pub compute_instance: Option<u32>,
    /// Memory it has.
    pub memory_total: Option<Bytes>,
    /// Memory in use.
    pub memory_used: Option<Bytes>,
    /// Memory that can still be given out.
    pub memory_free: Option<Bytes>,
    /// Compute processes on it.
    pub running: Option<Vec<GpuProcess>>,
}

/// A process that computes on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuProcess {
    /// The host's process number.
    pub pid: u32,
    /// GPU memory it holds.
    pub memory: Option<Bytes>,
}

/// What holds the clocks of a GPU down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// The hardware slows down, by heat, by a power brake or by too steep a draw.
    HardwareSlowdown,
    /// Heat.
    Thermal,
    /// The power supply asks for less.
    PowerBrake,
}

/// Critical events (XID), as far as somebody watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Xid {
    /// None since the watch began.
    NoneSeen,
    /// The last one. A code is history and not state: the GPU may have recovered since.
    Last {
        /// Its code; 999 where the driver does not know it either.
        code: u64,
        /// When it was told of, at the latest.
        at: Timestamp,
    },
}

impl NvmlReading {
    /// A GPU of which nothing is known.
    #[must_use]
    pub fn unknown(at: Timestamp, index: u32) -> Self {
        Self {
            at,
            index,
            lost: None,
            uuid: None,
            name: None,
            memory_total: None,
            memory_used: None,
            memory_free: None,
            utilisation: None,
            power_w: None,
            energy_j: None,
            temperature_c: None,
            ecc_uncorrected: None,
            row_remap_failed: None,
            throttled: None,
            xid: None,
            mig: None,
            slices: None,
            running: None,
        }
    }

    /// Number of compute processes on the whole GPU, its slices included.
    #[must_use]
    pub fn processes(&self) -> Option<u32> {
        self.running.as_ref().map(|list| number(list.len()))
    }
}

impl SliceReading {
    /// Number of compute processes.
    #[must_use]
    pub fn processes(&self) -> Option<u32> {
        self.running.as_ref().map(|list| number(list.len()))
    }

    /// Its number on its GPU: of the GPU instance, with that of the compute instance behind a slash where there are several; its place in
    /// the list (`#0`) where the driver gives no number.
    #[must_use]
    pub fn instance(&self) -> String {
        match (self.gpu_instance, self.compute_instance) {
            (Some(gpu), None | Some(0)) => gpu.to_string(),
            (Some(gpu), Some(compute)) => format!("{gpu}/{compute}"),
            (None, _) => format!("#{}", self.index),
        }
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
