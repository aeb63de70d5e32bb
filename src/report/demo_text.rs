//! The demo's screen.

use crate::{
    Align, DayMap, DecisionSummary, DemoSummary, Grid, Learned, Look, PolicyName, PolicySummary,
    look::{paint, wrap},
    number::{NOT_KNOWN, decimal, money, money_change, or_na, percent, rate, thousands},
};
use anstyle::Style;
use fleet::HourKind;

/// Learned figures on the screen; the report has all of them.
const LEARNED_SHOWN: usize = 2;
/// Width of the words that begin the closing lines.
const LABEL: usize = 9;

/// The demo's screen. `elapsed_s` is wall-clock time, known only to the caller, as are the `last` lines: files written, what to do next.
#[must_use]
pub fn demo_text(demo: &DemoSummary, elapsed_s: Option<u64>, last: &[(&str, String)], look: Look) -> String {
    let mut lines = title(demo, elapsed_s, look);
    lines.extend(policies(demo, look));
    if let Some(day) = &demo.day {
        lines.push(String::new());
        lines.extend(day_lines(day, look));
    }
    if let Some(decision) = &demo.decision {
        lines.push(String::new());
        lines.extend(decision_lines(demo, decision, look));
    }
    lines.extend(closing(demo, last, look));
    lines.join("\n") + "\n"
}

fn title(demo: &DemoSummary, elapsed_s: Option<u64>, look: Look) -> Vec<String> {
    let elapsed = elapsed_s.map_or_else(String::new, |s| format!("; {s} s"));
    let (gpus, services, jobs) = (demo.gpus, demo.services, demo.jobs);
    let first = format!("{gpus} GPUs, {services} services, {jobs} jobs; {}{elapsed}", demo.traffic);
    vec![paint(&first, look.palette.strong)]
}

/// The bills, when they are the same for all to the unit; else `None`.
fn same_bill(demo: &DemoSummary) -> Option<f64> {
    let mut bills = demo.policies.values().map(|p| p.bill);
    let first = bills.next()?;
    bills.all(|b| (b - first).abs() < 0.5).then_some(first)
}

fn policies(demo: &DemoSummary, look: Look) -> Vec<String> {
    let Some(any) = demo.policies.values().next() else { return Vec::new() };
    let bill = same_bill(demo);
    let same = bill.map_or_else(|| "same GPUs and traffic".to_owned(), |b| format!("same GPUs, traffic and bill ({})", money(b, &demo.currency)));
    let total = decimal(any.total_hours, 0);
    let mut lines = wrap(&format!("{}: {same}. GPU-hours; rows add up to {total}", demo.period.title), look.width);
    let failed = demo.policies.values().any(|p| p.hours.get(&HourKind::Failed).copied().unwrap_or(0.0) > 0.0);
    let mut heads = [vec!["", "could", "could", "load/", "", ""], vec!["", "not wait", "wait", "redo", "held", "idle"]];
    heads[0].extend(if failed { [""].as_slice() } else { &[] });
    heads[1].extend(if failed { ["failed"].as_slice() } else { &[] });
    let price = format!("{} per", demo.currency);
    heads[0].extend(["on", "late", price.as_str()]);
    heads[1].extend(["time", "jobs", "useful h"]);
    let (bill_head, has_bill) = (format!("bill, {}", demo.currency), bill.is_none());
    if has_bill {
        heads[0].push("");
        heads[1].push(&bill_head);
    }
    let mut align = vec![Align::Right; heads[0].len()];
    align[0] = Align::Left;
    let mut grid = Grid::new(&align, 2);
    for head in heads {
        grid.row(look.palette.dim, head);
    }
    for name in PolicyName::ALL {
        let Some(policy) = demo.policies.get(&name) else { continue };
        let style = if name == PolicyName::Turnaround { look.palette.strong } else { Style::new() };
        grid.row(style, policy_cells(name, policy, failed, has_bill));
    }
    lines.extend(grid.lines(look.width, look.ascii));
    lines
}

