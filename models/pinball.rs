//! Pinball loss and what is made of it.
//!
//! `rho_q(y, f) = max(q (y - f), (q - 1)(y - f))` (Koenker and Bassett 1978); `wql` = mean over the levels of `2 sum rho_q / sum |y|`;
//! `wape` = `sum |y - f_50| / sum |y|`.

use crate::quantiles::{MEDIAN, Row};
use fleet::LEVELS;
use serde::{Deserialize, Serialize};

/// Pinball loss of forecast `f` at level `q` when `y` came, in the unit of `y`.
#[must_use]
pub fn pinball(q: f64, y: f64, f: f64) -> f64 {
    (q * (y - f)).max((q - 1.0) * (y - f))
}

/// Mean pinball loss of a row over its levels.
#[expect(clippy::cast_precision_loss, reason = "a handful of levels")]
pub(crate) fn mean_pinball(row: &Row, y: f64) -> f64 {
    LEVELS.iter().zip(row).map(|(q, f)| pinball(*q, y, *f)).sum::<f64>() / LEVELS.len() as f64
}

/// How good quantiles were.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Weighted quantile loss. `None` when nothing was scored or all of it was zero.
    pub wql: Option<f64>,
    /// Absolute error of the median as a share of demand; `None` likewise.
    pub wape: Option<f64>,
    /// Share of what came at or below each level of [`LEVELS`]; empty when nothing was scored.
    pub coverage: Vec<f64>,
    /// Steps scored.
    pub n: u64,
}

/// Sums from which a [`Score`] is made.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tally {
    losses: [f64; LEVELS.len()],
    covered: [u64; LEVELS.len()],
    absolute_error: f64,
    demand: f64,
    n: u64,
}

impl Tally {
    /// Scores one step: `row` holds one quantile a level of [`LEVELS`], `y` is what came. Rows of another length and values that are not
    /// finite are left out.
    pub fn add(&mut self, row: &[f64], y: f64) {
        let Some(row) = crate::quantiles::row(row).filter(|_| y.is_finite()) else { return };
        for (index, (q, f)) in LEVELS.iter().zip(row).enumerate() {
            self.losses[index] += pinball(*q, y, f);
            self.covered[index] += u64::from(y <= f);
        }
        self.absolute_error += (y - row[MEDIAN]).abs();
        self.demand += y.abs();
        self.n += 1;
    }

    /// Adds another tally's sums to this one.
    pub fn merge(&mut self, other: &Self) {
        for index in 0..LEVELS.len() {
            self.losses[index] += other.losses[index];
            self.covered[index] += other.covered[index];
        }
        self.absolute_error += other.absolute_error;
        self.demand += other.demand;
        self.n += other.n;
    }

    /// Mean pinball loss over levels and steps, in the unit of demand. `None` when nothing was scored.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub fn mean_loss(&self) -> Option<f64> {
        (self.n > 0).then(|| self.losses.iter().sum::<f64>() / (LEVELS.len() as u64 * self.n) as f64)
    }

    /// What the sums say.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub fn score(&self) -> Score {
        let some = self.demand > 0.0;
        Score {
            wql: some.then(|| 2.0 * self.losses.iter().sum::<f64>() / LEVELS.len() as f64 / self.demand),
            wape: some.then(|| self.absolute_error / self.demand),
            coverage: if self.n == 0 { Vec::new() } else { self.covered.iter().map(|c| *c as f64 / self.n as f64).collect() },
            n: self.n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example of the public benchmark: 41 steps of 10 and 6 of 12 against one row.
    #[test]
    fn agrees_with_the_worked_example() {
        let row = [8.0, 8.0, 9.0, 10.0, 11.0, 11.0, 11.5, 12.0];
        let mut tally = Tally::default();
        for _ in 0..41 {
            tally.add(&row, 10.0);
        }
        for _ in 0..6 {
            tally.add(&row, 12.0);
        }
        let score = tally.score();
        assert!((score.wql.unwrap() - 2.0 * (41.0 * 0.995 + 6.0 * 4.475) / 8.0 / 482.0).abs() < 1e-12);
        assert!((score.wape.unwrap() - 12.0 / 482.0).abs() < 1e-12);
        assert!((score.coverage[6] - 41.0 / 47.0).abs() < 1e-12);
        assert!((score.coverage[7] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_is_no_score() {
        let mut tally = Tally::default();
        tally.add(&[0.0; 8], f64::NAN);
        tally.add(&[0.0; 3], 1.0);
        assert_eq!(tally.score(), Score { wql: None, wape: None, coverage: Vec::new(), n: 0 });
        tally.add(&[0.0; 8], 0.0);
        assert_eq!(tally.score().wql, None);
    }
}
