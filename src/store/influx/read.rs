//! Questions: the history as the values that were written. An answer that makes no sense is an error, never a panic and never an empty list.

use super::documents::{Whole, assemble};
use super::flux::{Row, quoted, time};
use super::line::{stored, text_stored};
use super::points::{Entry, SECOND};
use super::sender::Shared;
use super::settings::Bucket;
use crate::StoreError;
use fleet::{MemberId, Observation, Plan, Signal, Span, TargetId, Timestamp, WorkloadId, WorkloadWindow};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, sync::Arc};

/// The first instant that `InfluxDB` keeps, nanoseconds since 1970.
pub(crate) const FIRST: i64 = i64::MIN + 2;

/// The first instant after all that it keeps.
pub(crate) const END: i64 = i64::MAX - 1;

/// The last multiple of `step` that is not after `at`, in seconds.
pub(crate) fn floor(at: i64, step: Span) -> i64 {
    at.div_euclid(step.0.max(1)) * step.0.max(1)
}

/// A bound in seconds as one in nanoseconds, as far as there are any.
fn bound(at: Timestamp) -> i64 {
    at.0.saturating_mul(SECOND).clamp(FIRST, END)
}

/// From one instant to before another, nanoseconds since 1970.
pub(crate) fn range(from: i64, to: i64) -> String {
    format!("range(start: {}, stop: {})", time(from.clamp(FIRST, END)), time(to.clamp(FIRST, END)))
}

/// The signal of a name.
pub(crate) fn signal_named(name: &str) -> Option<Signal> {
    serde_json::from_value(serde_json::Value::String(name.to_owned())).ok()
}

fn from_decisions(shared: &Shared, from: i64, to: i64) -> String {
    format!("from(bucket: {}) |> {}", quoted(&shared.link.settings.bucket(Bucket::Decisions)), range(from, to))
}

fn of_workload(workload: Option<&WorkloadId>) -> String {
    workload.map(|workload| format!(" and r.workload == {}", quoted(&stored(workload.as_str())))).unwrap_or_default()
}

/// The documents of a kind that stand in a range of nanoseconds.
pub(crate) async fn wholes(shared: &Shared, kind: &str, condition: &str, from: i64, to: i64) -> Result<Vec<Whole>, StoreError> {
    if from >= to {
        return Ok(Vec::new());
    }
    let flux = format!("{} |> filter(fn: (r) => r._measurement == {} and r._field == \"body\"{condition})", from_decisions(shared, from, to), quoted(kind));
    assemble(&shared.link.rows(kind, flux).await?).map_err(|why| shared.link.failed("read", kind, why))
}

fn decoded<T: DeserializeOwned>(shared: &Shared, kind: &str, id: &str, body: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(body).map_err(|error| shared.link.failed("read", &format!("{kind} {id}"), error.to_string()))
}

