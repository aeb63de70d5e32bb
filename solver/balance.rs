//! Traffic: what is asked for is served or short, and nothing serves more than its ready replicas can.
//!
//! `sum_v x[w,v,t] + u[w,t] = demand[w,t]` and `sum_w x[w,v,t] / capacity[w,v] <= ready[v,t]`.

use crate::program::Program;
use good_lp::Expression;

impl Program<'_> {
    /// `x` and `u` where there is demand, the replica bounds where they can bind.
    pub(crate) fn declare_services(&mut self) {
        let sets = self.sets;
        for (w, service) in sets.problem.services.iter().enumerate() {
            let resident = sets.resident_count(w);
            for t in 0..sets.steps {
                let demand = service.demand[t].planned;
                if demand > 0.0 {
                    let short = self.column(0.0, demand);
                    self.columns.short.insert((w, t), short);
                    for (v, _) in sets.serving(w) {
                        if self.is_ever_held(v) {
                            let load = self.column(0.0, demand);
                            self.columns.load.insert((w, v, t), load);
                        }
                    }
                }
                if service.min_replicas > 0 {
                    let below = self.column(0.0, f64::from(service.min_replicas));
                    self.columns.below.insert((w, t), below);
                }
                if resident > service.max_replicas {
                    let above = self.column(0.0, f64::INFINITY);
                    self.columns.above.insert((w, t), above);
                }
            }
        }
    }

    fn is_ever_held(&self, v: usize) -> bool {
        self.columns.held.range((v, 0, 0)..(v + 1, 0, 0)).next().is_some()
    }

    /// Both rules.
    pub(crate) fn add_balance(&mut self) {
        let sets = self.sets;
        let mut busy: std::collections::BTreeMap<(usize, usize), Expression> = std::collections::BTreeMap::new();
        for (w, service) in sets.problem.services.iter().enumerate() {
            let capacity: Vec<(usize, f64)> = sets.serving(w).collect();
            for t in 0..sets.steps {
                let Some(&short) = self.columns.short.get(&(w, t)) else { continue };
                let mut served = 1.0 * short;
                for &(v, per_replica) in &capacity {
                    if let Some(&load) = self.columns.load.get(&(w, v, t)) {
                        served += load;
                        busy.entry((v, t)).or_default().add_mul(1.0 / per_replica, load);
                    }
                }
                let row = self.require(served.eq(service.demand[t].planned));
                self.rows.demand.insert((w, t), row);
            }
        }
        for ((v, t), busy) in busy {
            let row = self.require((busy - self.ready(v, t)).leq(0.0));
            self.rows.serving.insert((v, t), row);
        }
    }
}
