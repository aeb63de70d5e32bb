//! The GPUs of this machine, through NVIDIA's management library.
//!
//! The library is loaded when asked for; a machine without it is an expected state and gives an error that says so. Each value is read on
//! its own, since drivers refuse some of them (utilisation of a GPU that is split, for one): what cannot be read is `None`, which is
//! unknown and never idle.
//!
//! | file | subject |
//! |---|---|
//! | `nvml/reading.rs` | what one look at one GPU found: [`NvmlReading`] |
//! | `nvml/device.rs` | asking one GPU for its values |
//! | `nvml/slices.rs` | asking for the MIG slices of a GPU that is split |
//! | `nvml/watch.rs` | looks in a row, with the XID events between them: [`Watch`] |
//! | `nvml/words.rs` | readings in the words of the house: [`scrape`], [`scrape_of`] |

mod device;
mod reading;
mod slices;
#[cfg(test)]
mod tests;
mod watch;
mod words;

pub use reading::{GpuProcess, NvmlReading, SliceReading, Throttle, Xid};
pub use watch::Watch;
pub use words::{ENGINE, Host, boot_time, driver_version, scrape, scrape_of};

use crate::IngestError;
use fleet::Timestamp;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::path::Path;

/// GPUs looked at on one machine.
pub const GPUS_MAX: u32 = 64;

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

/// Looks at every GPU, in order of index. A GPU that does not answer is in the list, marked lost. XID events are not known to a single
/// look: see [`Watch`].
///
/// # Errors
/// When the driver does not even say how many GPUs there are.
pub fn read(nvml: &Nvml, at: Timestamp) -> Result<Vec<NvmlReading>, IngestError> {
    let count = nvml.device_count().map_err(|error| IngestError::NvmlCount { reason: reason(&error) })?;
    if count > GPUS_MAX {
        tracing::warn!(count, GPUS_MAX, "only the first GPUS_MAX GPUs of this machine are looked at");
    }
    Ok((0..count.min(GPUS_MAX)).map(|index| device::read(nvml, index, at)).collect())
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
