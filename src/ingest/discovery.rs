//! Targets that come and go, as Prometheus finds them: lists in files (`file_sd`, JSON or YAML) and from a service (`http_sd`, JSON).
//!
//! A list is trusted until a better one comes: one that cannot be read, makes no sense or is empty leaves the last good one in force and is
//! reported, since "nobody is there" and "I could not look" must not look the same to a planner. Formats:
//! <https://prometheus.io/docs/prometheus/latest/http_sd/>.

use crate::IngestError;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use wire::{Auth, Client};

/// Bytes of a file at most.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files one pattern may name.
const FILES_MAX: usize = 1_000;
/// Targets of a list at most.
const TARGETS_MAX: usize = 100_000;
/// Labels of a target at most.
const LABELS_MAX: usize = 64;
/// Bytes of an address, a label's name or its value at most.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// A target as it was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Discovered {
    /// Host and port.
    pub address: String,
    /// Its labels, those that begin with `__` too.
    pub labels: BTreeMap<String, String>,
}

impl Discovered {
    /// Address of its page: scheme and path as its labels say (`__scheme__`, `__metrics_path__`), else `http` and `/metrics`.
    #[must_use]
    pub fn url(&self) -> String {
        let label = |name: &str, usual: &'static str| self.labels.get(name).filter(|value| !value.is_empty()).cloned().unwrap_or_else(|| usual.to_owned());
        let path = label("__metrics_path__", "/metrics");
        format!("{}://{}/{}", label("__scheme__", "http"), self.address, path.trim_start_matches('/'))
    }

    /// Whether its labels agree with a selection.
    #[must_use]
    pub fn is_selected(&self, select: &BTreeMap<String, String>) -> bool {
        select.iter().all(|(label, value)| self.labels.get(label) == Some(value))
    }
}

/// Where lists come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListSource {
    /// Files; the last part of a path may hold one `*`. Names end in `.json`, `.yml` or `.yaml`.
    Files(Vec<PathBuf>),
    /// A service.
    Http {
        /// Its address.
        url: String,
        /// How we say who asks.
        auth: Auth,
    },
}

/// What changed with a refresh.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// Targets that were not there before.
    pub appeared: Vec<Discovered>,
    /// Targets that are not there any more.
    pub vanished: Vec<Discovered>,
    /// Why a list could not be taken; the last good one stays.
    pub problems: Vec<String>,
}

/// Targets by discovery, kept up to date by [`Discovery::refresh`]; how often is the caller's to say.
#[derive(Debug)]
pub struct Discovery {
    source: ListSource,
    /// The last good list of each file, or of the service.
    good: BTreeMap<String, BTreeSet<Discovered>>,
}

impl Discovery {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(source: ListSource) -> Self {
        Self { source, good: BTreeMap::new() }
    }

    /// All targets of the last good lists, each once.
    #[must_use]
    pub fn targets(&self) -> BTreeSet<Discovered> {
        self.good.values().flatten().cloned().collect()
    }

    /// Reads the lists again.
    pub async fn refresh(&mut self, client: &Client) -> Change {
        let before = self.targets();
        let mut problems = Vec::new();
        let lists = match &self.source {
            ListSource::Files(patterns) => {
                let patterns = patterns.clone();
                match tokio::task::spawn_blocking(move || read_files(&patterns)).await {
                    Ok(lists) => lists,
                    Err(error) => vec![("files".to_owned(), Err(error.to_string()))],
                }
            }
            ListSource::Http { url, auth } => {
                let shown = wire::Redacted::new(url).to_string();
                vec![(shown, fetch(client, url, auth).await.map_err(|error| error.to_string()))]
            }
        };
        // A file that is gone is reported by its absence below; its targets stay until the list that replaces it comes.
        for (name, list) in lists {
            match list {
                Ok(list) if list.is_empty() => problems.push(format!("{name}: the list is empty; the last good one stays")),
                Ok(list) => {
                    self.good.insert(name, list.into_iter().collect());
                }
                Err(reason) => problems.push(format!("{name}: {reason}; the last good list stays")),
            }
        }
        let after = self.targets();
        Change { appeared: after.difference(&before).cloned().collect(), vanished: before.difference(&after).cloned().collect(), problems }
    }
}

