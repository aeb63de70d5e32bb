//! The objective: what is minimised, in money over the horizon.
//!
//! Shortfall, replica bounds, starts, stops, rent, lateness and preemptions, less the value of useful work.

use crate::program::Program;

impl Program<'_> {
    /// Prices every column.
    pub(crate) fn add_objective(&mut self) {
        self.price_services();
        self.price_changes();
        self.price_rent();
        self.price_jobs();
    }

    fn price_services(&mut self) {
        let sets = self.sets;
        for ((w, t), short) in self.columns.short.clone() {
            self.pay(sets.service(w).shortfall_per_request * sets.hours(t) * 3_600.0, short);
        }
        for ((w, t), replicas) in self.columns.below.clone().into_iter().chain(self.columns.above.clone()) {
            self.pay(sets.service(w).bound_price_per_hour * sets.hours(t), replicas);
        }
    }

    fn price_changes(&mut self) {
        let sets = self.sets;
        for ((v, _, _), started) in self.columns.started.clone().into_iter().chain(self.columns.far_started.clone()) {
            self.pay(sets.variant(v).start_cost, started);
        }
        for ((v, _, _), stopped) in self.columns.stopped.clone().into_iter().chain(self.columns.far_stopped.clone()) {
            self.pay(sets.variant(v).stop_cost, stopped);
        }
    }

    fn price_rent(&mut self) {
        let sets = self.sets;
        let rent = |p: usize, t: usize, gpus: u32| sets.problem.pools[p].marginal_per_gpu_hour * f64::from(gpus) * sets.hours(t);
        for ((v, b, t), held) in self.columns.held.clone() {
            self.pay(rent(self.bins.list[b].pool, t, sets.variant(v).gpus), held);
        }
        for ((v, p, t), held) in self.columns.far_held.clone() {
            self.pay(rent(p, t, sets.variant(v).gpus), held);
        }
        for ((j, t), kept) in self.columns.kept.clone() {
            let pool = sets.runs[j].as_ref().map_or(0, |r| r.pool);
            self.pay(rent(pool, t, sets.job(j).gang), kept);
        }
        for ((j, b, _, t), going) in self.columns.going.clone() {
            self.pay(rent(self.bins.list[b].pool, t, sets.job(j).gang), going);
        }
        for ((j, p, t), share) in self.columns.share.clone() {
            self.pay(rent(p, t, sets.job(j).gang), share);
        }
    }

    fn price_jobs(&mut self) {
        let sets = self.sets;
        for ((j, t), work) in self.columns.work.clone() {
            self.pay(-sets.job(j).value_per_hour * sets.freshness(t), work);
        }
        for (j, late) in self.columns.late.clone() {
            self.pay(sets.job(j).lateness_per_hour, late);
        }
        for j in 0..sets.problem.jobs.len() {
            let redone = self.redone(j);
            self.pay(sets.job(j).value_per_hour, redone);
        }
    }
}
