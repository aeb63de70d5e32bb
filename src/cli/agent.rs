//! `turnaround agent`: shows the GPUs of its node as a Prometheus page.
//!
//! The driver is asked on a thread of its own, since a driver may hang for ever. What it said last is shown for [`LOOKS_KEPT`] intervals and
//! then withdrawn: a page never shows an old value as a current one.

use crate::{Failure, Outcome, Screen, run::stopped, screen::note};
use fleet::{NodeId, Span, TargetId, Timestamp};
use ingest::nvml::{Host, Watch, boot_time, driver_version, open, scrape_of};
use publish::{AgentLook, AgentState, PageFormat, ProcessMemory, agent_page, agent_router};
use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};
use tower_http::{catch_panic::CatchPanicLayer, limit::RequestBodyLimitLayer, timeout::TimeoutLayer};

/// Intervals after which a look that no other followed is withdrawn.
const LOOKS_KEPT: u32 = 3;
/// Longest interval between two looks.
const INTERVAL_MAX: Span = Span::HOUR;
/// Nothing the agent answers takes a body of more than this.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Longest time to an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time open connections have to end after a stop.
const GRACE: Duration = Duration::from_secs(2);

const EXAMPLES: &str = "\
Pages:
  /metrics   the GPUs, for Prometheus or for turnaround itself
  /healthz   the process answers
  /readyz    503 while the driver gives no values

The page shows what the driver said within the last three intervals. Of a driver that hangs it shows turnaround_agent_up 0 and no value.
Exit code 1 when the driver's library cannot be opened. Stops on Ctrl-C or SIGTERM.

Examples:
  turnaround agent --once                                     one look, as the page shows it
  turnaround agent --once --json | jq .scrape.devices         the same for machines
  turnaround agent --node gpu-7 --listen 0.0.0.0:9465 --allow-remote
  curl -s localhost:9465/metrics                              while it runs";

/// Show the GPUs of this node as a Prometheus page, with MIG slices, processes, XID events, ECC errors and throttling
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Name of this node in all labels [default: the host's name]
    #[arg(long, value_name = "NAME")]
    node: Option<NodeId>,
    /// NVIDIA's management library, where the system does not find it
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Time between two looks
    #[arg(long, value_name = "SPAN", default_value = "15s", value_parser = interval)]
    interval: Span,
    /// Longest time the first look may take
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = interval)]
    timeout: Span,
    /// Address the page is served at
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9465")]
    listen: SocketAddr,
    /// Let other machines read the page: it shows which processes hold how much memory, to whoever can reach it
    #[arg(long)]
    allow_remote: bool,
    /// Look once, print the page, and end
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: fleet::TimeError| error.to_string())?;
    if Span(1) <= span && span <= INTERVAL_MAX { Ok(span) } else { Err(format!("{span} lies outside 1s..{INTERVAL_MAX}")) }
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    if !arguments.allow_remote && !arguments.listen.ip().is_loopback() {
        let message = format!("{} can be reached from other machines, and nobody has to say who they are to read the page", arguments.listen);
        return Err(Failure::usage(message, "add --allow-remote where the network is trusted, or listen on 127.0.0.1"));
    }
    let host = host(arguments)?;
    let board = Arc::new(Board::default());
    let (tell, first) = mpsc::sync_channel(1);
    {
        let (board, host, library, every) = (Arc::clone(&board), host.clone(), arguments.library.clone(), duration(arguments.interval));
        std::thread::Builder::new().name("nvml".into()).spawn(move || look_for_ever(&board, &host, library.as_deref(), every, &tell))?;
    }
    // The thread is not waited for at the end: a driver that hangs would never let go of it.
    match first.recv_timeout(duration(arguments.timeout)) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Err(Failure::with_help(error, NO_LIBRARY)),
        Err(_) if arguments.once => {
            let message = format!("the GPU driver did not answer within {}", arguments.timeout);
            return Err(Failure::with_help(message, "see whether nvidia-smi answers; a driver that hangs is cured by a restart of the node"));
        }
        Err(_) => note("The GPU driver has not answered yet; the page says so until it does."),
    }
    if arguments.once { once(&board, &host, screen) } else { serve(arguments, board, &host, screen) }
}

