//! Lists of pages as sources: what they list becomes pages of its own.

use crate::{
    DaemonError,
    asking::{Asking, ReadSecret, auth, limits},
    schedule::{Found, FoundPage, Look, Looking, Source},
};
use config::{Access, DiscoveryConfig, DiscoveryList, GpuPageConfig};
use fleet::{Target, TargetId, Timestamp};
use ingest::discovery::{Discovered, Discovery, ListSource};
use std::sync::Arc;
use tokio::sync::Mutex;
use wire::Client;

/// A list.
pub(crate) struct List {
    config: Arc<DiscoveryConfig>,
    client: Client,
    read_secret: ReadSecret,
    state: Arc<Mutex<Option<Discovery>>>,
}

impl List {
    pub fn new(config: &DiscoveryConfig, asking: &mut Asking) -> Result<Self, DaemonError> {
        let none = Access::default();
        let access = match &config.list {
            DiscoveryList::Http { access, .. } => access,
            DiscoveryList::Files(_) => &none,
        };
        let client = asking.client(config.id.as_str(), access, limits(&config.page.limits))?;
        Ok(Self { config: Arc::new(config.clone()), client, read_secret: asking.read_secret.clone(), state: Arc::default() })
    }
}

impl Source for List {
    fn look(&self, _: Timestamp) -> Looking {
        let (config, client, read_secret, state) = (self.config.clone(), self.client.clone(), self.read_secret.clone(), self.state.clone());
        Box::pin(async move {
            let mut state = state.lock().await;
            let first = state.is_none();
            let source = match &config.list {
                DiscoveryList::Files(files) => ListSource::Files(files.clone()),
                DiscoveryList::Http { url, access } => match auth(&read_secret, access) {
                    Ok(auth) => ListSource::Http { url: url.clone(), auth },
                    Err(reason) => {
                        tracing::warn!(source_id = %config.id, reason, "the list of pages was not asked for");
                        return Look::default();
                    }
                },
            };
            let discovery = state.get_or_insert_with(|| Discovery::new(source));
            let change = discovery.refresh(&client).await;
            for problem in &change.problems {
                tracing::warn!(source_id = %config.id, problem, "a list of pages is not taken");
            }
            if !first && change.appeared.is_empty() && change.vanished.is_empty() {
                return Look::default();
            }
            let found = found(&config, discovery.targets().into_iter().filter(|d| d.is_selected(&config.select)));
            Look { found: vec![found], ..Look::default() }
        })
    }
}

fn found(config: &DiscoveryConfig, listed: impl Iterator<Item = Discovered>) -> Found {
    let mut found = Found { source: config.id.clone(), targets: Vec::new(), pages: Vec::new() };
    let prefix = config.subject.service().map_or("gpus", fleet::WorkloadId::as_str);
    for one in listed {
        let name = one.labels.get("pod").or_else(|| one.labels.get("instance")).unwrap_or(&one.address);
        let Ok(id) = TargetId::new(format!("{prefix}/{name}")) else { continue };
        match config.subject.target(id.clone()) {
            Some(target) => {
                let target = Target { pod: one.labels.get("pod").cloned(), ..target };
                found.targets.push(target.clone());
                found.pages.push(FoundPage::Target(config.page.target(target, one.url())));
            }
            None => found.pages.push(FoundPage::Gpus(GpuPageConfig { id, url: one.url(), node: None, page: config.page.clone() })),
        }
    }
    found
}
