//! Traces as history: looked through first, moved where they are wanted, then written window by window.

use crate::import_mark::{Mark, Moved, Turn, name_of_file};
use crate::{Failure, interrupt::Interrupt, traces::MONDAY};
use datasets::{DatasetError, DemandOptions, Format, Gather, GatherOptions, Gathered, Record};
use fleet::{Span, Timestamp, WorkloadId, WorkloadWindow};
use std::path::{Path, PathBuf};
use store::{Batch, Store, wait};

/// Windows written at a time, with the mark that says so.
const BATCH_WINDOWS: usize = 500;
/// A week: recordings are moved by whole ones, so that hours and weekdays stay.
const WEEK_S: i64 = 7 * 86_400;

/// How traces become windows.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub service: WorkloadId,
    pub length: Span,
    pub scale: f64,
    /// Longest idle pause, where it is not the format's.
    pub silence_max: Option<Span>,
    pub reading: DemandOptions,
}

/// Where a recording is put in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// At its own dates.
    Own,
    /// It begins then.
    Start(Timestamp),
    /// It ends now: moved by whole weeks, and what would lie ahead of now comes before its beginning, whole weeks earlier.
    EndNow,
}

/// One file or folder, looked through.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub path: PathBuf,
    pub format: Format,
    /// Whether it carries dates.
    pub dated: bool,
    /// Name of its mark.
    pub name: String,
    /// What is in it, at its own time; a trace without dates counts from a Monday.
    pub seen: Gathered,
}

/// What became of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Windows kept now, of this import.
    pub kept: u64,
    /// Of these, written by this run.
    pub new: u64,
    /// All are kept.
    pub complete: bool,
}

impl Setup {
    fn gather(&self, format: Format, shift: Span) -> Result<Gather, DatasetError> {
        // Counts say themselves what they cover.
        let silence_max = format.describe().silence_max.map(|usual| self.silence_max.unwrap_or(usual));
        Gather::new(GatherOptions { workload: self.service.clone(), length: self.length, scale: self.scale, shift, silence_max })
    }

    /// Everything that makes other windows of the same file.
    fn how(&self, format: Format) -> String {
        let Self { length, scale, silence_max, reading, .. } = self;
        format!("{} {} {scale} {silence_max:?} {:?} {:?}", format.name(), length.0, reading.mapping, reading.model)
    }

    fn records(&self, path: &Path, format: Format) -> Result<datasets::Demand, DatasetError> {
        datasets::read_demand(path, format, &self.reading)
    }

    /// Looks through a file: whether it is whole, and what is in it. Nothing when interrupted.
    pub fn look(&self, path: &Path, format: Option<Format>, interrupt: &Interrupt) -> Result<Option<Part>, Failure> {
        let format = format.map_or_else(|| Format::detect(path), Ok)?;
        let mut gather = self.gather(format, Span::ZERO)?;
        for record in self.records(path, format)? {
            if interrupt.is_asked() {
                return Ok(None);
            }
            gather.take(&record?);
        }
        gather.finish();
        let dated = datasets::is_dated(path, format, &self.reading)?;
        let name = name_of_file(path, &self.service, &self.how(format))?;
        Ok(Some(Part { path: path.to_owned(), format, dated, name, seen: gather.told() }))
    }

