//! What a trace of jobs says, and a job of it as the simulator and the planner take it.

use crate::rows::{Lines, Parse, Records};
use crate::{DatasetError, Format, gavel, helios, openb, philly};
use fleet::{Bytes, Class, GpuKindId, Job, Span, Timestamp, Workload, WorkloadId, WorkloadKind};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// One job of a trace. What the trace does not say is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceJob {
    /// Its name; where the trace has none, the number of its row.
    pub name: String,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// Time it waited before it ran.
    pub waited: Option<Span>,
    /// Time it ran.
    pub ran: Option<Span>,
    /// GPUs that ran together; 0 for work without a GPU.
    pub gpus: u32,
    /// Share of each GPU it asked for: 1 unless it shares one with others.
    pub gpu_share: f64,
    /// Kinds of GPU it may run on; empty for any.
    pub kinds: Vec<String>,
    /// What it runs.
    pub what: Option<String>,
    /// Steps of work, where the trace counts work instead of time.
    pub steps: Option<f64>,
    /// Who submitted it: user, team or virtual cluster.
    pub tenant: Option<String>,
    /// How it ended, in the trace's own word.
    pub ended: Option<String>,
}

impl TraceJob {
    /// A job of which nothing but its name and arrival is known.
    pub(crate) fn new(name: String, submitted: Timestamp, gpus: u32) -> Self {
        Self { name, submitted, waited: None, ran: None, gpus, gpu_share: 1.0, kinds: Vec::new(), what: None, steps: None, tenant: None, ended: None }
    }

    /// As a workload. Nothing for jobs that cannot be planned: without a GPU, sharing one, never run, or with a name that is none.
    ///
    /// `speed` is taken for 1 where it is `1.0`: the time the trace gives was measured there.
    #[must_use]
    pub fn workload(&self, terms: &JobTerms) -> Option<Workload> {
        let ran = self.ran.filter(|ran| *ran > Span::ZERO)?;
        if self.gpus == 0 || self.gpu_share < 1.0 {
            return None;
        }
        let allowed = |kind: &GpuKindId| self.kinds.is_empty() || self.kinds.iter().any(|k| k == kind.as_str());
        let speed: BTreeMap<GpuKindId, f64> = terms.speed.iter().filter(|(kind, _)| allowed(kind)).map(|(kind, speed)| (kind.clone(), *speed)).collect();
        if speed.is_empty() {
            return None;
        }
        let defaults = terms.class.defaults();
        let job = Job {
            work: ran,
            gang: self.gpus,
            memory_per_gpu: terms.memory_per_gpu,
            speed,
            release: self.submitted,
            deadline: terms.slack.map(|slack| self.submitted + stretched(ran, slack)),
            checkpoint: defaults.checkpoint,
            preemptible: defaults.preemptible,
            value_per_gpu_hour: defaults.value_per_price * terms.price,
            lateness_per_hour: defaults.lateness_per_price * terms.price * f64::from(self.gpus),
            startup: defaults.startup,
        };
        let id = WorkloadId::new(self.name.clone()).ok()?;
        Some(Workload { id, class: terms.class, tenant: self.tenant.clone(), priority: defaults.priority, kind: WorkloadKind::Job(job) })
    }
}

/// What a job trace does not say and a planner must know.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTerms {
    /// What kind of work the jobs are.
    pub class: Class,
    /// Memory held on each GPU.
    pub memory_per_gpu: Bytes,
    /// Speed by GPU kind.
    pub speed: BTreeMap<GpuKindId, f64>,
    /// The fleet's mean price of a GPU-hour.
    pub price: f64,
    /// Deadline as a multiple of the time it runs, from its submission; none: no deadline.
    pub slack: Option<f64>,
}

#[expect(clippy::cast_possible_truncation, reason = "floats that large saturate, and are then far away all the same")]
fn stretched(span: Span, factor: f64) -> Span {
    Span((span.as_secs_f64() * factor.max(1.0)).min(1e11).round() as i64)
}

/// The jobs of a trace, one at a time. It ends with the first fault.
pub type Jobs = Box<dyn Iterator<Item = Result<TraceJob, DatasetError>> + Send>;

/// Reads a trace of jobs; `origin` is where a trace begins that carries no dates.
///
/// # Errors
/// When the file cannot be opened or is not a trace of jobs. Faults further on come with the jobs.
pub fn read_jobs(path: &Path, format: Format, origin: Timestamp) -> Result<Jobs, DatasetError> {
    of_lines(Lines::open(path)?, path, format, origin)
}

/// Reads a trace of jobs from bytes; `name` stands for the file in messages.
///
/// # Errors
/// As [`read_jobs`].
pub fn read_jobs_from(bytes: impl Read + Send + 'static, name: &Path, format: Format, origin: Timestamp) -> Result<Jobs, DatasetError> {
    of_lines(Lines::new(name, bytes)?, name, format, origin)
}

fn of_lines(lines: Lines, path: &Path, format: Format, origin: Timestamp) -> Result<Jobs, DatasetError> {
    let parse: Parse<TraceJob> = match format {
        Format::Philly => philly::parse(),
        Format::HeliosJobs => helios::parse_jobs(),
        Format::OpenbPods => openb::parse_pods(origin),
        Format::GavelJobs => gavel::parse(origin),
        other => return Err(other.not_of(path, "a trace of jobs", "read it by its own kind")),
    };
    Ok(Box::new(crate::demand::NotEmpty::new(path, Records::new(lines, parse))))
}

/// Whole seconds of a trace.
#[expect(clippy::cast_possible_truncation, reason = "bounded by the callers' checks")]
pub(crate) fn span(seconds: f64) -> Span {
    Span(seconds.min(1e11).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> JobTerms {
        let kind = |name| GpuKindId::new(name).unwrap();
        JobTerms {
            class: Class::Training,
            memory_per_gpu: Bytes::from_gib(16),
            speed: [(kind("P100"), 0.5), (kind("V100M16"), 1.0)].into_iter().collect(),
            price: 2.0,
            slack: Some(3.0),
        }
    }

    #[test]
    fn a_job_keeps_its_kinds_its_gang_and_its_time() {
        let job = TraceJob { ran: Some(Span(600)), kinds: vec!["P100".into(), "T4".into()], ..TraceJob::new("j".into(), Timestamp(100), 4) };
        let workload = job.workload(&terms()).unwrap();
        let made = workload.job().unwrap();
        assert_eq!((made.gang, made.work, made.release, made.deadline), (4, Span(600), Timestamp(100), Some(Timestamp(1_900))));
        assert_eq!(made.speed.keys().map(GpuKindId::as_str).collect::<Vec<_>>(), ["P100"]);
    }

    #[test]
    fn what_cannot_be_planned_is_none() {
        let job = TraceJob { ran: Some(Span(600)), ..TraceJob::new("j".into(), Timestamp(0), 1) };
        assert!(job.workload(&terms()).is_some());
        for bad in [
            TraceJob { ran: None, ..job.clone() },
            TraceJob { gpus: 0, ..job.clone() },
            TraceJob { gpu_share: 0.4, ..job.clone() },
            TraceJob { kinds: vec!["G2".into()], ..job.clone() },
            TraceJob { name: String::new(), ..job },
        ] {
            assert!(bad.workload(&terms()).is_none(), "{bad:?}");
        }
    }
}
