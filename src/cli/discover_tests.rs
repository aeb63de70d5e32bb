//! Discovery from label sets to a configuration that is read again.

use crate::discover::{self, Discovered};
use crate::discover_look::instances;
use crate::discover_text::{Place, render};
use crate::doctor::Severity;
use crate::doctor_found;
use fleet::{Signal, Timestamp};
use ingest::Catalogue;
use ingest::query::Series;

const NOW: Timestamp = Timestamp(1_790_000_000);

fn series(name: &str, labels: &[(&str, &str)], value: f64) -> Series {
    let named = [("__name__", name)];
    let all = labels.iter().chain(&named).map(|(label, value)| ((*label).to_owned(), (*value).to_owned()));
    Series { labels: all.collect(), points: vec![(NOW.0 * 1_000, value)], dropped: Vec::new() }
}

/// A vLLM page as a Prometheus keeps it.
fn vllm(model: &str, pod: &str, node: &str, instance: &str) -> Vec<Series> {
    let labels = [("job", "vllm"), ("instance", instance), ("namespace", "serving"), ("pod", pod), ("node", node), ("engine", "0"), ("model_name", model)];
    let values = [
        ("vllm:num_requests_running", 3.0),
        ("vllm:num_requests_waiting", 0.0),
        ("vllm:kv_cache_usage_perc", 0.4),
        ("vllm:request_success_total", 1_000.0),
        ("vllm:prompt_tokens_total", 1_400_000.0),
        ("vllm:generation_tokens_total", 320_000.0),
        ("vllm:prefix_cache_queries_total", 1_400_000.0),
        ("vllm:prefix_cache_hits_total", 400_000.0),
        ("vllm:num_preemptions_total", 0.0),
    ];
    let histograms =
        ["time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds", "request_params_n"];
    let mut all: Vec<Series> = values.iter().map(|(name, value)| series(name, &labels, *value)).collect();
    for name in histograms {
        all.extend([series(&format!("vllm:{name}_sum"), &labels, 1_000.0), series(&format!("vllm:{name}_count"), &labels, 1_000.0)]);
    }
    all.push(series("up", &labels[..5], 1.0));
    all
}

/// One GPU of a DCGM exporter's page; its own pod's labels keep their names, the workload's are moved aside.
fn dcgm(node: &str, index: usize, product: &str, mib: f64, holder: Option<(&str, &str)>) -> Vec<Series> {
    let (index, uuid, instance, exporter) = (index.to_string(), format!("GPU-{node}-{index}"), format!("{node}:9400"), format!("dcgm-exporter-{node}"));
    let mut labels: Vec<(&str, &str)> = vec![("job", "dcgm-exporter"), ("instance", &instance), ("namespace", "monitoring"), ("pod", &exporter)];
    labels.extend([("gpu", index.as_str()), ("UUID", &uuid), ("modelName", product), ("Hostname", node)]);
    if let Some((namespace, pod)) = holder {
        labels.extend([("exported_namespace", namespace), ("exported_pod", pod), ("exported_container", "main")]);
    }
    let share = if holder.is_some() { 0.9 } else { 0.001 };
    let values = [
        ("DCGM_FI_DEV_FB_USED", mib * share),
        ("DCGM_FI_DEV_FB_FREE", mib * (1.0 - share)),
        ("DCGM_FI_DEV_GPU_UTIL", 100.0 * share),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", share),
        ("DCGM_FI_DEV_POWER_USAGE", 300.0),
    ];
    values.iter().map(|(name, value)| series(name, &labels, *value)).collect()
}

/// 300 GPUs: 30 nodes of eight H100, 15 of four L40S; four services by their pods, training that no page explains, and free ones.
fn three_hundred() -> Vec<Series> {
    let services = [
        ("meta-llama/Llama-3.1-70B-Instruct", "chat-70b", 18, 4, true),
        ("Qwen/Qwen2.5-Coder-32B-Instruct", "coder-32b", 20, 2, true),
        ("meta-llama/Llama-3.1-8B-Instruct", "assist-8b", 36, 1, true),
        ("Qwen/Qwen2.5-7B-Instruct", "extract-7b", 28, 1, false),
    ];
    let place = |gpu: usize| if gpu < 240 { (format!("h{:03}", gpu / 8 + 1), gpu % 8) } else { (format!("l{:03}", (gpu - 240) / 4 + 1), gpu % 4) };
    let mut holders: Vec<Option<(&str, String)>> = vec![None; 300];
    let mut all = Vec::new();
    let (mut large, mut small) = (0, 240);
    for (model, pod, replicas, gpus, on_large) in services {
        for replica in 0..replicas {
            let next = if on_large { &mut large } else { &mut small };
            let name = format!("{pod}-{replica}");
            holders[*next..*next + gpus].fill(Some(("serving", name.clone())));
            let node = place(*next).0;
            *next += gpus;
            all.extend(vllm(model, &name, &node, &format!("{node}:{}", 8_000 + replica)));
        }
    }
    for (nth, holder) in holders[large..large + 56].iter_mut().enumerate() {
        *holder = Some(("research", format!("train-{}", nth / 8)));
    }
    for (gpu, holder) in holders.iter().enumerate() {
        let (node, index) = place(gpu);
        let (product, mib) = if gpu < 240 { ("NVIDIA H100 80GB HBM3", 81_559.0) } else { ("NVIDIA L40S", 46_068.0) };
        all.extend(dcgm(&node, index, product, mib, holder.as_ref().map(|(namespace, pod)| (*namespace, pod.as_str()))));
    }
    all
}

