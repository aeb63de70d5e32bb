//! `step`: state and event in, state and effects out.

use crate::{
    Answer, Cause, Effect, Event, JobReading, JobState, Record, State, WorkOrder, WorkOutput,
    order::ServiceInput,
    outcome::outcome_of_hour,
    residency,
    state::{StartWatch, TargetState},
};
use fleet::{GpuReading, GpuStatus, PlanRef, ReplicaId, Scrape, Span, StartOutcome, Target, Timestamp, WorkloadId, WorkloadWindow};

/// Time readings may still be on their way when a window is closed between two cycles.
const WINDOW_GRACE: Span = Span(45);
/// A workload outside its band, or with a queue, causes one extra cycle in this time.
const BAND_ALARM_EVERY: Span = Span::minutes(10);

/// The next state, and what is to be done about it.
#[must_use]
pub fn step(mut state: State, event: Event) -> (State, Vec<Effect>) {
    let mut effects = Vec::new();
    match event {
        Event::Tick(now) => {
            state.advance(now, &mut effects);
            state.order(now, Cause::Interval, &mut effects);
        }
        Event::Trigger(now, cause) => {
            state.advance(now, &mut effects);
            state.order(now, cause, &mut effects);
        }
        Event::Targets(targets) => state.know_targets(targets),
        Event::Scraped(scrape) => state.scraped(&scrape, &mut effects),
        Event::GpuPage(scrape) => state.saw_gpu_page(&scrape, &mut effects),
        Event::Gpus(readings) => state.saw_gpus(readings, &mut effects),
        Event::Jobs(readings) => state.saw_jobs(readings, &mut effects),
        Event::Windows(windows) => state.take_windows(windows, &mut effects),
        Event::Past(windows) => state.take_past(windows),
        Event::ClockSet(now) => state.clock_set(now),
        Event::Worked(output) => state.worked(*output, &mut effects),
        Event::WorkFailed(now, reason) => state.work_failed(now, &reason, &mut effects),
    }
    (state, effects)
}

impl State {
    /// Closes windows, scores hours that are over and learns from them.
    fn advance(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        self.close_windows(now, effects);
        while self.scored_until + Span::HOUR <= now {
            let hour = self.scored_until;
            self.scored_until = hour + Span::HOUR;
            let outcome = outcome_of_hour(self, hour);
            self.started.clear();
            self.ended.clear();
            let learned = models::learn(&self.calibration, &outcome, now);
            effects.push(Effect::Append(Record::Outcome(Box::new(outcome))));
            if learned.generation > self.calibration.generation {
                effects.push(Effect::Append(Record::Calibration(Box::new(learned.clone()))));
                self.calibration = learned;
            }
            self.predictions = self.predictions.split_off(&self.scored_until);
        }
    }

    fn close_windows(&mut self, until: Timestamp, effects: &mut Vec<Effect>) {
        if !self.windows.has_ended(until) {
            return;
        }
        let targets: Vec<Target> = self.targets.values().map(|t| t.target.clone()).collect();
        let closed = self.windows.close(until, &targets);
        self.take_windows(closed, effects);
    }

    /// Adds windows to what is known, and has them kept.
    fn take_windows(&mut self, mut windows: Vec<WorkloadWindow>, effects: &mut Vec<Effect>) {
        windows.retain(|new| self.history.get(&new.workload).and_then(|h| h.last()).is_none_or(|last| last.start < new.start));
        if windows.is_empty() {
            return;
        }
        for window in &windows {
            let kept = self.history.entry(window.workload.clone()).or_default();
            kept.push(window.clone());
            let oldest = window.start - self.setup.policy.history;
            let stale = kept.partition_point(|w| w.start < oldest);
            // Trimmed a day at a time, so that the cost is shared.
            if stale > 288 {
                kept.drain(..stale);
            }
        }
        effects.push(Effect::Append(Record::Windows(windows)));
    }

