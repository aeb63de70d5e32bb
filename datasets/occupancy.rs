//! GPUs or nodes in use, minute by minute: the demand of a cluster of jobs as its scheduler saw it.

use crate::demand::Order;
use crate::rows::{Line, Lines, Row};
use crate::{Clock, DatasetError, Format, helios, philly};
use fleet::{Series, Span, Timestamp};
use std::path::Path;

/// Minutes of one file, at most: sixteen years.
const MINUTES_MAX: usize = 1 << 23;

/// What a cluster had in use. A minute without a row is a gap.
#[derive(Debug, Clone, PartialEq)]
pub struct Occupancy {
    /// GPUs (or nodes) with a running job.
    pub in_use: Series,
    /// GPUs that waiting jobs asked for, where the trace tells.
    pub waiting: Option<Series>,
    /// GPUs (or nodes) there were.
    pub total: Series,
}

/// Reads such a file: [`Format::HeliosClusters`] (GPUs) or [`Format::PhillyNodes`] (nodes).
///
/// # Errors
/// When it cannot be read, is of another kind, a row is damaged or out of order, or there is none.
pub fn read_occupancy(path: &Path, format: Format) -> Result<Occupancy, DatasetError> {
    let (names, zone): (&[&str], Span) = match format {
        Format::HeliosClusters => (&helios::CLUSTER_COLUMNS, helios::ZONE),
        Format::PhillyNodes => (&["time", "active", "total"], Span::ZERO),
        other => {
            return Err(other.not_of(path, "a table of GPUs in use", &format!("pass {} or {}", Format::HeliosClusters.name(), philly::NODE_COLUMNS.join(","))));
        }
    };
    let mut lines = Lines::open(path)?;
    let mut places: Option<Vec<usize>> = None;
    let (mut order, mut start, mut minutes) = (Order::strict(), None, Vec::<Option<Vec<f64>>>::new());
    while let Some(line) = lines.next()? {
        let row = line.row()?;
        let Some(places) = &places else {
            places = Some(find(&row, names)?);
            continue;
        };
        let (at, values) = read_row(&row, line, places, &mut order)?;
        let at = at - zone;
        let index = usize::try_from(at.since(*start.get_or_insert(at)).0 / Span::MINUTE.0).unwrap_or(usize::MAX);
        if index >= MINUTES_MAX {
            return Err(row.refuse(row.text(places[0]), format!("within {MINUTES_MAX} minutes of the first row")));
        }
        minutes.resize(minutes.len().max(index + 1), None);
        minutes[index] = Some(values);
    }
    let start = start.ok_or_else(|| DatasetError::Empty { path: path.to_owned(), what: "rows".into() })?;
    let series =
        |column: usize| Series { start, step: Span::MINUTE, values: minutes.iter().map(|m| m.as_ref().and_then(|m| m.get(column).copied())).collect() };
    let last = names.len() - 2;
    Ok(Occupancy { in_use: series(0), waiting: (last > 1).then(|| series(1)), total: series(last) })
}

fn find(header: &Row<'_>, names: &[&str]) -> Result<Vec<usize>, DatasetError> {
    let place = |name: &&str| header.column(name).ok_or_else(|| header.refuse(header.fields.join(","), format!("a header with a column {name}")));
    names.iter().map(place).collect()
}

fn read_row(row: &Row<'_>, line: Line<'_>, places: &[usize], order: &mut Order) -> Result<(Timestamp, Vec<f64>), DatasetError> {
    let text = row.text(places[0]);
    let at = Clock::Rfc3339.read(text).ok_or_else(|| line.refuse(text, "a time like 2020-05-01 00:00:00"))?;
    if !order.admits(at) {
        return Err(line.refuse(text, "at or after the row before"));
    }
    let values: Result<Vec<f64>, DatasetError> = places[1..].iter().map(|place| row.amount(*place, "a number of GPUs or nodes")).collect();
    Ok((at.0, values?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Occupancy, DatasetError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n.csv");
        std::fs::write(&path, text).unwrap();
        read_occupancy(&path, Format::PhillyNodes)
    }

    #[test]
    fn a_missing_minute_is_a_gap() {
        let seen = read("time,active,total\n2017-10-03 00:00:00,312,420\n2017-10-03 00:02:00,0,420\n").unwrap();
        assert_eq!(seen.in_use.values, [Some(312.0), None, Some(0.0)]);
        assert_eq!((seen.total.known(), seen.waiting), (2, None));
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        for bad in ["2017-10-02 00:00:00,1,2", "9999-10-03 00:00:00,1,2", "2017-10-03 00:01:00,x,2", "2017-10-03 00:01:00,1"] {
            let message = read(&format!("time,active,total\n2017-10-03 00:00:00,312,420\n{bad}\n")).unwrap_err().to_string();
            assert!(message.contains("n.csv:3"), "{bad}: {message}");
        }
        assert!(matches!(read("time,active,total\n"), Err(DatasetError::Empty { .. })));
    }
}
