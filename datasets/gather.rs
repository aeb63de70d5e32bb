//! Records gathered into the windows of a workload's history.

use crate::minutes::{Known, Mean, MinuteSums, Minutes};
use crate::{DatasetError, Record};
use fleet::{Span, Timestamp, WorkloadId, WorkloadWindow};
use serde::Serialize;

/// How records become windows.
#[derive(Debug, Clone, PartialEq)]
pub struct GatherOptions {
    /// Whose windows they are.
    pub workload: WorkloadId,
    /// Length of a window: whole minutes. Windows begin at multiples of it since the epoch.
    pub length: Span,
    /// Factor on the number of requests.
    pub scale: f64,
    /// Added to every instant.
    pub shift: Span,
    /// A pause between single requests longer than this is a lost record, not idleness; see [`crate::Description::silence_max`].
    pub silence_max: Option<Span>,
}

/// What was gathered so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Gathered {
    /// Rows taken.
    pub records: u64,
    /// Requests in them, before scaling.
    pub requests: f64,
    /// Windows made.
    pub windows: u64,
    /// First instant known, moved.
    pub first: Option<Timestamp>,
    /// Last instant known, moved.
    pub last: Option<Timestamp>,
    /// Stretches between them of which nothing is known.
    pub gaps: u64,
    /// Seconds in them.
    pub gap_s: i64,
    /// Rows left out for coming too late.
    pub late: u64,
}

/// The bookkeeping from records to windows. What the record does not show stays unknown: there is no window where nothing is known, and one
/// known in part says so by its completeness.
#[derive(Debug, Clone)]
pub struct Gather {
    options: GatherOptions,
    minutes: Minutes,
    window: Option<(Timestamp, Sums)>,
    told: Gathered,
}

/// A window in the making.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    seconds: f64,
    requests: f64,
    peak: Option<f64>,
    input: Mean,
    output: Mean,
    cached: Mean,
}

impl Gather {
    /// Nothing gathered yet.
    ///
    /// # Errors
    /// When the length of a window is not a positive number of whole minutes, or the scale is not a positive number.
    pub fn new(options: GatherOptions) -> Result<Self, DatasetError> {
        if options.length < Span::MINUTE || options.length > Span::DAY || options.length.0 % 60 != 0 {
            return Err(DatasetError::Window(options.length));
        }
        if !(options.scale > 0.0 && options.scale.is_finite()) {
            return Err(DatasetError::Scale(options.scale));
        }
        Ok(Self { minutes: Minutes::new(options.silence_max), options, window: None, told: Gathered::default() })
    }

    /// What was gathered so far.
    #[must_use]
    pub fn told(&self) -> Gathered {
        Gathered { late: self.minutes.late, ..self.told }
    }

    /// Takes a record and gives back the windows that are now complete, in order of time.
    pub fn take(&mut self, record: &Record) -> Vec<WorkloadWindow> {
        self.told.records += 1;
        self.told.requests += match record {
            Record::Request(_) => 1.0,
            Record::Count(count) => count.requests,
        };
        let known = self.minutes.take(record, self.options.shift);
        self.book(known)
    }

    /// Gives back the rest.
    pub fn finish(&mut self) -> Vec<WorkloadWindow> {
        let known = self.minutes.finish();
        let mut out = self.book(known);
        out.extend(self.window.take().map(|(start, sums)| self.close(start, sums)));
        out
    }

    fn book(&mut self, known: Known) -> Vec<WorkloadWindow> {
        let mut out = Vec::new();
        for (minute, sums) in known {
            let end = minute + Span::MINUTE;
            self.told.first.get_or_insert(minute);
            if let Some(pause) = self.told.last.replace(end).map(|last| minute.since(last)).filter(|p| *p > Span::ZERO) {
                self.told.gaps += 1;
                self.told.gap_s += pause.0;
            }
            let start = minute.floor(self.options.length);
            match &mut self.window {
                Some((at, window)) if *at == start => window.add(&sums, &self.options),
                open => {
                    let mut window = Sums::default();
                    window.add(&sums, &self.options);
                    let closed = open.replace((start, window));
                    out.extend(closed.map(|(start, sums)| self.close(start, sums)));
                }
            }
        }
        out
    }

    fn close(&mut self, start: Timestamp, sums: Sums) -> WorkloadWindow {
        self.told.windows += 1;
        let length = self.options.length;
        WorkloadWindow {
            arrivals_per_s: (sums.seconds > 0.0).then(|| sums.requests / sums.seconds * self.options.scale),
            peak_per_s: sums.peak.map(|peak| peak * self.options.scale),
            input_tokens: sums.input.get(),
            output_tokens: sums.output.get(),
            prefix_hit_rate: sums.cached.get(),
            completeness: (sums.seconds / length.as_secs_f64()).min(1.0),
            ..WorkloadWindow::unknown(self.options.workload.clone(), start, length)
        }
    }
}

