//! Tables of anybody's making: which column is what, written as a mapping or guessed from the names.

use crate::demand::{Count, LATE_MAX, OUT_OF_ORDER, Order, Record, Request};
use crate::rows::{Line, Parse, Row};
use crate::{Clock, DatasetError};
use fleet::{Span, Timestamp};
use std::str::FromStr;

/// Longest interval of a count.
const INTERVAL_MAX: Span = Span::DAY;

/// Which column of a table is what. Everything is optional: what is not named is looked for among the names that are common.
///
/// Written as `time=ts,in=prompt_tokens,out=completion_tokens,model=model`; other keys are `cached` (prompt tokens found in a cache), `duration`
/// (seconds a request took; `time` is then when it ended), `clock` (how `time` is written, a [`Clock`] name), `count` and `every` (rows are counts of
/// requests in intervals of that length, `in` and `out` then means per request).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// The instant.
    pub time: Option<String>,
    /// How it is written.
    pub clock: Option<Clock>,
    /// Prompt tokens.
    pub input: Option<String>,
    /// Generated tokens.
    pub output: Option<String>,
    /// Prompt tokens found in a prefix cache.
    pub cached: Option<String>,
    /// Model or workload.
    pub model: Option<String>,
    /// Seconds a request took.
    pub duration: Option<String>,
    /// Requests of an interval.
    pub count: Option<String>,
    /// Its length.
    pub every: Option<Span>,
}

/// Keys of a mapping.
const KEYS: &str = "time, clock, in, out, cached, model, duration, count, every";

impl FromStr for Mapping {
    type Err = DatasetError;

    fn from_str(text: &str) -> Result<Self, DatasetError> {
        let refuse = |problem: String| DatasetError::Mapping { text: text.to_owned(), problem };
        let mut mapping = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| refuse(format!("{part:?} has no = in it")))?;
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                return Err(refuse(format!("{key} names no column")));
            }
            let column = Some(value.to_owned());
            match key {
                "time" => mapping.time = column,
                "in" => mapping.input = column,
                "out" => mapping.output = column,
                "cached" => mapping.cached = column,
                "model" => mapping.model = column,
                "duration" => mapping.duration = column,
                "count" => mapping.count = column,
                "clock" => {
                    let names = || Clock::ALL.map(Clock::name).join(", ");
                    let clock = Clock::ALL.into_iter().find(|c| c.name() == value);
                    mapping.clock = Some(clock.ok_or_else(|| refuse(format!("there is no clock {value:?}, only {}", names())))?);
                }
                "every" => mapping.every = Some(interval(value).ok_or_else(|| refuse(format!("every={value} is no interval of 1s to 24h")))?),
                other => return Err(refuse(format!("there is no key {other:?}, only {KEYS}"))),
            }
        }
        match (&mapping.count, mapping.every) {
            (Some(_), None) => Err(refuse("count needs every, such as every=1m: how long a row's interval is".into())),
            (None, Some(_)) => Err(refuse("every needs count: the column with the requests of an interval".into())),
            _ if mapping.count.is_some() && mapping.duration.is_some() => Err(refuse("count and duration do not go together".into())),
            _ => Ok(mapping),
        }
    }
}

fn interval(text: &str) -> Option<Span> {
    text.parse::<Span>().ok().filter(|span| (Span(1)..=INTERVAL_MAX).contains(span))
}

/// Common names of the instant.
const TIME_NAMES: [&str; 11] =
    ["timestamp", "time", "ts", "datetime", "date_time", "arrival_time", "arrived_at", "created_at", "request_time", "start_time", "period"];
/// Common names of prompt tokens.
const INPUT_NAMES: [&str; 8] =
    ["input_tokens", "prompt_tokens", "context_tokens", "contexttokens", "input_length", "request tokens", "num_prefill_tokens", "tokens_in"];
/// Common names of generated tokens.
const OUTPUT_NAMES: [&str; 8] =
    ["output_tokens", "completion_tokens", "generated_tokens", "generatedtokens", "output_length", "response tokens", "num_decode_tokens", "tokens_out"];
/// Common names of cached prompt tokens.
const CACHED_NAMES: [&str; 3] = ["cached_tokens", "cache_read_input_tokens", "cached_input_tokens"];
/// Common names of the model.
const MODEL_NAMES: [&str; 3] = ["model", "model_name", "service"];

/// Whether a header can be read without a mapping: instant and tokens are recognised.
pub(crate) fn is_readable(header: &Row<'_>) -> bool {
    let any = |names: &[&str]| names.iter().any(|n| header.column(n).is_some());
    any(&TIME_NAMES) && any(&INPUT_NAMES)
}

