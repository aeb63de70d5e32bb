//! What a trace of demand says: single requests, or counts of them per interval; and the one way to read any of them.

use crate::rows::{Lines, Parse, Records};
use crate::{DatasetError, Format, Mapping, azure, burstgpt, mooncake, parquet_table, sageserve, servegen, table};
use fleet::{Span, Timestamp};
use std::io::Read;
use std::path::{Path, PathBuf};

/// How far a row may lie behind a later one. Gateways log a request when it ends, so their logs are out of order by as long as requests last.
pub(crate) const LATE_MAX: Span = Span::HOUR;

/// One request of a trace. What the trace does not say is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Second it arrived in.
    pub at: Timestamp,
    /// Part of that second that had passed, 0..1.
    pub fraction: f64,
    /// Prompt tokens.
    pub input_tokens: Option<f64>,
    /// Generated tokens.
    pub output_tokens: Option<f64>,
    /// Prompt tokens that a prefix cache could have answered.
    pub cached_tokens: Option<f64>,
    /// The model, or the workload, it went to.
    pub model: Option<String>,
}

impl Request {
    /// A request of which nothing but its arrival is known.
    #[must_use]
    pub fn at(at: Timestamp, fraction: f64) -> Self {
        Self { at, fraction, input_tokens: None, output_tokens: None, cached_tokens: None, model: None }
    }
}

/// An interval with so many requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// Its start.
    pub start: Timestamp,
    /// Its length.
    pub length: Span,
    /// Requests that arrived in it.
    pub requests: f64,
    /// Mean prompt tokens of one.
    pub input_tokens: Option<f64>,
    /// Mean generated tokens of one.
    pub output_tokens: Option<f64>,
    /// The model, or the workload, they went to.
    pub model: Option<String>,
}

/// What one row of a trace says.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// One request.
    Request(Request),
    /// So many of them.
    Count(Count),
}

impl Record {
    /// The second it is of.
    #[must_use]
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Request(request) => request.at,
            Self::Count(count) => count.start,
        }
    }

    /// The model it went to, where the trace tells.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        match self {
            Self::Request(request) => request.model.as_deref(),
            Self::Count(count) => count.model.as_deref(),
        }
    }
}

/// How a trace of demand is read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DemandOptions {
    /// Where a trace begins that carries no dates.
    pub origin: Timestamp,
    /// Which column is which, for [`Format::Csv`] and [`Format::Parquet`]; guessed from the names where nothing is written.
    pub mapping: Mapping,
    /// Only this model. The columns of a [`Format::SageServe`] table are models; there it must be given.
    pub model: Option<String>,
    /// Token means beside a folder of [`Format::ServeGen`] traces.
    pub token_means: Option<PathBuf>,
}

/// The records of a trace, one at a time, in order of time up to an hour of lateness. It ends with the first fault.
pub type Demand = Box<dyn Iterator<Item = Result<Record, DatasetError>> + Send>;

/// Reads a trace of demand. Whatever the size of the file, a bounded part of it is held (of `ServeGen` folders: one number a window).
///
/// # Errors
/// When the file cannot be opened, is not a trace of demand, or does not fit the options. Faults further on come with the records.
pub fn read_demand(path: &Path, format: Format, options: &DemandOptions) -> Result<Demand, DatasetError> {
    match format {
        Format::ServeGen => servegen::counts(path, options),
        Format::Parquet => parquet_table::open(path, options),
        _ => of_lines(Lines::open(path)?, path, format, options),
    }
}

/// Reads a trace of demand from bytes; `name` stands for the file in messages. `ServeGen` is a folder and has no such form.
///
/// # Errors
/// As [`read_demand`].
pub fn read_demand_from(bytes: impl Read + Send + 'static, name: &Path, format: Format, options: &DemandOptions) -> Result<Demand, DatasetError> {
    match format {
        Format::Parquet => parquet_table::from_bytes(bytes, name, options),
        _ => of_lines(Lines::new(name, bytes)?, name, format, options),
    }
}

fn of_lines(lines: Lines, path: &Path, format: Format, options: &DemandOptions) -> Result<Demand, DatasetError> {
    let parse = match format {
        Format::AzureLlm2023 => azure::parse_2023(),
        Format::AzureLlm2024 => azure::parse_2024(),
        Format::BurstGpt => burstgpt::parse(options.origin),
        Format::Mooncake => mooncake::parse(options.origin),
        Format::SageServe => sageserve::parse(options.origin, options.model.clone()),
        Format::Csv => table::parse(&options.mapping, options.origin),
        other => return Err(other.not_of(path, "a trace of requests", "turnaround import takes request traces; job traces feed the simulator")),
    };
    let chosen = options.model.clone();
    // The empty file is a fault too: nothing is not a trace.
    Ok(Box::new(NotEmpty::new(path, Records::new(lines, only(chosen, parse)))))
}

/// Leaves out what went to other models.
fn only(model: Option<String>, mut parse: Parse<Record>) -> Parse<Record> {
    match model {
        None => parse,
        Some(model) => Box::new(move |line| Ok(parse(line)?.filter(|record| record.model().is_none_or(|m| m == model)))),
    }
}

/// Records of which there must be one.
pub(crate) struct NotEmpty<I> {
    path: PathBuf,
    records: I,
    any: bool,
    over: bool,
}

impl<I> NotEmpty<I> {
    pub fn new(path: &Path, records: I) -> Self {
        Self { path: path.to_owned(), records, any: false, over: false }
    }
}

impl<T, I: Iterator<Item = Result<T, DatasetError>>> Iterator for NotEmpty<I> {
    type Item = Result<T, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let item = self.records.next();
        self.over = item.is_none();
        if item.is_none() && !self.any {
            return Some(Err(DatasetError::Empty { path: self.path.clone(), what: "records (or none of the model that is asked for)".into() }));
        }
        self.any = true;
        item
    }
}

/// Keeps rows in order of time, up to [`LATE_MAX`] of lateness or none at all.
pub(crate) struct Order {
    newest: Option<(Timestamp, f64)>,
    late_max: Span,
}

impl Order {
    /// Rows come in order.
    pub fn strict() -> Self {
        Self { newest: None, late_max: Span::ZERO }
    }

    /// Rows may be late.
    pub fn lenient() -> Self {
        Self { newest: None, late_max: LATE_MAX }
    }

    /// Whether a row of that instant may come now.
    pub fn admits(&mut self, at: (Timestamp, f64)) -> bool {
        let Some(newest) = self.newest else {
            self.newest = Some(at);
            return true;
        };
        let admitted = if self.late_max == Span::ZERO { at >= newest } else { newest.0.since(at.0) <= self.late_max };
        self.newest = Some(if at > newest { at } else { newest });
        admitted
    }
}

/// What is wrong with a row out of order.
pub(crate) const OUT_OF_ORDER: &str =
    "at or after the rows before it (an hour of lateness is taken where logs are written at the end of a request): sort the file by time";

/// Whether a trace carries dates. One that does not moves with its origin.
///
/// # Errors
/// As [`read_demand`], and when its first record is damaged.
pub fn is_dated(path: &Path, format: Format, options: &DemandOptions) -> Result<bool, DatasetError> {
    if let Some(dated) = format.describe().dated {
        return Ok(dated);
    }
    let first = |origin: Timestamp| {
        let options = DemandOptions { origin, ..options.clone() };
        read_demand(path, format, &options)?.next().transpose()
    };
    let (here, there) = (first(Timestamp(0))?, first(Timestamp(Span::DAY.0))?);
    Ok(here.map(|r| r.at()) == there.map(|r| r.at()))
}
