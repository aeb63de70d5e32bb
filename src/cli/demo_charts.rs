//! What the demo's report draws: demand against bands, maps, one day of some GPUs.

use fleet::{GpuId, HourKind, Span, Timestamp, VariantId, WorkloadId};
use report::{DayMap, GpuMap, GpuRow, MapKey, PolicyName, ServiceChart, Strip};
use sim::{Quantity, ReplicaLife, Run};
use std::collections::BTreeMap;

/// Hours of a day, for the strip on the screen.
const DAY_HOURS: usize = 24;

/// What the letters of a run's map stand for. Idle has no key: it is the background.
pub(crate) fn keys(run: &Run) -> Vec<MapKey> {
    let services: Vec<&str> = run.services.iter().map(|s| s.workload.as_str()).collect();
    let kind = |letter: char, label: &str| match letter {
        'L' => HourKind::LoadingOrRedo,
        'X' => HourKind::Failed,
        'H' => HourKind::Held,
        _ if services.contains(&label) => HourKind::UsefulNow,
        _ => HourKind::UsefulLater,
    };
    let drawn = run.map.legend.iter().filter(|(letter, _)| *letter != '.');
    drawn.map(|(letter, label)| MapKey { letter: *letter, label: label.clone(), kind: kind(*letter, label) }).collect()
}

/// A run's map from `from` on.
pub(crate) fn map(run: &Run, policy: PolicyName, from: Timestamp) -> GpuMap {
    let hours = usize::try_from(run.end.since(from).0 / Span::HOUR.0).unwrap_or(0);
    let row = |(index, gpu): (usize, &GpuId)| {
        let (node, short) = gpu.as_str().rsplit_once('/').unwrap_or(("", gpu.as_str()));
        GpuRow { node: node.to_owned(), gpu: short.to_owned(), cells: run.map.excerpt(index, from, hours).unwrap_or_default().to_owned() }
    };
    GpuMap { policy, start: from, step: Span::HOUR, rows: run.map.gpus.iter().enumerate().map(row).collect() }
}

/// The day of `at` on these GPUs under each policy: one letter an hour, whoever had most of them.
pub(crate) fn day(runs: &[(PolicyName, &Run)], gpus: &[GpuId], place: &str, at: Timestamp, keys: &[MapKey]) -> DayMap {
    let midnight = at.floor(Span::DAY);
    let weekday = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let name = usize::try_from(at.weekday()).ok().and_then(|d| weekday.get(d)).unwrap_or(&"");
    let strips: Vec<Strip> = runs.iter().map(|(policy, run)| Strip { policy: *policy, cells: strip(run, gpus, midnight), note: None }).collect();
    let seen = |key: &&MapKey| strips.iter().any(|s| s.cells.contains(key.letter));
    DayMap { title: format!("{name}, {place}"), keys: keys.iter().filter(seen).cloned().collect(), strips }
}

fn strip(run: &Run, gpus: &[GpuId], midnight: Timestamp) -> String {
    let rows: Vec<Vec<char>> = gpus
        .iter()
        .filter_map(|gpu| run.map.gpus.iter().position(|g| g == gpu))
        .filter_map(|at| run.map.excerpt(at, midnight, DAY_HOURS))
        .map(|cells| cells.chars().collect())
        .collect();
    (0..DAY_HOURS).map(|hour| most_frequent(rows.iter().map(|row| row.get(hour).copied().unwrap_or('?')))).collect()
}

fn most_frequent(letters: impl Iterator<Item = char>) -> char {
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    for letter in letters {
        *counts.entry(letter).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, n)| *n).map_or('?', |(letter, _)| letter)
}

/// Every service hour by hour: what came, what was forecast last before, and what ran could serve by what was believed then.
pub(crate) fn services(run: &Run) -> Vec<ServiceChart> {
    let hours = usize::try_from(run.end.since(run.start).0 / Span::HOUR.0).unwrap_or(0);
    run.services.iter().map(|s| service(run, &s.workload, hours)).collect()
}

fn service(run: &Run, workload: &WorkloadId, hours: usize) -> ServiceChart {
    let at = |hour: usize| run.start + Span::hours(i64::try_from(hour).unwrap_or(0));
    let came: BTreeMap<Timestamp, f64> = run.service_hours.iter().filter(|h| &h.workload == workload).map(|h| (h.start, h.arrived / 3_600.0)).collect();
    let points = run.turnaround.as_ref().map_or(&[] as &[sim::DemandPoint], |t| t.demand.as_slice());
    let band = |hour: usize| {
        let point = points.iter().find(|p| &p.workload == workload && p.start <= at(hour) && at(hour) < p.start + p.length)?;
        Some([point.quantile(0.05)?, point.quantile(0.5)?, point.quantile(0.95)?])
    };
    let lives: Vec<&ReplicaLife> = run.replicas.iter().filter(|r| r.workload.as_ref() == Some(workload)).collect();
    ServiceChart {
        workload: workload.to_string(),
        start: run.start,
        step: Span::HOUR,
        observed: (0..hours).map(|h| came.get(&at(h)).copied()).collect(),
        band: (0..hours).map(band).collect(),
        planned: (0..hours).map(|h| Some(capacity(run, workload, &lives, at(h)))).collect(),
    }
}

/// Requests/s that the replicas of an hour could serve, by what was believed of their variant at its start.
fn capacity(run: &Run, workload: &WorkloadId, lives: &[&ReplicaLife], hour: Timestamp) -> f64 {
    let end = hour + Span::HOUR;
    let part = |life: &ReplicaLife| {
        let to = life.stopped.unwrap_or(run.end).min(end);
        to.since(life.ready.max(hour)).as_hours()
    };
    lives.iter().map(|life| part(life) * believed(run, workload, &life.variant, hour)).sum()
}

fn believed(run: &Run, workload: &WorkloadId, variant: &VariantId, at: Timestamp) -> f64 {
    let Some(report) = &run.turnaround else { return 0.0 };
    let of = |l: &&sim::Learned| matches!(&l.quantity, Quantity::Capacity(w, v) if w == workload && v == variant);
    let learned = report.learning.iter().filter(of);
    let last = learned.clone().take_while(|l| l.at <= at).last().map(|l| l.learned);
    last.or_else(|| learned.clone().next().map(|l| l.prior)).unwrap_or(0.0)
}
