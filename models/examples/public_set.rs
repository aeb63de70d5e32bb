//! Forecasts a set of public hourly series at rolling origins and writes one CSV a forecaster, for an outside scorer.
//!
//! `cargo run --release -p models --example public_set -- SET.csv SERIES_DIR OUT_DIR [EVERY_HOURS]`. `SET.csv` names the series in its first
//! column; `SERIES_DIR/NAME.csv` holds `timestamp,value` by hour. Between the origins written a forecast is made
//! every hour and learned from an hour later, as in production.

use fleet::{Calibration, Outcome, OutcomeId, Series, ServiceOutcome, Span, Timestamp, WorkloadId};
use models::{ForecastSet, Request, forecast, learn};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

const HORIZON: usize = 24;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [set, data, out, rest @ ..] = arguments.as_slice() else { return Err("usage: public_set SET.csv SERIES_DIR OUT_DIR [EVERY_HOURS]".into()) };
    let every: usize = rest.first().map_or(Ok(6), |text| text.parse())?;
    let names: Vec<String> = std::fs::read_to_string(set)?.lines().skip(1).filter_map(|l| l.split(',').next()).map(str::to_owned).collect();
    let rows: Result<Vec<BTreeMap<String, String>>, String> = names.par_iter().map(|name| one(Path::new(data), name, every)).collect();
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (forecaster, text) in rows?.into_iter().flatten() {
        let header = || "series,origin,step,q05,q10,q25,q50,q75,q90,q95,q99\n".to_owned();
        files.entry(forecaster).or_insert_with(header).push_str(&text);
    }
    for (forecaster, text) in files {
        std::fs::write(Path::new(out).join(format!("{forecaster}.csv")), text)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<(Vec<String>, Series), String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let cells: Vec<(&str, &str)> = text.lines().skip(1).filter_map(|line| line.split_once(',')).collect();
    let start = cells.first().map_or(Ok(Timestamp(0)), |(stamp, _)| stamp.parse().or_else(|_| stamp.parse().map(Timestamp)));
    let start = start.map_err(|error| format!("{}: {error}", path.display()))?;
    let series = Series::new(start, Span::HOUR, cells.iter().map(|(_, value)| value.trim().parse().ok()).collect());
    Ok((cells.iter().map(|(stamp, _)| (*stamp).to_owned()).collect(), series.map_err(|error| error.to_string())?))
}

fn one(data: &Path, name: &str, every: usize) -> Result<BTreeMap<String, String>, String> {
    let (stamps, series) = read(&data.join(format!("{name}.csv")))?;
    let n = stamps.len();
    let first = n.saturating_sub((n / 4).min(336)).max(if n >= 216 { 168 } else { 96 });
    let workload = WorkloadId::new("series").map_err(|error| error.to_string())?;
    let mut calibration = Calibration::prior(series.start);
    let mut written: BTreeMap<String, String> = BTreeMap::new();
    for (origin, stamp) in stamps.iter().enumerate().take(n.saturating_sub(HORIZON - 1)).skip(first) {
        let request = Request {
            workload: &workload,
            history: &series,
            origin: series.time(origin),
            horizon_steps: HORIZON,
            zone: "UTC",
            state: calibration.forecasters.get(&workload),
            calibration: calibration.generation,
        };
        let set = forecast(&request).map_err(|error| format!("{name}: {error}"))?;
        if (origin - first).is_multiple_of(every) {
            write(&mut written, &set, &format!("{name},{stamp}")).map_err(|error| error.to_string())?;
        }
        calibration = learn(&calibration, &outcome(&workload, &set, &series, origin), series.time(origin + 1));
    }
    Ok(written)
}

fn write(written: &mut BTreeMap<String, String>, set: &ForecastSet, key: &str) -> std::fmt::Result {
    for (forecaster, rows) in set.experts.iter().map(|(f, forecast)| (f.as_str(), forecast)).chain([("published", &set.published)]) {
        let text = written.entry(forecaster.to_owned()).or_default();
        for (step, row) in rows.values.iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|v| format!("{v}")).collect();
            writeln!(text, "{key},{},{}", step + 1, cells.join(","))?;
        }
    }
    Ok(())
}

fn outcome(workload: &WorkloadId, set: &ForecastSet, series: &Series, origin: usize) -> Outcome {
    let rows = set.experts.iter().map(|(name, forecast)| (name.clone(), forecast.values[0].clone()));
    let published = ("published".to_owned(), set.published.values[0].clone());
    let service = ServiceOutcome {
        workload: workload.clone(),
        forecast: rows.chain([published]).collect(),
        observed_per_s: series.values.get(origin).copied().flatten(),
        peak_per_s: None,
        promised_per_s: None,
        attainment: None,
        ready: BTreeMap::new(),
        saturated_per_replica: BTreeMap::new(),
        sustained_per_replica: BTreeMap::new(),
        prior_per_replica: BTreeMap::new(),
        censored: false,
        completeness: 1.0,
    };
    Outcome {
        id: OutcomeId::new("window").expect("a usable id"),
        start: series.time(origin),
        length: Span::HOUR,
        plan: None,
        applied: false,
        services: vec![service],
        jobs: Vec::new(),
        starts: Vec::new(),
    }
}
