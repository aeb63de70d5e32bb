//! Scrapes of all targets, booked into windows.

use crate::change::{Carried, Change};
use crate::freshness::{Freshness, SignalFreshness};
use crate::join::{Part, join};
use crate::notice::{Noted, Notice, NoticeKind, Notices};
use crate::step::Steps;
use crate::tally::{Stretch, Tally};
use fleet::{Scrape, Signal, Span, Target, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A gap longer than this between two answered scrapes is no observation, however slow the schedule seemed.
const GAP_MAX: Span = Span::minutes(5);
/// Nor is one longer than this many scrape intervals.
const GAP_INTERVALS_MAX: i64 = 3;
/// What happened over a longer gap is not spread at all: it says nothing of any hour in it.
const SPREAD_MAX: Span = Span::DAY;
/// How long the demand of a silent target is held. After a day its users have gone elsewhere, where they are counted.
const HOLD_MAX: Span = Span::DAY;
/// Windows given back by one call. After a longer silence the older ones are left out: a missing window is an unknown one.
const WINDOWS_PER_CLOSE_MAX: i64 = 10_000;

/// What is known of one target.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Seen {
    carried: Carried,
    freshness: Freshness,
    /// Last look, answered or not.
    looked: Option<Timestamp>,
    /// Last look that was answered.
    answered: Option<Timestamp>,
    /// Spacing of the looks, seconds.
    interval_s: Option<i64>,
    /// Requests waiting at the last answered look.
    waiting: Option<f64>,
    /// Last known arrival rate, and the end of the window it is of.
    demand: Option<(f64, Timestamp)>,
}

impl Seen {
    /// The longest gap between answered looks that counts as observed.
    fn gap_max(&self) -> Span {
        self.interval_s.map_or(GAP_MAX, |interval| Span((interval * GAP_INTERVALS_MAX).min(GAP_MAX.0).max(interval)))
    }

    /// The wall clock went back: what was known is as old as before.
    fn step_back(&mut self, by: Span) {
        self.freshness.step_back(by);
        self.looked = self.looked.map(|at| at - by);
        self.answered = self.answered.map(|at| at - by);
        self.demand = self.demand.map(|(rate, at)| (rate, at - by));
    }

    /// Notes a look. False for a repeated or late one.
    fn note(&mut self, at: Timestamp) -> bool {
        if let Some(last) = self.looked {
            if at <= last {
                return false;
            }
            let spacing = at.since(last).0;
            // Follows the schedule, but one pause (the daemon was down) hardly moves it.
            self.interval_s = Some(self.interval_s.map_or(spacing, |interval| spacing.min(interval * 2)));
        }
        self.looked = Some(at);
        true
    }
}

/// The bookkeeping from scrapes to windows: per target the last totals, per window what each target did so far. A value: serialisable,
/// comparable, the same after the same calls.
///
/// Changes of totals belong to target identities, not to labels. A change is spread evenly over the time between the two answered scrapes
/// that show it. If they lie further apart than three scrape intervals or five minutes, it is spread all the same but that time does not
/// count as observed ([`WorkloadWindow::completeness`]); windows closed meanwhile are not touched. The part of a change that falls into a
/// window closed just before the scrape came is booked, with its time, in the next window.
///
/// After a restart the new total counts from zero; what happened between the last scrape and the end of the old process is lost. Totals are
/// kept by member of a target, so one engine of several that restarts behind a page is that engine's reset only.
///
/// Times are those of the looks, never a target's own. When the wall clock is set back by more than a scrape interval, two looks show it:
/// all that is remembered moves back with it, windows begin anew at the new time (the caller's windows that lie ahead of it are of the time
/// before), and one notice names the size of the step. When it is set forward, that looks like a pause: unknown, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Windows {
    length: Span,
    /// Start of the earliest window still open.
    open_from: Option<Timestamp>,
    targets: BTreeMap<TargetId, Seen>,
    open: BTreeMap<Timestamp, BTreeMap<TargetId, Tally>>,
    steps: Steps,
    notices: Notices,
}

