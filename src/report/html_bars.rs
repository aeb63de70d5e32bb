//! Where each GPU-hour went: one stacked bar a policy.

use crate::{DemoSummary, PolicyName, number::decimal, svg::Svg};
use fleet::HourKind;

const WIDTH: f64 = 1_120.0;
const LABEL: f64 = 128.0;
const BAR: f64 = 34.0;
const PITCH: f64 = 48.0;
const RIGHT: f64 = 96.0;

/// What a kind of hour is called on the page.
pub(crate) fn kind_title(kind: HourKind) -> &'static str {
    match kind {
        HourKind::UsefulNow => "useful, could not wait",
        HourKind::UsefulLater => "useful, could wait",
        HourKind::LoadingOrRedo => "loading or redone",
        HourKind::Held => "held for a burst",
        HourKind::Idle => "idle",
        HourKind::Failed => "failed",
    }
}

/// The bars, longest policy name to the left, share of useful hours to the right.
pub(crate) fn bars(demo: &DemoSummary) -> String {
    let policies: Vec<_> = PolicyName::ALL.into_iter().filter_map(|name| demo.policies.get(&name).map(|p| (name, p))).collect();
    let top = policies.iter().map(|(_, p)| p.total_hours).fold(1.0, f64::max);
    let mut svg = Svg::new(WIDTH, PITCH * crate::svg::count(policies.len()) + 6.0);
    let scale = (WIDTH - LABEL - RIGHT) / top;
    for (index, (name, policy)) in policies.iter().enumerate() {
        let y = PITCH * crate::svg::count(index) + 4.0;
        let strong = if *name == PolicyName::Turnaround { "label strong" } else { "label" };
        svg.text((LABEL - 12.0, y + 22.0), "end", strong, name.title());
        let mut x = LABEL;
        for kind in HourKind::ALL {
            let hours = policy.hours.get(&kind).copied().unwrap_or(0.0);
            let width = hours * scale;
            if width < 0.1 {
                continue;
            }
            svg.rect(x, y, width, BAR, &format!("k {}", kind.name()));
            svg.rect(x, y, width, BAR, &format!("h {}", kind.name()));
            let text = decimal(hours, 0);
            if width > 8.0 * crate::svg::count(text.len()) + 4.0 {
                svg.text((x + width / 2.0, y + 22.0), "middle", &format!("in {}", kind.name()), &text);
            }
            x += width;
        }
        let useful = crate::percent(policy.useful_utilisation, 1);
        svg.text((WIDTH - RIGHT + 12.0, y + 16.0), "start", strong, &useful);
        svg.text((WIDTH - RIGHT + 12.0, y + 30.0), "start", "tick", "useful");
    }
    svg.finish("GPU-hours by kind, one stacked bar a policy; the same figures are in the table below")
}
