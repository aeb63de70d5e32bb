//! `InfluxDB`'s line protocol, read: `measurement,tag=value field=1,other="text" 1796109024`.
//!
//! Every part has a limit, a line that makes no sense says why, and no bytes make it panic. Escapes are those of the format: `\,` `\=` `\ `
//! in names, tag values and keys, `\"` and `\\` in texts; a backslash before anything else is itself.
//! Grammar: <https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/>.

use std::collections::BTreeMap;

/// Tags or fields of a line at most.
const PARTS_MAX: usize = 256;
/// Bytes of a name, key, tag value or text at most.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue {
    /// A number, written as float, integer (`7i`) or unsigned (`7u`): finite.
    Number(f64),
    /// A text in quotes.
    Text(String),
    /// `t`, `true`, `f`, `false` and their capitals.
    Flag(bool),
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// What it tells of.
    pub measurement: String,
    /// Which one it is.
    pub tags: BTreeMap<String, String>,
    /// What it is like.
    pub fields: BTreeMap<String, FieldValue>,
    /// Its time in the sender's precision, where it has one.
    pub time: Option<i64>,
}

/// Reads a line. Nothing for a blank one and for a comment.
///
/// # Errors
/// Why it is no line of this protocol.
pub fn parse_line(line: &str) -> Result<Option<Point>, String> {
    let line = line.trim_end_matches('\r').trim_start_matches([' ', '\t']);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (measurement, mut rest) = word(line, &[',', ' '])?;
    if measurement.is_empty() {
        return Err("it has no measurement".into());
    }
    let mut tags = BTreeMap::new();
    while let Some(after) = rest.strip_prefix(',') {
        let (key, after) = key(after, "tag")?;
        let (value, after) = word(after, &[',', ' '])?;
        if value.is_empty() {
            return Err(format!("tag {key:?} has no value"));
        }
        insert(&mut tags, key, value, "tag")?;
        rest = after;
    }
    let mut rest = rest.trim_start_matches(' ');
    let mut fields = BTreeMap::new();
    loop {
        let (key, after) = key(rest, "field")?;
        let (value, after) = value(after).map_err(|why| format!("field {key:?} {why}"))?;
        insert(&mut fields, key, value, "field")?;
        match after.strip_prefix(',') {
            Some(more) => rest = more,
            None => break rest = after,
        }
    }
    let time = match rest.trim_matches([' ', '\t']) {
        "" => None,
        time => Some(time.parse().map_err(|_| format!("its time {:?} is no whole number", shorten(time)))?),
    };
    Ok(Some(Point { measurement, tags, fields, time }))
}

fn insert<V>(parts: &mut BTreeMap<String, V>, key: String, value: V, what: &str) -> Result<(), String> {
    if parts.len() == PARTS_MAX {
        return Err(format!("it has more than {PARTS_MAX} {what}s"));
    }
    match parts.entry(key) {
        std::collections::btree_map::Entry::Occupied(taken) => Err(format!("{what} {:?} is given twice", taken.key())),
        std::collections::btree_map::Entry::Vacant(free) => {
            free.insert(value);
            Ok(())
        }
    }
}

/// A key and what follows its `=`.
fn key<'a>(text: &'a str, what: &str) -> Result<(String, &'a str), String> {
    let (key, rest) = word(text, &[',', ' ', '='])?;
    match rest.strip_prefix('=') {
        Some(rest) if !key.is_empty() => Ok((key, rest)),
        Some(_) => Err(format!("a {what} has no name")),
        None if key.is_empty() => Err(format!("it has no {what}")),
        None => Err(format!("{what} {:?} has no value", shorten(&key))),
    }
}

/// Text up to one of `ends` that is not escaped.
fn word<'a>(text: &'a str, ends: &[char]) -> Result<(String, &'a str), String> {
    let mut out = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if ends.contains(&c) {
            return Ok((out, &text[at..]));
        }
        match (c, chars.peek()) {
            ('\\', Some((_, escaped @ (',' | '=' | ' ')))) => {
                out.push(*escaped);
                chars.next();
            }
            _ => out.push(c),
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(format!("a name or value is longer than {TEXT_BYTES_MAX} bytes"));
        }
    }
    Ok((out, ""))
}

/// A field's value and what follows it.
fn value(text: &str) -> Result<(FieldValue, &str), String> {
    if let Some(inside) = text.strip_prefix('"') {
        return quoted(inside);
    }
    let end = text.find([',', ' ']).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let value = match word {
        "t" | "T" | "true" | "True" | "TRUE" => FieldValue::Flag(true),
        "f" | "F" | "false" | "False" | "FALSE" => FieldValue::Flag(false),
        _ => FieldValue::Number(number(word)?),
    };
    Ok((value, rest))
}

