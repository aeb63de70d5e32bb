//! Runs the targets without libFuzzer: seeds, and what a seeded mutator makes of them, for a time a target.
//!
//! Usage: `plain SECONDS SEEDS [TARGET...]`. The inputs depend on nothing but their number, so a failure is found again by the seed and the
//! number that are printed; the bytes are kept in `crash-TARGET-NUMBER` in the folder it is started in.

use fuzz::{TARGETS, Target};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

/// Bytes of an input at most.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Longest time one input may take.
const INPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// What begins every run.
const SEED: u64 = 4;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(seconds), Some(seeds)) = (arguments.next().and_then(|text| text.parse().ok()), arguments.next().map(PathBuf::from)) else {
        eprintln!("usage: plain SECONDS SEEDS [TARGET...]");
        return ExitCode::from(64);
    };
    let only: Vec<String> = arguments.collect();
    let chosen = TARGETS.iter().filter(|(name, _)| only.is_empty() || only.iter().any(|wanted| wanted == name));
    let mut well = true;
    for target in chosen {
        well &= run(target, &read_seeds(&seeds.join(target.0)), Duration::from_secs(seconds));
    }
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The files of a folder, in order of name.
fn read_seeds(folder: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut seeds: Vec<Vec<u8>> = files.iter().filter_map(|file| fs::read(file).ok()).collect();
    seeds.push(Vec::new());
    seeds
}

/// Runs one target; false when it failed.
fn run((name, target): &Target, seeds: &[Vec<u8>], time: Duration) -> bool {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let (began, mut number, mut bytes) = (Instant::now(), 0_usize, 0_usize);
    while number < seeds.len() || began.elapsed() < time {
        let input = if number < seeds.len() { seeds[number].clone() } else { mutated(&mut random, seeds) };
        let asked = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        let slow = asked.elapsed() > INPUT_TIME_MAX;
        if outcome.is_err() || slow {
            let kept = format!("crash-{name}-{number}");
            let written = fs::write(&kept, &input);
            eprintln!("{name}: input {number} of seed {SEED} {}; kept in {kept}: {written:?}", if slow { "is too slow" } else { "made it panic" });
            return false;
        }
        number += 1;
        bytes += input.len();
    }
    println!("{name}: {number} inputs, {} MB, no fault", bytes / 1_000_000);
    true
}

/// One to eight changes to a seed, or bytes out of nothing.
fn mutated(random: &mut Pcg64Mcg, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = seeds[random.random_range(0..seeds.len())].clone();
    for _ in 0..random.random_range(1..=8) {
        change(random, &mut input, seeds);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

/// Words that parsers stumble over.
const WORDS: [&[u8]; 24] = [
    b"NaN", b"+Inf", b"-Inf", b"1e400", b"-1", b"0", b"9223372036854775808", b"18446744073709551616", b"\\", b"\"", b"{", b"}", b"[", b"]", b",", b"=", b"\n",
    b"\r\n", b"#", b"# TYPE a counter\n", b"null", b"\xff\xfe", b"\xef\xbb\xbf", b"\0",
];

fn change(random: &mut Pcg64Mcg, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let at = random.random_range(0..=input.len());
    let end = (at + random.random_range(0..=64)).min(input.len());
    match random.random_range(0..8) {
        0 if at < input.len() => input[at] = random.random(),
        1 if at < input.len() => input[at] ^= 1 << random.random_range(0..8),
        2 => drop(input.drain(at..end)),
        3 => drop(input.splice(at..at, WORDS[random.random_range(0..WORDS.len())].iter().copied())),
        4 => {
            let copied = input[at..end].to_vec();
            drop(input.splice(at..at, copied));
        }
        5 => {
            let other = &seeds[random.random_range(0..seeds.len())];
            let from = random.random_range(0..=other.len());
            let to = (from + random.random_range(0..=256)).min(other.len());
            drop(input.splice(at..end, other[from..to].iter().copied()));
        }
        6 => input.truncate(at),
        _ => {
            let length = random.random_range(0..=64);
            let noise: Vec<u8> = (0..length).map(|_| random.random()).collect();
            drop(input.splice(at..at, noise));
        }
    }
}
