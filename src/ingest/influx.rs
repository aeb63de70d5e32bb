//! An `InfluxDB` 2 that is there already, as a source: what others wrote into its buckets, by Flux.
//!
//! Which measurement and field is which signal is a table ([`FieldMap`]); one is built in for what Telegraf's `nvidia_smi` plugin writes.
//! An answer without rows, one that breaks off and a page of something else are "unknown": no scrapes, or an error; never zero.

mod annotated;

pub use annotated::{AnnotatedError, Row, read_rows};

use crate::IngestError;
use fleet::{Device, MemberId, Reading, Sample, Scrape, Signal, SignalKind, SkippedSample, Span, TargetId, Timestamp};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Auth, Client, Method, Redacted, Secret};

/// Damaged values a scrape names at most.
const SKIPPED_MAX: usize = 100;
/// Longest stretch one query asks for.
const CHUNK: Span = Span(3_600);

/// Which field of which measurement is which signal.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldMap {
    /// Measurement.
    pub measurement: String,
    /// Field.
    pub field: String,
    /// What it is: a gauge or a counter. Histograms have no one field.
    pub signal: Signal,
    /// What a value is multiplied with to be in the signal's unit (0.01 for per cent, 1,048,576 for MiB).
    pub scale: f64,
}

/// Which points are whose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The target they are of.
    pub target: TargetId,
    /// Tags they have (`host="gpu-1"`).
    pub select: BTreeMap<String, String>,
}

/// A bucket and what is read of it.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Address of the server.
    pub url: String,
    /// Organisation.
    pub org: String,
    /// Bucket.
    pub bucket: String,
    /// Token that may read it.
    pub token: Secret,
    /// What its fields are.
    pub fields: Vec<FieldMap>,
    /// Tag that tells the members of a target apart (`uuid`), where there is one.
    pub member: Option<String>,
    /// Whose points are whose.
    pub targets: Vec<Selected>,
}

/// What Telegraf's `nvidia_smi` input writes; its members are told apart by `uuid`. Percentages are whole numbers there, memory is in MiB.
#[must_use]
pub fn nvidia_smi() -> Vec<FieldMap> {
    const MIB: f64 = 1_048_576.0;
    [
        ("utilization_gpu", Signal::GpuUtilisation, 0.01),
        ("memory_used", Signal::GpuMemoryUsed, MIB),
        ("memory_free", Signal::GpuMemoryFree, MIB),
        ("memory_total", Signal::GpuMemoryTotal, MIB),
        ("power_draw", Signal::GpuPower, 1.0),
        ("temperature_gpu", Signal::GpuTemperature, 1.0),
    ]
    .into_iter()
    .map(|(field, signal, scale)| FieldMap { measurement: "nvidia_smi".into(), field: field.into(), signal, scale })
    .collect()
}

/// Reads the scrapes of a stretch of time, in order of time, then of target; `every` joins the points of a step to their last one, which
/// a long past needs. Live use asks for the last few intervals and keeps what is new.
///
/// # Errors
/// When the server cannot be reached, refuses, the query fails, or the answer is something else. What earlier chunks gave is lost; ask again
/// from where the last good call ended.
pub async fn read(client: &Client, bucket: &Bucket, from: Timestamp, to: Timestamp, every: Option<Span>) -> Result<Vec<Scrape>, IngestError> {
    let mut out = Vec::new();
    let mut start = from;
    while start < to {
        let end = to.min(start + CHUNK);
        let body = ask(client, bucket, &flux(bucket, start, end, every)).await?;
        let refuse = |reason| IngestError::Annotated { url: Redacted::new(&bucket.url), reason };
        out.extend(scrapes(&body, bucket).map_err(refuse)?);
        start = end;
    }
    Ok(out)
}

async fn ask(client: &Client, bucket: &Bucket, flux: &str) -> Result<Vec<u8>, IngestError> {
    let org = form_urlencoded::Serializer::new(String::new()).append_pair("org", &bucket.org).finish();
    let url = format!("{}/api/v2/query?{org}", bucket.url.trim_end_matches('/'));
    let dialect = json!({ "header": true, "delimiter": ",", "annotations": ["datatype", "group", "default"] });
    let body = json!({ "query": flux, "type": "flux", "dialect": dialect }).to_string().into_bytes();
    let headers = [("content-type", "application/json"), ("accept", "application/csv")];
    let answer = client.send(Method::POST, &url, &Auth::Token(bucket.token.clone()), &headers, body).await?.success()?;
    Ok(answer.body)
}

