//! What pushed lines mean: demand of a workload from a gateway, or the state of a job from its queue.

use super::line_protocol::{FieldValue, Point, parse_line};
use fleet::{Histogram, JobId, Reading, Sample, Scrape, Signal, SignalKind, Span, TargetId, Timestamp, WorkloadId};
use serde::Serialize;
use std::collections::BTreeMap;

/// Refused lines that are named one by one; the rest is only counted.
const REFUSED_TOLD_MAX: usize = 100;

/// Signals of one source at one instant, as it pushed them.
#[derive(Debug, Clone, PartialEq)]
pub struct Pushed {
    /// The workload whose demand it is.
    pub workload: WorkloadId,
    /// What was said; its target is the source.
    pub scrape: Scrape,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobStage {
    /// Waits for GPUs.
    Waiting,
    /// Holds its GPUs.
    Running,
    /// Finished, failed or cancelled: it wants nothing any more.
    Done,
}

/// What a queue says of one of its jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReport {
    /// The job.
    pub job: JobId,
    /// When it was so.
    pub at: Timestamp,
    /// Where it stands.
    pub stage: JobStage,
    /// Work left, seconds of the gang at speed 1; nothing when the queue does not know.
    pub remaining_s: Option<f64>,
    /// Work since the last checkpoint, seconds at speed 1; nothing when unknown, which counts as all of it.
    pub since_checkpoint_s: Option<f64>,
    /// GPUs it holds or asks for.
    pub gpus: Option<u32>,
}

/// All that one request brought.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// Demand, one for each source and instant, in order.
    pub demand: Vec<Pushed>,
    /// Jobs, in the order of their lines.
    pub jobs: Vec<JobReport>,
}

/// A line that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusedLine {
    /// Its number, from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

/// How a request went, line by line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Report {
    /// Lines taken.
    pub accepted: usize,
    /// Lines refused.
    pub refused: usize,
    /// Lines whose time lay ahead of our clock and was replaced by ours.
    pub restamped: usize,
    /// The first hundred refused ones, with their reasons.
    pub reasons: Vec<RefusedLine>,
}

impl Report {
    fn refuse(&mut self, line: usize, reason: String) {
        self.refused += 1;
        if self.reasons.len() < REFUSED_TOLD_MAX {
            self.reasons.push(RefusedLine { line, reason });
        }
    }
}

/// How lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLimits {
    /// Lines of a request at most; those beyond are refused.
    pub lines_max: usize,
    /// Bytes of a line at most.
    pub line_bytes_max: usize,
    /// Oldest time taken. What is older belongs into an import.
    pub age_max: Span,
    /// How far ahead of our clock a time may lie and still be believed; beyond it the line is stamped with our own.
    pub ahead_max: Span,
}

impl Default for LineLimits {
    /// An agent sends batches of 1,000 to 5,000 lines, and after an outage what it kept of the last hours.
    fn default() -> Self {
        Self { lines_max: 10_000, line_bytes_max: 64 << 10, age_max: Span(6 * 3600), ahead_max: Span(5) }
    }
}

/// Units of a line's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Nanoseconds, the protocol's default.
    #[default]
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

impl Precision {
    /// By its name in a request (`ns`, `us`, `ms`, `s`).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "ns" => Some(Self::Nanoseconds),
            "us" => Some(Self::Microseconds),
            "ms" => Some(Self::Milliseconds),
            "s" => Some(Self::Seconds),
            _ => None,
        }
    }

    fn timestamp(self, time: i64) -> Timestamp {
        let a_second = match self {
            Self::Nanoseconds => 1_000_000_000,
            Self::Microseconds => 1_000_000,
            Self::Milliseconds => 1_000,
            Self::Seconds => 1,
        };
        Timestamp(time.div_euclid(a_second))
    }
}

