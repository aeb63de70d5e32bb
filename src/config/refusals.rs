//! Every refusal: code, line, value and remedy.

use crate::{Code, ConfigError, parse};

/// A file without a fault, which the cases below damage. Eight H100 in islands of four, one service, one job.
pub(crate) const SOUND: &str = r#"
[[pool]]
nodes = "n[1-2]"
kind = "H100-80GB"
gpus_per_node = 4

[[variant]]
name = "v"
model = "Llama-3.3-70B"
kind = "H100-80GB"
gpus = 2
memory = "70GiB"
alpha = "16ms"
beta = "0.07ms"
gamma = "5ms"
delta = "0.07ms"

[[service]]
name = "chat"
models = "Llama-3.3-70B"
ttft = "2s"

[[job]]
name = "train"
class = "training"
work = "6h"
gang = 4
memory = "70GiB"
"#;

pub(crate) fn faults(text: &str) -> Vec<ConfigError> {
    parse(text, "turnaround.toml").err().unwrap_or_default()
}

/// Lines of the sound file.
fn sound_lines() -> usize {
    SOUND.lines().count()
}

/// A part of the sound file replaced: exactly one fault, in the first line that differs, with this code, its message and help holding these words.
#[track_caller]
fn replaced(old: &str, new: &str, code: Code, message: &str, help: &str) {
    assert_eq!(SOUND.matches(old).count(), 1, "{old} stands once");
    let text = SOUND.replace(old, new);
    let same = SOUND.lines().zip(text.lines()).take_while(|(before, after)| before == after).count();
    check(&text, same + 1, code, message, help);
}

/// Lines added to the end of the sound file: one fault, in the line of theirs that is numbered `at` from 1.
#[track_caller]
pub(crate) fn added(lines: &str, at: usize, code: Code, message: &str, help: &str) {
    check(&format!("{SOUND}{lines}"), sound_lines() + at, code, message, help);
}

#[track_caller]
fn check(text: &str, line: usize, code: Code, message: &str, help: &str) {
    let faults = faults(text);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    let fault = &faults[0];
    assert_eq!((fault.code, fault.line), (code.as_str(), line), "{fault}");
    assert!(fault.message.contains(message), "{fault}");
    assert!(fault.help.contains(help), "{fault}");
    assert!(!fault.label.is_empty() && fault.span.end <= text.len());
    assert!(fault.to_string().starts_with(&format!("turnaround.toml:{line}: ")), "{fault}");
}

#[test]
fn the_sound_file_is_sound() {
    assert_eq!(faults(SOUND), []);
}

/// Field case 73: a misspelt key is an error with a suggestion.
#[test]
fn unknown_keys() {
    added("[[service]]\nname = \"x\"\nmodels = \"Qwen3-8B\"\nmax_replica = 8\n", 4, Code::UnknownKey, "max_replica", "did you mean max_replicas?");
    added("[policy]\nintervall = \"5m\"\n", 2, Code::UnknownKey, "intervall", "did you mean interval?");
    added("[[jobs]]\n", 1, Code::UnknownKey, "jobs", "did you mean job?");
    added("[publish]\ncolour = 1\n", 2, Code::UnknownKey, "colour", "known here: plan_file, listen");
}

#[test]
fn broken_toml_and_wrong_types() {
    added("[store\n", 1, Code::Syntax, "", "");
    added("[policy]\nadvisory = \"yes\"\n", 2, Code::Shape, "invalid type", "turnaround schema config");
    added("[[job]]\nname = \"x\"\n", 1, Code::Shape, "class is missing", "add class");
    check(&SOUND.replace("models = \"Llama-3.3-70B\"\n", ""), 18, Code::Shape, "names no model", "add models");
}

