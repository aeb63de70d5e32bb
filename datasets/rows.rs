//! Files, compressed or not, line by line and row by row, with the place of every fault.

use crate::DatasetError;
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// First bytes of a gzip file (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Longest line, in bytes. A prompt of a million tokens has 2,000 block ids of at most ten digits: 20 kB.
const LINE_BYTES_MAX: usize = 1 << 20;
/// What an error shows of a value.
const VALUE_CHARS_MAX: usize = 120;

/// One line with its place.
#[derive(Clone, Copy)]
pub(crate) struct Line<'a> {
    path: &'a Path,
    /// Line in the file, from 1.
    pub number: u64,
    pub text: &'a str,
}

impl<'a> Line<'a> {
    /// A line, or a row of a file that has no lines, with its place.
    pub fn new(path: &'a Path, number: u64, text: &'a str) -> Self {
        Self { path, number, text }
    }

    /// A fault at this line.
    pub fn refuse(&self, value: impl AsRef<str>, expected: impl Into<String>) -> DatasetError {
        let value: String = value.as_ref().chars().take(VALUE_CHARS_MAX).collect();
        DatasetError::Row { path: self.path.to_owned(), line: self.number, value, expected: expected.into() }
    }

    /// Its fields, split at commas; quoted as RFC 4180 has it, but on one line.
    pub fn row(self) -> Result<Row<'a>, DatasetError> {
        self.split(',')
    }

    /// Its fields, split at `separator`.
    pub fn split(self, separator: char) -> Result<Row<'a>, DatasetError> {
        if !self.text.contains('"') {
            return Ok(Row { line: self, fields: self.text.split(separator).map(Cow::Borrowed).collect() });
        }
        let whole = || self.refuse(self.text, "a row whose quotes close on the same line");
        if self.text.bytes().filter(|b| *b == b'"').count() % 2 == 1 {
            return Err(whole());
        }
        let delimiter = u8::try_from(separator).unwrap_or(b',');
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(self.text.as_bytes());
        let mut record = csv::StringRecord::new();
        match reader.read_record(&mut record) {
            Ok(true) => Ok(Row { line: self, fields: record.iter().map(|f| Cow::Owned(f.to_owned())).collect() }),
            Ok(false) | Err(_) => Err(whole()),
        }
    }
}

/// One row with its place.
pub(crate) struct Row<'a> {
    line: Line<'a>,
    pub fields: Vec<Cow<'a, str>>,
}

impl<'a> Row<'a> {
    pub fn new(line: Line<'a>, fields: Vec<Cow<'a, str>>) -> Self {
        Self { line, fields }
    }

    /// A fault at this row.
    pub fn refuse(&self, value: impl AsRef<str>, expected: impl Into<String>) -> DatasetError {
        self.line.refuse(value, expected)
    }

    /// Asks for so many fields.
    pub fn expect_fields(&self, count: usize) -> Result<(), DatasetError> {
        if self.fields.len() == count { Ok(()) } else { Err(self.refuse(self.fields.join(","), format!("a row of {count} fields"))) }
    }

    /// The text of the field at `index`, nothing where it is not there.
    pub fn text(&self, index: usize) -> &str {
        self.fields.get(index).map_or("", |f| f.trim())
    }

    /// The field at `index`, as what it must be.
    pub fn parse<T: FromStr>(&self, index: usize, allowed: impl Fn(&T) -> bool, expected: &str) -> Result<T, DatasetError> {
        let text = self.text(index);
        text.parse().ok().filter(allowed).ok_or_else(|| self.refuse(text, expected))
    }

    /// The number at `index`, not negative.
    pub fn amount(&self, index: usize, expected: &str) -> Result<f64, DatasetError> {
        self.parse(index, |x: &f64| x.is_finite() && *x >= 0.0, expected)
    }

    /// The number at `index`, not negative, or nothing where the field is empty.
    pub fn amount_if_any(&self, index: usize, expected: &str) -> Result<Option<f64>, DatasetError> {
        if self.text(index).is_empty() { Ok(None) } else { self.amount(index, expected).map(Some) }
    }

    /// Where the columns of these names are, this row being the header.
    pub fn columns<const N: usize>(&self, names: [&str; N]) -> Result<[usize; N], DatasetError> {
        let mut found = [0; N];
        for (place, name) in found.iter_mut().zip(names) {
            *place = self.column(name).ok_or_else(|| self.refuse(self.fields.join(","), format!("a header with a column {name}")))?;
        }
        Ok(found)
    }

    /// Where the column of this name is, whatever its case.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|f| f.trim().eq_ignore_ascii_case(name))
    }
}

/// The lines of a file, one at a time: no more than one is held.
pub(crate) struct Lines {
    path: PathBuf,
    content: Box<dyn BufRead + Send>,
    number: u64,
    text: Vec<u8>,
}

