//! `[[source.*]]`: where readings come from, and what each endpoint stands for.

use crate::{
    error::{Code, Findings},
    gpu_refs,
    nearest::nearest,
    node_range,
    resolved::{NvmlConfig, RunningJob, Secret, TargetConfig, TraceConfig, TraceFormat, TraceInput},
    typed,
    written::At,
};
use fleet::{Fleet, GpuId, NodeId, Signal, SignalKind, Span, Target, TargetId, Variant, Workload, WorkloadId};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::PathBuf,
};

/// Time between two looks unless said otherwise: Prometheus' own habit for fast-moving pages.
const INTERVAL: Span = Span(15);
/// Slowest look that still shows what an hour was like.
const INTERVAL_MAX: Span = Span(600);

/// What a later target must not repeat.
#[derive(Default)]
struct Seen {
    urls: BTreeSet<String>,
    names: BTreeSet<TargetId>,
    /// Who holds a GPU.
    holders: BTreeMap<GpuId, String>,
}

pub(crate) fn targets(
    file: &typed::File,
    fleet: &Fleet,
    variants: &[Variant],
    workloads: &[Workload],
    running: &[RunningJob],
    findings: &mut Findings<'_>,
) -> Vec<TargetConfig> {
    let mut seen = Seen::default();
    for run in running {
        seen.holders.extend(run.gpus.iter().map(|gpu| (gpu.clone(), format!("job {}", run.job))));
    }
    let mut targets = Vec::new();
    for table in &file.source.prometheus {
        let typed = table.get();
        let interval = typed.interval.as_ref().map_or(Some(INTERVAL), |at| findings.span(at, "interval", Span(1), INTERVAL_MAX));
        let token = token(typed, findings);
        let metrics = metrics(typed, findings);
        let Some((workload, variant)) = what_runs(typed, &file.service, workloads, variants, findings) else { continue };
        for (url, name, gpus) in endpoints(typed, findings) {
            let gpus = place(typed, &url, gpus.as_deref(), variant, fleet, &mut seen, findings);
            let (Some(url), Some(gpus), Some(interval)) = (address(&typed.url, &url, findings), gpus, interval) else { continue };
            let Some(id) = identity(typed, name, &url, &mut seen, findings) else { continue };
            let target = Target { id, workload: workload.clone(), variant: Some(variant.id.clone()), replica: None, gpus };
            targets.push(TargetConfig { target, url: url.full, interval, token: token.clone(), metrics: metrics.clone() });
        }
    }
    targets
}

/// The service and the variant an endpoint stands for.
fn what_runs<'w>(
    typed: &typed::Prometheus,
    declared: &[At<typed::Service>],
    workloads: &'w [Workload],
    variants: &'w [Variant],
    findings: &mut Findings<'_>,
) -> Option<(&'w WorkloadId, &'w Variant)> {
    let who = format!("source {:?}", typed.url.get());
    let names = || declared.iter().map(|table| table.get().name.get().as_str());
    if !names().any(|name| name == typed.service.get()) {
        findings.dangling(typed.service.span(), &who, "service", typed.service.get(), names());
        return None;
    }
    // A service that could not be resolved has its own fault.
    let workload = workloads.iter().find(|workload| workload.id.as_str() == typed.service.get())?;
    let served = &workload.service()?.variants;
    let name = match (&typed.variant, served.as_slice()) {
        (_, []) => return None,
        (Some(at), _) => at.get().as_str(),
        (None, [only]) => only.as_str(),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(fleet::VariantId::as_str).collect();
            let message = format!("{who} does not say which variant of {} runs there", workload.id);
            findings.refuse(
                Code::Conflict,
                typed.service.span(),
                message,
                "several variants serve it",
                format!("add variant = \"...\", one of: {}", names.join(", ")),
            );
            return None;
        }
    };
    let found = variants.iter().find(|variant| variant.id.as_str() == name && served.contains(&variant.id));
    if let (None, Some(at)) = (found, &typed.variant) {
        findings.dangling(at.span(), &who, &format!("variant of {}", workload.id), name, served.iter().map(fleet::VariantId::as_str));
    }
    Some((&workload.id, found?))
}

/// URL, name and GPUs of each endpoint a table stands for: one, or one a node.
type Endpoint = (String, Option<String>, Option<Vec<(String, Range<usize>)>>);