    fn know_targets(&mut self, targets: Vec<Target>) {
        let mut known = std::mem::take(&mut self.targets);
        for target in targets {
            let old = known.remove(&target.id).filter(|old| old.target == target);
            let entry =
                old.unwrap_or(TargetState { target: target.clone(), last_ok: None, failing_since: None, last_error: None, server: None, reported: false });
            self.targets.insert(target.id, entry);
        }
    }

    fn scraped(&mut self, scrape: &Scrape, effects: &mut Vec<Effect>) {
        // Windows before this reading are closed first, so that band alarms come within a window.
        self.close_windows((scrape.at - WINDOW_GRACE).floor(self.setup.policy.window), effects);
        let Some(known) = self.targets.get_mut(&scrape.target) else { return };
        let silent_after = self.setup.policy.silent_after;
        let mut fell_silent = false;
        match &scrape.status {
            fleet::ScrapeStatus::Ok => {
                known.last_ok = Some(scrape.at);
                known.failing_since = None;
                known.last_error = None;
                known.server.clone_from(&scrape.server);
                known.reported = false;
            }
            fleet::ScrapeStatus::Failed(reason) => {
                let since = *known.failing_since.get_or_insert(scrape.at);
                known.last_error = Some(reason.clone());
                if known.last_ok.is_some() && !known.reported && scrape.at.since(since) >= silent_after {
                    known.reported = true;
                    fell_silent = true;
                }
            }
        }
        let target = known.target.clone();
        if !scrape.is_ok() && self.is_dark(&target.workload) {
            self.dark.insert(target.workload.clone(), scrape.at);
        }
        let in_sight = target.replica.as_ref().and_then(|r| Some(!self.was_out_of_sight(r, self.starts.get(r)?.started_at))).unwrap_or(true);
        if scrape.is_ok()
            && let Some(watch) = target.replica.as_ref().and_then(|r| self.starts.get_mut(r))
            && watch.ready_at.is_none()
        {
            watch.ready_at = Some(scrape.at);
            let observed_s = scrape.at.since(watch.started_at).as_secs_f64();
            if let Some(replica) = target.replica.clone().filter(|_| in_sight) {
                self.started.push(StartOutcome { replica, variant: watch.variant.clone(), expected_s: watch.expected_s, observed_s });
            }
        }
        let ttft = self.setup.workloads.iter().find(|w| w.id == target.workload).and_then(|w| w.service()).map_or(f64::INFINITY, |s| s.target.ttft_s);
        self.windows.observe(&target, ttft, scrape);
        effects.extend(self.windows.take_notices().into_iter().map(|notice| Effect::Notice(notice.at, notice.to_string())));
        if fell_silent {
            effects.push(Effect::Notice(scrape.at, format!("target {} stopped answering: its last demand is held, it is not counted as supply", target.id)));
            self.urgent(scrape.at, Cause::TargetSilent(target.id), effects);
        } else if let Some(cause) = self.surprise(&target.workload, ttft, scrape.at) {
            self.band_alarm.insert(target.workload, scrape.at);
            self.urgent(scrape.at, cause, effects);
        }
    }

    /// What the last window of a workload shows that no plan foresaw, unless an alarm was raised lately: demand above the band of the forecast, or
    /// a queue that takes longer than the service promises.
    fn surprise(&self, workload: &WorkloadId, ttft_s: f64, now: Timestamp) -> Option<Cause> {
        let recent = self.band_alarm.get(workload).is_some_and(|at| now.since(*at) < BAND_ALARM_EVERY);
        let last = self.history(workload).last().filter(|w| !recent && now.since(w.start) < self.setup.policy.window + self.setup.policy.window)?;
        let high = self.forecasts.iter().find(|f| &f.workload == workload).and_then(|f| f.quantile(last.start, 0.99));
        if let (Some(came), Some(high)) = (last.arrivals_per_s, high)
            && came > high * 1.1 + 0.01
        {
            return Some(Cause::DemandOutsideBand(workload.clone()));
        }
        let served = last.finished_per_s.unwrap_or(0.0);
        let waits = last.waiting.is_some_and(|waiting| waiting >= 1.0 && waiting > ttft_s * served);
        waits.then(|| Cause::QueueFormed(workload.clone()))
    }

