//! Whom a client trusts, and how it shows who it is: TLS settings, and one client for each distinct one.

use crate::error::innermost;
use crate::{Client, Options, Secret, WireError};
use std::{io::Read, path::Path};

/// Longest PEM file read, in bytes: a bundle of all public authorities takes a quarter of it.
const PEM_BYTES_MAX: u64 = 1 << 20;
/// Distinct TLS settings one process may have: each holds its own certificates and connections.
const CLIENTS_MAX: usize = 256;

/// The certificate and key a client shows to a server that asks for one (mTLS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate and those that vouch for it, in PEM.
    pub certificate_pem: Vec<u8>,
    /// Its private key, in PEM (PKCS#8, PKCS#1 or SEC1).
    pub key_pem: Secret,
}

/// TLS of a client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificates in PEM that are trusted beside those of the system: the authority of a private cluster.
    pub extra_roots_pem: Option<Vec<u8>>,
    /// Who the client is, where servers ask for it.
    pub identity: Option<Identity>,
}

impl Tls {
    /// Reads the files of a TLS setting: an authority to trust, and a certificate with its key. Nothing of a file's content is in an error.
    ///
    /// # Errors
    /// [`WireError::Setup`] when a file cannot be read, is longer than a megabyte, or only one of certificate and key is given.
    pub fn from_files(authority: Option<&Path>, certificate: Option<&Path>, key: Option<&Path>) -> Result<Self, WireError> {
        let identity = match (certificate, key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => {
                let key_pem = String::from_utf8(read_pem(key)?).map_err(|_| setup(format!("{}: not PEM", key.display())))?;
                Some(Identity { certificate_pem: read_pem(certificate)?, key_pem: Secret::new(key_pem) })
            }
            (Some(alone), None) => return Err(setup(format!("the certificate {} has no key beside it", alone.display()))),
            (None, Some(alone)) => return Err(setup(format!("the key {} has no certificate beside it", alone.display()))),
        };
        Ok(Self { extra_roots_pem: authority.map(read_pem).transpose()?, identity })
    }

    pub(crate) fn roots(&self) -> Result<Vec<reqwest::Certificate>, WireError> {
        let Some(pem) = &self.extra_roots_pem else { return Ok(Vec::new()) };
        let roots = reqwest::Certificate::from_pem_bundle(pem).map_err(|error| setup(format!("extra certificates: {}", innermost(&error))))?;
        if roots.is_empty() { Err(setup("extra certificates: no certificate in PEM found".into())) } else { Ok(roots) }
    }

    pub(crate) fn identity(&self) -> Result<Option<reqwest::Identity>, WireError> {
        let Some(identity) = &self.identity else { return Ok(None) };
        let mut pem = identity.certificate_pem.clone();
        pem.push(b'\n');
        pem.extend_from_slice(identity.key_pem.expose().as_bytes());
        // The library's reasons speak of sections and formats, never of content; even so, only the outermost is told.
        let read = reqwest::Identity::from_pem(&pem).map_err(|_| setup("client certificate: no certificate with its key in PEM found".into()))?;
        Ok(Some(read))
    }
}

fn setup(reason: String) -> WireError {
    WireError::Setup { reason }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, WireError> {
    let refuse = |reason: &dyn std::fmt::Display| setup(format!("{}: {reason}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| refuse(&error))?;
    let mut pem = Vec::new();
    file.take(PEM_BYTES_MAX + 1).read_to_end(&mut pem).map_err(|error| refuse(&error))?;
    if pem.len() as u64 > PEM_BYTES_MAX { Err(refuse(&format_args!("longer than {PEM_BYTES_MAX} bytes"))) } else { Ok(pem) }
}

/// One client for each distinct TLS setting, however many endpoints use it: connections are kept per host inside it, and certificates are
/// read once.
#[derive(Debug, Default)]
pub struct Clients {
    options: Options,
    made: Vec<(Tls, Client)>,
}

impl Clients {
    /// Clients that differ from `options` in their TLS only.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, made: Vec::new() }
    }

    /// The client with this TLS; made when it is first asked for.
    ///
    /// # Errors
    /// As [`Client::new`], and beyond 256 distinct settings.
    pub fn with(&mut self, tls: &Tls) -> Result<Client, WireError> {
        if let Some((_, client)) = self.made.iter().find(|(known, _)| known == tls) {
            return Ok(client.clone());
        }
        if self.made.len() == CLIENTS_MAX {
            return Err(setup(format!("more than {CLIENTS_MAX} distinct TLS settings")));
        }
        let client = Client::new(&Options { tls: tls.clone(), ..self.options.clone() })?;
        self.made.push((tls.clone(), client.clone()));
        Ok(client)
    }

    /// How many were made.
    #[must_use]
    pub fn len(&self) -> usize {
        self.made.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }
}
