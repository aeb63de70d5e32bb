//! What the scenario must be for the demo to make its point.

use super::*;

/// GPUs a service needs at a rate, on its first variant, as the planner is told (and times `factor` for what is true).
fn gpus(scenario: &Scenario, service: &Service, rate: f64, truth: bool) -> f64 {
    let variant = scenario.variants.iter().find(|v| v.id == service.variants[0]).unwrap();
    let factor = if truth { scenario.truth.capacity[&variant.id] } else { 1.0 };
    rate / (scenario.prior_capacity(&variant.id).unwrap() * factor) * f64::from(variant.gpus)
}

/// (peak, mean) GPUs of all services together, each at its own peak hour of the first week.
fn service_gpus(scenario: &Scenario, truth: bool) -> (f64, f64) {
    scenario.workloads.iter().filter_map(|w| Some((w, w.service()?))).zip(&scenario.traffic).fold((0.0, 0.0), |sum, ((w, service), traffic)| {
        assert_eq!(w.id, traffic.workload);
        let hours: Vec<f64> = traffic.hourly().values.into_iter().flatten().collect();
        let n: f64 = hours.iter().map(|_| 1.0).sum();
        let (peak, mean) = (hours[..168].iter().copied().fold(0.0, f64::max), hours.iter().sum::<f64>() / n);
        (sum.0 + gpus(scenario, service, peak, truth), sum.1 + gpus(scenario, service, mean, truth))
    })
}

#[test]
fn a_pool_for_every_peak_fits_and_troughs_hold_the_jobs() {
    let scenario = Scenario::demo(DEMO_SEED);
    let all: f64 = scenario.fleet.gpus.iter().map(|_| 1.0).sum();
    let (peak, mean) = service_gpus(&scenario, false);
    let (true_peak, true_mean) = service_gpus(&scenario, true);
    let jobs: f64 = scenario.workloads.iter().filter_map(Workload::job).map(|j| j.work.as_hours() * f64::from(j.gang)).sum();
    let job_share = jobs / (all * scenario.length.as_hours());
    println!("peak {:.3} (true {:.3}), mean {:.3} (true {:.3}), jobs {job_share:.3}", peak / all, true_peak / all, mean / all, true_mean / all);
    assert!((0.55..0.65).contains(&(peak / all)) && true_peak < 0.8 * all);
    assert!((0.22..0.32).contains(&(mean / all)) && (0.24..0.34).contains(&(true_mean / all)));
    assert!((0.30..0.50).contains(&job_share) && true_mean / all + job_share < 0.80);
}

#[test]
fn names_refer_and_everything_fits_somewhere() {
    let scenario = Scenario::demo(DEMO_SEED);
    assert_eq!((scenario.fleet.gpus.len(), scenario.traffic.len(), scenario.workloads.len()), (24, 3, 15));
    let islands = |kind: &GpuKindId| {
        let pools: Vec<&PoolId> = scenario.fleet.pools.iter().filter(|p| &p.kind == kind).map(|p| &p.id).collect();
        let mut sizes: BTreeMap<&IslandId, u32> = BTreeMap::new();
        scenario.fleet.gpus.iter().filter(|g| pools.contains(&&g.pool)).for_each(|g| *sizes.entry(&g.island).or_default() += 1);
        sizes.into_values().max().unwrap_or(0)
    };
    for variant in &scenario.variants {
        assert!(scenario.models.iter().any(|m| m.id == variant.model));
        assert!(variant.memory_per_gpu <= scenario.fleet.kinds[&variant.kind].memory && variant.gpus <= islands(&variant.kind), "{}", variant.id);
        assert!(scenario.truth.capacity.contains_key(&variant.id) && scenario.truth.cold_start.contains_key(&variant.id));
    }
    for workload in &scenario.workloads {
        if let Some(service) = workload.service() {
            assert!(service.variants.iter().all(|v| scenario.variants.iter().any(|x| &x.id == v)));
        }
        if let Some(job) = workload.job() {
            assert!(!job.speed.is_empty() && job.checkpoint.is_some() == job.preemptible);
            for kind in job.speed.keys() {
                assert!(job.memory_per_gpu <= scenario.fleet.kinds[kind].memory && job.gang <= islands(kind), "{}", workload.id);
            }
            // It could be done in time had it the fleet to itself.
            let best = job.speed.values().copied().fold(0.0, f64::max);
            assert!(job.release + Span(2 * 3_600) + job.work < job.deadline.unwrap() + Span(i64::from(best > 1.0) * job.work.0), "{}", workload.id);
        }
    }
    let classes: std::collections::BTreeSet<Class> = scenario.workloads.iter().map(|w| w.class).collect();
    assert_eq!(classes.len(), Class::ALL.len());
}

#[test]
fn each_service_has_a_day_of_its_own_and_the_launch_is_a_surprise() {
    let scenario = Scenario::demo(DEMO_SEED);
    let [agents, chat, code] = [0, 1, 2].map(|i| scenario.traffic[i].hourly());
    let at = |s: &fleet::Series, day: i64, hour: i64| s.at(START + Span::hours(24 * day + hour)).unwrap();
    assert!(at(&chat, 1, 15) > 5.0 * at(&chat, 1, 3));
    assert!(at(&code, 1, 10) > 15.0 * at(&code, 5, 10));
    assert!(at(&agents, 5, 20) > 2.0 * at(&agents, 5, 4) && at(&agents, 5, 20) > 0.95 * at(&agents, 2, 20));
    // The second Saturday against the first.
    assert!(at(&chat, 12, 11) > 2.0 * at(&chat, 5, 11));
    assert!(at(&chat, 12, 9) < 1.3 * at(&chat, 5, 9));
}

#[test]
fn the_same_seed_gives_the_same_scenario_and_another_other_noise() {
    assert_eq!(Scenario::demo(7), Scenario::demo(7));
    assert_ne!(Scenario::demo(7).traffic, Scenario::demo(8).traffic);
    assert_eq!(START.to_string(), "2026-01-05T00:00:00Z");
}
