//! HTTP addresses without credentials, and addresses that stand for many.

use crate::{
    error::{Code, Findings},
    node_range,
    written::{At, OneOrMany},
};

/// An address taken apart.
pub(crate) struct Address {
    pub(crate) full: String,
    pub(crate) host: String,
    pub(crate) path: String,
}

/// What an address is the address of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leads {
    /// A metrics page: `/metrics` is added where there is no path.
    ToPage,
    /// An interface with paths of its own: a slash at the end is taken away.
    ToServer,
}

/// Whether an address asks for no TLS.
pub(crate) fn is_plain(url: &str) -> bool {
    url.starts_with("http://")
}

/// An HTTP address without credentials.
pub(crate) fn address(at: &At<String>, url: &str, leads: Leads, findings: &mut Findings<'_>) -> Option<Address> {
    let mut refuse = |message: String, label: &str, help: &str| {
        findings.refuse(Code::Address, at.span(), message, label, help);
        None
    };
    let example = if leads == Leads::ToPage { "write it as http://host:8000/metrics" } else { "write it as http://host:9090" };
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| matches!(*scheme, "http" | "https")) else {
        // An address that may hold a secret is not repeated.
        let shown = if url.contains('@') { "this".to_owned() } else { format!("{url:?}") };
        return refuse(format!("{shown} is not an address"), "needs http:// or https://", example);
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    if host.contains('@') {
        // The address itself is not repeated: it holds the secret.
        return refuse("the address carries a user name or password".into(), "a secret in the file", "remove it and use token_file or token_env");
    }
    if path.contains(['?', '#']) {
        return refuse("the address carries a query".into(), "may hold a secret, and would be shown in names", "remove it and use token_file or token_env");
    }
    if host.is_empty() || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return refuse(format!("{url:?} is not an address"), "no host, or white space", example);
    }
    let port = host.rsplit_once(':').filter(|_| !host.ends_with(']')).map(|(_, port)| port);
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return refuse(format!("{url:?} has a port that is none"), "not a port", "ports run from 1 to 65535");
    }
    let path = match (leads, path) {
        (Leads::ToPage, "" | "/") => "/metrics",
        (Leads::ToPage, path) => path,
        (Leads::ToServer, path) => path.trim_end_matches('/'),
    };
    let host = host.to_lowercase();
    Some(Address { full: format!("{scheme}://{host}{path}"), host, path: path.to_owned() })
}

/// An address for each node, or the one that is written. Noted when nodes are named without a place for them, or a place without nodes.
pub(crate) fn by_node(url: &At<String>, nodes: Option<&At<OneOrMany>>, findings: &mut Findings<'_>) -> Vec<(String, Option<String>)> {
    let text = url.get();
    let Some(nodes) = nodes else {
        if text.contains("{node}") {
            let message = format!("{text:?} stands for several nodes, but none are named");
            findings.refuse(Code::Conflict, url.span(), message, "which nodes?", "add nodes = \"gpu[001-038]\"");
            return Vec::new();
        }
        return vec![(text.clone(), None)];
    };
    if !text.contains("{node}") {
        let message = format!("nodes are named, but {text:?} is the same for all");
        findings.refuse(Code::Conflict, nodes.span(), message, "one address for all", "write {node} where the name of the node belongs");
        return Vec::new();
    }
    let mut all = Vec::new();
    for (range, span) in nodes.entries() {
        match node_range::expand(range) {
            Ok(names) => all.extend(names.into_iter().map(|node| (text.replace("{node}", &node), Some(node)))),
            Err(why) => {
                let message = format!("{range:?} is not a range of nodes: {why}");
                findings.refuse(Code::Range, span, message, "not a range", "write it as gpu[001-038] or n[1,3,7-9]");
            }
        }
    }
    all
}
