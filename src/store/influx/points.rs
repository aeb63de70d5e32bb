//! A batch as lines, by bucket and by what is given up first when there is no room for them.

use super::documents::{Document, stamp};
use super::line::Line;
use super::settings::Bucket;
use crate::{Batch, Rollup, StoreError, write};
use fleet::{Calibration, Forecast, Observation, Outcome, Plan, Problem, WorkloadWindow};

/// What is given up first when the queue is full, and what last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Raw observations.
    Observations = 0,
    /// Windows, and roll-ups.
    Windows = 1,
    /// Forecasts, plans and what belongs to them.
    Decisions = 2,
    /// States of the program.
    States = 3,
}

/// A document that the queue must know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub kind: &'static str,
    pub id: String,
    /// Of a plan or calibration; 0 for the others.
    pub generation: i64,
    /// Where it stands, nanoseconds since 1970; of a state, when it was kept, milliseconds since 1970.
    pub at: i64,
    /// Of a plan: the problem it answers.
    pub problem: Option<String>,
    /// The value, where it is one that is kept here too.
    pub body: Option<Vec<u8>>,
}

/// Lines that go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parcel {
    pub bucket: Bucket,
    pub rank: Rank,
    /// A document, which is left out where it is known already.
    pub entry: Option<Entry>,
    /// Values in it.
    pub rows: u64,
    pub lines: Vec<String>,
}

/// Nanoseconds of a second.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// Largest number of a generation: a float holds it exactly.
const GENERATION_MAX: u64 = 1 << 53;

/// All of a batch, in its order. `kept_at` (milliseconds since 1970) tells which of two states of a name is the later one.
pub(crate) fn parcels(batch: &Batch, kept_at: i64) -> Result<Vec<Parcel>, StoreError> {
    let mut parcels = Vec::new();
    if !batch.observations.is_empty() {
        let lines = batch.observations.iter().filter_map(observation).collect();
        parcels.push(Parcel { bucket: Bucket::Raw, rank: Rank::Observations, entry: None, rows: batch.observations.len() as u64, lines });
    }
    if !batch.windows.is_empty() {
        let lines = batch.windows.iter().map(window).collect::<Result<Vec<_>, _>>()?.concat();
        parcels.push(Parcel { bucket: Bucket::Decisions, rank: Rank::Windows, entry: None, rows: batch.windows.len() as u64, lines });
    }
    for forecast in &batch.forecasts {
        parcels.push(self::forecast(forecast)?);
    }
    for problem in &batch.problems {
        parcels.push(self::problem(problem)?);
    }
    for plan in &batch.plans {
        parcels.push(self::plan(plan)?);
    }
    for outcome in &batch.outcomes {
        parcels.push(self::outcome(outcome)?);
    }
    for calibration in &batch.calibrations {
        parcels.push(self::calibration(calibration)?);
    }
    for (name, body) in &batch.snapshots {
        parcels.push(state(name, body, kept_at)?);
    }
    Ok(parcels)
}

fn observation(o: &Observation) -> Option<String> {
    let line = series(o.source.as_str(), o.member.as_ref().map(fleet::MemberId::as_str), o.signal, o.part.as_deref());
    line.number("value", o.value).number("lag_s", seconds(o.received.0 - o.observed.0)).at(o.observed.0.saturating_mul(SECOND))
}

/// What names a series.
fn series(source: &str, member: Option<&str>, signal: fleet::Signal, part: Option<&str>) -> Line {
    let line = Line::of(if signal.of_gpu() { "gpu" } else { "engine" });
    line.tag("source", source).tag("member", member.unwrap_or_default()).tag("signal", &signal.name()).tag("part", part.unwrap_or_default())
}

/// A minute or hour of a series.
pub(crate) fn rollup(r: &Rollup) -> Option<String> {
    let line = series(r.source.as_str(), r.member.as_ref().map(fleet::MemberId::as_str), r.signal, r.part.as_deref());
    let s = &r.summary;
    let line = line.number("count", count(s.count)).number("mean", s.mean).number("min", s.min).number("max", s.max).number("last", s.last);
    line.at(r.start.0.saturating_mul(SECOND))
}

