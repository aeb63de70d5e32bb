//! Prometheus text exposition (0.0.4, and what of `OpenMetrics` text differs from it): one page in, samples out.
//!
//! Strict about bytes, tolerant by line: a line that makes no sense costs itself and is reported with its reason, never the page. Values
//! that are not finite are skipped the same way, since NaN is how exporters say "nothing". Grammar:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use fleet::SkippedSample;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What a page may hold at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a page. Beyond it the page is refused.
    pub page_bytes_max: usize,
    /// Bytes of a line. A longer one is skipped.
    pub line_bytes_max: usize,
    /// Samples of a page. Beyond it the page is refused: half a page would look like counters that fell.
    pub samples_max: usize,
    /// Labels of a sample. A sample with more is skipped.
    pub labels_max: usize,
    /// Bytes of a label's value. A sample with a longer one is skipped.
    pub label_bytes_max: usize,
    /// Skipped lines that are reported one by one; the rest is only counted.
    pub skipped_max: usize,
}

impl Default for Limits {
    /// Twenty times the largest pages recorded (0.8 MB; 600 series of a serving engine, some thousands of a Ray node).
    fn default() -> Self {
        Self { page_bytes_max: 16 << 20, line_bytes_max: 64 << 10, samples_max: 200_000, labels_max: 64, label_bytes_max: 4 << 10, skipped_max: 100 }
    }
}

/// A page that is refused as a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpositionError {
    /// Too many bytes.
    #[error("page of {bytes} bytes exceeds page_bytes_max = {page_bytes_max}")]
    PageBytes {
        /// Its size.
        bytes: usize,
        /// The limit.
        page_bytes_max: usize,
    },
    /// Too many samples.
    #[error("page exceeds samples_max = {samples_max}")]
    Samples {
        /// The limit.
        samples_max: usize,
    },
}

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

/// One sample: a finite value of a named series.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// Name as written, suffixes included.
    pub name: &'a str,
    /// Labels in order of name.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Its value: finite.
    pub value: f64,
}

impl Line<'_> {
    /// Value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_ref())
    }
}

/// A page as read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page<'a> {
    /// Samples in the page's order.
    pub samples: Vec<Line<'a>>,
    /// What TYPE lines say, by the name they use.
    pub types: BTreeMap<&'a str, Family>,
    /// Lines left out, at most `skipped_max` of them.
    pub skipped: Vec<SkippedSample>,
    /// Lines left out beyond those.
    pub skipped_more: usize,
    /// Names of which at least one sample was left out: a sum over such a family would be too small.
    pub incomplete: BTreeSet<&'a str>,
}

/// Reads a page.
///
/// # Errors
/// When the page as a whole exceeds a limit.
pub fn parse<'a>(page: &'a [u8], limits: &Limits) -> Result<Page<'a>, ExpositionError> {
    if page.len() > limits.page_bytes_max {
        return Err(ExpositionError::PageBytes { bytes: page.len(), page_bytes_max: limits.page_bytes_max });
    }
    let mut out = Page::default();
    for raw in page.split(|byte| *byte == b'\n') {
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        if raw.len() > limits.line_bytes_max {
            // The name fits even if the line does not.
            let start = raw.get(..256).unwrap_or(raw);
            let name = start.iter().position(|byte| !is_name_byte(*byte)).and_then(|end| std::str::from_utf8(&start[..end]).ok()).unwrap_or_default();
            out.skip(name, "line longer than line_bytes_max", limits);
            continue;
        }
        let Ok(line) = std::str::from_utf8(raw) else {
            let end = raw.iter().position(|byte| !is_name_byte(*byte)).unwrap_or(0);
            out.skip(std::str::from_utf8(&raw[..end]).unwrap_or_default(), "not UTF-8", limits);
            continue;
        };
        let line = line.trim_matches([' ', '\t']);
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            read_type(comment, &mut out.types);
            continue;
        }
        match read_sample(line, limits) {
            Ok(_) if out.samples.len() == limits.samples_max => return Err(ExpositionError::Samples { samples_max: limits.samples_max }),
            Ok(sample) => out.samples.push(sample),
            Err((name, reason)) => out.skip(name, reason, limits),
        }
    }
    Ok(out)
}

