//! What is in force: set by the daemon, shown by the router.

use crate::{Metrics, PublishError, plan_file};
use axum::body::Bytes;
use fleet::{Forecast, Plan, Server, Signal, Timestamp, WorkloadId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::watch;

/// Something that must hold before others may rely on this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Its name, such as `store` or `sources`; stable, for machines.
    pub name: String,
    /// It holds.
    pub ok: bool,
    /// Why it does or does not, in words.
    pub reason: String,
    /// Since when it is so.
    pub since: Timestamp,
}

/// How a source of readings stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name.
    pub name: String,
    /// The service it tells of; nothing for pages about GPUs.
    pub workload: Option<WorkloadId>,
    /// It answers.
    pub ok: bool,
    /// Last time it answered.
    pub last_answer: Option<Timestamp>,
    /// Why it is silent, where it is.
    pub reason: Option<String>,
    /// What answers there.
    pub server: Option<Server>,
    /// Its signals, in order.
    pub signals: Vec<SignalStatus>,
}

/// How one signal of a source stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SignalStatus {
    /// Which.
    pub signal: Signal,
    /// Whether what was read last may be relied on.
    pub state: Reliance,
    /// Last time it was read; nothing when it never was.
    pub last: Option<Timestamp>,
}

/// Whether a signal may be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reliance {
    /// Read at the last look.
    Fresh,
    /// Read, but it stands still while others of its source move.
    Frozen,
    /// Its source is silent.
    Stale,
    /// Its source answers without it.
    Missing,
}

impl SourceStatus {
    /// It answers, and every signal may be relied on.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ok && self.signals.iter().all(|s| s.state == Reliance::Fresh)
    }
}

/// A plan with the bytes it is sent as.
#[derive(Debug, PartialEq)]
pub struct PlanDocument {
    /// The plan.
    pub plan: Arc<Plan>,
    /// Its canonical JSON, the same as in the plan file.
    pub body: Bytes,
}

/// What is in force at one instant. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The plan in force; nothing before the first.
    pub plan: Option<Arc<PlanDocument>>,
    /// The latest forecast of each workload, in order of workload.
    pub forecasts: Arc<Vec<Forecast>>,
    /// What must hold; nothing while the daemon starts.
    pub conditions: Arc<Vec<Condition>>,
    /// Where readings come from, in order of name.
    pub sources: Arc<Vec<SourceStatus>>,
}

impl View {
    /// Ready: there are conditions, and all hold.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.conditions.is_empty() && self.conditions.iter().all(|condition| condition.ok)
    }
}

/// A handle on what is in force. Clones share it.
#[derive(Debug, Clone)]
pub struct Published {
    view: Arc<watch::Sender<View>>,
    metrics: Metrics,
}

impl Published {
    /// Nothing in force yet; `/metrics` shows `metrics`.
    #[must_use]
    pub fn new(metrics: Metrics) -> Self {
        Self { view: Arc::new(watch::Sender::new(View::default())), metrics }
    }

    /// Puts a plan in force. The plan in force again changes nothing.
    ///
    /// # Errors
    /// When a later plan or another one of its generation is in force, or the plan could not be read back by others.
    pub fn set_plan(&self, plan: &Arc<Plan>) -> Result<(), PublishError> {
        let body = Bytes::from(plan_file::sound_bytes(plan)?);
        let mut refused = None;
        self.view.send_if_modified(|view| {
            if let Some(held) = view.plan.as_ref().map(|held| &held.plan) {
                if held.id != plan.id && held.generation >= plan.generation {
                    refused = Some(PublishError::Generation { id: plan.id.to_string(), offered: plan.generation, held: held.generation });
                }
                if held.id == plan.id || refused.is_some() {
                    return false;
                }
            }
            view.plan = Some(Arc::new(PlanDocument { plan: Arc::clone(plan), body: body.clone() }));
            true
        });
        refused.map_or(Ok(()), Err)
    }

    /// Replaces the forecasts shown, one a workload.
    pub fn set_forecasts(&self, mut forecasts: Vec<Forecast>) {
        forecasts.sort_by(|a, b| a.workload.cmp(&b.workload));
        self.view.send_modify(|view| view.forecasts = Arc::new(forecasts));
    }

    /// Replaces what must hold. An empty list means "not known yet", hence not ready.
    pub fn set_conditions(&self, conditions: Vec<Condition>) {
        self.view.send_if_modified(|view| {
            let changed = *view.conditions != conditions;
            if changed {
                view.conditions = Arc::new(conditions);
            }
            changed
        });
    }

    /// Replaces what is said of the sources.
    pub fn set_sources(&self, sources: Vec<SourceStatus>) {
        self.view.send_modify(|view| view.sources = Arc::new(sources));
    }

    /// What is in force now.
    #[must_use]
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Tells when what is in force changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// What the program tells about itself.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
