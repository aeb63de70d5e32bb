//! A forecast: quantiles of demand on a grid of steps ahead of an origin.

use crate::{ForecastId, Span, Timestamp, WorkloadId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The quantile levels every forecaster gives.
pub const LEVELS: [f64; 8] = [0.05, 0.10, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99];

/// A forecast that must not be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ForecastError {
    /// Levels do not ascend strictly inside (0, 1).
    #[error("quantile levels {0:?} must ascend strictly between 0 and 1")]
    Levels(Vec<f64>),
    /// A row has not one value a level.
    #[error("step {step} has {got} values for {want} levels")]
    Shape {
        /// Which row.
        step: usize,
        /// Values found.
        got: usize,
        /// Levels.
        want: usize,
    },
    /// Negative, not finite, or falling from one level to the next.
    #[error("step {step}: quantiles {values:?} must be finite, not negative and not crossing")]
    Quantiles {
        /// Which row.
        step: usize,
        /// Its values.
        values: Vec<f64>,
    },
}

/// Quantiles of demand ahead of an origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Forecast {
    /// Fingerprint of the rest.
    pub id: ForecastId,
    /// Whose demand.
    pub workload: WorkloadId,
    /// Last instant used: nothing at or after it was known.
    pub origin: Timestamp,
    /// Start of the first step, on the grid.
    pub start: Timestamp,
    /// Grid spacing.
    pub step: Span,
    /// Quantile levels, ascending.
    pub levels: Vec<f64>,
    /// `values[h][l]`: demand in step `h` at level `l`, requests/s.
    pub values: Vec<Vec<f64>>,
    /// Method that made it, as named by `models`.
    pub forecaster: String,
    /// Generation of the calibration that corrected it.
    pub calibration: u64,
}

impl Forecast {
    /// Tells whether every rule of a forecast holds.
    ///
    /// # Errors
    /// When levels do not ascend, a row has the wrong length, or quantiles are negative, crossing or not finite.
    pub fn validate(&self) -> Result<(), ForecastError> {
        let inside = self.levels.iter().all(|l| 0.0 < *l && *l < 1.0);
        if self.levels.is_empty() || !inside || self.levels.windows(2).any(|w| w[0] >= w[1]) {
            return Err(ForecastError::Levels(self.levels.clone()));
        }
        for (step, row) in self.values.iter().enumerate() {
            if row.len() != self.levels.len() {
                return Err(ForecastError::Shape { step, got: row.len(), want: self.levels.len() });
            }
            let sound = row.iter().all(|v| v.is_finite() && *v >= 0.0) && row.windows(2).all(|w| w[0] <= w[1]);
            if !sound {
                return Err(ForecastError::Quantiles { step, values: row.clone() });
            }
        }
        Ok(())
    }

    /// The row whose step holds `at`.
    #[must_use]
    pub fn row(&self, at: Timestamp) -> Option<&[f64]> {
        let index = usize::try_from((at.0 - self.start.0).div_euclid(self.step.0)).ok()?;
        self.values.get(index).map(Vec::as_slice)
    }

    /// Demand at `level` in the step that holds `at`: interpolated between levels, clamped to the outermost ones.
    #[must_use]
    pub fn quantile(&self, at: Timestamp, level: f64) -> Option<f64> {
        self.row(at).map(|row| quantile_at(&self.levels, row, level))
    }
}

/// Linear interpolation of a quantile function given at ascending levels; outside them the outermost value.
///
/// # Panics
/// When the slices are empty or differ in length.
#[must_use]
pub fn quantile_at(levels: &[f64], values: &[f64], level: f64) -> f64 {
    assert!(!levels.is_empty() && levels.len() == values.len(), "one value a level");
    let above = levels.partition_point(|l| *l < level);
    if above == 0 {
        values[0]
    } else if above == levels.len() {
        values[above - 1]
    } else {
        let (l0, l1) = (levels[above - 1], levels[above]);
        let share = (level - l0) / (l1 - l0);
        values[above - 1] + share * (values[above] - values[above - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forecast(values: Vec<Vec<f64>>) -> Forecast {
        Forecast {
            id: ForecastId::new("f").unwrap(),
            workload: WorkloadId::new("w").unwrap(),
            origin: Timestamp(0),
            start: Timestamp(0),
            step: Span::HOUR,
            levels: vec![0.1, 0.5, 0.9],
            values,
            forecaster: "seasonal_naive".into(),
            calibration: 1,
        }
    }

    #[test]
    fn refuses_negative_and_crossing_quantiles() {
        assert!(forecast(vec![vec![0.0, 1.0, 1.0]]).validate().is_ok());
        for bad in [vec![-0.1, 1.0, 2.0], vec![1.0, 0.5, 2.0], vec![0.0, f64::NAN, 1.0], vec![0.0, 1.0]] {
            assert!(forecast(vec![bad.clone()]).validate().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn interpolates_inside_and_clamps_outside() {
        let f = forecast(vec![vec![1.0, 2.0, 4.0]]);
        assert_eq!(f.quantile(Timestamp(10), 0.7), Some(3.0));
        assert_eq!(f.quantile(Timestamp(10), 0.999), Some(4.0));
        assert_eq!(f.quantile(Timestamp(3_600), 0.5), None);
    }
}
