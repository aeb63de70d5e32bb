//! What is left of observations once they are summed up: raw -> one minute -> one hour. One definition for every back end.

use fleet::{MemberId, Observation, Signal, Span, TargetId, Timestamp};
use std::borrow::Borrow;

/// How finely observations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resolution {
    /// As they were observed.
    Raw,
    /// Summed up by minutes of UTC.
    Minute,
    /// Summed up by hours of UTC.
    Hour,
}

impl Resolution {
    /// All of them, finest first.
    pub const ALL: [Self; 3] = [Self::Raw, Self::Minute, Self::Hour];

    /// Length of what is summed up; zero for raw observations.
    #[must_use]
    pub fn length(self) -> Span {
        match self {
            Self::Raw => Span::ZERO,
            Self::Minute => Span::MINUTE,
            Self::Hour => Span::HOUR,
        }
    }

    /// The word for it in commands and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }
}

/// The values of one series in one minute or hour. For a counter or a part of a histogram `min`, `max` and `last` are totals: a restart shows
/// as `last < max`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// How many values, at least one.
    pub count: u64,
    /// Their mean, in the signal's unit.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The one observed last.
    pub last: f64,
}

impl Summary {
    /// Of one value.
    #[must_use]
    pub fn one(value: f64) -> Self {
        Self { count: 1, mean: value, min: value, max: value, last: value }
    }

    /// Of finite values in order of the instants they were observed at; nothing of none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<Self> {
        Self::join(values.into_iter().map(|value| Self::one(*value.borrow())))
    }

    /// Of summaries of spans that follow each other; nothing of none. The mean weighs each by its count:
    /// `sum(count_i * mean_i) / sum(count_i)`.
    #[must_use]
    pub fn join(parts: impl IntoIterator<Item = impl Borrow<Self>>) -> Option<Self> {
        let mut parts = parts.into_iter();
        let mut sum = Sum::begin(*parts.next()?.borrow());
        parts.for_each(|part| sum.add(*part.borrow()));
        Some(sum.summary())
    }
}

/// A summary while it is being made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    so_far: Summary,
    /// Of `count * mean`.
    total: f64,
    /// The same scaled down: near the largest number a sum may overflow where its mean does not.
    scaled: f64,
}

/// A power of two: scaling by it is exact. Sums of up to 2^64 values cannot overflow once scaled.
const SCALE: f64 = 1.0 / 18_446_744_073_709_551_616.0;

impl Sum {
    pub(crate) fn begin(first: Summary) -> Self {
        let mut sum = Self { so_far: Summary { count: 0, ..first }, total: 0.0, scaled: 0.0 };
        sum.add(first);
        sum
    }

    pub(crate) fn add(&mut self, part: Summary) {
        let so_far = &mut self.so_far;
        so_far.count += part.count;
        (so_far.min, so_far.max, so_far.last) = (so_far.min.min(part.min), so_far.max.max(part.max), part.last);
        self.total += part.mean * weight(part.count);
        self.scaled += part.mean * SCALE * weight(part.count);
    }

    pub(crate) fn summary(&self) -> Summary {
        let count = weight(self.so_far.count);
        let mean = self.total / count;
        let mean = if mean.is_finite() { mean } else { self.scaled / count / SCALE };
        Summary { mean: mean.clamp(self.so_far.min, self.so_far.max), ..self.so_far }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an hour holds far fewer than 2^52 values")]
fn weight(count: u64) -> f64 {
    count as f64
}

/// One series summed up over one minute or hour; or, at [`Resolution::Raw`], one observation (`length` zero, `count` one).
#[derive(Debug, Clone, PartialEq)]
pub struct Rollup {
    /// The target it was read from.
    pub source: TargetId,
    /// The engine or GPU of the target, where it tells them apart.
    pub member: Option<MemberId>,
    /// What it is.
    pub signal: Signal,
    /// Part of a histogram, or nothing.
    pub part: Option<String>,
    /// First instant of the minute or hour, a multiple of its length since the epoch.
    pub start: Timestamp,
    /// Its length.
    pub length: Span,
    /// The values in it.
    pub summary: Summary,
}

impl Rollup {
    /// One observation as it is.
    #[must_use]
    pub fn raw(observation: Observation) -> Self {
        let Observation { source, member, signal, part, value, observed, .. } = observation;
        Self { source, member, signal, part, start: observed, length: Span::ZERO, summary: Summary::one(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_sums_up_to_nothing_and_the_largest_numbers_to_a_number() {
        assert_eq!(Summary::of([0.0; 0]), None);
        let huge = Summary::of([f64::MAX, f64::MAX, -f64::MAX]).unwrap();
        assert!((huge.mean / (f64::MAX / 3.0) - 1.0).abs() < 1e-12, "{huge:?}");
        assert_eq!(Summary::of([f64::MAX; 7]), Some(Summary { count: 7, ..Summary::one(f64::MAX) }));
        assert_eq!(Summary::of([4.0, 1.0, 7.0]), Some(Summary { count: 3, mean: 4.0, min: 1.0, max: 7.0, last: 7.0 }));
    }

    proptest! {
        /// However the values are cut into minutes, the hour is the same but for rounding.
        #[test]
        fn joining_parts_is_summing_up_the_whole(values in prop::collection::vec(-1e9..1e9, 1..40), cuts in prop::collection::vec(1_usize..6, 40)) {
            let mut left = values.as_slice();
            let mut parts = Vec::new();
            for cut in cuts {
                let (part, rest) = left.split_at(cut.min(left.len()));
                parts.extend(Summary::of(part.iter().copied()));
                left = rest;
            }
            let (whole, joined) = (Summary::of(values.iter().copied()).unwrap(), Summary::join(parts).unwrap());
            prop_assert_eq!(Summary { mean: 0.0, ..joined }, Summary { mean: 0.0, ..whole });
            prop_assert!((joined.mean - whole.mean).abs() <= 1e-6, "{} and {}", joined.mean, whole.mean);
        }
    }
}