impl<'a> Page<'a> {
    fn skip(&mut self, name: &'a str, reason: impl Into<String>, limits: &Limits) {
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

/// `# TYPE name kind`; any other comment says nothing to us.
fn read_type<'a>(comment: &'a str, types: &mut BTreeMap<&'a str, Family>) {
    let mut words = comment.split_ascii_whitespace();
    if let (Some("TYPE"), Some(name), Some(kind)) = (words.next(), words.next(), words.next()) {
        let family = match kind {
            "counter" => Family::Counter,
            "gauge" => Family::Gauge,
            "histogram" => Family::Histogram,
            "summary" => Family::Summary,
            _ => Family::Other,
        };
        types.insert(name, family);
    }
}

type Refused<'a> = (&'a str, String);

/// `name{label="value",...} value [time] [# exemplar]`.
fn read_sample<'a>(line: &'a str, limits: &Limits) -> Result<Line<'a>, Refused<'a>> {
    let end = line.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(("", "no metric name at its start".into()));
    }
    let rest = rest.trim_start_matches([' ', '\t']);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => read_labels(inside, limits).map_err(|reason| (name, reason.to_owned()))?,
        None => (Vec::new(), rest),
    };
    let mut words = rest.split([' ', '\t']).filter(|word| !word.is_empty());
    let word = words.next().unwrap_or_default();
    let value = word.parse::<f64>().map_err(|_| (name, format!("{:?} is not a number", shorten(word))))?;
    if !value.is_finite() {
        return Err((name, format!("{} is not finite", shorten(word))));
    }
    match words.next() {
        Some(time) if !time.starts_with('#') && time.parse::<f64>().is_err() => Err((name, format!("{:?} is not a time", shorten(time)))),
        _ => Ok(Line { name, labels, value }),
    }
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// The labels after `{`, and what follows `}`.
fn read_labels<'a>(mut rest: &'a str, limits: &Limits) -> Result<(Labels<'a>, &'a str), &'static str> {
    let mut labels: Labels<'a> = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if let Some(after) = rest.strip_prefix('}') {
            labels.sort_by(|a, b| a.0.cmp(b.0));
            return if labels.windows(2).any(|pair| pair[0].0 == pair[1].0) { Err("a label is given twice") } else { Ok((labels, after)) };
        }
        if labels.len() == limits.labels_max {
            return Err("more labels than labels_max");
        }
        let end = rest.bytes().position(|byte| !is_name_byte(byte)).ok_or("labels do not end")?;
        let name = &rest[..end];
        if name.is_empty() {
            return Err("a label without a name");
        }
        let quoted = rest[end..].trim_start_matches([' ', '\t']).strip_prefix('=').ok_or("a label without a value")?;
        let quoted = quoted.trim_start_matches([' ', '\t']).strip_prefix('"').ok_or("a label's value is not quoted")?;
        let (value, after) = read_quoted(quoted)?;
        if value.len() > limits.label_bytes_max {
            return Err("a label's value is longer than label_bytes_max");
        }
        labels.push((name, value));
        let after = after.trim_start_matches([' ', '\t']);
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return Err("labels are not separated by commas"),
        };
    }
}

