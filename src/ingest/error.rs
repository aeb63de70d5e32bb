//! What can go wrong when a source is opened or read as a whole.

use std::path::PathBuf;

/// A source that cannot be used. Single values that cannot be read are no errors: they are absent.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// NVML could not be loaded or started: no NVIDIA driver here, or not for us.
    #[error("cannot open NVML from {library}: {reason}", library = library.as_ref().map_or_else(|| "the system".into(), |path| path.display().to_string()))]
    NvmlOpen {
        /// The library asked for, or the system's.
        library: Option<PathBuf>,
        /// Why.
        reason: String,
    },
    /// NVML does not say which GPUs there are.
    #[error("NVML cannot count the GPUs: {reason}")]
    NvmlCount {
        /// Why.
        reason: String,
    },
}