fn policy_cells(name: PolicyName, policy: &PolicySummary, failed: bool, bill: bool) -> Vec<String> {
    let hours = |kind| or_na(policy.hours.get(&kind).copied(), |h| decimal(h, 0));
    let kinds = HourKind::ALL.into_iter().filter(|k| failed || *k != HourKind::Failed);
    let mut cells = vec![name.title().to_owned()];
    cells.extend(kinds.map(hours));
    let late = if policy.jobs_due == 0 { NOT_KNOWN.to_owned() } else { format!("{}/{}", policy.jobs_late, policy.jobs_due) };
    cells.extend([percent(policy.attainment, 1), late, or_na(policy.cost_per_useful_gpu_hour, |c| decimal(c, 2))]);
    cells.extend(bill.then(|| decimal(policy.bill, 0)));
    cells
}

fn day_lines(day: &DayMap, look: Look) -> Vec<String> {
    let keys = day.keys.iter().map(|k| format!("{} {}", k.letter, k.label)).collect::<Vec<_>>().join("  ");
    let longest = day.strips.iter().map(|s| s.policy.title().len()).max().unwrap_or(0);
    let first = day.title.chars().count().max(longest) + 2;
    let hours = "00 03 06 09 12 15 18 21 ";
    let mut lines = Vec::new();
    let beside = first + 24 + 3 + keys.chars().count() <= look.width;
    let clock = format!("{:first$}{}", day.title, if beside { format!("{hours}   {keys}") } else { hours.trim_end().to_owned() });
    lines.push(paint(&clock, look.palette.dim));
    for strip in &day.strips {
        let style = if strip.policy == PolicyName::Turnaround { look.palette.strong } else { Style::new() };
        let note = strip.note.as_ref().map_or_else(String::new, |n| format!("   {n}"));
        let line = format!("{:first$}{}{note}", strip.policy.title(), strip.cells);
        lines.push(paint(&crate::look::shorten(line.trim_end(), look.width, look.ascii), style));
    }
    if !beside {
        lines.extend(wrap(&keys, look.width - 2).into_iter().map(|l| paint(&format!("  {l}"), look.palette.dim)));
    }
    lines
}

fn decision_lines(demo: &DemoSummary, decision: &DecisionSummary, look: Look) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (index, part) in wrap(&decision.question, look.width - 7).into_iter().enumerate() {
        let clock = if index == 0 { decision.at.clock() } else { " ".repeat(5) };
        lines.push(paint(&format!("{clock}  {part}"), look.palette.strong));
    }
    let mut grid = Grid::new(&[Align::Left, Align::Left, Align::Right, Align::Left], 2);
    for option in &decision.options {
        let style = if option.chosen { look.palette.start } else { Style::new() };
        let value = or_na(option.value, |v| money_change(v, &demo.currency));
        grid.row(style, [if option.chosen { ">" } else { " " }.to_owned(), option.text.clone(), value, option.note.clone()]);
    }
    lines.extend(grid.lines(look.width - 2, look.ascii).iter().map(|l| format!("  {l}")));
    if let Some(r) = &decision.result {
        let came = or_na(r.came, rate);
        let ready = r.ready_at.map_or_else(String::new, |at| format!("; ready {}", at.clock()));
        lines.push(format!("  {}  forecast p50 {}, p95 {} req/s; came {came}{ready}", r.at.clock(), rate(r.p50), rate(r.p95)));
    }
    lines
}

