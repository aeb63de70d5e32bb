//! What comes in: one file a source, all of them giving the observations of `fleet`.
//!
//! | file | source |
//! |---|---|
//! | `exposition.rs` | the text of a Prometheus page, as lines |
//! | `catalogue.rs` | such a page as canonical signals, whatever the engine calls them: [`read_page`] |
//! | `prometheus.rs` | metrics endpoints: [`prometheus::scrape`] |
//! | `nvml.rs` | the GPUs of this machine: [`nvml::open`], [`nvml::read`] |
//! | `replay.rs` | recorded pages and past windows, as if live: [`Replay`] |
//!
//! A source never invents: what it could not read is absent, and a scrape that saw nothing of ours is a failed one.

mod catalogue;
mod error;
pub mod exposition;
pub mod nvml;
pub mod prometheus;
mod replay;

pub use catalogue::{EXPECTED, Names, missing_signals, read_page, read_page_named, read_page_within};
pub use error::IngestError;
pub use replay::{RecordedPage, Replay, recorded_scrapes, split_recording};
