//! A made-up demo for the tests of texts and pictures.

use crate::{
    DayMap, DecisionOption, DecisionResult, DecisionSummary, DemoSummary, ForecastScore, GpuMap, GpuRow, Learned, MapKey, PeriodSummary, PolicyName,
    PolicySummary, Report, ServiceChart, Strip, WorstMiss,
};
use fleet::{Currency, HourKind, Span, Timestamp};
use std::collections::BTreeMap;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn policy(hours: [f64; 6], attainment: f64, jobs_late: usize) -> PolicySummary {
    let total: f64 = hours.iter().sum();
    let useful = hours[0] + hours[1];
    PolicySummary {
        hours: HourKind::ALL.into_iter().zip(hours).collect(),
        total_hours: total,
        useful_utilisation: Some(useful / total),
        bill: 8_198.0,
        cost_per_useful_gpu_hour: Some(8_198.0 / useful),
        attainment: Some(attainment),
        jobs_late,
        jobs_due: 12,
    }
}

fn keys() -> Vec<MapKey> {
    let key = |letter, label: &str, kind| MapKey { letter, label: label.into(), kind };
    vec![
        key('C', "chat", HourKind::UsefulNow),
        key('A', "assist", HourKind::UsefulNow),
        key('T', "train", HourKind::UsefulLater),
        key('B', "batch", HourKind::UsefulLater),
        key('E', "embed", HourKind::UsefulLater),
        key('L', "loading", HourKind::LoadingOrRedo),
        key('H', "held", HourKind::Held),
    ]
}

pub(crate) fn report() -> Report {
    let start = at("2026-11-30T00:00:00Z");
    Report {
        summary: summary(),
        services: vec![service("chat", start, 40.0), service("assist", start, 14.0)],
        maps: PolicyName::ALL.map(map).to_vec(),
        keys: keys(),
    }
}

fn summary() -> DemoSummary {
    let strip = |policy, cells: &str, note: Option<&str>| Strip { policy, cells: cells.into(), note: note.map(Into::into) };
    let option = |text: &str, chosen, value, note: &str| DecisionOption { text: text.into(), chosen, value: Some(value), note: note.into() };
    let learned =
        |what: &str, unit: &str, prior, learned, truth| Learned { what: what.into(), unit: unit.into(), prior, learned, truth: Some(truth), evidence: 412 };
    DemoSummary {
        schema: DemoSummary::SCHEMA.into(),
        seed: 1,
        traffic: "synthetic traffic".into(),
        currency: Currency::new("EUR").unwrap(),
        gpus: 24,
        services: 3,
        jobs: 12,
        hours_simulated: 336.0,
        cycles: 402,
        plans_published: 402,
        plans_refused: 0,
        calibration_generation: 320,
        period: PeriodSummary { title: "Week 2".into(), start: at("2026-12-07T00:00:00Z"), end: at("2026-12-14T00:00:00Z") },
        policies: BTreeMap::from([
            (PolicyName::StaticPeak, policy([1_090.0, 690.0, 10.0, 0.0, 2_242.0, 0.0], 0.994, 5)),
            (PolicyName::NextFreeGpu, policy([1_011.0, 2_009.0, 148.0, 0.0, 864.0, 0.0], 0.927, 3)),
            (PolicyName::Turnaround, policy([1_088.0, 2_304.0, 71.0, 122.0, 447.0, 0.0], 0.992, 0)),
        ]),
        day: Some(DayMap {
            title: "Tuesday, n2/4-7".into(),
            strips: vec![
                strip(PolicyName::StaticPeak, "........CCCCCCCCCCCCCC..", None),
                strip(PolicyName::NextFreeGpu, "TTTBBBBBBBBBBCCCCCCCCCBB", Some("chat waits behind batch")),
                strip(PolicyName::Turnaround, "TTTBBBBLCCCCCCCCCCCCCCEE", None),
            ],
            keys: keys().into_iter().filter(|k| k.letter != 'A' && k.letter != 'H').collect(),
        }),
        decision: Some(DecisionSummary {
            at: at("2026-12-08T03:07:00Z"),
            question: "train-7b ended. Hold its 4 GPUs for chat's 08:00 burst?".into(),
            options: vec![
                option("batch until 07:46", true, 61.0, "(early burst 1 %: -2 EUR)"),
                option("hold now", false, -51.0, "idle 4.9 h"),
                option("fine-tune, 6 h", false, 84.0, "chat short until 09:15: -310 EUR"),
            ],
            result: Some(DecisionResult { at: at("2026-12-08T08:00:00Z"), p50: 38.0, p95: 52.0, came: Some(44.0), ready_at: Some(at("2026-12-08T07:54:00Z")) }),
        }),
        worst_miss: Some(WorstMiss {
            what: "Saturday's launch".into(),
            workload: "chat".into(),
            at: at("2026-12-12T14:00:00Z"),
            planned_per_s: Some(30.0),
            came_per_s: 96.0,
            requests_late: 412,
        }),
        learned: vec![learned("chat", "req/s a replica", 9.0, 7.6, 7.5), learned("cold start", "min", 4.0, 7.8, 7.7)],
        forecast: ForecastScore { wql: Some(0.081), seasonal_naive_wql: Some(0.117) },
    }
}

