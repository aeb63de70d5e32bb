//! What the demo found, as plain values: the caller fills them from its runs, this crate shows them.

use fleet::{Currency, HourKind, Ledger, Span, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The policies a demo compares, in the order they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// Each workload keeps a pool sized for its peak.
    StaticPeak,
    /// First come, first served on whatever GPU is free.
    #[serde(rename = "next-free-gpu")]
    NextFreeGpu,
    /// Ours.
    Turnaround,
}

impl PolicyName {
    /// In the order they are shown.
    pub const ALL: [Self; 3] = [Self::StaticPeak, Self::NextFreeGpu, Self::Turnaround];

    /// As people read it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::StaticPeak => "static peak",
            Self::NextFreeGpu => "next free GPU",
            Self::Turnaround => "turnaround",
        }
    }
}

/// How one policy fared over the period.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicySummary {
    /// GPU-hours by kind, all kinds; they add up to the calendar.
    pub hours: BTreeMap<HourKind, f64>,
    /// Sum of them.
    pub total_hours: f64,
    /// Useful hours / all hours.
    pub useful_utilisation: Option<f64>,
    /// Money owed for all hours.
    pub bill: f64,
    /// Bill / useful hours.
    pub cost_per_useful_gpu_hour: Option<f64>,
    /// Share of requests whose first token came in time.
    pub attainment: Option<f64>,
    /// Jobs that missed their deadline.
    pub jobs_late: usize,
    /// Jobs that had one in the period.
    pub jobs_due: usize,
}

impl PolicySummary {
    /// From the books.
    #[must_use]
    pub fn new(ledger: &Ledger, attainment: Option<f64>, jobs_late: usize, jobs_due: usize) -> Self {
        Self {
            hours: HourKind::ALL.into_iter().map(|kind| (kind, ledger.hours(kind))).collect(),
            total_hours: ledger.total_hours(),
            useful_utilisation: ledger.useful_utilisation(),
            bill: ledger.bill(),
            cost_per_useful_gpu_hour: ledger.cost_per_useful_hour(),
            attainment,
            jobs_late,
            jobs_due,
        }
    }
}

/// The time the comparison covers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeriodSummary {
    /// "Week 2".
    pub title: String,
    /// Its start.
    pub start: Timestamp,
    /// First instant after it.
    pub end: Timestamp,
}

/// What a letter on a map stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapKey {
    /// The letter in the cells.
    pub letter: char,
    /// What it stands for.
    pub label: String,
    /// Its kind of hour, which gives colour and hatching.
    pub kind: HourKind,
}

/// GPUs over hours: who had them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMap {
    /// Which policy.
    pub policy: PolicyName,
    /// Start of the first cell.
    pub start: Timestamp,
    /// Length of a cell.
    pub step: Span,
    /// One a GPU, in the order of the fleet.
    pub rows: Vec<GpuRow>,
}

/// One GPU over hours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRow {
    /// Its host.
    pub node: String,
    /// Its short name.
    pub gpu: String,
    /// One letter a cell, as in the keys: whoever had the largest part of it. `.` is idle, `?` unknown.
    pub cells: String,
}

/// One day of some GPUs under several policies, for the screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayMap {
    /// "Tuesday, n2/4-7".
    pub title: String,
    /// One a policy.
    pub strips: Vec<Strip>,
    /// What the letters stand for.
    pub keys: Vec<MapKey>,
}

/// One policy's day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strip {
    /// Which.
    pub policy: PolicyName,
    /// One letter an hour from midnight UTC.
    pub cells: String,
    /// What is to be seen, if anything.
    pub note: Option<String>,
}

/// A decision with the ways it could have gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionSummary {
    /// When.
    pub at: Timestamp,
    /// "train-7b ended. Hold its 4 GPUs for chat's 08:00 burst?"
    pub question: String,
    /// The ways, the chosen one among them.
    pub options: Vec<DecisionOption>,
    /// What came of it.
    pub result: Option<DecisionResult>,
}

/// One way a decision could go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionOption {
    /// "batch until 07:46".
    pub text: String,
    /// The way that was taken.
    pub chosen: bool,
    /// What it gains over the gap, less what the GPUs cost meanwhile, money. `None`: no plan could be made of it.
    pub value: Option<f64>,
    /// What else is to be said.
    pub note: String,
}

