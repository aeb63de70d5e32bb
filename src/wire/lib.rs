//! The one way out: every HTTP request of the house goes through [`Client`].
//!
//! It knows HTTP/1.1 and HTTP/2, gzip, TLS with certificates on both sides, authentication, redirects, time-outs, a limit on every body while
//! it streams in, and back-off that honours `Retry-After`; and it never prints a secret: [`Secret`] shows as `***`, addresses are shown through [`Redacted`], and [`WireError`] holds nothing else. It reads no
//! environment and keeps no state beside its connection pool.

mod client;
mod error;
mod redact;
mod redirect;
mod retry;
mod tls;

#[cfg(test)]
mod tests;

pub use client::{Client, Limits, Method, Options, Response};
pub use error::WireError;
pub use redact::{Auth, Redacted, Secret};
pub use retry::{Retry, retry};
pub use tls::{Clients, Identity, Tls};
