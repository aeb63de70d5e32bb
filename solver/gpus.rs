//! GPUs: every one holds at most one occupant, and what needs several takes them from one island.
//!
//! Committed, for every bin: `sum_v gpus[v] r[v,b,t] + sum_j gang[j] (running in b) <= GPUs of b`, and for every size `q` of an item:
//! `sum floor(size / q) (items) <= sum_i floor(n_i / q)` over the islands `i` of the bin. The latter holds in each island, since
//! `sum floor(size / q) <= floor(sum size / q)`; with `q` above half an island it says "at most one an island". Outlook: the pool's GPUs.

use crate::program::Program;
use good_lp::Expression;
use std::collections::BTreeSet;

impl Program<'_> {
    /// Capacity of bins and pools.
    pub(crate) fn add_gpus(&mut self) {
        for b in 0..self.bins.list.len() {
            for t in self.sets.near() {
                self.add_bin(b, t);
            }
        }
        for p in 0..self.sets.usable.len() {
            for t in self.sets.far() {
                self.add_pool(p, t);
            }
        }
    }

    /// Everything that may be in a bin in a committed step: GPUs of one, and its number.
    fn items(&self, b: usize, t: usize) -> Vec<(u32, Expression)> {
        let sets = self.sets;
        let mut items = Vec::new();
        for v in 0..sets.problem.variants.len() {
            if let Some(&held) = self.columns.held.get(&(v, b, t)) {
                items.push((sets.variant(v).gpus, 1.0 * held));
            }
        }
        for j in 0..sets.problem.jobs.len() {
            let mut runs = Expression::from(0.0);
            if let (Some(run), Some(&kept)) = (&sets.runs[j], self.columns.kept.get(&(j, t)))
                && self.bins.list[b].islands.contains(&run.island)
            {
                runs += kept;
            }
            for tau in 0..=t {
                if let Some(&going) = self.columns.going.get(&(j, b, tau, t)) {
                    runs += going;
                }
            }
            items.push((sets.job(j).gang, runs));
        }
        items
    }

    fn add_bin(&mut self, b: usize, t: usize) {
        let islands: Vec<u32> = self.bins.list[b].islands.iter().map(|i| self.sets.islands[*i].size()).collect();
        let items = self.items(b, t);
        let sizes: BTreeSet<u32> = items.iter().map(|(size, _)| *size).filter(|q| *q > 1 && islands.iter().any(|n| n % q != 0)).collect();
        for q in sizes.into_iter().chain([1]) {
            let mut taken = Expression::from(0.0);
            for (size, number) in &items {
                taken.add_mul(f64::from(size / q), number);
            }
            let room = islands.iter().map(|n| f64::from(n / q)).sum::<f64>();
            self.require(taken.leq(room));
        }
    }

    fn add_pool(&mut self, p: usize, t: usize) {
        let sets = self.sets;
        let mut taken = Expression::from(0.0);
        for v in 0..sets.problem.variants.len() {
            if let Some(&held) = self.columns.far_held.get(&(v, p, t)) {
                taken.add_mul(f64::from(sets.variant(v).gpus), held);
            }
        }
        for j in 0..sets.problem.jobs.len() {
            if let Some(&share) = self.columns.share.get(&(j, p, t)) {
                taken.add_mul(f64::from(sets.job(j).gang), share);
            }
        }
        let row = self.require(taken.leq(f64::from(sets.usable[p])));
        self.rows.pool.insert((p, t), row);
    }
}
