//! Mooncake's traces (Kimi; Apache-2.0; FAST 2025): JSON lines with `timestamp` (ms from the start), `input_length`, `output_length` (tokens) and
//! `hash_ids`, the ids of the prompt's consecutive 512-token blocks. Blocks with equal ids hold the same tokens after the same prefix, so the
//! leading blocks that were seen before are what a prefix cache answers.

use crate::demand::{OUT_OF_ORDER, Order, Record, Request};
use crate::rows::{Line, Parse};
use fleet::{Span, Timestamp};
use serde::Deserialize;
use std::collections::HashSet;

/// Tokens of a block.
const BLOCK_TOKENS: f64 = 512.0;
/// Blocks remembered, of each of two generations: 2 x 2 M x 512 tokens is more than any cache holds.
const BLOCKS_MAX: usize = 2_000_000;

/// A line.
#[derive(Debug, Deserialize)]
struct Spoken {
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    #[serde(default)]
    hash_ids: Option<Vec<u64>>,
}

/// A prefix cache that holds the blocks used last: when a generation is full, the one before it is forgotten.
#[derive(Debug, Default)]
struct Cache {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl Cache {
    /// Leading blocks that are held already; all are held afterwards.
    fn hits(&mut self, blocks: &[u64]) -> usize {
        let hits = blocks.iter().take_while(|b| self.young.contains(b) || self.old.contains(b)).count();
        for block in blocks {
            if self.young.len() >= BLOCKS_MAX {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(*block);
        }
        hits
    }
}

/// Reads its lines; `origin` is where time counts from.
pub(crate) fn parse(origin: Timestamp) -> Parse<Record> {
    let (mut order, mut cache) = (Order::strict(), Cache::default());
    Box::new(move |line: Line<'_>| {
        let expected = "a request {\"timestamp\", \"input_length\", \"output_length\", \"hash_ids\"}";
        let spoken: Spoken = serde_json::from_str(line.text).map_err(|error| line.refuse(line.text, format!("{expected} ({error})")))?;
        let millis = spoken.timestamp;
        let (second, fraction) =
            crate::Clock::Milliseconds.read(&millis.to_string()).ok_or_else(|| line.refuse(millis.to_string(), "milliseconds from the start"))?;
        if !order.admits((second, fraction)) {
            return Err(line.refuse(millis.to_string(), OUT_OF_ORDER));
        }
        let (input, output) = (tokens(spoken.input_length), tokens(spoken.output_length));
        let cached = spoken.hash_ids.map(|blocks| (blocks_of(cache.hits(&blocks)) * BLOCK_TOKENS).min(input));
        let request =
            Request { input_tokens: Some(input), output_tokens: Some(output), cached_tokens: cached, ..Request::at(origin + Span(second.0), fraction) };
        Ok(Some(Record::Request(request)))
    })
}

#[expect(clippy::cast_precision_loss, reason = "lengths of prompts lie far below 2^53; a damaged one need not be exact")]
fn tokens(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "blocks of one prompt")]
fn blocks_of(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DatasetError, DemandOptions, Format, read_demand, read_demand_from};
    use std::path::Path;

    fn read(text: String) -> Result<Vec<Request>, DatasetError> {
        let records = read_demand_from(std::io::Cursor::new(text), Path::new("m.jsonl"), Format::Mooncake, &DemandOptions::default())?;
        requests(records)
    }

    fn requests(records: crate::Demand) -> Result<Vec<Request>, DatasetError> {
        records.map(|r| r.map(|r| if let Record::Request(request) = r { request } else { panic!("a count") })).collect()
    }

    #[test]
    fn the_shared_beginning_of_prompts_is_cached() {
        let line = |t: u32, input: u32, ids: &str| format!("{{\"timestamp\": {t}, \"input_length\": {input}, \"output_length\": 5, \"hash_ids\": [{ids}]}}\n");
        // The third shares two blocks, not the one after a block of its own; the fourth is cached whole and no more than its length.
        let text = line(0, 1_500, "0, 1, 2") + &line(0, 600, "9, 1") + &line(7, 2_000, "0, 1, 8, 2") + &line(1_500, 1_400, "0, 1, 2");
        let requests = read(text).unwrap();
        let cached: Vec<f64> = requests.iter().map(|r| r.cached_tokens.unwrap()).collect();
        assert_eq!(cached, [0.0, 0.0, 1_024.0, 1_400.0]);
        assert_eq!((requests[3].at, requests[3].fraction), (Timestamp(1), 0.5));
    }

    #[test]
    fn a_full_cache_forgets_the_oldest() {
        let mut cache = Cache::default();
        let whole: Vec<u64> = (0..u64::try_from(BLOCKS_MAX).unwrap()).collect();
        cache.hits(&whole);
        assert_eq!(cache.hits(&[0, 1]), 2);
        let more: Vec<u64> = whole.iter().map(|b| b + 10_000_000).collect();
        cache.hits(&more);
        assert_eq!((cache.hits(&[5]), cache.hits(&[10_000_005])), (0, 1));
    }

    #[test]
    fn damage_is_refused_with_its_place() {
        let good = "{\"timestamp\": 10, \"input_length\": 5, \"output_length\": 5, \"hash_ids\": []}";
        for bad in
            ["{", "[]", "{\"timestamp\": 11}", &good.replace("10", "9"), &good.replace("10", "-9"), &good.replace('5', "-5"), &good.replace("10", "1e400")]
        {
            let message = read(format!("{good}\n{bad}\n")).unwrap_err().to_string();
            assert!(message.contains("m.jsonl:2"), "{bad}: {message}");
        }
    }

    /// Rows, tokens and the share of prefix hits as counted with other tools.
    #[test]
    fn the_published_traces_are_read_whole() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/mooncake"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        for (name, rows, input, output, cached, last) in
            [("conversation", 12_031, 144_793_823.0, 4_122_048.0, 54_098_411.0, 3_536), ("synthetic", 3_993, 61_194_628.0, 595_432.0, 39_852_661.0, 1_022)]
        {
            let path = data.join(format!("{name}_trace.jsonl.gz"));
            assert_eq!(Format::detect(&path).unwrap(), Format::Mooncake);
            let requests = requests(read_demand(&path, Format::Mooncake, &DemandOptions::default()).unwrap()).unwrap();
            let sum = |tokens: fn(&Request) -> Option<f64>| requests.iter().filter_map(tokens).sum::<f64>();
            assert_eq!((requests.len(), requests[rows - 1].at), (rows, Timestamp(last)));
            assert!((sum(|r| r.input_tokens) - input).abs() < 0.5 && (sum(|r| r.output_tokens) - output).abs() < 0.5);
            assert!((sum(|r| r.cached_tokens) - cached).abs() < 0.5);
        }
    }
}
