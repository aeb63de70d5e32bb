//! A bucket of an `InfluxDB` that others fill, as a source.

use crate::{
    DaemonError,
    asking::{Asking, ReadSecret},
    schedule::{Look, Looking, Source},
};
use config::{Credential, InfluxSourceConfig, Subject};
use fleet::{Scrape, Span, Target, Timestamp};
use ingest::influx::{self, Bucket, FieldMap, Selected};
use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use wire::{Client, Secret};

/// How far back the first look reaches: two looks' worth are needed for a rate.
const FIRST: Span = Span::minutes(2);

/// A bucket.
pub(crate) struct Points {
    config: Arc<InfluxSourceConfig>,
    client: Client,
    read_secret: ReadSecret,
    /// Points before this instant were read.
    read_until: Arc<AtomicI64>,
}

impl Points {
    pub fn new(config: &InfluxSourceConfig, asking: &mut Asking) -> Result<Self, DaemonError> {
        let limits = wire::Limits { timeout: config.timeout, read_timeout: config.timeout, ..wire::Limits::default() };
        let client = asking.client(config.id.as_str(), &config.access, limits)?;
        Ok(Self { config: Arc::new(config.clone()), client, read_secret: asking.read_secret.clone(), read_until: Arc::new(AtomicI64::new(i64::MIN)) })
    }

    /// What its points stand for; nothing for GPUs.
    pub fn target(config: &InfluxSourceConfig) -> Option<Target> {
        config.subject.target(config.id.clone())
    }
}

impl Source for Points {
    fn look(&self, now: Timestamp) -> Looking {
        let (config, client, read_until) = (self.config.clone(), self.client.clone(), self.read_until.clone());
        let token = match &config.access.credential {
            Some(Credential::Bearer(secret)) => (self.read_secret)(secret),
            _ => Ok(Secret::default()),
        };
        Box::pin(async move {
            let from = Timestamp(read_until.load(Ordering::Relaxed)).max(now - Span(FIRST.0.max(2 * config.interval.0)));
            let scrapes = match token {
                Ok(token) => influx::read(&client, &bucket(&config, token), from, now + Span(1), None).await.map_err(|e| e.to_string()),
                Err(reason) => Err(reason),
            };
            let scrapes = match scrapes {
                Ok(scrapes) if scrapes.is_empty() => vec![Scrape::failed(config.id.clone(), now, "the bucket holds no new point of it")],
                Ok(scrapes) => {
                    read_until.store(scrapes.iter().map(|s| s.at.0 + 1).max().unwrap_or(from.0), Ordering::Relaxed);
                    scrapes
                }
                Err(reason) => vec![Scrape::failed(config.id.clone(), now, reason)],
            };
            if config.subject == Subject::Gpus { Look { gpu_pages: scrapes, ..Look::default() } } else { Look { scrapes, ..Look::default() } }
        })
    }
}

fn bucket(config: &InfluxSourceConfig, token: Secret) -> Bucket {
    let field =
        |(signal, field): (&fleet::Signal, &String)| FieldMap { measurement: config.measurement.clone(), field: field.clone(), signal: *signal, scale: 1.0 };
    Bucket {
        url: config.url.clone(),
        org: config.org.clone(),
        bucket: config.bucket.clone(),
        token,
        fields: config.fields.iter().map(field).collect(),
        member: config.member_tag.clone(),
        targets: vec![Selected { target: config.id.clone(), select: config.tags.clone() }],
    }
}
