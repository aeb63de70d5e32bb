//! The last known totals of a target, member by member, and what they gained between two looks.

use crate::admission::{increase_per_s_max, plausible};
use crate::notice::{Noted, NoticeKind};
use crate::quantile::difference;
use fleet::{Histogram, MemberId, Reading, Sample, Scrape, Signal, SignalKind, Span};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Members of one target that totals are kept of. A node has 8 GPUs of up to 7 slices, the widest data-parallel servers some hundred engines.
const MEMBERS_MAX: usize = 1_024;

/// The gauges whose changes say who came and went.
pub(crate) const LEVELS: [Signal; 2] = [Signal::RequestsRunning, Signal::RequestsWaiting];

/// The totals of a target. A signal that a page lacks keeps its last total: the next page that has it shows the change since.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// By name of the member; the page as a whole has the empty name.
    members: BTreeMap<String, Member>,
    /// A page was read to its end before, so a total that was absent then counts from zero.
    whole_page_seen: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Member {
    counters: BTreeMap<Signal, Total<f64>>,
    histograms: BTreeMap<Signal, Total<Histogram>>,
    /// Running and waiting; zero once its process is gone.
    levels: BTreeMap<Signal, f64>,
    /// It was on the last page.
    present: bool,
}

/// A total, and one that came after it by too large a jump.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Total<T> {
    last: T,
    held_back: Option<f64>,
}

/// What a new total says.
enum Growth {
    /// It grew by so much.
    By(f64),
    /// It goes on by so much from where it leapt to.
    Rebased(f64),
    /// It fell: its process began anew and reached so much.
    Anew(f64),
    /// It moved further than anything can.
    HeldBack,
}

/// What one look at a target showed, compared with the looks before.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Look {
    /// What counters gained, over all members.
    pub increases: BTreeMap<Signal, f64>,
    /// What histograms gained, over all members.
    pub grown: BTreeMap<Signal, Histogram>,
    /// Levels now, over all members.
    pub levels: BTreeMap<Signal, f64>,
    /// Levels that ended with a process: its queue and batch are gone with it, nobody finished and nobody hung up.
    pub lost: BTreeMap<Signal, f64>,
    /// Signals on the page.
    pub seen: BTreeSet<Signal>,
    /// Signals that some member showed before and lacks now.
    pub missing: BTreeSet<Signal>,
    /// Signals whose growth was held back.
    pub held_back: BTreeSet<Signal>,
    /// Signals that go on from a total held back before: what they gained is of the last interval only.
    pub rebased: BTreeSet<Signal>,
    /// Some total fell: a process restarted in between.
    pub restarted: bool,
    /// The page was read to its end.
    pub whole: bool,
}

impl Look {
    /// What a counter, or the count of a histogram, gained.
    pub(crate) fn increase(&self, signal: Signal) -> Option<f64> {
        self.increases.get(&signal).copied().or_else(|| self.grown.get(&signal).map(|h| h.count))
    }

    pub(crate) fn level(&self, signal: Signal) -> f64 {
        self.levels.get(&signal).copied().unwrap_or(0.0)
    }
}

impl Totals {
    /// Takes the next look, `elapsed` after the one before.
    pub(crate) fn take(&mut self, scrape: &Scrape, elapsed: Span, noted: &mut Noted<'_>) -> Look {
        let mut look = Look { whole: scrape.skipped.is_empty(), ..Look::default() };
        let expected = self.signals();
        let mut pages: BTreeMap<&str, (Option<&MemberId>, Vec<&Sample>)> = BTreeMap::new();
        for sample in &scrape.samples {
            if plausible(sample.signal, &sample.value) {
                pages.entry(sample.member.as_ref().map_or("", MemberId::as_str)).or_insert_with(|| (sample.member.as_ref(), Vec::new())).1.push(sample);
            } else {
                noted.say(NoticeKind::Implausible, sample.member.as_ref(), Some(sample.signal), format!("{:?} was left out", shown(&sample.value)));
            }
        }
        self.lose_absent(&pages, &mut look, noted);
        for (name, (member, samples)) in &pages {
            if !self.members.contains_key(*name) && self.members.len() >= MEMBERS_MAX {
                self.members.retain(|_, member| member.present);
                if self.members.len() >= MEMBERS_MAX {
                    continue;
                }
            }
            let from_zero = self.whole_page_seen;
            let kept = self.members.entry((*name).to_owned()).or_default();
            kept.take(*member, samples, elapsed, from_zero, &mut look, noted);
        }
        look.missing.extend(expected.into_iter().filter(|signal| !look.seen.contains(signal)));
        self.whole_page_seen |= look.whole;
        look
    }

