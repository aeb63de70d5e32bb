//! What the program tells about itself, for Prometheus.
//!
//! Names carry the prefix `turnaround_` and base units; counters are registered without `_total`, which the encoder adds. What is not known
//! yet is absent from the page, never zero. Labels are bounded: names that come from foreign pages are folded into `other` beyond
//! [`FOREIGN_NAMES_MAX`].

use fleet::{Calibration, Forecast, Plan, Scrape, TargetId, Timestamp, WorkloadId};
use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicU64},
};

/// Distinct pairs of target and metric name that skipped samples are counted under.
const FOREIGN_NAMES_MAX: usize = 200;

/// How a cycle ended. The five are told apart in metrics, status and exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CycleOutcome {
    /// A new plan was published.
    Planned,
    /// The plan in force stays, being still the best.
    Unchanged,
    /// The search ended at its limit without a usable plan; the plan in force stays.
    TimedOut,
    /// Something broke on the way; the plan in force stays.
    Failed,
    /// The verifier refused the plan found; the plan in force stays.
    Refused,
}

impl CycleOutcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Planned, Self::Unchanged, Self::TimedOut, Self::Failed, Self::Refused];

    /// Its label.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Unchanged => "unchanged",
            Self::TimedOut => "timed_out",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

/// The two texts a metrics page comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFormat {
    /// Prometheus text exposition 0.0.4.
    Prometheus,
    /// `OpenMetrics` 1.0.0.
    OpenMetrics,
}

impl PageFormat {
    /// The format an `Accept` header prefers: Prometheus text unless `OpenMetrics` 1.0.0 is named with at least the weight of plain text.
    #[must_use]
    pub fn accepted(accept: &str) -> Self {
        let best = |wanted: fn(&str, &str) -> bool| accept.split(',').filter_map(|range| weight(range, wanted)).fold(0.0, f64::max);
        let open = best(|kind, version| kind == "application/openmetrics-text" && (version.is_empty() || version == "1.0.0"));
        let plain = best(|kind, version| kind == "text/plain" && (version.is_empty() || version == "0.0.4"));
        if open > 0.0 && open >= plain { Self::OpenMetrics } else { Self::Prometheus }
    }