/// Reads a body of lines received at `now`. Each line stands for itself: a bad one is refused with its number and reason, the others count.
#[must_use]
pub fn read_lines(body: &[u8], precision: Precision, limits: &LineLimits, now: Timestamp) -> (Batch, Report) {
    let mut batch = Batch::default();
    let mut report = Report::default();
    // Lines of one source and instant are one look at it.
    let mut looks: BTreeMap<(Timestamp, TargetId, WorkloadId), BTreeMap<Signal, Reading>> = BTreeMap::new();
    for (number, line) in (1..).zip(body.split(|byte| *byte == b'\n')) {
        if number > limits.lines_max {
            if !line.is_empty() {
                report.refuse(number, format!("more lines than lines_max = {}", limits.lines_max));
            }
            continue;
        }
        let taken = point(line, limits).and_then(|point| {
            let Some(point) = point else { return Ok(false) };
            let (at, restamped) = stamp(point.time.map(|time| precision.timestamp(time)), limits, now)?;
            match point.measurement.as_str() {
                "demand" => take_demand(&point, at, &mut looks)?,
                "job" => batch.jobs.push(job(&point, at)?),
                other => return Err(format!("measurement {other:?} is not known here: demand and job are")),
            }
            report.restamped += usize::from(restamped);
            Ok(true)
        });
        match taken {
            Ok(taken) => report.accepted += usize::from(taken),
            Err(reason) => report.refuse(number, reason),
        }
    }
    batch.demand = looks
        .into_iter()
        .map(|((at, source, workload), signals)| {
            let samples = signals.into_iter().map(|(signal, value)| Sample::of_target(signal, value)).collect();
            Pushed { workload, scrape: Scrape::read(source, at, samples) }
        })
        .collect();
    (batch, report)
}

fn point(line: &[u8], limits: &LineLimits) -> Result<Option<Point>, String> {
    if line.len() > limits.line_bytes_max {
        return Err(format!("longer than line_bytes_max = {}", limits.line_bytes_max));
    }
    parse_line(std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?)
}

/// The time a line counts under, and whether it is ours because its own lies ahead.
fn stamp(said: Option<Timestamp>, limits: &LineLimits, now: Timestamp) -> Result<(Timestamp, bool), String> {
    match said {
        None => Ok((now, false)),
        Some(at) if at.0.saturating_sub(now.0) > limits.ahead_max.0 => Ok((now, true)),
        Some(at) if now.0.saturating_sub(at.0) > limits.age_max.0 => Err(format!("its time is older than {}", limits.age_max)),
        Some(at) => Ok((at, false)),
    }
}

type Looks = BTreeMap<(Timestamp, TargetId, WorkloadId), BTreeMap<Signal, Reading>>;

fn take_demand(point: &Point, at: Timestamp, looks: &mut Looks) -> Result<(), String> {
    let workload = WorkloadId::new(tag(point, "workload")?).map_err(|error| error.to_string())?;
    let source = TargetId::new(tag(point, "source")?).map_err(|error| error.to_string())?;
    let mut signals = BTreeMap::new();
    for (name, value) in &point.fields {
        // The two parts of a histogram come as fields of their own; the count stands for both.
        if let Some(stem) = name.strip_suffix("_sum") {
            histogram(point, stem)?;
            continue;
        }
        let (signal, reading) = match name.strip_suffix("_count") {
            Some(stem) => histogram(point, stem)?,
            None => (known(name)?, Reading::Scalar(amount(name, value)?)),
        };
        if matches!(reading, Reading::Scalar(_)) && signal.kind() == SignalKind::Histogram {
            return Err(format!("field {name:?} wants {name}_sum and {name}_count"));
        }
        signals.insert(signal, reading);
    }
    looks.entry((at, source, workload)).or_default().extend(signals);
    Ok(())
}

fn histogram(point: &Point, stem: &str) -> Result<(Signal, Reading), String> {
    let signal = known(stem).ok().filter(|signal| signal.kind() == SignalKind::Histogram);
    let signal = signal.ok_or_else(|| format!("{stem:?} is no signal with a sum and a count"))?;
    let part =
        |name: String| point.fields.get(&name).ok_or_else(|| format!("field {name:?} is missing beside its other half")).and_then(|value| amount(&name, value));
    let (sum, count) = (part(format!("{stem}_sum"))?, part(format!("{stem}_count"))?);
    Ok((signal, Reading::Histogram(Histogram { sum, count, buckets: Vec::new() })))
}

