//! The rules of the house, held against what cargo itself reports: who imports whom, licences, sources, versions, and the shape of files.

use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Which of our crates a crate may import. A new arrow is a design decision: say why in the commit. Dev-dependencies are exempt.
const MAY_IMPORT: [(&str, &[&str]); 17] = [
    ("fleet", &[]),
    ("wire", &[]),
    ("series", &["fleet"]),
    ("models", &["fleet"]),
    ("solver", &["fleet"]),
    ("verify", &["fleet"]),
    ("config", &["fleet"]),
    ("report", &["fleet"]),
    ("datasets", &["fleet"]),
    ("cycle", &["fleet", "series", "models", "solver", "verify"]),
    ("store", &["fleet", "wire", "series"]),
    ("ingest", &["fleet", "wire", "series"]),
    ("publish", &["fleet", "wire", "series"]),
    ("sim", &["fleet", "cycle"]),
    ("daemon", &["fleet", "wire", "series", "models", "solver", "verify", "config", "report", "cycle", "store", "ingest", "publish"]),
    ("cli", &[ANY]),
    ("tests", &[ANY]),
];
const ANY: &str = "*";

/// Licences a dependency may be under; the same list as in `deny.toml`.
const LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages that come in several versions, and who brings the other one. A name that is not here fails the test: look for a way to join
/// the versions first (`cargo tree -d`), then add it with its reason.
const SEVERAL_VERSIONS: [(&str, &str); 31] = [
    ("argmin", "augurs' ETS and linfa's regression follow different lines of argmin"),
    ("argmin-math", "as argmin"),
    ("base64", "influxdb2 and its reqwest 0.11 are behind"),
    ("bit-vec", "proptest, and a derive of the ICU data behind URLs"),
    ("fallible-iterator", "influxdb2 and rusqlite"),
    ("getrandom", "one for each line of rand"),
    ("glam", "nalgebra implements its conversions for several versions of glam, through augurs and statrs"),
    ("h2", "as reqwest"),
    ("heck", "influxdb2's derive, and clap"),
    ("http", "as reqwest"),
    ("http-body", "as reqwest"),
    ("hyper", "as reqwest"),
    ("itertools", "bindgen (HiGHS) and augurs or linfa"),
    ("num-bigint", "parquet, and a macro of the ICU data behind URLs"),
    ("parking_lot", "influxdb2 is behind"),
    ("parking_lot_core", "as parking_lot"),
    ("rand", "ours is the newest; argmin, linfa and proptest are behind"),
    ("rand_chacha", "as rand"),
    ("rand_core", "as rand"),
    ("rand_distr", "as rand"),
    ("rand_xoshiro", "as rand, through argmin"),
    ("reqwest", "influxdb2 is on 0.11, without TLS; everything else goes through 0.13"),
    ("shlex", "bindgen (HiGHS) and cc"),
    ("socket2", "as reqwest"),
    ("syn", "generations of derive macros"),
    ("sync_wrapper", "as reqwest"),
    ("synstructure", "two generations of derive macros, as syn"),
    ("thiserror", "augurs is on version 1"),
    ("thiserror-impl", "as thiserror"),
    ("unicode-width", "miette and the table printers"),
    ("winnow", "the parser ours is compared with in a benchmark, and toml"),
];

/// Longest Rust file, in lines: beyond it a file has more than one subject.
const FILE_LINES_MAX: usize = 700;

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).current_dir(root()).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo and rustc print UTF-8")
}

/// Everything the build on this host is made of, as cargo reports it. Without the network: `make test` has fetched every package by then; a lone
/// `cargo test -p tests` may need `cargo fetch` first.
fn metadata() -> Value {
    let rustc = run("rustc", &["-vV"]);
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let json = run(cargo, &["metadata", "--offline", "--locked", "--format-version", "1", "--filter-platform", host]);
    serde_json::from_str(&json).expect("cargo metadata is JSON")
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn ours(metadata: &Value) -> Vec<&Value> {
    packages(metadata).iter().filter(|package| package["source"].is_null()).collect()
}

#[test]
fn imports_keep_to_the_table() {
    let metadata = metadata();
    let ours = ours(&metadata);
    let names: BTreeSet<&str> = ours.iter().map(|package| text(package, "name")).collect();
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.into_iter().collect();
    assert_eq!(names, table.keys().copied().collect(), "the table names every crate of the workspace, and no other");
    let mut arrows = 0;
    for package in &ours {
        let name = text(package, "name");
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let other = text(dependency, "name");
            if !names.contains(other) || text(dependency, "kind") == "dev" {
                continue;
            }
            arrows += 1;
            let allowed = table[name].contains(&ANY) || table[name].contains(&other);
            assert!(allowed, "{name} imports {other}, which the table of the house does not allow");
        }
    }
    assert!(arrows > names.len(), "only {arrows} arrows seen: is the metadata read at all?");
}