fn window(w: &WorkloadWindow) -> Result<Vec<String>, StoreError> {
    let body = write::body("window", &format!("{} at {}", w.workload, w.start), w)?;
    let (length, at) = (w.length.0.to_string(), w.start.0.saturating_mul(SECOND));
    let of = |measurement| Line::of(measurement).tag("workload", w.workload.as_str()).tag("length", &length);
    let demand = of("demand")
        .maybe("arrivals_per_s", w.arrivals_per_s)
        .maybe("peak_per_s", w.peak_per_s)
        .maybe("finished_per_s", w.finished_per_s)
        .maybe("refused_per_s", w.refused_per_s)
        .maybe("input_tokens", w.input_tokens)
        .maybe("output_tokens", w.output_tokens)
        .maybe("waiting", w.waiting)
        .maybe("running", w.running)
        .maybe("inter_token_s", w.inter_token_s)
        .maybe("first_tokens", w.first_tokens)
        .maybe("first_tokens_in_time", w.first_tokens_in_time)
        .number("ready", w.ready.values().copied().map(f64::from).sum())
        .number("completeness", w.completeness)
        .flag("saturated", w.saturated)
        .text("body", &String::from_utf8_lossy(&body));
    let cache = of("cache").maybe("prefix_hit_rate", w.prefix_hit_rate);
    Ok([demand.at(at), cache.at(at)].into_iter().flatten().collect())
}

fn parcel(kind: &'static str, rank: Rank, generation: i64, keep: bool, document: &Document<'_>) -> Result<Parcel, StoreError> {
    let object = document.id.to_owned();
    let lines = document.lines().ok_or_else(|| StoreError::Unkept { kind, object: object.clone(), reason: "it is too large to be read back".into() })?;
    let entry = Entry { kind, id: object, generation, at: document.at, problem: None, body: keep.then(|| document.body.to_vec()) };
    Ok(Parcel { bucket: Bucket::Decisions, rank, entry: Some(entry), rows: 1, lines })
}

fn forecast(f: &Forecast) -> Result<Parcel, StoreError> {
    let id = f.id.as_str();
    let body = write::body("forecast", id, f)?;
    let names: Vec<String> = f.levels.iter().map(|level| format!("q{:02.0}", level * 100.0)).collect();
    let first = f.values.first().map_or(&[][..], Vec::as_slice);
    let mut numbers: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(first.iter().copied()).collect();
    numbers.push(("steps", count(f.values.len() as u64)));
    numbers.push(("step_s", seconds(f.step.0)));
    let document = Document { kind: "forecast", id, at: stamp(f.origin.0, id), tags: &[("workload", f.workload.as_str())], numbers: &numbers, body: &body };
    parcel("forecast", Rank::Decisions, 0, false, &document)
}

fn problem(p: &Problem) -> Result<Parcel, StoreError> {
    let id = p.id();
    let body = write::body("problem", id.as_str(), p)?;
    let numbers = [("gpus", p.gpus.len()), ("services", p.services.len()), ("jobs", p.jobs.len())].map(|(name, n)| (name, count(n as u64)));
    let document = Document { kind: "problem", id: id.as_str(), at: stamp(p.as_of.0, id.as_str()), tags: &[], numbers: &numbers, body: &body };
    parcel("problem", Rank::Decisions, 0, true, &document)
}

