//! A table as comma-separated values.

use super::Sheet;
use super::table::{Cell, Column};
use csv::Writer;
use std::fs::File;

pub(super) struct Csv(Writer<File>);

impl Csv {
    pub(super) fn begin(file: File, columns: &[Column]) -> Result<Self, String> {
        let mut writer = Writer::from_writer(file);
        writer.write_record(columns.iter().map(|column| column.name)).map_err(|error| error.to_string())?;
        Ok(Self(writer))
    }
}

impl Sheet for Csv {
    fn write(&mut self, rows: &[Vec<Cell>]) -> Result<(), String> {
        rows.iter().try_for_each(|row| self.0.write_record(row.iter().map(text))).map_err(|error| error.to_string())
    }

    fn finish(self: Box<Self>) -> Result<File, String> {
        self.0.into_inner().map_err(|error| error.to_string())
    }
}

fn text(cell: &Cell) -> String {
    match cell {
        Cell::Missing => String::new(),
        Cell::Text(text) => text.clone(),
        Cell::Instant(at) => at.to_string(),
        Cell::Integer(integer) => integer.to_string(),
        // The shortest text that reads back as the same number, with an exponent where that is shorter.
        Cell::Number(number) => format!("{number:?}"),
        Cell::Flag(flag) => flag.to_string(),
    }
}
