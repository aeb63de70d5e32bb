//! Tables in Parquet, read by the same mapping as CSV. Row groups are read one after another; no more than one is held.

use crate::demand::{Demand, DemandOptions, NotEmpty, Record};
use crate::rows::{Line, Row};
use crate::table::Table;
use crate::{DatasetError, Format};
use fleet::Timestamp;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use parquet::record::Field;
use parquet::record::reader::RowIter;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// First bytes of a Parquet file.
pub(crate) const MAGIC: &[u8; 4] = b"PAR1";
/// Largest Parquet file read from bytes rather than from a file, which must be held whole.
const BYTES_MAX: u64 = 64 << 20;

/// Reads a file.
pub(crate) fn open(path: &Path, options: &DemandOptions) -> Result<Demand, DatasetError> {
    let file = File::open(path).map_err(|source| DatasetError::Read { path: path.to_owned(), source })?;
    records(file, path, options)
}

/// Reads bytes.
pub(crate) fn from_bytes(bytes: impl Read, name: &Path, options: &DemandOptions) -> Result<Demand, DatasetError> {
    let mut content = Vec::new();
    bytes.take(BYTES_MAX).read_to_end(&mut content).map_err(|source| DatasetError::Read { path: name.to_owned(), source })?;
    records(bytes::Bytes::from(content), name, options)
}

fn records(content: impl ChunkReader + 'static, path: &Path, options: &DemandOptions) -> Result<Demand, DatasetError> {
    let refuse = |error: parquet::errors::ParquetError| damaged(path, &error);
    let reader = SerializedFileReader::new(content).map_err(refuse)?;
    let columns: Vec<String> = reader.metadata().file_metadata().schema().get_fields().iter().map(|f| f.name().to_owned()).collect();
    let header = Row::new(Line::new(path, 0, ""), columns.iter().map(|c| Cow::Borrowed(c.as_str())).collect());
    let table = Table::new(&header, &options.mapping, options.origin)?;
    let rows = RowIter::from_file_into(Box::new(reader));
    let records = Rows { path: path.to_owned(), source: rows, table, number: 0, over: false, model: options.model.clone() };
    Ok(Box::new(NotEmpty::new(path, records)))
}

fn damaged(path: &Path, error: &parquet::errors::ParquetError) -> DatasetError {
    DatasetError::Format {
        path: path.to_owned(),
        problem: format!("is not a readable Parquet file: {error}"),
        remedy: "write it again, compressed with Snappy, Zstandard or not at all".into(),
    }
}

/// The names of a file's columns.
pub(crate) fn columns(path: &Path) -> Result<Vec<String>, DatasetError> {
    let file = File::open(path).map_err(|source| DatasetError::Read { path: path.to_owned(), source })?;
    let reader = SerializedFileReader::new(file).map_err(|error| damaged(path, &error))?;
    Ok(reader.metadata().file_metadata().schema().get_fields().iter().map(|f| f.name().to_owned()).collect())
}

struct Rows {
    path: PathBuf,
    source: RowIter<'static>,
    table: Table,
    number: u64,
    over: bool,
    model: Option<String>,
}

impl Rows {
    fn advance(&mut self) -> Result<Option<Record>, DatasetError> {
        for row in self.source.by_ref() {
            self.number += 1;
            let row = row.map_err(|error| damaged(&self.path, &error))?;
            let fields = row.get_column_iter().map(|(_, field)| text(field)).collect();
            let record = self.table.record(&Row::new(Line::new(&self.path, self.number, ""), fields))?;
            let wanted = record.filter(|r| self.model.as_deref().is_none_or(|model| r.model().is_none_or(|m| m == model)));
            if wanted.is_some() {
                return Ok(wanted);
            }
        }
        Ok(None)
    }
}

impl Iterator for Rows {
    type Item = Result<Record, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.advance().transpose();
        self.over = !matches!(item, Some(Ok(_)));
        item
    }
}