fn closing(demo: &DemoSummary, last: &[(&str, String)], look: Look) -> Vec<String> {
    let wrong = demo.worst_miss.as_ref().map_or_else(
        || "nothing: no request was late".to_owned(),
        |m| {
            let late = thousands(usize::try_from(m.requests_late).unwrap_or(usize::MAX));
            format!("{}: planned {}, came {} req/s; {late} requests late", m.what, or_na(m.planned_per_s, rate), rate(m.came_per_s))
        },
    );
    let more = demo.learned.len().saturating_sub(LEARNED_SHOWN);
    let more = if more > 0 { format!("; {more} more in the report") } else { String::new() };
    let first = demo.learned.iter().take(LEARNED_SHOWN).map(|l| learned(l, look)).collect::<Vec<_>>().join("; ");
    let learned = if first.is_empty() { "nothing yet".to_owned() } else { first + &more };
    let score = |wql: Option<f64>| or_na(wql, |v| decimal(v, 3));
    let forecast = format!("WQL {}; seasonal naive {}", score(demo.forecast.wql), score(demo.forecast.seasonal_naive_wql));
    let cycles = thousands(usize::try_from(demo.cycles).unwrap_or(usize::MAX));
    let loops = format!("{cycles} cycles; {} plans published, {} refused by the verifier", demo.plans_published, demo.plans_refused);
    let mut lines = Vec::new();
    let found = [("Wrong", wrong), ("Learned", learned), ("Forecast", forecast), ("Loop", loops)];
    for (label, text) in found.iter().chain(last) {
        for (index, part) in wrap(text, look.width - LABEL).into_iter().enumerate() {
            let label = if index == 0 { *label } else { "" };
            lines.push(format!("{}{part}", paint(&format!("{label:LABEL$}"), look.palette.dim)));
        }
    }
    lines
}

fn learned(l: &Learned, look: Look) -> String {
    let truth = or_na(l.truth, rate);
    format!("{} {} {} {} {} (true {truth})", l.what, rate(l.prior), if look.ascii { "->" } else { "→" }, rate(l.learned), l.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::report;

    #[test]
    fn the_screen_fits_every_width() {
        for width in [80, 100, 160] {
            let text = demo_text(&report().summary, Some(41), &next(), Look::plain(width));
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("demo_{width}"), text);
        }
    }

    #[test]
    fn ascii_is_ascii_and_colour_changes_no_letter() {
        let plain = demo_text(&report().summary, None, &next(), Look::plain(100).in_ascii());
        assert!(plain.is_ascii());
        let coloured = demo_text(&report().summary, None, &next(), Look::plain(100).in_ascii().with(crate::Palette::terminal()));
        assert_ne!(plain, coloured);
        assert_eq!(plain, strip(&coloured));
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let mut demo = report().summary;
        demo.forecast.wql = None;
        if let Some(policy) = demo.policies.get_mut(&PolicyName::Turnaround) {
            policy.attainment = None;
            policy.cost_per_useful_gpu_hour = None;
        }
        let text = demo_text(&demo, None, &next(), Look::plain(100));
        assert!(text.contains("WQL n/a"), "{text}");
        let row = text.lines().find(|l| l.starts_with("turnaround")).unwrap();
        assert_eq!(row.matches("n/a").count(), 2, "{row}");
    }

    #[test]
    fn keys_of_the_json_are_the_promised_ones() {
        let json = serde_json::to_value(report().summary).unwrap();
        for name in ["turnaround", "next-free-gpu", "static-peak"] {
            let policy = &json["policies"][name];
            for key in ["useful_utilisation", "cost_per_useful_gpu_hour", "attainment", "jobs_late"] {
                assert!(policy[key].is_number(), "{name}.{key}");
            }
            let hours: f64 = policy["hours"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
            assert!((hours - policy["total_hours"].as_f64().unwrap()).abs() < 1e-6);
        }
        assert!(json["forecast"]["wql"].is_number() && json["forecast"]["seasonal_naive_wql"].is_number() && json["worst_miss"].is_object());
    }

    fn next() -> [(&'static str, String); 1] {
        [("Next", "turnaround init --sample".to_owned())]
    }

    fn strip(text: &str) -> String {
        let mut out = String::new();
        let mut hidden = false;
        for c in text.chars() {
            match c {
                '\u{1b}' => hidden = true,
                'm' if hidden => hidden = false,
                _ if hidden => {}
                _ => out.push(c),
            }
        }
        out
    }
}
