//! What was found as a configuration: a line a pool, a service, a source, each saying where it was seen.

use crate::discover::{Discovered, Labels, counted};
use crate::discover_nodes::ranges;
use crate::discover_services::{Service, Variant};
use fleet::{SpeedProfile, Timestamp};
use std::fmt::Write;

/// Lines above which brackets no longer stand on lines of their own.
const LINES_MAX: usize = 40;
/// What a service promises unless it says otherwise, milliseconds: to its first token, and from one to the next.
const TTFT_MS: f64 = 2_000.0;
const TPOT_MS: f64 = 100.0;

/// Where it was found, and how that is asked again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// Address of a Prometheus; without it the pages were asked themselves.
    pub prometheus: Option<String>,
    /// Keys beside each address: `token_file`, `ca_file`, `tenant`.
    pub access: Vec<(&'static str, String)>,
}

/// A list of tables, each on a line.
struct List<'a> {
    key: &'a str,
    /// A table, and what is said of it.
    rows: Vec<(String, String)>,
    /// What is said of all.
    said: String,
}

/// The text of a configuration that runs as it is.
pub(crate) fn render(found: &Discovered, place: &Place, at: Timestamp) -> String {
    let open = text(found, place, at, false);
    if open.lines().count() <= LINES_MAX { open } else { text(found, place, at, true) }
}

fn text(found: &Discovered, place: &Place, at: Timestamp, tight: bool) -> String {
    let replicas: usize = found.services.iter().map(Service::replicas).sum();
    let through = place.prometheus.as_ref().map_or_else(|| "on their own pages".to_owned(), |url| format!("through {url}"));
    let mut out = format!(
        "# Found {through} at {at}: {}, {} of {}. It runs as it is; `turnaround schema config` lists every key.\n",
        counted(found.gpus(), "GPU"),
        counted(replicas, "replica"),
        counted(found.services.len(), "service")
    );
    out.push_str("zone = \"UTC\"  # of your users, for hours of the day\n");
    out.push_str(
        "# Prices are not known: add price = 2.60 (money per GPU and hour) to a pool, and currency = \"EUR\" here. Until then priority and deadline rank.\n",
    );
    for list in [kinds(found), pools(found), models(found), variants(found), services(found)] {
        list.write(&mut out, tight);
    }
    if !found.held_otherwise.is_empty() {
        let held: Vec<String> = found.held_otherwise.iter().take(5).map(|(pod, gpus)| format!("{pod} ({})", counted(*gpus, "GPU"))).collect();
        let more = found.held_otherwise.len().saturating_sub(held.len());
        let more = if more > 0 { format!(" and {more} others") } else { String::new() };
        let _ = writeln!(out, "# Held by what no serving page tells of, so occupied: {}{more}. List them as [[job]] to plan with them.", held.join(", "));
    }
    out.push_str("[source]\n");
    for list in sources(found, place) {
        list.write(&mut out, tight);
    }
    out
}

impl List<'_> {
    fn write(&self, out: &mut String, tight: bool) {
        let Some(last) = self.rows.len().checked_sub(1) else { return };
        let Self { key, said, .. } = self;
        let tight = tight || last == 0;
        let said = if said.is_empty() { String::new() } else { format!("  # {said}") };
        if !tight {
            let _ = writeln!(out, "{key} = [{said}");
        }
        for (at, (table, note)) in self.rows.iter().enumerate() {
            let before = if tight && at == 0 { format!("{key} = [") } else { "  ".to_owned() };
            let after = if tight && at == last { "]" } else { "," };
            let note = if note.is_empty() { String::new() } else { format!("  # {note}") };
            let _ = writeln!(out, "{before}{{ {table} }}{after}{note}");
        }
        if !tight {
            out.push_str("]\n");
        }
    }
}

fn kinds(found: &Discovered) -> List<'static> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for pool in &found.pools {
        let Some(memory) = pool.memory else { continue };
        let row = format!("name = {}, memory = \"{}MiB\"", quoted(&pool.kind), memory.0 >> 20);
        if !rows.iter().any(|(other, _)| other.starts_with(&format!("name = {},", quoted(&pool.kind)))) {
            rows.push((row, "no preset; memory as its exporter tells it".into()));
        }
    }
    List { key: "gpu_kind", rows, said: String::new() }
}