fn service(name: &str, start: Timestamp, top: f64) -> ServiceChart {
    let hours = 0..336_i32;
    let shape = |h: i32| {
        let day = f64::from(h % 24);
        let week = if (h / 24) % 7 >= 5 { 0.6 } else { 1.0 };
        top * week * (0.15 + 0.85 * (-(day - 14.0).powi(2) / 30.0).exp())
    };
    let noise = |h: i32| 1.0 + 0.12 * (f64::from(h * 37 % 101) / 50.0 - 1.0);
    let launch = |h: i32| if name == "chat" && (302..306).contains(&h) { 2.6 } else { 1.0 };
    ServiceChart {
        workload: name.into(),
        start,
        step: Span::HOUR,
        observed: hours.clone().map(|h| (!(100..106).contains(&h)).then(|| shape(h) * noise(h) * launch(h))).collect(),
        band: hours.clone().map(|h| (h >= 24).then(|| [0.82, 1.0, 1.22].map(|m| m * shape(h)))).collect(),
        planned: hours.map(|h| (h >= 24).then(|| (shape(h) * 1.2 / 7.6).ceil().max(1.0) * 7.6)).collect(),
    }
}

fn map(policy: PolicyName) -> GpuMap {
    let row = |g: usize| {
        let cell = |h: usize| match (policy, h % 24, g) {
            (PolicyName::StaticPeak, 8..=21, 0..12) | (PolicyName::NextFreeGpu, 13..=21, 0..9) | (PolicyName::Turnaround, 8..=21, 0..10) => 'C',
            (PolicyName::StaticPeak, _, 0..12) => '.',
            (PolicyName::Turnaround, 7, 0..10) => 'L',
            (PolicyName::Turnaround, 6, 4..8) => 'H',
            (_, 0..=2, 0..8) | (PolicyName::StaticPeak, 0..=9, 16..20) | (PolicyName::NextFreeGpu, 0..=20, 16..24) => 'T',
            (_, _, 12..16) => 'A',
            (_, 3..=12, 0..12) => 'B',
            (PolicyName::Turnaround, _, 16..24) => {
                if h % 37 < 4 {
                    'L'
                } else {
                    'T'
                }
            }
            (PolicyName::Turnaround, ..) => 'E',
            _ => '.',
        };
        GpuRow { node: format!("n{}", g / 8 + 1), gpu: (g % 8).to_string(), cells: (0..168).map(cell).collect() }
    };
    GpuMap { policy, start: at("2026-12-07T00:00:00Z"), step: Span::HOUR, rows: (0..24).map(row).collect() }
}

