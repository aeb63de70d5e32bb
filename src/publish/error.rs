//! What can go wrong with publishing.

use std::{io, path::PathBuf};

/// A plan that was not published. What was published before stays.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The file system refused: disk full, no permission, no such folder.
    #[error("cannot {operation} {path}: {source}; the plan published before stays", path = path.display())]
    File {
        /// What was done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} does not hold a plan ({detail}): move it away, or name another file", path = path.display())]
    NotAPlan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// The content of the file is not that of the plan it names.
    #[error("{path} names plan {id}, but its content has the fingerprint {content}: it was edited or damaged; move it away", path = path.display())]
    Fingerprint {
        /// The file.
        path: PathBuf,
        /// The id it carries.
        id: String,
        /// The id it should carry.
        content: String,
    },
    /// A plan that others could not read back, or whose id does not belong to its content.
    #[error("plan {id} of generation {generation} cannot be published: {detail}")]
    Unsound {
        /// Which.
        id: String,
        /// Its generation.
        generation: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// An older plan than the one published, or another one of its generation.
    #[error("plan {id} of generation {offered} cannot be published: generation {held} already is, and generations never go back")]
    Generation {
        /// What was offered.
        id: String,
        /// Its generation.
        offered: u64,
        /// The generation published.
        held: u64,
    },
    /// Another process writes a plan to the same folder.
    #[error("another process is writing a plan to {folder}: let only one publish there", folder = folder.display())]
    Busy {
        /// The folder.
        folder: PathBuf,
    },
}
