//! What was noticed about sources on the way, for status pages and logs.

use fleet::{MemberId, Signal, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;

/// Notices kept until they are taken. Older ones make room and are counted.
pub const NOTICES_MAX: usize = 256;

/// The kind of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// Totals fell: a process began anew.
    Restarted,
    /// A member of the target is no longer on its page.
    MemberGone,
    /// The wall clock went back by more than a scrape interval.
    ClockSteppedBack,
    /// Signals of one target contradict each other.
    Contradiction,
    /// A value outside what its signal can be; it was left out.
    Implausible,
    /// A total grew faster than anything can; the growth was held back and not learned from.
    Jump,
    /// A signal stands still while others show that work goes on.
    Frozen,
    /// A signal that was there is gone from a page that was read.
    Missing,
    /// A signal that was missing or stood still is good again.
    Returned,
}

/// Something worth telling a person, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When.
    pub at: Timestamp,
    /// Whose; of a clock step none.
    pub target: Option<TargetId>,
    /// Which member of the target, where it is about one.
    pub member: Option<MemberId>,
    /// Which signal, where it is about one.
    pub signal: Option<Signal>,
    /// What.
    pub kind: NoticeKind,
    /// In words, with the values.
    pub detail: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(target) = &self.target {
            write!(f, "{target}: ")?;
        }
        if let Some(member) = &self.member {
            write!(f, "{member}: ")?;
        }
        if let Some(signal) = self.signal {
            write!(f, "{}: ", signal.name())?;
        }
        f.write_str(&self.detail)
    }
}

/// The newest notices, bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Notices {
    kept: VecDeque<Notice>,
    dropped: u64,
}

impl Notices {
    pub(crate) fn push(&mut self, notice: Notice) {
        if self.kept.len() == NOTICES_MAX {
            self.kept.pop_front();
            self.dropped += 1;
        }
        self.kept.push_back(notice);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Notice> {
        self.kept.iter()
    }

    pub(crate) fn take(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.kept).into()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// Where the notices of one look at one target go.
pub(crate) struct Noted<'a> {
    pub at: Timestamp,
    pub target: &'a TargetId,
    pub log: &'a mut Notices,
}

impl Noted<'_> {
    pub(crate) fn say(&mut self, kind: NoticeKind, member: Option<&MemberId>, signal: Option<Signal>, detail: impl Into<String>) {
        let (target, member) = (Some(self.target.clone()), member.cloned());
        self.log.push(Notice { at: self.at, target, member, signal, kind, detail: detail.into() });
    }
}
