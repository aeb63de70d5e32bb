//! `turnaround doctor`: what is wrong with the set-up, why, and what to do about it.

use crate::{
    Failure, Outcome, Screen, config_file, diagnostics, discover_look, discover_look::Asking, doctor_found, look_once, screen::note, situation, tokens,
};
use config::{Config, Credential};
use fleet::{Scrape, Signal, Timestamp};
use report::{Align, Grid};
use serde::Serialize;
use std::{collections::BTreeMap, net::TcpListener, path::Path};
use store::wait;

/// Hours of demand below which forecasts are still borrowed from the day before.
const SEASON_HOURS: usize = 48;

/// Check the configuration, the store, every source and the address; say what is wrong and how to mend it
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows what needs attention; exit code 1 when something is broken, 0 otherwise.\n\nExamples:\n  turnaround doctor\n  turnaround doctor --all\n  turnaround doctor --prometheus http://prometheus:9090 --all\n  turnaround doctor --endpoint http://gpu001:8000\n  turnaround doctor --json | jq '.findings[] | select(.severity == \"error\")'"
)]
pub(crate) struct Arguments {
    /// Show what is in order too
    #[arg(long)]
    all: bool,
    /// Look only through this Prometheus, without a configuration
    #[arg(long, value_name = "URL", conflicts_with = "endpoint")]
    prometheus: Option<String>,
    /// Look only at these metrics pages, without a configuration (repeatable)
    #[arg(long, value_name = "URL")]
    endpoint: Vec<String>,
    #[command(flatten)]
    asking: Asking,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Severity {
    /// In order.
    Ok,
    /// Works; could be better.
    Info,
    /// Works, and is probably not meant.
    Warning,
    /// Broken.
    Error,
}

/// One thing looked at.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub check: String,
    pub severity: Severity,
    /// What was found.
    pub cause: String,
    /// What to do: a command or a line of configuration.
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(check: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { check: check.into(), severity: Severity::Ok, cause: cause.into(), remedy: None }
    }

    pub fn new(severity: Severity, check: impl Into<String>, cause: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), severity, cause: cause.into(), remedy: Some(remedy.into()) }
    }
}

pub(crate) fn run(arguments: &Arguments, path: &Path, screen: &Screen) -> Result<Outcome, Failure> {
    let mut findings = match (&arguments.prometheus, arguments.endpoint.as_slice()) {
        (None, []) => configured(path, screen)?,
        (Some(url), _) => prometheus(url, &arguments.asking, None),
        (None, urls) => {
            let now = daemon::Clock::system().now();
            doctor_found::pages(&discover_look::at_pages(urls, &arguments.asking, now)?, None, now)
        }
    };
    findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
    show(&findings, arguments.all, screen)?;
    let broken = findings.iter().any(|f| f.severity == Severity::Error);
    Ok(if broken { Outcome::Wrong } else { Outcome::Done })
}

/// Everything a configuration names.
fn configured(path: &Path, screen: &Screen) -> Result<Vec<Finding>, Failure> {
    let loaded = config_file::load(path)?;
    let config = &loaded.config;
    let now = situation::now();
    let mut findings = vec![Finding::ok("configuration", format!("{} is sound", path.display()))];
    for warning in &config.warnings {
        findings.push(Finding::new(Severity::Warning, format!("{}:{}", warning.file, warning.line), warning.message.clone(), warning.help.clone()));
        note(diagnostics::fault(warning, &loaded.text, screen).trim_end());
    }
    findings.extend(fleet(config));
    findings.extend(store(config, now));
    findings.extend(sources(config, now));
    findings.extend(servers(config));
    findings.extend(history(config, now));
    findings.extend(publication(config));
    findings.extend(tools());
    Ok(findings)
}

/// What a Prometheus knows. One that cannot be asked is a finding.
fn prometheus(url: &str, asking: &Asking, config: Option<&Config>) -> Vec<Finding> {
    let now = daemon::Clock::system().now();
    match discover_look::through_prometheus(url, asking, now) {
        Ok(known) => doctor_found::through_prometheus(url, &known, config, now),
        Err(failure) => {
            let shown = wire::Redacted::new(url);
            vec![Finding::new(Severity::Error, format!("prometheus {shown}"), message(&failure), format!("curl -sS {shown}/api/v1/status/buildinfo"))]
        }
    }
}

