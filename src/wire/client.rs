//! The client itself.

use crate::error::innermost;
use crate::{Auth, Redacted, WireError};
use std::time::Duration;

pub use reqwest::Method;

/// Limits and trust of a client. Every limit has a name and a value.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest time to a connection.
    pub connect_timeout: Duration,
    /// Longest time between two pieces of an answer.
    pub read_timeout: Duration,
    /// Longest time from request to the last byte of the answer.
    pub timeout: Duration,
    /// Largest body that is read, in bytes after decompression.
    pub body_bytes_max: usize,
    /// Redirects followed (credentials stay with the first host).
    pub redirects_max: usize,
    /// Certificates in PEM that are trusted beside those of the system: the authority of a private cluster.
    pub extra_roots_pem: Option<Vec<u8>>,
}

impl Default for Options {
    /// 3 s to connect, 10 s in all (a proxy under load was seen to take 3 to 7 s for its metrics), 16 MiB (a large node's page was
    /// seen at 0.8 MB), three redirects.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            read_timeout: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            body_bytes_max: 16 << 20,
            redirects_max: 3,
            extra_roots_pem: None,
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
    /// The body, decompressed.
    pub body: Vec<u8>,
    url: Redacted,
}

impl Response {
    /// The answer, if its status is 2xx.
    ///
    /// # Errors
    /// [`WireError::Status`] for any other status.
    pub fn success(self) -> Result<Self, WireError> {
        if (200..300).contains(&self.status) { Ok(self) } else { Err(WireError::Status { url: self.url, status: self.status }) }
    }
}

/// The house's HTTP client. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: reqwest::Client,
    timeout: Duration,
    body_bytes_max: usize,
}

impl Client {
    /// A client with these limits. TLS is rustls with `ring`; trusted are the system's certificates and `extra_roots_pem`. A machine
    /// without any system certificate gets a client that trusts `extra_roots_pem` only: plain HTTP works, unknown TLS peers are refused.
    ///
    /// # Errors
    /// When `extra_roots_pem` holds no certificate in PEM, or TLS cannot be set up.
    pub fn new(options: &Options) -> Result<Self, WireError> {
        install_crypto();
        let roots = match &options.extra_roots_pem {
            Some(pem) => read_roots(pem)?,
            None => Vec::new(),
        };
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("turnaround/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(options.connect_timeout)
                .read_timeout(options.read_timeout)
                .timeout(options.timeout)
                .redirect(reqwest::redirect::Policy::limited(options.redirects_max))
        };
        let with_system = roots.iter().cloned().fold(builder(), reqwest::ClientBuilder::add_root_certificate).build();
        let inner = with_system.or_else(|error| {
            tracing::warn!(reason = innermost(&error), "no certificates of the system can be used; only configured ones are trusted");
            builder().tls_certs_only(roots).build()
        });
        let inner = inner.map_err(|error| WireError::Setup { reason: innermost(&error) })?;
        Ok(Self { inner, timeout: options.timeout, body_bytes_max: options.body_bytes_max })
    }

    /// Fetches an address.
    ///
    /// # Errors
    /// When no answer was read to its end. A status that is no success is an answer: see [`Response::success`].
    pub async fn get(&self, url: &str, auth: &Auth, headers: &[(&str, &str)]) -> Result<Response, WireError> {
        self.send(Method::GET, url, auth, headers, Vec::new()).await
    }

    /// Sends any request.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn send(&self, method: Method, url: &str, auth: &Auth, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Response, WireError> {
        let mut request = match auth {
            Auth::None => self.inner.request(method, url),
            Auth::Bearer(token) => self.inner.request(method, url).bearer_auth(token.expose()),
            Auth::Basic { user, password } => self.inner.request(method, url).basic_auth(user, Some(password.expose())),
            Auth::Token(token) => self.inner.request(method, url).header(reqwest::header::AUTHORIZATION, token_header(token, url)?),
        };
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !body.is_empty() {
            request = request.body(body);
        }
        let sort = |error| WireError::sort(error, url, self.timeout);
        let answer = request.send().await.map_err(sort)?;
        self.read(answer, url).await
    }

    /// Reads an answer piece by piece, and no further than the limit.
    async fn read(&self, mut answer: reqwest::Response, url: &str) -> Result<Response, WireError> {
        let too_large = || WireError::TooLarge { url: Redacted::new(url), body_bytes_max: self.body_bytes_max };
        let announced = answer.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or(0);
        if announced > self.body_bytes_max {
            return Err(too_large());
        }
        let status = answer.status().as_u16();
        let content_type = answer.headers().get(reqwest::header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::with_capacity(announced);
        while let Some(piece) = answer.chunk().await.map_err(|error| WireError::sort(error, url, self.timeout))? {
            if body.len() + piece.len() > self.body_bytes_max {
                return Err(too_large());
            }
            body.extend_from_slice(&piece);
        }
        Ok(Response { status, content_type, body, url: Redacted::new(url) })
    }
}

