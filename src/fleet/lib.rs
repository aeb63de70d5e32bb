//! The words of the house: units, identities, time and the stations of the loop.
//!
//! Everything that travels between crates is defined here, as plain values that can be serialised and compared. This crate reads no file,
//! opens no socket, asks no clock and imports nothing of ours. Start with [`Problem`] and [`Plan`]: the rest of the house either prepares
//! the former or acts on the latter.
//!
//! | station | type | made by |
//! |---|---|---|
//! | observation | [`Scrape`], [`Observation`] | `ingest` |
//! | series | [`WorkloadWindow`], [`Series`] | `series` |
//! | forecast | [`Forecast`] | `models` |
//! | problem | [`Problem`] | `cycle` |
//! | plan | [`Plan`] | `solver` |
//! | outcome | [`Outcome`] | `cycle` |
//! | calibration | [`Calibration`] | `models` |

mod accounting;
mod calibration;
mod canonical;
mod engine;
mod forecast;
mod ids;
mod inventory;
mod observation;
mod outcome;
mod plan;
mod problem;
mod series;
mod time;
mod units;
mod workload;

pub use accounting::{HourKind, Ledger, LedgerError};
pub use calibration::{Calibration, Estimate, ForecasterState, Provenance};
pub use canonical::{canonical_bytes, fingerprint};
pub use engine::{DeviceLabels, EngineRole, EngineTable, EngineTableError, Made, Recognised, SignalRow, Spelling, VersionLabel, plausible};
pub use forecast::{Forecast, ForecastError, LEVELS, quantile_at};
pub use ids::{
    CalibrationId, ForecastId, GpuId, GpuKindId, IdError, IslandId, JobId, MemberId, ModelId, NodeId, OutcomeId, PlanId, PoolId, ProblemId, ReplicaId,
    TargetId, VariantId, WorkloadId,
};
pub use inventory::{Fleet, Gpu, GpuKind, GpuReading, GpuStatus, Node, Ownership, Pool};
pub use observation::{
    Device, Histogram, Holder, Join, MigSlice, Observation, Reading, Sample, Scrape, ScrapeStatus, Server, Signal, SignalKind, SkippedSample, Target,
};
pub use outcome::{JobOutcome, Outcome, ServiceOutcome, StartOutcome};
pub use plan::{
    Binding, Committed, Heir, Hold, JobWindow, Objective, Occupant, OutlookStep, Plan, PlanReport, Preemption, Reason, Relaxation, ReplicaWindow, Route,
    ShadowPrice, Shortfall, SolveStatus, Verb,
};
pub use problem::{
    Availability, Capacity, GpuSlot, JobSpec, PlanRef, PolicySpec, PoolSpec, Problem, ProblemError, Resident, ServiceSpec, StepDemand, VariantSpec,
};
pub use series::{Series, SeriesError, WorkloadWindow};
pub use time::{Span, Step, TimeError, Timestamp, planning_steps};
pub use units::{Bytes, Currency, Share, UnitError};
pub use workload::{Class, ClassDefaults, Job, LatencyTarget, Model, Service, SpeedProfile, Variant, Workload, WorkloadKind};