/// The Prometheus servers of a configuration, each once, however many services are read through it.
fn servers(config: &Config) -> Vec<Finding> {
    let mut asked = BTreeMap::new();
    for source in &config.sources.prometheus_apis {
        let token = match &source.page.access.credential {
            // A token that cannot be read is refused by the server, which is then told.
            Some(Credential::Bearer(secret)) => tokens::read(secret).ok(),
            _ => None,
        };
        let asking = Asking { token, ca_file: source.page.access.tls.ca.clone(), tenant: source.tenant.clone(), token_file: None };
        asked.entry((source.url.clone(), source.tenant.clone())).or_insert(asking);
    }
    asked.iter().flat_map(|((url, _), asking)| prometheus(url, asking, Some(config))).collect()
}

fn show(findings: &[Finding], all: bool, screen: &Screen) -> Result<(), Failure> {
    screen.document(&serde_json::json!({ "findings": findings }))?;
    let look = screen.look();
    let shown: Vec<&Finding> = findings.iter().filter(|f| all || f.severity >= Severity::Warning).collect();
    let mut grid = Grid::new(&[Align::Left, Align::Left, Align::Left], 2);
    let palette = look.palette;
    for finding in &shown {
        let (word, style) = match finding.severity {
            Severity::Ok => ("ok", palette.start),
            Severity::Info => ("info", palette.dim),
            Severity::Warning => ("warning", palette.stop),
            Severity::Error => ("error", palette.short),
        };
        grid.styled_row([(word.to_owned(), style), (finding.check.clone(), palette.strong), (finding.cause.clone(), palette.dim)]);
    }
    // Causes may be long; they are shown whole below their line, so that nothing is cut that someone needs.
    let indent = " ".repeat(9);
    let mut text = String::new();
    for (finding, line) in shown.iter().zip(grid.lines(usize::MAX, look.ascii)) {
        text.push_str(&line);
        text.push('\n');
        if let Some(remedy) = &finding.remedy {
            text.extend([indent.as_str(), "do: ", remedy, "\n"]);
        }
    }
    let count = |severity| findings.iter().filter(|f| f.severity == severity).count();
    let hidden = if all { String::new() } else { format!("; --all shows {} more", findings.len() - shown.len()) };
    screen.show(&text)?;
    screen.show(&format!("{} looked at: {} broken, {} doubtful{hidden}\n", findings.len(), count(Severity::Error), count(Severity::Warning)))
}

/// Prices, and GPUs nobody reports on.
fn fleet(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    for pool in &config.fleet.pools {
        findings.push(match pool.price_per_gpu_hour {
            Some(price) => Finding::ok(format!("pool {}", pool.id), format!("{} per GPU-hour", report::money(price, &config.fleet.currency))),
            None => Finding::new(
                Severity::Warning,
                format!("pool {}", pool.id),
                "it has no price, so that plans rank by priority and bills are not known",
                "add price = ... (per GPU and hour) to the pool",
            ),
        });
    }
    let reported: Vec<&fleet::GpuId> = config.targets.iter().flat_map(|t| &t.target.gpus).chain(config.running_jobs.iter().flat_map(|j| &j.gpus)).collect();
    let unknown = config.fleet.gpus.iter().filter(|g| {
        let by_nvml = config.nvml.as_ref().is_some_and(|n| n.node == g.node);
        !config.unobserved_free.contains(&g.node) && !by_nvml && !reported.contains(&&g.id)
    });
    // Pages about GPUs tell of nodes only when they are read.
    let told = !config.sources.gpu_pages.is_empty() || config.sources.prometheus_apis.iter().any(|source| source.subject == config::Subject::Gpus);
    let unknown: Vec<String> = unknown.filter(|_| !told).map(|g| g.id.to_string()).collect();
    if let Some(first) = unknown.first() {
        findings.push(Finding::new(
            Severity::Warning,
            "GPUs",
            format!("nothing reports on {} GPUs ({first} first): they count as occupied and are not planned with", unknown.len()),
            "add [[source.gpu]] for their DCGM exporter, [source.nvml] on their host, or unobserved = \"free\" to their pool",
        ));
    }
    findings
}