/// The query for `[from, to)`.
fn flux(bucket: &Bucket, from: Timestamp, to: Timestamp, every: Option<Span>) -> String {
    let mut fields: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for map in &bucket.fields {
        fields.entry(&map.measurement).or_default().insert(&map.field);
    }
    let wanted = fields.iter().map(|(measurement, fields)| {
        let fields: Vec<String> = fields.iter().map(|field| format!("r._field == {}", quoted(field))).collect();
        format!("(r._measurement == {} and ({}))", quoted(measurement), fields.join(" or "))
    });
    let wanted: Vec<String> = wanted.collect();
    let step = every.map_or_else(String::new, |every| format!(" |> aggregateWindow(every: {}s, fn: last, createEmpty: false)", every.0.max(1)));
    let (name, from, to, wanted) = (quoted(&bucket.bucket), from.0, to.0, wanted.join(" or "));
    format!("from(bucket: {name}) |> range(start: {from}, stop: {to}) |> filter(fn: (r) => {wanted}){step}")
}

/// A text as a string of Flux: `${` would be taken for an expression.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace("${", "\\${").replace('\n', "\\n").replace('\r', "\\r");
    format!("\"{escaped}\"")
}

/// What the points of one target at one instant say.
#[derive(Default)]
struct Look {
    samples: BTreeMap<(Signal, Option<MemberId>), f64>,
    devices: BTreeMap<MemberId, Device>,
    skipped: Vec<SkippedSample>,
}

/// The scrapes in an answer to a Flux query.
///
/// # Errors
/// When it is none.
pub fn scrapes(body: &[u8], bucket: &Bucket) -> Result<Vec<Scrape>, AnnotatedError> {
    let mut looks: BTreeMap<(Timestamp, &TargetId), Look> = BTreeMap::new();
    read_rows(body, |row| {
        let cell = |name: &str| row.iter().find(|(column, _)| *column == name).map(|(_, value)| *value);
        let Some(at) = cell("_time").and_then(|time| time.parse::<Timestamp>().ok()) else { return };
        let (measurement, field) = (cell("_measurement").unwrap_or_default(), cell("_field").unwrap_or_default());
        for selected in bucket.targets.iter().filter(|selected| selected.select.iter().all(|(tag, value)| cell(tag) == Some(value.as_str()))) {
            for map in bucket.fields.iter().filter(|map| map.measurement == measurement && map.field == field) {
                let look = looks.entry((at, &selected.target)).or_default();
                look.take(map, bucket.member.as_deref(), &cell);
            }
        }
    })?;
    Ok(looks.into_iter().map(|((at, target), look)| look.scrape(target, at)).collect())
}

