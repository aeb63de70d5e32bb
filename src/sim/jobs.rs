//! Jobs: a gang on GPUs that loads, progresses, writes checkpoints and, when it is stopped, loses what it did since the last one.

use crate::account::PendingMinute;
use fleet::{Job, Timestamp};

/// A gang on its GPUs.
#[derive(Debug, Clone)]
pub(crate) struct JobRun {
    pub gpus: Vec<usize>,
    pub speed: f64,
    pub from: Timestamp,
    pub ready: Timestamp,
}

/// One job now.
#[derive(Debug, Clone)]
pub(crate) struct JobNow {
    /// Seconds of the gang at speed 1.
    pub remaining_s: f64,
    pub since_checkpoint_s: f64,
    pub run: Option<JobRun>,
    pub first_started: Option<Timestamp>,
    pub done_at: Option<Timestamp>,
    pub preempted: u32,
    /// GPU time of work since the last checkpoint: useful only once that is written.
    pub pending: Vec<PendingMinute>,
}

/// What a minute of a run was made of, as shares of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct JobMinute {
    pub loading: f64,
    pub working: f64,
    /// A checkpoint was written (or the job finished): what is pending is safe.
    pub safe: bool,
}

impl JobNow {
    pub fn new(job: &Job) -> Self {
        Self { remaining_s: job.work.as_secs_f64(), since_checkpoint_s: 0.0, run: None, first_started: None, done_at: None, preempted: 0, pending: Vec::new() }
    }

    pub fn is_waiting(&self, job: &Job, now: Timestamp) -> bool {
        self.run.is_none() && self.done_at.is_none() && job.release <= now
    }

    /// Lets a minute pass. `None` when it does not run.
    pub fn progress(&mut self, job: &Job, now: Timestamp) -> Option<JobMinute> {
        let run = self.run.as_ref().filter(|_| self.done_at.is_none())?;
        let loading = run.ready.since(now).as_secs_f64().min(60.0);
        let work = ((60.0 - loading) * run.speed).min(self.remaining_s);
        self.remaining_s -= work;
        let working = work / run.speed;
        // What is left is rounding.
        if self.remaining_s < 1e-6 {
            self.remaining_s = 0.0;
            self.since_checkpoint_s = 0.0;
            #[expect(clippy::cast_possible_truncation, reason = "seconds of one minute")]
            let last = (loading + working).ceil() as i64;
            self.done_at = Some(Timestamp(now.0 + last));
            return Some(JobMinute { loading: loading / 60.0, working: working / 60.0, safe: true });
        }
        self.since_checkpoint_s += work;
        let mut safe = false;
        if let Some(every) = job.checkpoint.map(fleet::Span::as_secs_f64).filter(|c| *c > 0.0)
            && self.since_checkpoint_s >= every
        {
            self.since_checkpoint_s %= every;
            safe = true;
        }
        Some(JobMinute { loading: loading / 60.0, working: working / 60.0, safe })
    }

    /// Stops it: the work since the last checkpoint is to be done again. Returns the GPUs it held.
    pub fn stop(&mut self) -> Vec<usize> {
        let Some(run) = self.run.take() else { return Vec::new() };
        self.remaining_s += self.since_checkpoint_s;
        self.since_checkpoint_s = 0.0;
        run.gpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{Bytes, Span};
    use std::collections::BTreeMap;

    fn job(checkpoint: Option<Span>) -> Job {
        Job {
            work: Span::hours(2),
            gang: 1,
            memory_per_gpu: Bytes(1),
            speed: BTreeMap::new(),
            release: Timestamp(0),
            deadline: None,
            checkpoint,
            preemptible: checkpoint.is_some(),
            value_per_gpu_hour: 1.0,
            lateness_per_hour: 0.0,
            startup: Span(90),
        }
    }

    fn run_for(minutes: i64, job: &Job) -> JobNow {
        let mut now = JobNow::new(job);
        now.run = Some(JobRun { gpus: vec![0], speed: 2.0, from: Timestamp(0), ready: Timestamp(90) });
        for minute in 0..minutes {
            now.progress(job, Timestamp(minute * 60));
        }
        now
    }

    #[test]
    fn loads_then_works_at_its_speed() {
        let job = job(Some(Span::minutes(30)));
        let mut now = run_for(1, &job);
        assert!((now.remaining_s - 7_200.0).abs() < 1e-9);
        let second = now.progress(&job, Timestamp(60)).unwrap();
        assert!((second.loading - 0.5).abs() < 1e-9 && (second.working - 0.5).abs() < 1e-9);
        assert!((now.remaining_s - 7_140.0).abs() < 1e-9);
    }

    #[test]
    fn a_stop_loses_what_no_checkpoint_kept() {
        let half_hour = job(Some(Span::minutes(30)));
        // 20 minutes less 90 s of loading at speed 2: 2220 s of work, one checkpoint at 1800 s (and not again at 2220).
        let mut now = run_for(20, &half_hour);
        assert!((now.since_checkpoint_s - 420.0).abs() < 61.0);
        now.stop();
        assert!((now.remaining_s - (7_200.0 - 1_800.0)).abs() < 61.0);
        // Without checkpoints all of it is lost.
        let none = job(None);
        let mut now = run_for(20, &none);
        now.stop();
        assert!((now.remaining_s - 7_200.0).abs() < 1e-6);
    }

    #[test]
    fn ends_within_a_minute() {
        let job = job(Some(Span::minutes(30)));
        let now = run_for(70, &job);
        // 90 s of loading and 3600 s of work at speed 2.
        assert_eq!(now.done_at, Some(Timestamp(3_690)));
    }
}
