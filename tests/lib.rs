//! What the tests of the product share: where its binary is, and where public data may lie.

pub mod exporters;

use std::path::PathBuf;

/// The binary under test, beside the test that asks. Cargo builds it for its own package only, so `make test` builds it first.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn turnaround() -> PathBuf {
    let mut folder = std::env::current_exe().expect("a test knows where it is");
    folder.pop();
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder.pop();
    }
    let binary = folder.join("turnaround");
    assert!(binary.exists(), "{} is missing: run `make test`, or `cargo build --release -p cli` before `cargo test --release`", binary.display());
    binary
}

/// Public traces and recordings, which the project does not ship: `None`, with a line that says so, where they are absent.
#[must_use]
pub fn public_data(part: &str) -> Option<PathBuf> {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data")).join(part);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: the public data {part} is not here");
    None
}
