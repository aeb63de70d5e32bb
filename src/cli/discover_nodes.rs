//! Many names of nodes as few ranges: gpu001 to gpu038 is `gpu[001-038]`.

use std::collections::BTreeMap;

/// Ranges that stand for these names, in order; a name that fits no range stands for itself. Expanding them gives the names back.
pub(crate) fn ranges(names: &[String]) -> Vec<String> {
    // Which of a name's numbers runs is not known: the one that gives the fewest ranges does, the last where several do.
    let most = names.iter().map(|name| numbers(name).len()).max().unwrap_or(0);
    (0..most.max(1)).map(|from_end| by_number(names, from_end)).min_by_key(Vec::len).unwrap_or_default()
}

/// Ranges over the number that is `from_end` places from the last one.
fn by_number(names: &[String], from_end: usize) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut out = Vec::new();
    for name in names {
        let found = numbers(name);
        // What looks like a range already is left to be read as it is written.
        let number = found.len().checked_sub(from_end + 1).and_then(|at| found.get(at)).filter(|_| !name.contains(['[', ']']));
        match number {
            Some((from, to)) => groups.entry((&name[..*from], &name[*to..])).or_default().push(&name[*from..*to]),
            None => out.push(name.clone()),
        }
    }
    for ((before, after), mut digits) in groups {
        digits.sort_by_key(|digits| (digits.len(), *digits));
        digits.dedup();
        let parts = parts(&digits);
        match parts.as_slice() {
            [only] if !only.contains('-') => out.push(format!("{before}{only}{after}")),
            parts => out.push(format!("{before}[{}]{after}", parts.join(","))),
        }
    }
    out.sort();
    out
}

/// Runs of numbers: `001-038`, `7`. Digits in order of length, then of value.
fn parts(digits: &[&str]) -> Vec<String> {
    let mut runs: Vec<(&str, &str)> = Vec::new();
    for number in digits {
        match runs.last_mut() {
            Some((first, last)) if follows(first, last, number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs.iter().map(|(first, last)| if first == last { (*first).to_owned() } else { format!("{first}-{last}") }).collect()
}

/// Whether a number goes on where a run ends, written as the run would write it.
fn follows(first: &str, last: &str, next: &str) -> bool {
    let Some(expected) = last.parse::<u64>().ok().and_then(|last| last.checked_add(1)) else { return false };
    let width = if first.starts_with('0') { first.len() } else { 1 };
    format!("{expected:0width$}") == next
}

/// Where numbers stand in a name. Longer ones than a range can count are none.
fn numbers(name: &str) -> Vec<(usize, usize)> {
    let bytes = name.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = at + bytes[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        if end > at && end - at <= 9 {
            found.push((at, end));
        }
        at = end.max(at + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(names: &[&str]) -> Vec<String> {
        ranges(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_become_ranges() {
        let many: Vec<String> = (1..=38).map(|n| format!("gpu{n:03}")).collect();
        assert_eq!(ranges(&many), ["gpu[001-038]"]);
        assert_eq!(told(&["n9", "n10", "n11", "n13"]), ["n[9-11,13]"]);
        assert_eq!(told(&["a01.dc2.example", "a02.dc2.example", "b01.dc2.example"]), ["a[01-02].dc2.example", "b01.dc2.example"]);
        assert_eq!(told(&["head", "ip-10-0-1-23"]), ["head", "ip-10-0-1-23"]);
        assert_eq!(told(&["x1", "x01", "x02"]), ["x[1,01-02]"]);
        assert!(told(&[]).is_empty());
    }

    /// What the configuration makes of the ranges are the names again.
    #[test]
    fn ranges_stand_for_their_names() {
        for names in [vec!["n098", "n099", "n100", "n7"], vec!["r1n01", "r1n02", "r2n01"], vec!["0", "1", "10"], vec!["a-1-b", "a-2-b"]] {
            let list: Vec<String> = told(&names).iter().map(|range| format!("{range:?}")).collect();
            let text = format!(
                "pool = [{{ nodes = [{}], kind = \"L4\", gpus_per_node = 1 }}]\n[[job]]\nname = \"j\"\nclass = \"batch\"\nwork = \"1h\"\nmemory = \"1GiB\"\n",
                list.join(", ")
            );
            let config = config::parse(&text, "t").unwrap_or_else(|errors| panic!("{errors:?}"));
            let mut expected = names.clone();
            expected.sort_unstable();
            assert_eq!(config.fleet.nodes.iter().map(|n| n.id.as_str()).collect::<Vec<_>>(), expected);
        }
    }
}
