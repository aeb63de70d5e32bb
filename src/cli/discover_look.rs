//! Looking for what runs: through a Prometheus, or at pages themselves.

use crate::Failure;
use crate::discover::{Instance, Labels};
use fleet::{EngineRole, Scrape, Span, TargetId, Timestamp};
use ingest::exposition::{Limits, Page};
use ingest::prometheus::{Endpoint, look};
use ingest::query::{Access, AnswerLimits, Prometheus, Series, selector};
use ingest::{Catalogue, IngestError, ReadAs, Reader};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinSet;
use wire::{Auth, Client, Secret, Tls};

/// Names asked for at once: a question that fits into what every server takes.
const NAMES_AT_ONCE: usize = 150;
/// Longest wait for an answer that may hold a whole fleet.
const TIMEOUT: Duration = Duration::from_mins(1);
/// Largest such answer: some hundred thousand series.
const ANSWER_BYTES_MAX: usize = 512 << 20;
/// Pages looked at side by side.
const PAGES_AT_ONCE: usize = 32;
/// Most pages of one look.
const PAGES_MAX: usize = 10_000;

/// Who asks.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Asking {
    /// File that holds a bearer token for what is asked
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Certificates (PEM) trusted beside those of the system
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Tenant, for servers of several (X-Scope-OrgID)
    #[arg(long, value_name = "ID")]
    pub tenant: Option<String>,
    /// The token itself, where it was read already
    #[arg(skip)]
    pub token: Option<Secret>,
}

impl Asking {
    fn auth(&self) -> Result<Auth, Failure> {
        if let Some(token) = &self.token {
            return Ok(Auth::Bearer(token.clone()));
        }
        let Some(file) = &self.token_file else { return Ok(Auth::None) };
        let token = std::fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
        Ok(Auth::Bearer(Secret::new(token.trim())))
    }

    fn client(&self) -> Result<Client, Failure> {
        let tls = Tls::from_files(self.ca_file.as_deref(), None, None)?;
        Ok(Client::new(&wire::Options { tls, ..wire::Options::default() })?)
    }
}

/// What a Prometheus says of itself, and the instances it knows.
#[derive(Debug)]
pub(crate) struct Known {
    pub instances: Vec<Instance>,
    /// What it is.
    pub server: String,
    /// Time of its newest sample less ours, seconds: above zero its clock is ahead, far below it nothing is scraped any more.
    pub newest_s: Option<f64>,
    pub warnings: Vec<String>,
}

/// Looks through a Prometheus.
pub(crate) fn through_prometheus(url: &str, asking: &Asking, now: Timestamp) -> Result<Known, Failure> {
    let limits = wire::Limits { timeout: TIMEOUT, read_timeout: TIMEOUT, body_bytes_max: ANSWER_BYTES_MAX, ..wire::Limits::default() };
    let access = Access { url: url.to_owned(), auth: asking.auth()?, tenant: asking.tenant.clone() };
    let server = Prometheus::new(asking.client()?.limited(limits), access).with_limits(AnswerLimits { series_max: 2_000_000, ..AnswerLimits::default() });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let said = server.build_info().await.map_err(|error| unreachable(url, &error))?;
        let server_is = said.map_or_else(|| "a Prometheus API".to_owned(), |b| format!("{} {}", b.application.as_deref().unwrap_or("Prometheus"), b.version));
        let (series, warnings) = everything(&server, now).await.map_err(|error| unreachable(url, &error))?;
        let newest_s = newest(&server, now).await;
        Ok(Known { instances: instances(&series, Catalogue::builtin(), now), server: server_is.trim().to_owned(), newest_s, warnings })
    })
}

fn unreachable(url: &str, error: &IngestError) -> Failure {
    Failure::with_help(
        format!("{} cannot be asked: {error}", wire::Redacted::new(url)),
        "give the address up to where /api/v1 begins, such as http://prometheus:9090; --token-file, --ca-file and --tenant say who asks",
    )
}