impl Windows {
    /// Nothing seen yet. Windows of `length` (at least a second) begin at multiples of it since the epoch.
    #[must_use]
    pub fn new(length: Span) -> Self {
        let length = Span(length.0.max(1));
        Self { length, open_from: None, targets: BTreeMap::new(), open: BTreeMap::new(), steps: Steps::default(), notices: Notices::default() }
    }

    /// Length of a window.
    #[must_use]
    pub fn length(&self) -> Span {
        self.length
    }

    /// Takes one look at a target, whose workload promises a first token within `ttft_target_s` seconds. Repeated and late looks are
    /// ignored. A failed scrape, and a page that shows none of our signals, say nothing but that the target is silent.
    pub fn observe(&mut self, target: &Target, ttft_target_s: f64, scrape: &Scrape) {
        if scrape.target != target.id {
            return;
        }
        self.watch_clock(scrape);
        let seen = self.targets.entry(target.id.clone()).or_default();
        let last = seen.answered;
        if !seen.note(scrape.at) {
            return;
        }
        let open_from = *self.open_from.get_or_insert(scrape.at.floor(self.length));
        let answered = scrape.is_ok() && !scrape.samples.is_empty();
        // A look at the very end of a window belongs to it: windows are open at their start and closed at their end.
        let window = Timestamp(scrape.at.0 - 1).floor(self.length);
        let mut tally = if window >= open_from { Some(self.open.entry(window).or_default().entry(target.id.clone()).or_default()) } else { None };
        if let Some(tally) = &mut tally {
            tally.answered = answered;
        }
        if !answered {
            return;
        }
        let gap_max = seen.gap_max();
        let before = seen.waiting.filter(|_| last.is_some_and(|last| scrape.at.since(last) <= gap_max));
        let mut noted = Noted { at: scrape.at, target: &target.id, log: &mut self.notices };
        let elapsed = last.map_or(Span::ZERO, |last| scrape.at.since(last));
        let (change, look) = seen.carried.advance(scrape, elapsed, ttft_target_s, &mut noted);
        seen.freshness.take(scrape, &look, &mut noted);
        seen.answered = Some(scrape.at);
        seen.waiting = look.levels.get(&Signal::RequestsWaiting).copied();
        if let Some(tally) = tally {
            tally.look(scrape, &look, before);
        }
        if let Some(last) = last {
            self.spread(&target.id, &change, last, scrape.at, gap_max);
        }
    }

    /// Notices that the wall clock was set back, and goes back with it.
    fn watch_clock(&mut self, scrape: &Scrape) {
        let Some(seen) = self.targets.get(&scrape.target) else { return };
        let Some(last) = seen.looked else { return };
        let Some(back) = self.steps.take(&scrape.target, scrape.at, last, seen.interval_s) else { return };
        for seen in self.targets.values_mut() {
            seen.step_back(back);
        }
        let open_from = scrape.at.floor(self.length);
        // The windows that were open go on in the first of the new time: their rates are amounts over times, whenever those were.
        let mut first: BTreeMap<TargetId, Tally> = BTreeMap::new();
        for (id, cut) in std::mem::take(&mut self.open).into_values().flatten() {
            first.entry(id).or_default().merge(&cut);
        }
        self.open.insert(open_from, first);
        self.open_from = Some(open_from);
        let detail = format!("the wall clock was set back by {} s: what is known goes back with it, and windows begin anew at {open_from}", back.0);
        self.notices.push(Notice { at: scrape.at, target: None, member: None, signal: None, kind: NoticeKind::ClockSteppedBack, detail });
    }

    /// Books a change between two looks in the windows it lies in.
    fn spread(&mut self, target: &TargetId, change: &Change, last: Timestamp, at: Timestamp, gap_max: Span) {
        let gap = at.since(last);
        let observed = gap <= gap_max;
        if gap > SPREAD_MAX {
            return;
        }
        // When the new process began is not known: what it did is given to the end of a long gap, and if it did nothing there is nothing to
        // give (least of all an idle time).
        if change.restarted && !observed && change.is_idle() {
            return;
        }
        let from = if change.restarted && !observed { at - gap_max } else { last };
        let whole = at.since(from).as_secs_f64();
        let open_from = self.open_from.unwrap_or(from);
        let carried = if observed { open_from.0.min(at.0) - from.0.min(open_from.0) } else { 0 };
        let mut window = from.floor(self.length).max(open_from);
        let mut carried = Span(carried.max(0));
        while window < at || carried > Span::ZERO {
            let end = window + self.length;
            let (start, stop) = (from.max(window), at.min(end).max(window));
            let seconds = (stop.since(start) + carried).as_secs_f64();
            if seconds > 0.0 {
                let stretch = Stretch { window, length: self.length, from: start, to: stop, seconds, share: seconds / whole, observed };
                self.open.entry(window).or_default().entry(target.clone()).or_default().book(change, &stretch);
            }
            carried = Span::ZERO;
            window = end;
        }
    }

