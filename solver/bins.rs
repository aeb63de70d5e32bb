//! Bins: sets of islands of one pool whose committed counts are decided together.
//!
//! A bin of one island is exact: GPUs of an island are interchangeable, so any counts that fit its size can be placed. A bin of several
//! islands leaves out which of them holds what; it allows everything its islands allow and perhaps more. So a program over coarse bins is a
//! relaxation of the one over islands, at the same prices: when its solution can be placed it is as good as any, and only a bin whose
//! counts cannot be placed is split.

use crate::sets::Sets;
use std::collections::BTreeMap;

/// Up to this many islands a pool that must be split is split into its islands at once; above, islands of the same content share a bin.
const ISLANDS_SINGLE_MAX: usize = 16;

/// Islands of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bin {
    /// Their pool.
    pub pool: usize,
    /// Which.
    pub islands: Vec<usize>,
    /// The next split leads to single islands.
    alike: bool,
}

/// A partition of all islands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bins {
    /// The bins, ordered by pool and first island.
    pub list: Vec<Bin>,
}

impl Bins {
    /// One bin a pool.
    pub fn by_pool(sets: &Sets) -> Self {
        let mut list = Vec::new();
        for pool in 0..sets.usable.len() {
            let islands: Vec<usize> = (0..sets.islands.len()).filter(|i| sets.islands[*i].pool == pool).collect();
            if !islands.is_empty() {
                list.push(Bin { pool, alike: islands.len() <= ISLANDS_SINGLE_MAX, islands });
            }
        }
        Self { list }
    }

    /// One bin an island.
    #[cfg(test)]
    pub fn by_island(sets: &Sets) -> Self {
        let list = (0..sets.islands.len()).map(|i| Bin { pool: sets.islands[i].pool, islands: vec![i], alike: true }).collect();
        Self { list }
    }

    /// Splits the bins named: into groups of like islands first where there are many, then into islands. `false` when none can be split.
    pub fn split(&mut self, sets: &Sets, which: &[usize]) -> bool {
        let mut list = Vec::new();
        let mut changed = false;
        for (b, bin) in self.list.iter().enumerate() {
            if !which.contains(&b) || bin.islands.len() < 2 {
                list.push(bin.clone());
                continue;
            }
            changed = true;
            let mut groups: BTreeMap<Content, Vec<usize>> = BTreeMap::new();
            for &island in &bin.islands {
                let mut content = content(sets, island);
                if bin.alike {
                    content.single = Some(island);
                }
                groups.entry(content).or_default().push(island);
            }
            list.extend(groups.into_values().map(|islands| Bin { pool: bin.pool, islands, alike: true }));
        }
        list.sort_by_key(|bin| (bin.pool, bin.islands.first().copied()));
        self.list = list;
        changed
    }
}

/// What makes two islands alike: size, replicas by variant and times, jobs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Content {
    size: u32,
    replicas: Vec<(usize, i64, i64)>,
    runs: Vec<usize>,
    single: Option<usize>,
}

fn content(sets: &Sets, island: usize) -> Content {
    let mut replicas: Vec<_> = sets.replicas.iter().filter(|r| r.island == island).map(|r| (r.variant, r.ready_at.0, r.stoppable_from.0)).collect();
    replicas.sort_unstable();
    let runs = (0..sets.runs.len()).filter(|j| sets.runs[*j].as_ref().is_some_and(|r| r.island == island)).collect();
    Content { size: sets.islands[island].size(), replicas, runs, single: None }
}
