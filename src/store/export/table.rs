//! Flat tables: columns of one kind each, and the cells of a row.

use fleet::{Span, Timestamp};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Instant,
    Integer,
    Number,
    Flag,
}

/// One column.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(feature = "parquet"), expect(dead_code, reason = "CSV has neither kinds nor nulls"))]
pub(super) struct Column {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether cells may be missing.
    pub optional: bool,
}

impl Column {
    pub(super) const fn of(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, optional: false }
    }

    pub(super) const fn maybe(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, optional: true }
    }
}

/// One cell, of the kind of its column or missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Missing,
    Text(String),
    Instant(Timestamp),
    Integer(i64),
    Number(f64),
    Flag(bool),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Timestamp> for Cell {
    fn from(at: Timestamp) -> Self {
        Self::Instant(at)
    }
}

impl From<Span> for Cell {
    fn from(length: Span) -> Self {
        Self::Integer(length.0)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Integer(count.try_into().unwrap_or(i64::MAX))
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(cell: Option<T>) -> Self {
        cell.map_or(Self::Missing, Into::into)
    }
}
