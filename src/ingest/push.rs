//! What job queues and gateways push: line protocol by HTTP POST, at the path `InfluxDB` 2 has (`/api/v2/write`, so that an agent that writes
//! there can write here) and at `/v1/push`.
//!
//! | measurement | tags | fields |
//! |---|---|---|
//! | `demand` | `workload`, `source` | named after signals (`requests_received=10i`); those with a sum and a count as two (`end_to_end_sum`, `end_to_end_count`) |
//! | `job` | `job` | `state` (`"waiting"`, `"running"`, `"done"`), and where known `remaining_s`, `since_checkpoint_s`, `gpus` |
//!
//! Asked for are a token (`Authorization: Bearer ...` or `Token ...`), compared in constant time, and moderation: bodies, lines, their rate and
//! what waits for the daemon are bounded. A full queue answers 429 with `Retry-After`, so that the sender keeps its data.

pub mod line_protocol;
mod meaning;
mod tokens;

pub use meaning::{Batch, JobReport, JobStage, LineLimits, Precision, Pushed, RefusedLine, Report, read_lines};
pub use tokens::Tokens;

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use fleet::Timestamp;
use serde::Deserialize;
use serde_json::json;
use std::{io::Read, sync::Arc, time::Duration};
use tokio::sync::{Semaphore, mpsc};

/// How much may be pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PushLimits {
    /// Bytes of a body at most, as sent and after decompression.
    pub body_bytes_max: usize,
    /// Longest time a body may take to arrive.
    pub body_timeout: Duration,
    /// Bodies that are read at the same time; others wait for no place.
    pub bodies_max: usize,
    /// Lines a second and token, over a minute.
    pub lines_per_s_max: u32,
    /// Lines and their times.
    pub lines: LineLimits,
    /// Requests that wait for the daemon at most.
    pub waiting_max: usize,
}

impl Default for PushLimits {
    /// Three times what the largest agents send: 4 MiB a body, 5,000 lines a second.
    fn default() -> Self {
        Self {
            body_bytes_max: 4 << 20,
            body_timeout: Duration::from_secs(10),
            bodies_max: 16,
            lines_per_s_max: 5_000,
            lines: LineLimits::default(),
            waiting_max: 64,
        }
    }
}

/// Seconds a sender is asked to wait when the queue is full: the daemon empties it at every look.
const RETRY_AFTER_S: &str = "5";

/// Tells the time; only the daemon knows it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

struct Desk {
    tokens: Tokens,
    limits: PushLimits,
    clock: Clock,
    bodies: Semaphore,
    out: mpsc::Sender<Batch>,
}

/// The routes, and where what is pushed comes out. Without a single token every request is refused.
pub fn router(tokens: Tokens, limits: PushLimits, clock: Clock) -> (Router, mpsc::Receiver<Batch>) {
    let (out, taken) = mpsc::channel(limits.waiting_max.max(1));
    let desk = Arc::new(Desk { tokens, limits, clock, bodies: Semaphore::new(limits.bodies_max), out });
    let routes = Router::new().route("/api/v2/write", post(write_as_influx)).route("/v1/push", post(push)).with_state(desk);
    (routes, taken)
}

/// Why a request as a whole is not taken.
enum Refusal {
    Token,
    Busy(&'static str),
    BodyBytes(usize),
    BodyTime,
    Body(&'static str),
    Precision,
    Stopping,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, code, message) = match self {
            Self::Token => (StatusCode::UNAUTHORIZED, "unauthorized", "the token is missing or not one of ours".to_owned()),
            Self::Busy(why) => (StatusCode::TOO_MANY_REQUESTS, "too many requests", why.to_owned()),
            Self::BodyBytes(max) => (StatusCode::PAYLOAD_TOO_LARGE, "request too large", format!("the body is larger than body_bytes_max = {max}")),
            Self::BodyTime => (StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not arrive in time".to_owned()),
            Self::Body(why) => (StatusCode::BAD_REQUEST, "invalid", why.to_owned()),
            Self::Precision => (StatusCode::BAD_REQUEST, "invalid", "precision is one of ns, us, ms, s".to_owned()),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "nobody takes what is pushed".to_owned()),
        };
        let mut response = (status, Json(json!({ "code": code, "message": message }))).into_response();
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static(RETRY_AFTER_S));
        }
        response
    }
}

