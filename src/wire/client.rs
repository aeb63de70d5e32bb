//! The client itself.

use crate::error::innermost;
use crate::redirect::{Hop, next_hop};
use crate::{Auth, Redacted, Tls, WireError};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, RETRY_AFTER};
use std::time::Duration;
use tokio::time::timeout;

pub use reqwest::Method;

/// What one exchange may cost at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time from request to the last byte of the answer, redirects included.
    pub timeout: Duration,
    /// Longest silence: before the answer begins, and between two pieces of it.
    pub read_timeout: Duration,
    /// Largest body that is read, in bytes after decompression.
    pub body_bytes_max: usize,
    /// Redirects followed.
    pub redirects_max: usize,
}

impl Default for Limits {
    /// 10 s in all (a proxy under load was seen to take 3 to 7 s for its metrics), 16 MiB (a large node's page was seen at 0.8 MB), three
    /// redirects.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10), read_timeout: Duration::from_secs(10), body_bytes_max: 16 << 20, redirects_max: 3 }
    }
}

/// Limits and trust of a client. Every limit has a name and a value.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest time to a connection, TLS included.
    pub connect_timeout: Duration,
    /// Limits of every exchange, unless [`Client::limited`] says otherwise.
    pub limits: Limits,
    /// Whom it trusts and who it is.
    pub tls: Tls,
    /// Idle connections kept to one host.
    pub idle_per_host_max: usize,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
}

impl Default for Options {
    /// 3 s to connect. An endpoint is asked by one caller at a time, so one idle connection and a spare are kept to each, and for longer than
    /// the usual minute between two looks: a thousand endpoints cost a thousand open sockets and no handshakes.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            limits: Limits::default(),
            tls: Tls::default(),
            idle_per_host_max: 2,
            idle_timeout: Duration::from_secs(90),
        }
    }
}

/// An answer, whatever its status, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Content type, where one was given.
    pub content_type: Option<String>,
    /// How long the server asks to be left alone: seconds as said, or its date less its own clock.
    pub retry_after: Option<Duration>,
    /// Redirects that were followed to get here.
    pub redirects: usize,
    /// Whether it came over HTTP/2.
    pub http2: bool,
    /// The body, decompressed.
    pub body: Vec<u8>,
    /// Whose answer it is: the address asked, or the one redirects led to.
    pub url: Redacted,
}

impl Response {
    /// The answer, if its status is 2xx.
    ///
    /// # Errors
    /// [`WireError::Status`] for any other status.
    pub fn success(self) -> Result<Self, WireError> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(WireError::Status { url: self.url, status: self.status, retry_after: self.retry_after }) }
    }

    /// Content type without its parameters, in lower case.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        self.content_type.as_deref().map(|full| full.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }
}

/// The house's HTTP client: HTTP/1.1, and HTTP/2 where a TLS server offers it. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: reqwest::Client,
    limits: Limits,
}

