//! Plan, forecasts, health and metrics over HTTP. Errors are problem documents (RFC 9457) with a stable `code`.

use crate::{PageFormat, Published, View};
use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::get,
};
use fleet::{Forecast, WorkloadId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The routes, each answering `GET` and `HEAD`:
///
/// | path | shows |
/// |---|---|
/// | `/v1/plan` | the plan in force; its id is the `ETag`, so `If-None-Match` costs a reader nothing while it stays |
/// | `/v1/forecast` | the latest forecast of each workload; `?workload=NAME` of one |
/// | `/v1/sources` | where readings come from, and whether each signal may be relied on |
/// | `/v1/status` | everything at a glance: conditions, the plan in force, sources that are silent or not whole |
/// | `/healthz` | the process answers |
/// | `/readyz` | 200 when every condition holds, else 503 with each one that does not |
/// | `/metrics` | Prometheus text, or `OpenMetrics` where `Accept` asks for it |
pub fn router(state: Published) -> Router {
    Router::new()
        .route("/v1/plan", get(plan))
        .route("/v1/forecast", get(forecast))
        .route("/v1/sources", get(sources))
        .route("/v1/status", get(status))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|uri: Uri| async move { problem(StatusCode::NOT_FOUND, "no_such_page", &format!("nothing is served at {}", uri.path())) })
        .method_not_allowed_fallback(|| async { problem(StatusCode::METHOD_NOT_ALLOWED, "read_only", "this interface is read with GET or HEAD") })
        .with_state(state)
}

/// A problem document: what is wrong, for machines (`code`) and people (`detail`).
pub(crate) fn problem(status: StatusCode, code: &str, detail: &str) -> Response {
    problem_with(status, code, detail, Map::new())
}

fn problem_with(status: StatusCode, code: &str, detail: &str, mut members: Map<String, Value>) -> Response {
    members.insert("type".into(), "about:blank".into());
    members.insert("title".into(), status.canonical_reason().unwrap_or("error").into());
    members.insert("status".into(), status.as_u16().into());
    members.insert("code".into(), code.into());
    members.insert("detail".into(), detail.into());
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    (status, kind, Value::Object(members).to_string()).into_response()
}

async fn plan(State(state): State<Published>, headers: HeaderMap) -> Response {
    let Some(document) = state.view().plan else {
        return problem(StatusCode::NOT_FOUND, "no_plan", "no plan has been made yet; /readyz says what is missing");
    };
    let tag = format!("\"{}\"", document.plan.id);
    // Ids are fingerprints, hence visible ASCII; one that is not is sent without its tag.
    let mut sent = HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))]);
    sent.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    if headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|list| matches(list, &tag)) {
        return (StatusCode::NOT_MODIFIED, sent).into_response();
    }
    sent.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    (sent, document.body.clone()).into_response()
}

/// Whether a list of tags names `tag`, compared weakly as RFC 9110 section 13.1.2 asks for.
fn matches(list: &str, tag: &str) -> bool {
    list.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ForecastQuery {
    workload: Option<WorkloadId>,
}

async fn forecast(State(state): State<Published>, query: Result<Query<ForecastQuery>, QueryRejection>) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(rejection) => return problem(StatusCode::BAD_REQUEST, "bad_query", &rejection.body_text()),
    };
    let view = state.view();
    let found: Vec<&Forecast> = view.forecasts.iter().filter(|f| query.workload.as_ref().is_none_or(|wanted| wanted == &f.workload)).collect();
    match query.workload {
        Some(wanted) if found.is_empty() => problem(StatusCode::NOT_FOUND, "no_forecast", &format!("there is no forecast for workload {wanted}")),
        _ => Json(found).into_response(),
    }
}

async fn sources(State(state): State<Published>) -> Response {
    Json(&*state.view().sources).into_response()
}

async fn status(State(state): State<Published>) -> Response {
    let view = state.view();
    let plan = view.plan.as_ref().map(|held| {
        let plan = &held.plan;
        json!({ "id": plan.id, "generation": plan.generation, "as_of": plan.as_of, "valid_until": plan.valid_until, "advisory": plan.advisory })
    });
    let doubtful: Vec<_> = view.sources.iter().filter(|source| !source.is_whole()).collect();
    let body = json!({ "ready": view.is_ready(), "conditions": *view.conditions, "plan": plan, "sources": view.sources.len(), "doubtful": doubtful });
    Json(body).into_response()
}

