//! A dive: from the linear relaxation down to whole numbers, one decision at a time, each step a warm re-solve.
//!
//! The relaxation of this program is tight, so that a short search in depth often finds a solution within the gap asked for; then there is
//! nothing left to search for. In each node the column nearest below a whole number is decided: a run begins now or not at all in its bin;
//! a run that is under way goes on to the end of the committed part or ends here; a count is rounded up or down. Sides that cost more than
//! the gap allows are left. The number of re-solves is limited; what is not found by then is left to branch and bound.

use crate::hot::{Hot, Linear};
use crate::program::Program;
use std::collections::BTreeMap;

/// A value this close to a whole number is one.
const WHOLE: f64 = 1e-6;

/// Re-solves of one dive that a tree may follow.
const SOLVES_MAX: u32 = 60;

/// Re-solves of a dive that must find something.
const SOLVES_MAX_ALONE: u32 = 400;

/// Part of what may still be spent for which a side is taken without a look at the other.
const CHEAP: f64 = 0.3;

/// A column with new limits.
type Limit = (usize, f64, f64);

/// Whole numbers that cost at most `cutoff`, with their linear program. `None` when none was found in time. `budget` is what the search hopes to
/// spend above the relaxation: sides that take a small part of it are entered without a look at the other.
pub(crate) fn dive(program: &Program, hot: &mut Hot, relaxed: &Linear, budget: f64, cutoff: f64) -> Option<Linear> {
    let integers = program.limits().iter().enumerate().filter(|(_, l)| l.integer).map(|(column, _)| column).collect();
    let mut alternatives: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut bins: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for ((j, b, _, _), column) in &program.columns.going {
        bins.entry((*j, *b)).or_default().push(column.index);
    }
    for columns in bins.values() {
        alternatives.extend(columns.iter().map(|c| (*c, columns.clone())));
    }
    let mut later: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for ((j, t), column) in &program.columns.kept {
        let columns = program.columns.kept.range((*j, *t)..(*j + 1, 0)).map(|(_, c)| c.index).collect();
        later.entry(column.index).or_insert(columns);
    }
    let mut dive = Dive { program, hot, integers, alternatives, later, budget, cutoff, left: if cutoff.is_finite() { SOLVES_MAX } else { SOLVES_MAX_ALONE } };
    dive.descend(relaxed)
}

struct Dive<'a, 'p> {
    program: &'a Program<'p>,
    hot: &'a mut Hot,
    integers: Vec<usize>,
    /// Runs of the same job in the same bin.
    alternatives: BTreeMap<usize, Vec<usize>>,
    /// A resident run in this and later steps.
    later: BTreeMap<usize, Vec<usize>>,
    budget: f64,
    cutoff: f64,
    left: u32,
}

impl Dive<'_, '_> {
    /// Solves below a node, depth first.
    fn descend(&mut self, node: &Linear) -> Option<Linear> {
        let Some(column) = self.next(node) else {
            self.hot.fix(self.program, &node.values.iter().map(|x| x.round()).collect::<Vec<_>>());
            return self.hot.solve().filter(|l| l.objective <= self.cutoff);
        };
        let [up, down] = self.sides(column, node.values[column]);
        let cheap = node.objective + CHEAP * (self.cutoff - node.objective).min(self.budget);
        let above = self.look(&up);
        if let Some(above) = above.as_ref().filter(|l| l.objective <= cheap) {
            return self.enter(&up, above).or_else(|| self.look(&down).and_then(|below| self.enter(&down, &below)));
        }
        let below = self.look(&down);
        let mut sides: Vec<_> = above.map(|l| (&up, l)).into_iter().chain(below.map(|l| (&down, l))).collect();
        sides.sort_by(|a, b| a.1.objective.total_cmp(&b.1.objective));
        sides.into_iter().find_map(|(side, linear)| self.enter(side, &linear))
    }

    /// The linear program of one side, if it is worth following; the limits are as before.
    fn look(&mut self, side: &[Limit]) -> Option<Linear> {
        self.left = self.left.checked_sub(1)?;
        let before = self.apply(side);
        let linear = self.hot.solve().filter(|l| l.objective <= self.cutoff);
        self.apply(&before);
        linear
    }

    /// Descends into one side; the limits are as before when it leads nowhere.
    fn enter(&mut self, side: &[Limit], linear: &Linear) -> Option<Linear> {
        let before = self.apply(side);
        let found = self.descend(linear);
        if found.is_none() {
            self.apply(&before);
        }
        found
    }

    /// Sets limits; the ones they replace.
    fn apply(&mut self, side: &[Limit]) -> Vec<Limit> {
        let before = side.iter().map(|(column, _, _)| (*column, self.hot.limits(*column).0, self.hot.limits(*column).1)).collect();
        for (column, least, most) in side {
            self.hot.limit(*column, *least, *most);
        }
        before
    }

    /// What may be decided about a column: up, down.
    fn sides(&self, column: usize, value: f64) -> [Vec<Limit>; 2] {
        let (least, most) = self.hot.limits(column);
        if let Some(columns) = self.later.get(&column) {
            return [columns.iter().map(|c| (*c, 1.0, 1.0)).collect(), vec![(column, 0.0, 0.0)]];
        }
        if let Some(columns) = self.alternatives.get(&column) {
            return [vec![(column, 1.0, 1.0)], columns.iter().filter(|c| self.hot.limits(**c).0 < 0.5).map(|c| (*c, 0.0, 0.0)).collect()];
        }
        [vec![(column, value.ceil(), most)], vec![(column, least, value.floor())]]
    }

    /// The open column that lies nearest below a whole number.
    fn next(&self, node: &Linear) -> Option<usize> {
        let open = self.integers.iter().copied().filter(|c| (node.values[*c] - node.values[*c].round()).abs() > WHOLE);
        open.min_by(|a, b| {
            let below = |c: usize| node.values[c].ceil() - node.values[c];
            below(*a).total_cmp(&below(*b)).then(a.cmp(b))
        })
    }
}
