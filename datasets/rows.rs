//! Files, compressed or not, row by row, with the place of every fault.

use crate::DatasetError;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// First bytes of a gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// One row with its place.
pub(crate) struct Row<'a> {
    path: &'a Path,
    /// Line in the file, from 1.
    pub line: u64,
    pub fields: Vec<String>,
}

impl Row<'_> {
    /// A fault at this row.
    pub fn refuse(&self, value: impl Into<String>, expected: impl Into<String>) -> DatasetError {
        DatasetError::Row { path: self.path.to_owned(), line: self.line, value: value.into(), expected: expected.into() }
    }

    /// Asks for so many fields.
    pub fn expect_fields(&self, count: usize) -> Result<(), DatasetError> {
        if self.fields.len() == count { Ok(()) } else { Err(self.refuse(self.fields.join(","), format!("a row of {count} fields"))) }
    }

    /// The field at `index`, as what it must be.
    pub fn parse<T: FromStr>(&self, index: usize, allowed: impl Fn(&T) -> bool, expected: &str) -> Result<T, DatasetError> {
        let text = self.fields.get(index).map_or("", String::as_str);
        text.parse().ok().filter(allowed).ok_or_else(|| self.refuse(text, expected))
    }
}

/// Calls `each` for every row of a CSV file without regard to a header.
pub(crate) fn for_each_row(path: &Path, mut each: impl FnMut(&Row) -> Result<(), DatasetError>) -> Result<(), DatasetError> {
    let read = |source| DatasetError::Read { path: path.to_owned(), source };
    let mut file = BufReader::new(File::open(path).map_err(read)?);
    let compressed = file.fill_buf().map_err(read)?.starts_with(&GZIP_MAGIC);
    let content: Box<dyn Read> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    // Neither format quotes anything. Lines are counted here since CSV readers are off by one where CR LF ends them.
    for (line, text) in (1..).zip(BufReader::new(content).lines()) {
        let text = text.map_err(read)?;
        each(&Row { path, line, fields: text.split(',').map(str::to_owned).collect() })?;
    }
    Ok(())
}

/// Files of a folder whose names `number` recognises, in the order of that number.
pub(crate) fn numbered_files(folder: &Path, number: impl Fn(&str) -> Option<u32>) -> Result<Vec<(u32, PathBuf)>, DatasetError> {
    let read = |source| DatasetError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        if let Some(n) = path.file_name().and_then(|name| name.to_str()).and_then(&number) {
            files.push((n, path));
        }
    }
    files.sort();
    Ok(files)
}