fn store(config: &Config, now: Timestamp) -> Vec<Finding> {
    let place = config.store.path.display().to_string();
    match situation::existing_store(config) {
        Ok(None) => vec![match unwritable(&config.store.path) {
            Some(why) => Finding::new(Severity::Error, "store", why, "name another under [store]"),
            None => Finding::new(Severity::Info, "store", format!("{place} does not exist yet"), "turnaround run or turnaround plan makes it"),
        }],
        Err(failure) => vec![Finding::new(Severity::Error, "store", message(&failure), "move the file away, or name another under [store]")],
        Ok(Some(store)) => {
            let whole = match wait(store.check()) {
                Ok(()) => Finding::ok("store", format!("{place} is whole")),
                Err(error) if config.store.influxdb.is_some() => Finding::new(
                    Severity::Error,
                    "store",
                    error.to_string(),
                    "turnaround store init   makes its buckets and tasks; or see that the server answers",
                ),
                Err(error) => Finding::new(Severity::Error, "store", error.to_string(), "stop the daemon, move the file away and start again"),
            };
            let plan = match wait(store.latest_plan()) {
                Ok(Some(plan)) if plan.valid_until < now => {
                    Finding::new(Severity::Info, "plan", format!("g{} expired at {}", plan.generation, plan.valid_until), "turnaround run keeps plans fresh")
                }
                Ok(Some(plan)) => Finding::ok("plan", format!("g{} is valid until {}", plan.generation, plan.valid_until)),
                Ok(None) => Finding::new(Severity::Info, "plan", "none was made yet", "turnaround plan"),
                Err(error) => Finding::new(Severity::Error, "plan", error.to_string(), "see the store"),
            };
            vec![whole, plan]
        }
    }
}

/// A failure in one sentence.
pub(crate) fn message(failure: &Failure) -> String {
    match failure {
        Failure::Fault { message, .. } | Failure::Usage { message, .. } | Failure::Config { message, .. } => message.clone(),
        Failure::ConfigFaults { .. } => "the configuration has faults".to_owned(),
    }
}

/// Every source: whether it answers, and what it shows.
fn sources(config: &Config, now: Timestamp) -> Vec<Finding> {
    let mut findings = secrets(config);
    let seen = look_once::look(config, now).or_else(|failure| {
        findings.push(Finding::new(Severity::Error, "sources", message(&failure), "nvidia-smi   on this host; or take the source out"));
        // A driver that is not there must not hide what the endpoints say.
        look_once::look(&Config { nvml: None, ..config.clone() }, now)
    });
    match seen {
        Ok(seen) => {
            // Where lists are read first, targets are looked at twice: the last look counts.
            let last: BTreeMap<&fleet::TargetId, &Scrape> = seen.scrapes().map(|scrape| (&scrape.target, scrape)).collect();
            findings.extend(last.into_values().map(|scrape| target(config, scrape)));
            let pages: BTreeMap<&fleet::TargetId, &Scrape> = seen.gpu_pages().map(|page| (&page.target, page)).collect();
            findings.extend(pages.into_values().map(|page| gpu_page(config, page)));
        }
        Err(failure) => findings.push(Finding::new(Severity::Error, "sources", message(&failure), "see the cause")),
    }
    let elsewhere = !config.sources.prometheus_apis.is_empty() || !config.sources.discoveries.is_empty() || !config.sources.influxdb.is_empty();
    if config.targets.is_empty() && !elsewhere {
        let (cause, remedy) = if config.traces.is_empty() {
            ("no endpoint is listed, so no demand is seen", "add [[source.prometheus]] with the url of your serving endpoints")
        } else {
            ("only recorded traffic is listed", "add [[source.prometheus]] to plan for your own demand")
        };
        findings.push(Finding::new(if config.traces.is_empty() { Severity::Warning } else { Severity::Info }, "endpoints", cause, remedy));
    }
    findings
}

/// Secrets that are not where the configuration says.
fn secrets(config: &Config) -> Vec<Finding> {
    let named = config.targets.iter().filter_map(|t| match t.access.credential.as_ref()? {
        Credential::Bearer(secret) | Credential::Basic { password: secret, .. } => Some((t, secret)),
    });
    let missing = named.filter_map(|(target, secret)| Some((target, tokens::read(secret).err()?)));
    missing.map(|(t, why)| Finding::new(Severity::Error, format!("target {}", t.target.id), why, "set it, or take it out of the source")).collect()
}

/// A page of a replica or router.
fn target(config: &Config, scrape: &Scrape) -> Finding {
    let check = format!("target {}", scrape.target);
    if let fleet::ScrapeStatus::Failed(reason) = &scrape.status {
        let url = config.targets.iter().find(|t| t.target.id == scrape.target).map(|t| t.url.as_str());
        let remedy = url.map_or_else(|| "look at it through the source that lists it".to_owned(), |url| format!("curl -sS {url} | head   on this host"));
        return Finding::new(Severity::Error, check, reason.clone(), remedy);
    }
    let missing: Vec<String> = ingest::missing_signals(scrape).into_iter().map(Signal::name).collect();
    if missing.is_empty() {
        return Finding::ok(check, format!("{} answers with {} signals", engine(scrape), scrape.samples.len()));
    }
    let cause = format!("{} answers, but lacks {}", engine(scrape), missing.join(", "));
    Finding::new(Severity::Warning, check, cause, "what is missing stays unknown; a newer engine may offer it, or map it under metrics of the source")
}

