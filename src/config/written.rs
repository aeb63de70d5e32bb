//! Values as they were written, with their place in the file.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use std::{borrow::Cow, fmt, ops::Range};
use toml::Spanned;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct At<T>(Spanned<T>);

impl<T> At<T> {
    /// Bytes of the text it was read from.
    pub(crate) fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// The value.
    pub(crate) fn get(&self) -> &T {
        self.0.get_ref()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// One string, or a list of them.
#[derive(Debug, Clone)]
pub(crate) enum OneOrMany {
    /// A single string.
    One(String),
    /// A list, each entry with its place.
    Many(Vec<At<String>>),
}

impl At<OneOrMany> {
    /// Every string with its place.
    pub(crate) fn entries(&self) -> Vec<(&str, Range<usize>)> {
        match self.get() {
            OneOrMany::One(text) => vec![(text.as_str(), self.span())],
            OneOrMany::Many(list) => list.iter().map(|entry| (entry.get().as_str(), entry.span())).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = OneOrMany;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                Ok(OneOrMany::One(text.to_owned()))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<OneOrMany, A::Error> {
                let mut list = Vec::new();
                while let Some(entry) = sequence.next_element()? {
                    list.push(entry);
                }
                Ok(OneOrMany::Many(list))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    }
}

/// A scalar whose meaning is read in the second stage, so that a missing unit is reported together with everything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scalar {
    /// As text; a number without quotes is kept as its digits.
    pub(crate) text: String,
    /// Whether it stood in quotes (or is a TOML date).
    pub(crate) quoted: bool,
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Scalar;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity in quotes with its unit, such as \"5m\" or \"80GiB\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar { text: text.to_owned(), quoted: true })
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Scalar, E> {
                Ok(Scalar { text: number.to_string(), quoted: false })
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Scalar, E> {
                Ok(Scalar { text: number.to_string(), quoted: false })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Scalar, A::Error> {
                let date = toml::value::Datetime::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Scalar { text: date.to_string(), quoted: true })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $title:literal, $schema:tt;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
        #[serde(transparent)]
        pub(crate) struct $name(pub(crate) Scalar);

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                $title.into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

quantities! {
    /// A size with its unit.
    WrittenSize = "Size", {
        "type": "string",
        "description": "A size with its unit: KiB, MiB, GiB, TiB (powers of 1024), kB, MB, GB, TB (powers of 1000).",
        "pattern": r"^[0-9]+(\.[0-9]+)? ?(KiB|MiB|GiB|TiB|kB|MB|GB|TB|B)$",
        "examples": ["80GiB", "24000MiB"]
    };
    /// A duration with its unit, whole seconds.
    WrittenSpan = "Duration", {
        "type": "string",
        "description": "A duration with its unit: s, m, h, d (24 hours), also joined.",
        "pattern": r"^([0-9]+ ?(s|m|h|d) ?)+$",
        "examples": ["90s", "5m", "2h30m", "14d"]
    };
    /// A duration with its unit, fractions of a second allowed.
    WrittenLatency = "Latency", {
        "type": "string",
        "description": "A duration with its unit: ms, s (both with decimals), m, h.",
        "pattern": r"^([0-9]+(\.[0-9]+)? ?(ms|s)|([0-9]+ ?(s|m|h|d) ?)+)$",
        "examples": ["80ms", "1.5s"]
    };
    /// An instant.
    WrittenInstant = "Instant", {
        "type": "string",
        "format": "date-time",
        "description": "An instant with its offset from UTC.",
        "examples": ["2026-12-01T08:00:00Z"]
    };
}
