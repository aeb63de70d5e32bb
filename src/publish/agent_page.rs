//! What `turnaround agent` shows of the GPUs of its node: a metrics page and its router.
//!
//! The page is made anew for every reader from the look that is current, so it never shows a value of an older one. When there is no
//! current look, it shows that and nothing else. Names are part of the interface; a golden test holds them.

use crate::{PageFormat, http::problem};
use axum::{
    Router,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use fleet::{Bytes, Device, MemberId, Reading, Scrape, Signal};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use serde::Serialize;
use std::{fmt, sync::Arc};

/// One look at the GPUs of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentLook {
    /// What was found.
    pub scrape: Scrape,
    /// Memory held by each process.
    pub processes: Vec<ProcessMemory>,
}

/// GPU memory that one process holds on one GPU or slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessMemory {
    /// The GPU or slice.
    pub member: MemberId,
    /// The host's process number.
    pub pid: u32,
    /// What it holds.
    pub memory: Bytes,
}

/// The look that is current, or why there is none.
pub type AgentState = Result<Arc<AgentLook>, String>;

/// The metrics of one GPU or slice: signal, name behind `turnaround_`, help text.
const GPU_METRICS: [(Signal, &str, &str); 12] = [
    (Signal::GpuUtilisation, "gpu_utilisation_ratio", "Share of the last sample period in which a kernel ran"),
    (Signal::GpuMemoryUsed, "gpu_memory_used_bytes", "Memory in use"),
    (Signal::GpuMemoryFree, "gpu_memory_free_bytes", "Memory that can still be given out"),
    (Signal::GpuMemoryTotal, "gpu_memory_total_bytes", "Memory built in"),
    (Signal::GpuPower, "gpu_power_watts", "Power drawn"),
    (Signal::GpuEnergy, "gpu_energy_joules", "Energy drawn since the driver was loaded"),
    (Signal::GpuTemperature, "gpu_temperature_celsius", "Temperature of the chip"),
    (Signal::GpuProcesses, "gpu_processes", "Processes that compute on it"),
    (Signal::GpuXid, "gpu_xid_last", "Code of the last critical event since the agent started, 0 for none: history, not state"),
    (Signal::GpuEccUncorrected, "gpu_ecc_uncorrected", "Memory errors that could not be corrected, since the driver was loaded or the GPU was reset"),
    (Signal::GpuRowRemapFailed, "gpu_row_remap_failed", "1 when a bad row of memory could not be replaced, else 0"),
    (Signal::GpuThrottled, "gpu_throttled", "1 while heat or a power brake holds the clocks down, else 0"),
];

/// The page of a node.
#[must_use]
pub fn agent_page(node: &str, state: &AgentState, format: PageFormat) -> String {
    let mut registry = Registry::with_prefix("turnaround");
    registry.register_collector(Box::new(AgentPage { families: families(node, state) }));
    let mut page = String::new();
    let written = match format {
        PageFormat::Prometheus => prometheus_text::encode(&mut page, &registry),
        PageFormat::OpenMetrics => text::encode(&mut page, &registry),
    };
    // Writing to a String cannot fail.
    debug_assert!(written.is_ok());
    if let (Some(why), PageFormat::Prometheus) = (fault(state), format) {
        page.extend(["# No values: ", &why.split_whitespace().collect::<Vec<_>>().join(" "), "\n"]);
    }
    page
}