impl Look {
    fn take<'a>(&mut self, map: &FieldMap, member: Option<&str>, cell: &impl Fn(&str) -> Option<&'a str>) {
        let said = cell("_value").unwrap_or_default();
        let value = said.parse::<f64>().ok().map(|value| value * map.scale).filter(|value| value.is_finite() && *value >= 0.0);
        let member = member.and_then(cell).map(MemberId::new);
        match (value, member) {
            (Some(value), None) => {
                self.samples.insert((map.signal, None), value);
            }
            (Some(value), Some(Ok(member))) => {
                if map.signal.of_gpu() {
                    self.devices.entry(member.clone()).or_insert_with(|| Device {
                        uuid: cell("uuid").map(str::to_owned),
                        node: cell("host").map(str::to_owned),
                        index: cell("index").and_then(|index| index.parse().ok()),
                        product: cell("name").map(str::to_owned),
                        mig: None,
                        holder: None,
                        member: member.clone(),
                    });
                }
                self.samples.insert((map.signal, Some(member)), value);
            }
            (None, _) | (_, Some(Err(_))) if self.skipped.len() < SKIPPED_MAX => {
                let reason = format!("{:?} is no value of it", said.chars().take(32).collect::<String>());
                self.skipped.push(SkippedSample { metric: format!("{}.{}", map.measurement, map.field), reason });
            }
            _ => {}
        }
    }

    fn scrape(self, target: &TargetId, at: Timestamp) -> Scrape {
        if self.samples.is_empty() {
            return Scrape { skipped: self.skipped, ..Scrape::failed(target.clone(), at, "its points hold no usable value") };
        }
        // A histogram has no one field: such a mapping is refused when it is made, and left out here.
        let samples = self.samples.into_iter().filter(|((signal, _), _)| signal.kind() != SignalKind::Histogram);
        let samples = samples.map(|((signal, member), value)| Sample { signal, member, value: Reading::Scalar(value) }).collect();
        Scrape { devices: self.devices.into_values().collect(), skipped: self.skipped, ..Scrape::read(target.clone(), at, samples) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn bucket(url: String) -> Bucket {
        let select = |host: &str| BTreeMap::from([("host".to_owned(), host.to_owned())]);
        let targets = ["a", "b"].map(|name| Selected { target: TargetId::new(name).unwrap(), select: select(&format!("gpu-{name}")) });
        Bucket {
            url,
            org: "my org".into(),
            bucket: "telegraf".into(),
            token: Secret::new("pa55"),
            fields: nvidia_smi(),
            member: Some("uuid".into()),
            targets: targets.to_vec(),
        }
    }

    const ANSWER: &str = concat!(
        "#datatype,string,long,dateTime:RFC3339,long,string,string,string,string,string,string\n#group,false,false,false,false,true,true,true,true,true,true\n",
        "#default,_result,,,,,,,,,\n,result,table,_time,_value,_field,_measurement,host,uuid,index,name\n",
        ",,0,2026-12-01T10:00:00.5Z,80,utilization_gpu,nvidia_smi,gpu-a,GPU-1,0,H100\n",
        ",,0,2026-12-01T10:00:00.5Z,,utilization_gpu,nvidia_smi,gpu-a,GPU-2,1,H100\n",
        ",,1,2026-12-01T10:00:00.5Z,1024,memory_used,nvidia_smi,gpu-a,GPU-1,0,H100\n",
        ",,1,2026-12-01T10:00:15Z,1,memory_used,nvidia_smi,gpu-b,GPU-3,0,H100\n",
        ",,1,2026-12-01T10:00:15Z,1,memory_used,nvidia_smi,gpu-c,GPU-4,0,H100\n",
    );

    #[test]
    fn what_telegraf_wrote_becomes_scrapes_with_devices() {
        let scrapes = scrapes(ANSWER.as_bytes(), &bucket(String::new())).unwrap();
        let [first, second] = &scrapes[..] else { panic!("{scrapes:?}") };
        assert_eq!((first.target.as_str(), first.at, second.target.as_str()), ("a", "2026-12-01T10:00:00Z".parse().unwrap(), "b"));
        assert_eq!((first.scalar(Signal::GpuUtilisation), first.scalar(Signal::GpuMemoryUsed)), (Some(0.8), Some(1024.0 * 1_048_576.0)));
        assert_eq!((first.devices.len(), first.devices[0].uuid.as_deref(), first.devices[0].index), (1, Some("GPU-1"), Some(0)));
        assert_eq!(first.skipped[0].metric, "nvidia_smi.utilization_gpu");
    }

    /// Field case 9: an answer without rows is no scrape, not a zero.
    #[test]
    fn an_empty_answer_gives_nothing() {
        assert!(scrapes(b"", &bucket(String::new())).unwrap().is_empty());
        assert!(scrapes(b"<html>", &bucket(String::new())).is_err());
    }

    #[test]
    fn names_cannot_leave_their_quotes() {
        let mut bucket = bucket(String::new());
        bucket.bucket = "a\") |> drop() // ${secret}\\".into();
        bucket.fields.truncate(1);
        assert_eq!(
            flux(&bucket, Timestamp(10), Timestamp(20), Some(Span(60))),
            "from(bucket: \"a\\\") |> drop() // \\${secret}\\\\\") |> range(start: 10, stop: 20) |> filter(fn: (r) => (r._measurement == \"nvidia_smi\" and (r._field == \"utilization_gpu\"))) |> aggregateWindow(every: 60s, fn: last, createEmpty: false)"
        );
    }

    #[tokio::test]
    async fn a_server_is_asked_in_chunks_and_no_error_shows_the_token() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in [
                format!("200 OK\r\ncontent-length: {}\r\n\r\n{ANSWER}", ANSWER.len()),
                "200 OK\r\ncontent-length: 0\r\n\r\n".into(),
                "401 No\r\ncontent-length: 0\r\n\r\n".into(),
            ] {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 8_192];
                let n = socket.read(&mut request).await.unwrap();
                asked.push(String::from_utf8_lossy(&request[..n]).into_owned());
                socket.write_all(format!("HTTP/1.1 {}", answer.replacen("\r\n", "\r\nconnection: close\r\n", 1)).as_bytes()).await.unwrap();
            }
            asked
        });
        let client = Client::new(&wire::Options::default()).unwrap();
        let bucket = bucket(url);
        assert_eq!(read(&client, &bucket, Timestamp(0), Timestamp(5_400), None).await.unwrap().len(), 2);
        let error = read(&client, &bucket, Timestamp(0), Timestamp(60), None).await.unwrap_err();
        assert!(error.to_string().contains("401") && !format!("{error} {error:?} {bucket:?}").contains("pa55"));
        let asked = server.await.unwrap();
        assert!(asked[0].contains("POST /api/v2/query?org=my+org HTTP/1.1") && asked[0].contains("authorization: Token pa55"), "{}", asked[0]);
    }
}