    /// Every signal that was ever on a page.
    fn signals(&self) -> BTreeSet<Signal> {
        self.members.values().flat_map(Member::signals).collect()
    }

    /// Members that are gone end with their queues; their totals stay, in case they come back.
    fn lose_absent(&mut self, pages: &BTreeMap<&str, (Option<&MemberId>, Vec<&Sample>)>, look: &mut Look, noted: &mut Noted<'_>) {
        for (name, member) in self.members.iter_mut().filter(|(name, member)| member.present && !pages.contains_key(name.as_str())) {
            member.present = false;
            member.lose_levels(look);
            if let Ok(id) = MemberId::new(name.as_str()) {
                noted.say(NoticeKind::MemberGone, Some(&id), None, "no longer on the page");
            }
        }
    }
}

impl Member {
    fn signals(&self) -> impl Iterator<Item = Signal> {
        self.counters.keys().chain(self.histograms.keys()).chain(self.levels.keys()).copied()
    }

    fn take(&mut self, member: Option<&MemberId>, samples: &[&Sample], elapsed: Span, from_zero: bool, look: &mut Look, noted: &mut Noted<'_>) {
        let expected: BTreeSet<Signal> = self.signals().collect();
        let shown: BTreeSet<Signal> = samples.iter().map(|sample| sample.signal).collect();
        let fresh = self.began_anew_unseen(samples);
        self.present = true;
        let mut restarted = fresh;
        if fresh {
            self.counters.values_mut().for_each(|total| *total = Total { last: 0.0, held_back: None });
            self.histograms.values_mut().for_each(|total| *total = Total { last: Histogram::default(), held_back: None });
        }
        for sample in samples {
            let growth = match &sample.value {
                Reading::Scalar(value) if sample.signal.kind() == SignalKind::Counter => {
                    let growth = count(&mut self.counters, sample.signal, value, *value, |last| *last, elapsed, from_zero);
                    if let Some(Growth::By(amount) | Growth::Rebased(amount) | Growth::Anew(amount)) = growth {
                        *look.increases.entry(sample.signal).or_insert(0.0) += amount;
                    }
                    growth
                }
                Reading::Histogram(total) => {
                    let before = self.histograms.get(&sample.signal).map(|kept| kept.last.clone());
                    let growth = count(&mut self.histograms, sample.signal, total, total.count, |last| last.count, elapsed, from_zero);
                    let gained = match (&growth, before) {
                        (Some(Growth::Rebased(amount)), _) => Some(part_of(total, *amount)),
                        (Some(Growth::By(_)), Some(before)) => Some(difference(total, &before)),
                        (Some(Growth::By(_) | Growth::Anew(_)), _) => Some(total.clone()),
                        _ => None,
                    };
                    if let Some(gained) = gained {
                        let sum = look.grown.get(&sample.signal).map_or_else(|| gained.clone(), |sum| sum.plus(&gained));
                        look.grown.insert(sample.signal, sum);
                    }
                    growth
                }
                Reading::Scalar(_) => None,
            };
            if matches!(growth, Some(Growth::HeldBack)) {
                look.held_back.insert(sample.signal);
                noted.say(
                    NoticeKind::Jump,
                    member,
                    Some(sample.signal),
                    format!("{:?} is further than anything moves in {} s: held back", self::shown(&sample.value), elapsed.0),
                );
            }
            if matches!(growth, Some(Growth::Rebased(_))) {
                look.rebased.insert(sample.signal);
            }
            restarted |= matches!(growth, Some(Growth::Anew(_)));
        }
        if restarted {
            look.restarted = true;
            self.lose_levels(look);
            noted.say(NoticeKind::Restarted, member, None, "totals fell: it began anew, and counts from zero");
        }
        look.seen.extend(shown.iter().copied());
        self.take_levels(samples, look);
        // Engines make their gauges, and some their totals, with the first request: until then what a page lacks is zero.
        if fresh || Self::served_nothing(samples) {
            look.seen.extend(expected.iter().copied().filter(|signal| fresh || LEVELS.contains(signal)));
            return;
        }
        look.missing.extend(expected.difference(&shown));
    }

