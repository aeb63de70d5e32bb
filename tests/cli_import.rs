//! `turnaround import` from outside: what is written, what is refused, and that the same twice is the same once.

use assert_cmd::Command;
use serde_json::Value;
use std::{fmt::Write, fs, path::Path, process::Output};
use tempfile::TempDir;

fn turnaround(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnaround"));
    command.current_dir(folder).args(arguments).env_remove("COLUMNS").env_remove("NO_COLOR").env_remove("TURNAROUND_LOG");
    command.output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", err(output)))
}

/// A folder with one service and two weeks of its log, two requests a window.
fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let config = "currency = \"EUR\"\n[[pool]]\nnodes = \"n1\"\nkind = \"H100-80GB\"\ngpus_per_node = 4\nprice = 2.0\nunobserved = \"free\"\n\
         [[service]]\nname = \"chat\"\nmodels = \"Qwen3-32B\"\nttft = \"2s\"\ntokens_in = 500\ntokens_out = 100\n[publish]\nlisten = \"127.0.0.1:0\"\n";
    fs::write(folder.path().join("turnaround.toml"), config).unwrap();
    let mut log = "time,prompt_tokens\n".to_owned();
    for i in 0..14 * 576 {
        writeln!(log, "{},{}", 1_760_054_400 + i * 150, 100 + i % 50).unwrap();
    }
    fs::write(folder.path().join("log.csv"), log).unwrap();
    folder
}

const IMPORT: [&str; 6] = ["import", "log.csv", "--service", "chat", "--align", "now"];

#[test]
fn the_same_file_twice_is_the_same_history() {
    let folder = folder();
    let first = turnaround(folder.path(), &[&IMPORT[..], &["--json"]].concat());
    assert_eq!(code(&first), 0, "{}", err(&first));
    let told = document(&first);
    let file = &told["files"][0];
    assert_eq!(
        (file["records"].as_u64(), file["new"].as_u64(), file["complete"].as_bool(), file["gaps"].as_u64()),
        (Some(8_064), Some(4_032), Some(true), Some(0))
    );
    assert_eq!(file["moved_s"].as_i64().unwrap() % (7 * 86_400), 0);
    let again = document(&turnaround(folder.path(), &[&IMPORT[..], &["--json"]].concat()));
    assert_eq!((again["files"][0]["new"].as_u64(), again["files"][0]["kept"].as_u64()), (Some(0), Some(4_032)));
    assert_eq!((&again["files"][0]["first"], &again["files"][0]["moved_s"]), (&file["first"], &file["moved_s"]));
    // Another log does not replace it unless it is told to.
    let text = fs::read_to_string(folder.path().join("log.csv")).unwrap();
    fs::write(folder.path().join("log.csv"), text.replace(",100\n", ",101\n")).unwrap();
    let other = turnaround(folder.path(), &IMPORT);
    assert!(code(&other) == 1 && err(&other).contains("--replace"), "{}", err(&other));
    let replaced = document(&turnaround(folder.path(), &[&IMPORT[..], &["--replace", "--json"]].concat()));
    assert_eq!(replaced["files"][0]["new"].as_u64(), Some(4_032));
}

#[test]
fn what_is_imported_can_be_forecast() {
    let folder = folder();
    assert_eq!(code(&turnaround(folder.path(), &IMPORT)), 0);
    let forecast = document(&turnaround(folder.path(), &["forecast", "--service", "chat", "--json"]));
    assert_eq!(forecast["forecasts"][0]["workload"], "chat", "{forecast}");
}

#[test]
fn a_refusal_says_what_to_do_and_writes_nothing() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("short.csv", "time,prompt_tokens\n10,5\n20,6\n");
    write("damaged.csv", "time,prompt_tokens\n1760054400,5\nnoon,6\n");
    write("odd.csv", "a;b\n1;2\n");
    for (arguments, expected, says) in [
        (&["import", "log.csv", "--service", "chta"][..], 1, "known: chat"),
        (&["import", "short.csv", "--service", "chat"], 64, "--align now"),
        (&["import", "damaged.csv", "--service", "chat"], 1, "damaged.csv:3"),
        (&["import", "odd.csv", "--service", "chat"], 1, "--map time=COLUMN"),
        (&["import", "missing.csv", "--service", "chat"], 1, "missing.csv"),
        (&["import", "log.csv", "--service", "chat", "--map", "tim=a"], 64, "time, clock"),
        (&["import", "log.csv", "--service", "chat", "--format", "soup"], 64, "mooncake"),
        (&["import", "log.csv", "--service", "chat", "--interval", "90s"], 1, "whole minutes"),
        (&["import", "log.csv", "log.csv", "--service", "chat"], 1, "cover the same time"),
        (&["import", "--service", "chat"], 64, "--help"),
    ] {
        let output = turnaround(folder.path(), arguments);
        let text = err(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(code(&output) == expected && text.contains(says), "{arguments:?}: {} {text}", code(&output));
    }
    let dry = turnaround(folder.path(), &[&IMPORT[..], &["--dry-run"]].concat());
    assert!(code(&dry) == 0 && String::from_utf8_lossy(&dry.stdout).contains("would be written"), "{}", err(&dry));
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.contains(".db") || n.contains("lock"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
}
