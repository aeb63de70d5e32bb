//! The rules on what observations become: members, roll-ups, back-fill, and what may be written at all.

use crate::contract::{T0, observation, window};
use crate::{Batch, Resolution, Rollup, Store, StoreError, Summary, wait};
use fleet::{MemberId, Observation, Signal, Span, TargetId, Timestamp, WorkloadWindow};
use proptest::{prelude::*, test_runner::TestRunner};
use std::collections::BTreeMap;

/// Start of an hour near the samples.
const HOUR0: i64 = 1_700_002_800 - T0.0;

fn target(name: &str) -> TargetId {
    TargetId::new(name).unwrap()
}

fn all() -> (Timestamp, Timestamp) {
    (T0 - Span::DAY, T0 + Span::hours(48))
}

fn append(store: &Store, observations: Vec<Observation>) {
    wait(store.append(Batch { observations, ..Batch::default() })).unwrap();
}

fn of_member(member: &str, o: Observation) -> Observation {
    Observation { member: Some(MemberId::new(member).unwrap()), ..o }
}

pub(crate) fn members_of_a_target_are_told_apart(store: &Store) {
    let written = vec![
        observation("a", Signal::RequestsRunning, None, 0, 1.0),
        of_member("0", observation("a", Signal::RequestsRunning, None, 0, 2.0)),
        of_member("1", observation("a", Signal::RequestsRunning, None, 0, 3.0)),
        observation("a", Signal::RequestsRunning, Some("0"), 0, 4.0),
        of_member("1", observation("b", Signal::RequestsRunning, None, 0, 5.0)),
    ];
    append(store, written.clone());
    let (from, to) = all();
    let found = wait(store.observations(&target("a"), None, from, to)).unwrap();
    // None before some: first of members, then of parts.
    assert_eq!(found, [0, 3, 1, 2].map(|index: usize| written[index].clone()));
    let kept = wait(store.series_kept(Resolution::Raw)).unwrap();
    let names: Vec<_> = kept.iter().map(|s| (s.source.as_str(), s.member.as_ref().map(MemberId::as_str), s.part.as_deref())).collect();
    assert_eq!(names, [("a", None, None), ("a", None, Some("0")), ("a", Some("0"), None), ("a", Some("1"), None), ("b", Some("1"), None)]);
    assert!(kept.iter().all(|s| (s.first, s.last, s.points) == (T0, T0, 1)), "{kept:?}");
}

/// Two hours and a bit of three series every 15 s: a counter that restarts, a gauge of a member with a gap of ten minutes, a part of a
/// histogram that falls silent.
fn two_hours() -> Vec<Observation> {
    let mut out = Vec::new();
    for at in (HOUR0 + 100..HOUR0 + 7_600).step_by(15) {
        let n = f64::from(i32::try_from(at - HOUR0).unwrap());
        out.push(observation("a", Signal::PromptTokens, None, at, if n > 4_000.0 { n - 4_000.0 } else { 1e6 + n * 0.1 }));
        if !(1_000..1_600).contains(&(at - HOUR0)) {
            out.push(of_member("gpu-1", observation("a", Signal::GpuPower, None, at, 300.0 + (n * 0.7).sin())));
        }
        if n < 2_000.0 {
            out.push(observation("a", Signal::QueueTime, Some("le=0.5"), at, n));
        }
    }
    out
}

type Key = (String, Option<MemberId>, Option<String>, Timestamp);

/// What observations sum up to, reckoned the plain way.
fn reckoned(observations: &[Observation], length: Span) -> BTreeMap<Key, Summary> {
    let mut values: BTreeMap<Key, Vec<(Timestamp, f64)>> = BTreeMap::new();
    for o in observations {
        let key = (o.signal.name(), o.member.clone(), o.part.clone(), o.observed.floor(length));
        values.entry(key).or_default().push((o.observed, o.value));
    }
    let sum_up = |mut values: Vec<(Timestamp, f64)>| {
        values.sort_by_key(|(at, _)| *at);
        let only = || values.iter().map(|(_, value)| *value);
        Summary {
            count: values.len() as u64,
            mean: only().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap()),
            min: only().fold(f64::INFINITY, f64::min),
            max: only().fold(f64::NEG_INFINITY, f64::max),
            last: values.last().unwrap().1,
        }
    };
    values.into_iter().map(|(key, values)| (key, sum_up(values))).collect()
}