    pub(crate) fn saw_gpus(&mut self, readings: Vec<GpuReading>, effects: &mut Vec<Effect>) {
        for reading in readings {
            let failed = |status: &GpuStatus| matches!(status, GpuStatus::Failed(_));
            let was_failed = self.gpus.get(&reading.gpu).is_some_and(|old| failed(&old.status));
            let is_failed = failed(&reading.status);
            if let GpuStatus::Replica { replica, variant, ready_at } = &reading.status
                && !self.starts.contains_key(replica)
            {
                let ready_at = (*ready_at <= reading.at).then_some(*ready_at);
                let watch = StartWatch { variant: variant.clone(), started_at: reading.at, expected_s: self.cold_start_s(variant), ready_at, given_up: false };
                self.starts.insert(replica.clone(), watch);
            }
            let (gpu, at, new) = (reading.gpu.clone(), reading.at, !self.gpus.contains_key(&reading.gpu));
            self.gpus.insert(gpu.clone(), reading);
            if is_failed && !was_failed && !new {
                self.urgent(at, Cause::GpuLost(gpu), effects);
            } else if was_failed && !is_failed {
                self.urgent(at, Cause::GpuReturned(gpu), effects);
            }
        }
        let held: std::collections::BTreeSet<_> = self
            .gpus
            .values()
            .filter_map(|g| match &g.status {
                GpuStatus::Replica { replica, .. } => Some(replica.clone()),
                _ => None,
            })
            .collect();
        self.starts.retain(|replica, _| held.contains(replica));
    }

    fn saw_jobs(&mut self, readings: Vec<JobReading>, effects: &mut Vec<Effect>) {
        for reading in readings {
            let before = self.jobs.insert(reading.job.clone(), reading.clone());
            let ended = reading.state == JobState::Done && before.is_some_and(|b| b.state != JobState::Done);
            if ended {
                self.ended.push(reading.job.clone());
                self.urgent(reading.at, Cause::JobEnded(reading.job), effects);
            }
        }
    }

    /// A cycle out of turn, as soon as none is under way.
    fn urgent(&mut self, now: Timestamp, cause: Cause, effects: &mut Vec<Effect>) {
        self.order(now, cause, effects);
    }

    fn order(&mut self, now: Timestamp, cause: Cause, effects: &mut Vec<Effect>) {
        if self.out.is_some() {
            self.pending = Some(cause);
            return;
        }
        self.tally.cycles += 1;
        self.give_up_late_starts(now, effects);
        self.out = Some((now, cause.clone()));
        let snapshot = residency::snapshot(self, now);
        let silent: Vec<String> = self.silent_targets(now).map(|(id, since, why)| format!("target {id} is silent since {since}: {why}")).collect();
        let fresh = silent.is_empty();
        self.set_condition("sources_fresh", fresh, if fresh { "every target answers".to_owned() } else { silent.join("; ") }, now);
        let order = WorkOrder {
            as_of: now,
            cause,
            setup: self.setup.clone(),
            calibration: self.calibration.clone(),
            parent: self.plan.as_ref().map(|p| PlanRef { id: p.id.clone(), generation: self.generation }),
            services: self.services().map(|w| ServiceInput::of(self, w, now)).collect(),
            slots: snapshot.slots,
            residents: snapshot.residents,
            unlocated: snapshot.unlocated,
            jobs: self.jobs.values().cloned().collect(),
            notes: snapshot.notes.into_iter().chain(silent).collect(),
        };
        effects.push(Effect::Work(Box::new(order)));
    }

