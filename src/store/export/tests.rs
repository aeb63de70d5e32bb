//! What was exported, read back and compared with what was written.

use super::{Export, Exported, Format, What, export, rows, table::Cell};
use crate::contract::{T0, observation, one_of_each, window};
use crate::{Batch, Resolution, Store, StoreError, wait};
use fleet::{JobId, JobOutcome, MemberId, ReplicaId, ServiceOutcome, Signal, Span, StartOutcome, Timestamp, VariantId, WorkloadId};
use std::{collections::BTreeMap, path::Path};

const EVERYTHING: [What; 8] = [
    What::Observations(Resolution::Raw),
    What::Observations(Resolution::Minute),
    What::Observations(Resolution::Hour),
    What::Windows,
    What::Forecasts,
    What::Outcomes,
    What::Jobs,
    What::Starts,
];

fn span() -> (Timestamp, Timestamp) {
    (T0 - Span::hours(3), T0 + Span::hours(40))
}

/// Some of everything, with awkward text, missing values and numbers of all sizes.
fn filled() -> Store {
    let store = Store::in_memory().unwrap();
    let values = [0.1 + 0.2, 5e-324, f64::MAX, -0.0, -1.5e300, 9_007_199_254_740_993.0];
    let mut batch = one_of_each(0, 1);
    for (n, value) in values.iter().cycle().take(400).enumerate() {
        let mut o = observation("chat-2", Signal::ALL[n % 7], (n % 3 == 0).then_some("le=\"0,5\"\u{2028}"), 37 * i64::try_from(n).unwrap(), *value);
        o.member = (n % 2 == 0).then(|| MemberId::new("GPU 0, 日本").unwrap());
        batch.observations.push(o);
    }
    batch.windows.extend((1..40).map(|n| window("chat, \"big\"", 3_600 * n, (n % 5 != 0).then_some(1.0 / 3.0))));
    let outcome = &mut batch.outcomes[0];
    let service = |n: f64| ServiceOutcome {
        workload: WorkloadId::new(format!("w{n}")).unwrap(),
        forecast: BTreeMap::new(),
        observed_per_s: (n > 1.0).then_some(n / 7.0),
        peak_per_s: None,
        promised_per_s: Some(n),
        attainment: None,
        ready: BTreeMap::from([(VariantId::new("a").unwrap(), 2), (VariantId::new("b").unwrap(), 3)]),
        saturated_per_replica: BTreeMap::new(),
        sustained_per_replica: BTreeMap::new(),
        prior_per_replica: BTreeMap::new(),
        censored: n > 1.0,
        completeness: 0.75,
    };
    outcome.services = vec![service(1.0), service(2.0)];
    outcome.jobs = vec![JobOutcome { job: JobId::new("j").unwrap(), remaining_s: 0.0, ended: true, late: false }];
    let (replica, variant) = (ReplicaId::new("r").unwrap(), VariantId::new("a").unwrap());
    outcome.starts = vec![StartOutcome { replica, variant, expected_s: 60.0, observed_s: 71.5 }];
    wait(store.append(batch)).unwrap();
    store
}

fn rows_of(store: &Store, what: What) -> Vec<Vec<Cell>> {
    let (mut all, (from, to)) = (Vec::new(), span());
    rows::each(store, what, from, to, &mut |row| {
        all.push(row);
        Ok(())
    })
    .unwrap();
    all
}

fn written(store: &Store, what: What, format: Format, path: &Path) -> Exported {
    let (from, to) = span();
    let mut last = 0;
    let exported = export(store, Export { what, format, from, to }, path, &mut |rows| last = rows).unwrap();
    assert_eq!((last, exported.bytes), (exported.rows, std::fs::metadata(path).unwrap().len()));
    exported
}

#[test]
fn rows_are_what_the_store_holds() {
    let store = filled();
    let (from, to) = span();
    let counts = EVERYTHING.map(|what| rows_of(&store, what).len());
    let sources: std::collections::BTreeSet<_> = wait(store.series_kept(Resolution::Raw)).unwrap().into_iter().map(|s| s.source).collect();
    let all = |resolution| sources.iter().map(|source| wait(store.rollups(source, None, resolution, from, to)).unwrap().len()).sum::<usize>();
    let forecasts = wait(store.forecasts(None, from, to)).unwrap();
    let quantiles = forecasts.iter().map(|f| f.values.len() * f.levels.len()).sum::<usize>();
    assert_eq!(counts, [403, all(Resolution::Minute), all(Resolution::Hour), 40, quantiles, 2, 1, 1]);
    assert!(counts[1] > counts[2] && counts[2] > 7, "{counts:?}");
    for what in EVERYTHING {
        assert!(rows_of(&store, what).iter().all(|row| row.len() == rows::columns(what).len()));
    }
}

