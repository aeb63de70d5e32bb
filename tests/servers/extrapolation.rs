//! Prometheus's `rate()` and `increase()`, as its source (`promql/functions.go`, `extrapolatedRate`, release 2.42) has them: what a range of
//! samples shows is stretched to the ends of the range, but by no more than half a spacing where samples are missing there, and never below zero.

/// The increase of a counter over `(at - range_ms, at]` by its samples (milliseconds, value); nothing with fewer than two.
pub fn increase(samples: &[(i64, f64)], at_ms: i64, range_ms: i64) -> Option<f64> {
    let inside: Vec<(i64, f64)> = samples.iter().copied().filter(|(ms, _)| (at_ms - range_ms..=at_ms).contains(ms)).collect();
    let (first, last) = (inside.first()?, inside.last()?);
    if inside.len() < 2 {
        return None;
    }
    let restarts: f64 = inside.windows(2).filter(|pair| pair[1].1 < pair[0].1).map(|pair| pair[0].1).sum();
    let risen = last.1 - first.1 + restarts;
    let seconds = |ms: i64| f64::from(i32::try_from(ms).unwrap()) / 1000.0;
    let sampled = seconds(last.0 - first.0);
    let spacing = sampled / f64::from(i32::try_from(inside.len() - 1).unwrap());
    let mut to_start = seconds(first.0 - (at_ms - range_ms));
    if risen > 0.0 && first.1 >= 0.0 {
        to_start = to_start.min(sampled * first.1 / risen);
    }
    let stretch = |gap: f64| if gap < spacing * 1.1 { gap } else { spacing / 2.0 };
    let stretched = sampled + stretch(to_start) + stretch(seconds(at_ms - last.0));
    Some(risen * stretched / sampled)
}
