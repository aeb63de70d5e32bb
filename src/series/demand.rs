//! How many requests arrived between two looks: the largest of several independent estimates.
//!
//! No engine counts arrivals in one place that can be trusted alone, so each target has up to four *ways* to know. Each is a stock that
//! grows by one with each request, and whose growth is what arrived:
//!
//! | way | stock | counts a request when |
//! |---|---|---|
//! | received | requests received (or refused, where a router counts only those) | it comes |
//! | first tokens | first tokens + waiting | it joins the queue, or else at its first token |
//! | finished | finished + running + waiting | it joins the queue or the batch |
//! | prompt | prompt tokens / prompt tokens a request + waiting | as first tokens; only where those stand still or are gone |
//!
//! The estimate is the largest: each way may miss requests (those who hang up are never *finished*; those turned away are never *started*;
//! any of the signals may freeze or vanish with an upgrade), and none makes requests up. Ways count the same request at different times, so
//! what one way has counted ahead of another is carried as that one's *lag*, and paid off before it counts again. A lag is never larger than
//! what can be in flight between the two: what is missing beyond that hung up, and will never be counted.
//!
//! A way is silent while its signal was never seen, and broken while a signal it needs is missing, held back, or contradicted (finished
//! requests by other work that goes on without them, the queue by the times of those that come out of it). With no way
//! left the arrivals are unknown, never zero, and what a way shows when it comes back is what arrived since it was last good.

use crate::notice::{Noted, NoticeKind};
use crate::totals::Look;
use fleet::{Signal, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Evidence older than about this many requests fades from learned ratios (sequences a request, prompt tokens a request).
const RATIO_REQUESTS: f64 = 1_000.0;
/// Requests by which ways may differ beyond what is in flight: parts of a page are read one after another.
const AGREEMENT_REQUESTS: f64 = 5.0;
/// And the share by which they may.
const AGREEMENT_SHARE: f64 = 0.2;
/// By Little's law the mean number of requests between arrival and first token is their rate times the time it takes them. When that is
/// this many times what the gauges show, the queue gauge is not believed.
const HIDDEN_QUEUE_FACTOR: f64 = 2.0;
/// Looks a queue gauge must stand still before that is asked at all: a queue that drains is seen in the gauge first.
const HIDDEN_QUEUE_LOOKS: u32 = 2;
/// Looks in a row that must say so: the first requests of a process wait for it to warm up, once.
const HIDDEN_QUEUE_PROOFS: u32 = 2;

/// Work that comes with requests that finish.
const WORK: [Signal; 4] = [Signal::EndToEnd, Signal::QueueTime, Signal::GenerationTokens, Signal::PromptTokens];

/// A way to know arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    Received,
    FirstTokens,
    Finished,
    Prompt,
}

impl Way {
    const ALL: [Self; 4] = [Self::Received, Self::FirstTokens, Self::Finished, Self::Prompt];

    /// The levels its stock holds.
    fn levels(self) -> &'static [Signal] {
        match self {
            Self::Received => &[],
            Self::FirstTokens | Self::Prompt => &[Signal::RequestsWaiting],
            Self::Finished => &[Signal::RequestsWaiting, Signal::RequestsRunning],
        }
    }
}

/// Whether a way can be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Its signal was never seen: should it begin to count, it counts from zero.
    Silent,
    /// It is not needed while a better one is good.
    Resting,
    /// A signal it needs is gone or not believed: when it is back, it shows what it missed.
    Broken,
    Good,
}

/// What one way knows.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Account {
    /// Its stock when it was last known.
    stock: Option<f64>,
    /// Requests counted already that it has yet to show.
    lag: f64,
}

/// What one way says arrived between two looks, its lag paid off, in requests.
struct Step {
    way: Way,
    usable: Use,
    arrived: Option<f64>,
}

/// A quotient of two sums that fade.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Fading {
    part: f64,
    whole: f64,
}

impl Fading {
    fn add(&mut self, part: f64, whole: f64) {
        self.part += part;
        self.whole += whole;
        if self.whole > 2.0 * RATIO_REQUESTS {
            self.part /= 2.0;
            self.whole /= 2.0;
        }
    }

