//! A simulated fleet with its own truth, driven by the same loop as the daemon, and the policies it is compared with.
//!
//! The world knows what the planner has to find out: what a replica really serves, how long a start really takes, what really comes. It
//! shares no capacity or queue code with the planner, so that the planner is never judged by its own assumptions; the loop sees scrapes, GPU
//! readings and job readings, nothing else. Time runs in minutes; within a minute queues are exact (piecewise linear), so that waiting
//! times and shares in time follow from counts alone.
//!
//! Start with [`run`]: one [`Scenario`] under one [`PolicyKind`] gives one [`Run`], the same for the same seed.
//!
//! ```text
//! minute: world settles (faults, drains, starts) -> policy looks and acts -> queues are served, jobs progress -> GPU time is booked
//! ```

mod account;
mod catalogue;
mod executor;
mod gpu;
mod jobs;
mod learning;
mod looked;
mod map;
mod next_free_gpu;
mod placement;
mod policy;
mod queue;
mod replica;
mod run;
mod scenario;
mod score;
mod small;
mod static_peak;
mod turnaround;
mod world;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests;

pub use learning::{LearningDay, LearningRun, learning_experiment};
pub use map::GpuMap;
pub use policy::PolicyKind;
pub use run::{JobScore, Options, Progress, Run, ServiceHour, ServiceScore, run};
pub use scenario::{Blackout, Fault, FaultKind, Scenario, ScenarioError, Traffic, TrueCapacity, TrueColdStart, Truth};
pub use score::{DemandPoint, ForecastScore, Learned, Miss, Quantity};
pub use turnaround::{Decision, LoopReport};
pub use world::ReplicaLife;
