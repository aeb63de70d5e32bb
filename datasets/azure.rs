//! Azure's LLM inference trace of 2023 (Microsoft; CC-BY-4.0; "Splitwise", ISCA 2024), in its original format: header
//! `TIMESTAMP,ContextTokens,GeneratedTokens`, lines ended by CR LF but for the last, times with seven fraction digits and no zone (taken as UTC).

use crate::DatasetError;
use crate::rows::{Row, for_each_row};
use fleet::Timestamp;
use std::path::Path;

/// One request of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    /// Second it arrived in.
    pub at: Timestamp,
    /// Part of that second that had passed, 0..1.
    pub fraction: f64,
    /// Prompt tokens.
    pub input_tokens: f64,
    /// Generated tokens.
    pub output_tokens: f64,
}

/// The header every file begins with.
const HEADER: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";

/// Reads the requests of one file, plain or gzipped, in order of time.
///
/// # Errors
/// When the file cannot be read, a row is not of the format, time runs backwards, or there is no request.
pub fn read_azure(path: &Path) -> Result<Vec<Request>, DatasetError> {
    let mut requests: Vec<Request> = Vec::new();
    let mut header = true;
    for_each_row(path, |row| {
        if std::mem::take(&mut header) {
            let found = row.fields.join(",");
            return if found.trim_start_matches('\u{feff}') == HEADER { Ok(()) } else { Err(row.refuse(found, format!("the header {HEADER}"))) };
        }
        let request = parse(row)?;
        if requests.last().is_some_and(|last| (last.at, last.fraction) > (request.at, request.fraction)) {
            return Err(row.refuse(&row.fields[0], "at or after the request before"));
        }
        requests.push(request);
        Ok(())
    })?;
    if requests.is_empty() {
        return Err(DatasetError::Empty { path: path.to_owned(), what: "requests".into() });
    }
    Ok(requests)
}

fn parse(row: &Row) -> Result<Request, DatasetError> {
    row.expect_fields(3)?;
    let text = &row.fields[0];
    let refuse = || row.refuse(text, "a time like 2023-11-16 18:17:03.9799600");
    let (second, fraction) = text.split_once('.').ok_or_else(refuse)?;
    if fraction.len() != 7 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refuse());
    }
    let (day, clock) = second.split_once(' ').ok_or_else(refuse)?;
    let at: Timestamp = format!("{day}T{clock}Z").parse().map_err(|_| refuse())?;
    let ticks: u32 = fraction.parse().map_err(|_| refuse())?;
    let tokens = |column| row.parse(column, |_: &u32| true, "a whole number of tokens").map(f64::from);
    Ok(Request { at, fraction: f64::from(ticks) / 1e7, input_tokens: tokens(1)?, output_tokens: tokens(2)? })
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
        assert_eq!((requests[0].at.to_string().as_str(), requests[0].input_tokens), ("2023-11-16T18:17:03Z", 4_808.0));
        assert!((requests[1].fraction - 0.031_96).abs() < 1e-12);
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
            let mean = |tokens: fn(&Request) -> f64| requests.iter().map(tokens).sum::<f64>() / n;
            assert!((mean(|r| r.input_tokens) - input).abs() < 1.0 && (mean(|r| r.output_tokens) - output).abs() < 1.0);
        }
    }
}
