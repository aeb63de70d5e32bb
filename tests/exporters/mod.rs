//! A synthetic fleet behind Prometheus pages: vLLM servers and DCGM exporters whose counters follow a daily rhythm. Every value is a pure
//! function of time, so that a page read now, a history written for last week, and what a test expects all agree.

pub mod dcgm;
pub mod fleet;
pub mod prometheus;
pub mod serve;
pub mod vllm;

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// Requests per second of a whole service at an instant (seconds since the epoch): a working day's hump between 08:00 and 20:00 UTC over a base
/// of a fifth of it, half as much on Saturdays and Sundays.
#[must_use]
pub fn rate(peak_per_s: f64, at_s: f64) -> f64 {
    let hour = at_s.rem_euclid(DAY_S) / 3_600.0;
    let day = ((at_s / DAY_S).floor() + 4.0).rem_euclid(7.0);
    let weekend = if (1.0..6.0).contains(&day) { 1.0 } else { 0.5 };
    peak_per_s * weekend * (0.2 + 0.8 * hump(hour))
}

/// Requests of a whole service from an instant to another: in each quarter of an hour they come at the rate of its middle.
#[must_use]
pub fn requests(peak_per_s: f64, from_s: f64, to_s: f64) -> f64 {
    counted(peak_per_s, to_s) - counted(peak_per_s, from_s)
}

/// Antiderivative of [`rate`]: whole weeks have the same number, the rest is summed.
fn counted(peak_per_s: f64, at_s: f64) -> f64 {
    const STEP_S: f64 = 900.0;
    const WEEK_S: f64 = 7.0 * DAY_S;
    let week = peak_per_s * WEEK.with(|week| week.last().copied().unwrap_or(0.0));
    let weeks = (at_s / WEEK_S).floor();
    let rest = at_s - weeks * WEEK_S;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "quarters of a week, 0 to 671")]
    let quarter = (rest / STEP_S).floor() as usize;
    let from = weeks * WEEK_S + STEP_S * f64::from(u32::try_from(quarter).unwrap_or(0));
    let inside = (at_s - from) * rate(1.0, from + STEP_S / 2.0);
    weeks * week + peak_per_s * (WEEK.with(|w| w[quarter]) + inside)
}

thread_local! {
    /// Requests since the week began (epoch weeks begin on Thursdays) at each quarter of an hour, for a peak of 1/s.
    static WEEK: Vec<f64> = {
        let mut sums = vec![0.0];
        for quarter in 0..672_u32 {
            let middle = f64::from(quarter) * 900.0 + 450.0;
            sums.push(sums[sums.len() - 1] + 900.0 * rate(1.0, middle));
        }
        sums
    };
}

fn hump(hour: f64) -> f64 {
    if (8.0..20.0).contains(&hour) { (std::f64::consts::PI * (hour - 8.0) / 12.0).sin() } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_never_fall() {
        // Across the beginning of a weekend, where the rate leaps.
        let saturday = 1_795_824_000.0;
        let counts: Vec<f64> = (-120..120).map(|minute| requests(60.0, 1_794_900_000.0, saturday + 60.0 * f64::from(minute))).collect();
        assert!(counts.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn counters_are_the_integral_of_the_rate() {
        for at in [0.0, 1_000_000.5, 1_790_000_123.0] {
            let seconds: f64 = (0..7_200).map(|s| rate(3.0, at + f64::from(s) + 0.5)).sum();
            let counted = requests(3.0, at, at + 7_200.0);
            assert!((seconds - counted).abs() < 0.01 * seconds + 1.0, "{seconds} {counted}");
        }
    }
}
