//! Whole values in string fields: packed (gzip, base64), cut into chunks that `InfluxDB` takes, and put together again with proof.
//!
//! A field `body` reads `CHUNKS CHECKSUM BASE64 ID`: how many chunks there are, the first 16 hexadecimal digits of the SHA-256 of the unpacked
//! value, this chunk's share of the packed value, and the id. The chunks differ by the tag `chunk`, counted from `0`; the first one also carries
//! the id alone and the numbers people can graph. All share one instant: that of the value, with the id's hash as fraction of the second, so
//! that two values of one second never meet.

use super::flux::Row;
use super::line::Line;
use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    io::{Read, Write},
};

/// Base64 of one chunk, bytes: a string field is documented to hold 65,536, its escapes included.
const CHUNK_BYTES_MAX: usize = 60_000;

/// Largest value that is unpacked, bytes.
const VALUE_BYTES_MAX: u64 = 512 << 20;

/// Most chunks of one value.
const CHUNKS_MAX: usize = 10_000;

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// One value on its way out.
pub(crate) struct Document<'a> {
    /// Measurement.
    pub kind: &'static str,
    /// Its id.
    pub id: &'a str,
    /// Where it stands, nanoseconds since 1970.
    pub at: i64,
    /// Tags beside `chunk`.
    pub tags: &'a [(&'a str, &'a str)],
    /// Numbers people can graph.
    pub numbers: &'a [(&'a str, f64)],
    /// The value.
    pub body: &'a [u8],
}

/// The instant a value stands at: its own in seconds, and its id's hash as the fraction.
pub(crate) fn stamp(seconds: i64, id: &str) -> i64 {
    let digest = Sha256::digest(id.as_bytes());
    let hash = digest.iter().take(4).fold(0_i64, |hash, byte| hash << 8 | i64::from(*byte));
    seconds.saturating_mul(SECOND).saturating_add(hash % SECOND)
}

fn checksum(body: &[u8]) -> String {
    Sha256::digest(body).iter().take(8).fold(String::with_capacity(16), |text, byte| text + &format!("{byte:02x}"))
}

impl Document<'_> {
    /// Its lines, the one with the numbers first; nothing when it is too large to be read back.
    pub(crate) fn lines(&self) -> Option<Vec<String>> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        let packed = packer.write_all(self.body).and_then(|()| packer.finish()).ok()?;
        let text = STANDARD.encode(packed);
        let chunks: Vec<&str> = text.as_bytes().chunks(CHUNK_BYTES_MAX).filter_map(|chunk| std::str::from_utf8(chunk).ok()).collect();
        if chunks.len() > CHUNKS_MAX || self.body.len() as u64 > VALUE_BYTES_MAX {
            return None;
        }
        let sum = checksum(self.body);
        let line = |(index, chunk): (usize, &&str)| {
            let mut line = self.tags.iter().fold(Line::of(self.kind), |line, (key, value)| line.tag(key, value)).tag("chunk", &index.to_string());
            if index == 0 {
                line = self.numbers.iter().fold(line.text("id", self.id), |line, (key, value)| line.number(key, *value));
            }
            line.text("body", &format!("{} {sum} {chunk} {}", chunks.len(), self.id)).at(self.at)
        };
        chunks.iter().enumerate().map(line).collect()
    }
}

/// Chunks of one value by number: how many there are, the checksum, and the share of the packed value.
type Chunks = BTreeMap<usize, (usize, String, String)>;

/// A value put together again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Whole {
    /// Where it stands, nanoseconds since 1970.
    pub at: i64,
    /// Its id.
    pub id: String,
    /// The value.
    pub body: Vec<u8>,
}

/// The values in rows of `_time`, `chunk` and `_value` (a `body`), in order of instant and id.
///
/// # Errors
/// Names the value that is not whole, and why.
pub(crate) fn assemble(rows: &[Row]) -> Result<Vec<Whole>, String> {
    let mut parts: BTreeMap<(i64, String), Chunks> = BTreeMap::new();
    for row in rows {
        let (at, body) = (row.time("_time").ok_or("a chunk has no instant")?, row.text("_value").unwrap_or_default());
        let index = row.cell("chunk").and_then(|index| index.parse().ok()).ok_or_else(|| format!("a chunk at {at} ns has no number"))?;
        let mut words = body.splitn(4, ' ');
        let mut word = || words.next().map(str::to_owned).ok_or_else(|| format!("the chunk at {at} ns is cut off"));
        let (count, sum, text, id) = (word()?, word()?, word()?, word()?);
        let count = count.parse().map_err(|_| format!("the chunk at {at} ns does not say how many there are"))?;
        parts.entry((at, id)).or_default().insert(index, (count, sum, text));
    }
    parts.into_iter().map(|((at, id), chunks)| Ok(Whole { at, body: unpack(&chunks).map_err(|why| format!("{id}: {why}"))?, id })).collect()
}

