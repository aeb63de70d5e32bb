//! The HTTP API of Prometheus and of what speaks it (`VictoriaMetrics`, Thanos, Mimir): queries, and what is there to be queried.
//!
//! [`Follow`] reads live: one query gives what all replicas showed since the last one, at the very instants Prometheus scraped them.
//! [`Backfill`] reads the past in chunks and can be resumed at any of them. Both end in the same [`Scrape`](fleet::Scrape)s as a page that
//! was scraped by ourselves. An answer that is empty, null, refused or a page of something else is "unknown": a failed scrape, never zero.

mod answer;
mod follow;
mod history;
mod pages;

pub use answer::{Answer, AnswerError, AnswerLimits, Labels, Series, parse_answer};
pub use follow::{Follow, Polled};
pub use history::{Backfill, Chunk};
pub use pages::{instance_labels, scrapes};

use crate::IngestError;
use answer::{Opened, open};
use fleet::{Span, Timestamp};
use serde::{Deserialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::{Auth, Client, Method, Redacted, WireError};

/// Points a series a server gives at most in one range query; Prometheus refuses more.
pub const RANGE_POINTS_MAX: i64 = 11_000;
/// Names or series that one look-up may give.
const FOUND_MAX: usize = 200_000;

/// Where a Prometheus API is and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Address of the server, with whatever stands before `/api/v1` there (`https://mimir/prometheus`).
    pub url: String,
    /// How we say who asks.
    pub auth: Auth,
    /// Whose data is meant, where a server holds several tenants' (`X-Scope-OrgID`).
    pub tenant: Option<String>,
}

/// A Prometheus API.
#[derive(Debug)]
pub struct Prometheus {
    client: Client,
    access: Access,
    limits: AnswerLimits,
    /// Set once the server said that it takes no POST.
    get_only: AtomicBool,
}

/// What a server says it is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BuildInfo {
    /// Its version.
    #[serde(default)]
    pub version: String,
    /// Its name, where it says one (Mimir does).
    #[serde(default)]
    pub application: Option<String>,
}

/// A target a Prometheus scrapes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveTarget {
    /// Labels its series have.
    #[serde(default)]
    pub labels: Labels,
    /// What service discovery knew of it.
    #[serde(default)]
    pub discovered_labels: Labels,
    /// Address of its page.
    #[serde(default)]
    pub scrape_url: String,
    /// `up`, `down` or `unknown`.
    #[serde(default)]
    pub health: String,
    /// How often it is scraped (`15s`).
    #[serde(default)]
    pub scrape_interval: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Targets {
    active_targets: Option<Vec<ActiveTarget>>,
}

impl Prometheus {
    /// Speaks to a server through this client; its limits on time and size hold for each query.
    #[must_use]
    pub fn new(client: Client, access: Access) -> Self {
        Self { client, access, limits: AnswerLimits::default(), get_only: AtomicBool::new(false) }
    }

