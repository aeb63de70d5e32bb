//! What a serving engine or an exporter calls our signals: one table each, as data. The tables that come with the house and those of users
//! (`[[engine]]` of the config) have this same shape.

use crate::{Signal, SignalKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Spellings of one signal at most. Beyond it a table is a mistake.
const SPELLINGS_MAX: usize = 32;
/// Names in one sum at most.
const NAMES_MAX: usize = 8;
/// Bytes of a metric name at most.
const NAME_BYTES_MAX: usize = 256;

/// What a table's owner is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum EngineRole {
    /// Serves a model.
    #[default]
    Server,
    /// Stands in front of servers: a router, a gateway, a frontend.
    Router,
    /// Shows GPUs.
    Gpu,
}

/// How a page is recognised. A table that says nothing here is used only where the config names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Recognised {
    /// A name that begins with the table's first prefix (or one of its other prefixes) and is listed in the table.
    pub by_prefix: bool,
    /// Metric names, without prefix changes, of which enough are on the page.
    pub names: Vec<String>,
    /// How many of `names` are enough; 0 means 1.
    pub at_least: usize,
    /// Only when no other table with the same role is recognised: the names could be anybody's.
    pub generic: bool,
}

/// Where the page tells a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionLabel {
    /// Metric that carries it.
    pub name: String,
    /// Its label.
    pub label: String,
}

/// Labels that tell one device from another, each in all its spellings, newest first: the first one with a value counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct DeviceLabels {
    /// What the vendor calls the device, unique in the world.
    pub uuid: Vec<String>,
    /// Its number on its node.
    pub index: Vec<String>,
    /// The node.
    pub node: Vec<String>,
    /// The product's name.
    pub product: Vec<String>,
    /// Profile of a slice (`1g.10gb`); empty for a whole device.
    pub slice_profile: Vec<String>,
    /// Number of a slice on its device.
    pub slice: Vec<String>,
    /// Slice numbers and profiles that mean "the whole device".
    pub whole: Vec<String>,
    /// The pod that holds the device. The first one that is on a line decides, even if it is empty.
    pub pod: Vec<String>,
    /// Its namespace, in the same order as `pod`.
    pub namespace: Vec<String>,
    /// Its container, in the same order as `pod`.
    pub container: Vec<String>,
    /// Parts of the names of pods that are exporters, never a workload.
    pub exporters: Vec<String>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineTable {
    /// What the engine is called, here and in the config.
    pub name: String,
    /// What it is to us.
    #[serde(default)]
    pub role: EngineRole,
    /// How its pages are recognised.
    #[serde(default)]
    pub recognised: Recognised,
    /// Tables that are not used where this one is recognised: it knows the page better.
    #[serde(default)]
    pub instead_of: Vec<String>,
    /// The prefix that the names below are written with, then others that are found in its place.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// Where the version is found.
    #[serde(default)]
    pub version: Vec<VersionLabel>,
    /// Labels that name the model, newest first.
    #[serde(default)]
    pub models: Vec<String>,
    /// Labels that number the engines of one server: together they make a sample's member.
    #[serde(default)]
    pub members: Vec<String>,
    /// Labels that number copies of one series (ranks of a tensor-parallel group): of series that differ only in these, one is read.
    #[serde(default)]
    pub copies: Vec<String>,
    /// Labels that split a series which is on the page as a whole too (there the label is empty): then the parts are left out.
    #[serde(default)]
    pub wholes: Vec<String>,
    /// Labels that tell devices apart.
    #[serde(default)]
    pub device: DeviceLabels,
    /// Ranges of values (both ends included) that mean "not available".
    #[serde(default)]
    pub blanks: Vec<[f64; 2]>,
    /// Other names of the page: not read, yet reported when they are damaged.
    #[serde(default)]
    pub watched: Vec<String>,
    /// The signals.
    #[serde(default, rename = "signal")]
    pub signals: Vec<SignalRow>,
}

/// One signal of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRow {
    /// The canonical signal.
    pub signal: Signal,
    /// Its spellings, newest first. The first one a page has complete is used; the others are not looked at.
    pub names: Vec<Spelling>,
    /// Not on every page of this engine: its absence is not reported.
    #[serde(default)]
    pub optional: bool,
    /// Values believed, both ends included, in the signal's unit (a histogram's mean). By default [`plausible`].
    #[serde(default)]
    pub range: Option<[f64; 2]>,
}