/// Every series of the catalogue as it is now, but for buckets: their sums and counts tell as much here.
async fn everything(server: &Prometheus, now: Timestamp) -> Result<(Vec<Series>, Vec<String>), IngestError> {
    let names: Vec<&str> = Catalogue::builtin().metric_names().iter().map(String::as_str).filter(|name| !name.ends_with("_bucket")).chain(["up"]).collect();
    let (mut series, mut warnings) = (Vec::new(), Vec::new());
    for some in names.chunks(NAMES_AT_ONCE) {
        let answer = server.instant(&selector(some.iter().copied(), &BTreeMap::new()), now).await?;
        series.extend(answer.series);
        warnings.extend(answer.warnings);
    }
    warnings.sort();
    warnings.dedup();
    Ok((series, warnings))
}

/// Time of the server's newest sample less ours. Looked for up to an hour ahead: the samples of a server whose clock is fast lie in our future.
async fn newest(server: &Prometheus, now: Timestamp) -> Option<f64> {
    let answer = server.instant("max(max_over_time(timestamp(up)[2h:1m]))", now + Span::HOUR).await.ok()?;
    let (_, newest) = answer.series.first()?.points.last()?;
    #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch lie far below 2^53")]
    let ahead = newest - now.0 as f64;
    Some(ahead)
}

/// What engines are to us, by name.
fn roles(catalogue: &Catalogue) -> BTreeMap<String, EngineRole> {
    catalogue.describe().into_iter().map(|row| (row.engine, row.role)).collect()
}

/// Series as pages: those of one scraped instance together. An instance that Prometheus cannot scrape is a failed page where its job is one of those
/// that are recognised.
pub(crate) fn instances(series: &[Series], catalogue: &Catalogue, at: Timestamp) -> Vec<Instance> {
    let of = |one: &Series, label: &str| one.labels.get(label).cloned().unwrap_or_default();
    let mut groups: BTreeMap<(String, String), Vec<&Series>> = BTreeMap::new();
    for one in series {
        groups.entry((of(one, "job"), of(one, "instance"))).or_default().push(one);
    }
    let roles = roles(catalogue);
    let mut read: Vec<Instance> = Vec::new();
    let mut down = Vec::new();
    for (identity, group) in groups {
        let is_up = |one: &&&Series| one.name() == "up";
        if group.iter().any(|one| is_up(&one) && one.points.last().is_some_and(|(_, value)| *value == 0.0)) {
            down.push((identity, common(&group)));
            continue;
        }
        let group: Vec<&Series> = group.iter().filter(|one| !is_up(one)).copied().collect();
        read.extend(instance(&identity, &group, catalogue, &roles, at));
    }
    let jobs: BTreeMap<String, EngineRole> = read.iter().filter_map(|i| Some((i.labels.get("job")?.clone(), i.role))).collect();
    for ((job, instance), labels) in down {
        if let (Some(role), Ok(target)) = (jobs.get(&job), TargetId::new(format!("{job}/{instance}"))) {
            let scrape = Scrape::failed(target, at, "Prometheus could not scrape it (up is 0)");
            read.push(Instance { labels, scrape, role: *role, url: None, model_label: None });
        }
    }
    read
}

