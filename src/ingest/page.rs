//! A page as lines, whatever brought it: the text of an endpoint or the answer of a Prometheus.

use crate::exposition::Limits;
use fleet::SkippedSample;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// What a TYPE line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Only grows.
    Counter,
    /// A level.
    Gauge,
    /// Cumulative buckets.
    Histogram,
    /// Quantiles.
    Summary,
    /// Anything else: `untyped`, `unknown`, `info`, `stateset`.
    Other,
}

/// A label's name and value.
pub type Label<'a> = (&'a str, Cow<'a, str>);

/// One sample: a finite value of a named series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line<'p> {
    /// Name as written, suffixes included.
    pub name: &'p str,
    /// Labels in order of name.
    pub labels: &'p [Label<'p>],
    /// Its value: finite.
    pub value: f64,
}

impl<'p> Line<'p> {
    /// Value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'p str> {
        self.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
    }
}

/// A sample as it is kept: its labels lie in the page's one list, since a list each would cost more than all the rest of reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) labels: (usize, usize),
    pub(crate) value: f64,
}

/// A page as read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page<'a> {
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) labels: Vec<Label<'a>>,
    /// What TYPE lines say, by the name they use.
    pub types: BTreeMap<&'a str, Family>,
    /// Lines left out, at most `skipped_max` of them.
    pub skipped: Vec<SkippedSample>,
    /// Lines left out beyond those.
    pub skipped_more: usize,
    /// Names of which at least one sample was left out: a sum over such a family would be too small.
    pub incomplete: BTreeSet<&'a str>,
}

impl<'a> Page<'a> {
    /// Samples in the page's order.
    #[must_use]
    pub fn lines(&self) -> impl ExactSizeIterator<Item = Line<'_>> {
        self.entries.iter().map(|entry| Line { name: entry.name, labels: &self.labels[entry.labels.0..entry.labels.1], value: entry.value })
    }

    /// Samples on the page.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a sample, for transports that are no text. One that is not finite is left out and named, as [`parse`](crate::exposition::parse)
    /// would.
    pub fn push(&mut self, name: &'a str, labels: impl IntoIterator<Item = Label<'a>>, value: f64, limits: &Limits) {
        if !value.is_finite() {
            self.skip(name, format!("{value} is not finite"), limits);
            return;
        }
        let start = self.labels.len();
        self.labels.extend(labels);
        self.labels[start..].sort_by(|a, b| a.0.cmp(b.0));
        self.entries.push(Entry { name, labels: (start, self.labels.len()), value });
    }

    /// Leaves out a sample of a name, for a reason.
    pub fn skip(&mut self, name: &'a str, reason: impl Into<String>, limits: &Limits) {
        if !name.is_empty() {
            self.incomplete.insert(name);
        }
        if self.skipped.len() < limits.skipped_max {
            self.skipped.push(SkippedSample { metric: name.to_owned(), reason: reason.into() });
        } else {
            self.skipped_more += 1;
        }
    }
}

/// Names worth reading. The rest of a page costs no more than finding its line breaks.
#[derive(Debug, Clone, Default)]
pub struct Wanted(HashSet<Box<str>>);

impl Wanted {
    /// Whether a name is one of them.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

impl<S: Into<Box<str>>> FromIterator<S> for Wanted {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}
