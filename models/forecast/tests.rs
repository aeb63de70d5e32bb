use super::*;
use crate::pinball::Tally;
use crate::{LINEAR, MSTL_ETS, SEASONAL_NAIVE};
use fleet::canonical_bytes;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn series(values: Vec<Option<f64>>) -> Series {
    Series::new("2026-11-02T00:00:00Z".parse().unwrap(), Span::HOUR, values).unwrap()
}

fn known(values: impl IntoIterator<Item = f64>) -> Series {
    series(values.into_iter().map(Some).collect())
}

fn ask(history: &Series, horizon_steps: usize, state: Option<&ForecasterState>) -> Result<ForecastSet, ModelError> {
    let workload = WorkloadId::new("chat").unwrap();
    forecast(&Request { workload: &workload, history, origin: history.end(), horizon_steps, zone: "Europe/Berlin", state, calibration: 3 })
}

fn all(set: &ForecastSet) -> impl Iterator<Item = &Forecast> {
    set.experts.values().chain([&set.published])
}

fn medians(forecast: &Forecast) -> Vec<f64> {
    forecast.values.iter().map(|row| row[3]).collect()
}

/// Field case 51: a flat history is forecast as it is, by every expert, with no spread.
#[test]
fn a_constant_stays_constant() {
    let after_a_step = [vec![22.76; 72], vec![12.99; 72]].concat();
    for (values, want) in [(vec![5.0; 168], 5.0), (vec![0.0; 168], 0.0), (after_a_step, 12.99)] {
        let set = ask(&known(values), 48, None).unwrap();
        assert_eq!(set.experts.len(), 3);
        for forecast in all(&set) {
            forecast.validate().unwrap();
            for value in forecast.values.iter().flatten() {
                assert!((value - want).abs() <= 1e-6 * want, "{} {value} for {want}", forecast.forecaster);
            }
        }
    }
}

/// Field case 49: demand that declines to nothing is never forecast below it.
#[test]
fn declining_demand_is_never_negative() {
    let drop = [100.0, 80.0, 60.0, 40.0, 20.0, 10.0, 0.0, 0.0];
    let long = (0..336).map(|h| (100.0 - 0.3 * f64::from(h)).max(0.0));
    for history in [known(drop), known(long.clone()), known(long.chain(drop))] {
        for horizon in [1, 12, 26, 168] {
            let set = ask(&history, horizon, None).unwrap();
            for forecast in all(&set) {
                forecast.validate().unwrap();
                assert_eq!(forecast.values.len(), horizon);
            }
        }
    }
}

/// Field case 53: six hours after demand stepped up for good the next hour is forecast within a fifth of the new level.
#[test]
fn a_lasting_step_up_is_followed() {
    let noise = |h: u32| f64::from(h.wrapping_mul(2_654_435_761) >> 24) / 255.0 - 0.5;
    let values = (0..504 + 6).map(|h| if h < 504 { 3.0 } else { 103.0 } + noise(h));
    let set = ask(&known(values), 26, None).unwrap();
    let next = medians(&set.published)[0];
    assert!((next / 103.0 - 1.0).abs() < 0.2, "{next}, experts {:?}", set.experts.values().map(|f| medians(f)[0]).collect::<Vec<_>>());
}

#[test]
fn the_first_step_is_the_hour_that_holds_the_origin() {
    let history = known((0..200).map(|h| 10.0 + f64::from(h % 24)));
    let workload = WorkloadId::new("chat").unwrap();
    let origin = Timestamp(history.time(150).0 + 1_234);
    let request = Request { workload: &workload, history: &history, origin, horizon_steps: 3, zone: "UTC", state: None, calibration: 3 };
    let set = forecast(&request).unwrap();
    assert_eq!((set.published.origin, set.published.start, set.published.calibration), (origin, history.time(150), 3));
    // Hours from the origin on are not looked at, the current one included.
    let cut = series(history.values[..150].to_vec());
    assert_eq!(forecast(&Request { history: &cut, ..request }).unwrap(), set);
}

