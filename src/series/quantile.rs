//! Histograms to quantiles and means.

use fleet::Histogram;

/// The value below which a share `q` (0 to 1) of the values lies, in the unit of the histogram.
///
/// As Prometheus' `histogram_quantile`: values are taken to lie evenly inside a bucket, the first bucket begins at 0 when its bound is
/// positive (else its bound is the answer); a quantile beyond the last finite bound is that bound. Buckets that fall (parts of a page read
/// in between) are raised to the one before. `None` for an empty histogram, one without buckets, or a `q` outside 0..=1, where Prometheus
/// answers NaN or an infinity.
#[must_use]
pub fn quantile(histogram: &Histogram, q: f64) -> Option<f64> {
    let usable = histogram.count > 0.0 && (0.0..=1.0).contains(&q);
    let rank = if usable { q * histogram.count } else { return None };
    let (first, _) = *histogram.buckets.first()?;
    let (mut low, mut below) = (0.0, 0.0_f64);
    for (bound, count) in &histogram.buckets {
        let count = count.max(below);
        if count >= rank && count > 0.0 {
            if low == 0.0 && *bound <= 0.0 && bound.total_cmp(&first).is_eq() {
                return Some(*bound);
            }
            let part = if count > below { (rank - below) / (count - below) } else { 1.0 };
            return Some(low + (bound - low) * part.clamp(0.0, 1.0));
        }
        (low, below) = (*bound, count);
    }
    Some(low)
}

/// The mean: sum over count. `None` without values.
#[must_use]
pub fn mean(histogram: &Histogram) -> Option<f64> {
    (histogram.count > 0.0).then(|| histogram.sum / histogram.count).filter(|mean| mean.is_finite())
}

/// How many values lie at or below `target`, interpolated like [`quantile`]. `None` without buckets.
pub(crate) fn at_or_below(histogram: &Histogram, target: f64) -> Option<f64> {
    let (mut low, mut below) = (0.0, 0.0);
    histogram.buckets.first()?;
    for (bound, count) in &histogram.buckets {
        if target < *bound {
            let part = if *bound > low { ((target - low) / (bound - low)).clamp(0.0, 1.0) } else { 0.0 };
            return Some(below + (count - below).max(0.0) * part);
        }
        (low, below) = (*bound, *count);
    }
    Some(below)
}

/// What was added between two totals. Bounds that only one of them has are left out.
pub(crate) fn difference(total: &Histogram, last: &Histogram) -> Histogram {
    let buckets = total.buckets.iter().filter_map(|(bound, count)| {
        let (_, before) = last.buckets.iter().find(|(other, _)| other.total_cmp(bound).is_eq())?;
        Some((*bound, (count - before).max(0.0)))
    });
    Histogram { sum: (total.sum - last.sum).max(0.0), count: (total.count - last.count).max(0.0), buckets: buckets.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(buckets: &[(f64, f64)], count: f64) -> Histogram {
        Histogram { sum: count, count, buckets: buckets.to_vec() }
    }

    #[test]
    fn in_time_is_interpolated_inside_the_bucket() {
        let h = histogram(&[(0.5, 2.0), (1.0, 10.0)], 12.0);
        for (target, expected) in [(0.25, 1.0), (0.5, 2.0), (0.75, 6.0), (1.0, 10.0), (60.0, 10.0)] {
            assert!((at_or_below(&h, target).unwrap() - expected).abs() < 1e-12, "{target}");
        }
        assert_eq!(at_or_below(&Histogram::default(), 1.0), None);
    }

    /// Expected values worked out by the formula of Prometheus' `histogram_quantile`.
    #[test]
    fn quantiles_are_those_of_prometheus() {
        let h = histogram(&[(0.5, 2.0), (1.0, 10.0)], 12.0);
        for (q, expected) in [(0.0, 0.0), (0.1, 0.3), (0.5, 0.75), (0.75, 0.9375), (0.9, 1.0), (1.0, 1.0)] {
            assert!((quantile(&h, q).unwrap() - expected).abs() < 1e-12, "{q}: {:?}", quantile(&h, q));
        }
        assert_eq!((quantile(&h, 1.1), quantile(&Histogram::default(), 0.5), quantile(&histogram(&[], 4.0), 0.5)), (None, None, None));
        assert_eq!(mean(&h), Some(1.0));
        assert_eq!(mean(&Histogram::default()), None);
    }

    proptest! {
        #[test]
        fn a_quantile_undoes_the_count_below_it(parts in proptest::collection::vec(1_u32..50, 1..8), q in 0.0_f64..1.0) {
            let mut buckets = Vec::new();
            let (mut bound, mut count) = (0.0, 0.0);
            for part in parts {
                bound += 0.5;
                count += f64::from(part);
                buckets.push((bound, count));
            }
            let h = histogram(&buckets, count);
            let value = quantile(&h, q).unwrap();
            prop_assert!((at_or_below(&h, value).unwrap() - q * count).abs() < 1e-6);
        }
    }
}