fn plan(p: &Plan) -> Result<Parcel, StoreError> {
    let id = p.id.as_str();
    let body = write::body("plan", id, p)?;
    let content = p.content_id();
    if content != p.id {
        return Err(StoreError::Fingerprint { id: id.to_owned(), content: content.to_string() });
    }
    let generation = generation("plan", id, p.generation)?;
    let c = &p.committed;
    let numbers = [
        ("generation", count(p.generation)),
        ("cost", p.report.objective.total()),
        ("bound", p.report.bound),
        ("gap", p.report.gap),
        ("replicas", count(c.replicas.len() as u64)),
        ("jobs", count(c.jobs.len() as u64)),
        ("shortfall_per_s", c.shortfalls.iter().map(|s| s.load).sum()),
        ("preemptions", count(c.preemptions.len() as u64)),
        ("relaxations", count(p.report.relaxations.len() as u64)),
        ("advisory", if p.advisory { 1.0 } else { 0.0 }),
    ];
    let document = Document { kind: "plan", id, at: stamp(p.as_of.0, id), tags: &[], numbers: &numbers, body: &body };
    let mut parcel = parcel("plan", Rank::Decisions, generation, true, &document)?;
    if let Some(entry) = &mut parcel.entry {
        entry.problem = Some(p.problem.to_string());
    }
    Ok(parcel)
}

fn outcome(o: &Outcome) -> Result<Parcel, StoreError> {
    let id = o.id.as_str();
    let body = write::body("outcome", id, o)?;
    let numbers = [("applied", if o.applied { 1.0 } else { 0.0 }), ("length_s", seconds(o.length.0)), ("starts", count(o.starts.len() as u64))];
    let at = stamp(o.start.0, id);
    let mut parcel = parcel("outcome", Rank::Decisions, 0, false, &Document { kind: "outcome", id, at, tags: &[], numbers: &numbers, body: &body })?;
    for s in &o.services {
        let line = Line::of("outcome").tag("workload", s.workload.as_str());
        let line = line.maybe("observed_per_s", s.observed_per_s).maybe("peak_per_s", s.peak_per_s).maybe("promised_per_s", s.promised_per_s);
        let line = line.maybe("attainment", s.attainment).number("completeness", s.completeness).flag("censored", s.censored);
        parcel.lines.extend(line.at(at));
    }
    Ok(parcel)
}

fn calibration(c: &Calibration) -> Result<Parcel, StoreError> {
    let id = c.id();
    let body = write::body("calibration", id.as_str(), c)?;
    let generation = generation("calibration", id.as_str(), c.generation)?;
    let numbers = [("generation", count(c.generation)), ("frozen", if c.frozen { 1.0 } else { 0.0 })];
    let at = stamp(c.made_at.0, id.as_str());
    let document = Document { kind: "calibration", id: id.as_str(), at, tags: &[], numbers: &numbers, body: &body };
    let mut parcel = parcel("calibration", Rank::Decisions, generation, true, &document)?;
    for (workload, variants) in &c.capacity {
        for (variant, factor) in variants {
            let line = Line::of("calibration").tag("workload", workload.as_str()).tag("variant", variant.as_str());
            let line = line.number("capacity_factor", factor.value).number("std_error", factor.std_error).number("evidence", count(factor.evidence));
            parcel.lines.extend(line.at(at));
        }
    }
    Ok(parcel)
}

/// A state stands at the beginning of 1970, so that the next one takes its place; its id is when it was kept.
fn state(name: &str, body: &[u8], kept_at: i64) -> Result<Parcel, StoreError> {
    let id = kept_at.to_string();
    let document = Document { kind: "state", id: &id, at: 0, tags: &[("name", name)], numbers: &[], body };
    let mut parcel = parcel("state", Rank::States, 0, true, &document)?;
    if let Some(entry) = &mut parcel.entry {
        name.clone_into(&mut entry.id);
        entry.at = kept_at;
    }
    Ok(parcel)
}

fn generation(kind: &'static str, id: &str, offered: u64) -> Result<i64, StoreError> {
    let too_large = || StoreError::Number { kind, object: id.to_owned(), detail: format!("generation {offered}") };
    if offered > GENERATION_MAX { Err(too_large()) } else { i64::try_from(offered).map_err(|_| too_large()) }
}

#[expect(clippy::cast_precision_loss, reason = "spans and lags lie far below 2^53 seconds")]
fn seconds(span: i64) -> f64 {
    span as f64
}

#[expect(clippy::cast_precision_loss, reason = "counts lie far below 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}
