//! Instants as traces write them.

use fleet::Timestamp;

/// Last instant accepted: the end of the year 9999.
const SECOND_MAX: i64 = 253_402_300_799;
/// Numbers below this count from the start of the trace: as seconds since 1970 it would be March 1973.
const UNIX_MIN: f64 = 1e8;

/// How a column writes instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// RFC 3339, `T` or a space between date and time. Without a zone it is taken as UTC.
    Rfc3339,
    /// Seconds since 1970.
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
    /// Microseconds since 1970.
    UnixUs,
    /// Nanoseconds since 1970.
    UnixNs,
    /// Seconds from the start of the trace.
    Seconds,
    /// Milliseconds from the start of the trace.
    Milliseconds,
}

impl Clock {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Rfc3339, Self::Unix, Self::UnixMs, Self::UnixUs, Self::UnixNs, Self::Seconds, Self::Milliseconds];

    /// Its name in a mapping.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rfc3339 => "rfc3339",
            Self::Unix => "unix",
            Self::UnixMs => "unix_ms",
            Self::UnixUs => "unix_us",
            Self::UnixNs => "unix_ns",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
        }
    }

    /// Whether it tells dates; else it counts from the start of the trace.
    #[must_use]
    pub fn is_dated(self) -> bool {
        !matches!(self, Self::Seconds | Self::Milliseconds)
    }

    /// What a text is most likely written in: a date, or by the size of the number. Nothing for a text that is neither.
    #[must_use]
    pub fn guess(text: &str) -> Option<Self> {
        let Ok(number) = text.parse::<f64>() else { return Self::Rfc3339.read(text).map(|_| Self::Rfc3339) };
        match number {
            n if !(n.is_finite() && n >= 0.0) => None,
            n if n < UNIX_MIN => Some(Self::Seconds),
            n if n < UNIX_MIN * 1e3 => Some(Self::Unix),
            n if n < UNIX_MIN * 1e6 => Some(Self::UnixMs),
            n if n < UNIX_MIN * 1e9 => Some(Self::UnixUs),
            _ => Some(Self::UnixNs),
        }
    }

    /// The instant a text says, and the part of its second that had passed, 0..1; from the epoch, or from the start of the trace.
    #[must_use]
    pub fn read(self, text: &str) -> Option<(Timestamp, f64)> {
        let per_second = match self {
            Self::Rfc3339 => return dated(text),
            Self::Unix | Self::Seconds => 1,
            Self::UnixMs | Self::Milliseconds => 1_000,
            Self::UnixUs => 1_000_000,
            Self::UnixNs => 1_000_000_000,
        };
        let (second, fraction) = if let Ok(whole) = text.parse::<i64>() {
            (whole.div_euclid(per_second), small(whole.rem_euclid(per_second)) / small(per_second))
        } else {
            let seconds = text.parse::<f64>().ok()? / small(per_second);
            (whole_seconds(seconds)?, seconds.rem_euclid(1.0))
        };
        within(second).then_some((Timestamp(second), fraction))
    }
}

fn dated(text: &str) -> Option<(Timestamp, f64)> {
    let instant = text.parse::<jiff::Timestamp>().ok().or_else(|| {
        let civil: jiff::civil::DateTime = text.parse().ok()?;
        jiff::tz::TimeZone::UTC.to_timestamp(civil).ok()
    })?;
    let second = instant.as_second();
    within(second).then(|| (Timestamp(second), f64::from(instant.subsec_nanosecond()) / 1e9))
}

fn within(second: i64) -> bool {
    (0..=SECOND_MAX).contains(&second)
}

#[expect(clippy::cast_precision_loss, reason = "at most a thousand million")]
fn small(n: i64) -> f64 {
    n as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "below 2^53, checked here")]
fn whole_seconds(seconds: f64) -> Option<i64> {
    (seconds >= 0.0 && seconds <= SECOND_MAX as f64).then(|| seconds.floor() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_instant_in_every_spelling() {
        let at = Timestamp(1_715_299_200);
        for text in [
            "2024-05-10T00:00:00Z",
            "2024-05-10 00:00:00+00:00",
            "2024-05-10 02:00:00.000+02:00",
            "2024-05-10 00:00:00",
            "1715299200",
            "1715299200000",
            "1715299200000000",
            "1715299200000000000",
            "1715299200.0",
        ] {
            let clock = Clock::guess(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(clock.read(text), Some((at, 0.0)), "{text} as {clock:?}");
            assert!(clock.is_dated());
        }
        assert_eq!(Clock::guess("3536999"), Some(Clock::Seconds));
        assert_eq!(Clock::Milliseconds.read("3536999"), Some((Timestamp(3_536), 0.999)));
    }

    #[test]
    fn what_is_no_instant_is_none() {
        for text in ["", "noon", "NaN", "-5", "inf", "2024-13-10 00:00:00", "1e300"] {
            assert!(Clock::guess(text).and_then(|c| c.read(text)).is_none(), "{text:?}");
            assert!(Clock::ALL.iter().all(|c| c.read(text).is_none()), "{text:?}");
        }
    }
}
