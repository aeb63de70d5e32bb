//! How far an expert was off, by lead time: the source of its quantiles.

use crate::quantiles::{Row, empirical};
use fleet::LEVELS;

/// Last lead (hours ahead, from 1) of each band. Errors grow fast in the first hours and little after a day.
const BAND_ENDS: [usize; 8] = [1, 2, 4, 8, 16, 24, 48, usize::MAX];

/// Errors a band needs for its own quantiles; with fewer it takes those of the next band that has them.
const BAND_ERRORS_MIN: usize = 12;

/// Errors used of a band at most (evenly thinned): enough for the 0.99 quantile, cheap to sort.
const BAND_ERRORS_MAX: usize = 1_500;

/// Collects errors (actual - forecast) by lead.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors {
    bands: [Vec<f64>; BAND_ENDS.len()],
}

/// Quantiles of an expert's errors, by band of lead time.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    bands: [Row; BAND_ENDS.len()],
}

fn band(lead: usize) -> usize {
    BAND_ENDS.partition_point(|end| *end < lead)
}

impl Errors {
    /// Adds one error of a forecast `lead` hours ahead.
    pub(crate) fn add(&mut self, lead: usize, error: f64) {
        if error.is_finite() {
            self.bands[band(lead)].push(error);
        }
    }

    /// The quantiles, each error first multiplied by `inflation` (at least 1 where errors come from hours the expert was fitted to). `None`
    /// when there are too few errors to tell.
    pub(crate) fn spread(self, inflation: f64) -> Option<Spread> {
        let own: Vec<Option<Row>> = self.bands.into_iter().map(|errors| quantiles(errors, inflation)).collect();
        let mut bands = [[0.0; LEVELS.len()]; BAND_ENDS.len()];
        for (index, row) in bands.iter_mut().enumerate() {
            let later = own[index..].iter().flatten().next();
            *row = *later.or_else(|| own[..index].iter().rev().flatten().next())?;
        }
        Some(Spread { bands })
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of small vectors")]
fn quantiles(errors: Vec<f64>, inflation: f64) -> Option<Row> {
    if errors.len() < BAND_ERRORS_MIN {
        return None;
    }
    let stride = errors.len().div_ceil(BAND_ERRORS_MAX);
    let mut kept: Vec<f64> = errors.into_iter().step_by(stride).collect();
    kept.sort_by(f64::total_cmp);
    let centre = empirical(&kept, 0.5);
    // A median of few errors is no bias: it is shrunk towards none.
    let bias = centre * kept.len() as f64 / (kept.len() as f64 + 24.0);
    Some(LEVELS.map(|level| bias + inflation * (empirical(&kept, level) - centre)))
}

impl Spread {
    /// Quantiles of the error `lead` hours ahead.
    pub(crate) fn at(&self, lead: usize) -> &Row {
        &self.bands[band(lead)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_without_errors_borrow_and_none_at_all_is_no_spread() {
        assert!(Errors::default().spread(1.0).is_none());
        let mut errors = Errors::default();
        for index in 0..200 {
            errors.add(6, f64::from(index % 21) - 10.0);
        }
        let spread = errors.spread(1.5).unwrap();
        assert_eq!(spread.at(1).to_vec(), spread.at(300).to_vec());
        assert!((spread.at(6)[7] - 15.0).abs() < 1.0, "{:?}", spread.at(6));
    }
}
