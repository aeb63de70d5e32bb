//! Time: whole seconds in UTC, spans of them, and the steps a plan is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, ops, str::FromStr};

/// A text that is not a time or a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// Not RFC 3339.
    #[error("{0:?} is not an instant: write it as 2026-12-01T08:00:00Z")]
    Instant(String),
    /// Not a duration with units.
    #[error("{0:?} is not a duration: write a number and a unit, such as 90s, 5m, 2h or 14d")]
    Duration(String),
}

/// An instant, in whole seconds since 1970-01-01T00:00:00Z. JSON: RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Start of the hour that holds this instant.
    #[must_use]
    pub fn hour(self) -> Self {
        self.floor(Span::HOUR)
    }

    /// The last multiple of `step` since the epoch that is not after this instant.
    #[must_use]
    pub fn floor(self, step: Span) -> Self {
        Self(self.0.div_euclid(step.0) * step.0)
    }

    /// Time passed since `earlier`; zero when it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Span {
        Span((self.0 - earlier.0).max(0))
    }

    /// Hour of the day, 0..24, in UTC.
    #[must_use]
    pub fn hour_of_day(self) -> u32 {
        u32::try_from(self.0.rem_euclid(86_400) / 3_600).unwrap_or(0)
    }

    /// Day of the week in UTC, Monday = 0. (1970-01-01 was a Thursday.)
    #[must_use]
    pub fn weekday(self) -> u32 {
        u32::try_from((self.0.div_euclid(86_400) + 3).rem_euclid(7)).unwrap_or(0)
    }

    /// `HH:MM` in UTC.
    #[must_use]
    pub fn clock(self) -> String {
        let second = self.0.rem_euclid(86_400);
        format!("{:02}:{:02}", second / 3600, second / 60 % 60)
    }

    fn to_jiff(self) -> Option<jiff::Timestamp> {
        jiff::Timestamp::from_second(self.0).ok()
    }
}

impl ops::Add<Span> for Timestamp {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0 + span.0)
    }
}

impl ops::Sub<Span> for Timestamp {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0 - span.0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_jiff() {
            Some(instant) => f.pad(&instant.to_string()),
            None => write!(f, "@{}", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = TimeError;
    fn from_str(text: &str) -> Result<Self, TimeError> {
        text.parse::<jiff::Timestamp>().map(|t| Self(t.as_second())).map_err(|_| TimeError::Instant(text.to_owned()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time", "description": "An instant in UTC, whole seconds, RFC 3339." })
    }
}

/// A length of time in whole seconds. JSON: the number of seconds; in configuration files it is written with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Span(pub i64);

impl Span {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// 60 s.
    pub const MINUTE: Self = Self(60);
    /// 3600 s.
    pub const HOUR: Self = Self(3_600);
    /// 86400 s: a day of the calendar in UTC.
    pub const DAY: Self = Self(86_400);

    /// So many minutes.
    #[must_use]
    pub const fn minutes(n: i64) -> Self {
        Self(n * 60)
    }

    /// So many hours.
    #[must_use]
    pub const fn hours(n: i64) -> Self {
        Self(n * 3_600)
    }

    /// In seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "spans are far below 2^52 seconds")]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64
    }

    /// In hours.
    #[must_use]
    pub fn as_hours(self) -> f64 {
        self.as_secs_f64() / 3_600.0
    }

    /// In minutes.
    #[must_use]
    pub fn as_minutes(self) -> f64 {
        self.as_secs_f64() / 60.0
    }
}

impl ops::Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// Units of a written duration, in seconds. A day is 24 hours.
const SPAN_UNITS: [(&str, i64); 4] = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)];

impl FromStr for Span {
    type Err = TimeError;

    /// `90s`, `5m`, `2h30m`, `14d`; never a bare number, never negative.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let refuse = || TimeError::Duration(text.to_owned());
        let mut total = 0_i64;
        let mut rest = text.trim();
        if rest.is_empty() {
            return Err(refuse());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
            let count: i64 = rest[..digits].parse().map_err(|_| refuse())?;
            rest = &rest[digits..];
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (_, scale) = SPAN_UNITS.iter().find(|(name, _)| *name == &rest[..letters]).ok_or_else(refuse)?;
            total = count.checked_mul(*scale).and_then(|s| total.checked_add(s)).ok_or_else(refuse)?;
            rest = rest[letters..].trim_start();
        }
        Ok(Self(total))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (h, m, s) = (self.0 / 3_600, self.0 / 60 % 60, self.0 % 60);
        let text = match (h, m, s) {
            (0, 0, s) => format!("{s}s"),
            (0, m, 0) => format!("{m}m"),
            (0, m, s) => format!("{m}m{s}s"),
            (h, 0, 0) => format!("{h}h"),
            (h, m, 0) => format!("{h}h{m}m"),
            (h, m, s) => format!("{h}h{m}m{s}s"),
        };
        f.pad(&text)
    }
}

