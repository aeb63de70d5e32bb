//! The back end against a real server: the contract that every back end keeps, and what is a matter of this one alone.

use super::{Influx, InfluxLimits, InfluxSettings, InitStep, Token};
use crate::contract::{T0, observation, one_of_each, suite, window};
use crate::{Batch, History, Removed, Resolution, Retention, Store, StoreError, wait};
use fleet::{MemberId, Observation, Signal, Span, TargetId};
use proptest::{prelude::*, strategy::ValueTree};
use std::{cell::Cell, path::Path, time::Duration};
use wire::Secret;

#[path = "../../../tests/servers/influx.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod server;

use server::Influx as Server;

fn settings(server: &Server, folder: &Path, prefix: &str) -> InfluxSettings {
    let token = Token::Given(Secret::new(Server::TOKEN));
    let mut settings = InfluxSettings::new(server.url(), Server::ORG, prefix, token, folder.join(format!("{prefix}.db")));
    settings.limits = InfluxLimits { batch_age: Duration::from_millis(5), ..InfluxLimits::default() };
    settings
}

/// Buckets that keep everything, as the contract's instants lie years back; the back end's own retention stays as it is.
fn fresh(server: &Server, folder: &Path, prefix: &str) -> Influx {
    let settings = settings(server, folder, prefix);
    let ever = Span::hours(24 * 365 * 100);
    let retention = Retention { observations: ever, minutes: ever, hours: ever, ..Retention::default() };
    let influx = Influx::open(InfluxSettings { retention, ..settings.clone() }).unwrap();
    let done = wait(influx.init()).unwrap();
    assert!(done.buckets.iter().chain(&done.tasks).all(|(_, step)| *step == InitStep::Created), "{done:?}");
    drop(influx);
    Influx::open(settings).unwrap()
}

#[test]
fn influx_keeps_the_contract() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let count = Cell::new(0);
    suite(&|| {
        count.set(count.get() + 1);
        fresh(&server, folder.path(), &format!("contract{}", count.get())).store()
    });
}

#[test]
fn retention_removes_the_old_and_keeps_the_latest() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = fresh(&server, folder.path(), "retain").store();
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
}

/// Setting up twice changes nothing; a longer retention is put right.
#[test]
fn setting_up_again_changes_only_what_is_otherwise() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let steps = |settings: InfluxSettings| {
        let done = wait(Influx::open(settings).unwrap().init()).unwrap();
        (done.buckets.iter().map(|(_, step)| *step).collect::<Vec<_>>(), done.tasks.iter().map(|(_, step)| *step).collect::<Vec<_>>())
    };
    let (created, changed, kept) = (InitStep::Created, InitStep::Changed, InitStep::Kept);
    let settings = settings(&server, folder.path(), "init");
    assert_eq!(steps(settings.clone()), (vec![created; 4], vec![created; 2]));
    assert_eq!(steps(settings.clone()), (vec![kept; 4], vec![kept; 2]));
    let retention = Retention { observations: Span::hours(24 * 14), ..Retention::default() };
    assert_eq!(steps(InfluxSettings { retention, ..settings }), (vec![changed, kept, kept, kept], vec![kept; 2]));
}

/// What the first machine kept, another one finds, and no generation goes back on it.
#[test]
fn another_machine_resumes() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let first = fresh(&server, folder.path(), "two");
    let large: Vec<u8> = (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    wait(first.append(one_of_each(0, 7))).unwrap();
    wait(first.append(Batch { snapshots: vec![("cycle".into(), large)], ..Batch::default() })).unwrap();
    let small = b"short, after a long one".to_vec();
    wait(first.append(Batch { snapshots: vec![("cycle".into(), small.clone())], ..Batch::default() })).unwrap();
    wait(first.flush()).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let second = Influx::open(settings(&server, elsewhere.path(), "two")).unwrap();
    assert_eq!(wait(second.snapshot("cycle")).unwrap(), Some(small));
    assert_eq!(wait(second.latest_plan()).unwrap(), wait(first.latest_plan()).unwrap());
    assert_eq!(wait(second.latest_calibration()).unwrap().map(|c| c.generation), Some(7));
    let error = wait(second.append(one_of_each(60, 7))).unwrap_err();
    assert!(matches!(error, StoreError::Generation { latest: 7, .. }), "{error}");
    let rows = wait(second.append(one_of_each(0, 7))).unwrap().rows;
    assert_eq!(rows, 3 + 1 + 1 + 1 + 1 + 1, "the plan and the calibration are known by now");
    // The later state counts, wherever it was written.
    wait(second.append(Batch { snapshots: vec![("cycle".into(), b"of the second".to_vec())], ..Batch::default() })).unwrap();
    wait(second.flush()).unwrap();
    assert_eq!(wait(first.snapshot("cycle")).unwrap().as_deref(), Some(b"of the second".as_slice()));
}