/// The routes of an agent, each answering `GET` and `HEAD`; `state` is asked for every page.
///
/// | path | shows |
/// |---|---|
/// | `/metrics` | the page, as Prometheus text, or `OpenMetrics` where `Accept` asks for it |
/// | `/healthz` | the process answers |
/// | `/readyz` | 200 while there is a current look, else 503 with the reason |
pub fn agent_router(node: &str, state: impl Fn() -> AgentState + Clone + Send + Sync + 'static) -> Router {
    let (node, ready) = (node.to_owned(), state.clone());
    Router::new()
        .route("/metrics", get(move |headers: HeaderMap| async move { metrics(&node, &state(), &headers) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { readiness(&ready()) }))
        .fallback(|uri: Uri| async move { problem(StatusCode::NOT_FOUND, "no_such_page", &format!("nothing is served at {}", uri.path())) })
        .method_not_allowed_fallback(|| async { problem(StatusCode::METHOD_NOT_ALLOWED, "read_only", "this interface is read with GET or HEAD") })
}

fn metrics(node: &str, state: &AgentState, headers: &HeaderMap) -> Response {
    let accepts: Vec<&str> = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let format = PageFormat::accepted(&accepts.join(","));
    let kind = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "Accept")];
    (kind, agent_page(node, state, format)).into_response()
}

fn readiness(state: &AgentState) -> Response {
    fault(state).map_or_else(|| "ok\n".into_response(), |why| problem(StatusCode::SERVICE_UNAVAILABLE, "no_values", why))
}

/// Why there are no values; nothing when there are.
fn fault(state: &AgentState) -> Option<&str> {
    match state {
        Err(why) => Some(why),
        Ok(look) => match &look.scrape.status {
            fleet::ScrapeStatus::Ok => None,
            fleet::ScrapeStatus::Failed(why) => Some(why),
        },
    }
}

type Labels = Vec<(&'static str, String)>;

/// One metric with all its series.
#[derive(Debug)]
struct MetricFamily {
    name: &'static str,
    help: &'static str,
    kind: MetricType,
    series: Vec<(Labels, f64)>,
}

#[derive(Debug)]
struct AgentPage {
    families: Vec<MetricFamily>,
}

impl Collector for AgentPage {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in self.families.iter().filter(|family| !family.series.is_empty()) {
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, family.kind)?;
            for (labels, value) in &family.series {
                let series = metric.encode_family(labels)?;
                match family.kind {
                    MetricType::Counter => ConstCounter::new(*value).encode(series)?,
                    _ => ConstGauge::new(*value).encode(series)?,
                }
            }
        }
        Ok(())
    }
}

fn families(node: &str, state: &AgentState) -> Vec<MetricFamily> {
    let gauge = |name, help, series| MetricFamily { name, help, kind: MetricType::Gauge, series };
    let of_node = || vec![("node", node.to_owned())];
    let look = state.as_ref().ok().filter(|look| look.scrape.is_ok());
    let mut all =
        vec![gauge("agent_up", "1 while the values of this page are current; without them there is only this 0", vec![(of_node(), flag(look.is_some()))])];
    let Some(look) = look else { return all };
    let scrape = &look.scrape;
    let boot: Vec<_> = scrape.scalar(Signal::BootTime).map(|boot| (of_node(), boot)).into_iter().collect();
    all.push(gauge("node_boot_time_seconds", "Instant the node started, since 1970", boot));
    let answers = |device: &Device| scrape.samples.iter().any(|sample| sample.member.as_ref() == Some(&device.member));
    let up = scrape.devices.iter().map(|device| (labels(device), flag(answers(device)))).collect();
    all.push(gauge("gpu_up", "1 when the GPU answers, 0 when it is lost", up));
    for (signal, name, help) in GPU_METRICS {
        let kind = if signal.kind() == fleet::SignalKind::Counter { MetricType::Counter } else { MetricType::Gauge };
        let value = |device: &Device| {
            scrape.members(signal).find_map(|(member, value)| match value {
                Reading::Scalar(value) if member == Some(&device.member) => Some(*value),
                _ => None,
            })
        };
        let series = scrape.devices.iter().filter_map(|device| Some((labels(device), value(device)?))).collect();
        all.push(MetricFamily { name, help, kind, series });
    }
    all.push(gauge("gpu_process_memory_bytes", "Memory that a process holds", processes(look)));
    all
}

fn processes(look: &AgentLook) -> Vec<(Labels, f64)> {
    let device = |process: &ProcessMemory| look.scrape.devices.iter().find(|device| device.member == process.member);
    let series = look.processes.iter().filter_map(|process| {
        let mut labels = labels(device(process)?);
        labels.push(("pid", process.pid.to_string()));
        #[expect(clippy::cast_precision_loss, reason = "bytes of GPU memory lie far below 2^52")]
        Some((labels, process.memory.0 as f64))
    });
    series.collect()
}

