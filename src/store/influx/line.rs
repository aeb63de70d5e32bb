//! `InfluxDB`'s line protocol, written so that every text comes back as it was.
//!
//! What the server (2.8) was seen to do, and what is done about it:
//!
//! | in | the server | here |
//! |---|---|---|
//! | tag, measurement, key: `,` `=` space | end the name | `\` before them |
//! | tag: `\` at the end | "invalid tag format" for the whole request; no escape helps | `%5C` |
//! | tag: `\` before `,` | is read as an escape | `%5C` |
//! | tag: line end | ends the point | `%0A` |
//! | string field: `"` `\` | end the field | `\` before them |
//! | string field: line end | is kept, but comes back as `\r\n`; `\r` comes back as nothing | `%0A`, `%0D` |
//! | empty tag value | refused | tag left out |
//! | `NaN`, infinite | "invalid number" for the whole request | field left out |
//! | a number without a point | stays a float without the suffix `i` | always a float |
//!
//! `%XX` stands for a byte; a `%` before two hexadecimal digits is written `%25`, any other stays. So names read as they are in every tool,
//! and [`decode`] undoes it without loss.

use std::fmt::Write as _;

/// One point under way to its line.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    head: String,
    fields: String,
}

impl Line {
    /// A point of a measurement.
    pub(crate) fn of(measurement: &str) -> Self {
        let mut head = String::with_capacity(128);
        // `#` begins a comment.
        let rest = measurement.strip_prefix('#').inspect(|_| head.push_str("%23")).unwrap_or(measurement);
        name(&mut head, rest);
        Self { head, fields: String::with_capacity(64) }
    }

    /// A tag. Without a value it is left out.
    pub(crate) fn tag(mut self, key: &str, value: &str) -> Self {
        if !value.is_empty() {
            self.head.push(',');
            name(&mut self.head, key);
            self.head.push('=');
            name(&mut self.head, value);
        }
        self
    }

    /// A number, always a float. One that is not finite is left out: there is no such number in `InfluxDB`.
    pub(crate) fn number(mut self, key: &str, value: f64) -> Self {
        if value.is_finite() {
            self.field(key);
            // Shortest digits that read back as the same number.
            let _infallible = write!(self.fields, "{value:?}");
        }
        self
    }

    /// A number, where it is known.
    pub(crate) fn maybe(self, key: &str, value: Option<f64>) -> Self {
        match value {
            Some(value) => self.number(key, value),
            None => self,
        }
    }

    /// 1 for yes, 0 for no: a float, so that it can be averaged.
    pub(crate) fn flag(self, key: &str, value: bool) -> Self {
        self.number(key, if value { 1.0 } else { 0.0 })
    }

    /// A text.
    pub(crate) fn text(mut self, key: &str, value: &str) -> Self {
        self.field(key);
        self.fields.push('"');
        encode(&mut self.fields, value, false, |c| matches!(c, '"' | '\\'));
        self.fields.push('"');
        self
    }

    fn field(&mut self, key: &str) {
        if !self.fields.is_empty() {
            self.fields.push(',');
        }
        name(&mut self.fields, key);
        self.fields.push('=');
    }

    /// The line of the point at an instant in nanoseconds since 1970, its end included; nothing when no field is left.
    pub(crate) fn at(self, nanoseconds: i64) -> Option<String> {
        (!self.fields.is_empty()).then(|| format!("{} {} {nanoseconds}\n", self.head, self.fields))
    }
}

/// A measurement, key or tag value.
fn name(out: &mut String, text: &str) {
    encode(out, text, true, |c| matches!(c, ',' | '=' | ' '));
}

/// Writes a text with `\` before what is special, and bytes that have no escape as `%XX`.
fn encode(out: &mut String, text: &str, backslash_too: bool, special: fn(char) -> bool) {
    for (index, c) in text.char_indices() {
        let ambiguous = c == '%' && text[index + 1..].bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        if c.is_control() || ambiguous || (backslash_too && c == '\\') {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _infallible = write!(out, "%{byte:02X}");
            }
        } else {
            if special(c) {
                out.push('\\');
            }
            out.push(c);
        }
    }
}

/// A text as the server keeps it: what a query must ask for.
pub(crate) fn stored(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    encode(&mut out, text, true, |_| false);
    out
}

/// The same of a string field, which keeps its backslashes.
pub(crate) fn text_stored(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    encode(&mut out, text, false, |_| false);
    out
}

/// The text that was written, from what the server gives back.
pub(crate) fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The instant of a line made here, in nanoseconds since 1970: its last word.
pub(crate) fn instant(line: &str) -> Option<i64> {
    line.trim_end().rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Field case 35: Tag with space, comma or equals sign
    /// Field case 31: Field changes between integer and float
    #[test]
    fn each_place_has_its_own_escapes() {
        let line = Line::of("m x,y").tag("cost center", "Chat Prod, EU=1").tag("empty", "").tag("back", r"a\").number("v", 4.0).number("nan", f64::NAN);
        let line = line.maybe("none", None).text("said", "he said \"hi\" \\ 100%\n").at(7).unwrap();
        assert_eq!(line, "m\\ x\\,y,cost\\ center=Chat\\ Prod\\,\\ EU\\=1,back=a%5C v=4.0,said=\"he said \\\"hi\\\" \\\\ 100%%0A\" 7\n");
        assert_eq!(Line::of("#m").number("v", f64::INFINITY).at(7), None, "a point without a field is none");
        assert!(Line::of("#m").flag("v", true).at(7).unwrap().starts_with("%23m v=1.0 "));
    }

    proptest! {
        #[test]
        fn every_text_comes_back_and_no_two_look_the_same(a in "\\PC*|[%0-9A-F\\\\ ,=\"\\n]{0,12}", b in "[%0-9A-F]{0,6}") {
            prop_assert_eq!(decode(&stored(&a)), a.clone());
            prop_assert_eq!(stored(&a) == stored(&b), a == b);
            prop_assert!(!stored(&a).chars().any(|c| c.is_control() || c == '\\'));
        }

        #[test]
        fn a_point_is_one_line_with_its_instant_last(tag in any::<String>(), text in any::<String>(), value in any::<f64>(), at in any::<i64>()) {
            let line = Line::of("m").tag("t", &tag).number("v", value).text("s", &text).at(at).unwrap();
            prop_assert_eq!((line.lines().count(), line.matches('\n').count(), instant(&line)), (1, 1, Some(at)));
        }
    }
}
