//! A real Prometheus scrapes exporters of ours; its past is read back, then it is followed live, and the numbers agree with its own.

#[path = "servers/extrapolation.rs"]
mod extrapolation;
#[path = "servers/prometheus.rs"]
mod server;

use axum::{Router, extract::State, http::StatusCode, routing::get};
use fleet::{Scrape, Signal, Span, TargetId, Timestamp};
use ingest::discovery::{Discovery, ListSource};
use ingest::query::{Access, Backfill, Follow, Prometheus};
use ingest::{Catalogue, Reader, exposition, prometheus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};
use wire::{Auth, Client, Options};

/// Spacing at which Prometheus scrapes.
const INTERVAL: Span = Span(1);
/// Looks of Prometheus before the first query.
const LOOKS: u32 = 6;
/// Nothing is waited for longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A serving engine whose counters grow with every look at it.
#[derive(Clone)]
struct Exporter {
    looks: Arc<AtomicU32>,
    tokens_a_look: u32,
    /// Looks after which its counters begin anew.
    restarts_after: u32,
    /// Looks after which it does not answer any more.
    silent_after: u32,
}

impl Exporter {
    fn new(tokens_a_look: u32) -> Self {
        Self { looks: Arc::default(), tokens_a_look, restarts_after: u32::MAX, silent_after: u32::MAX }
    }

    /// Its page lies about whose it is: that is not the page's to say.
    fn page(&self) -> Result<String, StatusCode> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if looks >= self.silent_after {
            return Err(StatusCode::SERVICE_UNAVAILABLE);
        }
        let since_start = if looks >= self.restarts_after { looks - self.restarts_after } else { looks + 100 };
        let tokens = since_start * self.tokens_a_look;
        Ok(format!(
            "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{{engine=\"0\",instance=\"liar\",model_name=\"m\"}} {}\n\
             # TYPE vllm:prompt_tokens_total counter\nvllm:prompt_tokens_total{{engine=\"0\",instance=\"liar\",model_name=\"m\"}} {tokens}\n\
             # TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{{engine=\"0\",instance=\"liar\",model_name=\"m\"}} NaN\n",
            since_start % 7
        ))
    }

    async fn serve(self) -> String {
        let routes = Router::new().route("/metrics", get(|State(exporter): State<Self>| async move { exporter.page() })).with_state(self);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, routes).await });
        place
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_secs()).unwrap())
}

/// Asks until the answer is there.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn reader(target: &str, instance: &str) -> Reader {
    Reader { select: BTreeMap::from([("instance".to_owned(), instance.to_owned())]), ..Reader::of(TargetId::new(target).unwrap()) }
}

fn names() -> Vec<String> {
    Catalogue::builtin().metric_names().iter().cloned().collect()
}

