//! The seam between the world and whoever decides in it.

use crate::account::Kept;
use crate::turnaround::{LoopReport, Turnaround};
use crate::{Scenario, next_free_gpu::NextFreeGpu, static_peak::StaticPeak, world::World};
use fleet::Timestamp;
use serde::{Deserialize, Serialize};

/// Who decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Each service has its own GPUs for its peak; jobs share what is left.
    StaticPeak,
    /// Whoever asks first takes the next free GPU; services ask when they are busy.
    NextFreeGpu,
    /// The loop.
    Turnaround,
}

impl PolicyKind {
    /// In the order reports show them.
    pub const ALL: [Self; 3] = [Self::StaticPeak, Self::NextFreeGpu, Self::Turnaround];

    /// Name in JSON and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StaticPeak => "static-peak",
            Self::NextFreeGpu => "next-free-gpu",
            Self::Turnaround => "turnaround",
        }
    }
}

/// Looks at the world at the start of each minute and changes it.
pub(crate) trait Policy {
    /// The minute from `world.now` begins.
    fn act(&mut self, world: &mut World);

    /// What is kept for what is expected, in the minute at hand.
    fn kept(&self, world: &World) -> Kept;

    /// Cycles run so far.
    fn cycles(&self) -> u64 {
        0
    }

    /// What it has to tell at the end.
    fn report(self: Box<Self>, world: &World) -> Option<LoopReport>;
}

pub(crate) fn policy(kind: PolicyKind, scenario: &Scenario, score_from: Timestamp, scrape_every: u32) -> Box<dyn Policy> {
    match kind {
        PolicyKind::StaticPeak => Box::new(StaticPeak::new(score_from)),
        PolicyKind::NextFreeGpu => Box::new(NextFreeGpu::default()),
        PolicyKind::Turnaround => Box::new(Turnaround::new(scenario, score_from, scrape_every)),
    }
}
