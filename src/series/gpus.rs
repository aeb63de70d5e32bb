//! What every page says of GPUs, joined GPU by GPU: busy, free or unknown, healthy or not, and who holds it.

use crate::admission::plausible;
use crate::health::{Fault, Health, Signs};
use fleet::{Bytes, Device, GpuId, GpuReading, GpuStatus, Holder, MemberId, MigSlice, Reading, Scrape, Signal, Span, TargetId, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A reading older than this says nothing of now: the longest gap between looks that counts as observed.
const READING_AGE_MAX: Span = Span::minutes(5);
/// A GPU that no page tells of for this long is forgotten, unless it has a fault.
const FORGOTTEN_AFTER: Span = Span::DAY;
/// GPUs and slices kept; beyond it the one unseen for longest makes room.
const DEVICES_MAX: usize = 65_536;
/// Activity from here on is work: the smallest step of the utilisation gauge, which an idle GPU does not reach.
const ACTIVE_MIN: f64 = 0.01;
/// Memory that driver and firmware hold on an idle GPU stays below this, 1 GiB (up to about 700 MiB are seen on large ones with persistence on); a
/// served model with its context of some 500 MiB stays above.
const IDLE_MEMORY_MAX: f64 = 1_073_741_824.0;
/// The same for a slice, 256 MiB: of it the driver holds a few tens of MiB.
const IDLE_SLICE_MEMORY_MAX: f64 = 268_435_456.0;

/// The signals that are remembered of each device.
const REMEMBERED: [Signal; 8] = [
    Signal::GpuEngineActive,
    Signal::GpuTensorActive,
    Signal::GpuMemoryActive,
    Signal::GpuUtilisation,
    Signal::GpuMemoryUsed,
    Signal::GpuMemoryFree,
    Signal::GpuMemoryTotal,
    Signal::GpuProcesses,
];

/// All GPUs that pages tell of. A value: serialisable, the same after the same calls.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Gpus {
    /// By identity of the device, a slice apart from its GPU.
    devices: BTreeMap<String, Known>,
    /// By identity of the physical GPU.
    health: BTreeMap<String, Health>,
    /// Which device was last seen at a place (node and index).
    places: BTreeMap<String, String>,
    /// When it was last looked for devices to forget.
    swept: Option<Timestamp>,
}

/// What is known of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Known {
    device: Device,
    readings: BTreeMap<Signal, (f64, Timestamp)>,
    /// Who holds it, by the word of which target.
    holder: Option<(Holder, TargetId)>,
    seen: Timestamp,
    /// What it was, and since when.
    was: (String, Timestamp),
}

/// The state of one GPU, or one slice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceState {
    /// The member it is on its page.
    pub member: MemberId,
    /// UUID of the whole GPU.
    pub uuid: Option<String>,
    /// Its host, as the page names it.
    pub node: Option<String>,
    /// Position on the host.
    pub index: Option<u32>,
    /// Product name.
    pub product: Option<String>,
    /// The slice, where the GPU is split.
    pub mig: Option<MigSlice>,
    /// Whether it works, or holds memory. `None`: not known, which is never idle.
    pub busy: Option<bool>,
    /// Share of time it was active (0 to 1): of its engines where that is known, else the utilisation gauge, which means nothing on a split GPU.
    pub utilisation: Option<f64>,
    /// Memory in use.
    pub memory_used: Option<Bytes>,
    /// Who runs on it, as far as a page says.
    pub holder: Option<Holder>,
    /// Why it cannot be used.
    pub fault: Option<Fault>,
    /// An error that does not end its use.
    pub warning: Option<Fault>,
    /// Since when it is in this state (failed, held by the same pod, busy, free, or unknown).
    pub since: Timestamp,
    /// When a page last told of it.
    pub seen: Timestamp,
}

impl DeviceState {
    /// Its name: UUID where known, else `node/index`; a slice adds its number. `None`: the page names neither.
    #[must_use]
    pub fn gpu(&self) -> Option<GpuId> {
        let gpu = self.uuid.clone().or_else(|| place(self.node.as_deref(), self.index))?;
        GpuId::new(self.mig.as_ref().map_or(gpu.clone(), |slice| format!("{gpu}/{}", slice.instance))).ok()
    }