fn found(series: &[Series]) -> Discovered {
    discover::fleet(&instances(series, Catalogue::builtin(), NOW))
}

fn read(text: &str) -> config::Config {
    config::parse(text, "turnaround.toml").unwrap_or_else(|errors| panic!("{text}\n{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

fn through(url: &str) -> Place {
    Place { prometheus: Some(url.to_owned()), access: Vec::new() }
}

#[test]
fn three_hundred_gpus_take_at_most_forty_lines_that_are_read_again() {
    let found = found(&three_hundred());
    let told: Vec<(&str, usize, u32, &str)> =
        found.services.iter().map(|s| (s.name.as_str(), s.replicas(), s.variants[0].gpus, s.variants[0].kind.as_str())).collect();
    assert_eq!(told, [("assist-8b", 36, 1, "H100-80GB"), ("chat-70b", 18, 4, "H100-80GB"), ("coder-32b", 20, 2, "H100-80GB"), ("extract-7b", 28, 1, "L40S")]);
    assert!(found.services.iter().all(|s| s.variants.len() == 1 && !s.variants[0].assumed && s.missing.is_empty()), "{:?}", found.services);
    assert_eq!(found.services[0].tokens, Some((1_400.0, 320.0)));
    // What the training holds is told, what nobody holds too.
    assert_eq!(found.held_otherwise.iter().map(|(pod, gpus)| (pod.as_str(), *gpus)).collect::<Vec<_>>(), [("train", 56)]);
    assert_eq!((found.gpus(), found.not_held), (300, 300 - 18 * 4 - 20 * 2 - 36 - 28 - 56));
    assert_eq!(found.remarks, Vec::<String>::new());
    let text = render(&found, &through("http://prom:9090"), NOW);
    assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
    assert!(text.contains("\"h[001-030]\"") && text.contains("\"l[001-015]\""), "{text}");
    let config = read(&text);
    assert_eq!((config.fleet.gpus.len(), config.workloads.len(), config.sources.prometheus_apis.len()), (300, 4, 5));
    // Unknown is never free: no price is made up, and nothing counts as free without being seen.
    assert!(config.fleet.pools.iter().all(|pool| pool.price_per_gpu_hour.is_none()) && config.unobserved_free.is_empty());
    let chat = config.sources.prometheus_apis.iter().find(|source| source.id.as_str().starts_with("chat")).unwrap();
    assert_eq!(chat.selector.as_deref(), Some(r#"{job="vllm",model_name="meta-llama/Llama-3.1-70B-Instruct"}"#));
    let gpus = config.sources.prometheus_apis.iter().find(|source| source.subject == config::Subject::Gpus).unwrap();
    assert_eq!(gpus.selector.as_deref(), Some(r#"{job="dcgm-exporter"}"#));
}

#[test]
fn ten_services_still_fit() {
    let mut all = three_hundred();
    for service in 0..6 {
        let (node, pod) = (format!("h{:03}", 30), format!("extra{service}-0"));
        all.extend(vllm(&format!("org/Extra{service}-8B"), &pod, &node, &format!("{node}:{}", 9_000 + service)));
        all.extend(dcgm(&format!("x{service}"), 0, "NVIDIA L40S", 46_068.0, Some(("serving", &pod))));
    }
    let text = render(&found(&all), &through("http://prom:9090"), NOW);
    assert!(text.lines().count() <= 40, "{} lines:\n{text}", text.lines().count());
    assert_eq!(read(&text).workloads.len(), 10);
}

/// A service on two kinds of GPUs has a source for each, told apart by instance; an unknown product carries its memory.
#[test]
fn several_kinds_and_unknown_products() {
    let mut all = Vec::new();
    for (index, (node, product, mib)) in [("a1", "NVIDIA H100 80GB HBM3", 81_559.0), ("b1", "NVIDIA GH200 480GB", 97_871.0)].into_iter().enumerate() {
        let pod = format!("m-{index}");
        all.extend(vllm("m-8B", &pod, node, &format!("{node}.local:8000")));
        all.extend(dcgm(node, 0, product, mib, Some(("serving", &pod))));
    }
    let found = found(&all);
    let text = render(&found, &through("http://prom:9090"), NOW);
    let config = read(&text);
    let selectors: Vec<Option<&str>> = config.sources.prometheus_apis.iter().map(|source| source.selector.as_deref()).collect();
    assert!(selectors.contains(&Some(r#"{job="vllm",instance=~"a1\\.local:8000"}"#)), "{selectors:?}");
    assert!(config.fleet.kinds.values().any(|kind| kind.id.as_str() == "GH200-480GB" && kind.memory.0 == 97_871 << 20), "{text}");
    assert!(text.contains("prior, scaled from"));
}

/// Field case 17: the workload holds the GPU, not the exporter; a replica that no page ties to GPUs gets what its model needs, and that is said.
#[test]
fn pods_hold_gpus_and_what_is_not_told_is_assumed_in_so_many_words() {
    let mut all = vllm("org/Big-70B", "big-0", "h001", "h001:8000");
    for index in 0..8 {
        all.extend(dcgm("h001", index, "NVIDIA H100 80GB HBM3", 81_559.0, None));
    }
    let told = found(&all);
    assert_eq!((told.services[0].variants[0].gpus, told.services[0].variants[0].assumed), (4, true));
    let text = render(&told, &through("http://prom:9090"), NOW);
    assert!(text.contains("its GPUs are ASSUMED"), "{text}");
    read(&text);
    // Without any page about GPUs a pool is assumed, and said to be.
    let alone = found(&vllm("org/Big-70B", "big-0", "h001", "h001:8000"));
    let text = render(&alone, &through("http://prom:9090"), NOW);
    assert!(text.contains("ASSUMED: no page tells of GPUs") && alone.remarks.iter().any(|remark| remark.contains("correct the pool")), "{text}");
    assert_eq!(read(&text).fleet.gpus.len(), 4);
}

#[test]
fn what_is_missing_silent_or_odd_is_a_finding_with_a_remedy() {
    let mut all = three_hundred();
    // One signal of one service gone, one page that cannot be scraped.
    all.retain(|one| !(one.name().starts_with("vllm:request_queue_time") && one.labels.get("model_name").is_some_and(|m| m.contains("Coder"))));
    all.push(series("up", &[("job", "vllm"), ("instance", "h099:8000")], 0.0));
    all.push(series("up", &[("job", "node"), ("instance", "h099:9100")], 0.0));
    let seen = instances(&all, Catalogue::builtin(), NOW);
    let findings = doctor_found::pages(&seen, None, NOW);
    let of = |severity: Severity| findings.iter().filter(|f| f.severity == severity).map(|f| (f.check.as_str(), f.cause.as_str())).collect::<Vec<_>>();
    assert_eq!(of(Severity::Error), [("page vllm/h099:8000", "Prometheus could not scrape it (up is 0)")]);
    let warnings = of(Severity::Warning);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].0 == "service coder-32b" && warnings[0].1.contains("queue_time"), "{warnings:?}");
    assert!(findings.iter().filter(|f| f.severity > Severity::Ok).all(|f| f.remedy.is_some()));
    // Nodes that the configuration does not know, and the other way round.
    let text = render(&discover::fleet(&seen), &through("http://prom:9090"), NOW).replace("h[001-030]", "h[002-031]");
    let drift = doctor_found::pages(&seen, Some(&read(&text)), NOW);
    let nodes: Vec<&str> = drift.iter().filter(|f| f.check == "nodes").map(|f| f.cause.as_str()).collect();
    assert_eq!(nodes, ["1 node (h031 first) in the configuration, but no page tells of it", "1 node (h001 first) with GPUs, but in no pool"]);
}

/// Recorded pages are recognised for what they are.
#[test]
fn recorded_pages_are_recognised() {
    use std::io::Read;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/metrics-pages");
    for (recording, engine) in [("vllm-0.9.2", "vllm"), ("vllm-0.32.0", "vllm"), ("vllm-0.32.0-dp2", "vllm"), ("llama.cpp-b11434", "llama.cpp")] {
        let path = format!("{folder}/{recording}/pages.txt.gz");
        let Ok(file) = std::fs::File::open(&path) else {
            eprintln!("skipped: no recording at {path}");
            continue;
        };
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        let target = fleet::TargetId::new("h001:8000").unwrap();
        let last = ingest::recorded_scrapes(&target, &text).filter(fleet::Scrape::is_ok).last().unwrap();
        assert_eq!(last.server.as_ref().map(|server| server.engine.as_str()), Some(engine), "{recording}");
        assert!(last.scalar(Signal::PromptTokens).is_some(), "{recording}");
        let labels = [("instance".to_owned(), "h001:8000".to_owned())].into();
        let instance =
            discover::Instance { labels, scrape: last, role: fleet::EngineRole::Server, url: Some("http://h001:8000/metrics".into()), model_label: None };
        let found = discover::fleet(&[instance]);
        assert_eq!(found.services.len(), 1, "{recording}: {:?}", found.remarks);
        let config = read(&render(&found, &Place::default(), NOW));
        assert_eq!((config.targets.len(), config.targets[0].url.as_str()), (1, "http://h001:8000/metrics"), "{recording}");
    }
}

/// The engines a configuration may name are those the catalogue has.
#[test]
fn engines_of_configuration_and_catalogue_agree() {
    let named: std::collections::BTreeSet<&str> = config::ENGINES.into_iter().collect();
    assert_eq!(named, Catalogue::builtin().engines().collect());
}
