//! Demand against bands: what came, what was forecast, what the plan could serve.

use crate::{
    ServiceChart, WorstMiss,
    number::{or_na, percent, rate},
    svg::{Svg, TimeAxis, count, script_json, ticks},
};
use serde_json::json;
use std::fmt::Write;

const WIDTH: f64 = 1_120.0;
const HEIGHT: f64 = 236.0;
const LEFT: f64 = 48.0;
const TOP: f64 = 18.0;
const BOTTOM: f64 = 210.0;

/// A chart with its finding and the values its tooltip reads.
#[derive(Debug)]
pub(crate) struct DemandChart {
    pub title: String,
    pub finding: String,
    pub svg: String,
    pub data: String,
}

/// One service.
pub(crate) fn chart(service: &ServiceChart, worst: Option<&WorstMiss>) -> DemandChart {
    let worst = worst.filter(|w| w.workload == service.workload);
    let steps = service.observed.len().max(service.band.len()).max(service.planned.len());
    let axis = TimeAxis { start: service.start, step: service.step, steps, left: LEFT, right: WIDTH };
    let known = service.observed.iter().chain(&service.planned).flatten().copied();
    let known = known.chain(worst.map(|w| w.came_per_s));
    let top = known.chain(service.band.iter().flatten().map(|b| b[2])).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let ticks = ticks(top);
    let scale = Scale { top: ticks.last().copied().unwrap_or(1.0) };
    let mut svg = Svg::new(WIDTH, HEIGHT);
    unknown(&mut svg, service, &axis);
    for tick in &ticks {
        let y = scale.y(*tick);
        svg.line((LEFT, y), (WIDTH, y), if *tick > 0.0 { "grid" } else { "axis" });
        svg.text((LEFT - 8.0, y + 4.0), "end", "tick", &crate::decimal(*tick, usize::from(scale.top < 4.0) + usize::from(scale.top < 1.0)));
    }
    axis.draw(&mut svg, TOP, BOTTOM, BOTTOM + 18.0);
    svg.text((LEFT - 8.0, 10.0), "end", "tick", "req/s");
    svg.path(&band(service, &axis, &scale), "band");
    svg.path(&steps_path(&service.planned, &axis, &scale), "planned");
    svg.path(&line_path(service.band.iter().map(|b| b.map(|b| b[1])), &axis, &scale), "median");
    svg.path(&line_path(service.observed.iter().copied(), &axis, &scale), "observed");
    if let Some(miss) = worst {
        mark(&mut svg, miss, &axis, &scale);
    }
    DemandChart { title: service.workload.clone(), finding: finding(service), svg: svg.finish(&finding(service)), data: data(service, &axis) }
}

struct Scale {
    top: f64,
}

impl Scale {
    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * (value / self.top).clamp(0.0, 1.02)
    }
}

/// Hours without a reading or a forecast are shaded, so that a gap is seen as one.
fn unknown(svg: &mut Svg, service: &ServiceChart, axis: &TimeAxis) {
    let mut shade = |missing: &dyn Fn(usize) -> bool, class: &str| {
        let mut at = 0;
        while at < axis.steps {
            let from = at;
            while at < axis.steps && missing(at) {
                at += 1;
            }
            if at > from {
                svg.rect(axis.x(from), TOP, axis.x(at) - axis.x(from), BOTTOM - TOP, class);
            }
            at = at.max(from + 1);
        }
    };
    shade(&|i| service.band.get(i).is_none_or(Option::is_none), "nothing");
    shade(&|i| service.observed.get(i).is_none_or(Option::is_none), "missing");
}

