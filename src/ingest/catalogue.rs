//! What engines and exporters call the signals we plan with: tables (`engines/*.toml`, and those of users), and how a page is read by them.
//!
//! A signal's spellings are listed newest first; the first one a page has complete is used and the others are ignored, so a page that prints
//! old and new names side by side counts once. Kinds are those of [`Signal::kind`]: there is no way to read a counter as a gauge. A TYPE line
//! that contradicts the kind wins: the family is left out and reported. A signal that is not there is missing, never zero.

mod devices;
mod families;
mod read;
mod spelling;

use crate::exposition::{ExpositionError, Limits, Page, Wanted, parse_named};
use families::Families;
use fleet::{EngineRole, EngineTable, EngineTableError, Scrape, Server, Signal, TargetId, Timestamp, plausible};
use spelling::{Row, forms};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The tables of the house, in the order in which they are tried.
const TABLES: [&str; 15] = [
    include_str!("engines/dynamo.toml"),
    include_str!("engines/dynamo_worker.toml"),
    include_str!("engines/vllm_router.toml"),
    include_str!("engines/vllm.toml"),
    include_str!("engines/sglang.toml"),
    include_str!("engines/tgi.toml"),
    include_str!("engines/triton.toml"),
    include_str!("engines/trtllm.toml"),
    include_str!("engines/llamacpp.toml"),
    include_str!("engines/ray_serve.toml"),
    include_str!("engines/litellm.toml"),
    include_str!("engines/gateway.toml"),
    include_str!("engines/gpus.toml"),
    include_str!("engines/router.toml"),
    include_str!("engines/nim.toml"),
];

/// Read once: the tables are part of the program, and a test reads them all.
static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(|| {
    let tables = TABLES.iter().flat_map(|text| toml::from_str::<TableFile>(text).unwrap_or_else(|error| panic!("a table of the house: {error}")).engine);
    Catalogue { tables: tables.map(Table::of).collect(), ..Catalogue::empty() }.finished()
});

/// One file of tables.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    engine: Vec<EngineTable>,
}

/// Names of signals that one page spells differently from the catalogue.
pub type Names = BTreeMap<Signal, String>;

/// How one target's pages are read.
#[derive(Debug, Clone, Copy)]
pub struct ReadAs<'a> {
    /// The target.
    pub target: &'a TargetId,
    /// Which table to read by; without it the page is recognised.
    pub engine: Option<&'a str>,
    /// Labels and values that series must have, on a page that shows more than this target's. The label `model` stands for whatever the engine
    /// calls it.
    pub select: &'a BTreeMap<String, String>,
    /// Names that are used instead of the tables'.
    pub names: &'a Names,
}

/// One spelling of the catalogue, for people.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Described {
    /// Engine or exporter.
    pub engine: String,
    /// What it is to us.
    pub role: EngineRole,
    /// Canonical signal.
    pub signal: Signal,
    /// Its kind, as a word.
    pub kind: String,
    /// Its unit.
    pub unit: &'static str,
    /// The names, as an expression: `0.001 * (a + b - c) {label="value"}`.
    pub spelled: String,
    /// First version known to have it.
    pub since: Option<String>,
    /// Last version known to have it.
    pub until: Option<String>,
    /// Not on every page of the engine.
    pub optional: bool,
    /// Values believed.
    pub range: [f64; 2],
}

/// Tables, ready to read by.
#[derive(Debug, Clone)]
pub struct Catalogue {
    tables: Vec<Table>,
    names: BTreeSet<String>,
    wanted: Wanted,
}

/// A table and what follows from it.
#[derive(Debug, Clone)]
struct Table {
    engine: EngineTable,
    rows: Vec<Row>,
    expected: Vec<Signal>,
    /// Every name it reads, in all forms.
    names: BTreeSet<String>,
    /// Those of them that show devices.
    device_names: BTreeSet<String>,
    /// Names it is recognised by: enough of these sets must be met.
    marks: Vec<BTreeSet<String>>,
}