/// Columns by place.
struct Places {
    time: usize,
    input: Option<usize>,
    output: Option<usize>,
    cached: Option<usize>,
    model: Option<usize>,
    duration: Option<usize>,
    count: Option<(usize, Span)>,
}

impl Places {
    fn of(header: &Row<'_>, mapping: &Mapping) -> Result<Self, DatasetError> {
        let columns = header.fields.join(", ");
        let named = |name: &str| header.column(name).ok_or_else(|| header.refuse(&columns, format!("a header with the column {name} that the mapping names")));
        let find = |name: &Option<String>, known: &[&str]| match name {
            Some(name) => named(name).map(Some),
            None => Ok(known.iter().find_map(|n| header.column(n))),
        };
        let time = find(&mapping.time, &TIME_NAMES)?;
        let count = mapping.count.as_ref().map(|name| named(name)).transpose()?;
        Ok(Self {
            time: time.ok_or_else(|| header.refuse(&columns, "a header with a column of times; name it with --map time=COLUMN"))?,
            input: find(&mapping.input, &INPUT_NAMES)?,
            output: find(&mapping.output, &OUTPUT_NAMES)?,
            cached: find(&mapping.cached, &CACHED_NAMES)?,
            model: find(&mapping.model, &MODEL_NAMES)?,
            duration: find(&mapping.duration, &[])?,
            count: count.zip(mapping.every),
        })
    }
}

/// Turns rows into records by a mapping.
pub(crate) struct Table {
    places: Places,
    clock: Option<Clock>,
    origin: Timestamp,
    order: Order,
}

impl Table {
    /// Of the table with that header.
    pub fn new(header: &Row<'_>, mapping: &Mapping, origin: Timestamp) -> Result<Self, DatasetError> {
        let places = Places::of(header, mapping)?;
        Ok(Self { clock: mapping.clock, places, origin, order: Order::lenient() })
    }

    /// A row's record; nothing for a count that is empty, which is missing.
    pub fn record(&mut self, row: &Row<'_>) -> Result<Option<Record>, DatasetError> {
        let (places, text) = (&self.places, row.text(self.places.time));
        // The first row decides how instants are written.
        let clock = self.clock.or_else(|| Clock::guess(text));
        let read = clock.and_then(|clock| Some((clock, clock.read(text)?)));
        let Some((clock, (second, fraction))) = read else {
            return Err(row.refuse(text, format!("an instant{}", clock.map_or(String::new(), |c| format!(" written as {}", c.name())))));
        };
        self.clock = Some(clock);
        let at = if clock.is_dated() { second } else { self.origin + Span(second.0) };
        if !self.order.admits((at, fraction)) {
            return Err(row.refuse(text, OUT_OF_ORDER));
        }
        let amount = |place: Option<usize>, what| place.map_or(Ok(None), |place| row.amount_if_any(place, what));
        let (input_tokens, output_tokens) = (amount(places.input, "a number of tokens")?, amount(places.output, "a number of tokens")?);
        let model = places.model.map(|place| row.text(place)).filter(|m| !m.is_empty()).map(str::to_owned);
        if let Some((place, length)) = places.count {
            let requests = row.amount_if_any(place, "a number of requests")?;
            return Ok(requests.map(|requests| Record::Count(Count { start: at, length, requests, input_tokens, output_tokens, model })));
        }
        let took = amount(places.duration, "the seconds a request took")?;
        let (at, fraction) = took.map_or(Ok((at, fraction)), |took| {
            before(at, fraction, took).ok_or_else(|| row.refuse(format!("{took}"), format!("a duration of at most {LATE_MAX}, in seconds")))
        })?;
        let cached_tokens = amount(places.cached, "a number of tokens")?.map(|c| input_tokens.map_or(c, |i| c.min(i)));
        Ok(Some(Record::Request(Request { at, fraction, input_tokens, output_tokens, cached_tokens, model })))
    }
}

/// The instant `took` seconds before another.
fn before(at: Timestamp, fraction: f64, took: f64) -> Option<(Timestamp, f64)> {
    let whole = (took - fraction).ceil().max(0.0);
    if took > LATE_MAX.as_secs_f64() {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, reason = "at most an hour")]
    let seconds = whole as i64;
    Some((Timestamp(at.0 - seconds), (whole + fraction - took).clamp(0.0, 1.0 - f64::EPSILON)))
}

