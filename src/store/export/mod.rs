//! Copies parts of the history into flat files that other programs read: Parquet, or CSV.
//!
//! Whatever keeps the history, it is read piece by piece and written in groups of at most [`GROUP_ROWS_MAX`] rows, so that memory stays bounded.
//! The file appears under its name when it is whole; until then it is `NAME.partial`. Instants are UTC; what is missing is null in Parquet and
//! empty in CSV.

mod csv;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
mod table;
#[cfg(test)]
mod tests;

use crate::{Resolution, Store, StoreError};
use fleet::{Span, Timestamp};
use std::{
    fs::File,
    path::{Path, PathBuf},
};
use table::{Cell, Column};

/// Rows of one group: about 16 MB while it is made.
const GROUP_ROWS_MAX: usize = 1 << 16;

/// The longest span exported at once: it is walked through piece by piece, an hour or a day at a time.
const SPAN_MAX: Span = Span::hours(24 * 365 * 30);

/// What to export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Observations, or what they sum up to, series by series. Raw: `source, member, signal, part, observed, received, value`; summed up:
    /// `source, member, signal, part, start, length_s, count, mean, min, max, last`.
    Observations(Resolution),
    /// Windows, one a row. Replicas are added up over variants.
    Windows,
    /// Forecasts, one row a step and quantile level.
    Forecasts,
    /// What came of plans for services, one row a service and window.
    Outcomes,
    /// Jobs in the windows of outcomes, one row a job and window.
    Jobs,
    /// Cold starts seen, one a row.
    Starts,
}

/// How to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet, compressed by zstd.
    #[cfg(feature = "parquet")]
    Parquet,
    /// Comma-separated values (RFC 4180) with a head; instants as RFC 3339.
    Csv,
}

/// One export: what, of when, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// What.
    pub what: What,
    /// How it is written.
    pub format: Format,
    /// First instant in it. Observations count by the instant observed, forecasts by their origin, the others by their start.
    pub from: Timestamp,
    /// First instant not in it any more.
    pub to: Timestamp,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exported {
    /// Rows, the head not counted.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Writes one kind of rows to one kind of file.
trait Sheet {
    /// One group of rows, each as long as the columns.
    fn write(&mut self, rows: &[Vec<Cell>]) -> Result<(), String>;

    /// Ends the file and gives it back, all of it handed to the system.
    fn finish(self: Box<Self>) -> Result<File, String>;
}

/// Exports to a file, replacing one that is there once the new one is whole. `told` learns the rows written so far, now and then.
///
/// Blocks: not for code inside an async runtime.
///
/// # Errors
/// When the store cannot be read, the span is longer than thirty years, or the file cannot be written; then nothing lies under its name that
/// did not before.
pub fn export(store: &Store, wanted: Export, path: &Path, told: &mut dyn FnMut(u64)) -> Result<Exported, StoreError> {
    let Export { from, to, .. } = wanted;
    let failed = |detail: String| StoreError::Export { path: path.to_owned(), detail };
    if to.0.checked_sub(from.0).is_none_or(|length| length > SPAN_MAX.0) {
        return Err(failed(format!("the span from {from} to {to} is longer than thirty years; name a shorter one")));
    }
    let partial = partial(path);
    let file = File::create(&partial).map_err(|error| failed(error.to_string()))?;
    let written = write(store, wanted, file, told, &failed).and_then(|exported| {
        std::fs::rename(&partial, path).map_err(|error| failed(error.to_string()))?;
        Ok(exported)
    });
    if written.is_err() {
        // What is half written is of no use; when it cannot be removed either, the error that led here says why.
        let _ = std::fs::remove_file(&partial);
    }
    written
}

fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}

fn write(store: &Store, wanted: Export, file: File, told: &mut dyn FnMut(u64), failed: &dyn Fn(String) -> StoreError) -> Result<Exported, StoreError> {
    let Export { what, format, from, to } = wanted;
    let mut sheet = sheet(format, file, rows::columns(what)).map_err(failed)?;
    let (mut group, mut rows) = (Vec::new(), 0);
    rows::each(store, what, from, to, &mut |row| {
        group.push(row);
        if group.len() == GROUP_ROWS_MAX {
            sheet.write(&group).map_err(failed)?;
            rows += group.len() as u64;
            group.clear();
            told(rows);
        }
        Ok(())
    })?;
    if !group.is_empty() {
        sheet.write(&group).map_err(failed)?;
    }
    rows += group.len() as u64;
    told(rows);
    let file = sheet.finish().map_err(failed)?;
    let bytes = file.sync_all().and_then(|()| file.metadata()).map_err(|error| failed(error.to_string()))?.len();
    Ok(Exported { rows, bytes })
}

fn sheet(format: Format, file: File, columns: &'static [Column]) -> Result<Box<dyn Sheet>, String> {
    Ok(match format {
        #[cfg(feature = "parquet")]
        Format::Parquet => Box::new(parquet::Parquet::begin(file, columns)?),
        Format::Csv => Box::new(csv::Csv::begin(file, columns)?),
    })
}