/// Field case 73: a minimum above its maximum is refused with both values, on every kind of workload that has them.
#[test]
fn minimum_above_maximum() {
    for class in ["real-time", "batch", "embedding", "evaluation"] {
        let lines = format!("[[service]]\nname = \"x\"\nclass = \"{class}\"\nmodels = \"Qwen3-8B\"\nmin_replicas = 9\nmax_replicas = 8\n");
        added(&lines, 5, Code::MinAboveMax, "at least 9 replicas but at most 8", "raise max_replicas to 9 or more, or lower min_replicas to 8");
    }
    for class in ["training", "fine-tuning", "quantisation"] {
        let lines = format!("[[job]]\nname = \"x\"\nclass = \"{class}\"\nwork = \"1h\"\nmin_replicas = 9\n");
        added(&lines, 5, Code::UnknownKey, "min_replicas", "known here");
    }
    // The default minimum is 1.
    added("[[service]]\nname = \"x\"\nmodels = \"Qwen3-8B\"\nmax_replicas = 0\n", 4, Code::Number, "max_replicas is 0", "between 1 and");
    replaced("gpus_per_node = 4", "gpus_per_node = 4\nisland = 8", Code::MinAboveMax, "island is 8 but gpus_per_node is 4", "lower island");
    added("[policy]\ninterval = \"10m\"\nvalidity = \"5m\"\n", 3, Code::MinAboveMax, "validity is 5m, shorter than interval, which is 10m", "10m or more");
    added("[policy]\nwatchdog = \"5m\"\n", 2, Code::MinAboveMax, "worker_deadline is 2m, shorter than watchdog, which is 5m", "5m or more");
}

/// Field case 73: a negative cooldown, and other numbers outside what is allowed.
#[test]
fn numbers_outside() {
    replaced("ttft = \"2s\"", "stabilisation = \"-5m\"", Code::Number, "stabilisation is -5m", "must not be negative");
    replaced("ttft = \"2s\"", "min_replicas = -1", Code::Number, "min_replicas is -1", "between 0 and");
    replaced("ttft = \"2s\"", "target = 1.0", Code::Number, "target is 1", "between 0.5 and 0.9999");
    replaced("ttft = \"2s\"", "penalty = nan", Code::Number, "penalty is NaN", "0 or more");
    replaced("ttft = \"2s\"", "ttft = \"0s\"", Code::Number, "ttft is 0s", "above 0");
    replaced("ttft = \"2s\"", "tokens_in = 0", Code::Number, "tokens_in is 0", "above 0");
    replaced("gang = 4", "gang = 0", Code::Number, "gang is 0", "between 1 and");
    replaced("work = \"6h\"", "work = \"0s\"", Code::Number, "work is 0s", "between 1s");
    replaced("gpus_per_node = 4", "gpus_per_node = 4\nprice = -2.6", Code::Number, "price is -2.6", "0 or more");
    replaced("\nname = \"chat\"", "\nname = \" chat\"", Code::Number, "white space", "no white space");
    added("[policy]\nmip_gap = inf\n", 2, Code::Number, "mip_gap is inf", "between 0 and 0.5");
    added("[policy]\nhorizon = \"1h\"\n", 2, Code::Number, "horizon is 1h", "between 3h and");
}

/// Field case 45: a number without a unit is refused; GB and GiB are kept apart.
#[test]
fn sizes_need_units() {
    let job = |memory: &str| SOUND.replace("gang = 4\nmemory = \"70GiB\"", &format!("gang = 4\nmemory = {memory}"));
    let line = sound_lines();
    check(&job("24"), line, Code::Size, "memory is 24, without a unit", "\"24GiB\" (1024^3 bytes each) or \"24GB\"");
    check(&job("\"24\""), line, Code::Size, "without a unit", "24GiB");
    check(&job("\"24G\""), line, Code::Size, "\"24G\" is not a size", "KiB, MiB, GiB");
    check(&job("\"0GiB\""), line, Code::Number, "memory is 0GiB", "");
    check(&job("true"), line, Code::Shape, "invalid type", "");
    let held = |memory: &str| parse(&job(memory), "t").unwrap().workloads[1].job().unwrap().memory_per_gpu.0;
    assert_eq!([held("\"24GB\""), held("\"24GiB\""), held("\"24000MiB\"")], [24_000_000_000, 24 << 30, 24_000 << 20]);
}