#[expect(clippy::cast_precision_loss, reason = "counts beyond 2^53 are rounded: every number is kept as a float")]
fn number(word: &str) -> Result<f64, String> {
    let refuse = || format!("has the value {:?}, which is no number, text or flag", shorten(word));
    let value = if let Some(whole) = word.strip_suffix('i') {
        whole.parse::<i64>().map_err(|_| refuse())? as f64
    } else if let Some(whole) = word.strip_suffix('u') {
        whole.parse::<u64>().map_err(|_| refuse())? as f64
    } else {
        // The standard parser would take "inf" and "nan" for numbers.
        word.parse::<f64>().ok().filter(|value| value.is_finite()).ok_or_else(refuse)?
    };
    Ok(value)
}

fn quoted(inside: &str) -> Result<(FieldValue, &str), String> {
    let mut out = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((FieldValue::Text(out), &inside[at + 1..])),
            '\\' => match chars.next() {
                Some((_, escaped @ ('"' | '\\'))) => out.push(escaped),
                Some((_, other)) => out.extend(['\\', other]),
                None => break,
            },
            c => out.push(c),
        }
        if out.len() > TEXT_BYTES_MAX {
            return Err(format!("has a text longer than {TEXT_BYTES_MAX} bytes"));
        }
    }
    Err("has a text without its closing quote".into())
}

/// The start of a word, for messages.
fn shorten(word: &str) -> String {
    word.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn point(line: &str) -> Point {
        parse_line(line).unwrap().unwrap()
    }

    #[test]
    fn a_line_is_read_with_all_kinds_of_values() {
        let point = point("job,job=train\\ 1,team=a\\,b state=\"run \\\"now\\\"\",remaining_s=12.5,gpus=8i,n=3u,ok=true 1796109024\r");
        assert_eq!(point.measurement, "job");
        assert_eq!(point.tags.get("job").map(String::as_str), Some("train 1"));
        assert_eq!(point.tags.get("team").map(String::as_str), Some("a,b"));
        assert_eq!(point.fields["state"], FieldValue::Text("run \"now\"".into()));
        assert_eq!(point.fields["remaining_s"], FieldValue::Number(12.5));
        assert_eq!((&point.fields["gpus"], &point.fields["n"]), (&FieldValue::Number(8.0), &FieldValue::Number(3.0)));
        assert_eq!((&point.fields["ok"], point.time), (&FieldValue::Flag(true), Some(1_796_109_024)));
        assert_eq!(super::parse_line("# note").unwrap(), None);
        assert_eq!(super::parse_line("  ").unwrap(), None);
    }

    #[test]
    fn a_line_that_makes_no_sense_says_why() {
        for (line, why) in [
            ("demand", "no field"),
            ("demand ", "no field"),
            (",a=1 b=1", "no measurement"),
            ("demand,a b=1", "tag \"a\" has no value"),
            ("demand,a= b=1", "tag \"a\" has no value"),
            ("demand,=1 b=1", "a tag has no name"),
            ("demand,a=1,a=2 b=1", "twice"),
            ("demand b=1,b=2", "twice"),
            ("demand b", "field \"b\" has no value"),
            ("demand b=", "no number"),
            ("demand b=NaN", "no number"),
            ("demand b=inf", "no number"),
            ("demand b=1e400", "no number"),
            ("demand b=1.5i", "no number"),
            ("demand b=\"x", "closing quote"),
            ("demand b=1 soon", "whole number"),
            ("demand b=1 99999999999999999999", "whole number"),
        ] {
            let reason = parse_line(line).unwrap_err();
            assert!(reason.contains(why), "{line}: {reason}");
        }
        assert!(parse_line(&format!("{} b=1", "x".repeat(5_000))).unwrap_err().contains("longer"));
        assert!(parse_line(&format!("m b=\"{}\"", "x".repeat(5_000))).unwrap_err().contains("longer"));
        let many: Vec<String> = (0..300).map(|n| format!("f{n}=1")).collect();
        assert!(parse_line(&format!("m {}", many.join(","))).unwrap_err().contains("more than 256"));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in "\\PC{0,60}") {
            let _point = parse_line(&line);
        }

        #[test]
        fn no_likely_line_makes_it_panic(line in "[a-c]{0,2}(,[a-c]?=?[a-c\\\\ ,=\"]{0,3}){0,3} ?([a-c]?=?\"?[0-9a-f\\\\\".]{0,4}\"?i?,?){0,3} ?[0-9]{0,3}") {
            if let Ok(Some(point)) = parse_line(&line) {
                prop_assert!(!point.fields.is_empty() && !point.measurement.is_empty());
            }
        }

        #[test]
        fn a_tag_and_a_text_come_back_as_they_were(tag in "[^\\\\\\p{C}]{1,20}", text in "\\PC{0,20}") {
            let escaped = tag.replace(',', "\\,").replace('=', "\\=").replace(' ', "\\ ");
            let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
            let point = point(&format!("m,t={escaped} f=\"{quoted}\""));
            prop_assert_eq!(&point.tags["t"], &tag);
            prop_assert_eq!(&point.fields["f"], &FieldValue::Text(text));
        }
    }
}
