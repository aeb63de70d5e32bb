//! The one place that holds the loop's state: waits for what comes next, hands it to `cycle::step`, does what that asks for.

use crate::{Clock, DaemonError, ReadSecret, Worker, WorkerError, http, push, schedule::Look, shell::Shell, sources::Sources};
use config::Config;
use cycle::{Event, State, WorkOutput};
use fleet::{Span, Timestamp, WorkloadWindow};
use std::{
    future::Future,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

/// Time between two removals of what is older than its retention.
const RETAIN_EVERY: Span = Span::HOUR;
/// A decision waits this long for looks that are under way: longer than an endpoint usually takes, shorter than one that hangs.
const LOOKS_GRACE: Duration = Duration::from_secs(2);
/// A clock that is off by more than this was set, by more than any drift of a day.
const CLOCK_STEP_MIN: Span = Span(5);

/// What the daemon runs with beside its configuration.
pub struct Options {
    /// Its clock.
    pub clock: Clock,
    /// How work is run.
    pub worker: Worker,
    /// How a secret is read.
    pub read_secret: ReadSecret,
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
    pub fn real(worker: Worker, read_secret: ReadSecret) -> Self {
        Self { clock: Clock::system(), worker, read_secret, replay: Vec::new(), listening: None, settled: None }
    }
}

/// Runs until `shutdown` resolves.
///
/// # Errors
/// When the store, the plan file's folder, a source or the address cannot be used.
pub async fn run(config: &Config, options: Options, shutdown: impl Future<Output = ()>) -> Result<(), DaemonError> {
    let Options { clock, worker, read_secret, replay, listening, settled } = options;
    let _claim = crate::claim(config)?;
    let history = crate::open_store(config, &read_secret)?;
    let now = clock.now();
    let state = crate::resume(config, &history.store, now).await?;
    let sources = Sources::new(config, &read_secret, replay, now)?;
    let history_away = history.influx.as_ref().is_some_and(|influx| influx.status().is_ok_and(|s| s.away_since.is_some()));
    let shell = Shell::new(config, history, &state, now);
    let (push, pushed) = push::routes(config, &read_secret, &clock)?;
    let server = http::serve(config.publish.listen, shell.published().clone(), push, listening).await?;
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
        pushed,
        late: 0,
        past_known: !history_away,
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
    /// What others push.
    pushed: Option<mpsc::Receiver<ingest::push::Batch>>,
    /// Late looks told so far.
    late: u64,
    /// The past was read at the start; else it is read when its server is back.
    past_known: bool,
}

impl Engine {
    async fn run(&mut self, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        self.handle(Event::Targets(self.sources.targets())).await;
        loop {
            let due = self.sources.next_due().min(self.next_tick).min(self.next_retain);
            let idle = self.work.is_none() && self.sources.is_idle() && due > self.clock.now();
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
                look = self.sources.finished() => {
                    self.take(look).await;
                    self.show();
                }
                batch = pushed(&mut self.pushed) => {
                    let look = self.sources.pushed(batch);
                    self.take(look).await;
                    self.show();
                }
                () = self.clock.wait_until(due) => self.due().await,
            }
        }
    }

    /// Does everything that is due: looks first, so that a cycle sees them.
    async fn due(&mut self) {
        self.follow_clock().await;
        let now = self.clock.now();
        self.sources.begin(now);
        if self.next_tick <= now {
            let look = self.sources.settle(LOOKS_GRACE).await;
            self.take(look).await;
            // Ticks that were missed are not made up for.
            while self.next_tick <= now {
                self.next_tick = self.next_tick + self.interval;
            }
            self.read_past(now).await;
            self.handle(Event::Jobs(self.sources.jobs(now))).await;
            self.handle(Event::Tick(now)).await;
        }
        if self.next_retain <= now {
            self.next_retain = now + RETAIN_EVERY;
            self.shell.retain(now).await;
        }
        self.show();
    }

    /// When somebody set the wall clock, everything goes on from the new time.
    async fn follow_clock(&mut self) {
        let Some(step) = self.clock.follow(CLOCK_STEP_MIN) else { return };
        let now = self.clock.now();
        tracing::warn!(step_s = step.0, %now, "the wall clock was set; the loop goes on from the new time");
        self.sources.clock_set(now);
        (self.next_tick, self.next_retain) = (now, now + RETAIN_EVERY);
        self.handle(Event::ClockSet(now)).await;
    }

    /// Reads the past that could not be read at the start.
    async fn read_past(&mut self, now: Timestamp) {
        if !self.past_known
            && let Some(windows) = self.shell.past(now).await
        {
            self.past_known = true;
            self.handle(Event::Past(windows)).await;
        }
    }

    /// Keeps what looks saw, and tells the loop.
    async fn take(&mut self, look: Look) {
        let readings = self.sources.readings(look, self.clock.now());
        self.shell.keep_observations(readings.observations).await;
        for event in readings.events {
            self.handle(event).await;
        }
    }

    async fn handle(&mut self, event: Event) {
        let Some(state) = self.state.take() else { return };
        if let Event::Scraped(scrape) | Event::GpuPage(scrape) = &event {
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
            let late = self.sources.punctuality().late;
            self.shell.published().metrics().scrapes_late(late - self.late);
            self.late = late;
            self.shell.show(state, self.sources.catalogue(), self.clock.now());
        }
    }
}

/// Resolves when somebody pushed something; never, where nobody may.
async fn pushed(batches: &mut Option<mpsc::Receiver<ingest::push::Batch>>) -> ingest::push::Batch {
    match batches {
        Some(batches) => match batches.recv().await {
            Some(batch) => batch,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Resolves when the work under way is done; never, when there is none.
async fn finished(work: &mut Option<JoinHandle<Result<WorkOutput, WorkerError>>>) -> Result<Result<WorkOutput, WorkerError>, tokio::task::JoinError> {
    match work {
        Some(handle) => handle.await,
        None => std::future::pending().await,
    }
}
