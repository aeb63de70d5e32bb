//! A clock, printed and never asserted: `cargo test --release -p solver speed -- --nocapture`.

use super::*;
use std::time::Instant;

fn daily(base: f64, peak: f64, hour: i64) -> impl Fn(Timestamp) -> f64 {
    move |t| {
        let away = f64::from(i32::try_from((i64::from(t.hour_of_day()) - hour).rem_euclid(24)).unwrap());
        base + peak * (0.5 + 0.5 * (away / 24.0 * std::f64::consts::TAU).cos()).powi(3)
    }
}

/// 24 GPUs in six islands of two pools, three services, six jobs.
pub(super) fn medium(shift: i64) -> Problem {
    let mut problem = house(&[4, 4, 4]);
    add_pool(&mut problem, "b", &[4, 4, 4]);
    problem.policy.mip_gap = 0.01;
    add_service(&mut problem, "chat", 2, 9.0, daily(4.0, 30.0, 10 + shift));
    add_service(&mut problem, "code", 1, 6.0, daily(2.0, 25.0, 14 + shift));
    add_service(&mut problem, "embed", 1, 40.0, daily(10.0, 60.0, 20 + shift));
    problem.variants[0].pools.remove(&id::<PoolId>("b"));
    for w in 0..3 {
        problem.services[w].min_replicas = 1;
    }
    for (k, (gang, hours)) in [(4, 9.0), (4, 30.0), (2, 4.0), (2, 12.0), (1, 6.0), (4, 50.0)].into_iter().enumerate() {
        let j = add_job(&mut problem, &format!("job{k}"), gang, hours);
        problem.jobs[j].deadline = (k % 2 == 0).then(|| at(20 + i64::try_from(k).unwrap() * 4, 0));
        problem.jobs[j].since_checkpoint_s = 600.0;
        problem.jobs[j].speed.insert(id("b"), 0.6);
    }
    run_replica(&mut problem, "chat", &["a0/0", "a0/1"]);
    run_replica(&mut problem, "code", &["b0/0"]);
    run_replica(&mut problem, "embed", &["b0/1"]);
    run_job(&mut problem, "job0", &["a1/0", "a1/1", "a1/2", "a1/3"]);
    run_job(&mut problem, "job2", &["b1/0", "b1/1"]);
    problem
}

/// 304 GPUs on 38 nodes of three pools, ten services with two variants each, twelve jobs.
fn large() -> Problem {
    let mut problem = house(&[8; 20]);
    add_pool(&mut problem, "b", &[8; 12]);
    add_pool(&mut problem, "c", &[8; 6]);
    problem.policy.mip_gap = 0.01;
    for k in 0..10_i64 {
        let name = format!("svc{k}");
        let w = add_service(&mut problem, &name, [1, 2, 4][usize::try_from(k % 3).unwrap()], 8.0, daily(20.0, 90.0, 8 + k * 2));
        let other = format!("svc{k}-q");
        let mut variant = problem.variants[problem.variants.iter().position(|v| v.id.as_str() == name).unwrap()].clone();
        variant.id = id(&other);
        variant.gpus = 1;
        variant.pools = BTreeSet::from([id("b"), id("c")]);
        problem.variants.push(variant);
        problem.services[w].capacity.insert(id(&other), Capacity { per_replica: 3.0, provenance: Provenance::Prior });
        problem.services[w].min_replicas = 1;
        problem.services[w].max_replicas = 40;
    }
    problem.variants.sort_by(|a, b| a.id.cmp(&b.id));
    for k in 0..12_u32 {
        let j = add_job(&mut problem, &format!("job{k:02}"), [8, 4, 2, 8][(k % 4) as usize], 5.0 + 6.0 * f64::from(k));
        problem.jobs[j].deadline = (k % 3 == 0).then(|| at(20 + i64::from(k), 0));
    }
    for (k, node) in (0..6).zip([0, 3, 5, 7, 9, 11]) {
        let gang = problem.jobs[k].gang;
        let gpus: Vec<String> = (0..gang).map(|g| format!("a{node}/{g}")).collect();
        let name = problem.jobs[k].id.to_string();
        run_job(&mut problem, &name, &gpus.iter().map(String::as_str).collect::<Vec<_>>());
    }
    for k in 0..10 {
        run_replica(&mut problem, &format!("svc{k}-q"), &[&format!("b{}/{}", k % 12, k % 8)]);
        run_replica(&mut problem, &format!("svc{k}-q"), &[&format!("b{}/{}", (k + 1) % 12, (k + 3) % 8)]);
    }
    let order: Vec<GpuId> = problem.gpus.iter().map(|g| g.id.clone()).collect();
    problem.residents.sort_by_key(|r| order.iter().position(|g| *g == r.gpus[0]));
    problem
}

fn time(name: &str, problem: &Problem) {
    let begun = Instant::now();
    let plan = planned(problem);
    let took = begun.elapsed();
    assert_sound(problem, &plan);
    let report = &plan.report;
    println!("{name}: {took:.1?}, size {:?}, {:?}, gap {:.4}, objective {:.2}", report.size, report.status, report.gap, report.objective.total());
}

#[test]
fn speed() {
    for shift in [0, 3, 5, 8, 11, 17] {
        time("24 GPUs", &medium(shift));
    }
    time("304 GPUs", &large());
}