/// The HTTP library is built without a crypto provider and would panic when none is installed. Installing is idempotent: the provider that
/// came first stays.
fn install_crypto() {
    let _first_stays = rustls::crypto::ring::default_provider().install_default();
}

fn read_roots(pem: &[u8]) -> Result<Vec<reqwest::Certificate>, WireError> {
    let roots =
        reqwest::Certificate::from_pem_bundle(pem).map_err(|error| WireError::Setup { reason: format!("extra certificates: {}", innermost(&error)) })?;
    if roots.is_empty() { Err(WireError::Setup { reason: "extra certificates: no certificate in PEM found".into() }) } else { Ok(roots) }
}

fn token_header(token: &crate::Secret, url: &str) -> Result<reqwest::header::HeaderValue, WireError> {
    let refuse = |_| WireError::Exchange { url: Redacted::new(url), reason: "the token holds bytes that no header may hold".into() };
    let mut value = reqwest::header::HeaderValue::from_str(&format!("Token {}", token.expose())).map_err(refuse)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers one connection with `answer` and gives back what was asked.
    async fn serve(answer: &'static [u8]) -> (String, tokio::task::JoinHandle<String>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
        let asked = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                let mut piece = [0; 1024];
                let n = socket.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..n]);
                if n == 0 {
                    break;
                }
            }
            let _reader_may_have_left = socket.write_all(answer).await;
            String::from_utf8_lossy(&request).into_owned()
        });
        (place, asked)
    }

    fn client(body_bytes_max: usize) -> Client {
        Client::new(&Options { body_bytes_max, ..Options::default() }).unwrap()
    }

    #[tokio::test]
    async fn clients_can_be_made_again_and_again_and_read_a_page() {
        let _earlier = client(1);
        let (place, _asked) = serve(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 3\r\n\r\nabc").await;
        let answer = client(3).get(&format!("http://{place}/metrics"), &Auth::None, &[]).await.unwrap().success().unwrap();
        assert_eq!((answer.status, answer.content_type.as_deref(), &answer.body[..]), (200, Some("text/plain"), &b"abc"[..]));
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_announced_or_not() {
        let announced: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd";
        let chunked: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n";
        for answer in [announced, chunked] {
            let (place, _asked) = serve(answer).await;
            let error = client(3).get(&format!("http://{place}/"), &Auth::None, &[]).await.unwrap_err();
            assert!(matches!(error, WireError::TooLarge { body_bytes_max: 3, .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn credentials_are_sent_and_never_shown() {
        for (auth, sent) in [
            (Auth::Bearer(Secret::new("pa55")), "authorization: Bearer pa55"),
            (Auth::Token(Secret::new("pa55")), "authorization: Token pa55"),
            (Auth::Basic { user: "ann".into(), password: Secret::new("pa55") }, "authorization: Basic YW5uOnBhNTU="),
        ] {
            let (place, asked) = serve(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").await;
            let error = client(10).get(&format!("http://{place}/q?token=pa55"), &auth, &[]).await.unwrap().success().unwrap_err();
            assert!(asked.await.unwrap().contains(sent));
            assert!(!format!("{error} {error:?}").contains("pa55"), "{error}");
        }
    }

    #[tokio::test]
    async fn errors_name_the_place_without_its_password() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = client(10).get(&format!("http://ann:pa55@127.0.0.1:{port}/"), &Auth::None, &[]).await.unwrap_err();
        assert!(matches!(error, WireError::Connect { .. }) && error.is_transient());
        let shown = format!("{error} {error:?}");
        assert!(shown.contains(&format!("***@127.0.0.1:{port}")) && !shown.contains("pa55"), "{shown}");
        let error = client(10).get("not an address", &Auth::None, &[]).await.unwrap_err();
        assert!(matches!(error, WireError::Address { .. }) && !error.is_transient(), "{error:?}");
    }

    #[tokio::test]
    async fn silence_ends_at_the_time_out() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&Options { timeout: Duration::from_millis(50), ..Options::default() }).unwrap();
        let error = client.get(&format!("http://{}/", listener.local_addr().unwrap()), &Auth::None, &[]).await.unwrap_err();
        assert!(matches!(error, WireError::Timeout { timeout_ms: 50, .. }), "{error:?}");
    }

    #[tokio::test]
    async fn a_tls_peer_nobody_vouches_for_is_refused() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        let _peer = tokio::spawn(async move { listener.accept().await.unwrap().0.write_all(b"this is no TLS record").await });
        let error = client(10).get(&format!("https://{place}/"), &Auth::None, &[]).await.unwrap_err();
        assert!(matches!(error, WireError::Connect { .. } | WireError::Exchange { .. }), "{error:?}");
    }

    #[test]
    fn extra_certificates_must_be_certificates() {
        for pem in [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(matches!(Client::new(&Options { extra_roots_pem: Some(pem.to_vec()), ..Options::default() }), Err(WireError::Setup { .. })), "{pem:?}");
        }
    }
}