/// A problem of eight GPUs on two nodes and a plan that starts, moves, stops, preempts, holds and falls short.
pub(crate) fn decision() -> (fleet::Plan, fleet::Problem) {
    let problem: fleet::Problem = serde_json::from_value(problem_json()).unwrap();
    let plan: fleet::Plan = serde_json::from_value(plan_json(&problem)).unwrap();
    (plan, problem)
}

fn problem_json() -> serde_json::Value {
    use serde_json::json;
    let gpu = |node: &str, i: u32| json!({ "id": format!("{node}/{i}"), "pool": "h100-a", "node": node, "island": node, "availability": "usable" });
    let gpus: Vec<_> = (0..8).map(|i| gpu("n1", i)).chain((0..8).map(|i| gpu("n2", i))).collect();
    let variant = |id: &str, gpus: u32| {
        json!({ "id": id, "model": id, "pools": ["h100-a"], "gpus": gpus, "memory_per_gpu": "40GiB", "cold_start": 240,
            "cold_start_provenance": "prior", "start_cost": 1.0, "stop_cost": 0.1 })
    };
    let demand = json!([{ "planned": 38.0, "median": 30.0 }, { "planned": 40.0, "median": 31.0 }]);
    let service = |id: &str, variant: &str, level: f64| {
        json!({ "id": id, "class": "real-time", "priority": 0, "demand": demand, "level": level, "capacity": { variant: { "per_replica": 9.0, "provenance": "fitted" } },
            "min_replicas": 1, "max_replicas": 8, "shortfall_per_request": 0.01, "bound_price_per_hour": 10.0 })
    };
    let job = |id: &str| {
        json!({ "id": id, "class": "batch", "gang": 2, "memory_per_gpu": "40GiB", "speed": { "h100-a": 1.0 }, "remaining_s": 7200.0, "earliest": "2026-12-01T09:00:00Z",
            "deadline": null, "value_per_hour": 4.0, "lateness_per_hour": 2.0, "checkpoint_s": 900.0, "since_checkpoint_s": 0.0, "preemptible": true, "startup": 120 })
    };
    let replica = |id: &str, variant: &str, gpus: &[&str]| json!({ "occupant": { "replica": { "replica": id, "variant": variant } }, "gpus": gpus, "since": "2026-12-01T00:00:00Z", "ready_at": "2026-12-01T00:04:00Z", "protected_until": null });
    json!({
        "as_of": "2026-12-01T09:55:00Z", "currency": "EUR",
        "steps": [{ "start": "2026-12-01T09:55:00Z", "length": 300, "committed": true }, { "start": "2026-12-01T10:00:00Z", "length": 3600, "committed": true }],
        "pools": [{ "id": "h100-a", "memory": "80GiB", "marginal_per_gpu_hour": 2.06, "price_per_gpu_hour": 2.5 }],
        "gpus": gpus,
        "variants": [variant("embed-s", 1), variant("llama-70b-fp8-tp4", 4), variant("ocr-8b", 1)],
        "services": [service("chat", "llama-70b-fp8-tp4", 0.9), service("embed", "embed-s", 0.9), service("ocr", "ocr-8b", 0.95)],
        "jobs": [job("batch-eval"), job("ft-211")],
        "residents": [
            replica("e1", "embed-s", &["n1/2"]), replica("o1", "ocr-8b", &["n1/0"]), replica("o2", "ocr-8b", &["n1/1"]), replica("o3", "ocr-8b", &["n2/7"]),
            json!({ "occupant": { "job": { "job": "ft-211" } }, "gpus": ["n2/0", "n2/1"], "since": "2026-12-01T08:00:00Z", "ready_at": "2026-12-01T08:02:00Z", "protected_until": null }),
        ],
        "policy": { "advisory": true, "stops_max": null, "mip_gap": 0.01, "nodes_max": 2000, "watchdog": 60, "validity": 600, "delay_per_hour": 0.002 },
        "parent": { "id": "p411", "generation": 411 }, "calibration": "c", "calibration_generation": 9, "forecasts": [], "notes": [],
    })
}