/// Chunks of one value: how many its first says there are, each with the same checksum. Those of an earlier, longer value of the same name and
/// instant may still stand behind them.
fn unpack(chunks: &Chunks) -> Result<Vec<u8>, String> {
    let (count, sum, _) = chunks.get(&0).ok_or("its first chunk is missing")?;
    if *count > CHUNKS_MAX {
        return Err(format!("it claims {count} chunks"));
    }
    let mut text = String::new();
    for index in 0..*count {
        match chunks.get(&index) {
            Some((_, own, part)) if own == sum => text.push_str(part),
            Some(_) => return Err(format!("chunk {index} belongs to another value")),
            None => return Err(format!("chunk {index} of {count} is missing")),
        }
    }
    let packed = STANDARD.decode(text).map_err(|error| error.to_string())?;
    let mut body = Vec::new();
    GzDecoder::new(packed.as_slice()).take(VALUE_BYTES_MAX).read_to_end(&mut body).map_err(|error| error.to_string())?;
    if checksum(&body) == *sum { Ok(body) } else { Err("its checksum does not agree".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::influx::flux;
    use proptest::prelude::*;

    /// Rows as the server would give the lines back.
    fn rows(lines: &[String]) -> Vec<Row> {
        let mut csv = "#datatype,string,long,dateTime:RFC3339,string,string\n#group,,,,,\n#default,,,,,\n,result,table,_time,chunk,_value\n".to_owned();
        for line in lines {
            let at = super::super::line::instant(line).unwrap();
            let time = jiff::Timestamp::from_nanosecond(at.into()).unwrap();
            let chunk = line.split("chunk=").nth(1).unwrap().split([',', ' ']).next().unwrap();
            let body = line.split("body=\"").nth(1).unwrap().rsplit_once('"').unwrap().0.replace("\\\"", "\"").replace("\\\\", "\\");
            csv.push_str(&[",r,0,", &time.to_string(), ",", chunk, ",\"", &body.replace('"', "\"\""), "\"\n"].concat());
        }
        flux::rows(csv.as_bytes()).unwrap()
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let next = |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        (0..bytes).map(next).collect()
    }

    fn document<'a>(id: &'a str, body: &'a [u8]) -> Document<'a> {
        Document { kind: "plan", id, at: stamp(1_700_000_000, id), tags: &[("workload", "a b")], numbers: &[("cost", 1.5), ("gap", f64::NAN)], body }
    }

    #[test]
    fn a_large_value_goes_in_chunks_and_comes_back() {
        let (one, two) = (noise(200_000), noise(10));
        let mut lines = document("p 1", &one).lines().unwrap();
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.len() < 65_536));
        assert!(lines[0].contains("cost=1.5") && lines[0].contains("id=\"p 1\"") && !lines[1].contains("cost"));
        lines.reverse();
        lines.extend(document("p 2", &two).lines().unwrap());
        let mut back: Vec<_> = assemble(&rows(&lines)).unwrap().into_iter().map(|whole| (whole.id, whole.body)).collect();
        back.sort();
        assert_eq!(back, [("p 1".to_owned(), one), ("p 2".to_owned(), two)]);
    }

    #[test]
    fn a_missing_or_foreign_chunk_is_told() {
        let (one, two) = (noise(100_000), noise(150_000));
        let (lines, others) = (document("p", &one).lines().unwrap(), document("p", &two).lines().unwrap());
        assert!(assemble(&rows(&lines[..2])).unwrap_err().contains("chunk 2 of 3 is missing"));
        assert!(assemble(&rows(&lines[1..])).unwrap_err().contains("first chunk"));
        assert!(assemble(&rows(&[lines[0].clone(), others[1].clone(), lines[2].clone()])).unwrap_err().contains("another value"));
        // A shorter value took the place of a longer one: what is left of the longer one does no harm.
        assert_eq!(assemble(&rows(&[lines.clone(), vec![others[3].clone()]].concat())).unwrap()[0].body, one);
    }

    proptest! {
        #[test]
        fn any_value_comes_back(id in "\\PC{1,40}", body in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let whole = assemble(&rows(&document(&id, &body).lines().unwrap())).unwrap();
            prop_assert_eq!(&whole[0].id, &id);
            prop_assert_eq!(&whole[0].body, &body);
        }
    }
}
