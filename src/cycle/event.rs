//! What can happen to the loop.

use crate::{WorkOutput, effect::Cause};
use fleet::{GpuId, GpuReading, JobId, Scrape, Target, Timestamp, WorkloadWindow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The adjustment interval is over: close windows, learn, decide anew.
    Tick(Timestamp),
    /// Something that cannot wait for the interval: decide anew now.
    Trigger(Timestamp, Cause),
    /// The endpoints known from now on (configured, discovered, or of replicas that were started).
    Targets(Vec<Target>),
    /// A look at one target.
    Scraped(Scrape),
    /// A look at a page that tells of GPUs: a DCGM exporter's, an agent's, this host's driver.
    GpuPage(Scrape),
    /// Looks at GPUs. GPUs not named keep their last reading.
    Gpus(Vec<GpuReading>),
    /// Looks at jobs. Jobs not named keep their last reading.
    Jobs(Vec<JobReading>),
    /// Windows that were joined elsewhere: a recording replayed as if live, or history back-filled. Those not newer than what is known of their
    /// workload are left out.
    Windows(Vec<WorkloadWindow>),
    /// The past, read late: windows older than what is known of their workload are added, and nothing else.
    Past(Vec<WorkloadWindow>),
    /// The wall clock was set: it is now this time, and later ones were a mistake.
    ClockSet(Timestamp),
    /// The work that was ordered is done.
    Worked(Box<WorkOutput>),
    /// The work that was ordered failed, hung or was killed: the plan in force stays.
    WorkFailed(Timestamp, String),
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for GPUs.
    Waiting,
    /// Holds its GPUs.
    Running,
    /// Finished.
    Done,
}

/// One look at one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobReading {
    /// Which.
    pub job: JobId,
    /// When.
    pub at: Timestamp,
    /// How far.
    pub state: JobState,
    /// Work left, seconds of the gang at speed 1.
    pub remaining_s: f64,
    /// Work since the last checkpoint, seconds at speed 1.
    pub since_checkpoint_s: f64,
    /// GPUs it holds.
    pub gpus: Vec<GpuId>,
    /// When it took them.
    pub since: Option<Timestamp>,
}
