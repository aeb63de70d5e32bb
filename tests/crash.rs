//! What a crash may cost: the work that was under way, and nothing else. The daemon is killed at random moments, its worker killed, hung and made
//! to talk nonsense; the published plan always parses, the history opens, and no generation ever goes back.

use daemon::{Clock, Options, Worker};
use fleet::{Span, Timestamp, VariantId, WorkloadId, WorkloadWindow};
use rand::{RngExt, SeedableRng};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::Duration,
};
use store::{Batch, Store, wait};
use tests::turnaround;
use tokio::sync::watch;

const SEED: u64 = 7;

/// Twelve GPUs, one service, one job; everything observed to be free.
fn configuration(folder: &Path) -> PathBuf {
    let text = format!(
        r#"
currency = "EUR"
[[pool]]
name = "h100"
nodes = "n[1-3]"
kind = "H100-80GB"
gpus_per_node = 4
price = 2.60
unobserved = "free"
[[variant]]
name = "chat-8b-h100"
model = "chat-8b"
kind = "H100-80GB"
memory = "60GiB"
cold_start = "5m"
requests_per_s = 8.0
[[model]]
name = "chat-8b"
[[service]]
name = "chat"
variants = "chat-8b-h100"
ttft = "2s"
min_replicas = 2
max_replicas = 8
[[job]]
name = "train"
class = "training"
work = "20h"
gang = 4
memory = "70GiB"
on = "H100-80GB"
checkpoint = "1h"
[store]
path = "{store}"
[publish]
plan_file = "{plan}"
listen = "127.0.0.1:0"
"#,
        store = folder.join("history.sqlite").display(),
        plan = folder.join("plan.json").display(),
    );
    let path = folder.join("turnaround.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn open(folder: &Path) -> Store {
    Store::open(folder.join("history.sqlite"), store::Options::default()).expect("the history opens after a crash")
}

/// A week of history, so that forecasting is part of the work.
fn back_fill(folder: &Path, until: Timestamp) {
    let window = |i: i64| WorkloadWindow {
        arrivals_per_s: Some(if i % 24 < 8 { 4.0 } else { 20.0 }),
        waiting: Some(0.0),
        ready: BTreeMap::from([(VariantId::new("chat-8b-h100").unwrap(), 2)]),
        completeness: 1.0,
        ..WorkloadWindow::unknown(WorkloadId::new("chat").unwrap(), until.hour() - Span::hours(7 * 24) + Span::hours(i), Span::HOUR)
    };
    wait(open(folder).append(Batch { windows: (0..7 * 24).map(window).collect(), ..Batch::default() })).unwrap();
}

/// The generations in the plan file and in the history; both must be readable at any time.
fn generations(folder: &Path) -> (u64, u64) {
    let file = publish::plan_file::read(&folder.join("plan.json")).expect("the plan file parses after a crash").map_or(0, |p| p.generation);
    let store = open(folder);
    wait(store.check()).expect("the history is whole after a crash");
    (file, wait(store.latest_plan()).unwrap().map_or(0, |p| p.generation))
}

#[test]
fn twenty_kills_at_random_moments_lose_no_published_plan() {
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(folder.path());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    back_fill(folder.path(), Timestamp(i64::try_from(now).unwrap()));
    let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(SEED);
    let mut before = (0, 0);
    for kill in 1..=20 {
        let mut child = Command::new(turnaround())
            .args(["run", "-vv", "--config"])
            .arg(&config)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the daemon starts");
        // Killed after so many lines of its log or so much time, whichever comes first.
        let (lines, limit) = (rng.random_range(1..40), Duration::from_millis(rng.random_range(20..900)));
        let (sender, log) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        let reader = std::thread::spawn(move || BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let deadline = std::time::Instant::now() + limit;
        for _ in 0..lines {
            if log.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())).is_err() {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        drop(log);
        // The worker of a killed daemon ends by itself: nobody reads what it has to say.
        let _ = reader.join().unwrap();
        let after = generations(folder.path());
        println!("kill {kill:2} (seed {SEED}): generation {} in the file, {} in the history", after.0, after.1);
        assert!(after.0 >= before.0 && after.1 >= before.1, "a generation went back: {before:?} -> {after:?}");
        assert!(after.0 <= after.1, "the file shows a plan the history does not know: {after:?}");
        before = after;
    }
    assert!(before.0 >= 3, "the kills left no daemon the time to publish: {before:?}");
}

/// How the worker behaves, one call after the other; then as it should.
const MOODS: [&str; 5] = ["kill -9 $$", "exec sleep 1000", "echo nonsense", "exit 3", "exec sleep 1000"];

/// A worker that takes its mood from a file, first line first.
fn moody_worker(folder: &Path) -> Vec<std::ffi::OsString> {
    std::fs::write(folder.join("moods"), MOODS.join("\n") + "\n").unwrap();
    let script = format!(
        "cd '{}'\nmood=$(head -n 1 moods)\nsed -i 1d moods\nif [ -n \"$mood\" ]; then eval \"$mood\"; else exec '{}' worker; fi\n",
        folder.display(),
        turnaround().display()
    );
    std::fs::write(folder.join("worker.sh"), script).unwrap();
    vec!["sh".into(), folder.join("worker.sh").into_os_string()]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_dies_hangs_or_lies_costs_its_cycle_and_nothing_else() {
    let begin: Timestamp = "2026-01-19T07:00:00Z".parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = configuration(folder.path());
    let config = config::parse(&std::fs::read_to_string(&path).unwrap(), "turnaround.toml").unwrap();
    let here = folder.path().to_owned();
    tokio::task::spawn_blocking(move || back_fill(&here, begin)).await.unwrap();
    let (time, clock) = Clock::manual(begin);
    let (settled, mut done) = watch::channel(Timestamp(0));
    let worker = Worker::Process { command: moody_worker(folder.path()), deadline: Duration::from_secs(2) };
    let options = Options {
        clock,
        worker,
        read_secret: std::sync::Arc::new(|_| Err("no secrets here".into())),
        replay: Vec::new(),
        listening: None,
        settled: Some(settled),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let daemon = tokio::spawn(async move { daemon::run(&config, options, async { drop(stopped.await) }).await });
    let mut seen = Vec::new();
    for tick in 0..8 {
        let now = begin + Span::minutes(5 * tick);
        time.send_replace(now);
        done.wait_for(|at| *at >= now).await.expect("the daemon goes on");
        let here = folder.path().to_owned();
        seen.push(tokio::task::spawn_blocking(move || generations(&here)).await.unwrap().0);
    }
    stop.send(()).unwrap();
    daemon.await.unwrap().unwrap();
    println!("generations after each cycle: {seen:?}");
    assert_eq!(seen, [0, 0, 0, 0, 0, 1, 2, 3]);
}
