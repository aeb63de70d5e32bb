//! `turnaround.toml`: what was typed, then what was resolved.
//!
//! [`parse`] reads a file's text in two stages. The first ([`typed`](self)) is serde: keys and shapes, with the position of every value kept. The
//! second resolves names, ranges, presets and units into the words of `fleet`, and checks what can be checked without running anything; it
//! collects everything it finds, so that a file is mended in one go. Errors are plain values with a position and a remedy; the command
//! line draws them. This crate reads no file, no clock and no environment: secrets are names of files or variables, never values.

mod access;
mod addresses;
mod discoveries;
mod duration;
mod engines;
mod error;
mod gpu_refs;
mod jobs;
mod metric_names;
mod nearest;
mod node_range;
mod pages;
mod pools;
mod preset_kinds;
mod preset_models;
mod priors;
mod pushed_and_stored;
mod reading;
mod recorded;
mod resolved;
mod resolved_sources;
mod sample;
mod schema;
mod selectors;
mod services;
mod settings;
mod sleepers;
mod sources;
mod store_settings;
mod subjects;
mod typed;
mod typed_settings;
mod typed_sources;
mod variants;
mod written;

#[cfg(test)]
mod refusals;
#[cfg(test)]
mod refusals_sources;
#[cfg(test)]
mod short_form;

pub use error::{Code, ConfigError};
pub use pages::ENGINES;
pub use preset_kinds::GPU_KIND_PRESETS;
pub use preset_models::preset_models;
pub use priors::{Prior, gpus_needed, prior};
pub use resolved::{Config, InfluxStoreConfig, NvmlConfig, Policy, Publish, RunningJob, StoreConfig, TraceConfig, TraceFormat, TraceInput};
pub use resolved_sources::{
    Access, Credential, DiscoveryConfig, DiscoveryList, GpuPageConfig, InfluxSourceConfig, PageLimits, PageSettings, PrometheusApiConfig, PushConfig, Secret,
    Sources, Subject, TargetConfig, Tls,
};
pub use sample::sample;
pub use schema::schema;

use error::Findings;
use fleet::WorkloadId;
use sources::Seen;
use std::collections::BTreeMap;
use subjects::Surroundings;

/// Reads a configuration. `file` is the name errors carry; nothing is opened.
///
/// # Errors
/// What the first stage stumbled over, alone; or everything the second stage found, ordered by position.
pub fn parse(text: &str, file: &str) -> Result<Config, Vec<ConfigError>> {
    let mut findings = Findings::new(file, text);
    let typed: typed::File = match toml::from_str(text) {
        Ok(typed) => typed,
        Err(error) => return Err(vec![findings.first_stage(&error)]),
    };
    let config = resolve(&typed, &mut findings);
    findings.conclude(config)
}

/// The second stage. What could not be resolved is left out of the result, and a finding says so.
fn resolve(typed: &typed::File, findings: &mut Findings<'_>) -> Config {
    let pools::Inventory { fleet, unobserved_free } = pools::resolve(typed, findings);
    findings.fleet_done();
    let catalogue = variants::resolve(typed, &fleet, findings);
    let zone = settings::zone(typed.zone.as_ref(), "UTC", findings);
    let mut names: BTreeMap<WorkloadId, std::ops::Range<usize>> = BTreeMap::new();
    let mut workloads = services::resolve(typed, &fleet, &catalogue, &zone, &mut names, findings);
    let (jobs, running_jobs) = jobs::resolve(typed, &fleet, &mut names, findings);
    workloads.extend(jobs);
    workloads.sort_by(|a, b| a.id.cmp(&b.id));
    if names.is_empty() {
        let at = 0..findings.text_len().min(1);
        findings.refuse(
            Code::Nothing,
            at,
            "there is no [[service]] and no [[job]]",
            "nothing asks for compute",
            "add one; `turnaround init --sample` shows both",
        );
    }
    let (models, variants) = catalogue.into_used(&workloads);
    let engines = engines::resolve(typed, findings);
    let names: Vec<&str> = engines.iter().map(|engine| engine.name.as_str()).collect();
    let known = Surroundings { declared: &typed.service, workloads: &workloads, variants: &variants, fleet: &fleet, engines: &names };
    let mut seen = Seen::of(&running_jobs);
    let targets = sources::targets(typed, known, &mut seen, findings);
    let sources = Sources {
        gpu_pages: sources::gpu_pages(typed, known, &mut seen, findings),
        prometheus_apis: discoveries::apis(typed, known, &mut seen, findings),
        discoveries: discoveries::lists(typed, known, &mut seen, findings),
        influxdb: pushed_and_stored::buckets(typed, known, &mut seen, findings),
        push: pushed_and_stored::push(typed, known, findings),
    };
    let traces = recorded::traces(typed, findings);
    let nvml = recorded::nvml(typed, &fleet, findings);
    let config = Config {
        fleet,
        models,
        variants,
        workloads,
        targets,
        sources,
        engines,
        traces,
        nvml,
        unobserved_free,
        running_jobs,
        store: store_settings::store(&typed.store, findings),
        policy: settings::policy(&typed.policy, findings),
        publish: settings::publish(&typed.publish, findings),
        warnings: Vec::new(),
    };
    sleepers::warn(typed, &config, findings);
    config
}
