//! Windows on an hourly grid.

use fleet::{Series, Span, Timestamp, WorkloadId, WorkloadWindow};

/// Share of an hour that must have been observed for its value to be known.
const OBSERVED_SHARE_MIN: f64 = 0.5;

/// One value of a workload, hour by hour from the hour that holds `from` to the last one that begins before `to`.
///
/// The value of an hour is the mean of what `pick` takes from its windows, weighted by the time each shares with the hour and by how
/// completely it was observed. It is known when at least half of the hour was observed; windows in which `pick` finds nothing (no tokens per
/// request without requests) count as observed but not in the mean. Rates are not scaled here: windows already hold the demand of silent
/// targets.
pub fn hourly(windows: &[WorkloadWindow], workload: &WorkloadId, from: Timestamp, to: Timestamp, pick: impl Fn(&WorkloadWindow) -> Option<f64>) -> Series {
    let start = from.hour();
    let hours = usize::try_from((to.0 - start.0 + Span::HOUR.0 - 1) / Span::HOUR.0).unwrap_or(0);
    // (seconds observed, weight of the mean, weighted sum) of each hour.
    let mut sums = vec![(0.0, 0.0, 0.0); hours];
    for window in windows.iter().filter(|window| &window.workload == workload && window.completeness > 0.0) {
        let end = window.start + window.length;
        let value = pick(window).filter(|value| value.is_finite());
        let first = window.start.hour().max(start);
        let mut hour = first;
        while hour < end {
            let index = usize::try_from((hour.0 - start.0) / Span::HOUR.0).unwrap_or(usize::MAX);
            let Some((observed, weight, sum)) = sums.get_mut(index) else { break };
            let seconds = end.min(hour + Span::HOUR).since(window.start.max(hour)).as_secs_f64() * window.completeness.min(1.0);
            *observed += seconds;
            if let Some(value) = value {
                *weight += seconds;
                *sum += seconds * value;
            }
            hour = hour + Span::HOUR;
        }
    }
    // A thousandth of a second is forgiven to the rounding of sums.
    let known = OBSERVED_SHARE_MIN * Span::HOUR.as_secs_f64() - 1e-3;
    let values = sums.into_iter().map(|(observed, weight, sum)| (observed >= known && weight > 0.0).then(|| sum / weight)).collect();
    Series { start, step: Span::HOUR, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(start: i64, length: i64, arrivals: Option<f64>, completeness: f64) -> WorkloadWindow {
        WorkloadWindow { arrivals_per_s: arrivals, completeness, ..WorkloadWindow::unknown(WorkloadId::new("chat").unwrap(), Timestamp(start), Span(length)) }
    }

    #[test]
    fn hours_are_weighted_means_and_gaps_stay_gaps() {
        let windows = [
            // Hour 0: 2/s for 45 minutes, 6/s for the last 15.
            window(0, 2_700, Some(2.0), 1.0),
            // Reaches into hour 1 by 45 minutes.
            window(2_700, 3_600, Some(6.0), 1.0),
            // Hour 2: observed for a quarter only. Hour 3: nothing. Hour 4: a silent source.
            window(7_200, 900, Some(9.0), 1.0),
            window(14_400, 3_600, None, 0.0),
            // Hour 5: two targets, one silent, held.
            window(18_000, 3_600, Some(4.0), 0.5),
        ];
        let chat = WorkloadId::new("chat").unwrap();
        let series = hourly(&windows, &chat, Timestamp(10), Timestamp(6 * 3_600), |w| w.arrivals_per_s);
        assert_eq!((series.start, series.step), (Timestamp(0), Span::HOUR));
        assert_eq!(series.values, [Some(3.0), Some(6.0), None, None, None, Some(4.0)]);
        let other = hourly(&windows, &WorkloadId::new("ocr").unwrap(), Timestamp(0), Timestamp(3_600), |w| w.arrivals_per_s);
        assert_eq!(other.values, [None]);
    }

    #[test]
    fn an_idle_hour_is_zero_arrivals_and_no_lengths() {
        let chat = WorkloadId::new("chat").unwrap();
        let windows = [window(0, 3_600, Some(0.0), 1.0)];
        assert_eq!(hourly(&windows, &chat, Timestamp(0), Timestamp(3_600), |w| w.arrivals_per_s).values, [Some(0.0)]);
        assert_eq!(hourly(&windows, &chat, Timestamp(0), Timestamp(3_600), |w| w.input_tokens).values, [None]);
    }
}
