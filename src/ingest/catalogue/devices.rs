//! Which device a line is about, and who holds it.

use super::Table;
use super::families::Families;
use crate::exposition::Line;
use fleet::{Device, DeviceLabels, Holder, MemberId, MigSlice, Signal};
use std::collections::{BTreeMap, BTreeSet};

/// Devices one page may show at most; lines of more are left out.
const DEVICES_MAX: usize = 1_024;

/// The devices of a page, by the table that shows them.
#[derive(Debug, Default)]
pub(super) struct Devices {
    by_member: BTreeMap<MemberId, Device>,
    /// Devices of which slices are on the page: what is said of them as wholes is not to be believed where slices matter.
    split: BTreeSet<MemberId>,
    /// Holders named so far; a device that several pods hold is attributed to none.
    holders: BTreeMap<MemberId, BTreeSet<Holder>>,
}

impl Devices {
    /// All devices that lines of a table's GPU signals name.
    pub(super) fn of(table: &Table, families: &Families<'_>) -> Self {
        let labels = &table.engine.device;
        let mut out = Self::default();
        if labels.uuid.is_empty() && labels.index.is_empty() {
            return out;
        }
        let lines: Vec<&Line<'_>> = table.device_names.iter().flat_map(|name| families.lines(name)).collect();
        let exporters = exporters(&lines, labels);
        for line in lines {
            out.see(line, labels, &exporters);
        }
        for (member, holders) in &mut out.holders {
            if let (Some(device), 1) = (out.by_member.get_mut(member), holders.len()) {
                device.holder = holders.pop_first();
            }
        }
        out
    }

    fn see(&mut self, line: &Line<'_>, labels: &DeviceLabels, exporters: &BTreeSet<&str>) {
        let Some(member) = member_of(line, labels) else { return };
        let mig = slice_of(line, labels);
        if mig.is_some() {
            self.split.extend(whole_of(line, labels));
        }
        if !self.by_member.contains_key(&member) && self.by_member.len() == DEVICES_MAX {
            return;
        }
        let said = |spellings: &[String]| first(line, spellings).map(str::to_owned);
        let new = Device { member: member.clone(), uuid: None, node: None, index: None, product: None, mig: None, holder: None };
        let device = self.by_member.entry(member.clone()).or_insert(new);
        device.uuid = device.uuid.take().or_else(|| said(&labels.uuid));
        device.node = device.node.take().or_else(|| said(&labels.node));
        device.product = device.product.take().or_else(|| said(&labels.product));
        device.index = device.index.or_else(|| first(line, &labels.index)?.parse().ok());
        device.mig = device.mig.take().or(mig);
        if let Some(holder) = holder_of(line, labels, exporters) {
            self.holders.entry(member).or_default().insert(holder);
        }
    }

    /// Whether a device is a slice, or cut into slices.
    pub(super) fn is_sliced(&self, member: &MemberId) -> bool {
        self.split.contains(member) || self.by_member.get(member).is_some_and(|device| device.mig.is_some())
    }

    pub(super) fn into_list(self) -> Vec<Device> {
        self.by_member.into_values().collect()
    }
}

/// The member a line of a GPU signal belongs to: the device's unique name, else its node and number; with the slice, where it is one.
pub(super) fn member_of(line: &Line<'_>, labels: &DeviceLabels) -> Option<MemberId> {
    let whole = whole_of(line, labels)?;
    match slice_of(line, labels) {
        Some(slice) => MemberId::new(format!("{whole}/{}", slice.instance)).ok(),
        None => Some(whole),
    }
}

fn whole_of(line: &Line<'_>, labels: &DeviceLabels) -> Option<MemberId> {
    let name = match (first(line, &labels.uuid), first(line, &labels.node), first(line, &labels.index)) {
        (Some(uuid), _, _) => uuid.to_owned(),
        (None, Some(node), Some(index)) => format!("{node}/{index}"),
        (None, _, index) => index?.to_owned(),
    };
    MemberId::new(name).ok()
}

fn slice_of(line: &Line<'_>, labels: &DeviceLabels) -> Option<MigSlice> {
    let of = |spellings: &[String]| first(line, spellings).filter(|value| !labels.whole.iter().any(|whole| whole.eq_ignore_ascii_case(value)));
    Some(MigSlice { profile: of(&labels.slice_profile)?.to_owned(), instance: of(&labels.slice)?.to_owned() })
}

/// Who the line says holds the device. Where a scraper moved the workload's labels aside, the plain ones name the exporter.
fn holder_of(line: &Line<'_>, labels: &DeviceLabels, exporters: &BTreeSet<&str>) -> Option<Holder> {
    let at = labels.pod.iter().position(|label| line.label(label).is_some())?;
    let pod = line.label(&labels.pod[at]).filter(|pod| !pod.is_empty())?;
    if exporters.contains(pod) || labels.exporters.iter().any(|part| pod.contains(part.as_str())) {
        return None;
    }
    let beside = |spellings: &[String]| spellings.get(at).and_then(|label| line.label(label)).filter(|value| !value.is_empty()).map(str::to_owned);
    Some(Holder { namespace: beside(&labels.namespace), pod: pod.to_owned(), container: beside(&labels.container) })
}

/// Pods that are exporters: those that stand in the plain label beside a workload that was moved aside.
fn exporters<'p>(lines: &[&Line<'p>], labels: &DeviceLabels) -> BTreeSet<&'p str> {
    let Some((plain, moved)) = labels.pod.split_last() else { return BTreeSet::new() };
    let beside_moved = lines.iter().filter(|line| moved.iter().any(|label| line.label(label).is_some_and(|pod| !pod.is_empty())));
    beside_moved.filter_map(|line| line.label(plain)).filter(|pod| !pod.is_empty()).collect()
}

/// The first of several spellings of a label that has a value.
pub(super) fn first<'p>(line: &Line<'p>, spellings: &[String]) -> Option<&'p str> {
    spellings.iter().find_map(|label| line.label(label).filter(|value| !value.is_empty()))
}

/// Whether a signal is told apart by device on this table's pages.
pub(super) fn by_device(table: &Table, signal: Signal) -> bool {
    signal.of_gpu() && !(table.engine.device.uuid.is_empty() && table.engine.device.index.is_empty())
}