#[test]
fn csv_reads_back_as_written() {
    let (store, folder) = (filled(), tempfile::tempdir().unwrap());
    for what in EVERYTHING {
        let path = folder.path().join("history.csv");
        let rows = rows_of(&store, what);
        assert_eq!(written(&store, what, Format::Csv, &path).rows, rows.len() as u64);
        let mut reader = csv::Reader::from_path(&path).unwrap();
        let names: Vec<_> = reader.headers().unwrap().iter().map(str::to_owned).collect();
        assert_eq!(names, rows::columns(what).iter().map(|column| column.name).collect::<Vec<_>>());
        for (record, row) in reader.records().map(Result::unwrap).zip(&rows) {
            for (field, cell) in record.iter().zip(row) {
                let back = match cell {
                    Cell::Missing => field.is_empty().then_some(Cell::Missing),
                    Cell::Text(_) => Some(Cell::Text(field.to_owned())),
                    Cell::Instant(_) => field.parse().ok().map(Cell::Instant),
                    Cell::Integer(_) => field.parse().ok().map(Cell::Integer),
                    Cell::Number(_) => field.parse().ok().map(Cell::Number),
                    Cell::Flag(_) => field.parse().ok().map(Cell::Flag),
                };
                assert_eq!(back.as_ref(), Some(cell), "{field:?}");
            }
        }
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_reads_back_as_written() {
    use parquet::{
        file::reader::{FileReader, SerializedFileReader},
        record::Field,
    };
    let (store, folder) = (filled(), tempfile::tempdir().unwrap());
    for what in EVERYTHING {
        let path = folder.path().join("history.parquet");
        let rows = rows_of(&store, what);
        assert_eq!(written(&store, what, Format::Parquet, &path).rows, rows.len() as u64);
        let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
        let found: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.len(), rows.len());
        for (found, row) in found.iter().zip(&rows) {
            let names: Vec<_> = found.get_column_iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, rows::columns(what).iter().map(|column| column.name).collect::<Vec<_>>());
            for ((_, field), cell) in found.get_column_iter().zip(row) {
                let back = match field {
                    Field::Null => Cell::Missing,
                    Field::Str(text) => Cell::Text(text.clone()),
                    Field::TimestampMillis(at) => Cell::Instant(Timestamp(at / 1_000)),
                    Field::Long(integer) => Cell::Integer(*integer),
                    Field::Double(number) => Cell::Number(*number),
                    Field::Bool(flag) => Cell::Flag(*flag),
                    other => panic!("{other:?}"),
                };
                assert_eq!(back, *cell);
            }
        }
    }
}

/// More rows than a group holds, read back from all groups.
#[cfg(feature = "parquet")]
#[test]
fn groups_are_bounded() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let (store, folder) = (Store::in_memory().unwrap(), tempfile::tempdir().unwrap());
    let points = (0..70_000).map(|n| observation("a", Signal::ALL[usize::try_from(n % 10).unwrap()], None, n / 10, 1.0));
    wait(store.append(Batch { observations: points.collect(), ..Batch::default() })).unwrap();
    let path = folder.path().join("history.parquet");
    let exported = written(&store, What::Observations(Resolution::Raw), Format::Parquet, &path);
    assert_eq!(exported.rows, 70_000);
    let reader = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    let groups: Vec<_> = reader.metadata().row_groups().iter().map(parquet::file::metadata::RowGroupMetaData::num_rows).collect();
    assert_eq!(groups, [65_536, 4_464]);
}

#[test]
fn a_file_appears_when_it_is_whole_or_not_at_all() {
    let (store, folder) = (filled(), tempfile::tempdir().unwrap());
    let path = folder.path().join("history.csv");
    std::fs::write(&path, "what was there").unwrap();
    let windows = |from, to, path: &Path| export(&store, Export { what: What::Windows, format: Format::Csv, from, to }, path, &mut |_| ());
    let endless = windows(Timestamp(i64::MIN), Timestamp(i64::MAX), &path);
    assert!(matches!(&endless, Err(StoreError::Export { detail, .. }) if detail.contains("thirty years")), "{endless:?}");
    let (from, to) = span();
    let missing = folder.path().join("no such folder/history.csv");
    assert!(matches!(windows(from, to, &missing), Err(StoreError::Export { .. })));
    // Its name is taken by a folder: the rename at the end fails.
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    assert!(matches!(windows(from, to, &taken), Err(StoreError::Export { .. })));
    let names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "what was there");
    written(&store, What::Windows, Format::Csv, &path);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("workload,start,"));
}
