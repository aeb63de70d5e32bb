//! What the loop knows between two events.

use crate::{Cause, Condition, JobReading, Setup, gpu_pages::GpuPage};
use fleet::{
    Calibration, Estimate, Forecast, GpuId, GpuReading, JobId, Plan, ReplicaId, Server, StartOutcome, Target, TargetId, Timestamp, VariantId, Workload,
    WorkloadId, WorkloadWindow,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything the loop knows. A value: it can be stored, compared and handed to another process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(crate) setup: Setup,
    /// Readings on their way to windows.
    pub(crate) windows: series::Windows,
    /// Closed windows by workload, oldest first.
    pub(crate) history: BTreeMap<WorkloadId, Vec<WorkloadWindow>>,
    pub(crate) targets: BTreeMap<TargetId, TargetState>,
    pub(crate) gpus: BTreeMap<GpuId, GpuReading>,
    /// What pages say of devices, ours or not.
    pub(crate) devices: series::Gpus,
    /// Pages that tell of GPUs.
    pub(crate) gpu_pages: BTreeMap<TargetId, GpuPage>,
    /// Pods that GPU pages say hold a GPU.
    pub(crate) gpu_holders: BTreeMap<GpuId, String>,
    pub(crate) jobs: BTreeMap<JobId, JobReading>,
    /// Replicas whose start was seen.
    pub(crate) starts: BTreeMap<ReplicaId, StartWatch>,
    /// Starts that ended since the last outcome.
    pub(crate) started: Vec<StartOutcome>,
    /// Jobs that ended since the last outcome.
    pub(crate) ended: Vec<JobId>,
    pub(crate) calibration: Calibration,
    pub(crate) plan: Option<Plan>,
    /// Number of the last plan published; never goes back.
    pub(crate) generation: u64,
    pub(crate) forecasts: Vec<Forecast>,
    /// For each hour ahead, by service and forecaster: the quantiles of the last forecast made before the hour began.
    pub(crate) predictions: BTreeMap<Timestamp, BTreeMap<WorkloadId, BTreeMap<String, Vec<f64>>>>,
    /// Prior capacity the last problem started from, requests/s and replica.
    pub(crate) priors: BTreeMap<WorkloadId, BTreeMap<VariantId, f64>>,
    /// When the work now out was ordered, and why.
    pub(crate) out: Option<(Timestamp, Cause)>,
    /// What happened while work was out.
    pub(crate) pending: Option<Cause>,
    /// Hours before this one are scored.
    pub(crate) scored_until: Timestamp,
    /// Last time demand outside its band caused a cycle, by workload.
    pub(crate) band_alarm: BTreeMap<WorkloadId, Timestamp>,
    /// Last time no target of a workload that ever answered did so: then the source is dark, and says nothing about any one replica.
    pub(crate) dark: BTreeMap<WorkloadId, Timestamp>,
    /// What happened so far.
    pub tally: Tally,
    pub(crate) conditions: BTreeMap<String, Condition>,
}

/// One scraped endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TargetState {
    pub target: Target,
    pub last_ok: Option<Timestamp>,
    pub failing_since: Option<Timestamp>,
    pub last_error: Option<String>,
    /// What answered last.
    #[serde(default)]
    pub server: Option<Server>,
    /// A cycle was asked for because of this silence.
    pub reported: bool,
}

/// A replica on its way to its first token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct StartWatch {
    pub variant: VariantId,
    pub started_at: Timestamp,
    pub expected_s: f64,
    pub ready_at: Option<Timestamp>,
    /// It missed its load deadline.
    pub given_up: bool,
}

/// Counts since the loop began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Tally {
    /// Cycles begun.
    pub cycles: u64,
    /// Plans that passed the verifier and were published.
    pub published: u64,
    /// Plans the verifier refused.
    pub refused: u64,
    /// Searches that reached a limit without any plan.
    pub timed_out: u64,
    /// Searches that failed.
    pub failed: u64,
    /// Work that hung, died or was killed.
    pub killed: u64,
}

impl State {
    /// A loop that knows nothing yet.
    #[must_use]
    pub fn new(setup: Setup, now: Timestamp) -> Self {
        let mut calibration = Calibration::prior(setup.policy.started_at);
        calibration.frozen = setup.policy.learning_frozen;
        Self {
            windows: series::Windows::new(setup.policy.window),
            setup,
            history: BTreeMap::new(),
            targets: BTreeMap::new(),
            gpus: BTreeMap::new(),
            devices: series::Gpus::default(),
            gpu_pages: BTreeMap::new(),
            gpu_holders: BTreeMap::new(),
            jobs: BTreeMap::new(),
            starts: BTreeMap::new(),
            started: Vec::new(),
            ended: Vec::new(),
            calibration,
            plan: None,
            generation: 0,
            forecasts: Vec::new(),
            predictions: BTreeMap::new(),
            priors: BTreeMap::new(),
            out: None,
            pending: None,
            scored_until: now.hour(),
            band_alarm: BTreeMap::new(),
            dark: BTreeMap::new(),
            tally: Tally::default(),
            conditions: BTreeMap::new(),
        }
    }

