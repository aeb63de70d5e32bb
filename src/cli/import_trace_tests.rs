use super::*;
use crate::import_mark::{Mark, Moved, Turn};
use std::fmt::Write as _;

fn setup() -> Setup {
    Setup {
        service: WorkloadId::new("chat").unwrap(),
        length: Span::minutes(5),
        scale: 1.0,
        silence_max: None,
        reading: DemandOptions { origin: MONDAY, ..DemandOptions::default() },
    }
}

/// Nine days with a request every minute: 2,592 windows.
fn file(folder: &Path) -> PathBuf {
    let mut text = "timestamp,input_tokens\n".to_owned();
    for minute in 0..9 * 1_440 {
        writeln!(text, "{},{}", 1_760_000_100 + minute * 60, minute % 700).unwrap();
    }
    let path = folder.join("log.csv");
    std::fs::write(&path, text).unwrap();
    path
}

fn part(setup: &Setup, path: &Path) -> Part {
    setup.look(path, None, &Interrupt::default()).unwrap_or_else(|e| panic!("{e:?}")).unwrap()
}

fn windows(store: &Store) -> Vec<WorkloadWindow> {
    wait(store.windows(None, Timestamp(0), Timestamp(1 << 40))).unwrap()
}

#[test]
fn a_stopped_import_goes_on_and_gives_the_same_history() {
    let folder = tempfile::tempdir().unwrap();
    let (setup, path) = (setup(), file(folder.path()));
    let part = part(&setup, &path);
    let whole = Store::in_memory().unwrap();
    let written = setup.write(&whole, &part, &Mark::new(Moved::default()), &Interrupt::default(), |_| {}).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!((written.kept, written.new, written.complete), (2_592, 2_592, true));

    let store = Store::in_memory().unwrap();
    let interrupt = Interrupt::default();
    let first = setup
        .write(&store, &part, &Mark::new(Moved::default()), &interrupt, |n| {
            if n >= 1_000 {
                interrupt.ask();
            }
        })
        .unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!((first.kept, first.complete, windows(&store).len()), (1_000, false, 1_000));
    let mark = Mark::read(&store, &part.name).unwrap_or_else(|e| panic!("{e:?}")).unwrap();
    assert_eq!((mark.written, mark.complete), (1_000, false));
    let rest = setup.write(&store, &part, &mark, &Interrupt::default(), |_| {}).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!((rest.kept, rest.new, rest.complete), (2_592, 1_592, true));
    assert_eq!(windows(&store), windows(&whole));

    // The same again changes nothing.
    setup.write(&store, &part, &Mark::new(Moved::default()), &Interrupt::default(), |_| {}).unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(windows(&store), windows(&whole));
}

#[test]
fn a_damaged_file_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let mut text = std::fs::read_to_string(&path).unwrap();
    text.push_str("noon,5\n");
    std::fs::write(&path, text).unwrap();
    let Err(Failure::Fault { message, .. }) = setup().look(&path, None, &Interrupt::default()) else { panic!("accepted") };
    assert!(message.contains("log.csv:12962"), "{message}");
}

#[test]
fn what_makes_other_windows_has_another_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let name = |setup: &Setup| part(setup, &path).name;
    let usual = name(&setup());
    assert_eq!(usual, name(&setup()));
    for other in [Setup { scale: 2.0, ..setup() }, Setup { length: Span::HOUR, ..setup() }, Setup { service: WorkloadId::new("code").unwrap(), ..setup() }] {
        assert_ne!(usual, name(&other));
    }
}

