//! Traffic and work to plan with: readers of public traces in their original formats, and the synthetic scenario that ships.
//!
//! [`read_servegen`] and [`read_azure`] read what others measured; [`Traffic::from_rates`] and [`Traffic::from_requests`] turn it into
//! arrivals minute by minute. [`Scenario::demo`] makes two weeks of three services and twelve jobs on a mixed fleet of 24 GPUs, with a
//! [`Truth`] that differs from what the planner is told. All randomness comes from a seed; the same seed gives the same values.
//!
//! | file | subject |
//! |---|---|
//! | `servegen` | client traces of Alibaba's ServeGen |
//! | `azure` | Azure's LLM inference trace of 2023 |
//! | `rows` | files, compressed or not, row by row, with the place of every fault |
//! | `traffic` | arrivals minute by minute, from a trace or a shape |
//! | `shape` | days and weeks: how demand moves, and its burstiness |
//! | `scenario` | the demo's fleet, services and truth |
//! | `jobs` | the demo's twelve jobs |
//! | `sample` | the small file of hourly traffic that ships |

mod azure;
mod error;
mod jobs;
mod rows;
mod sample;
mod scenario;
mod servegen;
mod shape;
mod traffic;

pub use azure::{Request, read_azure};
pub use error::DatasetError;
pub use sample::{SAMPLE_TRAFFIC, sample_traffic};
pub use scenario::{DEMO_SEED, Event, EventKind, Scenario, Truth};
pub use servegen::{ClientTraces, read_servegen};
pub use shape::{Launch, Shape};
pub use traffic::{Minute, Tokens, Traffic};
