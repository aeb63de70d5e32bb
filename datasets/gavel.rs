//! Gavel (MIT; OSDI 2020): traces of training jobs that count work in steps, and the steps/s of each job type on each GPU kind, alone and when two
//! share a GPU. Together they tell how long a job runs where.
//!
//! A job is a line of seven fields between tabs: type, command, name of the steps argument, whether it needs data, steps, arrival (s), GPUs. The
//! throughputs are JSON: `{kind: {"('type', gpus)": {"null": steps/s alone, "('other type', gpus)": [steps/s of the two]}}}`.

use crate::job_trace::TraceJob;
use crate::openb::time_of;
use crate::philly::GPUS_MAX;
use crate::rows::{Line, Lines, Parse};
use crate::{Clock, DatasetError};
use fleet::{Span, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest file of throughputs, in bytes unpacked: the published ones have 8 MB.
const BYTES_MAX: usize = 64 << 20;
/// Fields of a job.
const FIELDS: usize = 7;

/// Reads the lines of a job trace; `origin` is its start.
pub(crate) fn parse(origin: Timestamp) -> Parse<TraceJob> {
    let mut number = 0_u64;
    Box::new(move |line: Line<'_>| {
        // Commands may hold quotes: they are no quoting here.
        let fields: Vec<&str> = line.text.split('\t').collect();
        let [what, _, _, _, steps, arrival, gpus] = fields.as_slice() else {
            return Err(line.refuse(line.text, format!("a job of {FIELDS} fields between tabs")));
        };
        number += 1;
        let refuse = |text: &str, expected: &str| line.refuse(text, expected);
        let steps: f64 = steps.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0).ok_or_else(|| refuse(steps, "a number of steps"))?;
        let (at, _) = Clock::Seconds.read(arrival).ok_or_else(|| refuse(arrival, "seconds from the start of the trace"))?;
        let gpus: u32 = gpus.trim().parse().ok().filter(|n| *n <= GPUS_MAX).ok_or_else(|| refuse(gpus, "a number of GPUs"))?;
        let job = TraceJob::new(format!("gavel-{number}"), origin + Span(at.0), gpus);
        Ok(Some(TraceJob { what: Some((*what).to_owned()), steps: Some(steps), ..job }))
    })
}

/// Steps/s of a job type on so many GPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Throughputs {
    /// By GPU kind, then by job type and number of GPUs.
    alone: BTreeMap<String, BTreeMap<(String, u32), f64>>,
    /// By GPU kind, then by the two that share a GPU: steps/s of the first.
    shared: BTreeMap<String, BTreeMap<[(String, u32); 2], f64>>,
}

impl Throughputs {
    /// GPU kinds there are.
    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.alone.keys().map(String::as_str)
    }

    /// Steps/s of a job type alone on `gpus` GPUs of a kind.
    #[must_use]
    pub fn alone(&self, kind: &str, what: &str, gpus: u32) -> Option<f64> {
        self.alone.get(kind)?.get(&(what.to_owned(), gpus)).copied()
    }

    /// Steps/s of a job type while another shares its GPUs.
    #[must_use]
    pub fn shared(&self, kind: &str, what: (&str, u32), other: (&str, u32)) -> Option<f64> {
        let key = [(what.0.to_owned(), what.1), (other.0.to_owned(), other.1)];
        self.shared.get(kind)?.get(&key).copied()
    }

    /// Job types known, of all kinds.
    #[must_use]
    pub fn types(&self) -> usize {
        self.alone.values().map(BTreeMap::len).max().unwrap_or(0)
    }

    /// The time a job of the trace runs on a GPU kind, where both the job's steps and its speed there are known.
    #[must_use]
    pub fn time(&self, job: &TraceJob, kind: &str) -> Option<Span> {
        time_of(job.steps?, self.alone(kind, job.what.as_deref()?, job.gpus)?)
    }
}

