//! The one place that holds the loop's state: waits for what comes next, hands it to `cycle::step`, does what that asks for.

use crate::{Clock, DaemonError, Worker, WorkerError, http, shell::Shell, sources::Sources};
use config::Config;
use cycle::{Event, State, WorkOutput};
use fleet::{Span, TargetId, Timestamp, WorkloadWindow};
use std::{collections::BTreeMap, future::Future, net::SocketAddr, time::Instant};
use tokio::{sync::watch, task::JoinHandle};

/// Time between two removals of what is older than its retention.
const RETAIN_EVERY: Span = Span::HOUR;

/// What the daemon runs with beside its configuration.
pub struct Options {
    /// Its clock.
    pub clock: Clock,
    /// How work is run.
    pub worker: Worker,
    /// Bearer tokens by target, already read: the daemon looks at no environment.
    pub tokens: BTreeMap<TargetId, wire::Secret>,
    /// Recorded windows to be replayed as if live, in order of their ends.
    pub replay: Vec<WorkloadWindow>,
    /// Told the address really listened on (the port may have been 0).
    pub listening: Option<tokio::sync::oneshot::Sender<SocketAddr>>,
    /// Told the instant up to which everything due is done, whenever nothing is left to do before the clock moves.
    pub settled: Option<watch::Sender<Timestamp>>,
}

impl Options {
    /// Real time, with work in a child process.
    #[must_use]
    pub fn real(worker: Worker, tokens: BTreeMap<TargetId, wire::Secret>) -> Self {
        Self { clock: Clock::system(), worker, tokens, replay: Vec::new(), listening: None, settled: None }
    }
}

/// Runs until `shutdown` resolves.
///
/// # Errors
/// When the store, the plan file's folder, a source or the address cannot be used.
pub async fn run(config: &Config, options: Options, shutdown: impl Future<Output = ()>) -> Result<(), DaemonError> {
    let Options { clock, worker, tokens, replay, listening, settled } = options;
    let _claim = crate::claim(config)?;
    let store = crate::open_store(config)?;
    let now = clock.now();
    let state = crate::resume(config, &store, now).await?;
    let sources = Sources::new(config, &tokens, replay, now)?;
    let shell = Shell::new(config, store, &state, now);
    let server = http::serve(config.publish.listen, shell.published().clone(), listening).await?;
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
        work_began: Instant::now(),
        settled,
    };
    tracing::info!(as_of = %now, targets = config.targets.len(), "the loop begins");
    engine.run(shutdown).await;
    server.stop().await;
    Ok(())
}

struct Engine {
    /// Taken and put back around each step.
    state: Option<State>,
    clock: Clock,
    worker: Worker,
    sources: Sources,
    shell: Shell,
    work: Option<JoinHandle<Result<WorkOutput, WorkerError>>>,
    /// When the work under way began, by the monotonic clock.
    work_began: Instant,
    settled: Option<watch::Sender<Timestamp>>,
    next_tick: Timestamp,
    next_retain: Timestamp,
    interval: Span,
}

impl Engine {
    async fn run(&mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        self.handle(Event::Targets(self.sources.targets())).await;
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
                    return;
                }
                finished = finished(&mut self.work) => {
                    self.work = None;
                    self.shell.published().metrics().solved(self.work_began.elapsed().as_secs_f64());
                    let event = match finished {
                        Ok(Ok(output)) => Event::Worked(Box::new(output)),
                        Ok(Err(lost)) => Event::WorkFailed(self.clock.now(), lost.to_string()),
                        Err(lost) => Event::WorkFailed(self.clock.now(), lost.to_string()),
                    };
                    self.handle(event).await;
                    self.show();
                }
                () = self.clock.wait_until(due) => self.due().await,
            }
        }
    }

    /// Does everything that is due: readings first, so that a cycle sees them.
    async fn due(&mut self) {
        let now = self.clock.now();
        let readings = self.sources.read(now).await;
        self.shell.keep_observations(readings.observations).await;
        for event in readings.events {
            self.handle(event).await;
        }
        if self.next_tick <= now {
            // Ticks that were missed are not made up for.
            while self.next_tick <= now {
                self.next_tick = self.next_tick + self.interval;
            }
            self.handle(Event::Jobs(self.sources.jobs(now))).await;
            self.handle(Event::Tick(now)).await;
        }
        if self.next_retain <= now {
            self.next_retain = now + RETAIN_EVERY;
            self.shell.retain(now).await;
        }
        self.show();
    }

    async fn handle(&mut self, event: Event) {
        let Some(state) = self.state.take() else { return };
        if let Event::Scraped(scrape) = &event {
            self.shell.published().metrics().scraped(scrape);
        }
        let (state, effects) = cycle::step(state, event);
        if let Some(order) = self.shell.carry_out(effects).await {
            let worker = self.worker.clone();
            self.work_began = Instant::now();
            self.work = Some(tokio::spawn(async move { worker.run(order).await }));
        }
        self.state = Some(state);
    }

    fn show(&mut self) {
        if let Some(state) = &self.state {
            self.shell.show(state, self.clock.now());
        }
    }
}

/// Resolves when the work under way is done; never, when there is none.
async fn finished(work: &mut Option<JoinHandle<Result<WorkOutput, WorkerError>>>) -> Result<Result<WorkOutput, WorkerError>, tokio::task::JoinError> {
    match work {
        Some(handle) => handle.await,
        None => std::future::pending().await,
    }
}
