//! A table as Parquet: one column chunk a column and group, compressed by zstd.

use super::Sheet;
use super::table::{Cell, Column, Kind};
use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type},
    errors::ParquetError,
    file::{
        properties::WriterProperties,
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    schema::parser::parse_message_type,
};
use std::{fmt::Write as _, fs::File, sync::Arc};

pub(super) struct Parquet {
    writer: SerializedFileWriter<File>,
    columns: &'static [Column],
}

impl Parquet {
    pub(super) fn begin(file: File, columns: &'static [Column]) -> Result<Self, String> {
        let begin = || {
            let schema = Arc::new(parse_message_type(&schema(columns))?);
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .set_created_by(format!("turnaround {}", env!("CARGO_PKG_VERSION")))
                .build();
            SerializedFileWriter::new(file, schema, Arc::new(properties))
        };
        begin().map(|writer| Self { writer, columns }).map_err(|error: ParquetError| error.to_string())
    }

    fn group(&mut self, rows: &[Vec<Cell>]) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for (index, column) in self.columns.iter().enumerate() {
            let Some(mut writer) = group.next_column()? else { break };
            let cells = || rows.iter().map(|row| &row[index]);
            let levels: Vec<i16> = if column.optional { cells().map(|cell| i16::from(*cell != Cell::Missing)).collect() } else { Vec::new() };
            put(&mut writer, column, cells(), column.optional.then_some(levels.as_slice()))?;
            writer.close()?;
        }
        group.close()?;
        Ok(())
    }
}

impl Sheet for Parquet {
    fn write(&mut self, rows: &[Vec<Cell>]) -> Result<(), String> {
        self.group(rows).map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>) -> Result<File, String> {
        self.writer.into_inner().map_err(|error| error.to_string())
    }
}

/// Milliseconds are the coarsest unit Parquet has for instants.
fn schema(columns: &[Column]) -> String {
    let mut text = "message history {".to_owned();
    for Column { name, kind, optional } in columns {
        let rule = if *optional { "OPTIONAL" } else { "REQUIRED" };
        let (physical, logical) = match kind {
            Kind::Text => ("BYTE_ARRAY", " (STRING)"),
            Kind::Instant => ("INT64", " (TIMESTAMP(MILLIS,true))"),
            Kind::Integer => ("INT64", ""),
            Kind::Number => ("DOUBLE", ""),
            Kind::Flag => ("BOOLEAN", ""),
        };
        // Writing to a text cannot fail.
        let _ = write!(text, "{rule} {physical} {name}{logical};");
    }
    text + "}"
}

/// The cells that are there; levels say which (1) and which are missing (0).
fn put<'a>(
    writer: &mut SerializedColumnWriter<'_>,
    column: &Column,
    cells: impl Iterator<Item = &'a Cell>,
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    match column.kind {
        Kind::Text => {
            all::<ByteArrayType>(writer, levels, cells.filter_map(|cell| if let Cell::Text(v) = cell { Some(ByteArray::from(v.as_str())) } else { None }))
        }
        Kind::Instant => {
            all::<Int64Type>(writer, levels, cells.filter_map(|cell| if let Cell::Instant(v) = cell { Some(v.0.saturating_mul(1_000)) } else { None }))
        }
        Kind::Integer => all::<Int64Type>(writer, levels, cells.filter_map(|cell| if let Cell::Integer(v) = cell { Some(*v) } else { None })),
        Kind::Number => all::<DoubleType>(writer, levels, cells.filter_map(|cell| if let Cell::Number(v) = cell { Some(*v) } else { None })),
        Kind::Flag => all::<BoolType>(writer, levels, cells.filter_map(|cell| if let Cell::Flag(v) = cell { Some(*v) } else { None })),
    }
}

fn all<T: DataType>(writer: &mut SerializedColumnWriter<'_>, levels: Option<&[i16]>, values: impl Iterator<Item = T::T>) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(&values.collect::<Vec<_>>(), levels, None).map(|_| ())
}
