//! What goes over the wire to the server, and what comes back.
//!
//! Points and questions go through the house's own client: it bounds bodies while they come in, honours time-outs, tells `Retry-After`, and
//! speaks TLS without the old line of rustls that `influxdb2` is bound to. `influxdb2` 0.5.2 gives the types of questions and everything that
//! sets the server up (health, organisations, buckets, tasks), over plain HTTP; see [`Link::admin`].

use super::flux::{self, Row};
use super::settings::{Bucket, InfluxSettings};
use crate::StoreError;
use flate2::{Compression, write::GzEncoder};
use std::{
    future::Future,
    io::Write,
    sync::{Mutex, PoisonError},
};
use wire::{Auth, Client, Limits, Method, Response, Secret, WireError};

/// Redirects followed.
const REDIRECTS_MAX: usize = 3;

/// Largest answer to a write that is read: a message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// An address without user and password: the token says who asks, and there is room for one header of that kind.
fn without_user(url: &str) -> String {
    match url.split_once("://").and_then(|(scheme, rest)| Some((scheme, rest.rsplit_once('@')?.1))) {
        Some((scheme, place)) => format!("{scheme}://{place}"),
        None => url.to_owned(),
    }
}

/// A server, and how to speak to it.
pub(crate) struct Link {
    pub settings: InfluxSettings,
    base: String,
    location: String,
    writer: Client,
    reader: Client,
    token: Mutex<Secret>,
}

impl Link {
    /// # Errors
    /// When the settings will not do, or there is no token.
    pub(crate) fn new(settings: InfluxSettings) -> Result<Self, StoreError> {
        settings.validate()?;
        let location = settings.location();
        let failed = |object: &str, detail| StoreError::Server { location: location.clone(), operation: "use", object: object.into(), detail };
        let token = settings.token.read().map_err(|why| failed("its token", why))?;
        let limits = settings.limits;
        let of = |timeout, body_bytes_max| Limits { timeout, read_timeout: timeout, body_bytes_max, redirects_max: REDIRECTS_MAX };
        let options = wire::Options {
            connect_timeout: limits.connect_timeout,
            limits: of(limits.write_timeout, MESSAGE_BYTES_MAX),
            tls: settings.tls.clone(),
            ..wire::Options::default()
        };
        let writer = Client::new(&options).map_err(|error| failed("its connection", error.to_string()))?;
        let reader = writer.limited(of(limits.query_timeout, limits.answer_bytes_max));
        let base = without_user(settings.url.trim_end_matches('/'));
        Ok(Self { base, location, writer, reader, token: Mutex::new(token), settings })
    }

    fn token(&self) -> Secret {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the token again from where it comes from; keeps the old one, and says why, when that fails.
    pub(crate) fn reread_token(&self) -> Result<(), String> {
        let token = self.settings.token.read()?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        Ok(())
    }

    fn url(&self, path: &str, pairs: &[(&str, &str)]) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("org", &self.settings.org).extend_pairs(pairs).finish();
        format!("{}/api/v2/{path}?{query}", self.base)
    }

    /// Sends lines to a bucket, once.
    pub(crate) async fn write(&self, bucket: Bucket, lines: &str) -> Result<Response, WireError> {
        let url = self.url("write", &[("bucket", &self.settings.bucket(bucket)), ("precision", "ns")]);
        let mut packer = GzEncoder::new(Vec::with_capacity(lines.len() / 4), Compression::fast());
        // Writing to memory cannot fail.
        let packed = packer.write_all(lines.as_bytes()).and_then(|()| packer.finish()).unwrap_or_default();
        let headers = [("content-type", "text/plain; charset=utf-8"), ("content-encoding", "gzip")];
        self.writer.send(Method::POST, &url, &Auth::Token(self.token()), &headers, packed).await
    }

    /// The rows that answer a question. `object` names what is asked for.
    pub(crate) async fn rows(&self, object: &str, flux: String) -> Result<Vec<Row>, StoreError> {
        let question = influxdb2::models::Query::new(flux);
        let body = serde_json::to_vec(&question).map_err(|error| self.failed("ask for", object, error.to_string()))?;
        let answer = self.ask(Method::POST, "query", &[], ("content-type", "application/json"), &body, object).await?;
        let table = answer.media_type().is_some_and(|kind| matches!(kind.as_str(), "text/csv" | "application/csv"));
        if !table {
            let kind = answer.content_type.unwrap_or_else(|| "no content type".into());
            return Err(self.failed("read", object, format!("the answer is no Flux table but {kind}: is this address an InfluxDB 2 server?")));
        }
        flux::rows(&answer.body).map_err(|why| self.failed("read", object, why))
    }

