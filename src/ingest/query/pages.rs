//! From an answer's series to scrapes: the series of one scraped instance at one instant are a page like any other, and go through the same
//! catalogue.

use super::answer::{Labels, Series};
use crate::exposition::{Limits, Page};
use crate::{Catalogue, Reader};
use fleet::{Scrape, Timestamp};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What Prometheus itself says of an instance: 1 when it could scrape it.
pub(crate) const UP: &str = "up";

/// The labels that tell scraped instances apart: what Prometheus adds to every series it scrapes.
#[must_use]
pub fn instance_labels() -> Vec<String> {
    vec!["job".to_owned(), "instance".to_owned()]
}

/// Series of one instance.
struct Instance<'a> {
    series: Vec<&'a Series>,
    /// First and last time of any of its points, milliseconds.
    span: (i64, i64),
}

/// Turns series into the scrapes of `targets`: one for each target and instant at which its instance has points, in order of time, then of
/// target. `by` names the labels that tell instances apart.
///
/// An instance that Prometheus could not scrape (`up` is 0) gives failed scrapes. A target whose selection fits several instances at the
/// same time gives one failed scrape: counters of two processes under one name would look like restarts. Where two servers scrape the same
/// instance and a store holds both without joining them, their series differ in a label (`prometheus_replica`) that the selection must name.
#[must_use]
pub fn scrapes(series: &[Series], catalogue: &Catalogue, targets: &[Reader], by: &[String]) -> Vec<Scrape> {
    let instances = instances(series, by);
    let mut out = Vec::new();
    for target in targets {
        let mut of_target: Vec<&Instance<'_>> =
            instances.values().filter(|instance| instance.series.iter().any(|series| selected(&target.select, &series.labels))).collect();
        of_target.sort_by_key(|instance| instance.span);
        if let Some(both) = of_target.windows(2).find(|pair| pair[1].span.0 <= pair[0].span.1) {
            let at = timestamp(both[0].span.1.max(both[1].span.1));
            out.push(Scrape::failed(target.target.clone(), at, format!("its selection fits several instances ({}); name more labels in it", told(both, by))));
            continue;
        }
        out.extend(of_target.into_iter().flat_map(|instance| scrapes_of(instance, catalogue, target)));
    }
    out.sort_by(|a, b| (a.at, &a.target).cmp(&(b.at, &b.target)));
    out
}

/// Whether labels agree with a selection. `model` stands for whatever an engine calls it (`model_name`).
pub(crate) fn selected(select: &BTreeMap<String, String>, labels: &Labels) -> bool {
    select.iter().all(|(label, value)| match label.as_str() {
        "model" => labels.iter().any(|(name, is)| name.contains("model") && is == value),
        label => labels.get(label).is_some_and(|is| is == value),
    })
}

fn instances<'a>(series: &'a [Series], by: &[String]) -> BTreeMap<Vec<&'a str>, Instance<'a>> {
    let mut instances: BTreeMap<Vec<&str>, Instance<'_>> = BTreeMap::new();
    for one in series {
        let times = one.points.iter().map(|(ms, _)| *ms).chain(one.dropped.iter().copied());
        let (Some(first), Some(last)) = (times.clone().min(), times.max()) else { continue };
        let identity = by.iter().map(|label| one.labels.get(label).map_or("", String::as_str)).collect();
        let instance = instances.entry(identity).or_insert(Instance { series: Vec::new(), span: (first, last) });
        instance.span = (instance.span.0.min(first), instance.span.1.max(last));
        instance.series.push(one);
    }
    instances
}

/// Which instances, for a message.
fn told(instances: &[&Instance<'_>], by: &[String]) -> String {
    let one = |instance: &&Instance<'_>| {
        let labels = instance.series.first().map(|series| &series.labels);
        by.iter().filter_map(|label| Some(format!("{label}={}", labels?.get(label)?))).collect::<Vec<_>>().join(" ")
    };
    instances.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn scrapes_of(instance: &Instance<'_>, catalogue: &Catalogue, target: &Reader) -> Vec<Scrape> {
    let times: BTreeSet<i64> =
        instance.series.iter().flat_map(|series| series.points.iter().map(|(ms, _)| *ms).chain(series.dropped.iter().copied())).collect();
    let mut out: Vec<Scrape> = Vec::with_capacity(times.len());
    for ms in times {
        let at = timestamp(ms);
        let down = instance.series.iter().any(|series| series.name() == UP && series.at(ms) == Some(0.0));
        let scrape = if down {
            Scrape::failed(target.target.clone(), at, "Prometheus could not scrape it (up is 0)")
        } else {
            catalogue.read(&target.how(), at, &page(instance, ms))
        };
        // Two looks within one second count as the later one.
        match out.last_mut() {
            Some(last) if last.at == at => *last = scrape,
            _ => out.push(scrape),
        }
    }
    out
}

/// What one instance showed at one instant, as a page. Types are not known here: the catalogue's kinds stand.
fn page<'a>(instance: &Instance<'a>, ms: i64) -> Page<'a> {
    let limits = Limits::default();
    let mut page = Page::default();
    for series in instance.series.iter().copied().filter(|series| series.name() != UP && !series.name().is_empty()) {
        if let Some(value) = series.at(ms) {
            let labels = series.labels.iter().filter(|(label, _)| *label != "__name__");
            page.push(series.name(), labels.map(|(label, value)| (label.as_str(), Cow::Borrowed(value.as_str()))), value, &limits);
        } else if series.dropped.binary_search(&ms).is_ok() {
            page.skip(series.name(), "its value is no finite number", &limits);
        }
    }
    page
}

fn timestamp(ms: i64) -> Timestamp {
    Timestamp(ms.div_euclid(1000))
}
