use super::*;
use axum::http::Request;
use fleet::Signal;
use std::io::Write;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::ServiceExt;
use wire::Secret;

const LINE: &str = "demand,workload=chat,source=gateway requests_received=10i\n";

fn desk(limits: PushLimits) -> (Router, mpsc::Receiver<Batch>) {
    router(Tokens::new([Secret::new("pa55")]), limits, Arc::new(|| Timestamp(1_796_109_024)))
}

async fn ask(routes: &Router, request: Request<Body>) -> (StatusCode, HeaderMap, String) {
    let response = routes.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

async fn send(routes: &Router, path: &str, body: &str) -> (StatusCode, HeaderMap, String) {
    ask(routes, Request::post(path).header("authorization", "Token pa55").body(body.to_owned().into()).unwrap()).await
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[tokio::test]
async fn what_is_pushed_comes_out() {
    let (routes, mut taken) = desk(PushLimits::default());
    assert_eq!(send(&routes, "/api/v2/write?org=a&bucket=b&precision=s", &format!("{LINE}{LINE}")).await.0, StatusCode::NO_CONTENT);
    let packed = Request::post("/v1/push").header("authorization", "Bearer pa55").header("content-encoding", "gzip").body(gzip(LINE.as_bytes()).into());
    let (status, _, report) = ask(&routes, packed.unwrap()).await;
    assert_eq!((status, report.contains("\"accepted\":1")), (StatusCode::OK, true));
    for _ in 0..2 {
        let batch = taken.recv().await.unwrap();
        assert_eq!(batch.demand[0].scrape.scalar(Signal::RequestsReceived), Some(10.0));
    }
}

#[tokio::test]
async fn part_of_a_body_is_taken_and_the_rest_named() {
    let (routes, mut taken) = desk(PushLimits::default());
    let body = format!("{LINE}demand,workload=chat nonsense=1\n");
    let (status, _, answer) = send(&routes, "/api/v2/write", &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(answer.contains("partial write: 1 of 2 lines refused: line 2"), "{answer}");
    let (status, _, answer) = send(&routes, "/v1/push", &body).await;
    assert!(status == StatusCode::OK && answer.contains("\"line\":2"), "{answer}");
    assert_eq!((taken.recv().await.unwrap().demand.len(), taken.recv().await.unwrap().demand.len()), (1, 1));
    assert_eq!(send(&routes, "/v1/push", "nonsense").await.0, StatusCode::BAD_REQUEST);
    assert!(taken.try_recv().is_err(), "a body without a good line is nothing to take");
}

#[tokio::test]
async fn nobody_pushes_without_a_token_and_no_answer_shows_one() {
    let (routes, mut taken) = desk(PushLimits::default());
    for header in ["", "Bearer no", "Basic pa55", "pa55"] {
        let (status, _, answer) = ask(&routes, Request::post("/v1/push").header("authorization", header).body(LINE.into()).unwrap()).await;
        assert!(status == StatusCode::UNAUTHORIZED && !answer.contains("pa55"), "{header}: {answer}");
    }
    assert_eq!(ask(&routes, Request::post("/v1/push").body(LINE.into()).unwrap()).await.0, StatusCode::UNAUTHORIZED);
    assert!(taken.try_recv().is_err());
}

#[tokio::test]
async fn a_full_queue_asks_to_come_again() {
    let (routes, mut taken) = desk(PushLimits { waiting_max: 1, ..PushLimits::default() });
    assert_eq!(send(&routes, "/v1/push", LINE).await.0, StatusCode::OK);
    let (status, headers, _) = send(&routes, "/v1/push", LINE).await;
    assert_eq!((status, headers.get("retry-after").map(header::HeaderValue::as_bytes)), (StatusCode::TOO_MANY_REQUESTS, Some(&b"5"[..])));
    taken.recv().await.unwrap();
    assert_eq!(send(&routes, "/v1/push", LINE).await.0, StatusCode::OK);
    drop(taken);
    assert_eq!(send(&routes, "/v1/push", LINE).await.0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn every_limit_of_a_request_holds() {
    let (routes, mut taken) = desk(PushLimits { body_bytes_max: 100, lines_per_s_max: 1, ..PushLimits::default() });
    assert_eq!(send(&routes, "/v1/push", &"x".repeat(101)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    let packed = |body: Vec<u8>, encoding: &str| {
        Request::post("/v1/push").header("authorization", "Token pa55").header("content-encoding", encoding).body(body.into()).unwrap()
    };
    let bomb = gzip(&vec![b'x'; 10_000]);
    assert!(bomb.len() < 100);
    assert_eq!(ask(&routes, packed(bomb, "gzip")).await.0, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(ask(&routes, packed(b"no gzip".to_vec(), "gzip")).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(ask(&routes, packed(b"x".to_vec(), "br")).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send(&routes, "/v1/push?precision=h", LINE).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(send(&routes, "/v1/push", &"\n".repeat(70)).await.0, StatusCode::TOO_MANY_REQUESTS);
    assert!(taken.try_recv().is_err());
}

#[tokio::test]
async fn a_body_that_does_not_arrive_ends_at_the_time_out() {
    let (routes, _taken) = desk(PushLimits { body_timeout: Duration::from_millis(50), ..PushLimits::default() });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    socket.write_all(b"POST /v1/push HTTP/1.1\r\nhost: a\r\nauthorization: Token pa55\r\ncontent-length: 9\r\n\r\njob").await.unwrap();
    let mut head = [0; 12];
    socket.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 408");
}