#[derive(Deserialize)]
struct Parameters {
    precision: Option<String>,
}

/// As `InfluxDB` answers: 204 when every line was taken, else 400 naming the lines that were not; the others are taken all the same.
async fn write_as_influx(state: State<Arc<Desk>>, parameters: Query<Parameters>, headers: HeaderMap, body: Body) -> Result<Response, Refusal> {
    let report = take(&state, &parameters, &headers, body).await?;
    if report.refused == 0 {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let first: Vec<String> = report.reasons.iter().take(5).map(|refused| format!("line {}: {}", refused.line, refused.reason)).collect();
    let message = format!("partial write: {} of {} lines refused: {}", report.refused, report.refused + report.accepted, first.join("; "));
    Ok((StatusCode::BAD_REQUEST, Json(json!({ "code": "invalid", "message": message, "report": report }))).into_response())
}

/// 200 with the report; 400 with it when no line was taken.
async fn push(state: State<Arc<Desk>>, parameters: Query<Parameters>, headers: HeaderMap, body: Body) -> Result<Response, Refusal> {
    let report = take(&state, &parameters, &headers, body).await?;
    let status = if report.accepted == 0 && report.refused > 0 { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    Ok((status, Json(report)).into_response())
}

async fn take(desk: &Desk, parameters: &Parameters, headers: &HeaderMap, body: Body) -> Result<Report, Refusal> {
    let said = headers.get(header::AUTHORIZATION).map_or(&b""[..], header::HeaderValue::as_bytes);
    let token = desk.tokens.find(said).ok_or(Refusal::Token)?;
    let precision = parameters.precision.as_deref().map_or(Some(Precision::default()), Precision::named).ok_or(Refusal::Precision)?;
    let _place = desk.bodies.try_acquire().map_err(|_| Refusal::Busy("too many bodies are read at once"))?;
    // A place in the queue comes first: what is taken must not be lost.
    let place = desk.out.try_reserve().map_err(|error| match error {
        mpsc::error::TrySendError::Full(()) => Refusal::Busy("what was pushed before still waits to be taken"),
        mpsc::error::TrySendError::Closed(()) => Refusal::Stopping,
    })?;
    let body = read_body(headers, body, &desk.limits).await?;
    let lines = memchr::memchr_iter(b'\n', &body).count() + 1;
    if !desk.tokens.admit(token, lines, desk.limits.lines_per_s_max, tokio::time::Instant::now()) {
        return Err(Refusal::Busy("more lines a second than lines_per_s_max"));
    }
    let (batch, report) = read_lines(&body, precision, &desk.limits.lines, (desk.clock)());
    if report.refused > 0 || report.restamped > 0 {
        let first = report.reasons.first().map_or("", |refused| &refused.reason);
        tracing::debug!(refused = report.refused, restamped = report.restamped, first, "some pushed lines were not taken as they are");
    }
    if report.accepted > 0 {
        place.send(batch);
    }
    Ok(report)
}

async fn read_body(headers: &HeaderMap, body: Body, limits: &PushLimits) -> Result<Vec<u8>, Refusal> {
    let max = limits.body_bytes_max;
    let read = tokio::time::timeout(limits.body_timeout, axum::body::to_bytes(body, max)).await.map_err(|_| Refusal::BodyTime)?;
    let sent = read.map_err(|_| Refusal::BodyBytes(max))?;
    match headers.get(header::CONTENT_ENCODING).map(header::HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(sent.to_vec()),
        Some(b"gzip") => {
            let mut body = Vec::new();
            let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
            flate2::read::MultiGzDecoder::new(&sent[..]).take(limit).read_to_end(&mut body).map_err(|_| Refusal::Body("the body is no whole gzip"))?;
            if body.len() > max { Err(Refusal::BodyBytes(max)) } else { Ok(body) }
        }
        Some(_) => Err(Refusal::Body("the body's encoding is neither gzip nor identity")),
    }
}

#[cfg(test)]
mod tests;
