//! One queue in front of a service's replicas, first in, first out.
//!
//! Requests are counts that arrive evenly over their minute and are served at the rate of all ready replicas together. Between two changes of
//! rate both curves are straight, so the waiting time of the n-th request is exact: the time at which the served count reaches n less the
//! time at which the arrived count did.

use std::collections::VecDeque;

/// Requests that arrived evenly over a span of time (seconds since the start of the simulation).
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cohort {
    from: f64,
    until: f64,
    count: f64,
}

/// Requests that began to be served, with waits that change linearly from the first to the last of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Served {
    pub count: f64,
    pub wait_first_s: f64,
    pub wait_last_s: f64,
}

impl Served {
    /// How many of them waited no longer than `limit_s`.
    pub fn within(&self, limit_s: f64) -> f64 {
        let (low, high) = (self.wait_first_s.min(self.wait_last_s), self.wait_first_s.max(self.wait_last_s));
        if high <= limit_s {
            self.count
        } else if low > limit_s {
            0.0
        } else {
            self.count * (limit_s - low) / (high - low)
        }
    }

    /// Sum of their waits, seconds.
    pub fn wait_sum_s(&self) -> f64 {
        self.count * 0.5 * (self.wait_first_s + self.wait_last_s)
    }
}

/// Counts below this are rounding, not requests.
const NOTHING: f64 = 1e-9;

/// The queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    cohorts: VecDeque<Cohort>,
}

impl Queue {
    /// Requests in it.
    pub fn waiting(&self) -> f64 {
        self.cohorts.iter().map(|c| c.count).sum()
    }

    /// Those whose first has waited for `patience_s` at `now_s` hang up, a cohort (a minute's arrivals) at a time. Returns how many.
    pub fn hang_up(&mut self, now_s: f64, patience_s: f64) -> f64 {
        let mut gone = 0.0;
        while let Some(front) = self.cohorts.front().filter(|c| now_s - c.from >= patience_s) {
            gone += front.count;
            self.cohorts.pop_front();
        }
        gone
    }

    /// Lets `arrivals` come evenly over `[start_s, start_s + length_s)` and serves up to `rate` requests/s meanwhile.
    pub fn serve(&mut self, start_s: f64, length_s: f64, arrivals: f64, rate: f64) -> Vec<Served> {
        if arrivals > 0.0 {
            self.cohorts.push_back(Cohort { from: start_s, until: start_s + length_s, count: arrivals });
        }
        let mut served = Vec::new();
        if rate <= 0.0 {
            return served;
        }
        let (mut clock, end) = (start_s, start_s + length_s);
        while let Some(cohort) = self.cohorts.front_mut() {
            clock = clock.max(cohort.from);
            if clock >= end {
                break;
            }
            let whole_takes = cohort.count / rate;
            let wait_first_s = clock - cohort.from;
            // The wait of the cohort's last request if the server stays behind all the way.
            let wait_last_s = clock + whole_takes - cohort.until;
            if wait_last_s < 0.0 {
                // The server catches up with the arrivals and then serves them as they come.
                let per_s = cohort.count / (cohort.until - cohort.from);
                let behind = per_s * wait_first_s / (1.0 - per_s / rate);
                if behind > NOTHING {
                    served.push(Served { count: behind, wait_first_s, wait_last_s: 0.0 });
                }
                served.push(Served { count: cohort.count - behind, wait_first_s: 0.0, wait_last_s: 0.0 });
                clock = cohort.until;
                self.cohorts.pop_front();
            } else if clock + whole_takes <= end {
                served.push(Served { count: cohort.count, wait_first_s, wait_last_s });
                clock += whole_takes;
                self.cohorts.pop_front();
            } else {
                let share = (end - clock) / whole_takes;
                let count = cohort.count * share;
                served.push(Served { count, wait_first_s, wait_last_s: wait_first_s + (wait_last_s - wait_first_s) * share });
                cohort.from += (cohort.until - cohort.from) * share;
                cohort.count -= count;
                if cohort.count <= NOTHING {
                    self.cohorts.pop_front();
                }
                break;
            }
        }
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(served: &[Served]) -> f64 {
        served.iter().map(|s| s.count).sum()
    }

    #[test]
    fn nobody_waits_below_capacity_and_the_excess_waits_above_it() {
        let mut queue = Queue::default();
        let calm = queue.serve(0.0, 60.0, 60.0, 2.0);
        assert!((total(&calm) - 60.0).abs() < 1e-9 && calm.iter().all(|s| s.wait_last_s.abs() < 1e-12));
        // 180 come in a minute, 120 are served; the last of these waits for 20 s: it arrived at second 40.
        let busy = queue.serve(60.0, 60.0, 180.0, 2.0);
        assert!((total(&busy) - 120.0).abs() < 1e-9 && (queue.waiting() - 60.0).abs() < 1e-9);
        assert!((busy[0].wait_last_s - 20.0).abs() < 1e-9);
        // None waited for 10 s but the first half.
        assert!((busy[0].within(10.0) - 60.0).abs() < 1e-9);
        // 60 waiting and none coming: gone in 30 s, the last after 30 s in the queue (it came at the very end).
        let rest = queue.serve(120.0, 60.0, 0.0, 2.0);
        assert!((total(&rest) - 60.0).abs() < 1e-9 && (rest[0].wait_last_s - 30.0).abs() < 1e-9);
    }

    #[test]
    fn catches_up_with_arrivals_within_the_minute() {
        let mut queue = Queue::default();
        queue.serve(0.0, 60.0, 60.0, 0.0);
        let served = queue.serve(60.0, 60.0, 60.0, 4.0);
        assert!((total(&served) - 120.0).abs() < 1e-9);
        // The backlog of 60 is gone after 15 s; the 15 that came meanwhile and those until second 20 (relative) wait less and less.
        assert!((served[0].wait_last_s - 15.0).abs() < 1e-9);
        assert!((served[1].count - 20.0).abs() < 1e-9 && served[1].wait_last_s.abs() < 1e-12);
    }

    #[test]
    fn the_impatient_leave_a_minute_at_a_time() {
        let mut queue = Queue::default();
        for minute in 0..12 {
            queue.serve(f64::from(minute) * 60.0, 60.0, 5.0, 0.0);
        }
        assert!((queue.hang_up(720.0, 600.0) - 15.0).abs() < 1e-9);
        assert!((queue.waiting() - 45.0).abs() < 1e-9);
    }

    proptest::proptest! {
        /// What came was served, hung up or still waits; no wait is negative.
        #[test]
        fn requests_are_conserved(minutes in proptest::collection::vec((0.0_f64..500.0, 0.0_f64..8.0), 1..60)) {
            let mut queue = Queue::default();
            let (mut came, mut went) = (0.0, 0.0);
            for (minute, (arrivals, rate)) in minutes.into_iter().enumerate() {
                let start = f64::from(u32::try_from(minute).unwrap()) * 60.0;
                went += queue.hang_up(start, 600.0);
                came += arrivals;
                let served = queue.serve(start, 60.0, arrivals, rate);
                proptest::prop_assert!(served.iter().all(|s| s.count >= 0.0 && s.wait_first_s >= 0.0 && s.wait_last_s >= -1e-9));
                proptest::prop_assert!(total(&served) <= rate * 60.0 + 1e-6);
                went += total(&served);
            }
            proptest::prop_assert!((came - went - queue.waiting()).abs() < 1e-6 * came.max(1.0));
        }
    }
}
