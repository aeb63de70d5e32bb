//! What pages and Prometheus servers tell, as findings: engines and their signals, GPUs, freshness, clocks, and what does not agree.

use crate::discover::{self, Discovered, Instance, counted};
use crate::discover_look::Known;
use crate::doctor::{Finding, Severity};
use config::Config;
use fleet::{Signal, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Clocks that differ by less are as good as one: a scrape takes as long.
const SKEW_S: f64 = 5.0;
/// Readings older than this are no longer of now: eight scrapes of a usual Prometheus.
const STALE_S: f64 = 120.0;

/// Findings about a Prometheus itself, then about what it knows.
pub(crate) fn through_prometheus(url: &str, known: &Known, config: Option<&Config>, now: Timestamp) -> Vec<Finding> {
    let check = format!("prometheus {}", wire::Redacted::new(url));
    let mut findings = vec![Finding::ok(&check, format!("{} answers and knows {} that we can read", known.server, counted(known.instances.len(), "page")))];
    findings.extend(freshness(&check, known.newest_s));
    findings.extend(known.warnings.iter().map(|warning| {
        Finding::new(Severity::Warning, &check, format!("it warns: {warning}"), "part of its data may be missing; look at its own status page")
    }));
    if known.instances.is_empty() {
        findings.push(Finding::new(
            Severity::Warning,
            &check,
            "none of its series is one of a serving engine, router or GPU exporter that is known",
            "check its scrape configuration (/targets), or describe the engine under [[engine]]",
        ));
    }
    findings.extend(pages(&known.instances, config, now));
    findings
}

/// How old its newest sample is, or how far ahead its clock.
fn freshness(check: &str, newest_s: Option<f64>) -> Option<Finding> {
    let newest_s = newest_s?;
    if newest_s > SKEW_S {
        let cause = format!("its newest sample lies {newest_s:.0} s ahead of this host's clock");
        return Some(Finding::new(Severity::Warning, check, cause, "set both clocks by NTP: chronyc tracking   on both hosts"));
    }
    if newest_s < -STALE_S {
        let cause = format!("its newest sample is {:.0} s old: it scrapes nothing any more, or its clock is behind", -newest_s);
        return Some(Finding::new(Severity::Error, check, cause, "look at its /targets page and at its clock"));
    }
    Some(Finding::ok(check, format!("its newest sample is {:.0} s old", (-newest_s).max(0.0))))
}

/// Findings about pages.
pub(crate) fn pages(instances: &[Instance], config: Option<&Config>, now: Timestamp) -> Vec<Finding> {
    let found = discover::fleet(instances);
    let mut findings = silent(instances);
    findings.extend(services(&found));
    findings.extend(gpus(&found));
    findings.extend(clocks(instances, now));
    findings.extend(versions(&found));
    findings.extend(config.into_iter().flat_map(|config| drift(instances, &found, config)));
    // What is missing is a finding of its own, above.
    let told = found.remarks.iter().filter(|remark| !remark.contains(" tells nothing: ") && !remark.contains(" shows no "));
    findings.extend(told.map(|remark| Finding::new(Severity::Info, "found", remark.clone(), "see the line of it in the configuration")));
    findings
}

/// Pages that were not read.
fn silent(instances: &[Instance]) -> Vec<Finding> {
    let failed = instances.iter().filter_map(|i| match &i.scrape.status {
        fleet::ScrapeStatus::Failed(reason) => Some((i, reason)),
        fleet::ScrapeStatus::Ok => None,
    });
    failed
        .map(|(instance, reason)| {
            let url = instance.url.clone().unwrap_or_else(|| format!("http://{}/metrics", instance.label(&["instance"]).unwrap_or_default()));
            Finding::new(Severity::Error, format!("page {}", instance.scrape.target), reason.clone(), format!("curl -sS {url} | head"))
        })
        .collect()
}

/// Engines, what they show and what they lack.
fn services(found: &Discovered) -> Vec<Finding> {
    let one = |service: &discover::FoundService| {
        let check = format!("service {}", service.name);
        let is = format!("{} of {}, engine {}", counted(service.replicas(), "replica"), service.model, service.engine());
        if service.missing.is_empty() {
            return Finding::ok(check, format!("{is}, with all signals it should show"));
        }
        let names: Vec<String> = service.missing.iter().map(|signal| signal.name()).collect();
        let remedy = "what is missing stays unknown; a newer engine may show it, or name it under metrics of the source";
        Finding::new(Severity::Warning, check, format!("{is}, lacks {}", names.join(", ")), remedy)
    };
    found.services.iter().map(one).collect()
}

fn gpus(found: &Discovered) -> Vec<Finding> {
    let mut findings: Vec<Finding> = found
        .pools
        .iter()
        .filter(|pool| !pool.assumed)
        .map(|pool| {
            Finding::ok("GPUs", format!("{} of {} on {}", pool.nodes.len() * pool.gpus_per_node as usize, pool.kind, counted(pool.nodes.len(), "node")))
        })
        .collect();
    if findings.is_empty() {
        let remedy = "run a DCGM exporter or `turnaround agent` on the nodes, and list it under [[source.gpu]]";
        findings.push(Finding::new(Severity::Warning, "GPUs", "no page tells of GPUs, so what is free and what is broken is not known", remedy));
    }
    let assumed: Vec<&str> = found.services.iter().filter(|s| s.variants.iter().any(|v| v.assumed)).map(|s| s.name.as_str()).collect();
    if !assumed.is_empty() && !found.pools.iter().all(|pool| pool.assumed) {
        let cause = format!("no page tells which GPUs the replicas of {} hold", assumed.join(", "));
        findings.push(Finding::new(
            Severity::Info,
            "GPUs",
            cause,
            "let the exporter label GPUs with pods (DCGM_EXPORTER_KUBERNETES=true), or name gpus at the source",
        ));
    }
    findings
}

/// Hosts whose processes started in our future.
fn clocks(instances: &[Instance], now: Timestamp) -> Vec<Finding> {
    #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch lie far below 2^53")]
    let ahead = |i: &Instance| i.scrape.scalar(Signal::BootTime).map(|boot| boot - now.0 as f64).filter(|ahead| *ahead > SKEW_S);
    let found = instances.iter().filter_map(|i| Some((i, ahead(i)?)));
    found
        .map(|(instance, ahead)| {
            let cause = format!("it says that it started {ahead:.0} s from now: its clock is ahead of this host's");
            Finding::new(Severity::Warning, format!("clock of {}", instance.scrape.target), cause, "set both clocks by NTP: chronyc tracking   on both hosts")
        })
        .collect()
}

/// Services whose replicas are of several versions: names and meanings may differ between them.
fn versions(found: &Discovered) -> Vec<Finding> {
    let several = found.services.iter().filter(|s| s.engines.len() > 1 || s.engines.values().any(|versions| versions.len() > 1));
    several
        .map(|s| {
            Finding::new(
                Severity::Info,
                format!("service {}", s.name),
                format!("its replicas differ: {}", s.engine()),
                "finish the upgrade; both are read meanwhile",
            )
        })
        .collect()
}

/// What pages tell and the configuration does not, and the other way round.
fn drift(instances: &[Instance], found: &Discovered, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let seen: BTreeSet<&str> = found.pools.iter().filter(|pool| !pool.assumed).flat_map(|pool| pool.nodes.iter().map(String::as_str)).collect();
    let configured: BTreeSet<&str> = config.fleet.nodes.iter().map(|node| node.id.as_str()).collect();
    if !seen.is_empty() {
        for (who, nodes, remedy) in [
            (
                "in the configuration, but no page tells of it",
                configured.difference(&seen).collect::<Vec<_>>(),
                "check their exporter, or take them out of the pool",
            ),
            ("with GPUs, but in no pool", seen.difference(&configured).collect::<Vec<_>>(), "add them to a pool; turnaround init --prometheus shows the lines"),
        ] {
            if let Some(first) = nodes.first() {
                findings.push(Finding::new(Severity::Warning, "nodes", format!("{} ({first} first) {who}", counted(nodes.len(), "node")), remedy));
            }
        }
    }
    findings.extend(generations(instances));
    findings
}

/// Exporters of one job that name the same thing by different labels: joins by either lose the others.
fn generations(instances: &[Instance]) -> Vec<Finding> {
    let mut by_job: BTreeMap<&str, BTreeSet<bool>> = BTreeMap::new();
    for instance in instances.iter().filter(|i| !i.scrape.devices.is_empty()) {
        let job = instance.label(&["job"]).unwrap_or("pages");
        by_job.entry(job).or_default().insert(instance.scrape.devices.iter().all(|device| device.node.is_some()));
    }
    let mixed = by_job.into_iter().filter(|(_, named)| named.len() > 1);
    mixed
        .map(|(job, _)| {
            let cause = format!("some pages of job {job} name the node of their GPUs and others do not");
            Finding::new(Severity::Warning, "labels", cause, "bring the exporters to one version; until then nodes are taken from the addresses of the others")
        })
        .collect()
}