/// What came of a decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionResult {
    /// The hour it was about.
    pub at: Timestamp,
    /// Median of the last forecast before the hour, requests/s.
    pub p50: f64,
    /// Its 95 % quantile.
    pub p95: f64,
    /// Requests/s that came.
    pub came: Option<f64>,
    /// When the replica was ready.
    pub ready_at: Option<Timestamp>,
}

/// The worst hour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorstMiss {
    /// "Saturday's launch".
    pub what: String,
    /// Whose demand.
    pub workload: String,
    /// When.
    pub at: Timestamp,
    /// Requests/s that were planned for at most: the 95 % quantile of the last forecast before. `None`: there was no forecast.
    pub planned_per_s: Option<f64>,
    /// Requests/s that came.
    pub came_per_s: f64,
    /// Requests whose first token came late, or never.
    pub requests_late: u64,
}

/// A figure that was learned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Of what: "chat", "chat cold start".
    pub what: String,
    /// Its unit: "req/s a replica", "min".
    pub unit: String,
    /// What was assumed at first.
    pub prior: f64,
    /// What is reckoned with at the end.
    pub learned: f64,
    /// What the simulated world really does, hidden from the loop.
    pub truth: Option<f64>,
    /// Observations behind it.
    pub evidence: u64,
}

/// Weighted quantile loss of the forecasts that were planned with, and of the baseline on the same hours.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ForecastScore {
    /// Ours.
    pub wql: Option<f64>,
    /// Seasonal naive.
    pub seasonal_naive_wql: Option<f64>,
}

/// The demo in one screen. As JSON it is what `turnaround demo --json` prints: the same seed gives the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DemoSummary {
    /// Version of this document: `turnaround.demo/1`.
    pub schema: String,
    /// Seed of traffic, noise and faults.
    pub seed: u64,
    /// "synthetic traffic".
    pub traffic: String,
    /// Currency of all money.
    pub currency: Currency,
    /// GPUs in the fleet.
    pub gpus: usize,
    /// Services.
    pub services: usize,
    /// Jobs.
    pub jobs: usize,
    /// Hours of the world that were lived through, by each policy.
    pub hours_simulated: f64,
    /// Cycles of the loop.
    pub cycles: u64,
    /// Plans that were published.
    pub plans_published: u64,
    /// Plans the verifier refused.
    pub plans_refused: u64,
    /// Generation of the last calibration; 1 would mean that nothing was learned.
    pub calibration_generation: u64,
    /// What the figures of the policies cover.
    pub period: PeriodSummary,
    /// By policy.
    pub policies: BTreeMap<PolicyName, PolicySummary>,
    /// One day of some GPUs.
    pub day: Option<DayMap>,
    /// A decision of that day.
    pub decision: Option<DecisionSummary>,
    /// The worst hour of ours.
    pub worst_miss: Option<WorstMiss>,
    /// What was learned.
    pub learned: Vec<Learned>,
    /// How good the forecasts were.
    pub forecast: ForecastScore,
}

impl DemoSummary {
    /// Version of the document written by this program.
    pub const SCHEMA: &'static str = "turnaround.demo/1";
}

/// One service over the whole run, hour by hour.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceChart {
    /// Which.
    pub workload: String,
    /// Start of the first hour.
    pub start: Timestamp,
    /// Grid spacing.
    pub step: Span,
    /// Requests/s that came. `None`: unknown.
    pub observed: Vec<Option<f64>>,
    /// p5, p50, p95 as published last before the hour. `None`: there was no forecast yet.
    pub band: Vec<Option<[f64; 3]>>,
    /// Requests/s the plan in force could serve, by what it reckoned with. `None`: there was no plan yet.
    pub planned: Vec<Option<f64>>,
}

/// All the HTML report shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The figures of the screen.
    pub summary: DemoSummary,
    /// Demand against bands, one a service.
    pub services: Vec<ServiceChart>,
    /// Who had which GPU, one a policy.
    pub maps: Vec<GpuMap>,
    /// What the letters on the maps stand for.
    pub keys: Vec<MapKey>,
}