    /// Removes the points of a measurement from `from` to `to`, both included, nanoseconds since 1970.
    pub(crate) async fn delete(&self, bucket: Bucket, from: i64, to: i64, measurement: &str) -> Result<(), StoreError> {
        let stamp = |at: i64| jiff::Timestamp::from_nanosecond(at.into()).map(|at| at.to_string()).unwrap_or_default();
        let body = serde_json::json!({ "start": stamp(from), "stop": stamp(to), "predicate": format!("_measurement={measurement:?}") });
        let bucket = self.settings.bucket(bucket);
        let object = format!("{measurement} of bucket {bucket}");
        self.ask(Method::POST, "delete", &[("bucket", &bucket)], ("content-type", "application/json"), body.to_string().as_bytes(), &object).await.map(drop)
    }

    /// One exchange that must succeed; with the token read again where it was refused.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        pairs: &[(&str, &str)],
        header: (&str, &str),
        body: &[u8],
        object: &str,
    ) -> Result<Response, StoreError> {
        let url = self.url(path, pairs);
        let headers = [header, ("accept", "application/csv, application/json")];
        let once = async || self.reader.send(method.clone(), &url, &Auth::Token(self.token()), &headers, body.to_vec()).await;
        let mut answer = once().await;
        if matches!(&answer, Ok(answer) if answer.status == 401) && self.reread_token().is_ok() {
            answer = once().await;
        }
        match answer {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(answer),
            Ok(answer) => {
                let words = flux::short(&String::from_utf8_lossy(&answer.body));
                let detail = format!("HTTP {}: {words}", answer.status);
                let away = matches!(answer.status, 401 | 403 | 408 | 429 | 500..=599);
                Err(if away { self.away(detail) } else { self.failed("ask for", object, detail) })
            }
            Err(error @ (WireError::TooLarge { .. } | WireError::Setup { .. } | WireError::Address { .. })) => {
                Err(self.failed("ask for", object, error.to_string()))
            }
            Err(error) => Err(self.away(error.to_string())),
        }
    }

    pub(crate) fn failed(&self, operation: &'static str, object: &str, detail: String) -> StoreError {
        StoreError::Server { location: self.location.clone(), operation, object: object.to_owned(), detail }
    }

    /// How many points wait is entered by who knows.
    pub(crate) fn away(&self, reason: String) -> StoreError {
        StoreError::Away { location: self.location.clone(), reason, waiting: 0 }
    }

    pub(crate) fn location(&self) -> &str {
        &self.location
    }

    /// A call of `influxdb2`, in a task of its own: a panic in it becomes an error. The library's TLS is not built in (its line of rustls has
    /// open advisories), so that setting up a server needs its plain address; everything else works over `https://`.
    pub(crate) async fn admin<T, F>(&self, object: &str, call: impl FnOnce(influxdb2::Client) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, influxdb2::RequestError>> + Send + 'static,
    {
        if !self.base.starts_with("http://") {
            let detail = "setting up needs an http:// address of the server, such as a loopback or tunnelled one; reading and writing do not".to_owned();
            return Err(self.failed("ask for", object, detail));
        }
        let limits = self.settings.limits;
        let builder = reqwest_011::ClientBuilder::new().connect_timeout(limits.connect_timeout).timeout(limits.write_timeout);
        let (base, org, token) = (self.base.clone(), self.settings.org.clone(), self.token());
        // The builder panics on an address it cannot read.
        let built =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| influxdb2::ClientBuilder::with_builder(builder, base, org, token.expose()).build()));
        let client = match built {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(self.failed("ask for", object, error.to_string())),
            Err(_) => return Err(self.failed("ask for", object, "the address cannot be read".into())),
        };
        match tokio::spawn(call(client)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(influxdb2::RequestError::Http { status, text })) => {
                let detail = format!("HTTP {}: {}", status.as_u16(), flux::short(&text));
                Err(if matches!(status.as_u16(), 401 | 403 | 429 | 500..=599) { self.away(detail) } else { self.failed("ask for", object, detail) })
            }
            // Its text may hold the address, and with it a password.
            Ok(Err(influxdb2::RequestError::ReqwestProcessing { source })) => Err(self.away(source.without_url().to_string())),
            Ok(Err(error)) => Err(self.failed("read", object, flux::short(&error.to_string()))),
            Err(_) => Err(self.failed("read", object, "the answer makes no sense".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_token_alone_says_who_asks() {
        assert_eq!(super::without_user("http://ann:pa/55@h:8086/influx"), "http://h:8086/influx");
        assert_eq!(super::without_user("http://h:8086"), "http://h:8086");
    }
}