    /// What holds it. Free needs proof: next to no activity, next to no memory in use, no pod, no fault. All else is occupied or failed.
    #[must_use]
    pub fn status(&self) -> GpuStatus {
        if let Some(fault) = &self.fault {
            return GpuStatus::Failed(format!("{} (since {})", fault.reason, fault.since));
        }
        if let Some(holder) = &self.holder {
            let namespace = holder.namespace.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
            return GpuStatus::Occupied(format!("pod {namespace}{} holds it", holder.pod));
        }
        match self.busy {
            Some(false) => GpuStatus::Free,
            Some(true) => GpuStatus::Occupied(self.work()),
            None => GpuStatus::Occupied("not known to be free: no fresh reading of both its activity and its memory".into()),
        }
    }

    /// The status as a reading of the fleet's GPU, where the page names it.
    #[must_use]
    pub fn reading(&self) -> Option<GpuReading> {
        Some(GpuReading { gpu: self.gpu()?, at: self.seen, status: self.status() })
    }

    fn work(&self) -> String {
        let active = self.utilisation.map(|share| format!("{:.0} % active", share * 100.0));
        let memory = self.memory_used.map(|bytes| format!("{bytes} in use"));
        let parts: Vec<String> = active.into_iter().chain(memory).collect();
        format!("busy: {}", if parts.is_empty() { "processes run on it".into() } else { parts.join(", ") })
    }
}

impl Gpus {
    /// Takes a look. One that failed, or tells of no GPU, changes nothing: what was known ages.
    ///
    /// A boot time on the page, unless it is a member's own, is that of the node all its devices are on. Gives back the state of the devices the
    /// page tells of.
    pub fn observe(&mut self, scrape: &Scrape) -> Vec<DeviceState> {
        if !scrape.is_ok() {
            return Vec::new();
        }
        let mut told = BTreeSet::new();
        let nodes: BTreeSet<Option<&str>> = scrape.devices.iter().map(|device| device.node.as_deref()).collect();
        let page_boot = if nodes.len() == 1 { scalar(scrape, None, Signal::BootTime) } else { None };
        let mut held_by_this_page: BTreeSet<String> = BTreeSet::new();
        for device in &scrape.devices {
            let key = self.key(device, &scrape.target);
            let read = |signal| scalar(scrape, Some(&device.member), signal);
            let known = self.devices.entry(key.clone()).or_insert_with(|| Known {
                device: device.clone(),
                readings: BTreeMap::new(),
                holder: None,
                seen: scrape.at,
                was: (String::new(), scrape.at),
            });
            known.take(device, scrape, &mut held_by_this_page, &key);
            let signs = Signs {
                xid: read(Signal::GpuXid).and_then(code),
                uncorrected: read(Signal::GpuEccUncorrected),
                remap_failed: read(Signal::GpuRowRemapFailed).map(|flag| flag > 0.0),
                boot_s: read(Signal::BootTime).or(page_boot),
            };
            self.health.entry(physical(&key, device)).or_default().take(signs, scrape.at);
            self.note_state(&key, scrape.at);
            told.insert(key);
        }
        if self.devices.len() > DEVICES_MAX || self.swept.is_none_or(|swept| scrape.at.since(swept) > Span::HOUR) {
            self.forget(scrape.at);
        }
        told.iter().filter_map(|key| self.state(key, scrape.at)).collect()
    }

    /// A node says when it booted, in seconds since the epoch: evidence of recovery for its GPUs, where their own page does not say it.
    pub fn booted(&mut self, node: &str, boot_s: f64, at: Timestamp) {
        let signs = Signs { boot_s: Some(boot_s).filter(|boot_s| boot_s.is_finite()), ..Signs::default() };
        let of_node: BTreeSet<String> =
            self.devices.iter().filter(|(_, known)| known.device.node.as_deref() == Some(node)).map(|(key, known)| physical(key, &known.device)).collect();
        for gpu in of_node {
            self.health.entry(gpu).or_default().take(signs, at);
        }
    }

    /// The operator says a GPU (UUID, or `node/index`) is good again. False when there is no fault of that name.
    pub fn release(&mut self, gpu: &GpuId, at: Timestamp) -> bool {
        let name = self.places.get(gpu.as_str()).map_or(gpu.as_str(), String::as_str).to_owned();
        let Some(health) = self.health.get_mut(&name).filter(|health| health.fault().is_some()) else { return false };
        health.release();
        let keys: Vec<String> = self.devices.iter().filter(|(key, known)| physical(key, &known.device) == name).map(|(key, _)| key.clone()).collect();
        for key in &keys {
            self.note_state(key, at);
        }
        true
    }

