//! Per target and signal: when it was last seen, whether it is missing now, and whether it stands still while work goes on.

use crate::notice::{Noted, NoticeKind};
use crate::totals::Look;
use fleet::{Scrape, Signal, SignalKind, Span, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Looks without a change before a signal can count as frozen. A page may be read twice between two updates of an engine.
const FROZEN_LOOKS: u32 = 4;
/// Requests that other signals must have shown meanwhile.
const FROZEN_REQUESTS: f64 = 10.0;
/// A gauge needs far more of both: steady traffic keeps a batch at one size, and a quick request comes and goes between two looks.
const FROZEN_GAUGE: (u32, f64) = (20, 200.0);

/// Signals that cannot stand still while requests come and go. Not among them: what may rightly be still (hits, preemptions, refusals).
const MOVING: [Signal; 10] = [
    Signal::RequestsRunning,
    Signal::RequestsWaiting,
    Signal::RequestsFinished,
    Signal::RequestsReceived,
    Signal::PromptTokens,
    Signal::GenerationTokens,
    Signal::PrefixQueries,
    Signal::TimeToFirstToken,
    Signal::InterTokenLatency,
    Signal::EndToEnd,
];
/// Signals that count requests: their growth is the activity that others are held against.
const REQUESTS: [Signal; 5] = [Signal::RequestsReceived, Signal::RequestsFinished, Signal::TimeToFirstToken, Signal::EndToEnd, Signal::QueueTime];

/// How fresh one signal of one target is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalFreshness {
    /// The target.
    pub target: TargetId,
    /// The signal, over all members of the target.
    pub signal: Signal,
    /// When it was last on a page.
    pub seen: Timestamp,
    /// Since when it is missing: gone from a page that was read, or its target silent for longer than looks may lie apart. `None`: it is there.
    pub missing_since: Option<Timestamp>,
    /// Since when it stands still while other signals of the target move. `None`: it moves, or nothing happens.
    pub frozen_since: Option<Timestamp>,
}

/// What is remembered of one signal of a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Watch {
    value: f64,
    seen: Timestamp,
    moved: Timestamp,
    /// Looks and requests (counted by others) since it moved.
    looks: u32,
    requests: f64,
    missing_since: Option<Timestamp>,
    frozen: bool,
}

/// The signals of one target.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Freshness {
    watches: BTreeMap<Signal, Watch>,
    /// Running above zero while no token came: looks in a row.
    idle_batch_looks: u32,
}

impl Freshness {
    /// Takes an answered look.
    pub(crate) fn take(&mut self, scrape: &Scrape, look: &Look, noted: &mut Noted<'_>) {
        let at = scrape.at;
        let signals: std::collections::BTreeSet<Signal> = scrape.samples.iter().map(|sample| sample.signal).collect();
        for signal in signals.iter().copied().filter(|signal| look.seen.contains(signal)) {
            let Some(value) = fingerprint(scrape, signal) else { continue };
            // A batch that is full stays so while requests wait.
            if signal == Signal::RequestsRunning && look.level(Signal::RequestsWaiting) > 0.0 {
                self.watches.entry(signal).and_modify(|watch| watch.looks = 0);
            }
            let others = REQUESTS.iter().filter(|other| **other != signal).filter_map(|other| look.increase(*other)).fold(0.0, f64::max);
            let watch =
                self.watches.entry(signal).or_insert_with(|| Watch { value, seen: at, moved: at, looks: 0, requests: 0.0, missing_since: None, frozen: false });
            watch.take(signal, value, at, others, noted);
        }
        for (signal, watch) in &mut self.watches {
            if watch.missing_since.is_none() && (look.missing.contains(signal) || (!look.seen.contains(signal) && watch.seen < at)) {
                watch.missing_since = Some(at);
                noted.say(NoticeKind::Missing, None, Some(*signal), format!("is no longer on the page; last seen {}", watch.seen));
            }
        }
        self.watch_batch(look, noted);
    }

    /// A batch that runs makes tokens: a gauge that says it runs while no token counter moves holds an old value.
    fn watch_batch(&mut self, look: &Look, noted: &mut Noted<'_>) {
        let tokens = [Signal::GenerationTokens, Signal::PromptTokens].into_iter().filter_map(|signal| look.increase(signal));
        let stands = tokens.fold(None, |sum: Option<f64>, more| Some(sum.unwrap_or(0.0) + more)).is_some_and(|sum| sum <= 0.0);
        let running = look.level(Signal::RequestsRunning);
        self.idle_batch_looks = if stands && running > 0.0 { self.idle_batch_looks.saturating_add(1) } else { 0 };
        if self.idle_batch_looks == FROZEN_LOOKS {
            let detail = format!("says {running:.0} while no token was made over {FROZEN_LOOKS} looks: the counters are believed");
            noted.say(NoticeKind::Contradiction, None, Some(Signal::RequestsRunning), detail);
        }
    }

    /// The state now. `silent_since`: when the target was last heard, if that is too long ago.
    pub(crate) fn state<'a>(&'a self, target: &'a TargetId, silent_since: Option<Timestamp>) -> impl Iterator<Item = SignalFreshness> + 'a {
        self.watches.iter().map(move |(signal, watch)| SignalFreshness {
            target: target.clone(),
            signal: *signal,
            seen: watch.seen,
            missing_since: watch.missing_since.or(silent_since),
            frozen_since: watch.frozen.then_some(watch.moved),
        })
    }

    /// The wall clock went back.
    pub(crate) fn step_back(&mut self, by: Span) {
        for watch in self.watches.values_mut() {
            watch.seen = watch.seen - by;
            watch.moved = watch.moved - by;
            watch.missing_since = watch.missing_since.map(|since| since - by);
        }
    }
}

impl Watch {
    fn take(&mut self, signal: Signal, value: f64, at: Timestamp, others: f64, noted: &mut Noted<'_>) {
        self.seen = at;
        if self.missing_since.take().is_some() {
            noted.say(NoticeKind::Returned, None, Some(signal), "is back on the page");
        }
        if self.value.total_cmp(&value).is_ne() {
            self.value = value;
            self.moved = at;
            self.looks = 0;
            self.requests = 0.0;
            if std::mem::take(&mut self.frozen) {
                noted.say(NoticeKind::Returned, None, Some(signal), "moves again");
            }
            return;
        }
        self.looks = self.looks.saturating_add(1);
        self.requests += others;
        let (looks, requests) = if signal.kind() == SignalKind::Gauge { FROZEN_GAUGE } else { (FROZEN_LOOKS, FROZEN_REQUESTS) };
        // An engine without a prefix cache keeps that counter at zero, and an empty queue is the healthy state.
        let may_stand = !MOVING.contains(&signal) || (value <= 0.0 && matches!(signal, Signal::PrefixQueries | Signal::RequestsWaiting));
        if !self.frozen && !may_stand && self.looks >= looks && self.requests >= requests {
            self.frozen = true;
            let detail = format!("stands at {value} since {} while other signals show {:.0} requests", self.moved, self.requests);
            noted.say(NoticeKind::Frozen, None, Some(signal), detail);
        }
    }
}

/// One number that changes when the signal does.
fn fingerprint(scrape: &Scrape, signal: Signal) -> Option<f64> {
    match signal.kind() {
        SignalKind::Histogram => scrape.histogram(signal).map(|h| h.count),
        SignalKind::Counter | SignalKind::Gauge => scrape.scalar(signal),
    }
}
