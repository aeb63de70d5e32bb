//! The second stage, sources: where readings come from and what they stand for.

use fleet::{NodeId, Signal, Span, Target, TargetId, VariantId, WorkloadId};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

/// Everything readings come from, each list in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sources {
    /// Metrics pages of GPUs.
    pub gpu_pages: Vec<GpuPageConfig>,
    /// Servers that answer the Prometheus HTTP API.
    pub prometheus_apis: Vec<PrometheusApiConfig>,
    /// Lists of pages, in files or at addresses.
    pub discoveries: Vec<DiscoveryConfig>,
    /// Buckets that hold readings already.
    pub influxdb: Vec<InfluxSourceConfig>,
    /// Readings sent to us.
    pub push: Option<PushConfig>,
}

/// A metrics page of a replica or router.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetConfig {
    /// What it stands for. Without a variant it is a router in front of replicas.
    pub target: Target,
    /// Its address, without credentials.
    pub url: String,
    /// Time between two looks.
    pub interval: Span,
    /// How it is asked.
    pub access: Access,
    /// Metric names by signal, where they differ from those known of the engine.
    pub metrics: BTreeMap<Signal, String>,
    /// The engine that answers, where the file says so. Otherwise it is recognised.
    pub engine: Option<String>,
    /// Labels a line must carry to count. Empty: every line counts.
    pub select: BTreeMap<String, String>,
    /// How much is read.
    pub limits: PageLimits,
}

/// How pages are read that are found while running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSettings {
    /// Time between two looks.
    pub interval: Span,
    /// How they are asked.
    pub access: Access,
    /// Metric names by signal, where they differ from those known of the engine.
    pub metrics: BTreeMap<Signal, String>,
    /// The engine that answers, where the file says so. Otherwise it is recognised.
    pub engine: Option<String>,
    /// How much is read.
    pub limits: PageLimits,
}

impl PageSettings {
    /// A page that was found, read as the settings say.
    #[must_use]
    pub fn target(&self, target: Target, url: String) -> TargetConfig {
        let Self { interval, access, metrics, engine, limits } = self.clone();
        TargetConfig { target, url, interval, access, metrics, engine, select: BTreeMap::new(), limits }
    }
}

/// How much is read of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// Bytes of a page, after decompression.
    pub bytes_max: usize,
    /// Series of a page.
    pub series_max: usize,
    /// Longest time from the request to its last byte.
    pub timeout: Duration,
}

/// How something is asked: who asks, and whom to trust.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Who asks.
    pub credential: Option<Credential>,
    /// Whom to trust, and how we prove who we are.
    pub tls: Tls,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// Whoever holds this token. (An `InfluxDB` calls its header `Token` instead of `Bearer`.)
    Bearer(Secret),
    /// A user with a password.
    Basic {
        /// Name.
        user: String,
        /// Where the password is found.
        password: Secret,
    },
}

/// Certificates, by file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// Ours. Comes with its key.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

/// Where a secret is found. The secret itself is never part of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Secret {
    /// In this file.
    File(PathBuf),
    /// In this environment variable.
    Env(String),
}

/// What readings tell of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// Replicas of one variant, each a source of its own.
    Replicas {
        /// The service they serve.
        service: WorkloadId,
        /// What runs there.
        variant: VariantId,
    },
    /// Routers in front of a service.
    Router {
        /// The service.
        service: WorkloadId,
    },
    /// GPUs.
    Gpus,
}

impl Subject {
    /// The service they tell of.
    #[must_use]
    pub fn service(&self) -> Option<&WorkloadId> {
        match self {
            Self::Replicas { service, .. } | Self::Router { service } => Some(service),
            Self::Gpus => None,
        }
    }

    /// The target a page found under this subject is; `None` for GPUs.
    #[must_use]
    pub fn target(&self, id: TargetId) -> Option<Target> {
        let (workload, variant) = match self {
            Self::Replicas { service, variant } => (service.clone(), Some(variant.clone())),
            Self::Router { service } => (service.clone(), None),
            Self::Gpus => return None,
        };
        Some(Target { id, workload, variant, replica: None, pod: None, gpus: Vec::new() })
    }
}