/// Reads the lines of a CSV table with a header.
pub(crate) fn parse(mapping: &Mapping, origin: Timestamp) -> Parse<Record> {
    let (mapping, mut table) = (mapping.clone(), None::<Table>);
    Box::new(move |line: Line<'_>| {
        let row = line.row()?;
        if let Some(table) = &mut table {
            return table.record(&row);
        }
        table = Some(Table::new(&row, &mapping, origin)?);
        Ok(None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DemandOptions, Format, read_demand_from};
    use std::path::Path;

    fn read(text: &str, map: &str) -> Result<Vec<Record>, DatasetError> {
        let options = DemandOptions { mapping: map.parse()?, origin: Timestamp(1_000_000), ..DemandOptions::default() };
        read_demand_from(std::io::Cursor::new(text.to_owned()), Path::new("t.csv"), Format::Csv, &options)?.collect()
    }

    fn request(record: &Record) -> &Request {
        let Record::Request(request) = record else { panic!("a count") };
        request
    }

    #[test]
    fn common_names_need_no_mapping_and_a_mapping_wins() {
        let text = "Timestamp,prompt_tokens,completion_tokens,cached_tokens,model\n2026-01-01 00:00:00,10,2,4,chat\n2026-01-01 00:00:01.5,,3,,\n";
        let records = read(text, "").unwrap();
        let (first, second) = (request(&records[0]), request(&records[1]));
        assert_eq!((first.input_tokens, first.output_tokens, first.cached_tokens, first.model.as_deref()), (Some(10.0), Some(2.0), Some(4.0), Some("chat")));
        assert_eq!((second.at.0 - first.at.0, second.fraction, second.input_tokens, second.model.as_deref()), (1, 0.5, None, None));
        assert_eq!(request(&read(text, "in=completion_tokens").unwrap()[0]).input_tokens, Some(2.0));
    }

    #[test]
    fn every_clock_and_times_from_the_start() {
        for (clock, text) in [("unix", "1767225600"), ("unix_ms", "1767225600000"), ("unix_us", "1767225600000000"), ("unix_ns", "1767225600000000000")] {
            let table = format!("time,n\n{text},1\n");
            assert_eq!(read(&table, &format!("clock={clock}")).unwrap()[0].at(), Timestamp(1_767_225_600));
            assert_eq!(read(&table, "").unwrap()[0].at(), Timestamp(1_767_225_600));
        }
        assert_eq!(read("time,n\n90,1\n", "").unwrap()[0].at(), Timestamp(1_000_090));
        assert_eq!(read("time,n\n90500,1\n", "clock=ms").unwrap()[0].at(), Timestamp(1_000_090));
    }

    #[test]
    fn counts_of_intervals_and_missing_ones() {
        let records = read("period,count\n1998-04-30 21:30:00,3\n1998-04-30 21:31:00,\n1998-04-30 21:32:00,0\n", "count=count,every=1m").unwrap();
        let counts: Vec<f64> = records.iter().map(|r| if let Record::Count(c) = r { c.requests } else { panic!("a request") }).collect();
        assert_eq!(counts, [3.0, 0.0]);
    }

    #[test]
    fn a_request_logged_at_its_end_arrived_before() {
        let records = read("ended,took\n100.25,0.5\n101,0\n", "time=ended,duration=took").unwrap();
        assert_eq!((request(&records[0]).at, request(&records[0]).fraction), (Timestamp(1_000_099), 0.75));
        assert_eq!((request(&records[1]).at, request(&records[1]).fraction), (Timestamp(1_000_101), 0.0));
    }

    #[test]
    fn mappings_that_cannot_be_meant_are_refused_with_a_remedy() {
        for (map, says) in [
            ("tim=a", "time, clock"),
            ("time", "no ="),
            ("clock=noon", "unix_ms"),
            ("count=n", "every=1m"),
            ("every=1m", "count"),
            ("count=n,every=9d", "24h"),
            ("in=", "no column"),
        ] {
            let message = map.parse::<Mapping>().unwrap_err().to_string();
            assert!(message.contains(says) && message.contains("turnaround import --help"), "{map}: {message}");
        }
        assert!(read("a,b\n1,2\n", "").unwrap_err().to_string().contains("--map time=COLUMN"));
        assert!(read("time,b\n1,2\n", "in=c").unwrap_err().to_string().contains("column c"));
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        for bad in ["noon,1", "5,x", "5,-1", "5,NaN", "5,inf", "\"5,1"] {
            let message = read(&format!("time,input_tokens\n5,1\n{bad}\n"), "").unwrap_err().to_string();
            assert!(message.contains("t.csv:3"), "{bad}: {message}");
        }
        let message = read("time,n\n9000,1\n8000,1\n1000,1\n", "").unwrap_err().to_string();
        assert!(message.contains("t.csv:4") && message.contains("sort"), "{message}");
    }
}
