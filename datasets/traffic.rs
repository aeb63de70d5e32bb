//! Arrivals minute by minute, from a trace or a shape: what a simulated world is fed with.

use crate::minutes::{Known, Minutes};
use crate::shape::Burst;
use crate::{DatasetError, Record};
use fleet::{Series, Span, Timestamp, WorkloadId};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// Minutes of a recording that is held whole, at most: sixteen years.
const MINUTES_MAX: usize = 1 << 23;

/// Size of a request.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Tokens {
    /// Prompt tokens per request.
    pub input: f64,
    /// Generated tokens per request.
    pub output: f64,
    /// Share of prompt tokens found in the prefix cache.
    pub prefix_hit_rate: f64,
}

/// One minute of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Minute {
    /// Requests that arrive, per second.
    pub arrivals_per_s: f64,
    /// Their size.
    pub tokens: Tokens,
}

/// What users ask of one workload, minute by minute.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Traffic {
    /// Whose.
    pub workload: WorkloadId,
    /// Start of the first minute.
    pub start: Timestamp,
    /// One a minute; `None` where the trace is missing, which is never zero.
    pub minutes: Vec<Option<Minute>>,
}

impl Traffic {
    /// Length of a step.
    pub const STEP: Span = Span::MINUTE;

    /// Rates minute by minute, all requests of one size.
    #[must_use]
    pub fn new(workload: WorkloadId, start: Timestamp, rates: Vec<f64>, tokens: Tokens) -> Self {
        Self { workload, start, minutes: rates.into_iter().map(|arrivals_per_s| Some(Minute { arrivals_per_s, tokens })).collect() }
    }

    /// A series of rates, requests/s, times `scale`, spread over the minutes of each of its steps with gamma factors of coefficient of
    /// variation `minute_cv`, so that every step keeps its total. A gap of the series stays one. Steps shorter than a minute, or a part of
    /// one, are rounded down to whole minutes.
    #[must_use]
    pub fn from_rates(workload: WorkloadId, rates: &Series, scale: f64, tokens: Tokens, minute_cv: f64, seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let burst = Burst::new(minute_cv);
        let per_step = usize::try_from(rates.step.0 / Self::STEP.0).unwrap_or(0);
        let mut minutes = Vec::with_capacity(rates.values.len() * per_step);
        for rate in &rates.values {
            // Drawn for gaps too: a lost record does not change what comes after.
            let factors: Vec<f64> = (0..per_step).map(|_| burst.draw(&mut rng)).collect();
            let mean = factors.iter().sum::<f64>() / factors.iter().map(|_| 1.0).sum::<f64>();
            minutes.extend(factors.iter().map(|f| rate.map(|r| Minute { arrivals_per_s: r * scale * f / mean, tokens })));
        }
        Self { workload, start: rates.start, minutes }
    }

    /// The records of a trace, minute by minute; a pause between single requests longer than `silence_max` is a gap, and so is a minute of which
    /// less than half is known. A minute without requests, or without their sizes, has the size of the one before; the first have `tokens`.
    ///
    /// # Errors
    /// The trace's first fault; and a trace longer than 8 million minutes is refused as one.
    pub fn from_records(
        workload: WorkloadId,
        records: impl Iterator<Item = Result<Record, DatasetError>>,
        silence_max: Option<Span>,
        tokens: Tokens,
    ) -> Result<Self, DatasetError> {
        let mut traffic = Self { workload, start: Timestamp(0), minutes: Vec::new() };
        let (mut minutes, mut size) = (Minutes::new(silence_max), tokens);
        for record in records {
            let known = minutes.take(&record?, Span::ZERO);
            traffic.extend(known, &mut size)?;
        }
        traffic.extend(minutes.finish(), &mut size)?;
        Ok(traffic)
    }

    fn extend(&mut self, known: Known, size: &mut Tokens) -> Result<(), DatasetError> {
        for (at, sums) in known {
            if self.minutes.is_empty() {
                self.start = at;
            }
            let gap = usize::try_from(at.since(self.end()).0 / Self::STEP.0).unwrap_or(usize::MAX);
            if gap.saturating_add(self.minutes.len()) >= MINUTES_MAX {
                return Err(DatasetError::Window(at.since(self.start)));
            }
            self.minutes.extend(std::iter::repeat_n(None, gap));
            let tokens = Tokens {
                input: sums.input.get().unwrap_or(size.input),
                output: sums.output.get().unwrap_or(size.output),
                prefix_hit_rate: sums.cached.get().unwrap_or(size.prefix_hit_rate),
            };
            *size = tokens;
            let known = sums.seconds() * 2.0 >= Self::STEP.as_secs_f64();
            self.minutes.push(known.then(|| Minute { arrivals_per_s: sums.requests / sums.seconds(), tokens }));
        }
        Ok(())
    }