#[test]
fn a_recording_is_put_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let dated = part(&setup(), &file(folder.path()));
    let now = Timestamp(1_800_000_000);
    let moved = |part: &Part, place| shift(std::slice::from_ref(part), place, Span::minutes(5), now).map_err(|f| format!("{f:?}"));
    assert_eq!(moved(&dated, Place::Own), Ok(Moved::default()));
    let start = Timestamp(1_790_000_000);
    assert_eq!(dated.seen.first.unwrap() + moved(&dated, Place::Start(start)).unwrap().by, start);
    assert!(moved(&dated, Place::Start(now)).unwrap_err().contains("still to come"));

    // Without dates time zero is where it starts.
    let path = folder.path().join("m.jsonl");
    std::fs::write(&path, "{\"timestamp\": 120000, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": []}\n").unwrap();
    let undated = part(&setup(), &path);
    assert!(!undated.dated && moved(&undated, Place::Own).unwrap_err().contains("--align now"));
    assert_eq!(undated.seen.first.unwrap() + moved(&undated, Place::Start(start)).unwrap().by, start + Span(120));
}

/// Nine days and a half end now, in whatever week: the history before now is whole, and every window keeps its hour and weekday.
#[test]
fn a_recording_that_ends_now_keeps_hours_and_weekdays() {
    let folder = tempfile::tempdir().unwrap();
    let (setup, path) = (setup(), file(folder.path()));
    let part = part(&setup, &path);
    let own = Store::in_memory().unwrap();
    setup.write(&own, &part, &Mark::new(Moved::default()), &Interrupt::default(), |_| {}).unwrap_or_else(|e| panic!("{e:?}"));
    let recorded: Vec<WorkloadWindow> = windows(&own);
    for now in [1_800_000_000, 1_800_300_100, 1_800_500_007] {
        let now = Timestamp(now);
        let moved = shift(std::slice::from_ref(&part), Place::EndNow, setup.length, now).unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(moved.turn, Some(Turn { at: now.floor(setup.length), back: Span(2 * WEEK_S) }));
        let store = Store::in_memory().unwrap();
        setup.write(&store, &part, &Mark::new(moved), &Interrupt::default(), |_| {}).unwrap_or_else(|e| panic!("{e:?}"));
        let kept = windows(&store);
        let (first, last) = moved.span((part.seen.first.unwrap(), part.seen.last.unwrap()));
        assert!(kept.len() == recorded.len() && kept.iter().all(|w| w.start >= first.floor(setup.length) && w.start + w.length <= last.max(now)));
        let same = |w: &WorkloadWindow| recorded.iter().any(|r| (w.start.0 - r.start.0) % WEEK_S == 0 && w.input_tokens == r.input_tokens);
        assert!(kept.iter().all(same), "{now}");
    }
}

#[test]
fn parts_that_fill_the_same_windows_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let one = part(&setup(), &file(folder.path()));
    let again = Part { path: "again.csv".into(), ..one.clone() };
    assert!(apart(&[one.clone(), again.clone()], Span::minutes(5), Moved::default()).is_err());
    let later = Part { seen: Gathered { first: one.seen.last.map(|t| t + Span::HOUR), last: one.seen.last.map(|t| t + Span::hours(2)), ..one.seen }, ..again };
    assert!(apart(&[later, one], Span::minutes(5), Moved::default()).is_ok());
}

/// Requests and tokens of a public trace arrive in the history whole.
#[test]
fn a_published_trace_arrives_whole() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz"));
    if !path.is_file() {
        eprintln!("skipped: {} is not here", path.display());
        return;
    }
    let (setup, store) = (setup(), Store::in_memory().unwrap());
    let part = part(&setup, path);
    setup.write(&store, &part, &Mark::new(Moved::default()), &Interrupt::default(), |_| {}).unwrap_or_else(|e| panic!("{e:?}"));
    let kept = windows(&store);
    let requests: f64 = kept.iter().map(|w| w.arrivals_per_s.unwrap() * w.completeness * 300.0).sum();
    let input: f64 = kept.iter().map(|w| w.arrivals_per_s.unwrap() * w.completeness * 300.0 * w.input_tokens.unwrap()).sum();
    assert!((requests - 19_366.0).abs() < 0.01 && (input / requests - 1_155.0).abs() < 1.0, "{requests} {}", input / requests);
}