impl Catalogue {
    /// The tables of the house.
    #[must_use]
    pub fn builtin() -> &'static Self {
        &BUILT_IN
    }

    /// The tables of users before those of the house. A table with the name of one of the house lies over it: its rows and whatever else it
    /// says take the place of the same there, and the rest stays.
    ///
    /// # Errors
    /// When a table cannot be used, or two of them have one name.
    pub fn with(tables: Vec<EngineTable>) -> Result<Self, EngineTableError> {
        let mut own: Vec<EngineTable> = Vec::new();
        for table in tables {
            table.validate()?;
            if own.iter().any(|other| other.name == table.name) {
                return Err(EngineTableError { engine: table.name, signal: None, reason: "two tables have this name".into() });
            }
            let below = BUILT_IN.table(&table.name).map(|built_in| built_in.engine.clone());
            own.push(match below {
                Some(below) => laid_over(table, below),
                None => table,
            });
        }
        let rest: Vec<Table> = BUILT_IN.tables.iter().filter(|table| !own.iter().any(|own| own.name == table.engine.name)).cloned().collect();
        Ok(Self { tables: own.into_iter().map(Table::of).chain(rest).collect(), ..Self::empty() }.finished())
    }

    fn empty() -> Self {
        Self { tables: Vec::new(), names: BTreeSet::new(), wanted: Wanted::default() }
    }

    /// Names of all its tables, in the order they are tried.
    pub fn engines(&self) -> impl Iterator<Item = &str> {
        self.tables.iter().map(|table| table.engine.name.as_str())
    }

    /// Every metric name it can make use of, in all its forms (`_total`, `_sum`, `_count`, `_bucket`, and the family's).
    #[must_use]
    pub fn metric_names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// A few names that tell that an engine (or, with `of_gpus`, an exporter) is there: enough to find them all, without asking for every bucket.
    #[must_use]
    pub fn telling_names(&self, of_gpus: bool) -> BTreeSet<String> {
        const TELLING: [Signal; 7] = [
            Signal::RequestsRunning,
            Signal::RequestsFinished,
            Signal::RequestsReceived,
            Signal::PromptTokens,
            Signal::GpuUtilisation,
            Signal::GpuEngineActive,
            Signal::GpuMemoryUsed,
        ];
        let rows = self.tables.iter().flat_map(|table| &table.rows).filter(|row| TELLING.contains(&row.signal) && row.signal.of_gpu() == of_gpus);
        let names = rows.flat_map(|row| row.ways.iter().flat_map(|way| way.sum.iter().map(|name| (way.typed.unwrap_or(row.signal.kind()), name))));
        names.flat_map(|(kind, name)| forms(kind, &name.base)).collect()
    }

    /// The signals that pages of an engine should have; none for an engine it does not know.
    #[must_use]
    pub fn expected(&self, engine: &str) -> &[Signal] {
        self.table(engine).map_or(&[], |table| &table.expected)
    }

    /// Which of the expected signals an answered scrape lacks. Never an answer to "how much": a missing signal is not zero.
    #[must_use]
    pub fn missing_signals(&self, scrape: &Scrape) -> Vec<Signal> {
        let expected = scrape.server.as_ref().map_or(&[] as &[Signal], |server| self.expected(&server.engine));
        expected.iter().copied().filter(|signal| !scrape.samples.iter().any(|sample| sample.signal == *signal)).collect()
    }

    /// What answers a page: servers first, then routers, then exporters.
    #[must_use]
    pub fn recognise(&self, page: &Page<'_>) -> Vec<Server> {
        let families = Families::of(page);
        self.recognised(&families).into_iter().map(|table| read::server_of(table, &families, &BTreeMap::new())).collect()
    }

    /// The text of a page as lines, of those names only that can be made use of.
    ///
    /// # Errors
    /// When the page as a whole exceeds a limit.
    pub fn parse<'a>(&self, page: &'a [u8], limits: &Limits, names: &Names) -> Result<Page<'a>, ExpositionError> {
        let own: Wanted = names.iter().flat_map(|(signal, name)| forms(signal.kind(), name)).collect();
        parse_named(page, limits, |name| self.wanted.contains(name) || own.contains(name))
    }

    /// [`Self::parse`] and [`Self::read`] in one: a page that is refused as a whole is a failed scrape.
    #[must_use]
    pub fn read_text(&self, how: &ReadAs<'_>, at: Timestamp, page: &[u8], limits: &Limits) -> Scrape {
        match self.parse(page, limits, how.names) {
            Ok(page) => self.read(how, at, &page),
            Err(error) => Scrape::failed(how.target.clone(), at, error.to_string()),
        }
    }

    /// The catalogue row by row, for schemas and documentation.
    #[must_use]
    pub fn describe(&self) -> Vec<Described> {
        let rows = self.tables.iter().flat_map(|table| table.engine.signals.iter().map(move |row| (&table.engine, row)));
        let described = rows.flat_map(|(engine, row)| {
            row.names.iter().map(move |spelling| {
                let made = spelling.made();
                Described {
                    engine: engine.name.clone(),
                    role: engine.role,
                    signal: row.signal,
                    kind: format!("{:?}", row.signal.kind()).to_lowercase(),
                    unit: row.signal.unit(),
                    spelled: spelling::written(&made),
                    since: made.since,
                    until: made.until,
                    optional: row.optional,
                    range: row.range.unwrap_or_else(|| plausible(row.signal)),
                }
            })
        });
        described.collect()
    }

    fn table(&self, engine: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.engine.name == engine)
    }

    /// The tables that apply to a page, servers first.
    fn recognised(&self, families: &Families<'_>) -> Vec<&Table> {
        let all: Vec<&Table> = self.tables.iter().filter(|table| table.recognises(families)).collect();
        let known = |role: EngineRole| all.iter().any(|table| table.engine.role == role && !table.engine.recognised.generic);
        let mut chosen: Vec<&Table> = all.iter().copied().filter(|table| !table.engine.recognised.generic || !known(table.engine.role)).collect();
        let replaced: BTreeSet<&String> = chosen.iter().flat_map(|table| &table.engine.instead_of).collect();
        chosen.retain(|table| !replaced.contains(&table.engine.name));
        chosen.sort_by_key(|table| table.engine.role);
        chosen
    }

    /// With the names that follow from its tables.
    fn finished(mut self) -> Self {
        self.names = self.tables.iter().flat_map(|table| table.names.iter().cloned()).collect();
        self.wanted = self.names.iter().map(String::as_str).collect();
        self
    }
}

