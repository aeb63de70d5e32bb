//! Identities: one newtype each, so that a pool can never be handed over where a variant is asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An identity that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} id {value:?} is not usable: {reason}")]
pub struct IdError {
    kind: &'static str,
    value: String,
    reason: &'static str,
}

/// Longest id accepted, in bytes. Prometheus labels and file names stay readable below it.
const ID_BYTES_MAX: usize = 128;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            /// Wraps a name.
            ///
            /// # Errors
            /// When it is empty, longer than 128 bytes, or holds a control character or white space at either end.
            pub fn new(value: impl Into<String>) -> Result<Self, IdError> {
                let value = value.into();
                let reason = if value.is_empty() {
                    "it is empty"
                } else if value.len() > ID_BYTES_MAX {
                    "it is longer than 128 bytes"
                } else if value.chars().any(char::is_control) {
                    "it holds a control character"
                } else if value.trim() != value {
                    "it begins or ends with white space"
                } else {
                    return Ok(Self(value));
                };
                Err(IdError { kind: $kind, value, reason })
            }

            /// The name itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(value: String) -> Result<Self, IdError> {
                Self::new(value)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = IdError;
            fn try_from(value: &str) -> Result<Self, IdError> {
                Self::new(value)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(value: &str) -> Result<Self, IdError> {
                Self::new(value)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    )*};
}

ids! {
    /// One physical GPU: its UUID where known, else `node/index`.
    GpuId = "gpu";
    /// A kind of GPU, such as `H100-80GB`.
    GpuKindId = "gpu kind";
    /// GPUs of one node joined by fast links.
    IslandId = "island";
    /// A host.
    NodeId = "node";
    /// A set of interchangeable GPUs: same kind, place and labels.
    PoolId = "pool";
    /// What users call.
    ModelId = "model";
    /// A model at a precision and a tensor-parallel degree on a GPU kind.
    VariantId = "variant";
    /// One running copy of a variant.
    ReplicaId = "replica";
    /// What asks for compute.
    WorkloadId = "workload";
    /// A workload that is an amount of work.
    JobId = "job";
    /// One scraped endpoint.
    TargetId = "target";
    /// One engine behind an endpoint, or one GPU its page tells of.
    MemberId = "member";
    /// A forecast, by content.
    ForecastId = "forecast";
    /// A problem, by content.
    ProblemId = "problem";
    /// A plan, by content.
    PlanId = "plan";
    /// An outcome, by content.
    OutcomeId = "outcome";
    /// A calibration, by content.
    CalibrationId = "calibration";
}

impl From<JobId> for WorkloadId {
    fn from(id: JobId) -> Self {
        Self(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_would_not_survive_a_label_or_a_path() {
        for bad in ["", " a", "a\n", &"x".repeat(129)] {
            assert!(PoolId::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(PoolId::new("h100-a").unwrap().as_str(), "h100-a");
        assert!(serde_json::from_str::<PoolId>("\"\"").is_err());
    }
}
