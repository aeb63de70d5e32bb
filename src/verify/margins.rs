//! Holds and heirs: what is kept free, and what takes a GPU that is freed early.

use crate::tally::{Tally, overlap};
use crate::{Code, Violation};
use fleet::{Availability, GpuId};
use std::collections::BTreeMap;

/// Holds are free for as long as they say; every usable GPU has one heir.
pub(crate) fn check(tally: &Tally) -> Vec<Violation> {
    let mut out = Vec::new();
    let usable = |gpu: &GpuId| tally.problem.gpu(gpu).is_some_and(|g| g.availability == Availability::Usable);
    for hold in &tally.plan.committed.holds {
        let new = |what: &str| Violation::new(Code::Hold, what).gpu(&hold.gpu).of(hold.heir.name());
        if !usable(&hold.gpu) {
            out.push(new("the GPU is unknown or not usable"));
        }
        if hold.from >= hold.until || hold.from < tally.problem.as_of {
            out.push(new("has no length, or lies in the past"));
        }
        let windows = tally.replicas().map(|(w, _)| (&w.gpus, w.from, w.until)).chain(tally.runs().map(|(w, _)| (&w.gpus, w.from, w.until)));
        let taken: f64 = windows.filter(|(gpus, _, _)| gpus.contains(&hold.gpu)).map(|(_, from, until)| overlap((from, until), (hold.from, hold.until))).sum();
        if taken > 0.0 {
            out.push(new("is taken for so many seconds of it").figures(taken, 0.0));
        }
    }
    let mut heirs: BTreeMap<&GpuId, f64> = tally.problem.gpus.iter().filter(|g| usable(&g.id)).map(|g| (&g.id, 0.0)).collect();
    for heir in &tally.plan.heirs {
        match heirs.get_mut(&heir.gpu) {
            Some(n) => *n += 1.0,
            None => out.push(Violation::new(Code::Heir, "of a GPU that is unknown or not usable").gpu(&heir.gpu)),
        }
    }
    for (gpu, n) in heirs {
        if (n - 1.0).abs() > 0.5 {
            out.push(Violation::new(Code::Heir, "every usable GPU has one entry").gpu(gpu).figures(n, 1.0));
        }
    }
    out
}