impl Table {
    fn of(engine: EngineTable) -> Self {
        let rows: Vec<Row> = engine.signals.iter().map(|row| Row::of(row, &engine.prefixes)).collect();
        let swapped = |name: &str| spelling::swapped(name, &engine.prefixes);
        let any_kind = |name: &str| swapped(name).into_iter().flat_map(|name| spelling::any_form(&name)).collect::<BTreeSet<String>>();
        let mut names: BTreeSet<String> = rows.iter().flat_map(Row::names).collect();
        let device_names = rows.iter().filter(|row| row.signal.of_gpu()).flat_map(Row::names).collect();
        let mut marks: Vec<BTreeSet<String>> = engine.recognised.names.iter().map(|name| any_kind(name)).collect();
        if engine.recognised.by_prefix {
            marks.push(names.iter().filter(|name| engine.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))).cloned().collect());
        }
        names.extend(marks.iter().flatten().cloned());
        names.extend(engine.watched.iter().chain(engine.version.iter().map(|version| &version.name)).flat_map(|name| swapped(name)));
        Self { expected: engine.expected().collect(), engine, rows, names, device_names, marks }
    }

    fn recognises(&self, families: &Families<'_>) -> bool {
        let met = self.marks.iter().filter(|mark| mark.iter().any(|name| families.shows(name))).count();
        met >= self.engine.recognised.at_least.max(1)
    }
}

/// A user's table with what it does not say taken from the house's table of the same name.
fn laid_over(mut own: EngineTable, below: EngineTable) -> EngineTable {
    let rows = below.signals.into_iter().filter(|row| !own.signals.iter().any(|other| other.signal == row.signal));
    let rows: Vec<_> = rows.collect();
    own.signals.extend(rows);
    or_below(&mut own.instead_of, below.instead_of);
    or_below(&mut own.prefixes, below.prefixes);
    or_below(&mut own.version, below.version);
    or_below(&mut own.models, below.models);
    or_below(&mut own.members, below.members);
    or_below(&mut own.copies, below.copies);
    or_below(&mut own.wholes, below.wholes);
    or_below(&mut own.blanks, below.blanks);
    or_below(&mut own.watched, below.watched);
    if own.recognised == fleet::Recognised::default() {
        own.recognised = below.recognised;
    }
    if own.device == fleet::DeviceLabels::default() {
        own.device = below.device;
    }
    own.role = below.role;
    own
}

fn or_below<T>(own: &mut Vec<T>, below: Vec<T>) {
    if own.is_empty() {
        *own = below;
    }
}

/// Which of the signals its engine should have an answered scrape lacks, by the tables of the house.
#[must_use]
pub fn missing_signals(scrape: &Scrape) -> Vec<Signal> {
    Catalogue::builtin().missing_signals(scrape)
}

/// Reads a page by the tables of the house, within the default limits.
#[must_use]
pub fn read_page(target: &TargetId, at: Timestamp, page: &str) -> Scrape {
    read_page_named(target, at, page.as_bytes(), &Limits::default(), &Names::new())
}

/// Reads a page by the tables of the house; a signal named in `names` is looked for under that name only.
#[must_use]
pub fn read_page_named(target: &TargetId, at: Timestamp, page: &[u8], limits: &Limits, names: &Names) -> Scrape {
    Catalogue::builtin().read_text(&ReadAs { target, engine: None, select: &BTreeMap::new(), names }, at, page, limits)
}

#[cfg(test)]
mod tests;