/// The store's roll-ups of source "a" are those of the observations, in the promised order.
fn agree(store: &Store, observations: &[Observation]) {
    let (from, to) = all();
    for resolution in [Resolution::Minute, Resolution::Hour] {
        let found = wait(store.rollups(&target("a"), None, resolution, from, to)).unwrap();
        let reckoned = reckoned(observations, resolution.length());
        assert_eq!(found.len(), reckoned.len(), "{resolution:?}");
        for (rollup, (key, summary)) in found.iter().zip(&reckoned) {
            assert_eq!((rollup.signal.name(), rollup.member.clone(), rollup.part.clone(), rollup.start), *key, "{resolution:?}");
            assert_eq!(rollup.length, resolution.length());
            // Sums may be taken in another order.
            assert!((rollup.summary.mean - summary.mean).abs() <= 1e-9 * (1.0 + summary.mean.abs()), "{rollup:?} {summary:?}");
            assert_eq!(Summary { mean: summary.mean, ..rollup.summary }, *summary, "{rollup:?}");
        }
    }
}

pub(crate) fn rollups_are_what_their_observations_sum_up_to(store: &Store) {
    let written = two_hours();
    let (from, to) = all();
    // In pieces of odd sizes, and looked at while an hour is open.
    for (index, piece) in written.chunks(173).enumerate() {
        append(store, piece.to_vec());
        if index == 3 {
            agree(store, &written[..4 * 173]);
        }
    }
    agree(store, &written);
    let raw = wait(store.rollups(&target("a"), None, Resolution::Raw, from, to)).unwrap();
    let same: Vec<_> = wait(store.observations(&target("a"), None, from, to)).unwrap().into_iter().map(Rollup::raw).collect();
    assert_eq!(raw, same);
    let some = |resolution, from, to| wait(store.rollups(&target("a"), Some(Signal::GpuPower), resolution, T0 + Span(from), T0 + Span(to))).unwrap().len();
    assert_eq!(some(Resolution::Minute, HOUR0 + 120, HOUR0 + 300), 3, "starts at 120, 180 and 240");
    assert_eq!(some(Resolution::Minute, HOUR0 + 121, HOUR0 + 241), 2, "starts at 180 and 240");
    assert_eq!(some(Resolution::Minute, HOUR0 + 1_020, HOUR0 + 1_560), 0, "a gap has no roll-ups");
    assert_eq!((some(Resolution::Hour, HOUR0 + 1, HOUR0 + 7_200), some(Resolution::Hour, HOUR0, HOUR0 + 7_201)), (1, 3));
    let counter = wait(store.rollups(&target("a"), Some(Signal::PromptTokens), Resolution::Hour, from, to)).unwrap();
    assert!(counter[1].summary.last < counter[1].summary.max, "a restart shows: {:?}", counter[1]);
    for resolution in [Resolution::Minute, Resolution::Hour] {
        let kept = wait(store.series_kept(resolution)).unwrap();
        let points: Vec<_> = kept.iter().map(|s| (s.signal, s.first, s.last, s.points)).collect();
        let expected: Vec<_> = [Signal::GpuPower, Signal::PromptTokens, Signal::QueueTime]
            .map(|signal| {
                let of_it: Vec<_> = reckoned(&written, resolution.length()).into_keys().filter(|key| key.0 == signal.name()).collect();
                (signal, of_it[0].3, of_it[of_it.len() - 1].3, of_it.len() as u64)
            })
            .into();
        assert_eq!(points, expected, "{resolution:?}");
    }
}

