//! The loop as a policy: readings go into `cycle::step`, work is done in place, published plans are carried out.

use crate::account::Kept;
use crate::executor::Executor;
use crate::looked::{Endpoint, Page, answers, endpoints, gpu_readings, job_readings, scrape};
use crate::policy::Policy;
use crate::score::{DemandPoint, ForecastScore, Learned, Miss, demand_points, forecast_score, learned, worst_miss};
use crate::world::World;
use crate::{Scenario, score};
use cycle::{Cause, Effect, Event, Record, State};
use fleet::{GpuId, JobId, Plan, Problem, Span, Target, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A decision that was made because a job ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// The job that ended.
    pub job: JobId,
    /// The GPUs it left.
    pub gpus: Vec<GpuId>,
    /// What was asked.
    pub problem: Box<Problem>,
    /// What was decided.
    pub plan: Box<Plan>,
}

/// What the loop has to tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoopReport {
    /// Cycles begun.
    pub cycles: u64,
    /// Plans published.
    pub plans_published: u64,
    /// Plans the verifier refused.
    pub plans_refused: u64,
    /// Cycles that ended without a plan for other reasons.
    pub plans_failed: u64,
    /// Generation of the last calibration.
    pub calibration_generation: u64,
    /// Forecast scores over the scored part.
    pub forecast: Option<ForecastScore>,
    /// The service-hour with the most late requests in the scored part.
    pub worst_miss: Option<Miss>,
    /// The last figures learned.
    pub learned: Vec<Learned>,
    /// How they came about: every change, in order of time.
    pub learning: Vec<Learned>,
    /// Demand against bands, window by window, from the start.
    pub demand: Vec<DemandPoint>,
    /// Decisions made because a job ended, in the scored part.
    pub decisions: Vec<Decision>,
    /// The last plan published.
    pub last_plan: Option<Box<Plan>>,
    /// What it answers.
    pub last_problem: Option<Box<Problem>>,
    /// What people were told, newest last; no more than a few hundred.
    pub notices: Vec<(Timestamp, String)>,
}

/// Notices kept.
const NOTICES_MAX: usize = 400;
/// Answers to effects in one minute beyond which the loop would be talking to itself.
const ANSWERS_MAX: usize = 64;

pub(crate) struct Turnaround {
    state: Option<State>,
    executor: Executor,
    score_from: Timestamp,
    scrape_every: usize,
    interval: Span,
    window: Span,
    /// Endpoints the loop knows of, and those that are gone but whose last window is still open.
    known: BTreeMap<TargetId, Target>,
    departed: BTreeMap<TargetId, (Target, Timestamp)>,
    /// Endpoints that have answered once.
    answered: BTreeSet<TargetId>,
    /// Jobs that ended since the last decision.
    ended: Vec<(usize, Vec<usize>)>,
    learning: Vec<Learned>,
    demand: Vec<DemandPoint>,
    decisions: Vec<Decision>,
    last: Option<(Box<Problem>, Box<Plan>)>,
    notices: Vec<(Timestamp, String)>,
}

impl Turnaround {
    pub fn new(scenario: &Scenario, score_from: Timestamp, scrape_every: u32) -> Self {
        let mut setup = scenario.setup.clone();
        let scrape_every = scrape_every.max(1);
        // A target is silent when it has missed looks, not between two of them.
        setup.policy.silent_after = setup.policy.silent_after.max(Span::minutes(i64::from(scrape_every) * 2 + 1));
        let (interval, window) = (setup.policy.interval, setup.policy.window);
        Self {
            state: Some(State::new(setup, scenario.start)),
            executor: Executor::default(),
            score_from,
            scrape_every: scrape_every as usize,
            interval,
            window,
            known: BTreeMap::new(),
            departed: BTreeMap::new(),
            answered: BTreeSet::new(),
            ended: Vec::new(),
            learning: Vec::new(),
            demand: Vec::new(),
            decisions: Vec::new(),
            last: None,
            notices: Vec::new(),
        }
    }

    /// Hands an event to the loop and carries out what it asks for, until it asks for nothing more.
    fn send(&mut self, event: Event, world: &World) {
        let mut events = VecDeque::from([event]);
        let mut answers = 0;
        while let Some(event) = events.pop_front() {
            let Some(state) = self.state.take() else { return };
            let (state, effects) = cycle::step(state, event);
            self.state = Some(state);
            for effect in effects {
                match effect {
                    Effect::Work(order) => {
                        answers += 1;
                        debug_assert!(answers < ANSWERS_MAX, "the loop asks for work without end at {}", world.now);
                        if answers < ANSWERS_MAX {
                            let output = cycle::work(&order);
                            self.note_work(&order.cause, &output.answer, world);
                            events.push_back(Event::Worked(Box::new(output)));
                        }
                    }
                    Effect::Publish(plan) => self.executor.adopt(*plan),
                    Effect::Append(record) => self.note_record(record, world),
                    Effect::Notice(at, text) => {
                        if self.notices.len() < NOTICES_MAX {
                            self.notices.push((at, text));
                        }
                    }
                }
            }
        }
    }

    fn note_work(&mut self, cause: &Cause, answer: &cycle::Answer, world: &World) {
        let cycle::Answer::Planned { problem, plan } = answer else { return };
        self.last = Some((problem.clone(), plan.clone()));
        let Cause::JobEnded(job) = cause else { return };
        let Some((_, gpus)) = self.ended.iter().find(|(at, _)| &world.catalogue.jobs[*at].id == job).filter(|_| world.is_scored()) else { return };
        let gpus = gpus.iter().map(|g| world.catalogue.gpus[*g].id.clone()).collect();
        self.decisions.push(Decision { at: world.now, job: job.clone(), gpus, problem: problem.clone(), plan: plan.clone() });
    }

