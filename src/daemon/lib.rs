//! The daemon: timers, sources, worker, store and publication wired to the loop. It decides nothing.
//!
//! [`run`] owns the loop's state and feeds it events one at a time; everything that waits (scrapes, the worker, the store, HTTP clients) is
//! around it. What `cycle` asks for is done in the order it was asked: kept first, published after, so that no plan is ever published that a
//! restart would not know of.

mod api;
mod asking;
mod bucket;
mod clock;
mod engine;
mod error;
mod host;
mod http;
mod lists;
mod pages;
mod push;
mod resume;
mod schedule;
mod setup;
mod shell;
mod sources;
mod statuses;
mod worker;

pub use asking::ReadSecret;
pub use clock::Clock;
pub use engine::{Options, run};
pub use error::DaemonError;
pub use resume::{Claim, Kept, claim, open_store, resume};
pub use setup::setup_of;
pub use shell::put_in_batch;
pub use sources::look_once;
pub use worker::{Worker, WorkerError, worker_main};
