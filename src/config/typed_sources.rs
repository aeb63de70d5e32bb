//! The first stage, `[[source.*]]`: where readings come from.
//!
//! Tables share keys (who asks, how often, which names) that serde's `flatten` would rob of their positions; [`source_tables`] writes them out.

use crate::written::{At, OneOrMany, WrittenLatency, WrittenSize, WrittenSpan};
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Where readings come from.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sources {
    /// Metrics pages of serving engines and of routers.
    #[serde(default)]
    pub(crate) prometheus: Vec<At<Prometheus>>,
    /// Metrics pages of GPUs: DCGM exporters, AMD exporters, turnaround agents.
    #[serde(default)]
    pub(crate) gpu: Vec<At<Gpu>>,
    /// Servers that keep such pages and answer the Prometheus HTTP API.
    #[serde(default)]
    pub(crate) prometheus_api: Vec<At<PrometheusApi>>,
    /// Files that list metrics pages, as Prometheus reads them.
    #[serde(default)]
    pub(crate) file_sd: Vec<At<FileSd>>,
    /// Addresses that list metrics pages, as Prometheus asks them.
    #[serde(default)]
    pub(crate) http_sd: Vec<At<HttpSd>>,
    /// Buckets of an `InfluxDB` 2 that hold readings already.
    #[serde(default)]
    pub(crate) influxdb: Vec<At<Influx>>,
    /// Readings that are sent to Turnaround's own HTTP interface.
    pub(crate) push: Option<At<Push>>,
    /// Recorded traffic, replayed as if it were live.
    #[serde(default)]
    pub(crate) trace: Vec<At<Trace>>,
    /// The GPUs of this host.
    pub(crate) nvml: Option<At<Nvml>>,
}

/// How a table says who asks.
#[derive(Clone, Copy)]
pub(crate) struct AccessKeys<'t> {
    pub(crate) token_file: Option<&'t At<String>>,
    pub(crate) token_env: Option<&'t At<String>>,
    pub(crate) user: Option<&'t At<String>>,
    pub(crate) password_file: Option<&'t At<String>>,
    pub(crate) password_env: Option<&'t At<String>>,
    pub(crate) ca_file: Option<&'t At<String>>,
    pub(crate) cert_file: Option<&'t At<String>>,
    pub(crate) key_file: Option<&'t At<String>>,
}

/// How a table says what is read of a page, how often, and how much of it.
#[derive(Clone, Copy)]
pub(crate) struct PageKeys<'t> {
    pub(crate) access: AccessKeys<'t>,
    pub(crate) interval: Option<&'t At<WrittenSpan>>,
    pub(crate) timeout: Option<&'t At<WrittenLatency>>,
    pub(crate) engine: Option<&'t At<String>>,
    pub(crate) metrics: &'t BTreeMap<String, At<String>>,
    pub(crate) page_bytes_max: Option<&'t At<WrittenSize>>,
    pub(crate) series_max: Option<&'t At<i64>>,
}

/// Tables with the keys that all pages share behind their own.
macro_rules! source_tables {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_doc])* pub(crate) $field: $type,)*
            /// Time between two looks. Default: 15s.
            interval: Option<At<WrittenSpan>>,
            /// Time after which a look is given up. Default: 10s, or the interval where that is shorter.
            timeout: Option<At<WrittenLatency>>,
            /// The engine or exporter that answers, such as "vllm", or the name of an `[[engine]]`. Default: what the page looks like.
            engine: Option<At<String>>,
            /// Metric names by signal, where the engine's differ from those known: `requests_running = "my:running"`.
            #[serde(default)]
            metrics: BTreeMap<String, At<String>>,
            /// Largest page that is read. Default: 16MiB.
            page_bytes_max: Option<At<WrittenSize>>,
            /// Most series a page may have. Default: 200000.
            series_max: Option<At<i64>>,
            /// File that holds a bearer token. The token itself never stands in this file.
            token_file: Option<At<String>>,
            /// Environment variable that holds a bearer token.
            token_env: Option<At<String>>,
            /// User name, where a password is asked for.
            user: Option<At<String>>,
            /// File that holds the password.
            password_file: Option<At<String>>,
            /// Environment variable that holds the password.
            password_env: Option<At<String>>,
            /// Certificates (PEM) trusted beside those of the system.
            ca_file: Option<At<String>>,
            /// Our own certificate (PEM), where one is asked for.
            cert_file: Option<At<String>>,
            /// Its private key (PEM).
            key_file: Option<At<String>>,
        }

        impl $name {
            /// The keys all pages share.
            pub(crate) fn page(&self) -> PageKeys<'_> {
                let access = AccessKeys {
                    token_file: self.token_file.as_ref(),
                    token_env: self.token_env.as_ref(),
                    user: self.user.as_ref(),
                    password_file: self.password_file.as_ref(),
                    password_env: self.password_env.as_ref(),
                    ca_file: self.ca_file.as_ref(),
                    cert_file: self.cert_file.as_ref(),
                    key_file: self.key_file.as_ref(),
                };
                PageKeys {
                    access,
                    interval: self.interval.as_ref(),
                    timeout: self.timeout.as_ref(),
                    engine: self.engine.as_ref(),
                    metrics: &self.metrics,
                    page_bytes_max: self.page_bytes_max.as_ref(),
                    series_max: self.series_max.as_ref(),
                }
            }
        }
    )*};
}