/// What tells a GPU or slice from the others; what is not known is left out.
fn labels(device: &Device) -> Labels {
    let mig = device.mig.as_ref();
    let all = [
        ("node", device.node.clone()),
        ("gpu", device.index.map(|index| index.to_string())),
        ("uuid", device.uuid.clone()),
        ("product", device.product.clone()),
        ("mig_profile", mig.map(|slice| slice.profile.clone()).filter(|profile| !profile.is_empty())),
        ("mig_instance", mig.map(|slice| slice.instance.clone())),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn flag(set: bool) -> f64 {
    f64::from(u8::from(set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use fleet::{MigSlice, Sample, TargetId, Timestamp};
    use std::{
        io::Write,
        process::{Command, Stdio},
    };
    use tower::ServiceExt;

    fn device(member: &str, index: u32, mig: Option<MigSlice>) -> Device {
        let member = MemberId::new(member).unwrap();
        let (uuid, node, product) = (Some(format!("GPU-{index}")), Some("n1".to_owned()), Some("H100 \"80GB\"".to_owned()));
        Device { member, uuid, node, index: Some(index), product, mig, holder: None }
    }

    /// One whole GPU with every value, one that is split, one that is lost.
    #[expect(clippy::unnecessary_wraps, reason = "what it stands for is a state, which may be a fault")]
    fn look() -> AgentState {
        let slice = MigSlice { profile: "1g.10gb".into(), instance: "7".into() };
        let devices = vec![device("GPU-0", 0, None), device("GPU-1", 1, None), device("GPU-1/7", 1, Some(slice)), device("GPU-2", 2, None)];
        let of = |member: &str, signal, value| Sample { signal, member: Some(MemberId::new(member).unwrap()), value: Reading::Scalar(value) };
        let mut samples: Vec<Sample> = GPU_METRICS.iter().zip(0..).map(|((signal, ..), n)| of("GPU-0", *signal, f64::from(n) / 2.0)).collect();
        samples.extend([of("GPU-1", Signal::GpuPower, 350.5), of("GPU-1/7", Signal::GpuMemoryUsed, 8e9)]);
        samples.push(Sample::of_target(Signal::BootTime, Reading::Scalar(1_700_000_000.0)));
        let processes = vec![ProcessMemory { member: MemberId::new("GPU-1/7").unwrap(), pid: 42, memory: Bytes::from_gib(5) }];
        let scrape = Scrape { devices, ..Scrape::read(TargetId::new("nvml/n1").unwrap(), Timestamp(7), samples) };
        Ok(Arc::new(AgentLook { scrape, processes }))
    }

    fn page(state: &AgentState) -> String {
        agent_page("n1", state, PageFormat::Prometheus)
    }

    #[test]
    fn the_page_shows_each_value_with_its_gpu() {
        let page = page(&look());
        for line in [
            "turnaround_agent_up{node=\"n1\"} 1",
            "turnaround_node_boot_time_seconds{node=\"n1\"} 1700000000",
            "turnaround_gpu_power_watts{node=\"n1\",gpu=\"1\",uuid=\"GPU-1\",product=\"H100 \\\"80GB\\\"\"} 350.5",
            "turnaround_gpu_memory_used_bytes{node=\"n1\",gpu=\"1\",uuid=\"GPU-1\",product=\"H100 \\\"80GB\\\"\",mig_profile=\"1g.10gb\",mig_instance=\"7\"} 8000000000",
            "turnaround_gpu_up{node=\"n1\",gpu=\"2\",uuid=\"GPU-2\",product=\"H100 \\\"80GB\\\"\"} 0",
            "# TYPE turnaround_gpu_energy_joules_total counter",
        ] {
            assert!(page.lines().any(|found| found.strip_suffix(".0").unwrap_or(found) == line), "{line} is not in\n{page}");
        }
        assert!(page.contains("mig_instance=\"7\",pid=\"42\"} 5368709120"), "{page}");
        let of_lost = page.lines().filter(|line| line.contains("GPU-2")).count();
        assert_eq!(of_lost, 1, "a lost GPU has no value:\n{page}");
    }

    /// The names are what others read: they change only on purpose.
    #[test]
    fn the_names_are_these() {
        let page = page(&look());
        let names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE turnaround_")).collect();
        assert_eq!(
            names,
            [
                "agent_up gauge",
                "node_boot_time_seconds gauge",
                "gpu_up gauge",
                "gpu_utilisation_ratio gauge",
                "gpu_memory_used_bytes gauge",
                "gpu_memory_free_bytes gauge",
                "gpu_memory_total_bytes gauge",
                "gpu_power_watts gauge",
                "gpu_energy_joules_total counter",
                "gpu_temperature_celsius gauge",
                "gpu_processes gauge",
                "gpu_xid_last gauge",
                "gpu_ecc_uncorrected_total counter",
                "gpu_row_remap_failed gauge",
                "gpu_throttled gauge",
                "gpu_process_memory_bytes gauge",
            ]
        );
    }

    /// A driver that hangs gives a page that says so, and no value of before.
    #[test]
    fn without_a_current_look_there_is_only_that() {
        let failed = Scrape::failed(TargetId::new("nvml/n1").unwrap(), Timestamp(7), "the driver knows no GPU");
        let failed = Ok(Arc::new(AgentLook { scrape: failed, processes: Vec::new() }));
        for (state, why) in [(Err("the driver has not answered\nfor 45 s".to_owned()), "not answered for 45 s"), (failed, "knows no GPU")] {
            let page = page(&state);
            let values: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
            assert_eq!(values.iter().map(|line| line.trim_end_matches(".0")).collect::<Vec<_>>(), ["turnaround_agent_up{node=\"n1\"} 0"]);
            assert!(page.lines().last().is_some_and(|line| line.starts_with("# No values: ") && line.contains(why)), "{page}");
        }
    }

    /// Prometheus' own tool reads the pages and has nothing to say about their names.
    #[test]
    fn promtool_finds_no_fault() {
        for state in [look(), Err("the driver hangs".into())] {
            let spawned = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let Ok(mut promtool) = spawned else {
                eprintln!("skipped: promtool is not on the PATH");
                return;
            };
            promtool.stdin.take().unwrap().write_all(page(&state).as_bytes()).unwrap();
            let output = promtool.wait_with_output().unwrap();
            let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success() && said.trim().is_empty(), "{said}\n{}", page(&state));
        }
    }

    #[tokio::test]
    async fn the_routes_follow_the_state() {
        let ask = |state: AgentState, path: &'static str, accept: &'static str| async move {
            let request = Request::builder().uri(path).header("accept", accept).body(Body::empty()).unwrap();
            let response = agent_router("n1", move || state.clone()).oneshot(request).await.unwrap();
            let (parts, body) = response.into_parts();
            (parts.status.as_u16(), String::from_utf8(to_bytes(body, 1 << 20).await.unwrap().to_vec()).unwrap())
        };
        let silent = || Err("the driver hangs".to_owned());
        assert_eq!(ask(look(), "/metrics", "text/plain").await, (200, page(&look())));
        assert!(ask(look(), "/metrics", "application/openmetrics-text;version=1.0.0").await.1.ends_with("# EOF\n"));
        assert_eq!((ask(look(), "/readyz", "*/*").await.0, ask(silent(), "/healthz", "*/*").await.0), (200, 200));
        let (status, body) = ask(silent(), "/readyz", "*/*").await;
        assert!(status == 503 && body.contains("no_values") && body.contains("the driver hangs"), "{body}");
        assert_eq!(ask(silent(), "/metrics", "*/*").await.0, 200);
        assert_eq!(ask(silent(), "/v1/plan", "*/*").await.0, 404);
    }
}
