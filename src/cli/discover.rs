//! What runs already, from what pages tell of themselves: services, engines, replicas, and GPUs with who holds them.
//!
//! Pure: instances (a page each, read by the catalogue, with the labels its scraper gave it) in, findings out. Nothing is guessed in silence: what
//! no page tells is listed as assumed or unknown.

use crate::discover_gpus::{self, Pool};
use crate::discover_services::{self, Service};

pub(crate) use crate::discover_services::Service as FoundService;
use fleet::{EngineRole, Scrape, Signal};
use std::collections::{BTreeMap, BTreeSet};

/// Labels of a scraped instance: what the scraper and the page agree on for every line.
pub(crate) type Labels = BTreeMap<String, String>;

/// One page that was read.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    /// What all its lines carry (`job`, `instance`, `pod`, `namespace`, `node`).
    pub labels: Labels,
    /// The page, through the catalogue.
    pub scrape: Scrape,
    /// What its owner is to us.
    pub role: EngineRole,
    /// Address of the page, where it was asked directly.
    pub url: Option<String>,
    /// What its lines call the label that names the model.
    pub model_label: Option<String>,
}

impl Instance {
    /// The first of these labels that has a value.
    pub fn label(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.labels.get(*name)).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Host of the page, without its port.
    pub fn host(&self) -> Option<&str> {
        let instance = self.label(&["instance"])?;
        let host = instance.split_once("://").map_or(instance, |(_, rest)| rest);
        let host = host.split('/').next().unwrap_or(host);
        Some(host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit())).map_or(host, |(host, _)| host))
    }

    /// The engine, as far as it is known.
    pub fn engine(&self) -> Option<&str> {
        self.scrape.server.as_ref().map(|server| server.engine.as_str())
    }
}

/// A gateway in front of services.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Router {
    /// Its engine.
    pub engine: String,
    /// The service behind it.
    pub service: String,
    /// Labels that select its lines of that service.
    pub select: Labels,
    /// Its page, where it was asked directly.
    pub url: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Discovered {
    /// Services, in order of name.
    pub services: Vec<Service>,
    /// Routers that tell of one of them.
    pub routers: Vec<Router>,
    /// Pools, the largest first.
    pub pools: Vec<Pool>,
    /// Labels that select each set of GPU pages, with its exporter.
    pub gpu_pages: Vec<GpuPages>,
    /// GPUs held by pods that no serving page tells of: the pod's name without what numbers it, and how many.
    pub held_otherwise: BTreeMap<String, usize>,
    /// GPUs that nobody holds, as far as pages tell.
    pub not_held: usize,
    /// What is worth saying: assumed, odd, unknown.
    pub remarks: Vec<String>,
}

/// Pages of GPUs of one kind of exporter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GpuPages {
    /// The exporter.
    pub engine: String,
    /// Labels that select them.
    pub select: Labels,
    /// Addresses, where they were asked directly.
    pub urls: Vec<String>,
    /// How many there are.
    pub pages: usize,
}

/// Finds what runs.
pub(crate) fn fleet(instances: &[Instance]) -> Discovered {
    let answered: Vec<&Instance> = instances.iter().filter(|i| i.scrape.is_ok()).collect();
    let of = |role: EngineRole| answered.iter().copied().filter(move |i| i.role == role).collect::<Vec<_>>();
    let mut remarks: Vec<String> = instances.iter().filter_map(silent).collect();
    let found = discover_gpus::gpus(&of(EngineRole::Gpu), &mut remarks);
    let mut services = discover_services::services(&of(EngineRole::Server), &found, &mut remarks);
    let mut pools = discover_gpus::pools(&found, &mut remarks);
    pools.extend(discover_services::assumed_pools(&services, &pools, &mut remarks));
    services.retain_mut(|service| fits(service, &pools, &mut remarks));
    let serving: BTreeSet<&str> = services.iter().flat_map(|s| s.pods.iter().map(String::as_str)).collect();
    let mut held_otherwise: BTreeMap<String, usize> = BTreeMap::new();
    for gpu in &found.gpus {
        if let Some(holder) = gpu.holder.as_ref().filter(|h| !serving.contains(h.pod.as_str())) {
            *held_otherwise.entry(discover_services::unnumbered(&holder.pod).to_owned()).or_default() += 1;
        }
    }
    let routers = routers(&of(EngineRole::Router), &services, &mut remarks);
    let not_held = found.gpus.iter().filter(|gpu| gpu.holder.is_none() && !gpu.busy).count();
    let gpu_pages = gpu_pages(&of(EngineRole::Gpu));
    remarks.extend(missing(&services));
    Discovered { services, routers, pools, gpu_pages, held_otherwise, not_held, remarks }
}

