//! Steps of the wall clock: told from late looks, and measured.

use fleet::{Span, TargetId, Timestamp};
use serde::{Deserialize, Serialize};

/// Spacing assumed of a target seen once.
const INTERVAL_DEFAULT: Span = Span::MINUTE;

/// Decides whether looks that lie in the past are late ones or show a clock that was set back.
///
/// One look from the past says nothing: it may have been delivered late. A second one, of any target, that goes on from the first shows
/// that time itself went back: by where the first should have been, minus where it was.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Steps {
    suspect: Option<Suspect>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Suspect {
    target: TargetId,
    at: Timestamp,
    back: Span,
}

impl Steps {
    /// A look at `at` of a target last looked at at `last`, every `interval`. Returns the size of a backward step once it is sure.
    pub(crate) fn take(&mut self, target: &TargetId, at: Timestamp, last: Timestamp, interval: Option<i64>) -> Option<Span> {
        let interval = interval.map_or(INTERVAL_DEFAULT, Span);
        let expected = last + interval;
        let back = expected.since(at);
        if at > last {
            // The time goes on where it was.
            if self.suspect.as_ref().is_some_and(|suspect| &suspect.target == target) {
                self.suspect = None;
            }
            return None;
        }
        if last.since(at) <= interval {
            return None;
        }
        match self.suspect.take() {
            Some(suspect) if at > suspect.at || (&suspect.target != target && at == suspect.at) => {
                // Looks of one target go on by its interval; of two, both may lie an interval off.
                let off = (suspect.back.0 - back.0).abs();
                if off <= at.since(suspect.at).0 + 2 * interval.0 {
                    return Some(suspect.back);
                }
                self.suspect = Some(Suspect { target: target.clone(), at, back });
                None
            }
            Some(suspect) if at == suspect.at => {
                self.suspect = Some(suspect);
                None
            }
            _ => {
                self.suspect = Some(Suspect { target: target.clone(), at, back });
                None
            }
        }
    }
}