fn band(service: &ServiceChart, axis: &TimeAxis, scale: &Scale) -> String {
    let mut d = String::new();
    let mut at = 0;
    while at < service.band.len() {
        let run: Vec<(usize, [f64; 3])> = (at..service.band.len()).map_while(|i| service.band[i].map(|b| (i, b))).collect();
        at += run.len().max(1);
        let middle = |i: usize| axis.x(i) + axis.pitch() / 2.0;
        for (n, (i, b)) in run.iter().enumerate() {
            let _ = write!(d, "{}{:.1} {:.1}", if n == 0 { 'M' } else { 'L' }, middle(*i), scale.y(b[2]));
        }
        for (i, b) in run.iter().rev() {
            let _ = write!(d, "L{:.1} {:.1}", middle(*i), scale.y(b[0]));
        }
        if !run.is_empty() {
            d.push('Z');
        }
    }
    d
}

fn line_path(values: impl Iterator<Item = Option<f64>>, axis: &TimeAxis, scale: &Scale) -> String {
    let mut d = String::new();
    let mut pen = 'M';
    for (i, value) in values.enumerate() {
        match value.filter(|v| v.is_finite()) {
            Some(value) => {
                let _ = write!(d, "{pen}{:.1} {:.1}", axis.x(i) + axis.pitch() / 2.0, scale.y(value));
                pen = 'L';
            }
            None => pen = 'M',
        }
    }
    d
}

fn steps_path(values: &[Option<f64>], axis: &TimeAxis, scale: &Scale) -> String {
    let mut d = String::new();
    let mut last = None;
    for (i, value) in values.iter().enumerate() {
        if let Some(value) = value.filter(|v| v.is_finite()) {
            let y = scale.y(value);
            let _ = if last.is_none() { write!(d, "M{:.1} {y:.1}", axis.x(i)) } else { write!(d, "V{y:.1}") };
            let _ = write!(d, "H{:.1}", axis.x(i + 1));
            last = Some(value);
        } else {
            last = None;
        }
    }
    d
}

fn mark(svg: &mut Svg, miss: &WorstMiss, axis: &TimeAxis, scale: &Scale) {
    let (x, y) = (axis.x_at(miss.at) + axis.pitch() / 2.0, scale.y(miss.came_per_s));
    svg.circle((x, y), 5.0, "worst");
    let (anchor, dx) = if x > WIDTH * 0.55 { ("end", -10.0) } else { ("start", 10.0) };
    let text = format!("{}: planned {}, came {}", miss.what, or_na(miss.planned_per_s, rate), rate(miss.came_per_s));
    svg.text((x + dx, (y + 4.0).max(14.0)), anchor, "note", &text);
}

/// What the chart says, counted from its own values.
fn finding(service: &ServiceChart) -> String {
    let pairs = || service.observed.iter().zip(&service.band).filter_map(|(o, b)| o.zip(*b));
    let inside = pairs().filter(|(o, b)| b[0] <= *o && *o <= b[2]).count();
    let plans = || service.observed.iter().zip(&service.planned).filter_map(|(o, p)| o.zip(*p));
    let enough = plans().filter(|(o, p)| o <= p).count();
    let share = |part: usize, whole: usize| (whole > 0).then(|| count(part) / count(whole));
    let gaps = service.observed.iter().filter(|o| o.is_none()).count();
    let gaps = if gaps > 0 { format!("; {gaps} hours without a reading") } else { String::new() };
    format!(
        "{} of hours came inside the p5–p95 band (90% is wanted); planned capacity was enough in {}{gaps}",
        percent(share(inside, pairs().count()), 0),
        percent(share(enough, plans().count()), 1)
    )
}

fn data(service: &ServiceChart, axis: &TimeAxis) -> String {
    let short = |v: f64| (v * 100.0).round() / 100.0;
    let value = |v: &Option<f64>| v.map(short);
    script_json(&json!({
        "kind": "demand",
        "start": service.start.0,
        "step": service.step.0,
        "left": LEFT / WIDTH,
        "top": TOP / HEIGHT,
        "bottom": BOTTOM / HEIGHT,
        "steps": axis.steps,
        "observed": service.observed.iter().map(value).collect::<Vec<_>>(),
        "planned": service.planned.iter().map(value).collect::<Vec<_>>(),
        "band": service.band.iter().map(|b| b.map(|b| b.map(short))).collect::<Vec<_>>(),
    }))
}
