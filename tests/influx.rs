//! The history in a real `InfluxDB` server that dies, hangs and refuses: every point arrives, once, in order, or its loss is counted.

use fleet::{Observation, Signal, Span, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use misbehaving::{Mood, Proxy};
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
    time::{Duration, Instant},
};
use store::influx::{Influx, InfluxLimits, InfluxSettings, Token};
use store::{Batch, History, Resolution, Retention, StoreError, wait};

#[path = "servers/influx.rs"]
mod server;

#[path = "servers/misbehaving.rs"]
mod misbehaving;

use server::Influx as Server;

/// Beginning of all samples, years back: the buckets of these tests keep everything.
const T0: Timestamp = Timestamp(1_700_000_000);

fn settings(url: &str, folder: &Path, prefix: &str) -> InfluxSettings {
    let token = folder.join("token");
    if !token.exists() {
        std::fs::write(&token, format!("{}\n", Server::TOKEN)).unwrap();
    }
    let mut settings = InfluxSettings::new(url, Server::ORG, prefix, Token::File(token), folder.join(format!("{prefix}.db")));
    settings.limits = InfluxLimits {
        batch_age: Duration::from_millis(5),
        wait_first: Duration::from_millis(10),
        wait_max: Duration::from_millis(100),
        wait_refused: Duration::from_millis(50),
        write_timeout: Duration::from_secs(2),
        flush_max: Duration::from_mins(1),
        ..InfluxLimits::default()
    };
    settings
}

/// Makes the buckets, without a limit of age.
fn buckets(server: &Server, folder: &Path, prefix: &str) {
    let ever = Span::hours(24 * 365 * 100);
    let retention = Retention { observations: ever, minutes: ever, hours: ever, ..Retention::default() };
    let settings = settings(&server.url(), folder, prefix);
    wait(Influx::open(InfluxSettings { retention, queue: folder.join("init.db"), ..settings }).unwrap().init()).unwrap();
}

fn point(source: usize, at: i64) -> Observation {
    let observed = T0 + Span(at);
    let source = TargetId::new(format!("chat-{source}")).unwrap();
    Observation {
        source,
        member: None,
        signal: Signal::RequestsFinished,
        part: None,
        value: 0.5 + f64::from(u32::try_from(at).unwrap()),
        observed,
        received: observed + Span(1),
    }
}

fn window(at: i64) -> WorkloadWindow {
    WorkloadWindow { arrivals_per_s: Some(2.5), ..WorkloadWindow::unknown(WorkloadId::new("chat").unwrap(), T0 + Span(at), Span::minutes(5)) }
}