    fn ratio(self) -> Option<f64> {
        (self.whole > 0.0).then(|| self.part / self.whole).filter(|ratio| *ratio > 0.0)
    }
}

/// The arrivals of one target, look by look.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "four doubts that come and go independently of each other")]
pub(crate) struct Demand {
    /// What counters gained so far, as far as known.
    gained: BTreeMap<Signal, f64>,
    accounts: BTreeMap<Way, Account>,
    /// Sequences over requests.
    sequences: Fading,
    /// Prompt tokens over sequences started.
    prompt: Fading,
    /// Requests running when first tokens last moved, and those that finished since: more of these than of those prove that first tokens
    /// stand still, for each of the rest began after.
    running_then: f64,
    finished_since: f64,
    frozen: bool,
    /// Other work done for each sequence that finished, and such work since the last one did, with the most that ran meanwhile. More work than
    /// those can have done says that the counter of finished requests stands still.
    work: BTreeMap<Signal, Fading>,
    work_since: BTreeMap<Signal, f64>,
    most_running: f64,
    finished_doubted: bool,
    /// Looks in which the number waiting did not change, and that number.
    queue: Option<(f64, u32)>,
    /// Time since arrivals were last known.
    unknown: Span,
    /// Contradictions that were told of and last: between ways, and of the queue gauge.
    contradicted: bool,
    hidden: bool,
    /// Looks in a row at which the times of requests spoke against the queue gauge.
    against_queue: u32,
    /// Requests running at the look before.
    running_before: f64,
}

/// Requests that arrived, and how much further back than the last look they reach.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Arrived {
    pub requests: Option<f64>,
    pub before: Span,
}

impl Demand {
    /// Sequences that one request asks for, as last known.
    pub(crate) fn sequences_per_request(&self) -> Option<f64> {
        self.sequences.ratio().map(|ratio| ratio.max(1.0))
    }

    /// Takes the next look. The first one only sets the stocks.
    pub(crate) fn take(&mut self, look: &Look, elapsed: Span, noted: &mut Noted<'_>) -> Arrived {
        if let Some(h) = look.grown.get(&Signal::SequencesPerRequest) {
            self.sequences.add(h.sum, h.count);
        }
        self.watch_first_tokens(look, noted);
        self.watch_finished(look);
        if look.restarted {
            self.restart(look);
        }
        let hidden = self.hidden_queue(look, elapsed, noted);
        for (signal, amount) in look.increases.iter().map(|(s, x)| (*s, *x)).chain(look.grown.iter().map(|(s, h)| (*s, h.count))) {
            *self.gained.entry(signal).or_insert(0.0) += amount;
        }
        let steps = self.steps(look, hidden);
        let best = steps.iter().filter_map(|step| step.arrived).max_by(f64::total_cmp);
        let requests = best.map(|best| best.max(0.0));
        self.settle(look, &steps, requests, noted);
        let before = if look.rebased.is_empty() { self.unknown } else { Span::ZERO };
        self.unknown = Span::ZERO;
        if requests.is_none() {
            self.unknown = before + elapsed;
        }
        Arrived { requests, before }
    }

    /// What each way says, and where its stock stands now.
    fn steps(&mut self, look: &Look, hidden: bool) -> Vec<Step> {
        let mut steps = Vec::new();
        for way in Way::ALL {
            let stock = self.stock(way, look);
            let per_request = self.unit(way);
            let usable = self.usable(way, look, hidden);
            let account = self.accounts.entry(way).or_default();
            if !look.rebased.is_empty() {
                // What came meanwhile will not be shown.
                account.lag = 0.0;
            }
            let lost: f64 = way.levels().iter().filter_map(|signal| look.lost.get(signal)).sum::<f64>();
            let before = account.stock.map(|stock| stock - lost);
            match usable {
                Use::Good => account.stock = Some(stock),
                Use::Resting => *account = Account { stock: Some(stock), lag: 0.0 },
                Use::Silent => account.stock = before.or(look.whole.then_some(stock)),
                Use::Broken => account.stock = before,
            }
            let step = before.filter(|_| usable == Use::Good).map(|before| (stock - before) / per_request - account.lag);
            steps.push(Step { way, usable, arrived: step });
        }
        steps
    }

