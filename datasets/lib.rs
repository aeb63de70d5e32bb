//! Traffic and work to plan with: readers of public traces in their original formats, and the synthetic scenario that ships.
//!
//! [`Format`] names the formats and recognises them. [`read_demand`] gives the requests of any of them, one [`Record`] at a time; [`Gather`] makes
//! the windows of a workload's history of them, [`Traffic::from_records`] arrivals minute by minute. [`read_jobs`] gives the jobs of training
//! clusters, [`read_occupancy`], [`read_nodes`] and [`read_throughputs`] what else such clusters published. What a trace does not show is a gap,
//! never zero: each format says how that is known ([`Description::silence_max`]).
//!
//! [`Scenario::demo`] makes two weeks of three services and twelve jobs on a mixed fleet of 24 GPUs, with a [`Truth`] that differs from what the
//! planner is told. All randomness comes from a seed; the same seed gives the same values.
//!
//! | file | subject |
//! |---|---|
//! | `format` | the formats: names, columns, sources, licences, and how one is recognised |
//! | `demand` | records of demand, and the one way to read any trace of it |
//! | `azure`, `burstgpt`, `mooncake`, `sageserve`, `servegen` | published traces of LLM serving |
//! | `table`, `parquet_table` | tables of anybody's making, by a mapping of columns |
//! | `clock` | instants as traces write them |
//! | `job_trace` | jobs, and the one way to read any trace of them |
//! | `philly`, `helios`, `openb`, `gavel` | published traces of training clusters |
//! | `occupancy` | GPUs and nodes in use, minute by minute |
//! | `rows` | files, compressed or not, line by line, with the place of every fault |
//! | `minutes` | records put on the clock; what is idleness and what a gap |
//! | `gather` | records gathered into the windows of a history |
//! | `traffic` | arrivals minute by minute, from a trace or a shape |
//! | `shape` | days and weeks: how demand moves, and its burstiness |
//! | `scenario` | the demo's fleet, services and truth |
//! | `jobs` | the demo's twelve jobs |
//! | `sample` | the small file of hourly traffic that ships |

mod azure;
mod burstgpt;
mod clock;
mod demand;
mod error;
mod format;
#[cfg(test)]
mod fuzz_tests;
mod gather;
mod gavel;
mod helios;
mod job_trace;
mod jobs;
mod minutes;
mod mooncake;
mod occupancy;
mod openb;
mod parquet_table;
mod philly;
mod rows;
mod sageserve;
mod sample;
mod scenario;
mod servegen;
mod shape;
mod table;
mod traffic;

pub use azure::read_azure;
pub use clock::Clock;
pub use demand::{Count, Demand, DemandOptions, Record, Request, is_dated, read_demand, read_demand_from};
pub use error::DatasetError;
pub use format::{Description, Format, Kind};
pub use gather::{Gather, GatherOptions, Gathered};
pub use gavel::{Throughputs, read_throughputs};
pub use job_trace::{JobTerms, Jobs, TraceJob, read_jobs, read_jobs_from};
pub use occupancy::{Occupancy, read_occupancy};
pub use openb::{TraceNode, read_nodes};
pub use sample::{SAMPLE_TRAFFIC, sample_traffic};
pub use scenario::{DEMO_SEED, Event, EventKind, Scenario, Truth};
pub use servegen::{ClientTraces, read_servegen};
pub use shape::{Launch, Shape};
pub use table::Mapping;
pub use traffic::{Minute, Tokens, Traffic};