    fn note_record(&mut self, record: Record, world: &World) {
        match record {
            Record::Outcome(outcome) => self.demand.extend(demand_points(&outcome)),
            Record::Calibration(calibration) => {
                let Some(state) = &self.state else { return };
                for figure in learned(&calibration, &world.catalogue, |w, v| state.prior_capacity(w, v)) {
                    let before = self.learning.iter().rev().find(|l| l.quantity == figure.quantity);
                    if before.is_none_or(|b| b.evidence != figure.evidence || (b.learned - figure.learned).abs() > 1e-12) {
                        self.learning.push(figure);
                    }
                }
            }
            Record::Windows(_) | Record::Forecasts(_) | Record::Decision(..) => {}
        }
    }

    /// Tells the loop which endpoints there are. Those that left stay known until the window they left in is closed, else what they did in
    /// it would be lost.
    fn tell_targets(&mut self, world: &World, now: &[Endpoint]) {
        let there: BTreeMap<TargetId, Target> = now.iter().map(|e| (e.target.id.clone(), e.target.clone())).collect();
        for (id, target) in std::mem::take(&mut self.known) {
            if !there.contains_key(&id) {
                self.departed.insert(id, (target, world.now));
            }
        }
        self.departed.retain(|id, _| !there.contains_key(id));
        self.answered.retain(|id| there.contains_key(id));
        self.known = there;
        self.send_targets(world);
    }

    fn send_targets(&mut self, world: &World) {
        let all = self.known.values().chain(self.departed.values().map(|(t, _)| t)).cloned().collect();
        self.send(Event::Targets(all), world);
    }

    /// Forgets endpoints whose last window was closed by what was just sent.
    fn forget_departed(&mut self, world: &World, ticked: bool) {
        let (now, window, before) = (world.now, self.window, self.departed.len());
        self.departed.retain(|_, (_, left)| {
            let end = Timestamp(left.0 - 1).floor(window) + window;
            // A cycle closes windows that are over; a look closes those that have been over for a moment.
            if ticked { now < end } else { now < end + Span::MINUTE }
        });
        if self.departed.len() < before {
            self.send_targets(world);
        }
    }

    fn look(&mut self, world: &World, endpoint: &Endpoint) {
        if answers(world, &endpoint.page) {
            self.answered.insert(endpoint.target.id.clone());
        }
        self.send(Event::Scraped(scrape(world, endpoint)), world);
    }
}

impl Policy for Turnaround {
    fn act(&mut self, world: &mut World) {
        let changes = std::mem::take(&mut world.changes);
        let due = world.minute.is_multiple_of(self.scrape_every);
        let since_start = world.now.since(world.catalogue.start);
        let tick = self.interval.0 <= 0 || since_start.0 % self.interval.0 == 0;
        let changed = changes.placement || changes.ready;
        self.ended = changes.ended;
        if changed || due {
            let there = endpoints(world);
            if changed {
                self.tell_targets(world, &there);
            }
            self.send(Event::Gpus(gpu_readings(world)), world);
            self.send(Event::Jobs(job_readings(world)), world);
            for endpoint in &there {
                // Between two rounds only those are looked at that answer for the first time.
                if due || (answers(world, &endpoint.page) && !self.answered.contains(&endpoint.target.id)) {
                    self.look(world, endpoint);
                }
            }
        }
        if tick {
            self.send(Event::Tick(world.now), world);
        }
        if due || tick {
            self.forget_departed(world, tick);
        }
        self.executor.act(world);
        if world.changes.placement {
            world.changes.placement = false;
            let there = endpoints(world);
            self.tell_targets(world, &there);
            self.send(Event::Gpus(gpu_readings(world)), world);
            self.send(Event::Jobs(job_readings(world)), world);
        }
        // The last look at those that take no new work: their totals are final.
        let leaving: Vec<Endpoint> = endpoints(world).into_iter().filter(|e| is_leaving(world, &e.page)).collect();
        for endpoint in leaving {
            self.look(world, &endpoint);
        }
    }

    fn kept(&self, world: &World) -> Kept {
        self.executor.kept(world)
    }

    fn cycles(&self) -> u64 {
        self.state.as_ref().map_or(0, |s| s.tally.cycles)
    }

    fn report(mut self: Box<Self>, world: &World) -> Option<LoopReport> {
        // The last windows are closed and scored as the next cycle would have done.
        self.send(Event::Tick(world.now), world);
        let state = self.state.take()?;
        let tally = state.tally;
        let (last_problem, last_plan) = self.last.take().map_or((None, None), |(problem, _)| (Some(problem), self.executor.plan().cloned().map(Box::new)));
        Some(LoopReport {
            cycles: tally.cycles,
            plans_published: tally.published,
            plans_refused: tally.refused,
            plans_failed: tally.timed_out + tally.failed + tally.killed,
            calibration_generation: state.calibration().generation,
            forecast: forecast_score(&self.demand, self.score_from),
            worst_miss: worst_miss(&world.catalogue, &world.hours, &self.demand, self.score_from),
            learned: score::learned(state.calibration(), &world.catalogue, |w, v| state.prior_capacity(w, v)),
            learning: self.learning,
            demand: self.demand,
            decisions: self.decisions,
            last_plan,
            last_problem,
            notices: self.notices,
        })
    }
}

fn is_leaving(world: &World, page: &Page) -> bool {
    match page {
        Page::Replica(id, _) => world.replicas.get(id).is_some_and(|r| r.leaves.is_some() && r.is_ready(world.now)),
        Page::Router(_) => false,
    }
}
