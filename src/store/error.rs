//! What can go wrong with the history.

use std::path::PathBuf;

/// An operation of the store that failed. Each names what was done, to what, and the value in the way.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder of the file cannot be made.
    #[error("cannot create the folder {path} for the store: {source}", path = path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The copy made before a migration cannot be put in its place.
    #[error("cannot keep a copy of the store at {path} before bringing it to today's shape: {source}", path = path.display())]
    Backup {
        /// The copy.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The content of the file is not what was written.
    #[error(
        "the store {location} is damaged: {operation} {object} found: {detail}. Stop turnaround, keep a copy of the file with its -wal and -shm companions, then \
         put back a backup, or save what is readable with `sqlite3 {location} .recover | sqlite3 recovered.db`, or move the files away to begin a new history"
    )]
    Damaged {
        /// The file.
        location: String,
        /// What was done.
        operation: &'static str,
        /// To what.
        object: String,
        /// What was found.
        detail: String,
    },
    /// An `SQLite` file of somebody else.
    #[error("{location} is a database, but not a turnaround store (application id {found:#010x}): name another file")]
    Foreign {
        /// The file.
        location: String,
        /// The application id it carries.
        found: i32,
    },
    /// A file of a later program.
    #[error("the store {location} has version {found}, this program knows up to {known}: use a newer turnaround, or another file")]
    Newer {
        /// The file.
        location: String,
        /// Its version.
        found: u32,
        /// The latest version known.
        known: u32,
    },
    /// `SQLite` refused: disk full, file locked by another program, no permission.
    #[error("the store {location} could not {operation} {object}: {source}")]
    Refused {
        /// The file.
        location: String,
        /// What was done.
        operation: &'static str,
        /// To what.
        object: String,
        /// Why.
        source: Box<rusqlite::Error>,
    },
    /// A plan or calibration that would take the number of the latest, or an earlier one.
    #[error("cannot append {kind} {id} of generation {offered}: the store holds generation {latest}, and generations never go back")]
    Generation {
        /// `plan` or `calibration`.
        kind: &'static str,
        /// What was offered.
        id: String,
        /// Its generation.
        offered: u64,
        /// The latest one stored.
        latest: u64,
    },
    /// A plan whose id does not belong to its content.
    #[error("cannot append plan {id}: its content has the fingerprint {content}")]
    Fingerprint {
        /// The id it carries.
        id: String,
        /// The id it should carry.
        content: String,
    },
    /// A value that would not be read back as it is: it holds a number that is not finite, or one too large to keep.
    #[error("cannot append {kind} {object}: it holds a number that cannot be kept ({detail})")]
    Number {
        /// The kind of value.
        kind: &'static str,
        /// Which one.
        object: String,
        /// The number, or where it was noticed.
        detail: String,
    },
    /// Text or an instant that would not come back as it is.
    #[error("cannot append {kind} {object}: {reason}")]
    Unkept {
        /// The kind of value.
        kind: &'static str,
        /// Which one.
        object: String,
        /// Why it cannot be kept.
        reason: String,
    },
    /// A server that keeps the history refused, failed or cannot be reached.
    #[error("the store {location} could not {operation} {object}: {detail}")]
    Server {
        /// Its address, without secrets.
        location: String,
        /// What was done.
        operation: &'static str,
        /// To what.
        object: String,
        /// What it said.
        detail: String,
    },
    /// The server that keeps the history cannot be reached, or refuses the token: what is appended waits in the local queue, and what is asked has
    /// no answer for now.
    #[error("the store {location} is away: {reason}; {waiting} points wait in the local queue")]
    Away {
        /// Its address, without secrets.
        location: String,
        /// What happened.
        reason: String,
        /// Points that wait to be sent.
        waiting: u64,
    },
    /// A file of an export that cannot be made.
    #[error("cannot export to {path}: {detail}", path = path.display())]
    Export {
        /// The file.
        path: PathBuf,
        /// Why.
        detail: String,
    },
    /// The store's thread is gone, after a panic.
    #[error("the store {location} is closed: the thread that serves it has ended; restart turnaround")]
    Closed {
        /// The file.
        location: String,
    },
}

/// Says what was done, to what, when `SQLite` fails; damage gets its remedy.
pub(crate) fn refused<T: Into<String>>(
    connection: &rusqlite::Connection,
    operation: &'static str,
    object: T,
) -> impl FnOnce(rusqlite::Error) -> StoreError + use<T> {
    let (location, object) = (location(connection), object.into());
    move |source| from_sqlite(location, operation, object, source)
}

/// The file of a connection, for messages.
pub(crate) fn location(connection: &rusqlite::Connection) -> String {
    connection.path().filter(|path| !path.is_empty()).unwrap_or("in memory").to_owned()
}

pub(crate) fn from_sqlite(location: String, operation: &'static str, object: String, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match source.sqlite_error_code() {
        Some(DatabaseCorrupt | NotADatabase) => StoreError::Damaged { location, operation, object, detail: source.to_string() },
        _ => StoreError::Refused { location, operation, object, source: Box::new(source) },
    }
}
