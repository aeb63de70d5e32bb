//! Sources, engines and the history: what is read, and every refusal with its place.

use crate::{
    Access, Code, Config, Credential, DiscoveryList, Secret, Subject, Tls, parse,
    refusals::{SOUND, added, faults},
};
use fleet::{Signal, Span};
use std::{path::Path, time::Duration};

/// A page of the service, with these keys beside its address: the fault stands in the fourth line.
#[track_caller]
fn page(keys: &str, code: Code, message: &str, help: &str) {
    added(&format!("[[source.prometheus]]\nurl = \"https://n1:8000\"\nservice = \"chat\"\n{keys}\n"), 4, code, message, help);
}

fn read(lines: &str) -> Config {
    parse(&format!("{SOUND}{lines}"), "t.toml").unwrap_or_else(|errors| panic!("{errors:#?}"))
}

#[test]
fn access_is_whole_or_refused() {
    page("user = \"bob\"", Code::Conflict, "user \"bob\" has no password", "password_file");
    page("password_env = \"P\"", Code::Conflict, "password without a user", "add user");
    page("user = \"bob\"\npassword_env = \"P\"\ntoken_env = \"T\"", Code::Conflict, "both a token and a password", "remove the token");
    page("cert_file = \"a.pem\"", Code::Conflict, "cert_file without key_file", "add key_file");
    page("key_file = \"a.pem\"", Code::Conflict, "key_file without cert_file", "add cert_file");
    page("ca_file = \" \"", Code::Shape, "ca_file is empty", "write a path");
    let plain = "[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\nca_file = \"ca.pem\"\n";
    added(plain, 4, Code::Conflict, "begins with http://", "write https://");
    let whole = "user = \"bob\"\npassword_file = \"secrets/p\"\nca_file = \"ca.pem\"\ncert_file = \"/etc/c.pem\"\nkey_file = \"k.pem\"\n";
    let mut config = read(&format!("[[source.prometheus]]\nurl = \"https://n1\"\nservice = \"chat\"\n{whole}"));
    config.place(Path::new("/srv"));
    let tls = Tls { ca: Some("/srv/ca.pem".into()), certificate: Some("/etc/c.pem".into()), key: Some("/srv/k.pem".into()) };
    let credential = Credential::Basic { user: "bob".into(), password: Secret::File("/srv/secrets/p".into()) };
    assert_eq!(config.targets[0].access, Access { credential: Some(credential), tls });
}

/// A token where the name of a variable belongs is refused, and not repeated.
#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    page("token_env = \"hf-s3cr3t.x\"", Code::Shape, "token_env does not hold the name", "METRICS_TOKEN");
    let lines = "[[source.prometheus]]\nurl = \"n1:s3cr3t@host\"\nservice = \"chat\"\ntoken_env = \"s3cr3t!\"\n[[source.http_sd]]\nurl = \"http://a:s3cr3t@b\"\nservice = \"chatt\"\n";
    let told = format!("{:?}", faults(&format!("{SOUND}{lines}")));
    assert!(told.contains("user name or password") && !told.contains("s3cr3t"), "{told}");
}

#[test]
fn limits_of_a_page() {
    page("timeout = \"20s\"", Code::MinAboveMax, "timeout is 20s, longer than interval, which is 15s", "raise interval");
    page("timeout = 20", Code::Duration, "timeout is 20, without a unit", "20s");
    page("page_bytes_max = \"2GiB\"", Code::Number, "above 1GiB", "at most");
    page("page_bytes_max = 1000", Code::Size, "without a unit", "GiB");
    page("series_max = 0", Code::Number, "series_max is 0", "between 1 and");
    page("engine = \"vlm\"", Code::Dangling, "there is no engine \"vlm\"", "did you mean \"vllm\"?");
    page("role = \"gateway\"", Code::Word, "role does not understand \"gateway\"", "replica, router");
    let config = read("[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\ninterval = \"5s\"\nengine = \"vllm\"\npage_bytes_max = \"1MiB\"\n");
    let target = &config.targets[0];
    assert_eq!((target.limits.timeout, target.limits.bytes_max, target.limits.series_max), (Duration::from_secs(5), 1 << 20, 200_000));
    assert_eq!(target.engine.as_deref(), Some("vllm"));
}

