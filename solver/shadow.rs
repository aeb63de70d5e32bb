//! Shadow prices: what one more unit would be worth, from the linear program with the integers fixed (the duals of a MIP are all zero).
//!
//! A service: the dual of its demand, per request/s and hour. A pool in the outlook: the dual of its GPUs, per GPU-hour. In the committed
//! part the counts are fixed, and with them the GPUs; there a GPU is worth what the best that fits it would make of it at once: a ready
//! replica more, or an hour more of a waiting job.

use crate::hot::Linear;
use crate::program::Program;
use fleet::{Binding, ShadowPrice};

/// Prices below this are noise of the linear program.
const PRICE_MIN: f64 = 1e-7;

/// All prices above zero, ordered by what is scarce and step.
pub(crate) fn prices(program: &Program, linear: &Linear) -> Vec<ShadowPrice> {
    let sets = program.sets;
    let mut prices = Vec::new();
    for p in 0..sets.usable.len() {
        for t in 0..sets.steps {
            let value = match program.rows.pool.get(&(p, t)) {
                Some(row) => -linear.duals[*row] / sets.hours(t),
                None => worth_of_gpu(program, linear, p, t),
            };
            prices.push(ShadowPrice { of: Binding::Pool(sets.problem.pools[p].id.clone()), step: t, value });
        }
    }
    for ((w, t), row) in &program.rows.demand {
        prices.push(ShadowPrice { of: Binding::Service(sets.service(*w).id.clone()), step: *t, value: linear.duals[*row] / sets.hours(*t) });
    }
    prices.retain(|p| p.value.is_finite() && p.value > PRICE_MIN);
    prices.sort_by(|a, b| (&a.of, a.step).cmp(&(&b.of, b.step)));
    prices
}

/// What the best use of one more GPU of pool `p` in committed step `t` earns an hour.
fn worth_of_gpu(program: &Program, linear: &Linear, p: usize, t: usize) -> f64 {
    let sets = program.sets;
    let replicas = (0..sets.problem.variants.len()).filter(|v| sets.may_start[*v][p]).filter_map(|v| {
        let row = program.rows.serving.get(&(v, t))?;
        Some(-linear.duals[*row] / f64::from(sets.variant(v).gpus) / sets.hours(t))
    });
    let jobs = (0..sets.problem.jobs.len()).filter(|j| sets.start(t) >= sets.job(*j).earliest).filter_map(|j| {
        let row = program.rows.progress.get(&(j, t))?;
        Some(-linear.duals[*row] * sets.speed[j][p]? / f64::from(sets.job(j).gang))
    });
    replicas.chain(jobs).fold(0.0, f64::max)
}
