//! Metric names that a file gives to signals: what a name says of kind and unit must agree with what the signal is.

use crate::{
    error::{Code, Findings},
    nearest::nearest,
    written::At,
};
use fleet::{Signal, SignalKind};
use std::{collections::BTreeMap, ops::Range};

/// Gauges an engine is known to show, to tell a gauge taken for a counter. (Counters and histogram parts are told by their suffix.)
const KNOWN_GAUGES: [&str; 6] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_swapped",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:gpu_prefix_cache_hit_rate",
];

/// Units as metric names end with them by Prometheus' own conventions, and in which unit of ours they say the value is. Names that end in anything
/// else say nothing. (A ratio in percent is not told here: engines print shares under names that end in `_perc`.)
const UNIT_ENDINGS: [(&str, &str); 14] = [
    ("requests", "requests"),
    ("tokens", "tokens"),
    ("sequences", "sequences"),
    ("seconds", "seconds"),
    ("milliseconds", "milliseconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("microseconds", "microseconds"),
    ("bytes", "bytes"),
    ("joules", "joules"),
    ("mj", "millijoules"),
    ("watts", "watts"),
    ("celsius", "celsius"),
    ("ratio", "ratio"),
];

/// The signal of that name.
pub(crate) fn signal(key: &str, at: Range<usize>, of_gpus: bool, findings: &mut Findings<'_>) -> Option<Signal> {
    let found = Signal::ALL.into_iter().find(|signal| signal.name() == key);
    if let Some(signal) = found {
        // The start of a node or process is told by pages of both kinds.
        if signal.of_gpu() == of_gpus || signal == Signal::BootTime {
            return Some(signal);
        }
        let (is, here) = if of_gpus { ("serving engines", "GPUs") } else { ("GPUs", "a service") };
        let message = format!("{key} is a signal of {is}, and this source tells of {here}");
        findings.refuse(Code::Metric, at, message, "another kind of source", "map it at the source it is read from");
        return None;
    }
    let known: Vec<String> = Signal::ALL.into_iter().filter(|signal| signal.of_gpu() == of_gpus).map(Signal::name).collect();
    let help = nearest(key, known.iter().map(String::as_str)).map_or_else(|| format!("known: {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
    findings.refuse(Code::UnknownKey, at, format!("there is no signal {key:?}"), "unknown signal", help);
    None
}

/// Metric names by signal.
pub(crate) fn metrics(written: &BTreeMap<String, At<String>>, of_gpus: bool, findings: &mut Findings<'_>) -> BTreeMap<Signal, String> {
    let mut metrics = BTreeMap::new();
    for (key, at) in written {
        let Some(signal) = signal(key, at.span(), of_gpus, findings) else { continue };
        if agrees(signal, at.get(), None, at.span(), findings) {
            metrics.insert(signal, at.get().clone());
        }
    }
    metrics
}

/// Whether a metric may stand for a signal, by what its name says. `unit` is what the file says the metric's unit is. What speaks against it is noted.
pub(crate) fn agrees(signal: Signal, name: &str, unit: Option<&str>, at: Range<usize>, findings: &mut Findings<'_>) -> bool {
    let key = signal.name();
    let wants = signal.kind();
    if name.trim().is_empty() {
        findings.refuse(Code::Metric, at, format!("{key} is given no metric"), "empty", "name the metric");
        return false;
    }
    // Sum and count of a histogram are counters of their own, and some engines call plain counters so.
    let part = ["_bucket", "_sum", "_count"].into_iter().find(|suffix| name.ends_with(suffix));
    if let Some(suffix) = part.filter(|part| wants != SignalKind::Counter || *part == "_bucket") {
        let whole = name.trim_end_matches(suffix);
        let help = if wants == SignalKind::Histogram { format!("name the histogram itself: {whole}") } else { format!("name a {}", word(wants)) };
        findings.refuse(Code::Metric, at, format!("{name} is a part of a histogram, and {key} is a {}", word(wants)), "part of a histogram", help);
        return false;
    }
    if let Some(is) = kind_of(name).filter(|is| *is != wants) {
        let message = format!("{name} is a {}, and {key} asks for a {}", word(is), word(wants));
        let help = if (is, wants) == (SignalKind::Counter, SignalKind::Gauge) {
            "a counter only grows, so it would look like load that never falls: name the gauge that shows what is there now".to_owned()
        } else {
            format!("name a {}", word(wants))
        };
        findings.refuse(Code::Metric, at, message, format!("a {}", word(is)), help);
        return false;
    }
    let said = unit_of(name).filter(|_| unit.is_none());
    if let Some(said) = said.filter(|said| comparable(signal.unit()) && *said != signal.unit()) {
        let wants = signal.unit();
        let message = format!("{name} is in {said}, and {key} is in {wants}");
        findings.refuse(Code::Unit, at, message, format!("in {said}"), format!("name a metric in {wants}"));
        return false;
    }
    true
}

/// What a name says of the metric's kind.
fn kind_of(name: &str) -> Option<SignalKind> {
    if name.ends_with("_total") {
        Some(SignalKind::Counter)
    } else if KNOWN_GAUGES.contains(&name) {
        Some(SignalKind::Gauge)
    } else {
        None
    }
}

/// What a name says of the metric's unit.
fn unit_of(name: &str) -> Option<&'static str> {
    let name = ["_total", "_sum"].into_iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let last = name.rsplit(['_', ':']).next()?;
    UNIT_ENDINGS.iter().find(|(ending, _)| *ending == last).map(|(_, unit)| *unit)
}

/// Whether a unit is one that a name's ending can speak against: plain counts (events, flags, codes, processes) go by many words.
fn comparable(unit: &str) -> bool {
    UNIT_ENDINGS.iter().any(|(_, known)| *known == unit)
}

pub(crate) fn word(kind: SignalKind) -> &'static str {
    match kind {
        SignalKind::Counter => "counter",
        SignalKind::Gauge => "gauge",
        SignalKind::Histogram => "histogram",
    }
}
