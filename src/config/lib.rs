//! `turnaround.toml`: what was typed, then what was resolved.
//!
//! [`parse`] reads a file's text in two stages. The first ([`typed`](self)) is serde: keys and shapes, with the position of every value kept. The
//! second resolves names, ranges, presets and units into the words of `fleet`, and checks what can be checked without running anything; it
//! collects everything it finds, so that a file is mended in one go. Errors are plain values with a position and a remedy; the command
//! line draws them. This crate reads no file, no clock and no environment: secrets are names of files or variables, never values.

mod duration;
mod error;
mod gpu_refs;
mod jobs;
mod nearest;
mod node_range;
mod pools;
mod preset_kinds;
mod preset_models;
mod reading;
mod resolved;
mod sample;
mod schema;
mod services;
mod settings;
mod sources;
mod typed;
mod typed_settings;
mod variants;
mod written;

#[cfg(test)]
mod refusals;
#[cfg(test)]
mod short_form;

pub use error::{Code, ConfigError};
pub use preset_kinds::GPU_KIND_PRESETS;
pub use resolved::{Config, NvmlConfig, Policy, Publish, RunningJob, Secret, StoreConfig, TargetConfig, TraceConfig, TraceFormat, TraceInput};
pub use sample::sample;
pub use schema::schema;

use error::Findings;
use fleet::WorkloadId;
use std::collections::BTreeMap;

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
    let targets = sources::targets(typed, &fleet, &variants, &workloads, &running_jobs, findings);
    let traces = sources::traces(typed, findings);
    let nvml = sources::nvml(typed, &fleet, findings);
    sources::warn_of_sleepers(typed, &workloads, &targets, &traces, findings);
    Config {
        fleet,
        models,
        variants,
        workloads,
        targets,
        traces,
        nvml,
        unobserved_free,
        running_jobs,
        store: settings::store(&typed.store, findings),
        policy: settings::policy(&typed.policy, findings),
        publish: settings::publish(&typed.publish, findings),
        warnings: Vec::new(),
    }
}
