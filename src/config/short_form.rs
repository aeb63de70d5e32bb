//! The short form: 300 GPUs and ten services on one page.

use crate::{Config, parse};
use fleet::{Bytes, Class, Ownership, Span, SpeedProfile};

const PAGE: &str = r#"
currency = "USD"
zone = "America/New_York"
pool = [
    { nodes = "gpu[001-020]", kind = "H100-80GB", gpus_per_node = 8, price = 2.60 },
    { nodes = "rent[01-05]", kind = "H200-141GB", gpus_per_node = 8, price = 3.90, owned = false },
    { nodes = "edge[001-025]", kind = "L40S", gpus_per_node = 4, price = 1.10 },
]
service = [
    { name = "chat", models = "Llama-3.3-70B", ttft = "2s", tpot = "80ms", min_replicas = 2, penalty = 0.02 },
    { name = "code", models = "Qwen3-32B", ttft = "1s", tpot = "50ms", max_replicas = 20 },
    { name = "autocomplete", models = "Qwen3-8B", ttft = "300ms", tpot = "40ms", tokens_in = 600, tokens_out = 20 },
    { name = "voice", models = "Llama-3.1-8B", ttft = "400ms", tpot = "50ms", zone = "Europe/Berlin" },
    { name = "agents", models = ["Qwen3-32B", "Qwen3-30B-A3B"], ttft = "5s" },
    { name = "summaries", class = "batch", models = "Qwen3-30B-A3B" },
    { name = "moderation", models = "Llama-3.1-8B", ttft = "500ms", target = 0.999 },
    { name = "search", class = "embedding", models = "Qwen3-8B" },
    { name = "translation", models = "Qwen3-32B", ttft = "3s" },
    { name = "judge", class = "evaluation", models = "Llama-3.3-70B" },
]
job = [
    { name = "train-7b", class = "training", work = "60h", gang = 8, memory = "70GiB", checkpoint = "1h" },
    { name = "nightly", class = "batch", work = "6h", on = ["L40S"] },
]
[[source.prometheus]]
url = "http://{node}:8000"
nodes = "gpu[001-008]"
service = "chat"
variant = "llama-3.3-70b-fp8-tp2-h100-80gb"
gpus = "0-1"
"#;

fn read() -> Config {
    parse(PAGE, "turnaround.toml").unwrap_or_else(|errors| panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
}

#[test]
fn three_hundred_gpus_and_ten_services_take_about_forty_lines() {
    let config = read();
    let lines = PAGE.lines().filter(|line| !line.trim().is_empty()).count();
    let services = config.workloads.iter().filter(|workload| workload.service().is_some()).count();
    println!(
        "{} GPUs, {services} services, {} jobs, {} endpoints: {lines} lines",
        config.fleet.gpus.len(),
        config.workloads.len() - services,
        config.targets.len()
    );
    assert_eq!((config.fleet.gpus.len(), services), (300, 10));
    assert!(lines <= 40, "{lines} lines");
    assert!(config.warnings.len() <= 3, "{:?}", config.warnings);
}

#[test]
fn what_is_not_written_has_a_value() {
    let config = read();
    let rented = config.fleet.pools.iter().find(|pool| pool.id.as_str() == "h200-141gb").unwrap();
    assert_eq!((rented.ownership, rented.price_per_gpu_hour), (Ownership::Rented, Some(3.9)));
    assert_eq!(config.fleet.kinds.values().next().unwrap().memory, Bytes::from_mib(81_559));
    let island = |gpu: &str| config.fleet.gpus.iter().find(|g| g.id.as_str() == gpu).unwrap().island.to_string();
    assert_eq!((island("gpu001/7").as_str(), island("edge025/3").as_str()), ("gpu001/0-7", "edge025/0-3"));
    let workload = |name: &str| config.workloads.iter().find(|workload| workload.id.as_str() == name).unwrap();
    let summaries = workload("summaries").service().unwrap();
    assert_eq!((workload("summaries").class, summaries.min_replicas, summaries.target.tpot_s), (Class::Batch, 1, None));
    // One replica a GPU on H100 and H200, one for two of the four L40S of a node.
    assert_eq!(summaries.max_replicas, 160 + 40 + 50);
    assert_eq!((workload("chat").service().unwrap().zone.as_str(), workload("voice").service().unwrap().zone.as_str()), ("America/New_York", "Europe/Berlin"));
    let train = workload("train-7b").job().unwrap();
    assert_eq!((train.checkpoint, train.preemptible, train.speed.len()), (Some(Span::HOUR), true, 2));
    let mean = (160.0 * 2.6 + 40.0 * 3.9 + 100.0 * 1.1) / 300.0;
    assert!((train.value_per_gpu_hour - 1.6 * mean).abs() < 1e-9);
    // Nothing is observed yet, and nobody said that this means free.
    assert!(config.unobserved_free.is_empty());
}

#[test]
fn endpoints_name_the_replica_and_its_gpus() {
    let config = read();
    assert_eq!(config.targets.len(), 8);
    let third = &config.targets[2];
    assert_eq!((third.url.as_str(), third.target.id.as_str()), ("http://gpu003:8000/metrics", "gpu003:8000"));
    assert_eq!(third.target.gpus.iter().map(ToString::to_string).collect::<Vec<_>>(), ["gpu003/0", "gpu003/1"]);
    assert_eq!(third.interval, Span(15));
}

#[test]
fn presets_become_variants_where_their_kind_is_in_the_fleet() {
    let config = read();
    let variant = config.variants.iter().find(|variant| variant.id.as_str() == "llama-3.3-70b-fp8-tp1-h200-141gb").unwrap();
    assert!(matches!(variant.speed, SpeedProfile::Linear { max_batch: 256, .. }));
    assert_eq!(variant.cold_start, Span(131));
    assert!(config.variants.iter().all(|variant| config.fleet.kinds.contains_key(&variant.kind)));
    assert!(config.models.iter().map(|model| model.id.as_str()).eq(["Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-30B-A3B", "Qwen3-32B", "Qwen3-8B"]));
}

#[test]
fn gpus_keep_their_uuids_and_may_be_named_by_place() {
    let text = r#"
        [[pool]]
        nodes = "n1"
        kind = "A100-80GB"
        gpus_per_node = 2
        uuids = { n1 = ["GPU-a", "GPU-b"] }
        [[job]]
        name = "j"
        class = "training"
        work = "5h"
        gang = 2
        memory = "60GB"
        deadline = 2026-12-05T08:00:00+01:00
        running = { gpus = ["n1/1", "GPU-a"], since = "2026-12-01T08:00:00Z", done = "2h" }
    "#;
    let config = parse(text, "t.toml").unwrap_or_else(|errors| panic!("{errors:#?}"));
    let run = &config.running_jobs[0];
    assert_eq!(run.gpus.iter().map(ToString::to_string).collect::<Vec<_>>(), ["GPU-b", "GPU-a"]);
    assert_eq!((run.since.to_string().as_str(), run.done), ("2026-12-01T08:00:00Z", Span::hours(2)));
    let job = config.workloads[0].job().unwrap();
    assert_eq!(job.memory_per_gpu, Bytes(60_000_000_000));
    assert_eq!(job.deadline.unwrap().to_string(), "2026-12-05T07:00:00Z");
    // No price was given: values are the multiples of the class.
    assert!((job.value_per_gpu_hour - Class::Training.defaults().value_per_price).abs() < 1e-12);
}
