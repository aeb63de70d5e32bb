//! How far an import has come: a mark in the store, written with the windows it speaks of, found again by what is imported.

use crate::Failure;
use fleet::{Span, Timestamp, WorkloadId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::io::Read;
use std::path::{Path, PathBuf};
use store::{Store, wait};

/// Shape of a mark; another shape is begun anew.
const VERSION: u32 = 1;
/// Bytes hashed at a time.
const CHUNK_BYTES: usize = 1 << 16;
/// Characters of the hash in a mark's name.
const NAME_CHARS: usize = 32;

/// Where a recording was put in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// Added to every instant.
    pub by: Span,
    /// What would lie at this instant or after it comes earlier.
    pub turn: Option<Turn>,
}

/// What would lie ahead of `at` comes `back` earlier: a recording of whole weeks that ends now, whatever its weekdays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub at: Timestamp,
    pub back: Span,
}

impl Moved {
    /// By so much, all of it.
    pub fn by(by: Span) -> Self {
        Self { by, turn: None }
    }

    /// Where a window of the moved recording starts.
    pub fn start(&self, start: Timestamp) -> Timestamp {
        self.turn.filter(|turn| start >= turn.at).map_or(start, |turn| start - turn.back)
    }

    /// The time that a moved recording may fill.
    pub fn span(&self, (first, last): (Timestamp, Timestamp)) -> (Timestamp, Timestamp) {
        let (first, last) = (first + self.by, last + self.by);
        self.turn.filter(|turn| last > turn.at).map_or((first, last), |turn| (first.min(turn.at - turn.back), turn.at))
    }
}

/// How far the import of a file has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    version: u32,
    /// Where its windows were put.
    pub moved: Moved,
    /// Windows kept so far, from the first.
    pub written: u64,
    /// All of them are kept.
    pub complete: bool,
}

impl Mark {
    pub fn new(moved: Moved) -> Self {
        Self { version: VERSION, moved, written: 0, complete: false }
    }

    /// The mark kept under a name, if it is one of ours.
    pub fn read(store: &Store, name: &str) -> Result<Option<Self>, Failure> {
        Ok(kept::<Self>(store, name)?.filter(|mark| mark.version == VERSION))
    }
}

/// What is kept under a name, if it is what is looked for.
pub(crate) fn kept<T: DeserializeOwned>(store: &Store, name: &str) -> Result<Option<T>, Failure> {
    Ok(wait(store.snapshot(name))?.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// What is imported, as a name: the content, and everything that makes windows of it.
pub(crate) fn name_of_file(path: &Path, service: &WorkloadId, how: &str) -> Result<String, Failure> {
    let mut hash = Sha256::new();
    for file in files(path)? {
        feed(&mut hash, &file)?;
    }
    Ok(name(hash, service, how))
}

/// The name of an import that has no file.
pub(crate) fn name_of(service: &WorkloadId, how: &str) -> String {
    name(Sha256::new(), service, how)
}

fn name(mut hash: Sha256, service: &WorkloadId, how: &str) -> String {
    hash.update(service.as_str().as_bytes());
    hash.update([0]);
    hash.update(how.as_bytes());
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.truncate(NAME_CHARS);
    format!("import/{text}")
}

fn feed(hash: &mut Sha256, path: &Path) -> Result<(), Failure> {
    let refuse = |error: std::io::Error| Failure::file("read", path, &error);
    let mut file = std::fs::File::open(path).map_err(refuse)?;
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut bytes).map_err(refuse)? {
            0 => return Ok(()),
            n => hash.update(&bytes[..n]),
        }
    }
}

/// The file, or the files of the folder in order of name.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let refuse = |error: std::io::Error| Failure::file("read", path, &error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(refuse)? {
        let file = entry.map_err(refuse)?.path();
        if file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}
