//! What was learned, as a value: a new version each time, never edited, so that it can be inspected, frozen and rolled back.

use crate::{Timestamp, VariantId, WorkloadId, fingerprint};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How far a number can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
    /// A documented assumption, nothing observed yet.
    Prior,
    /// Estimated from what was observed.
    Fitted,
}

/// A learned quantity with its evidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The value, in the unit its place says.
    pub value: f64,
    /// Standard error in the same unit.
    pub std_error: f64,
    /// Observations behind it.
    pub evidence: u64,
}

/// What is known of one workload's forecasters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
pub struct ForecasterState {
    /// Weight by forecaster, summing to one.
    pub weights: BTreeMap<String, f64>,
    /// Discounted mean pinball loss by forecaster, in units of the workload's mean demand.
    pub losses: BTreeMap<String, f64>,
    /// Added to each quantile (one a level of [`crate::LEVELS`]), as a share of the forecast's median level: keeps intervals honest.
    pub offsets: Vec<f64>,
    /// Share of scored outcomes at or below each level, discounted.
    pub coverage: Vec<f64>,
    /// Ratio of the peak inside an hour to its mean, for which capacity is bought.
    pub peak_ratio: Option<Estimate>,
    /// Outcomes scored.
    pub scored: u64,
}

/// The learned state of everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// Number of this version; 1 is the priors alone.
    pub generation: u64,
    /// When it was made.
    pub made_at: Timestamp,
    /// Learning is switched off: later versions repeat this one.
    pub frozen: bool,
    /// By workload.
    pub forecasters: BTreeMap<WorkloadId, ForecasterState>,
    /// Factor on the prior capacity (dimensionless), by workload and variant.
    pub capacity: BTreeMap<WorkloadId, BTreeMap<VariantId, Estimate>>,
    /// Cold start in seconds, by variant.
    pub cold_start: BTreeMap<VariantId, Estimate>,
}

impl Calibration {
    /// The priors: nothing learned.
    #[must_use]
    pub fn prior(made_at: Timestamp) -> Self {
        Self { generation: 1, made_at, frozen: false, forecasters: BTreeMap::new(), capacity: BTreeMap::new(), cold_start: BTreeMap::new() }
    }

    /// Fingerprint of the content.
    ///
    /// # Panics
    /// Never: a fingerprint is a usable id.
    #[must_use]
    pub fn id(&self) -> crate::CalibrationId {
        crate::CalibrationId::new(fingerprint(self)).expect("hexadecimal digits")
    }

    /// The learned factor on a prior capacity, where there is one.
    #[must_use]
    pub fn capacity_factor(&self, workload: &WorkloadId, variant: &VariantId) -> Option<&Estimate> {
        self.capacity.get(workload).and_then(|by| by.get(variant))
    }
}
