//! What is read: everything the configuration names, looked at on a schedule, and what is found on the way.

use crate::{
    DaemonError, ReadSecret,
    api::Api,
    asking::Asking,
    bucket::Points,
    host::HostGpus,
    lists::List,
    pages::{self, Timed},
    schedule::{Found, FoundPage, Look, Punctuality, Schedule, Ticket},
};
use config::{Config, RunningJob};
use cycle::{Event, JobReading, JobState};
use fleet::{Observation, Scrape, Span, Target, TargetId, Timestamp, WorkloadWindow};
use ingest::{Catalogue, Replay, prometheus};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Work left of a job whose progress nobody reports never falls below this by our own reckoning: only an observation ends it.
const UNREPORTED_WORK_LEFT_S: f64 = 60.0;

type Recorded = Replay<WorkloadWindow, std::vec::IntoIter<(Timestamp, WorkloadWindow)>>;

/// Everything the daemon reads.
pub(crate) struct Sources {
    catalogue: Arc<Catalogue>,
    asking: Asking,
    schedule: Schedule,
    /// Targets the configuration names.
    fixed: Vec<Target>,
    /// What sources found, by source, with the pages that are looked at for it.
    found: BTreeMap<TargetId, (Found, Vec<Ticket>)>,
    /// Targets that were spoken of by whoever pushes.
    pushed: BTreeMap<TargetId, Target>,
    /// Where the jobs that run already are said.
    config: Config,
    /// Jobs somebody reports on.
    reported: BTreeMap<fleet::JobId, JobReading>,
    /// Recorded windows still to come.
    replay: Recorded,
    /// What was last said of each target.
    told: BTreeMap<TargetId, String>,
}

/// What looks gave, as the loop takes it.
pub(crate) struct Readings {
    pub events: Vec<Event>,
    pub observations: Vec<Observation>,
}

impl Sources {
    pub fn new(config: &Config, read_secret: &ReadSecret, mut replay: Vec<WorkloadWindow>, now: Timestamp) -> Result<Self, DaemonError> {
        let refuse = |error: fleet::EngineTableError| DaemonError::Source { name: "the catalogue".into(), reason: error.to_string() };
        let catalogue = Arc::new(Catalogue::with(config.engines.clone()).map_err(refuse)?);
        replay.sort_by_key(|w| w.start + w.length);
        let due: Vec<_> = replay.into_iter().map(|w| (w.start + w.length, w)).collect();
        let buckets = config.sources.influxdb.iter().filter_map(Points::target);
        let mut sources = Self {
            catalogue,
            asking: Asking::new(read_secret.clone()),
            schedule: Schedule::new(),
            fixed: config.targets.iter().map(|t| t.target.clone()).chain(buckets).collect(),
            found: BTreeMap::new(),
            pushed: BTreeMap::new(),
            config: config.clone(),
            reported: BTreeMap::new(),
            replay: Replay::new(due),
            told: BTreeMap::new(),
        };
        sources.open(now)?;
        Ok(sources)
    }

    /// Puts every source of the configuration on the schedule.
    fn open(&mut self, now: Timestamp) -> Result<(), DaemonError> {
        let config = self.config.clone();
        for page in pages::of_targets(&pages::distinct(config.targets), &self.catalogue, &mut self.asking)? {
            self.add(page, now);
        }
        for page in pages::of_gpus(&config.sources.gpu_pages, &self.catalogue, &mut self.asking)? {
            self.add(page, now);
        }
        for api in &config.sources.prometheus_apis {
            let source = Api::new(api, &self.catalogue, &mut self.asking)?;
            self.schedule.add(source, api.page.interval, offset(&api.id, api.page.interval), now);
        }
        for list in &config.sources.discoveries {
            let source = List::new(list, &mut self.asking)?;
            self.schedule.add(source, list.refresh, offset(&list.id, list.refresh), now);
        }
        for bucket in &config.sources.influxdb {
            let source = Points::new(bucket, &mut self.asking)?;
            self.schedule.add(source, bucket.interval, offset(&bucket.id, bucket.interval), now);
        }
        if let Some(nvml) = &config.nvml {
            self.schedule.add(HostGpus::open(nvml)?, nvml.interval, Span::ZERO, now);
        }
        Ok(())
    }

    fn add(&mut self, timed: Timed, now: Timestamp) -> Ticket {
        let Timed { page, interval, name } = timed;
        self.schedule.add(page, interval, offset(&name, interval), now)
    }

