//! `[[source.prometheus]]` and `[[source.gpu]]`: metrics pages by address, and what each stands for.

use crate::{
    addresses::{Address, Leads, address, by_node, is_plain},
    error::{Code, Findings},
    gpu_refs,
    pages::page,
    resolved::RunningJob,
    resolved_sources::{GpuPageConfig, PageSettings, Subject, TargetConfig},
    selectors,
    subjects::{SubjectKeys, Surroundings, subject},
    typed, typed_sources,
    written::At,
};
use fleet::{GpuId, NodeId, TargetId, Variant};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// What a later source must not repeat.
#[derive(Default)]
pub(crate) struct Seen {
    /// Pages, with the labels that are taken of them.
    pages: Vec<(String, BTreeMap<String, String>)>,
    names: BTreeSet<TargetId>,
    /// Who holds a GPU.
    holders: BTreeMap<GpuId, String>,
}

impl Seen {
    /// What running jobs hold.
    pub(crate) fn of(running: &[RunningJob]) -> Self {
        let held = running.iter().flat_map(|run| run.gpus.iter().map(|gpu| (gpu.clone(), format!("job {}", run.job))));
        Self { holders: held.collect(), ..Self::default() }
    }

    /// A name no other source has: the one that is written, or else `default`.
    pub(crate) fn name(
        &mut self,
        written: Option<&At<String>>,
        suffix: &str,
        default: String,
        at: Range<usize>,
        findings: &mut Findings<'_>,
    ) -> Option<TargetId> {
        let span = written.map_or(at, At::span);
        let id = match TargetId::new(written.map_or(default, |at| format!("{}{suffix}", at.get()))) {
            Ok(id) => id,
            Err(error) => {
                findings.refuse(Code::Address, span, error.to_string(), "not a usable name", "give it a short `name`");
                return None;
            }
        };
        if !self.names.insert(id.clone()) {
            findings.duplicate(span, "source", id.as_str());
            return None;
        }
        Some(id)
    }

    /// Notes a page whose lines another source takes already.
    fn page(&mut self, url: &str, select: &BTreeMap<String, String>, at: Range<usize>, findings: &mut Findings<'_>) -> Option<()> {
        let apart = |other: &BTreeMap<String, String>| select.iter().any(|(label, value)| other.get(label).is_some_and(|o| o != value));
        if self.pages.iter().any(|(other, taken)| other == url && !apart(taken)) {
            let message = format!("address {url:?} is listed twice, so its traffic would be counted twice");
            let help = "remove one of the two, or tell them apart: select = { model = \"...\" } in both";
            findings.refuse(Code::Duplicate, at, message, "second of that address", help);
            return None;
        }
        self.pages.push((url.to_owned(), select.clone()));
        Some(())
    }
}

