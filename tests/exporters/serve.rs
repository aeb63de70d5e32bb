//! Pages over HTTP.

use axum::{Router, extract::Path, http::StatusCode, response::IntoResponse, routing::get};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::net::TcpListener;

/// What makes a page for an instant (seconds since the epoch).
pub type Page = Arc<dyn Fn(f64) -> String + Send + Sync>;

/// Seconds since the epoch.
#[must_use]
pub fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Serves each page at `/NAME/metrics` for as long as the process lives.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn serve(address: SocketAddr, pages: BTreeMap<String, Page>) -> std::io::Result<SocketAddr> {
    let pages = Arc::new(pages);
    let one = move |Path(name): Path<String>| {
        let page = pages.get(&name).cloned();
        async move {
            let text = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
            page.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |page| (text, page(now_s())).into_response())
        }
    };
    let app = Router::new().route("/{name}/metrics", get(one));
    let listener = TcpListener::bind(address).await?;
    let place = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(place)
}
