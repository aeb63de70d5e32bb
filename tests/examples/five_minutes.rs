//! From somebody's Prometheus to their first plan, timed: `make five-minutes`.
//!
//! Starts a Prometheus that has scraped a synthetic fleet of 300 GPUs for two weeks, then runs what its user would: `init --prometheus`, `plan`.
//! With `--serve` it only starts the Prometheus and waits, so that one can try by hand.

use std::{path::Path, process::Command, sync::Arc, time::Instant};
use tests::exporters::{fleet::fleet, prometheus, serve::now_s};

/// Days of past the Prometheus is given.
const PAST_DAYS: u32 = 14;
/// Time between two of its scrapes, seconds.
const SCRAPE_S: u32 = 5;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let folder = std::env::current_dir()?.join("target/five-minutes");
    let _none_before = std::fs::remove_dir_all(&folder);
    let began = Instant::now();
    let fleet = Arc::new(fleet(now_s() - f64::from(PAST_DAYS + 1) * 86_400.0));
    println!("A Prometheus with {PAST_DAYS} days of {} serving pods and {} GPU nodes is being filled ...", fleet.pods.len(), fleet.nodes.len());
    let server = prometheus::start(&folder.join("prometheus"), fleet, PAST_DAYS, SCRAPE_S).await?;
    // Two scrapes, so that rates are there.
    tokio::time::sleep(std::time::Duration::from_secs(u64::from(2 * SCRAPE_S + 1))).await;
    println!("It answers at {} after {:.1} s. From here on, as its user:\n", server.url, began.elapsed().as_secs_f64());
    if std::env::args().any(|a| a == "--serve") {
        tokio::signal::ctrl_c().await?;
        return Ok(());
    }
    let began = Instant::now();
    for arguments in [vec!["init", "--prometheus", &server.url], vec!["plan"]] {
        run(&folder, &arguments)?;
    }
    let lines = std::fs::read_to_string(folder.join("turnaround.toml"))?.lines().count();
    println!("From the address of a Prometheus to the plan: {:.1} s; {lines} lines of configuration.", began.elapsed().as_secs_f64());
    Ok(())
}

fn run(folder: &Path, arguments: &[&str]) -> std::io::Result<()> {
    let began = Instant::now();
    println!("$ turnaround {}", arguments.join(" "));
    let status = Command::new(tests::turnaround()).args(arguments).current_dir(folder).status()?;
    println!("({:.1} s, exit {})\n", began.elapsed().as_secs_f64(), status.code().unwrap_or(-1));
    Ok(())
}
