//! Prometheus text exposition (0.0.4, and what of `OpenMetrics` text differs from it): one page in, samples out.
//!
//! Strict about bytes, tolerant by line: a line that makes no sense costs itself and is reported with its reason, never the page. Values
//! that are not finite are skipped the same way, since NaN is how exporters say "nothing". Grammar:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use crate::page::{Entry, Label};
pub use crate::page::{Family, Line, Page, Wanted};
use memchr::{memchr_iter, memchr2};
use std::borrow::Cow;
use std::collections::BTreeMap;

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

/// Reads a page.
///
/// # Errors
/// When the page as a whole exceeds a limit.
pub fn parse<'a>(page: &'a [u8], limits: &Limits) -> Result<Page<'a>, ExpositionError> {
    read_page(page, limits, |_| true)
}

/// Reads the samples of wanted names; of all others only that they are there, for the limits.
///
/// # Errors
/// When the page as a whole exceeds a limit.
pub fn parse_wanted<'a>(page: &'a [u8], limits: &Limits, wanted: &Wanted) -> Result<Page<'a>, ExpositionError> {
    parse_named(page, limits, |name| wanted.contains(name))
}

/// As [`parse_wanted`], with any way to say which names are wanted.
pub(crate) fn parse_named<'a>(page: &'a [u8], limits: &Limits, wanted: impl Fn(&str) -> bool) -> Result<Page<'a>, ExpositionError> {
    // Series of one name stand together, so one look serves many lines.
    let mut last = ("", false);
    read_page(page, limits, move |name| {
        if last.0 != name {
            last = (name, wanted(name));
        }
        last.1
    })
}

fn read_page<'a>(page: &'a [u8], limits: &Limits, mut wanted: impl FnMut(&'a str) -> bool) -> Result<Page<'a>, ExpositionError> {
    if page.len() > limits.page_bytes_max {
        return Err(ExpositionError::PageBytes { bytes: page.len(), page_bytes_max: limits.page_bytes_max });
    }
    let mut out = Page::default();
    let mut unwanted = 0;
    // Checked once for all lines; where one line is damaged, each is checked on its own.
    let text = std::str::from_utf8(page).ok();
    let mut start = 0;
    for end in memchr_iter(b'\n', page).chain([page.len()]) {
        let (from, to) = (start, end);
        start = end + 1;
        let raw = &page[from..to];
        if out.entries.len() + unwanted > limits.samples_max {
            return Err(ExpositionError::Samples { samples_max: limits.samples_max });
        }
        let name = name_of(raw);
        if !name.is_empty() && !wanted(name) {
            unwanted += 1;
            continue;
        }
        if raw.len() > limits.line_bytes_max {
            out.skip(name, "line longer than line_bytes_max", limits);
            continue;
        }
        let Some(line) = text.map_or_else(|| std::str::from_utf8(raw).ok(), |text| text.get(from..to)) else {
            out.skip(name, "not UTF-8", limits);
            continue;
        };
        let line = trim(line);
        match line.as_bytes().first() {
            None => {}
            Some(b'#') => read_type(&line[1..], &mut out.types, &mut wanted),
            Some(_) => read_sample(line, name, limits, &mut out),
        }
    }
    if out.entries.len() + unwanted > limits.samples_max {
        return Err(ExpositionError::Samples { samples_max: limits.samples_max });
    }
    Ok(out)
}

/// The name a line begins with; nothing where it begins otherwise.
fn name_of(line: &[u8]) -> &str {
    let start = line.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    let line = &line[start..];
    let end = line.iter().position(|byte| !is_name_byte(*byte)).unwrap_or(line.len());
    std::str::from_utf8(&line[..end]).unwrap_or_default()
}

/// Without blanks, tabs and the carriage return at either end.
fn trim(line: &str) -> &str {
    let line = trim_start(line);
    let end = line.bytes().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\r')).map_or(0, |last| last + 1);
    &line[..end]
}

fn trim_start(text: &str) -> &str {
    &text[text.bytes().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(text.len())..]
}

/// Up to the first blank or tab, and what follows it.
fn first_word(text: &str) -> (&str, &str) {
    let text = trim_start(text);
    text.split_at(memchr2(b' ', b'\t', text.as_bytes()).unwrap_or(text.len()))
}

/// `# TYPE name kind`; any other comment says nothing to us.
fn read_type<'a>(comment: &'a str, types: &mut BTreeMap<&'a str, Family>, wanted: &mut impl FnMut(&'a str) -> bool) {
    let (word, rest) = first_word(comment);
    if word != "TYPE" {
        return;
    }
    let (name, rest) = first_word(rest);
    let (kind, _) = first_word(rest);
    if name.is_empty() || kind.is_empty() || !wanted(name) {
        return;
    }
    let family = match kind {
        "counter" => Family::Counter,
        "gauge" => Family::Gauge,
        "histogram" => Family::Histogram,
        "summary" => Family::Summary,
        _ => Family::Other,
    };
    types.insert(name, family);
}