/// Observations that reach the server hours late are summed up into the buckets of minutes and hours all the same.
#[test]
fn late_observations_are_summed_up_on_the_server() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let influx = Influx::open(settings(&server, folder.path(), "late")).unwrap();
    wait(influx.init()).unwrap();
    let now = super::sender::wall();
    let begun = super::read::floor((now - Span::hours(30)).0, Span::HOUR) - T0.0;
    let late = (0..240).map(|i| Observation { value: f64::from(i), ..observation("s", Signal::RequestsWaiting, None, begun + i64::from(i) * 15, 0.0) });
    wait(influx.append(Batch { observations: late.collect(), ..Batch::default() })).unwrap();
    let kept = |resolution| wait(influx.series_kept(resolution)).unwrap().iter().map(|series| series.points).sum::<u64>();
    assert_eq!(wait(influx.retain(now)).unwrap(), Removed::default());
    assert_eq!((kept(Resolution::Raw), kept(Resolution::Minute), kept(Resolution::Hour)), (240, 60, 1));
    let source = TargetId::new("s").unwrap();
    let hours = wait(influx.rollups(&source, None, Resolution::Hour, now - Span::hours(40), now)).unwrap();
    let summary = hours[0].summary;
    assert_eq!((hours.len(), summary.count, summary.mean, summary.min, summary.max, summary.last), (1, 240, 119.5, 0.0, 239.0, 239.0));
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC{1,30}", "[ ,=\\\\%\"'$#0-9A-Fa-f{}]{1,12}", "[a-z\\\\]{1,4}\\\\"].prop_filter_map("an id", |text| {
        let text = text.trim().to_owned();
        TargetId::new(text.clone()).ok().map(|_| text)
    })
}

/// Field case 35: Tag with space, comma or equals sign
///
/// Whatever is admitted comes back from the real server as it was; no other point of the batch is touched.
#[test]
fn every_name_comes_back_from_the_server() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = fresh(&server, folder.path(), "names").store();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let names = prop::collection::vec((any_name(), any_name(), any_name(), any::<f64>().prop_filter("finite", |v| v.is_finite())), 200);
    let mut all =
        vec![("Chat Prod, EU=1".to_owned(), r"cost center\".to_owned(), "he said \"hi\"".to_owned(), 4.0), ("50%".into(), "%41".into(), "%".into(), 3.5)];
    for _ in 0..10 {
        all.extend(names.new_tree(&mut runner).unwrap().current());
    }
    let mut batch = Batch::default();
    for (index, (source, member, part, value)) in all.iter().enumerate() {
        let at = i64::try_from(index).unwrap();
        let observed = observation(source, Signal::GpuPower, Some(part), at, *value);
        batch.observations.push(Observation { member: MemberId::new(member.clone()).ok(), ..observed });
        batch.windows.push(window(source, at, Some(value.abs())));
    }
    wait(store.append(batch.clone())).unwrap();
    for observed in &batch.observations {
        let found = wait(store.observations(&observed.source, None, observed.observed, observed.observed + Span(1))).unwrap();
        assert_eq!(found, std::slice::from_ref(observed));
    }
    let mut windows = batch.windows;
    windows.sort_by(|a, b| (&a.workload, a.start).cmp(&(&b.workload, b.start)));
    assert_eq!(wait(store.windows(None, T0, T0 + Span::hours(10))).unwrap(), windows);
}

/// A daemon whose server is away goes on with what is kept beside the queue; a machine that knows of no plan yet must not make one.
#[test]
fn without_its_server_it_tells_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let token = Token::Given(Secret::new("t0p-secret"));
    let mut settings = InfluxSettings::new(format!("http://ann:pa55@{closed}"), "o", "p", token, folder.path().join("queue.db"));
    settings.limits = InfluxLimits { wait_first: Duration::from_millis(1), batch_age: Duration::ZERO, ..InfluxLimits::default() };
    let influx = Influx::open(settings.clone()).unwrap();
    let error = wait(influx.append(one_of_each(0, 1))).unwrap_err();
    assert!(matches!(error, StoreError::Away { .. }), "{error}");
    let mut batch = one_of_each(0, 1);
    (batch.plans, batch.calibrations) = (Vec::new(), Vec::new());
    assert_eq!(wait(influx.append(batch.clone())).unwrap().rows, 8);
    let (from, to) = (T0, T0 + Span::HOUR);
    let error = wait(influx.windows(None, from, to)).unwrap_err();
    assert!(matches!(error, StoreError::Away { waiting, .. } if waiting >= 8), "{error}");
    assert_eq!(wait(influx.snapshot("cycle")).unwrap().as_ref(), Some(&batch.snapshots[0].1));
    assert_eq!(wait(influx.problem(&batch.problems[0].id())).unwrap().as_ref(), batch.problems.first());
    let status = influx.status().unwrap();
    assert!(status.away_since.is_some() && status.queued_points >= 8 && status.oldest_queued.is_some(), "{status:?}");
    let shown = format!("{error} {error:?} {status:?} {:?} {}", settings, influx.location());
    assert!(!shown.contains("t0p-secret") && !shown.contains("pa55"), "{shown}");
    // Nothing of the queue is lost by a restart without the server.
    drop(influx);
    let again = Store::influx(settings).unwrap();
    assert_eq!(wait(again.snapshot("cycle")).unwrap().as_ref(), Some(&batch.snapshots[0].1));
}

#[test]
fn settings_that_will_not_do_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let token = || Token::Given(Secret::new("t"));
    let of = |url: &str, prefix: &str, token| InfluxSettings::new(url, "o", prefix, token, folder.path().join("queue.db"));
    for settings in [of("ftp://h", "p", token()), of("http://h", "", token()), of("http://h", "_p", token()), of("http://h", "a b", token())] {
        assert!(matches!(Influx::open(settings), Err(StoreError::Server { operation: "use", .. })));
    }
    let missing = of("http://h", "p", Token::File(folder.path().join("none")));
    assert!(Influx::open(missing).err().unwrap().to_string().contains("token file"));
}
