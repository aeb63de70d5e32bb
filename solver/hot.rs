//! The linear program kept warm: limits of columns change, the basis stays, and a re-solve takes a few pivots.

use crate::program::{Limits, Program};
use crate::search::settle;
use highs::{HighsModelStatus, Model, SolvedModel};

/// A linear program solved to the end.
#[derive(Debug, Clone)]
pub(crate) struct Linear {
    /// Value of each column.
    pub values: Vec<f64>,
    /// Dual of each row: change of the objective for one more on its right-hand side.
    pub duals: Vec<f64>,
    /// Its objective, constant included.
    pub objective: f64,
}

/// No scaling of rows and columns.
const SCALING_OFF: i32 = 0;

/// Scaling as `HiGHS` chooses.
const SCALING_CHOSEN: i32 = 1;

/// A program without integers, between two solves.
pub(crate) struct Hot {
    /// `None` after a failure of `HiGHS` itself.
    model: Option<Model>,
    limits: Vec<Limits>,
    constant: f64,
}

impl Hot {
    /// The program with its integers relaxed.
    ///
    /// # Errors
    /// In words, when `HiGHS` refuses it.
    pub fn new(program: &Program, seconds: f64) -> Result<Self, String> {
        Self::with_scaling(program, seconds, SCALING_OFF)
    }

    /// The program with its integers fixed, from scratch and scaled with care: for where the warm one failed.
    pub fn careful(program: &Program, seconds: f64, values: &[f64]) -> Option<Linear> {
        let mut hot = Self::with_scaling(program, seconds, SCALING_CHOSEN).ok()?;
        hot.fix(program, values);
        hot.solve()
    }

    fn with_scaling(program: &Program, seconds: f64, scale: i32) -> Result<Self, String> {
        let limits: Vec<Limits> = program.limits().iter().map(|l| Limits { integer: false, ..*l }).collect();
        let mut model = program.model(&limits)?;
        settle(&mut model)?;
        // Coefficients lie within a few orders of magnitude; scaling them costs more than it gives.
        model.try_set_option("simplex_scale_strategy", scale).map_err(|_| "HiGHS refuses the option simplex_scale_strategy".to_owned())?;
        model.try_set_option("time_limit", seconds).map_err(|_| "HiGHS refuses the option time_limit".to_owned())?;
        Ok(Self { model: Some(model), limits, constant: program.constant() })
    }

    /// Limits of a column from now on.
    pub fn limit(&mut self, column: usize, least: f64, most: f64) {
        let limits = &mut self.limits[column];
        if (limits.least, limits.most) == (least, most) {
            return;
        }
        (limits.least, limits.most) = (least, most);
        if let Some(model) = &mut self.model
            && !change_limits(model, column, least, most)
        {
            self.model = None;
        }
    }

    /// Fixes every integer column of `program` to its value.
    pub fn fix(&mut self, program: &Program, values: &[f64]) {
        for (column, limits) in program.limits().iter().enumerate().filter(|(_, l)| l.integer) {
            let value = values[column].clamp(limits.least, limits.most);
            self.limit(column, value, value);
        }
    }

    /// Limits of a column now.
    pub fn limits(&self, column: usize) -> (f64, f64) {
        (self.limits[column].least, self.limits[column].most)
    }

    /// Solves from the last basis. `None` when there is no optimum.
    pub fn solve(&mut self) -> Option<Linear> {
        let solved = self.model.take()?.try_solve().ok()?;
        let linear = self.read(&solved);
        self.model = Some(Model::from(solved));
        linear
    }

    fn read(&self, solved: &SolvedModel) -> Option<Linear> {
        if !matches!(solved.status(), HighsModelStatus::Optimal | HighsModelStatus::ModelEmpty) {
            return None;
        }
        let solution = solved.get_solution();
        let objective = solved.objective_value() + self.constant;
        Some(Linear { values: solution.columns().to_vec(), duals: solution.dual_rows().to_vec(), objective })
    }
}

/// Changes the limits of a column of a model that may have been solved; the basis stays.
#[expect(unsafe_code, reason = "the safe binding changes limits only before the first solve")]
fn change_limits(model: &mut Model, column: usize, least: f64, most: f64) -> bool {
    let Ok(column) = highs_sys::HighsInt::try_from(column) else { return false };
    // SAFETY: the pointer is that of a live model; HiGHS refuses a column it does not have and stores nothing of ours.
    let status = unsafe { highs_sys::Highs_changeColBounds(model.as_mut_ptr(), column, least, most) };
    status == highs_sys::STATUS_OK
}