/// Adds a line's sample to the page, or its name and reason to what was skipped.
fn read_sample<'a>(line: &'a str, name: &'a str, limits: &Limits, page: &mut Page<'a>) {
    let rest = &line[name.len()..];
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        page.skip("", "no metric name at its start", limits);
        return;
    }
    let start = page.labels.len();
    match read_rest(rest, limits, &mut page.labels) {
        Ok(value) => page.entries.push(Entry { name, labels: (start, page.labels.len()), value }),
        Err(reason) => {
            page.labels.truncate(start);
            page.skip(name, reason, limits);
        }
    }
}

/// `{label="value",...} value [time] [# exemplar]`: labels into the list, the value back.
fn read_rest<'a>(rest: &'a str, limits: &Limits, labels: &mut Vec<Label<'a>>) -> Result<f64, Cow<'static, str>> {
    let rest = trim_start(rest);
    let rest = match rest.strip_prefix('{') {
        Some(inside) => read_labels(inside, limits, labels)?,
        None => rest,
    };
    let (word, rest) = first_word(rest);
    let value = word.parse::<f64>().map_err(|_| format!("{:?} is not a number", shorten(word)))?;
    if !value.is_finite() {
        return Err(format!("{} is not finite", shorten(word)).into());
    }
    match first_word(rest).0 {
        time if !time.is_empty() && !time.starts_with('#') && time.parse::<f64>().is_err() => Err(format!("{:?} is not a time", shorten(time)).into()),
        _ => Ok(value),
    }
}

/// The labels after `{` into the list, sorted; what follows `}` back.
fn read_labels<'a>(mut rest: &'a str, limits: &Limits, labels: &mut Vec<Label<'a>>) -> Result<&'a str, &'static str> {
    let start = labels.len();
    let mut ascending = true;
    loop {
        rest = trim_start(rest);
        if let Some(after) = rest.strip_prefix('}') {
            let own = &mut labels[start..];
            if !ascending {
                own.sort_unstable_by(|a, b| a.0.cmp(b.0));
            }
            return if own.windows(2).any(|pair| pair[0].0 == pair[1].0) { Err("a label is given twice") } else { Ok(after) };
        }
        if labels.len() - start == limits.labels_max {
            return Err("more labels than labels_max");
        }
        let end = rest.bytes().position(|byte| !is_name_byte(byte)).ok_or("labels do not end")?;
        let name = &rest[..end];
        if name.is_empty() {
            return Err("a label without a name");
        }
        let quoted = trim_start(&rest[end..]).strip_prefix('=').ok_or("a label without a value")?;
        let quoted = trim_start(quoted).strip_prefix('"').ok_or("a label's value is not quoted")?;
        let (value, after) = read_quoted(quoted)?;
        if value.len() > limits.label_bytes_max {
            return Err("a label's value is longer than label_bytes_max");
        }
        ascending &= labels[start..].last().is_none_or(|(before, _)| *before < name);
        labels.push((name, value));
        let after = trim_start(after);
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return Err("labels are not separated by commas"),
        };
    }
}

/// Text up to the closing quote with `\\`, `\"` and `\n` resolved, and what follows.
fn read_quoted(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    let stop = memchr2(b'"', b'\\', text.as_bytes()).ok_or("a label's value does not end")?;
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
    use fleet::SkippedSample;
    use proptest::prelude::*;

    fn read(page: &str) -> Page<'_> {
        parse(page.as_bytes(), &Limits::default()).unwrap()
    }

    fn values<'a>(page: &'a Page<'a>) -> Vec<(&'a str, f64)> {
        page.lines().map(|line| (line.name, line.value)).collect()
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
        assert_eq!(page.lines().next().unwrap().label("path"), Some("C:\\x\n\"q\"\\d"));
        assert_eq!(page.lines().nth(2).unwrap().label("le"), Some("+Inf"));
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
            assert!(page.is_empty(), "{line}");
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
                prop_assert!(page.lines().all(|line| line.value.is_finite()));
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
            prop_assert_eq!(page.len(), 1);
            prop_assert_eq!(page.lines().next().unwrap().label("l"), Some(label.as_str()));
            prop_assert!((page.lines().next().unwrap().value - value).abs() <= value.abs() * 1e-15);
        }
    }
}