/// Tries until the server has everything: it may take a while after it was away.
fn flushed(influx: &Influx) {
    let begun = Instant::now();
    while let Err(error) = wait(influx.flush()) {
        assert!(matches!(error, StoreError::Away { .. }) && begun.elapsed() < Duration::from_mins(2), "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Points of raw observations that the server holds.
fn points(influx: &Influx) -> u64 {
    wait(influx.series_kept(Resolution::Raw)).unwrap().iter().map(|series| series.points).sum()
}

/// Memory of this process that is in use, MiB.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

#[test]
fn a_hundred_thousand_points() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "many");
    let influx = Influx::open(settings(&server.url(), folder.path(), "many")).unwrap();
    let begun = Instant::now();
    for batch in 0..20 {
        let observations = (0..100).flat_map(|step| (0..50).map(move |source| point(source, batch * 1_500 + 15 * step))).collect();
        wait(influx.append(Batch { observations, ..Batch::default() })).unwrap();
    }
    let acknowledged = begun.elapsed();
    flushed(&influx);
    println!("100,000 points: acknowledged in {acknowledged:?}, on the server after {:?}", begun.elapsed());
    assert_eq!(points(&influx), 100_000);
    assert_eq!(influx.status().unwrap().sent_points, 100_000);
}

/// The server dies under load and stays away for an hour of observations (every 15 s from 100 targets); then it comes back on the same data.
#[test]
fn an_hour_without_the_server_costs_nothing() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "outage");
    let proxy = Proxy::start(server.port());
    let influx = Influx::open(settings(&proxy.url(), folder.path(), "outage")).unwrap();
    let scrape = |at: i64| {
        let windows = if at % 300 == 0 { vec![window(at)] } else { Vec::new() };
        let snapshots = if at % 300 == 0 { vec![("cycle".into(), at.to_be_bytes().repeat(1_000))] } else { Vec::new() };
        let observations = (0..100).map(|source| point(source, at)).collect();
        wait(influx.append(Batch { observations, windows, snapshots, ..Batch::default() })).unwrap();
    };
    (0..40).for_each(|step| scrape(step * 15));
    server.kill();
    let before = resident_mib();
    (40..280).for_each(|step| scrape(step * 15));
    let grown = resident_mib() - before;
    let status = influx.status().unwrap();
    assert!(status.queued_points > 20_000 && status.oldest_queued.is_some(), "{status:?}");
    // One row of the queue, the load that is being sent, and what SQLite keeps of its file: bounded, whatever the outage.
    assert!(grown < 64.0, "{grown} MiB more while {} points waited", status.queued_points);
    let error = wait(influx.windows(None, T0, T0 + Span::HOUR)).unwrap_err();
    assert!(matches!(error, StoreError::Away { waiting, .. } if waiting > 20_000), "{error}");
    assert_eq!(wait(influx.snapshot("cycle")).unwrap(), Some(3_900_i64.to_be_bytes().repeat(1_000)), "the state is kept here, too");
    server.resume();
    flushed(&influx);
    assert_eq!(points(&influx), 28_000, "every point once");
    assert_eq!(wait(influx.windows(None, T0, T0 + Span::hours(2))).unwrap().len(), 14);
    let source = TargetId::new("chat-7").unwrap();
    let found = wait(influx.observations(&source, None, T0, T0 + Span::hours(2))).unwrap();
    assert_eq!(found, (0..280).map(|step| point(7, step * 15)).collect::<Vec<_>>());
    proxy.assert_in_order("engine,source=chat-7,");
    let status = influx.status().unwrap();
    assert_eq!((status.queued_points, status.lost_queue_full, status.lost_refused, status.lost_beyond_retention), (0, 0, 0, 0), "{status:?}");
    assert!(status.away_since.is_none());
    println!("outage: {grown:.1} MiB more memory for an hour of 24,000 points");
}

/// Field case 33: Token revoked or quota hit: data silently lost, token printed
///
/// A token that is refused until its file is right, quotas, faults and silence: everything arrives in order, 429 is waited for, no secret is shown.
#[test]
fn refusals_and_silence_are_outlived_in_order() {
    let log = captured_log();
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "moods");
    let proxy = Proxy::start(server.port());
    let url = proxy.url().replace("http://", "http://ann:pa55word@");
    let mut settings = settings(&url, folder.path(), "moods");
    settings.limits.write_timeout = Duration::from_millis(300);
    std::fs::write(folder.path().join("token"), "revoked-t0ken").unwrap();
    let influx = Influx::open(settings.clone()).unwrap();
    let append = |steps: std::ops::Range<i64>| {
        for at in steps {
            wait(influx.append(Batch { observations: vec![point(0, at)], ..Batch::default() })).unwrap();
        }
    };
    append(0..50);
    let error = wait(influx.flush()).unwrap_err();
    assert!(matches!(error, StoreError::Away { .. }), "{error}");
    let refused = influx.status().unwrap();
    assert!(refused.last_error.as_deref().is_some_and(|words| words.contains("401")) && refused.away_since.is_some(), "{refused:?}");
    std::fs::write(folder.path().join("token"), Server::TOKEN).unwrap();
    flushed(&influx);
    let moods = [Mood::RetryAfter(429, 1), Mood::RetryAfter(503, 1), Mood::Status(500), Mood::Hang, Mood::Page, Mood::CutOff, Mood::Status(502)];
    for (index, mood) in (1_i64..).zip(moods) {
        proxy.next(mood);
        append(index * 50..index * 50 + 50);
        flushed(&influx);
        assert!(proxy.is_calm(), "{mood:?} was not met");
    }
    assert_eq!(points(&influx), 400);
    proxy.assert_in_order("engine,source=chat-0,");
    for asked in proxy.waits_after_a_retry_after() {
        assert!(asked >= Duration::from_secs(1), "asked to wait a second, came back after {asked:?}");
    }
    let status = influx.status().unwrap();
    assert_eq!((status.lost_queue_full, status.lost_refused, status.lost_beyond_retention), (0, 0, 0), "{status:?}");
    let shown = format!("{error} {error:?} {refused:?} {status:?} {settings:?} {} {}", influx.location(), log.lock().unwrap());
    for secret in ["pa55word", "revoked-t0ken", Server::TOKEN] {
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}

