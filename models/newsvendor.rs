//! From money to the quantile of load that is planned for.

/// Lowest level planned for: below the median a service would be meant to fall short in most hours.
const LEVEL_MIN: f64 = 0.5;

/// Highest level: forecasts give no quantile beyond it.
const LEVEL_MAX: f64 = 0.99;

/// The newsvendor's critical ratio `c_u / (c_u + c_o)` (Edgeworth 1888; Arrow, Harris and Marschak 1951), clamped to [0.5, 0.99].
///
/// `c_u` is what an hour without one more replica costs when demand would have used it: `shortfall_per_request` (money) times the
/// `3600 capacity_rps` requests it would have served; `c_o` is `holding_per_replica_hour` (money). Where missing and holding are both free,
/// or a figure is no number, the lower or the upper end is returned: nothing says that more is worth it, or an unknown is never free.
#[must_use]
pub fn service_level(shortfall_per_request: f64, capacity_rps: f64, holding_per_replica_hour: f64) -> f64 {
    let under = shortfall_per_request.max(0.0) * capacity_rps.max(0.0) * 3_600.0;
    let over = holding_per_replica_hour.max(0.0);
    if shortfall_per_request.is_nan() || capacity_rps.is_nan() || holding_per_replica_hour.is_nan() || under.is_infinite() || under.is_nan() {
        return LEVEL_MAX;
    }
    if under <= 0.0 {
        return LEVEL_MIN;
    }
    (under / (under + over)).clamp(LEVEL_MIN, LEVEL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_ratio_and_stays_inside_the_clamps() {
        // 0.001 a request, 10 requests/s: 36 an hour against 4 held.
        assert!((service_level(0.001, 10.0, 4.0) - 0.9).abs() < 1e-12);
        assert!((service_level(1.0, 10.0, 4.0) - 0.99).abs() < 1e-12);
        assert!((service_level(0.0, 10.0, 4.0) - 0.5).abs() < 1e-12);
        assert!((service_level(f64::NAN, 10.0, 4.0) - 0.99).abs() < 1e-12);
        assert!((service_level(f64::INFINITY, 0.0, 4.0) - 0.99).abs() < 1e-12);
    }
}