    /// First instant after the last minute.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.start + Span::minutes(i64::try_from(self.minutes.len()).unwrap_or(0))
    }

    /// The minute that holds `at`, when there is one and it is known.
    #[must_use]
    pub fn at(&self, at: Timestamp) -> Option<&Minute> {
        let index = usize::try_from((at.0 - self.start.0).div_euclid(Self::STEP.0)).ok()?;
        self.minutes.get(index)?.as_ref()
    }

    /// Mean rate by hour of the clock, requests/s; an hour with a missing minute is missing. `start` must be a full hour.
    #[must_use]
    pub fn hourly(&self) -> Series {
        let hour = |minutes: &[Option<Minute>]| {
            let rates: Option<Vec<f64>> = minutes.iter().map(|m| m.map(|m| m.arrivals_per_s)).collect();
            rates.map(|r| r.iter().sum::<f64>() / r.iter().map(|_| 1.0).sum::<f64>())
        };
        Series { start: self.start, step: Span::HOUR, values: self.minutes.chunks(60).map(hour).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    const TOKENS: Tokens = Tokens { input: 900.0, output: 250.0, prefix_hit_rate: 0.3 };

    fn name() -> WorkloadId {
        WorkloadId::new("chat").unwrap()
    }

    #[test]
    fn a_replayed_series_keeps_totals_and_gaps() {
        let rates = Series::new(Timestamp(0), Span(600), vec![Some(4.0), None, Some(0.0), Some(10.0)]).unwrap();
        let traffic = Traffic::from_rates(name(), &rates, 0.5, TOKENS, 0.3, 7);
        assert_eq!((traffic.minutes.len(), traffic.end()), (40, Timestamp(2_400)));
        let total = |k: usize| traffic.minutes[k * 10..(k + 1) * 10].iter().flatten().map(|m| m.arrivals_per_s).sum::<f64>();
        assert!((total(0) - 20.0).abs() < 1e-9 && total(2).abs() < 1e-12 && (total(3) - 50.0).abs() < 1e-9);
        assert!(traffic.minutes[10..20].iter().all(Option::is_none) && traffic.at(Timestamp(700)).is_none());
        assert_ne!(traffic.minutes[0], traffic.minutes[1]);
        assert_eq!(traffic, Traffic::from_rates(name(), &rates, 0.5, TOKENS, 0.3, 7));
        assert_ne!(traffic, Traffic::from_rates(name(), &rates, 0.5, TOKENS, 0.3, 8));
    }

    #[test]
    fn single_requests_are_counted_by_minute() {
        let request = |s, tokens| Ok(Record::Request(Request { input_tokens: Some(tokens), ..Request::at(Timestamp(s), 0.5) }));
        let records = [request(60, 10.0), request(119, 30.0), request(240, 5.0), request(600, 5.0), request(640, 5.0)];
        let traffic = Traffic::from_records(name(), records.into_iter(), Some(Span::minutes(3)), TOKENS).unwrap();
        assert_eq!((traffic.start, traffic.minutes.len()), (Timestamp(60), 10));
        let minute = traffic.at(Timestamp(61)).unwrap();
        assert!((minute.arrivals_per_s - 2.0 / 60.0).abs() < 1e-12 && (minute.tokens.input - 20.0).abs() < 1e-12);
        assert!((minute.tokens.output - 250.0).abs() < 1e-12);
        // Two idle minutes; five after the pause that was too long.
        assert!(traffic.at(Timestamp(121)).unwrap().arrivals_per_s.abs() < 1e-12);
        assert!(traffic.at(Timestamp(300)).is_none() && traffic.at(Timestamp(599)).is_none());
        // The last minute is known for 41 seconds.
        assert!((traffic.at(Timestamp(600)).unwrap().arrivals_per_s - 2.0 / 41.0).abs() < 1e-12);
        assert_eq!(Traffic::from_records(name(), std::iter::empty(), None, TOKENS).unwrap().minutes.len(), 0);
    }

    #[test]
    fn an_hour_with_a_missing_minute_is_missing() {
        let mut traffic = Traffic::new(name(), Timestamp(0), vec![2.0; 120], TOKENS);
        traffic.minutes[70] = None;
        assert_eq!(traffic.hourly().values, [Some(2.0), None]);
    }
}