/// A cell as a CSV file would have it. Nested values have no text and so are never taken for numbers.
fn text(field: &Field) -> Cow<'_, str> {
    match field {
        Field::Str(text) => Cow::Borrowed(text),
        Field::Bool(b) => Cow::Owned(b.to_string()),
        Field::Byte(n) => Cow::Owned(n.to_string()),
        Field::Short(n) => Cow::Owned(n.to_string()),
        Field::Int(n) => Cow::Owned(n.to_string()),
        Field::Long(n) => Cow::Owned(n.to_string()),
        Field::UByte(n) => Cow::Owned(n.to_string()),
        Field::UShort(n) => Cow::Owned(n.to_string()),
        Field::UInt(n) => Cow::Owned(n.to_string()),
        Field::ULong(n) => Cow::Owned(n.to_string()),
        Field::Float(x) => Cow::Owned(x.to_string()),
        Field::Double(x) => Cow::Owned(x.to_string()),
        Field::TimestampMillis(n) => Cow::Owned(instant(n.div_euclid(1_000), n.rem_euclid(1_000) * 1_000)),
        Field::TimestampMicros(n) => Cow::Owned(instant(n.div_euclid(1_000_000), n.rem_euclid(1_000_000))),
        _ => Cow::Borrowed(""),
    }
}

fn instant(second: i64, micros: i64) -> String {
    let whole = Timestamp(second).to_string();
    whole.strip_suffix('Z').map_or_else(|| whole.clone(), |whole| format!("{whole}.{micros:06}Z"))
}

/// Whether a file is Parquet that can be read without a mapping.
pub(crate) fn is_readable(path: &Path) -> Result<Format, DatasetError> {
    columns(path).map(|_| Format::Parquet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    fn file() -> Vec<u8> {
        let schema = "message t { required int64 created_at (TIMESTAMP(MILLIS, true)); optional int32 prompt_tokens; required binary model (UTF8); }";
        let properties = WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY).build();
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, Arc::new(parse_message_type(schema).unwrap()), Arc::new(properties)).unwrap();
        for group in 0..2 {
            let mut rows = writer.next_row_group().unwrap();
            let start = 1_767_225_600_000_i64 + group * 60_000;
            let mut column = rows.next_column().unwrap().unwrap();
            column.typed::<Int64Type>().write_batch(&[start, start + 1_500], None, None).unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            column.typed::<Int32Type>().write_batch(&[700], Some(&[1, 0]), None).unwrap();
            column.close().unwrap();
            let mut column = rows.next_column().unwrap().unwrap();
            column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("chat"), ByteArray::from("code")], None, None).unwrap();
            column.close().unwrap();
            rows.close().unwrap();
        }
        writer.close().unwrap();
        out
    }

    fn read(bytes: Vec<u8>, model: Option<&str>) -> Result<Vec<Record>, DatasetError> {
        let options = DemandOptions { model: model.map(str::to_owned), ..DemandOptions::default() };
        crate::read_demand_from(std::io::Cursor::new(bytes), Path::new("t.parquet"), Format::Parquet, &options)?.collect()
    }

    #[test]
    fn row_groups_are_read_in_order() {
        let records = read(file(), None).unwrap();
        let seen: Vec<(i64, Option<f64>, &str)> = records
            .iter()
            .map(|r| if let Record::Request(r) = r { (r.at.0 - 1_767_225_600, r.input_tokens, r.model.as_deref().unwrap()) } else { panic!("a count") })
            .collect();
        assert_eq!(seen, [(0, Some(700.0), "chat"), (1, None, "code"), (60, Some(700.0), "chat"), (61, None, "code")]);
        assert_eq!(read(file(), Some("code")).unwrap().len(), 2);
    }

    #[test]
    fn a_file_cut_short_is_refused_with_a_remedy() {
        let mut bytes = file();
        bytes.truncate(bytes.len() - 9);
        let message = read(bytes, None).unwrap_err().to_string();
        assert!(message.contains("t.parquet") && message.contains("write it again"), "{message}");
    }
}
