//! What others read: one file a consumer, each a view of the same plan, none of them deciding anything.
//!
//! - [`plan_file`]: the plan as a JSON file that is complete at every instant, whatever happens to the writer.
//! - [`router`]: the plan, the forecasts, health and metrics over HTTP, as an [`axum::Router`] that the daemon mounts. It shows a [`Published`],
//!   the handle through which the daemon says what is in force.
//! - [`Metrics`]: what the program tells about itself, as a registry that is a value, encoded for Prometheus.
//! - [`agent_router`]: the GPUs of one node, as the agent there sees them; it has nothing to do with plans.
//!
//! A generation never goes back in any of them: an older plan is refused with [`PublishError::Generation`].

mod agent_page;
mod error;
mod http;
mod metrics;
pub mod plan_file;
mod published;
#[cfg(test)]
mod sample;

pub use agent_page::{AgentLook, AgentState, ProcessMemory, agent_page, agent_router};
pub use error::PublishError;
pub use http::router;
pub use metrics::{CycleOutcome, Metrics, PageFormat};
pub use published::{Condition, PlanDocument, Published, Reliance, SignalStatus, SourceStatus, View};