    /// The state of every device at `now`, in order of name.
    #[must_use]
    pub fn states(&self, now: Timestamp) -> Vec<DeviceState> {
        self.devices.keys().filter_map(|key| self.state(key, now)).collect()
    }

    fn state(&self, key: &str, now: Timestamp) -> Option<DeviceState> {
        let known = self.devices.get(key)?;
        let split = known.device.mig.is_none() && self.is_split(key, now);
        let health = self.health.get(&physical(key, &known.device));
        let device = known.device.clone();
        Some(DeviceState {
            busy: known.busy(split, now),
            utilisation: known.activity(split, now),
            memory_used: known.memory(now).map(bytes),
            holder: known.holder.as_ref().map(|(holder, _)| holder.clone()),
            fault: health.and_then(Health::fault).cloned(),
            warning: health.and_then(Health::warning).cloned(),
            since: known.was.1,
            seen: known.seen,
            member: device.member,
            uuid: device.uuid,
            node: device.node,
            index: device.index,
            product: device.product,
            mig: device.mig,
        })
    }

    /// Whether slices of this GPU were seen lately.
    fn is_split(&self, key: &str, now: Timestamp) -> bool {
        let slices = self.devices.range(format!("{key}/")..format!("{key}0"));
        slices.into_iter().any(|(_, known)| known.device.mig.is_some() && now.since(known.seen) <= READING_AGE_MAX)
    }

    /// Notes when a device enters another state.
    fn note_state(&mut self, key: &str, at: Timestamp) {
        let Some(state) = self.state(key, at) else { return };
        let is = match (&state.fault, &state.holder, state.busy) {
            (Some(_), ..) => "failed".to_owned(),
            (None, Some(holder), _) => format!("held by {}/{}", holder.namespace.as_deref().unwrap_or(""), holder.pod),
            (None, None, Some(true)) => "busy".to_owned(),
            (None, None, Some(false)) => "free".to_owned(),
            (None, None, None) => "unknown".to_owned(),
        };
        let since = state.fault.map_or(at, |fault| fault.since);
        if let Some(known) = self.devices.get_mut(key).filter(|known| known.was.0 != is) {
            known.was = (is, since);
        }
    }

    /// The identity of a device. One that was known by its place only is the same when its UUID becomes known.
    fn key(&mut self, device: &Device, target: &TargetId) -> String {
        let place = place(device.node.as_deref(), device.index);
        let gpu = match (&device.uuid, &place) {
            (Some(uuid), Some(place)) => {
                if let Some(before) = self.places.insert(place.clone(), uuid.clone()).filter(|before| before == place) {
                    self.rename(&before, uuid);
                }
                uuid.clone()
            }
            (Some(uuid), None) => uuid.clone(),
            (None, Some(place)) => self.places.entry(place.clone()).or_insert_with(|| place.clone()).clone(),
            (None, None) => format!("{target}/{}", device.member),
        };
        device.mig.as_ref().map_or(gpu.clone(), |slice| format!("{gpu}/{}", slice.instance))
    }

    fn rename(&mut self, before: &str, uuid: &str) {
        if let Some(known) = self.devices.remove(before) {
            self.devices.entry(uuid.to_owned()).or_insert(known);
        }
        if let Some(health) = self.health.remove(before) {
            self.health.entry(uuid.to_owned()).or_insert(health);
        }
    }

    /// Forgets devices long unseen; one with a fault only when another GPU took its place.
    fn forget(&mut self, now: Timestamp) {
        self.swept = Some(now);
        let (health, places) = (&self.health, &self.places);
        self.devices.retain(|key, known| {
            let gpu = physical(key, &known.device);
            let failed = health.get(&gpu).is_some_and(|health| health.fault().is_some());
            let replaced = place(known.device.node.as_deref(), known.device.index).is_some_and(|place| places.get(&place).is_some_and(|there| *there != gpu));
            now.since(known.seen) <= FORGOTTEN_AFTER || (failed && !replaced)
        });
        while self.devices.len() > DEVICES_MAX {
            let Some(oldest) = self.devices.iter().min_by_key(|(_, known)| known.seen).map(|(key, _)| key.clone()) else { break };
            self.devices.remove(&oldest);
        }
        let gpus: BTreeSet<String> = self.devices.iter().map(|(key, known)| physical(key, &known.device)).collect();
        self.health.retain(|gpu, _| gpus.contains(gpu));
        self.places.retain(|_, gpu| gpus.contains(gpu));
    }
}

