//! Replicas over time: a GPU is held from the start, but serves only when the cold start is over; what loads is not stopped.
//!
//! Committed: `r[t] = r[t-1] + s[t] - d[t]`, `ready[t] = r[t] - (those with ready_at > start(t))` and `r[t] >= (those that may not be
//! stopped at start(t))`. Outlook: the same with counts per pool, where a replica that becomes ready inside a step serves the rest of it.

use crate::program::Program;
use good_lp::Expression;

impl Program<'_> {
    /// Balance and protection, committed and outlook.
    pub(crate) fn add_cold_starts(&mut self) {
        let sets = self.sets;
        let near: Vec<_> = self.columns.held.keys().copied().collect();
        for (v, b, t) in near {
            self.add_committed_balance(v, b, t);
            self.add_protection(v, b, t);
        }
        let far: Vec<_> = self.columns.far_held.keys().copied().collect();
        for (v, p, t) in far {
            let before = if t == sets.committed { self.held_in_pool(v, p, t - 1) } else { Expression::from(0.0) + self.columns.far_held[&(v, p, t - 1)] };
            let mut change = before;
            change -= self.columns.far_stopped[&(v, p, t)];
            if let Some(&started) = self.columns.far_started.get(&(v, p, t)) {
                change += started;
            }
            change -= self.columns.far_held[&(v, p, t)];
            self.require(change.eq(0.0));
            if self.loads_over(v, p, t) {
                let ready = self.ready_in_pool(v, p, t);
                self.require(ready.geq(0.0));
            }
        }
    }

    fn add_committed_balance(&mut self, v: usize, b: usize, t: usize) {
        let mut change = match t.checked_sub(1) {
            Some(before) => 1.0 * self.columns.held[&(v, b, before)],
            None => Expression::from(self.residents(v, b, |_| true)),
        };
        change -= self.columns.stopped[&(v, b, t)];
        if let Some(&started) = self.columns.started.get(&(v, b, t)) {
            change += started;
        }
        change -= self.columns.held[&(v, b, t)];
        self.require(change.eq(0.0));
    }

    /// What may not be stopped at `start(t)` is still there.
    fn add_protection(&mut self, v: usize, b: usize, t: usize) {
        let sets = self.sets;
        let mut protected = Expression::from(self.residents(v, b, |r| r.stoppable_from > sets.start(t)));
        for tau in 0..=t {
            if let (Some(&started), true) = (self.columns.started.get(&(v, b, tau)), self.loads_in(v, tau, t)) {
                protected += started;
            }
        }
        protected -= self.columns.held[&(v, b, t)];
        self.require(protected.leq(0.0));
    }

    /// Whether something begun before outlook step `t` may still load in it. What begins in `t` itself needs no rule: started and stopped
    /// in one step it would only cost, and the document counts the difference.
    fn loads_over(&self, v: usize, p: usize, t: usize) -> bool {
        let sets = self.sets;
        let resident = sets.replicas.iter().any(|r| r.variant == v && sets.islands[r.island].pool == p && r.ready_at > sets.start(t));
        resident || (sets.may_start[v][p] && self.loads_in(v, t - 1, t))
    }

    /// Whether a replica begun at `start(tau)` still loads at `start(t)`.
    fn loads_in(&self, v: usize, tau: usize, t: usize) -> bool {
        self.sets.start(tau) + self.sets.variant(v).cold_start > self.sets.start(t)
    }

    /// Residents of `v` in bin `b` of which `is` holds.
    fn residents(&self, v: usize, b: usize, is: impl Fn(&crate::sets::ResidentReplica) -> bool) -> f64 {
        let islands = &self.bins.list[b].islands;
        self.sets.replicas.iter().filter(|r| r.variant == v && islands.contains(&r.island) && is(r)).map(|_| 1.0).sum()
    }

    /// Replicas held in a pool, committed step `t`.
    pub(crate) fn held_in_pool(&self, v: usize, p: usize, t: usize) -> Expression {
        (self.bins.list.iter().enumerate()).filter(|(_, bin)| bin.pool == p).filter_map(|(b, _)| self.columns.held.get(&(v, b, t)).copied()).sum()
    }

    /// Replicas held in all pools, any step.
    pub(crate) fn held(&self, v: usize, t: usize) -> Expression {
        if t < self.sets.committed {
            (0..self.bins.list.len()).filter_map(|b| self.columns.held.get(&(v, b, t)).copied()).sum()
        } else {
            (0..self.sets.usable.len()).filter_map(|p| self.columns.far_held.get(&(v, p, t)).copied()).sum()
        }
    }

    /// Replicas that serve in step `t`.
    pub(crate) fn ready(&self, v: usize, t: usize) -> Expression {
        let sets = self.sets;
        if t >= sets.committed {
            return (0..sets.usable.len()).filter(|p| self.columns.far_held.contains_key(&(v, *p, t))).map(|p| self.ready_in_pool(v, p, t)).sum();
        }
        let loading = sets.replicas.iter().filter(|r| r.variant == v && r.ready_at > sets.start(t)).map(|_| 1.0).sum::<f64>();
        let mut ready = self.held(v, t) - loading;
        for tau in (0..=t).filter(|tau| self.loads_in(v, *tau, t)) {
            for b in 0..self.bins.list.len() {
                if let Some(&started) = self.columns.started.get(&(v, b, tau)) {
                    ready -= started;
                }
            }
        }
        ready
    }

    /// Replicas that serve on one pool in an outlook step.
    fn ready_in_pool(&self, v: usize, p: usize, t: usize) -> Expression {
        let sets = self.sets;
        let step = &sets.problem.steps[t];
        let mut ready = 1.0 * self.columns.far_held[&(v, p, t)];
        for r in sets.replicas.iter().filter(|r| r.variant == v && sets.islands[r.island].pool == p) {
            ready -= Expression::from(1.0 - step.availability(r.ready_at));
        }
        let cold_start = sets.variant(v).cold_start;
        for tau in sets.near() {
            let missing = 1.0 - step.availability(sets.start(tau) + cold_start);
            for (b, _) in self.bins.list.iter().enumerate().filter(|(_, bin)| missing > 0.0 && bin.pool == p) {
                if let Some(&started) = self.columns.started.get(&(v, b, tau)) {
                    ready.add_mul(-missing, started);
                }
            }
        }
        for tau in sets.committed..=t {
            let missing = 1.0 - step.availability(sets.start(tau) + cold_start);
            if let (Some(&started), true) = (self.columns.far_started.get(&(v, p, tau)), missing > 0.0) {
                ready.add_mul(-missing, started);
            }
        }
        ready
    }
}
