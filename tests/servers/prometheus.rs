//! A real Prometheus, where one is on PATH (Debian's package `prometheus`): started on a free port with its data in a folder of its own, and
//! stopped by its own process id.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A Prometheus that runs; it ends with this value.
pub struct Server {
    process: Child,
    /// Its address.
    pub url: String,
}

impl Server {
    /// Starts it with this configuration, its data in `folder`. Nothing where there is none to start.
    pub fn start(folder: &Path, configuration: &str) -> Option<Self> {
        let program = program()?;
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, configuration).unwrap();
        // The port is free when it is asked for; nobody else is likely to take it in the moment between.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        drop(listener);
        let log = std::fs::File::create(folder.join("prometheus.log")).unwrap();
        let process = Command::new(program)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={place}"))
            .args(["--web.external-url=http://localhost/prom", "--log.level=warn"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Some(Self { process, url: format!("http://{place}/prom") })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.process.kill();
        let _reaped = self.process.wait();
    }
}

/// Where Prometheus is, or a line that says what is left out.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|folder| folder.join("prometheus")).find(|program| program.is_file());
    if found.is_none() {
        eprintln!("skipped: no prometheus on PATH (Debian: apt-get install prometheus)");
    }
    found
}
