//! `[[source.influxdb]]` and `[source.push]`: readings that others have stored, and readings that are sent.

use crate::{
    access::{access, secret},
    addresses::{Leads, address, is_plain},
    discoveries::named,
    error::{Code, Findings},
    metric_names::{signal, word},
    pages::{interval, timeout},
    resolved_sources::{InfluxSourceConfig, PushConfig, Subject},
    sources::{Seen, place_name, shown},
    subjects::{SubjectKeys, Surroundings, subject},
    typed, typed_sources,
    written::At,
};
use fleet::{Signal, SignalKind, WorkloadId};
use std::collections::{BTreeMap, BTreeSet};

/// Buckets that hold readings.
pub(crate) fn buckets(file: &typed::File, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Vec<InfluxSourceConfig> {
    file.source.influxdb.iter().filter_map(|table| bucket(table, known, seen, findings)).collect()
}

fn bucket(table: &At<typed_sources::Influx>, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Option<InfluxSourceConfig> {
    let typed = table.get();
    let who = shown(&typed.url);
    let address = address(&typed.url, typed.url.get(), Leads::ToServer, findings);
    let access = access(typed.access(), is_plain(typed.url.get()), findings);
    let keys = SubjectKeys { who: &who, service: typed.service.as_ref(), variant: typed.variant.as_ref(), role: typed.role.as_ref() };
    let subject = subject(keys, known, findings);
    let interval = interval(typed.interval.as_ref(), findings);
    let timeout = timeout(typed.timeout.as_ref(), interval.unwrap_or(crate::pages::INTERVAL), findings);
    let fields = fields(table, typed.service.is_none(), findings);
    let [org, bucket, measurement] =
        [(&typed.org, "org"), (&typed.bucket, "bucket"), (&typed.measurement, "measurement")].map(|(at, key)| name(at, key, findings));
    let (address, subject, measurement) = (address?, subject?, measurement?);
    let place = format!("{}/{measurement}", place_name(&address));
    let id = seen.name(typed.name.as_ref(), "", named(&subject, typed.variant.as_ref(), &place), typed.url.span(), findings)?;
    Some(InfluxSourceConfig {
        id,
        url: address.full,
        org: org?,
        bucket: bucket?,
        measurement,
        fields: fields?,
        tags: typed.tags.iter().map(|(tag, at)| (tag.clone(), at.get().clone())).collect(),
        member_tag: typed.member_tag.as_ref().map(|at| at.get().clone()),
        subject,
        interval: interval?,
        access: access?,
        timeout: timeout?,
    })
}

/// A name that is not empty.
fn name(at: &At<String>, key: &str, findings: &mut Findings<'_>) -> Option<String> {
    if at.get().trim().is_empty() {
        findings.refuse(Code::Shape, at.span(), format!("{key} is empty"), "no name", format!("write the name of the {key}"));
        return None;
    }
    Some(at.get().clone())
}

/// Fields by signal: at least one, and none for what a field cannot hold.
fn fields(table: &At<typed_sources::Influx>, of_gpus: bool, findings: &mut Findings<'_>) -> Option<BTreeMap<Signal, String>> {
    let mut fields = BTreeMap::new();
    for (key, at) in &table.get().signals {
        let Some(signal) = signal(key, at.span(), of_gpus, findings) else { continue };
        if signal.kind() == SignalKind::Histogram {
            let message = format!("{key} is a {}, and field {:?} holds one number", word(signal.kind()), at.get());
            findings.refuse(Code::Metric, at.span(), message, "one number", "leave it out: what a field cannot tell stays unknown");
        } else if let Some(field) = name(at, "field", findings) {
            fields.insert(signal, field);
        }
    }
    if table.get().signals.is_empty() {
        findings.refuse(Code::Shape, table.span(), "signals names no field", "nothing is read", "add signals = { requests_running = \"...\" }");
        return None;
    }
    Some(fields)
}

/// Readings that are sent.
pub(crate) fn push(file: &typed::File, known: Surroundings<'_>, findings: &mut Findings<'_>) -> Option<PushConfig> {
    let table = file.source.push.as_ref()?;
    let typed = table.get();
    let token = secret("token", typed.token_file.as_ref(), typed.token_env.as_ref(), findings);
    if token == Ok(None) {
        let help = "add token_file = \"...\" or token_env = \"...\"";
        findings.refuse(Code::Conflict, table.span(), "push names no token, so anyone could report demand", "needs a token", help);
    }
    let services: Vec<&WorkloadId> = known.workloads.iter().filter(|workload| workload.service().is_some()).map(|workload| &workload.id).collect();
    let Some(at) = &typed.allowed else {
        return Some(PushConfig { token: token.ok()??, allowed: services.into_iter().cloned().collect() });
    };
    let mut allowed = BTreeSet::new();
    for (name, span) in at.entries() {
        if !known.service_names().any(|service| service == name) {
            findings.dangling(span, "push", "service", name, known.service_names());
        }
        allowed.extend(services.iter().filter(|id| id.as_str() == name).map(|id| (*id).clone()));
    }
    Some(PushConfig { token: token.ok()??, allowed })
}

/// Services of which a source sees requests even when no replica runs.
pub(crate) fn sees_requests(source: &InfluxSourceConfig) -> bool {
    matches!(source.subject, Subject::Router { .. }) || source.fields.contains_key(&Signal::RequestsReceived)
}
