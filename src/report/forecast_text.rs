//! A forecast by hour, and scores of forecasters.

use crate::{Align, Grid, Look, look::paint, number::NOT_KNOWN, number::rate_decimals};
use anstyle::Style;
use fleet::{Forecast, quantile_at};
use serde::{Deserialize, Serialize};

/// Eight heights, low to high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same in ASCII.
const BARS_ASCII: [char; 8] = ['_', '.', ',', '-', '=', '+', '*', '#'];
/// Columns of the picture of a band, at most.
const PICTURE_MAX: usize = 60;
/// Columns of the picture of a band below which it is left out.
const PICTURE_MIN: usize = 12;

/// A row of bars, one a value, from zero to the largest; a gap is a blank.
#[must_use]
pub fn sparkline(values: &[Option<f64>], ascii: bool) -> String {
    let known = || values.iter().flatten().copied().filter(|v| v.is_finite());
    let top = known().fold(0.0, f64::max);
    let bars = if ascii { BARS_ASCII } else { BARS };
    let bar = |value: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of seven")]
        let height = if top > 0.0 { (value.max(0.0) / top * 7.0).round() as usize } else { 0 };
        bars[height.min(7)]
    };
    values.iter().map(|v| v.filter(|v| v.is_finite()).map_or(' ', bar)).collect()
}

/// A service's forecast: a caption with a sparkline of the median, then one line a step with p5, p50, p95 (requests/s) and the band as a picture.
#[must_use]
pub fn forecast_text(forecast: &Forecast, look: Look) -> String {
    let quantiles: Vec<[f64; 3]> = forecast.values.iter().map(|row| [0.05, 0.5, 0.95].map(|level| quantile_at(&forecast.levels, row, level))).collect();
    let top = quantiles.iter().map(|q| q[2]).fold(0.0, f64::max);
    let decimals = rate_decimals(top);
    let mut lines = vec![caption(forecast, &quantiles, look)];
    if quantiles.is_empty() {
        lines.push(format!("  {NOT_KNOWN}: no step ahead could be forecast"));
    }
    let mut grid = Grid::new(&[Align::Left, Align::Right, Align::Right, Align::Right, Align::Left], 2);
    grid.row(look.palette.dim, ["hour (UTC)", "p5", "p50", "p95", "p5 to p95, req/s"]);
    let numbers = 2 + 14 + 3 * (2 + crate::decimal(top, decimals).chars().count().max(3)) + 2;
    let picture = look.width.saturating_sub(numbers).min(PICTURE_MAX);
    let mut day = String::new();
    for (index, q) in (0_i64..).zip(&quantiles) {
        let at = fleet::Timestamp(forecast.start.0 + forecast.step.0 * index);
        let date = at.to_string().chars().skip(5).take(5).collect::<String>();
        let label = if date == day { format!("      {}", at.clock()) } else { format!("{date} {}", at.clock()) };
        day = date;
        let band = if picture >= PICTURE_MIN { band(q, top, picture, look.ascii) } else { String::new() };
        grid.row(Style::new(), [label, crate::decimal(q[0], decimals), crate::decimal(q[1], decimals), crate::decimal(q[2], decimals), band]);
    }
    if !quantiles.is_empty() {
        lines.extend(grid.lines(look.width - 2, look.ascii).iter().map(|l| format!("  {l}")));
    }
    lines.join("\n") + "\n"
}

fn caption(forecast: &Forecast, quantiles: &[[f64; 3]], look: Look) -> String {
    let medians: Vec<Option<f64>> = quantiles.iter().map(|q| Some(q[1])).collect();
    let title = paint(forecast.workload.as_str(), look.palette.strong);
    let about = format!("req/s, {} from {}, calibration {}", forecast.forecaster, forecast.origin, forecast.calibration);
    let room = look.width.saturating_sub(forecast.workload.as_str().chars().count() + about.chars().count() + 4);
    let spark = if medians.len() <= room { format!("  {}", sparkline(&medians, look.ascii)) } else { String::new() };
    format!("{title}  {about}{spark}")
}