async fn ready(State(state): State<Published>) -> Response {
    let view = state.view();
    if view.is_ready() {
        return Json(json!({ "ready": true, "conditions": *view.conditions })).into_response();
    }
    let members = Map::from_iter([("ready".to_owned(), false.into()), ("failing".to_owned(), failing(&view))]);
    let detail = if view.conditions.is_empty() { "starting: nothing has been looked at yet" } else { "not every condition holds; see failing" };
    problem_with(StatusCode::SERVICE_UNAVAILABLE, "not_ready", detail, members)
}

/// Each condition that does not hold, with reason and since.
fn failing(view: &View) -> Value {
    let failing = view.conditions.iter().filter(|condition| !condition.ok);
    failing.map(|c| json!({ "name": c.name, "reason": c.reason, "since": c.since })).collect()
}

async fn metrics(State(state): State<Published>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",");
    let format = PageFormat::accepted(&accepts);
    let kind = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "Accept")];
    (kind, state.metrics().page(format)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Condition, Metrics, PublishError, Reliance, SignalStatus, SourceStatus, sample};
    use axum::{
        body::{Body, to_bytes},
        http::{Method, Request},
    };
    use fleet::{ForecastId, LEVELS, Plan, Signal, Span, Timestamp};
    use std::sync::Arc;
    use tower::ServiceExt;

    fn published() -> Published {
        Published::new(Metrics::new("0.1.0"))
    }

    /// Status, headers and body of one request.
    async fn ask(state: &Published, method: Method, path: &str, headers: &[(&str, &str)]) -> (StatusCode, HeaderMap, String) {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = router(state.clone()).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, 10_000_000).await.unwrap();
        (parts.status, parts.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(state: &Published, path: &str) -> (StatusCode, HeaderMap, String) {
        ask(state, Method::GET, path, &[]).await
    }

    fn assert_problem((status, headers, body): &(StatusCode, HeaderMap, String), expected: u16, code: &str) -> Value {
        assert_eq!((status.as_u16(), headers[header::CONTENT_TYPE].to_str().unwrap()), (expected, "application/problem+json"));
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["code"], &body["status"]), (&json!(code), &json!(expected)));
        body
    }

    #[tokio::test]
    async fn the_plan_is_sent_once_and_asked_for_often() {
        let state = published();
        assert_problem(&get(&state, "/v1/plan").await, 404, "no_plan");
        let plan = sample::plan(7, 0);
        state.set_plan(&Arc::new(plan.clone())).unwrap();
        let (status, headers, body) = get(&state, "/v1/plan").await;
        let tag = format!("\"{}\"", plan.id);
        assert_eq!((status, headers[header::ETAG].to_str().unwrap()), (StatusCode::OK, tag.as_str()));
        assert_eq!(headers[header::CONTENT_TYPE], "application/json");
        let back: Plan = serde_json::from_str(&body).unwrap();
        assert_eq!(back.content_id(), plan.id);
        for same in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".into()] {
            let (status, headers, body) = ask(&state, Method::GET, "/v1/plan", &[("If-None-Match", &same)]).await;
            assert_eq!((status, body.as_str(), headers[header::ETAG].to_str().unwrap()), (StatusCode::NOT_MODIFIED, "", tag.as_str()));
        }
        let (status, ..) = ask(&state, Method::GET, "/v1/plan", &[("If-None-Match", "\"other\"")]).await;
        assert_eq!(status, StatusCode::OK);
    }

    #[tokio::test]
    async fn an_older_plan_never_replaces_a_later_one() {
        let state = published();
        let mut changes = state.subscribe();
        state.set_plan(&Arc::new(sample::plan(7, 0))).unwrap();
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        state.set_plan(&Arc::new(sample::plan(7, 0))).unwrap();
        for older in [sample::plan(6, 0), sample::plan(7, 100)] {
            assert!(matches!(state.set_plan(&Arc::new(older)), Err(PublishError::Generation { held: 7, .. })));
        }
        assert!(!changes.has_changed().unwrap());
        assert_eq!(state.view().plan.unwrap().plan.id, sample::plan(7, 0).id);
    }

    #[tokio::test]
    async fn forecasts_by_workload() {
        let state = published();
        assert_eq!(get(&state, "/v1/forecast").await.2, "[]");
        let forecast = |workload: &str| Forecast {
            id: ForecastId::new(format!("f-{workload}")).unwrap(),
            workload: WorkloadId::new(workload).unwrap(),
            origin: Timestamp(0),
            start: Timestamp(0),
            step: Span::HOUR,
            levels: LEVELS.to_vec(),
            values: vec![vec![1.0; LEVELS.len()]],
            forecaster: "seasonal_naive".into(),
            calibration: 1,
        };
        state.set_forecasts(vec![forecast("search"), forecast("chat")]);
        let all: Vec<Forecast> = serde_json::from_str(&get(&state, "/v1/forecast").await.2).unwrap();
        assert_eq!(all, [forecast("chat"), forecast("search")]);
        let one: Vec<Forecast> = serde_json::from_str(&get(&state, "/v1/forecast?workload=chat").await.2).unwrap();
        assert_eq!(one, [forecast("chat")]);
        assert_problem(&get(&state, "/v1/forecast?workload=nobody").await, 404, "no_forecast");
        for bad in ["/v1/forecast?workloda=chat", "/v1/forecast?workload="] {
            assert_problem(&get(&state, bad).await, 400, "bad_query");
        }
    }

    #[tokio::test]
    async fn the_status_names_what_cannot_be_relied_on() {
        let state = published();
        let source = |name: &str, state: Reliance| SourceStatus {
            name: name.into(),
            workload: None,
            ok: true,
            last_answer: Some(Timestamp(60)),
            reason: None,
            server: None,
            signals: vec![SignalStatus { signal: Signal::GpuPower, state, last: Some(Timestamp(60)) }],
        };
        state.set_sources(vec![source("a", Reliance::Fresh), source("b", Reliance::Missing)]);
        let all: Vec<SourceStatus> = serde_json::from_str(&get(&state, "/v1/sources").await.2).unwrap();
        assert_eq!(all.len(), 2);
        let body: Value = serde_json::from_str(&get(&state, "/v1/status").await.2).unwrap();
        assert_eq!((&body["sources"], &body["doubtful"][0]["name"], &body["doubtful"][1]), (&json!(2), &json!("b"), &Value::Null));
        assert_eq!(body["doubtful"][0]["signals"][0]["state"], "missing");
    }

    #[tokio::test]
    async fn ready_only_when_every_condition_is_known_to_hold() {
        let state = published();
        assert_problem(&get(&state, "/readyz").await, 503, "not_ready");
        let condition = |name: &str, ok| Condition { name: name.into(), ok, reason: format!("{name} says so"), since: Timestamp(60) };
        state.set_conditions(vec![condition("store", true), condition("sources", false)]);
        let body = assert_problem(&get(&state, "/readyz").await, 503, "not_ready");
        assert_eq!(body["failing"], json!([{ "name": "sources", "reason": "sources says so", "since": "1970-01-01T00:01:00Z" }]));
        assert_eq!(get(&state, "/healthz").await.0, StatusCode::OK, "alive, though not ready");
        state.set_conditions(vec![condition("store", true)]);
        let (status, _, body) = get(&state, "/readyz").await;
        assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()["ready"].clone()), (StatusCode::OK, json!(true)));
    }

    #[tokio::test]
    async fn head_answers_everywhere_and_the_rest_is_refused_politely() {
        let state = published();
        state.set_plan(&Arc::new(sample::plan(1, 0))).unwrap();
        for path in ["/v1/plan", "/v1/forecast", "/v1/sources", "/v1/status", "/healthz", "/readyz", "/metrics"] {
            let (got, head) = (get(&state, path).await, ask(&state, Method::HEAD, path, &[]).await);
            assert_eq!((got.0, "", got.1.get(header::CONTENT_TYPE)), (head.0, head.2.as_str(), head.1.get(header::CONTENT_TYPE)), "{path}");
            let refused = ask(&state, Method::POST, path, &[]).await;
            assert_problem(&refused, 405, "read_only");
            assert_eq!(refused.1[header::ALLOW], "GET,HEAD");
        }
        assert_problem(&get(&state, "/v2/plan").await, 404, "no_such_page");
    }

    #[tokio::test]
    async fn the_metrics_page_comes_in_the_format_asked_for() {
        let state = published();
        let (_, headers, body) = get(&state, "/metrics").await;
        assert_eq!(headers[header::CONTENT_TYPE], "text/plain; version=0.0.4; charset=utf-8");
        assert!(!body.contains("# EOF"));
        let accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let (_, headers, body) = ask(&state, Method::GET, "/metrics", &[("Accept", accept)]).await;
        assert_eq!(headers[header::CONTENT_TYPE], "application/openmetrics-text; version=1.0.0; charset=utf-8");
        assert!(body.ends_with("# EOF\n"));
    }
}