fn known(name: &str) -> Result<Signal, String> {
    Signal::ALL.into_iter().find(|signal| signal.name() == name).ok_or_else(|| format!("field {name:?} is no signal"))
}

/// A number that is a load, an amount or a time: finite and not below zero.
fn amount(name: &str, value: &FieldValue) -> Result<f64, String> {
    match value {
        FieldValue::Number(value) if *value >= 0.0 => Ok(*value),
        FieldValue::Number(value) => Err(format!("field {name:?} is negative: {value}")),
        FieldValue::Text(_) | FieldValue::Flag(_) => Err(format!("field {name:?} is no number")),
    }
}

fn tag<'a>(point: &'a Point, name: &str) -> Result<&'a str, String> {
    point.tags.get(name).map(String::as_str).ok_or_else(|| format!("it has no tag {name:?}"))
}

fn job(point: &Point, at: Timestamp) -> Result<JobReport, String> {
    let job = JobId::new(tag(point, "job")?).map_err(|error| error.to_string())?;
    let optional = |name: &str| point.fields.get(name).map(|value| amount(name, value)).transpose();
    let stage = match point.fields.get("state") {
        Some(FieldValue::Text(state)) => match state.to_ascii_lowercase().as_str() {
            "waiting" | "pending" | "queued" => JobStage::Waiting,
            "running" => JobStage::Running,
            "done" | "completed" | "failed" | "cancelled" => JobStage::Done,
            _ => return Err(format!("state {state:?} is none of waiting, running, done")),
        },
        Some(_) => return Err("field \"state\" is no text".into()),
        None => return Err("it has no field \"state\"".into()),
    };
    let gpus = optional("gpus")?.map(whole).transpose()?;
    Ok(JobReport { job, at, stage, remaining_s: optional("remaining_s")?, since_checkpoint_s: optional("since_checkpoint_s")?, gpus })
}