impl Known {
    fn take(&mut self, device: &Device, scrape: &Scrape, held: &mut BTreeSet<String>, key: &str) {
        self.seen = self.seen.max(scrape.at);
        for signal in REMEMBERED {
            if let Some(value) = scalar(scrape, Some(&device.member), signal) {
                self.readings.insert(signal, (value, scrape.at));
            }
        }
        // Under time slicing one GPU is listed once a pod: the first keeps it. A page that names no pod clears only what it said itself.
        let said_here = self.holder.as_ref().is_some_and(|(_, target)| target == &scrape.target);
        match &device.holder {
            Some(holder) if held.insert(key.to_owned()) => self.holder = Some((holder.clone(), scrape.target.clone())),
            None if said_here && !held.contains(key) => self.holder = None,
            _ => {}
        }
        let older = std::mem::replace(&mut self.device, device.clone());
        let newer = &mut self.device;
        newer.uuid = newer.uuid.take().or(older.uuid);
        newer.node = newer.node.take().or(older.node);
        newer.index = newer.index.or(older.index);
        newer.product = newer.product.take().or(older.product);
    }

    fn fresh(&self, signal: Signal, now: Timestamp) -> Option<f64> {
        self.readings.get(&signal).filter(|(_, at)| now.since(*at) <= READING_AGE_MAX).map(|(value, _)| *value)
    }

    /// Share of time it was active. The utilisation gauge reads 0 on split GPUs and their slices, whatever runs.
    fn activity(&self, split: bool, now: Timestamp) -> Option<f64> {
        let whole = self.device.mig.is_none() && !split;
        self.fresh(Signal::GpuEngineActive, now).or_else(|| self.fresh(Signal::GpuUtilisation, now).filter(|_| whole))
    }

    /// Bytes in use.
    fn memory(&self, now: Timestamp) -> Option<f64> {
        let left = || Some(self.fresh(Signal::GpuMemoryTotal, now)? - self.fresh(Signal::GpuMemoryFree, now)?);
        self.fresh(Signal::GpuMemoryUsed, now).or_else(left).map(|bytes| bytes.max(0.0))
    }

    fn busy(&self, split: bool, now: Timestamp) -> Option<bool> {
        let idle_memory_max = if self.device.mig.is_some() { IDLE_SLICE_MEMORY_MAX } else { IDLE_MEMORY_MAX };
        let activity = self.activity(split, now);
        let memory = self.memory(now);
        let parts = [Signal::GpuTensorActive, Signal::GpuMemoryActive].into_iter().filter_map(|signal| self.fresh(signal, now));
        let working = activity.into_iter().chain(parts).any(|share| share >= ACTIVE_MIN)
            || memory.is_some_and(|bytes| bytes > idle_memory_max)
            || self.fresh(Signal::GpuProcesses, now).is_some_and(|processes| processes > 0.0);
        if working { Some(true) } else { activity.and(memory).map(|_| false) }
    }
}

/// A plausible scalar of one member.
fn scalar(scrape: &Scrape, member: Option<&MemberId>, signal: Signal) -> Option<f64> {
    scrape.members(signal).filter(|(of, value)| *of == member && plausible(signal, value)).find_map(|(_, value)| match value {
        Reading::Scalar(value) => Some(*value),
        Reading::Histogram(_) => None,
    })
}

fn place(node: Option<&str>, index: Option<u32>) -> Option<String> {
    Some(format!("{}/{}", node?, index?))
}

/// The physical GPU a device is, or is a slice of.
fn physical(key: &str, device: &Device) -> String {
    let slice = device.mig.as_ref().map_or(String::new(), |slice| format!("/{}", slice.instance));
    key.strip_suffix(&slice).unwrap_or(key).to_owned()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "plausible codes lie in 0..=100,000")]
fn code(value: f64) -> Option<u32> {
    (value.fract() == 0.0).then_some(value as u32)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "plausible sizes lie in 0..=10^13")]
fn bytes(value: f64) -> Bytes {
    Bytes(value as u64)
}

#[cfg(test)]
#[path = "gpus_tests.rs"]
mod tests;
