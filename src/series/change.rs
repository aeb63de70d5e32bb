//! What happened between two looks at one target.

use crate::demand::Demand;
use crate::notice::Noted;
use crate::quantile::at_or_below;
use crate::totals::{Look, Totals};
use fleet::{Scrape, Signal, Span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counters whose changes are summed over a window.
pub(crate) const COUNTERS: [Signal; 8] = [
    Signal::RequestsFinished,
    Signal::RequestsReceived,
    Signal::RequestsRefused,
    Signal::PromptTokens,
    Signal::GenerationTokens,
    Signal::PrefixQueries,
    Signal::PrefixHits,
    Signal::Preemptions,
];

/// What is carried from look to look of one target.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Carried {
    totals: Totals,
    demand: Demand,
}

/// What happened between two looks. Signals that one of them lacked are missing here, too.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Change {
    /// Increase of counters. Engines count sequences where a request asks for several.
    pub counters: BTreeMap<Signal, f64>,
    /// Requests that arrived, see [`crate::demand`].
    pub arrivals: Option<f64>,
    /// How much further back than the last look the arrivals reach: nothing was known of them meanwhile.
    pub arrivals_before: Span,
    /// First tokens that came, in requests.
    pub first_tokens: Option<f64>,
    /// Of these, how many within the target (interpolated linearly inside the bucket that holds it; where the target lies beyond the last
    /// bound, only those below that bound are known to be in time).
    pub in_time: Option<f64>,
    /// Sum and number of times between tokens.
    pub inter_token: Option<(f64, f64)>,
    /// Sequences a request asks for, as last known.
    pub sequences_per_request: Option<f64>,
    /// Some total fell: a process restarted in between.
    pub restarted: bool,
}

impl Change {
    /// No total moved and nobody arrived.
    pub(crate) fn is_idle(&self) -> bool {
        let mut amounts = self.counters.values().copied().chain(self.arrivals).chain(self.first_tokens);
        amounts.all(|amount| amount <= 0.0)
    }
}

impl Carried {
    /// Takes the next look, `elapsed` after the one before, and says what happened since; and the look itself, compared with those before.
    pub(crate) fn advance(&mut self, scrape: &Scrape, elapsed: Span, ttft_target_s: f64, noted: &mut Noted<'_>) -> (Change, Look) {
        let look = self.totals.take(scrape, elapsed, noted);
        let arrived = self.demand.take(&look, elapsed, noted);
        let sequences_per_request = self.demand.sequences_per_request();
        let requests = |sequences: f64| sequences / sequences_per_request.unwrap_or(1.0);
        let first_tokens = look.grown.get(&Signal::TimeToFirstToken);
        let change = Change {
            counters: COUNTERS.into_iter().filter_map(|signal| Some((signal, look.increase(signal)?))).collect(),
            arrivals: arrived.requests,
            arrivals_before: arrived.before,
            first_tokens: first_tokens.map(|h| requests(h.count)),
            in_time: first_tokens.and_then(|h| at_or_below(h, ttft_target_s)).map(requests),
            inter_token: look.grown.get(&Signal::InterTokenLatency).map(|h| (h.sum, h.count)),
            sequences_per_request,
            restarted: look.restarted,
        };
        (change, look)
    }
}
