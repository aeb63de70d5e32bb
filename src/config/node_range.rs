//! Node ranges: `gpu[001-038]`, `rack[1-2]n[01-16]`, `n[1,3,7-9]`. A number written with leading zeros keeps its width.

/// Most nodes one range may stand for: more is a typing error.
const NODES_MAX: usize = 10_000;

/// Names a range stands for, in the order written; a text without brackets stands for itself.
///
/// # Errors
/// What is wrong with it, in words.
pub(crate) fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = text;
    while let Some(open) = rest.find('[') {
        let (before, after) = (&rest[..open], &rest[open + 1..]);
        let close = after.find(']').ok_or("the bracket is not closed")?;
        let numbers = list(&after[..close])?;
        if names.len().saturating_mul(numbers.len()) > NODES_MAX {
            return Err(format!("it stands for more than {NODES_MAX} nodes"));
        }
        names = names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}"))).collect();
        rest = &after[close + 1..];
    }
    if rest.contains(']') {
        return Err("a bracket is closed that was not opened".into());
    }
    for name in &mut names {
        name.push_str(rest);
    }
    Ok(names)
}

fn list(text: &str) -> Result<Vec<String>, String> {
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("it runs from {first} down to {last}"));
        }
        if to - from >= NODES_MAX as u64 {
            return Err(format!("it stands for more than {NODES_MAX} nodes"));
        }
        let width = if first.starts_with('0') { first.len() } else { 1 };
        numbers.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Ok(numbers)
}

fn number(text: &str) -> Result<u64, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().map_err(|_| format!("{text} is too large")) } else { Err(format!("{text:?} is not a number")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_keep_their_width() {
        assert_eq!(expand("gpu[008-011]").unwrap(), ["gpu008", "gpu009", "gpu010", "gpu011"]);
        assert_eq!(expand("n[9-10]").unwrap(), ["n9", "n10"]);
        assert_eq!(expand("r[1-2]n[1,3].local").unwrap(), ["r1n1.local", "r1n3.local", "r2n1.local", "r2n3.local"]);
        assert_eq!(expand("host").unwrap(), ["host"]);
    }

    #[test]
    fn refuses_what_is_no_range() {
        for bad in ["gpu[5-2]", "gpu[1-3", "gpu1-3]", "gpu[]", "gpu[a-c]", "gpu[1-]", "gpu[1-20000]", "gpu[0-99][0-99][0-99]", "gpu[99999999999999999999]"] {
            assert!(expand(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_never_explodes(text in "[a-z0-9\\[\\],-]{0,24}") {
            if let Ok(names) = expand(&text) {
                prop_assert!(!names.is_empty() && names.len() <= NODES_MAX);
            }
        }
    }
}
