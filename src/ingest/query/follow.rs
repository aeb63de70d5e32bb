//! Live, through a Prometheus: what its targets showed since the last look.

use super::pages::{UP, scrapes, selected};
use super::{Answer, Prometheus, instance_labels, matching, selector};
use crate::{Catalogue, IngestError, Reader};
use fleet::{Scrape, Span, TargetId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Longest stretch one look asks for: after a longer silence the past is a matter of back-fill.
const WINDOW_MAX: Span = Span(300);
/// How often a look that is too large is halved by names.
const HALVINGS_MAX: u32 = 6;

/// What is read through a Prometheus.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub targets: Vec<Reader>,
    pub names: BTreeSet<String>,
    pub select: BTreeMap<String, String>,
    /// Matchers as a user writes them, braces included.
    pub matchers: Option<String>,
    pub by: Vec<String>,
}

impl Watched {
    pub fn new(targets: Vec<Reader>, names: impl IntoIterator<Item = String>, select: BTreeMap<String, String>) -> Self {
        let mut names: BTreeSet<String> = names.into_iter().collect();
        names.insert(UP.to_owned());
        Self { targets, names, select, matchers: None, by: instance_labels() }
    }
}

/// Follows targets that a Prometheus scrapes.
///
/// A look asks for the raw samples of a short window, so each scrape carries the instant at which Prometheus took it, and nothing is held over
/// from a target that went away (an instant query would show its last values for five minutes more).
#[derive(Debug)]
pub struct Follow {
    watched: Watched,
    interval: Span,
    last_look: Option<Timestamp>,
    seen: BTreeMap<TargetId, Timestamp>,
}

/// What one look gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Polled {
    /// New scrapes in order of time; a target of which nothing is known any more has a failed one.
    pub scrapes: Vec<Scrape>,
    /// What the server warned of.
    pub warnings: Vec<String>,
    /// Whether it said that part of the data is missing.
    pub partial: bool,
}

impl Follow {
    /// Follows `targets`, of which Prometheus takes a look every `interval`. `names` are the metrics that are read (all of the catalogue's
    /// that the targets may have); `select` narrows every query (`cluster="a"`).
    #[must_use]
    pub fn new(targets: Vec<Reader>, names: impl IntoIterator<Item = String>, select: BTreeMap<String, String>, interval: Span) -> Self {
        Self { watched: Watched::new(targets, names, select), interval, last_look: None, seen: BTreeMap::new() }
    }

    /// Tells instances apart by these labels instead of `job` and `instance`.
    #[must_use]
    pub fn by(mut self, labels: Vec<String>) -> Self {
        self.watched.by = labels;
        self
    }

    /// Narrows every query by matchers as a user writes them (`{job=~"vllm.*"}`).
    #[must_use]
    pub fn matching(mut self, matchers: Option<String>) -> Self {
        self.watched.matchers = matchers;
        self
    }

    /// Goes on after what is known already: scrapes up to these times are not given again.
    #[must_use]
    pub fn after(mut self, seen: BTreeMap<TargetId, Timestamp>) -> Self {
        self.seen = seen;
        self
    }

    /// Takes a look. Whatever goes wrong makes failed scrapes of all targets, whose reason names neither password nor token.
    pub async fn poll(&mut self, server: &Prometheus, catalogue: &Catalogue, at: Timestamp) -> Polled {
        let window = self.window(at);
        match self.samples(server, at, window).await {
            Ok(answer) => {
                self.last_look = Some(at);
                self.sort_out(answer, catalogue, at, window)
            }
            Err(error) => {
                let reason = error.to_string();
                let failed = self.watched.targets.iter().map(|target| Scrape::failed(target.target.clone(), at, reason.clone()));
                Polled { scrapes: failed.collect(), ..Polled::default() }
            }
        }
    }

    /// Since the last look and two intervals before it, so that a late sample is not missed.
    fn window(&self, at: Timestamp) -> Span {
        let since = self.last_look.map_or(Span(0), |last| at.since(last));
        Span((since.0 + 2 * self.interval.0).clamp(1, WINDOW_MAX.0.max(2 * self.interval.0)))
    }

    /// All samples of the window; a look that is too large is taken in parts.
    async fn samples(&self, server: &Prometheus, at: Timestamp, window: Span) -> Result<Answer, IngestError> {
        let mut parts: Vec<(Vec<&str>, u32)> = vec![(self.watched.names.iter().map(String::as_str).collect(), 0)];
        let mut whole = Answer::default();
        while let Some((names, halvings)) = parts.pop() {
            let query = format!("{}[{}s]", matching(&selector(names.iter().copied(), &self.watched.select), self.watched.matchers.as_deref()), window.0);
            match server.instant(&query, at).await {
                Ok(answer) => {
                    whole.series.extend(answer.series);
                    whole.warnings.extend(answer.warnings);
                    whole.partial |= answer.partial;
                }
                Err(error) if error.is_too_large() && names.len() > 1 && halvings < HALVINGS_MAX => {
                    let (front, back) = names.split_at(names.len() / 2);
                    parts.extend([(back.to_vec(), halvings + 1), (front.to_vec(), halvings + 1)]);
                }
                Err(error) => return Err(error),
            }
        }
        whole.warnings.sort();
        whole.warnings.dedup();
        Ok(whole)
    }

    fn sort_out(&mut self, answer: Answer, catalogue: &Catalogue, at: Timestamp, window: Span) -> Polled {
        let mut polled = Polled { scrapes: Vec::new(), warnings: answer.warnings, partial: answer.partial };
        // A stamp that lies ahead is not to be believed; the query gives none, a careless server might.
        let mut known: BTreeSet<TargetId> = BTreeSet::new();
        for scrape in scrapes(&answer.series, catalogue, &self.watched.targets, &self.watched.by).into_iter().filter(|scrape| scrape.at <= at) {
            known.insert(scrape.target.clone());
            if self.seen.get(&scrape.target).is_none_or(|seen| *seen < scrape.at) {
                self.seen.insert(scrape.target.clone(), scrape.at);
                polled.scrapes.push(scrape);
            }
        }
        for target in self.watched.targets.iter().filter(|target| !known.contains(&target.target)) {
            let selects = answer.series.iter().any(|series| selected(&target.select, &series.labels));
            let what = if selects { "no usable sample" } else { "no sample" };
            polled.scrapes.push(Scrape::failed(target.target.clone(), at, format!("Prometheus has {what} of it in the last {window}")));
        }
        polled
    }
}