/// GPUs of one job at most.
const GPUS_MAX: f64 = 1_000_000.0;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a whole number from 0 to a million")]
fn whole(gpus: f64) -> Result<u32, String> {
    if gpus.fract() == 0.0 && (0.0..=GPUS_MAX).contains(&gpus) { Ok(gpus as u32) } else { Err(format!("gpus = {gpus} is no number of GPUs")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Timestamp = Timestamp(1_796_109_024);

    fn read(body: &str) -> (Batch, Report) {
        read_lines(body.as_bytes(), Precision::Seconds, &LineLimits::default(), NOW)
    }

    #[test]
    fn demand_becomes_looks_and_jobs_become_reports() {
        let (batch, report) = read(concat!(
            "demand,workload=chat,source=gateway requests_received=10i,requests_refused=3i 1796109000\n",
            "demand,workload=chat,source=gateway prompt_tokens=512,end_to_end_sum=65,end_to_end_count=40i 1796109000\n",
            "\n# a comment\n",
            "demand,workload=code,source=gateway requests_received=1\n",
            "job,job=train-1 state=\"RUNNING\",remaining_s=3600,gpus=8i\n",
            "job,job=train-2 state=\"queued\"\n",
        ));
        assert_eq!((report.accepted, report.refused, report.restamped), (5, 0, 0));
        let [first, second] = &batch.demand[..] else { panic!("{batch:?}") };
        assert_eq!((first.workload.as_str(), first.scrape.target.as_str(), first.scrape.at), ("chat", "gateway", Timestamp(1_796_109_000)));
        assert_eq!((first.scrape.scalar(Signal::RequestsReceived), first.scrape.scalar(Signal::RequestsRefused)), (Some(10.0), Some(3.0)));
        assert_eq!(first.scrape.histogram(Signal::EndToEnd), Some(Histogram { sum: 65.0, count: 40.0, buckets: Vec::new() }));
        assert_eq!((second.workload.as_str(), second.scrape.at), ("code", NOW));
        assert_eq!(
            (batch.jobs[0].stage, batch.jobs[0].remaining_s, batch.jobs[0].since_checkpoint_s, batch.jobs[0].gpus),
            (JobStage::Running, Some(3600.0), None, Some(8))
        );
        assert_eq!((batch.jobs[1].stage, batch.jobs[1].gpus), (JobStage::Waiting, None));
    }

    #[test]
    fn a_bad_line_is_refused_with_its_number_and_reason_and_the_others_count() {
        let lines = [
            ("demand,workload=chat,source=g requests_received=1", ""),
            ("demand,source=g requests_received=1", "no tag \"workload\""),
            ("demand,workload=chat,source=g requests_recieved=1", "is no signal"),
            ("demand,workload=chat,source=g requests_received=-1", "negative"),
            ("demand,workload=chat,source=g requests_received=\"1\"", "no number"),
            ("demand,workload=chat,source=g end_to_end=1", "end_to_end_sum"),
            ("demand,workload=chat,source=g end_to_end_sum=1", "other half"),
            ("demand,workload=chat,source=g requests_running_count=1", "with a sum and a count"),
            ("job,job=a state=\"lost\"", "none of waiting"),
            ("job,job=a gpus=1", "no field \"state\""),
            ("job,job=a state=\"running\",gpus=1.5", "no number of GPUs"),
            ("cpu,host=a usage=1", "not known here"),
            ("demand,workload=chat,source=g requests_received=1 1000", "older"),
            ("garbage", "no field"),
        ];
        let body: Vec<&str> = lines.iter().map(|(line, _)| *line).collect();
        let (batch, report) = read(&body.join("\n"));
        assert_eq!((report.accepted, report.refused, batch.demand.len()), (1, lines.len() - 1, 1));
        for (refused, (number, (line, why))) in report.reasons.iter().zip((1..).zip(lines).skip(1)) {
            assert!(refused.line == number && refused.reason.contains(why), "{line}: {refused:?}");
        }
    }

    /// Field case 27: a sender whose clock is 40 minutes ahead is stamped by ours, and counted.
    #[test]
    fn times_that_lie_ahead_are_replaced_and_counted() {
        let ahead = NOW.0 + 2_400;
        let (batch, report) =
            read(&format!("demand,workload=chat,source=g requests_received=1 {ahead}\ndemand,workload=chat,source=h requests_received=1 {}\n", NOW.0 + 5));
        assert_eq!((report.accepted, report.restamped), (2, 1));
        assert_eq!(batch.demand.iter().map(|pushed| pushed.scrape.at.0 - NOW.0).collect::<Vec<_>>(), [0, 5]);
        let (batch, _) = read_lines(b"job,job=a state=\"done\" 1796109024999999999", Precision::Nanoseconds, &LineLimits::default(), NOW);
        assert_eq!(batch.jobs[0].at, NOW);
        for extreme in [i64::MIN, i64::MAX] {
            read(&format!("job,job=a state=\"done\" {extreme}"));
        }
    }

    #[test]
    fn lines_beyond_the_limits_are_refused_and_counted() {
        let limits = LineLimits { lines_max: 2, line_bytes_max: 40, ..LineLimits::default() };
        let body = "job,job=a state=\"done\"\njob,job=a_rather_long_name_of_a_job state=\"done\"\njob,job=a state=\"done\"\n";
        let (batch, report) = read_lines(body.as_bytes(), Precision::Seconds, &limits, NOW);
        assert_eq!((batch.jobs.len(), report.refused), (1, 2));
        assert!(report.reasons[0].reason.contains("line_bytes_max") && report.reasons[1].reason.contains("lines_max"));
        let (_, report) = read_lines("x\n".repeat(1_000).as_bytes(), Precision::Seconds, &LineLimits::default(), NOW);
        assert_eq!((report.refused, report.reasons.len()), (1_000, 100));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let (_batch, report) = read_lines(&bytes, Precision::Nanoseconds, &LineLimits::default(), NOW);
            prop_assert!(report.accepted + report.refused <= 300);
        }
    }
}
