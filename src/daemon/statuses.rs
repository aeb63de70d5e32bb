//! How sources stand, for people and machines: what answers, and which of its signals may be relied on.

use cycle::State;
use fleet::{Signal, TargetId, Timestamp};
use ingest::Catalogue;
use publish::{Reliance, SignalStatus, SourceStatus};
use series::SignalFreshness;
use std::collections::BTreeMap;

/// Every target and GPU page, in order of name.
pub(crate) fn statuses(state: &State, catalogue: &Catalogue, now: Timestamp) -> Vec<SourceStatus> {
    let mut by: BTreeMap<TargetId, Vec<SignalFreshness>> = BTreeMap::new();
    for fresh in state.freshness(now) {
        by.entry(fresh.target.clone()).or_default().push(fresh);
    }
    let none = Vec::new();
    let mut all: Vec<SourceStatus> = state
        .sources(now)
        .map(|source| {
            let signals = signals(by.get(source.id).unwrap_or(&none), source.server.map(|s| catalogue.expected(&s.engine)).unwrap_or_default(), source.silent);
            SourceStatus {
                name: source.id.to_string(),
                workload: source.workload.cloned(),
                ok: !source.silent,
                last_answer: source.last_answer,
                reason: source.reason.map(str::to_owned),
                server: source.server.cloned(),
                signals,
            }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Signals that were ever seen, and those the engine should show and never did.
fn signals(seen: &[SignalFreshness], expected: &[Signal], silent: bool) -> Vec<SignalStatus> {
    let state = |fresh: &SignalFreshness| match (silent, fresh.missing_since, fresh.frozen_since) {
        (true, ..) => Reliance::Stale,
        (false, Some(_), _) => Reliance::Missing,
        (false, None, Some(_)) => Reliance::Frozen,
        (false, None, None) => Reliance::Fresh,
    };
    let mut all: BTreeMap<Signal, SignalStatus> =
        expected.iter().map(|signal| (*signal, SignalStatus { signal: *signal, state: Reliance::Missing, last: None })).collect();
    all.extend(seen.iter().map(|fresh| (fresh.signal, SignalStatus { signal: fresh.signal, state: state(fresh), last: Some(fresh.seen) })));
    all.into_values().collect()
}
