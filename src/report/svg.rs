//! A little SVG: shapes are written as text, colours come from the page's style sheet by class.

use fleet::{Span, Timestamp};
use std::fmt::Write;

/// A drawing of fixed size that scales with the page.
#[derive(Debug)]
pub(crate) struct Svg {
    body: String,
    width: f64,
    height: f64,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Self {
        Self { body: String::new(), width, height }
    }

    pub fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str) {
        // Writing to a String cannot fail, here and below.
        let _ = write!(self.body, r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#);
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let _ = write!(self.body, r#"<line class="{class}" x1="{:.1}" y1="{:.1}" x2="{:.1}" y2="{:.1}"/>"#, from.0, from.1, to.0, to.1);
    }

    pub fn path(&mut self, d: &str, class: &str) {
        if !d.is_empty() {
            let _ = write!(self.body, r#"<path class="{class}" d="{d}"/>"#);
        }
    }

    pub fn circle(&mut self, centre: (f64, f64), radius: f64, class: &str) {
        let _ = write!(self.body, r#"<circle class="{class}" cx="{:.1}" cy="{:.1}" r="{radius:.1}"/>"#, centre.0, centre.1);
    }

    /// Text whose baseline begins (`start`), is centred (`middle`) or ends (`end`) at a point.
    pub fn text(&mut self, at: (f64, f64), anchor: &str, class: &str, text: &str) {
        let _ = write!(self.body, r#"<text class="{class}" x="{:.1}" y="{:.1}" text-anchor="{anchor}">{}</text>"#, at.0, at.1, escape(text));
    }

    /// Single letters, each centred at its own point: one element however many there are.
    pub fn letters(&mut self, letter: char, at: &[(f64, f64)], class: &str) {
        for part in at.chunks(200) {
            let list = |pick: fn(&(f64, f64)) -> f64| part.iter().map(|p| format!("{:.0}", pick(p))).collect::<Vec<_>>().join(" ");
            let text = escape(&letter.to_string().repeat(part.len()));
            let _ = write!(self.body, r#"<text class="{class}" x="{}" y="{}">{text}</text>"#, list(|p| p.0), list(|p| p.1));
        }
    }

    /// The element, described for those who do not see it.
    pub fn finish(self, description: &str) -> String {
        let (width, height, body) = (self.width, self.height, self.body);
        format!(r#"<svg viewBox="0 0 {width:.0} {height:.0}" role="img" aria-label="{}">{body}</svg>"#, escape(description))
    }
}

/// Makes a text safe inside an element or a quoted attribute.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

/// JSON that may stand inside a script element.
pub(crate) fn script_json(value: &serde_json::Value) -> String {
    value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// Round numbers from zero to at least `top`, about four of them.
pub(crate) fn ticks(top: f64) -> Vec<f64> {
    if !(top.is_finite() && top > 0.0) {
        return vec![0.0, 1.0];
    }
    let rough = top / 4.0;
    let scale = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * scale).find(|s| *s >= rough - 1e-9).unwrap_or(10.0 * scale);
    let mut ticks = vec![0.0];
    while ticks.last().is_some_and(|last| *last < top - 1e-9) {
        ticks.push(step * count(ticks.len()));
    }
    ticks
}

/// A small count as a number.
#[expect(clippy::cast_precision_loss, reason = "cells and ticks of a chart")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}

const WEEKDAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// "Tue 8": weekday and day of the month in UTC.
pub(crate) fn day_label(at: Timestamp) -> String {
    let weekday = usize::try_from(at.weekday()).ok().and_then(|d| WEEKDAYS.get(d)).unwrap_or(&"");
    let day = at.to_string().chars().skip(8).take(2).collect::<String>();
    format!("{weekday} {}", day.trim_start_matches('0'))
}

/// A time axis: so many steps from `start` drawn between `left` and `right`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeAxis {
    pub start: Timestamp,
    pub step: Span,
    pub steps: usize,
    pub left: f64,
    pub right: f64,
}

impl TimeAxis {
    /// Width of one step.
    pub fn pitch(&self) -> f64 {
        (self.right - self.left) / count(self.steps.max(1))
    }

    /// Left edge of a step.
    pub fn x(&self, step: usize) -> f64 {
        self.left + self.pitch() * count(step)
    }

    /// Place of an instant.
    pub fn x_at(&self, at: Timestamp) -> f64 {
        let steps = at.since(self.start).as_secs_f64() / self.step.as_secs_f64().max(1.0);
        (self.left + self.pitch() * steps).clamp(self.left, self.right)
    }

    /// First step of every day, with its label.
    pub fn days(&self) -> Vec<(f64, String)> {
        let at = |i: usize| Timestamp(self.start.0 + self.step.0 * i64::try_from(i).unwrap_or(0));
        (0..self.steps).filter(|i| at(*i).floor(Span::DAY) == at(*i)).map(|i| (self.x(i), day_label(at(i)))).collect()
    }

    /// Lines at midnight from `top` to `bottom` and the names of the days at `label`.
    pub fn draw(&self, svg: &mut Svg, top: f64, bottom: f64, label: f64) {
        let days = self.days();
        let every = (days.len() / 15).max(1);
        for (index, (x, name)) in days.iter().enumerate() {
            svg.line((*x, top), (*x, bottom), "grid");
            if index % every == 0 && x + 30.0 <= self.right {
                svg.text((x + 4.0, label), "start", "tick", name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_top() {
        assert_eq!(ticks(96.0), [0.0, 25.0, 50.0, 75.0, 100.0]);
        let small: Vec<i64> = ticks(0.7).iter().map(|t| crate::decimal(t * 10.0, 0).parse().unwrap()).collect();
        assert_eq!(small, [0, 2, 4, 6, 8]);
        assert_eq!(ticks(f64::NAN), [0.0, 1.0]);
    }

    #[test]
    fn names_from_outside_cannot_leave_their_element() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text((1.0, 1.0), "start", "tick", "</text><script>");
        assert!(!svg.finish("\"><script>").contains("<script>"));
        assert!(!script_json(&serde_json::json!({ "a": "</script>" })).contains("</script>"));
    }

    #[test]
    fn days_are_named_in_utc() {
        assert_eq!(day_label("2026-12-01T00:00:00Z".parse().unwrap()), "Tue 1");
        let axis = TimeAxis { start: "2026-12-01T22:00:00Z".parse().unwrap(), step: Span::HOUR, steps: 30, left: 0.0, right: 300.0 };
        assert_eq!(axis.days(), [(20.0, "Wed 2".to_owned()), (260.0, "Thu 3".to_owned())]);
    }
}
