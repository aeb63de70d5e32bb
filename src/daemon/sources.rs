//! What is read, and when: metrics endpoints, the GPUs of this host, and jobs the configuration says are running.

use crate::DaemonError;
use config::{Config, RunningJob};
use cycle::{Event, JobReading, JobState};
use fleet::{GpuId, GpuReading, GpuStatus, NodeId, Observation, Scrape, Signal, Span, Target, TargetId, Timestamp, WorkloadWindow};
use ingest::{IngestError, Replay, exposition::Limits, nvml::NvmlReading, prometheus, prometheus::Endpoint};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::task::JoinSet;
use wire::{Auth, Client, Secret};

/// A driver that does not answer for this long is treated as silent.
const NVML_TIMEOUT: Duration = Duration::from_secs(10);
/// Work left of a job whose progress nobody reports never falls below this by our own reckoning: only an observation ends it.
const UNREPORTED_WORK_LEFT_S: f64 = 60.0;

type Recorded = Replay<WorkloadWindow, std::vec::IntoIter<(Timestamp, WorkloadWindow)>>;
type ReadNvml = Arc<dyn Fn(Timestamp) -> Result<Vec<NvmlReading>, IngestError> + Send + Sync>;

/// Everything the daemon reads.
pub(crate) struct Sources {
    client: Client,
    targets: Vec<Target>,
    endpoints: Vec<Scheduled<Endpoint>>,
    nvml: Option<Scheduled<Host>>,
    /// Where the jobs that run already are said.
    config: Config,
    /// Recorded windows still to come.
    replay: Recorded,
    /// What was last said of each target.
    told: BTreeMap<TargetId, String>,
}

/// Something read at a fixed spacing.
struct Scheduled<T> {
    what: T,
    interval: Span,
    next: Timestamp,
    /// Time from the first look to the second: spreads a fleet over the interval.
    offset: Span,
}

/// The GPUs of this host.
struct Host {
    node: NodeId,
    /// GPUs of the node by index, and by UUID where the configuration knows them.
    by_index: BTreeMap<u32, GpuId>,
    read: ReadNvml,
}

/// What one look at everything due gave.
pub(crate) struct Readings {
    pub events: Vec<Event>,
    pub observations: Vec<Observation>,
}

impl<T> Scheduled<T> {
    /// Whether it is due; if so, the next time is set. Times that were missed are not made up for.
    fn is_due(&mut self, now: Timestamp) -> bool {
        let due = self.next <= now;
        if due {
            self.next = self.next + self.offset;
            self.offset = Span::ZERO;
        }
        while self.next <= now {
            self.next = self.next + self.interval;
        }
        due
    }
}

impl Sources {
    pub fn new(config: &Config, tokens: &BTreeMap<TargetId, Secret>, mut replay: Vec<WorkloadWindow>, now: Timestamp) -> Result<Self, DaemonError> {
        let client = Client::new(&wire::Options::default()).map_err(|e| DaemonError::Source { name: "the HTTP client".into(), reason: e.to_string() })?;
        let endpoints = config.targets.iter().map(|t| Scheduled {
            what: Endpoint {
                target: t.target.id.clone(),
                url: t.url.clone(),
                auth: tokens.get(&t.target.id).map_or(Auth::None, |token| Auth::Bearer(token.clone())),
                names: t.metrics.clone(),
            },
            interval: t.interval,
            // Everything is looked at once before the first decision; then spread over the interval by name, so that a fleet is not asked all at once.
            next: now,
            offset: Span(i64::try_from(prometheus::offset(&t.target.id, duration(t.interval)).as_secs()).unwrap_or(0)),
        });
        replay.sort_by_key(|w| w.start + w.length);
        let due: Vec<_> = replay.into_iter().map(|w| (w.start + w.length, w)).collect();
        Ok(Self {
            client,
            replay: Replay::new(due),
            targets: config.targets.iter().map(|t| t.target.clone()).collect(),
            endpoints: endpoints.collect(),
            nvml: host(config, now)?,
            config: config.clone(),
            told: BTreeMap::new(),
        })
    }

    pub fn targets(&self) -> Vec<Target> {
        self.targets.clone()
    }

    pub fn next_due(&mut self) -> Timestamp {
        let replay = self.replay.next_due();
        self.endpoints.iter().map(|e| e.next).chain(self.nvml.iter().map(|n| n.next)).chain(replay).min().unwrap_or(Timestamp(i64::MAX))
    }

    /// Looks at everything that is due, side by side. A source that fails gives a failed reading, never an error.
    pub async fn read(&mut self, now: Timestamp) -> Readings {
        let mut looks = JoinSet::new();
        for endpoint in self.endpoints.iter_mut().filter_map(|e| e.is_due(now).then(|| e.what.clone())) {
            let client = self.client.clone();
            looks.spawn(async move { prometheus::scrape(&client, &endpoint, &Limits::default(), now).await });
        }
        let mut scrapes: Vec<Scrape> = looks.join_all().await;
        scrapes.sort_by(|a, b| a.target.cmp(&b.target));
        for scrape in &scrapes {
            self.tell(scrape);
        }
        let mut observations: Vec<Observation> = scrapes.iter().flat_map(|s| s.observations(now)).collect();
        let mut events: Vec<Event> = scrapes.into_iter().map(Event::Scraped).collect();
        if let Some(host) = self.nvml.as_mut()
            && host.is_due(now)
        {
            let read = host.what.read.clone();
            let look = tokio::time::timeout(NVML_TIMEOUT, tokio::task::spawn_blocking(move || read(now))).await;
            match look {
                Ok(Ok(Ok(readings))) => {
                    observations.extend(readings.iter().flat_map(|r| gpu_observations(&host.what.node, r, now)));
                    events.push(Event::Gpus(readings.iter().filter_map(|r| gpu_reading(&host.what, r, now)).collect()));
                }
                Ok(Ok(Err(error))) => tracing::warn!(%error, "the GPUs of this host could not be read; what was known of them is held"),
                Ok(Err(_)) | Err(_) => tracing::warn!("the GPU driver does not answer; what was known of its GPUs is held"),
            }
        }
        let mut windows = Vec::new();
        while let Some((_, window)) = self.replay.due(now) {
            windows.push(window);
        }
        if !windows.is_empty() {
            events.push(Event::Windows(windows));
        }
        Readings { events, observations }
    }

