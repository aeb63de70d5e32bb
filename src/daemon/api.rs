//! A Prometheus as a source: its instances are found and followed while the daemon runs.

use crate::{
    DaemonError,
    asking::{Asking, ReadSecret, auth, limits},
    schedule::{Found, Look, Looking, Source},
};
use config::{PrometheusApiConfig, Subject};
use fleet::{Scrape, Span, Target, TargetId, Timestamp};
use ingest::{
    Catalogue, IngestError, Reader,
    query::{self, Follow, Labels, Prometheus},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tokio::sync::Mutex;
use wire::Client;

/// Time between two looks for instances that came or went.
const SEEK_EVERY: Span = Span::MINUTE;
/// Instances seen within this time are there.
const SEEK_BACK: Span = Span::minutes(5);

/// A Prometheus and what is followed there.
pub(crate) struct Api {
    catalogue: Arc<Catalogue>,
    config: Arc<PrometheusApiConfig>,
    client: Client,
    read_secret: ReadSecret,
    state: Arc<Mutex<Following>>,
}

#[derive(Default)]
struct Following {
    follow: Option<Follow>,
    instances: Vec<Instance>,
    sought: Option<Timestamp>,
    seen: BTreeMap<TargetId, Timestamp>,
}

/// One scraped process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Instance {
    pub id: TargetId,
    pub pod: Option<String>,
    /// The labels that tell it from others.
    pub labels: BTreeMap<String, String>,
}

impl Api {
    pub fn new(config: &PrometheusApiConfig, catalogue: &Arc<Catalogue>, asking: &mut Asking) -> Result<Self, DaemonError> {
        let client = asking.client(config.id.as_str(), &config.page.access, limits(&config.page.limits))?;
        Ok(Self { catalogue: catalogue.clone(), config: Arc::new(config.clone()), client, read_secret: asking.read_secret.clone(), state: Arc::default() })
    }
}

impl Source for Api {
    fn look(&self, now: Timestamp) -> Looking {
        let (catalogue, config, client, read_secret, state) =
            (self.catalogue.clone(), self.config.clone(), self.client.clone(), self.read_secret.clone(), self.state.clone());
        Box::pin(async move {
            let mut state = state.lock().await;
            let auth = match auth(&read_secret, &config.page.access) {
                Ok(auth) => auth,
                Err(reason) => return state.failed(&config, now, &reason),
            };
            let access = query::Access { url: config.url.clone(), auth, tenant: config.tenant.clone() };
            let server = Prometheus::new(client, access);
            let mut look = Look::default();
            if state.sought.is_none_or(|at| now.since(at) >= SEEK_EVERY || now < at) {
                match instances(&server, &config, &catalogue, now).await {
                    Ok(found) => look.found.extend(state.take(found, &config, &catalogue, now)),
                    Err(error) if state.follow.is_none() => return state.failed(&config, now, &error.to_string()),
                    Err(error) => tracing::warn!(source_id = %config.id, %error, "instances could not be looked for; those known are followed"),
                }
            }
            let Some(follow) = state.follow.as_mut() else { return look };
            let polled = follow.poll(&server, &catalogue, now).await;
            for warning in &polled.warnings {
                tracing::debug!(source_id = %config.id, warning, "Prometheus warns");
            }
            for scrape in polled.scrapes.iter().filter(|s| s.is_ok()) {
                state.seen.insert(scrape.target.clone(), scrape.at);
            }
            if config.subject == Subject::Gpus {
                look.gpu_pages = polled.scrapes;
            } else {
                look.scrapes = polled.scrapes;
            }
            look
        })
    }
}

impl Following {
    /// A look that saw nothing: unknown, for all that were there.
    fn failed(&self, config: &PrometheusApiConfig, now: Timestamp, reason: &str) -> Look {
        tracing::warn!(source_id = %config.id, reason, "Prometheus could not be asked; what it showed last is held");
        let scrapes = self.instances.iter().map(|i| Scrape::failed(i.id.clone(), now, reason)).collect();
        if config.subject == Subject::Gpus { Look { gpu_pages: scrapes, ..Look::default() } } else { Look { scrapes, ..Look::default() } }
    }

