//! A real `InfluxDB` 2 server for tests: started on a free port of loopback with its data in a temporary folder, set up over its own API, ended by
//! its process id.
//!
//! Which one: the program named by `TURNAROUND_INFLUXD`, else `bin/influxd` of the folder named by `TURNAROUND_SERVERS` (see `build.sh`), else
//! `influxd` on the PATH. Without any a test says so and passes, unless `TURNAROUND_SERVERS_REQUIRED` is set, as `make test-servers` does.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Longest start that is waited for: the first one of a machine under load.
const START_MAX: Duration = Duration::from_mins(2);

/// A server that ends with its handle.
pub struct Influx {
    binary: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    child: Option<Child>,
}

impl Influx {
    /// The organisation of every such server.
    pub const ORG: &'static str = "turnaround";
    /// A token that may do everything.
    pub const TOKEN: &'static str = "s3cret-t0ken-of-the-tests";

    /// Starts and sets up a server; nothing where there is none on this machine.
    pub fn start() -> Option<Self> {
        let binary = binary()?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback has a free port").port();
        let mut server = Self { binary, folder: tempfile::tempdir().expect("a temporary folder"), port, child: None };
        server.resume();
        let body = format!(r#"{{"username":"tests","password":"password-of-the-tests","org":"{}","bucket":"unused","token":"{}"}}"#, Self::ORG, Self::TOKEN);
        let (status, answer) = server.ask("POST", "/api/v2/setup", &body);
        assert_eq!(status, 201, "setup: {answer}");
        Some(server)
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port of loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it at once, as a failure of the machine would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a child can be killed");
            child.wait().expect("a killed child ends");
        }
    }

    /// Starts it again on the same port and data.
    pub fn resume(&mut self) {
        let at = |name: &str| self.folder.path().join(name);
        let log = std::fs::File::create(at("log")).expect("a log file");
        let child = Command::new(&self.binary)
            .args(["--http-bind-address", &format!("127.0.0.1:{}", self.port), "--reporting-disabled", "--log-level", "warn"])
            .arg("--bolt-path")
            .arg(at("bolt"))
            .arg("--engine-path")
            .arg(at("engine"))
            .arg("--sqlite-path")
            .arg(at("sqlite"))
            .env("HOME", self.folder.path())
            .stdout(log.try_clone().expect("a log file"))
            .stderr(log)
            .stdin(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("{}: {error}", self.binary.display())));
        let begun = Instant::now();
        while !self.is_up() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(ended.is_none() && begun.elapsed() < START_MAX, "influxd did not start: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_up(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.ask("GET", "/health", "").1.contains("\"pass\"")
    }

    /// One exchange with it, with the token: status and body.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut answer = String::new();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Token {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            Self::TOKEN,
            body.len()
        );
        let asked = TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut socket| {
            socket.write_all(request.as_bytes())?;
            socket.read_to_string(&mut answer)
        });
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).filter(|_| asked.is_ok()).unwrap_or(0);
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }
}

impl Drop for Influx {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program, or a line that says why there is none.
fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("TURNAROUND_INFLUXD").map(PathBuf::from);
    let built = std::env::var_os("TURNAROUND_SERVERS").map(|folder| PathBuf::from(folder).join("bin/influxd")).filter(|path| path.exists());
    let installed = || std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join("influxd")).find(|path| path.is_file());
    let found = named.or(built).or_else(installed);
    if found.is_none() {
        assert!(std::env::var_os("TURNAROUND_SERVERS_REQUIRED").is_none(), "no influxd: build one with tests/servers/build.sh");
        eprintln!("skipped: no InfluxDB server here (make test-servers builds one)");
    }
    found
}
