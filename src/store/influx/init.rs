//! What a server needs before points can go there: buckets, how long they keep their points, and the tasks that sum them up. Doing it again
//! changes nothing.

use super::flux::quoted;
use super::link::Link;
use super::settings::Bucket;
use crate::StoreError;
use fleet::Span;
use influxdb2::api::task::{CreateTaskRequest, ListTasksRequest};
use influxdb2::api::{buckets::ListBucketsRequest, organization::ListOrganizationRequest};
use influxdb2::models::{PostBucketRequest, RetentionRule, TaskStatusType, retention_rule};
use std::collections::BTreeMap;
use wire::Method;

/// What was done to one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InitStep {
    /// It was not there.
    Created,
    /// It was there, other than it should be.
    Changed,
    /// It was there as it should be.
    Kept,
}

/// What setting a server up did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreInit {
    /// Version of the server, as it says.
    pub version: Option<String>,
    /// Buckets by name.
    pub buckets: Vec<(String, InitStep)>,
    /// Tasks by name.
    pub tasks: Vec<(String, InitStep)>,
}

/// Sets the server up.
pub(crate) async fn init(link: &Link) -> Result<StoreInit, StoreError> {
    let health = link.admin("its health", |client| async move { client.health().await }).await?;
    let org = organisation(link).await?;
    let mut done = StoreInit { version: health.version, ..StoreInit::default() };
    for bucket in Bucket::ALL {
        done.buckets.push((link.settings.bucket(bucket), self::bucket(link, &org, bucket).await?));
    }
    for (bucket, flux) in [(Bucket::Minute, task(link, Bucket::Minute, "10m", "1m")), (Bucket::Hour, task(link, Bucket::Hour, "1h", "1h"))] {
        let name = task_name(link, bucket);
        let step = self::schedule(link, &org, &name, flux).await?;
        done.tasks.push((name, step));
    }
    Ok(done)
}

async fn organisation(link: &Link) -> Result<String, StoreError> {
    let name = link.settings.org.clone();
    let request = ListOrganizationRequest { org: Some(name.clone()), ..ListOrganizationRequest::new() };
    let found = link.admin(&format!("organisation {name}"), |client| async move { client.list_organizations(request).await }).await?;
    let id = found.orgs.into_iter().find(|org| org.name == name).and_then(|org| org.id);
    id.ok_or_else(|| link.failed("find", &format!("organisation {name}"), "there is none of that name, or the token may not see it".into()))
}

/// The id of a bucket and how long it keeps its points; nothing when it is not there.
async fn find(link: &Link, bucket: Bucket) -> Result<Option<(String, Option<Span>)>, StoreError> {
    let name = link.settings.bucket(bucket);
    let request = ListBucketsRequest { name: Some(name.clone()), org: Some(link.settings.org.clone()), ..ListBucketsRequest::default() };
    let found = link.admin(&format!("bucket {name}"), |client| async move { client.list_buckets(Some(request)).await }).await;
    let found = match found {
        Err(StoreError::Server { detail, .. }) if detail.starts_with("HTTP 404") => return Ok(None),
        found => found?.buckets,
    };
    let bucket = found.into_iter().find(|bucket| bucket.name == name);
    let span = |rules: &[RetentionRule]| rules.first().map(|rule| Span(i64::from(rule.every_seconds))).filter(|span| span.0 > 0);
    Ok(bucket.and_then(|bucket| Some((bucket.id?, span(&bucket.retention_rules)))))
}

/// How long the buckets keep their points; those that keep them for ever are left out.
pub(crate) async fn retentions(link: &Link) -> Result<BTreeMap<Bucket, Span>, StoreError> {
    let mut spans = BTreeMap::new();
    for bucket in Bucket::ALL {
        if let Some((_, Some(span))) = find(link, bucket).await? {
            spans.insert(bucket, span);
        }
    }
    Ok(spans)
}

/// How long a bucket should keep its points. Decisions are removed by [`retain`](super::retain), since the latest of them stay for ever.
fn wanted(link: &Link, bucket: Bucket) -> Option<i32> {
    let retention = &link.settings.retention;
    let span = match bucket {
        Bucket::Raw => retention.observations,
        Bucket::Minute => retention.minutes,
        Bucket::Hour => retention.hours,
        Bucket::Decisions => return None,
    };
    // Longer than the type of the rule holds (68 years) is for ever.
    i32::try_from(span.0).ok()
}

