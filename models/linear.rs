//! Regression on lags, calendar and Fourier terms, then on the latest errors.
//!
//! With `z` the root of demand, the base explains an hour by what was known a day before it:
//! `B(t) = a + sum_k b_k z(t - 24 k) + c' calendar(t)`, by least squares on standardised columns with a small ridge and weights that halve in
//! two weeks. Hours more than a day ahead take earlier forecasts in place of lags not known yet. The base knows nothing of the last hours; its
//! latest errors do, and how much of them lasts is fitted for each lead `h` by least squares:
//! `f(T + h) = B(T + h) + rho_h u(T) + kappa_h v(T)`, `u` the errors of the last three hours and `v` of the last day
//! (a direct multi-step forecast as in Marcellino, Stock and Watson 2006).

use crate::calendar::LocalHour;
use crate::history::{CONSTANT_HOURS_MIN, History};
use crate::quantiles::{Row, sound_rows};
use crate::spread::Errors;
use linfa::Dataset;
use linfa::traits::Fit;
use linfa_linear::LinearRegression;
use ndarray::{Array1, Array2};
use std::f64::consts::TAU;

/// Known hours needed: four days, of which two are lags and one gives the first errors.
const KNOWN_HOURS_MIN: usize = 96;

/// From two weeks on the same hour of last week is a column of its own.
const WEEKLY_HOURS_MIN: usize = 2 * 168;

/// Ridge per row: a prior worth one row in fifty that no column matters.
const RIDGE: f64 = 0.02;

/// Age at which a row counts half, in hours.
const HALF_LIFE_HOURS: f64 = 336.0;

/// Days ahead whose errors are measured on their own; later ones take the last.
const DAYS_MAX: usize = 8;

/// Hours whose errors are used: four weeks.
const ERROR_HOURS: usize = 4 * 168;

/// Largest base, as a multiple of the largest root of demand seen (four times the demand): beyond it a regression only extrapolates.
const MOST: f64 = 2.0;

/// Columns at most.
const COLUMNS_MAX: usize = 16;

/// Quantiles of demand for each of `horizon` steps; `None` when the history is too short or nothing can be solved.
pub(crate) fn rows(history: &History, horizon: usize) -> Option<Vec<Row>> {
    if let Some(z) = history.constant().filter(|_| history.count() >= CONSTANT_HOURS_MIN) {
        return sound_rows(vec![[history.demand(z); 8]; horizon]);
    }
    if history.count() < KNOWN_HOURS_MIN {
        return None;
    }
    let base = Base::fit(history)?;
    let by_day = base.by_day(history, horizon);
    let path = base.ahead(history, horizon);
    let recent = Recent::of(history, &by_day[0]);
    let inflation = base.inflation();
    let mut errors = Errors::default();
    let mut centres = Vec::with_capacity(horizon);
    for lead in 1..=horizon {
        let fitted = &by_day[(lead.div_ceil(24) - 1).min(by_day.len() - 1)];
        let correction = Correction::fit(history, fitted, &recent, lead, &mut errors);
        centres.push(path[lead - 1] + correction.at(&recent, history.len()));
    }
    let spread = errors.spread(inflation)?;
    let row = |step: usize| spread.at(step + 1).map(|error| history.demand(centres[step] + error));
    sound_rows((0..horizon).map(row).collect())
}

/// What is known of an hour a day before it.
struct Base {
    weekly: bool,
    centres: Vec<f64>,
    /// Coefficient by standard deviation; zero for columns that never move.
    slopes: Vec<f64>,
    intercept: f64,
    most: f64,
    rows: usize,
    columns: usize,
}

impl Base {
    /// First hour whose lags are all known, which is that of the longest lag.
    fn first(weekly: bool) -> usize {
        if weekly { 168 } else { 48 }
    }