pub(crate) fn targets(file: &typed::File, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Vec<TargetConfig> {
    let mut targets = Vec::new();
    for table in &file.source.prometheus {
        let typed = table.get();
        let who = shown(&typed.url);
        let page = page(typed.page(), is_plain(typed.url.get()), false, known.engines, findings);
        let select = selectors::labels(&typed.select, findings);
        let keys = SubjectKeys { who: &who, service: Some(&typed.service), variant: typed.variant.as_ref(), role: typed.role.as_ref() };
        let subject = subject(keys, known, findings);
        let pages = by_node(&typed.url, typed.nodes.as_ref(), findings);
        let (Some(subject), Some(select)) = (subject, select) else { continue };
        for (url, node) in pages {
            let address = address(&typed.url, &url, Leads::ToPage, findings);
            let gpus = place(typed, &url, node.as_deref(), &subject, known, seen, findings);
            let (Some(address), Some(gpus), Some(page)) = (address, gpus, &page) else { continue };
            targets.extend(target(typed, &address, node.as_deref(), &subject, &select, page, gpus, seen, findings));
        }
    }
    targets
}

/// How messages call a source: by its address, unless that may hold a secret.
pub(crate) fn shown(url: &At<String>) -> String {
    if url.get().contains(['@', '?']) { "this source".to_owned() } else { format!("source {:?}", url.get()) }
}

#[expect(clippy::too_many_arguments, reason = "the parts a page is made of, each resolved on its own")]
fn target(
    typed: &typed_sources::Prometheus,
    address: &Address,
    node: Option<&str>,
    subject: &Subject,
    select: &BTreeMap<String, String>,
    page: &PageSettings,
    gpus: Vec<GpuId>,
    seen: &mut Seen,
    findings: &mut Findings<'_>,
) -> Option<TargetConfig> {
    seen.page(&address.full, select, typed.url.span(), findings)?;
    let suffix = node.map(|node| format!("-{node}")).unwrap_or_default();
    // A page that is taken apart has several names.
    let whose = subject.service().filter(|_| !select.is_empty()).map(|service| format!("{service}@")).unwrap_or_default();
    let id = seen.name(typed.name.as_ref(), &suffix, format!("{whose}{}", place_name(address)), typed.url.span(), findings)?;
    let mut target = page.target(subject.target(id)?, address.full.clone());
    target.target.gpus = gpus;
    target.select.clone_from(select);
    Some(target)
}

/// Host and port, and the path where it says anything.
pub(crate) fn place_name(address: &Address) -> String {
    if matches!(address.path.as_str(), "" | "/metrics") { address.host.clone() } else { format!("{}{}", address.host, address.path) }
}

/// The GPUs of a page, where known: as many as the variant needs, of its kind, in one island, and held by nobody else.
fn place(
    typed: &typed_sources::Prometheus,
    url: &str,
    node: Option<&str>,
    subject: &Subject,
    known: Surroundings<'_>,
    seen: &mut Seen,
    findings: &mut Findings<'_>,
) -> Option<Vec<GpuId>> {
    let Some(at) = &typed.gpus else { return Some(Vec::new()) };
    let who = shown(&typed.url).replace("{node}", node.unwrap_or("{node}"));
    let Subject::Replicas { variant, .. } = subject else {
        findings.refuse(Code::Conflict, at.span(), format!("{who} is a router, and a router holds no GPUs"), "not for routers", "remove gpus, or role");
        return None;
    };
    let variant = known.variant(variant)?;
    // With nodes, the indices are those on each of them.
    let names: Vec<(String, Range<usize>)> =
        at.entries().into_iter().map(|(text, span)| (node.map_or_else(|| text.to_owned(), |node| format!("{node}/{text}")), span)).collect();
    let entries: Vec<(&str, Range<usize>)> = names.iter().map(|(text, span)| (text.as_str(), span.clone())).collect();
    let gpus = gpu_refs::gpus(&entries, &who, known.fleet, findings)?;
    if !gpu_refs::fit(&gpus, variant.gpus, &format!("variant {} at {url:?}", variant.id), at.span(), findings) {
        return None;
    }
    for gpu in &gpus {
        of_kind(gpu, variant, at.span(), known, findings)?;
        if let Some(other) = seen.holders.insert(gpu.id.clone(), who.clone()) {
            let message = format!("GPU {} is held by {other} and by {who}", gpu.id);
            findings.refuse(Code::Duplicate, at.span(), message, "the same GPU twice", "one replica or job holds a GPU: correct one of the two");
            return None;
        }
    }
    Some(gpus.iter().map(|gpu| gpu.id.clone()).collect())
}

/// Notes a GPU of another kind than the variant runs on.
fn of_kind(gpu: &fleet::Gpu, variant: &Variant, span: Range<usize>, known: Surroundings<'_>, findings: &mut Findings<'_>) -> Option<()> {
    let kind = known.fleet.pool(&gpu.pool).map(|pool| &pool.kind);
    if kind == Some(&variant.kind) {
        return Some(());
    }
    let is = kind.map_or("unknown", fleet::GpuKindId::as_str);
    let message = format!("variant {} runs on {}, but GPU {} is {is}", variant.id, variant.kind, gpu.id);
    findings.refuse(Code::Placement, span, message, "another kind", "name another variant, or other GPUs");
    None
}

/// Pages of GPUs.
pub(crate) fn gpu_pages(file: &typed::File, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Vec<GpuPageConfig> {
    let mut found = Vec::new();
    for table in &file.source.gpu {
        let typed = table.get();
        let page = page(typed.page(), is_plain(typed.url.get()), true, known.engines, findings);
        if let (Some(_), Some(node)) = (&typed.nodes, &typed.node) {
            findings.refuse(Code::Conflict, node.span(), "the page tells of one node and of several", "one or the other", "remove node, or nodes");
            continue;
        }
        for (url, of) in by_node(&typed.url, typed.nodes.as_ref(), findings) {
            let written = typed.nodes.as_ref().map(At::span).or_else(|| typed.node.as_ref().map(At::span));
            let name = of.as_deref().or_else(|| typed.node.as_ref().map(|at| at.get().as_str()));
            let node = name.zip(written).map(|(name, span)| node(name, span, &typed.url, known, findings));
            let address = address(&typed.url, &url, Leads::ToPage, findings);
            let (Some(page), Some(address), None | Some(Some(_))) = (&page, address, &node) else { continue };
            let suffix = of.as_ref().map(|node| format!("-{node}")).unwrap_or_default();
            if seen.page(&address.full, &BTreeMap::new(), typed.url.span(), findings).is_none() {
                continue;
            }
            let Some(id) = seen.name(typed.name.as_ref(), &suffix, place_name(&address), typed.url.span(), findings) else { continue };
            found.push(GpuPageConfig { id, url: address.full, node: node.flatten(), page: page.clone() });
        }
    }
    found
}

/// A node of the fleet.
fn node(name: &str, span: Range<usize>, url: &At<String>, known: Surroundings<'_>, findings: &mut Findings<'_>) -> Option<NodeId> {
    let nodes = &known.fleet.nodes;
    let found = nodes.iter().find(|node| node.id.as_str() == name).map(|node| node.id.clone());
    if found.is_none() && findings.fleet_is_sound() {
        findings.dangling(span, &shown(url), "node", name, nodes.iter().map(|node| node.id.as_str()));
    }
    found
}