    /// What to send as `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The weight of one media range of an `Accept` header, when its type and version are wanted; 1 unless said, 0 when it makes no sense.
fn weight(range: &str, wanted: fn(&str, &str) -> bool) -> Option<f64> {
    let mut parts = range.split(';').map(str::trim);
    let kind = parts.next()?.to_ascii_lowercase();
    let parameters: BTreeMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let version = parameters.get("version").map_or("", |version| version.trim_matches('"'));
    wanted(&kind, version).then(|| parameters.get("q").map_or(1.0, |q| q.parse().ok().filter(|q| (0.0..=1.0).contains(q)).unwrap_or(0.0)))
}

type Level = Gauge<f64, AtomicU64>;
/// A level that is absent until it is known.
type Known = Family<NoLabels, Level>;
type NoLabels = [(&'static str, &'static str); 0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScrapeLabels {
    target: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct SkippedLabels {
    target: String,
    metric: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TargetLabel {
    target: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkloadLabel {
    workload: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabels {
    workload: String,
    // Not `quantile`, which is kept for summaries.
    level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ReplicaLabels {
    variant: String,
    pool: String,
}

/// The metrics and the registry that shows them. Clones share both.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    registry: Registry,
    /// Held for writing while a family is replaced, for reading while a page is made: no page shows half a replacement.
    replacing: RwLock<()>,
    foreign: Mutex<BTreeSet<SkippedLabels>>,
    families: Families,
}

#[derive(Clone)]
struct Families {
    cycles: Family<OutcomeLabel, Counter>,
    solve: Histogram,
    plan_generation: Known,
    plan_made: Known,
    plan_expires: Known,
    plan_gap: Known,
    planned_replicas: Family<ReplicaLabels, Gauge>,
    demand: Family<WorkloadLabel, Level>,
    forecast: Family<LevelLabels, Level>,
    calibration_generation: Known,
    scrapes: Family<ScrapeLabels, Counter>,
    skipped: Family<SkippedLabels, Counter>,
    silent: Family<TargetLabel, Gauge>,
    scrapes_late: Counter,
    observations: Counter,
    store_errors: Counter,
    store_queue_bytes: Known,
    store_lost_points: Counter,
    worker_kills: Counter,
    label_overflows: Counter,
}

impl Default for Families {
    fn default() -> Self {
        // From a small fleet's few hundredths of a second to a watchdog of minutes.
        let solve = Histogram::new([0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0]);
        Self {
            cycles: Family::default(),
            solve,
            plan_generation: Family::default(),
            plan_made: Family::default(),
            plan_expires: Family::default(),
            plan_gap: Family::default(),
            planned_replicas: Family::default(),
            demand: Family::default(),
            forecast: Family::default(),
            calibration_generation: Family::default(),
            scrapes: Family::default(),
            skipped: Family::default(),
            silent: Family::default(),
            scrapes_late: Counter::default(),
            observations: Counter::default(),
            store_errors: Counter::default(),
            store_queue_bytes: Family::default(),
            store_lost_points: Counter::default(),
            worker_kills: Counter::default(),
            label_overflows: Counter::default(),
        }
    }
}

impl Families {
    /// The catalogue: every name with its help text. A golden test holds the names.
    fn register(&self, registry: &mut Registry) {
        registry.register("cycles", "Planning cycles ended, by how they ended", self.cycles.clone());
        registry.register("solve_seconds", "Time the search for a plan took", self.solve.clone());
        registry.register("plan_generation", "Generation of the plan in force", self.plan_generation.clone());
        registry.register("plan_timestamp_seconds", "Instant the plan in force was made for, since 1970", self.plan_made.clone());
        registry.register("plan_expiry_timestamp_seconds", "Instant the plan in force stops being valid, since 1970", self.plan_expires.clone());
        registry.register("plan_gap_ratio", "Gap between the cost of the plan in force and the bound no plan can beat", self.plan_gap.clone());
        registry.register("planned_replicas", "Replicas that hold GPUs now according to the plan in force", self.planned_replicas.clone());
        registry.register("demand_requests_per_second", "Requests that arrived in the last window", self.demand.clone());
        registry.register("forecast_requests_per_second", "Demand forecast for now, by quantile level", self.forecast.clone());
        registry.register("calibration_generation", "Generation of what was learned that is in use", self.calibration_generation.clone());
        registry.register("scrapes", "Looks at a target, by how they went", self.scrapes.clone());
        registry.register("samples_skipped", "Samples of a target's page left out, by their name there", self.skipped.clone());
        registry.register("source_silent", "1 while nothing is known of a target, else 0", self.silent.clone());
        registry.register("scrapes_late", "Looks that began late, or not at all because the one before was under way", self.scrapes_late.clone());
        registry.register("observations_kept", "Numbers read that the history took", self.observations.clone());
        registry.register("store_errors", "Operations the history refused", self.store_errors.clone());
        registry.register("store_queue_bytes", "Readings and decisions that wait for the history's server to take them", self.store_queue_bytes.clone());
        registry.register(
            "store_lost_points",
            "Points given up because the queue was full or the server refused them for good",
            self.store_lost_points.clone(),
        );
        registry.register("worker_kills", "Worker processes killed at their deadline", self.worker_kills.clone());
        registry.register("label_overflows", "Samples counted under a label of other because there were too many names", self.label_overflows.clone());
    }
}

impl Metrics {
    /// Nothing known yet but the version of the program.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let families = Families::default();
        let mut registry = Registry::with_prefix("turnaround");
        registry.register("build", "Version of the program", Info::new([("version", version.to_owned())]));
        families.register(&mut registry);
        for outcome in CycleOutcome::ALL {
            drop(families.cycles.get_or_create(&OutcomeLabel { outcome: outcome.name() }));
        }
        Self { inner: Arc::new(Inner { registry, families, ..Inner::default() }) }
    }

    /// A cycle ended.
    pub fn cycle(&self, outcome: CycleOutcome) {
        self.inner.families.cycles.get_or_create(&OutcomeLabel { outcome: outcome.name() }).inc();
    }

    /// A search took so many seconds; what is not a time is not counted.
    pub fn solved(&self, seconds: f64) {
        if seconds.is_finite() && seconds >= 0.0 {
            self.inner.families.solve.observe(seconds);
        }
    }

    /// What the plan in force says at `at`; to be told again as time passes. A variant that has no replica then counts zero as long as the
    /// plan knows it.
    pub fn plan_in_force(&self, plan: &Plan, at: Timestamp) {
        let mut replicas: BTreeMap<ReplicaLabels, i64> = BTreeMap::new();
        for window in &plan.committed.replicas {
            let labels = ReplicaLabels { variant: window.variant.to_string(), pool: window.pool.to_string() };
            *replicas.entry(labels).or_default() += i64::from(window.from <= at && at < window.until);
        }
        let families = &self.inner.families;
        self.replace(|| {
            set(&families.plan_generation, number(plan.generation));
            set(&families.plan_made, seconds(plan.as_of));
            set(&families.plan_expires, seconds(plan.valid_until));
            set(&families.plan_gap, plan.report.gap);
            families.planned_replicas.clear();
            for (labels, count) in &replicas {
                families.planned_replicas.get_or_create(labels).set(*count);
            }
        });
    }

    /// Requests/s that arrived, by workload; a workload that is not named, or not known, leaves the page.
    pub fn demand<'a>(&self, arrivals: impl IntoIterator<Item = (&'a WorkloadId, Option<f64>)>) {
        let known: Vec<_> = arrivals.into_iter().filter_map(|(workload, value)| Some((workload, value.filter(|v| v.is_finite())?))).collect();
        self.replace(|| {
            self.inner.families.demand.clear();
            for (workload, value) in known {
                self.inner.families.demand.get_or_create(&WorkloadLabel { workload: workload.to_string() }).set(value);
            }
        });
    }

    /// What the forecasts say for the step that holds `at`; one that does not reach it leaves the page.
    pub fn forecasts(&self, forecasts: &[Forecast], at: Timestamp) {
        self.replace(|| {
            self.inner.families.forecast.clear();
            for forecast in forecasts {
                for (level, value) in forecast.levels.iter().zip(forecast.row(at).unwrap_or_default()) {
                    let labels = LevelLabels { workload: forecast.workload.to_string(), level: level.to_string() };
                    self.inner.families.forecast.get_or_create(&labels).set(*value);
                }
            }
        });
    }

    /// A calibration is in use.
    pub fn calibrated(&self, calibration: &Calibration) {
        set(&self.inner.families.calibration_generation, number(calibration.generation));
    }

    /// A target was looked at.
    pub fn scraped(&self, scrape: &Scrape) {
        let families = &self.inner.families;
        let outcome = if scrape.is_ok() { "ok" } else { "failed" };
        families.scrapes.get_or_create(&ScrapeLabels { target: scrape.target.to_string(), outcome }).inc();
        for skipped in &scrape.skipped {
            let labels = self.bounded(SkippedLabels { target: scrape.target.to_string(), metric: skipped.metric.clone() });
            families.skipped.get_or_create(&labels).inc();
        }
    }

    /// Whether nothing is known of a target.
    pub fn silent(&self, target: &TargetId, silent: bool) {
        self.inner.families.silent.get_or_create(&TargetLabel { target: target.to_string() }).set(i64::from(silent));
    }

    /// The history refused an operation.
    pub fn store_failed(&self) {
        self.inner.families.store_errors.inc();
    }

    /// Looks that began late since this was last told.
    pub fn scrapes_late(&self, more: u64) {
        self.inner.families.scrapes_late.inc_by(more);
    }

    /// The history took numbers read.
    pub fn observations_kept(&self, more: u64) {
        self.inner.families.observations.inc_by(more);
    }

    /// What waits for the history's server, in bytes, and points lost since this was last told.
    pub fn store_queue(&self, bytes: u64, lost: u64) {
        set(&self.inner.families.store_queue_bytes, number(bytes));
        self.inner.families.store_lost_points.inc_by(lost);
    }

    /// A worker process was killed at its deadline.
    pub fn worker_killed(&self) {
        self.inner.families.worker_kills.inc();
    }

    /// The page.
    #[must_use]
    pub fn page(&self, format: PageFormat) -> String {
        let _whole = self.inner.replacing.read().unwrap_or_else(PoisonError::into_inner);
        let mut page = String::new();
        let written = match format {
            PageFormat::Prometheus => prometheus_text::encode(&mut page, &self.inner.registry),
            PageFormat::OpenMetrics => text::encode(&mut page, &self.inner.registry),
        };
        // Writing to a String cannot fail.
        debug_assert!(written.is_ok(), "the registry holds only names and labels that can be written");
        page
    }

    fn replace(&self, change: impl FnOnce()) {
        let _alone = self.inner.replacing.write().unwrap_or_else(PoisonError::into_inner);
        change();
    }

    /// The labels themselves while there is room for more names, else `other`.
    fn bounded(&self, labels: SkippedLabels) -> SkippedLabels {
        let mut known = self.inner.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&labels) {
            return labels;
        }
        if known.len() < FOREIGN_NAMES_MAX {
            known.insert(labels.clone());
            return labels;
        }
        self.inner.families.label_overflows.inc();
        SkippedLabels { target: labels.target, metric: "other".into() }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn set(level: &Known, value: f64) {
    level.get_or_create(&[]).set(value);
}

#[expect(clippy::cast_precision_loss, reason = "generations of a fleet's lifetime lie far below 2^52")]
fn number(count: u64) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "instants lie far below 2^52 seconds")]
fn seconds(instant: Timestamp) -> f64 {
    instant.0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use fleet::{ForecastId, SkippedSample, Span};
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    const T0: Timestamp = Timestamp(1_700_000_000);

    fn scrape(skipped: &[&str]) -> Scrape {
        let mut scrape = Scrape::failed(TargetId::new("chat-1").unwrap(), T0, "refused");
        scrape.status = fleet::ScrapeStatus::Ok;
        scrape.skipped = skipped.iter().map(|metric| SkippedSample { metric: (*metric).into(), reason: "NaN".into() }).collect();
        scrape
    }

    /// Everything told once.
    fn full() -> Metrics {
        let metrics = Metrics::new("0.1.0");
        let chat = WorkloadId::new("chat").unwrap();
        metrics.cycle(CycleOutcome::Planned);
        metrics.solved(0.2);
        metrics.store_queue(1_024, 2);
        metrics.plan_in_force(&sample::plan(7, 0), T0);
        metrics.demand([(&chat, Some(3.5))]);
        let forecast = Forecast {
            id: ForecastId::new("f").unwrap(),
            workload: chat,
            origin: T0,
            start: T0,
            step: Span::HOUR,
            levels: vec![0.5, 0.95],
            values: vec![vec![3.0, 5.25]],
            forecaster: "seasonal_naive".into(),
            calibration: 1,
        };
        metrics.forecasts(&[forecast], T0);
        metrics.calibrated(&Calibration::prior(T0));
        metrics.scraped(&scrape(&["vllm:odd \"name\"\\"]));
        metrics.scraped(&Scrape::failed(TargetId::new("chat-1").unwrap(), T0, "refused"));
        metrics.silent(&TargetId::new("chat-1").unwrap(), true);
        metrics.store_failed();
        metrics.worker_killed();
        metrics
    }

    /// Names and labels of the page's samples, in order.
    fn samples(page: &str) -> Vec<&str> {
        let mut lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        lines
    }

    /// Names once published are kept: dashboards and alerts hang on them.
    #[test]
    fn the_catalogue_of_names_is_golden() {
        let page = full().page(PageFormat::Prometheus);
        let mut types: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        types.sort_unstable();
        assert_eq!(
            types,
            [
                "turnaround_build_info gauge",
                "turnaround_calibration_generation gauge",
                "turnaround_cycles_total counter",
                "turnaround_demand_requests_per_second gauge",
                "turnaround_forecast_requests_per_second gauge",
                "turnaround_label_overflows_total counter",
                "turnaround_observations_kept_total counter",
                "turnaround_plan_expiry_timestamp_seconds gauge",
                "turnaround_plan_gap_ratio gauge",
                "turnaround_plan_generation gauge",
                "turnaround_plan_timestamp_seconds gauge",
                "turnaround_planned_replicas gauge",
                "turnaround_samples_skipped_total counter",
                "turnaround_scrapes_late_total counter",
                "turnaround_scrapes_total counter",
                "turnaround_solve_seconds histogram",
                "turnaround_source_silent gauge",
                "turnaround_store_errors_total counter",
                "turnaround_store_lost_points_total counter",
                "turnaround_store_queue_bytes gauge",
                "turnaround_worker_kills_total counter",
            ]
        );
    }

    #[test]
    fn values_are_those_told() {
        let page = full().page(PageFormat::Prometheus);
        let lines = samples(&page);
        for line in [
            "turnaround_build_info{version=\"0.1.0\"} 1",
            "turnaround_plan_generation 7.0",
            "turnaround_plan_gap_ratio 0.0125",
            "turnaround_planned_replicas{variant=\"chat-h100\",pool=\"h100\"} 1",
            "turnaround_demand_requests_per_second{workload=\"chat\"} 3.5",
            "turnaround_forecast_requests_per_second{workload=\"chat\",level=\"0.95\"} 5.25",
            "turnaround_scrapes_total{target=\"chat-1\",outcome=\"failed\"} 1",
            "turnaround_samples_skipped_total{target=\"chat-1\",metric=\"vllm:odd \\\"name\\\"\\\\\"} 1",
            "turnaround_source_silent{target=\"chat-1\"} 1",
            "turnaround_solve_seconds_bucket{le=\"0.3\"} 1",
        ] {
            assert!(lines.contains(&line), "{line} is missing from\n{page}");
        }
    }

    /// Field case 57: planned, unchanged, timed out, failed and refused are told apart, from the first page on.
    #[test]
    fn ends_of_cycles_are_told_apart() {
        let metrics = Metrics::new("0.1.0");
        metrics.cycle(CycleOutcome::TimedOut);
        metrics.cycle(CycleOutcome::TimedOut);
        metrics.cycle(CycleOutcome::Failed);
        let page = metrics.page(PageFormat::Prometheus);
        for (outcome, count) in [("planned", 0), ("unchanged", 0), ("timed_out", 2), ("failed", 1), ("refused", 0)] {
            let line = format!("turnaround_cycles_total{{outcome=\"{outcome}\"}} {count}");
            assert!(page.lines().any(|l| l == line), "{line} is missing from\n{page}");
        }
    }

    #[test]
    fn what_is_not_known_is_absent() {
        let metrics = Metrics::new("0.1.0");
        let page = metrics.page(PageFormat::Prometheus);
        for name in ["plan_generation", "plan_timestamp", "gap", "demand", "forecast", "calibration", "silent"] {
            assert!(!page.contains(name), "{name} is on\n{page}");
        }
        let metrics = full();
        let chat = WorkloadId::new("chat").unwrap();
        metrics.demand([(&chat, None)]);
        metrics.forecasts(&[], T0);
        metrics.plan_in_force(&sample::plan(8, 0), T0 + Span::HOUR);
        let page = metrics.page(PageFormat::Prometheus);
        assert!(!page.contains("demand") && !page.contains("forecast"), "{page}");
        assert!(page.contains("turnaround_planned_replicas{variant=\"chat-h100\",pool=\"h100\"} 0"), "a known variant without replicas counts zero");
    }

    #[test]
    fn names_from_foreign_pages_are_bounded() {
        let metrics = Metrics::new("0.1.0");
        let names: Vec<String> = (0..FOREIGN_NAMES_MAX + 50).map(|i| format!("name_{i}")).collect();
        metrics.scraped(&scrape(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        let page = metrics.page(PageFormat::Prometheus);
        assert_eq!(page.lines().filter(|line| line.starts_with("turnaround_samples_skipped_total{")).count(), FOREIGN_NAMES_MAX + 1);
        assert!(page.contains("metric=\"other\"} 50") && page.contains("turnaround_label_overflows_total 50"), "{page}");
    }

    #[test]
    fn accept_is_weighed() {
        use PageFormat::{OpenMetrics, Prometheus};
        for (accept, format) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("text/plain", Prometheus),
            ("application/openmetrics-text", OpenMetrics),
            ("application/openmetrics-text; version=1.0.0; q=0.8, text/plain;version=0.0.4;q=0.5", OpenMetrics),
            ("application/openmetrics-text;version=1.0.0;q=0.2,text/plain;version=0.0.4;q=0.5", Prometheus),
            ("application/openmetrics-text;version=0.0.1", Prometheus),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=NaN", Prometheus),
        ] {
            assert_eq!(PageFormat::accepted(accept), format, "{accept:?}");
        }
    }

    /// Prometheus' own tool reads the page and has nothing to say about its names.
    #[test]
    fn promtool_finds_no_fault() {
        let spawned = Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut promtool) = spawned else {
            eprintln!("skipped: promtool is not on the PATH");
            return;
        };
        promtool.stdin.take().unwrap().write_all(full().page(PageFormat::Prometheus).as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && said.trim().is_empty(), "{said}");
    }
}