/// A metrics page of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPageConfig {
    /// Its name.
    pub id: TargetId,
    /// Its address, without credentials.
    pub url: String,
    /// The node it tells of, where the file says so.
    pub node: Option<NodeId>,
    /// How it is read.
    pub page: PageSettings,
}

/// A server that answers the Prometheus HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrometheusApiConfig {
    /// Its name.
    pub id: TargetId,
    /// Its address up to where `/api/v1` begins.
    pub url: String,
    /// What the selected series tell of.
    pub subject: Subject,
    /// Which series: matchers as `PromQL` writes them, braces included. `None`: whatever is known to the catalogue.
    pub selector: Option<String>,
    /// Sent as `X-Scope-OrgID`.
    pub tenant: Option<String>,
    /// How answers are read. Limits hold for one answer.
    pub page: PageSettings,
}

/// A list of pages that may change while running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryConfig {
    /// Its name.
    pub id: TargetId,
    /// Where the list is.
    pub list: DiscoveryList,
    /// What its pages tell of.
    pub subject: Subject,
    /// Labels the list must give a page for it to be read.
    pub select: BTreeMap<String, String>,
    /// Time between two looks at the list.
    pub refresh: Span,
    /// How the pages are read.
    pub page: PageSettings,
}

/// Where a list of pages is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiscoveryList {
    /// In these files; the last part of a path may hold one `*`.
    Files(Vec<PathBuf>),
    /// At this address.
    Http {
        /// Which, without credentials.
        url: String,
        /// Who asks for it.
        access: Access,
    },
}

/// Readings that an `InfluxDB` 2 holds already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InfluxSourceConfig {
    /// Its name.
    pub id: TargetId,
    /// Its address, without credentials.
    pub url: String,
    /// The organisation.
    pub org: String,
    /// The bucket.
    pub bucket: String,
    /// The measurement.
    pub measurement: String,
    /// Fields by signal.
    pub fields: BTreeMap<Signal, String>,
    /// Tags a point must carry to count.
    pub tags: BTreeMap<String, String>,
    /// Tag whose values tell members of the source apart.
    pub member_tag: Option<String>,
    /// What it tells of.
    pub subject: Subject,
    /// Time between two looks.
    pub interval: Span,
    /// How it is asked.
    pub access: Access,
    /// Longest time from the request to its last byte.
    pub timeout: Duration,
}

/// Readings sent to Turnaround's own HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushConfig {
    /// Where the token is found that senders must show.
    pub token: Secret,
    /// Services that may be spoken of.
    pub allowed: BTreeSet<WorkloadId>,
}

impl Access {
    /// Relative paths, taken from `folder`.
    pub(crate) fn place(&mut self, folder: &Path) {
        match &mut self.credential {
            Some(Credential::Bearer(secret) | Credential::Basic { password: secret, .. }) => secret.place(folder),
            None => {}
        }
        for path in [&mut self.tls.ca, &mut self.tls.certificate, &mut self.tls.key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }
}

impl Secret {
    /// A relative path, taken from `folder`.
    pub(crate) fn place(&mut self, folder: &Path) {
        if let Self::File(path) = self {
            *path = folder.join(&*path);
        }
    }
}

impl Sources {
    /// Relative paths, taken from `folder`.
    pub(crate) fn place(&mut self, folder: &Path) {
        self.gpu_pages.iter_mut().for_each(|source| source.page.access.place(folder));
        self.prometheus_apis.iter_mut().for_each(|source| source.page.access.place(folder));
        self.influxdb.iter_mut().for_each(|source| source.access.place(folder));
        for source in &mut self.discoveries {
            source.page.access.place(folder);
            match &mut source.list {
                DiscoveryList::Files(files) => files.iter_mut().for_each(|file| *file = folder.join(&*file)),
                DiscoveryList::Http { access, .. } => access.place(folder),
            }
        }
        if let Some(push) = &mut self.push {
            push.token.place(folder);
        }
    }
}