fn endpoints(typed: &typed::Prometheus, findings: &mut Findings<'_>) -> Vec<Endpoint> {
    let url = typed.url.get();
    let own: Option<Vec<(String, Range<usize>)>> = typed.gpus.as_ref().map(|at| at.entries().into_iter().map(|(text, span)| (text.to_owned(), span)).collect());
    let name = typed.name.as_ref().map(|at| at.get().clone());
    let Some(nodes) = &typed.nodes else {
        if url.contains("{node}") {
            findings.refuse(
                Code::Conflict,
                typed.url.span(),
                format!("{url:?} stands for several nodes, but none are named"),
                "which nodes?",
                "add nodes = \"gpu[001-038]\"",
            );
            return Vec::new();
        }
        return vec![(url.clone(), name, own)];
    };
    if !url.contains("{node}") {
        findings.refuse(
            Code::Conflict,
            nodes.span(),
            format!("nodes are named, but {url:?} is the same for all"),
            "one address for all",
            "write {node} where the name of the node belongs",
        );
        return Vec::new();
    }
    let mut all = Vec::new();
    for (text, span) in nodes.entries() {
        match node_range::expand(text) {
            Ok(names) => {
                for node in names {
                    let gpus = own.as_ref().map(|list| list.iter().map(|(text, span)| (format!("{node}/{text}"), span.clone())).collect());
                    all.push((url.replace("{node}", &node), name.as_ref().map(|name| format!("{name}-{node}")), gpus));
                }
            }
            Err(why) => {
                findings.refuse(Code::Range, span, format!("{text:?} is not a range of nodes: {why}"), "not a range", "write it as gpu[001-038] or n[1,3,7-9]");
            }
        }
    }
    all
}

/// The GPUs of an endpoint, where known: as many as the variant needs, of its kind, in one island, and held by nobody else.
fn place(
    typed: &typed::Prometheus,
    url: &str,
    entries: Option<&[(String, Range<usize>)]>,
    variant: &Variant,
    fleet: &Fleet,
    seen: &mut Seen,
    findings: &mut Findings<'_>,
) -> Option<Vec<GpuId>> {
    let Some(entries) = entries else { return Some(Vec::new()) };
    let who = format!("source {url:?}");
    let span = typed.gpus.as_ref().map_or(0..0, At::span);
    let entries: Vec<(&str, Range<usize>)> = entries.iter().map(|(text, span)| (text.as_str(), span.clone())).collect();
    let gpus = gpu_refs::gpus(&entries, &who, fleet, findings)?;
    if !gpu_refs::fit(&gpus, variant.gpus, &format!("variant {} at {url:?}", variant.id), span.clone(), findings) {
        return None;
    }
    for gpu in &gpus {
        let kind = fleet.pool(&gpu.pool).map(|pool| &pool.kind);
        if kind != Some(&variant.kind) {
            let is = kind.map_or("unknown", fleet::GpuKindId::as_str);
            let message = format!("variant {} runs on {}, but GPU {} is {is}", variant.id, variant.kind, gpu.id);
            findings.refuse(Code::Placement, span, message, "another kind", "name another variant, or other GPUs");
            return None;
        }
        if let Some(other) = seen.holders.insert(gpu.id.clone(), who.clone()) {
            let message = format!("GPU {} is held by {other} and by {who}", gpu.id);
            findings.refuse(Code::Duplicate, span, message, "the same GPU twice", "one replica or job holds a GPU: correct one of the two");
            return None;
        }
    }
    Some(gpus.iter().map(|gpu| gpu.id.clone()).collect())
}

/// An address taken apart.
struct Address {
    full: String,
    host: String,
    path: String,
}

/// An HTTP address without credentials; `/metrics` is added where there is no path.
fn address(at: &At<String>, url: &str, findings: &mut Findings<'_>) -> Option<Address> {
    let mut refuse = |message: String, label: &str, help: &str| {
        findings.refuse(Code::Address, at.span(), message, label, help);
        None
    };
    let example = "write it as http://host:8000/metrics";
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) else {
        return refuse(format!("{url:?} is not an address"), "needs http:// or https://", example);
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.contains('@') {
        // The address itself is not repeated: it holds the secret.
        return refuse("the address carries a user name or password".into(), "a secret in the file", "remove it and use token_file or token_env");
    }
    if path.contains(['?', '#']) {
        return refuse("the address carries a query".into(), "may hold a secret, and would be shown in names", "remove it and use token_file or token_env");
    }
    if host.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return refuse(format!("{url:?} is not an address"), "no host, or white space", example);
    }
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port);
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return refuse(format!("{url:?} has a port that is none"), "not a port", "ports run from 1 to 65535");
    }
    let path = if path.is_empty() || path == "/" { "/metrics" } else { path };
    let host = host.to_lowercase();
    Some(Address { full: format!("{scheme}://{host}{path}"), host, path: path.to_owned() })
}

