//! `turnaround agent` from outside, with a driver made for it: what it prints and serves, its exit codes, and what it does when the driver
//! hangs.

use fleet::{Device, Reading, Scrape, Signal, TargetId, Timestamp};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Longest wait for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Compiles the fake driver with `faults` defined into `folder`.
fn fake(folder: &Path, faults: &[&str]) -> PathBuf {
    let library = folder.join("libnvidia-ml-fake.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../ingest/nvml_fake.c"));
    cc.args(faults.iter().map(|fault| format!("-D{fault}")));
    let made = cc.output().expect("a C compiler is needed by the build anyway");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

fn agent(library: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnaround"));
    command.args(["agent", "--node", "n1", "--library"]).arg(library).args(arguments).env_remove("TURNAROUND_LOG").env("COLUMNS", "160");
    command
}

fn once(faults: &[&str], arguments: &[&str]) -> Output {
    let folder = TempDir::new().unwrap();
    agent(&fake(folder.path(), faults), &[&["--once"], arguments].concat()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn one_look_prints_every_gpu() {
    let output = once(&["XID"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = text(&output.stdout);
    for line in [
        "turnaround_agent_up{node=\"n1\"} 1",
        "turnaround_gpu_utilisation_ratio{node=\"n1\",gpu=\"0\",uuid=\"GPU-fake-0\",product=\"Fake H100 80GB\"} 0.75",
        "turnaround_gpu_utilisation_ratio{node=\"n1\",gpu=\"1\",uuid=\"GPU-fake-1\",product=\"Fake H100 80GB\"} 0",
        "turnaround_gpu_xid_last{node=\"n1\",gpu=\"0\",uuid=\"GPU-fake-0\",product=\"Fake H100 80GB\"} 79",
        "turnaround_gpu_process_memory_bytes{node=\"n1\",gpu=\"0\",uuid=\"GPU-fake-0\",product=\"Fake H100 80GB\",pid=\"42\"} 5368709120",
    ] {
        assert!(page.lines().any(|found| found.strip_suffix(".0").unwrap_or(found) == line), "{line} is not in\n{page}");
    }
    if Path::new("/proc/stat").exists() {
        assert!(page.contains("turnaround_node_boot_time_seconds{node=\"n1\"} 1"), "{page}");
    }
    let document: Value = serde_json::from_slice(&once(&[], &["--json"]).stdout).unwrap();
    assert_eq!((document["node"].as_str(), document["scrape"]["devices"].as_array().map(Vec::len)), (Some("n1"), Some(2)));
    assert_eq!((document["processes"][0]["pid"].as_i64(), document["scrape"]["server"]["engine"].as_str()), (Some(42), Some("nvml")));
}

/// What a scrape says, whatever its members are called: by GPU and slice.
fn by_device(scrape: &Scrape) -> BTreeMap<(Option<u32>, Option<String>, Signal), String> {
    let of = |device: &Device| (device.index, device.mig.as_ref().map(|slice| format!("{} {}", slice.profile, slice.instance)));
    let known = scrape.samples.iter().filter_map(|sample| {
        let Reading::Scalar(value) = &sample.value else { return None };
        let device = sample.member.as_ref().and_then(|member| scrape.devices.iter().find(|device| &device.member == member));
        let (index, slice) = device.map_or((None, None), of);
        Some(((index, slice, sample.signal), format!("{value}")))
    });
    known.collect()
}

/// The GPUs of a remote node are the same to the planner as those of its own: the page says all that the driver said.
#[test]
fn a_page_that_is_scraped_says_what_the_driver_said() {
    for faults in [&["MIG", "ECC", "ROW_REMAP", "THROTTLED", "XID"][..], &[], &["NOT_SUPPORTED"]] {
        let folder = TempDir::new().unwrap();
        let nvml = ingest::nvml::open(Some(&fake(folder.path(), faults))).unwrap();
        let (target, at) = (TargetId::new("gpu-node").unwrap(), Timestamp(7));
        let host = ingest::nvml::Host { node: "n1".into(), boot_time: Some(Timestamp(1_700_000_000)) };
        let local = ingest::nvml::Watch::new(&nvml).scrape(&target, &host, at);
        let look = publish::AgentLook { scrape: local.clone(), processes: Vec::new() };
        let page = publish::agent_page("n1", &Ok(std::sync::Arc::new(look)), publish::PageFormat::Prometheus);
        let remote = ingest::read_page(&target, at, &page);
        assert!(remote.is_ok(), "{:?}\n{page}", remote.status);
        assert_eq!(by_device(&remote), by_device(&local), "{faults:?}\n{page}");
    }
    let silent = publish::agent_page("n1", &Err("the driver hangs".into()), publish::PageFormat::Prometheus);
    let remote = ingest::read_page(&TargetId::new("gpu-node").unwrap(), Timestamp(7), &silent);
    assert!(!remote.is_ok() && remote.samples.is_empty(), "silence is a failed look, and no idle GPU: {remote:?}");
}

#[test]
fn what_cannot_work_says_what_to_do_about_it() {
    let folder = TempDir::new().unwrap();
    let absent = folder.path().join("libnvidia-ml.so.1");
    for arguments in [&["--once"][..], &["--listen", "127.0.0.1:0"]] {
        let output = agent(&absent, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let told = text(&output.stderr);
        assert!(output.stdout.is_empty() && told.contains("libnvidia-ml.so.1") && told.contains("--library"), "{told}");
    }
    let output = agent(&absent, &["--once", "--json"]).output().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["error"]["exit_code"], 1);
    let output = agent(&absent, &["--listen", "0.0.0.0:0"]).output().unwrap();
    assert!(output.status.code() == Some(64) && text(&output.stderr).contains("--allow-remote"), "{}", text(&output.stderr));
    for wrong in [["--interval", "0s"], ["--interval", "15"], ["--listen", "here"]] {
        assert_eq!(agent(&absent, &wrong).output().unwrap().status.code(), Some(64), "{wrong:?}");
    }
    let output = once(&["NO_GPU"], &[]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("knows no GPU"), "{}", text(&output.stderr));
    let output = once(&["HANG"], &["--timeout", "1s"]);
    assert!(output.status.code() == Some(1) && text(&output.stderr).contains("did not answer within 1s"), "{}", text(&output.stderr));
}

/// A running agent, ended with the test.
struct Running {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Running {
    fn start(faults: &[&str], arguments: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut command = agent(&fake(folder.path(), faults), &[&["--listen", "127.0.0.1:0", "--interval", "1s"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(told.read_line(&mut line).unwrap() > 0, "it ended before it listened");
            if let Some(address) = line.split("http://").nth(1).and_then(|rest| rest.split("/metrics").next()) {
                break address.to_owned();
            }
        };
        // What it goes on telling is read, so that it never waits for a reader.
        std::thread::spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
        Self { child, address, _folder: folder }
    }

    /// Status and body of a page.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap(), body.to_owned())
    }

    /// The metrics page once it fulfils a condition.
    fn page_when(&self, what: impl Fn(&str) -> bool) -> String {
        let began = Instant::now();
        loop {
            let page = self.get("/metrics").1;
            if what(&page) {
                return page;
            }
            assert!(began.elapsed() < PATIENCE, "{page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Asks it to end; its exit code.
    fn terminate(mut self) -> Option<i32> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().unwrap();
        assert!(asked.success());
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_is_served_until_somebody_asks_it_to_end() {
    let agent = Running::start(&[], &[]);
    let page = agent.get("/metrics").1;
    assert!(page.contains("uuid=\"GPU-fake-0\"") && page.contains("uuid=\"GPU-fake-1\""), "{page}");
    assert_eq!((agent.get("/healthz").0, agent.get("/readyz").0, agent.get("/v1/plan").0), (200, 200, 404));
    assert_eq!(agent.terminate(), Some(0));
}

/// A driver that hangs: the values of before are withdrawn, the process goes on answering, and can be ended.
#[test]
fn the_values_of_a_driver_that_hangs_are_withdrawn() {
    let agent = Running::start(&["HANG_LATER"], &[]);
    agent.page_when(|page| page.contains("GPU-fake-0"));
    let page = agent.page_when(|page| !page.contains("GPU-fake"));
    assert!(page.contains("turnaround_agent_up{node=\"n1\"} 0") && page.contains("has not answered for"), "{page}");
    let (status, body) = agent.get("/readyz");
    assert!(status == 503 && body.contains("has not answered for"), "{body}");
    assert_eq!(agent.get("/healthz").0, 200);
    assert_eq!(agent.terminate(), Some(0));
}

/// One that hangs from the start: the agent comes up all the same and says so.
#[test]
fn a_driver_that_never_answers_is_shown_as_that() {
    let agent = Running::start(&["HANG"], &["--timeout", "1s"]);
    let page = agent.get("/metrics").1;
    assert!(page.contains("turnaround_agent_up{node=\"n1\"} 0") && !page.contains("turnaround_gpu"), "{page}");
    assert_eq!(agent.terminate(), Some(0));
}