fn pools(found: &Discovered) -> List<'static> {
    let exporters: Vec<&str> = found.gpu_pages.iter().map(|pages| pages.engine.as_str()).collect();
    let row = |pool: &crate::discover_gpus::Pool| {
        let ranges = ranges(&pool.nodes);
        let nodes = match ranges.as_slice() {
            [only] => quoted(only),
            several => format!("[{}]", several.iter().map(|range| quoted(range)).collect::<Vec<_>>().join(", ")),
        };
        let name = pool.name.as_ref().map(|name| format!("name = {}, ", quoted(name))).unwrap_or_default();
        let seen = if pool.assumed { "ASSUMED: no page tells of GPUs".to_owned() } else { format!("seen by {}", exporters.join(", ")) };
        let table = format!("{name}nodes = {nodes}, kind = {}, gpus_per_node = {}", quoted(&pool.kind), pool.gpus_per_node);
        (table, format!("{}, {seen}", counted(pool.nodes.len() * pool.gpus_per_node as usize, "GPU")))
    };
    List { key: "pool", rows: found.pools.iter().map(row).collect(), said: "GPUs that nothing reports on count as occupied".into() }
}

/// The model of a service as the configuration calls it.
fn model(service: &Service) -> String {
    if service.model.is_empty() { service.name.clone() } else { service.model.clone() }
}

/// Models as one line: they say nothing but their names.
fn models(found: &Discovered) -> List<'static> {
    let names: Vec<String> = found.services.iter().map(|service| quoted(&model(service))).collect();
    let rows =
        if names.is_empty() { Vec::new() } else { vec![(names.iter().map(|name| format!("name = {name}")).collect::<Vec<_>>().join(" }, { "), String::new())] };
    List { key: "model", rows, said: String::new() }
}

fn variant_name(service: &Service, variant: &Variant) -> String {
    format!("{}-x{}-{}", service.name, variant.gpus, variant.kind.to_lowercase())
}

/// Step times of a variant, milliseconds: alpha, beta, gamma, delta.
fn step_times(service: &Service, variant: &Variant) -> Option<([f64; 4], config::Prior)> {
    let prior = config::prior(&service.model, &variant.kind, variant.gpus)?;
    match prior.speed {
        SpeedProfile::Linear { alpha_ms, beta_ms, gamma_ms, delta_ms, .. } => Some(([alpha_ms, beta_ms, gamma_ms, delta_ms], prior)),
        SpeedProfile::RequestsPerS(_) => None,
    }
}

fn variants(found: &Discovered) -> List<'static> {
    let row = |service: &Service, variant: &Variant| {
        let ([alpha, beta, gamma, delta], prior) = step_times(service, variant)?;
        let table = format!(
            "name = {}, model = {}, kind = {}, gpus = {}, cold_start = \"{}\", alpha = \"{}ms\", beta = \"{}ms\", gamma = \"{}ms\", delta = \"{}ms\"",
            quoted(&variant_name(service, variant)),
            quoted(&model(service)),
            quoted(&variant.kind),
            variant.gpus,
            prior.cold_start,
            figure(alpha),
            figure(beta),
            figure(gamma),
            figure(delta)
        );
        let gpus = if variant.assumed { "; its GPUs are ASSUMED" } else { "" };
        let of = if prior.measured { "prior, as" } else { "prior, scaled from" };
        Some((table, format!("{of} {}{gpus}", prior.from)))
    };
    let rows = found.services.iter().flat_map(|service| service.variants.iter().filter_map(move |variant| row(service, variant)));
    List { key: "variant", rows: rows.collect(), said: "speeds are priors until they are learned".into() }
}

fn services(found: &Discovered) -> List<'static> {
    let row = |service: &Service| {
        let names: Vec<String> = service.variants.iter().map(|variant| quoted(&variant_name(service, variant))).collect();
        let tokens = service.tokens.map(|(input, output)| format!(", tokens_in = {input}, tokens_out = {output}")).unwrap_or_default();
        let table = format!("name = {}, variants = [{}]{tokens}{}", quoted(&service.name), names.join(", "), promises(service));
        let lacks = if service.missing.is_empty() { String::new() } else { format!("; {} signals missing", service.missing.len()) };
        (table, format!("{} of {}, seen by {}{lacks}", counted(service.replicas(), "replica"), model(service), service.engine()))
    };
    List { key: "service", rows: found.services.iter().map(row).collect(), said: "ttft = \"2s\", tpot = \"100ms\", target = 0.99 unless written".into() }
}

/// Promises that the priors can keep, where those of every service are too much for them.
fn promises(service: &Service) -> String {
    let input = service.tokens.map_or(1_000.0, |(input, _)| input);
    let slowest = service
        .variants
        .iter()
        .filter_map(|variant| step_times(service, variant))
        .map(|([alpha, beta, gamma, delta], _)| (gamma + delta * input, alpha + beta));
    let (prefill, step) = slowest.fold((0.0, 0.0), |(a, b): (f64, f64), (c, d)| (a.max(c), b.max(d)));
    let mut out = String::new();
    if 2.0 * prefill > TTFT_MS {
        let _ = write!(out, ", ttft = \"{:.0}s\"", (3.0 * prefill / 1_000.0).ceil());
    }
    if 1.5 * step > TPOT_MS {
        let _ = write!(out, ", tpot = \"{:.0}ms\"", (2.0 * step).ceil());
    }
    out
}