/// One way a page spells a signal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Spelling {
    /// A name with the signal's own kind and unit.
    Name(String),
    /// Anything else.
    Made(Made),
}

/// A spelling that needs more than a name. Names are without `_total`, `_bucket`, `_sum`, `_count` where these only follow from the kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Made {
    /// Name, or names that are added up: all of them must be there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sum: Vec<String>,
    /// Names that are taken off again, where they are there; the result is never below zero.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub less: Vec<String>,
    /// For a histogram that is on the page only as totals: names (added up) of the number of events, where `sum` is the total of their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// What the TYPE line says where it does not agree with the signal's kind, as in "a total, though typed gauge".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typed: Option<SignalKind>,
    /// Factor to the signal's unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// Labels and the values they must have; an absent label is the empty value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Vec<String>>,
    /// The value is 1 where one of these bits is set, else 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<u32>,
    /// Means nothing for slices of a device.
    pub whole_devices: bool,
    /// First version known to have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Last version known to have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
}

impl Spelling {
    /// The spelling in full.
    #[must_use]
    pub fn made(&self) -> Made {
        match self {
            Self::Name(name) => Made { sum: vec![name.clone()], ..Made::default() },
            Self::Made(made) => made.clone(),
        }
    }
}

/// A table that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("engine {engine:?}{}: {reason}", signal.map(|s| format!(", signal {}", s.name())).unwrap_or_default())]
pub struct EngineTableError {
    /// The table.
    pub engine: String,
    /// The row, where one is at fault.
    pub signal: Option<Signal>,
    /// What is wrong.
    pub reason: String,
}

/// What is believed of a signal where its row says nothing: both ends included, in its unit. Ends are generous: they catch wrong units and
/// marks for "nothing", not bad news.
#[must_use]
pub fn plausible(signal: Signal) -> [f64; 2] {
    match signal.unit() {
        "ratio" | "flag" => [0.0, 1.0],
        "watts" => [0.0, 10_000.0],
        "celsius" => [-50.0, 250.0],
        "bytes" => [0.0, 1e14],
        "processes" | "code" => [0.0, 1e5],
        // A level of requests or seconds: a million waiting, three years.
        _ if signal.kind() == SignalKind::Histogram => [0.0, 1e6],
        _ if signal == Signal::BootTime => [1e9, 1e11],
        _ if signal.kind() == SignalKind::Gauge => [0.0, 1e8],
        // A total: below 2^60, the marks of integer fields lie above.
        _ => [0.0, 1e18],
    }
}

impl EngineTable {
    /// Whether the table can be used.
    ///
    /// # Errors
    /// The first thing that is wrong: no name, no signal, a signal twice, a name that cannot be one, a counter used as a gauge, a factor or a
    /// range that is none.
    pub fn validate(&self) -> Result<(), EngineTableError> {
        let fail = |signal: Option<Signal>, reason: String| Err(EngineTableError { engine: self.name.clone(), signal, reason });
        if self.name.trim().is_empty() || self.name.trim() != self.name {
            return fail(None, "it needs a name, without white space around it".into());
        }
        if self.signals.is_empty() {
            return fail(None, "it names no signal".into());
        }
        let mut seen = BTreeSet::new();
        for row in &self.signals {
            if !seen.insert(row.signal) {
                return fail(Some(row.signal), "the signal has two rows; list its spellings in one".into());
            }
            if let Err(reason) = check_row(row) {
                return fail(Some(row.signal), reason);
            }
        }
        Ok(())
    }

    /// Signals that every page of this engine should have.
    pub fn expected(&self) -> impl Iterator<Item = Signal> {
        self.signals.iter().filter(|row| !row.optional).map(|row| row.signal)
    }
}

fn check_row(row: &SignalRow) -> Result<(), String> {
    if row.names.is_empty() || row.names.len() > SPELLINGS_MAX {
        return Err(format!("it needs 1 to {SPELLINGS_MAX} spellings, {} are given", row.names.len()));
    }
    if let Some([low, high]) = row.range
        && !(low.is_finite() && high.is_finite() && low < high)
    {
        return Err(format!("range [{low}, {high}] is none"));
    }
    row.names.iter().try_for_each(|spelling| check_made(row.signal, &spelling.made()))
}

