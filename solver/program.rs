//! The program: its variables, and the bookkeeping of columns and rows.

use crate::bins::Bins;
use crate::sets::Sets;
use good_lp::{Constraint, Expression, IntoAffineExpression, ProblemVariables, SolverModel, Variable, variable};
use std::collections::BTreeMap;
use std::ops::Mul;

/// A variable and the index of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    variable: Variable,
    /// Position among the columns, and so in a vector of values.
    pub index: usize,
}

impl IntoAffineExpression for Column {
    type Iter = std::iter::Once<(Variable, f64)>;

    fn linear_coefficients(self) -> Self::Iter {
        std::iter::once((self.variable, 1.0))
    }
}

impl Mul<Column> for f64 {
    type Output = Expression;

    fn mul(self, column: Column) -> Expression {
        column.variable * self
    }
}

/// What a column may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    pub least: f64,
    pub most: f64,
    pub integer: bool,
}

/// The columns by meaning. A key that is absent stands for a variable that is zero.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    /// `r[v,b,t]`, `t < C`: replicas that hold GPUs. Integer.
    pub held: BTreeMap<(usize, usize, usize), Column>,
    /// `s[v,b,t]`: replicas that begin at `start(t)`.
    pub started: BTreeMap<(usize, usize, usize), Column>,
    /// `d[v,b,t]`: replicas that end at `start(t)`.
    pub stopped: BTreeMap<(usize, usize, usize), Column>,
    /// `R[v,p,t]`, `t >= C`.
    pub far_held: BTreeMap<(usize, usize, usize), Column>,
    /// `S[v,p,t]`.
    pub far_started: BTreeMap<(usize, usize, usize), Column>,
    /// `D[v,p,t]`.
    pub far_stopped: BTreeMap<(usize, usize, usize), Column>,
    /// `x[w,v,t]`: load, requests/s.
    pub load: BTreeMap<(usize, usize, usize), Column>,
    /// `u[w,t]`: load not served, requests/s.
    pub short: BTreeMap<(usize, usize), Column>,
    /// Replicas below the minimum of `w`.
    pub below: BTreeMap<(usize, usize), Column>,
    /// Replicas above the maximum of `w`.
    pub above: BTreeMap<(usize, usize), Column>,
    /// `k[j,t]`: the resident run covers step `t`. Binary; one column for steps between which it may not end.
    pub kept: BTreeMap<(usize, usize), Column>,
    /// `g[j,b,tau,t]`: a run begun at `start(tau)` covers step `t`. Binary; one column for steps between which it may not end.
    pub going: BTreeMap<(usize, usize, usize, usize), Column>,
    /// `y[j,p,t]`, `t >= C`: share of the gang.
    pub share: BTreeMap<(usize, usize, usize), Column>,
    /// `z[j,p,t]`: share that begins.
    pub share_started: BTreeMap<(usize, usize, usize), Column>,
    /// `w[j,t]`: useful work, hours at speed 1.
    pub work: BTreeMap<(usize, usize), Column>,
    /// Work not done by the deadline, hours at speed 1.
    pub late: BTreeMap<usize, Column>,
}

/// Rows whose duals are read later.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Demand of `w` in `t`.
    pub demand: BTreeMap<(usize, usize), usize>,
    /// Load through `v` in `t` against what is ready.
    pub serving: BTreeMap<(usize, usize), usize>,
    /// GPUs of a pool in an outlook step.
    pub pool: BTreeMap<(usize, usize), usize>,
    /// Work of `j` in `t` against progress.
    pub progress: BTreeMap<(usize, usize), usize>,
}

/// A mixed-integer program over given bins.
pub(crate) struct Program<'a> {
    pub sets: &'a Sets<'a>,
    pub bins: &'a Bins,
    pub columns: Columns,
    pub rows: Rows,
    limits: Vec<Limits>,
    variables: ProblemVariables,
    constraints: Vec<Constraint>,
    objective: Expression,
}

impl<'a> Program<'a> {
    /// The whole formulation: see the head of the crate.
    pub fn new(sets: &'a Sets<'a>, bins: &'a Bins) -> Self {
        let mut program = Self {
            sets,
            bins,
            columns: Columns::default(),
            rows: Rows::default(),
            limits: Vec::new(),
            variables: ProblemVariables::new(),
            constraints: Vec::new(),
            objective: Expression::from(0.0),
        };
        program.declare_replicas();
        program.declare_services();
        program.declare_jobs();
        program.add_balance();
        program.add_cold_starts();
        program.add_gpus();
        program.add_bounds();
        program.add_jobs();
        program.add_objective();
        program
    }