/// The name of an endpoint, which no other has, at an address no other has.
fn identity(typed: &typed::Prometheus, name: Option<String>, url: &Address, seen: &mut Seen, findings: &mut Findings<'_>) -> Option<TargetId> {
    if !seen.urls.insert(url.full.clone()) {
        let message = format!("address {:?} is listed twice, so its traffic would be counted twice", url.full);
        findings.refuse(Code::Duplicate, typed.url.span(), message, "second of that address", "remove one of the two");
        return None;
    }
    let named = name.is_some();
    let name = name.unwrap_or_else(|| if url.path == "/metrics" { url.host.clone() } else { format!("{}{}", url.host, url.path) });
    let span = typed.name.as_ref().filter(|_| named).map_or_else(|| typed.url.span(), At::span);
    let id = match TargetId::new(name) {
        Ok(id) => id,
        Err(error) => {
            findings.refuse(Code::Address, span, error.to_string(), "not a usable name", "give it a short `name`");
            return None;
        }
    };
    if !seen.names.insert(id.clone()) {
        findings.duplicate(span, "source", id.as_str());
        return None;
    }
    Some(id)
}

fn token(typed: &typed::Prometheus, findings: &mut Findings<'_>) -> Option<Secret> {
    match (&typed.token_file, &typed.token_env) {
        (None, None) => None,
        (Some(file), None) => Some(Secret::File(PathBuf::from(file.get()))),
        (None, Some(variable)) => Some(Secret::Env(variable.get().clone())),
        (Some(file), Some(_)) => {
            findings.refuse(Code::Conflict, file.span(), "the token is in a file and in a variable", "one or the other", "remove token_file or token_env");
            None
        }
    }
}

/// Gauges an engine is known to show, to tell a gauge taken for a counter. (Counters and histogram parts are told by their suffix.)
const KNOWN_GAUGES: [&str; 6] = [
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_swapped",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "vllm:gpu_prefix_cache_hit_rate",
];

/// Signals a serving engine's page can show.
const SIGNALS: [Signal; 15] = [
    Signal::RequestsRunning,
    Signal::RequestsWaiting,
    Signal::RequestsFinished,
    Signal::PromptTokens,
    Signal::GenerationTokens,
    Signal::PrefixQueries,
    Signal::PrefixHits,
    Signal::PrefixHitRate,
    Signal::KvUsageMean,
    Signal::KvUsageMax,
    Signal::Preemptions,
    Signal::TimeToFirstToken,
    Signal::InterTokenLatency,
    Signal::EndToEnd,
    Signal::QueueTime,
];

