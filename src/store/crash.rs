//! What a crash and a damaged file do to the embedded store.

use crate::contract::{observation, window};
use crate::{Batch, Options, Store, StoreError, wait};
use fleet::{Signal, Span, TargetId, Timestamp};
use std::{
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::Path,
    process::{Command, Stdio},
};

/// Set for the child: the store it writes to until it is killed.
const CHILD: &str = "STORE_CRASH_TEST_FILE";

/// Observations of one batch.
const POINTS: i64 = 40;

fn numbered(batch: i64) -> Batch {
    let points = (0..POINTS).map(|i| observation("s", Signal::RequestsFinished, None, batch * POINTS + i, 1.0));
    Batch { observations: points.collect(), windows: vec![window("w", batch, Some(1.0))], ..Batch::default() }
}

/// Batches in the store, after making sure that each is whole.
fn whole_batches(store: &Store) -> i64 {
    let (from, to) = (Timestamp(0), Timestamp(i64::MAX));
    let windows = i64::try_from(wait(store.windows(None, from, to)).unwrap().len()).unwrap();
    let points = i64::try_from(wait(store.observations(&TargetId::new("s").unwrap(), None, from, to)).unwrap().len()).unwrap();
    assert_eq!(points, windows * POINTS, "half a batch was kept");
    windows
}

/// Not a test by itself: the process that [`kill_loses_nothing_acknowledged`] kills.
#[test]
fn child_that_writes_until_killed() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let store = Store::open(path, Options::default()).unwrap();
    let mut next = whole_batches(&store);
    loop {
        wait(store.append(numbered(next))).unwrap();
        next += 1;
        println!("\nacknowledged {next}");
        std::io::stdout().flush().unwrap();
    }
}

/// `kill -9` in mid-write, twenty times on one file: every acknowledged batch is there, no batch is there in part, and the store opens.
#[test]
fn kill_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let mut seed = 65_u64;
    let mut before = 0;
    for round in 0..20 {
        // Knuth's linear congruential generator: the number of acknowledgements and of idle turns to wait before the kill.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (acks, turns) = ((seed >> 60) + 1, (seed >> 40) & 0x3_ffff);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_writes_until_killed", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<i64>().ok());
        let mut last = acknowledged.by_ref().take(usize::try_from(acks).unwrap()).last().expect("the child wrote something");
        for _ in 0..turns {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        last = acknowledged.last().unwrap_or(last);
        let store = Store::open(&path, Options::default()).unwrap();
        let kept = whole_batches(&store);
        assert!(kept >= last && last > before, "round {round}: {last} acknowledged, {kept} kept, {before} before");
        wait(store.check()).unwrap();
        before = kept;
    }
}

fn filled(path: &Path) {
    let store = Store::open(path, Options::default()).unwrap();
    for batch in 0..200 {
        wait(store.append(numbered(batch))).unwrap();
    }
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn a_damaged_file_is_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    filled(&path);
    let length = std::fs::metadata(&path).unwrap().len();
    let mut intact = Vec::new();
    std::fs::File::open(&path).unwrap().read_to_end(&mut intact).unwrap();
    // All pages but the first few: it opens, and a check finds it.
    overwrite(&path, length / 2, &vec![0xa5; usize::try_from(length / 2).unwrap()]);
    let store = Store::open(&path, Options::default()).unwrap();
    let error = wait(store.check()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("history.db") && error.to_string().contains(".recover"), "{error}");
    drop(store);
    std::fs::write(&path, &intact).unwrap();
    overwrite(&path, 0, b"not an SQLite file any more");
    let error = Store::open(&path, Options::default()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn a_path_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Store::open(file.join("sub/history.db"), Options::default()).unwrap_err();
    assert!(matches!(&error, StoreError::Folder { path, .. } if path.ends_with("file/sub")), "{error}");
    assert!(matches!(Store::open(folder.path(), Options::default()), Err(StoreError::Refused { operation: "open", .. })));
}

/// What one process acknowledged, another one reads; a restart continues where it ended.
#[test]
fn two_handles_on_one_file_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.db");
    let (one, other) = (Store::open(&path, Options::default()).unwrap(), Store::open(&path, Options::default()).unwrap());
    wait(one.append(numbered(0))).unwrap();
    wait(other.append(numbered(1))).unwrap();
    assert_eq!((whole_batches(&one), whole_batches(&other)), (2, 2));
    let early = wait(one.windows(None, Timestamp(0), window("w", 0, None).start + Span(1))).unwrap();
    assert_eq!(early, [window("w", 0, Some(1.0))]);
}