#[test]
fn short_histories_give_wide_bands_and_none_an_error() {
    assert!(matches!(ask(&series(vec![None; 48]), 12, None), Err(ModelError::NoHistory(_))));
    assert!(matches!(ask(&series(Vec::new()), 12, None), Err(ModelError::NoHistory(_))));
    for hours in [1, 5, 23] {
        let set = ask(&known((0..hours).map(|_| 8.0)), 12, None).unwrap();
        assert_eq!(set.experts.keys().collect::<Vec<_>>(), [SEASONAL_NAIVE]);
        let row = &set.published.values[0];
        assert!((row[3] - 8.0).abs() < 1e-9 && row[0] < 4.0 && row[7] > 20.0, "{row:?}");
    }
    let set = ask(&known((0..100).map(|h| 10.0 + f64::from(h % 24))), 12, None).unwrap();
    assert_eq!(set.experts.keys().collect::<Vec<_>>(), [LINEAR, MSTL_ETS, SEASONAL_NAIVE]);
}

#[test]
fn what_cannot_be_asked_is_refused_by_name() {
    let history = known((0..48).map(f64::from));
    let workload = WorkloadId::new("chat").unwrap();
    let request = Request { workload: &workload, history: &history, origin: history.end(), horizon_steps: 3, zone: "Mars", state: None, calibration: 1 };
    assert!(matches!(forecast(&request), Err(ModelError::Zone { .. })));
    assert!(matches!(forecast(&Request { zone: "UTC", horizon_steps: 10_000, ..request }), Err(ModelError::Horizon { steps: 10_000, .. })));
    let quarter = Series { step: Span::minutes(15), ..history.clone() };
    assert!(matches!(forecast(&Request { zone: "UTC", history: &quarter, ..request }), Err(ModelError::Step { .. })));
    let far = Series { start: Timestamp(i64::MIN), ..history.clone() };
    assert!(matches!(forecast(&Request { zone: "UTC", history: &far, ..request }), Err(ModelError::NoHistory(_))));
}

#[test]
fn learned_weights_and_offsets_are_used() {
    let history = known((0..336).map(|h| 20.0 + 10.0 * (f64::from(h % 24) / 4.0).sin() + f64::from(h * h % 7)));
    let offsets = vec![0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5];
    let weights = [(LINEAR.to_owned(), 1.0), (MSTL_ETS.to_owned(), 0.0), (SEASONAL_NAIVE.to_owned(), 0.0)];
    let state = ForecasterState { weights: weights.into(), offsets, scored: 50, ..ForecasterState::default() };
    let set = ask(&history, 24, Some(&state)).unwrap();
    let (published, linear) = (&set.published.values[0], &set.experts[LINEAR].values[0]);
    assert!((published[3] - linear[3]).abs() < 1e-9);
    assert!((published[7] - linear[7]) / linear[3] > 0.49);
}

#[test]
fn many_keep_the_order_of_the_requests() {
    let workloads: Vec<WorkloadId> = (0..8).map(|i| WorkloadId::new(format!("w{i}")).unwrap()).collect();
    let history = known((0..100).map(|h| f64::from(h % 24)));
    let request = |workload| Request { workload, history: &history, origin: history.end(), horizon_steps: 2, zone: "UTC", state: None, calibration: 1 };
    let requests: Vec<Request> = workloads.iter().map(request).collect();
    let names: Vec<WorkloadId> = forecast_all(&requests).into_iter().map(|set| set.unwrap().published.workload).collect();
    assert_eq!(names, workloads);
}

