//! Why a command failed.

use config::ConfigError;
use std::{fmt, path::Path};

/// The configuration is wrong (`EX_CONFIG` of sysexits.h).
const CONFIG: u8 = 78;

/// The command line is wrong (`EX_USAGE` of sysexits.h).
pub(crate) const USAGE: u8 = 64;

/// A command that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something could not be read, written or reached.
    Fault {
        /// What, with its cause.
        message: String,
        /// What to do about it.
        help: Option<String>,
    },
    /// Options that do not go together.
    Usage {
        /// Why.
        message: String,
        /// What to do about it.
        help: Option<String>,
    },
    /// There is no usable configuration.
    Config {
        /// What is wrong with it as a whole.
        message: String,
        /// What to do about it.
        help: Option<String>,
    },
    /// The configuration has faults.
    ConfigFaults {
        /// Its text.
        text: String,
        /// All of them.
        faults: Vec<ConfigError>,
    },
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self::Fault { message: message.into(), help: None }
    }

    pub fn with_help(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Fault { message: message.into(), help: Some(help.into()) }
    }

    pub fn usage(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), help: Some(help.into()) }
    }

    /// An operation on a file that did not work.
    pub fn file(operation: &str, path: &Path, error: &impl fmt::Display) -> Self {
        Self::new(format!("cannot {operation} {}: {error}", path.display()))
    }

    pub fn code(&self) -> u8 {
        match self {
            Self::Fault { .. } => 1,
            Self::Usage { .. } => USAGE,
            Self::Config { .. } | Self::ConfigFaults { .. } => CONFIG,
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error.to_string())
    }
}