#[test]
fn durations_need_units() {
    replaced("ttft = \"2s\"", "ttft = 2", Code::Duration, "ttft is 2, without a unit", "\"80ms\"");
    replaced("work = \"6h\"", "work = 6", Code::Duration, "work is 6, without a unit", "2h30m");
    replaced("work = \"6h\"", "work = \"6 hours\"", Code::Duration, "\"6 hours\" is not a duration", "units are");
    added("[policy]\ninterval = 300\n", 2, Code::Duration, "interval is 300, without a unit", "300s");
}

#[test]
fn dangling_references() {
    replaced(
        "kind = \"H100-80GB\"\ngpus_per_node",
        "kind = \"H100-80G\"\ngpus_per_node",
        Code::Dangling,
        "GPU kind \"H100-80G\"",
        "did you mean \"H100-80GB\"?",
    );
    replaced("models = \"Llama-3.3-70B\"\n", "models = \"Llama-3.3-70b\"\n", Code::Dangling, "model \"Llama-3.3-70b\"", "did you mean \"Llama-3.3-70B\"?");
    replaced("models = \"Llama-3.3-70B\"\n", "variants = [\"w\"]\n", Code::Dangling, "variant \"w\"", "did you mean \"v\"?");
    replaced("kind = \"H100-80GB\"\ngpus = 2", "kind = \"L40S\"\ngpus = 2", Code::Dangling, "GPU kind of a pool \"L40S\"", "known: H100-80GB");
    replaced("model = \"Llama-3.3-70B\"", "model = \"Grand-1T\"", Code::Dangling, "model \"Grand-1T\"", "known: ");
    added("speed = { \"H100-80GB\" = 0.0 }\n", 1, Code::Number, "speed on H100-80GB is 0", "above 0");
    added("on = [\"A10G\"]\n", 1, Code::Dangling, "GPU kind of a pool \"A10G\"", "known: H100-80GB");
    added("[[source.prometheus]]\nurl = \"http://a\"\nservice = \"chatt\"\n", 3, Code::Dangling, "service \"chatt\"", "did you mean \"chat\"?");
    added(
        "[[source.prometheus]]\nurl = \"http://a\"\nservice = \"chat\"\nvariant = \"x\"\n",
        4,
        Code::Dangling,
        "variant of chat \"x\"",
        "did you mean \"v\"?",
    );
    added("[[source.prometheus]]\nurl = \"http://a\"\nservice = \"chat\"\ngpus = \"n3/0-1\"\n", 4, Code::Dangling, "GPU \"n3/0\"", "did you mean \"n1/0\"?");
    added("[source.nvml]\nnode = \"n7\"\n", 2, Code::Dangling, "node \"n7\"", "did you mean \"n1\"?");
    added("[[source.trace]]\nservice = \"cat\"\nbundled = \"x\"\n", 2, Code::Dangling, "service \"cat\"", "did you mean \"chat\"?");
    replaced("ttft = \"2s\"", "zone = \"Europe/Belin\"", Code::Dangling, "time zone \"Europe/Belin\"", "did you mean \"Europe/Berlin\"?");
}

#[test]
fn things_listed_twice() {
    added("[[job]]\nname = \"chat\"\nclass = \"batch\"\nwork = \"1h\"\nmemory = \"1GiB\"\n", 2, Code::Duplicate, "workload \"chat\"", "another name");
    added("[[pool]]\nname = \"b\"\nnodes = \"n2\"\nkind = \"L40S\"\ngpus_per_node = 1\n", 3, Code::Duplicate, "node n2 is listed twice", "once");
    added("[[pool]]\nnodes = \"n9\"\nkind = \"H100-80GB\"\ngpus_per_node = 1\n", 3, Code::Duplicate, "pool \"h100-80gb\"", "`name`");
    replaced("gpus_per_node = 4", "gpus_per_node = 4\nuuids = { n1 = [\"a\", \"b\", \"a\", \"c\"] }", Code::Duplicate, "GPU \"a\" is listed twice", "");
    added("[[gpu_kind]]\nname = \"X\"\nmemory = \"1GiB\"\n[[gpu_kind]]\nname = \"X\"\nmemory = \"2GiB\"\n", 5, Code::Duplicate, "GPU kind \"X\"", "");
    let source = "[[source.prometheus]]\nurl = \"http://n1:8000/metrics\"\nservice = \"chat\"\n";
    added(&format!("{source}{}", source.replace("n1", "N1")), 5, Code::Duplicate, "\"http://n1:8000/metrics\" is listed twice", "remove one");
    let other = source.replace("n1", "n2");
    added(&format!("{source}name = \"a\"\n{other}name = \"a\"\n"), 8, Code::Duplicate, "source \"a\"", "another name");
    added(&format!("{source}gpus = \"n1/0-1\"\n{other}gpus = \"n1/1-2\"\n"), 8, Code::Duplicate, "GPU n1/1 is held by", "correct one");
}

