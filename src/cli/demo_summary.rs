//! From three runs to what the screen and the report show.

use crate::{Failure, demo_charts, demo_decision};
use fleet::Timestamp;
use report::{DemoSummary, ForecastScore, Learned, PeriodSummary, PolicyName, PolicySummary, Report, WorstMiss};
use sim::{PolicyKind, Quantity, Run, Scenario};
use std::collections::BTreeMap;

/// The three runs of one scenario.
pub(crate) struct Runs {
    pub static_peak: Run,
    pub next_free_gpu: Run,
    pub turnaround: Run,
}

impl Runs {
    fn all(&self) -> [(PolicyName, &Run); 3] {
        [(PolicyName::StaticPeak, &self.static_peak), (PolicyName::NextFreeGpu, &self.next_free_gpu), (PolicyName::Turnaround, &self.turnaround)]
    }
}

/// Everything the report shows; its summary is what the screen shows.
pub(crate) fn report(runs: &Runs, scenario: &Scenario) -> Result<Report, Failure> {
    let ours = &runs.turnaround;
    let keys = demo_charts::keys(ours);
    let mut summary = summary(runs, scenario)?;
    if let Some(decision) = demo_decision::most_telling(ours) {
        let place = report::gpu_names(&decision.gpus, &decision.problem);
        summary.day = Some(demo_charts::day(&runs.all(), &decision.gpus, &place, decision.at, &keys));
        summary.decision = demo_decision::summary(decision, ours);
    }
    Ok(Report {
        summary,
        services: demo_charts::services(ours),
        maps: runs.all().into_iter().map(|(name, run)| demo_charts::map(run, name, ours.scored_from)).collect(),
        keys,
    })
}

fn summary(runs: &Runs, scenario: &Scenario) -> Result<DemoSummary, Failure> {
    let ours = &runs.turnaround;
    debug_assert_eq!(ours.policy, PolicyKind::Turnaround, "runs in their own places");
    let told = ours.turnaround.as_ref().ok_or_else(|| Failure::new("the loop has nothing to tell of its run"))?;
    let setup = &scenario.setup;
    Ok(DemoSummary {
        schema: DemoSummary::SCHEMA.to_owned(),
        seed: scenario.seed,
        traffic: "synthetic traffic".to_owned(),
        currency: setup.fleet.currency.clone(),
        gpus: setup.fleet.gpus.len(),
        services: setup.workloads.iter().filter(|w| w.service().is_some()).count(),
        jobs: setup.workloads.iter().filter(|w| w.job().is_some()).count(),
        hours_simulated: ours.hours_simulated,
        cycles: told.cycles,
        plans_published: told.plans_published,
        plans_refused: told.plans_refused,
        calibration_generation: told.calibration_generation,
        period: period(ours),
        policies: runs.all().into_iter().map(|(name, run)| (name, policy(run))).collect::<BTreeMap<_, _>>(),
        day: None,
        decision: None,
        worst_miss: told.worst_miss.as_ref().map(worst_miss),
        learned: learned(&told.learned),
        forecast: ForecastScore { wql: told.forecast.map(|f| f.wql), seasonal_naive_wql: told.forecast.map(|f| f.seasonal_naive_wql) },
    })
}

fn policy(run: &Run) -> PolicySummary {
    let mut summary = PolicySummary::new(&run.ledger, run.attainment, run.jobs_late, run.jobs_total);
    summary.cost_per_useful_gpu_hour = run.cost_per_useful_gpu_hour;
    summary
}

fn period(run: &Run) -> PeriodSummary {
    let day = |at: Timestamp| at.since(run.start).0 / 86_400;
    let (first, last) = (day(run.scored_from) + 1, day(run.end));
    let title = match (first, last) {
        (8, 14) => "Week 2".to_owned(),
        (a, b) if a == b => format!("Day {a}"),
        (a, b) => format!("Days {a} to {b}"),
    };
    PeriodSummary { title, start: run.scored_from, end: run.end }
}

fn worst_miss(miss: &sim::Miss) -> WorstMiss {
    let weekday = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let day = usize::try_from(miss.hour.weekday()).ok().and_then(|d| weekday.get(d)).unwrap_or(&"");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of requests")]
    let requests_late = miss.late.max(0.0).round() as u64;
    WorstMiss {
        what: format!("{} on {day} at {}", miss.workload, miss.hour.clock()),
        workload: miss.workload.to_string(),
        at: miss.hour,
        planned_per_s: miss.p95,
        came_per_s: miss.came_per_s,
        requests_late,
    }
}

/// The figures learned, those that were farthest off at first before the others.
fn learned(figures: &[sim::Learned]) -> Vec<Learned> {
    let mut figures: Vec<&sim::Learned> = figures.iter().filter(|l| l.evidence > 0 && l.truth > 0.0).collect();
    let off = |l: &sim::Learned| ((l.prior / l.truth).ln()).abs();
    figures.sort_by(|a, b| off(b).total_cmp(&off(a)).then_with(|| a.quantity.cmp(&b.quantity)));
    let figure = |l: &&sim::Learned| {
        let (what, unit, scale) = match &l.quantity {
            Quantity::Capacity(workload, variant) => (format!("{workload} on {variant}"), "req/s a replica", 1.0),
            Quantity::ColdStart(variant) => (format!("cold start of {variant}"), "min", 1.0 / 60.0),
        };
        Learned { what, unit: unit.to_owned(), prior: l.prior * scale, learned: l.learned * scale, truth: Some(l.truth * scale), evidence: l.evidence }
    };
    figures.iter().map(figure).collect()
}
