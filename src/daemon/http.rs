//! The HTTP server: mounts the routes of `publish`, within limits.

use crate::DaemonError;
use publish::Published;
use std::{net::SocketAddr, time::Duration};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tower_http::{catch_panic::CatchPanicLayer, limit::RequestBodyLimitLayer, timeout::TimeoutLayer};

/// Nothing we answer takes a body of more than this.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest time to an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time open connections have to end after a stop.
const GRACE: Duration = Duration::from_secs(2);

/// A running server.
pub(crate) struct Server {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Listens, tells where, and serves until stopped.
pub(crate) async fn serve(
    address: SocketAddr,
    published: Published,
    push: Option<axum::Router>,
    listening: Option<oneshot::Sender<SocketAddr>>,
) -> Result<Server, DaemonError> {
    let refuse = |source| DaemonError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(refuse)?;
    let real = listener.local_addr().map_err(refuse)?;
    tracing::info!(address = %real, "listening");
    if let Some(tell) = listening {
        // Nobody may care.
        let _ = tell.send(real);
    }
    // What is pushed has limits of its own, by token; the rest takes no body to speak of.
    let app = publish::router(published)
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .merge(push.unwrap_or_default())
        .layer(CatchPanicLayer::new())
        .layer(TimeoutLayer::with_status_code(axum::http::StatusCode::GATEWAY_TIMEOUT, TIMEOUT));
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let graceful = axum::serve(listener, app).with_graceful_shutdown(async { drop(stopped.await) });
        if let Err(error) = graceful.await {
            tracing::error!(%error, "the HTTP server ended");
        }
    });
    Ok(Server { stop, task })
}

impl Server {
    /// Takes no new connections and waits a moment for open ones.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = tokio::time::timeout(GRACE, self.task).await;
    }
}
