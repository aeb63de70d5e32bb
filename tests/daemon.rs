//! The daemon beside three HTTP servers that behave like vLLM, with two weeks of history and a clock that the test sets.

use axum::{Router, http::StatusCode, response::IntoResponse, routing::get};
use daemon::{Clock, Options, Worker};
use fleet::{Availability, Span, Timestamp, VariantId, WorkloadId, WorkloadWindow};
use std::{collections::BTreeMap, net::SocketAddr, path::Path};
use store::{Batch, Store};
use tokio::sync::watch;

/// Monday, an hour before the burst that the history shows every day at 08:00.
const BEGIN: &str = "2026-01-19T07:00:00Z";
/// The server that restarts does so here, and its counters begin at zero.
const RESTART: Span = Span::minutes(10);
/// The server that dies does so here.
const DEATH: Span = Span::minutes(20);

/// Requests/s of the whole service: quiet until 08:00, then five times as much until noon.
fn demand(at: Timestamp) -> f64 {
    let second_of_day = at.0.rem_euclid(86_400);
    match second_of_day {
        28_800..43_200 => 60.0,
        _ => 12.0,
    }
}

/// What one of three servers would have counted by `at` if it had run since `since`.
fn served(since: Timestamp, at: Timestamp) -> f64 {
    (since.0..at.0).map(|s| demand(Timestamp(s)) / 3.0).sum()
}

#[derive(Clone, Copy, PartialEq)]
enum Habit {
    Steady,
    Restarts,
    Dies,
}

/// A page with vLLM's names. Its counters move with the test's clock.
fn page(habit: Habit, begin: Timestamp, now: Timestamp) -> Option<String> {
    let since = match habit {
        Habit::Dies if now >= begin + DEATH => return None,
        Habit::Restarts if now >= begin + RESTART => begin + RESTART,
        _ => begin - Span::HOUR,
    };
    let requests = served(since, now).floor();
    let label = r#"{engine="0",model_name="chat-8b"}"#;
    let bucket = |le: &str| format!("vllm:time_to_first_token_seconds_bucket{{engine=\"0\",le=\"{le}\",model_name=\"chat-8b\"}} {requests}\n");
    Some(format!(
        "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{label} {running}\n\
         # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{label} 0\n\
         # TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{label} 0.4\n\
         # TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{label} {prompt}\n\
         # TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{label} {generated}\n\
         # TYPE vllm:request_success_total counter\nvllm:request_success_total{{engine=\"0\",finished_reason=\"stop\",model_name=\"chat-8b\"}} {requests}\n\
         # TYPE vllm:time_to_first_token_seconds histogram\n{b1}{b2}vllm:time_to_first_token_seconds_count{label} {requests}\n\
         vllm:time_to_first_token_seconds_sum{label} {sum}\n",
        running = (demand(now) / 3.0).round(),
        prompt = requests * 800.0,
        generated = requests * 200.0,
        b1 = bucket("0.5"),
        b2 = bucket("+Inf"),
        sum = requests * 0.2,
    ))
}