fn instance(
    (job, address): &(String, String),
    group: &[&Series],
    catalogue: &Catalogue,
    roles: &BTreeMap<String, EngineRole>,
    at: Timestamp,
) -> Option<Instance> {
    let limits = Limits::default();
    let mut page = Page::default();
    for one in group {
        let labels = one.labels.iter().filter(|(label, _)| *label != "__name__").map(|(label, value)| (label.as_str(), Cow::Borrowed(value.as_str())));
        match one.points.last() {
            Some((_, value)) => page.push(one.name(), labels, *value, &limits),
            None => page.skip(one.name(), "its value is no finite number", &limits),
        }
    }
    // A page of nothing that is known is none of ours.
    let server = catalogue.recognise(&page).into_iter().next()?;
    let target = TargetId::new(format!("{job}/{address}")).ok()?;
    let (select, names) = (BTreeMap::new(), BTreeMap::new());
    let scrape = catalogue.read(&ReadAs { target: &target, engine: None, select: &select, names: &names }, at, &page);
    let models: BTreeSet<&String> = server.models.iter().collect();
    let model_label = group.iter().find_map(|one| one.labels.iter().find(|(_, value)| models.contains(value)).map(|(label, _)| label.clone()));
    Some(Instance { labels: common(group), scrape, role: roles.get(&server.engine).copied().unwrap_or_default(), url: None, model_label })
}

/// Labels that all series of an instance have, with the same value.
fn common(group: &[&Series]) -> Labels {
    let Some((first, rest)) = group.split_first() else { return Labels::new() };
    let shared = first.labels.iter().filter(|(label, value)| *label != "__name__" && rest.iter().all(|one| one.labels.get(*label) == Some(value)));
    shared.map(|(label, value)| (label.clone(), value.clone())).collect()
}

/// Looks at pages themselves.
pub(crate) fn at_pages(urls: &[String], asking: &Asking, now: Timestamp) -> Result<Vec<Instance>, Failure> {
    if urls.len() > PAGES_MAX {
        return Err(Failure::new(format!("{} pages are more than {PAGES_MAX}", urls.len())));
    }
    let (auth, client) = (asking.auth()?, asking.client()?);
    // A page named twice is one page.
    let urls: BTreeSet<&String> = urls.iter().collect();
    let endpoints = urls.into_iter().map(|url| endpoint(url, &auth, &client)).collect::<Result<Vec<_>, Failure>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut looks: Vec<(usize, Scrape)> = runtime.block_on(async {
        let mut done = Vec::new();
        let mut running = JoinSet::new();
        for (at, endpoint) in endpoints.iter().cloned().enumerate() {
            if running.len() == PAGES_AT_ONCE {
                done.extend(running.join_next().await.and_then(Result::ok));
            }
            running.spawn(async move { (at, look(Catalogue::builtin(), &endpoint, now).await.scrapes) });
        }
        done.extend(running.join_all().await);
        done.into_iter().flat_map(|(at, scrapes)| scrapes.into_iter().map(move |scrape| (at, scrape))).collect()
    });
    looks.sort_by_key(|(at, _)| *at);
    let roles = roles(Catalogue::builtin());
    Ok(looks.into_iter().map(|(at, scrape)| of_page(&endpoints[at].url, scrape, &roles)).collect())
}

fn of_page(url: &str, scrape: Scrape, roles: &BTreeMap<String, EngineRole>) -> Instance {
    let role = scrape.server.as_ref().and_then(|server| roles.get(&server.engine).copied()).unwrap_or_default();
    let host = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let labels = Labels::from([("instance".to_owned(), host.to_owned())]);
    Instance { labels, scrape, role, url: Some(url.to_owned()), model_label: None }
}

/// The page at an address; `/metrics` is added where there is no path.
fn endpoint(url: &str, auth: &Auth, client: &Client) -> Result<Endpoint, Failure> {
    let shown = wire::Redacted::new(url);
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, rest)| matches!(*scheme, "http" | "https") && !rest.contains('@')) else {
        return Err(Failure::with_help(format!("{shown} is not the address of a page"), "write it as http://host:8000/metrics, without user and password"));
    };
    let full = if rest.trim_end_matches('/').contains('/') { url.to_owned() } else { format!("{scheme}://{}/metrics", rest.trim_end_matches('/')) };
    let target = TargetId::new(rest.trim_end_matches('/'))?;
    Ok(Endpoint { url: full, auth: auth.clone(), client: client.clone(), limits: Limits::default(), readers: vec![Reader::of(target)] })
}