#[test]
fn a_page_of_several_models_has_a_table_for_each_service() {
    let table = |select: &str| format!("[[source.prometheus]]\nurl = \"http://router:9000\"\nservice = \"chat\"\nrole = \"router\"\n{select}\n");
    let two = format!("{}{}", table("select = { model = \"a\" }"), table("select = { model = \"b\" }\nname = \"b\""));
    let config = read(&two);
    let names: Vec<&str> = config.targets.iter().map(|target| target.target.id.as_str()).collect();
    assert_eq!(names, ["chat@router:9000", "b"]);
    assert!(config.targets.iter().all(|target| target.target.variant.is_none()));
    assert_eq!(config.targets[1].select["model"], "b");
    // Lines that both take would count twice.
    added(&format!("{}{}", table("select = { model = \"a\" }"), table("name = \"all\"")), 7, Code::Duplicate, "listed twice", "select = {");
    added(&table("select = { \"model-name\" = \"a\" }"), 5, Code::Selector, "\"model-name\" is not the name of a label", "underscores");
    added(&table("variant = \"v\""), 5, Code::Conflict, "a router runs no variant", "remove variant");
    added(&table("gpus = \"n1/0-1\""), 5, Code::Conflict, "a router holds no GPUs", "remove gpus");
}

#[test]
fn pages_of_gpus_belong_to_no_service() {
    let config = read(
        "[[source.gpu]]\nurl = \"http://{node}:9400\"\nnodes = \"n[1-2]\"\nengine = \"dcgm\"\n[[source.gpu]]\nurl = \"http://10.0.0.9:9400\"\nnode = \"n2\"\n",
    );
    let pages: Vec<_> = config.sources.gpu_pages.iter().map(|page| (page.id.as_str(), page.node.as_ref().map(fleet::NodeId::as_str))).collect();
    assert_eq!(pages, [("n1:9400", Some("n1")), ("n2:9400", Some("n2")), ("10.0.0.9:9400", Some("n2"))]);
    added("[[source.gpu]]\nurl = \"http://{node}:9400\"\nnodes = \"n[2-3]\"\n", 3, Code::Dangling, "node \"n3\"", "did you mean \"n1\"?");
    added("[[source.gpu]]\nurl = \"http://{node}\"\nnodes = \"n1\"\nnode = \"n1\"\n", 4, Code::Conflict, "one node and of several", "remove node");
    added("[[source.gpu]]\nurl = \"http://a\"\nservice = \"chat\"\n", 3, Code::UnknownKey, "service", "known here");
    let mapped = |key: &str| format!("[[source.gpu]]\nurl = \"http://a\"\nmetrics = {{ {key} = \"x\" }}\n");
    added(&mapped("requests_running"), 3, Code::Metric, "requests_running is a signal of serving engines", "map it at the source");
    added(&mapped("gpu_powr"), 3, Code::UnknownKey, "no signal \"gpu_powr\"", "did you mean \"gpu_power\"?");
}

