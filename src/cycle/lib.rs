//! The loop as a state machine.
//!
//! [`step`] takes the state and one event and gives the next state and what is to be done about it; it never waits, never fails and never
//! asks a clock. The long part, [`work`] (forecast, build the problem, solve, verify), is a pure function of its order, so that the daemon can
//! run it in a child process that may be killed and the simulator can call it in place. Neither knows which of the two drives it.
//!
//! ```text
//! scrapes, GPU and job readings ─▶ step ─▶ Effect::Work(order) ─▶ work ─▶ Event::Worked(output) ─▶ step ─▶ Effect::Publish(plan)
//!                                   │
//!                                   └─▶ Effect::Append(records): windows, outcomes, calibrations, forecasts, plans
//! ```

mod demand;
mod effect;
mod event;
mod gpu_pages;
mod order;
mod outcome;
mod past;
mod problem;
mod residency;
mod setup;
mod source_view;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod work;

pub use effect::{Cause, Condition, Effect, Record};
pub use event::{Event, JobReading, JobState};
pub use order::WorkOrder;
pub use setup::{LoopPolicy, Setup};
pub use source_view::SourceView;
pub use state::{State, Tally};
pub use step::step;
pub use work::{Answer, WorkOutput, work};
