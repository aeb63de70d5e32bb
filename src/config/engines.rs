//! `[[engine]]`: tables of names that a file adds to those known.

use crate::{
    error::{Code, Findings},
    metric_names::agrees,
    typed,
    written::At,
};
use fleet::{EngineTable, Made, Signal};
use std::ops::Range;

/// The file's own engines, each of a name of its own, with rows whose names agree with their signals.
pub(crate) fn resolve(file: &typed::File, findings: &mut Findings<'_>) -> Vec<EngineTable> {
    let mut tables: Vec<EngineTable> = Vec::new();
    for table in &file.engine {
        let engine = table.get();
        // Names are looked at one by one first: each has a place of its own.
        let agree: Vec<bool> = engine.signals.iter().map(|row| row.names.iter().all(|spelling| sound(row.signal, &spelling.made(), table, findings))).collect();
        if !agree.into_iter().all(|agrees| agrees) {
            continue;
        }
        if let Err(error) = engine.validate() {
            let help = "`turnaround schema config` describes every key of [[engine]]";
            findings.refuse(Code::Metric, table.span(), error.to_string(), "cannot be used", help);
        } else if tables.iter().any(|other| other.name == engine.name) {
            findings.duplicate(findings.place_of(table.span(), &engine.name), "engine", &engine.name);
        } else {
            tables.push(engine.clone());
        }
    }
    tables
}

/// Whether the names of one spelling agree with the signal in kind, and in unit where no factor is given.
fn sound(signal: Signal, made: &Made, table: &At<EngineTable>, findings: &mut Findings<'_>) -> bool {
    let names = made.sum.iter().chain(&made.less);
    let scaled = made.scale.map(|_| signal.unit());
    // What the table says of the kind outweighs the name, unless it says that a total is a level.
    if made.typed.is_some() || !made.events.is_empty() {
        return true;
    }
    names.fold(true, |sound, name| {
        let place: Range<usize> = findings.place_of(table.span(), name);
        agrees(signal, name, scaled, place, findings) && sound
    })
}
