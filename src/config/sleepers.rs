//! Services that may go to zero and are seen only through their own replicas: nothing would wake them.

use crate::{
    Config,
    error::{Code, Findings},
    pushed_and_stored::sees_requests,
    resolved_sources::Subject,
    typed,
};
use fleet::{Signal, WorkloadId};

/// Warns of each, by name.
pub(crate) fn warn(file: &typed::File, config: &Config, findings: &mut Findings<'_>) {
    for table in &file.service {
        let service = table.get();
        let Some(at) = service.min_replicas.as_ref().filter(|at| *at.get() == 0) else { continue };
        let Some(workload) = config.workloads.iter().find(|workload| workload.id.as_str() == service.name.get()) else { continue };
        if through_replicas(config, &workload.id) && !without_replicas(config, &workload.id) {
            let message = format!("service {:?} may go to zero replicas, and only its replicas show its demand", service.name.get());
            let help = "set min_replicas = 1, or add a source that sees requests without a replica: role = \"router\", or [source.push]";
            findings.warn(Code::Sleeper, at.span(), message, "nothing could wake it", help);
        }
    }
}

fn subjects(config: &Config) -> impl Iterator<Item = &Subject> {
    let apis = config.sources.prometheus_apis.iter().map(|source| &source.subject);
    let lists = config.sources.discoveries.iter().map(|source| &source.subject);
    apis.chain(lists).chain(config.sources.influxdb.iter().map(|source| &source.subject))
}

/// Whether replicas show its demand.
fn through_replicas(config: &Config, service: &WorkloadId) -> bool {
    let pages = config.targets.iter().any(|target| target.target.workload == *service && target.target.variant.is_some());
    pages || subjects(config).any(|subject| matches!(subject, Subject::Replicas { service: s, .. } if s == service))
}

/// Whether something shows its demand when no replica runs.
fn without_replicas(config: &Config, service: &WorkloadId) -> bool {
    let router = config
        .targets
        .iter()
        .any(|target| target.target.workload == *service && (target.target.variant.is_none() || target.metrics.contains_key(&Signal::RequestsReceived)));
    let traced = config.traces.iter().any(|trace| trace.service == *service);
    let routers = subjects(config).any(|subject| matches!(subject, Subject::Router { service: s } if s == service));
    let stored = config.sources.influxdb.iter().any(|source| source.subject.service() == Some(service) && sees_requests(source));
    router || traced || routers || stored || config.sources.push.as_ref().is_some_and(|push| push.allowed.contains(service))
}