    /// The targets there are now.
    pub fn targets(&self) -> Vec<Target> {
        let found = self.found.values().flat_map(|(found, _)| &found.targets);
        let mut all: BTreeMap<&TargetId, &Target> = self.pushed.values().map(|t| (&t.id, t)).collect();
        all.extend(found.map(|t| (&t.id, t)));
        all.extend(self.fixed.iter().map(|t| (&t.id, t)));
        all.into_values().cloned().collect()
    }

    pub fn next_due(&mut self) -> Timestamp {
        self.schedule.next_due().min(self.replay.next_due().unwrap_or(Timestamp(i64::MAX)))
    }

    pub fn is_idle(&self) -> bool {
        self.schedule.is_idle()
    }

    pub fn punctuality(&self) -> Punctuality {
        self.schedule.punctuality()
    }

    pub fn begin(&mut self, now: Timestamp) {
        self.schedule.begin(now);
    }

    pub fn clock_set(&mut self, now: Timestamp) {
        self.schedule.clock_set(now);
    }

    pub async fn finished(&mut self) -> Look {
        self.schedule.finished().await
    }

    pub async fn settle(&mut self, grace: Duration) -> Look {
        self.schedule.settle(grace).await
    }

    /// What looks saw, as the loop takes it; pages that were found go on the schedule.
    pub fn readings(&mut self, look: Look, now: Timestamp) -> Readings {
        let mut events = Vec::new();
        let mut changed = false;
        for found in look.found {
            changed |= self.take_found(found, now);
        }
        if changed {
            events.push(Event::Targets(self.targets()));
        }
        let mut scrapes = look.scrapes;
        scrapes.sort_by(|a, b| (a.at, &a.target).cmp(&(b.at, &b.target)));
        let mut gpu_pages = look.gpu_pages;
        gpu_pages.sort_by(|a, b| (a.at, &a.target).cmp(&(b.at, &b.target)));
        for scrape in scrapes.iter().chain(&gpu_pages) {
            self.tell(scrape);
        }
        let observations = scrapes.iter().chain(&gpu_pages).flat_map(|s| s.observations(now)).collect();
        // GPUs first: a replica that answers is found on GPUs that are known to be held.
        events.extend(gpu_pages.into_iter().map(Event::GpuPage));
        events.extend(scrapes.into_iter().map(Event::Scraped));
        if !look.jobs.is_empty() {
            self.reported.extend(look.jobs.iter().map(|j| (j.job.clone(), j.clone())));
            events.push(Event::Jobs(look.jobs));
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

    /// Takes what a source found; true when targets came or went.
    fn take_found(&mut self, found: Found, now: Timestamp) -> bool {
        let old = self.found.remove(&found.source);
        let changed = old.as_ref().is_none_or(|(known, _)| known.targets != found.targets);
        let tickets = match old {
            Some((known, tickets)) if known.pages == found.pages => tickets,
            old => {
                old.into_iter().flat_map(|(_, tickets)| tickets).for_each(|t| self.schedule.remove(t));
                self.schedule_pages(&found, now)
            }
        };
        tracing::info!(source_id = %found.source, targets = found.targets.len(), pages = found.pages.len(), "found");
        self.found.insert(found.source.clone(), (found, tickets));
        changed
    }

    fn schedule_pages(&mut self, found: &Found, now: Timestamp) -> Vec<Ticket> {
        let (mut targets, mut gpus) = (Vec::new(), Vec::new());
        for page in found.pages.iter().cloned() {
            match page {
                FoundPage::Target(target) => targets.push(target),
                FoundPage::Gpus(page) => gpus.push(page),
            }
        }
        let made = [pages::of_targets(&pages::distinct(targets), &self.catalogue, &mut self.asking), pages::of_gpus(&gpus, &self.catalogue, &mut self.asking)];
        let mut tickets = Vec::new();
        for pages in made {
            match pages {
                Ok(pages) => tickets.extend(pages.into_iter().map(|page| self.add(page, now))),
                Err(error) => tracing::warn!(source_id = %found.source, %error, "its pages cannot be asked"),
            }
        }
        tickets
    }

    /// Takes what was pushed. Sources nobody listed become targets of the service they speak of, as routers: they hold no GPU.
    pub fn pushed(&mut self, batch: ingest::push::Batch) -> Look {
        let mut look = Look::default();
        let allowed = self.config.sources.push.as_ref().map(|p| p.allowed.clone()).unwrap_or_default();
        for pushed in batch.demand {
            let known = self.config.workloads.iter().any(|w| w.id == pushed.workload && w.service().is_some());
            if !known || !allowed.contains(&pushed.workload) {
                tracing::warn!(workload = %pushed.workload, "somebody pushes demand of a service that is not known or not allowed; it is left out");
                continue;
            }
            let id = pushed.scrape.target.clone();
            if !self.pushed.contains_key(&id) && self.pushed.len() < PUSHED_SOURCES_MAX {
                let target = Target { id: id.clone(), workload: pushed.workload, variant: None, replica: None, gpus: Vec::new(), pod: None };
                self.pushed.insert(id.clone(), target);
                let source = Found { source: id, targets: Vec::new(), pages: Vec::new() };
                // Only says that the targets changed.
                look.found.push(source);
            }
            look.scrapes.push(pushed.scrape);
        }
        let jobs = batch.jobs.into_iter().filter_map(|report| self.job_reading(&report));
        look.jobs = jobs.collect();
        look
    }

    /// A job report in the loop's words. What it does not say is taken from the configuration.
    fn job_reading(&self, report: &ingest::push::JobReport) -> Option<JobReading> {
        use ingest::push::JobStage;
        let job = self.config.workloads.iter().find(|w| w.id.as_str() == report.job.as_str())?.job()?;
        let before = self.reported.get(&report.job);
        let running = self.config.running_jobs.iter().find(|r| r.job == report.job);
        let state = match report.stage {
            JobStage::Waiting => JobState::Waiting,
            JobStage::Running => JobState::Running,
            JobStage::Done => JobState::Done,
        };
        let gpus = before.map(|b| b.gpus.clone()).or_else(|| running.map(|r| r.gpus.clone())).unwrap_or_default();
        Some(JobReading {
            job: report.job.clone(),
            at: report.at,
            state,
            remaining_s: report.remaining_s.or(before.map(|b| b.remaining_s)).unwrap_or(job.work.as_secs_f64()),
            since_checkpoint_s: report.since_checkpoint_s.unwrap_or(0.0),
            gpus: if state == JobState::Running { gpus } else { Vec::new() },
            since: running.map(|r| r.since),
        })
    }

    /// Says once what changed about a target, instead of the same at every look.
    fn tell(&mut self, scrape: &Scrape) {
        let state = prometheus::state_of(&self.catalogue, scrape);
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

    /// Jobs the configuration says are running and nobody reports on, with the progress they should have made.
    pub fn jobs(&self, now: Timestamp) -> Vec<JobReading> {
        let unreported = self.config.running_jobs.iter().filter(|r| !self.reported.contains_key(&r.job));
        unreported.filter_map(|running| reckoned(&self.config, running, now)).collect()
    }

    /// The signals each target's engine should show.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }
}

/// Sources that may push at most; beyond it nobody new is listened to.
const PUSHED_SOURCES_MAX: usize = 1_000;

/// One look at everything, for planning by hand: the events the loop would have been given, and what did not answer.
///
/// # Errors
/// When a source cannot be set up.
pub async fn look_once(config: &Config, read_secret: &ReadSecret, now: Timestamp) -> Result<(Vec<Event>, Vec<String>), DaemonError> {
    let mut sources = Sources::new(config, read_secret, Vec::new(), now)?;
    let mut events = vec![Event::Targets(sources.targets())];
    // Lists first name their pages, then these are looked at.
    for _ in 0..2 {
        sources.begin(now);
        let look = sources.settle(LOOK_ONCE_MAX).await;
        events.extend(sources.readings(look, now).events);
    }
    let running = sources.jobs(now);
    events.extend((!running.is_empty()).then_some(Event::Jobs(running)));
    let notes = events.iter().filter_map(|event| match event {
        Event::Scraped(Scrape { target, status: fleet::ScrapeStatus::Failed(reason), .. }) => {
            Some(format!("target {target} does not answer, its supply is not counted: {reason}"))
        }
        Event::GpuPage(Scrape { target, status: fleet::ScrapeStatus::Failed(reason), .. }) => {
            Some(format!("{target} does not answer, its GPUs count as occupied: {reason}"))
        }
        _ => None,
    });
    let notes = notes.collect();
    Ok((events, notes))
}

/// Longest time one look at everything takes.
const LOOK_ONCE_MAX: Duration = Duration::from_secs(30);

/// A job the configuration says is running, with the progress it should have made; only an observation ends it. Nothing when it cannot run on the
/// GPUs it is said to hold.
fn reckoned(config: &Config, running: &RunningJob, now: Timestamp) -> Option<JobReading> {
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

/// The place of a source in its interval, whole seconds.
fn offset(name: &TargetId, interval: Span) -> Span {
    let interval = Duration::from_secs(u64::try_from(interval.0).unwrap_or(0));
    Span(i64::try_from(prometheus::offset(name, interval).as_secs()).unwrap_or(0))
}
