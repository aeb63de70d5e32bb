//! Numbers as people read them: thousands separated, few digits, one unit, and `n/a` for what is not known.

use fleet::Currency;

/// What stands where nothing is known.
pub(crate) const NOT_KNOWN: &str = "n/a";

/// A number with so many decimals and its thousands separated by commas; `n/a` when it is not finite.
#[must_use]
pub fn decimal(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return NOT_KNOWN.to_owned();
    }
    let plain = format!("{:.decimals$}", value.abs());
    let (whole, fraction) = plain.split_once('.').map_or((plain.as_str(), None), |(w, f)| (w, Some(f)));
    let negative = value < 0.0 && plain.bytes().any(|b| b.is_ascii_digit() && b != b'0');
    let mut text = String::with_capacity(plain.len() + 4);
    if negative {
        text.push('-');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

/// Money with its currency: whole units from a thousand on, else two decimals.
#[must_use]
pub fn money(value: f64, currency: &Currency) -> String {
    format!("{} {currency}", decimal(value, if value.abs() >= 1_000.0 { 0 } else { 2 }))
}

/// Money as a difference: always with its sign.
#[must_use]
pub(crate) fn money_change(value: f64, currency: &Currency) -> String {
    let text = money(value, currency);
    if text.starts_with('-') || !value.is_finite() { text } else { format!("+{text}") }
}

/// A share as per cent, without the sign.
#[must_use]
pub fn percent(share: Option<f64>, decimals: usize) -> String {
    share.filter(|s| s.is_finite()).map_or_else(|| NOT_KNOWN.to_owned(), |s| format!("{}%", decimal(s * 100.0, decimals)))
}

/// A rate with three digits or so: 0.42, 7.6, 38.0, 412.
#[must_use]
pub fn rate(value: f64) -> String {
    decimal(value, rate_decimals(value))
}

/// Decimals that leave about three digits.
#[must_use]
pub(crate) fn rate_decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    }
}

/// The text of a known value, `n/a` of an unknown one.
#[must_use]
pub fn or_na<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| NOT_KNOWN.to_owned(), text)
}

/// "1 job", "2 jobs".
#[must_use]
pub(crate) fn count(n: usize, one: &str) -> String {
    format!("{} {one}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// A count with its thousands separated.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts shown to people lie far below 2^52")]
pub(crate) fn thousands(n: usize) -> String {
    decimal(n as f64, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_and_nothing_becomes_minus_zero() {
        let cases = [
            (0.0, 0, "0"),
            (-0.001, 2, "0.00"),
            (999.5, 0, "1,000"),
            (1_234_567.891, 2, "1,234,567.89"),
            (-8_198.0, 0, "-8,198"),
            (f64::NAN, 1, "n/a"),
            (f64::INFINITY, 1, "n/a"),
        ];
        for (value, decimals, want) in cases {
            assert_eq!(decimal(value, decimals), want);
        }
    }

    #[test]
    fn unknown_is_not_zero() {
        assert_eq!(percent(None, 1), "n/a");
        assert_eq!(percent(Some(f64::NAN), 1), "n/a");
        assert_eq!(percent(Some(0.994), 1), "99.4%");
        assert_eq!(or_na(None::<f64>, rate), "n/a");
    }

    #[test]
    fn money_names_its_currency_and_its_direction() {
        let eur = Currency::new("EUR").unwrap();
        assert_eq!(money(8_198.4, &eur), "8,198 EUR");
        assert_eq!(money_change(-41.2, &eur), "-41.20 EUR");
        assert_eq!(money_change(61.0, &eur), "+61.00 EUR");
    }

    #[test]
    fn rates_keep_three_digits() {
        assert_eq!([0.4249, 7.6, 38.04, 412.3].map(rate), ["0.42", "7.60", "38.0", "412"]);
    }
}
