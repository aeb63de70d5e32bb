//! Removes what is older than its retention. Buckets of observations and roll-ups do so by themselves; this removes what a bucket without such a
//! rule still holds, and windows and decisions, of which the latest stay.

use super::flux::{self, quoted};
use super::points::SECOND;
use super::read::{END, FIRST, range, wholes};
use super::rollups;
use super::sender::Shared;
use super::settings::Bucket;
use crate::{Removed, Resolution, StoreError};
use fleet::{Plan, Span, Timestamp};
use std::{collections::BTreeSet, sync::Arc};

/// Removes what is past its retention at `now`, and answers how much that was.
pub(crate) async fn retain(shared: &Arc<Shared>, now: Timestamp) -> Result<Removed, StoreError> {
    shared.flush().await?;
    let retention = shared.link.settings.retention;
    let before = |span: Span| (now - span).0;
    rollups::sum_up(shared).await?;
    let (raw, minutes, hours) = (before(retention.observations), before(retention.minutes), before(retention.hours));
    let observations = count(shared, Bucket::Raw, "value", &["engine", "gpu"], raw).await?;
    if observations > 0 {
        rollups::keep_before(shared, Resolution::Minute, raw).await?;
    }
    if observations > 0 || count(shared, Bucket::Minute, "count", &["engine", "gpu"], minutes).await? > 0 {
        rollups::keep_before(shared, Resolution::Hour, raw.max(minutes)).await?;
    }
    let mut removed = Removed { observations, ..Removed::default() };
    remove(shared, Bucket::Raw, &["engine", "gpu"], raw, &[]).await?;
    removed.minutes = count_and_remove(shared, Bucket::Minute, "count", &["engine", "gpu"], minutes).await?;
    removed.hours = count_and_remove(shared, Bucket::Hour, "count", &["engine", "gpu"], hours).await?;
    removed.windows = count_and_remove(shared, Bucket::Decisions, "body", &["demand"], before(retention.windows)).await?;
    remove(shared, Bucket::Decisions, &["cache"], before(retention.windows), &[]).await?;
    removed.forecasts = count_and_remove(shared, Bucket::Decisions, "id", &["forecast"], before(retention.forecasts)).await?;
    decisions(shared, before(retention.decisions), &mut removed).await?;
    for (kind, limit) in [("forecast", retention.forecasts), ("plan", retention.decisions), ("problem", retention.decisions), ("outcome", retention.decisions)]
    {
        let at = before(limit).saturating_mul(SECOND);
        shared.blocking(move |shared| shared.outbox.forget(kind, at)).await?;
    }
    Ok(removed)
}

/// Plans, their problems, outcomes and calibrations; the latest plan, its problem and the latest calibration stay.
async fn decisions(shared: &Arc<Shared>, limit: i64, removed: &mut Removed) -> Result<(), StoreError> {
    let plans = shared.link.rows("plans", first_of(shared, "plan", "generation", FIRST, END)).await?;
    let calibrations = shared.link.rows("calibrations", first_of(shared, "calibration", "generation", FIRST, END)).await?;
    let latest = |rows: &[flux::Row]| {
        let dated = rows.iter().filter_map(|row| Some((row.number("_value")?, row.time("_time")?)));
        dated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, at)| at)
    };
    let (plan, calibration) = (latest(&plans), latest(&calibrations));
    let nanoseconds = limit.saturating_mul(SECOND);
    let old = |rows: &[flux::Row], latest: Option<i64>| {
        rows.iter().filter_map(|row| row.time("_time")).filter(|at| *at < nanoseconds && Some(*at) != latest).count() as u64
    };
    removed.plans = old(&plans, plan);
    removed.calibrations = old(&calibrations, calibration);
    let stay: Vec<i64> = plan.into_iter().collect();
    let problems = problems_that_stay(shared, nanoseconds, plan).await?;
    let ids = shared.link.rows("problems", first_of(shared, "problem", "id", FIRST, nanoseconds)).await?;
    let (mut kept, mut gone) = (Vec::new(), 0);
    for row in &ids {
        match (row.text("_value"), row.time("_time")) {
            (Some(id), Some(at)) if problems.contains(&id) => kept.push(at),
            _ => gone += 1,
        }
    }
    removed.problems = gone;
    remove(shared, Bucket::Decisions, &["plan"], limit, &stay).await?;
    remove(shared, Bucket::Decisions, &["problem"], limit, &kept).await?;
    remove(shared, Bucket::Decisions, &["calibration"], limit, &calibration.into_iter().collect::<Vec<_>>()).await?;
    removed.outcomes = count_and_remove(shared, Bucket::Decisions, "id", &["outcome"], limit).await?;
    Ok(())
}