impl Client {
    /// A client with these limits. TLS is rustls with `ring`; trusted are the system's certificates and the extra ones. A machine without any
    /// system certificate gets a client that trusts the extra ones only: plain HTTP works, unknown TLS peers are refused.
    ///
    /// # Errors
    /// When the extra certificates or the client's own hold none in PEM, or TLS cannot be set up.
    pub fn new(options: &Options) -> Result<Self, WireError> {
        install_crypto();
        let roots = options.tls.roots()?;
        let identity = options.tls.identity()?;
        let builder = || {
            let builder = reqwest::Client::builder()
                .user_agent(concat!("turnaround/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(options.connect_timeout)
                .pool_max_idle_per_host(options.idle_per_host_max)
                .pool_idle_timeout(options.idle_timeout)
                // Followed by hand: counted, and without credentials for another host.
                .redirect(reqwest::redirect::Policy::none());
            match &identity {
                Some(identity) => builder.identity(identity.clone()),
                None => builder,
            }
        };
        let with_system = builder().tls_certs_merge(roots.iter().cloned()).build();
        let inner = with_system.or_else(|error| {
            tracing::warn!(reason = innermost(&error), "no certificates of the system can be used; only configured ones are trusted");
            builder().tls_certs_only(roots).build()
        });
        let inner = inner.map_err(|error| WireError::Setup { reason: innermost(&error) })?;
        Ok(Self { inner, limits: options.limits })
    }

    /// The same client, connections included, with other limits.
    #[must_use]
    pub fn limited(&self, limits: Limits) -> Self {
        Self { inner: self.inner.clone(), limits }
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Fetches an address.
    ///
    /// # Errors
    /// When no answer was read to its end. A status that is no success is an answer: see [`Response::success`].
    pub async fn get(&self, url: &str, auth: &Auth, headers: &[(&str, &str)]) -> Result<Response, WireError> {
        self.send(Method::GET, url, auth, headers, Vec::new()).await
    }

    /// Sends any request. Redirects of a GET or HEAD are followed, and those that keep the method (307, 308) of any other; the rest are
    /// answers. To another origin no credentials go along, and from TLS no redirect leads to plain text.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn send(&self, method: Method, url: &str, auth: &Auth, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Response, WireError> {
        let limit = self.limits.timeout;
        match timeout(limit, self.follow(method, url, auth, headers, body)).await {
            Ok(answer) => answer,
            Err(_) => Err(WireError::Timeout { url: Redacted::new(url), timeout_ms: limit.as_millis() }),
        }
    }

    async fn follow(&self, method: Method, url: &str, auth: &Auth, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Response, WireError> {
        let mut hop = Hop::first(url)?;
        loop {
            let auth = if hop.credentials { auth } else { &Auth::None };
            let answer = self.ask(&method, &hop, auth, headers, body.clone()).await?;
            match next_hop(&method, &hop, answer.status(), answer.headers(), self.limits.redirects_max)? {
                Some(next) => {
                    tracing::debug!(from = %hop.shown(), to = %next.shown(), status = answer.status().as_u16(), "redirected");
                    hop = next;
                }
                None => return self.read(answer, &hop).await,
            }
        }
    }

    async fn ask(&self, method: &Method, hop: &Hop, auth: &Auth, headers: &[(&str, &str)], body: Vec<u8>) -> Result<reqwest::Response, WireError> {
        let request = self.inner.request(method.clone(), hop.url.clone());
        let mut request = match auth {
            Auth::None => request,
            Auth::Bearer(token) => request.header(AUTHORIZATION, credential("Bearer", token, hop)?),
            Auth::Token(token) => request.header(AUTHORIZATION, credential("Token", token, hop)?),
            Auth::Basic { user, password } => request.basic_auth(user, Some(password.expose())),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_empty() {
            request = request.body(body);
        }
        let answer = timeout(self.limits.read_timeout, request.send()).await.map_err(|_| self.silent(hop))?;
        answer.map_err(|error| WireError::sort(error, hop.shown(), self.limits.timeout))
    }

    /// Reads an answer piece by piece, and no further than the limit.
    async fn read(&self, mut answer: reqwest::Response, hop: &Hop) -> Result<Response, WireError> {
        let body_bytes_max = self.limits.body_bytes_max;
        let too_large = || WireError::TooLarge { url: hop.shown(), body_bytes_max };
        let announced = answer.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        if announced > body_bytes_max {
            return Err(too_large());
        }
        let mut body = Vec::with_capacity(announced);
        loop {
            let piece = timeout(self.limits.read_timeout, answer.chunk()).await.map_err(|_| self.silent(hop))?;
            let Some(piece) = piece.map_err(|error| WireError::sort(error, hop.shown(), self.limits.timeout))? else { break };
            if body.len() + piece.len() > body_bytes_max {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        let headers = answer.headers();
        Ok(Response {
            status: answer.status().as_u16(),
            content_type: text(headers, &CONTENT_TYPE).map(str::to_owned),
            retry_after: retry_after(text(headers, &RETRY_AFTER), text(headers, &DATE)),
            redirects: hop.redirects,
            http2: answer.version() == reqwest::Version::HTTP_2,
            body,
            url: hop.shown(),
        })
    }

    fn silent(&self, hop: &Hop) -> WireError {
        WireError::Timeout { url: hop.shown(), timeout_ms: self.limits.read_timeout.as_millis() }
    }
}

/// The HTTP library is built without a crypto provider and would panic when none is installed. Installing is idempotent: the provider that
/// came first stays.
fn install_crypto() {
    let _first_stays = rustls::crypto::ring::default_provider().install_default();
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// `Retry-After` is seconds or a date (RFC 9110, 10.2.3). A date is read against the server's own `Date`, so that no clock of ours enters.
fn retry_after(said: Option<&str>, date: Option<&str>) -> Option<Duration> {
    let said = said?.trim();
    if let Ok(seconds) = said.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    let until = httpdate::parse_http_date(said).ok()?;
    let sent = httpdate::parse_http_date(date?).ok()?;
    Some(until.duration_since(sent).unwrap_or(Duration::ZERO))
}

fn credential(scheme: &str, token: &crate::Secret, hop: &Hop) -> Result<reqwest::header::HeaderValue, WireError> {
    let refuse = |_| WireError::Exchange { url: hop.shown(), reason: "the token holds bytes that no header may hold".into() };
    let mut value = reqwest::header::HeaderValue::from_str(&format!("{scheme} {}", token.expose())).map_err(refuse)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_of_the_servers_clock() {
        let date = Some("Tue, 01 Dec 2026 10:00:00 GMT");
        for (said, date, wait) in [
            (Some("30"), None, Some(30)),
            (Some(" 0 "), None, Some(0)),
            (Some("Tue, 01 Dec 2026 10:01:30 GMT"), date, Some(90)),
            (Some("Tue, 01 Dec 2026 09:00:00 GMT"), date, Some(0)),
            (Some("Tue, 01 Dec 2026 10:01:30 GMT"), None, None),
            (Some("soon"), date, None),
            (Some("-1"), date, None),
            (None, date, None),
        ] {
            assert_eq!(retry_after(said, date), wait.map(Duration::from_secs), "{said:?}");
        }
    }
}
