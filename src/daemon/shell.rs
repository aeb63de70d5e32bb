//! Does what the loop asks for: keeps, publishes, tells.

use crate::{Kept, statuses::statuses};
use config::Config;
use cycle::{Effect, Record, State, Tally, WorkOrder};
use fleet::{Observation, Plan, Span, Timestamp, Verb, WorkloadWindow};
use ingest::Catalogue;
use publish::{Condition, CycleOutcome, Metrics, Published, plan_file};
use std::{path::PathBuf, sync::Arc};
use store::{Batch, Store, influx::Influx};

/// Version shown in the build's metric.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Name of the condition that every target answers.
const SOURCES: &str = "sources_fresh";

/// Time between two looks at how every signal of every source stands.
const SHOW_SOURCES_EVERY: Span = Span(5);

/// The daemon's hands.
pub(crate) struct Shell {
    store: Store,
    influx: Option<Influx>,
    /// Points given up so far, as last told.
    lost: u64,
    /// When the sources were last shown.
    sources_shown: Option<Timestamp>,
    plan_file: PathBuf,
    /// How far back the past is read.
    history: Span,
    published: Published,
    tally: Tally,
    /// What the history refused last, until it takes something again.
    store_fault: Option<String>,
    /// Why the plan file could not be written, until it can.
    file_fault: Option<String>,
    since: Timestamp,
}

impl Shell {
    pub fn new(config: &Config, kept: Kept, state: &State, now: Timestamp) -> Self {
        let published = Published::new(Metrics::new(VERSION));
        if let Some(plan) = state.plan()
            && let Err(error) = published.set_plan(&Arc::new(plan.clone()))
        {
            tracing::warn!(%error, "the plan kept in the history is not shown");
        }
        Self {
            store: kept.store,
            influx: kept.influx,
            lost: 0,
            sources_shown: None,
            plan_file: config.publish.plan_file.clone(),
            history: config.policy.history,
            published,
            tally: state.tally,
            store_fault: None,
            file_fault: None,
            since: now,
        }
    }

    /// What HTTP clients are shown.
    pub fn published(&self) -> &Published {
        &self.published
    }

    /// Keeps raw readings. What the history refuses is counted and shown; the loop goes on from what it knows.
    pub async fn keep_observations(&mut self, observations: Vec<Observation>) {
        let count = u64::try_from(observations.len()).unwrap_or(u64::MAX);
        if count > 0 && self.keep(Batch { observations, ..Batch::default() }).await {
            self.published.metrics().observations_kept(count);
        }
    }

    /// Carries out effects in their order and gives back the work that was ordered. Whatever must be kept is kept before a plan that rests on
    /// it is published; a plan that could not be kept is not published.
    pub async fn carry_out(&mut self, effects: Vec<Effect>) -> Option<WorkOrder> {
        let mut order = None;
        let mut batch = Batch::default();
        for effect in effects {
            match effect {
                Effect::Append(record) => put_in_batch(&mut batch, record),
                Effect::Work(work) => order = Some(*work),
                Effect::Notice(at, text) => tracing::warn!(%at, "{text}"),
                Effect::Publish(plan) => {
                    if self.keep(std::mem::take(&mut batch)).await {
                        self.publish(*plan).await;
                    }
                }
            }
        }
        if batch != Batch::default() {
            self.keep(batch).await;
        }
        order
    }

    /// The windows of the past, where they can be read now.
    pub async fn past(&self, now: Timestamp) -> Option<Vec<WorkloadWindow>> {
        let from = now - self.history;
        self.store.windows(None, from, now).await.ok()
    }

    /// Removes what is older than its retention.
    pub async fn retain(&mut self, now: Timestamp) {
        match self.store.retain(now).await {
            Ok(removed) => tracing::debug!(?removed, "retention"),
            Err(error) => self.store_failed(&error),
        }
    }

    /// Shows people and machines how things stand.
    pub fn show(&mut self, state: &State, catalogue: &Catalogue, now: Timestamp) {
        let metrics = self.published.metrics();
        count_cycles(metrics, &self.tally, &state.tally, state.plan());
        self.tally = state.tally;
        metrics.calibrated(state.calibration());
        metrics.forecasts(state.forecasts(), now);
        metrics.demand(state.setup().workloads.iter().filter(|w| w.service().is_some()).map(|w| {
            let last = state.history(&w.id).last().filter(|window| now.since(window.start) <= fleet::Span::minutes(15));
            (&w.id, last.and_then(|window| window.arrivals_per_s))
        }));
        let silent: std::collections::BTreeSet<_> = state.silent_targets(now).map(|(id, _, _)| id.clone()).collect();
        for target in state.targets() {
            metrics.silent(&target.id, silent.contains(&target.id));
        }
        if let Some(plan) = state.plan() {
            metrics.plan_in_force(plan, now);
        }
        self.published.set_forecasts(state.forecasts().to_vec());
        self.show_queue();
        if self.sources_shown.is_none_or(|at| now < at || now.since(at) >= SHOW_SOURCES_EVERY) {
            self.sources_shown = Some(now);
            self.published.set_sources(statuses(state, catalogue, now));
        }
        self.published.set_conditions(self.conditions(state, now));
    }

