//! The experts by name.

use crate::history::History;
use crate::quantiles::Row;
use crate::{linear, mstl_ets, seasonal_naive};
use std::collections::BTreeMap;

/// Name of the baseline.
pub const SEASONAL_NAIVE: &str = "seasonal_naive";
/// Name of the decomposition with exponential smoothing.
pub const MSTL_ETS: &str = "mstl_ets";
/// Name of the regression.
pub const LINEAR: &str = "linear";
/// Name of the mixture that is planned with.
pub const PUBLISHED: &str = "published";

/// Quantiles by expert and step. An expert that cannot say anything of this history is absent.
pub(crate) type Opinions = BTreeMap<&'static str, Vec<Row>>;

/// Asks every expert.
pub(crate) fn ask(history: &History, horizon: usize) -> Opinions {
    let all =
        [(SEASONAL_NAIVE, seasonal_naive::rows(history, horizon)), (MSTL_ETS, mstl_ets::rows(history, horizon)), (LINEAR, linear::rows(history, horizon))];
    all.into_iter().filter_map(|(name, rows)| rows.map(|rows| (name, rows))).collect()
}