/// A page of somebody else with status 200 is no empty history.
#[test]
fn a_page_is_not_an_answer() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "page");
    let proxy = Proxy::start(server.port());
    let influx = Influx::open(settings(&proxy.url(), folder.path(), "page")).unwrap();
    proxy.next(Mood::PageForQuestions);
    let error = wait(influx.windows(None, T0, T0 + Span::HOUR)).unwrap_err();
    assert!(matches!(&error, StoreError::Server { detail, .. } if detail.contains("no Flux table")), "{error}");
    assert_eq!(wait(influx.windows(None, T0, T0 + Span::HOUR)).unwrap(), []);
}

/// Field case 31: Field changes between integer and float
#[test]
fn a_field_of_another_type_costs_its_own_points_only() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "types");
    let path = format!("/api/v2/write?org={}&bucket=types_raw&precision=s", Server::ORG);
    assert_eq!(server.ask("POST", &path, &format!("gpu,source=old value=4i {}\n", T0.0)).0, 204);
    let influx = Influx::open(settings(&server.url(), folder.path(), "types")).unwrap();
    let gpu = |at| Observation { signal: Signal::GpuPower, ..point(1, at) };
    let observations = (0..10).flat_map(|at| [point(0, at), gpu(at)]).collect();
    wait(influx.append(Batch { observations, windows: vec![window(0)], ..Batch::default() })).unwrap();
    flushed(&influx);
    let status = influx.status().unwrap();
    assert_eq!((status.lost_refused, status.queued_points), (10, 0), "{status:?}");
    let words = status.last_error.unwrap_or_default();
    for part in ["value", "gpu", "float", "integer"] {
        assert!(words.contains(part), "{words}");
    }
    assert_eq!(wait(influx.observations(&TargetId::new("chat-0").unwrap(), None, T0, T0 + Span::HOUR)).unwrap().len(), 10);
    assert_eq!(wait(influx.windows(None, T0, T0 + Span::HOUR)).unwrap(), [window(0)]);
}

/// Field case 29: Points older than the retention period block the queue
///
/// With the retention known they are not sent; where the token may not see it, they cost one attempt. Seven of ten are kept either way.
#[test]
fn points_beyond_retention_are_counted_and_block_nothing() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(server.port());
    for (prefix, hidden) in [("known", false), ("hidden", true)] {
        wait(Influx::open(settings(&server.url(), folder.path(), prefix)).unwrap().init()).unwrap();
        if hidden {
            proxy.next(Mood::HideBuckets);
        }
        let influx = Influx::open(settings(&proxy.url(), folder.path(), prefix)).unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let now = i64::try_from(now).unwrap() - T0.0;
        let old = (0..3).map(|i| point(0, now - 20 * 86_400 + i));
        let recent = (0..7).map(|i| point(0, now - 3_600 + i));
        wait(influx.append(Batch { observations: old.chain(recent).collect(), ..Batch::default() })).unwrap();
        wait(influx.append(Batch { observations: vec![point(1, now)], ..Batch::default() })).unwrap();
        flushed(&influx);
        let status = influx.status().unwrap();
        assert_eq!((status.lost_beyond_retention, status.lost_refused, status.queued_points, points(&influx)), (3, 0, 0, 8), "{prefix}: {status:?}");
    }
}

