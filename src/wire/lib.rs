//! The one way out: every HTTP request of the house goes through [`Client`].
//!
//! It knows TLS, authentication, redirects, time-outs, a limit on every body while it streams in, and back-off; and it never prints a
//! secret: [`Secret`] shows as `***`, addresses are shown through [`Redacted`], and [`WireError`] holds nothing else. It reads no
//! environment and keeps no state beside its connection pool.

mod client;
mod error;
mod redact;
mod retry;

pub use client::{Client, Method, Options, Response};
pub use error::WireError;
pub use redact::{Auth, Redacted, Secret};
pub use retry::{Retry, retry};