#[test]
fn servers_that_keep_pages() {
    let api = |keys: &str| format!("[[source.prometheus_api]]\nurl = \"https://mimir/prometheus/\"\n{keys}\n");
    let text = format!("{}{}", api("service = \"chat\"\nmatch = '{job=\"vllm\"}'\ntenant = \"a|b\"\ntoken_env = \"T\""), api(""));
    let config = read(&text);
    let [chat, gpus] = config.sources.prometheus_apis.as_slice() else { panic!("{:?}", config.sources) };
    assert_eq!((chat.id.as_str(), chat.url.as_str(), chat.tenant.as_deref()), ("chat@mimir/prometheus", "https://mimir/prometheus", Some("a|b")));
    assert_eq!((gpus.id.as_str(), &gpus.subject, gpus.selector.as_deref()), ("gpus@mimir/prometheus", &Subject::Gpus, None));
    let target = chat.subject.target(chat.id.clone()).unwrap();
    assert_eq!((target.workload.as_str(), target.variant.as_ref().map(fleet::VariantId::as_str)), ("chat", Some("v")));
    added(&api("match = 'up{job=\"a\"}'"), 3, Code::Selector, "does not begin with {", "chosen by the catalogue");
    added(&api("match = '{job=vllm}'"), 3, Code::Selector, "not in quotes", "job=");
    added(&api("tenant = \"a b\""), 3, Code::Shape, "cannot be sent", "without white space");
    added(&api("variant = \"v\""), 3, Code::Conflict, "names no service, so it tells of GPUs", "add service");
    added(&api("service = \"chta\""), 3, Code::Dangling, "service \"chta\"", "did you mean \"chat\"?");
}

#[test]
fn lists_of_pages() {
    let files = "[[source.file_sd]]\nfiles = [\"sd/chat-*.json\", \"/etc/more.yml\"]\nservice = \"chat\"\nselect = { tier = \"prod\" }\nrefresh = \"30s\"\n";
    let http = "[[source.http_sd]]\nurl = \"https://sd/list\"\nlist_token_env = \"L\"\ntoken_env = \"T\"\nca_file = \"ca.pem\"\n";
    let mut config = read(&format!("{files}{http}"));
    config.place(Path::new("/srv"));
    let [first, second] = config.sources.discoveries.as_slice() else { panic!("{:?}", config.sources) };
    assert_eq!(first.list, DiscoveryList::Files(vec!["/srv/sd/chat-*.json".into(), "/etc/more.yml".into()]));
    assert_eq!((first.id.as_str(), first.refresh, first.select["tier"].as_str()), ("chat@sd/chat-*.json", Span(30), "prod"));
    let DiscoveryList::Http { url, access } = &second.list else { panic!("{second:?}") };
    assert_eq!((url.as_str(), &access.credential), ("https://sd/list", &Some(Credential::Bearer(Secret::Env("L".into())))));
    assert_eq!(
        (access.tls.ca.as_deref(), second.page.access.credential.as_ref()),
        (Some(Path::new("/srv/ca.pem")), Some(&Credential::Bearer(Secret::Env("T".into()))))
    );
    for bad in ["sd/*/a.json", "a.txt", "a*b*.json"] {
        added(&format!("[[source.file_sd]]\nfiles = \"{bad}\"\n"), 2, Code::Shape, "does not name lists", "only the last part");
    }
    added("[[source.file_sd]]\nfiles = []\n", 2, Code::Shape, "files is empty", "name the files");
    added("[[source.http_sd]]\nurl = \"https://sd\"\nrefresh = \"1s\"\n", 3, Code::Number, "refresh is 1s", "between 5s and");
}

#[test]
fn buckets_that_hold_readings() {
    let table = |keys: &str| {
        format!("[[source.influxdb]]\nurl = \"http://influx:8086\"\norg = \"o\"\nbucket = \"b\"\nmeasurement = \"nvidia_smi\"\ntoken_env = \"T\"\n{keys}\n")
    };
    let config = read(&table("signals = { gpu_power = \"power_draw\" }\nmember_tag = \"uuid\"\ntags = { host = \"a\" }"));
    let source = &config.sources.influxdb[0];
    assert_eq!((source.id.as_str(), &source.subject), ("gpus@influx:8086/nvidia_smi", &Subject::Gpus));
    assert_eq!((source.fields[&Signal::GpuPower].as_str(), source.member_tag.as_deref()), ("power_draw", Some("uuid")));
    added(&table("signals = { gpu_pwr = \"x\" }"), 7, Code::UnknownKey, "no signal \"gpu_pwr\"", "did you mean");
    added(&table("service = \"chat\"\nsignals = { end_to_end = \"x\" }"), 8, Code::Metric, "holds one number", "stays unknown");
    added(&table("signals = {}"), 1, Code::Shape, "signals names no field", "add signals");
    added(&table("").replace("\"b\"", "\"\""), 1, Code::Shape, "signals is missing", "add signals");
    added(&table("signals = { gpu_power = \"p\" }").replace("\"b\"", "\"\""), 4, Code::Shape, "bucket is empty", "the bucket");
}

