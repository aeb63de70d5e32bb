//! From what was written to units: each reading notes its own fault and gives nothing then, so that the rest is still looked at.

use crate::{
    duration::milliseconds,
    error::{Code, Findings},
    written::{At, Scalar, WrittenInstant, WrittenLatency, WrittenSize, WrittenSpan},
};
use fleet::{Bytes, IdError, Span, Timestamp};
use std::ops::{Range, RangeInclusive};

/// Longest span accepted: a hundred years. Sums of two instants stay far from overflow.
const SPAN_MAX: Span = Span(100 * 365 * 86_400);

impl Findings<'_> {
    /// A name.
    pub(crate) fn id<T: TryFrom<String, Error = IdError>>(&mut self, at: &At<String>) -> Option<T> {
        match T::try_from(at.get().clone()) {
            Ok(id) => Some(id),
            Err(error) => {
                self.refuse(
                    Code::Number,
                    at.span(),
                    error.to_string(),
                    "not a usable name",
                    "use up to 128 bytes, no white space at the ends, no control characters",
                );
                None
            }
        }
    }

    /// Notes a second thing of the same name.
    pub(crate) fn duplicate(&mut self, span: Range<usize>, what: &str, name: &str) {
        self.refuse(Code::Duplicate, span, format!("{what} {name:?} is listed twice"), "second of that name", "give one of them another name, or remove it");
    }

    /// A whole number.
    pub(crate) fn count(&mut self, at: &At<i64>, key: &str, min: i64, max: i64) -> Option<u32> {
        let value = *at.get();
        if (min..=max).contains(&value)
            && let Ok(count) = u32::try_from(value)
        {
            return Some(count);
        }
        self.refuse(Code::Number, at.span(), format!("{key} is {value}"), outside(value < min), format!("{key} must lie between {min} and {max}"));
        None
    }

    /// A number inside a range; not a number is outside of every range.
    pub(crate) fn number(&mut self, at: &At<f64>, key: &str, allowed: RangeInclusive<f64>) -> Option<f64> {
        let value = *at.get();
        if value.is_finite() && allowed.contains(&value) {
            return Some(value);
        }
        let (min, max) = (allowed.start(), allowed.end());
        let help = if *max >= f64::MAX { format!("{key} must be {min} or more") } else { format!("{key} must lie between {min} and {max}") };
        self.refuse(Code::Number, at.span(), format!("{key} is {value}"), outside(value < *min), help);
        None
    }

    /// A number above zero.
    pub(crate) fn positive(&mut self, at: &At<f64>, key: &str) -> Option<f64> {
        self.above_zero(at, key, f64::MAX)
    }

    /// A number above zero and not above `max`.
    pub(crate) fn above_zero(&mut self, at: &At<f64>, key: &str, max: f64) -> Option<f64> {
        let value = *at.get();
        if 0.0 < value && value <= max && value.is_finite() {
            return Some(value);
        }
        let help = if max >= f64::MAX { format!("{key} must be above 0") } else { format!("{key} must be above 0 and at most {max}") };
        self.refuse(Code::Number, at.span(), format!("{key} is {value}"), outside(value <= 0.0), help);
        None
    }

    /// A size above zero.
    pub(crate) fn size(&mut self, at: &At<WrittenSize>, key: &str) -> Option<Bytes> {
        let Scalar { text, .. } = &at.get().0;
        match text.parse::<Bytes>() {
            Ok(Bytes(0)) => {
                self.refuse(Code::Number, at.span(), format!("{key} is {text}"), "must be above 0", "write what one GPU holds, such as \"60GiB\"");
                None
            }
            Ok(size) => Some(size),
            Err(_) if is_number(text) => {
                let help = format!("write \"{text}GiB\" (1024^3 bytes each) or \"{text}GB\" (1000^3 bytes each)");
                self.refuse(Code::Size, at.span(), format!("{key} is {text}, without a unit"), "which unit?", help);
                None
            }
            Err(error) => {
                self.refuse(Code::Size, at.span(), format!("{key}: {error}"), "not a size", "units are KiB, MiB, GiB, TiB, kB, MB, GB, TB");
                None
            }
        }
    }

    /// A span between two limits.
    pub(crate) fn span(&mut self, at: &At<WrittenSpan>, key: &str, min: Span, max: Span) -> Option<Span> {
        let Scalar { text, .. } = &at.get().0;
        let Ok(span) = text.parse::<Span>() else {
            self.no_duration(at.span(), key, text, "units are s, m, h, d (24 hours), such as \"90s\" or \"2h30m\"");
            return None;
        };
        let max = max.min(SPAN_MAX);
        if (min..=max).contains(&span) {
            return Some(span);
        }
        self.refuse(Code::Number, at.span(), format!("{key} is {text}"), outside(span < min), format!("{key} must lie between {min} and {max}"));
        None
    }

    /// A latency in milliseconds.
    pub(crate) fn latency_ms(&mut self, at: &At<WrittenLatency>, key: &str, zero_too: bool) -> Option<f64> {
        let Scalar { text, .. } = &at.get().0;
        let Some(ms) = milliseconds(text) else {
            self.no_duration(at.span(), key, text, "units are ms, s, m, h, such as \"80ms\" or \"1.5s\"");
            return None;
        };
        if ms > 0.0 || zero_too {
            return Some(ms);
        }
        self.refuse(Code::Number, at.span(), format!("{key} is {text}"), "must be above 0", format!("{key} must be above 0"));
        None
    }

    fn no_duration(&mut self, span: Range<usize>, key: &str, text: &str, units: &str) {
        if text.starts_with('-') {
            self.refuse(Code::Number, span, format!("{key} is {text}"), "negative", format!("{key} must not be negative; {units}"));
        } else if is_number(text) {
            self.refuse(Code::Duration, span, format!("{key} is {text}, without a unit"), "which unit?", format!("write \"{text}s\" or \"{text}m\"; {units}"));
        } else {
            self.refuse(Code::Duration, span, format!("{key}: {text:?} is not a duration"), "not a duration", units);
        }
    }

    /// An instant.
    pub(crate) fn instant(&mut self, at: &At<WrittenInstant>, key: &str) -> Option<Timestamp> {
        let Scalar { text, .. } = &at.get().0;
        let instant = text.parse().ok();
        if instant.is_none() {
            let message = format!("{key}: {text:?} is not an instant");
            self.refuse(Code::Instant, at.span(), message, "date, time and offset", "write it as 2026-12-01T08:00:00Z or 2026-12-01T09:00:00+01:00");
        }
        instant
    }
}

fn outside(below: bool) -> &'static str {
    if below { "too small" } else { "too large" }
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
}
