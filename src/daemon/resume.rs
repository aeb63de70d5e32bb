//! From the store back to a running loop.

use crate::{DaemonError, ReadSecret, asking, setup_of};
use config::{Config, Credential, InfluxStoreConfig};
use cycle::State;
use fleet::Timestamp;
use std::fs::{File, TryLockError};
use store::{
    Options, Retention, Store, StoreError,
    influx::{Influx, InfluxLimits, InfluxSettings, Token},
};

/// The right to decide on a history: held by one process at a time, given back when dropped or when the process ends, however it ends.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held for its lock")] File);

/// Claims the history the configuration names, without waiting.
///
/// # Errors
/// When another process holds it, or its folder cannot be written.
pub fn claim(config: &Config) -> Result<Claim, DaemonError> {
    let mut path = config.store.path.clone().into_os_string();
    path.push(".lock");
    let refuse = |source| DaemonError::Claim { path: path.clone().into(), source };
    if let Some(folder) = config.store.path.parent() {
        std::fs::create_dir_all(folder).map_err(refuse)?;
    }
    let file = File::create(&path).map_err(refuse)?;
    match file.try_lock() {
        Ok(()) => Ok(Claim(file)),
        Err(TryLockError::WouldBlock) => Err(DaemonError::Busy { path: config.store.path.clone() }),
        Err(TryLockError::Error(error)) => Err(refuse(error)),
    }
}

/// The history, and the traffic with its server where it is kept by one.
pub struct Kept {
    /// The history.
    pub store: Store,
    /// The server's side of it.
    pub influx: Option<Influx>,
}

/// Opens the history the configuration names.
///
/// # Errors
/// When it cannot be opened, or its token is not there.
pub fn open_store(config: &Config, read_secret: &ReadSecret) -> Result<Kept, DaemonError> {
    let kept = &config.store;
    let (raw, windows) = (kept.retention_raw, kept.retention_windows);
    let retention =
        Retention { observations: raw, minutes: kept.retention_minute, hours: kept.retention_hour, windows, decisions: windows, ..Retention::default() };
    match &kept.influxdb {
        None => Ok(Kept { store: Store::open(&kept.path, Options { retention, ..Options::default() })?, influx: None }),
        Some(server) => {
            let influx = Influx::open(settings(server, retention, read_secret)?)?;
            Ok(Kept { store: influx.store(), influx: Some(influx) })
        }
    }
}

fn settings(server: &InfluxStoreConfig, retention: Retention, read_secret: &ReadSecret) -> Result<InfluxSettings, DaemonError> {
    let refuse = |reason: String| DaemonError::Source { name: "store.influxdb".into(), reason };
    let token = match &server.access.credential {
        Some(Credential::Bearer(config::Secret::File(path))) => Token::File(path.clone()),
        Some(Credential::Bearer(secret)) => Token::Given(read_secret(secret).map_err(refuse)?),
        _ => return Err(refuse("an InfluxDB asks for a token".into())),
    };
    let limits = InfluxLimits {
        queue_bytes_max: server.queue_bytes_max,
        batch_points_max: server.batch_points_max,
        batch_age: server.batch_age,
        write_timeout: server.timeout,
        ..InfluxLimits::default()
    };
    Ok(InfluxSettings {
        url: server.url.clone(),
        org: server.org.clone(),
        prefix: server.prefix.clone(),
        token,
        queue: server.queue.clone(),
        retention,
        tls: asking::tls(&server.access).map_err(|e| refuse(e.to_string()))?,
        limits,
    })
}

/// The loop as it was when the store was last written.
///
/// # Errors
/// When the store cannot be read.
pub async fn resume(config: &Config, store: &Store, now: Timestamp) -> Result<State, DaemonError> {
    let setup = setup_of(config, now);
    let windows = match store.windows(None, now - setup.policy.history, now).await {
        Ok(windows) => windows,
        Err(error @ StoreError::Away { .. }) => {
            tracing::warn!(%error, "the past cannot be read yet: what runs is held until it can");
            Vec::new()
        }
        Err(error) => return Err(error.into()),
    };
    let calibration = store.latest_calibration().await?;
    let plan = store.latest_plan().await?;
    Ok(State::resume(setup, now, windows, calibration, plan))
}
