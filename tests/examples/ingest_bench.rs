//! `make bench-ingest`: one daemon beside 1,000 endpoints, measured from outside.
//!
//! This process serves 1,000 pages of some 480 lines, each on a loopback address of its own, so that connections are those of 1,000 hosts; it then
//! runs `turnaround run` on a list of them and reads what that process took, from the kernel and from its metrics page. With `serve` it only serves.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tests::exporters::{
    serve::{Page, now_s, serve},
    vllm::Server,
};

/// Endpoints, and seconds between two looks at each.
const ENDPOINTS: usize = 1_000;
const INTERVAL_S: u64 = 15;
/// Looks at everything that are let pass before measuring, and that are measured.
const WARM_UP: u64 = 2;
const MEASURED: u64 = 6;
/// Ticks a second of the kernel's process times.
const TICKS_PER_S: f64 = 100.0;

#[tokio::main]
async fn main() -> io::Result<()> {
    let folder = std::env::current_dir()?.join("target/bench/ingest");
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return serve_pages(&folder).await;
    }
    let _none_before = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let mut servers = Ended(Command::new(std::env::current_exe()?).arg("serve").stdout(Stdio::null()).spawn()?);
    wait_for("the endpoints", &mut servers, || folder.join("targets.json").exists())?;
    let lines = sample().page(now_s()).lines().count();
    println!("{ENDPOINTS} endpoints of {lines} lines each, every {INTERVAL_S} s");
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    fs::write(folder.join("turnaround.toml"), configuration(port))?;
    let log = fs::File::create(folder.join("daemon.log"))?;
    let mut daemon = Ended(Command::new(tests::turnaround()).arg("run").current_dir(&folder).stdout(Stdio::null()).stderr(log).spawn()?);
    let id = daemon.0.id();
    wait_for("the daemon", &mut daemon, || metric(port, "turnaround_scrapes_total").is_some_and(|n| n >= count(ENDPOINTS)))?;
    println!("every endpoint was looked at; warming up for {} s, measuring for {} s", WARM_UP * INTERVAL_S, MEASURED * INTERVAL_S);
    std::thread::sleep(Duration::from_secs(WARM_UP * INTERVAL_S));
    let (begin, before) = (Instant::now(), look(id, port)?);
    std::thread::sleep(Duration::from_secs(MEASURED * INTERVAL_S));
    let (seconds, after) = (begin.elapsed().as_secs_f64(), look(id, port)?);
    let rate = |pick: fn(&Look) -> f64| (pick(&after) - pick(&before)) / seconds;
    let result = [
        ("endpoints", count(ENDPOINTS)),
        ("lines_per_page", count(lines)),
        ("seconds", seconds),
        ("core_share", rate(|l| l.cpu_s)),
        ("rss_mib", after.rss_mib),
        ("scrapes_per_s", rate(|l| l.scrapes)),
        ("failed_scrapes", after.failed - before.failed),
        ("late_scrapes", after.late - before.late),
        ("points_per_s", rate(|l| l.points)),
        ("page_mb_per_s", rate(|l| l.scrapes) * count(sample().page(now_s()).len()) / 1e6),
    ];
    for (name, value) in result {
        println!("{name:>16} {value:.3}");
    }
    let mut all: BTreeMap<String, f64> = result.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    all.extend(parser_speed());
    let body: Vec<String> = all.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
    fs::write(folder.join("../ingest.json"), format!("{{\n{}\n}}\n", body.join(",\n")))?;
    println!("written to target/bench/ingest.json");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "endpoints, lines and bytes of a benchmark")]
fn count(n: usize) -> f64 {
    n as f64
}

/// Ends its process when it goes.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

fn sample() -> Server {
    Server {
        model: "meta-llama/Llama-3.1-8B-Instruct".into(),
        share: 1.0 / count(ENDPOINTS),
        peak_per_s: 2_000.0,
        started_s: 1_780_000_000.0,
        tokens: (900.0, 200.0, 0.3),
        takes_s: 5.0,
    }
}