impl Lines {
    /// Of a file, plain or gzipped.
    pub fn open(path: &Path) -> Result<Self, DatasetError> {
        let file = File::open(path).map_err(|source| DatasetError::Read { path: path.to_owned(), source })?;
        Self::new(path, file)
    }

    /// Of anything that gives bytes, plain or gzipped; `name` is for messages.
    pub fn new(name: &Path, bytes: impl Read + Send + 'static) -> Result<Self, DatasetError> {
        let mut bytes = BufReader::new(bytes);
        let compressed = bytes.fill_buf().map_err(|source| DatasetError::Read { path: name.to_owned(), source })?.starts_with(&GZIP_MAGIC);
        let content: Box<dyn BufRead + Send> = if compressed { Box::new(BufReader::new(MultiGzDecoder::new(bytes))) } else { Box::new(bytes) };
        Ok(Self { path: name.to_owned(), content, number: 0, text: Vec::new() })
    }

    /// The next line that holds anything, without its end; nothing at the end. A blank line holds no record. Lines are counted here since CSV
    /// readers are off by one where CR LF ends them.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, DatasetError> {
        loop {
            self.text.clear();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            let read = self.content.by_ref().take(limit).read_until(b'\n', &mut self.text);
            if read.map_err(|source| DatasetError::Read { path: self.path.clone(), source })? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if !self.text.trim_ascii().is_empty() {
                break;
            }
        }
        let place = Line { path: &self.path, number: self.number, text: "" };
        if self.text.len() >= LINE_BYTES_MAX && !self.text.ends_with(b"\n") {
            return Err(place.refuse(String::from_utf8_lossy(&self.text[..VALUE_CHARS_MAX]), format!("a line shorter than {LINE_BYTES_MAX} bytes")));
        }
        let text = match std::str::from_utf8(&self.text) {
            Ok(text) => text.trim_end_matches(['\r', '\n']),
            Err(_) => return Err(place.refuse(String::from_utf8_lossy(&self.text[..self.text.len().min(VALUE_CHARS_MAX)]), "UTF-8 text")),
        };
        let text = if self.number == 1 { text.trim_start_matches('\u{feff}') } else { text };
        Ok(Some(Line { path: &self.path, number: self.number, text }))
    }
}

/// What turns a line into a record; nothing for a header and for lines that hold none of what is asked for.
pub(crate) type Parse<T> = Box<dyn FnMut(Line<'_>) -> Result<Option<T>, DatasetError> + Send>;

/// The records of a file of lines, one at a time. It ends with the first fault.
pub(crate) struct Records<T> {
    lines: Lines,
    parse: Parse<T>,
    over: bool,
}

impl<T> Records<T> {
    pub fn new(lines: Lines, parse: Parse<T>) -> Self {
        Self { lines, parse, over: false }
    }

    fn advance(&mut self) -> Result<Option<T>, DatasetError> {
        while let Some(line) = self.lines.next()? {
            if let Some(record) = (self.parse)(line)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

impl<T> Iterator for Records<T> {
    type Item = Result<T, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.advance().transpose();
        self.over = !matches!(item, Some(Ok(_)));
        item
    }
}

/// Calls `each` for every row of a CSV file without regard to a header.
pub(crate) fn for_each_row(path: &Path, mut each: impl FnMut(&Row) -> Result<(), DatasetError>) -> Result<(), DatasetError> {
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next()? {
        each(&line.row()?)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: Vec<u8>) -> Result<Vec<(u64, String)>, DatasetError> {
        let mut lines = Lines::new(Path::new("t.csv"), std::io::Cursor::new(bytes))?;
        let mut out = Vec::new();
        while let Some(line) = lines.next()? {
            out.push((line.number, line.text.to_owned()));
        }
        Ok(out)
    }

    #[test]
    fn lines_are_numbered_as_an_editor_does() {
        let lines = all(b"\xef\xbb\xbfa\r\n\r\n\nb".to_vec()).unwrap();
        assert_eq!(lines, [(1, "a".to_owned()), (4, "b".to_owned())]);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_is_held() {
        let long = vec![b'x'; LINE_BYTES_MAX * 3];
        assert!(all(long).unwrap_err().to_string().contains("t.csv:1"));
        assert!(all(b"a\n\xff\xfe\n".to_vec()).unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn quoted_fields_keep_their_commas() {
        let line = Line::new(Path::new("t.csv"), 1, r#"a,"b, ""c""",d"#);
        assert_eq!(line.row().unwrap().fields, ["a", "b, \"c\"", "d"]);
        assert!(Line::new(Path::new("t.csv"), 7, r#"a,"b"#).row().is_err_and(|e| e.to_string().contains("t.csv:7")));
    }
}