#[test]
fn node_ranges_that_are_none() {
    replaced("\"n[1-2]\"", "\"n[2-1]\"", Code::Range, "it runs from 2 down to 1", "gpu[001-038]");
    replaced("\"n[1-2]\"", "\"n[1-2\"", Code::Range, "not closed", "gpu[001-038]");
    replaced("\"n[1-2]\"", "[\"n1\", \"n[1-x]\"]", Code::Range, "\"x\" is not a number", "gpu[001-038]");
}

#[test]
fn targets_no_fleet_can_meet() {
    // 5 ms + 0.07 ms x 1000 tokens.
    replaced(
        "ttft = \"2s\"",
        "ttft = \"40ms\"",
        Code::Latency,
        "a first token in 40 ms, but prefill of 1000 tokens alone takes 75 ms",
        "raise ttft above 75ms",
    );
    replaced(
        "ttft = \"2s\"",
        "tpot = \"10ms\"",
        Code::Latency,
        "10.0 ms per output token, but a decode step of one sequence takes 16.1 ms",
        "raise tpot above 17ms",
    );
    let memory = "memory = \"70GiB\"\nalpha";
    replaced(memory, "memory = \"90GiB\"\nalpha", Code::Memory, "holds 90.0 GiB of each GPU, but H100-80GB has 79.6 GiB", "more GPUs");
    replaced("gang = 4\nmemory = \"70GiB\"", "gang = 4\nmemory = \"90GiB\"", Code::Memory, "holds 90.0 GiB of each GPU", "larger kind");
    replaced("gang = 4", "gang = 6", Code::Island, "needs 6 GPUs in one island, but islands of H100-80GB hold at most 4", "lower gang to 4");
    replaced("ttft = \"2s\"", "min_replicas = 5", Code::FleetSize, "at least 5 replicas, but the whole fleet holds 4", "lower min_replicas to 4");
    added(
        "release = \"2026-12-01T00:00:00Z\"\ndeadline = \"2026-12-01T05:00:00Z\"\n",
        2,
        Code::Instant,
        "needs 6h of work (best speed 1), but has 5h",
        "move the deadline",
    );
    added(
        "release = \"2026-12-01T00:00:00Z\"\ndeadline = \"2026-11-01T05:00:00Z\"\n",
        2,
        Code::MinAboveMax,
        "wanted by 2026-11-01T05:00:00Z",
        "move the deadline",
    );
    added("deadline = \"2026-12-01\"\n", 1, Code::Instant, "\"2026-12-01\" is not an instant", "2026-12-01T08:00:00Z");
}

#[test]
fn a_variant_that_fits_nowhere_is_refused_once_and_where_it_is_written() {
    replaced("gpus = 2", "gpus = 8", Code::Island, "needs 8 GPUs in one island, but islands of H100-80GB hold at most 4", "use at most 4");
    let source = "[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\nvariant = \"v\"\ngpus = \"n1/0-1\"\n";
    check(&format!("{}{source}", SOUND.replace("gpus = 2", "gpus = 8")), 11, Code::Island, "variant \"v\"", "use at most 4");
}

