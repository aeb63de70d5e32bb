//! Metrics endpoints: one look at one of them, and where in its interval it is due.
//!
//! **Whose a page is** follows from the target it was asked of, never from its labels: whatever `job`, `instance`, `pod` or `hostname` a page
//! shows, its values are the target's, and two targets that show the same labels stay two. Labels only choose lines where a page shows more than
//! one target ([`Reader::select`]) and tell the members of a target apart. Under a Prometheus that does not honour labels, an exporter's own
//! `pod` becomes `exported_pod`; the catalogue reads the workload from there.
//! **When it was** is our clock at the look: times on a page are the target's and are passed over.

use crate::catalogue::{Catalogue, Names, ReadAs};
use crate::exposition::Limits;
use fleet::{Scrape, TargetId, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Auth, Client, Response};

/// What we ask for: the plain text first, since vLLM and DCGM know nothing else; `OpenMetrics` where a server insists.
const ACCEPT: &str = "text/plain;version=0.0.4;charset=utf-8,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.1";

/// One target of a page, and how it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reader {
    /// The target.
    pub target: TargetId,
    /// Which table to read by; without it the page is recognised.
    pub engine: Option<String>,
    /// Labels and values of this target's lines, on a page that shows several. `model` stands for whatever the engine calls it.
    pub select: BTreeMap<String, String>,
    /// Names of signals, where they differ from those of the catalogue.
    pub names: Names,
}

impl Reader {
    /// A target that has its page to itself, read as it is recognised.
    #[must_use]
    pub fn of(target: TargetId) -> Self {
        Self { target, engine: None, select: BTreeMap::new(), names: Names::new() }
    }

    pub(crate) fn how(&self) -> ReadAs<'_> {
        ReadAs { target: &self.target, engine: self.engine.as_deref(), select: &self.select, names: &self.names }
    }
}

/// Where a page is, how to ask for it, and whose it is.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Address of the page.
    pub url: String,
    /// How we say who asks.
    pub auth: Auth,
    /// What asks: its TLS, time and size are this endpoint's ([`Client::limited`]).
    pub client: Client,
    /// What the page may hold.
    pub limits: Limits,
    /// The targets it shows: one, or several of one exporter, router or multi-model server.
    pub readers: Vec<Reader>,
}

/// One look at an endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// A scrape for each of its readers, in their order.
    pub scrapes: Vec<Scrape>,
    /// Redirects on the way: the address is better written as it is.
    pub redirects: usize,
    /// Bytes of the page; 0 when there was none.
    pub bytes: usize,
}

/// Takes one look at an endpoint; `at` is the time the look is booked under. Whatever goes wrong makes failed scrapes, whose reason names
/// neither password nor token.
pub async fn look(catalogue: &Catalogue, endpoint: &Endpoint, at: Timestamp) -> Look {
    let answer = endpoint.client.get(&endpoint.url, &endpoint.auth, &[("accept", ACCEPT)]).await;
    match answer.and_then(Response::success) {
        Ok(answer) => {
            let scrapes = match not_a_page(&answer) {
                Some(reason) => failed(endpoint, at, reason),
                None => read(catalogue, endpoint, at, &answer.body),
            };
            Look { scrapes, redirects: answer.redirects, bytes: answer.body.len() }
        }
        Err(error) => Look { scrapes: failed(endpoint, at, &error.to_string()), redirects: 0, bytes: 0 },
    }
}

fn failed(endpoint: &Endpoint, at: Timestamp, reason: &str) -> Vec<Scrape> {
    endpoint.readers.iter().map(|reader| Scrape::failed(reader.target.clone(), at, reason)).collect()
}

/// Why an answer cannot be a page, or not a whole one. A sign-in page and JSON say what they are; an `OpenMetrics` page says where it ends.
fn not_a_page(answer: &Response) -> Option<&'static str> {
    match answer.media_type().as_deref() {
        Some("text/html") => Some("it answers with a web page, not with metrics"),
        Some("application/json") => Some("it answers with JSON, not with metrics"),
        Some("application/openmetrics-text") if !answer.body.trim_ascii_end().ends_with(b"# EOF") => Some("its page breaks off before # EOF"),
        _ => None,
    }
}

/// One page for all its readers: parsed once, unless they spell names differently.
fn read(catalogue: &Catalogue, endpoint: &Endpoint, at: Timestamp, body: &[u8]) -> Vec<Scrape> {
    let Some(first) = endpoint.readers.first() else { return Vec::new() };
    if endpoint.readers.iter().any(|reader| reader.names != first.names) {
        return endpoint.readers.iter().map(|reader| catalogue.read_text(&reader.how(), at, body, &endpoint.limits)).collect();
    }
    match catalogue.parse(body, &endpoint.limits, &first.names) {
        Ok(page) => endpoint.readers.iter().map(|reader| catalogue.read(&reader.how(), at, &page)).collect(),
        Err(error) => failed(endpoint, at, &error.to_string()),
    }
}

/// How a look went, in words that change only when the target's state does: what is missing, what was skipped, or why nothing is known.
#[must_use]
pub fn state_of(catalogue: &Catalogue, scrape: &Scrape) -> String {
    match &scrape.status {
        fleet::ScrapeStatus::Failed(reason) => format!("failed: {reason}"),
        fleet::ScrapeStatus::Ok => {
            let missing: Vec<String> = catalogue.missing_signals(scrape).into_iter().map(fleet::Signal::name).collect();
            let skipped: Vec<&str> = scrape.skipped.iter().map(|sample| sample.metric.as_str()).collect();
            match (missing.is_empty(), skipped.is_empty()) {
                (true, true) => "ok".to_owned(),
                _ => format!("ok; signals missing: [{}]; samples skipped: [{}]", missing.join(", "), skipped.join(", ")),
            }
        }
    }
}

