//! One look at everything the configuration names, for planning by hand: endpoints, GPUs of this host, jobs that run already.

use config::Config;
use cycle::{Event, JobReading};
use fleet::{GpuReading, Scrape, TargetId, Timestamp};
use ingest::{exposition::Limits, nvml::NvmlReading, prometheus, prometheus::Endpoint};
use std::collections::BTreeMap;
use tokio::task::JoinSet;
use wire::{Auth, Client, Secret};

use crate::Failure;

/// What was seen, as the loop takes it. Sources that fail give failed readings, and a note.
pub(crate) struct Seen {
    pub events: Vec<Event>,
    pub notes: Vec<String>,
}

/// Looks.
pub(crate) fn look(config: &Config, tokens: &BTreeMap<TargetId, Secret>, now: Timestamp) -> Result<Seen, Failure> {
    let mut events = vec![Event::Targets(config.targets.iter().map(|t| t.target.clone()).collect())];
    let mut notes = Vec::new();
    for scrape in scrapes(config, tokens, now)? {
        if let fleet::ScrapeStatus::Failed(reason) = &scrape.status {
            notes.push(format!("target {} does not answer, its supply is not counted: {reason}", scrape.target));
        }
        events.push(Event::Scraped(scrape));
    }
    match gpus(config, now) {
        Ok(readings) => events.extend((!readings.is_empty()).then_some(Event::Gpus(readings))),
        Err(reason) => notes.push(reason),
    }
    let running: Vec<JobReading> = config.running_jobs.iter().filter_map(|r| daemon::reckoned(config, r, now)).collect();
    events.extend((!running.is_empty()).then_some(Event::Jobs(running)));
    Ok(Seen { events, notes })
}

/// One scrape of each target, side by side, in order of target.
pub(crate) fn scrapes(config: &Config, tokens: &BTreeMap<TargetId, Secret>, now: Timestamp) -> Result<Vec<Scrape>, Failure> {
    if config.targets.is_empty() {
        return Ok(Vec::new());
    }
    let client = Client::new(&wire::Options::default())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut scrapes = runtime.block_on(async {
        let mut looks = JoinSet::new();
        for t in &config.targets {
            let auth = tokens.get(&t.target.id).map_or(Auth::None, |token| Auth::Bearer(token.clone()));
            let endpoint = Endpoint { target: t.target.id.clone(), url: t.url.clone(), auth, names: t.metrics.clone() };
            let client = client.clone();
            looks.spawn(async move { prometheus::scrape(&client, &endpoint, &Limits::default(), now).await });
        }
        looks.join_all().await
    });
    scrapes.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(scrapes)
}

/// The GPUs of this host. Free only when the driver says that nothing runs on them.
pub(crate) fn gpus(config: &Config, now: Timestamp) -> Result<Vec<GpuReading>, String> {
    let Some(nvml) = &config.nvml else { return Ok(Vec::new()) };
    let handle = ingest::nvml::open(nvml.library.as_deref()).map_err(|e| e.to_string())?;
    let readings = ingest::nvml::read(&handle, now).map_err(|e| e.to_string())?;
    let here = || config.fleet.gpus.iter().filter(|g| g.node == nvml.node);
    let reading = |r: &NvmlReading| {
        let by_uuid = here().find(|g| r.uuid.as_deref() == Some(g.id.as_str()));
        let gpu = by_uuid.or_else(|| here().find(|g| g.index == r.index))?;
        Some(GpuReading { gpu: gpu.id.clone(), at: now, status: daemon::gpu_status(r) })
    };
    Ok(readings.iter().filter_map(reading).collect())
}
