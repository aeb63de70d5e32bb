//! Bounds on replicas and on change: the minimum is priced, the maximum is hard but for what runs already, stops are counted.

use crate::program::Program;
use good_lp::Expression;

impl Program<'_> {
    /// Minimum, maximum, stops.
    pub(crate) fn add_bounds(&mut self) {
        let sets = self.sets;
        for w in 0..sets.problem.services.len() {
            for t in 0..sets.steps {
                self.add_replica_bounds(w, t);
            }
        }
        if let Some(most) = sets.problem.policy.stops_max {
            let stops: Expression = self.columns.stopped.values().copied().sum();
            self.require(stops.leq(f64::from(most)));
        }
    }

    fn add_replica_bounds(&mut self, w: usize, t: usize) {
        let sets = self.sets;
        let service = sets.service(w);
        let held: Expression = sets.serving(w).map(|(v, _)| self.held(v, t)).sum();
        let (least, most) = (f64::from(service.min_replicas), f64::from(service.max_replicas));
        if let Some(&below) = self.columns.below.get(&(w, t)) {
            self.require((held.clone() + below).geq(least));
        }
        if let Some(&above) = self.columns.above.get(&(w, t)) {
            self.require((held.clone() - above).leq(most));
        }
        let never = most.max(f64::from(sets.resident_count(w)));
        if never < sets.usable.iter().copied().map(f64::from).sum() {
            self.require(held.leq(never));
        }
    }
}