/// The problems of the plans that stay, where one of them may be older than the limit. Only asked for when there is an old problem at all.
async fn problems_that_stay(shared: &Arc<Shared>, limit: i64, latest_plan: Option<i64>) -> Result<BTreeSet<String>, StoreError> {
    if count(shared, Bucket::Decisions, "id", &["problem"], limit.div_euclid(SECOND)).await? == 0 {
        return Ok(BTreeSet::new());
    }
    let mut plans = wholes(shared, "plan", "", limit, END).await?;
    if let Some(at) = latest_plan.filter(|at| *at < limit) {
        plans.extend(wholes(shared, "plan", "", at, at + 1).await?);
    }
    let problem = |body: &[u8]| serde_json::from_slice::<Plan>(body).map(|plan| plan.problem.to_string());
    plans.iter().map(|whole| problem(&whole.body).map_err(|error| shared.link.failed("read", &format!("plan {}", whole.id), error.to_string()))).collect()
}

/// One field of the first chunks of a kind.
fn first_of(shared: &Shared, kind: &str, field: &str, from: i64, to: i64) -> String {
    let bucket = quoted(&shared.link.settings.bucket(Bucket::Decisions));
    format!("from(bucket: {bucket}) |> {} |> filter(fn: (r) => r._measurement == \"{kind}\" and r._field == \"{field}\")", range(from, to))
}

/// How many points of measurements carry a field, before an instant in seconds.
async fn count(shared: &Shared, bucket: Bucket, field: &str, measurements: &[&str], limit: i64) -> Result<u64, StoreError> {
    let name = quoted(&shared.link.settings.bucket(bucket));
    let any = measurements.iter().map(|measurement| format!("r._measurement == \"{measurement}\"")).collect::<Vec<_>>().join(" or ");
    let flux = format!(
        "from(bucket: {name}) |> {} |> filter(fn: (r) => ({any}) and r._field == \"{field}\") |> count() |> group() |> sum()",
        range(FIRST, limit.saturating_mul(SECOND))
    );
    Ok(shared.link.rows("what is past its retention", flux).await?.first().and_then(|row| row.count("_value")).unwrap_or(0))
}

/// Removes what stands before an instant in seconds, save what stands at the instants (nanoseconds) that stay.
async fn remove(shared: &Shared, bucket: Bucket, measurements: &[&str], limit: i64, stay: &[i64]) -> Result<(), StoreError> {
    let end = limit.saturating_mul(SECOND);
    let mut stay: Vec<i64> = stay.iter().copied().filter(|at| *at < end).collect();
    stay.sort_unstable();
    let mut from = FIRST;
    for at in stay.into_iter().chain([end]) {
        // Both ends of what is removed are in it.
        if from < at {
            for measurement in measurements {
                shared.link.delete(bucket, from, at - 1, measurement).await?;
            }
        }
        from = at + 1;
    }
    Ok(())
}

async fn count_and_remove(shared: &Shared, bucket: Bucket, field: &str, measurements: &[&str], limit: i64) -> Result<u64, StoreError> {
    let found = count(shared, bucket, field, measurements, limit).await?;
    if found > 0 {
        remove(shared, bucket, measurements, limit, &[]).await?;
    }
    Ok(found)
}