#[test]
fn readings_that_are_sent_need_a_token() {
    added("[source.push]\nallowed = [\"chat\"]\n", 1, Code::Conflict, "push names no token", "token_file");
    added("[source.push]\ntoken_env = \"T\"\nallowed = [\"cha\"]\n", 3, Code::Dangling, "service \"cha\"", "did you mean \"chat\"?");
    let push = read("[source.push]\ntoken_file = \"t\"\n").sources.push.unwrap();
    assert_eq!((push.token, push.allowed.len()), (Secret::File("t".into()), 1));
}

/// Field case 47: demand and capacity share a unit, and a metric has the unit of its signal; the refusal names both.
#[test]
fn units_must_agree() {
    let variant = "[[variant]]\nname = \"w\"\nmodel = \"Llama-3.3-70B\"\nkind = \"H100-80GB\"\ntokens_per_s = 2000\n";
    added(variant, 5, Code::Unit, "capacity in tokens/s, but demand and targets are in requests/s", "write requests_per_s");
    page(
        "metrics = { requests_finished = \"my:tokens_total\" }",
        Code::Unit,
        "my:tokens_total is in tokens, and requests_finished is in requests",
        "in requests",
    );
    page("metrics = { end_to_end = \"x_milliseconds\" }", Code::Unit, "x_milliseconds is in milliseconds, and end_to_end is in seconds", "in seconds");
    // A name that says nothing is believed; so is the count of a histogram as a counter.
    let config = read(
        "[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\nmetrics = { requests_finished = \"x_latency_seconds_count\", prompt_tokens = \"in\" }\n",
    );
    assert_eq!(config.targets[0].metrics.len(), 2);
}

/// Field case 7: a counter used as a gauge by an engine of the file is refused where it stands.
#[test]
fn engines_of_the_file() {
    let engine = |rows: &str| format!("[[engine]]\nname = \"mine\"\nprefixes = [\"my:\"]\n{rows}\n");
    let row = |signal: &str, names: &str| engine(&format!("[[engine.signal]]\nsignal = \"{signal}\"\nnames = [{names}]"));
    added(
        &row("requests_running", "\"my:ok\", \"my:seen_total\""),
        6,
        Code::Metric,
        "my:seen_total is a counter, and requests_running asks for a gauge",
        "load that never falls",
    );
    added(&row("requests_running", "{ sum = [\"my:seen\"], typed = \"counter\" }"), 1, Code::Metric, "a running total is no level", "schema config");
    added(&row("end_to_end", "\"my:e2e_ms\""), 6, Code::Unit, "in milliseconds, and end_to_end is in seconds", "name a metric in seconds");
    added(&row("requests_runing", "\"x\""), 5, Code::Word, "requests_runing", "did you mean");
    added(&engine(""), 1, Code::Metric, "it names no signal", "schema config");
    let scaled = row("end_to_end", "{ sum = [\"my:e2e_ms\"], scale = 0.001 }");
    let config = read(&format!("{scaled}[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\nengine = \"mine\"\n"));
    assert_eq!((config.engines[0].name.as_str(), config.targets[0].engine.as_deref()), ("mine", Some("mine")));
    added(&format!("{scaled}{}", row("prompt_tokens", "\"my:in\"")), 8, Code::Duplicate, "engine \"mine\" is listed twice", "another name");
}

