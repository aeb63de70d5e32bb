//! Series in, forecast out; how much a replica serves; what is learned from what came.
//!
//! [`forecast`] is the main entry: several experts (one file each) look at one workload's hourly demand, each gives quantiles with a spread
//! taken from its own errors, and the published forecast averages them by learned weights and corrects them by learned offsets.
//! [`learn`] makes the next version of what was learned from one window's outcome. [`capacity`] and [`service_level`] turn profiles and
//! money into the numbers a problem is stated in. Everything here is a pure function: no clock, no randomness, no IO.
//!
//! | expert | file | in short |
//! |---|---|---|
//! | `seasonal_naive` | `seasonal_naive.rs` | the same hour of yesterday, or of last week where that was closer |
//! | `mstl_ets` | `mstl_ets.rs` | seasons by MSTL, the rest by damped exponential smoothing |
//! | `linear` | `linear.rs` | regression on lags, calendar and Fourier terms, then on the latest errors |

mod backtest;
mod calendar;
pub mod capacity;
mod experts;
mod forecast;
mod history;
mod learn;
mod linear;
mod mixture;
mod mstl_ets;
mod newsvendor;
mod pinball;
mod quantiles;
mod seasonal_naive;
mod spread;

pub use backtest::backtest;
pub use experts::{LINEAR, MSTL_ETS, PUBLISHED, SEASONAL_NAIVE};
pub use forecast::{ForecastSet, HORIZON_STEPS_MAX, Request, forecast, forecast_all};
pub use learn::learn;
pub use newsvendor::service_level;
pub use pinball::{Score, Tally, pinball};

use fleet::{Span, WorkloadId};

/// Why there is no forecast.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Nothing is known of the six weeks before the origin.
    #[error("workload {0}: no hour of demand is known before the origin, so nothing can be forecast")]
    NoHistory(WorkloadId),
    /// The history is not hourly.
    #[error("workload {workload}: the history has a step of {step}, hourly values are needed")]
    Step {
        /// Whose.
        workload: WorkloadId,
        /// What it has.
        step: Span,
    },
    /// The time zone is not in the database.
    #[error("workload {workload}: time zone {zone:?} is unknown; write it as in the IANA database, such as Europe/Berlin")]
    Zone {
        /// Whose.
        workload: WorkloadId,
        /// What was asked for.
        zone: String,
    },
    /// More steps than a forecast may have.
    #[error("workload {workload}: a horizon of {steps} hours was asked for, {HORIZON_STEPS_MAX} is the most")]
    Horizon {
        /// Whose.
        workload: WorkloadId,
        /// What was asked for.
        steps: usize,
    },
}