impl Sums {
    fn add(&mut self, minute: &MinuteSums, options: &GatherOptions) {
        self.seconds += minute.seconds();
        self.requests += minute.requests;
        // Counts of intervals as long as the window show no peak inside it.
        if minute.is_whole() && (minute.resolution <= Span::MINUTE || minute.resolution < options.length) {
            let rate = minute.requests / Span::MINUTE.as_secs_f64();
            self.peak = Some(self.peak.map_or(rate, |peak| peak.max(rate)));
        }
        self.input.join(minute.input);
        self.output.join(minute.output);
        self.cached.join(minute.cached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Count, Request};
    use proptest::prelude::*;

    fn options(silence_max: Option<Span>) -> GatherOptions {
        GatherOptions { workload: WorkloadId::new("chat").unwrap(), length: Span::minutes(5), scale: 1.0, shift: Span::ZERO, silence_max }
    }

    fn gather(options: GatherOptions, records: &[Record]) -> (Vec<WorkloadWindow>, Gathered) {
        let mut gather = Gather::new(options).unwrap();
        let mut windows: Vec<WorkloadWindow> = records.iter().flat_map(|r| gather.take(r)).collect();
        windows.extend(gather.finish());
        (windows, gather.told())
    }

    fn request(at: i64) -> Record {
        Record::Request(Request { input_tokens: Some(100.0), cached_tokens: Some(25.0), ..Request::at(Timestamp(at), 0.0) })
    }

    fn count(start: i64, length: i64, requests: f64) -> Record {
        Record::Count(Count { start: Timestamp(start), length: Span(length), requests, input_tokens: None, output_tokens: None, model: None })
    }

    #[test]
    fn idle_minutes_are_zero_and_a_long_pause_is_a_gap() {
        // A request every minute for ten minutes, three idle ones, then silence for an hour.
        let mut records: Vec<Record> = (0..10).map(|m| request(m * 60)).collect();
        records.extend([request(13 * 60), request(14 * 60 + 59), request(80 * 60), request(84 * 60 + 59)]);
        let (windows, told) = gather(options(Some(Span::minutes(10))), &records);
        let seen: Vec<(i64, f64, f64)> = windows.iter().map(|w| (w.start.0 / 60, w.arrivals_per_s.unwrap() * 300.0, w.completeness)).collect();
        assert_eq!(seen, [(0, 5.0, 1.0), (5, 5.0, 1.0), (10, 2.0, 1.0), (80, 2.0, 1.0)]);
        assert_eq!((told.gaps, told.gap_s, told.records, told.windows), (1, 65 * 60, 14, 4));
        assert_eq!((windows[0].input_tokens, windows[0].prefix_hit_rate, windows[0].output_tokens), (Some(100.0), Some(0.25), None));
        // The same log of a service with long nights.
        let (windows, told) = gather(options(Some(Span::hours(2))), &records);
        assert_eq!((windows.len(), told.gaps, windows[7].arrivals_per_s), (17, 0, Some(0.0)));
    }

    #[test]
    fn the_ends_of_a_log_are_known_in_part() {
        let (windows, _) = gather(options(Some(Span::HOUR)), &[request(150), request(300), request(389)]);
        assert!((windows[0].completeness - 0.5).abs() < 1e-12 && (windows[0].arrivals_per_s.unwrap() - 1.0 / 150.0).abs() < 1e-12);
        assert!((windows[1].completeness - 0.3).abs() < 1e-12);
        assert_eq!(windows[1].peak_per_s, Some(1.0 / 60.0));
    }

    #[test]
    fn a_missing_count_is_a_gap_and_a_zero_is_none() {
        let (windows, told) = gather(options(None), &[count(0, 60, 30.0), count(120, 60, 0.0), count(600, 600, 60.0)]);
        assert!((windows[0].completeness - 0.4).abs() < 1e-12 && (windows[0].arrivals_per_s.unwrap() - 0.25).abs() < 1e-12);
        assert_eq!((windows[0].peak_per_s, windows[1].peak_per_s), (Some(0.5), None));
        assert_eq!((windows.len(), windows[1].start, windows[1].arrivals_per_s, told.gaps), (3, Timestamp(600), Some(0.1), 2));
        // Rows of two models cover the same time once.
        let (windows, _) = gather(options(None), &[count(0, 300, 30.0), count(0, 300, 60.0)]);
        assert_eq!((windows[0].completeness, windows[0].arrivals_per_s), (1.0, Some(0.3)));
    }

    #[test]
    fn what_makes_no_window_is_refused() {
        for length in [0, 30, 90, 90_000] {
            let message = Gather::new(GatherOptions { length: Span(length), ..options(None) }).unwrap_err().to_string();
            assert!(message.contains("whole minutes"), "{message}");
        }
        assert!(Gather::new(GatherOptions { scale: f64::NAN, ..options(None) }).is_err());
    }

    proptest! {
        /// Whatever the order within an hour, no request is lost and none is made up.
        #[test]
        fn requests_are_kept(times in proptest::collection::vec(0_i64..3_600, 1..200), silence in 1_i64..120, shift in -100_000_i64..100_000) {
            let records: Vec<Record> = times.iter().map(|t| request(*t + 200_000)).collect();
            let (windows, told) = gather(GatherOptions { shift: Span(shift), ..options(Some(Span::minutes(silence))) }, &records);
            let total: f64 = windows.iter().map(|w| w.arrivals_per_s.unwrap() * w.completeness * 300.0).sum();
            prop_assert!((total - told.requests).abs() < 1e-6, "{total} of {}", told.requests);
            prop_assert_eq!(told.late, 0);
            prop_assert!(windows.windows(2).all(|w| w[0].start < w[1].start));
            prop_assert!(windows.iter().all(|w| w.completeness > 0.0 && w.completeness <= 1.0));
        }
    }
}
