//! What people read: the plan as a diff, the forecast by hour, the demo's screen and the one-file HTML report.
//!
//! Everything here is a pure function from values to text. Nothing is printed: the caller passes the width and the styles in a [`Look`]
//! and does with the text what it likes. What is not known is shown as `n/a`, never as 0; money carries its currency; a column has one unit;
//! colour never carries a meaning alone.
//!
//! | for | call |
//! |---|---|
//! | a plan against what runs now | [`PlanDiff::of`], [`plan_text()`] |
//! | a forecast, or scores of forecasters | [`forecast_text()`], [`backtest_text`] |
//! | the demo's screen | [`demo_text()`] from a [`DemoSummary`] |
//! | the report to keep and send | [`html()`] from a [`Report`] |

mod demo;
mod demo_text;
mod diff;
mod forecast_text;
mod grid;
mod html;
mod html_bars;
mod html_demand;
mod html_map;
mod look;
mod names;
mod number;
mod plan_text;
#[cfg(test)]
mod sample;
mod svg;

pub use demo::{
    DayMap, DecisionOption, DecisionResult, DecisionSummary, DemoSummary, ForecastScore, GpuMap, GpuRow, Learned, MapKey, PeriodSummary, PolicyName,
    PolicySummary, Report, ServiceChart, Strip, WorstMiss,
};
pub use demo_text::demo_text;
pub use diff::{Change, ChangeKind, PlanDiff};
pub use forecast_text::{BacktestRow, backtest_text, forecast_text, sparkline};
pub use grid::{Align, Grid};
pub use html::{HtmlError, html};
pub use look::{Look, Palette, wrap};
pub use names::gpu_names;
pub use number::{decimal, money, or_na, percent, rate};
pub use plan_text::plan_text;
