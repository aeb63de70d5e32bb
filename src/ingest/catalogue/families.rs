//! A page's series by name, and those of one name by member.

use crate::exposition::{Family, Line, Page};
use fleet::EngineTable;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A page's samples by name.
pub(super) struct Families<'p> {
    pub(super) page: &'p Page<'p>,
    by_name: HashMap<&'p str, Vec<Line<'p>>>,
}

impl<'p> Families<'p> {
    pub(super) fn of(page: &'p Page<'p>) -> Self {
        let mut by_name: HashMap<&str, Vec<Line<'_>>> = HashMap::new();
        let mut lines = page.lines().peekable();
        while let Some(first) = lines.next() {
            let family = by_name.entry(first.name).or_default();
            family.push(first);
            while let Some(next) = lines.next_if(|next| next.name == first.name) {
                family.push(next);
            }
        }
        // The same series twice would count twice; the first one stays.
        for family in by_name.values_mut().filter(|family| family.len() > 1) {
            let mut seen = HashSet::with_capacity(family.len());
            family.retain(|line| seen.insert(line.labels));
        }
        Self { page, by_name }
    }

    /// Series of a name.
    pub(super) fn lines(&self, name: &str) -> &[Line<'p>] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a name is on the page, with a sample, a TYPE line, or damaged.
    pub(super) fn shows(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.page.types.contains_key(name) || self.page.incomplete.contains(name)
    }

    /// What the TYPE line of the first of these names says.
    pub(super) fn typed(&self, names: [&str; 2]) -> Option<Family> {
        names.into_iter().find_map(|name| self.page.types.get(name).copied())
    }

    /// Whether a sample of the name was left out.
    pub(super) fn is_incomplete(&self, name: &str) -> bool {
        self.page.incomplete.contains(name)
    }
}

/// Whether a line has the labels that are asked for. An absent label is the empty value, and `model` stands for what the engine calls it.
pub(super) fn selected(line: &Line<'_>, select: &BTreeMap<String, String>, models: &[String]) -> bool {
    select.iter().all(|(label, value)| match line.label(label) {
        Some(found) => found == value,
        None if label == "model" => model_of(line, models).is_some_and(|model| model == value),
        None => value.is_empty(),
    })
}

/// The model a line is about.
pub(super) fn model_of<'p>(line: &Line<'p>, models: &[String]) -> Option<&'p str> {
    models.iter().find_map(|label| line.label(label)).filter(|model| !matches!(*model, "" | "None" | "unknown"))
}

/// Without copies of a series (ranks that report the same) and without parts of a whole that is there too.
pub(super) fn without_copies<'p>(mut lines: Vec<Line<'p>>, engine: &EngineTable) -> Vec<Line<'p>> {
    for label in &engine.wholes {
        let is_whole = |line: &Line<'_>| line.label(label).is_none_or(str::is_empty);
        if lines.iter().any(is_whole) {
            lines.retain(is_whole);
        }
    }
    let is_rank = |label: &str| engine.copies.iter().any(|copy| copy == label);
    if lines.len() < 2 || !lines.iter().any(|line| line.labels.iter().any(|(label, _)| is_rank(label))) {
        return lines;
    }
    // Ranks are numbers, and the shorter of two is the smaller.
    let rank = |line: &Line<'p>| engine.copies.iter().map(|copy| line.label(copy).unwrap_or_default()).map(|rank| (rank.len(), rank)).collect::<Vec<_>>();
    lines.sort_by_cached_key(rank);
    let mut seen = HashSet::new();
    lines
        .retain(|line| seen.insert(line.labels.iter().filter(|(label, _)| !is_rank(label)).map(|(label, value)| (*label, value.as_ref())).collect::<Vec<_>>()));
    lines
}