/// A part of the interval that follows from the target's name: FNV-1a, the same on every host and in every run.
#[must_use]
pub fn offset(target: &TargetId, interval: Duration) -> Duration {
    let hash = target.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(1);
    // The upper bits are mixed best.
    Duration::from_millis((hash >> 16) % millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{ScrapeStatus, Signal};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A server that answers every request with the next of `answers`, the last one for ever.
    async fn serve(answers: Vec<String>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let mut answers = answers.into_iter().peekable();
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let answer = if answers.len() > 1 { answers.next().unwrap() } else { answers.peek().unwrap().clone() };
                let mut request = [0; 4096];
                let _request = socket.read(&mut request).await;
                let head = format!("HTTP/1.1 {answer}");
                let _sent = socket.write_all(head.as_bytes()).await;
            }
        });
        place
    }

    fn answer(kind: &str, page: &str) -> String {
        format!("200 OK\r\nconnection: close\r\n{kind}content-length: {}\r\n\r\n{page}", page.len())
    }

    fn reader(id: &str, select: &[(&str, &str)]) -> Reader {
        Reader { select: select.iter().map(|(label, value)| ((*label).into(), (*value).into())).collect(), ..Reader::of(TargetId::new(id).unwrap()) }
    }

    fn endpoint(url: String, readers: Vec<Reader>) -> Endpoint {
        let limits = wire::Limits { timeout: Duration::from_secs(5), body_bytes_max: 1_000, ..wire::Limits::default() };
        let client = Client::new(&wire::Options { limits, ..wire::Options::default() }).unwrap();
        Endpoint { url, auth: Auth::None, client, limits: Limits::default(), readers }
    }

    /// Field case 9: an error status, an empty body, an oversized one, a page of something else, a page that breaks off and a refused
    /// connection are all "unknown", and say why.
    #[tokio::test]
    async fn whatever_is_no_page_is_a_failed_scrape() {
        let page = "vllm:num_requests_running 3\n";
        let open_metrics = "content-type: application/openmetrics-text; version=1.0.0\r\n";
        let answers = vec![
            "503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(),
            answer("", ""),
            answer("", &"x".repeat(1_001)),
            answer("content-type: text/html; charset=utf-8\r\n", page),
            answer(open_metrics, page),
            answer(open_metrics, &format!("{page}# EOF\n")),
        ];
        let place = serve(answers).await;
        let endpoint = endpoint(format!("http://ann:pa55@{place}/metrics"), vec![reader("a", &[])]);
        for word in ["503", "none of the", "1000 bytes", "web page", "# EOF"] {
            match &look(Catalogue::builtin(), &endpoint, Timestamp(7)).await.scrapes[0].status {
                ScrapeStatus::Failed(reason) => assert!(reason.contains(word) && !reason.contains("pa55"), "{word}: {reason}"),
                ScrapeStatus::Ok => panic!("{word}: no page was served"),
            }
        }
        let good = look(Catalogue::builtin(), &endpoint, Timestamp(7)).await;
        assert_eq!((good.scrapes[0].at, good.scrapes[0].scalar(Signal::RequestsRunning)), (Timestamp(7), Some(3.0)));
        let refused = Endpoint { url: "http://127.0.0.1:1/metrics".into(), ..endpoint };
        assert!(!look(Catalogue::builtin(), &refused, Timestamp(7)).await.scrapes[0].is_ok());
    }

    /// Field case 27: times on a page, 40 minutes ahead or behind, are passed over.
    #[tokio::test]
    async fn one_page_serves_several_targets_and_its_labels_and_times_name_nobody() {
        let page =
            "vllm:num_requests_running{model_name=\"m\",instance=\"x\"} 3 1796111424000\nvllm:num_requests_running{model_name=\"n\",instance=\"x\"} 4 1\n";
        let place = serve(vec!["307 Moved\r\nconnection: close\r\nlocation: /metrics/\r\ncontent-length: 0\r\n\r\n".into(), answer("", page)]).await;
        let endpoint = endpoint(format!("http://{place}/metrics"), vec![reader("a", &[("model", "m")]), reader("b", &[("model", "n")])]);
        let look = look(Catalogue::builtin(), &endpoint, Timestamp(7)).await;
        assert_eq!((look.redirects, look.bytes), (1, page.len()));
        let told: Vec<_> = look.scrapes.iter().map(|scrape| (scrape.target.as_str(), scrape.at.0, scrape.scalar(Signal::RequestsRunning))).collect();
        assert_eq!(told, [("a", 7, Some(3.0)), ("b", 7, Some(4.0))]);
    }

    #[test]
    fn offsets_are_fixed_and_spread_over_the_interval() {
        let interval = Duration::from_secs(15);
        let targets: Vec<TargetId> = (0..300).map(|i| TargetId::new(format!("vllm-{i}")).unwrap()).collect();
        let offsets: Vec<Duration> = targets.iter().map(|target| offset(target, interval)).collect();
        assert!(offsets.iter().all(|offset| *offset < interval));
        for third in 0..3 {
            let inside = offsets.iter().filter(|offset| offset.as_secs() / 5 == third).count();
            assert!((50..150).contains(&inside), "{inside} of 300 in third {third}");
        }
    }
}