/// Whether some of what a service runs on lies in a pool; the rest is taken out, and that is said.
fn fits(service: &mut Service, pools: &[Pool], remarks: &mut Vec<String>) -> bool {
    let name = service.name.clone();
    service.variants.retain(|variant| {
        let fits = pools.iter().any(|pool| pool.kind == variant.kind && variant.gpus <= pool.gpus_per_node);
        if !fits {
            remarks.push(format!(
                "{name}: no pool holds {} GPUs of {} on one node; {} replicas are left out",
                variant.gpus,
                variant.kind,
                variant.instances.len()
            ));
        }
        fits
    });
    !service.variants.is_empty()
}

/// A page that was not read: it tells nothing, and that is said.
fn silent(instance: &Instance) -> Option<String> {
    let fleet::ScrapeStatus::Failed(reason) = &instance.scrape.status else { return None };
    Some(format!("{} tells nothing: {reason}", instance.scrape.target))
}

/// Signals that pages of a service lack.
fn missing(services: &[Service]) -> Vec<String> {
    let lacking = services.iter().filter(|s| !s.missing.is_empty());
    lacking.map(|s| format!("{} ({}) shows no {}", s.name, s.engine(), s.missing.iter().map(|m| m.name()).collect::<Vec<_>>().join(", "))).collect()
}

fn gpu_pages(instances: &[&Instance]) -> Vec<GpuPages> {
    let mut all: Vec<GpuPages> = Vec::new();
    for instance in instances {
        let select: Labels = instance.labels.get("job").map(|job| ("job".to_owned(), job.clone())).into_iter().collect();
        let engine = instance.engine().unwrap_or_default().to_owned();
        let urls = instance.url.clone().into_iter();
        match all.iter_mut().find(|pages| pages.engine == engine && pages.select == select) {
            Some(pages) => {
                pages.urls.extend(urls);
                pages.pages += 1;
            }
            None => all.push(GpuPages { engine, select, urls: urls.collect(), pages: 1 }),
        }
    }
    all
}

/// Which services routers tell of: those whose model they name; the only one, where they name none.
fn routers(instances: &[&Instance], services: &[Service], remarks: &mut Vec<String>) -> Vec<Router> {
    let mut all = BTreeSet::new();
    for instance in instances {
        let models = instance.scrape.server.as_ref().map_or(&[] as &[String], |server| &server.models);
        let engine = instance.engine().unwrap_or_default().to_owned();
        let job: Labels = instance.labels.get("job").map(|job| ("job".to_owned(), job.clone())).into_iter().collect();
        let named: Vec<&Service> = services.iter().filter(|s| models.iter().any(|m| s.is_model(m))).collect();
        match (named.as_slice(), services) {
            ([], [only]) if models.is_empty() => {
                all.insert(Router { engine, service: only.name.clone(), select: job, url: instance.url.clone() });
            }
            ([], _) => remarks.push(format!("{} is a {engine}, but names no model of these services: it is left out", instance.scrape.target)),
            // The name of the model's label differs from router to router: a page of several models is left to be told apart by hand.
            (several, _) if several.len() > 1 => {
                remarks.push(format!(
                    "{} is a {engine} in front of {} services: add a source with role = \"router\" for each",
                    instance.scrape.target,
                    several.len()
                ));
            }
            (named, _) => {
                let router = |s: &&Service| Router { engine: engine.clone(), service: s.name.clone(), select: job.clone(), url: instance.url.clone() };
                all.extend(named.iter().map(router));
            }
        }
    }
    // Copies of a router have one selection.
    all.into_iter().collect()
}

impl Discovered {
    /// Whether there is anything to plan with and for.
    pub fn is_plannable(&self) -> bool {
        !self.services.is_empty() && !self.pools.is_empty()
    }

    /// GPUs of all pools.
    pub fn gpus(&self) -> usize {
        self.pools.iter().map(|pool| pool.nodes.len() * pool.gpus_per_node as usize).sum()
    }
}

/// A number of things, in words.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

/// Signals that pages of an engine should have and this one lacks.
pub(crate) fn lacking(scrape: &Scrape) -> BTreeSet<Signal> {
    ingest::missing_signals(scrape).into_iter().collect()
}