/// Text up to the closing quote with `\\`, `\"` and `\n` resolved, and what follows.
fn read_quoted(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    let stop = text.find(['"', '\\']).ok_or("a label's value does not end")?;
    if text.as_bytes()[stop] == b'"' {
        return Ok((Cow::Borrowed(&text[..stop]), &text[stop + 1..]));
    }
    let mut value = String::from(&text[..stop]);
    let mut chars = text[stop..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((Cow::Owned(value), &text[stop + at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"'))) => value.push(escaped),
                // The format defines no other escape; clients keep such a backslash as it is.
                Some((_, other)) => value.extend(['\\', other]),
                None => break,
            },
            other => value.push(other),
        }
    }
    Err("a label's value does not end")
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':'
}

/// The start of a word, for messages.
fn shorten(word: &str) -> String {
    word.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(page: &str) -> Page<'_> {
        parse(page.as_bytes(), &Limits::default()).unwrap()
    }

    fn values<'a>(page: &'a Page<'a>) -> Vec<(&'a str, f64)> {
        page.samples.iter().map(|line| (line.name, line.value)).collect()
    }

    /// Field case 5: one damaged sample costs itself, not the page.
    #[test]
    fn a_damaged_sample_costs_itself_and_is_named() {
        for bad in ["NaN", "+Inf", "-Inf", "1e400", "0.32%", "", "0x"] {
            let text = format!("sglang:fwd_occupancy {bad}\nsglang:cache_hit_rate 0.6\nsglang:num_running_reqs 3\n");
            let page = read(&text);
            assert_eq!(values(&page), [("sglang:cache_hit_rate", 0.6), ("sglang:num_running_reqs", 3.0)], "{bad}");
            assert_eq!(page.skipped.len(), 1);
            assert_eq!(page.skipped[0].metric, "sglang:fwd_occupancy");
            assert!(page.incomplete.contains("sglang:fwd_occupancy"));
        }
    }

    #[test]
    fn labels_types_times_and_exemplars_are_read() {
        let page = read(concat!(
            "# HELP a:b_total what it is\r\n# TYPE a:b_total counter\r\n",
            "a:b_total{engine=\"0\", path=\"C:\\\\x\\n\\\"q\\\"\\d\",} 1.5e3 1796109024460\r\n",
            "\tc {} -4\n",
            "h_bucket{le=\"+Inf\"} 7 # {trace_id=\"abc\"} 0.5 1.0\n# EOF\n",
        ));
        assert_eq!(values(&page), [("a:b_total", 1500.0), ("c", -4.0), ("h_bucket", 7.0)]);
        assert_eq!(page.types.get("a:b_total"), Some(&Family::Counter));
        assert_eq!(page.samples[0].label("path"), Some("C:\\x\n\"q\"\\d"));
        assert_eq!(page.samples[2].label("le"), Some("+Inf"));
        assert!(page.skipped.is_empty());
    }

    #[test]
    fn lines_that_make_no_sense_say_why() {
        for (line, why) in [
            ("{\"quoted.name\"} 1", "no metric name"),
            ("9a 1", "no metric name"),
            ("a{b=\"1} 1", "does not end"),
            ("a{b=1} 1", "not quoted"),
            ("a{b} 1", "without a value"),
            ("a{=\"x\"} 1", "without a name"),
            ("a{b=\"1\" c=\"2\"} 1", "commas"),
            ("a{b=\"1\",b=\"2\"} 1", "twice"),
            ("a{b=\"1\"", "commas"),
            ("a", "not a number"),
            ("a 1 soon", "not a time"),
        ] {
            let page = read(line);
            assert!(page.samples.is_empty(), "{line}");
            let reason = &page.skipped.first().unwrap_or_else(|| panic!("{line}: nothing skipped")).reason;
            assert!(reason.contains(why), "{line}: {reason}");
        }
        assert_eq!(parse(b"a{b=\"\xff\"} 1\nc 2\n", &Limits::default()).unwrap().skipped[0], SkippedSample { metric: "a".into(), reason: "not UTF-8".into() });
    }

    #[test]
    fn every_limit_holds() {
        let limits = Limits { page_bytes_max: 100, line_bytes_max: 40, samples_max: 3, labels_max: 1, label_bytes_max: 5, skipped_max: 1 };
        let read = |page: &'static str| parse(page.as_bytes(), &limits);
        assert_eq!(read("a 1\nb 2\nc 3\nd 4\n"), Err(ExpositionError::Samples { samples_max: 3 }));
        let long: &'static str = Box::leak("x".repeat(101).into_boxed_str());
        assert_eq!(read(long), Err(ExpositionError::PageBytes { bytes: 101, page_bytes_max: 100 }));
        let page = read("a{b=\"123456\"} 1\na{b=\"1\",c=\"2\"} 1\nlonger_than_forty_bytes_in_one_line 1.0000000000\nd 1\n").unwrap();
        assert_eq!((values(&page), page.skipped.len(), page.skipped_more), (vec![("d", 1.0)], 1, 2));
        assert!(page.incomplete.contains("longer_than_forty_bytes_in_one_line"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(page) = parse(&bytes, &Limits::default()) {
                prop_assert!(page.samples.iter().all(|line| line.value.is_finite()));
            }
        }

        #[test]
        fn no_likely_text_makes_it_panic(text in "([a-z:_]{0,3}[{]?([a-z]{0,2}=?\"?[a-z\\\\\"]{0,3}\"?,?){0,3}[}]? ?(1|NaN|# TYPE a counter|é| |\n){0,3}){0,6}") {
            let _page = parse(text.as_bytes(), &Limits::default());
        }

        #[test]
        fn what_is_written_is_read(value in -1e300..1e300_f64, label in "[ -~é\n]{0,20}") {
            let escaped = label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let text = format!("m{{l=\"{escaped}\"}} {value}\n");
            let page = parse(text.as_bytes(), &Limits::default()).unwrap();
            prop_assert_eq!(page.samples.len(), 1);
            prop_assert_eq!(page.samples[0].label("l"), Some(label.as_str()));
            prop_assert!((page.samples[0].value - value).abs() <= value.abs() * 1e-15);
        }
    }
}
