//! The history: everything observed, decided and learned, kept so that a restart continues where the last run ended.
//!
//! [`Store`] is a cheap handle on a back end behind the [`History`] seam: one `SQLite` file ([`Store::open`], or [`Store::in_memory`] for tests
//! and dry runs), or a server of `InfluxDB` ([`Store::influx`]). [`Store::append`](History::append) takes a [`Batch`], writes all of it or nothing
//! and returns once it is on disk: what was acknowledged survives `kill -9`. Reads give back the values as they were written; what could not be
//! given back is refused when it is offered.
//!
//! Observations are kept at three [`Resolution`]s, each for a time of its own ([`Retention`]): as observed, and summed up by minutes and by hours
//! ([`History::rollups`]). Old observations may arrive at any time and as often as they like. [`export`](mod@export) makes flat files of what is kept.
//!
//! Every method returns an [`Answer`], a future that needs no particular runtime: `.await` it in the daemon, hand it to [`wait`] in code that
//! blocks. The embedded store reads no clock; the one in front of a server does, for its waits and to tell which of two states is the later one.
//!
//! ```
//! use store::{Batch, Store, wait};
//!
//! let store = Store::in_memory()?;
//! wait(store.append(Batch { snapshots: vec![("cycle".into(), b"state".to_vec())], ..Batch::default() }))?;
//! assert_eq!(wait(store.snapshot("cycle"))?.as_deref(), Some(b"state".as_slice()));
//! # Ok::<(), store::StoreError>(())
//! ```

mod admit;
mod check;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod contract_history;
#[cfg(test)]
mod crash;
mod dictionary;
mod embedded;
#[cfg(test)]
mod embedded_rules;
mod error;
pub mod export;
mod history;
pub mod influx;
mod migrate;
mod observed;
mod read;
mod retain;
mod rollup;
mod summing;
mod write;

pub use error::StoreError;
pub use history::{Ack, Answer, Batch, Compacted, History, Options, Removed, Retention, SeriesKept, wait};
pub use rollup::{Resolution, Rollup, Summary};

use std::{fmt, ops::Deref, path::Path, sync::Arc};

/// A handle on the history. Clones share it; the last one to go closes it.
#[derive(Clone)]
pub struct Store(Arc<dyn History>);

impl Store {
    /// Opens the history in an `SQLite` file, creating file and folder where they are missing and bringing older files to today's shape.
    ///
    /// # Errors
    /// When the file cannot be opened, is damaged, was not made by this program, or by a later version of it.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(embedded::Embedded::open(path.as_ref(), options)?)))
    }

    /// Opens the history in an `InfluxDB` 2 server, behind its local queue. The server need not be there. [`influx::Influx::open`] gives the same
    /// with a view of its traffic.
    ///
    /// # Errors
    /// When the settings will not do, there is no token, or the queue's file cannot be used.
    pub fn influx(settings: influx::InfluxSettings) -> Result<Self, StoreError> {
        Ok(influx::Influx::open(settings)?.store())
    }

    /// A history that ends with its last handle.
    ///
    /// # Errors
    /// When `SQLite` cannot be set up.
    pub fn in_memory() -> Result<Self, StoreError> {
        Ok(Self(Arc::new(embedded::Embedded::in_memory(Options::default())?)))
    }
}

impl Deref for Store {
    type Target = dyn History;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.0.location()).finish()
    }
}