#[test]
fn every_crate_lies_directly_in_its_folder() {
    for package in ours(&metadata()) {
        let folder = Path::new(text(package, "manifest_path")).parent().expect("a manifest lies in a folder");
        for target in package["targets"].as_array().into_iter().flatten() {
            let source = Path::new(text(target, "src_path"));
            let kinds: Vec<&str> = target["kind"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if kinds.contains(&"lib") || kinds.contains(&"bin") {
                assert_eq!(source.parent(), Some(folder), "{}: {} belongs beside its Cargo.toml", text(package, "name"), source.display());
            }
        }
    }
}

#[test]
fn licences_and_sources_are_allowed() {
    let metadata = metadata();
    let mut refused = Vec::new();
    for package in packages(&metadata) {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let licence = text(package, "license");
        if !allowed(licence) {
            refused.push(format!("{name} {version}: licence {licence:?}"));
        }
        if let Some(source) = package["source"].as_str().filter(|source| !source.starts_with("registry+")) {
            refused.push(format!("{name} {version}: source {source}"));
        }
    }
    assert!(packages(&metadata).len() > 100, "is the metadata read at all?");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn the_two_lists_of_licences_agree() {
    let deny = fs::read_to_string(root().join("deny.toml")).expect("deny.toml is there");
    let list = deny.split("[licenses]").nth(1).and_then(|rest| rest.split("allow = [").nth(1)).and_then(|rest| rest.split(']').next()).expect("a list");
    let listed: Vec<&str> = list.split(',').map(|entry| entry.trim().trim_matches('"')).filter(|entry| !entry.is_empty()).collect();
    assert_eq!(listed, LICENCES);
}

#[test]
fn several_versions_of_a_package_have_a_reason() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages(&metadata) {
        versions.entry(text(package, "name")).or_default().insert(text(package, "version"));
    }
    versions.retain(|_, versions| versions.len() > 1);
    let listed: BTreeSet<&str> = SEVERAL_VERSIONS.iter().map(|(name, _)| *name).collect();
    let unlisted: Vec<_> = versions.iter().filter(|(name, _)| !listed.contains(*name)).collect();
    assert!(unlisted.is_empty(), "in several versions and not listed with a reason: {unlisted:?}");
    // Other platforms bring other packages; the list is kept for the one that is built most.
    if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        let stale: Vec<_> = listed.iter().filter(|name| !versions.contains_key(*name)).collect();
        assert!(stale.is_empty(), "no longer in several versions, strike them off the list: {stale:?}");
    }
}

#[test]
fn files_have_one_subject_and_are_finished() {
    // Put together here, so that this file does not find itself.
    let unfinished = ["todo", "unimplemented"].map(|word| format!("{word}!("));
    let skipped = format!("#[{}", "ignore");
    let files = rust_files();
    assert!(files.len() > 20, "only {} files found", files.len());
    for file in files {
        let code = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines = code.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines, at most {FILE_LINES_MAX} are allowed", file.display());
        for word in unfinished.iter().chain([&skipped]) {
            assert!(!code.contains(word.as_str()), "{} contains {word}", file.display());
        }
    }
}

#[test]
fn papers_are_in_order() {
    let read = |name: &str| fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(read("CHANGELOG.md").contains("## Unreleased"));
    assert!(read("LICENSE-MIT").starts_with("MIT License"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
    let makefile = read("Makefile");
    let readme = read("README.md");
    for target in ["demo", "test"] {
        assert!(makefile.contains(&format!("\n{target}: deps")), "make {target} checks what is missing first");
        assert!(readme.contains(&format!("make {target}")), "README names make {target}");
    }
    assert!(read(".ci/run").contains("make lint test"));
}

/// Rust files of the workspace, build output left out.
fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = ["src", "models", "solver", "datasets", "tests"].iter().map(|name| root().join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// Whether an SPDX expression can be met with allowed licences. `/` is the old spelling of `OR`; `AND` binds tighter than `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    either(&tokens, &mut at) && at == tokens.len()
}

fn either(tokens: &[&str], at: &mut usize) -> bool {
    let mut met = both(tokens, at);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= both(tokens, at);
    }
    met
}

fn both(tokens: &[&str], at: &mut usize) -> bool {
    let mut met = single(tokens, at);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= single(tokens, at);
    }
    met
}

fn single(tokens: &[&str], at: &mut usize) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if *token == "(" {
        let met = either(tokens, at);
        let closed = tokens.get(*at) == Some(&")");
        *at += 1;
        return met && closed;
    }
    let mut licence = (*token).to_owned();
    if let (Some(&"WITH"), Some(exception)) = (tokens.get(*at), tokens.get(*at + 1)) {
        licence = format!("{licence} WITH {exception}");
        *at += 2;
    }
    LICENCES.contains(&licence.as_str())
}

#[test]
fn licence_expressions_are_read_as_spdx_says() {
    for good in ["MIT", "MIT OR GPL-3.0-only", "Apache-2.0/MIT", "(MIT OR GPL-2.0-only) AND Unicode-3.0", "Apache-2.0 WITH LLVM-exception"] {
        assert!(allowed(good), "{good}");
    }
    for bad in ["", "GPL-3.0-only", "MIT AND GPL-3.0-only", "LGPL-3.0-or-later WITH Classpath-exception-2.0", "(MIT"] {
        assert!(!allowed(bad), "{bad}");
    }
}