const NO_LIBRARY: &str = "install NVIDIA's driver on this node; in a container, give it the GPUs (with Kubernetes: the NVIDIA runtime class); \
    where libnvidia-ml.so.1 lies elsewhere, name it with --library";

/// Who we are. Nothing else of the machine is asked for.
fn host(arguments: &Arguments) -> Result<Host, Failure> {
    let named = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok().and_then(|name| NodeId::new(name.trim()).ok());
    let Some(node) = arguments.node.clone().or_else(named) else {
        return Err(Failure::with_help("the name of this host is not known", "name the node with --node"));
    };
    let boot_time = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| boot_time(&stat));
    Ok(Host { node: node.to_string(), boot_time })
}

fn duration(span: Span) -> Duration {
    Duration::from_secs(u64::try_from(span.0).unwrap_or(0).max(1))
}

/// What the driver said last.
#[derive(Default)]
struct Board {
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// The look, or why it failed, and when it began.
    look: Option<(Instant, AgentState)>,
    /// When the look that is under way began.
    asked: Option<Instant>,
}

impl Board {
    fn change(&self, what: impl FnOnce(&mut Last)) {
        what(&mut self.last.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What may be shown at `now`: the last look, unless it is older than `kept`.
    fn shown(&self, now: Instant, kept: Duration) -> AgentState {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match (&last.look, last.asked) {
            (Some((at, look)), _) if now.saturating_duration_since(*at) <= kept => look.clone(),
            (_, Some(asked)) => Err(format!("the GPU driver has not answered for {}", Span(seconds(now.saturating_duration_since(asked))))),
            (Some((at, _)), None) => Err(format!("the last look is {} old", Span(seconds(now.saturating_duration_since(*at))))),
            (None, None) => Err("the GPU driver has not been asked yet".into()),
        }
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Opens the library, looks every so often, and tells how it began: with a first look, or with the reason why there can be none.
fn look_for_ever(board: &Board, host: &Host, library: Option<&std::path::Path>, every: Duration, tell: &mpsc::SyncSender<Result<(), String>>) {
    board.change(|last| last.asked = Some(Instant::now()));
    let nvml = match open(library) {
        Ok(nvml) => nvml,
        Err(error) => {
            let reason = error.to_string();
            board.change(|last| *last = Last { look: Some((Instant::now(), Err(reason.clone()))), asked: None });
            // Whoever waited for it may have given up.
            let _ = tell.send(Err(reason));
            return;
        }
    };
    let Ok(target) = TargetId::new(format!("nvml/{}", host.node)) else { return };
    let mut watch = Watch::new(&nvml);
    loop {
        let began = Instant::now();
        board.change(|last| last.asked = Some(began));
        let at = daemon::Clock::system().now();
        let state = look(&mut watch, &target, host, driver_version(&nvml), at);
        if let Err(reason) = &state {
            tracing::warn!(reason, "the driver gives no values");
        }
        board.change(|last| *last = Last { look: Some((began, state)), asked: None });
        let _ = tell.try_send(Ok(()));
        std::thread::sleep(every.saturating_sub(began.elapsed()));
    }
}

fn look(watch: &mut Watch<'_>, target: &TargetId, host: &Host, driver: Option<String>, at: Timestamp) -> AgentState {
    let readings = watch.read(at);
    let scrape = scrape_of(target, host, driver, readings.as_deref(), at);
    let held = readings.iter().flatten().flat_map(|reading| reading.process_memory(&host.node));
    let processes = held.map(|(member, pid, memory)| ProcessMemory { member, pid, memory }).collect();
    match &scrape.status {
        fleet::ScrapeStatus::Failed(reason) => Err(reason.clone()),
        fleet::ScrapeStatus::Ok => Ok(Arc::new(AgentLook { scrape, processes })),
    }
}

/// Prints the first look.
fn once(board: &Board, host: &Host, screen: &Screen) -> Result<Outcome, Failure> {
    let state = board.shown(Instant::now(), Duration::MAX);
    match &state {
        Err(reason) => Err(Failure::with_help(reason.as_str(), "see whether nvidia-smi lists the GPUs")),
        Ok(look) => {
            screen.show(&agent_page(&host.node, &state, PageFormat::Prometheus))?;
            screen.document(&serde_json::json!({ "node": host.node, "boot_time": host.boot_time, "scrape": look.scrape, "processes": look.processes }))?;
            Ok(Outcome::Done)
        }
    }
}

/// Serves the page until stopped.
fn serve(arguments: &Arguments, board: Arc<Board>, host: &Host, screen: &Screen) -> Result<Outcome, Failure> {
    let kept = duration(arguments.interval) * LOOKS_KEPT;
    let app = agent_router(&host.node, move || board.shown(Instant::now(), kept))
        .layer(CatchPanicLayer::new())
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(TimeoutLayer::with_status_code(axum::http::StatusCode::GATEWAY_TIMEOUT, ANSWER_TIMEOUT));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let refused = |error: std::io::Error| {
            Failure::with_help(format!("cannot listen on {}: {error}", arguments.listen), "name another address with --listen, such as 127.0.0.1:9466")
        };
        let listener = tokio::net::TcpListener::bind(arguments.listen).await.map_err(refused)?;
        note(&format!("http://{}/metrics shows the GPUs of {}. Ctrl-C stops.", listener.local_addr().map_err(refused)?, host.node));
        let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
        let mut server = tokio::spawn(axum::serve(listener, app).with_graceful_shutdown(async { drop(stopping.await) }).into_future());
        tokio::select! {
            ended = &mut server => return Err(Failure::new(format!("the HTTP server ended: {ended:?}"))),
            () = stopped() => {}
        }
        drop(stop);
        // Who still reads after that is cut off.
        let _ = tokio::time::timeout(GRACE, server).await;
        Ok(())
    })?;
    screen.document(&serde_json::json!({ "stopped": true }))?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::Scrape;

    #[expect(clippy::unnecessary_wraps, reason = "what it stands for is a state, which may be a fault")]
    fn found() -> AgentState {
        Ok(Arc::new(AgentLook { scrape: Scrape::read(TargetId::new("nvml/n1").unwrap(), Timestamp(7), Vec::new()), processes: Vec::new() }))
    }

    /// What was true some intervals ago is not shown as what is.
    #[test]
    fn a_look_is_withdrawn_when_no_other_follows() {
        let (board, start, kept) = (Board::default(), Instant::now(), Duration::from_secs(45));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(board.shown(start, kept), Err("the GPU driver has not been asked yet".into()));
        board.change(|last| last.look = Some((start, found())));
        assert_eq!(board.shown(at(45), kept), found());
        assert_eq!(board.shown(at(46), kept), Err("the last look is 46s old".into()));
        board.change(|last| last.asked = Some(at(15)));
        assert_eq!(board.shown(at(45), kept), found(), "a slow look takes nothing away yet");
        assert_eq!(board.shown(at(75), kept), Err("the GPU driver has not answered for 1m".into()));
        // A look that failed takes the values away at once.
        board.change(|last| *last = Last { look: Some((at(76), Err("no GPU".into()))), asked: None });
        assert_eq!(board.shown(at(76), kept), Err("no GPU".into()));
    }

    #[test]
    fn intervals_have_limits() {
        assert_eq!((interval("15s"), interval("1h")), (Ok(Span(15)), Ok(Span::HOUR)));
        for bad in ["0s", "2h", "15", "-3s", "soon"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
