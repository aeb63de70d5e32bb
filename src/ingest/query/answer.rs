//! What a Prometheus API says, read: the JSON around every answer, and the series inside those to queries.
//!
//! Nothing is made up: a value that is no finite number (the string `NaN`, null, a word) is dropped and remembered as dropped, and an answer
//! without series is an answer without series. Format: <https://prometheus.io/docs/prometheus/latest/querying/api/>.

use serde::{Deserialize, Deserializer, de};
use std::{collections::BTreeMap, fmt};

/// Longest error text of a server that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// Labels of a series, `__name__` among them.
pub type Labels = BTreeMap<String, String>;

/// Why bytes are no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// Not the JSON of this API: a sign-in page, a cut answer, another service.
    #[error("it is not an answer of a Prometheus API: {0}")]
    NotUnderstood(String),
    /// The server says no, and why.
    #[error("it refuses: {kind}: {message}")]
    Refused {
        /// Its word for the kind of error (`bad_data`, `timeout`, `execution`).
        kind: String,
        /// Its words, shortened.
        message: String,
    },
    /// More series or points than allowed.
    #[error("it holds more than {what}")]
    TooMany {
        /// The limit.
        what: String,
    },
}

/// What the answer to a query may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimits {
    /// Series at most.
    pub series_max: usize,
    /// Points of all series together at most.
    pub points_max: usize,
}

impl Default for AnswerLimits {
    /// A thousand replicas with 200 series each; ten minutes of them at 15 s.
    fn default() -> Self {
        Self { series_max: 200_000, points_max: 8_000_000 }
    }
}

/// One series of an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its labels, `__name__` among them.
    pub labels: Labels,
    /// (milliseconds since the epoch, value), ascending, values finite.
    pub points: Vec<(i64, f64)>,
    /// Times whose value was no finite number.
    pub dropped: Vec<i64>,
}

impl Series {
    /// Name of the metric; empty where an expression took it away.
    #[must_use]
    pub fn name(&self) -> &str {
        self.labels.get("__name__").map_or("", String::as_str)
    }

    /// The value at exactly this time.
    #[must_use]
    pub fn at(&self, ms: i64) -> Option<f64> {
        self.points.binary_search_by_key(&ms, |(time, _)| *time).ok().map(|index| self.points[index].1)
    }
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// Its series. None is "unknown", never zero.
    pub series: Vec<Series>,
    /// What the server warns of: parts that did not answer (Thanos), limits that were reached.
    pub warnings: Vec<String>,
    /// Whether the server says that part of the data is missing.
    pub partial: bool,
}

/// What stands around the data of every answer.
#[derive(Deserialize)]
struct Envelope<T> {
    status: String,
    data: Option<T>,
    #[serde(rename = "errorType", default)]
    error_type: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    /// `VictoriaMetrics` says so here.
    #[serde(rename = "isPartial", default)]
    is_partial: Option<bool>,
}

/// Data of any answer, with the warnings beside it.
pub(crate) struct Opened<T> {
    pub data: Option<T>,
    pub warnings: Vec<String>,
    pub partial: bool,
}

/// Opens the JSON around an answer.
///
/// # Errors
/// When it is not that, or the server refuses.
pub(crate) fn open<T: de::DeserializeOwned>(body: &[u8]) -> Result<Opened<T>, AnswerError> {
    let envelope: Envelope<T> = serde_json::from_slice(body).map_err(|error| AnswerError::NotUnderstood(shorten(&error.to_string())))?;
    if envelope.status != "success" {
        let kind = shorten(&envelope.error_type.unwrap_or(envelope.status));
        return Err(AnswerError::Refused { kind, message: shorten(&envelope.error.unwrap_or_default()) });
    }
    let warnings: Vec<String> = envelope.warnings.unwrap_or_default().iter().map(|warning| shorten(warning)).collect();
    let partial = envelope.is_partial.unwrap_or(false) || warnings.iter().any(|warning| warning.contains("partial"));
    Ok(Opened { data: envelope.data, warnings, partial })
}

/// Printable, and not too long.
fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

#[derive(Deserialize)]
struct QueryData {
    #[serde(rename = "resultType")]
    result_type: String,
    /// Null where a server has nothing.
    result: Option<Vec<RawSeries>>,
}

#[derive(Deserialize)]
struct RawSeries {
    #[serde(default)]
    metric: Labels,
    #[serde(default)]
    value: Option<RawPoint>,
    #[serde(default)]
    values: Option<Vec<RawPoint>>,
}

/// Seconds, and the value or nothing usable.
#[derive(Deserialize)]
struct RawPoint(f64, RawValue);

