//! Durations finer than a second, which latencies and step times need.

use fleet::Span;

/// Milliseconds of a written duration: `80ms`, `1.5s`, `0.05ms`, `2m`, `2h30m`. `None` without a unit, when negative, or when it is no number.
pub(crate) fn milliseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, scale) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1_000.0)
    } else {
        return whole(text);
    };
    let number = number.trim_end();
    // Only plain decimals: `f64` would also read "inf" and "1e9".
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return whole(text);
    }
    number.parse::<f64>().ok().map(|value| value * scale)
}

fn whole(text: &str) -> Option<f64> {
    text.parse::<Span>().ok().map(|span| span.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_need_units() {
        for (text, ms) in [("80ms", 80.0), ("1.5s", 1_500.0), ("0.05 ms", 0.05), ("2m", 120_000.0), ("1m30s", 90_000.0), ("2s", 2_000.0)] {
            let read = milliseconds(text).unwrap_or(f64::NAN);
            assert!((read - ms).abs() < 1e-9, "{text}: {read}");
        }
        for bad in ["80", "", "ms", "-3ms", "1e3ms", "infs", "nanms", "1.2.3s", "3 us"] {
            assert_eq!(milliseconds(bad), None, "{bad:?}");
        }
    }
}
