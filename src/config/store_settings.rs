//! `[store]`: where the history is kept, and for how long.

use crate::{
    access::{access, path as file},
    addresses::{Leads, address, is_plain},
    error::{Code, Findings},
    resolved::{InfluxStoreConfig, StoreConfig},
    settings::{DAYS, at_least, path, span},
    typed_settings as typed,
    typed_sources::AccessKeys,
    written::{At, WrittenLatency},
};
use fleet::{Bytes, Span};
use std::{path::PathBuf, time::Duration};

/// Longest retention.
const RETENTION_MAX: Span = Span(3_650 * 86_400);
/// Smallest queue that bridges more than a moment.
const QUEUE_BYTES_MIN: Bytes = Bytes(1 << 20);
/// Most points of one request: ten times what the server's makers advise.
const BATCH_POINTS_MAX: i64 = 50_000;

/// The history.
pub(crate) fn store(typed: &typed::Store, findings: &mut Findings<'_>) -> StoreConfig {
    let retention_raw = span(typed.retention_raw.as_ref(), "retention_raw", DAYS(7), Span::hours(1), RETENTION_MAX, findings);
    // What is kept in less detail is kept no shorter, unless that is asked for, which is then refused.
    let retention_minute = span(typed.retention_1m.as_ref(), "retention_1m", DAYS(30).max(retention_raw), Span::hours(1), RETENTION_MAX, findings);
    let retention_hour = span(typed.retention_1h.as_ref(), "retention_1h", DAYS(400).max(retention_minute), DAYS(2), RETENTION_MAX, findings);
    let retention_windows = span(typed.retention_windows.as_ref(), "retention_windows", DAYS(400), DAYS(2), RETENTION_MAX, findings);
    at_least(typed.retention_1m.as_ref(), "retention_1m", retention_minute, typed.retention_raw.as_ref(), "retention_raw", retention_raw, findings);
    at_least(typed.retention_1h.as_ref(), "retention_1h", retention_hour, typed.retention_1m.as_ref(), "retention_1m", retention_minute, findings);
    let path = path(typed.path.as_ref(), "path", ".turnaround/store.sqlite", findings);
    let influxdb = typed.influxdb.as_ref().and_then(|table| influxdb(table, findings));
    StoreConfig { path, retention_raw, retention_minute, retention_hour, retention_windows, influxdb }
}

fn influxdb(table: &At<typed::InfluxStore>, findings: &mut Findings<'_>) -> Option<InfluxStoreConfig> {
    let typed = table.get();
    let address = address(&typed.url, typed.url.get(), Leads::ToServer, findings);
    let access = access(keys(typed), is_plain(typed.url.get()), findings);
    if access.as_ref().is_some_and(|access| access.credential.is_none()) {
        let help = "add token_file = \"...\" or token_env = \"...\"";
        findings.refuse(Code::Conflict, table.span(), "store.influxdb names no token", "needs a token", help);
    }
    let org = name(&typed.org, "org", findings);
    let prefix = typed.prefix.as_ref().map_or(Some("turnaround".to_owned()), |at| name(at, "prefix", findings));
    let queue = typed.queue.as_ref().map_or(Some(PathBuf::from(".turnaround/queue")), |at| file(at, "queue", findings));
    let queue_bytes = queue_bytes(typed, findings);
    let batch_points = typed.batch_points.as_ref().map_or(Some(5_000), |at| findings.count(at, "batch_points", 1, BATCH_POINTS_MAX));
    let batch_age = duration(typed.batch_age.as_ref(), "batch_age", Duration::from_secs(1), Duration::from_mins(1), findings);
    let timeout = duration(typed.timeout.as_ref(), "timeout", Duration::from_secs(10), Duration::from_mins(5), findings);
    Some(InfluxStoreConfig {
        url: address?.full,
        org: org?,
        prefix: prefix?,
        access: access?,
        queue: queue?,
        queue_bytes_max: queue_bytes?.0,
        batch_points_max: batch_points? as usize,
        batch_age: batch_age?,
        timeout: timeout?,
    })
}

fn keys(typed: &typed::InfluxStore) -> AccessKeys<'_> {
    AccessKeys {
        token_file: typed.token_file.as_ref(),
        token_env: typed.token_env.as_ref(),
        user: None,
        password_file: None,
        password_env: None,
        ca_file: typed.ca_file.as_ref(),
        cert_file: None,
        key_file: None,
    }
}

fn name(at: &At<String>, key: &str, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.get();
    // Buckets whose names begin with an underscore are the server's own.
    if !text.trim().is_empty() && !text.starts_with('_') && !text.contains(['"', '\\']) && !text.chars().any(char::is_control) {
        return Some(text.clone());
    }
    let help = "names are not empty, begin with no underscore, and hold no quotes";
    findings.refuse(Code::Shape, at.span(), format!("{key} is {text:?}"), "not a name", help);
    None
}

fn queue_bytes(typed: &typed::InfluxStore, findings: &mut Findings<'_>) -> Option<Bytes> {
    let Some(at) = &typed.queue_size else { return Some(Bytes::from_gib(1)) };
    let size = findings.size(at, "queue_size")?;
    if size < QUEUE_BYTES_MIN {
        findings.refuse(
            Code::Number,
            at.span(),
            format!("queue_size is {}", at.get().0.text),
            "too small",
            "an outage fills it at once: write \"1MiB\" or more",
        );
        return None;
    }
    Some(size)
}

/// A time in whole or parts of seconds, above zero.
fn duration(at: Option<&At<WrittenLatency>>, key: &str, default: Duration, max: Duration, findings: &mut Findings<'_>) -> Option<Duration> {
    let Some(at) = at else { return Some(default) };
    let ms = findings.latency_ms(at, key, false)?;
    let duration = Duration::try_from_secs_f64(ms / 1_000.0).ok().filter(|duration| *duration <= max);
    if duration.is_none() {
        let message = format!("{key} is {}", at.get().0.text);
        findings.refuse(Code::Number, at.span(), message, "too large", format!("{key} must be above 0 and at most {}s", max.as_secs()));
    }
    duration
}
