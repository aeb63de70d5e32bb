//! The plan as a diff.

use crate::{
    Align, ChangeKind, Grid, Look, PlanDiff,
    look::{paint, shorten, wrap},
    number::{count, money, money_change, thousands},
};
use anstyle::Style;
use fleet::{Plan, Problem, SolveStatus};

/// Columns the reason needs beside the others; with less it goes to a line of its own.
const WHY_COLUMNS_MIN: usize = 26;

/// The plan as a diff against what runs: one header, the changes, one closing line. What goes on unchanged is counted, and listed with `all`.
#[must_use]
pub fn plan_text(plan: &Plan, problem: &Problem, look: Look, all: bool) -> String {
    let diff = PlanDiff::of(plan, problem);
    let mut lines = header(plan, problem, look);
    lines.extend(rows(&diff, look, all));
    lines.extend(unchanged(&diff, look, all));
    lines.extend(closing(&diff, plan, problem, look));
    lines.extend(priors(plan, look));
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn header(plan: &Plan, problem: &Problem, look: Look) -> Vec<String> {
    let parent = problem.parent.as_ref().map_or_else(|| "first plan".to_owned(), |p| format!("parent g{}", p.generation));
    let advisory = if plan.advisory { ", advisory" } else { "" };
    let day = plan.as_of.to_string().chars().take(10).collect::<String>();
    let left = format!("Plan g{} ({parent}, valid {day} {}-{} UTC{advisory})", plan.generation, plan.valid_from.clock(), plan.valid_until.clock());
    let right = quality(plan);
    let (a, b) = (left.chars().count(), right.chars().count());
    if a + b + 2 <= look.width {
        vec![format!("{}{}{}", paint(&left, look.palette.strong), " ".repeat(look.width - a - b), paint(&right, look.palette.dim))]
    } else {
        vec![paint(&shorten(&left, look.width, look.ascii), look.palette.strong), paint(&format!("  {right}"), look.palette.dim)]
    }
}

/// Status, bound and gap in words.
fn quality(plan: &Plan) -> String {
    let report = &plan.report;
    let distance = (report.objective.total() - report.bound).max(0.0);
    let stopped = if report.status == SolveStatus::Feasible { ", stopped by a limit" } else { "" };
    let repeat = if report.reproducible { "" } else { ", not reproducible" };
    let text = if distance < 0.005 || report.gap <= 1e-6 {
        "best possible".to_owned()
    } else {
        format!("within {} % of best ({})", crate::decimal(report.gap * 100.0, 1), money(distance, &plan.currency))
    };
    format!("{text}{stopped}{repeat}")
}

fn symbol(kind: ChangeKind, look: Look) -> (&'static str, Style) {
    let palette = look.palette;
    match kind {
        ChangeKind::Start => ("+", palette.start),
        ChangeKind::Move => (">", palette.change),
        ChangeKind::Stop => ("-", palette.stop),
        ChangeKind::Job => ("~", palette.change),
        ChangeKind::Hold => ("=", palette.dim),
        ChangeKind::Short => ("!", palette.short),
    }
}

fn rows(diff: &PlanDiff, look: Look, all: bool) -> Vec<String> {
    let kept = if all { diff.kept.as_slice() } else { &[] };
    let mut grid = Grid::new(&[Align::Left, Align::Left, Align::Right, Align::Left, Align::Left], 2);
    for (change, is_kept) in diff.changes.iter().map(|c| (c, false)).chain(kept.iter().map(|c| (c, true))) {
        let (mark, style) = if is_kept { (" ", look.palette.dim) } else { symbol(change.kind, look) };
        let plain = if is_kept { look.palette.dim } else { Style::new() };
        let cells = [(format!("{mark} {}", change.verb), style), (change.what.clone(), plain)];
        let place = change.place.replace('→', look.arrow());
        let rest = [change.amount.clone(), place, change.time.clone()].map(|text| (text, plain));
        grid.styled_row(cells.into_iter().chain(rest));
    }
    let widths = grid.widths();
    let used = 2 + widths.iter().sum::<usize>() + 2 * widths.iter().filter(|w| **w > 0).count();
    let beside = used + WHY_COLUMNS_MIN <= look.width;
    let mut lines = Vec::new();
    let cells = grid.lines(look.width - 2, look.ascii);
    for (line, change) in cells.iter().zip(diff.changes.iter().chain(kept)) {
        let Some(why) = &change.why else {
            lines.push(format!("  {line}"));
            continue;
        };
        if beside {
            let parts = wrap(why, look.width - used);
            let blanks = used.saturating_sub(2 + visible(line));
            lines.push(format!("  {line}{}{}", " ".repeat(blanks), paint(&parts[0], look.palette.dim)));
            lines.extend(parts[1..].iter().map(|p| format!("{}{}", " ".repeat(used), paint(p, look.palette.dim))));
        } else {
            lines.push(format!("  {line}"));
            let indent = widths[0] + 4;
            lines.extend(wrap(why, look.width - indent).iter().map(|p| format!("{}{}", " ".repeat(indent), paint(p, look.palette.dim))));
        }
    }
    lines
}

/// Characters that show: escape sequences (ESC [ ... m) do not.
fn visible(line: &str) -> usize {
    let mut shown = 0;
    let mut hidden = false;
    for c in line.chars() {
        match c {
            '\u{1b}' => hidden = true,
            'm' if hidden => hidden = false,
            _ if hidden => {}
            _ => shown += 1,
        }
    }
    shown
}

fn unchanged(diff: &PlanDiff, look: Look, all: bool) -> Option<String> {
    let kept: usize = diff.kept.iter().map(|c| c.count).sum();
    let text = match (kept, all) {
        (0, _) | (_, true) => return None,
        (kept, false) => format!("  ({} unchanged; --all shows them)", thousands(kept)),
    };
    Some(paint(&text, look.palette.dim))
}

fn closing(diff: &PlanDiff, plan: &Plan, problem: &Problem, look: Look) -> Vec<String> {
    let kinds = [
        (ChangeKind::Start, "to start"),
        (ChangeKind::Move, "to move"),
        (ChangeKind::Stop, "to stop"),
        (ChangeKind::Job, "of jobs"),
        (ChangeKind::Hold, "held"),
        (ChangeKind::Short, "unmet"),
    ];
    let counts: Vec<String> =
        kinds.iter().map(|(kind, name)| (diff.count(*kind), name)).filter(|(n, _)| *n > 0).map(|(n, name)| format!("{n} {name}")).collect();
    let counts = if counts.is_empty() { "Nothing to change.".to_owned() } else { format!("{}.", counts.join(", ")) };
    let parts = [counts, resources(diff, plan, look), service(diff, plan, problem)];
    let whole = parts.iter().filter(|p| !p.is_empty()).cloned().collect::<Vec<_>>().join("   ");
    if whole.chars().count() <= look.width {
        return vec![paint(&whole, look.palette.strong)];
    }
    parts.iter().filter(|p| !p.is_empty()).flat_map(|p| wrap(p, look.width)).map(|p| paint(&p, look.palette.strong)).collect()
}

fn resources(diff: &PlanDiff, plan: &Plan, look: Look) -> String {
    let freed = usize::try_from(diff.gpus_freed.unsigned_abs()).unwrap_or(usize::MAX);
    let gpus = match diff.gpus_freed {
        0 => "same GPUs in use".to_owned(),
        n if n > 0 => format!("{} freed", count(freed, "GPU")),
        _ => format!("{} more in use", count(freed, "GPU")),
    };
    if diff.running_cost_per_hour.abs() < 0.005 { gpus } else { format!("{gpus}{} {}/h", look.dot(), money_change(diff.running_cost_per_hour, &plan.currency)) }
}

fn service(diff: &PlanDiff, plan: &Plan, problem: &Problem) -> String {
    if problem.services.is_empty() {
        return String::new();
    }
    if diff.unserved_requests > 0.0 {
        return format!(
            "{} requests unserved over the horizon, {}",
            crate::decimal(diff.unserved_requests.max(1.0), 0),
            money(diff.shortfall_cost, &plan.currency)
        );
    }
    let bounds = plan.report.objective.bounds;
    if bounds > 0.005 {
        return format!("a limit of replicas is missed, {}", money(bounds, &plan.currency));
    }
    let level = |pick: fn(f64, f64) -> f64, from: f64| problem.services.iter().map(|s| s.level).fold(from, pick) * 100.0;
    let (low, high) = (level(f64::min, 1.0), level(f64::max, 0.0));
    let range = if (high - low).abs() < 0.5 { format!("p{low:.0}") } else { format!("p{low:.0} to p{high:.0}") };
    format!("all demand met at {range}")
}

fn priors(plan: &Plan, look: Look) -> Option<String> {
    let n = plan.report.priors.len();
    (n > 0).then(|| {
        let first = &plan.report.priors[0];
        let text = format!("Not measured yet: {first}{}", if n > 1 { format!(" and {} more", n - 1) } else { String::new() });
        paint(&shorten(&text, look.width, look.ascii), look.palette.dim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Palette, sample::decision};

    #[test]
    fn a_plan_fits_every_width() {
        let (plan, problem) = decision();
        for width in [80, 100, 160] {
            let text = plan_text(&plan, &problem, Look::plain(width), false);
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("plan_{width}"), text);
        }
    }

    #[test]
    fn ascii_is_ascii_and_colour_changes_no_width() {
        let (plan, problem) = decision();
        let look = Look::plain(120).in_ascii();
        let plain = plan_text(&plan, &problem, look, true);
        assert!(plain.is_ascii());
        let coloured = plan_text(&plan, &problem, look.with(Palette::terminal()), true);
        assert!(coloured.contains('\u{1b}'));
        assert_eq!(plain.lines().map(visible).collect::<Vec<_>>(), coloured.lines().map(visible).collect::<Vec<_>>());
    }

    #[test]
    fn what_goes_on_is_counted_and_shown_on_request() {
        let (plan, problem) = decision();
        assert!(plan_text(&plan, &problem, Look::plain(100), false).contains("(1 unchanged; --all shows them)"));
        assert!(plan_text(&plan, &problem, Look::plain(100), true).contains("keep"));
    }

    #[test]
    fn counts_money_and_use_are_those_of_the_plan() {
        let (plan, problem) = decision();
        let diff = PlanDiff::of(&plan, &problem);
        let counts = [ChangeKind::Start, ChangeKind::Move, ChangeKind::Stop, ChangeKind::Job, ChangeKind::Hold, ChangeKind::Short].map(|k| diff.count(k));
        assert_eq!(counts, [2, 1, 2, 2, 1, 2]);
        // Six GPUs held now; twelve at the end: 8 of llama, 1 embed, 1 ocr, 2 batch-eval.
        assert_eq!(diff.gpus_freed, -6);
        assert!((diff.running_cost_per_hour - 6.0 * 2.06).abs() < 1e-9);
        assert!((diff.unserved_requests - 2.1 * 300.0).abs() < 1e-9);
        assert!(diff.asks_for_action());
    }

    #[test]
    fn a_plan_that_keeps_everything_asks_for_nothing() {
        let (mut plan, problem) = decision();
        plan.committed.replicas.retain(|w| w.verb == fleet::Verb::Keep);
        plan.committed.jobs.clear();
        plan.committed.shortfalls.clear();
        plan.report.relaxations.clear();
        let diff = PlanDiff::of(&plan, &problem);
        assert!(!diff.asks_for_action());
        let text = plan_text(&plan, &problem, Look::plain(100), false);
        assert!(text.contains("all demand met at p90 to p95"), "{text}");
    }
}
