//! What the embedded store does beyond the contract: it removes and sums up by itself, and gives room back.

use crate::contract::{T0, observation, one_of_each, suite};
use crate::{Batch, Options, Removed, Resolution, Retention, Store, StoreError, wait};
use fleet::{Observation, Signal, Span, TargetId, Timestamp};

#[test]
fn embedded_file_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    suite(&|| {
        count.set(count.get() + 1);
        Store::open(folder.path().join(format!("made/{}.db", count.get())), Options::default()).unwrap()
    });
}

#[test]
fn embedded_memory_keeps_the_contract() {
    suite(&|| Store::in_memory().unwrap());
}

#[test]
fn retention_removes_the_old_and_keeps_the_latest() {
    let store = Store::in_memory().unwrap();
    let day = 86_400;
    for (index, at) in [0, 8 * day, 401 * day].into_iter().enumerate() {
        wait(store.append(one_of_each(at, index as u64 + 1))).unwrap();
    }
    let removed = wait(store.retain(T0 + Span(402 * day))).unwrap();
    let rollups = Removed { observations: 6, minutes: 6, hours: 3, ..Removed::default() };
    assert_eq!(removed, Removed { windows: 1, forecasts: 2, plans: 1, problems: 1, outcomes: 1, calibrations: 1, ..rollups });
    assert_eq!(wait(store.retain(T0 + Span(402 * day))).unwrap(), Removed::default());
    wait(store.retain(T0 + Span(4_000 * day))).unwrap();
    for resolution in Resolution::ALL {
        assert_eq!(wait(store.series_kept(resolution)).unwrap(), []);
    }
    let latest = wait(store.latest_plan()).unwrap().unwrap();
    assert_eq!(latest.generation, 3);
    assert!(wait(store.problem(&latest.problem)).unwrap().is_some(), "the plan in force lost its problem");
    assert_eq!(wait(store.latest_calibration()).unwrap().map(|c| c.generation), Some(3));
    assert!(wait(store.snapshot("cycle")).unwrap().is_some());
    // A source that fell silent and comes back begins anew in the dictionary.
    wait(store.append(Batch { observations: one_of_each(4_001 * day, 9).observations, ..Batch::default() })).unwrap();
    wait(store.check()).unwrap();
}

/// Two hours of one gauge every 15 s from the start of an hour, two days before `now`.
fn gauge(value: impl Fn(i64) -> f64) -> (Vec<Observation>, Timestamp) {
    let start = 1_700_002_800 - T0.0;
    let points = (0..480).map(|n| observation("a", Signal::GpuPower, None, start + 15 * n, value(n))).collect();
    (points, T0 + Span(start) + Span::hours(48))
}

fn hours(store: &Store) -> Vec<crate::Rollup> {
    wait(store.rollups(&TargetId::new("a").unwrap(), None, Resolution::Hour, Timestamp(0), Timestamp(i64::MAX))).unwrap()
}

#[test]
fn what_is_summed_up_outlives_what_it_was_made_of() {
    let retention = Retention { observations: Span::HOUR, minutes: Span::hours(47), ..Retention::default() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let store = Store::open(&path, Options { retention, ..Options::default() }).unwrap();
    let (points, now) = gauge(|n| f64::from(i32::try_from(n % 40).unwrap()));
    wait(store.append(Batch { observations: points.clone(), ..Batch::default() })).unwrap();
    let before = hours(&store);
    let removed = wait(store.retain(now)).unwrap();
    assert_eq!((removed.observations, removed.minutes, removed.hours), (480, 60, 0));
    assert_eq!(hours(&store), before);
    // A few of the old ones again, or a few late ones: less than what the roll-up was made of, so it stays.
    wait(store.append(Batch { observations: points[..7].to_vec(), ..Batch::default() })).unwrap();
    assert_eq!(hours(&store), before);
    wait(store.check()).unwrap();
    drop(store);
    let store = Store::open(&path, Options::default()).unwrap();
    assert_eq!(hours(&store), before);
    // All of them again, as a back-fill does: the same.
    wait(store.append(Batch { observations: points, ..Batch::default() })).unwrap();
    assert_eq!(hours(&store), before);
    wait(store.check()).unwrap();
}

#[test]
fn a_rollup_that_is_not_its_sum_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let (points, now) = gauge(|_| 1.0);
    for (change, found) in [("UPDATE rollup SET mean = 2.0 WHERE length = 60", "over 60 s"), ("DELETE FROM rollup WHERE length = 3600", "over 3600 s")] {
        let store = Store::open(&path, Options::default()).unwrap();
        wait(store.append(Batch { observations: points.clone(), ..Batch::default() })).unwrap();
        wait(store.retain(now)).unwrap();
        wait(store.check()).unwrap();
        rusqlite::Connection::open(&path).unwrap().execute(change, []).unwrap();
        let error = wait(store.check()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }) && error.to_string().contains(found), "{error}");
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn compacting_gives_room_back_and_keeps_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let store = Store::open(&path, Options::default()).unwrap();
    for round in 0..4 {
        let series = (0..50).flat_map(|s| (0..100).map(move |n| observation(&format!("s{s}"), Signal::GpuPower, None, round * 1_500 + 15 * n, 0.1 + 0.2)));
        wait(store.append(Batch { observations: series.collect(), ..Batch::default() })).unwrap();
    }
    let (points, _) = gauge(|_| 0.3);
    wait(store.append(Batch { observations: points, ..Batch::default() })).unwrap();
    wait(store.retain(T0 + Span::hours(24 * 500))).unwrap();
    let kept = one_of_each(86_400 * 500, 1);
    wait(store.append(kept.clone())).unwrap();
    let compacted = wait(store.compact()).unwrap();
    assert!(compacted.bytes_after * 2 < compacted.bytes_before, "{compacted:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().len(), compacted.bytes_after);
    let found = wait(store.observations(&kept.observations[0].source, Some(Signal::RequestsRunning), Timestamp(0), Timestamp(i64::MAX))).unwrap();
    assert_eq!(found, kept.observations[..1]);
    wait(store.check()).unwrap();
}

/// Two processes on one file: each enters and removes series behind the other's back.
#[test]
fn the_dictionary_follows_what_another_process_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let (one, other) = (Store::open(&path, Options::default()).unwrap(), Store::open(&path, Options::default()).unwrap());
    let write = |store: &Store, source: &str, at| {
        wait(store.append(Batch { observations: vec![observation(source, Signal::GpuPower, None, at, 1.0)], ..Batch::default() })).unwrap()
    };
    write(&one, "a", 0);
    write(&one, "b", 0);
    let later = 86_400 * 500;
    wait(other.retain(T0 + Span(later))).unwrap();
    write(&other, "c", later);
    write(&one, "b", later);
    write(&one, "a", later);
    let kept = wait(other.series_kept(Resolution::Raw)).unwrap();
    assert_eq!(kept.iter().map(|s| (s.source.as_str(), s.points)).collect::<Vec<_>>(), [("a", 1), ("b", 1), ("c", 1)]);
}