    fn take_levels(&mut self, samples: &[&Sample], look: &mut Look) {
        for sample in samples.iter().filter(|sample| LEVELS.contains(&sample.signal)) {
            if let Reading::Scalar(level) = sample.value {
                self.levels.insert(sample.signal, level);
                *look.levels.entry(sample.signal).or_insert(0.0) += level;
            }
        }
    }

    fn lose_levels(&mut self, look: &mut Look) {
        for (signal, level) in &mut self.levels {
            *look.lost.entry(*signal).or_insert(0.0) += std::mem::take(level);
        }
    }

    /// Totals that were there, two or more of them above zero, are all gone or zero and nothing runs or waits: a new process that nobody
    /// has asked anything yet. One total alone could as well have been renamed.
    fn began_anew_unseen(&self, samples: &[&Sample]) -> bool {
        let counted = self.counters.values().filter(|total| total.last > 0.0).count() + self.histograms.values().filter(|total| total.last.count > 0.0).count();
        counted >= 2 && nothing_counted(samples)
    }

    /// Totals are shown, and all of them are zero.
    fn served_nothing(samples: &[&Sample]) -> bool {
        nothing_counted(samples) && samples.iter().any(|sample| sample.signal.kind() != SignalKind::Gauge)
    }
}

/// No total on the page is above zero, and nothing runs or waits.
fn nothing_counted(samples: &[&Sample]) -> bool {
    samples.iter().all(|sample| match &sample.value {
        Reading::Scalar(value) => *value <= 0.0 || (sample.signal.kind() == SignalKind::Gauge && !LEVELS.contains(&sample.signal)),
        Reading::Histogram(h) => h.count <= 0.0,
    })
}

/// Books a new total. A fall means that the process restarted and the new total counts from zero (Prometheus' rule). Of a total never seen
/// nothing is known, unless earlier pages were whole and lacked it: then it counts from zero. What moved too far is put aside; if the next
/// look goes on from there, that is the new level, and the way to it is not counted.
fn count<T: Clone>(
    totals: &mut BTreeMap<Signal, Total<T>>,
    signal: Signal,
    new: &T,
    value: f64,
    amount: impl Fn(&T) -> f64,
    elapsed: Span,
    from_zero: bool,
) -> Option<Growth> {
    let most = increase_per_s_max(signal) * elapsed.as_secs_f64().max(1.0);
    let Some(total) = totals.get_mut(&signal) else {
        let far = from_zero && value > most;
        totals.insert(signal, Total { last: new.clone(), held_back: None });
        return from_zero.then_some(if far { Growth::HeldBack } else { Growth::By(value) });
    };
    let last = amount(&total.last);
    let growth = if value >= last { Growth::By(value - last) } else { Growth::Anew(value) };
    let (Growth::By(moved) | Growth::Anew(moved)) = growth else { return None };
    if moved <= most {
        *total = Total { last: new.clone(), held_back: None };
        return Some(growth);
    }
    match total.held_back {
        Some(aside) if value >= aside && value - aside <= most => {
            *total = Total { last: new.clone(), held_back: None };
            Some(Growth::Rebased(value - aside))
        }
        _ => {
            total.held_back = Some(value);
            Some(Growth::HeldBack)
        }
    }
}

/// So many of a histogram's values, of which only the mean is known.
fn part_of(total: &Histogram, count: f64) -> Histogram {
    Histogram { sum: total.sum / total.count * count, count, buckets: Vec::new() }
}

/// A value as a notice shows it.
fn shown(value: &Reading) -> f64 {
    match value {
        Reading::Scalar(value) => *value,
        Reading::Histogram(h) => h.count,
    }
}
