//! Why the daemon could not start or go on.

use std::net::SocketAddr;

/// A fault the daemon cannot work around.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The history cannot be opened or written.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// A source cannot be set up.
    #[error("source {name}: {reason}")]
    Source {
        /// Which.
        name: String,
        /// Why.
        reason: String,
    },
}
