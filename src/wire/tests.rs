//! The client against peers on loopback that behave, misbehave, and ask for certificates.

use crate::{Auth, Client, Clients, Identity, Limits, Options, Secret, Tls, WireError};
use std::{io::Write, sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::{self, pki_types::pem::PemObject};

/// Answers one connection after the other with `answers` and gives back what was asked of each.
async fn serve(answers: Vec<Vec<u8>>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
    let asked = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in answers {
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
            let _reader_may_have_left = socket.write_all(&answer).await;
            asked.push(String::from_utf8_lossy(&request).into_owned());
        }
        asked
    });
    (place, asked)
}

async fn serve_one(answer: &[u8]) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    serve(vec![answer.to_vec()]).await
}

fn client(body_bytes_max: usize) -> Client {
    Client::new(&Options { limits: Limits { body_bytes_max, ..Limits::default() }, ..Options::default() }).unwrap()
}

#[tokio::test]
async fn clients_can_be_made_again_and_again_and_read_a_page() {
    let _earlier = client(1);
    let (place, _asked) = serve_one(b"HTTP/1.1 200 OK\r\ncontent-type: Text/Plain; version=0.0.4\r\ncontent-length: 3\r\nretry-after: 7\r\n\r\nabc").await;
    let answer = client(3).get(&format!("http://{place}/metrics"), &Auth::None, &[]).await.unwrap().success().unwrap();
    assert_eq!((answer.status, answer.media_type().as_deref(), &answer.body[..]), (200, Some("text/plain"), &b"abc"[..]));
    assert_eq!((answer.redirects, answer.http2, answer.retry_after), (0, false, Some(Duration::from_secs(7))));
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_announced_or_not() {
    let announced: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabcd";
    let chunked: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n";
    for answer in [announced, chunked] {
        let (place, _asked) = serve_one(answer).await;
        let error = client(3).get(&format!("http://{place}/"), &Auth::None, &[]).await.unwrap_err();
        assert!(matches!(error, WireError::TooLarge { body_bytes_max: 3, .. }), "{error}");
        let (place, _asked) = serve_one(answer).await;
        let wider = client(3).limited(Limits { body_bytes_max: 4, ..Limits::default() });
        assert_eq!(wider.get(&format!("http://{place}/"), &Auth::None, &[]).await.unwrap().body, b"abcd");
    }
}

#[tokio::test]
async fn gzip_is_read_and_a_small_body_that_grows_beyond_the_limit_is_refused() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&vec![b'a'; 100_000]).unwrap();
    let packed = packed.finish().unwrap();
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", packed.len()).into_bytes();
    answer.extend(&packed);
    for (body_bytes_max, fits) in [(100_000, true), (99_999, false)] {
        let (place, asked) = serve_one(&answer).await;
        let answer = client(body_bytes_max).get(&format!("http://{place}/"), &Auth::None, &[]).await;
        assert!(asked.await.unwrap()[0].contains("accept-encoding: gzip"));
        match answer {
            Ok(answer) => assert!(fits && answer.body.len() == 100_000),
            Err(error) => assert!(!fits && matches!(error, WireError::TooLarge { .. }), "{error}"),
        }
    }
}