fn plan_json(problem: &fleet::Problem) -> serde_json::Value {
    use serde_json::json;
    let (now, end) = ("2026-12-01T09:55:00Z", "2026-12-01T11:00:00Z");
    let replica = |id: &str, variant: &str, gpus: &[&str], verb: &str, from: &str, ready: &str, until: &str| json!({ "replica": id, "variant": variant, "pool": "h100-a", "gpus": gpus, "verb": verb, "from": from, "ready_at": ready, "until": until });
    let job = |id: &str, gpus: &[&str], verb: &str, from: &str, until: &str| json!({ "job": id, "class": "batch", "pool": "h100-a", "gpus": gpus, "verb": verb, "from": from, "ready_at": from, "until": until });
    json!({
        "schema": "turnaround.plan/1", "id": "p412", "parent": "p411", "generation": 412, "advisory": true, "as_of": now, "valid_from": now,
        "valid_until": "2026-12-01T10:05:00Z", "problem": problem.id(), "currency": "EUR",
        "committed": {
            "steps": problem.steps,
            "replicas": [
                replica("l1", "llama-70b-fp8-tp4", &["n1/4", "n1/5", "n1/6", "n1/7"], "start", now, "2026-12-01T09:59:00Z", end),
                replica("l2", "llama-70b-fp8-tp4", &["n2/0", "n2/1", "n2/2", "n2/3"], "start", "2026-12-01T10:00:00Z", "2026-12-01T10:04:00Z", end),
                replica("e1", "embed-s", &["n1/2"], "stop", now, now, "2026-12-01T10:00:00Z"),
                replica("e2", "embed-s", &["n2/6"], "start", now, "2026-12-01T09:59:00Z", end),
                replica("o1", "ocr-8b", &["n1/0"], "stop", now, now, "2026-12-01T10:00:00Z"),
                replica("o2", "ocr-8b", &["n1/1"], "stop", now, now, "2026-12-01T10:00:00Z"),
                replica("o3", "ocr-8b", &["n2/7"], "keep", now, now, end),
            ],
            "jobs": [job("ft-211", &["n2/0", "n2/1"], "stop", now, "2026-12-01T10:00:00Z"), job("batch-eval", &["n1/0", "n1/1"], "start", "2026-12-01T10:00:00Z", end)],
            "routes": [], "shortfalls": [{ "workload": "chat", "step": 0, "load": 2.1, "replicas": 0.0, "cost": 6.3 }],
            "holds": [{ "gpu": "n2/4", "from": "2026-12-01T10:00:00Z", "until": "2026-12-01T10:30:00Z", "heir": { "replica": { "replica": "l3", "variant": "llama-70b-fp8-tp4" } } }],
            "preemptions": [{ "job": "ft-211", "at": "2026-12-01T10:00:00Z", "redo_s": 300.0, "lost_gpu_minutes": 10.0, "cost": 0.33 }],
        },
        "outlook": [], "heirs": [],
        "report": {
            "status": "optimal", "reproducible": true,
            "objective": { "shortfall": 6.3, "bounds": 0.0, "starts": 3.0, "stops": 0.3, "rent": 40.0, "lateness": 2.0, "preemptions": 0.33, "value": 8.0 },
            "bound": 43.6, "gap": 0.0075, "shadow_prices": [],
            "relaxations": [{ "of": { "service": "chat" }, "rule": "chat short", "cost": 6.3 }, { "of": { "job": "batch-eval" }, "rule": "40 min late", "cost": 2.0 }],
            "reasons": [
                { "of": { "service": "chat" }, "text": "the 10:00 rise (p90 38 req/s) needs 5 replicas" },
                { "of": { "service": "ocr" }, "text": "demand stays under 1 req/s until 13:00" },
                { "of": { "job": "ft-211" }, "text": "makes room for chat" },
            ],
            "size": [100, 80, 20, 3], "calibration": 9, "priors": ["cold start of llama-70b-fp8-tp4: 4 min", "cold start of ocr-8b: 4 min"],
        },
    })
}