    /// A start that missed its load deadline is given up. That it took at least this long is learned, so that the next one is given more time.
    fn give_up_late_starts(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let late: Vec<ReplicaId> = self
            .starts
            .iter()
            .filter(|(id, w)| !w.given_up && residency::is_overdue(w, now) && !self.was_out_of_sight(id, w.started_at))
            .map(|(id, _)| id.clone())
            .collect();
        for replica in late {
            let Some(watch) = self.starts.get_mut(&replica) else { continue };
            watch.given_up = true;
            let observed_s = now.since(watch.started_at).as_secs_f64();
            effects.push(Effect::Notice(now, format!("failed start: {replica} has been loading since {}; its GPUs are left alone", watch.started_at)));
            self.started.push(StartOutcome { replica, variant: watch.variant.clone(), expected_s: watch.expected_s, observed_s });
        }
    }

    fn worked(&mut self, output: WorkOutput, effects: &mut Vec<Effect>) {
        let now = output.as_of;
        self.out = None;
        self.remember_forecasts(&output);
        if !self.forecasts.is_empty() {
            effects.push(Effect::Append(Record::Forecasts(self.forecasts.clone())));
        }
        match output.answer {
            Answer::Planned { problem, plan } if plan.generation == self.generation + 1 => {
                self.generation = plan.generation;
                self.tally.published += 1;
                self.set_condition("plan_verified", true, format!("plan {} passed the verifier", plan.id), now);
                self.plan = Some((*plan).clone());
                effects.push(Effect::Append(Record::Decision(problem, plan.clone())));
                effects.push(Effect::Publish(plan));
            }
            Answer::Planned { plan, .. } => {
                self.tally.refused += 1;
                let text = format!("plan {} has generation {} where {} was due; it is not used", plan.id, plan.generation, self.generation + 1);
                self.set_condition("plan_verified", false, text.clone(), now);
                effects.push(Effect::Notice(now, text));
            }
            Answer::Refused(violations) => {
                self.tally.refused += 1;
                let text = format!("the verifier refused the plan, the one in force stays: {}", violations.join("; "));
                self.set_condition("plan_verified", false, text.clone(), now);
                effects.push(Effect::Notice(now, text));
            }
            Answer::TimedOut => {
                self.tally.timed_out += 1;
                let text = "the search reached its limit without a plan; the one in force stays";
                self.set_condition("plan_verified", false, text, now);
                effects.push(Effect::Notice(now, text.to_owned()));
            }
            Answer::Failed(reason) => {
                self.tally.failed += 1;
                let text = format!("no plan, the one in force stays: {reason}");
                self.set_condition("plan_verified", false, text.clone(), now);
                effects.push(Effect::Notice(now, text));
            }
        }
        self.next_pending(now, effects);
    }

    fn work_failed(&mut self, now: Timestamp, reason: &str, effects: &mut Vec<Effect>) {
        self.out = None;
        self.tally.killed += 1;
        let text = format!("the work was lost, the plan in force stays: {reason}");
        self.set_condition("plan_verified", false, text.clone(), now);
        effects.push(Effect::Notice(now, text));
        self.next_pending(now, effects);
    }

    fn next_pending(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if let Some(cause) = self.pending.take() {
            self.order(now, cause, effects);
        }
    }

    /// Keeps, for every whole hour ahead, the last forecast made before it began: that is the one to be scored.
    fn remember_forecasts(&mut self, output: &WorkOutput) {
        self.priors.clone_from(&output.priors);
        for set in &output.forecasts {
            let rows = set.experts.iter().map(|(name, f)| (name.as_str(), f)).chain([("published", &set.published)]);
            for (name, forecast) in rows {
                for (h, row) in forecast.values.iter().enumerate() {
                    let hour = forecast.start + Span(forecast.step.0 * i64::try_from(h).unwrap_or(0));
                    if hour >= forecast.origin && hour >= self.scored_until {
                        let by_service = self.predictions.entry(hour).or_default();
                        by_service.entry(forecast.workload.clone()).or_default().insert(name.to_owned(), row.clone());
                    }
                }
            }
        }
        self.forecasts = output.forecasts.iter().map(|s| s.published.clone()).collect();
    }
}
