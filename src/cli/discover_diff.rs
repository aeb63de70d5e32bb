//! Two texts, line by line.

/// Lines beyond which texts are not compared: nobody reads that.
const LINES_MAX: usize = 5_000;

/// What would change: lines taken away with `-`, lines added with `+`, by the longest common subsequence. Lines that stay are left out, but for one
/// beside each change.
pub(crate) fn diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().take(LINES_MAX).collect(), new.lines().take(LINES_MAX).collect());
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            common[i][j] = if a == b { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines: Vec<(char, &str)> = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            lines.push(('-', old[i]));
            i += 1;
        } else {
            lines.push(('+', new[j]));
            j += 1;
        }
    }
    let beside = |at: usize| lines[at.saturating_sub(1)..(at + 2).min(lines.len())].iter().any(|(sign, _)| *sign != ' ');
    let shown: Vec<String> = (0..lines.len()).filter(|at| beside(*at)).map(|at| format!("{} {}", lines[at].0, lines[at].1)).collect();
    if shown.is_empty() { String::new() } else { shown.join("\n") + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_and_what_is_beside_them() {
        assert_eq!(diff("a\nb\nc\nd\ne\n", "a\nb\nx\nd\ne\n"), "  b\n- c\n+ x\n  d\n");
        assert_eq!(diff("a\n", "a\n"), "");
        assert_eq!(diff("", "a\n"), "+ a\n");
    }
}
