//! Observations become series: cumulative totals to rates, targets to workloads, scrapes to windows, windows to an hourly grid.
//!
//! [`Windows`] takes one scrape after another and gives back what each workload did in each window; [`hourly`] puts windows on the grid the
//! forecasters learn from. Pure: no clock, no IO. Two rules hold everywhere: what was not observed is `None`, never zero; and a healthy page
//! whose totals did not move is a zero, never `None`.
//!
//! | file | turns |
//! |---|---|
//! | `change.rs` | two looks at one target into what happened between them (resets, gauges, latencies) |
//! | `tally.rs` | such changes into sums over one window of one target |
//! | `windows.rs` | scrapes of all targets into windows: spreading, gaps, bookkeeping |
//! | `join.rs` | the tallies of a workload's targets into one [`fleet::WorkloadWindow`], holding the demand of silent ones |
//! | `hourly.rs` | windows into an hourly [`fleet::Series`] |

mod change;
mod hourly;
mod join;
mod tally;
mod windows;

pub use hourly::hourly;
pub use windows::Windows;
