//! How sources are asked: one HTTP client a TLS setting, secrets read where the configuration says they are.

use crate::DaemonError;
use config::{Access, Credential};
use std::sync::Arc;
use wire::{Auth, Client, Clients, Tls};

/// Reads a secret. The daemon looks at no environment: whoever starts it says how. The error says what is missing, never what was found.
pub type ReadSecret = Arc<dyn Fn(&config::Secret) -> Result<wire::Secret, String> + Send + Sync>;

/// Clients and secrets for all sources.
pub(crate) struct Asking {
    clients: Clients,
    pub read_secret: ReadSecret,
}

impl Asking {
    pub fn new(read_secret: ReadSecret) -> Self {
        Self { clients: Clients::new(wire::Options::default()), read_secret }
    }

    /// The client for an access, within these limits.
    pub fn client(&mut self, name: &str, access: &Access, limits: wire::Limits) -> Result<Client, DaemonError> {
        let refuse = |error: wire::WireError| DaemonError::Source { name: name.to_owned(), reason: error.to_string() };
        let tls = tls(access).map_err(refuse)?;
        Ok(self.clients.with(&tls).map_err(refuse)?.limited(limits))
    }

    /// Who we say we are, as of now.
    pub fn auth(&self, name: &str, access: &Access) -> Result<Auth, DaemonError> {
        auth(&self.read_secret, access).map_err(|reason| DaemonError::Source { name: name.to_owned(), reason })
    }
}

/// The certificates of an access.
pub(crate) fn tls(access: &Access) -> Result<Tls, wire::WireError> {
    Tls::from_files(access.tls.ca.as_deref(), access.tls.certificate.as_deref(), access.tls.key.as_deref())
}

/// Who we say we are. Secrets are read anew, so that a new token in a file is taken without a restart.
pub(crate) fn auth(read: &ReadSecret, access: &Access) -> Result<Auth, String> {
    Ok(match &access.credential {
        None => Auth::None,
        Some(Credential::Bearer(secret)) => Auth::Bearer(read(secret)?),
        Some(Credential::Basic { user, password }) => Auth::Basic { user: user.clone(), password: read(password)? },
    })
}

/// Limits of one exchange for a page.
pub(crate) fn limits(page: &config::PageLimits) -> wire::Limits {
    wire::Limits { timeout: page.timeout, read_timeout: page.timeout, body_bytes_max: page.bytes_max, ..wire::Limits::default() }
}
