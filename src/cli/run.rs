//! `turnaround run`: the daemon.

use crate::{Failure, Outcome, Screen, config_file, screen::note, situation, tokens, traces};
use daemon::{Options, Worker};
use std::{path::Path, time::Duration};

/// Run the daemon: watch, forecast, plan, publish, learn, until stopped
///
/// Advisory unless the configuration says otherwise: plans say what would be done, and nobody is asked to act.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Stops on Ctrl-C or SIGTERM; what runs keeps running. The state is in the store, so a restart goes on from there.\n\nExamples:\n  turnaround run\n  curl -s localhost:9464/v1/plan     while it runs"
)]
pub(crate) struct Arguments {
    /// Log as JSON, a line an event
    #[arg(long)]
    pub log_json: bool,
}

pub(crate) fn run(_: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let loaded = config_file::load(path)?;
    let config = loaded.config;
    tokens::check(&config)?;
    {
        let _claim = daemon::claim(&config)?;
        let store = situation::open_store(&config)?;
        let filled = situation::back_fill(&config, &store, situation::now())?;
        if filled > 0 {
            note(&format!("Recorded traffic fills the history: {filled} windows."));
        }
    }
    let deadline = Duration::from_secs(u64::try_from(config.policy.worker_deadline.0).unwrap_or(0).max(1));
    let worker = Worker::Process { command: vec![std::env::current_exe()?.into_os_string(), "worker".into()], deadline };
    let advisory = if config.policy.advisory { "advisory: plans ask nobody to act" } else { "plans are to be carried out" };
    note(&format!("http://{}/v1/plan, plan file {}; {advisory}. Ctrl-C stops.", config.publish.listen, config.publish.plan_file.display()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let replay = traces::ahead(&config, daemon::setup_of(&config, situation::now()).policy.window, situation::now())?;
    runtime.block_on(daemon::run(&config, Options { replay, ..Options::real(worker, tokens::reader()) }, stopped()))?;
    screen.document(&serde_json::json!({ "stopped": true }))?;
    Ok(Outcome::Done)
}

/// Resolves when somebody wants the daemon to end.
pub(crate) async fn stopped() {
    let interrupt = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
            // Without the signal there is still Ctrl-C.
            let _ = interrupt.await;
            return;
        };
        tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = interrupt.await;
    }
}
