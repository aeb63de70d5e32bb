//! The keys that all pages share.

use crate::{
    access::access,
    error::{Code, Findings},
    metric_names::metrics,
    nearest::nearest,
    resolved_sources::{PageLimits, PageSettings},
    typed_sources::PageKeys,
    written::{At, WrittenLatency, WrittenSpan},
};
use fleet::Span;
use std::time::Duration;

/// Time between two looks unless said otherwise: Prometheus' own habit for fast-moving pages.
pub(crate) const INTERVAL: Span = Span(15);
/// Slowest look that still shows what an hour was like.
pub(crate) const INTERVAL_MAX: Span = Span(600);
/// Longest wait for a page: a proxy under load was seen to take 3 to 7 s for its own.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest page: twenty times the largest that were recorded (0.8 MB).
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Most that may be asked for.
const PAGE_BYTES_LIMIT: usize = 1 << 30;
/// Most series of a page: a serving engine has some hundreds, a large node some thousands.
const SERIES_MAX: usize = 200_000;
/// Most that may be asked for.
const SERIES_LIMIT: i64 = 5_000_000;

/// Engines, routers and exporters that are recognised without being written down, by the names of their tables.
pub const ENGINES: [&str; 19] = [
    "vllm",
    "sglang",
    "tgi",
    "triton",
    "tensorrt-llm",
    "nim",
    "llama.cpp",
    "dynamo-worker",
    "dynamo",
    "inference-gateway",
    "litellm",
    "ray-serve",
    "sglang-router",
    "vllm-router",
    "router",
    "dcgm",
    "nvidia-smi",
    "amd",
    "turnaround-agent",
];

/// How a page is read. `plain` tells that its address is without TLS, `own` are engines the file adds.
pub(crate) fn page(keys: PageKeys<'_>, plain: bool, of_gpus: bool, own: &[&str], findings: &mut Findings<'_>) -> Option<PageSettings> {
    let access = access(keys.access, plain, findings);
    let interval = interval(keys.interval, findings);
    let timeout = timeout(keys.timeout, interval.unwrap_or(INTERVAL), findings);
    let engine = keys.engine.map_or(Some(None), |at| engine(at, own, findings).map(Some));
    let metrics = metrics(keys.metrics, of_gpus, findings);
    let bytes_max = keys.page_bytes_max.map_or(Some(PAGE_BYTES_MAX), |at| {
        let size = findings.size(at, "page_bytes_max")?;
        let size = usize::try_from(size.0).ok().filter(|size| *size <= PAGE_BYTES_LIMIT);
        if size.is_none() {
            findings.refuse(Code::Number, at.span(), "page_bytes_max is above 1GiB", "too large", "a page is read into memory: write at most \"1GiB\"");
        }
        size
    });
    let series_max = keys.series_max.map_or(Some(SERIES_MAX), |at| findings.count(at, "series_max", 1, SERIES_LIMIT).map(|count| count as usize));
    Some(PageSettings {
        interval: interval?,
        access: access?,
        metrics,
        engine: engine?,
        limits: PageLimits { bytes_max: bytes_max?, series_max: series_max?, timeout: timeout? },
    })
}

/// Time between two looks.
pub(crate) fn interval(at: Option<&At<WrittenSpan>>, findings: &mut Findings<'_>) -> Option<Span> {
    at.map_or(Some(INTERVAL), |at| findings.span(at, "interval", Span(1), INTERVAL_MAX))
}

/// Longest wait for an answer, never longer than the time to the next look.
pub(crate) fn timeout(at: Option<&At<WrittenLatency>>, interval: Span, findings: &mut Findings<'_>) -> Option<Duration> {
    let most = Duration::from_secs(interval.0.unsigned_abs());
    let Some(at) = at else { return Some(TIMEOUT.min(most)) };
    let ms = findings.latency_ms(at, "timeout", false)?;
    let timeout = Duration::try_from_secs_f64(ms / 1_000.0).ok().filter(|timeout| *timeout <= most);
    if timeout.is_none() {
        let message = format!("timeout is {}, longer than interval, which is {interval}", at.get().0.text);
        findings.refuse(Code::MinAboveMax, at.span(), message, "two looks would overlap", format!("lower timeout to {interval} or less, or raise interval"));
    }
    timeout
}

/// The name of an engine.
fn engine(at: &At<String>, own: &[&str], findings: &mut Findings<'_>) -> Option<String> {
    let known = || ENGINES.iter().chain(own).copied();
    if known().any(|name| name == at.get()) {
        return Some(at.get().clone());
    }
    let help = nearest(at.get(), known()).map_or_else(
        || format!("known: {}; others are described under [[engine]]", known().collect::<Vec<_>>().join(", ")),
        |near| format!("did you mean {near:?}?"),
    );
    findings.refuse(Code::Dangling, at.span(), format!("there is no engine {:?}", at.get()), "no such engine", help);
    None
}
