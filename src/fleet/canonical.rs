//! Canonical bytes and the fingerprints made of them.
//!
//! The core keeps its collections ordered (`Vec` in a stated order, `BTreeMap`), so the compact JSON of a value is the same on every host.
//! Numbers are written in the shortest form that reads back to the same `f64`.

use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write;

/// The bytes a value is stored, hashed and compared by.
///
/// # Panics
/// Never for the types of this crate: all keys are strings and every number is finite (JSON would turn the others into `null`).
#[must_use]
pub fn canonical_bytes<T: Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("types of this crate have string keys and cannot fail to serialise")
}

/// The first 16 hexadecimal digits of the SHA-256 of the canonical bytes: 64 bits, enough for a fleet's lifetime of plans.
#[must_use]
pub fn fingerprint<T: Serialize>(value: &T) -> String {
    let digest = Sha256::digest(canonical_bytes(value));
    digest.iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
