//! What each GPU did in each hour, as one letter: the most frequent of its minutes.

use crate::catalogue::Catalogue;
use fleet::{Class, GpuId, Timestamp};
use serde::{Deserialize, Serialize};

/// GPU x hour, one letter each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMap {
    /// Start of the first hour.
    pub start: Timestamp,
    /// The rows' GPUs, in the fleet's order.
    pub gpus: Vec<GpuId>,
    /// One row a GPU, one letter an hour.
    pub rows: Vec<String>,
    /// What the letters mean.
    pub legend: Vec<(char, String)>,
}

impl GpuMap {
    /// Letters of one GPU from `from` for so many hours; fewer when the map ends before.
    #[must_use]
    pub fn excerpt(&self, gpu: usize, from: Timestamp, hours: usize) -> Option<&str> {
        let first = usize::try_from((from.0 - self.start.0).div_euclid(3_600)).ok()?;
        let row = self.rows.get(gpu)?;
        row.get(first..(first + hours).min(row.len()))
    }
}

/// Letters of jobs, and of what is no work. Services take others.
fn job_letter(class: Class) -> char {
    match class {
        Class::RealTime => 'R',
        Class::Batch => 'B',
        Class::Training => 'T',
        Class::FineTuning => 'F',
        Class::Quantisation => 'Q',
        Class::Embedding => 'E',
        Class::Evaluation => 'V',
    }
}

const TAKEN: &str = "BTFQEVLX";

/// Collects minutes into hours.
pub(crate) struct MapMaker {
    start: Timestamp,
    rows: Vec<String>,
    /// Letters seen in this hour, by GPU.
    counts: Vec<Vec<(char, u32)>>,
    services: Vec<char>,
}

impl MapMaker {
    pub fn new(catalogue: &Catalogue) -> Self {
        let mut services: Vec<char> = Vec::new();
        for service in &catalogue.services {
            let name = service.id.as_str().chars().chain('A'..='Z').filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_uppercase());
            let letter = name.into_iter().find(|c| !TAKEN.contains(*c) && !services.contains(c)).unwrap_or('S');
            services.push(letter);
        }
        let gpus = catalogue.gpus.len();
        Self { start: catalogue.start, rows: vec![String::new(); gpus], counts: vec![Vec::new(); gpus], services }
    }

    /// Letter of the first service the variant may serve.
    pub fn service(&self, catalogue: &Catalogue, variant: usize) -> char {
        catalogue.variants[variant].services.first().and_then(|s| self.services.get(*s)).copied().unwrap_or('S')
    }

    #[expect(clippy::unused_self, reason = "beside its sibling for services")]
    pub fn job(&self, class: Class) -> char {
        job_letter(class)
    }

    /// One GPU did this in the minute at hand.
    pub fn mark(&mut self, gpu: usize, letter: char) {
        let counts = &mut self.counts[gpu];
        match counts.iter_mut().find(|(l, _)| *l == letter) {
            Some((_, n)) => *n += 1,
            None => counts.push((letter, 1)),
        }
    }

    /// The minute that began at `now` is over.
    pub fn end_minute(&mut self, now: Timestamp) {
        if (now.0 + 60 - self.start.0) % 3_600 == 0 {
            self.end_hour();
        }
    }

    fn end_hour(&mut self) {
        for (row, counts) in self.rows.iter_mut().zip(&mut self.counts) {
            // The first letter seen wins a tie: `max_by_key` keeps the last, hence the reversal.
            if let Some((letter, _)) = counts.iter().rev().max_by_key(|(_, n)| *n) {
                row.push(*letter);
            }
            counts.clear();
        }
    }

    pub fn finish(mut self, catalogue: &Catalogue) -> GpuMap {
        self.end_hour();
        let mut legend: Vec<(char, String)> = catalogue.services.iter().zip(&self.services).map(|(s, l)| (*l, s.id.to_string())).collect();
        let mut classes: Vec<Class> = catalogue.jobs.iter().map(|j| j.class).collect();
        classes.sort_unstable();
        classes.dedup();
        legend.extend(classes.into_iter().map(|c| (job_letter(c), c.name().to_owned())));
        legend.extend([('L', "loading".to_owned()), ('X', "failed".to_owned()), ('.', "idle".to_owned())]);
        GpuMap { start: self.start, gpus: catalogue.gpus.iter().map(|g| g.id.clone()).collect(), rows: self.rows, legend }
    }
}
