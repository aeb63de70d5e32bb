//! The commands from outside: exit codes, what goes to which stream, files that are never overwritten.

use assert_cmd::Command;
use serde_json::Value;
use std::{fs, path::Path, process::Output};
use tempfile::TempDir;

/// A fixed instant, so that recorded traffic replays the same.
const AS_OF: &str = "2026-12-01T08:00:00Z";

fn turnaround(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_turnaround"));
    command.current_dir(folder).args(arguments).env_remove("COLUMNS").env_remove("NO_COLOR").env_remove("TURNAROUND_LOG");
    command.output().unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Standard output as the one JSON document it must be.
fn document(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}\n{}", out(output), err(output)))
}

/// A folder with the sample configuration.
fn sample() -> TempDir {
    let folder = TempDir::new().unwrap();
    assert_eq!(code(&turnaround(folder.path(), &["init", "--sample"])), 0);
    folder
}

fn configured(text: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("turnaround.toml"), text).unwrap();
    folder
}

/// One GPU node and one service, with what is given added.
fn small(more: &str) -> String {
    format!(
        "currency = \"EUR\"\n[[pool]]\nnodes = \"n1\"\nkind = \"H100-80GB\"\ngpus_per_node = 4\nprice = 2.0\nunobserved = \"free\"\n\
         [[service]]\nname = \"chat\"\nmodels = \"Qwen3-32B\"\nttft = \"2s\"\ntokens_in = 500\ntokens_out = 100\n{more}\n[publish]\nlisten = \"127.0.0.1:0\"\n"
    )
}

#[test]
fn a_wrong_command_line_is_64_and_never_looks_like_changes() {
    let folder = TempDir::new().unwrap();
    for arguments in [&["--bad"][..], &["plan", "--nope"], &["schema", "soup"], &["forecast", "--hours", "0"], &["init"], &["verify"], &[]] {
        let output = turnaround(folder.path(), arguments);
        assert_eq!(code(&output), 64, "{arguments:?}: {}", err(&output));
        assert!(out(&output).is_empty() && err(&output).contains("--help"), "{arguments:?}");
    }
    let output = turnaround(folder.path(), &["plan", "--nope", "--json"]);
    assert_eq!((code(&output), document(&output)["error"]["exit_code"].as_i64()), (64, Some(64)));
}

#[test]
fn help_documents_exit_codes_and_gives_examples() {
    let folder = TempDir::new().unwrap();
    let main = turnaround(folder.path(), &["--help"]);
    assert_eq!(code(&main), 0);
    for needle in ["Exit codes:", "78", "64", "turnaround plan"] {
        assert!(out(&main).contains(needle), "{needle}");
    }
    for command in ["demo", "init", "run", "forecast", "plan", "verify", "import", "store", "status", "doctor", "agent", "schema", "explain"] {
        let help = turnaround(folder.path(), &[command, "--help"]);
        assert!(code(&help) == 0 && out(&help).contains("Examples:"), "{command}");
    }
    assert!(!out(&main).contains("worker"), "the worker is nobody's command");
}

#[test]
fn a_missing_configuration_is_78_and_says_how_to_get_one() {
    let folder = TempDir::new().unwrap();
    for command in ["plan", "forecast", "run", "doctor"] {
        let output = turnaround(folder.path(), &[command, "--config", "absent.toml"]);
        assert_eq!(code(&output), 78, "{command}");
        assert!(err(&output).contains("absent.toml") && err(&output).contains("init --sample"), "{}", err(&output));
    }
}

#[test]
fn all_faults_of_a_configuration_are_drawn_at_their_place() {
    let folder = configured(&small("min_replicas = 4\nmax_replicas = 2\nzone = \"Mars/Olympus\"\n"));
    let output = turnaround(folder.path(), &["plan"]);
    assert_eq!(code(&output), 78);
    let text = err(&output);
    for needle in ["TA0107", "turnaround.toml:", "min_replicas = 4", "help:", "Mars/Olympus", "turnaround explain TA0"] {
        assert!(text.contains(needle), "{needle} not in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour in a pipe");
    let output = turnaround(folder.path(), &["plan", "--json"]);
    let faults = document(&output)["error"]["faults"].clone();
    assert!(faults.as_array().unwrap().len() >= 2);
    assert!(faults.as_array().unwrap().iter().all(|f| f["line"].as_u64().is_some_and(|l| l > 1) && f["help"].is_string()));
    let explained = turnaround(folder.path(), &["explain", faults[0]["code"].as_str().unwrap()]);
    assert!(code(&explained) == 0 && out(&explained).len() > 20);
}

#[test]
fn init_never_overwrites() {
    let folder = sample();
    let file = folder.path().join("turnaround.toml");
    fs::write(&file, "mine").unwrap();
    let output = turnaround(folder.path(), &["init", "--sample"]);
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("--force"));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(code(&turnaround(folder.path(), &["init", "--sample", "--force"])), 0);
    assert!(fs::read_to_string(&file).unwrap().contains("[[pool]]"));
    assert_eq!(code(&turnaround(folder.path(), &["init", "--sample", "--out", "no/such/folder.toml"])), 1);
}