/// Metric names by signal. What the name says about the metric must agree with what the signal is.
fn metrics(typed: &typed::Prometheus, findings: &mut Findings<'_>) -> BTreeMap<Signal, String> {
    let mut metrics = BTreeMap::new();
    for (key, at) in &typed.metrics {
        let name = at.get();
        let Some(signal) = SIGNALS.into_iter().find(|signal| signal.name() == *key) else {
            let known = SIGNALS.map(Signal::name);
            let help =
                nearest(key, known.iter().map(String::as_str)).map_or_else(|| format!("known: {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
            findings.refuse(Code::UnknownKey, at.span(), format!("there is no signal {key:?}"), "unknown signal", help);
            continue;
        };
        let part = ["_bucket", "_sum", "_count"].into_iter().find(|suffix| name.ends_with(suffix));
        let is = if name.ends_with("_total") {
            Some(SignalKind::Counter)
        } else if KNOWN_GAUGES.contains(&name.as_str()) {
            Some(SignalKind::Gauge)
        } else {
            None
        };
        let wants = signal.kind();
        if let Some(suffix) = part {
            let message = format!("{name} is a part of a histogram, and {key} is a {}", word(wants));
            let whole = name.trim_end_matches(suffix);
            let help = if wants == SignalKind::Histogram { format!("name the histogram itself: {whole}") } else { format!("name a {}", word(wants)) };
            findings.refuse(Code::Metric, at.span(), message, "part of a histogram", help);
        } else if let Some(is) = is.filter(|is| *is != wants) {
            let message = format!("{name} is a {}, and {key} asks for a {}", word(is), word(wants));
            let help = match (is, wants) {
                (SignalKind::Counter, SignalKind::Gauge) => {
                    "a counter only grows, so it would look like load that never falls: name the gauge that shows what is there now".to_owned()
                }
                _ => format!("name a {}", word(wants)),
            };
            findings.refuse(Code::Metric, at.span(), message, format!("a {}", word(is)), help);
        } else {
            metrics.insert(signal, name.clone());
        }
    }
    metrics
}

fn word(kind: SignalKind) -> &'static str {
    match kind {
        SignalKind::Counter => "counter",
        SignalKind::Gauge => "gauge",
        SignalKind::Histogram => "histogram",
    }
}

pub(crate) fn traces(typed: &typed::File, findings: &mut Findings<'_>) -> Vec<TraceConfig> {
    typed.source.trace.iter().filter_map(|table| trace(table, &typed.service, findings)).collect()
}

fn trace(table: &At<typed::Trace>, declared: &[At<typed::Service>], findings: &mut Findings<'_>) -> Option<TraceConfig> {
    let typed = table.get();
    let names = || declared.iter().map(|table| table.get().name.get().as_str());
    let known = names().any(|name| name == typed.service.get());
    if !known {
        findings.dangling(typed.service.span(), "trace", "service", typed.service.get(), names());
    }
    let scale = typed.scale.as_ref().map_or(Some(1.0), |at| findings.positive(at, "scale"));
    let input = match (&typed.file, &typed.format, &typed.bundled) {
        (Some(file), Some(format), None) => match format.get().as_str() {
            "servegen" => TraceInput::File { path: PathBuf::from(file.get()), format: TraceFormat::ServeGen },
            "azure-llm-2023" => TraceInput::File { path: PathBuf::from(file.get()), format: TraceFormat::AzureLlm2023 },
            other => {
                findings.word(format.span(), "format", other, &["servegen", "azure-llm-2023"]);
                return None;
            }
        },
        (None, None, Some(name)) => TraceInput::Bundled(name.get().clone()),
        _ => {
            let help = "write file = \"...\" with format = \"servegen\" or \"azure-llm-2023\"; or bundled = \"...\"";
            findings.refuse(Code::Conflict, table.span(), "a trace is either a file with its format, or bundled", "one or the other", help);
            return None;
        }
    };
    let service = WorkloadId::new(typed.service.get().as_str()).ok().filter(|_| known);
    Some(TraceConfig { service: service?, input, scale: scale? })
}

pub(crate) fn nvml(typed: &typed::File, fleet: &Fleet, findings: &mut Findings<'_>) -> Option<NvmlConfig> {
    let typed = typed.source.nvml.as_ref()?.get();
    let interval = typed.interval.as_ref().map_or(Some(INTERVAL), |at| findings.span(at, "interval", Span(1), INTERVAL_MAX));
    let node = fleet.nodes.iter().find(|node| node.id.as_str() == typed.node.get());
    if node.is_none() && findings.fleet_is_sound() {
        findings.dangling(typed.node.span(), "source.nvml", "node", typed.node.get(), fleet.nodes.iter().map(|node| NodeId::as_str(&node.id)));
    }
    Some(NvmlConfig { library: typed.library.as_ref().map(PathBuf::from), interval: interval?, node: node?.id.clone() })
}

/// Services that may go to zero and are seen only through their own replicas: nothing would wake them.
pub(crate) fn warn_of_sleepers(typed: &typed::File, workloads: &[Workload], targets: &[TargetConfig], traces: &[TraceConfig], findings: &mut Findings<'_>) {
    for table in &typed.service {
        let service = table.get();
        let Some(at) = service.min_replicas.as_ref().filter(|at| *at.get() == 0) else { continue };
        let is_it = |id: &WorkloadId| id.as_str() == service.name.get();
        let resolved = workloads.iter().any(|workload| is_it(&workload.id));
        let seen_by_itself = targets.iter().any(|target| is_it(&target.target.workload));
        let seen_elsewhere = traces.iter().any(|trace| is_it(&trace.service));
        if resolved && seen_by_itself && !seen_elsewhere {
            let message = format!("service {:?} may go to zero replicas, and only its replicas show its demand", service.name.get());
            findings.warn(
                Code::Sleeper,
                at.span(),
                message,
                "nothing could wake it",
                "set min_replicas = 1, or add a source that sees requests without a replica",
            );
        }
    }
}
