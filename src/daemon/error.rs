//! Why the daemon could not start or go on.

use std::{net::SocketAddr, path::PathBuf};

/// A fault the daemon cannot work around.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The history cannot be opened or written.
    #[error(transparent)]
    Store(#[from] store::StoreError),
    /// Another process decides on this history.
    #[error("another process plans with the history {}: stop it, ask it (GET /v1/plan), or plan without writing (`turnaround plan --dry-run`)", path.display())]
    Busy {
        /// The history.
        path: PathBuf,
    },
    /// The history's folder cannot be used.
    #[error("cannot make {}: {source}; choose another [store] path", path.display())]
    Claim {
        /// The lock beside the history.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address under [publish] listen")]
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
