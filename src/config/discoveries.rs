//! `[[source.prometheus_api]]`, `[[source.file_sd]]`, `[[source.http_sd]]`: sources whose pages are found while running.

use crate::{
    access::secret,
    addresses::{Leads, address, is_plain},
    error::{Code, Findings},
    pages::page,
    resolved_sources::{Access, Credential, DiscoveryConfig, DiscoveryList, PrometheusApiConfig, Subject},
    selectors,
    sources::{Seen, place_name, shown},
    subjects::{SubjectKeys, Surroundings, subject},
    typed, typed_sources,
    written::{At, WrittenSpan},
};
use fleet::Span;
use std::{ops::Range, path::PathBuf};

/// Time between two looks at a list of pages unless said otherwise: Prometheus' own for lists at addresses.
const REFRESH: Span = Span::MINUTE;
/// Rarest look at a list that is still allowed.
const REFRESH_MAX: Span = Span::DAY;
/// Endings of lists that Prometheus reads.
const LIST_ENDINGS: [&str; 3] = [".json", ".yml", ".yaml"];

/// Servers that answer the Prometheus HTTP API.
pub(crate) fn apis(file: &typed::File, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Vec<PrometheusApiConfig> {
    file.source.prometheus_api.iter().filter_map(|table| api(table.get(), known, seen, findings)).collect()
}

fn api(typed: &typed_sources::PrometheusApi, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Option<PrometheusApiConfig> {
    let who = shown(&typed.url);
    let address = address(&typed.url, typed.url.get(), Leads::ToServer, findings);
    let page = page(typed.page(), is_plain(typed.url.get()), typed.service.is_none(), known.engines, findings);
    let keys = SubjectKeys { who: &who, service: typed.service.as_ref(), variant: typed.variant.as_ref(), role: typed.role.as_ref() };
    let subject = subject(keys, known, findings);
    let selector = typed.selector.as_ref().map_or(Some(None), |at| selectors::matchers(at, findings).map(Some));
    let tenant = typed.tenant.as_ref().map_or(Some(None), |at| header(at, findings).map(Some));
    let (address, subject) = (address?, subject?);
    let id = seen.name(typed.name.as_ref(), "", named(&subject, typed.variant.as_ref(), &place_name(&address)), typed.url.span(), findings)?;
    Some(PrometheusApiConfig { id, url: address.full, subject, selector: selector?, tenant: tenant?, page: page? })
}

/// A text that can stand in a header.
fn header(at: &At<String>, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.get();
    if !text.is_empty() && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
        return Some(text.clone());
    }
    let help = "write the tenant's id, without white space; several are joined by |";
    findings.refuse(Code::Shape, at.span(), format!("tenant: {text:?} cannot be sent"), "not an id", help);
    None
}

/// Files and addresses that list pages.
pub(crate) fn lists(file: &typed::File, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Vec<DiscoveryConfig> {
    let mut found: Vec<DiscoveryConfig> = file.source.file_sd.iter().filter_map(|table| in_files(table, known, seen, findings)).collect();
    found.extend(file.source.http_sd.iter().filter_map(|table| at_address(table.get(), known, seen, findings)));
    found
}

fn in_files(table: &At<typed_sources::FileSd>, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Option<DiscoveryConfig> {
    let typed = table.get();
    let entries = typed.files.entries();
    let files: Vec<Option<PathBuf>> = entries.iter().map(|(text, span)| list_file(text, span.clone(), findings)).collect();
    let who = entries.first().map_or_else(|| "file_sd".to_owned(), |(text, _)| format!("source {text:?}"));
    let page = page(typed.page(), false, typed.service.is_none(), known.engines, findings);
    let keys = SubjectKeys { who: &who, service: typed.service.as_ref(), variant: typed.variant.as_ref(), role: typed.role.as_ref() };
    let subject = subject(keys, known, findings);
    let select = selectors::labels(&typed.select, findings);
    let refresh = refresh(typed.refresh.as_ref(), findings);
    let Some((first, _)) = entries.first() else {
        findings.refuse(Code::Shape, typed.files.span(), "files is empty", "no file", "name the files that list the pages");
        return None;
    };
    let (files, subject) = (files.into_iter().collect::<Option<Vec<_>>>()?, subject?);
    let id = seen.name(typed.name.as_ref(), "", named(&subject, typed.variant.as_ref(), first), typed.files.span(), findings)?;
    Some(DiscoveryConfig { id, list: DiscoveryList::Files(files), subject, select: select?, refresh: refresh?, page: page? })
}

/// A file that lists pages, by an ending that says its form.
fn list_file(text: &str, span: Range<usize>, findings: &mut Findings<'_>) -> Option<PathBuf> {
    let (folder, name) = text.rsplit_once('/').unwrap_or(("", text));
    if LIST_ENDINGS.iter().any(|ending| name.ends_with(ending)) && !folder.contains('*') && name.matches('*').count() <= 1 {
        return Some(PathBuf::from(text));
    }
    let message = format!("files: {text:?} does not name lists of pages");
    findings.refuse(Code::Shape, span, message, "not a list", "write a .json, .yml or .yaml file; only the last part of the path may hold a *");
    None
}

fn at_address(typed: &typed_sources::HttpSd, known: Surroundings<'_>, seen: &mut Seen, findings: &mut Findings<'_>) -> Option<DiscoveryConfig> {
    let who = shown(&typed.url);
    let address = address(&typed.url, typed.url.get(), Leads::ToServer, findings);
    let page = page(typed.page(), false, typed.service.is_none(), known.engines, findings);
    let token = secret("list_token", typed.list_token_file.as_ref(), typed.list_token_env.as_ref(), findings);
    let keys = SubjectKeys { who: &who, service: typed.service.as_ref(), variant: typed.variant.as_ref(), role: typed.role.as_ref() };
    let subject = subject(keys, known, findings);
    let select = selectors::labels(&typed.select, findings);
    let refresh = refresh(typed.refresh.as_ref(), findings);
    let (address, subject, page) = (address?, subject?, page?);
    let id = seen.name(typed.name.as_ref(), "", named(&subject, typed.variant.as_ref(), &place_name(&address)), typed.url.span(), findings)?;
    // Certificates hold for the list as for its pages; credentials do not: they would reach whoever serves the list.
    let access = Access { credential: token.ok()?.map(Credential::Bearer), tls: page.access.tls.clone() };
    Some(DiscoveryConfig { id, list: DiscoveryList::Http { url: address.full, access }, subject, select: select?, refresh: refresh?, page })
}

fn refresh(at: Option<&At<WrittenSpan>>, findings: &mut Findings<'_>) -> Option<Span> {
    at.map_or(Some(REFRESH), |at| findings.span(at, "refresh", Span(5), REFRESH_MAX))
}

/// The name of a source that tells of one service among others: with its variant, where that is written.
pub(crate) fn named(subject: &Subject, variant: Option<&At<String>>, place: &str) -> String {
    match (subject, variant) {
        (Subject::Gpus, _) => format!("gpus@{place}"),
        (Subject::Router { service }, _) => format!("{service}-router@{place}"),
        (Subject::Replicas { service, .. }, None) => format!("{service}@{place}"),
        (Subject::Replicas { service, .. }, Some(variant)) => format!("{service}/{}@{place}", variant.get()),
    }
}