    /// Writes the windows of a part, those not yet kept, and marks how far it came with each batch.
    pub fn write(&self, store: &Store, part: &Part, from: &Mark, interrupt: &Interrupt, progress: impl Fn(u64)) -> Result<Written, Failure> {
        let (mut mark, mut batch) = (from.clone(), Vec::new());
        let mut skipped = 0;
        let mut gather = self.gather(part.format, from.moved.by)?;
        let records: Box<dyn Iterator<Item = Option<Result<Record, DatasetError>>>> =
            Box::new(self.records(&part.path, part.format)?.map(Some).chain(std::iter::once(None)));
        for record in records {
            if interrupt.is_asked() {
                keep(store, &part.name, &mut mark, &mut batch)?;
                return Ok(written(from, &mark));
            }
            let windows = match record {
                Some(record) => gather.take(&record?),
                None => gather.finish(),
            };
            for window in windows {
                if skipped < from.written {
                    skipped += 1;
                    continue;
                }
                batch.push(WorkloadWindow { start: from.moved.start(window.start), ..window });
                if batch.len() >= BATCH_WINDOWS {
                    keep(store, &part.name, &mut mark, &mut batch)?;
                    progress(mark.written);
                }
            }
        }
        mark.complete = true;
        keep(store, &part.name, &mut mark, &mut batch)?;
        progress(mark.written);
        Ok(written(from, &mark))
    }
}

fn written(from: &Mark, mark: &Mark) -> Written {
    Written { kept: mark.written, new: mark.written - from.written, complete: mark.complete }
}

/// Windows and the mark that counts them: both, or neither.
fn keep(store: &Store, name: &str, mark: &mut Mark, batch: &mut Vec<WorkloadWindow>) -> Result<(), Failure> {
    mark.written += u64::try_from(batch.len()).unwrap_or(0);
    let snapshots = vec![(name.to_owned(), serde_json::to_vec(mark)?)];
    wait(store.append(Batch { windows: std::mem::take(batch), snapshots, ..Batch::default() }))?;
    Ok(())
}

/// Where all parts are put together, so that the first begins, or the last ends, where it is wanted.
pub(crate) fn shift(parts: &[Part], place: Place, length: Span, now: Timestamp) -> Result<Moved, Failure> {
    let first = parts.iter().filter_map(|p| p.seen.first).min();
    let last = parts.iter().filter_map(|p| p.seen.last).max();
    let (Some(first), Some(last)) = (first, last) else { return Ok(Moved::default()) };
    let undated = parts.iter().find(|p| !p.dated);
    let moved = match (place, undated) {
        (Place::Own, Some(part)) => {
            return Err(Failure::usage(
                format!("{} carries no dates", part.path.display()),
                "say when it began with --start 2026-11-02T00:00:00Z, or move it by whole weeks so that it ends now with --align now",
            ));
        }
        (Place::Own, None) => Moved::default(),
        // Time zero of a trace without dates is where it starts, even when nothing happens for a while.
        (Place::Start(at), _) => Moved::by(Span(at.0 - if undated.is_some() { MONDAY.0 } else { first.0 })),
        (Place::EndNow, _) => {
            let turn = Turn { at: now.floor(length), back: weeks(last.since(first.floor(length))) };
            return Ok(Moved { by: Span(weeks(Span(turn.at.0 - last.0)).0), turn: Some(turn) });
        }
    };
    let end = last + moved.by;
    if end > now {
        return Err(Failure::usage(format!("it would end at {end}, which is still to come"), "choose an earlier --start, or --align now"));
    }
    Ok(moved)
}

/// The fewest whole weeks that are no less.
fn weeks(span: Span) -> Span {
    Span((span.0 + WEEK_S - 1).div_euclid(WEEK_S) * WEEK_S)
}

/// Parts must not fill the same windows: the later would replace the earlier.
pub(crate) fn apart(parts: &[Part], length: Span, moved: Moved) -> Result<(), Failure> {
    let mut spans: Vec<(Timestamp, Timestamp, &Part)> =
        parts.iter().filter_map(|p| Some(((p.seen.first? + moved.by).floor(length), p.seen.last? + moved.by, p))).collect();
    spans.sort_by_key(|(first, last, _)| (*first, *last));
    for pair in spans.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Err(Failure::with_help(
                format!("{} and {} cover the same time", pair[0].2.path.display(), pair[1].2.path.display()),
                "traces of different services go to different --service names; parts of one log that meet within a window must be joined into one file first",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "import_trace_tests.rs"]
mod tests;