    /// A loop that goes on from what a store kept. Windows are given oldest first, per workload in any order.
    #[must_use]
    pub fn resume(setup: Setup, now: Timestamp, windows: Vec<WorkloadWindow>, calibration: Option<Calibration>, plan: Option<Plan>) -> Self {
        let mut state = Self::new(setup, now);
        if let Some(calibration) = calibration {
            state.calibration = Calibration { frozen: state.setup.policy.learning_frozen, ..calibration };
        }
        if let Some(plan) = plan {
            state.generation = plan.generation;
            state.plan = Some(plan);
        }
        for window in windows {
            state.history.entry(window.workload.clone()).or_default().push(window);
        }
        for kept in state.history.values_mut() {
            kept.sort_by_key(|w| w.start);
        }
        state
    }

    /// The setup it runs with.
    #[must_use]
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The plan in force.
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// The forecasts the last cycle planned with, in order of service.
    #[must_use]
    pub fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
    }

    /// What was learned so far.
    #[must_use]
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Closed windows of a workload, oldest first.
    #[must_use]
    pub fn history(&self, workload: &WorkloadId) -> &[WorkloadWindow] {
        self.history.get(workload).map_or(&[], Vec::as_slice)
    }

    /// Prior capacity the last cycle started from, requests/s and replica.
    #[must_use]
    pub fn prior_capacity(&self, workload: &WorkloadId, variant: &VariantId) -> Option<f64> {
        self.priors.get(workload)?.get(variant).copied()
    }

    /// Conditions of readiness, in order of name.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.values()
    }

    /// The targets known, in order of id.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.targets.values().map(|t| &t.target)
    }

    /// Targets that do not answer, since when and why, as of `now`.
    pub fn silent_targets(&self, now: Timestamp) -> impl Iterator<Item = (&TargetId, Timestamp, &str)> {
        self.targets
            .iter()
            .filter(move |(_, t)| self.is_silent(t, now))
            .map(|(id, t)| (id, t.failing_since.or(t.last_ok).unwrap_or(self.setup.policy.started_at), t.last_error.as_deref().unwrap_or("no answer yet")))
    }

    pub(crate) fn is_silent(&self, target: &TargetState, now: Timestamp) -> bool {
        target.last_ok.is_none_or(|at| now.since(at) > self.setup.policy.silent_after)
    }

    /// Whether none of a workload's targets that ever answered does so now.
    pub(crate) fn is_dark(&self, workload: &WorkloadId) -> bool {
        let mut known = self.targets.values().filter(|t| &t.target.workload == workload && t.last_ok.is_some()).peekable();
        known.peek().is_some() && known.all(|t| t.failing_since.is_some())
    }

    /// Whether a start begun at `started_at` was out of sight for a while, so that its length is not known.
    pub(crate) fn was_out_of_sight(&self, replica: &ReplicaId, started_at: Timestamp) -> bool {
        let target = self.targets.values().find(|t| t.target.replica.as_ref() == Some(replica));
        target.and_then(|t| self.dark.get(&t.target.workload)).is_some_and(|at| *at >= started_at)
    }

    pub(crate) fn services(&self) -> impl Iterator<Item = &Workload> {
        self.setup.workloads.iter().filter(|w| w.service().is_some())
    }

    /// Learned cold start of a variant in seconds, or its prior.
    pub(crate) fn cold_start_s(&self, variant: &VariantId) -> f64 {
        let prior = self.setup.variants.iter().find(|v| &v.id == variant).map_or(0.0, |v| v.cold_start.as_secs_f64());
        self.calibration.cold_start.get(variant).map_or(prior, |e: &Estimate| e.value)
    }

    pub(crate) fn set_condition(&mut self, name: &str, ok: bool, reason: impl Into<String>, now: Timestamp) {
        let reason = reason.into();
        let since = match self.conditions.get(name) {
            Some(old) if old.ok == ok => old.since,
            _ => now,
        };
        self.conditions.insert(name.to_owned(), Condition { name: name.to_owned(), ok, reason, since });
    }
}
