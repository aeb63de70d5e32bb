//! `SageServe`'s week of Microsoft LLM traffic (MIT; POMACS 9(3), 2025), as recovered from the authors' vector figures: `t_s` (seconds from the
//! start, every minute) and one column for each pair of model and tier (`A_prod`, `B_dev`, ...) with the prompt tokens of that minute. There are
//! no request counts: the authors counted 7.2 million requests of 5,960 prompt tokens and 222 generated ones on average, and by that the tokens
//! are turned into requests. An empty field is missing.

use crate::demand::{Count, OUT_OF_ORDER, Order, Record};
use crate::rows::{Line, Parse, Row};
use crate::{Clock, DatasetError};
use fleet::{Span, Timestamp};

/// The first column.
pub(crate) const TIME: &str = "t_s";
/// Prompt tokens of a request, mean over the trace.
const INPUT_TOKENS: f64 = 5_960.0;
/// Generated tokens of a request, mean over the trace.
const OUTPUT_TOKENS: f64 = 222.0;

/// Reads one of its columns.
pub(crate) fn parse(origin: Timestamp, model: Option<String>) -> Parse<Record> {
    let mut columns: Option<(usize, usize)> = None;
    let mut order = Order::strict();
    Box::new(move |line: Line<'_>| {
        let row = line.row()?;
        let Some((time, value)) = columns else {
            columns = Some(find(&row, model.as_deref())?);
            return Ok(None);
        };
        let at = Clock::Seconds.read(row.text(time)).ok_or_else(|| row.refuse(row.text(time), "seconds from the start of the trace"))?;
        if !order.admits(at) {
            return Err(row.refuse(row.text(time), OUT_OF_ORDER));
        }
        let tokens = row.amount_if_any(value, "a number of tokens")?;
        Ok(tokens.map(|tokens| {
            Record::Count(Count {
                start: origin + Span(at.0.0),
                length: Span::MINUTE,
                requests: tokens / INPUT_TOKENS,
                input_tokens: Some(INPUT_TOKENS),
                output_tokens: Some(OUTPUT_TOKENS),
                model: model.clone(),
            })
        }))
    })
}

fn find(header: &Row<'_>, model: Option<&str>) -> Result<(usize, usize), DatasetError> {
    let [time] = header.columns([TIME])?;
    let models: Vec<&str> = (0..header.fields.len()).filter(|i| *i != time).map(|i| header.text(i)).collect();
    let chosen = model.and_then(|m| header.column(m)).filter(|i| *i != time);
    let value = chosen.ok_or_else(|| header.refuse(model.unwrap_or_default(), format!("the model to read (--model), one of {}", models.join(", "))))?;
    Ok((time, value))
}

#[cfg(test)]
mod tests {
    use crate::{DatasetError, DemandOptions, Format, Record, read_demand, read_demand_from};
    use std::path::Path;

    fn of(model: &str) -> DemandOptions {
        DemandOptions { model: Some(model.to_owned()), ..DemandOptions::default() }
    }

    #[test]
    fn a_column_is_chosen_and_an_empty_field_is_missing() {
        let text = "t_s,A_prod,B_dev\n0,5960,1\n60,,2\n120,0,3\n";
        let read = |options| read_demand_from(text.as_bytes(), Path::new("s.csv"), Format::SageServe, &options).unwrap();
        let records: Vec<Record> = read(of("A_prod")).collect::<Result<_, _>>().unwrap();
        let counts: Vec<(i64, f64)> = records.iter().map(|r| if let Record::Count(c) = r { (c.start.0, c.requests) } else { panic!("a request") }).collect();
        assert_eq!(counts, [(0, 1.0), (120, 0.0)]);
        let message = read(DemandOptions::default()).next().unwrap().unwrap_err().to_string();
        assert!(message.contains("A_prod, B_dev") && message.contains("--model"), "{message}");
    }

    #[test]
    fn the_recovered_week_is_read_whole() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/sageserve/input_tokens_1min.csv.gz"));
        if !path.is_file() {
            eprintln!("skipped: {} is not here", path.display());
            return;
        }
        assert_eq!(Format::detect(path).unwrap(), Format::SageServe);
        let records: Result<Vec<Record>, DatasetError> = read_demand(path, Format::SageServe, &of("C_dev")).unwrap().collect();
        let records = records.unwrap();
        let tokens: f64 = records.iter().map(|r| if let Record::Count(c) = r { c.requests * 5_960.0 } else { 0.0 }).sum();
        assert_eq!((records.len(), records[10_079].at().0), (10_080, 604_740));
        assert!((tokens - 725_097_172.0).abs() < 1.0, "{tokens}");
    }
}