async fn serve(habit: Habit, begin: Timestamp, clock: watch::Receiver<Timestamp>) -> SocketAddr {
    let app = Router::new().route(
        "/metrics",
        get(move || {
            let now = *clock.borrow();
            async move { page(habit, begin, now).map_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response(), IntoResponse::into_response) }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    address
}

fn configuration(folder: &Path, servers: &[SocketAddr]) -> config::Config {
    let source = |(i, address): (usize, &SocketAddr)| {
        format!(
            r#"
[[source.prometheus]]
name = "chat-{i}"
url = "http://{address}/metrics"
service = "chat"
variant = "chat-8b-h100"
gpus = ["n1/{i}"]
interval = "15s"
"#
        )
    };
    let sources: Vec<String> = servers.iter().enumerate().map(source).collect();
    let sources = sources.concat();
    let text = format!(
        r#"
currency = "EUR"
[[pool]]
name = "h100"
nodes = "n[1-3]"
kind = "H100-80GB"
gpus_per_node = 4
price = 2.60
unobserved = "free"
[[model]]
name = "chat-8b"
[[variant]]
name = "chat-8b-h100"
model = "chat-8b"
kind = "H100-80GB"
memory = "60GiB"
cold_start = "5m"
requests_per_s = 8.0
[[service]]
name = "chat"
variants = "chat-8b-h100"
ttft = "2s"
target = 0.99
min_replicas = 1
max_replicas = 12
{sources}
[store]
path = "{store}"
[publish]
plan_file = "{plan}"
listen = "127.0.0.1:0"
"#,
        store = folder.join("history.sqlite").display(),
        plan = folder.join("plan.json").display(),
    );
    config::parse(&text, "turnaround.toml").unwrap_or_else(|errors| panic!("{errors:#?}"))
}

/// Two weeks in which every day looks like the scripted one.
async fn back_fill(store: &Store, begin: Timestamp) {
    let windows = (0..14 * 288).map(|i| {
        let start = begin - Span::DAY - Span(13 * 86_400) + Span::minutes(5 * i);
        WorkloadWindow {
            arrivals_per_s: Some(demand(start)),
            peak_per_s: Some(demand(start)),
            finished_per_s: Some(demand(start)),
            input_tokens: Some(800.0),
            output_tokens: Some(200.0),
            waiting: Some(0.0),
            first_tokens: Some(demand(start) * 300.0),
            first_tokens_in_time: Some(demand(start) * 300.0),
            ready: BTreeMap::from([(VariantId::new("chat-8b-h100").unwrap(), 3)]),
            completeness: 1.0,
            ..WorkloadWindow::unknown(WorkloadId::new("chat").unwrap(), start, Span::minutes(5))
        }
    });
    store.append(Batch { windows: windows.collect(), ..Batch::default() }).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plan_changes_ahead_of_the_burst_and_a_dead_server_is_neither_idle_nor_supply() {
    let begin: Timestamp = BEGIN.parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (time, clock) = Clock::manual(begin);
    let mut servers = Vec::new();
    for habit in [Habit::Steady, Habit::Restarts, Habit::Dies] {
        servers.push(serve(habit, begin, time.subscribe()).await);
    }
    let config = configuration(folder.path(), &servers);
    back_fill(&Store::open(&config.store.path, store::Options::default()).unwrap(), begin).await;

    let (settled, mut done) = watch::channel(Timestamp(0));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let options = Options {
        clock,
        worker: Worker::InPlace,
        read_secret: std::sync::Arc::new(|_| Err("no secrets here".into())),
        replay: Vec::new(),
        listening: None,
        settled: Some(settled),
    };
    let daemon = tokio::spawn({
        let config = config.clone();
        async move { daemon::run(&config, options, async { drop(stopped.await) }).await }
    });
    for beat in 0..=(65 * 4) {
        let now = begin + Span(15 * beat);
        time.send_replace(now);
        done.wait_for(|at| *at >= now).await.expect("the daemon goes on");
    }
    stop.send(()).unwrap();
    daemon.await.unwrap().unwrap();

    let store = Store::open(&config.store.path, store::Options::default()).unwrap();
    let plans = store.plans(begin, begin + Span::hours(2)).await.unwrap();
    assert!(plans.windows(2).all(|w| w[0].generation < w[1].generation));
    println!("{} plans in 65 minutes", plans.len());

    // Ahead of the burst: by 07:55 a plan has more replicas ready at 08:00 than it had running at 07:30, and starts them before.
    let burst = begin + Span::HOUR;
    let quiet = plans.iter().rfind(|p| p.as_of <= begin + Span::minutes(15)).unwrap();
    let ahead = plans.iter().rfind(|p| p.as_of <= burst - Span::minutes(5)).unwrap();
    let ready = |plan: &fleet::Plan, at| plan.replicas_at(at).filter(|r| r.ready_at <= at).count();
    println!("ready at 07:15: {}; planned ready at 08:00: {} (for {} req/s)", ready(quiet, quiet.as_of), ready(ahead, burst), demand(burst));
    assert!(ready(ahead, burst) > ready(quiet, quiet.as_of) + 3);
    assert!(ahead.committed.replicas.iter().filter(|r| r.verb == fleet::Verb::Start).all(|r| r.from < burst));

    // The restart is no burst and no gap.
    let windows = store.windows(None, begin, burst).await.unwrap();
    let around_restart = windows.iter().filter(|w| w.start >= begin + Span::minutes(5) && w.start < begin + DEATH);
    for window in around_restart {
        let came = window.arrivals_per_s.expect("known");
        assert!((came - 12.0).abs() < 1.5, "{} req/s at {}", came, window.start);
    }
    // The dead server: its demand is held, and it is not supply.
    let dead = windows.iter().filter(|w| w.start >= begin + DEATH + Span::minutes(5));
    let mut counted = 0;
    for window in dead {
        let came = window.arrivals_per_s.expect("held, not unknown, while two of three answer");
        assert!((came - 12.0).abs() < 2.0, "{} req/s at {}", came, window.start);
        assert!(window.completeness < 0.9, "completeness {} at {}", window.completeness, window.start);
        assert_eq!(window.ready.values().sum::<u32>(), 2);
        counted += 1;
    }
    assert!(counted >= 5);
    let problem = store.problem(&ahead.problem).await.unwrap().expect("kept with its plan");
    let slot = problem.gpus.iter().find(|g| g.id.as_str() == "n1/2").unwrap();
    assert!(matches!(&slot.availability, Availability::Occupied(why) if why.contains("silent")), "{slot:?}");
    assert_eq!(problem.residents.len(), 2);
}
