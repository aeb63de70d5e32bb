//! A Prometheus that scrapes the synthetic fleet, with two weeks of its past written into it.

use super::{
    fleet::Fleet,
    serve::{Page, now_s, serve},
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{self, BufWriter, Write},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

/// Spacing of the past's samples, seconds. Prometheus must look back at least that far.
pub const PAST_STEP_S: u32 = 300;

/// A running Prometheus. It ends with this value.
#[derive(Debug)]
pub struct Running {
    process: Child,
    /// Its address.
    pub url: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Labels a scrape of a serving pod gets, beside those of its page.
fn pod_labels(fleet: &Fleet, index: usize) -> [(&'static str, String); 5] {
    let pod = &fleet.pods[index];
    let instance = format!("{}:{}", pod.node, 8_000 + index);
    [("instance", instance), ("job", "vllm".into()), ("namespace", "serving".into()), ("node", pod.node.clone()), ("pod", pod.name.clone())]
}

/// Serves the fleet's pages and starts a Prometheus on them, in `folder`. With `past_days` its history reaches back that far.
///
/// # Errors
/// When a port or a file cannot be had, or `prometheus` or `promtool` is not there or fails.
pub async fn start(folder: &Path, fleet: Arc<Fleet>, past_days: u32, scrape_s: u32) -> io::Result<Running> {
    fs::create_dir_all(folder)?;
    let exporters = serve(SocketAddr::from(([127, 0, 0, 1], 0)), pages(&fleet)).await?;
    fs::write(folder.join("prometheus.yml"), configuration(&fleet, exporters, scrape_s))?;
    let data = folder.join("data");
    if past_days > 0 {
        write_past(&folder.join("past.txt"), &fleet, past_days)?;
        // Blocks of weeks: by default promtool reads the whole file once for every two hours.
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "--max-block-duration=512h", "openmetrics"])
            .args([folder.join("past.txt"), data.clone()])
            .output()?;
        if !made.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&made.stderr).into_owned()));
        }
        fs::remove_file(folder.join("past.txt"))?;
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let process = Command::new("prometheus")
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--storage.tsdb.retention.time=30d", &format!("--query.lookback-delta={}s", PAST_STEP_S + 60)])
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.join("prometheus.log"))?)
        .spawn()?;
    let running = Running { process, url: format!("http://127.0.0.1:{port}") };
    for _ in 0..300 {
        if is_ready(port).await {
            return Ok(running);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(io::Error::other(format!("prometheus did not become ready; see {}", folder.join("prometheus.log").display())))
}

async fn is_ready(port: u16) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut socket) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await else { return false };
    let mut answer = [0; 12];
    let asked = socket.write_all(b"GET /-/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await;
    asked.is_ok() && socket.read_exact(&mut answer).await.is_ok() && &answer == b"HTTP/1.1 200"
}

fn pages(fleet: &Arc<Fleet>) -> BTreeMap<String, Page> {
    let mut pages: BTreeMap<String, Page> = BTreeMap::new();
    for (index, pod) in fleet.pods.iter().enumerate() {
        let fleet = fleet.clone();
        pages.insert(pod.name.clone(), Arc::new(move |at| fleet.pods[index].server.page(at)));
    }
    for (index, node) in fleet.nodes.iter().enumerate() {
        let fleet = fleet.clone();
        pages.insert(node.name.clone(), Arc::new(move |at| fleet.nodes[index].page(at)));
    }
    pages
}

fn configuration(fleet: &Fleet, exporters: SocketAddr, scrape_s: u32) -> String {
    let mut text = format!("global:\n  scrape_interval: {scrape_s}s\nscrape_configs:\n");
    let mut job = |name: &str, targets: &[(String, Vec<(&str, String)>)]| {
        let _ = writeln!(text, "- job_name: {name}\n  static_configs:");
        for (page, labels) in targets {
            let _ = writeln!(text, "  - targets: ['{exporters}']\n    labels:\n      __metrics_path__: /{page}/metrics");
            for (label, value) in labels.iter().filter(|(label, _)| *label != "job") {
                let _ = writeln!(text, "      {label}: '{value}'");
            }
        }
    };
    let pods: Vec<_> = fleet.pods.iter().enumerate().map(|(i, pod)| (pod.name.clone(), pod_labels(fleet, i).to_vec())).collect();
    job("vllm", &pods);
    // As the exporter's chart sets it up: labels of the exporter's own pod, so that those of the page move to exported_pod.
    let exporter = |name: &str| vec![("instance", format!("{name}:9400")), ("namespace", "monitoring".into()), ("pod", format!("dcgm-exporter-{name}"))];
    let nodes: Vec<_> = fleet.nodes.iter().map(|node| (node.name.clone(), exporter(&node.name))).collect();
    job("dcgm-exporter", &nodes);
    text
}

/// The past of every serving pod, as `OpenMetrics` text: one family after the other, each series in order of time.
fn write_past(file: &Path, fleet: &Fleet, days: u32) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, fs::File::create(file)?);
    let now = now_s();
    let steps = days * 86_400 / PAST_STEP_S;
    let past: Vec<f64> = (1..=steps).rev().map(|k| (now - f64::from(k * PAST_STEP_S)).floor()).collect();
    let counters: [(&str, &str, Past); 6] = [
        ("vllm:prompt_tokens", "", |c, t| c.started * t.0),
        ("vllm:generation_tokens", "", |c, t| c.finished * t.1),
        ("vllm:prefix_cache_queries", "", |c, t| c.started * t.0),
        ("vllm:prefix_cache_hits", "", |c, t| c.started * t.0 * t.2),
        ("vllm:request_success", ",finished_reason=\"stop\"", |c, _| c.finished),
        ("vllm:num_preemptions", "", |_, _| 0.0),
    ];
    for (name, extra, value) in counters {
        writeln!(out, "# TYPE {name} counter")?;
        series(&mut out, fleet, &past, &format!("{name}_total"), extra, value)?;
    }
    let gauges: [(&str, Past); 2] = [("vllm:num_requests_running", |c, _| c.running), ("vllm:num_requests_waiting", |_, _| 0.0)];
    for (name, value) in gauges {
        writeln!(out, "# TYPE {name} gauge")?;
        series(&mut out, fleet, &past, name, "", value)?;
    }
    let ttft = "vllm:time_to_first_token_seconds";
    writeln!(out, "# TYPE {ttft} histogram")?;
    // Without buckets, which nobody reads of so long a past.
    series(&mut out, fleet, &past, &format!("{ttft}_bucket"), ",le=\"+Inf\"", |c, _| c.started)?;
    series(&mut out, fleet, &past, &format!("{ttft}_count"), "", |c, _| c.started)?;
    series(&mut out, fleet, &past, &format!("{ttft}_sum"), "", |c, _| c.started * 0.09)?;
    writeln!(out, "# EOF")?;
    out.flush()
}

/// A value of the past from what a server counted and what its requests are like.
type Past = fn(super::vllm::Counted, (f64, f64, f64)) -> f64;

fn series(out: &mut impl Write, fleet: &Fleet, past: &[f64], name: &str, extra: &str, value: Past) -> io::Result<()> {
    for (index, pod) in fleet.pods.iter().enumerate() {
        let own: Vec<String> = pod_labels(fleet, index).iter().map(|(label, value)| format!("{label}=\"{value}\"")).collect();
        let labels = format!("engine=\"0\",model_name=\"{}\",{}{extra}", pod.server.model, own.join(","));
        for at in past {
            writeln!(out, "{name}{{{labels}}} {} {at}", value(pod.server.counted(*at), pod.server.tokens).floor())?;
        }
    }
    Ok(())
}
