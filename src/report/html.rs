//! The report as one HTML file: nothing is fetched, it opens from a mail attachment.

use crate::{
    DecisionSummary, DemoSummary, Learned, MapKey, PolicyName, PolicySummary, Report, html_bars,
    html_demand::{self, DemandChart},
    html_map::{self, MapChart},
    number::{decimal, money, money_change, or_na, percent, rate, thousands},
    svg::{Svg, day_label},
};
use askama::Template;
use fleet::HourKind;

/// The page could not be written.
#[derive(Debug, thiserror::Error)]
#[error("the HTML report could not be written: {0}")]
pub struct HtmlError(#[from] askama::Error);

/// Renders the report.
///
/// # Errors
/// When the template engine fails, which would be a defect.
pub fn html(report: &Report) -> Result<String, HtmlError> {
    let demo = &report.summary;
    let page = Page {
        demo,
        lead: lead(demo),
        subtitle: subtitle(demo),
        tiles: tiles(demo),
        bars: html_bars::bars(demo),
        hours_finding: hours_finding(demo),
        kinds: kinds(demo),
        rows: rows(demo),
        services: report.services.iter().map(|s| html_demand::chart(s, demo.worst_miss.as_ref())).collect(),
        demand_finding: demand_finding(demo),
        maps: report.maps.iter().map(|m| html_map::chart(m, &report.keys)).collect(),
        keys: report.keys.iter().map(|k| key(&report.keys, k)).collect(),
        decision: demo.decision.as_ref().map(|d| decision(demo, d)),
        learned: demo.learned.iter().map(learned).collect(),
        wrong: wrong(demo),
    };
    Ok(page.render()?)
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    demo: &'a DemoSummary,
    lead: String,
    subtitle: String,
    tiles: Vec<Tile>,
    bars: String,
    hours_finding: String,
    kinds: Vec<Kind>,
    rows: Vec<Vec<String>>,
    services: Vec<DemandChart>,
    demand_finding: String,
    maps: Vec<MapChart>,
    keys: Vec<Key>,
    decision: Option<Decision>,
    learned: Vec<LearnedRow>,
    wrong: String,
}

struct Tile {
    name: &'static str,
    value: String,
    others: Vec<(String, &'static str)>,
}

struct Kind {
    class: &'static str,
    title: &'static str,
}

struct Key {
    letter: char,
    class: String,
    label: String,
}

struct Decision {
    when: String,
    question: String,
    options: Vec<(bool, String, String, String)>,
    result: Option<String>,
}

struct LearnedRow {
    what: String,
    cells: [String; 4],
    unit: String,
    evidence: String,
    picture: String,
}

fn lead(demo: &DemoSummary) -> String {
    let cost = |name| demo.policies.get(&name).map(|p: &PolicySummary| or_na(p.cost_per_useful_gpu_hour, |c| money(c, &demo.currency)));
    let ours = cost(PolicyName::Turnaround).unwrap_or_else(|| "n/a".into());
    let others: Vec<String> =
        [PolicyName::NextFreeGpu, PolicyName::StaticPeak].into_iter().filter_map(|n| cost(n).map(|c| format!("{c} under {}", n.title()))).collect();
    let beside = if others.is_empty() { String::new() } else { format!("; {}", others.join(", ")) };
    format!("A useful GPU-hour cost {ours} under turnaround{beside}.")
}

fn subtitle(demo: &DemoSummary) -> String {
    let (gpus, services, jobs) = (demo.gpus, demo.services, demo.jobs);
    let (from, to) = (day_label(demo.period.start), day_label(fleet::Timestamp(demo.period.end.0 - 1)));
    format!(
        "{gpus} GPUs, {services} services, {jobs} jobs, {}. {} ({from} to {to}) of {} simulated hours; seed {}.",
        demo.traffic,
        demo.period.title,
        decimal(demo.hours_simulated, 0),
        demo.seed
    )
}

fn tiles(demo: &DemoSummary) -> Vec<Tile> {
    let tile = |name, text: &dyn Fn(&PolicySummary) -> String| Tile {
        name,
        value: demo.policies.get(&PolicyName::Turnaround).map_or_else(|| "n/a".to_owned(), text),
        others: [PolicyName::NextFreeGpu, PolicyName::StaticPeak].into_iter().filter_map(|n| demo.policies.get(&n).map(|p| (text(p), n.title()))).collect(),
    };
    vec![
        tile("per useful GPU-hour", &|p| or_na(p.cost_per_useful_gpu_hour, |c| money(c, &demo.currency))),
        tile("of all hours useful", &|p| percent(p.useful_utilisation, 1)),
        tile("of requests in time", &|p| percent(p.attainment, 1)),
        tile("jobs late", &|p| if p.jobs_due == 0 { "n/a".to_owned() } else { format!("{} of {}", p.jobs_late, p.jobs_due) }),
    ]
}

fn hours_finding(demo: &DemoSummary) -> String {
    let idle = |name| demo.policies.get(&name).and_then(|p: &PolicySummary| p.hours.get(&HourKind::Idle).copied());
    let ours = idle(PolicyName::Turnaround);
    let text = |name: PolicyName| idle(name).map(|h| format!("{} under {}", decimal(h, 0), name.title()));
    let others: Vec<String> = [PolicyName::NextFreeGpu, PolicyName::StaticPeak].into_iter().filter_map(text).collect();
    format!("Idle: {} GPU-hours under turnaround, {}", or_na(ours, |h| decimal(h, 0)), others.join(", "))
}

fn demand_finding(demo: &DemoSummary) -> String {
    let (ours, naive) = (percent(demo.forecast.wql, 1), percent(demo.forecast.seasonal_naive_wql, 1));
    format!("Forecasts missed by {ours} of demand (weighted quantile loss), seasonal naive by {naive}")
}

fn kinds(demo: &DemoSummary) -> Vec<Kind> {
    let any = |kind: &HourKind| demo.policies.values().any(|p| p.hours.get(kind).is_some_and(|h| *h > 0.0));
    HourKind::ALL.into_iter().filter(any).map(|kind| Kind { class: kind.name(), title: html_bars::kind_title(kind) }).collect()
}

/// Table of hours: name, every kind that occurs, sum, bill, useful share, cost per useful hour, in time, late.
fn rows(demo: &DemoSummary) -> Vec<Vec<String>> {
    let shown: Vec<HourKind> = HourKind::ALL.into_iter().filter(|k| demo.policies.values().any(|p| p.hours.get(k).is_some_and(|h| *h > 0.0))).collect();
    let row = |name: PolicyName| {
        let p = demo.policies.get(&name)?;
        let mut cells = vec![name.title().to_owned()];
        cells.extend(shown.iter().map(|k| or_na(p.hours.get(k).copied(), |h| decimal(h, 0))));
        cells.extend([decimal(p.total_hours, 0), decimal(p.bill, 0), percent(p.useful_utilisation, 1), or_na(p.cost_per_useful_gpu_hour, |c| decimal(c, 2))]);
        cells.extend([percent(p.attainment, 1), if p.jobs_due == 0 { "n/a".into() } else { format!("{}/{}", p.jobs_late, p.jobs_due) }]);
        Some(cells)
    };
    PolicyName::ALL.into_iter().filter_map(row).collect()
}

fn key(keys: &[MapKey], key: &MapKey) -> Key {
    Key { letter: key.letter, class: html_map::key_class(keys, key), label: key.label.clone() }
}

fn decision(demo: &DemoSummary, decision: &DecisionSummary) -> Decision {
    let option = |o: &crate::DecisionOption| (o.chosen, o.text.clone(), or_na(o.value, |v| money_change(v, &demo.currency)), o.note.clone());
    let result = decision.result.as_ref().map(|r| {
        let ready = r.ready_at.map_or_else(String::new, |at| format!(" The replica was ready at {}.", at.clock()));
        format!("{}: forecast p50 {}, p95 {} req/s; {} came.{ready}", r.at.clock(), rate(r.p50), rate(r.p95), or_na(r.came, rate))
    });
    Decision {
        when: format!("{} {} UTC", day_label(decision.at), decision.at.clock()),
        question: decision.question.clone(),
        options: decision.options.iter().map(option).collect(),
        result,
    }
}

fn learned(l: &Learned) -> LearnedRow {
    let off = l.truth.filter(|t| *t > 0.0).map(|t| (l.learned / t - 1.0) * 100.0);
    let off = or_na(off, |o| format!("{}{}%", if o > 0.0 { "+" } else { "" }, decimal(o, 1)));
    LearnedRow {
        what: l.what.clone(),
        cells: [rate(l.prior), rate(l.learned), or_na(l.truth, rate), off],
        unit: l.unit.clone(),
        evidence: thousands(usize::try_from(l.evidence).unwrap_or(usize::MAX)),
        picture: learned_picture(l),
    }
}

/// Prior (ring), learned (dot) and truth (bar) on a line from 40 % to 160 % of the truth.
fn learned_picture(l: &Learned) -> String {
    let Some(truth) = l.truth.filter(|t| *t > 0.0) else { return String::new() };
    let x = |value: f64| 8.0 + 184.0 * ((value / truth - 0.4) / 1.2).clamp(0.0, 1.0);
    let mut svg = Svg::new(200.0, 20.0);
    svg.line((8.0, 10.0), (192.0, 10.0), "grid");
    svg.line((x(truth), 2.0), (x(truth), 18.0), "truth");
    svg.line((x(l.prior), 10.0), (x(l.learned), 10.0), "trail");
    svg.circle((x(l.prior), 10.0), 4.0, "prior");
    svg.circle((x(l.learned), 10.0), 4.5, "found");
    svg.finish(&format!("from {} to {}, truth {}", rate(l.prior), rate(l.learned), rate(truth)))
}

fn wrong(demo: &DemoSummary) -> String {
    demo.worst_miss.as_ref().map_or_else(
        || "Nothing: no request was late.".to_owned(),
        |m| {
            let late = thousands(usize::try_from(m.requests_late).unwrap_or(usize::MAX));
            format!(
                "{} ({} {} UTC, {}): planned for {} req/s, {} came; {late} requests late.",
                m.what,
                day_label(m.at),
                m.at.clock(),
                m.workload,
                or_na(m.planned_per_s, rate),
                rate(m.came_per_s)
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::report;

    #[test]
    fn the_page_is_one_file_below_a_megabyte() {
        let page = html(&report()).unwrap();
        assert!(page.len() < 1_000_000, "{} bytes", page.len());
        for outside in ["http://", "https://", "src=", "@import", "<link"] {
            let found = page.matches(outside).count();
            assert_eq!(found, 0, "{outside} occurs {found} times");
        }
        if let Some(path) = option_env!("REPORT_SAMPLE") {
            std::fs::write(path, &page).unwrap();
        }
    }

    #[test]
    fn names_from_outside_stay_text() {
        let mut report = report();
        report.services[0].workload = "</script><b>x".into();
        report.summary.learned[0].what = "<img>".into();
        let page = html(&report).unwrap();
        assert!(!page.contains("</script><b>") && !page.contains("<img>"));
    }

    #[test]
    fn nothing_known_is_said_so() {
        let mut report = report();
        report.summary.policies.clear();
        report.services.clear();
        report.maps.clear();
        let page = html(&report).unwrap();
        assert!(page.contains("n/a") && !page.contains("NaN"));
    }
}