/// Random demand: daily shape, noise, gaps, zeros and spikes of any size.
fn demand() -> impl Strategy<Value = Vec<Option<f64>>> {
    let hour = prop_oneof![
        8 => (0.0_f64..2.0).prop_map(|v| (1.0, v)),
        1 => Just((0.0, 0.0)),
        1 => prop_oneof![0.0_f64..1e6, Just(1e14), Just(1e-300), Just(-1.0)].prop_map(|v| (0.0, v)),
        2 => Just((f64::NAN, 0.0)),
    ];
    let shape = |h: usize| 10.0 + 8.0 * f64::from(u32::try_from(h % 24).unwrap() % 13);
    prop::collection::vec(hour, 0..500).prop_map(move |hours| {
        let value = |(h, (share, v)): (usize, (f64, f64))| (!share.is_nan()).then(|| if share > 0.0 { shape(h) * v } else { v });
        hours.into_iter().enumerate().map(value).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn every_forecast_is_valid_and_the_same_twice(values in demand(), horizon in 0_usize..80) {
        let history = series(values);
        let usable = history.values.iter().flatten().any(|v| *v >= 0.0);
        match ask(&history, horizon, None) {
            Err(error) => prop_assert!(!usable, "{error}"),
            Ok(set) => {
                for forecast in all(&set) {
                    prop_assert!(forecast.validate().is_ok(), "{} {:?}", forecast.forecaster, forecast.validate());
                    prop_assert_eq!(forecast.values.len(), horizon);
                }
                let again = ask(&history, horizon, None).unwrap();
                prop_assert_eq!(canonical_bytes(&again.published), canonical_bytes(&set.published));
            }
        }
    }

    #[test]
    fn any_state_gives_a_valid_forecast(weights in prop::collection::vec(-1.0_f64..1.0, 3), offsets in prop::collection::vec(-3.0_f64..3.0, 7..9)) {
        let history = known((0..200).map(|h| f64::from(h % 24)));
        let names = [LINEAR, MSTL_ETS, "gone"].map(str::to_owned);
        let state = ForecasterState { weights: names.into_iter().zip(weights).collect(), offsets, scored: 9, ..ForecasterState::default() };
        prop_assert!(ask(&history, 5, Some(&state)).unwrap().published.validate().is_ok());
    }
}

/// A public hourly series, when the data are there.
fn public(name: &str) -> Option<Series> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/series").join(format!("{name}__1h.csv"));
    let text = std::fs::read_to_string(path).ok()?;
    Some(series(text.lines().skip(1).map(|line| line.split_once(',').and_then(|(_, value)| value.parse().ok())).collect()))
}

/// On the totals of real LLM services the published forecast is better than the seasonal naive one.
#[test]
fn beats_the_baseline_on_real_traffic() {
    let names = ["servegen__m-large__requests", "servegen__m-mid__requests", "servegen__m-large__output_tokens", "servegen__m-mid__input_tokens"];
    let (mut published, mut naive) = (Tally::default(), Tally::default());
    for name in names {
        let Some(history) = public(name) else {
            eprintln!("skipped: no public series {name} beside the checkout");
            return;
        };
        let mean = history.values.iter().flatten().sum::<f64>() / f64::from(u32::try_from(history.known()).unwrap());
        let workload = WorkloadId::new("service").unwrap();
        for origin in (history.values.len() - 96..history.values.len() - 24).step_by(12) {
            let request =
                Request { workload: &workload, history: &history, origin: history.time(origin), horizon_steps: 24, zone: "UTC", state: None, calibration: 1 };
            let set = forecast(&request).unwrap();
            for step in 0..24 {
                let Some(y) = history.values[origin + step] else { continue };
                let scaled = |row: &[f64]| row.iter().map(|v| v / mean).collect::<Vec<_>>();
                published.add(&scaled(&set.published.values[step]), y / mean);
                naive.add(&scaled(&set.experts[SEASONAL_NAIVE].values[step]), y / mean);
            }
        }
    }
    let (published, naive) = (published.score(), naive.score());
    println!("WQL of {} hours: published {:.3}, seasonal naive {:.3}", naive.n, published.wql.unwrap(), naive.wql.unwrap());
    assert!(published.wql.unwrap() <= 1.05 * naive.wql.unwrap());
}