#[tokio::test]
async fn credentials_are_sent_and_never_shown() {
    for (auth, sent) in [
        (Auth::Bearer(Secret::new("pa55")), "authorization: Bearer pa55"),
        (Auth::Token(Secret::new("pa55")), "authorization: Token pa55"),
        (Auth::Basic { user: "ann".into(), password: Secret::new("pa55") }, "authorization: Basic YW5uOnBhNTU="),
    ] {
        let (place, asked) = serve_one(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").await;
        let error = client(10).get(&format!("http://{place}/q?token=pa55"), &auth, &[]).await.unwrap().success().unwrap_err();
        assert!(asked.await.unwrap()[0].contains(sent));
        assert!(!format!("{error} {error:?}").contains("pa55"), "{error}");
    }
    let bad = Auth::Bearer(Secret::new("pa55\nx"));
    let error = client(10).get("http://127.0.0.1:9/", &bad, &[]).await.unwrap_err();
    assert!(error.to_string().contains("token") && !format!("{error} {error:?}").contains("pa55"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_counted_and_bounded() {
    let moved = |to: &str| format!("HTTP/1.1 307 Moved\r\nlocation: {to}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").into_bytes();
    let end = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec();
    let auth = Auth::Bearer(Secret::new("pa55"));
    let (place, asked) = serve(vec![moved("/metrics/"), end.clone()]).await;
    let answer = client(10).get(&format!("http://{place}/metrics"), &auth, &[]).await.unwrap();
    assert_eq!((answer.redirects, &answer.body[..], answer.url.to_string()), (1, &b"ok"[..], format!("http://{place}/metrics/")));
    assert!(asked.await.unwrap().iter().all(|request| request.contains("Bearer pa55")));
    // Another origin gets no credentials.
    let (other, asked) = serve(vec![end]).await;
    let (place, _asked) = serve(vec![moved(&format!("http://{other}/"))]).await;
    client(10).get(&format!("http://{place}/metrics"), &auth, &[]).await.unwrap();
    assert!(!asked.await.unwrap()[0].contains("pa55"));
    // A circle ends.
    let (place, _asked) = serve(vec![moved("/a"); 4]).await;
    let error = client(10).get(&format!("http://{place}/a"), &Auth::None, &[]).await.unwrap_err();
    assert!(matches!(error, WireError::Redirect { .. }) && error.to_string().contains("redirects_max = 3"), "{error}");
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
    let url = format!("http://{}/", listener.local_addr().unwrap());
    for limits in [Limits { timeout: Duration::from_millis(50), ..Limits::default() }, Limits { read_timeout: Duration::from_millis(50), ..Limits::default() }]
    {
        let error = client(10).limited(limits).get(&url, &Auth::None, &[]).await.unwrap_err();
        assert!(matches!(error, WireError::Timeout { timeout_ms: 50, .. }), "{error:?}");
    }
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
fn certificates_and_keys_must_be_such() {
    for pem in [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let identity = Identity { certificate_pem: pem.to_vec(), key_pem: Secret::new("pa55") };
        for tls in [Tls { extra_roots_pem: Some(pem.to_vec()), identity: None }, Tls { extra_roots_pem: None, identity: Some(identity) }] {
            let error = Client::new(&Options { tls, ..Options::default() }).unwrap_err();
            assert!(matches!(error, WireError::Setup { .. }) && !format!("{error:?}").contains("pa55"), "{pem:?}: {error}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.pem");
    std::fs::write(&file, vec![b'a'; (1 << 20) + 1]).unwrap();
    assert!(Tls::from_files(Some(&file), None, None).unwrap_err().to_string().contains("longer than"));
    assert!(Tls::from_files(None, None, Some(&file)).unwrap_err().to_string().contains("no certificate"));
    assert!(Tls::from_files(Some(&folder.path().join("absent")), None, None).is_err());
}

/// A private authority and what it signed.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    /// A certificate for this name, and its key, in PEM.
    fn sign(&self, name: &str, usage: rcgen::ExtendedKeyUsagePurpose) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn tls(&self, identity: Option<(String, String)>) -> Tls {
        let identity = identity.map(|(certificate, key)| Identity { certificate_pem: certificate.into_bytes(), key_pem: Secret::new(key) });
        Tls { extra_roots_pem: Some(self.pem.clone().into_bytes()), identity }
    }
}

/// An HTTP/2 server behind TLS that answers `ok`; with `clients`, only to those that this authority vouches for.
async fn serve_tls(authority: &Authority, clients: Option<&Authority>) -> String {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let (certificate, key) = authority.sign("localhost", rcgen::ExtendedKeyUsagePurpose::ServerAuth);
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
            builder.with_client_cert_verifier(rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap())
        }
    };
    let chain = vec![rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let mut config = builder.with_single_cert(chain, rustls::pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
            tokio::spawn(async move {
                while let Some(Ok((_request, mut respond))) = connection.accept().await {
                    let mut body = respond.send_response(http::Response::new(()), false).unwrap();
                    body.send_data(b"ok"[..].into(), true).unwrap();
                }
            });
        }
    });
    format!("https://localhost:{port}/metrics")
}

#[tokio::test]
async fn http2_is_spoken_with_a_server_of_a_private_authority() {
    let authority = Authority::new();
    let url = serve_tls(&authority, None).await;
    let trusting = Client::new(&Options { tls: authority.tls(None), ..Options::default() }).unwrap();
    for _ in 0..2 {
        let answer = trusting.get(&url, &Auth::None, &[]).await.unwrap();
        assert_eq!((answer.status, answer.http2, &answer.body[..]), (200, true, &b"ok"[..]));
    }
    let error = client(10).get(&url, &Auth::None, &[]).await.unwrap_err();
    assert!(matches!(error, WireError::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_asks_for_certificates_gets_ours_and_no_other_is_let_in() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let url = serve_tls(&servers, Some(&clients)).await;
    let known = clients.sign("turnaround", rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    let stranger = servers.sign("turnaround", rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    for (identity, let_in) in [(Some(known), true), (Some(stranger), false), (None, false)] {
        let client = Client::new(&Options { tls: servers.tls(identity), ..Options::default() }).unwrap();
        let answer = client.get(&url, &Auth::None, &[]).await;
        assert_eq!(answer.is_ok(), let_in, "{answer:?}");
    }
}

#[tokio::test]
async fn one_client_serves_all_endpoints_of_a_tls_setting() {
    let authority = Authority::new();
    let mut clients = Clients::new(Options::default());
    for _ in 0..1_000 {
        clients.with(&Tls::default()).unwrap();
    }
    clients.with(&authority.tls(None)).unwrap();
    clients.with(&authority.tls(Some(authority.sign("a", rcgen::ExtendedKeyUsagePurpose::ClientAuth)))).unwrap();
    assert_eq!(clients.len(), 3);
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = authority.sign("a", rcgen::ExtendedKeyUsagePurpose::ClientAuth);
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (ca, certificate, key) = (write("ca.pem", &authority.pem), write("c.pem", &certificate), write("k.pem", &key));
    let tls = Tls::from_files(Some(&ca), Some(&certificate), Some(&key)).unwrap();
    assert!(!format!("{tls:?}").contains("PRIVATE"));
    clients.with(&tls).unwrap();
    assert_eq!(clients.len(), 4);
}
