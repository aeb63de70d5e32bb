//! Asking one GPU for its values, each on its own.

use super::reading::{GpuProcess, NvmlReading, Throttle};
use super::{known, reason, slices};
use fleet::{Bytes, Share, Timestamp};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_REMAPPED_FAILURE;
use nvml_wrapper::{Device, Nvml};
use std::collections::BTreeSet;

/// One look at the GPU at `index`; lost when it cannot be opened or falls silent on the way.
pub(super) fn read(nvml: &Nvml, index: u32, at: Timestamp) -> NvmlReading {
    let unknown = NvmlReading::unknown(at, index);
    let device = match nvml.device_by_index(index) {
        Ok(device) => device,
        Err(error) => return NvmlReading { lost: Some(reason(&error)), ..unknown },
    };
    read_device(nvml, &device, &unknown).unwrap_or_else(|lost| NvmlReading { lost: Some(lost), uuid: device.uuid().ok(), ..unknown })
}

/// Reads what the device will tell; the error says that it is gone.
fn read_device(nvml: &Nvml, device: &Device<'_>, unknown: &NvmlReading) -> Result<NvmlReading, String> {
    let uuid = known(device.uuid())?;
    let name = known(device.name())?;
    let memory = known(device.memory_info())?;
    let utilisation = known(device.utilization_rates())?;
    let power = known(device.power_usage())?;
    let energy = known(device.total_energy_consumption())?;
    let temperature = known(device.temperature(TemperatureSensor::Gpu))?;
    let ecc = known(device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile))?;
    let split = known(device.mig_mode())?.map(|mode| mode.current != 0);
    Ok(NvmlReading {
        uuid,
        name,
        memory_total: memory.as_ref().map(|memory| Bytes(memory.total)),
        memory_used: memory.as_ref().map(|memory| Bytes(memory.used)),
        memory_free: memory.as_ref().map(|memory| Bytes(memory.free)),
        // Some drivers say 0 instead of "not supported" for a GPU that is split.
        utilisation: utilisation.filter(|_| split != Some(true)).and_then(|rates| Share::new(f64::from(rates.gpu) / 100.0).ok()),
        power_w: power.map(|milliwatts| f64::from(milliwatts) / 1_000.0),
        energy_j: energy.map(joules),
        temperature_c: temperature.map(f64::from),
        ecc_uncorrected: ecc,
        row_remap_failed: row_remap_failed(device)?,
        throttled: known(device.current_throttle_reasons())?.map(throttles),
        mig: split,
        slices: if split == Some(true) { slices::read(nvml, device)? } else { None },
        running: known(device.running_compute_processes())?.map(processes),
        ..unknown.clone()
    })
}

#[expect(clippy::cast_precision_loss, reason = "2^53 millijoules are 300 years of a kilowatt")]
fn joules(millijoules: u64) -> f64 {
    millijoules as f64 / 1_000.0
}

/// The failure flag of row remapping, which the driver gives as one of its numbered fields.
fn row_remap_failed(device: &Device<'_>) -> Result<Option<bool>, String> {
    let fields = known(device.field_values_for(&[FieldId(NVML_FI_DEV_REMAPPED_FAILURE)]))?;
    let Some(field) = fields.into_iter().flatten().next() else { return Ok(None) };
    let value = known(field.and_then(|sample| sample.value))?;
    Ok(value.and_then(|value| match value {
        SampleValue::U32(flag) => Some(flag != 0),
        SampleValue::U64(flag) => Some(flag != 0),
        SampleValue::I64(flag) => Some(flag != 0),
        // A flag is whole; anything else is not what was asked for.
        SampleValue::F64(_) => None,
    }))
}

fn throttles(reasons: ThrottleReasons) -> BTreeSet<Throttle> {
    let table = [
        (ThrottleReasons::HW_SLOWDOWN, Throttle::HardwareSlowdown),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::Thermal),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::Thermal),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
    ];
    table.into_iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, throttle)| throttle).collect()
}

/// The driver's list, in order of process number. One that is listed twice (once a slice) holds the sum.
pub(super) fn processes(list: Vec<ProcessInfo>) -> Vec<GpuProcess> {
    let held = |memory| match memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    let mut all: Vec<GpuProcess> = list.into_iter().map(|process| GpuProcess { pid: process.pid, memory: held(process.used_gpu_memory) }).collect();
    all.sort_unstable();
    all.dedup_by(|next, kept| {
        let same = next.pid == kept.pid;
        if same {
            kept.memory = kept.memory.zip(next.memory).map(|(a, b)| Bytes(a.0.saturating_add(b.0)));
        }
        same
    });
    all
}

/// Whether the driver only says that there is no such thing at this place.
pub(super) fn is_absent(error: &NvmlError) -> bool {
    matches!(error, NvmlError::NotFound | NvmlError::InvalidArg)
}