async fn serve_pages(folder: &Path) -> io::Result<()> {
    let page: Page = Arc::new(|at| sample().page(at));
    let mut targets = String::from("[");
    for n in 0..ENDPOINTS {
        let host = Ipv4Addr::new(127, 1, u8::try_from(n / 250).unwrap_or(0), u8::try_from(n % 250).unwrap_or(0) + 1);
        let address = serve(SocketAddr::from((host, 0)), BTreeMap::from([("m".to_owned(), page.clone())])).await?;
        let comma = if n == 0 { "" } else { "," };
        let _ = write!(targets, "{comma}\n{{\"targets\": [\"{address}\"], \"labels\": {{\"__metrics_path__\": \"/m/metrics\", \"pod\": \"chat-{n:04}\"}}}}");
    }
    targets.push_str("\n]\n");
    let new = folder.join("targets.new");
    fs::write(&new, targets)?;
    fs::rename(new, folder.join("targets.json"))?;
    tokio::time::sleep(Duration::from_hours(1)).await;
    Ok(())
}

/// One service of 1,000 replicas. Plans are not what is measured: the next cycle after the first lies an hour ahead.
fn configuration(port: u16) -> String {
    format!(
        r#"currency = "EUR"
[[pool]]
name = "h100"
nodes = "n[001-125]"
kind = "H100-80GB"
gpus_per_node = 8
price = 2.5
[[service]]
name = "chat"
models = "Llama-3.1-8B"
max_replicas = 1000
[[source.file_sd]]
files = "targets.json"
service = "chat"
interval = "{INTERVAL_S}s"
[policy]
interval = "1h"
validity = "3h"
[publish]
listen = "127.0.0.1:{port}"
"#
    )
}

struct Look {
    cpu_s: f64,
    rss_mib: f64,
    scrapes: f64,
    failed: f64,
    late: f64,
    points: f64,
}

/// The process as the kernel and its own page see it. Its children (the worker that plans) are not in it.
fn look(id: u32, port: u16) -> io::Result<Look> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or(0.0);
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let peak_kib = status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok()).unwrap_or(0.0);
    let read = |name| metric(port, name).unwrap_or(0.0);
    Ok(Look {
        cpu_s: (ticks(11) + ticks(12)) / TICKS_PER_S,
        rss_mib: peak_kib / 1_024.0,
        scrapes: read("turnaround_scrapes_total"),
        failed: metric_with(port, "turnaround_scrapes_total", "outcome=\"failed\"").unwrap_or(0.0),
        late: read("turnaround_scrapes_late_total"),
        points: read("turnaround_observations_kept_total"),
    })
}

/// The sum of a metric over its labels.
fn metric(port: u16, name: &str) -> Option<f64> {
    metric_with(port, name, "")
}

fn metric_with(port: u16, name: &str, label: &str) -> Option<f64> {
    use std::io::{Read, Write};
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.write_all(b"GET /metrics HTTP/1.0\r\nhost: localhost\r\n\r\n").ok()?;
    let mut page = String::new();
    socket.read_to_string(&mut page).ok()?;
    let lines = page.lines().filter(|l| l.starts_with(name) && l.contains(label));
    let values: Vec<f64> = lines.filter_map(|l| l.rsplit(' ').next()?.parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn wait_for(what: &str, process: &mut Ended, ready: impl Fn() -> bool) -> io::Result<()> {
    for _ in 0..600 {
        if ready() {
            return Ok(());
        }
        if let Some(status) = process.0.try_wait()? {
            return Err(io::Error::other(format!("{what} ended with {status}; see target/bench/ingest/daemon.log")));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(io::Error::other(format!("{what} did not become ready within two minutes")))
}

/// What the parser's own benchmark printed last: a line of JSON with numbers.
fn parser_speed() -> BTreeMap<String, f64> {
    let told = fs::read_to_string("target/bench/parser.json").unwrap_or_default();
    let inner = told.trim().trim_start_matches('{').trim_end_matches('}');
    let pairs = inner.split(',').filter_map(|pair| {
        let (name, value) = pair.split_once(':')?;
        Some((name.trim().trim_matches('"').to_owned(), value.trim().parse().ok()?))
    });
    pairs.collect()
}
