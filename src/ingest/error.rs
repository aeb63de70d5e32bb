//! What can go wrong when a source is opened or read as a whole.

use crate::influx::AnnotatedError;
use crate::query::AnswerError;
use std::path::PathBuf;
use wire::{Redacted, WireError};

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
    /// The exchange with a source failed.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A Prometheus API gave no usable answer.
    #[error("{url} gave no usable answer: {reason}")]
    Answer {
        /// Whose answer.
        url: Redacted,
        /// What is wrong with it.
        reason: AnswerError,
    },
    /// An `InfluxDB` gave no usable answer.
    #[error("{url} gave no usable answer: {reason}")]
    Annotated {
        /// Whose answer.
        url: Redacted,
        /// What is wrong with it.
        reason: AnnotatedError,
    },
    /// A discovery service gave no list of targets.
    #[error("{url} gave no list of targets: {reason}")]
    List {
        /// Whose answer.
        url: Redacted,
        /// What is wrong with it.
        reason: String,
    },
}

impl IngestError {
    /// Whether less at a time may work: the answer was larger than allowed, or the server says that the question is.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        match self {
            Self::Wire(WireError::TooLarge { .. }) | Self::Answer { reason: AnswerError::TooMany { .. }, .. } => true,
            // Prometheus: "exceeded maximum resolution", "query processing would load too many samples into memory".
            Self::Answer { reason: AnswerError::Refused { message, .. }, .. } => message.contains("too many") || message.contains("exceeded maximum"),
            _ => false,
        }
    }
}