/// One step of a plan: `[start, start + length)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// First instant of the step.
    pub start: Timestamp,
    /// Its length.
    pub length: Span,
    /// Integers and named GPUs (true), or counts per pool that may be fractional (false).
    pub committed: bool,
}

impl Step {
    /// First instant after the step.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.start + self.length
    }

    /// Share of the step during which something begun at `ready` is available: in a committed step all or nothing (a cold start is rounded
    /// up to whole steps), in the outlook the part of the step that is left.
    #[must_use]
    pub fn availability(&self, ready: Timestamp) -> f64 {
        if ready <= self.start {
            1.0
        } else if self.committed || ready >= self.end() {
            0.0
        } else {
            self.end().since(ready).as_secs_f64() / self.length.as_secs_f64()
        }
    }
}

/// Lengths of the committed steps, in minutes.
const COMMITTED_MINUTES: [i64; 6] = [5, 5, 10, 10, 30, 60];

/// The steps of a problem: six committed ones from `as_of` (two hours), then hours aligned to the clock until `horizon` has passed. The
/// first of those is shorter or longer than an hour by what the clock asks for (30 to 89 minutes).
#[must_use]
pub fn planning_steps(as_of: Timestamp, horizon: Span) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut at = as_of;
    for minutes in COMMITTED_MINUTES {
        let length = Span::minutes(minutes);
        steps.push(Step { start: at, length, committed: true });
        at = at + length;
    }
    let end = as_of + horizon;
    while at < end {
        let mut next = at.hour() + Span::HOUR;
        if next.since(at) < Span::minutes(30) {
            next = next + Span::HOUR;
        }
        steps.push(Step { start: at, length: next.since(at), committed: false });
        at = next;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_units() {
        assert_eq!("5m".parse(), Ok(Span::minutes(5)));
        assert_eq!("2h30m".parse(), Ok(Span::minutes(150)));
        assert_eq!("14d".parse(), Ok(Span(14 * 86_400)));
        for bad in ["5", "", "-5m", "5 parsecs", "m"] {
            assert!(bad.parse::<Span>().is_err(), "{bad:?}");
        }
        assert_eq!(Span(9_000).to_string(), "2h30m");
    }

    #[test]
    fn instants_round_trip_and_know_their_weekday() {
        let t: Timestamp = "2026-12-01T08:05:09Z".parse().unwrap();
        assert_eq!(t.to_string(), "2026-12-01T08:05:09Z");
        assert_eq!((t.weekday(), t.hour_of_day(), t.clock().as_str()), (1, 8, "08:05"));
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&t).unwrap()).unwrap(), t);
    }

    #[test]
    fn steps_join_without_gaps_and_meet_the_clock() {
        for minute in [0, 5, 25, 31, 59] {
            let as_of = Timestamp(1_700_000_000).hour() + Span::minutes(minute);
            let steps = planning_steps(as_of, Span::hours(24));
            assert_eq!(steps[0].start, as_of);
            assert!(steps.windows(2).all(|w| w[0].end() == w[1].start));
            assert!(steps.iter().skip(7).all(|s| s.start == s.start.hour() && s.length == Span::HOUR));
            assert!(steps.last().unwrap().end() >= as_of + Span::hours(24));
        }
    }

    #[test]
    fn a_cold_start_is_rounded_up_in_committed_steps_and_shared_in_the_outlook() {
        let start = Timestamp(0);
        let step = |committed| Step { start, length: Span::HOUR, committed };
        assert!(step(true).availability(Timestamp(600)).abs() < 1e-12);
        assert!((step(false).availability(Timestamp(600)) - 5.0 / 6.0).abs() < 1e-12);
        assert!((step(true).availability(start) - 1.0).abs() < 1e-12);
    }
}