    /// Takes the instances there are now. An empty answer changes nothing: "nobody is there" and "I could not look" must not look the same.
    fn take(&mut self, found: Vec<Instance>, config: &PrometheusApiConfig, catalogue: &Catalogue, now: Timestamp) -> Option<Found> {
        self.sought = Some(now);
        if found == self.instances || (found.is_empty() && !self.instances.is_empty()) {
            return None;
        }
        self.instances = found;
        let readers = self.instances.iter().map(|i| reader(i, config)).collect();
        self.follow = Some(follow(readers, config, catalogue).after(self.seen.clone()));
        let targets = self.instances.iter().filter_map(|i| target(i, config)).collect();
        Some(Found { source: config.id.clone(), targets, pages: Vec::new() })
    }
}

fn follow(readers: Vec<Reader>, config: &PrometheusApiConfig, catalogue: &Catalogue) -> Follow {
    let names = catalogue.metric_names().iter().cloned().chain(config.page.metrics.values().cloned());
    Follow::new(readers, names, BTreeMap::new(), config.page.interval).matching(config.selector.clone())
}

/// How an instance's series are read.
pub(crate) fn reader(instance: &Instance, config: &PrometheusApiConfig) -> Reader {
    Reader { target: instance.id.clone(), engine: config.page.engine.clone(), select: instance.labels.clone(), names: config.page.metrics.clone() }
}

fn target(instance: &Instance, config: &PrometheusApiConfig) -> Option<Target> {
    Some(Target { pod: instance.pod.clone(), ..config.subject.target(instance.id.clone())? })
}

/// The instances a Prometheus saw lately whose series the catalogue knows.
pub(crate) async fn instances(server: &Prometheus, config: &PrometheusApiConfig, catalogue: &Catalogue, now: Timestamp) -> Result<Vec<Instance>, IngestError> {
    // One name tells that an instance is there; histograms would tell it a hundred times.
    let of_gpus = config.subject == Subject::Gpus;
    let names = catalogue.telling_names(of_gpus);
    let selector = query::matching(&query::selector(names.iter().map(String::as_str), &BTreeMap::new()), config.selector.as_deref());
    let series = server.series(&[selector], now - SEEK_BACK, now).await?;
    Ok(tell_apart(&series, &config.subject))
}

/// Instances by what Prometheus adds to every series of one: job and instance. They are called by their pod where that is known, else by their
/// address.
fn tell_apart(series: &[Labels], subject: &Subject) -> Vec<Instance> {
    let mut by: BTreeMap<Vec<(String, String)>, Option<String>> = BTreeMap::new();
    for labels in series {
        let identity = query::instance_labels().into_iter().filter_map(|name| Some((name.clone(), labels.get(&name)?.clone()))).collect();
        // The pod of a GPU exporter is not that of what runs on the GPUs.
        let pod = labels.get("pod").filter(|_| *subject != Subject::Gpus).cloned();
        by.entry(identity).or_insert(pod);
    }
    let mut taken = BTreeSet::new();
    let named = |(identity, pod): (Vec<(String, String)>, Option<String>)| {
        let labels: BTreeMap<String, String> = identity.into_iter().collect();
        let address = labels.get("instance").map_or("unnamed", String::as_str);
        let prefix = subject.service().map_or("gpus", fleet::WorkloadId::as_str);
        let name = format!("{prefix}/{}", pod.as_deref().unwrap_or(address));
        // Two processes of one pod have an address each.
        let name = if taken.insert(name.clone()) { name } else { format!("{name}@{address}") };
        Some(Instance { id: TargetId::new(name).ok()?, pod, labels })
    };
    by.into_iter().filter_map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn instances_are_told_apart_by_job_and_instance_and_called_by_their_pod() {
        let service = fleet::WorkloadId::new("chat").unwrap();
        let subject = Subject::Router { service };
        let series = [
            labels(&[("job", "vllm"), ("instance", "a:1"), ("pod", "p-0"), ("engine", "0")]),
            labels(&[("job", "vllm"), ("instance", "a:1"), ("pod", "p-0"), ("engine", "1")]),
            labels(&[("job", "vllm"), ("instance", "a:2"), ("pod", "p-0")]),
            labels(&[("job", "vllm"), ("instance", "b:1")]),
        ];
        let names: Vec<String> = tell_apart(&series, &subject).iter().map(|i| i.id.to_string()).collect();
        assert_eq!(names, ["chat/p-0", "chat/p-0@a:2", "chat/b:1"]);
        // The exporter's own pod names no GPU's holder.
        let gpus = tell_apart(&series[..1], &Subject::Gpus);
        assert_eq!((gpus[0].id.as_str(), &gpus[0].pod), ("gpus/a:1", &None));
    }
}