source_tables! {
    /// A page in the Prometheus text format: one replica, one a node, or a router's.
    Prometheus {
        /// Its address. "{node}" stands for each of `nodes`.
        url: At<String>,
        /// The service whose traffic it shows.
        service: At<String>,
        /// The variant that runs there. May be left out when the service has only one.
        variant: Option<At<String>>,
        /// "replica" (default), or "router": a gateway in front of replicas, whose demand is seen even when no replica runs.
        role: Option<At<String>>,
        /// Labels a line must carry to count, for pages of several models: `select = { model = "x" }`. One table a service.
        #[serde(default)]
        select: BTreeMap<String, At<String>>,
        /// Its name. Default: host and port.
        name: Option<At<String>>,
        /// Nodes with one replica each, as a range; `url` then contains "{node}".
        nodes: Option<At<OneOrMany>>,
        /// GPUs it holds: "gpu001/0-3", UUIDs, or a list of both; with `nodes` the indices on each: "0-3".
        gpus: Option<At<OneOrMany>>,
    }

    /// A page about GPUs: a DCGM exporter's, an AMD exporter's, a turnaround agent's. It belongs to no service.
    Gpu {
        /// Its address. "{node}" stands for each of `nodes`.
        url: At<String>,
        /// Nodes with one exporter each, as a range; `url` then contains "{node}".
        nodes: Option<At<OneOrMany>>,
        /// The node it tells of, where `url` names one exporter. Default: what the page says.
        node: Option<At<String>>,
        /// Its name. Default: host and port.
        name: Option<At<String>>,
    }

    /// A server that answers the Prometheus HTTP API: Prometheus, `VictoriaMetrics`, Thanos, Mimir. Every instance it knows becomes a source.
    PrometheusApi {
        /// Its address, up to where "/api/v1" begins.
        url: At<String>,
        /// The service whose traffic the selected series show. Left out: they tell of GPUs.
        service: Option<At<String>>,
        /// The variant that runs there. May be left out when the service has only one.
        variant: Option<At<String>>,
        /// "replica" (default) or "router".
        role: Option<At<String>>,
        /// Which series, as `PromQL` selects them: '{job="vllm"}'. Default: all that are known to the catalogue.
        #[serde(rename = "match")]
        selector: Option<At<String>>,
        /// Tenant, sent as X-Scope-OrgID.
        tenant: Option<At<String>>,
        /// Its name. Default: service, variant where it is written, host and port.
        name: Option<At<String>>,
    }

    /// Files that list metrics pages in the form of Prometheus' `file_sd_configs`.
    FileSd {
        /// Files, relative to this one; the last part may hold one "*".
        files: At<OneOrMany>,
        /// The service whose traffic the pages show. Left out: they tell of GPUs.
        service: Option<At<String>>,
        /// The variant that runs there. May be left out when the service has only one.
        variant: Option<At<String>>,
        /// "replica" (default) or "router".
        role: Option<At<String>>,
        /// Labels the list must give a page for it to be read.
        #[serde(default)]
        select: BTreeMap<String, At<String>>,
        /// Time between two looks at the files. Default: 1m.
        refresh: Option<At<WrittenSpan>>,
        /// Its name. Default: the first file and the service.
        name: Option<At<String>>,
    }

    /// An address that lists metrics pages in the form of Prometheus' `http_sd_configs`.
    HttpSd {
        /// Its address. Credentials of this table are for the pages, not for it.
        url: At<String>,
        /// File that holds a bearer token for the list itself.
        list_token_file: Option<At<String>>,
        /// Environment variable that holds a bearer token for the list itself.
        list_token_env: Option<At<String>>,
        /// The service whose traffic the pages show. Left out: they tell of GPUs.
        service: Option<At<String>>,
        /// The variant that runs there. May be left out when the service has only one.
        variant: Option<At<String>>,
        /// "replica" (default) or "router".
        role: Option<At<String>>,
        /// Labels the list must give a page for it to be read.
        #[serde(default)]
        select: BTreeMap<String, At<String>>,
        /// Time between two looks at the list. Default: 1m.
        refresh: Option<At<WrittenSpan>>,
        /// Its name. Default: service, variant where it is written, host and port.
        name: Option<At<String>>,
    }
}

