//! What is wrong with a file: code, position, value, remedy; and the collector that the second stage reports to.

use crate::{nearest::nearest, resolved::Config};
use std::ops::Range;

/// What kind of fault it is. The codes are stable: they are searched for, and `turnaround explain` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Not TOML.
    Syntax,
    /// A key nobody reads.
    UnknownKey,
    /// A value of the wrong type, or a key that must be there and is not.
    Shape,
    /// A size without a unit, or with an unknown one.
    Size,
    /// A duration without a unit, or with an unknown one.
    Duration,
    /// A number outside what is allowed: zero, negative, not finite.
    Number,
    /// A minimum above its maximum.
    MinAboveMax,
    /// A name that nothing answers to.
    Dangling,
    /// A name, node, GPU or endpoint listed twice.
    Duplicate,
    /// A node range that is not one.
    Range,
    /// A latency no variant can meet, whatever the load.
    Latency,
    /// More memory than any GPU kind it may run on has.
    Memory,
    /// More GPUs together than any island holds.
    Island,
    /// More than the whole fleet holds.
    FleetSize,
    /// An instant that is none, or a deadline that cannot be met.
    Instant,
    /// An address that cannot or must not be used.
    Address,
    /// A currency that is none.
    Currency,
    /// GPUs that do not match what is said to run on them.
    Placement,
    /// A metric used as what it is not.
    Metric,
    /// Keys that exclude each other, or one that asks for another.
    Conflict,
    /// A word that is none of those understood.
    Word,
    /// There is nothing to plan with, or nothing to plan for.
    Nothing,
    /// Things that are compared are counted in different units.
    Unit,
    /// Labels or matchers that select nothing.
    Selector,
    /// A service that could never wake up. A warning.
    Sleeper,
    /// A variant that is left out. A warning.
    LeftOut,
}

impl Code {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::Syntax,
        Self::UnknownKey,
        Self::Shape,
        Self::Size,
        Self::Duration,
        Self::Number,
        Self::MinAboveMax,
        Self::Dangling,
        Self::Duplicate,
        Self::Range,
        Self::Latency,
        Self::Memory,
        Self::Island,
        Self::FleetSize,
        Self::Instant,
        Self::Address,
        Self::Currency,
        Self::Placement,
        Self::Metric,
        Self::Conflict,
        Self::Word,
        Self::Nothing,
        Self::Unit,
        Self::Selector,
        Self::Sleeper,
        Self::LeftOut,
    ];

    /// The code as printed, and a sentence or two on what it means.
    fn entry(self) -> (&'static str, &'static str) {
        match self {
            Self::Syntax => ("TA0101", "The file is not valid TOML. The position is where reading stopped; the fault may lie a little before it."),
            Self::UnknownKey => ("TA0102", "A key that nothing reads is nearly always a misspelt one, and would be a setting silently ignored."),
            Self::Shape => ("TA0103", "A value has another type than asked for, or a key that must be there is missing."),
            Self::Size => ("TA0104", "Sizes carry a unit, since 80 could be GB or GiB: KiB, MiB, GiB, TiB are powers of 1024, kB, MB, GB, TB powers of 1000."),
            Self::Duration => {
                ("TA0105", "Durations carry a unit, since 5 could be seconds or minutes: ms (where a fraction of a second makes sense), s, m, h, d (24 hours).")
            }
            Self::Number => ("TA0106", "The number lies outside what is allowed. Nothing is clamped in silence."),
            Self::MinAboveMax => ("TA0107", "A minimum above its maximum leaves nothing that is allowed."),
            Self::Dangling => ("TA0108", "The name refers to nothing in this file and to none of the presets."),
            Self::Duplicate => ("TA0109", "Something is listed twice. Which of the two was meant cannot be known, and GPUs or traffic would be counted twice."),
            Self::Range => ("TA0110", "Node ranges are written as gpu[001-038], rack[1-2]n[01-16] or n[1,3,7-9]."),
            Self::Latency => (
                "TA0111",
                "Prefill alone takes longer than the time to first token promised, or one decode step longer than the time per token: more replicas do not help.",
            ),
            Self::Memory => ("TA0112", "The memory asked for exceeds what every GPU kind it may run on has."),
            Self::Island => ("TA0113", "GPUs that work together come from one island (fast links); no island is that large."),
            Self::FleetSize => ("TA0114", "The minimum asked for is more than the whole fleet could hold, if it did nothing else."),
            Self::Instant => ("TA0115", "Instants are written as 2026-12-01T08:00:00Z; a job must be able to finish between release and deadline."),
            Self::Address => ("TA0116", "The address is malformed, carries a secret, or would be reachable from other hosts without that being said."),
            Self::Currency => ("TA0117", "Currencies are ISO 4217 codes: three capital letters. All prices of one file are in one currency."),
            Self::Placement => ("TA0118", "The GPUs named do not match what is said to run on them: number, kind or island."),
            Self::Metric => ("TA0119", "A counter grows for ever and only its differences mean anything; as a gauge it would look like load that never falls."),
            Self::Conflict => ("TA0120", "Two keys say different things about the same, or one means nothing without the other."),
            Self::Word => ("TA0121", "The key understands only the words listed."),
            Self::Nothing => ("TA0122", "A plan needs at least one GPU, and one service or job."),
            Self::Unit => (
                "TA0123",
                "Demand, targets and capacity are counted in the same unit, and a metric has the unit of its signal. Nothing is converted in silence.",
            ),
            Self::Selector => ("TA0124", "Series are selected by labels: a table of names and values, or matchers in braces as PromQL writes them."),
            Self::Sleeper => ("TA0151", "At zero replicas nothing serves metrics, so demand cannot be seen and nothing would start a replica again."),
            Self::LeftOut => ("TA0152", "A variant cannot do what the service asks for and is not used for it."),
        }
    }

    /// The code as printed, such as `TA0107`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.entry().0
    }

    /// What the code means, for `turnaround explain`.
    #[must_use]
    pub fn explanation(self) -> &'static str {
        self.entry().1
    }
}

