//! From the store back to a running loop.

use crate::{DaemonError, setup_of};
use config::Config;
use cycle::State;
use fleet::Timestamp;
use std::fs::{File, TryLockError};
use store::{Options, Retention, Store};

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

/// Opens the history the configuration names.
///
/// # Errors
/// When it cannot be opened.
pub fn open_store(config: &Config) -> Result<Store, DaemonError> {
    let retention = Retention { observations: config.store.retention_raw, windows: config.store.retention_windows, ..Retention::default() };
    Ok(Store::open(&config.store.path, Options { retention, ..Options::default() })?)
}

/// The loop as it was when the store was last written.
///
/// # Errors
/// When the store cannot be read.
pub async fn resume(config: &Config, store: &Store, now: Timestamp) -> Result<State, DaemonError> {
    let setup = setup_of(config, now);
    let windows = store.windows(None, now - setup.policy.history, now).await?;
    let calibration = store.latest_calibration().await?;
    let plan = store.latest_plan().await?;
    Ok(State::resume(setup, now, windows, calibration, plan))
}