#[test]
fn the_history_in_influxdb() {
    let store = |keys: &str| format!("[store.influxdb]\nurl = \"https://influx:8086/\"\norg = \"o\"\n{keys}\n");
    added(&store(""), 1, Code::Conflict, "store.influxdb names no token", "token_file");
    added(&store("token_env = \"T\"\nqueue_size = \"10kB\""), 5, Code::Number, "queue_size is 10kB", "1MiB");
    added(&store("token_env = \"T\"\nqueue_size = 1"), 5, Code::Size, "without a unit", "1GiB");
    added(&store("token_env = \"T\"\nbatch_age = \"5m\""), 5, Code::Number, "batch_age is 5m", "at most 60s");
    added(&store("token_env = \"T\"\nbatch_points = 0"), 5, Code::Number, "batch_points is 0", "between 1 and");
    added(&store("token_env = \"T\"\nprefix = \"_x\""), 5, Code::Shape, "prefix is \"_x\"", "underscore");
    added(
        "[store]\nretention_raw = \"40d\"\nretention_1m = \"10d\"\n",
        3,
        Code::MinAboveMax,
        "retention_1m is 240h, shorter than retention_raw",
        "960h or more",
    );
    let mut config = read(&store("token_file = \"t\"\nqueue_size = \"2GiB\"\nbatch_age = \"500ms\""));
    config.place(Path::new("/srv"));
    let influx = config.store.influxdb.unwrap();
    assert_eq!((influx.url.as_str(), influx.prefix.as_str(), influx.queue_bytes_max), ("https://influx:8086", "turnaround", 2 << 30));
    assert_eq!((influx.queue.as_path(), influx.batch_points_max, influx.batch_age), (Path::new("/srv/.turnaround/queue"), 5_000, Duration::from_millis(500)));
    assert_eq!(influx.access.credential, Some(Credential::Bearer(Secret::File("/srv/t".into()))));
    // What is kept in less detail is kept no shorter, said or not.
    let store = read("[store]\nretention_raw = \"500d\"\n").store;
    assert_eq!([store.retention_minute, store.retention_hour], [store.retention_raw; 2]);
}

/// Field case 23: a service that may go to zero and is seen through its replicas alone is warned of by name, wherever they are found; a router, a
/// sender, or a counter of requests received wakes it.
#[test]
fn what_wakes_a_service_at_zero() {
    let sleeper = SOUND.replace("ttft = \"2s\"", "min_replicas = 0");
    let warned = |lines: &str| {
        parse(&format!("{sleeper}{lines}"), "t")
            .unwrap_or_else(|errors| panic!("{errors:#?}"))
            .warnings
            .iter()
            .any(|w| w.code == Code::Sleeper.as_str() && w.message.contains("\"chat\""))
    };
    let page = "[[source.prometheus]]\nurl = \"http://n1\"\nservice = \"chat\"\n";
    let api = "[[source.prometheus_api]]\nurl = \"http://prom\"\nservice = \"chat\"\n";
    for alone in [page, api, "[[source.file_sd]]\nfiles = \"a.json\"\nservice = \"chat\"\n"] {
        assert!(warned(alone), "{alone}");
    }
    for waking in [
        "[[source.prometheus]]\nurl = \"http://router\"\nservice = \"chat\"\nrole = \"router\"\n",
        "[[source.prometheus_api]]\nurl = \"http://prom2\"\nservice = \"chat\"\nrole = \"router\"\n",
        "[[source.prometheus]]\nurl = \"http://n2\"\nservice = \"chat\"\nmetrics = { requests_received = \"seen\" }\n",
        "[[source.influxdb]]\nurl = \"http://i\"\norg = \"o\"\nbucket = \"b\"\nmeasurement = \"m\"\nservice = \"chat\"\nsignals = { requests_received = \"r\" }\n",
        "[source.push]\ntoken_env = \"T\"\n",
        "[[source.trace]]\nservice = \"chat\"\nbundled = \"x\"\n",
    ] {
        assert!(!warned(&format!("{page}{api}{waking}")), "{waking}");
    }
    // A router of another service wakes nobody here.
    let other = "[[service]]\nname = \"code\"\nmodels = \"Qwen3-8B\"\n[[source.prometheus]]\nurl = \"http://router\"\nservice = \"code\"\nrole = \"router\"\n";
    assert!(warned(&format!("{page}{other}")));
}