async fn fetch(client: &Client, url: &str, auth: &Auth) -> Result<Vec<Discovered>, IngestError> {
    let answer = client.get(url, auth, &[("accept", "application/json")]).await?.success()?;
    parse_json(&answer.body).map_err(|reason| IngestError::List { url: answer.url, reason })
}

type Lists = Vec<(String, Result<Vec<Discovered>, String>)>;

fn read_files(patterns: &[PathBuf]) -> Lists {
    let mut lists = Lists::new();
    for pattern in patterns {
        match matching(pattern) {
            Ok(files) if files.is_empty() => lists.push((pattern.display().to_string(), Err("no such file".into()))),
            Ok(files) => lists.extend(files.into_iter().map(|file| (file.display().to_string(), read_file(&file)))),
            Err(error) => lists.push((pattern.display().to_string(), Err(error.to_string()))),
        }
    }
    lists
}

/// The files a pattern names, in order.
fn matching(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let name = pattern.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let Some((front, back)) = name.split_once('*') else {
        return Ok(if pattern.is_file() { vec![pattern.to_owned()] } else { Vec::new() });
    };
    let folder = pattern.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() >= front.len() + back.len() && name.starts_with(front) && name.ends_with(back) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    files.truncate(FILES_MAX);
    Ok(files)
}

fn read_file(path: &Path) -> Result<Vec<Discovered>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("longer than {FILE_BYTES_MAX} bytes"));
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => parse_json(&bytes),
        Some("yml" | "yaml") => parse_yaml(&bytes),
        _ => Err("its name ends in none of .json, .yml, .yaml".into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    #[serde(default)]
    targets: Option<Vec<String>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
}

/// Reads a list in JSON.
///
/// # Errors
/// Why it is no list of targets.
pub fn parse_json(bytes: &[u8]) -> Result<Vec<Discovered>, String> {
    flatten(serde_json::from_slice::<Option<Vec<Group>>>(bytes).map_err(|error| format!("no list of targets in JSON: {error}"))?)
}

/// Reads a list in YAML.
///
/// # Errors
/// Why it is no list of targets.
pub fn parse_yaml(bytes: &[u8]) -> Result<Vec<Discovered>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
    flatten(serde_saphyr::from_str::<Option<Vec<Group>>>(text).map_err(|error| format!("no list of targets in YAML: {}", first_line(&error.to_string())))?)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(200).collect()
}

fn flatten(groups: Option<Vec<Group>>) -> Result<Vec<Discovered>, String> {
    let mut out = Vec::new();
    for group in groups.unwrap_or_default() {
        let labels = group.labels.unwrap_or_default();
        if labels.len() > LABELS_MAX {
            return Err(format!("a group has more than {LABELS_MAX} labels"));
        }
        if labels.iter().any(|(name, value)| name.is_empty() || name.len() > TEXT_BYTES_MAX || value.len() > TEXT_BYTES_MAX) {
            return Err(format!("a label is empty or longer than {TEXT_BYTES_MAX} bytes"));
        }
        for address in group.targets.unwrap_or_default() {
            if address.is_empty()
                || address.len() > TEXT_BYTES_MAX
                || address.contains(['/', '@', '?', '#'])
                || address.chars().any(|c| c.is_whitespace() || c.is_control())
            {
                return Err(format!("{:?} is no host and port", address.chars().take(64).collect::<String>()));
            }
            if out.len() == TARGETS_MAX {
                return Err(format!("more than {TARGETS_MAX} targets"));
            }
            // As in Prometheus, a label may say another address.
            let address = labels.get("__address__").cloned().unwrap_or(address);
            out.push(Discovered { address, labels: labels.clone() });
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