    /// Whether a way can be used with this page.
    fn usable(&self, way: Way, look: &Look, hidden: bool) -> Use {
        let needed: &[Signal] = match way {
            Way::Received => &[received(look)],
            Way::FirstTokens => &[Signal::TimeToFirstToken],
            Way::Finished => &[Signal::RequestsFinished],
            Way::Prompt => &[Signal::PromptTokens],
        };
        let all = || needed.iter().chain(way.levels());
        let gone = |signal: &Signal| look.missing.contains(signal) || look.held_back.contains(signal);
        if all().any(gone) || (way == Way::Finished && self.finished_doubted) || (hidden && way.levels().contains(&Signal::RequestsWaiting)) {
            return Use::Broken;
        }
        let stand_in = || self.frozen || look.missing.contains(&Signal::TimeToFirstToken);
        if !needed.iter().all(|signal| look.seen.contains(signal)) {
            return Use::Silent;
        }
        if way == Way::Prompt && !(stand_in() && self.prompt.ratio().is_some()) {
            return Use::Resting;
        }
        Use::Good
    }

    /// The stock of a way, in its own unit.
    fn stock(&self, way: Way, look: &Look) -> f64 {
        let gained = |signal| self.gained.get(&signal).copied().unwrap_or(0.0);
        let counted = match way {
            Way::Received => gained(received(look)),
            Way::FirstTokens => gained(Signal::TimeToFirstToken),
            Way::Finished => gained(Signal::RequestsFinished),
            Way::Prompt => self.prompt.ratio().map_or(0.0, |tokens| gained(Signal::PromptTokens) / tokens),
        };
        counted + way.levels().iter().map(|signal| look.level(*signal)).sum::<f64>()
    }

    /// How many of its unit make one request: engines count sequences, routers and front ends requests.
    fn unit(&self, way: Way) -> f64 {
        if way == Way::Received { 1.0 } else { self.sequences_per_request().unwrap_or(1.0) }
    }

    /// Carries over what each way has yet to show.
    fn settle(&mut self, look: &Look, steps: &[Step], requests: Option<f64>, noted: &mut Noted<'_>) {
        let Some(requests) = requests else { return };
        let sequences = self.sequences_per_request().unwrap_or(1.0);
        let running = look.level(Signal::RequestsRunning) / sequences;
        let in_flight = running + look.level(Signal::RequestsWaiting) / sequences;
        let mut behind = None;
        for Step { way, usable, arrived } in steps {
            let account = self.accounts.entry(*way).or_default();
            let Some(step) = arrived else {
                if matches!(usable, Use::Broken | Use::Silent) {
                    account.lag += requests;
                }
                continue;
            };
            let (room, counter) = match way {
                Way::Received => (in_flight, Signal::RequestsReceived),
                Way::FirstTokens => (running, Signal::TimeToFirstToken),
                Way::Finished => (running, Signal::RequestsFinished),
                Way::Prompt => (running, Signal::PromptTokens),
            };
            let lag = requests - step;
            let moved = look.increase(counter).is_none_or(|increase| increase > 0.0);
            let stands_still = !moved && requests > 0.0 || (*way == Way::FirstTokens && self.frozen);
            if matches!(way, Way::Received | Way::FirstTokens) && requests > step.max(0.0) + in_flight + AGREEMENT_REQUESTS + AGREEMENT_SHARE * requests {
                behind = behind.or(Some((counter, step.max(0.0))));
            }
            account.lag = if stands_still { lag } else { lag.min(room) };
        }
        if let Some((signal, step)) = behind.filter(|_| !self.contradicted) {
            noted.say(
                NoticeKind::Contradiction,
                None,
                Some(signal),
                format!("shows {step:.0} requests where other signals show {requests:.0}: the larger is used"),
            );
        }
        self.contradicted = behind.is_some();
    }

