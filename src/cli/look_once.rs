//! One look at everything the configuration names, for planning by hand and for `doctor`.

use crate::{Failure, tokens};
use config::Config;
use cycle::Event;
use fleet::{GpuId, Scrape, Timestamp};

/// What was seen, as the loop takes it. Sources that fail give failed readings, and a note.
pub(crate) struct Seen {
    pub events: Vec<Event>,
    pub notes: Vec<String>,
}

/// Looks.
pub(crate) fn look(config: &Config, now: Timestamp) -> Result<Seen, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (events, notes) = runtime.block_on(daemon::look_once(config, &tokens::reader(), now))?;
    // A driver that hangs must not keep the program from ending.
    runtime.shutdown_background();
    Ok(Seen { events, notes })
}

impl Seen {
    /// The looks at targets, in order of time, then of target.
    pub fn scrapes(&self) -> impl Iterator<Item = &Scrape> {
        self.events.iter().filter_map(|event| if let Event::Scraped(scrape) = event { Some(scrape) } else { None })
    }

    /// The looks at pages that tell of GPUs.
    pub fn gpu_pages(&self) -> impl Iterator<Item = &Scrape> {
        self.events.iter().filter_map(|event| if let Event::GpuPage(scrape) = event { Some(scrape) } else { None })
    }

    /// The GPUs of the fleet that a page tells of.
    pub fn gpus(page: &Scrape, config: &Config) -> Vec<GpuId> {
        let of = |device: &fleet::Device| {
            let gpus = &config.fleet.gpus;
            let by_uuid = gpus.iter().find(|g| Some(g.id.as_str()) == device.uuid.as_deref());
            let here = |g: &&fleet::Gpu| {
                Some(g.index) == device.index && device.node.as_deref().is_some_and(|n| n.split('.').next() == Some(g.node.as_str()) || n == g.node.as_str())
            };
            by_uuid.or_else(|| gpus.iter().find(here)).map(|g| g.id.clone())
        };
        page.devices.iter().filter_map(of).collect()
    }
}
