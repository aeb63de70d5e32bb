use super::*;
use crate::{Catalogue, Reader};
use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::any};
use fleet::{ScrapeStatus, Signal, TargetId};
use std::sync::{Arc, Mutex};
use wire::{Limits, Options, Secret};

/// Status, content type, body.
type Answered = (u16, &'static str, String);
/// Second and value.
type Points<'a> = &'a [(i64, &'a str)];

/// A server that gives one answer after the other, the last one for ever, and remembers what it was asked.
#[derive(Clone)]
struct Stage {
    answers: Arc<Mutex<Vec<Answered>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

async fn answer(State(stage): State<Stage>, request: axum::extract::Request) -> impl IntoResponse {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let tenant = parts.headers.get("x-scope-orgid").map_or("", |tenant| tenant.to_str().unwrap());
    stage.asked.lock().unwrap().push(format!("{} {} {tenant} {}", parts.method, parts.uri, String::from_utf8_lossy(&body)));
    let mut answers = stage.answers.lock().unwrap();
    let (status, kind, body) = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
    (StatusCode::from_u16(status).unwrap(), [("content-type", kind)], body)
}

async fn serve(answers: Vec<Answered>) -> (Prometheus, Stage) {
    let stage = Stage { answers: Arc::new(Mutex::new(answers)), asked: Arc::default() };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/prom/", listener.local_addr().unwrap());
    let routes = Router::new().fallback(any(answer)).with_state(stage.clone());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    let client = Client::new(&Options { limits: Limits { body_bytes_max: 4_000, ..Limits::default() }, ..Options::default() }).unwrap();
    let access = Access { url, auth: Auth::Bearer(Secret::new("pa55")), tenant: Some("team-a".into()) };
    (Prometheus::new(client, access), stage)
}

const JSON: &str = "application/json";

fn ok(data: &str) -> Answered {
    (200, JSON, format!(r#"{{"status":"success","data":{data}}}"#))
}

fn matrix(series: &[(&str, &str, Points<'_>)]) -> Answered {
    let series: Vec<String> = series
        .iter()
        .map(|(name, instance, points)| {
            let points: Vec<String> = points.iter().map(|(at, value)| format!("[{at}.25,\"{value}\"]")).collect();
            format!(r#"{{"metric":{{"__name__":"{name}","job":"vllm","instance":"{instance}","model_name":"m"}},"values":[{}]}}"#, points.join(","))
        })
        .collect();
    ok(&format!(r#"{{"resultType":"matrix","result":[{}]}}"#, series.join(",")))
}

fn reader(id: &str, select: &[(&str, &str)]) -> Reader {
    Reader { select: select.iter().map(|(label, value)| ((*label).into(), (*value).into())).collect(), ..Reader::of(TargetId::new(id).unwrap()) }
}

fn names() -> Vec<String> {
    ["vllm:num_requests_running", "vllm:prompt_tokens_total"].map(str::to_owned).to_vec()
}

fn follow(readers: Vec<Reader>) -> Follow {
    Follow::new(readers, names(), BTreeMap::new(), Span(15))
}

const RUNNING: &str = "vllm:num_requests_running";

#[test]
fn selectors_cannot_be_left() {
    let select = BTreeMap::from([("job".to_owned(), "a\"} or {b=\"\\\n".to_owned())]);
    assert_eq!(selector(["vllm:a", "b.c", "b.c"], &select), r#"{__name__=~"b\\.c|vllm:a",job="a\"} or {b=\"\\\n"}"#);
}

#[tokio::test]
async fn queries_go_by_post_until_a_server_takes_get_only() {
    let (server, stage) = serve(vec![ok("[]"), (405, "text/plain", String::new()), ok(r#"[{"a":"b"}]"#), ok("[]")]).await;
    assert!(server.series(&["{a=\"b\"}".into()], Timestamp(1), Timestamp(2)).await.unwrap().is_empty());
    assert_eq!(server.series(&["up".into(), "x".into()], Timestamp(1), Timestamp(2)).await.unwrap().len(), 1);
    server.series(&["up".into()], Timestamp(1), Timestamp(2)).await.unwrap();
    let asked = stage.asked.lock().unwrap().clone();
    assert_eq!(asked[0], "POST /prom/api/v1/series team-a start=1&end=2&match%5B%5D=%7Ba%3D%22b%22%7D");
    assert_eq!(asked[2], "GET /prom/api/v1/series?start=1&end=2&match%5B%5D=up&match%5B%5D=x team-a ");
    assert!(asked.len() == 4 && asked[3].starts_with("GET"));
}

#[tokio::test]
async fn what_is_there_is_found() {
    let (server, stage) = serve(vec![
        ok(r#"["a","b"]"#),
        ok(r#"{"activeTargets":[{"labels":{"job":"vllm"},"scrapeUrl":"http://x/metrics","health":"up","scrapeInterval":"5s","lastError":""}],"droppedTargets":null}"#),
        ok(r#"{"version":"2.42.0","revision":"x"}"#),
        (404, "text/plain", "404 page not found".into()),
        (401, "text/html", "<html>".into()),
    ])
    .await;
    assert_eq!(server.label_values("__name__", &[]).await.unwrap(), ["a", "b"]);
    let targets = server.targets().await.unwrap();
    assert_eq!((targets[0].health.as_str(), targets[0].scrape_interval.as_deref(), targets[0].labels["job"].as_str()), ("up", Some("5s"), "vllm"));
    assert_eq!(server.build_info().await.unwrap().unwrap().version, "2.42.0");
    assert_eq!(server.build_info().await.unwrap(), None);
    assert!(server.build_info().await.is_err());
    assert!(stage.asked.lock().unwrap()[0].starts_with("GET /prom/api/v1/label/__name__/values"));
}

/// Field case 33: whatever is refused, no error shows the token.
#[tokio::test]
async fn a_refusal_comes_with_the_servers_words_and_without_ours() {
    let body = r#"{"status":"error","errorType":"bad_data","error":"unknown function"}"#;
    let (server, _) =
        serve(vec![(400, JSON, body.into()), (502, "text/html", "<html>".into()), (200, "text/html", "<html>".into()), (503, JSON, "{}".into())]).await;
    for word in ["unknown function", "502", "not an answer of a Prometheus API", "503"] {
        let error = server.instant("up", Timestamp(1)).await.unwrap_err();
        assert!(error.to_string().contains(word) && !format!("{error} {error:?} {server:?}").contains("pa55"), "{word}: {error}");
    }
}

#[tokio::test]
async fn all_replicas_are_followed_with_one_query_and_every_scrape_is_given_once() {
    let first = matrix(&[(RUNNING, "a:1", &[(100, "1"), (115, "2")]), (RUNNING, "b:1", &[(101, "3")]), ("up", "a:1", &[(100, "1"), (115, "1")])]);
    let second = matrix(&[(RUNNING, "a:1", &[(115, "2"), (130, "NaN")]), ("vllm:prompt_tokens_total", "a:1", &[(130, "7")]), ("up", "b:1", &[(116, "0")])]);
    let (server, stage) = serve(vec![first, second, matrix(&[])]).await;
    let mut follow = follow(vec![reader("a", &[("instance", "a:1")]), reader("b", &[("instance", "b:1")])]);
    let told = |polled: &Polled| -> Vec<(String, i64, Option<f64>)> {
        polled.scrapes.iter().map(|scrape| (scrape.target.to_string(), scrape.at.0, scrape.scalar(Signal::RequestsRunning))).collect()
    };
    let polled = follow.poll(&server, Catalogue::builtin(), Timestamp(120)).await;
    assert_eq!(told(&polled), [("a".into(), 100, Some(1.0)), ("b".into(), 101, Some(3.0)), ("a".into(), 115, Some(2.0))]);
    let polled = follow.poll(&server, Catalogue::builtin(), Timestamp(135)).await;
    assert_eq!(told(&polled), [("b".into(), 116, None), ("a".into(), 130, None)]);
    assert!(!polled.scrapes[0].is_ok() && polled.scrapes[1].is_ok());
    assert_eq!((polled.scrapes[1].scalar(Signal::PromptTokens), polled.scrapes[1].skipped[0].metric.as_str()), (Some(7.0), RUNNING));
    // Nobody has a sample any more: unknown, by our clock.
    let polled = follow.poll(&server, Catalogue::builtin(), Timestamp(150)).await;
    assert_eq!(told(&polled), [("a".into(), 150, None), ("b".into(), 150, None)]);
    assert!(polled.scrapes.iter().all(|scrape| matches!(&scrape.status, ScrapeStatus::Failed(reason) if reason.contains("no sample"))));
    let asked = stage.asked.lock().unwrap().clone();
    assert!(asked[0].contains("%5B30s%5D&time=120") && asked[1].contains("%5B45s%5D&time=135"), "{asked:?}");
}

/// Field case 9: an empty list, null, a refused connection and an empty body make failed scrapes of every target, never zeroes.
#[tokio::test]
async fn nothing_from_the_server_is_unknown() {
    for answer in [
        ok(r#"{"resultType":"matrix","result":[]}"#),
        ok("null"),
        (200, JSON, String::new()),
        (500, JSON, "{}".into()),
        matrix(&[(RUNNING, "a:1", &[(100, "NaN")])]),
    ] {
        let (server, _) = serve(vec![answer.clone()]).await;
        let polled = follow(vec![reader("a", &[("instance", "a:1")])]).poll(&server, Catalogue::builtin(), Timestamp(120)).await;
        assert!(polled.scrapes.len() == 1 && !polled.scrapes[0].is_ok(), "{answer:?}: {polled:?}");
    }
}

#[tokio::test]
async fn a_selection_that_fits_two_instances_at_once_is_refused_and_one_after_the_other_is_not() {
    let both = matrix(&[(RUNNING, "a:1", &[(100, "1"), (115, "2")]), (RUNNING, "b:1", &[(101, "3")])]);
    let moved = matrix(&[(RUNNING, "a:1", &[(100, "1")]), (RUNNING, "b:1", &[(115, "3")])]);
    let (server, _) = serve(vec![both, moved]).await;
    let polled = follow(vec![reader("a", &[("model", "m")])]).poll(&server, Catalogue::builtin(), Timestamp(120)).await;
    assert!(
        matches!(&polled.scrapes[..], [one] if matches!(&one.status, ScrapeStatus::Failed(reason) if reason.contains("instance=a:1") && reason.contains("instance=b:1"))),
        "{polled:?}"
    );
    let polled = follow(vec![reader("a", &[("model", "m")])]).poll(&server, Catalogue::builtin(), Timestamp(120)).await;
    assert_eq!(polled.scrapes.iter().map(|scrape| scrape.scalar(Signal::RequestsRunning)).collect::<Vec<_>>(), [Some(1.0), Some(3.0)]);
}

#[tokio::test]
async fn a_look_that_is_too_large_is_taken_in_parts() {
    let part = |name| matrix(&[(name, "a:1", &[(100, "1")])]);
    let (server, stage) = serve(vec![(200, JSON, " ".repeat(5_000)), part(RUNNING), part("vllm:prompt_tokens_total")]).await;
    let polled = follow(vec![reader("a", &[])]).poll(&server, Catalogue::builtin(), Timestamp(120)).await;
    assert_eq!((polled.scrapes.len(), polled.scrapes[0].samples.len()), (1, 2));
    assert_eq!(stage.asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn the_past_is_read_in_chunks_on_multiples_of_the_step_and_goes_on_after_an_error() {
    let chunk = |from: i64| matrix(&[(RUNNING, "a:1", &[(from, "1"), (from + 60, "2")])]);
    let too_many = r#"{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}"#;
    let slow = r#"{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}"#;
    let (server, stage) = serve(vec![(422, JSON, too_many.into()), (503, JSON, slow.into()), chunk(120), (500, JSON, "{}".into()), chunk(240)]).await;
    let mut backfill = Backfill::new(vec![reader("a", &[("instance", "a:1")])], names(), BTreeMap::new(), (Timestamp(61), Timestamp(359)), Span(60)).chunked(8);
    let whole = backfill.left();
    let first = backfill.next(&server, Catalogue::builtin()).await.unwrap().unwrap();
    assert_eq!((whole, first.from, first.to, first.scrapes.len(), backfill.left()), (Span(240), Timestamp(120), Timestamp(180), 2, Span(120)));
    assert!(backfill.next(&server, Catalogue::builtin()).await.is_err());
    let second = backfill.next(&server, Catalogue::builtin()).await.unwrap().unwrap();
    assert_eq!((second.from, second.to, second.scrapes[0].at), (Timestamp(240), Timestamp(300), Timestamp(240)));
    assert_eq!((backfill.next(&server, Catalogue::builtin()).await.unwrap(), backfill.left()), (None, Span(0)));
    let asked = stage.asked.lock().unwrap().clone();
    assert!(asked[0].contains("query_range") && asked[0].contains("start=120&end=300&step=60") && asked[0].contains("last_over_time"), "{}", asked[0]);
}

/// Field case 17: behind a Prometheus that does not honour labels, `pod` is the exporter and `exported_pod` the workload; a later holder is the
/// same GPU's.
#[tokio::test]
async fn a_gpu_belongs_to_the_workload_and_not_to_its_exporter() {
    let look = |at: i64, holder: &str| {
        let gpu = |uuid: &str, labels: &str| {
            format!(
                r#"{{"metric":{{"__name__":"DCGM_FI_DEV_GPU_UTIL","job":"dcgm","instance":"n:9400","UUID":"{uuid}","gpu":"0","modelName":"H100",{labels}}},"values":[[{at},"50"]]}}"#
            )
        };
        let (a, b) = (
            format!(r#""pod":"dcgm-exporter-x1","namespace":"monitoring","exported_pod":"{holder}","exported_namespace":"prod""#),
            r#""pod":"serve-a-1","namespace":"prod""#,
        );
        ok(&format!(r#"{{"resultType":"matrix","result":[{},{},{}]}}"#, gpu("GPU-a", &a), gpu("GPU-b", b), gpu("GPU-c", r#""pod":"","namespace":"""#)))
    };
    let (server, _) = serve(vec![look(100, "serve-a-0"), look(115, "serve-b-0")]).await;
    let mut follow = Follow::new(vec![reader("node", &[("instance", "n:9400")])], ["DCGM_FI_DEV_GPU_UTIL".to_owned()], BTreeMap::new(), Span(15));
    for (at, holder) in [(100, "serve-a-0"), (115, "serve-b-0")] {
        let scrapes = follow.poll(&server, Catalogue::builtin(), Timestamp(at)).await.scrapes;
        let [scrape] = &scrapes[..] else { panic!("{scrapes:?}") };
        let holders: Vec<(Option<&str>, Option<&str>)> =
            scrape.devices.iter().map(|device| (device.uuid.as_deref(), device.holder.as_ref().map(|holder| holder.pod.as_str()))).collect();
        assert_eq!(holders, [(Some("GPU-a"), Some(holder)), (Some("GPU-b"), Some("serve-a-1")), (Some("GPU-c"), None)]);
    }
}
