//! Spellings made ready: every name in every form and under every prefix, so that reading a page only looks names up.

use fleet::{Made, Signal, SignalKind, SignalRow, plausible};
use std::collections::BTreeMap;

/// A row of a table.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) signal: Signal,
    pub(super) range: [f64; 2],
    /// Newest first.
    pub(super) ways: Vec<Way>,
}

/// One spelling.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) sum: Vec<Name>,
    pub(super) less: Vec<Name>,
    pub(super) events: Vec<Name>,
    pub(super) typed: Option<SignalKind>,
    pub(super) scale: f64,
    pub(super) only: BTreeMap<String, Vec<String>>,
    pub(super) bits: Option<u32>,
    pub(super) whole_devices: bool,
}

/// A name in the forms it may have on a page.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) base: String,
    pub(super) total: String,
    pub(super) sum: String,
    pub(super) count: String,
    pub(super) bucket: String,
}

impl Row {
    pub(super) fn of(row: &SignalRow, prefixes: &[String]) -> Self {
        let made = row.names.iter().map(fleet::Spelling::made);
        let ways = made.flat_map(|made| prefixed(&made, prefixes));
        Self { signal: row.signal, range: row.range.unwrap_or_else(|| plausible(row.signal)), ways: ways.collect() }
    }

    /// A row with one plain name, as users give it for one target.
    pub(super) fn named(signal: Signal, name: &str) -> Self {
        let made = Made { sum: vec![name.to_owned()], ..Made::default() };
        Self { signal, range: plausible(signal), ways: vec![Way::of(&made)] }
    }

    /// Every name it reads, in all forms.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        self.ways.iter().flat_map(|way| {
            let scalar = if way.events.is_empty() { self.signal.kind() } else { SignalKind::Counter };
            way.sum.iter().chain(&way.less).chain(&way.events).flat_map(move |name| forms(scalar, &name.base))
        })
    }
}

impl Way {
    fn of(made: &Made) -> Self {
        let names = |names: &[String]| names.iter().map(|name| Name::of(name)).collect();
        Self {
            sum: names(&made.sum),
            less: names(&made.less),
            events: names(&made.events),
            typed: made.typed,
            scale: made.scale.unwrap_or(1.0),
            only: made.only.clone(),
            bits: made.bits,
            whole_devices: made.whole_devices,
        }
    }
}

impl Name {
    fn of(name: &str) -> Self {
        let base = name.strip_suffix("_total").unwrap_or(name);
        let form = |suffix: &str| format!("{base}{suffix}");
        Self { base: base.to_owned(), total: form("_total"), sum: form("_sum"), count: form("_count"), bucket: form("_bucket") }
    }
}

/// The names under which a signal of a kind may stand on a page, its TYPE line included.
pub(super) fn forms(kind: SignalKind, name: &str) -> Vec<String> {
    let name = Name::of(name);
    match kind {
        SignalKind::Counter => vec![name.base, name.total],
        SignalKind::Gauge => vec![name.base],
        SignalKind::Histogram => vec![name.base, name.sum, name.count, name.bucket],
    }
}

/// A name in the forms of every kind.
pub(super) fn any_form(name: &str) -> [String; 5] {
    let name = Name::of(name);
    [name.base, name.total, name.sum, name.count, name.bucket]
}

/// A name under each of a table's prefixes; a name without the first prefix stays as it is.
pub(super) fn swapped(name: &str, prefixes: &[String]) -> Vec<String> {
    match prefixes.first().and_then(|first| name.strip_prefix(first.as_str())) {
        Some(rest) => prefixes.iter().map(|prefix| format!("{prefix}{rest}")).collect(),
        None => vec![name.to_owned()],
    }
}

/// A spelling under each of a table's prefixes.
fn prefixed(made: &Made, prefixes: &[String]) -> Vec<Way> {
    let first = prefixes.first().map_or("", String::as_str);
    let carries = |names: &[String]| names.iter().any(|name| name.starts_with(first));
    if prefixes.len() < 2 || !(carries(&made.sum) || carries(&made.less) || carries(&made.events)) {
        return vec![Way::of(made)];
    }
    let under = |prefix: &String| {
        let swap =
            |names: &[String]| names.iter().map(|name| name.strip_prefix(first).map_or_else(|| name.clone(), |rest| format!("{prefix}{rest}"))).collect();
        Way::of(&Made { sum: swap(&made.sum), less: swap(&made.less), events: swap(&made.events), ..made.clone() })
    };
    prefixes.iter().map(under).collect()
}

/// A spelling as an expression, for people.
pub(super) fn written(made: &Made) -> String {
    let mut text = made.sum.join(" + ");
    for name in &made.less {
        text = format!("{text} - {name}");
    }
    if !made.events.is_empty() {
        text = format!("sum: {text}; count: {}", made.events.join(" + "));
    }
    if let Some(bits) = made.bits {
        text = format!("any of bits {bits:#x} in {text}");
    }
    if let Some(scale) = made.scale {
        text = format!("{scale} * ({text})");
    }
    let labels = made.only.iter().map(|(label, values)| format!("{label}=~\"{}\"", values.join("|")));
    let labels: Vec<String> = labels.collect();
    if !labels.is_empty() {
        text = format!("{text} {{{}}}", labels.join(","));
    }
    if made.whole_devices { format!("{text} (whole devices)") } else { text }
}
