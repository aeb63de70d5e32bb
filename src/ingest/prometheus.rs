//! Metrics endpoints: one look at one of them, and where in its interval it is due.

use crate::catalogue::{Names, read_page_named};
use crate::exposition::Limits;
use fleet::{Scrape, TargetId, Timestamp};
use std::time::Duration;
use wire::{Auth, Client};

/// What we ask for. vLLM answers in its own version whatever is asked; `LiteLLM` would negotiate `OpenMetrics`.
const ACCEPT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where a target's page is, and how to ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The target it is the page of.
    pub target: TargetId,
    /// Address of the page.
    pub url: String,
    /// How we say who asks.
    pub auth: Auth,
    /// Names of signals on this page, where they differ from those of the catalogue.
    pub names: Names,
}

/// Takes one look at an endpoint; `at` is the time the look is booked under. Whatever goes wrong makes a failed scrape, whose reason names
/// neither password nor token.
pub async fn scrape(client: &Client, endpoint: &Endpoint, limits: &Limits, at: Timestamp) -> Scrape {
    let answer = client.get(&endpoint.url, &endpoint.auth, &[("accept", ACCEPT)]).await;
    match answer.and_then(wire::Response::success) {
        Ok(answer) => read_page_named(&endpoint.target, at, &answer.body, limits, &endpoint.names),
        Err(error) => Scrape::failed(endpoint.target.clone(), at, error.to_string()),
    }
}

/// How a look went, in words that change only when the target's state does: what is missing, what was skipped, or why nothing is known.
#[must_use]
pub fn state_of(scrape: &Scrape) -> String {
    match &scrape.status {
        fleet::ScrapeStatus::Failed(reason) => format!("failed: {reason}"),
        fleet::ScrapeStatus::Ok => {
            let missing: Vec<String> = crate::missing_signals(scrape).into_iter().map(fleet::Signal::name).collect();
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

    fn ok(page: &str) -> String {
        format!("200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{page}", page.len())
    }

    fn endpoint(id: &str, url: String) -> Endpoint {
        Endpoint { target: TargetId::new(id).unwrap(), url, auth: Auth::None, names: Names::new() }
    }

    fn client() -> Client {
        Client::new(&wire::Options { timeout: Duration::from_secs(5), body_bytes_max: 1_000, ..wire::Options::default() }).unwrap()
    }

    /// Field case 9: an error status, an empty body, an oversized one and a refused connection are all "unknown", and say why.
    #[tokio::test]
    async fn whatever_is_no_page_is_a_failed_scrape() {
        let answers =
            vec!["503 Busy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_owned(), ok(""), ok(&"x".repeat(1_001)), ok("vllm:num_requests_running 3\n")];
        let place = serve(answers).await;
        let endpoint = endpoint("a", format!("http://ann:pa55@{place}/metrics"));
        let mut reasons = Vec::new();
        for _ in 0..3 {
            match scrape(&client(), &endpoint, &Limits::default(), Timestamp(7)).await.status {
                ScrapeStatus::Failed(reason) => reasons.push(reason),
                ScrapeStatus::Ok => panic!("no page was served"),
            }
        }
        for (reason, word) in reasons.iter().zip(["503", "none of the known signals", "1000 bytes"]) {
            assert!(reason.contains(word) && !reason.contains("pa55"), "{reason}");
        }
        let good = scrape(&client(), &endpoint, &Limits::default(), Timestamp(7)).await;
        assert_eq!((good.at, good.scalar(Signal::RequestsRunning)), (Timestamp(7), Some(3.0)));
    }

    #[test]
    fn offsets_are_fixed_and_spread_over_the_interval() {
        let interval = Duration::from_secs(15);
        let offsets: Vec<Duration> = (0..300).map(|i| offset(&TargetId::new(format!("vllm-{i}")).unwrap(), interval)).collect();
        assert!(offsets.iter().all(|offset| *offset < interval));
        for third in 0..3 {
            let inside = offsets.iter().filter(|offset| offset.as_secs() / 5 == third).count();
            assert!((50..150).contains(&inside), "{inside} of 300 in third {third}");
        }
        assert_eq!(offset(&TargetId::new("vllm-7").unwrap(), interval), offsets[7]);
    }
}