pub(crate) fn late_and_corrected_observations_are_summed_up_again(store: &Store) {
    let mut written = two_hours();
    // Every seventh comes late: in reverse, when all the others are there.
    let late = |index: usize| index % 7 == 3;
    let (after, first): (Vec<_>, Vec<_>) = written.iter().cloned().enumerate().partition(|(index, _)| late(*index));
    append(store, first.into_iter().map(|(_, o)| o).collect());
    let after: Vec<_> = after.into_iter().rev().map(|(_, o)| o).collect();
    after.chunks(50).for_each(|piece| append(store, piece.to_vec()));
    agree(store, &written);
    // One is corrected, one is stamped ahead of its own arrival, and one lies an hour before all others.
    written[5].value = -4.0;
    append(store, vec![written[5].clone()]);
    let ahead = Observation { received: T0 + Span(HOUR0 + 7_700), ..observation("a", Signal::GpuPower, None, HOUR0 + 90_000, 1.0) };
    let before = observation("a", Signal::GpuPower, None, HOUR0 - 1_234, 2.0);
    append(store, vec![ahead.clone(), before.clone()]);
    written.extend([ahead, before]);
    agree(store, &written);
    append(store, written.clone());
    agree(store, &written);
}

pub(crate) fn a_back_fill_twice_is_a_back_fill_once(store: &Store) {
    let live = Batch { observations: vec![observation("a", Signal::GpuPower, None, HOUR0 + 90_000, 9.0)], ..Batch::default() };
    wait(store.append(live)).unwrap();
    let windows: Vec<WorkloadWindow> = (0..24_u32).map(|n| window("chat", HOUR0 + 300 * i64::from(n), Some(f64::from(n)))).collect();
    // It ends in the middle of an hour and begins anew; a piece written says how far it came.
    let pieces: Vec<Batch> = two_hours()
        .chunks(400)
        .enumerate()
        .map(|(n, piece)| Batch {
            observations: piece.to_vec(),
            windows: windows.chunks(8).nth(n).unwrap_or_default().to_vec(),
            snapshots: vec![("import/example".into(), n.to_string().into_bytes())],
            ..Batch::default()
        })
        .collect();
    let (from, to) = all();
    let content = || {
        let rollups = |resolution| wait(store.rollups(&target("a"), None, resolution, from, to)).unwrap();
        (Resolution::ALL.map(rollups), wait(store.windows(None, from, to)).unwrap(), wait(store.snapshot("import/example")).unwrap())
    };
    for piece in &pieces[..2] {
        wait(store.append(piece.clone())).unwrap();
    }
    assert_eq!(content().2.as_deref(), Some(b"1".as_slice()), "it goes on after piece 1");
    for piece in &pieces {
        wait(store.append(piece.clone())).unwrap();
    }
    let once = content();
    for piece in &pieces {
        wait(store.append(piece.clone())).unwrap();
    }
    assert_eq!(content(), once);
    assert_eq!(once.1, windows);
}

/// Text that a store might trip over, and any other.
fn text() -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        "a b",
        "a,b",
        "a=b",
        "a\\",
        "\\",
        "a\\,b",
        "\"",
        "'",
        "le=0.5",
        "ü",
        "e\u{301}",
        "日本",
        "👩\u{200d}💻",
        "\u{feff}x",
        "\u{202e}x",
        "%20",
        "${x}",
        "r[\"v\"]",
        "\\n",
        "_field",
        "#x",
        "true",
        "1i",
        "\u{85}",
        "\u{a0}x",
        "a\nb",
        "a\tb",
        "\0",
        "",
    ]);
    prop_oneof![1 => awkward.prop_map(str::to_owned), 2 => any::<String>(), 1 => "[ -~]{1,40}", 1 => "\\PC{1,60}"]
}

