//! A page's lines as canonical signals, member by member.

use super::devices::{self, Devices};
use super::families::{Families, model_of, selected, without_copies};
use super::spelling::{Name, Row, Way};
use super::{Catalogue, ReadAs, Table};
use crate::exposition::{Family, Line, Page};
use fleet::{EngineTable, Histogram, Join, MemberId, Reading, Sample, Scrape, ScrapeStatus, Server, Signal, SignalKind, SkippedSample, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Models one page names at most; the rest is not listed.
const MODELS_MAX: usize = 64;
/// What is believed of sums and counts of a histogram: below the marks of 64-bit fields, and so that no page of them adds up to infinity.
const TOTALS: [f64; 2] = [0.0, 1e18];

/// Values by member; without one, they are the target's as a whole.
type ByMember<T> = BTreeMap<Option<MemberId>, T>;

impl Catalogue {
    /// Reads a page. One that has none of our signals (an empty one, or some other server's) is a failed scrape.
    #[must_use]
    pub fn read(&self, how: &ReadAs<'_>, at: Timestamp, page: &Page<'_>) -> Scrape {
        let families = Families::of(page);
        let tables = match how.engine {
            None => self.recognised(&families),
            Some(name) => match self.table(name) {
                Some(table) => vec![table],
                None => return Scrape::failed(how.target.clone(), at, format!("no engine is called {name:?}")),
            },
        };
        let mut read = Read { families: &families, select: how.select, skipped: page.skipped.clone(), values: BTreeMap::new(), devices: Vec::new() };
        if !how.names.is_empty() {
            let nobody = Table::of(EngineTable::default());
            let rows: Vec<Row> = how.names.iter().map(|(signal, name)| Row::named(*signal, name)).collect();
            read.table(tables.first().copied().unwrap_or(&nobody), rows.iter());
        }
        for table in &tables {
            read.table(table, table.rows.iter().filter(|row| !how.names.contains_key(&row.signal)));
        }
        let server = tables.first().map(|table| server_of(table, &families, how.select));
        read.into_scrape(how, at, server)
    }
}

/// What answered, as far as a page tells.
pub(super) fn server_of(table: &Table, families: &Families<'_>, select: &BTreeMap<String, String>) -> Server {
    let engine = &table.engine;
    let version =
        engine.version.iter().find_map(|of| families.lines(&of.name).iter().find_map(|line| line.label(&of.label)).filter(|version| !version.is_empty()));
    let mut models = BTreeSet::new();
    if !engine.models.is_empty() {
        let lines = table.names.iter().flat_map(|name| families.lines(name)).filter(|line| selected(line, select, &engine.models));
        models.extend(lines.filter_map(|line| model_of(line, &engine.models)));
    }
    Server { engine: engine.name.clone(), version: version.map(str::to_owned), models: models.into_iter().take(MODELS_MAX).map(str::to_owned).collect() }
}

/// What has been read of a page so far.
struct Read<'p, 'a> {
    families: &'a Families<'p>,
    select: &'a BTreeMap<String, String>,
    skipped: Vec<SkippedSample>,
    values: BTreeMap<Signal, ByMember<Reading>>,
    devices: Vec<fleet::Device>,
}

impl Read<'_, '_> {
    /// Reads rows of a table; signals that an earlier table had stay as they are.
    fn table<'r>(&mut self, table: &'r Table, rows: impl Iterator<Item = &'r Row>) {
        let devices = Devices::of(table, self.families);
        for row in rows {
            if self.values.contains_key(&row.signal) {
                continue;
            }
            let found = Reader { read: self, table, devices: &devices, row, by_device: devices::by_device(table, row.signal) }.row();
            if !found.is_empty() {
                self.values.insert(row.signal, found);
            }
        }
        if self.devices.is_empty() {
            self.devices = devices.into_list();
        }
    }

    fn into_scrape(mut self, how: &ReadAs<'_>, at: Timestamp, server: Option<Server>) -> Scrape {
        // Rows that read one family report it each.
        self.skipped.sort_by(|a, b| (&a.metric, &a.reason).cmp(&(&b.metric, &b.reason)));
        self.skipped.dedup();
        let more = self.families.page.skipped_more;
        if more > 0 {
            self.skipped.push(SkippedSample { metric: String::new(), reason: format!("{more} more lines were skipped") });
        }
        let samples = self.values.into_iter().flat_map(|(signal, values)| values.into_iter().map(move |(member, value)| Sample { signal, member, value }));
        let samples: Vec<Sample> = samples.collect();
        let status = match (samples.is_empty(), how.select.is_empty()) {
            (false, _) => ScrapeStatus::Ok,
            (true, true) => ScrapeStatus::Failed("the page shows none of the known signals".into()),
            (true, false) => ScrapeStatus::Failed("the page shows none of the known signals with the labels selected".into()),
        };
        let (server, devices) = if samples.is_empty() { (None, Vec::new()) } else { (server, self.devices) };
        Scrape { target: how.target.clone(), at, status, server, devices, samples, skipped: self.skipped }
    }
}

