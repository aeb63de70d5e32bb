//! Labels that lines must carry, written as a table, and matchers as `PromQL` writes them.

use crate::{
    error::{Code, Findings},
    written::At,
};
use std::collections::BTreeMap;

/// Labels and the values they must have.
pub(crate) fn labels(written: &BTreeMap<String, At<String>>, findings: &mut Findings<'_>) -> Option<BTreeMap<String, String>> {
    let mut sound = true;
    for (label, at) in written {
        if !is_label(label) {
            let help = "labels are letters, digits and underscores, such as model_name";
            findings.refuse(Code::Selector, at.span(), format!("{label:?} is not the name of a label"), "not a label", help);
            sound = false;
        }
    }
    sound.then(|| written.iter().map(|(label, at)| (label.clone(), at.get().clone())).collect())
}

/// Matchers in braces, such as `{job="vllm",namespace=~"prod|test"}`.
pub(crate) fn matchers(at: &At<String>, findings: &mut Findings<'_>) -> Option<String> {
    match check(at.get().trim()) {
        Ok(()) => Some(at.get().trim().to_owned()),
        Err(why) => {
            let message = format!("match: {:?} selects no series: {why}", at.get());
            findings.refuse(Code::Selector, at.span(), message, "not matchers", "write them as '{job=\"vllm\"}'; the metrics are chosen by the catalogue");
            None
        }
    }
}

fn check(text: &str) -> Result<(), String> {
    let inner = text.strip_prefix('{').ok_or("it does not begin with {")?;
    let mut rest = inner.strip_suffix('}').ok_or("it does not end with }")?.trim();
    if rest.is_empty() {
        return Err("it names no label".into());
    }
    while !rest.is_empty() {
        let operator = rest.find(['=', '!']).ok_or_else(|| format!("{rest:?} has no =, !=, =~ or !~"))?;
        let (label, tail) = (rest[..operator].trim(), &rest[operator..]);
        if !is_label(label) {
            return Err(format!("{label:?} is not a label"));
        }
        let tail = ["=~", "!=", "!~", "="].into_iter().find_map(|op| tail.strip_prefix(op)).ok_or("! is followed by neither = nor ~")?;
        rest = after_string(tail.trim_start())?.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err(format!("a comma is missing before {rest:?}")),
        };
    }
    Ok(())
}

/// What follows a quoted string.
fn after_string(text: &str) -> Result<&str, String> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\'' | '`')).ok_or("a value is not in quotes")?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quote != '`' => escaped = true,
            _ if c == quote => return Ok(&text[at + 1..]),
            _ => {}
        }
    }
    Err("a quote is not closed".into())
}

fn is_label(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn matchers_are_told_from_what_is_none() {
        for good in [r#"{job="vllm"}"#, r#"{ job = "a,b}" , x!~'c|d', }"#, "{a=`\\`}", r#"{a="\"",b!="c"}"#] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in
            ["", "up", "{}", r#"up{job="a"}"#, "{job=vllm}", r#"{job="a}"#, r#"{job="a" x="b"}"#, r#"{1a="b"}"#, r#"{a"b"}"#, r#"{a!"b"}"#, "rate(x[5m])"]
        {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = check(&text);
            let _ = check(&format!("{{{text}}}"));
        }
    }
}
