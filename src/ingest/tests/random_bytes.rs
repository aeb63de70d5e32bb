//! Bytes of anybody's making: ten million random ones, and recorded pages with damage in them. Nothing panics, nothing that is not finite
//! gets in, and memory stays within limits.

use flate2::read::GzDecoder;
use fleet::{Reading, Scrape, TargetId, Timestamp};
use ingest::exposition::{Limits, parse};
use ingest::{Names, read_page_named, split_recording};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::Read;
use std::path::PathBuf;

/// Random bytes of each sort.
const BYTES: usize = 10_000_000;
/// Bytes of one page of them.
const PAGE_BYTES: usize = 100_000;
/// Recorded pages that are damaged.
const DAMAGED: usize = 400;
/// Memory that all of it may take beyond what the process had before, MiB. A page of 100 kB has a few thousand lines of 100 bytes each.
const GROWTH_MIB_MAX: u64 = 128;

/// Reads a page as lines and as signals.
fn read(page: &[u8], limits: &Limits) -> usize {
    let lines = parse(page, limits).map_or(0, |page| {
        assert!(page.skipped.len() <= limits.skipped_max && page.len() <= limits.samples_max);
        assert!(page.lines().all(|line| line.value.is_finite()));
        page.len()
    });
    let scrape = read_page_named(&TargetId::new("t").unwrap(), Timestamp(7), page, limits, &Names::new());
    assert!(finite(&scrape), "{:?}", scrape.samples);
    lines
}

fn finite(scrape: &Scrape) -> bool {
    scrape.samples.iter().all(|sample| match &sample.value {
        Reading::Scalar(value) => value.is_finite(),
        Reading::Histogram(h) => h.sum.is_finite() && h.count.is_finite() && h.buckets.iter().all(|(bound, count)| bound.is_finite() && count.is_finite()),
    })
}

/// The most memory this process has held so far, MiB; nothing where the system does not say.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024)
}

/// A page of every recording, where they are.
fn recorded() -> Vec<Vec<u8>> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/metrics-pages"));
    let mut pages = Vec::new();
    let folders = std::fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten()).map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let mut bytes = std::fs::read(&file).unwrap_or_default();
        if file.extension().is_some_and(|extension| extension == "gz") {
            let mut unpacked = Vec::new();
            let _whole = GzDecoder::new(bytes.as_slice()).read_to_end(&mut unpacked);
            bytes = unpacked;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let middle = split_recording(&text).into_iter().filter_map(|recorded| recorded.page).nth(3);
        pages.extend(middle.map(|page| page.as_bytes().to_vec()));
    }
    if pages.is_empty() {
        eprintln!("skipped: no recordings under {}; a page made here is damaged instead", root.display());
        let line = |i: u32| format!("vllm:num_requests_running{{engine=\"{i}\",model_name=\"m\"}} {i}\nvllm:prompt_tokens_total{{engine=\"{i}\"}} {i}e3\n");
        pages.push((0..300).map(line).collect::<String>().into_bytes());
    }
    pages
}

/// Damages a page in a few places.
fn damage(random: &mut Pcg64Mcg, page: &mut Vec<u8>, other: &[u8]) {
    const WORDS: [&[u8]; 12] =
        [b"NaN", b"+Inf", b"1e999", b"\"", b"{", b"}", b"\\", b"\n", b",", b"\xff", b"# TYPE vllm:num_requests_running histogram\n", b"\0"];
    for _ in 0..random.random_range(1..40) {
        let at = random.random_range(0..=page.len());
        let end = (at + random.random_range(0..200)).min(page.len());
        match random.random_range(0..6) {
            0 if at < page.len() => page[at] = random.random(),
            1 => drop(page.drain(at..end)),
            2 => drop(page.splice(at..at, WORDS[random.random_range(0..WORDS.len())].iter().copied())),
            3 => {
                let copied = page[at..end].to_vec();
                drop(page.splice(at..at, copied));
            }
            4 => {
                let from = random.random_range(0..=other.len());
                let to = (from + random.random_range(0..2_000)).min(other.len());
                drop(page.splice(at..end, other[from..to].iter().copied()));
            }
            _ if random.random_range(0..20) == 0 => page.truncate(at),
            _ => {}
        }
    }
}

#[test]
fn no_bytes_panic_and_memory_has_limits() {
    let mut random = Pcg64Mcg::seed_from_u64(4);
    let limits = Limits::default();
    let pages = recorded();
    let before = peak_mib();
    let mut lines = 0;
    // Any bytes at all, and bytes that look like a page's.
    let likely = b"abc:_{}=\",\\ 0123456789.eE+-\n\n#\t";
    for _ in 0..BYTES / PAGE_BYTES {
        let noise: Vec<u8> = (0..PAGE_BYTES).map(|_| random.random()).collect();
        lines += read(&noise, &limits);
        let page: Vec<u8> = (0..PAGE_BYTES).map(|_| likely[random.random_range(0..likely.len())]).collect();
        lines += read(&page, &limits);
    }
    assert!(lines > 0, "not a single line of twenty million bytes made sense: is anything read?");
    for round in 0..DAMAGED {
        let mut page = pages[round % pages.len()].clone();
        let other = &pages[random.random_range(0..pages.len())];
        damage(&mut random, &mut page, other);
        read(&page, &limits);
    }
    let (Some(before), Some(after)) = (before, peak_mib()) else {
        eprintln!("skipped: this system does not tell the memory of a process");
        return;
    };
    assert!(after - before <= GROWTH_MIB_MAX, "{} MiB more than before", after - before);
}

/// A page that breaks a limit is refused or cut as the limit says, however it is made.
#[test]
fn limits_hold_on_damaged_pages() {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let limits = Limits { page_bytes_max: 50_000, line_bytes_max: 120, samples_max: 200, labels_max: 2, label_bytes_max: 10, skipped_max: 5 };
    let pages = recorded();
    for round in 0..DAMAGED {
        let mut page = pages[round % pages.len()].clone();
        page.truncate(random.random_range(0..60_000));
        damage(&mut random, &mut page, &pages[0]);
        read(&page, &limits);
        assert!(page.len() <= limits.page_bytes_max || parse(&page, &limits).is_err());
    }
}