    /// Learns the prompt tokens of a request while first tokens move, and notices when they stand still.
    fn watch_first_tokens(&mut self, look: &Look, noted: &mut Noted<'_>) {
        let running = look.level(Signal::RequestsRunning);
        let Some(started) = look.increase(Signal::TimeToFirstToken) else { return };
        if started > 0.0 || look.restarted {
            if std::mem::take(&mut self.frozen) {
                noted.say(NoticeKind::Returned, None, Some(Signal::TimeToFirstToken), "moves again");
            } else if let Some(tokens) = look.increase(Signal::PromptTokens).filter(|_| !look.restarted) {
                self.prompt.add(tokens, started);
            }
            self.running_then = running;
            self.finished_since = 0.0;
            return;
        }
        self.finished_since += look.increase(Signal::RequestsFinished).unwrap_or(0.0);
        if self.finished_since > self.running_then + AGREEMENT_REQUESTS && !self.frozen {
            self.frozen = true;
            let detail = format!("stands still while {:.0} requests finished, with {:.0} running when it last moved", self.finished_since, self.running_then);
            noted.say(NoticeKind::Frozen, None, Some(Signal::TimeToFirstToken), detail);
        }
    }

    /// Learns how much other work comes with a sequence that finishes, and doubts the counter when far more comes without. A doubt costs
    /// nothing when it was wrong: what finished is counted with the next one that does.
    fn watch_finished(&mut self, look: &Look) {
        let Some(finished) = look.increase(Signal::RequestsFinished) else { return };
        let running = look.level(Signal::RequestsRunning).max(self.running_before);
        for signal in WORK {
            if let Some(done) = look.increase(signal) {
                *self.work_since.entry(signal).or_insert(0.0) += done;
            }
        }
        if finished > 0.0 || look.restarted {
            for (signal, done) in std::mem::take(&mut self.work_since) {
                self.work.entry(signal).or_default().add(done, finished);
            }
            self.most_running = running;
            self.finished_doubted = false;
            return;
        }
        self.most_running = self.most_running.max(running);
        let sequences = self.work_since.iter().filter_map(|(signal, done)| Some(done / self.work.get(signal)?.ratio()?));
        self.finished_doubted = sequences.fold(0.0, f64::max) > self.most_running;
    }

    /// Whether times to first token (or in the queue) say that far more requests are there than the gauges show, while the queue gauge
    /// stands still.
    fn hidden_queue(&mut self, look: &Look, elapsed: Span, noted: &mut Noted<'_>) -> bool {
        let running = look.level(Signal::RequestsRunning);
        let most_running = running.max(std::mem::replace(&mut self.running_before, running));
        let Some(waiting) = look.levels.get(&Signal::RequestsWaiting).copied() else { return false };
        let looks = match self.queue {
            Some((last, looks)) if last.total_cmp(&waiting).is_eq() => looks.saturating_add(1),
            _ => 0,
        };
        self.queue = Some((waiting, looks));
        let visible = HIDDEN_QUEUE_FACTOR * (waiting + most_running) + AGREEMENT_REQUESTS;
        let times = [Signal::TimeToFirstToken, Signal::QueueTime].into_iter().find_map(|signal| look.grown.get(&signal));
        let there = times.map_or(0.0, |h| h.sum / elapsed.as_secs_f64().max(1.0));
        let against = looks >= HIDDEN_QUEUE_LOOKS && there > visible;
        self.against_queue = if against { self.against_queue.saturating_add(1) } else { 0 };
        let hidden = self.against_queue >= HIDDEN_QUEUE_PROOFS;
        if hidden && !self.hidden {
            let detail = format!("stands at {waiting:.0} while the times of requests say that about {there:.0} are there: it is not believed");
            noted.say(NoticeKind::Contradiction, None, Some(Signal::RequestsWaiting), detail);
        }
        self.hidden = hidden;
        hidden
    }

    /// Nothing of the old process can still show.
    fn restart(&mut self, look: &Look) {
        self.accounts.values_mut().for_each(|account| account.lag = 0.0);
        self.running_then = look.level(Signal::RequestsRunning);
        self.finished_since = 0.0;
        self.frozen = false;
    }
}

/// The counter of what comes: requests received, or refused where a router counts only those. What a server refused says nothing of what it took.
fn received(look: &Look) -> Signal {
    let known = |signal| look.seen.contains(&signal) || look.missing.contains(&signal);
    let serves = [Signal::TimeToFirstToken, Signal::RequestsFinished, Signal::PromptTokens].into_iter().any(known);
    if serves || known(Signal::RequestsReceived) { Signal::RequestsReceived } else { Signal::RequestsRefused }
}