#[test]
fn schemas_are_json_schema() {
    let folder = TempDir::new().unwrap();
    for (of, key) in [("config", "service"), ("plan", "committed"), ("problem", "steps")] {
        let plain = turnaround(folder.path(), &["schema", of]);
        let schema = document(&plain);
        assert!(schema["$schema"].is_string() && schema["properties"][key].is_object(), "{of}");
        assert_eq!(document(&turnaround(folder.path(), &["schema", of, "--json"])), schema);
    }
}

#[test]
fn a_sample_forecasts_plans_and_verifies() {
    let folder = sample();
    let forecast = turnaround(folder.path(), &["forecast", "--as-of", AS_OF, "--json"]);
    assert_eq!(code(&forecast), 0, "{}", err(&forecast));
    let forecasts = document(&forecast)["forecasts"].clone();
    assert_eq!(forecasts.as_array().unwrap().len(), 3);
    assert!(forecasts.as_array().unwrap().iter().all(|f| f["values"].as_array().unwrap().len() == 24));

    let plan = turnaround(folder.path(), &["plan", "--as-of", AS_OF, "--json", "--problem-out", "problem.json", "--out", "asked.json"]);
    assert_eq!(code(&plan), 2, "nothing runs yet, so there are changes: {}", err(&plan));
    let plan = document(&plan);
    assert!(plan["changes"] == true && plan["plan"]["generation"] == 1 && plan["plan"]["advisory"] == true);

    assert!(!folder.path().join("plan.json").exists(), "a plan for another instant is not put in force");
    let verified = turnaround(folder.path(), &["verify", "asked.json", "--problem", "problem.json", "--config", "absent.toml"]);
    assert_eq!(code(&verified), 0, "{}{}", out(&verified), err(&verified));

    for generation in [1, 2] {
        let plan = turnaround(folder.path(), &["plan", "--json"]);
        assert_eq!(document(&plan)["plan"]["generation"], generation, "{}", err(&plan));
        let verified = turnaround(folder.path(), &["verify", "plan.json"]);
        assert_eq!(code(&verified), 0, "{}{}", out(&verified), err(&verified));
    }
    let tampered = fs::read_to_string(folder.path().join("plan.json")).unwrap().replacen("\"advisory\":true", "\"advisory\":false", 1);
    fs::write(folder.path().join("tampered.json"), tampered).unwrap();
    let refused = turnaround(folder.path(), &["verify", "tampered.json", "--json"]);
    assert_eq!(code(&refused), 3);
    assert!(document(&refused)["ok"] == false && !document(&refused)["violations"].as_array().unwrap().is_empty());
}

#[test]
fn a_dry_run_leaves_no_trace() {
    let folder = sample();
    let output = turnaround(folder.path(), &["plan", "--as-of", AS_OF, "--dry-run"]);
    assert_eq!(code(&output), 2, "{}", err(&output));
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["turnaround.toml"]);
}

#[test]
fn texts_fit_the_width_and_carry_no_colour_in_a_pipe() {
    let folder = sample();
    for width in ["80", "100", "160"] {
        for arguments in [&["plan", "--dry-run", "--as-of", AS_OF][..], &["forecast", "--as-of", AS_OF], &["forecast", "--backtest", "--as-of", AS_OF]] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_turnaround"));
            let output = command.current_dir(folder.path()).args(arguments).args(["--ascii"]).env("COLUMNS", width).output().unwrap();
            let text = out(&output);
            assert!(!text.is_empty() && text.is_ascii(), "{arguments:?}: {text}");
            let widest = text.lines().map(str::len).max().unwrap();
            assert!(widest <= width.parse().unwrap(), "{arguments:?} is {widest} wide at {width}:\n{text}");
        }
    }
}

