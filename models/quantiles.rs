//! The one place where quantiles are put in order and kept from falling below nothing.

use fleet::LEVELS;

/// One step's quantiles, one a level of [`LEVELS`].
pub(crate) type Row = [f64; LEVELS.len()];

/// Index of the median in [`LEVELS`].
pub(crate) const MEDIAN: usize = 3;

/// Sorted and not below zero; `None` when a value is no finite number.
pub(crate) fn sound(mut row: Row) -> Option<Row> {
    if row.iter().any(|value| !value.is_finite()) {
        return None;
    }
    for value in &mut row {
        // Also turns -0.0 into 0.0, which prints differently.
        *value = if *value > 0.0 { *value } else { 0.0 };
    }
    row.sort_by(f64::total_cmp);
    Some(row)
}

/// Every row sound, or nothing.
pub(crate) fn sound_rows(rows: Vec<Row>) -> Option<Vec<Row>> {
    rows.into_iter().map(sound).collect()
}

/// The level a row's corrections are a share of: its median, or the mean of its quantiles where that is larger (an intermittent demand has a
/// median of zero, yet its upper quantiles need correcting too).
#[expect(clippy::cast_precision_loss, reason = "a handful of levels")]
pub(crate) fn level(row: &Row) -> f64 {
    row[MEDIAN].max(row.iter().sum::<f64>() / LEVELS.len() as f64)
}

/// A row from a slice of the right length whose values are usable.
pub(crate) fn row(values: &[f64]) -> Option<Row> {
    Row::try_from(values).ok().filter(|row| row.iter().all(|value| value.is_finite()))
}

/// Empirical quantile of ascending values at `level`, interpolated at `(n + 1) level - 1`: the position at which a further draw from the same
/// source falls below it with probability `level`.
///
/// Returns 0 for no values.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions inside a vector")]
pub(crate) fn empirical(ascending: &[f64], level: f64) -> f64 {
    let Some(last) = ascending.len().checked_sub(1) else { return 0.0 };
    let position = ((ascending.len() + 1) as f64 * level - 1.0).clamp(0.0, last as f64);
    let below = position.floor() as usize;
    let share = position - below as f64;
    let above = (below + 1).min(last);
    ascending[below] + share * (ascending[above] - ascending[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crossing_and_negative_quantiles_are_mended_and_nan_is_refused() {
        let row = sound([-1.0, 3.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
        assert_eq!(row.to_vec(), vec![0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert!(sound([f64::NAN; 8]).is_none());
    }

    #[test]
    fn empirical_quantiles_stay_inside_what_was_seen() {
        let values: Vec<f64> = (0..99).map(f64::from).collect();
        assert!((empirical(&values, 0.5) - 49.0).abs() < 1e-9);
        assert!((empirical(&values, 0.99) - 98.0).abs() < 1e-9);
        assert!(empirical(&[1.0, 2.0], 0.01) >= 1.0);
        assert!(empirical(&[], 0.5).abs() < 1e-12);
    }
}