fn sources(found: &Discovered, place: &Place) -> Vec<List<'static>> {
    let access: Vec<String> = place.access.iter().map(|(key, value)| format!(", {key} = {}", quoted(value))).collect();
    let access = access.concat();
    match &place.prometheus {
        Some(url) => vec![through_prometheus(found, url, &access)],
        None => on_pages(found, &access),
    }
}

fn through_prometheus(found: &Discovered, url: &str, access: &str) -> List<'static> {
    let url = quoted(url);
    let mut rows = Vec::new();
    for service in &found.services {
        let alone = service.variants.len() == 1;
        for variant in &service.variants {
            let (which, instances) =
                if alone { (String::new(), None) } else { (format!(", variant = {}", quoted(&variant_name(service, variant))), Some(&variant.instances)) };
            let selector = matchers(&service.select, instances);
            rows.push((format!("url = {url}, service = {}{which}{selector}{access}", quoted(&service.name)), String::new()));
        }
    }
    for router in &found.routers {
        let table = format!("url = {url}, service = {}, role = \"router\"{}{access}", quoted(&router.service), matchers(&router.select, None));
        rows.push((table, format!("{}: shows demand when no replica runs", router.engine)));
    }
    for pages in &found.gpu_pages {
        // Two sources of GPUs at one address need names of their own.
        let own = format!("gpus {}", pages.select.get("job").unwrap_or(&pages.engine));
        let name = if found.gpu_pages.len() > 1 { format!(", name = {}", quoted(&own)) } else { String::new() };
        rows.push((
            format!("url = {url}{name}{}{access}", matchers(&pages.select, None)),
            format!("GPUs: {} of {}", counted(pages.pages, "page"), pages.engine),
        ));
    }
    List { key: "prometheus_api", rows, said: String::new() }
}

fn on_pages(found: &Discovered, access: &str) -> Vec<List<'static>> {
    let mut pages = Vec::new();
    for service in &found.services {
        // Only a page of several models has to be told which.
        let select = if service.shared { format!(", select = {{ model = {} }}", quoted(&service.model)) } else { String::new() };
        for variant in &service.variants {
            let which = if service.variants.len() == 1 { String::new() } else { format!(", variant = {}", quoted(&variant_name(service, variant))) };
            let one = |url: &String| (format!("url = {}, service = {}{which}{select}{access}", quoted(url), quoted(&service.name)), String::new());
            pages.extend(variant.urls.iter().map(one));
        }
    }
    for router in &found.routers {
        if let Some(url) = &router.url {
            pages.push((format!("url = {}, service = {}, role = \"router\"{access}", quoted(url), quoted(&router.service)), router.engine.clone()));
        }
    }
    let gpus = found.gpu_pages.iter().flat_map(|pages| pages.urls.iter().map(|url| (format!("url = {}{access}", quoted(url)), pages.engine.clone())));
    vec![List { key: "prometheus", rows: pages, said: String::new() }, List { key: "gpu", rows: gpus.collect(), said: String::new() }]
}

/// The key of a source that selects by labels, and by instances where a service runs on several kinds of GPUs.
fn matchers(select: &Labels, instances: Option<&Vec<String>>) -> String {
    selector(select, instances).map(|selector| format!(", match = {}", quoted(&selector))).unwrap_or_default()
}

/// Labels and instances as matchers of `PromQL`; `None` when there are none.
pub(crate) fn selector(select: &Labels, instances: Option<&Vec<String>>) -> Option<String> {
    let mut parts: Vec<String> = select.iter().map(|(label, value)| format!("{label}={}", escaped(value))).collect();
    if let Some(instances) = instances {
        let any: Vec<String> = instances.iter().map(|instance| literal(instance)).collect();
        parts.push(format!("instance=~{}", escaped(&any.join("|"))));
    }
    (!parts.is_empty()).then(|| format!("{{{}}}", parts.join(",")))
}

/// A text as a regular expression that matches nothing else.
fn literal(text: &str) -> String {
    text.chars().flat_map(|c| (!(c.is_alphanumeric() || matches!(c, '_' | '-' | ':'))).then_some('\\').into_iter().chain([c])).collect()
}

/// A text in double quotes, for `PromQL`.
fn escaped(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A text as a string of TOML: as it stands in single quotes where double ones would need escapes.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |c: char| !c.is_control();
    if text.chars().all(|c| plain(c) && c != '"' && c != '\\') {
        format!("\"{text}\"")
    } else if text.chars().all(|c| plain(c) && c != '\'') {
        format!("'{text}'")
    } else {
        let escape = |c: char| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
            c => c.to_string(),
        };
        format!("\"{}\"", text.chars().map(escape).collect::<String>())
    }
}

/// A number with four decimals at most.
fn figure(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