/// Readings that an `InfluxDB` 2 holds already.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Influx {
    /// Its address.
    pub(crate) url: At<String>,
    /// The organisation, by name.
    pub(crate) org: At<String>,
    /// The bucket.
    pub(crate) bucket: At<String>,
    /// The measurement.
    pub(crate) measurement: At<String>,
    /// Fields by signal: `requests_running = "running"`.
    pub(crate) signals: BTreeMap<String, At<String>>,
    /// Tags a point must carry to count.
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, At<String>>,
    /// Tag whose values tell engines, or GPUs, apart. Default: there is only one.
    pub(crate) member_tag: Option<At<String>>,
    /// The service whose traffic it shows. Left out: GPUs.
    pub(crate) service: Option<At<String>>,
    /// The variant that runs there. May be left out when the service has only one.
    pub(crate) variant: Option<At<String>>,
    /// "replica" (default) or "router".
    pub(crate) role: Option<At<String>>,
    /// Its name. Default: host, port, measurement and service.
    pub(crate) name: Option<At<String>>,
    /// Time between two looks. Default: 15s.
    pub(crate) interval: Option<At<WrittenSpan>>,
    /// Time after which a look is given up. Default: 10s, or the interval where that is shorter.
    pub(crate) timeout: Option<At<WrittenLatency>>,
    /// File that holds the token. The token itself never stands in this file.
    pub(crate) token_file: Option<At<String>>,
    /// Environment variable that holds the token.
    pub(crate) token_env: Option<At<String>>,
    /// Certificates (PEM) trusted beside those of the system.
    pub(crate) ca_file: Option<At<String>>,
}

/// Readings sent to Turnaround's own HTTP interface as line protocol.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Push {
    /// File that holds the token senders must show.
    pub(crate) token_file: Option<At<String>>,
    /// Environment variable that holds it.
    pub(crate) token_env: Option<At<String>>,
    /// Services that may be spoken of. Default: all.
    pub(crate) allowed: Option<At<OneOrMany>>,
}

/// Recorded traffic.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// The service it is the traffic of.
    pub(crate) service: At<String>,
    /// A file, relative to this one.
    pub(crate) file: Option<At<String>>,
    /// Format of the file: servegen or azure-llm-2023.
    pub(crate) format: Option<At<String>>,
    /// Traffic that comes with Turnaround, by name. Instead of `file`.
    pub(crate) bundled: Option<At<String>>,
    /// Factor on its rate. Default: 1.
    pub(crate) scale: Option<At<f64>>,
}

/// The GPUs of this host, read through NVIDIA's management library.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nvml {
    /// The node this host is.
    pub(crate) node: At<String>,
    /// The library, where it is not found by itself.
    pub(crate) library: Option<String>,
    /// Time between two looks. Default: 15s.
    pub(crate) interval: Option<At<WrittenSpan>>,
}

impl Influx {
    /// How it is asked.
    pub(crate) fn access(&self) -> AccessKeys<'_> {
        AccessKeys {
            token_file: self.token_file.as_ref(),
            token_env: self.token_env.as_ref(),
            user: None,
            password_file: None,
            password_env: None,
            ca_file: self.ca_file.as_ref(),
            cert_file: None,
            key_file: None,
        }
    }
}