#[test]
fn addresses() {
    added("[publish]\nlisten = \"0.0.0.0:9464\"\n", 2, Code::Address, "listen is 0.0.0.0:9464, which other hosts can reach", "allow_remote = true");
    added("[publish]\nlisten = \"localhost\"\n", 2, Code::Address, "is not an address with a port", "127.0.0.1:9464");
    assert!(parse(&format!("{SOUND}[publish]\nlisten = \"0.0.0.0:9464\"\nallow_remote = true\n"), "t").is_ok());
    assert!(parse(&format!("{SOUND}[publish]\nlisten = \"[::1]:9464\"\n"), "t").is_ok());
    let source = |url: &str| format!("[[source.prometheus]]\nurl = \"{url}\"\nservice = \"chat\"\n");
    added(&source("n1:8000"), 2, Code::Address, "is not an address", "http://host:8000/metrics");
    added(&source("http://n1:80000"), 2, Code::Address, "has a port that is none", "65535");
    added(&source("http://a:{node}/"), 2, Code::Conflict, "several nodes, but none are named", "add nodes");
}

/// A secret in the file is refused, and no message repeats it; references to secrets are kept as names.
#[test]
fn secrets_do_not_stand_in_the_file() {
    let lines = "[[source.prometheus]]\nurl = \"http://bob:hunter2@n1:8000\"\nservice = \"chat\"\n";
    added(lines, 2, Code::Address, "user name or password", "token_file or token_env");
    assert!(!format!("{:?}", faults(&format!("{SOUND}{lines}"))).contains("hunter2"));
    added(
        "[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\ntoken_file = \"a\"\ntoken_env = \"B\"\n",
        4,
        Code::Conflict,
        "file and in a variable",
        "remove",
    );
}

#[test]
fn currencies() {
    check(&format!("currency = \"eur\"\n{SOUND}"), 1, Code::Currency, "\"eur\" is not a currency", "did you mean \"EUR\"?");
    check(&format!("currency = \"Euros\"\n{SOUND}"), 1, Code::Currency, "\"Euros\" is not a currency", "ISO 4217");
}

#[test]
fn gpus_that_do_not_match_what_runs_there() {
    let source = |gpus: &str| format!("[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\ngpus = {gpus}\n");
    added(&source("\"n1/0-2\""), 4, Code::Placement, "holds 2 GPUs, but 3 are named", "exactly 2");
    added(&source("[\"n1/0\", \"n2/0\"]"), 4, Code::Placement, "spread over islands n1/0-3 and n2/0-3", "one island");
    added(&source("\"n1/x\""), 4, Code::Range, "does not name GPUs", "node/first-last");
    added("running = { gpus = \"n1/0-1\", since = \"2026-12-01T00:00:00Z\" }\n", 1, Code::Placement, "holds 4 GPUs, but 2 are named", "exactly 4");
    replaced("gpus_per_node = 4", "gpus_per_node = 4\nuuids = { n1 = [\"a\"] }", Code::Placement, "has 4 GPUs, but 1 UUIDs", "one UUID a GPU");
}

/// Field case 7: a counter used as a gauge in the configuration is refused with a clear message.
#[test]
fn a_counter_is_no_gauge() {
    let source = |metric: &str| format!("[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\nmetrics = {{ {metric} }}\n");
    added(
        &source("requests_running = \"my:requests_total\""),
        4,
        Code::Metric,
        "my:requests_total is a counter, and requests_running asks for a gauge",
        "load that never falls",
    );
    added(
        &source("requests_finished = \"vllm:num_requests_running\""),
        4,
        Code::Metric,
        "is a gauge, and requests_finished asks for a counter",
        "name a counter",
    );
    added(&source("time_to_first_token = \"x_bucket\""), 4, Code::Metric, "part of a histogram", "name the histogram itself: x");
    added(&source("requests_runing = \"x\""), 4, Code::UnknownKey, "no signal \"requests_runing\"", "did you mean \"requests_running\"?");
    let config = parse(&format!("{SOUND}{}", source("requests_running = \"my:running\"")), "t").unwrap();
    assert_eq!(config.targets[0].metrics.values().collect::<Vec<_>>(), ["my:running"]);
}