    /// A new column. Its number of units is between `least` and `most`.
    pub fn column(&mut self, least: f64, most: f64) -> Column {
        self.declare(Limits { least, most, integer: false })
    }

    /// A new column that takes whole numbers.
    pub fn integer(&mut self, least: f64, most: f64) -> Column {
        self.declare(Limits { least, most, integer: true })
    }

    fn declare(&mut self, limits: Limits) -> Column {
        let index = self.limits.len();
        self.limits.push(limits);
        Column { variable: self.variables.add(variable()), index }
    }

    /// Adds a row; its index.
    pub fn require(&mut self, constraint: Constraint) -> usize {
        self.constraints.push(constraint);
        self.constraints.len() - 1
    }

    /// Adds to the objective.
    pub fn pay(&mut self, money: f64, what: impl IntoAffineExpression) {
        if money != 0.0 {
            self.objective.add_mul(money, what);
        }
    }

    /// What the objective holds besides its columns.
    pub fn constant(&self) -> f64 {
        IntoAffineExpression::constant(&&self.objective)
    }

    /// Limits of the columns, in order.
    pub fn limits(&self) -> &[Limits] {
        &self.limits
    }

    /// Columns, rows and integer columns.
    pub fn size(&self) -> [u64; 3] {
        let integers = self.limits.iter().filter(|l| l.integer).count();
        [self.limits.len() as u64, self.constraints.len() as u64, integers as u64]
    }

    /// The model for `HiGHS` with other limits than the program's own: integers relaxed or fixed.
    ///
    /// # Errors
    /// In words, when `HiGHS` refuses it.
    pub fn model(&self, limits: &[Limits]) -> Result<highs::Model, String> {
        let mut variables = ProblemVariables::new();
        for limit in limits {
            let definition = variable().min(limit.least).max(limit.most);
            variables.add(if limit.integer { definition.integer() } else { definition });
        }
        let mut model = variables.minimise(&self.objective).using(good_lp::highs);
        for constraint in &self.constraints {
            model.add_constraint(constraint.clone());
        }
        model.try_into_inner().map_err(|e| e.to_string())
    }

    fn declare_replicas(&mut self) {
        let (sets, bins) = (self.sets, self.bins);
        for v in 0..sets.problem.variants.len() {
            for (b, bin) in bins.list.iter().enumerate() {
                let resident = sets.replicas.iter().filter(|r| r.variant == v && bin.islands.contains(&r.island)).map(|_| 1).sum::<u32>();
                let starts = sets.may_start[v][bin.pool];
                let most = if starts { self.room(b, sets.variant(v).gpus) } else { 0 }.max(resident);
                if most == 0 {
                    continue;
                }
                for t in sets.near() {
                    let held = self.integer(0.0, f64::from(most));
                    self.columns.held.insert((v, b, t), held);
                    let stopped = self.column(0.0, f64::from(most));
                    self.columns.stopped.insert((v, b, t), stopped);
                    if starts {
                        let started = self.column(0.0, f64::from(most));
                        self.columns.started.insert((v, b, t), started);
                    }
                }
            }
            self.declare_outlook(v);
        }
    }

    fn declare_outlook(&mut self, v: usize) {
        let (sets, bins) = (self.sets, self.bins);
        for p in 0..sets.usable.len() {
            let known = bins.list.iter().enumerate().any(|(b, bin)| bin.pool == p && self.columns.held.contains_key(&(v, b, 0)));
            for t in sets.far().filter(|_| known) {
                let most = f64::from(sets.usable[p]);
                let held = self.column(0.0, most);
                self.columns.far_held.insert((v, p, t), held);
                let stopped = self.column(0.0, most);
                self.columns.far_stopped.insert((v, p, t), stopped);
                if sets.may_start[v][p] {
                    let started = self.column(0.0, most);
                    self.columns.far_started.insert((v, p, t), started);
                }
            }
        }
    }

    /// Items of so many GPUs that the islands of a bin can hold at once.
    pub fn room(&self, b: usize, gpus: u32) -> u32 {
        self.bins.list[b].islands.iter().map(|i| self.sets.islands[*i].size() / gpus.max(1)).sum()
    }
}