fn check_made(signal: Signal, made: &Made) -> Result<(), String> {
    if made.sum.is_empty() || made.sum.len() + made.less.len() + made.events.len() > NAMES_MAX {
        return Err(format!("a spelling needs 1 to {NAMES_MAX} names in sum, less and events together"));
    }
    made.sum.iter().chain(&made.less).chain(&made.events).try_for_each(|name| check_name(signal, name))?;
    if made.scale.is_some_and(|scale| !(scale > 0.0 && scale.is_finite())) {
        return Err(format!("scale {} is not a factor above zero", made.scale.unwrap_or_default()));
    }
    let kind = signal.kind();
    match (kind, made.typed) {
        (SignalKind::Gauge, Some(SignalKind::Counter)) => {
            return Err(format!("{} is a counter, {} is a gauge: a running total is no level", made.sum[0], signal.name()));
        }
        (_, Some(SignalKind::Histogram)) | (SignalKind::Histogram, Some(_)) => return Err("histograms are typed as such or not at all".into()),
        _ => {}
    }
    if kind != SignalKind::Gauge && (!made.less.is_empty() || made.bits.is_some()) {
        return Err("less and bits make sense for gauges only".into());
    }
    if kind != SignalKind::Histogram && !made.events.is_empty() {
        return Err("events make sense for histograms only".into());
    }
    if kind == SignalKind::Histogram && made.events.is_empty() && made.sum.len() > 1 {
        return Err("histograms are not added up by name".into());
    }
    Ok(())
}

fn check_name(signal: Signal, name: &str) -> Result<(), String> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(good) || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{name:?} is not a metric name"));
    }
    if signal.kind() == SignalKind::Gauge && name.ends_with("_total") {
        return Err(format!("{name} is a counter by its name, {} is a gauge: a running total is no level", signal.name()));
    }
    if signal.kind() != SignalKind::Histogram && name.ends_with("_bucket") {
        return Err(format!("{name} is a part of a histogram, {} is a {:?}", signal.name(), signal.kind()).to_lowercase());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(signal: Signal, made: Made) -> EngineTable {
        let row = SignalRow { signal, names: vec![Spelling::Made(made)], optional: false, range: None };
        serde_json::from_value(serde_json::json!({ "name": "mine", "signal": [row] })).unwrap()
    }

    fn named(name: &str) -> Made {
        Made { sum: vec![name.into()], ..Made::default() }
    }

    /// Field case 7: using a counter as a gauge in config is refused with a clear message.
    #[test]
    fn a_counter_used_as_a_gauge_is_refused() {
        for made in [named("requests_total"), Made { typed: Some(SignalKind::Counter), ..named("requests") }] {
            let error = table(Signal::RequestsRunning, made).validate().unwrap_err().to_string();
            assert!(error.contains("\"mine\", signal requests_running") && error.contains("counter") && error.contains("no level"), "{error}");
        }
        // The other way round a page may well be wrong about itself.
        assert_eq!(table(Signal::RequestsFinished, Made { typed: Some(SignalKind::Gauge), ..named("requests_total") }).validate(), Ok(()));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let gauge = Signal::RequestsRunning;
        assert!(check_made(gauge, &Made { scale: Some(f64::NAN), ..named("a") }).is_err());
        for (signal, made, why) in [
            (gauge, Made::default(), "needs 1 to 8 names"),
            (gauge, named("9a"), "not a metric name"),
            (gauge, named("a b"), "not a metric name"),
            (gauge, named("a_bucket"), "part of a histogram"),
            (gauge, Made { scale: Some(0.0), ..named("a") }, "above zero"),
            (gauge, Made { scale: Some(-1.0), ..named("a") }, "above zero"),
            (gauge, Made { events: vec!["b".into()], ..named("a") }, "histograms only"),
            (Signal::PromptTokens, Made { less: vec!["b".into()], ..named("a") }, "gauges only"),
            (Signal::EndToEnd, Made { sum: vec!["a".into(), "b".into()], ..Made::default() }, "not added up"),
        ] {
            let error = table(signal, made).validate().unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        let mut twice = table(gauge, named("a"));
        twice.signals.push(twice.signals[0].clone());
        assert!(twice.validate().unwrap_err().to_string().contains("two rows"));
        let unknown = serde_json::from_value::<EngineTable>(serde_json::json!({ "name": "mine", "signal": [{ "signal": "requests_runing", "names": ["a"] }] }));
        assert!(unknown.unwrap_err().to_string().contains("requests_runing"));
    }

    #[test]
    fn every_signal_has_a_plausible_range() {
        for signal in Signal::ALL {
            let [low, high] = plausible(signal);
            assert!(low < high && high.is_finite(), "{}", signal.name());
        }
    }
}