    fn fit(history: &History) -> Option<Self> {
        let weekly = history.len() >= WEEKLY_HOURS_MIN;
        let data = Data::of(history, weekly);
        let total: f64 = data.weights.iter().sum();
        if data.x.len() < 24 || total <= 0.0 {
            return None;
        }
        let mean = |value: &dyn Fn(usize) -> f64| data.weights.iter().enumerate().map(|(i, w)| w * value(i)).sum::<f64>() / total;
        let intercept = mean(&|i| data.y[i]);
        let centres: Vec<f64> = (0..COLUMNS_MAX).map(|c| mean(&|i| data.x[i][c])).collect();
        let deviations: Vec<f64> = (0..COLUMNS_MAX).map(|c| mean(&|i| (data.x[i][c] - centres[c]).powi(2)).sqrt()).collect();
        let used: Vec<usize> = (0..COLUMNS_MAX).filter(|c| deviations[*c] > 1e-9).collect();
        let standardised = |i: usize, c: usize| (data.x[i][c] - centres[c]) / deviations[c];
        let found = data.solve(&used, standardised, intercept, RIDGE * total)?;
        let mut slopes = vec![0.0; COLUMNS_MAX];
        for (c, slope) in used.iter().zip(found) {
            slopes[*c] = slope / deviations[*c];
        }
        let most = MOST * history.filled.iter().copied().fold(0.0, f64::max);
        Some(Self { weekly, centres, slopes, intercept, most, rows: data.x.len(), columns: used.len() })
    }

    fn value(&self, hour: LocalHour, t: usize, lag: impl Fn(usize) -> f64) -> f64 {
        let x = columns(hour, self.weekly, t, lag);
        let sum: f64 = x.iter().zip(&self.centres).zip(&self.slopes).map(|((x, centre), slope)| (x - centre) * slope).sum();
        (self.intercept + sum).clamp(0.0, self.most)
    }

    /// What the base would have said of every known hour one, two, ... days ahead: lags newer than that are its own forecasts.
    fn by_day(&self, history: &History, horizon: usize) -> Vec<Vec<f64>> {
        let days = horizon.div_ceil(24).clamp(1, DAYS_MAX);
        let first = Self::first(self.weekly);
        let mut all: Vec<Vec<f64>> = Vec::with_capacity(days);
        for day in 1..=days {
            let said = (0..history.len()).map(|t| {
                if t < first {
                    return history.filled[t];
                }
                let lag = |back: usize| if back / 24 < day { all[day - back / 24 - 1][t - back] } else { history.filled[t - back] };
                self.value(history.calendar[t], t, lag)
            });
            let said = said.collect();
            all.push(said);
        }
        all
    }

    /// The base over the horizon.
    fn ahead(&self, history: &History, horizon: usize) -> Vec<f64> {
        let n = history.len();
        let mut z = history.filled.clone();
        for t in n..n + horizon {
            let value = self.value(history.calendar[t], t, |back| z[t - back]);
            z.push(value);
        }
        z.split_off(n)
    }

    /// In-sample errors are smaller than those to come by about `sqrt(1 - columns / rows)`.
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    fn inflation(&self) -> f64 {
        let spent = (self.columns as f64 / self.rows as f64).min(0.5);
        1.0 / (1.0 - spent).sqrt()
    }
}

/// The known hours a base is fitted to, one row each.
struct Data {
    x: Vec<[f64; COLUMNS_MAX]>,
    y: Vec<f64>,
    weights: Vec<f64>,
}

impl Data {
    #[expect(clippy::cast_precision_loss, reason = "hours of six weeks")]
    fn of(history: &History, weekly: bool) -> Self {
        let n = history.len();
        let hours: Vec<usize> = (Base::first(weekly)..n).filter(|t| history.known[*t].is_some()).collect();
        Self {
            x: hours.iter().map(|t| columns(history.calendar[*t], weekly, *t, |back| history.filled[t - back])).collect(),
            y: hours.iter().filter_map(|t| history.known[*t]).collect(),
            weights: hours.iter().map(|t| 0.5_f64.powf((n - t) as f64 / HALF_LIFE_HOURS)).collect(),
        }
    }

    /// Weighted ridge regression on the columns `used`. Least squares sees the ridge as one row more a column.
    fn solve(&self, used: &[usize], standardised: impl Fn(usize, usize) -> f64, intercept: f64, ridge: f64) -> Option<Vec<f64>> {
        let m = self.x.len();
        // linfa panics on data without columns.
        if used.is_empty() {
            return None;
        }
        let mut a = Array2::<f64>::zeros((m + used.len(), used.len()));
        let mut b = Array1::<f64>::zeros(m + used.len());
        for i in 0..m {
            let root = self.weights[i].sqrt();
            for (j, c) in used.iter().enumerate() {
                a[[i, j]] = root * standardised(i, *c);
            }
            b[i] = root * (self.y[i] - intercept);
        }
        for j in 0..used.len() {
            a[[m + j, j]] = ridge.sqrt();
        }
        // It lets NaN pass without a word.
        if a.iter().chain(&b).any(|v| !v.is_finite()) {
            return None;
        }
        let fitted = LinearRegression::new().with_intercept(false).fit(&Dataset::new(a, b)).ok()?;
        fitted.params().iter().all(|v| v.is_finite()).then(|| fitted.params().to_vec())
    }
}