/// One fault of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message} [{code}]; {help}")]
pub struct ConfigError {
    /// Stable code, `TA01xx`.
    pub code: &'static str,
    /// What is wrong, with the values.
    pub message: String,
    /// Bytes of the text it concerns.
    pub span: Range<usize>,
    /// A word or two at that place.
    pub label: String,
    /// What to do about it.
    pub help: String,
    /// Name of the file.
    pub file: String,
    /// Line of the first byte, from 1.
    pub line: usize,
}

/// Collects what the second stage finds.
pub(crate) struct Findings<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
    /// The fleet was resolved without a fault, so that what does not fit it is worth saying.
    fleet_is_sound: bool,
}

impl<'a> Findings<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, errors: Vec::new(), warnings: Vec::new(), fleet_is_sound: true }
    }

    /// Where a name stands in quotes, from the beginning of `table` on: for tables whose values carry no position of their own.
    pub(crate) fn place_of(&self, table: Range<usize>, name: &str) -> Range<usize> {
        let quoted = [format!("\"{name}\""), format!("'{name}'")];
        let from = table.start.min(self.text.len());
        let found = quoted.iter().filter_map(|text| self.text.get(from..)?.find(text.as_str()).map(|at| from + at..from + at + text.len()));
        found.min_by_key(|place| place.start).unwrap_or(table)
    }

    pub(crate) fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Whether faults found so far leave the fleet whole. Ask before saying that something does not fit it.
    pub(crate) fn fleet_is_sound(&self) -> bool {
        self.fleet_is_sound
    }

    /// The fleet is resolved: faults up to here are its own.
    pub(crate) fn fleet_done(&mut self) {
        self.fleet_is_sound = self.errors.is_empty();
    }

    fn finding(&self, code: Code, span: Range<usize>, message: String, label: String, help: String) -> ConfigError {
        // A parser may point into the middle of a character, such as a byte order mark.
        let start = self.text.floor_char_boundary(span.start);
        let line = self.text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
        ConfigError {
            code: code.as_str(),
            message,
            span: start..self.text.ceil_char_boundary(span.end.max(start)),
            label,
            help,
            file: self.file.to_owned(),
            line,
        }
    }

    /// Notes a fault.
    pub(crate) fn refuse(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, label: impl Into<String>, help: impl Into<String>) {
        let finding = self.finding(code, span, message.into(), label.into(), help.into());
        self.errors.push(finding);
    }

    /// Notes something that works and is probably not meant.
    pub(crate) fn warn(&mut self, code: Code, span: Range<usize>, message: impl Into<String>, label: impl Into<String>, help: impl Into<String>) {
        let finding = self.finding(code, span, message.into(), label.into(), help.into());
        self.warnings.push(finding);
    }

    /// Notes a name that nothing answers to, with the nearest one that does.
    pub(crate) fn dangling<'n>(&mut self, span: Range<usize>, who: &str, what: &str, name: &str, known: impl IntoIterator<Item = &'n str>) {
        let known: Vec<&str> = known.into_iter().collect();
        let help = match (nearest(name, known.iter().copied()), known.is_empty()) {
            (Some(near), _) => format!("did you mean {near:?}?"),
            (None, true) => format!("this file has no {what}"),
            (None, false) => format!("known: {}", listed(&known)),
        };
        self.refuse(Code::Dangling, span, format!("{who} refers to {what} {name:?}, which does not exist"), format!("no such {what}"), help);
    }

    /// Notes a word that is none of those understood.
    pub(crate) fn word(&mut self, span: Range<usize>, key: &str, word: &str, known: &[&str]) {
        let help = nearest(word, known.iter().copied()).map_or_else(|| format!("write one of: {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
        self.refuse(Code::Word, span, format!("{key} does not understand {word:?}"), "unknown word", help);
    }

    /// The one error of the first stage.
    pub(crate) fn first_stage(&self, error: &toml::de::Error) -> ConfigError {
        let message = error.message();
        let span = error.span().unwrap_or(0..self.text.len().min(1));
        if let Some((word, known)) = expected(message, "unknown variant `") {
            let help = nearest(&word, known.iter().map(String::as_str))
                .map_or_else(|| format!("write one of: {}", known.join(", ")), |near| format!("did you mean {near:?}?"));
            return self.finding(Code::Word, span, format!("{word:?} is not understood here"), "unknown word".into(), help);
        }
        if let Some((key, known)) = expected(message, "unknown field `") {
            let help = nearest(&key, known.iter().map(String::as_str))
                .map_or_else(|| format!("known here: {}", known.join(", ")), |near| format!("did you mean {near}?"));
            return self.finding(Code::UnknownKey, span, format!("unknown key {key}"), "not read by anything".into(), help);
        }
        if let Some(key) = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
            return self.finding(Code::Shape, span, format!("{key} is missing"), format!("needs {key}"), format!("add {key} = ... here"));
        }
        let (code, label, help) = if message.starts_with("invalid") {
            (Code::Shape, "another type is asked for", "`turnaround schema config` lists every key with its type")
        } else {
            (Code::Syntax, "not TOML from here on", "strings need quotes, each key stands once in its table, tables are [name] or [[name]]")
        };
        self.finding(code, span, message.to_owned(), label.into(), help.into())
    }

    /// Config with its warnings, or the faults, ordered by position.
    pub(crate) fn conclude(mut self, mut config: Config) -> Result<Config, Vec<ConfigError>> {
        self.errors.sort_by(|a, b| (a.span.start, a.span.end, a.code).cmp(&(b.span.start, b.span.end, b.code)));
        self.errors.dedup();
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        self.warnings.sort_by_key(|warning| warning.span.start);
        config.warnings = self.warnings;
        Ok(config)
    }
}

/// At most eight names, for a help text.
fn listed(names: &[&str]) -> String {
    let shown = names.iter().take(8).copied().collect::<Vec<_>>().join(", ");
    if names.len() > 8 { format!("{shown} and {} more", names.len() - 8) } else { shown }
}

/// The key or word of serde's message about an unknown one, and those known.
fn expected(message: &str, beginning: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix(beginning)?;
    let mut quoted = rest.split('`');
    let key = quoted.next()?.to_owned();
    // The text alternates between what stands outside and inside the backquotes.
    let known = quoted.skip(1).step_by(2).map(str::to_owned).collect();
    Some((key, known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_distinct_and_explained() {
        let codes: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(codes.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|code| code.explanation().ends_with('.')));
    }

    #[test]
    fn reads_serdes_list_of_keys() {
        let (key, known) = expected("unknown field `max_replica`, expected one of `name`, `max_replicas`", "unknown field `").unwrap();
        assert_eq!((key.as_str(), known), ("max_replica", vec!["name".to_owned(), "max_replicas".to_owned()]));
    }
}