/// One row of one table on one page.
struct Reader<'r, 'p, 'a> {
    read: &'r mut Read<'p, 'a>,
    table: &'r Table,
    devices: &'r Devices,
    row: &'r Row,
    by_device: bool,
}

impl<'p> Reader<'_, 'p, '_> {
    /// The first spelling that is complete; of devices, the first one that each has.
    fn row(mut self) -> ByMember<Reading> {
        let mut out = ByMember::new();
        for way in &self.row.ways {
            let found = self.way(way).unwrap_or_default();
            if !self.by_device && !found.is_empty() {
                return found;
            }
            for (member, value) in found {
                out.entry(member).or_insert(value);
            }
        }
        out
    }

    fn way(&mut self, way: &Way) -> Option<ByMember<Reading>> {
        match self.row.signal.kind() {
            SignalKind::Histogram if way.events.is_empty() => self.histogram(way),
            SignalKind::Histogram => self.totals_only(way),
            kind => {
                let sum = self.added(way, &way.sum, kind, self.row.range, way.scale)?;
                let less = way.less.iter().filter_map(|name| self.added(way, std::slice::from_ref(name), kind, self.row.range, way.scale)).collect::<Vec<_>>();
                let take_off = |member: &Option<MemberId>| less.iter().filter_map(|values| values.get(member)).sum::<f64>();
                let value = |member: &Option<MemberId>, value: f64| if less.is_empty() { value } else { (value - take_off(member)).max(0.0) };
                Some(sum.into_iter().map(|(member, sum)| (member.clone(), Reading::Scalar(value(&member, sum)))).collect())
            }
        }
    }

    /// Names added up, member by member; nothing where one of them is not complete, since a part is not the whole.
    fn added(&mut self, way: &Way, names: &[Name], kind: SignalKind, range: [f64; 2], scale: f64) -> Option<ByMember<f64>> {
        let mut sum: Option<ByMember<f64>> = None;
        for name in names {
            let spelled = self.admitted(way, name, kind)?;
            let values = self.scalars(way, spelled, range, scale)?;
            sum = Some(match sum {
                None => values,
                Some(before) if self.by_device || before.keys().eq(values.keys()) => {
                    before.into_iter().filter_map(|(member, sum)| Some((member.clone(), sum + values.get(&member)?))).collect()
                }
                Some(_) => return None,
            });
        }
        sum
    }

