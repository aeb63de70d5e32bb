//! GPU x hour: who had which GPU when.

use crate::{
    GpuMap, MapKey,
    svg::{Svg, TimeAxis, count, script_json},
};
use fleet::HourKind;
use serde_json::json;
use std::{collections::BTreeMap, fmt::Write};

const WIDTH: f64 = 1_120.0;
const LEFT: f64 = 84.0;
const TOP: f64 = 22.0;
const ROW: f64 = 15.0;
const NODE_GAP: f64 = 9.0;
/// Shades of a kind in the style sheet.
const SHADES: usize = 6;
/// Runs narrower than this carry no letter.
const LETTER_WIDTH_MIN: f64 = 9.0;

/// A run wider than this carries its letter more than once.
const NAME_EVERY: f64 = 150.0;

/// A map with the values its tooltip reads.
#[derive(Debug)]
pub(crate) struct MapChart {
    pub id: String,
    pub title: String,
    pub finding: String,
    pub svg: String,
    pub data: String,
}

/// The style of a key: its kind and its place among the keys of that kind (six shades each).
pub(crate) fn key_class(keys: &[MapKey], key: &MapKey) -> String {
    let place = keys.iter().filter(|k| k.kind == key.kind).position(|k| k.letter == key.letter).unwrap_or(0);
    format!("{} s{}", key.kind.name(), place % SHADES)
}

/// One policy.
pub(crate) fn chart(map: &GpuMap, keys: &[MapKey]) -> MapChart {
    let steps = map.rows.iter().map(|r| r.cells.chars().count()).max().unwrap_or(0);
    let axis = TimeAxis { start: map.start, step: map.step, steps, left: LEFT, right: WIDTH };
    let tops = tops(map);
    let bottom = tops.last().map_or(TOP, |t| t + ROW);
    let mut svg = Svg::new(WIDTH, bottom + 8.0);
    for (row, top) in map.rows.iter().zip(&tops) {
        svg.rect(LEFT, *top, WIDTH - LEFT, ROW - 1.5, "k idle");
        svg.text((LEFT - 8.0, top + 10.5), "end", "tick", &row.gpu);
    }
    for (index, row) in map.rows.iter().enumerate() {
        if index == 0 || map.rows[index - 1].node != row.node {
            svg.text((0.0, tops[index] + 10.5), "start", "label", &row.node);
        }
    }
    for (letter, runs) in runs(map) {
        draw_runs(&mut svg, letter, &runs, keys, &axis, &tops);
    }
    axis.draw(&mut svg, TOP - 16.0, bottom, 12.0);
    let description = format!("GPU by hour under {}: one row a GPU, letters as in the legend", map.policy.title());
    MapChart {
        id: format!("map-{}", map.policy.title().replace(' ', "-")),
        title: map.policy.title().to_owned(),
        finding: finding(map),
        svg: svg.finish(&description),
        data: data(map, keys, &tops, bottom + 8.0),
    }
}

fn finding(map: &GpuMap) -> String {
    let cells = || map.rows.iter().flat_map(|r| r.cells.chars());
    let taken = cells().filter(|c| *c != '.').count();
    let changes = map.rows.iter().map(|r| r.cells.chars().zip(r.cells.chars().skip(1)).filter(|(a, b)| a != b).count()).sum();
    let share = (!map.rows.is_empty()).then(|| count(taken) / count(cells().count().max(1)));
    format!("{}: {} of GPU-hours taken, GPUs changed hands {} times", map.policy.title(), crate::percent(share, 0), crate::number::thousands(changes))
}

fn tops(map: &GpuMap) -> Vec<f64> {
    let mut gaps = 0.0;
    let mut tops = Vec::with_capacity(map.rows.len());
    for (index, row) in map.rows.iter().enumerate() {
        if index > 0 && map.rows[index - 1].node != row.node {
            gaps += NODE_GAP;
        }
        tops.push(TOP + ROW * count(index) + gaps);
    }
    tops
}

/// Runs of equal letters as (row, first cell, cells), by letter; idle cells are the background.
fn runs(map: &GpuMap) -> BTreeMap<char, Vec<(usize, usize, usize)>> {
    let mut runs: BTreeMap<char, Vec<(usize, usize, usize)>> = BTreeMap::new();
    for (row, gpu) in map.rows.iter().enumerate() {
        let cells: Vec<char> = gpu.cells.chars().collect();
        let mut at = 0;
        while at < cells.len() {
            let length = cells[at..].iter().take_while(|c| **c == cells[at]).count();
            if cells[at] != '.' {
                runs.entry(cells[at]).or_default().push((row, at, length));
            }
            at += length;
        }
    }
    runs
}

fn draw_runs(svg: &mut Svg, letter: char, runs: &[(usize, usize, usize)], keys: &[MapKey], axis: &TimeAxis, tops: &[f64]) {
    let key = keys.iter().find(|k| k.letter == letter);
    let class = key.map_or_else(|| "unknown".to_owned(), |k| key_class(keys, k));
    let mut d = String::new();
    let mut letters = Vec::new();
    for (row, from, length) in runs {
        let (x, y) = (axis.x(*from), tops[*row]);
        let width = axis.pitch() * count(*length);
        let _ = write!(d, "M{x:.1} {y:.1}h{width:.1}v{:.1}h-{width:.1}z", ROW - 1.5);
        if width >= LETTER_WIDTH_MIN {
            // A long run is named once every so often, so that the name is near wherever one looks.
            let names = (width / NAME_EVERY).ceil().max(1.0);
            let mut at = 0.5;
            while at < names {
                letters.push((x + width * at / names, y + 10.5));
                at += 1.0;
            }
        }
    }
    svg.path(&d, &format!("k {class}"));
    if key.is_none_or(|k| !matches!(k.kind, HourKind::UsefulNow | HourKind::UsefulLater | HourKind::Idle)) {
        svg.path(&d, &format!("h {class}"));
    }
    svg.letters(letter, &letters, &format!("cell {class}"));
}

fn data(map: &GpuMap, keys: &[MapKey], tops: &[f64], height: f64) -> String {
    let rows: Vec<_> = map.rows.iter().zip(tops).map(|(r, top)| json!([format!("{}/{}", r.node, r.gpu), top / height, r.cells])).collect();
    let names: BTreeMap<String, &str> = keys.iter().map(|k| (k.letter.to_string(), k.label.as_str())).collect();
    script_json(&json!({
        "kind": "map",
        "start": map.start.0,
        "step": map.step.0,
        "left": LEFT / WIDTH,
        "row": ROW / height,
        "rows": rows,
        "keys": names,
    }))
}