fn anything() -> impl Strategy<Value = Observation> {
    let signal = prop::sample::select(Signal::ALL.to_vec());
    let value =
        prop_oneof![3 => any::<f64>(), 1 => prop::sample::select(vec![0.0, -0.0, 5e-324, f64::MAX, f64::MIN, 0.1 + 0.2, 1e15, 9_007_199_254_740_993.0])];
    let instant = 1_000_000_000..4_000_000_000_i64;
    // What the words themselves refuse never gets as far as the store.
    let id = |text: String| TargetId::new(text).ok();
    let source = text().prop_filter_map("no target", id);
    let member = prop::option::of(text().prop_filter_map("no member", |text| MemberId::new(text).ok()));
    (source, member, signal, prop::option::of(text()), value, instant.clone(), instant).prop_map(|(source, member, signal, part, value, observed, received)| {
        Observation { source, member, signal, part, value, observed: Timestamp(observed), received: Timestamp(received) }
    })
}

pub(crate) fn what_is_admitted_comes_back_identical(store: &Store) {
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config.clone())
        .run(&anything(), |o| {
            match wait(store.append(Batch { observations: vec![o.clone()], ..Batch::default() })) {
                Ok(ack) => {
                    prop_assert_eq!(ack.rows, 1);
                    let found = wait(store.observations(&o.source, Some(o.signal), o.observed, o.observed + Span(1))).unwrap();
                    prop_assert!(found.contains(&o), "{:?} came back as {:?}", o, found);
                    let rollups =
                        wait(store.rollups(&o.source, Some(o.signal), Resolution::Minute, o.observed.floor(Span::MINUTE), o.observed + Span(1))).unwrap();
                    prop_assert!(rollups.iter().any(|r| (&r.member, &r.part) == (&o.member, &o.part)), "{:?} is not in {:?}", o, rollups);
                }
                Err(StoreError::Unkept { reason, .. }) => prop_assert!(o.part.is_some() && reason.contains("its part"), "{}", reason),
                Err(StoreError::Number { .. }) => prop_assert!(!o.value.is_finite()),
                Err(other) => prop_assert!(false, "{}", other),
            }
            Ok(())
        })
        .unwrap();
    let admissible = anything().prop_filter("refused", |o| o.value.is_finite() && o.part.is_none());
    let admitted = |o| {
        let written = wait(store.append(Batch { observations: vec![o], ..Batch::default() }));
        prop_assert!(written.is_ok(), "a finite number under a usable name: {:?}", written);
        Ok(())
    };
    TestRunner::new(config).run(&admissible, admitted).unwrap();
}

pub(crate) fn what_cannot_come_back_is_refused_with_its_reason(store: &Store) {
    let part = |part: &str| Batch { observations: vec![observation("a", Signal::QueueTime, Some(part), 0, 1.0)], ..Batch::default() };
    let instant =
        |at: i64| Batch { observations: vec![Observation { observed: Timestamp(at), ..observation("a", Signal::GpuPower, None, 0, 1.0) }], ..Batch::default() };
    let named = |name: &str| Batch { snapshots: vec![(name.into(), vec![1])], ..Batch::default() };
    for (batch, reason) in [
        (part(""), "is empty"),
        (part("a\nb"), "holds a control character"),
        (part(&"ä".repeat(65)), "longer than 128 bytes"),
        (instant(i64::MAX), "outside the years"),
        (instant(-9_300_000_000), "outside the years"),
        (Batch { windows: vec![WorkloadWindow { start: Timestamp(i64::MIN), ..window("w", 0, None) }], ..Batch::default() }, "outside the years"),
        (named(""), "is empty"),
        (named("a\0"), "holds a control character"),
    ] {
        // What else is in the batch is not kept either.
        let batch = Batch { snapshots: [batch.snapshots, vec![("beside".into(), vec![2])]].concat(), ..batch };
        let error = wait(store.append(batch)).unwrap_err();
        assert!(matches!(error, StoreError::Unkept { .. }) && error.to_string().contains(reason), "{error}");
    }
    assert_eq!(wait(store.snapshot("beside")).unwrap(), None);
    append(store, part("all of it is kept: ,=\\ \"é").observations);
}
