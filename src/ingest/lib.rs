//! What comes in: one file a source, all of them giving the observations of `fleet`.
//!
//! | file | source |
//! |---|---|
//! | `exposition.rs` | the text of a Prometheus page, as lines |
//! | `page.rs` | lines, whatever brought them |
//! | `catalogue.rs` | lines as canonical signals, whatever the engine calls them: [`Catalogue`], from the tables of `engines/` |
//! | `prometheus.rs` | metrics endpoints: [`prometheus::look`] |
//! | `query.rs` | the API of a Prometheus, live and for the past: [`query::Follow`], [`query::Backfill`] |
//! | `influx.rs` | buckets of an `InfluxDB` that is there already: [`influx::read`] |
//! | `push.rs` | what job queues and gateways push: [`push::router`] |
//! | `discovery.rs` | targets that come and go, in files and by HTTP: [`discovery::Discovery`] |
//! | `nvml.rs` | the GPUs of this machine: [`nvml::open`], [`nvml::read`] |
//! | `replay.rs` | recorded pages and past windows, as if live: [`Replay`] |
//!
//! A source never invents: what it could not read is absent, and a scrape that saw nothing of ours is a failed one.

mod catalogue;
pub mod discovery;
mod error;
pub mod exposition;
pub mod influx;
pub mod nvml;
mod page;
pub mod prometheus;
pub mod push;
pub mod query;
mod replay;

pub use catalogue::{Catalogue, Described, Names, ReadAs, missing_signals, read_page, read_page_named};
pub use error::IngestError;
pub use prometheus::Reader;
pub use replay::{RecordedPage, Replay, recorded_scrapes, split_recording};