#[tokio::test]
async fn a_real_prometheus_is_read_back_and_followed() {
    let folder = tempfile::tempdir().unwrap();
    let steady = Exporter::new(40).serve().await;
    let restarted = Exporter { restarts_after: 3, ..Exporter::new(40) }.serve().await;
    let lost = Exporter { silent_after: 4, ..Exporter::new(40) }.serve().await;
    let list = folder.path().join("targets.json");
    std::fs::write(&list, format!(r#"[{{"targets":["{steady}","{restarted}","{lost}"],"labels":{{"cluster":"test"}}}}]"#)).unwrap();
    let configuration = format!(
        "global: {{scrape_interval: {INTERVAL}, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: vllm\n  file_sd_configs:\n  - files: ['{}']\n",
        list.display()
    );
    let start = now();
    let Some(running) = server::Server::start(folder.path(), &configuration) else { return };
    let client = Client::new(&Options::default()).unwrap();
    let api = Prometheus::new(client.clone(), Access { url: running.url.clone(), auth: Auth::None, tenant: None });
    let readers = vec![reader("steady", &steady), reader("restarted", &restarted), reader("lost", &lost)];

    what_is_there_is_found(&api, &client, &list).await;
    let looks = format!("min(count_over_time(up[1m])) >= {LOOKS}");
    until("six looks of Prometheus", || async { api.instant(&looks, now()).await.ok().filter(|answer| !answer.series.is_empty()) }).await;
    let end = now();
    let past = read_back(&api, &readers, (start, end)).await;
    let live = follow(&api, &readers, &past, end).await;
    rates_agree(&api, &past, &live).await;
    ours_is_the_same_page(&client, &steady).await;
}

/// Both read the same list of targets, and what Prometheus says it scrapes is that list.
async fn what_is_there_is_found(api: &Prometheus, client: &Client, list: &std::path::Path) {
    let mut discovery = Discovery::new(ListSource::Files(vec![list.to_owned()]));
    let change = discovery.refresh(client).await;
    assert!(change.problems.is_empty() && change.appeared.len() == 3, "{change:?}");
    let ours: Vec<String> = discovery.targets().into_iter().map(|found| found.url()).collect();
    let targets = until("Prometheus to find its targets", || async { api.targets().await.ok().filter(|targets| targets.len() == 3) }).await;
    assert!(targets.iter().all(|target| ours.contains(&target.scrape_url) && target.labels["cluster"] == "test"), "{targets:?}");
    assert!(api.build_info().await.unwrap().unwrap().version.starts_with(char::is_numeric));
    until("its first look", || async {
        let names = api.label_values("__name__", &[]).await.ok()?;
        names.iter().any(|name| name == "vllm:prompt_tokens_total").then_some(())
    })
    .await;
    let series = api.series(&["{cluster=\"test\"}".into()], Timestamp(now().0 - 60), Timestamp(now().0 + 1)).await.unwrap();
    assert!(series.iter().any(|labels| labels.get("exported_instance").is_some_and(|liar| liar == "liar")));
}

/// The past, in chunks of three steps, twice: the same both times.
async fn read_back(api: &Prometheus, readers: &[Reader], (start, end): (Timestamp, Timestamp)) -> Vec<Scrape> {
    let mut again = Vec::new();
    for _ in 0..2 {
        let mut backfill = Backfill::new(readers.to_vec(), names(), BTreeMap::new(), (start, Timestamp(end.0 - 1)), Span(2)).chunked(3);
        let mut scrapes = Vec::new();
        while let Some(chunk) = backfill.next(api, Catalogue::builtin()).await.unwrap() {
            assert!(chunk.to.0 - chunk.from.0 <= 4 && !chunk.partial, "{chunk:?}");
            scrapes.extend(chunk.scrapes);
        }
        again.push(scrapes);
    }
    let second = again.pop().unwrap();
    let first = again.pop().unwrap();
    assert_eq!(first, second);
    for name in ["steady", "restarted", "lost"] {
        let seen = first.iter().filter(|scrape| scrape.target.as_str() == name && scrape.is_ok()).count();
        assert!(seen >= 2, "{name} was seen {seen} times in the past");
    }
    first
}

/// Live: every look of Prometheus once, the lost one as failed.
async fn follow(api: &Prometheus, readers: &[Reader], past: &[Scrape], end: Timestamp) -> Vec<Scrape> {
    let seen: BTreeMap<TargetId, Timestamp> = readers.iter().map(|reader| (reader.target.clone(), end)).collect();
    assert!(past.iter().all(|scrape| scrape.at <= end));
    let mut follow = Follow::new(readers.to_vec(), names(), BTreeMap::from([("cluster".into(), "test".into())]), INTERVAL).after(seen);
    let mut live: Vec<Scrape> = Vec::new();
    let start = Instant::now();
    while live.iter().filter(|scrape| scrape.target.as_str() == "steady").count() < 3 {
        let polled = follow.poll(api, Catalogue::builtin(), now()).await;
        assert!(polled.warnings.is_empty() && !polled.partial, "{polled:?}");
        live.extend(polled.scrapes);
        assert!(start.elapsed() < PATIENCE, "{live:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let of = |name: &str| live.iter().filter(|scrape| scrape.target.as_str() == name).cloned().collect::<Vec<_>>();
    for name in ["steady", "restarted"] {
        let scrapes = of(name);
        assert!(scrapes.iter().all(Scrape::is_ok) && scrapes.windows(2).all(|pair| pair[0].at < pair[1].at), "{scrapes:?}");
        // Every look adds 40 tokens, so none was missed and none came twice.
        let tokens: Vec<f64> = scrapes.iter().filter_map(|scrape| scrape.scalar(Signal::PromptTokens)).collect();
        assert!(tokens.len() == scrapes.len() && tokens.windows(2).all(|pair| (pair[1] - pair[0] - 40.0).abs() < 1e-9), "{name}: {tokens:?}");
    }
    let lost = of("lost");
    assert!(!lost.is_empty() && lost.iter().all(|scrape| !scrape.is_ok() && scrape.samples.is_empty()), "{lost:?}");
    live
}

/// The samples we read give, by Prometheus's own rule, the rate that Prometheus gives; and what we saw of the counter is what it stored.
async fn rates_agree(api: &Prometheus, past: &[Scrape], live: &[Scrape]) {
    let at = live.iter().map(|scrape| scrape.at).max().unwrap();
    let raw = api.instant("vllm:prompt_tokens_total[10s]", at).await.unwrap();
    let theirs = api.instant("rate(vllm:prompt_tokens_total[10s])", at).await.unwrap();
    assert!(theirs.series.len() >= 2);
    for series in &theirs.series {
        let instance = &series.labels["instance"];
        let samples = &raw.series.iter().find(|raw| raw.labels["instance"] == *instance).unwrap().points;
        let ours = extrapolation::increase(samples, at.0 * 1000, 10_000).unwrap() / 10.0;
        let rate = series.points[0].1;
        assert!((ours - rate).abs() <= 1e-6 * rate.abs().max(1.0), "{instance}: {ours} is not {rate}");
    }
    // The scrapes of both ways lie on the stored samples, but for the fraction of a second.
    let stored: Vec<(i64, f64)> =
        api.instant("vllm:prompt_tokens_total[2m]", Timestamp(at.0 + 1)).await.unwrap().series.into_iter().flat_map(|series| series.points).collect();
    for scrape in past.iter().chain(live).filter(|scrape| scrape.is_ok() && scrape.at <= at) {
        let tokens = scrape.scalar(Signal::PromptTokens).unwrap();
        let near = stored.iter().any(|(ms, value)| (value - tokens).abs() < 1e-9 && (scrape.at.0 - 2..=scrape.at.0).contains(&ms.div_euclid(1000)));
        assert!(near, "{scrape:?} is not among {stored:?}");
    }
}

/// The same page, scraped by ourselves, reads the same: its own `instance` names nobody.
async fn ours_is_the_same_page(client: &Client, place: &str) {
    let endpoint = prometheus::Endpoint {
        url: format!("http://{place}/metrics"),
        auth: Auth::None,
        client: client.clone(),
        limits: exposition::Limits::default(),
        readers: vec![Reader::of(TargetId::new("steady").unwrap())],
    };
    let scrape = prometheus::look(Catalogue::builtin(), &endpoint, now()).await.scrapes.remove(0);
    assert!(scrape.is_ok() && scrape.scalar(Signal::PromptTokens).unwrap() >= 4_000.0, "{scrape:?}");
    assert!(scrape.skipped.iter().any(|skipped| skipped.metric == "vllm:kv_cache_usage_perc"));
}
