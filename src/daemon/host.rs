//! The GPUs of this host as a source. The driver's library may block for as long as it likes: it has a thread of its own.

use crate::{
    DaemonError,
    schedule::{Look, Looking, Source},
};
use config::NvmlConfig;
use fleet::{Scrape, TargetId, Timestamp};
use ingest::nvml::{self, Host, Watch};
use std::{
    sync::mpsc::{self, SyncSender},
    thread,
    time::Duration,
};
use tokio::sync::oneshot;

/// A driver that does not answer for this long is treated as silent.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(10);

type Question = (Timestamp, oneshot::Sender<Scrape>);

/// The GPUs of this host.
pub(crate) struct HostGpus {
    target: TargetId,
    ask: SyncSender<Question>,
}

impl HostGpus {
    /// Opens the library and begins to watch.
    pub fn open(config: &NvmlConfig) -> Result<Self, DaemonError> {
        let refuse = |reason: String| DaemonError::Source { name: "nvml".into(), reason };
        let target = TargetId::new(format!("nvml/{}", config.node)).map_err(|e| refuse(e.to_string()))?;
        let library = nvml::open(config.library.as_deref()).map_err(|e| refuse(e.to_string()))?;
        let boot_time = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| nvml::boot_time(&stat));
        let host = Host { node: config.node.to_string(), boot_time };
        // One question at a time: while the driver hangs the next one is refused, not queued.
        let (ask, asked) = mpsc::sync_channel::<Question>(1);
        let name = target.clone();
        let watch = move || {
            let mut watch = Watch::new(&library);
            while let Ok((at, answer)) = asked.recv() {
                // Whoever asked may have given up.
                let _ = answer.send(watch.scrape(&name, &host, at));
            }
        };
        thread::Builder::new().name("nvml".into()).spawn(watch).map_err(|e| refuse(e.to_string()))?;
        Ok(Self { target, ask })
    }
}

impl Source for HostGpus {
    fn look(&self, now: Timestamp) -> Looking {
        let (answer, answered) = oneshot::channel();
        let asked = self.ask.try_send((now, answer)).is_ok();
        let target = self.target.clone();
        Box::pin(async move {
            let silent = || Scrape::failed(target, now, "the GPU driver does not answer");
            let scrape = match (asked, tokio::time::timeout(DRIVER_TIMEOUT, answered).await) {
                (true, Ok(Ok(scrape))) => scrape,
                _ => silent(),
            };
            Look { gpu_pages: vec![scrape], ..Look::default() }
        })
    }
}