/// The columns of hour `t`. `lag(k)` is `z` so many hours before, for multiples of 24.
fn columns(hour: LocalHour, weekly: bool, t: usize, lag: impl Fn(usize) -> f64) -> [f64; COLUMNS_MAX] {
    let mut x = [0.0; COLUMNS_MAX];
    let days = (t / 24).min(7);
    let mut sum = 0.0;
    for day in 1..=days {
        sum += lag(24 * day);
    }
    x[0] = lag(24);
    x[1] = lag(48);
    x[2] = if days == 0 { 0.0 } else { sum / f64::from(u32::try_from(days).unwrap_or(1)) };
    x[3] = if weekly { lag(168) } else { 0.0 };
    for k in 1..=4_u32 {
        let (sin, cos) = (TAU * f64::from(k) * f64::from(hour.hour) / 24.0).sin_cos();
        x[2 + 2 * k as usize] = sin;
        x[3 + 2 * k as usize] = cos;
    }
    if hour.weekend && weekly {
        let (sin, cos) = (TAU * f64::from(hour.hour) / 24.0).sin_cos();
        (x[12], x[13], x[14]) = (1.0, sin, cos);
    }
    x
}

/// The latest errors of the base at every hour: `(u, v)` as known just before it.
struct Recent(Vec<(f64, f64)>);

impl Recent {
    /// Weights of the last hour, the one before and the one before that.
    const LAST: [f64; 3] = [0.6, 0.3, 0.1];

    fn of(history: &History, base: &[f64]) -> Self {
        let error: Vec<Option<f64>> = history.known.iter().zip(base).map(|(z, b)| z.map(|z| z - b)).collect();
        let weighted = |pairs: &mut dyn Iterator<Item = (f64, Option<f64>)>| {
            let (sum, weight) = pairs.fold((0.0, 0.0), |(sum, weight), (w, e)| e.map_or((sum, weight), |e| (sum + w * e, weight + w)));
            if weight > 0.0 { sum / weight } else { 0.0 }
        };
        let at = |t: usize| {
            let before = |count: usize| error[t.saturating_sub(count)..t].iter().rev().copied();
            (weighted(&mut Self::LAST.into_iter().zip(before(3))), weighted(&mut before(24).map(|e| (1.0, e))))
        };
        Self((0..=history.len()).map(at).collect())
    }
}

/// How much of the latest errors lasts until one lead.
struct Correction {
    rho: f64,
    kappa: f64,
}

impl Correction {
    /// Fits both factors on the last four weeks and adds what they leave to `errors`.
    fn fit(history: &History, base: &[f64], recent: &Recent, lead: usize, errors: &mut Errors) -> Self {
        let n = history.len();
        let first = (n.saturating_sub(ERROR_HOURS)).max(48 + 24);
        let triples = || (first + lead - 1..n).filter_map(|t| history.known[t].map(|z| (recent.0[t + 1 - lead], z - base[t])));
        let (mut uu, mut uv, mut vv, mut ue, mut ve, mut count) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for ((u, v), e) in triples() {
            uu += u * u;
            uv += u * v;
            vv += v * v;
            ue += u * e;
            ve += v * e;
            count += 1.0;
        }
        // Worth a day of hours that nothing lasts.
        let shrink = 1.0 + 24.0 / (1.0 + count);
        let (uu, vv) = (uu * shrink + 1e-12, vv * shrink + 1e-12);
        let determinant = uu * vv - uv * uv;
        let (rho, kappa) = if determinant > 1e-12 * uu * vv { ((ue * vv - ve * uv) / determinant, (ve * uu - ue * uv) / determinant) } else { (0.0, 0.0) };
        let correction = Self { rho: rho.clamp(-0.3, 1.2), kappa: kappa.clamp(-0.5, 1.2) };
        for ((u, v), e) in triples() {
            errors.add(lead, e - correction.rho * u - correction.kappa * v);
        }
        correction
    }

    fn at(&self, recent: &Recent, t: usize) -> f64 {
        let (u, v) = recent.0[t];
        self.rho * u + self.kappa * v
    }
}
