//! Days and weeks: how demand moves, and how bursty it is.
//!
//! `rate(t) = peak x day(hour) x week(weekday) x growth x launch(t)`, the day given at 24 hours and joined by straight lines. On top come a
//! factor a day (log-normal: some days are busier) and a factor a minute (gamma with mean 1, smoothed over a few minutes). That arrivals of
//! language-model services are burstier than Poisson and well described by gamma distributions is the finding of `ServeGen` (arXiv 2505.09999).

use fleet::{Span, Timestamp};
use rand_distr::{Distribution, Gamma, LogNormal};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// Something new that draws users: rises within `rise`, stays for `plateau`, then fades with the time constant `fade`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Launch {
    /// When it begins.
    pub at: Timestamp,
    /// Requests/s it adds at its height.
    pub height: f64,
    /// Time to its height.
    pub rise: Span,
    /// Time at its height.
    pub plateau: Span,
    /// Time in which it fades to 1/e.
    pub fade: Span,
}

impl Launch {
    /// Requests/s it adds at `at`.
    #[must_use]
    pub fn rate(&self, at: Timestamp) -> f64 {
        if at < self.at {
            return 0.0;
        }
        let passed = at.since(self.at).as_secs_f64();
        let (rise, plateau) = (self.rise.as_secs_f64(), self.plateau.as_secs_f64());
        let share = if passed < rise { passed / rise } else { (-(passed - rise - plateau).max(0.0) / self.fade.as_secs_f64()).exp() };
        self.height * share
    }
}

/// How the demand of a service moves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shape {
    /// Requests/s at the height of a working day.
    pub peak: f64,
    /// Share of the peak at each full hour of a day, UTC.
    pub day: [f64; 24],
    /// Factor of each weekday, Monday first.
    pub week: [f64; 7],
    /// Relative growth a week.
    pub growth_per_week: f64,
    /// Coefficient of variation of the factor a day.
    pub day_cv: f64,
    /// Coefficient of variation of the factor a minute.
    pub minute_cv: f64,
    /// Something new, where there is.
    pub launch: Option<Launch>,
}

/// Weight of the minute before in a minute's factor: bursts last a few minutes.
const MINUTE_MEMORY: f64 = 0.6;

impl Shape {
    /// Requests/s expected at `at`, before any noise; `start` is where growth begins.
    #[must_use]
    pub fn expected(&self, at: Timestamp, start: Timestamp) -> f64 {
        let hour = at.hour();
        let (here, next) = (self.at_hour(hour), self.at_hour(hour + Span::HOUR));
        let share = at.since(hour).as_hours();
        let growth = (1.0 + self.growth_per_week).powf(at.since(start).as_hours() / 168.0);
        self.peak * (here + (next - here) * share) * growth + self.launch.map_or(0.0, |l| l.rate(at))
    }

    fn at_hour(&self, hour: Timestamp) -> f64 {
        let (h, d) = (usize::try_from(hour.hour_of_day()).unwrap_or(0), usize::try_from(hour.weekday()).unwrap_or(0));
        self.day[h % 24] * self.week[d % 7]
    }

    /// Requests/s in each of `minutes` minutes from `start`.
    ///
    /// # Panics
    /// When a coefficient of variation is negative or no number.
    #[must_use]
    pub fn minutes(&self, start: Timestamp, minutes: usize, rng: &mut Pcg64Mcg) -> Vec<f64> {
        // Smoothing with memory m keeps (1 - m) / (1 + m) of the variance; what is drawn has that much more.
        let drawn_cv = self.minute_cv * ((1.0 + MINUTE_MEMORY) / (1.0 - MINUTE_MEMORY)).sqrt();
        let (burst, mood) = (Burst::new(drawn_cv), day_factor(self.day_cv));
        let (mut day, mut now) = (1.0, 1.0);
        let mut out = Vec::with_capacity(minutes);
        for i in 0..minutes {
            let at = start + Span::minutes(i64::try_from(i).unwrap_or(0));
            if i == 0 || at.0.rem_euclid(Span::DAY.0) == 0 {
                day = mood.sample(rng);
            }
            now = MINUTE_MEMORY * now + (1.0 - MINUTE_MEMORY) * burst.draw(rng);
            out.push(self.expected(at, start) * day * now);
        }
        out
    }
}

/// A log-normal factor with mean 1.
fn day_factor(cv: f64) -> LogNormal<f64> {
    let variance = (1.0 + cv * cv).ln();
    LogNormal::new(-variance / 2.0, variance.sqrt()).expect("a coefficient of variation that is not negative")
}

/// A gamma factor with mean 1.
pub(crate) struct Burst(Option<Gamma<f64>>);

impl Burst {
    /// Of that coefficient of variation: shape `1/cv^2`, scale `cv^2`. None: always 1.
    pub fn new(cv: f64) -> Self {
        let variance = cv * cv;
        Self((variance > 0.0).then(|| Gamma::new(1.0 / variance, variance).expect("a coefficient of variation that is a number")))
    }

    pub fn draw(&self, rng: &mut Pcg64Mcg) -> f64 {
        self.0.map_or(1.0, |gamma| gamma.sample(rng))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn shape() -> Shape {
        let mut day = [0.5; 24];
        day[12] = 1.0;
        Shape { peak: 40.0, day, week: [1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5], growth_per_week: 0.0, day_cv: 0.05, minute_cv: 0.1, launch: None }
    }

    #[test]
    fn hours_are_joined_by_straight_lines() {
        let monday = Timestamp(1_767_571_200);
        let at = |minutes| shape().expected(monday + Span::minutes(minutes), monday);
        assert!((at(12 * 60) - 40.0).abs() < 1e-9 && (at(11 * 60 + 30) - 30.0).abs() < 1e-9 && (at(5 * 24 * 60) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn noise_keeps_the_mean_and_has_the_spread_that_was_asked_for() {
        let flat = Shape { day: [1.0; 24], week: [1.0; 7], day_cv: 0.0, ..shape() };
        let rates = flat.minutes(Timestamp(0), 20_000, &mut Pcg64Mcg::seed_from_u64(1));
        let n: f64 = rates.iter().map(|_| 1.0).sum();
        let mean = rates.iter().sum::<f64>() / n;
        let cv = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n).sqrt() / mean;
        assert!((mean - 40.0).abs() < 0.4 && (cv - 0.1).abs() < 0.01, "{mean} {cv}");
        assert!(rates.iter().all(|r| *r >= 0.0));
    }

    #[test]
    fn a_launch_rises_stays_and_fades() {
        let launch = Launch { at: Timestamp(0), height: 20.0, rise: Span(600), plateau: Span(3_600), fade: Span(3_600) };
        let at = |s| launch.rate(Timestamp(s));
        assert!(at(-1).abs() < 1e-9 && (at(300) - 10.0).abs() < 1e-9 && (at(2_000) - 20.0).abs() < 1e-9);
        assert!((at(7_800) - 20.0 / std::f64::consts::E).abs() < 1e-9);
    }
}