/// The queue is full: the oldest observations go, counted; every window stays.
#[test]
fn a_full_queue_keeps_the_windows_and_counts_the_rest() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "full");
    let mut settings = settings(&server.url(), folder.path(), "full");
    settings.limits.queue_bytes_max = 200_000;
    server.kill();
    let influx = Influx::open(settings).unwrap();
    for step in 0..400 {
        let windows = if step % 20 == 0 { vec![window(step * 15)] } else { Vec::new() };
        wait(influx.append(Batch { observations: (0..20).map(|source| point(source, step * 15)).collect(), windows, ..Batch::default() })).unwrap();
    }
    let away = influx.status().unwrap();
    assert!(away.queued_bytes <= 200_000 && away.lost_queue_full > 0, "{away:?}");
    server.resume();
    flushed(&influx);
    let status = influx.status().unwrap();
    assert_eq!(points(&influx) + status.lost_queue_full, 8_000, "{status:?}");
    assert_eq!(wait(influx.windows(None, T0, T0 + Span::hours(2))).unwrap().len(), 20);
    let left = wait(influx.observations(&TargetId::new("chat-0").unwrap(), None, T0 + Span(3_000), T0 + Span::hours(2))).unwrap();
    assert_eq!(left.last(), Some(&point(0, 399 * 15)), "the newest stay");
}

/// Set for the child: the folder of its queue, and the address of its server.
const CHILD: [&str; 2] = ["INFLUX_CRASH_TEST_FOLDER", "INFLUX_CRASH_TEST_URL"];

/// Points of one batch of the child.
const POINTS: i64 = 25;

/// Not a test by itself: the process that [`kill_in_mid_spill_loses_nothing_acknowledged`] kills.
#[test]
fn child_that_spills_until_killed() {
    let [Some(folder), Some(url)] = CHILD.map(std::env::var_os) else { return };
    let (folder, url) = (PathBuf::from(folder), url.into_string().unwrap());
    let influx = Influx::open(settings(&url, &folder, "crash")).unwrap();
    let name = folder.join("next");
    let mut next: i64 = std::fs::read_to_string(&name).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    loop {
        let observations = (0..POINTS).map(|i| point(0, next * POINTS + i)).collect();
        wait(influx.append(Batch { observations, windows: vec![window(next)], ..Batch::default() })).unwrap();
        next += 1;
        println!("\nacknowledged {next}");
        std::io::stdout().flush().unwrap();
    }
}

/// `kill -9` while the child fills the queue, empties it, or both, the server there or not: what was acknowledged is on the server once.
#[test]
fn kill_in_mid_spill_loses_nothing_acknowledged() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    buckets(&server, folder.path(), "crash");
    let mut seed = 29_u64;
    let mut acknowledged = 0_i64;
    for round in 0..8 {
        if round % 4 == 2 {
            server.kill();
        } else if round % 4 == 3 {
            server.resume();
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let acks = usize::try_from((seed >> 58) + 5).unwrap();
        std::fs::write(folder.path().join("next"), acknowledged.to_string()).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_spills_until_killed", "--nocapture"])
            .env(CHILD[0], folder.path())
            .env(CHILD[1], server.url())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acknowledged ")?.parse::<i64>().ok());
        let seen = told.by_ref().take(acks).last().expect("the child appended something");
        child.kill().unwrap();
        child.wait().unwrap();
        acknowledged = told.last().unwrap_or(seen);
    }
    let influx = Influx::open(settings(&server.url(), folder.path(), "crash")).unwrap();
    flushed(&influx);
    let windows = wait(influx.windows(None, T0, T0 + Span::hours(10))).unwrap();
    let found = wait(influx.observations(&TargetId::new("chat-0").unwrap(), None, T0, T0 + Span::hours(100))).unwrap();
    // The batch after the last one told may have been kept, too; then it is whole.
    let kept = i64::try_from(windows.len()).unwrap();
    assert!(kept == acknowledged || kept == acknowledged + 1, "{acknowledged} batches acknowledged, {kept} on the server");
    assert_eq!(found, (0..kept * POINTS).map(|at| point(0, at)).collect::<Vec<_>>());
    assert_eq!(influx.status().unwrap().lost_queue_full, 0);
}

/// All that is logged in this process, down to the last detail.
fn captured_log() -> &'static Mutex<String> {
    static LOG: OnceLock<Mutex<String>> = OnceLock::new();
    struct Sink;
    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            LOG.get_or_init(Mutex::default).lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let everything = tracing_subscriber::filter::LevelFilter::TRACE;
    tracing_subscriber::fmt().with_max_level(everything).with_writer(|| Sink).init();
    LOG.get_or_init(Mutex::default)
}
