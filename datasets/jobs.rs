//! The demo's twelve jobs: how much, on what, from when, until when. Values, lateness, checkpoints and start-up follow the class.

use crate::scenario::name;
use fleet::{Bytes, Class, GpuKindId, Job, Span, Timestamp, Workload, WorkloadKind};
use std::collections::BTreeMap;

/// A job of the demo. Days count from the start of the scenario.
struct JobSpec {
    name: &'static str,
    class: Class,
    gang: u32,
    /// Hours the gang needs at speed 1.
    hours: f64,
    /// GiB on each GPU.
    gib: u64,
    /// Speed on (H100, L40S); zero: does not run there.
    speed: (f64, f64),
    release: f64,
    deadline: f64,
}

const fn job(name: &'static str, class: Class, gang: u32, hours: f64, gib: u64, speed: (f64, f64), times: (f64, f64)) -> JobSpec {
    JobSpec { name, class, gang, hours, gib, speed, release: times.0, deadline: times.1 }
}

/// In order of name. Training needs H100; batches run on either kind; embeddings are made for the L40S.
const JOBS: [JobSpec; 12] = [
    job("batch-labels", Class::Batch, 2, 170.0, 40, (1.0, 0.5), (6.0, 19.0)),
    job("batch-ocr", Class::Batch, 1, 290.0, 40, (1.4, 1.0), (2.0, 17.5)),
    job("batch-summaries", Class::Batch, 2, 95.0, 42, (1.0, 0.5), (1.0, 13.4)),
    job("batch-translate", Class::Batch, 1, 175.0, 40, (1.4, 1.0), (0.0, 11.0)),
    job("embed-corpus", Class::Embedding, 2, 190.0, 20, (1.6, 1.0), (0.0, 12.0)),
    job("embed-tickets", Class::Embedding, 1, 280.0, 20, (1.6, 1.0), (3.0, 17.5)),
    job("eval-suite", Class::Evaluation, 2, 60.0, 72, (1.0, 0.0), (4.0, 9.5)),
    job("finetune-support", Class::FineTuning, 4, 48.0, 72, (1.0, 0.0), (7.0, 13.3)),
    job("quantise-70b", Class::Quantisation, 2, 3.0, 76, (1.0, 0.0), (5.4, 6.5)),
    job("train-7b", Class::Training, 4, 155.0, 74, (1.0, 0.0), (0.0, 13.8)),
    job("train-reward", Class::Training, 4, 105.0, 74, (1.0, 0.0), (2.0, 13.6)),
    job("train-vision", Class::Training, 2, 150.0, 70, (1.0, 0.0), (0.0, 12.5)),
];

/// The jobs, with values in multiples of `price`, the fleet's mean price of a GPU-hour.
pub(crate) fn jobs(start: Timestamp, price: f64) -> Vec<Workload> {
    JOBS.iter().map(|spec| spec.workload(start, price)).collect()
}

impl JobSpec {
    fn workload(&self, start: Timestamp, price: f64) -> Workload {
        let defaults = self.class.defaults();
        let speeds: [(&str, f64); 2] = [("H100-80GB", self.speed.0), ("L40S-48GB", self.speed.1)];
        let speed = speeds.into_iter().filter(|(_, s)| *s > 0.0).map(|(kind, s)| (name::<GpuKindId>(kind), s)).collect::<BTreeMap<_, _>>();
        let job = Job {
            work: seconds(self.hours * 3_600.0),
            gang: self.gang,
            memory_per_gpu: Bytes::from_gib(self.gib),
            speed,
            release: start + seconds(self.release * 86_400.0),
            deadline: Some(start + seconds(self.deadline * 86_400.0)),
            checkpoint: defaults.checkpoint,
            preemptible: defaults.preemptible,
            value_per_gpu_hour: defaults.value_per_price * price,
            lateness_per_hour: defaults.lateness_per_price * price * f64::from(self.gang),
            startup: defaults.startup,
        };
        Workload { id: name(self.name), class: self.class, tenant: None, priority: defaults.priority, kind: WorkloadKind::Job(job) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "at most two weeks of seconds")]
fn seconds(s: f64) -> Span {
    Span(s.round() as i64)
}
