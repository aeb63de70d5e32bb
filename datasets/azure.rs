//! Azure's LLM inference traces (Microsoft; CC-BY-4.0), in their original formats. Both have the header
//! `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! 2023 ("Splitwise", ISCA 2024): one hour; lines ended by CR LF but for the last; times with seven fraction digits and no zone, taken as UTC.
//! 2024 ("`DynamoLLM`", HPCA 2025): one week; times with a zone, `2024-05-12 00:00:00.123456+00:00`, with or without a fraction.

use crate::demand::{OUT_OF_ORDER, Order, Record, Request};
use crate::rows::{Line, Parse, Row};
use crate::{Clock, DatasetError, DemandOptions, Format, read_demand};
use fleet::Timestamp;
use std::path::Path;

/// The header every file begins with.
pub(crate) const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reads the requests of one file of 2023, plain or gzipped, in order of time.
///
/// # Errors
/// When the file cannot be read, a row is not of the format, time runs backwards, or there is no request.
pub fn read_azure(path: &Path) -> Result<Vec<Request>, DatasetError> {
    let records = read_demand(path, Format::AzureLlm2023, &DemandOptions::default())?;
    records.filter_map(|record| record.map(|r| if let Record::Request(request) = r { Some(request) } else { None }).transpose()).collect()
}

/// Reads lines of 2023.
pub(crate) fn parse_2023() -> Parse<Record> {
    parse(|text| {
        let fraction = text.split_once('.')?.1;
        (fraction.len() == 7 && fraction.bytes().all(|b| b.is_ascii_digit())).then(|| Clock::Rfc3339.read(text)).flatten()
    })
}

/// Reads lines of 2024.
pub(crate) fn parse_2024() -> Parse<Record> {
    parse(|text| (text.len() > 19 && has_zone(text)).then(|| Clock::Rfc3339.read(text)).flatten())
}

/// Whether a text with date and time ends in a zone.
pub(crate) fn has_zone(text: &str) -> bool {
    text.ends_with('Z') || text.get(19..).is_some_and(|rest| rest.contains(['+', '-']))
}

fn parse(time: fn(&str) -> Option<(Timestamp, f64)>) -> Parse<Record> {
    let (mut header, mut order) = (true, Order::strict());
    Box::new(move |line: Line<'_>| {
        if std::mem::take(&mut header) {
            return if line.text.trim() == HEADER { Ok(None) } else { Err(line.refuse(line.text, format!("the header {HEADER}"))) };
        }
        let row = line.row()?;
        row.expect_fields(3)?;
        let at =
            time(row.text(0)).ok_or_else(|| row.refuse(row.text(0), "a time like 2023-11-16 18:17:03.9799600 (2023) or 2024-05-12 00:00:00+00:00 (2024)"))?;
        if !order.admits(at) {
            return Err(row.refuse(row.text(0), OUT_OF_ORDER));
        }
        Ok(Some(Record::Request(request(&row, at)?)))
    })
}

fn request(row: &Row<'_>, at: (Timestamp, f64)) -> Result<Request, DatasetError> {
    let tokens = |column| row.parse(column, |_: &u32| true, "a whole number of tokens").map(f64::from).map(Some);
    Ok(Request { input_tokens: tokens(1)?, output_tokens: tokens(2)?, ..Request::at(at.0, at.1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Request>, DatasetError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, text).unwrap();
        read_azure(&path)
    }

    #[test]
    fn reads_crlf_and_a_last_line_without_end() {
        let requests = read("TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8").unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!((requests[0].at.to_string().as_str(), requests[0].input_tokens), ("2023-11-16T18:17:03Z", Some(4_808.0)));
        assert!((requests[1].fraction - 0.031_96).abs() < 1e-9);
    }

    #[test]
    fn refuses_what_is_damaged_and_says_where() {
        let good = "2023-11-16 18:17:03.9799600,4808,10";
        for (bad, found) in [
            ("2023-11-16 18:17:04,1,1", "18:17:04"),
            ("2023-11-16 18:17:04.0000000,1", "3 fields"),
            ("2023-11-16 18:17:04.0000000,-1,1", "-1"),
            ("2023-11-16 18:17:04.0000000,1,", "tokens"),
            ("2023-11-16 18:17:02.0000000,1,1", "at or after"),
            ("2023-13-16 18:17:04.0000000,1,1", "2023-13-16"),
        ] {
            let message = read(&format!("TIMESTAMP,ContextTokens,GeneratedTokens\r\n{good}\r\n{bad}")).unwrap_err().to_string();
            assert!(message.contains("trace.csv:3") && message.contains(found), "{bad}: {message}");
        }
        assert!(read(good).unwrap_err().to_string().contains("header"));
        assert!(matches!(read(HEADER), Err(DatasetError::Empty { .. })));
    }

    #[test]
    fn the_week_of_2024_writes_times_in_two_ways() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.001163+00:00,1452,3\n2024-05-12 00:00:01+00:00,2,1\n";
        let read =
            |text: &'static str| crate::read_demand_from(text.as_bytes(), Path::new("week.csv"), Format::AzureLlm2024, &DemandOptions::default()).unwrap();
        let records: Result<Vec<Record>, DatasetError> = read(text).collect();
        let seconds: Vec<i64> = records.unwrap().iter().map(|r| r.at().0).collect();
        assert_eq!(seconds, [1_715_472_000, 1_715_472_001]);
        let bad = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.1,1,1\n";
        assert!(read(bad).next().unwrap().unwrap_err().to_string().contains("week.csv:2"));
    }

    #[test]
    fn the_published_traces_are_read_whole() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/azure-llm-2023"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        for (name, count, input, output) in [("code", 8_819, 2_048.0, 28.0), ("conv", 19_366, 1_155.0, 211.0)] {
            let requests = read_azure(&data.join(format!("AzureLLMInferenceTrace_{name}.csv.gz"))).unwrap();
            assert_eq!(requests.len(), count);
            let n: f64 = requests.iter().map(|_| 1.0).sum();
            let mean = |tokens: fn(&Request) -> Option<f64>| requests.iter().filter_map(tokens).sum::<f64>() / n;
            assert!((mean(|r| r.input_tokens) - input).abs() < 1.0 && (mean(|r| r.output_tokens) - output).abs() < 1.0);
            let (first, last) = (requests[0].at.to_string(), requests[count - 1].at.to_string());
            assert!(first.starts_with("2023-11-16T18:1") && last.starts_with("2023-11-16T19:1"), "{first} {last}");
        }
    }
}
