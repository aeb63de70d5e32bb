//! `BurstGPT` (HPMLL; CC-BY-4.0; arXiv 2401.17644): requests to `ChatGPT` and GPT-4 of a campus, in its published columns
//! `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`; later releases add `Session ID` and `Elapsed time`.
//!
//! `Timestamp` counts seconds from midnight of the first day, local time. A request that failed has 0 response tokens: it arrived all the same,
//! and how long its answer would have been is not known.

use crate::Clock;
use crate::demand::{OUT_OF_ORDER, Order, Record, Request};
use crate::rows::{Line, Parse};
use fleet::{Span, Timestamp};

/// Columns by which the format is recognised.
pub(crate) const COLUMNS: [&str; 4] = ["Timestamp", "Model", "Request tokens", "Response tokens"];

/// Reads its lines; `origin` is midnight of the first day.
pub(crate) fn parse(origin: Timestamp) -> Parse<Record> {
    let mut columns: Option<[usize; 4]> = None;
    let mut order = Order::lenient();
    Box::new(move |line: Line<'_>| {
        let row = line.row()?;
        let Some([time, model, input, output]) = columns else {
            columns = Some(row.columns(COLUMNS)?);
            return Ok(None);
        };
        let (second, fraction) = Clock::Seconds.read(row.text(time)).ok_or_else(|| row.refuse(row.text(time), "seconds from the start of the trace"))?;
        if !order.admits((second, fraction)) {
            return Err(row.refuse(row.text(time), OUT_OF_ORDER));
        }
        let tokens = |column| row.amount(column, "a number of tokens").map(|n| (n > 0.0).then_some(n));
        let (input_tokens, output_tokens) = (tokens(input)?, tokens(output)?);
        let model = Some(row.text(model)).filter(|m| !m.is_empty()).map(str::to_owned);
        Ok(Some(Record::Request(Request { input_tokens, output_tokens, model, ..Request::at(origin + Span(second.0), fraction) })))
    })
}

#[cfg(test)]
mod tests {
    use crate::{DatasetError, DemandOptions, Format, Record, read_demand_from};
    use fleet::Timestamp;
    use std::path::Path;

    fn read(text: &'static str, model: Option<&str>) -> Result<Vec<Record>, DatasetError> {
        let options = DemandOptions { origin: Timestamp(1_000_000), model: model.map(str::to_owned), ..DemandOptions::default() };
        read_demand_from(text.as_bytes(), Path::new("b.csv"), Format::BurstGpt, &options)?.collect()
    }

    const OLD: &str =
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,API log\n";
    const NEW: &str = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5.5,,1.2,ChatGPT,472,18,490,API log\n";

    #[test]
    fn both_releases_are_read_and_a_failed_request_arrived() {
        let records = read(OLD, None).unwrap();
        let Record::Request(failed) = &records[1] else { panic!("a count") };
        assert_eq!((failed.at, failed.input_tokens, failed.output_tokens, failed.model.as_deref()), (Timestamp(1_000_045), Some(1_087.0), None, Some("GPT-4")));
        let Record::Request(new) = &read(NEW, None).unwrap()[0] else { panic!("a count") };
        assert_eq!((new.at, new.fraction, new.output_tokens), (Timestamp(1_000_005), 0.5, Some(18.0)));
    }

    #[test]
    fn one_model_can_be_asked_for() {
        assert_eq!(read(OLD, Some("GPT-4")).unwrap().len(), 1);
        assert!(matches!(read(OLD, Some("GPT-5")), Err(DatasetError::Empty { .. })));
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        for bad in ["x,ChatGPT,1,1,2,API log", "9,ChatGPT,NaN,1,2,API log", "9,ChatGPT", "-1,ChatGPT,1,1,2,API log"] {
            let text: &'static str = Box::leak(format!("{OLD}{bad}\n").into_boxed_str());
            let message = read(text, None).unwrap_err().to_string();
            assert!(message.contains("b.csv:4"), "{bad}: {message}");
        }
        assert!(read("a,b\n1,2\n", None).unwrap_err().to_string().contains("Timestamp"));
    }
}