#[test]
fn keys_that_exclude_each_other() {
    replaced("ttft = \"2s\"", "variants = [\"v\"]", Code::Conflict, "names models and variants", "remove");
    replaced("alpha = \"16ms\"\n", "requests_per_s = 2\n", Code::Conflict, "outright and by step times", "remove requests_per_s");
    added("checkpoint = \"never\"\npreemptible = true\n", 2, Code::Conflict, "preemptible but writes no checkpoints", "never stopped");
    added("on = [\"H100-80GB\"]\nspeed = { \"H100-80GB\" = 1.0 }\n", 1, Code::Conflict, "both on and speed", "remove `on`");
    replaced("gpus_per_node = 4", "gpus_per_node = 4\nisland = 3", Code::Conflict, "4 is not a multiple of island 3", "pool of their own");
    added("[[source.trace]]\nservice = \"chat\"\nfile = \"x\"\n", 1, Code::Conflict, "either a file with its format, or bundled", "format = ");
}

#[test]
fn words_that_are_not_understood() {
    replaced("class = \"training\"", "class = \"trainning\"", Code::Word, "\"trainning\"", "did you mean \"training\"?");
    replaced("class = \"training\"", "class = \"real-time\"", Code::Word, "real-time does not belong here", "[[service]]");
    replaced("ttft = \"2s\"", "class = \"training\"", Code::Word, "training does not belong here", "[[job]]");
    replaced("gpus_per_node = 4", "gpus_per_node = 4\nunobserved = \"busy\"", Code::Word, "\"busy\"", "occupied, free");
}

#[test]
fn nothing_to_plan() {
    let faults = faults("");
    assert_eq!(faults.iter().map(|fault| (fault.code, fault.line)).collect::<Vec<_>>(), [(Code::Nothing.as_str(), 1); 2]);
}

/// One reading, all faults, in the order of the file; a broken fleet does not make everything else look broken.
#[test]
fn everything_is_said_at_once() {
    let text = SOUND.replace("ttft = \"2s\"", "ttft = 2\nmin_replicas = -3").replace("work = \"6h\"", "work = 6").replace("n[1-2]", "n[2-1]");
    let faults = faults(&text);
    let seen: Vec<_> = faults.iter().map(|fault| (fault.line, fault.code)).collect();
    assert_eq!(seen, [(3, Code::Range.as_str()), (21, "TA0105"), (22, "TA0106"), (27, "TA0105")], "{faults:#?}");
}

#[test]
fn what_works_and_is_probably_not_meant() {
    let source = "[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\n";
    let config = parse(&format!("{}{source}", SOUND.replace("ttft = \"2s\"", "min_replicas = 0")), "t.toml").unwrap();
    let [warning] = config.warnings.as_slice() else { panic!("{:?}", config.warnings) };
    assert_eq!((warning.code, warning.line), (Code::Sleeper.as_str(), 21));
    assert!(warning.help.contains("min_replicas = 1"));
    // With another source there is nothing to warn of.
    let traced = format!("{}{source}[[source.trace]]\nservice = \"chat\"\nbundled = \"x\"\n", SOUND.replace("ttft = \"2s\"", "min_replicas = 0"));
    assert_eq!(parse(&traced, "t.toml").unwrap().warnings, []);
}

/// Every code has a case here.
#[test]
fn every_code_is_triggered() {
    let here = concat!(include_str!("refusals.rs"), include_str!("refusals_sources.rs"));
    for code in Code::ALL {
        let name = format!("Code::{code:?}");
        let literal = code.as_str();
        assert!(here.contains(&name) || here.contains(literal) || code == Code::LeftOut, "{name} has no test");
    }
}

#[test]
fn variants_too_slow_for_the_target_are_left_out_and_named() {
    let pools = "[[pool]]\nnodes = \"a1\"\nkind = \"L40S\"\ngpus_per_node = 4\n";
    let service = "[[service]]\nname = \"fast\"\nmodels = \"Qwen3-8B\"\ntpot = \"12ms\"\n";
    let config = parse(&format!("{SOUND}{pools}{service}"), "t.toml").unwrap();
    let [warning] = config.warnings.as_slice() else { panic!("{:?}", config.warnings) };
    assert_eq!(warning.code, Code::LeftOut.as_str());
    assert!(warning.message.contains("qwen3-8b-bf16-tp1-l40s"));
    let fast = config.workloads.iter().find(|workload| workload.id.as_str() == "fast").unwrap();
    assert_eq!(fast.service().unwrap().variants.iter().map(ToString::to_string).collect::<Vec<_>>(), ["qwen3-8b-bf16-tp1-h100-80gb"]);
}