async fn bucket(link: &Link, org: &str, bucket: Bucket) -> Result<InitStep, StoreError> {
    let (name, seconds) = (link.settings.bucket(bucket), wanted(link, bucket));
    let Some((id, span)) = find(link, bucket).await? else {
        let mut request = PostBucketRequest::new(org.to_owned(), name.clone());
        request.description = Some("Written by turnaround".to_owned());
        request.retention_rules = seconds.map(|seconds| RetentionRule::new(retention_rule::Type::Expire, seconds)).into_iter().collect();
        link.admin(&format!("bucket {name}"), |client| async move { client.create_bucket(Some(request)).await }).await?;
        return Ok(InitStep::Created);
    };
    if span == seconds.map(|seconds| Span(i64::from(seconds))) {
        return Ok(InitStep::Kept);
    }
    let rules = serde_json::json!({ "retentionRules": [{ "type": "expire", "everySeconds": seconds.unwrap_or(0) }] });
    let header = ("content-type", "application/json");
    link.ask(Method::PATCH, &format!("buckets/{id}"), &[], header, rules.to_string().as_bytes(), &format!("bucket {name}")).await?;
    Ok(InitStep::Changed)
}

fn task_name(link: &Link, bucket: Bucket) -> String {
    format!("turnaround {}", link.settings.bucket(bucket))
}

/// A task that sums up what came in the last hours. What comes later than that is summed up by [`retain`](super::retain).
fn task(link: &Link, bucket: Bucket, every: &str, window: &str) -> String {
    format!(
        "import \"date\"\n\noption task = {{name: {}, every: {every}, offset: 1m}}\n\n{}",
        quoted(&task_name(link, bucket)),
        summing_up(link, bucket, window, "date.truncate(t: date.sub(d: 3h, from: now()), unit: 1h)", &format!("date.truncate(t: now(), unit: {window})"))
    )
}

/// Sums raw observations up into a bucket, from one bound of its windows to another. All five numbers are floats.
pub(crate) fn summing_up(link: &Link, bucket: Bucket, window: &str, start: &str, stop: &str) -> String {
    let (raw, to) = (quoted(&link.settings.bucket(Bucket::Raw)), quoted(&link.settings.bucket(bucket)));
    let points = format!("points = from(bucket: {raw})\n    |> range(start: {start}, stop: {stop})\n    |> filter(fn: (r) => r._field == \"value\")\n");
    let one = |name: &&str| {
        format!(
            "\npoints\n    |> aggregateWindow(every: {window}, fn: {name}, createEmpty: false, timeSrc: \"_start\")\n    |> toFloat()\n    \
             |> set(key: \"_field\", value: \"{name}\")\n    |> to(bucket: {to})\n    |> limit(n: 1)\n    |> yield(name: \"{name}\")\n"
        )
    };
    std::iter::once(points).chain(super::rollups::FIELDS.iter().map(one)).collect()
}

async fn schedule(link: &Link, org: &str, name: &str, flux: String) -> Result<InitStep, StoreError> {
    let object = format!("task {name}");
    let request = ListTasksRequest { name: Some(name.to_owned()), org_id: Some(org.to_owned()), ..ListTasksRequest::default() };
    let found = link.admin(&object, |client| async move { client.list_tasks(request).await }).await?.tasks;
    let same = |task: &influxdb2::models::Task| task.flux.trim() == flux.trim() && task.status == Some(TaskStatusType::Active);
    if found.iter().any(|task| task.name == name && same(task)) {
        return Ok(InitStep::Kept);
    }
    let old: Vec<String> = found.into_iter().filter(|task| task.name == name).map(|task| task.id).collect();
    let request = CreateTaskRequest {
        description: Some("Written by turnaround".to_owned()),
        org_id: Some(org.to_owned()),
        status: Some(TaskStatusType::Active),
        ..CreateTaskRequest::new(flux)
    };
    link.admin(&object, |client| async move { client.create_task(request).await }).await?;
    for id in &old {
        let id = id.clone();
        link.admin(&object, |client| async move { client.delete_task(&id).await }).await?;
    }
    Ok(if old.is_empty() { InitStep::Created } else { InitStep::Changed })
}