/// The values of a kind in a span, in order of instant and id.
pub(crate) async fn values<T: DeserializeOwned>(
    shared: &Arc<Shared>,
    kind: &str,
    workload: Option<&WorkloadId>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<T>, StoreError> {
    shared.flush().await?;
    let wholes = wholes(shared, kind, &of_workload(workload), bound(from), bound(to)).await?;
    wholes.iter().map(|whole| decoded(shared, kind, &whole.id, &whole.body)).collect()
}

/// Windows in order of workload, start and length.
pub(crate) async fn windows(shared: &Arc<Shared>, workload: Option<&WorkloadId>, from: Timestamp, to: Timestamp) -> Result<Vec<WorkloadWindow>, StoreError> {
    shared.flush().await?;
    let (from, to) = (bound(from), bound(to));
    if from >= to {
        return Ok(Vec::new());
    }
    let condition = of_workload(workload);
    let flux = format!("{} |> filter(fn: (r) => r._measurement == \"demand\" and r._field == \"body\"{condition})", from_decisions(shared, from, to));
    let rows = shared.link.rows("windows", flux).await?;
    let one = |row: &Row| decoded(shared, "window", &row.text("workload").unwrap_or_default(), row.text("_value").unwrap_or_default().as_bytes());
    let mut windows = rows.iter().map(one).collect::<Result<Vec<WorkloadWindow>, _>>()?;
    windows.sort_by(|a, b| (&a.workload, a.start, a.length).cmp(&(&b.workload, b.start, b.length)));
    Ok(windows)
}

/// Signal's name, member, part, and the instant in nanoseconds: their order is that of the answer.
type SeriesAt = (String, Option<String>, Option<String>, i64);

/// Observations in order of signal's name, member, part and instant.
pub(crate) async fn observations(
    shared: &Arc<Shared>,
    source: &TargetId,
    signal: Option<Signal>,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Observation>, StoreError> {
    shared.flush().await?;
    let (from, to) = (bound(from), bound(to));
    if from >= to {
        return Ok(Vec::new());
    }
    let bucket = quoted(&shared.link.settings.bucket(Bucket::Raw));
    let only = signal.map(|signal| format!(" and r.signal == {}", quoted(&signal.name()))).unwrap_or_default();
    let measured = "(r._measurement == \"engine\" or r._measurement == \"gpu\")";
    let named = format!("r.source == {}{only}", quoted(&stored(source.as_str())));
    let flux = format!("from(bucket: {bucket}) |> {} |> filter(fn: (r) => {measured} and {named})", range(from, to));
    let object = format!("observations of {source}");
    let mut found: BTreeMap<SeriesAt, (Option<f64>, f64)> = BTreeMap::new();
    for row in shared.link.rows(&object, flux).await? {
        let strange = || shared.link.failed("read", &object, "a row lacks its signal, instant or value".into());
        let (signal, at) = (row.text("signal").ok_or_else(strange)?, row.time("_time").ok_or_else(strange)?);
        let value = row.number("_value").ok_or_else(strange)?;
        let point = found.entry((signal, row.text("member"), row.text("part"), at)).or_default();
        match row.cell("_field") {
            Some("value") => point.0 = Some(value),
            Some("lag_s") => point.1 = value,
            _ => {}
        }
    }
    // A lag without its value is no observation.
    let whole = found.into_iter().filter_map(|(key, (value, lag))| Some((key, value?, lag)));
    whole.map(|((signal, member, part, at), value, lag)| observation(shared, source, (&signal, member, part), value, at.div_euclid(SECOND), lag)).collect()
}

fn observation(
    shared: &Shared,
    source: &TargetId,
    (signal, member, part): (&str, Option<String>, Option<String>),
    value: f64,
    observed: i64,
    lag: f64,
) -> Result<Observation, StoreError> {
    let strange = |what: String| shared.link.failed("read", &format!("observations of {source}"), what);
    let signal = signal_named(signal).ok_or_else(|| strange(format!("{signal:?} is no signal")))?;
    let member = member.map(MemberId::new).transpose().map_err(|error| strange(error.to_string()))?;
    #[expect(clippy::cast_possible_truncation, reason = "written from a whole number of seconds")]
    let received = Timestamp(observed.saturating_add(lag as i64));
    Ok(Observation { source: source.clone(), member, signal, part, value, observed: Timestamp(observed), received })
}

/// The value of the highest generation: the server's, or the one kept here where the server is away or knows of no later one.
pub(crate) async fn latest<T: DeserializeOwned>(shared: &Arc<Shared>, kind: &'static str, generation: fn(&T) -> u64) -> Result<Option<T>, StoreError> {
    let here = shared.blocking(move |shared| shared.outbox.kept(kind, None)).await?;
    let here: Option<T> = here.map(|(_, body)| decoded(shared, kind, "kept here", &body)).transpose()?;
    match latest_there::<T>(shared, kind).await {
        Ok(there) => Ok([here, there].into_iter().flatten().max_by_key(generation)),
        Err(StoreError::Away { .. }) if here.is_some() => Ok(here),
        Err(error) => Err(shared.counted(error)),
    }
}

async fn latest_there<T: DeserializeOwned>(shared: &Arc<Shared>, kind: &'static str) -> Result<Option<T>, StoreError> {
    shared.flush().await?;
    let condition = format!("r._measurement == {} and r._field == \"generation\"", quoted(kind));
    let flux = format!("{} |> filter(fn: (r) => {condition}) |> group() |> max()", from_decisions(shared, FIRST, END));
    let rows = shared.link.rows(kind, flux).await?;
    let Some(at) = rows.first().and_then(|row| row.time("_time")) else { return Ok(None) };
    let found = wholes(shared, kind, "", at, at + 1).await?;
    found.first().map(|whole| decoded(shared, kind, &whole.id, &whole.body)).transpose()
}

/// A plan or problem by its id: from here where it is kept here, else from the server.
pub(crate) async fn by_id<T: DeserializeOwned>(shared: &Arc<Shared>, kind: &'static str, id: String) -> Result<Option<T>, StoreError> {
    let name = id.clone();
    let (here, at) = shared.blocking(move |shared| Ok((shared.outbox.kept(kind, Some(&name))?, shared.outbox.document(kind, &name)?))).await?;
    if let Some((_, body)) = here {
        return decoded(shared, kind, &id, &body).map(Some);
    }
    shared.flush().await?;
    let at = if at.is_some() { at } else { stands_at(shared, kind, &id).await? };
    let Some(at) = at else { return Ok(None) };
    let found = wholes(shared, kind, "", at, at + 1).await?;
    found.iter().find(|whole| whole.id == id).map(|whole| decoded(shared, kind, &id, &whole.body)).transpose()
}

/// Where a document of another machine stands.
async fn stands_at(shared: &Shared, kind: &str, id: &str) -> Result<Option<i64>, StoreError> {
    let condition = format!("r._measurement == {} and r._field == \"id\" and r._value == {}", quoted(kind), quoted(&text_stored(id)));
    let flux = format!("{} |> filter(fn: (r) => {condition}) |> keep(columns: [\"_time\"])", from_decisions(shared, FIRST, END));
    Ok(shared.link.rows(kind, flux).await?.first().and_then(|row| row.time("_time")))
}

/// A state: the later of the one kept here and the server's, which another machine may have written.
pub(crate) async fn snapshot(shared: &Arc<Shared>, name: String) -> Result<Option<Vec<u8>>, StoreError> {
    let named = name.clone();
    let here = shared.blocking(move |shared| shared.outbox.kept("state", Some(&named))).await?;
    match snapshot_there(shared, &name).await {
        Ok(there) => Ok([here, there].into_iter().flatten().max_by_key(|(kept_at, _)| *kept_at).map(|(_, body)| body)),
        Err(StoreError::Away { .. }) if here.is_some() => Ok(here.map(|(_, body)| body)),
        Err(error) => Err(shared.counted(error)),
    }
}

async fn snapshot_there(shared: &Arc<Shared>, name: &str) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    shared.flush().await?;
    let condition = format!("r._measurement == \"state\" and r._field == \"body\" and r.name == {}", quoted(&stored(name)));
    let flux = format!("{} |> filter(fn: (r) => {condition})", from_decisions(shared, FIRST, END));
    let rows = shared.link.rows("state", flux).await?;
    // Behind the chunks of the latest state may stand those of a longer one before it.
    let id = |row: &Row| row.text("_value").and_then(|body| body.splitn(4, ' ').nth(3).map(str::to_owned));
    let latest = rows.iter().find(|row| row.cell("chunk") == Some("0")).and_then(id);
    let own: Vec<Row> = rows.into_iter().filter(|row| id(row) == latest).collect();
    let whole = assemble(&own).map_err(|why| shared.link.failed("read", &format!("state {name}"), why))?.pop();
    Ok(whole.map(|whole| (whole.id.parse().unwrap_or(0), whole.body)))
}

/// Enters the plans and calibrations that the server holds, so that no generation goes back on a machine that is new to it.
pub(crate) async fn learn(shared: &Arc<Shared>) -> Result<(), StoreError> {
    let mut entries = Vec::new();
    for kind in ["plan", "calibration"] {
        let condition = format!("r._measurement == {} and (r._field == \"generation\" or r._field == \"id\") and r.chunk == \"0\"", quoted(kind));
        let flux = format!("{} |> filter(fn: (r) => {condition})", from_decisions(shared, FIRST, END));
        let mut found: BTreeMap<i64, (Option<String>, Option<f64>)> = BTreeMap::new();
        for row in shared.link.rows(kind, flux).await? {
            let Some(at) = row.time("_time") else { continue };
            let entry = found.entry(at).or_default();
            match row.cell("_field") {
                Some("id") => entry.0 = row.text("_value"),
                _ => entry.1 = row.number("_value"),
            }
        }
        #[expect(clippy::cast_possible_truncation, reason = "written from an integer of at most 2^53")]
        let whole = found.into_iter().filter_map(|(at, (id, generation))| Some((at, id?, generation? as i64)));
        entries.extend(whole.map(|(at, id, generation)| Entry { kind, id, generation, at, problem: None, body: None }));
    }
    shared.blocking(move |shared| shared.outbox.learn(&entries)).await
}

/// Reads everything once: the queue's file, and every document of the server; plans have the content their id was made of.
pub(crate) async fn check(shared: &Arc<Shared>) -> Result<(), StoreError> {
    shared.blocking(|shared| shared.outbox.check()).await?;
    shared.flush().await?;
    for kind in ["forecast", "problem", "outcome", "calibration"] {
        wholes(shared, kind, "", FIRST, END).await?;
    }
    for whole in wholes(shared, "plan", "", FIRST, END).await? {
        let plan: Plan = decoded(shared, "plan", &whole.id, &whole.body)?;
        let content = plan.content_id();
        if content != plan.id {
            return Err(shared.link.failed("check", &format!("plan {}", whole.id), format!("its content has the fingerprint {content}")));
        }
    }
    Ok(())
}
