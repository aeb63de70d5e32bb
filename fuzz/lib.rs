//! Every parser of the house, fed with bytes of anybody's making. A target is a function of bytes; it fails by panicking, by never ending or
//! by taking more memory than its runner allows. What must hold beyond that is asserted: a number that gets in is finite, what was written
//! reads back.
//!
//! The targets are run by libFuzzer (`targets/`, guided by coverage, nightly compiler) or by `plain` (a seeded mutator, any compiler); both
//! begin with the files of `seeds/`, a folder a target. `make fuzz` picks what is there. A new parser gets a function here, a line in
//! [`TARGETS`], a file in `targets/`, a `[[bin]]` in `Cargo.toml` and a seed.

use datasets::{DemandOptions, Format, Kind, read_demand_from, read_jobs_from};
use fleet::{Plan, Reading, Scrape, Signal, TargetId, Timestamp};
use ingest::{Catalogue, Names, ReadAs, Reader, exposition::Limits};
use std::{collections::BTreeMap, path::Path};

/// A target: what it is called and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 9] = [
    ("config", config),
    ("discovery", discovery),
    ("exposition", exposition),
    ("influx_csv", influx_csv),
    ("line_protocol", line_protocol),
    ("plan_file", plan_file),
    ("prometheus_answer", prometheus_answer),
    ("recording", recording),
    ("traces", traces),
];

/// The instant at which everything happens.
const NOW: Timestamp = Timestamp(1_764_576_000);

/// A metrics page: its lines, then its signals by every table of the catalogue.
pub fn exposition(data: &[u8]) {
    let limits = Limits::default();
    if let Ok(page) = ingest::exposition::parse(data, &limits) {
        assert!(page.skipped.len() <= limits.skipped_max);
        assert!(page.lines().all(|line| line.value.is_finite()));
    }
    let (target, names, select) = (target(), Names::new(), BTreeMap::new());
    let catalogue = Catalogue::builtin();
    let how = |engine| ReadAs { target: &target, engine, select: &select, names: &names };
    for engine in std::iter::once(None).chain(catalogue.engines().map(Some)) {
        finite(&catalogue.read_text(&how(engine), NOW, data, &limits));
    }
    let named = Names::from([(Signal::RequestsRunning, "a".to_owned())]);
    finite(&ingest::read_page_named(&target, NOW, data, &limits, &named));
}

/// A recording of pages, with its separators.
pub fn recording(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let target = target();
    let pages = ingest::split_recording(&text).len();
    let scrapes: Vec<Scrape> = ingest::recorded_scrapes(&target, &text).collect();
    assert_eq!(pages, scrapes.len());
    scrapes.iter().for_each(finite);
}

/// Lines that were pushed.
pub fn line_protocol(data: &[u8]) {
    use ingest::push::{LineLimits, Precision, line_protocol::parse_line, read_lines};
    for precision in [Precision::Nanoseconds, Precision::Seconds] {
        let (batch, _) = read_lines(data, precision, &LineLimits::default(), NOW);
        batch.demand.iter().for_each(|pushed| finite(&pushed.scrape));
        let amounts = batch.jobs.iter().flat_map(|job| [job.remaining_s, job.since_checkpoint_s]).flatten();
        assert!(amounts.into_iter().all(|amount| amount.is_finite() && amount >= 0.0));
    }
    let _ = std::str::from_utf8(data).map(parse_line);
}

/// An answer of the Prometheus API.
pub fn prometheus_answer(data: &[u8]) {
    use ingest::query::{AnswerLimits, instance_labels, parse_answer, scrapes};
    let Ok(answer) = parse_answer(data, &AnswerLimits::default()) else { return };
    let all = Reader::of(target());
    let one = Reader { select: BTreeMap::from([("instance".to_owned(), "a:1".to_owned())]), ..Reader::of(target()) };
    for targets in [[all], [one]] {
        scrapes(&answer.series, Catalogue::builtin(), &targets, &instance_labels()).iter().for_each(finite);
    }
}

/// An answer of `InfluxDB` to a Flux query.
pub fn influx_csv(data: &[u8]) {
    use ingest::influx::{Bucket, Selected, nvidia_smi, read_rows, scrapes};
    let bucket = Bucket {
        url: "http://127.0.0.1:8086".into(),
        org: "o".into(),
        bucket: "b".into(),
        token: wire::Secret::new("t"),
        fields: nvidia_smi(),
        member: Some("uuid".into()),
        targets: vec![Selected { target: target(), select: BTreeMap::new() }],
    };
    let _ = scrapes(data, &bucket).map(|scrapes| scrapes.iter().for_each(finite));
    let _ = read_rows(data, |_| ());
}

/// Lists of service discovery.
pub fn discovery(data: &[u8]) {
    for targets in [ingest::discovery::parse_json(data), ingest::discovery::parse_yaml(data)].into_iter().flatten() {
        assert!(targets.iter().all(|target| !target.address.is_empty() && !target.url().is_empty()));
    }
}

/// `turnaround.toml`.
pub fn config(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(faults) = config::parse(&text, "turnaround.toml") {
        assert!(!faults.is_empty());
        // A span is drawn, so it must lie on the text.
        assert!(faults.iter().all(|fault| text.get(fault.span.clone()).is_some()));
    }
}

/// Trace files, read as every format there is.
pub fn traces(data: &[u8]) {
    let name = Path::new("bytes");
    for format in Format::ALL {
        let content = std::io::Cursor::new(data.to_vec());
        match format.describe().kind {
            // A folder of files, not a file.
            Kind::Demand if format == Format::ServeGen => {}
            Kind::Demand => {
                let options = DemandOptions { mapping: "time=time".parse().unwrap_or_default(), ..DemandOptions::default() };
                let _ = read_demand_from(content, name, format, &options).map(|records| records.take_while(Result::is_ok).count());
            }
            Kind::Jobs => {
                let _ = read_jobs_from(content, name, format, NOW).map(|jobs| jobs.take_while(Result::is_ok).count());
            }
            _ => {}
        }
    }
}

/// A plan file: what it holds is written back as the same bytes, and has the same identity.
pub fn plan_file(data: &[u8]) {
    let Ok(plan) = serde_json::from_slice::<Plan>(data) else { return };
    let bytes = fleet::canonical_bytes(&plan);
    let Ok(back) = serde_json::from_slice::<Plan>(&bytes) else { return };
    assert_eq!(plan.content_id(), back.content_id());
}

fn target() -> TargetId {
    TargetId::new("target").unwrap_or_else(|error| unreachable!("{error}"))
}

/// A number that gets in is finite, and a failed look has none.
fn finite(scrape: &Scrape) {
    assert!(scrape.is_ok() || scrape.samples.is_empty());
    for sample in &scrape.samples {
        match &sample.value {
            Reading::Scalar(value) => assert!(value.is_finite(), "{:?}", sample.signal),
            Reading::Histogram(histogram) => {
                assert!(histogram.sum.is_finite() && histogram.count.is_finite(), "{:?}", sample.signal);
                assert!(histogram.buckets.iter().all(|(bound, count)| bound.is_finite() && count.is_finite()), "{:?}", sample.signal);
            }
        }
    }
}
