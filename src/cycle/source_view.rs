//! How sources stand, as the loop knows it.

use crate::State;
use fleet::{Server, TargetId, Timestamp, WorkloadId};
use series::SignalFreshness;

/// One source of readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourceView<'a> {
    /// The target, or the page that tells of GPUs.
    pub id: &'a TargetId,
    /// The service it is of; nothing for GPUs.
    pub workload: Option<&'a WorkloadId>,
    /// Last time it answered.
    pub last_answer: Option<Timestamp>,
    /// It has not answered for too long.
    pub silent: bool,
    /// Why it last did not answer.
    pub reason: Option<&'a str>,
    /// What answers there.
    pub server: Option<&'a Server>,
}

impl State {
    /// Every source: targets in order of name, then pages that tell of GPUs.
    pub fn sources(&self, now: Timestamp) -> impl Iterator<Item = SourceView<'_>> {
        let targets = self.targets.values().map(move |t| SourceView {
            id: &t.target.id,
            workload: Some(&t.target.workload),
            last_answer: t.last_ok,
            silent: self.is_silent(t, now),
            reason: t.last_error.as_deref(),
            server: t.server.as_ref(),
        });
        let silent_after = self.setup.policy.silent_after;
        let pages = self.gpu_pages().map(move |(id, page)| SourceView {
            id,
            workload: None,
            last_answer: page.last_ok,
            silent: page.last_ok.is_none_or(|at| now.since(at) > silent_after),
            reason: page.last_error.as_deref(),
            server: page.server.as_ref(),
        });
        targets.chain(pages)
    }

    /// How fresh every signal of every target is.
    #[must_use]
    pub fn freshness(&self, now: Timestamp) -> Vec<SignalFreshness> {
        self.windows.freshness(now)
    }
}