    /// What waits for the history's server.
    fn show_queue(&mut self) {
        let Some(Ok(status)) = self.influx.as_ref().map(Influx::status) else { return };
        let lost = status.lost_beyond_retention + status.lost_refused + status.lost_queue_full;
        self.published.metrics().store_queue(status.queued_bytes, lost.saturating_sub(self.lost));
        self.lost = lost;
    }

    /// Whether the history's server takes what it is given.
    fn server(&self) -> Option<Condition> {
        let status = self.influx.as_ref()?.status().ok()?;
        let reason = match (&status.away_since, &status.last_error) {
            (Some(_), error) => {
                format!("{}; {} points wait in the local queue", error.as_deref().unwrap_or("no answer"), status.queued_points)
            }
            (None, _) => "the history's server takes what it is given".to_owned(),
        };
        Some(Condition { name: "history_server".into(), ok: status.away_since.is_none(), reason, since: status.away_since.unwrap_or(self.since) })
    }

    fn conditions(&self, state: &State, now: Timestamp) -> Vec<Condition> {
        let own = |name: &str, fault: &Option<String>, well: &str| Condition {
            name: name.to_owned(),
            ok: fault.is_none(),
            reason: fault.clone().unwrap_or_else(|| well.to_owned()),
            since: self.since,
        };
        let mut all = vec![
            own("history_written", &self.store_fault, "the history takes what it is given"),
            own("plan_file_written", &self.file_fault, "the plan file is up to date"),
        ];
        all.extend(self.server());
        all.push(sources(state, now));
        let kept = state.conditions().filter(|c| c.name != SOURCES);
        all.extend(kept.map(|c| Condition { name: c.name.clone(), ok: c.ok, reason: c.reason.clone(), since: c.since }));
        if state.plan().is_none() {
            all.push(Condition { name: "plan_in_force".into(), ok: false, reason: "no plan yet".into(), since: self.since });
        }
        all
    }

    async fn publish(&mut self, plan: Plan) {
        let plan = Arc::new(plan);
        let (path, document) = (self.plan_file.clone(), plan.clone());
        let written = tokio::task::spawn_blocking(move || plan_file::write(&path, &document)).await;
        self.file_fault = match written {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(fault) = &self.file_fault {
            tracing::error!(fault, "the plan file could not be written; it holds the plan before");
        }
        if let Err(error) = self.published.set_plan(&plan) {
            tracing::error!(%error, "the plan is not shown");
        }
        if self.file_fault.is_some() {
            return;
        }
        tracing::info!(plan = %plan.id, generation = plan.generation, gap = plan.report.gap, "published");
    }

    /// Keeps a batch; false when the history refused it.
    async fn keep(&mut self, batch: Batch) -> bool {
        match self.store.append(batch).await {
            Ok(_) => {
                self.store_fault = None;
                true
            }
            Err(error) => {
                self.store_failed(&error);
                false
            }
        }
    }

    fn store_failed(&mut self, error: &store::StoreError) {
        tracing::error!(%error, "the history refused an operation");
        self.published.metrics().store_failed();
        self.store_fault = Some(error.to_string());
    }
}

/// Whether every target answers now, not only when the last cycle began.
fn sources(state: &State, now: Timestamp) -> Condition {
    let silent: Vec<_> = state.silent_targets(now).collect();
    let reasons: Vec<String> = silent.iter().map(|(id, since, why)| format!("target {id} is silent since {since}: {why}")).collect();
    let since = silent.iter().map(|(_, since, _)| *since).min();
    let known = state.conditions().find(|c| c.name == SOURCES && c.ok).map(|c| c.since);
    Condition {
        name: SOURCES.into(),
        ok: silent.is_empty(),
        reason: if silent.is_empty() { "every target answers".into() } else { reasons.join("; ") },
        since: since.or(known).unwrap_or(now),
    }
}

/// Puts what the loop wants kept into a batch for the history.
pub fn put_in_batch(batch: &mut Batch, record: Record) {
    match record {
        Record::Windows(windows) => batch.windows.extend(windows),
        Record::Outcome(outcome) => batch.outcomes.push(*outcome),
        Record::Calibration(calibration) => batch.calibrations.push(*calibration),
        Record::Forecasts(forecasts) => batch.forecasts.extend(forecasts),
        Record::Decision(problem, plan) => {
            batch.problems.push(*problem);
            batch.plans.push(*plan);
        }
    }
}

fn count_cycles(metrics: &Metrics, before: &Tally, now: &Tally, plan: Option<&Plan>) {
    let keeps_all = plan.is_some_and(|p| p.committed.replicas.iter().map(|r| r.verb).chain(p.committed.jobs.iter().map(|j| j.verb)).all(|v| v == Verb::Keep));
    let planned = if keeps_all { CycleOutcome::Unchanged } else { CycleOutcome::Planned };
    let counts = [
        (planned, now.published - before.published),
        (CycleOutcome::Refused, now.refused - before.refused),
        (CycleOutcome::TimedOut, now.timed_out - before.timed_out),
        (CycleOutcome::Failed, now.failed - before.failed + now.killed - before.killed),
    ];
    for (outcome, n) in counts {
        (0..n).for_each(|_| metrics.cycle(outcome));
    }
    (before.killed..now.killed).for_each(|_| metrics.worker_killed());
}