/// Reads throughputs.
///
/// # Errors
/// When the file cannot be read, or is not such a table.
pub fn read_throughputs(path: &Path) -> Result<Throughputs, DatasetError> {
    let refuse = |problem: String| DatasetError::Format { path: path.to_owned(), problem, remedy: "fetch the file again".into() };
    let (mut lines, mut text) = (Lines::open(path)?, String::new());
    while let Some(line) = lines.next()? {
        text.push_str(line.text);
        text.push('\n');
        if text.len() > BYTES_MAX {
            return Err(refuse(format!("is longer than {BYTES_MAX} bytes")));
        }
    }
    let whole: BTreeMap<String, BTreeMap<String, BTreeMap<String, Value>>> =
        serde_json::from_str(&text).map_err(|e| refuse(format!("is no table of throughputs: {e}")))?;
    let mut table = Throughputs::default();
    for (kind, types) in whole {
        let (mut alone, mut shared) = (BTreeMap::new(), BTreeMap::new());
        for (name, speeds) in types {
            let what = job_type(&name).ok_or_else(|| refuse(format!("{name:?} is no job type like \"('ResNet-18 (batch size 16)', 1)\"")))?;
            for (other, value) in speeds {
                let speed = if let Value::Array(pair) = &value { pair.first() } else { Some(&value) };
                let speed = speed.and_then(Value::as_f64).filter(|s| s.is_finite() && *s >= 0.0);
                let speed = speed.ok_or_else(|| refuse(format!("{kind}, {name}, {other}: {value} is no number of steps/s")))?;
                if other == "null" {
                    alone.insert(what.clone(), speed);
                } else if let Some(other) = job_type(&other) {
                    shared.insert([what.clone(), other], speed);
                }
            }
        }
        table.alone.insert(kind.clone(), alone);
        table.shared.insert(kind, shared);
    }
    if table.types() == 0 { Err(DatasetError::Empty { path: path.to_owned(), what: "throughputs".into() }) } else { Ok(table) }
}

/// `('ResNet-18 (batch size 16)', 1)`.
fn job_type(text: &str) -> Option<(String, u32)> {
    let (name, gpus) = text.strip_prefix("('")?.strip_suffix(')')?.rsplit_once("', ")?;
    Some((name.to_owned(), gpus.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, read_jobs, read_jobs_from};

    #[test]
    fn damage_is_refused_with_its_place() {
        let good = "LM (batch size 5)\tcd %s && \"x\"\t--steps\t1\t100\t0.000000\t1\n";
        let read = |text: String| -> Result<Vec<TraceJob>, DatasetError> {
            read_jobs_from(std::io::Cursor::new(text), Path::new("g.trace"), Format::GavelJobs, Timestamp(0)).unwrap().collect()
        };
        assert_eq!(read(good.to_owned()).unwrap()[0].steps, Some(100.0));
        for bad in [good.replace("\t100\t", "\tNaN\t"), good.replace("\t0.0", "\t-1.0"), good.replace("\t1\n", "\tx\n"), "a\tb\n".to_owned()] {
            let message = read(format!("{good}{bad}")).unwrap_err().to_string();
            assert!(message.contains("g.trace:2"), "{bad}: {message}");
        }
    }

    #[test]
    fn the_published_traces_run_at_the_published_speeds() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/gavel"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        let table = read_throughputs(&data.join("simulation_throughputs.json.gz")).unwrap();
        assert_eq!((table.kinds().count(), table.types()), (6, 83));
        let resnet = "ResNet-18 (batch size 16)";
        assert!(table.alone("v100", resnet, 1) > table.alone("k80", resnet, 1));
        assert!(table.shared("v100", (resnet, 1), (resnet, 1)).unwrap() <= table.alone("v100", resnet, 1).unwrap());
        // Wide gangs of some types have no published speed: as counted with other tools, 3,612 of 4,000 jobs have one.
        let (mut jobs, mut timed) = (0, 0);
        for name in ["6214e9", "ee9e8c"] {
            for job in read_jobs(&data.join(format!("traces_msr_seed0/{name}.trace.gz")), Format::GavelJobs, Timestamp(0)).unwrap() {
                let job = job.unwrap();
                jobs += 1;
                timed += i32::from(table.time(&job, "v100").is_some_and(|t| t > Span::ZERO));
            }
        }
        assert_eq!((jobs, timed), (4_000, 3_612));
    }
}