    /// The form of a name that the page has, if its TYPE line agrees with the table. Without one the table is taken at its word.
    fn admitted<'n>(&mut self, way: &Way, name: &'n Name, kind: SignalKind) -> Option<&'n str> {
        let families = self.read.families;
        let (wanted, spelled) = match kind {
            SignalKind::Counter if families.lines(&name.total).is_empty() && !families.is_incomplete(&name.total) => (Family::Counter, &name.base),
            SignalKind::Counter => (Family::Counter, &name.total),
            SignalKind::Gauge => (Family::Gauge, &name.base),
            SignalKind::Histogram => (Family::Histogram, &name.base),
        };
        let said = families.typed(if kind == SignalKind::Counter { [&name.total, &name.base] } else { [&name.base, &name.base] });
        let also = way.typed.map(|typed| if typed == SignalKind::Gauge { Family::Gauge } else { Family::Counter });
        match said {
            Some(said) if said != wanted && said != Family::Other && Some(said) != also => {
                let reason = format!("its TYPE line says {said:?}, a {wanted:?} is needed").to_lowercase();
                self.refuse(&name.base, reason);
                None
            }
            _ => Some(spelled),
        }
    }

    /// Series of a name that count here, by member.
    fn lines(&mut self, way: &Way, name: &str) -> Option<ByMember<Vec<Line<'p>>>> {
        let (families, engine) = (self.read.families, &self.table.engine);
        if families.is_incomplete(name) && !self.by_device {
            return None;
        }
        let free = self.row.signal.of_gpu() || self.row.signal == Signal::BootTime;
        let counts = |line: &Line<'_>| {
            (free || selected(line, self.read.select, &engine.models))
                && way.only.iter().all(|(label, values)| values.iter().any(|value| line.label(label).unwrap_or_default() == value))
        };
        let lines = without_copies(families.lines(name).iter().filter(|line| counts(line)).copied().collect(), engine);
        let mut out: ByMember<Vec<Line<'p>>> = ByMember::new();
        for line in lines {
            let member = match self.member(&line) {
                Ok(member) => member,
                Err(reason) => {
                    self.refuse(name, reason);
                    continue;
                }
            };
            if way.whole_devices && member.as_ref().is_some_and(|member| self.devices.is_sliced(member)) {
                continue;
            }
            out.entry(member).or_default().push(line);
        }
        (!out.is_empty()).then_some(out)
    }

    fn member(&self, line: &Line<'_>) -> Result<Option<MemberId>, String> {
        if self.by_device {
            return devices::member_of(line, &self.table.engine.device).map(Some).ok_or_else(|| "no label names its device".to_owned());
        }
        let parts: Vec<&str> = self.table.engine.members.iter().filter_map(|label| line.label(label)).filter(|value| !value.is_empty()).collect();
        if parts.is_empty() { Ok(None) } else { MemberId::new(parts.join("/")).map(Some).map_err(|error| error.to_string()) }
    }

    /// Values of a name, joined within each member. A value that is not believed costs its device, or elsewhere the whole signal.
    fn scalars(&mut self, way: &Way, name: &str, range: [f64; 2], scale: f64) -> Option<ByMember<f64>> {
        let mut out = ByMember::new();
        for (member, lines) in self.lines(way, name)? {
            let values: Result<Vec<f64>, String> = lines.iter().map(|line| self.believed(way, line.value, range, scale)).collect();
            match values {
                Ok(values) => {
                    out.insert(member, self.joined(&values));
                }
                Err(reason) => {
                    self.refuse(name, reason);
                    if !self.by_device {
                        return None;
                    }
                }
            }
        }
        (!out.is_empty()).then_some(out)
    }

    /// A value in the signal's unit, or why it is none.
    fn believed(&self, way: &Way, value: f64, [low, high]: [f64; 2], scale: f64) -> Result<f64, String> {
        if self.table.engine.blanks.iter().any(|[from, to]| (*from..=*to).contains(&value)) {
            return Err(format!("{value} is a mark for \"not available\""));
        }
        let value = match way.bits {
            // Flags are whole numbers; those of interest lie in the lower 32 bits.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be a whole number below 2^53")]
            Some(bits) if (0.0..9e15).contains(&value) && value.fract() == 0.0 => f64::from(u8::from(value as u64 & u64::from(bits) != 0)),
            Some(_) => return Err(format!("{value} is no set of flags")),
            None => value * scale,
        };
        let unit = self.row.signal.unit();
        if (low..=high).contains(&value) { Ok(value) } else { Err(format!("{value} {unit} is not believed: outside {low} to {high}")) }
    }

    /// Several series of one member as one: of a device they are copies of one reading.
    fn joined(&self, values: &[f64]) -> f64 {
        let (count, sum, max) = values.iter().fold((0.0, 0.0, f64::NEG_INFINITY), |(n, sum, max), v| (n + 1.0, sum + v, f64::max(max, *v)));
        match self.row.signal.join() {
            _ if self.by_device => max,
            Join::Sum => sum,
            Join::Mean => sum / count,
            Join::Max => max,
        }
    }

    /// Histograms of each member, its series added up by bucket.
    fn histogram(&mut self, way: &Way) -> Option<ByMember<Reading>> {
        let name = &way.sum[0];
        self.admitted(way, name, SignalKind::Histogram)?;
        if self.read.families.is_incomplete(&name.bucket) {
            return None;
        }
        let sums = self.scalars(way, &name.sum, TOTALS, way.scale)?;
        let counts = self.scalars(way, &name.count, TOTALS, 1.0)?;
        if !sums.keys().eq(counts.keys()) {
            return None;
        }
        let series = self.lines(way, &name.count)?;
        let mut buckets = self.lines(way, &name.bucket).unwrap_or_default();
        let mut out = ByMember::new();
        for (member, count) in counts {
            let lines = buckets.remove(&member).unwrap_or_default();
            let buckets = summed_buckets(&lines, series.get(&member).map_or(0, Vec::len), way.scale);
            let sum = sums.get(&member).copied().unwrap_or_default();
            self.believed_histogram(&name.base, &Histogram { sum, count, buckets: buckets.clone() })?;
            out.insert(member, Reading::Histogram(Histogram { sum, count, buckets }));
        }
        Some(out)
    }

    /// A histogram of which the page shows only the totals.
    fn totals_only(&mut self, way: &Way) -> Option<ByMember<Reading>> {
        let sums = self.added(way, &way.sum, SignalKind::Counter, TOTALS, way.scale)?;
        let counts = self.added(way, &way.events, SignalKind::Counter, TOTALS, 1.0)?;
        let mut out = ByMember::new();
        for (member, sum) in sums {
            let histogram = Histogram { sum, count: *counts.get(&member)?, buckets: Vec::new() };
            self.believed_histogram(&way.sum[0].base, &histogram)?;
            out.insert(member, Reading::Histogram(histogram));
        }
        Some(out)
    }

    fn believed_histogram(&mut self, name: &str, histogram: &Histogram) -> Option<()> {
        let Histogram { sum, count, buckets } = histogram;
        let ascending = buckets.first().is_none_or(|(_, total)| *total >= 0.0)
            && buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1)
            && buckets.last().is_none_or(|(_, total)| total <= count);
        let [low, high] = self.row.range;
        let mean = sum / count;
        let reason = if !ascending {
            "its buckets do not ascend".to_owned()
        } else if *count > 0.0 && !(low..=high).contains(&mean) {
            format!("a mean of {mean} {} is not believed: outside {low} to {high}", self.row.signal.unit())
        } else {
            return Some(());
        };
        self.refuse(name, reason);
        None
    }

    fn refuse(&mut self, name: &str, reason: String) {
        self.read.skipped.push(SkippedSample { metric: name.to_owned(), reason });
    }
}

/// Bucket totals of several series. Only bounds that every series has are kept, so that each is a sum over all.
fn summed_buckets(lines: &[Line<'_>], series: usize, scale: f64) -> Vec<(f64, f64)> {
    // Bounds by their order as numbers: the bits of a non-negative float order as it does.
    let mut by_bound: BTreeMap<u64, (f64, f64, usize)> = BTreeMap::new();
    for line in lines {
        let bound = line.label("le").and_then(|le| le.parse::<f64>().ok()).filter(|bound| bound.is_finite() && *bound >= 0.0);
        if let Some(bound) = bound {
            let (_, total, parts) = by_bound.entry(bound.to_bits()).or_insert((bound * scale, 0.0, 0));
            *total += line.value;
            *parts += 1;
        }
    }
    by_bound.into_values().filter(|(_, _, parts)| *parts == series).map(|(bound, total, _)| (bound, total)).collect()
}
