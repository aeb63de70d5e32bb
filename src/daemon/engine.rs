//! The one place that holds the loop's state: waits for what comes next, hands it to `cycle::step`, does what that asks for.

use crate::{Clock, DaemonError, Worker, WorkerError, http, shell::Shell, sources::Sources};
use config::Config;
use cycle::{Event, State, WorkOutput};
use fleet::{Span, Timestamp};
use std::{future::Future, net::SocketAddr};
use tokio::{sync::watch, task::JoinHandle};

/// Time between two removals of what is older than its retention.
const RETAIN_EVERY: Span = Span::HOUR;

/// What the daemon runs with beside its configuration.
pub struct Options {
    /// Its clock.
    pub clock: Clock,
    /// How work is run.
    pub worker: Worker,
    /// Told the address really listened on (the port may have been 0).
    pub listening: Option<tokio::sync::oneshot::Sender<SocketAddr>>,
    /// Told the instant up to which everything due is done, whenever nothing is left to do before the clock moves.
    pub settled: Option<watch::Sender<Timestamp>>,
}

impl Options {
    /// Real time, with work in a child process.
    #[must_use]
    pub fn real(worker: Worker) -> Self {
        Self { clock: Clock::system(), worker, listening: None, settled: None }
    }
}

/// Runs until `shutdown` resolves.
///
/// # Errors
/// When the store, the plan file's folder, a source or the address cannot be used.
pub async fn run(config: &Config, options: Options, shutdown: impl Future<Output = ()>) -> Result<(), DaemonError> {
    let Options { clock, worker, listening, settled } = options;
    let store = crate::open_store(config)?;
    let now = clock.now();
    let state = crate::resume(config, &store, now).await?;
    let sources = Sources::new(config, now)?;
    let shell = Shell::new(config, store, &state, now);
    let server = http::serve(config, &shell, listening).await?;
    let mut engine = Engine {
        next_tick: now,
        next_retain: now + RETAIN_EVERY,
        interval: config.policy.interval,
        state: Some(state),
        clock,
        worker,
        sources,
        shell,
        work: None,
        settled,
    };
    tracing::info!(as_of = %now, targets = config.targets.len(), "the loop begins");
    let outcome = engine.run(shutdown).await;
    server.stop().await;
    outcome
}

struct Engine {
    /// Taken and put back around each step.
    state: Option<State>,
    clock: Clock,
    worker: Worker,
    sources: Sources,
    shell: Shell,
    work: Option<JoinHandle<Result<WorkOutput, WorkerError>>>,
    settled: Option<watch::Sender<Timestamp>>,
    next_tick: Timestamp,
    next_retain: Timestamp,
    interval: Span,
}

impl Engine {
    async fn run(&mut self, shutdown: impl Future<Output = ()>) -> Result<(), DaemonError> {
        tokio::pin!(shutdown);
        self.handle(Event::Targets(self.sources.targets())).await?;
        loop {
            let due = self.sources.next_due().min(self.next_tick).min(self.next_retain);
            let idle = self.work.is_none() && due > self.clock.now();
            if let (true, Some(settled)) = (idle, &self.settled) {
                settled.send_replace(self.clock.now());
            }
            tokio::select! {
                biased;
                () = &mut shutdown => {
                    tracing::info!("shutting down; what runs keeps running");
                    if let Some(work) = self.work.take() {
                        work.abort();
                    }
                    return Ok(());
                }
                finished = finished(&mut self.work) => {
                    self.work = None;
                    let event = match finished {
                        Ok(Ok(output)) => Event::Worked(Box::new(output)),
                        Ok(Err(lost)) => Event::WorkFailed(self.clock.now(), lost.to_string()),
                        Err(lost) => Event::WorkFailed(self.clock.now(), lost.to_string()),
                    };
                    self.handle(event).await?;
                }
                () = self.clock.wait_until(due) => self.due().await?,
            }
        }
    }

    /// Does everything that is due: readings first, so that a cycle sees them.
    async fn due(&mut self) -> Result<(), DaemonError> {
        let now = self.clock.now();
        let readings = self.sources.read(now).await;
        self.shell.keep_observations(&readings, now).await?;
        for event in readings {
            self.handle(event).await?;
        }
        if self.next_tick <= now {
            // Ticks that were missed are not made up for.
            while self.next_tick <= now {
                self.next_tick = self.next_tick + self.interval;
            }
            self.handle(Event::Tick(now)).await?;
        }
        if self.next_retain <= now {
            self.next_retain = now + RETAIN_EVERY;
            self.shell.retain(now).await;
        }
        Ok(())
    }

    async fn handle(&mut self, event: Event) -> Result<(), DaemonError> {
        let Some(state) = self.state.take() else { return Ok(()) };
        let (state, effects) = cycle::step(state, event);
        let orders = self.shell.carry_out(effects).await?;
        for order in orders {
            let worker = self.worker.clone();
            self.work = Some(tokio::spawn(async move { worker.run(order).await }));
        }
        self.shell.show(&state, self.clock.now());
        self.state = Some(state);
        Ok(())
    }
}

/// Resolves when the work under way is done; never, when there is none.
async fn finished(work: &mut Option<JoinHandle<Result<WorkOutput, WorkerError>>>) -> Result<Result<WorkOutput, WorkerError>, tokio::task::JoinError> {
    match work {
        Some(handle) => handle.await,
        None => std::future::pending().await,
    }
}
