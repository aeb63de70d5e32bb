//! Metrics pages as sources: one a page, however many targets it shows.

use crate::{
    DaemonError,
    asking::{Asking, ReadSecret, auth, limits},
    schedule::{Look, Looking, Source},
};
use config::{Access, GpuPageConfig, PageLimits, TargetConfig};
use fleet::{Scrape, Span, TargetId, Timestamp};
use ingest::{
    Catalogue, Reader,
    exposition::Limits,
    prometheus::{self, Endpoint},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use wire::Auth;

/// A page.
pub(crate) struct Page {
    catalogue: Arc<Catalogue>,
    endpoint: Endpoint,
    access: Access,
    read_secret: ReadSecret,
    /// Who we say we are; read again after a look that failed, since a token may have been replaced.
    auth: Arc<Mutex<Auth>>,
    failed: Arc<AtomicBool>,
    redirected: Arc<AtomicBool>,
    /// It tells of GPUs, not of a service.
    of_gpus: bool,
}

/// A page with the times it is looked at.
pub(crate) struct Timed {
    pub page: Page,
    pub interval: Span,
    /// Names the page for its place in the interval.
    pub name: TargetId,
}

impl Page {
    /// The same page, asked for with credentials as of now.
    fn endpoint_now(&self) -> Result<Endpoint, String> {
        let mut known = self.auth.lock().unwrap_or_else(PoisonError::into_inner);
        if self.failed.load(Ordering::Relaxed) && self.access.credential.is_some() {
            *known = auth(&self.read_secret, &self.access)?;
        }
        Ok(Endpoint { auth: known.clone(), ..self.endpoint.clone() })
    }
}

impl Source for Page {
    fn look(&self, now: Timestamp) -> Looking {
        let (catalogue, endpoint, of_gpus) = (self.catalogue.clone(), self.endpoint_now(), self.of_gpus);
        let (failed, redirected) = (self.failed.clone(), self.redirected.clone());
        let readers = self.endpoint.readers.clone();
        Box::pin(async move {
            let scrapes = match endpoint {
                Ok(endpoint) => {
                    let look = prometheus::look(&catalogue, &endpoint, now).await;
                    if look.redirects > 0 && !redirected.swap(true, Ordering::Relaxed) {
                        tracing::warn!(url = %wire::Redacted::new(&endpoint.url), redirects = look.redirects, "the page has moved; write its new address in the configuration");
                    }
                    look.scrapes
                }
                Err(reason) => readers.iter().map(|r| Scrape::failed(r.target.clone(), now, reason.clone())).collect(),
            };
            failed.store(scrapes.iter().any(|s| !s.is_ok()), Ordering::Relaxed);
            if of_gpus { Look { gpu_pages: scrapes, ..Look::default() } } else { Look { scrapes, ..Look::default() } }
        })
    }
}

/// The pages of targets: those with one address, asked in the same way, are fetched once.
pub(crate) fn of_targets(targets: &[TargetConfig], catalogue: &Arc<Catalogue>, asking: &mut Asking) -> Result<Vec<Timed>, DaemonError> {
    let mut pages: Vec<(&TargetConfig, Vec<Reader>)> = Vec::new();
    for target in targets {
        let same = |(first, _): &&mut (&TargetConfig, Vec<Reader>)| {
            first.url == target.url && first.access == target.access && first.interval == target.interval && first.limits == target.limits
        };
        let reader = Reader { target: target.target.id.clone(), engine: target.engine.clone(), select: target.select.clone(), names: target.metrics.clone() };
        match pages.iter_mut().find(same) {
            // Several targets of one address differ in what they select of it.
            Some((_, readers)) if !target.select.is_empty() => readers.push(reader),
            _ => pages.push((target, vec![reader])),
        }
    }
    let page = |(first, readers): (&TargetConfig, Vec<Reader>)| {
        let page = page(first.target.id.as_str(), &first.url, &first.access, &first.limits, readers, false, catalogue, asking)?;
        Ok(Timed { page, interval: first.interval, name: first.target.id.clone() })
    };
    pages.into_iter().map(page).collect()
}

/// The pages of GPUs.
pub(crate) fn of_gpus(pages: &[GpuPageConfig], catalogue: &Arc<Catalogue>, asking: &mut Asking) -> Result<Vec<Timed>, DaemonError> {
    let timed = |gpus: &GpuPageConfig| {
        let reader = Reader { target: gpus.id.clone(), engine: gpus.page.engine.clone(), select: BTreeMap::new(), names: gpus.page.metrics.clone() };
        let page = page(gpus.id.as_str(), &gpus.url, &gpus.page.access, &gpus.page.limits, vec![reader], true, catalogue, asking)?;
        Ok(Timed { page, interval: gpus.page.interval, name: gpus.id.clone() })
    };
    pages.iter().map(timed).collect()
}

#[expect(clippy::too_many_arguments, reason = "what a page is made of, spelled out for its two makers")]
fn page(
    name: &str,
    url: &str,
    access: &Access,
    page: &PageLimits,
    readers: Vec<Reader>,
    of_gpus: bool,
    catalogue: &Arc<Catalogue>,
    asking: &mut Asking,
) -> Result<Page, DaemonError> {
    let client = asking.client(name, access, limits(page))?;
    let auth = asking.auth(name, access)?;
    let limits = Limits { page_bytes_max: page.bytes_max, samples_max: page.series_max, ..Limits::default() };
    Ok(Page {
        catalogue: catalogue.clone(),
        endpoint: Endpoint { url: url.to_owned(), auth: Auth::None, client, limits, readers },
        access: access.clone(),
        read_secret: asking.read_secret.clone(),
        auth: Arc::new(Mutex::new(auth)),
        failed: Arc::default(),
        redirected: Arc::default(),
        of_gpus,
    })
}

/// Names of pages that appear twice would make one target of two.
pub(crate) fn distinct(targets: Vec<TargetConfig>) -> Vec<TargetConfig> {
    let mut seen = BTreeSet::new();
    targets.into_iter().filter(|t| seen.insert(t.target.id.clone())).collect()
}
