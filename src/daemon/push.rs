//! What others may push to us: routes, where the configuration allows it.

use crate::{Clock, DaemonError, ReadSecret};
use axum::Router;
use config::Config;
use ingest::push::{self, Batch, PushLimits, Tokens};
use std::sync::Arc;
use tokio::sync::mpsc;

/// The routes, and where what is pushed comes out; neither where nobody may push.
pub(crate) fn routes(config: &Config, read_secret: &ReadSecret, clock: &Clock) -> Result<(Option<Router>, Option<mpsc::Receiver<Batch>>), DaemonError> {
    let Some(push) = &config.sources.push else { return Ok((None, None)) };
    let token = read_secret(&push.token).map_err(|reason| DaemonError::Source { name: "push".into(), reason })?;
    let clock = clock.clone();
    let (routes, batches) = push::router(Tokens::new([token]), PushLimits::default(), Arc::new(move || clock.now()));
    Ok((Some(routes), Some(batches)))
}