fn band(q: &[f64; 3], top: f64, width: usize, ascii: bool) -> String {
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of some columns")]
    let place = |value: f64| if top > 0.0 { (value.max(0.0) / top * (width - 1) as f64).round() as usize } else { 0 };
    let [low, mid, high] = [place(q[0]), place(q[1]), place(q[2])];
    let (line, point) = if ascii { ('-', 'o') } else { ('─', '●') };
    (0..=high)
        .map(|c| {
            if c == mid {
                point
            } else if c >= low {
                line
            } else {
                ' '
            }
        })
        .collect()
}

/// Scores of one forecaster on one workload by rolling origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BacktestRow {
    /// Whose demand.
    pub workload: String,
    /// Which method.
    pub forecaster: String,
    /// Mean pinball loss over levels and steps, in units of mean demand (weighted quantile loss). `None`: it could not forecast.
    pub wql: Option<f64>,
    /// Share of outcomes between p5 and p95 (0.90 is wanted).
    pub coverage: Option<f64>,
    /// Steps scored.
    pub scored: usize,
    /// It is the one that is used.
    pub chosen: bool,
}

/// Scores side by side; the forecaster that is used is marked.
#[must_use]
pub fn backtest_text(rows: &[BacktestRow], look: Look) -> String {
    let mut grid = Grid::new(&[Align::Left, Align::Left, Align::Right, Align::Right, Align::Right, Align::Left], 2);
    grid.row(look.palette.dim, ["workload", "forecaster", "WQL", "in p5-p95", "steps", ""]);
    for row in rows {
        let style = if row.chosen { look.palette.strong } else { Style::new() };
        let wql = crate::or_na(row.wql, |v| crate::decimal(v, 3));
        let cells = [row.workload.clone(), row.forecaster.clone(), wql, crate::percent(row.coverage, 0), crate::number::thousands(row.scored)];
        grid.row(style, cells.into_iter().chain([if row.chosen { "used".to_owned() } else { String::new() }]));
    }
    grid.lines(look.width, look.ascii).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::{ForecastId, LEVELS, Span, Timestamp, WorkloadId};

    fn forecast(hours: i32) -> Forecast {
        let row = |h: i32| {
            let mid = 20.0 + 18.0 * (f64::from(h) / 24.0 * std::f64::consts::TAU).sin();
            LEVELS.iter().map(|l| mid * (0.6 + 0.8 * l)).collect()
        };
        Forecast {
            id: ForecastId::new("f").unwrap(),
            workload: WorkloadId::new("chat").unwrap(),
            origin: "2026-12-01T09:00:00Z".parse().unwrap(),
            start: Timestamp(1_796_115_600),
            step: Span::HOUR,
            levels: LEVELS.to_vec(),
            values: (0..hours).map(row).collect(),
            forecaster: "mstl_ets".into(),
            calibration: 7,
        }
    }

    #[test]
    fn a_forecast_fits_every_width() {
        for width in [80, 100, 160] {
            let text = forecast_text(&forecast(24), Look::plain(width));
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            insta::assert_snapshot!(format!("forecast_{width}"), text);
        }
        let ascii = forecast_text(&forecast(24), Look::plain(80).in_ascii());
        assert!(ascii.is_ascii());
    }

    #[test]
    fn an_empty_forecast_is_not_a_forecast_of_zero() {
        let text = forecast_text(&forecast(0), Look::plain(80));
        assert!(text.contains("n/a") && !text.contains("0.0"), "{text}");
    }

    #[test]
    fn a_gap_is_a_blank_and_zero_is_the_lowest_bar() {
        assert_eq!(sparkline(&[Some(0.0), None, Some(7.0), Some(3.5)], false), "▁ █▅");
        assert_eq!(sparkline(&[None, Some(f64::NAN)], true), "  ");
    }

    #[test]
    fn scores_that_do_not_exist_are_not_zero() {
        let row = |forecaster: &str, wql, chosen| BacktestRow {
            workload: "chat".into(),
            forecaster: forecaster.into(),
            wql,
            coverage: wql.map(|_| 0.91),
            scored: 1_344,
            chosen,
        };
        let text = backtest_text(&[row("mstl_ets", Some(0.081), true), row("linear", None, false)], Look::plain(80));
        insta::assert_snapshot!(text, @r"
        workload  forecaster    WQL  in p5-p95  steps
        chat      mstl_ets    0.081        91%  1,344  used
        chat      linear        n/a        n/a  1,344
        ");
    }
}
