//! Jobs: gangs that run whole or not at all in the committed part, shares of gangs in the outlook, and the work that comes of it.
//!
//! `k[j,t]` never rises and may fall only where the resident run may end; `g[j,b,tau,t]` likewise for a run begun at `start(tau)`.
//! `k[j,t] + sum g[j,b,tau,t] <= 1`. Work `w[j,t] <= progress[j,t]`, `sum_t w[j,t] <= need_j = remaining_j + sum_t redo[j,t] (k[j,t-1] - k[j,t])`,
//! `late_j >= need_j - done by the deadline`. Work is counted in hours at speed 1.

use crate::program::{Column, Program};
use good_lp::Expression;

/// Work in hours; money in the problem is by the hour.
const HOUR_S: f64 = 3_600.0;

impl Program<'_> {
    /// Runs, shares, work and lateness where they can matter.
    pub(crate) fn declare_jobs(&mut self) {
        for j in 0..self.sets.problem.jobs.len() {
            self.declare_resident_run(j);
            if self.sets.is_worth_running(j) {
                self.declare_new_runs(j);
                self.declare_shares(j);
                self.declare_work(j);
            }
        }
    }

    fn declare_resident_run(&mut self, j: usize) {
        let sets = self.sets;
        if sets.runs[j].is_none() {
            return;
        }
        let mut last: Option<Column> = None;
        for t in sets.near() {
            let kept = match last {
                Some(column) if !sets.may_end(j, t) => column,
                _ => self.integer(if sets.may_end(j, t) { 0.0 } else { 1.0 }, 1.0),
            };
            self.columns.kept.insert((j, t), kept);
            last = Some(kept);
        }
    }

    fn declare_new_runs(&mut self, j: usize) {
        let sets = self.sets;
        for (b, bin) in self.bins.list.iter().enumerate() {
            if sets.speed[j][bin.pool].is_none() || self.room(b, sets.job(j).gang) == 0 {
                continue;
            }
            for tau in sets.near().filter(|tau| sets.start(*tau) >= sets.job(j).earliest) {
                let mut going = self.integer(0.0, 1.0);
                for t in tau..sets.committed {
                    if t > tau && sets.free(j, t) {
                        going = self.integer(0.0, 1.0);
                    }
                    self.columns.going.insert((j, b, tau, t), going);
                }
            }
        }
    }

    fn declare_shares(&mut self, j: usize) {
        let sets = self.sets;
        let resident_pool = sets.runs[j].as_ref().map(|r| r.pool).filter(|_| sets.resident_speed(j) > 0.0);
        for p in 0..sets.usable.len() {
            let begins = sets.speed[j][p].is_some();
            for t in sets.far().filter(|t| sets.start(*t) >= sets.job(j).earliest && (begins || resident_pool == Some(p))) {
                let share = self.column(0.0, 1.0);
                self.columns.share.insert((j, p, t), share);
                let started = self.column(0.0, if begins { 1.0 } else { 0.0 });
                self.columns.share_started.insert((j, p, t), started);
            }
        }
    }

    fn declare_work(&mut self, j: usize) {
        for t in 0..self.sets.steps {
            let work = self.column(0.0, f64::INFINITY);
            self.columns.work.insert((j, t), work);
        }
        if self.sets.job(j).deadline.is_some() {
            let late = self.column(0.0, f64::INFINITY);
            self.columns.late.insert(j, late);
        }
    }

    /// Runs that do not overlap, then work.
    pub(crate) fn add_jobs(&mut self) {
        let sets = self.sets;
        for j in 0..sets.problem.jobs.len() {
            for t in sets.near() {
                self.add_runs(j, t);
            }
            for t in sets.far() {
                self.add_shares(j, t);
            }
            if sets.is_worth_running(j) {
                self.add_work(j);
            }
        }
    }

    fn add_runs(&mut self, j: usize, t: usize) {
        let mut runs = Expression::from(0.0);
        let mut number = 0;
        let mut falls = Vec::new();
        if let Some(&kept) = self.columns.kept.get(&(j, t)) {
            runs += kept;
            number += 1;
            falls.extend(t.checked_sub(1).map(|before| (self.columns.kept[&(j, before)], kept)));
        }
        for b in 0..self.bins.list.len() {
            for tau in 0..=t {
                let Some(&going) = self.columns.going.get(&(j, b, tau, t)) else { continue };
                runs += going;
                number += 1;
                if t > tau {
                    falls.push((self.columns.going[&(j, b, tau, t - 1)], going));
                }
            }
        }
        if number > 1 {
            self.require(runs.leq(1.0));
        }
        for (before, now) in falls.into_iter().filter(|(before, now)| before != now) {
            self.require((1.0 * now - before).leq(0.0));
        }
    }

    /// Runs of `j` on pool `p` that last to the end of the committed part.
    fn lasting(&self, j: usize, p: usize) -> Expression {
        let last = self.sets.committed - 1;
        let mut runs = Expression::from(0.0);
        if let (Some(run), Some(&kept)) = (&self.sets.runs[j], self.columns.kept.get(&(j, last)))
            && run.pool == p
        {
            runs += kept;
        }
        for (b, _) in self.bins.list.iter().enumerate().filter(|(_, bin)| bin.pool == p) {
            for tau in 0..=last {
                if let Some(&going) = self.columns.going.get(&(j, b, tau, last)) {
                    runs += going;
                }
            }
        }
        runs
    }

    fn add_shares(&mut self, j: usize, t: usize) {
        let mut whole = Expression::from(0.0);
        let mut pools = 0;
        for p in 0..self.sets.usable.len() {
            let Some(&share) = self.columns.share.get(&(j, p, t)) else { continue };
            whole += share;
            pools += 1;
            let started = self.columns.share_started[&(j, p, t)];
            let before = if t == self.sets.committed {
                self.lasting(j, p)
            } else {
                self.columns.share.get(&(j, p, t - 1)).map_or_else(|| Expression::from(0.0), |&before| 1.0 * before)
            };
            self.require((1.0 * share - before - started).leq(0.0));
        }
        if pools > 1 {
            self.require(whole.leq(1.0));
        }
    }

    fn add_work(&mut self, j: usize) {
        let sets = self.sets;
        let mut done = Expression::from(0.0);
        for t in 0..sets.steps {
            let work = self.columns.work[&(j, t)];
            done += work;
            let progress = if t < sets.committed { self.committed_progress(j, t) } else { self.outlook_progress(j, t) };
            let row = self.require((1.0 * work - progress).leq(0.0));
            self.rows.progress.insert((j, t), row);
        }
        let need = self.need(j);
        self.require((done - need.clone()).leq(0.0));
        if let (Some(&late), Some(deadline)) = (self.columns.late.get(&j), sets.job(j).deadline) {
            let whole = deadline <= sets.problem.as_of || deadline >= sets.problem.end();
            let mut by_deadline = Expression::from(deadline.since(sets.problem.end()).as_hours() * sets.best_speed(j));
            for t in 0..sets.steps {
                let share = if whole { 1.0 } else { (deadline.since(sets.start(t)).as_hours() / sets.hours(t)).min(1.0) };
                if share > 0.0 {
                    by_deadline.add_mul(share, self.columns.work[&(j, t)]);
                }
            }
            self.require((need - by_deadline - late).leq(0.0));
        }
    }

    /// Work left, and what a preemption adds to it.
    fn need(&self, j: usize) -> Expression {
        Expression::from(self.sets.job(j).remaining_s / HOUR_S) + self.redone(j)
    }

    /// Hours of work to be done again: `sum_t redo[t] (k[t-1] - k[t])` with `k[-1] = 1`.
    pub(crate) fn redone(&self, j: usize) -> Expression {
        let mut hours = Expression::from(0.0);
        for t in self.sets.near() {
            let redo = self.sets.redo(j, t) / HOUR_S;
            let (Some(&kept), true) = (self.columns.kept.get(&(j, t)), redo > 0.0) else { continue };
            match t.checked_sub(1) {
                None => hours += Expression::from(redo),
                Some(before) => hours.add_mul(redo, self.columns.kept[&(j, before)]),
            }
            hours.add_mul(-redo, kept);
        }
        hours
    }

    fn committed_progress(&self, j: usize, t: usize) -> Expression {
        let sets = self.sets;
        let mut hours = Expression::from(0.0);
        if let (Some(run), Some(&kept)) = (&sets.runs[j], self.columns.kept.get(&(j, t))) {
            hours.add_mul(sets.resident_speed(j) * sets.hours_after(run.ready_at, t), kept);
        }
        for (b, bin) in self.bins.list.iter().enumerate() {
            let Some(speed) = sets.speed[j][bin.pool] else { continue };
            for tau in 0..=t {
                if let Some(&going) = self.columns.going.get(&(j, b, tau, t)) {
                    hours.add_mul(speed * sets.hours_after(sets.start(tau) + sets.job(j).startup, t), going);
                }
            }
        }
        hours
    }

    /// `sum_p speed (y L - min(startup, L) z)`, less what a run that lasts over the end of the committed part still loads. That difference
    /// counts as zero where it is negative, which takes a binary: `load - q` is what is subtracted, `q > 0` only where nothing is done.
    fn outlook_progress(&mut self, j: usize, t: usize) -> Expression {
        let sets = self.sets;
        let (length, startup) = (sets.hours(t), sets.job(j).startup.as_hours().min(sets.hours(t)));
        let mut hours = Expression::from(0.0);
        let mut fastest: f64 = 0.0;
        for p in 0..sets.usable.len() {
            let Some(&share) = self.columns.share.get(&(j, p, t)) else { continue };
            let speed = sets.job(j).speed.get(&sets.problem.pools[p].id).copied().unwrap_or(0.0);
            fastest = fastest.max(speed);
            hours.add_mul(speed * length, share);
            hours.add_mul(-speed * startup, self.columns.share_started[&(j, p, t)]);
        }
        let (loading, most) = self.loading(j, t);
        if most > 0.0 {
            let (awake, asleep) = (self.integer(0.0, 1.0), self.column(0.0, most));
            self.require((1.0 * asleep + most * awake).leq(most));
            self.require((1.0 * self.columns.work[&(j, t)] - (fastest * length) * awake).leq(0.0));
            hours -= loading;
            hours += asleep;
        }
        hours
    }

    /// Hours of work lost in an outlook step to runs of the committed part that still load, and the most that can be.
    fn loading(&self, j: usize, t: usize) -> (Expression, f64) {
        let sets = self.sets;
        let (last, mut hours, mut most) = (sets.committed - 1, Expression::from(0.0), 0.0_f64);
        let mut add = |lost: f64, column: Column| {
            if lost > 0.0 {
                hours.add_mul(lost, column);
                most = most.max(lost);
            }
        };
        if let (Some(run), Some(&kept)) = (&sets.runs[j], self.columns.kept.get(&(j, last))) {
            add(sets.resident_speed(j) * sets.hours_before(run.ready_at, t), kept);
        }
        for (b, bin) in self.bins.list.iter().enumerate() {
            for tau in sets.near() {
                if let (Some(speed), Some(&going)) = (sets.speed[j][bin.pool], self.columns.going.get(&(j, b, tau, last))) {
                    add(speed * sets.hours_before(sets.start(tau) + sets.job(j).startup, t), going);
                }
            }
        }
        (hours, most)
    }
}