    /// Says once what changed about a target, instead of the same at every look.
    fn tell(&mut self, scrape: &Scrape) {
        let state = prometheus::state_of(scrape);
        if self.told.get(&scrape.target) == Some(&state) {
            return;
        }
        if scrape.is_ok() {
            tracing::info!(target_id = %scrape.target, state, "scraped");
        } else {
            tracing::warn!(target_id = %scrape.target, state, "a look came back empty; what the target did last is held");
        }
        self.told.insert(scrape.target.clone(), state);
    }

    /// Jobs the configuration says are running, with the progress they should have made.
    pub fn jobs(&self, now: Timestamp) -> Vec<JobReading> {
        self.config.running_jobs.iter().filter_map(|running| reckoned(&self.config, running, now)).collect()
    }
}

/// A job the configuration says is running, with the progress it should have made; only an observation ends it. Nothing when it cannot run on the
/// GPUs it is said to hold.
#[must_use]
pub fn reckoned(config: &Config, running: &RunningJob, now: Timestamp) -> Option<JobReading> {
    let job = config.workloads.iter().find(|w| w.id.as_str() == running.job.as_str())?.job()?;
    let kind = running.gpus.first().and_then(|g| config.fleet.gpu(g)).and_then(|g| config.fleet.pool(&g.pool)).map(|p| &p.kind)?;
    let at_work = now.since(running.since + job.startup).as_secs_f64() * job.speed.get(kind)?;
    Some(JobReading {
        job: running.job.clone(),
        at: now,
        state: JobState::Running,
        remaining_s: (job.work.as_secs_f64() - running.done.as_secs_f64() - at_work).max(UNREPORTED_WORK_LEFT_S),
        since_checkpoint_s: 0.0,
        gpus: running.gpus.clone(),
        since: Some(running.since),
    })
}

fn duration(span: Span) -> Duration {
    Duration::from_secs(u64::try_from(span.0).unwrap_or(0))
}

fn host(config: &Config, now: Timestamp) -> Result<Option<Scheduled<Host>>, DaemonError> {
    let Some(nvml) = &config.nvml else { return Ok(None) };
    let refuse = |error: IngestError| DaemonError::Source { name: "nvml".into(), reason: error.to_string() };
    let handle = ingest::nvml::open(nvml.library.as_deref()).map_err(refuse)?;
    let gpus = config.fleet.gpus.iter().filter(|g| g.node == nvml.node);
    let host =
        Host { node: nvml.node.clone(), by_index: gpus.map(|g| (g.index, g.id.clone())).collect(), read: Arc::new(move |at| ingest::nvml::read(&handle, at)) };
    Ok(Some(Scheduled { what: host, interval: nvml.interval, next: now, offset: Span::ZERO }))
}

/// The fleet's GPU that a reading is about: by UUID where the configuration knows it, else by its place.
fn gpu_id(host: &Host, reading: &NvmlReading) -> Option<GpuId> {
    let by_uuid = reading.uuid.as_ref().and_then(|uuid| host.by_index.values().find(|id| id.as_str() == uuid));
    by_uuid.or_else(|| host.by_index.get(&reading.index)).cloned()
}

/// Free only when the driver says that nothing runs; what it does not say is not free.
#[must_use]
pub fn gpu_status(reading: &NvmlReading) -> GpuStatus {
    match (&reading.lost, reading.processes()) {
        (Some(reason), _) => GpuStatus::Failed(reason.clone()),
        (None, Some(0)) => GpuStatus::Free,
        (None, Some(n)) => GpuStatus::Occupied(format!("{n} processes run on it")),
        (None, None) => GpuStatus::Occupied("its driver does not say what runs on it".into()),
    }
}

fn gpu_reading(host: &Host, reading: &NvmlReading, now: Timestamp) -> Option<GpuReading> {
    Some(GpuReading { gpu: gpu_id(host, reading)?, at: now, status: gpu_status(reading) })
}

fn gpu_observations(node: &NodeId, reading: &NvmlReading, now: Timestamp) -> Vec<Observation> {
    let Ok(source) = TargetId::new(format!("nvml/{node}/{}", reading.index)) else { return Vec::new() };
    #[expect(clippy::cast_precision_loss, reason = "bytes of GPU memory lie far below 2^52")]
    let bytes = |b: fleet::Bytes| b.0 as f64;
    let values = [
        (Signal::GpuUtilisation, reading.utilisation.map(fleet::Share::get)),
        (Signal::GpuMemoryUsed, reading.memory_used.map(bytes)),
        (Signal::GpuMemoryTotal, reading.memory_total.map(bytes)),
        (Signal::GpuPower, reading.power_w),
        (Signal::GpuProcesses, reading.processes().map(f64::from)),
    ];
    let known = values.into_iter().filter_map(|(signal, value)| Some((signal, value?)));
    known.map(|(signal, value)| Observation { source: source.clone(), member: None, signal, part: None, value, observed: now, received: now }).collect()
}
