//! Observations become series: cumulative totals to rates, targets to workloads, scrapes to windows, windows to an hourly grid.
//!
//! [`Windows`] takes one scrape after another and gives back what each workload did in each window; [`hourly`] puts windows on the grid the
//! forecasters learn from. Pure: no clock, no IO. Two rules hold everywhere: what was not observed is `None`, never zero; and a healthy page
//! whose totals did not move is a zero, never `None`.
//!
//! | file | turns |
//! |---|---|
//! | `admission.rs` | values into plausible ones: what cannot be is left out |
//! | `totals.rs` | two looks at one target, member by member, into what totals gained (resets, jumps, absences) |
//! | `demand.rs` | such gains into requests that arrived, by several ways that check each other |
//! | `change.rs` | both into what happened between two looks |
//! | `tally.rs` | such changes into sums over one window of one target |
//! | `windows.rs` | scrapes of all targets into windows: spreading, gaps, bookkeeping |
//! | `step.rs` | looks that lie in the past into steps of the wall clock |
//! | `join.rs` | the tallies of a workload's targets into one [`fleet::WorkloadWindow`], holding the demand of silent ones |
//! | `hourly.rs` | windows into an hourly [`fleet::Series`] |
//! | `quantile.rs` | histograms into quantiles and means |
//! | `freshness.rs` | looks into how fresh each signal is, and which stand still |
//! | `notice.rs` | what a person should know of all that |
//! | `gpus.rs` | scrapes that tell of GPUs into the state of each: busy, free or unknown, and who holds it |
//! | `health.rs` | error counts and XID codes into faults, and evidence of recovery into their end |

mod admission;
mod change;
mod demand;
mod freshness;
mod gpus;
mod health;
mod hourly;
mod join;
mod notice;
mod quantile;
mod step;
mod tally;
mod totals;
mod windows;

pub use freshness::SignalFreshness;
pub use gpus::{DeviceState, Gpus};
pub use health::{Fault, XidClass, xid_class};
pub use hourly::hourly;
pub use notice::{NOTICES_MAX, Notice, NoticeKind};
pub use quantile::{mean, quantile};
pub use windows::Windows;

#[cfg(test)]
mod demand_tests;