#[test]
fn every_command_keeps_standard_output_pure_json() {
    let folder = sample();
    let commands = [
        &["forecast", "--as-of", AS_OF][..],
        &["forecast", "--as-of", AS_OF, "--backtest", "--service", "chat"],
        &["forecast", "--service", "nobody"],
        &["forecast", "--trace", "absent.csv"],
        &["plan", "--as-of", AS_OF],
        &["verify", "plan.json"],
        &["verify", "absent.json"],
        &["doctor"],
        &["doctor", "--all"],
        &["explain"],
        &["explain", "TA9999"],
        &["init", "--sample"],
        &["init", "--sample", "--out", "other.toml"],
    ];
    for arguments in commands {
        let output = turnaround(folder.path(), &[arguments, &["--json"]].concat());
        document(&output);
        let failed = out(&output).contains("\"error\": {");
        assert_eq!(failed, code(&output) == 1 && !arguments.contains(&"doctor"), "{arguments:?}: {}", out(&output));
    }
}

#[test]
fn without_any_demand_nothing_is_forecast() {
    let folder = configured(&small(""));
    let output = turnaround(folder.path(), &["forecast"]);
    assert_eq!(code(&output), 4, "{}", err(&output));
    assert!(out(&output).contains("No forecast") && !out(&output).contains("0.0"));
    assert!(!folder.path().join(".turnaround").exists(), "a forecast makes no store");
}

#[test]
fn a_dead_source_is_named_with_cause_and_remedy() {
    // Nothing listens on the discard port of a test machine, and if something does it speaks no HTTP.
    let source =
        "[[source.prometheus]]\nurl = \"http://127.0.0.1:9/metrics\"\nservice = \"chat\"\nvariant = \"qwen3-32b-fp8-tp1-h100-80gb\"\ngpus = \"n1/0\"\n";
    let folder = configured(&small(source));
    let output = turnaround(folder.path(), &["doctor", "--json"]);
    assert_eq!(code(&output), 1, "{}{}", out(&output), err(&output));
    let findings = document(&output)["findings"].clone();
    let broken: Vec<&Value> = findings.as_array().unwrap().iter().filter(|f| f["severity"] == "error").collect();
    assert_eq!(broken.len(), 1, "{findings:#}");
    assert!(broken[0]["remedy"].as_str().unwrap().contains("curl") && broken[0]["cause"].as_str().unwrap().contains("127.0.0.1:9"));
    let shown = out(&turnaround(folder.path(), &["doctor"]));
    assert!(shown.contains("do: curl") && !shown.lines().any(|l| l.starts_with("ok ")), "{shown}");
    let planned = turnaround(folder.path(), &["plan", "--dry-run", "--json"]);
    assert!([0, 2].contains(&code(&planned)), "a dead endpoint does not stop planning: {}", err(&planned));
    assert!(document(&planned)["notes"].to_string().contains("does not answer"));
}

#[test]
fn a_short_demo_gives_the_same_bytes_twice() {
    let folder = TempDir::new().unwrap();
    let run = |out: &str| turnaround(folder.path(), &["demo", "--days", "1", "--seed", "3", "--out", out, "--json"]);
    let (first, second) = (run("a"), run("b"));
    assert_eq!(code(&first), 0, "{}", err(&first));
    let demo = document(&first);
    for name in ["turnaround", "next-free-gpu", "static-peak"] {
        let policy = &demo["policies"][name];
        let hours: f64 = policy["hours"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
        assert!((hours - 24.0 * 24.0).abs() < 0.1, "{name}: {hours} of 576 GPU-hours");
        assert!(policy["useful_utilisation"].is_number() && policy["cost_per_useful_gpu_hour"].is_number() && policy["jobs_late"].is_number());
    }
    assert!(demo["plans_refused"] == 0 && demo["cycles"].as_u64().unwrap() >= 24);
    assert!(out(&first) == out(&second), "the same seed gives the same bytes");
    for name in ["plan.json", "problem.json", "report.html"] {
        let read = |folder_name: &str| fs::read(folder.path().join(folder_name).join(name)).unwrap();
        assert!(read("a") == read("b"), "{name} differs");
    }
    let verified = turnaround(folder.path(), &["verify", "a/plan.json", "--problem", "a/problem.json"]);
    assert_eq!(code(&verified), 0, "{}", out(&verified));
}
