//! What can be wrong with a data set.

use std::path::PathBuf;

/// A data set that cannot be used. A damaged row is refused, never skipped: a trace with holes nobody knows of would be taken for demand.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// A file or folder that cannot be read or decompressed.
    #[error("{}: cannot be read: {source}; check that it is there and complete (a .gz file that was cut short ends here)", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A row that is not what its format says.
    #[error("{}:{line}: {value:?} is not {expected}; mend the row or fetch the file again", path.display())]
    Row {
        /// Which file.
        path: PathBuf,
        /// Line, from 1; in files without lines, the row.
        line: u64,
        /// What stands there.
        value: String,
        /// What should stand there.
        expected: String,
    },
    /// Nothing to read where something must be.
    #[error("{}: holds no {what}; point to the folder or file that does", path.display())]
    Empty {
        /// Where.
        path: PathBuf,
        /// What was looked for.
        what: String,
    },
    /// Files of one set that do not belong together.
    #[error("{}: has {found} windows, the others have {expected}; all clients of a folder must cover the same time", path.display())]
    Length {
        /// The file that differs.
        path: PathBuf,
        /// Its rows.
        found: usize,
        /// Rows of the first file.
        expected: usize,
    },
    /// A file whose format is not recognised, or is not of the kind that is asked for.
    #[error("{}: {problem}; {remedy}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// A mapping of columns that cannot be used.
    #[error("the mapping {text:?} cannot be used: {problem}; write it as time=COLUMN,in=COLUMN,out=COLUMN, see turnaround import --help")]
    Mapping {
        /// What was written.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// A length that makes no windows.
    #[error("windows of {0} cannot be made: take whole minutes up to a day, such as 5m")]
    Window(fleet::Span),
    /// A factor that scales nothing.
    #[error("requests cannot be scaled by {0}: take a number above zero, such as 0.5")]
    Scale(f64),
}