    /// With other limits on what an answer may hold.
    #[must_use]
    pub fn with_limits(mut self, limits: AnswerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Its address, as it may be shown.
    #[must_use]
    pub fn shown(&self) -> Redacted {
        Redacted::new(&self.access.url)
    }

    /// Evaluates a query at one instant. With a range selector (`a[1m]`) the answer holds the samples as they were scraped.
    ///
    /// # Errors
    /// When the server cannot be reached, refuses, or answers with something else.
    pub async fn instant(&self, query: &str, at: Timestamp) -> Result<Answer, IngestError> {
        self.query("query", &[("query", query), ("time", &at.0.to_string())]).await
    }

    /// Evaluates a query at `from`, `from + step`, ... up to `to`. At most [`RANGE_POINTS_MAX`] steps; [`Backfill`] does more in chunks.
    ///
    /// # Errors
    /// As [`Prometheus::instant`]; servers refuse ranges with too many steps.
    pub async fn range(&self, query: &str, from: Timestamp, to: Timestamp, step: Span) -> Result<Answer, IngestError> {
        let (from, to, step) = (from.0.to_string(), to.0.to_string(), step.0.to_string());
        self.query("query_range", &[("query", query), ("start", &from), ("end", &to), ("step", &step)]).await
    }

    /// The series that match any of these selectors between two instants.
    ///
    /// # Errors
    /// As [`Prometheus::instant`].
    pub async fn series(&self, selectors: &[String], from: Timestamp, to: Timestamp) -> Result<Vec<Labels>, IngestError> {
        let (from, to) = (from.0.to_string(), to.0.to_string());
        let mut parameters: Vec<(&str, &str)> = vec![("start", &from), ("end", &to)];
        parameters.extend(selectors.iter().map(|selector| ("match[]", selector.as_str())));
        self.list("series", &parameters).await
    }

    /// The values of a label (`__name__`: the names of all metrics), over the series that match any of these selectors, or over all.
    ///
    /// # Errors
    /// As [`Prometheus::instant`].
    pub async fn label_values(&self, label: &str, selectors: &[String]) -> Result<Vec<String>, IngestError> {
        let parameters: Vec<(&str, &str)> = selectors.iter().map(|selector| ("match[]", selector.as_str())).collect();
        // A label's name can hold nothing that an address may not; this way none can leave its path.
        let label: String = label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let body = self.fetch(Method::GET, &format!("label/{label}/values"), &parameters).await?;
        self.opened(&body).and_then(|opened| self.bounded(opened))
    }

    /// The targets the server scrapes. Servers that only store (Thanos, Mimir) do not know: an error there.
    ///
    /// # Errors
    /// As [`Prometheus::instant`].
    pub async fn targets(&self) -> Result<Vec<ActiveTarget>, IngestError> {
        let body = self.fetch(Method::GET, "targets", &[("state", "active")]).await?;
        let opened: Opened<Targets> = self.opened(&body)?;
        Ok(opened.data.and_then(|data| data.active_targets).unwrap_or_default())
    }

    /// What the server is. Nothing where it does not say.
    ///
    /// # Errors
    /// When it cannot be reached or asks for credentials.
    pub async fn build_info(&self) -> Result<Option<BuildInfo>, IngestError> {
        match self.fetch(Method::GET, "status/buildinfo", &[]).await {
            Ok(body) => Ok(self.opened(&body)?.data),
            Err(IngestError::Wire(WireError::Status { status: 404 | 405 | 501, .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn query(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Answer, IngestError> {
        let body = self.post_or_get(what, parameters).await?;
        parse_answer(&body, &self.limits).map_err(|reason| self.unusable(reason))
    }

    async fn list<T: DeserializeOwned>(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Vec<T>, IngestError> {
        let body = self.post_or_get(what, parameters).await?;
        self.opened(&body).and_then(|opened| self.bounded(opened))
    }

    fn bounded<T>(&self, opened: Opened<Vec<T>>) -> Result<Vec<T>, IngestError> {
        match opened.data.unwrap_or_default() {
            many if many.len() > FOUND_MAX => Err(self.unusable(AnswerError::TooMany { what: format!("{FOUND_MAX} entries") })),
            found => Ok(found),
        }
    }

    fn opened<T: DeserializeOwned>(&self, body: &[u8]) -> Result<Opened<T>, IngestError> {
        open(body).map_err(|reason| self.unusable(reason))
    }

    fn unusable(&self, reason: AnswerError) -> IngestError {
        IngestError::Answer { url: self.shown(), reason }
    }

    /// Queries go by POST, since a selection of many names is longer than an address may be; a server or proxy that only takes GET is asked
    /// that way from then on.
    async fn post_or_get(&self, what: &str, parameters: &[(&str, &str)]) -> Result<Vec<u8>, IngestError> {
        if !self.get_only.load(Ordering::Relaxed) {
            match self.fetch(Method::POST, what, parameters).await {
                Err(IngestError::Wire(WireError::Status { status: 405 | 501, .. })) => self.get_only.store(true, Ordering::Relaxed),
                answer => return answer,
            }
        }
        self.fetch(Method::GET, what, parameters).await
    }

    async fn fetch(&self, method: Method, what: &str, parameters: &[(&str, &str)]) -> Result<Vec<u8>, IngestError> {
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(parameters).finish();
        let mut url = format!("{}/api/v1/{what}", self.access.url.trim_end_matches('/'));
        let mut headers = vec![("accept", "application/json")];
        if let Some(tenant) = &self.access.tenant {
            headers.push(("x-scope-orgid", tenant));
        }
        let body = if method == Method::POST {
            headers.push(("content-type", "application/x-www-form-urlencoded"));
            form.into_bytes()
        } else {
            if !form.is_empty() {
                url = format!("{url}?{form}");
            }
            Vec::new()
        };
        let answer = self.client.send(method, &url, &self.access.auth, &headers, body).await?;
        // Errors of a query (400, 422, 503) come with the server's own words; those of a proxy without.
        match answer.status {
            200..300 => Ok(answer.body),
            400 | 422 | 503 if answer.media_type().as_deref() == Some("application/json") => match open::<serde::de::IgnoredAny>(&answer.body) {
                Err(reason @ AnswerError::Refused { .. }) => Err(self.unusable(reason)),
                _ => Err(answer.success().err().map_or_else(|| self.unusable(AnswerError::NotUnderstood("no status".into())), IngestError::from)),
            },
            _ => answer.success().map(|answer| answer.body).map_err(IngestError::from),
        }
    }
}

/// A selector of series by name and by labels: `{__name__=~"a|b",job="x"}`.
#[must_use]
pub fn selector<'a>(names: impl IntoIterator<Item = &'a str>, select: &BTreeMap<String, String>) -> String {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let names: Vec<String> = names.into_iter().map(regex_literal).collect();
    let mut parts = vec![format!("__name__=~{}", quoted(&names.join("|")))];
    parts.extend(select.iter().map(|(label, value)| format!("{label}={}", quoted(value))));
    format!("{{{}}}", parts.join(","))
}

/// A selector narrowed by matchers as a user writes them, braces included.
#[must_use]
pub fn matching(selector: &str, matchers: Option<&str>) -> String {
    let inner = matchers.map(|m| m.trim().trim_start_matches('{').trim_end_matches('}').trim().trim_end_matches(',')).filter(|m| !m.is_empty());
    match (inner, selector.strip_suffix('}')) {
        (Some(inner), Some(open)) => format!("{open},{inner}}}"),
        _ => selector.to_owned(),
    }
}

/// A text as a string of `PromQL`.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A text as a regular expression that matches nothing else.
fn regex_literal(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !(c.is_alphanumeric() || c == '_' || c == ':') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests;