/// A value: a string that says a number; anything else is nothing usable.
struct RawValue(Option<f64>);

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = RawValue;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number in a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawValue, E> {
                Ok(RawValue(text.parse().ok().filter(|value: &f64| value.is_finite())))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<RawValue, E> {
                Ok(RawValue(value.is_finite().then_some(value)))
            }
            #[expect(clippy::cast_precision_loss, reason = "a count beyond 2^53 is rounded, as everywhere in this API")]
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<RawValue, E> {
                Ok(RawValue(Some(value as f64)))
            }
            #[expect(clippy::cast_precision_loss, reason = "as above")]
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<RawValue, E> {
                Ok(RawValue(Some(value as f64)))
            }
            fn visit_unit<E: de::Error>(self) -> Result<RawValue, E> {
                Ok(RawValue(None))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads the answer to a query: a vector (one point a series) or a matrix.
///
/// # Errors
/// When it is no such answer, the server refuses, or it holds more than the limits allow.
pub fn parse_answer(body: &[u8], limits: &AnswerLimits) -> Result<Answer, AnswerError> {
    let Opened { data, warnings, partial } = open::<QueryData>(body)?;
    let Some(data) = data else { return Ok(Answer { series: Vec::new(), warnings, partial }) };
    if !matches!(data.result_type.as_str(), "vector" | "matrix") {
        return Err(AnswerError::NotUnderstood(format!("its resultType is {}", shorten(&data.result_type))));
    }
    let raw = data.result.unwrap_or_default();
    if raw.len() > limits.series_max {
        return Err(AnswerError::TooMany { what: format!("series_max = {}", limits.series_max) });
    }
    let mut points = 0;
    let mut series = Vec::with_capacity(raw.len());
    for raw in raw {
        points += raw.values.as_ref().map_or(1, Vec::len);
        if points > limits.points_max {
            return Err(AnswerError::TooMany { what: format!("points_max = {}", limits.points_max) });
        }
        series.push(read_series(raw));
    }
    Ok(Answer { series, warnings, partial })
}

fn read_series(raw: RawSeries) -> Series {
    let mut series = Series { labels: raw.metric, ..Series::default() };
    let mut last = i64::MIN;
    for RawPoint(seconds, RawValue(value)) in raw.value.into_iter().chain(raw.values.into_iter().flatten()) {
        // A time that does not fit, and one that goes back, is none.
        let Some(ms) = milliseconds(seconds).filter(|ms| *ms > last) else { continue };
        last = ms;
        match value {
            Some(value) => series.points.push((ms, value)),
            None => series.dropped.push(ms),
        }
    }
    series
}

/// Times of years 1970 to 5138: beyond them something is wrong.
const SECONDS_MAX: f64 = 1e11;

#[expect(clippy::cast_possible_truncation, reason = "bounded just before")]
fn milliseconds(seconds: f64) -> Option<i64> {
    (0.0..=SECONDS_MAX).contains(&seconds).then(|| (seconds * 1000.0).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &str) -> Result<Answer, AnswerError> {
        parse_answer(body.as_bytes(), &AnswerLimits::default())
    }

    fn vector(value: &str) -> String {
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{"__name__":"a","instance":"i"}},"value":[1796109030.788,{value}]}}]}}}}"#
        )
    }

    #[test]
    fn vectors_and_matrices_are_read() {
        let answer = read(&vector("\"1.5e3\"")).unwrap();
        assert_eq!((answer.series[0].name(), &answer.series[0].points[..]), ("a", &[(1_796_109_030_788, 1500.0)][..]));
        let matrix = r#"{"status":"success","isPartial":true,"warnings":["store x is away"],"data":{"resultType":"matrix","result":[
            {"metric":{"__name__":"b"},"values":[[1,"1"],[2,"NaN"],[3,"+Inf"],[4,"4"],[4,"5"],[3.5,"9"]]},{"metric":{},"histograms":[[1,{}]]}]}}"#;
        let answer = read(matrix).unwrap();
        assert_eq!((&answer.series[0].points[..], &answer.series[0].dropped[..]), (&[(1_000, 1.0), (4_000, 4.0)][..], &[2_000, 3_000][..]));
        assert_eq!((answer.series[0].at(4_000), answer.series[0].at(2_000), answer.series[1].name()), (Some(4.0), None, ""));
        assert!(answer.partial && answer.warnings == ["store x is away"]);
    }

    /// Field case 9: an empty list, a null, a newest point of null and a page of something else are no values.
    #[test]
    fn nothing_is_never_zero() {
        for body in [
            r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#,
            r#"{"status":"success","data":{"resultType":"matrix","result":null}}"#,
            r#"{"status":"success","data":null}"#,
            r#"{"status":"success"}"#,
        ] {
            assert!(read(body).unwrap().series.is_empty(), "{body}");
        }
        for value in ["null", "\"NaN\"", "\"\"", "\"-Inf\"", "\"1e400\"", "\"0.32%\""] {
            let answer = read(&vector(value)).unwrap();
            assert_eq!((answer.series[0].points.len(), answer.series[0].dropped.len()), (0, 1), "{value}");
        }
        for body in ["", "<html>sign in</html>", "[]", "{}", r#"{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}"#] {
            assert!(matches!(read(body), Err(AnswerError::NotUnderstood(_))), "{body}");
        }
    }

    #[test]
    fn a_refusal_says_why_and_limits_hold() {
        let refused = read(r#"{"status":"error","errorType":"bad_data","error":"parse\n error"}"#).unwrap_err();
        assert_eq!(refused, AnswerError::Refused { kind: "bad_data".into(), message: "parse error".into() });
        let body = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"],[2,"2"]]},{"metric":{},"values":[]}]}}"#;
        for (series_max, points_max) in [(1, 9), (9, 1)] {
            assert!(matches!(parse_answer(body.as_bytes(), &AnswerLimits { series_max, points_max }), Err(AnswerError::TooMany { .. })));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _answer = parse_answer(&bytes, &AnswerLimits::default());
        }

        #[test]
        fn no_likely_point_makes_it_panic(time in any::<f64>(), value in "(null|true|[0-9]{1,30}|-?1e[0-9]{1,3}|\"[ -~]{0,8}\"|\\[\\]|\\{\\})") {
            let body = format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{{"values":[[{time:e},{value}]]}}]}}}}"#);
            if let Ok(answer) = parse_answer(body.as_bytes(), &AnswerLimits::default()) {
                prop_assert!(answer.series[0].points.iter().all(|(_, value)| value.is_finite()));
            }
        }
    }
}
