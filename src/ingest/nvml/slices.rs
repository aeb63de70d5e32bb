//! The MIG slices of a GPU that is split.
//!
//! The driver numbers the places for slices, of which some are empty. Utilisation is not asked for: no driver gives it for a slice, and a
//! 0 would be read as idle.

use super::device::{is_absent, processes};
use super::known;
use super::reading::SliceReading;
use fleet::Bytes;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// Places for slices that are looked at on one GPU. Drivers have 7.
const SLICES_MAX: u32 = 64;

/// The slices of a GPU; nothing where the driver does not list them, an error where it is gone.
pub(super) fn read(nvml: &Nvml, gpu: &Device<'_>) -> Result<Option<Vec<SliceReading>>, String> {
    let Some(places) = known(gpu.mig_device_count())? else { return Ok(None) };
    let mut slices = Vec::new();
    for index in 0..places.min(SLICES_MAX) {
        match gpu.mig_device_by_index(index) {
            Ok(device) => slices.push(read_slice(nvml, &device, index)?),
            Err(error) if is_absent(&error) => {}
            // One slice that cannot be opened: a list without it would look complete.
            Err(error) => return known::<()>(Err(error)).map(|_| None),
        }
    }
    Ok(Some(slices))
}

fn read_slice(nvml: &Nvml, slice: &Device<'_>, index: u32) -> Result<SliceReading, String> {
    let memory = known(slice.memory_info())?;
    let bytes = |value: fn(&nvml_wrapper::struct_wrappers::device::MemoryInfo) -> u64| memory.as_ref().map(|memory| Bytes(value(memory)));
    Ok(SliceReading {
        index,
        uuid: known(slice.uuid())?,
        profile: profile(slice)?,
        gpu_instance: known(instance(nvml, slice, Instance::Gpu))?,
        compute_instance: known(instance(nvml, slice, Instance::Compute))?,
        memory_total: bytes(|memory| memory.total),
        memory_used: bytes(|memory| memory.used),
        memory_free: bytes(|memory| memory.free),
        running: known(slice.running_compute_processes())?.map(processes),
    })
}

/// The shape of a slice: the end of its name (`NVIDIA H100 80GB HBM3 MIG 1g.10gb`), or what its attributes say, put in the same words.
fn profile(slice: &Device<'_>) -> Result<Option<String>, String> {
    if let Some(name) = known(slice.name())?
        && let Some((_, profile)) = name.rsplit_once(" MIG ")
    {
        return Ok(Some(profile.to_owned()));
    }
    Ok(known(slice.attributes())?.map(|shape| {
        let gib = shape.memory_size_mb.div_ceil(1024);
        match (shape.gpu_instance_slice_count, shape.compute_instance_slice_count) {
            (gpu, compute) if compute == gpu || compute == 0 => format!("{gpu}g.{gib}gb"),
            (gpu, compute) => format!("{compute}c.{gpu}g.{gib}gb"),
        }
    }))
}

/// Which of a slice's two numbers.
#[derive(Clone, Copy)]
enum Instance {
    Gpu,
    Compute,
}

/// One of a slice's two numbers, which the wrapper has no call for.
#[expect(unsafe_code, reason = "the wrapper loads these two calls but does not wrap them")]
fn instance(nvml: &Nvml, slice: &Device<'_>, which: Instance) -> Result<u32, NvmlError> {
    let library = nvml.lib();
    let symbol = match which {
        Instance::Gpu => library.nvmlDeviceGetGpuInstanceId.as_ref(),
        Instance::Compute => library.nvmlDeviceGetComputeInstanceId.as_ref(),
    };
    let call = symbol.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
    let mut id = 0;
    // SAFETY: the symbol has the signature of nvml.h, the handle is borrowed from the library that is open, and `id` outlives the call.
    let code = unsafe { call(slice.handle(), &raw mut id) };
    nvml_wrapper::error::nvml_try(code).map(|()| id)
}
