//! The daemon: timers, sources, worker, store and publication wired to the loop. It decides nothing.
//!
//! [`run`] owns the loop's state and feeds it events one at a time; everything that waits (scrapes, the worker, the store, HTTP clients) is
//! around it. What `cycle` asks for is done in the order it was asked: kept first, published after, so that no plan is ever published that a
//! restart would not know of.

mod clock;
mod engine;
mod error;
mod http;
mod resume;
mod setup;
mod shell;
mod sources;
mod worker;

pub use clock::Clock;
pub use engine::{Options, run};
pub use error::DaemonError;
pub use resume::{Claim, claim, open_store, resume};
pub use setup::setup_of;
pub use shell::put_in_batch;
pub use sources::{gpu_status, reckoned};
pub use worker::{Worker, WorkerError, worker_main};
