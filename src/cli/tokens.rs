//! Secrets of sources: read from where the configuration says they are. The only place that looks at the environment for them.

use crate::Failure;
use config::{Config, Credential, Secret};

/// The bearer token of one target.
///
/// The error says what is missing, never what was found.
pub(crate) fn read(secret: &Secret) -> Result<wire::Secret, String> {
    let text = match secret {
        Secret::File(path) => std::fs::read_to_string(path).map_err(|e| format!("its token file {} cannot be read: {e}", path.display()))?,
        Secret::Env(name) => std::env::var(name).map_err(|_| format!("its token is expected in the environment variable {name}, which is not set"))?,
    };
    let token = text.trim();
    if token.is_empty() { Err("its token is empty".to_owned()) } else { Ok(wire::Secret::new(token)) }
}

/// How the daemon reads secrets.
pub(crate) fn reader() -> daemon::ReadSecret {
    std::sync::Arc::new(read)
}

/// Reads every secret the configuration names once, so that one that is missing is told before anything begins.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    for target in &config.targets {
        if let Some(Credential::Bearer(secret) | Credential::Basic { password: secret, .. }) = &target.access.credential {
            read(secret).map_err(|why| Failure::new(format!("target {}: {why}", target.target.id)))?;
        }
    }
    Ok(())
}
