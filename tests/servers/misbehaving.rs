//! A proxy in front of a real server that misbehaves on demand, and remembers what it let through.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How the next request that it concerns is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// A write is answered with a status.
    Status(u16),
    /// A write is answered with a status and asked to come again after some seconds.
    RetryAfter(u16, u64),
    /// A write is read and never answered.
    Hang,
    /// A write is let through, and the connection closed before its answer: the points are there, and nobody knows.
    CutOff,
    /// A write is answered with a web page and status 200.
    Page,
    /// A question is answered with a web page and status 200.
    PageForQuestions,
    /// From now on nobody may see the buckets.
    HideBuckets,
}

/// The proxy; it ends with the process.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    moods: Mutex<VecDeque<Mood>>,
    hidden: Mutex<bool>,
    /// Writes that were let through and taken: their lines.
    taken: Mutex<Vec<String>>,
    /// When a wait was asked for, and when the next write came.
    asked: Mutex<Vec<(Instant, Option<Instant>)>>,
    /// Connections that are never answered.
    hanging: Mutex<Vec<TcpStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request as it came.
struct Request {
    head: String,
    body: Vec<u8>,
}

impl Request {
    fn is(&self, path: &str) -> bool {
        self.head.split(' ').nth(1).is_some_and(|target| target.starts_with(path))
    }
}

impl Proxy {
    /// Starts one on a free port of loopback.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("a bound port").port();
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let own = Arc::clone(&own);
                std::thread::spawn(move || serve(&socket, server, &own));
            }
        });
        Self { port, shared }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How it meets the next request that this concerns.
    pub fn next(&self, mood: Mood) {
        if mood == Mood::HideBuckets {
            *lock(&self.shared.hidden) = true;
        } else {
            lock(&self.shared.moods).push_back(mood);
        }
    }

    /// Whether all moods are over.
    pub fn is_calm(&self) -> bool {
        lock(&self.shared.moods).is_empty()
    }

    /// How long after each request to wait the next write came.
    pub fn waits_after_a_retry_after(&self) -> Vec<Duration> {
        let asked = lock(&self.shared.asked);
        assert!(!asked.is_empty(), "nobody was asked to wait");
        asked.iter().map(|(asked, came)| came.map_or(Duration::ZERO, |came| came - *asked)).collect()
    }

    /// The points of one series were taken in the order of their instants; a request whose answer was lost may have come twice.
    pub fn assert_in_order(&self, series: &str) {
        let mut before: Vec<i64> = Vec::new();
        let mut seen = 0;
        for lines in lock(&self.shared.taken).iter() {
            let instants: Vec<i64> = lines.lines().filter(|line| line.starts_with(series)).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
            assert!(instants.windows(2).all(|pair| pair[0] < pair[1]), "a request is out of order: {instants:?}");
            if instants.is_empty() || instants == before {
                continue;
            }
            assert!(before.last() < instants.first(), "{instants:?} came after {before:?}");
            seen += instants.len();
            before = instants;
        }
        assert!(seen > 0, "no point of {series} was taken");
    }
}

fn serve(socket: &TcpStream, server: u16, shared: &Shared) {
    let mut reader = BufReader::new(socket.try_clone().expect("a socket"));
    while let Some(request) = read(&mut reader) {
        if !meet(socket, &request, server, shared) {
            return;
        }
    }
}

/// Meets one request; answers whether the connection goes on.
fn meet(mut socket: &TcpStream, request: &Request, server: u16, shared: &Shared) -> bool {
    let write = request.is("/api/v2/write");
    if write && let Some((_, came @ None)) = lock(&shared.asked).last_mut() {
        *came = Some(Instant::now());
    }
    let mood = {
        let mut moods = lock(&shared.moods);
        let concerned = moods.front().is_some_and(|mood| if *mood == Mood::PageForQuestions { request.is("/api/v2/query") } else { write });
        if concerned { moods.pop_front() } else { None }
    };
    let page = "<html><body>Please log in, then come back</body></html>";
    let own = match mood {
        Some(Mood::Status(status)) => answer(status, "", "text/plain", "out of order"),
        Some(Mood::RetryAfter(status, seconds)) => {
            lock(&shared.asked).push((Instant::now(), None));
            answer(status, &format!("Retry-After: {seconds}\r\n"), "text/plain", "later")
        }
        Some(Mood::Page | Mood::PageForQuestions) => answer(200, "", "text/html", page),
        Some(Mood::Hang) => {
            lock(&shared.hanging).extend(socket.try_clone());
            return false;
        }
        _ if *lock(&shared.hidden) && request.is("/api/v2/buckets") => answer(403, "", "application/json", "{\"code\":\"forbidden\",\"message\":\"no\"}"),
        _ => {
            let Some(theirs) = forward(request, server) else { return false };
            if write && theirs.starts_with(b"HTTP/1.1 204") {
                lock(&shared.taken).push(unpacked(&request.body));
            }
            if mood == Some(Mood::CutOff) {
                return false;
            }
            theirs
        }
    };
    // One request a connection towards the server; the client sees its answer end with the connection.
    let _client_may_have_left = socket.write_all(&own);
    let _client_may_have_left = socket.shutdown(std::net::Shutdown::Both);
    false
}

fn answer(status: u16, headers: &str, kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} Mood\r\n{headers}Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

/// The server's answer, or nothing where it is away.
fn forward(request: &Request, server: u16) -> Option<Vec<u8>> {
    let mut socket = TcpStream::connect(("127.0.0.1", server)).ok()?;
    let lines = request.head.lines().filter(|line| !line.to_ascii_lowercase().starts_with("connection:"));
    let head = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\r\n");
    socket.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
    socket.write_all(&request.body).ok()?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).ok()?;
    (!answer.is_empty()).then_some(answer)
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    Some(Request { head, body })
}

fn unpacked(body: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(body).read_to_string(&mut text).expect("a gzip body of UTF-8");
    text
}