/// A page of GPUs.
fn gpu_page(config: &Config, page: &Scrape) -> Finding {
    let check = format!("GPUs of {}", page.target);
    if let fleet::ScrapeStatus::Failed(reason) = &page.status {
        return Finding::new(Severity::Error, check, reason.clone(), "look at the exporter's page; until it answers its GPUs count as occupied");
    }
    let (told, ours) = (page.devices.len(), look_once::Seen::gpus(page, config).len());
    if ours == 0 {
        let cause = format!("{} tells of {told} GPUs, none of which is part of the fleet", engine(page));
        return Finding::new(Severity::Warning, check, cause, "check the names of nodes in the pools, or name node at the source");
    }
    Finding::ok(check, format!("{} tells of {told} GPUs, {ours} of them in the fleet", engine(page)))
}

/// The engine of a page, as far as it is known.
fn engine(scrape: &fleet::Scrape) -> String {
    scrape.server.as_ref().map_or_else(|| "it".to_owned(), |s| s.version.as_ref().map_or_else(|| s.engine.clone(), |version| format!("{} {version}", s.engine)))
}

/// How much is known of each service's demand.
fn history(config: &Config, now: Timestamp) -> Vec<Finding> {
    let state = situation::existing_store(config).and_then(|store| situation::state(config, store.as_ref(), now));
    let state = match state {
        Ok(state) => state,
        Err(failure) => return vec![Finding::new(Severity::Error, "history", message(&failure), "see the cause")],
    };
    let services = config.workloads.iter().filter(|w| w.service().is_some());
    let finding = |w: &fleet::Workload| {
        let known = situation::hourly(&state, &w.id, now).known();
        let check = format!("history of {}", w.id);
        match known {
            0 => Finding::new(
                Severity::Warning,
                check,
                "no hour of demand is known, so it cannot be forecast",
                "turnaround run beside its endpoints; a day is a good start",
            ),
            n if n < SEASON_HOURS => {
                Finding::new(Severity::Info, check, format!("learning: {n} of {SEASON_HOURS} h; bands are wider meanwhile"), "leave turnaround run running")
            }
            n => Finding::ok(check, format!("{n} h known")),
        }
    };
    services.map(finding).collect()
}

fn publication(config: &Config) -> Vec<Finding> {
    let listen = config.publish.listen;
    let port = match TcpListener::bind(listen) {
        Ok(_) => Finding::ok("address", format!("{listen} is free")),
        Err(error) => Finding::new(
            Severity::Info,
            "address",
            format!("{listen}: {error}"),
            format!("curl -s http://{listen}/healthz   a daemon may run already; else choose another under [publish]"),
        ),
    };
    let file = &config.publish.plan_file;
    if let Some(missing) = missing_folder(file) {
        return vec![port, Finding::new(Severity::Error, "plan file", missing, "make the folder, or name another under [publish]")];
    }
    let held = match publish::plan_file::read(file) {
        Ok(None) => Finding::ok("plan file", format!("{} can be written", file.display())),
        Ok(Some(plan)) => Finding::ok("plan file", format!("{} holds g{}", file.display(), plan.generation)),
        Err(error) => Finding::new(Severity::Error, "plan file", error.to_string(), "move it away, or name another under [publish]"),
    };
    vec![port, held]
}

/// Why a file cannot be made, with the folders it needs: the nearest folder that is there takes nothing new.
fn unwritable(file: &Path) -> Option<String> {
    let nearest = file.ancestors().skip(1).map(|f| if f.as_os_str().is_empty() { Path::new(".") } else { f }).find(|f| f.is_dir())?;
    let closed = nearest.metadata().is_ok_and(|m| m.permissions().readonly());
    closed.then(|| format!("{} cannot be made: {} is read-only", file.display(), nearest.display()))
}

/// Why a file cannot be put where it is meant to be: its folder is not there. (The history makes its own; only the one above must exist.)
fn missing_folder(file: &Path) -> Option<String> {
    let folder = file.parent().filter(|f| !f.as_os_str().is_empty())?;
    (!folder.is_dir()).then(|| format!("{} is no folder, so {} cannot be written", folder.display(), file.display()))
}

/// Tools that help, when they are there.
fn tools() -> Option<Finding> {
    let found = std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join("promtool").is_file()));
    (!found).then(|| {
        let remedy = "install Prometheus, then: curl -s localhost:9464/metrics | promtool check metrics";
        Finding::new(Severity::Info, "promtool", "not installed; it checks our metrics page against Prometheus' own rules", remedy)
    })
}
