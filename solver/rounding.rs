//! Whole numbers come back from a solver within a tolerance, never exactly.

/// Distance from a whole number up to which a value is taken for it: `HiGHS` promises 1e-6; presolve may lose a digit.
const TOLERANCE: f64 = 1e-5;

/// The whole number `value` stands for; `None` when it stands for none, which is never rounded.
pub(crate) fn whole(value: f64) -> Option<f64> {
    let rounded = value.round();
    // `+ 0.0` turns a negative zero into zero.
    ((value - rounded).abs() <= TOLERANCE).then_some(rounded + 0.0)
}

#[cfg(test)]
mod tests {
    use super::whole;

    /// Field case 59: values within tolerance are rounded, not cut; others are refused.
    #[test]
    fn almost_whole_is_whole_and_a_half_is_refused() {
        assert_eq!([0.999_999_7, 2.000_000_1, -1e-9].map(whole), [Some(1.0), Some(2.0), Some(0.0)]);
        assert_eq!([0.5, 0.999, f64::NAN, f64::INFINITY].map(whole), [None, None, None, None]);
    }
}
