//! Quantities whose unit must be said: sizes in bytes, shares of one, currencies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// A size without a unit, or with an unknown one.
    #[error("{0:?} is not a size: write a number and a unit, such as 80GiB (1024^3 bytes), 80GB (1000^3 bytes) or 24000MiB")]
    Size(String),
    /// A share outside 0..=1.
    #[error("{0} is not a share: it must lie between 0 and 1")]
    Share(f64),
    /// Not three capital letters.
    #[error("{0:?} is not a currency: write its three-letter code, such as EUR or USD")]
    Currency(String),
}

/// A size in bytes. Written with a unit always: `80GiB`, `24GB`, `24000MiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// The units understood, and what one of them holds.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl Bytes {
    /// So many times 1024^3 bytes.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib << 30)
    }

    /// So many times 1024^2 bytes.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// In units of 1024^3 bytes.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for display and comparison only; memory sizes lie far below 2^52")]
    pub fn as_gib(self) -> f64 {
        self.0 as f64 / f64::from(1 << 30)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let refuse = || UnitError::Size(text.to_owned());
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(refuse)?;
        let (number, unit) = (&text[..digits], text[digits..].trim_start());
        let (_, scale) = SIZE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(*scale).map(Self).ok_or_else(refuse);
        }
        let value: f64 = number.parse().map_err(|_| refuse())?;
        #[expect(clippy::cast_precision_loss, reason = "scales are powers far below 2^52")]
        let bytes = value * *scale as f64;
        // 2^53: beyond it a fractional size would no longer be exact.
        if !(0.0..9_007_199_254_740_992.0).contains(&bytes) {
            return Err(refuse());
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "range asked for above")]
        Ok(Self(bytes.round() as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1 << 30 { f.pad(&format!("{:.1} GiB", self.as_gib())) } else { f.pad(&format!("{:.1} MiB", self.as_gib() * 1024.0)) }
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}B", self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size with its unit, such as \"80GiB\"")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Bytes".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A size with its unit: KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB (powers of 1000) or B.",
            "pattern": r"^[0-9]+(\.[0-9]+)? ?(KiB|MiB|GiB|TiB|kB|MB|GB|TB|B)$",
            "examples": ["80GiB"]
        })
    }
}

/// A part of one: utilisation, hit rate, attainment.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(with = "f64")]
pub struct Share(f64);

impl Share {
    /// A share between 0 and 1.
    ///
    /// # Errors
    /// When the value lies outside or is no number.
    pub fn new(value: f64) -> Result<Self, UnitError> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(UnitError::Share(value)) }
    }

    /// `part / whole`, or `None` when there is no whole or the result is not a share: no requests, no hit rate.
    #[must_use]
    pub fn of(part: f64, whole: f64) -> Option<Self> {
        if whole > 0.0 { Self::new(part / whole).ok() } else { None }
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = UnitError;
    fn try_from(value: f64) -> Result<Self, UnitError> {
        Self::new(value)
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> f64 {
        share.0
    }
}

/// A currency by its ISO 4217 code. All money of one fleet is in one currency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Currency(String);

impl Currency {
    /// # Errors
    /// When the code is not three capital letters.
    pub fn new(code: impl Into<String>) -> Result<Self, UnitError> {
        let code = code.into();
        if code.len() == 3 && code.bytes().all(|b| b.is_ascii_uppercase()) { Ok(Self(code)) } else { Err(UnitError::Currency(code)) }
    }

    /// The code.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for Currency {
    type Error = UnitError;
    fn try_from(value: String) -> Result<Self, UnitError> {
        Self::new(value)
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> String {
        currency.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_binary_and_decimal_apart() {
        assert_eq!("24GiB".parse::<Bytes>().unwrap(), Bytes::from_gib(24));
        assert_eq!("24GB".parse::<Bytes>().unwrap(), Bytes(24_000_000_000));
        assert_eq!("24000MiB".parse::<Bytes>().unwrap(), Bytes::from_mib(24_000));
        assert_eq!("1.5GiB".parse::<Bytes>().unwrap(), Bytes(3 << 29));
        for bad in ["24", "24G", "GiB", "-1GiB", "1e400GB", "", "20000000TiB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad:?}");
        }
    }

    /// Field case 45: a card of 46068 MiB does not hold two models of 24000 MiB, whatever unit anybody prints.
    #[test]
    fn two_models_of_24000_mib_do_not_fit_a_46068_mib_card() {
        let card: Bytes = "46068MiB".parse().unwrap();
        let model: Bytes = "24000MiB".parse().unwrap();
        assert!(model.0 * 2 > card.0);
        assert_eq!(card.to_string(), "45.0 GiB");
    }

    #[test]
    fn a_share_of_nothing_is_unknown() {
        assert_eq!(Share::of(0.0, 0.0), None);
        assert_eq!(Share::of(3.0, 2.0), None);
        assert_eq!(Share::of(1.0, 4.0).map(Share::get), Some(0.25));
    }

    proptest::proptest! {
        #[test]
        fn a_size_survives_its_json(bytes: u64) {
            let json = serde_json::to_string(&Bytes(bytes)).unwrap();
            proptest::prop_assert_eq!(serde_json::from_str::<Bytes>(&json).unwrap(), Bytes(bytes));
        }
    }
}