    /// Whether [`Self::close`] would give back a window.
    #[must_use]
    pub fn has_ended(&self, until: Timestamp) -> bool {
        self.open_from.is_some_and(|from| from + self.length <= until)
    }

    /// Gives back every window that ended by `until` and was not given back before, for each workload of `targets` (the targets there
    /// are now), in order of start and workload. Targets no longer listed are forgotten a day after their last look.
    pub fn close(&mut self, until: Timestamp, targets: &[Target]) -> Vec<WorkloadWindow> {
        let mut out = Vec::new();
        let Some(open_from) = self.open_from else { return out };
        let earliest = until.floor(self.length) - Span(self.length.0.saturating_mul(WINDOWS_PER_CLOSE_MAX));
        let mut start = open_from.max(earliest);
        self.open = self.open.split_off(&start);
        let workloads: BTreeSet<&WorkloadId> = targets.iter().map(|target| &target.workload).collect();
        while start + self.length <= until {
            let tallies = self.open.remove(&start).unwrap_or_default();
            for workload in &workloads {
                out.push(self.close_one(start, workload, targets, &tallies));
            }
            start = start + self.length;
        }
        self.open_from = Some(start);
        let listed: BTreeSet<&TargetId> = targets.iter().map(|target| &target.id).collect();
        self.targets.retain(|id, seen| listed.contains(id) || seen.looked.is_some_and(|looked| until.since(looked) <= HOLD_MAX));
        out
    }

    /// What was noticed and not taken yet, oldest first, [`crate::NOTICES_MAX`] at most.
    pub fn notices(&self) -> impl Iterator<Item = &Notice> {
        self.notices.iter()
    }

    /// Takes what was noticed, oldest first.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    /// Notices that made room for newer ones before they were taken.
    #[must_use]
    pub fn notices_dropped(&self) -> u64 {
        self.notices.dropped()
    }

    /// How fresh every signal ever seen is, in order of target and signal. A target that was not heard for longer than its looks may lie
    /// apart has all its signals missing since it was last heard.
    #[must_use]
    pub fn freshness(&self, now: Timestamp) -> Vec<SignalFreshness> {
        let of = |(target, seen): (&TargetId, &Seen)| {
            let silent_since = seen.answered.filter(|answered| now.since(*answered) > seen.gap_max());
            seen.freshness.state(target, silent_since).collect::<Vec<_>>()
        };
        self.targets.iter().flat_map(of).collect()
    }

    fn close_one(&mut self, start: Timestamp, workload: &WorkloadId, targets: &[Target], tallies: &BTreeMap<TargetId, Tally>) -> WorkloadWindow {
        let end = start + self.length;
        let held = |id: &TargetId| {
            let (rate, since) = self.targets.get(id)?.demand?;
            (end.since(since) <= HOLD_MAX).then_some(rate)
        };
        let own = targets.iter().filter(|target| &target.workload == workload);
        let parts: Vec<Part<'_>> = own.map(|target| Part { target, tally: tallies.get(&target.id), held: held(&target.id) }).collect();
        let window = join(workload, start, self.length, &parts);
        let rates: Vec<(TargetId, f64)> = parts.iter().filter_map(|part| part.rate(self.length).map(|rate| (part.target.id.clone(), rate))).collect();
        for (id, rate) in rates {
            self.targets.entry(id).or_default().demand = Some((rate, end));
        }
        window
    }
}

#[cfg(test)]
#[path = "windows_tests.rs"]
mod tests;
