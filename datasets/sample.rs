//! The small file of traffic that ships: hourly rates of the demo's services, for first steps without a server to scrape.

use crate::{DEMO_SEED, Scenario, Traffic};
use std::fmt::Write;

/// `sample/traffic.csv`: `timestamp,agents,chat,code`, requests/s by hour over two weeks. Made by [`sample_traffic`].
pub const SAMPLE_TRAFFIC: &str = include_str!("sample/traffic.csv");

/// Makes the sample file's content. Three decimals: fine enough for rates, coarse enough that hosts whose logarithms differ in the last digit
/// agree on the bytes.
#[must_use]
pub fn sample_traffic() -> String {
    let scenario = Scenario::demo(DEMO_SEED);
    let series: Vec<_> = scenario.traffic.iter().map(Traffic::hourly).collect();
    let mut text = String::from("timestamp");
    for traffic in &scenario.traffic {
        let _ = write!(text, ",{}", traffic.workload);
    }
    text.push('\n');
    let hours = series.first().map_or(0, |s| s.values.len());
    for hour in 0..hours {
        let _ = write!(text, "{}", series[0].time(hour));
        for s in &series {
            let _ = write!(text, ",{:.3}", s.values[hour].unwrap_or_default());
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_ships_is_what_the_generator_makes() {
        let made = sample_traffic();
        assert_eq!(
            made, SAMPLE_TRAFFIC,
            "when the scenario was changed on purpose: cargo run --release -p datasets --example sample > datasets/sample/traffic.csv"
        );
        assert_eq!(made.lines().count(), 1 + 14 * 24);
    }
}
