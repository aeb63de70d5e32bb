//! The known word nearest to a misspelt one.

/// The known word nearest to `word`, when it is near enough to be meant: at most a third of its letters differ.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(1);
    known.into_iter().map(|candidate| (distance(&word.to_lowercase(), &candidate.to_lowercase()), candidate)).filter(|(d, _)| *d <= limit).min().map(|(_, c)| c)
}

/// Edit distance with swaps of neighbours (optimal string alignment).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_was_meant_and_nothing_else() {
        let known = ["min_replicas", "max_replicas", "ttft"];
        assert_eq!(nearest("max_replica", known), Some("max_replicas"));
        assert_eq!(nearest("tftt", known), Some("ttft"));
        assert_eq!(nearest("H100-80gb", ["H100-80GB", "H200-141GB"]), Some("H100-80GB"));
        assert_eq!(nearest("colour", known), None);
    }
}
