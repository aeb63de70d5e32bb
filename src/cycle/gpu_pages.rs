//! Pages that tell of GPUs: whose GPU a device is, what that says of it, and who holds it.

use crate::{Effect, State};
use fleet::{Gpu, GpuId, GpuReading, GpuStatus, Scrape, Server, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use series::DeviceState;
use std::collections::BTreeMap;

/// A page that tells of GPUs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct GpuPage {
    pub last_ok: Option<Timestamp>,
    pub last_error: Option<String>,
    pub server: Option<Server>,
}

impl State {
    /// Takes a look at a page: what it says of our GPUs is as good as a look at them. One that failed says nothing, and what was known ages.
    pub(crate) fn saw_gpu_page(&mut self, scrape: &Scrape, effects: &mut Vec<Effect>) {
        let page = self.gpu_pages.entry(scrape.target.clone()).or_default();
        match &scrape.status {
            fleet::ScrapeStatus::Ok => {
                *page = GpuPage { last_ok: Some(scrape.at), last_error: None, server: scrape.server.clone() };
            }
            fleet::ScrapeStatus::Failed(reason) => {
                page.last_error = Some(reason.clone());
                return;
            }
        }
        let states = self.devices.observe(scrape);
        let mut readings: BTreeMap<GpuId, GpuReading> = BTreeMap::new();
        for state in &states {
            let Some(gpu) = self.fleet_gpu(state).map(|gpu| gpu.id.clone()) else { continue };
            match &state.holder {
                Some(holder) => self.gpu_holders.insert(gpu.clone(), holder.pod.clone()),
                None => self.gpu_holders.remove(&gpu),
            };
            // The slices of a GPU and the GPU itself are one GPU of the fleet: the least free of them counts.
            let reading = GpuReading { gpu: gpu.clone(), at: scrape.at, status: status(state) };
            match readings.get(&gpu) {
                Some(known) if rank(&known.status) >= rank(&reading.status) => {}
                _ => drop(readings.insert(gpu, reading)),
            }
        }
        self.saw_gpus(readings.into_values().collect(), effects);
    }

    /// The GPU of the fleet that a device is: by UUID where the configuration knows it, else by its place.
    fn fleet_gpu(&self, device: &DeviceState) -> Option<&Gpu> {
        let gpus = &self.setup.fleet.gpus;
        let by_uuid = device.uuid.as_ref().and_then(|uuid| gpus.iter().find(|g| g.id.as_str() == uuid));
        by_uuid.or_else(|| {
            let (node, index) = (device.node.as_deref()?, device.index?);
            // A page may give the full name of a host that the configuration calls by its first part.
            let short = node.split('.').next().unwrap_or(node);
            gpus.iter().find(|g| g.index == index && (g.node.as_str() == node || g.node.as_str() == short))
        })
    }

    /// Pages that tell of GPUs, in order of name.
    pub(crate) fn gpu_pages(&self) -> impl Iterator<Item = (&TargetId, &GpuPage)> {
        self.gpu_pages.iter()
    }
}

/// What a device's state says of the GPU it is, or is a part of.
fn status(device: &DeviceState) -> GpuStatus {
    match (&device.mig, device.status()) {
        (Some(slice), GpuStatus::Free) => {
            GpuStatus::Occupied(format!("it is split: slice {} ({}) is free, but slices are not planned with", slice.instance, slice.profile))
        }
        (_, status) => status,
    }
}

fn rank(status: &GpuStatus) -> u8 {
    match status {
        GpuStatus::Free => 0,
        GpuStatus::Replica { .. } | GpuStatus::Job(_) | GpuStatus::Occupied(_) => 1,
        GpuStatus::Failed(_) => 2,
    }
}
