//! What a source tells of: replicas of a variant, a router, or GPUs.

use crate::{
    error::{Code, Findings},
    resolved_sources::Subject,
    typed,
    written::At,
};
use fleet::{Fleet, Variant, VariantId, Workload};

/// What sources are resolved against.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'s> {
    pub(crate) declared: &'s [At<typed::Service>],
    pub(crate) workloads: &'s [Workload],
    pub(crate) variants: &'s [Variant],
    pub(crate) fleet: &'s Fleet,
    /// Names of the file's own engines.
    pub(crate) engines: &'s [&'s str],
}

impl<'s> Surroundings<'s> {
    /// The variant of that name.
    pub(crate) fn variant(&self, id: &VariantId) -> Option<&'s Variant> {
        self.variants.iter().find(|variant| variant.id == *id)
    }

    /// The names of the services as written.
    pub(crate) fn service_names(&self) -> impl Iterator<Item = &'s str> + use<'s> {
        self.declared.iter().map(|table| table.get().name.get().as_str())
    }
}

/// Keys that say what a source tells of.
#[derive(Clone, Copy)]
pub(crate) struct SubjectKeys<'t> {
    /// How messages call the source.
    pub(crate) who: &'t str,
    pub(crate) service: Option<&'t At<String>>,
    pub(crate) variant: Option<&'t At<String>>,
    pub(crate) role: Option<&'t At<String>>,
}

/// What a source tells of; `None` when that cannot be said, which is noted unless another finding says it.
pub(crate) fn subject(keys: SubjectKeys<'_>, known: Surroundings<'_>, findings: &mut Findings<'_>) -> Option<Subject> {
    let who = keys.who;
    let router = match keys.role.map(|at| (at.get().as_str(), at)) {
        None | Some(("replica", _)) => false,
        Some(("router", _)) => true,
        Some((word, at)) => {
            findings.word(at.span(), "role", word, &["replica", "router"]);
            return None;
        }
    };
    let Some(service) = keys.service else {
        if let Some(at) = keys.variant.or(keys.role) {
            let message = format!("{who} names no service, so it tells of GPUs, which have no variant and no role");
            findings.refuse(Code::Conflict, at.span(), message, "means nothing without a service", "add service = \"...\", or remove it");
            return None;
        }
        return Some(Subject::Gpus);
    };
    if let Some(at) = keys.variant.filter(|_| router) {
        let message = format!("{who} is a router, and a router runs no variant");
        findings.refuse(Code::Conflict, at.span(), message, "not for routers", "remove variant, or role");
        return None;
    }
    if !known.service_names().any(|name| name == service.get()) {
        findings.dangling(service.span(), who, "service", service.get(), known.service_names());
        return None;
    }
    // A service that could not be resolved has its own fault.
    let workload = known.workloads.iter().find(|workload| workload.id.as_str() == service.get())?;
    if router {
        return Some(Subject::Router { service: workload.id.clone() });
    }
    let variant = variant(keys, service, workload, known, findings)?;
    Some(Subject::Replicas { service: workload.id.clone(), variant })
}

/// The variant that is named, or the only one there is.
fn variant(keys: SubjectKeys<'_>, service: &At<String>, workload: &Workload, known: Surroundings<'_>, findings: &mut Findings<'_>) -> Option<VariantId> {
    let who = keys.who;
    let served = &workload.service()?.variants;
    let name = match (keys.variant, served.as_slice()) {
        (_, []) => return None,
        (Some(at), _) => at.get().as_str(),
        (None, [only]) => only.as_str(),
        (None, several) => {
            let names: Vec<&str> = several.iter().map(VariantId::as_str).collect();
            let message = format!("{who} does not say which variant of {} runs there", workload.id);
            let help = format!("add variant = \"...\", one of: {}", names.join(", "));
            findings.refuse(Code::Conflict, service.span(), message, "several variants serve it", help);
            return None;
        }
    };
    let found = known.variants.iter().find(|variant| variant.id.as_str() == name && served.contains(&variant.id));
    if let (None, Some(at)) = (found, keys.variant) {
        findings.dangling(at.span(), who, &format!("variant of {}", workload.id), name, served.iter().map(VariantId::as_str));
    }
    Some(found?.id.clone())
}
