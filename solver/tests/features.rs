//! Services, bounds, moves, statuses, determinism.

use super::*;
use crate::relaxation;
use fleet::{Binding, SolveStatus, Verb};

#[test]
fn a_cold_start_begins_ahead_of_the_rise() {
    let mut problem = house(&[4]);
    // 12 req/s need one replica; 38 from 08:30 on need three.
    add_service(&mut problem, "chat", 1, 13.0, |t| if t < at(8, 30) { 12.0 } else { 38.0 });
    problem.variants[0].cold_start = Span::minutes(8);
    run_replica(&mut problem, "chat", &["a0/0"]);
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    let starts: Vec<_> = plan.committed.replicas.iter().filter(|r| r.verb == Verb::Start).collect();
    assert_eq!(starts.len(), 2);
    assert!(starts.iter().all(|r| r.ready_at <= at(8, 30)), "{starts:#?}");
    assert!(plan.committed.shortfalls.is_empty());
    assert!(texts(&plan).contains("planned load of chat rises from 12.0 to 38.0 req/s at 08:30, cold start 8m"), "{}", texts(&plan));
    assert!(plan.report.priors.iter().any(|p| p == "capacity of chat for chat is a prior"));
}

#[test]
fn load_nobody_can_serve_is_short_at_its_price() {
    let mut problem = house(&[1]);
    add_service(&mut problem, "chat", 1, 10.0, |_| 25.0);
    run_replica(&mut problem, "chat", &["a0/0"]);
    let plan = planned(&problem);
    assert_eq!(plan.committed.shortfalls.len(), problem.steps.len());
    assert!(plan.committed.shortfalls.iter().all(|s| (s.load - 15.0).abs() < 1e-6));
    // One more GPU serves 10 req/s more: 0.01 a request, 3600 s.
    let price = plan.report.shadow_prices.iter().find(|p| p.of == Binding::Pool(id("a")) && p.step == 0).unwrap();
    assert!((price.value - 360.0).abs() < 1e-3, "{price:?}");
    let price = plan.report.shadow_prices.iter().find(|p| p.of == Binding::Service(id("chat")) && p.step == 0).unwrap();
    assert!((price.value - 36.0).abs() < 1e-3, "{price:?}");
}

/// Field case 55 (a): more is asked for than there is; the plan names who is short by how much.
#[test]
fn minima_that_do_not_fit_are_short_by_name() {
    let mut problem = house(&[8]);
    for (name, price) in [("a", 80.0), ("b", 50.0)] {
        let w = add_service(&mut problem, name, 1, 10.0, |_| 5.0);
        problem.services[w].min_replicas = 5;
        problem.services[w].bound_price_per_hour = price;
    }
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    assert_eq!(rules(&plan).lines().find(|l| l.starts_with("workload b short by")), Some("workload b short by 2 replicas"));
    let last = plan.committed.shortfalls.iter().find(|s| s.step == 5).unwrap();
    assert_eq!((last.workload.as_str(), last.replicas), ("b", 2.0));
    assert!(plan.report.objective.bounds > 0.0);
}

/// Field case 55 (b): more runs than the new maximum allows; that is a planned reduction, not an error.
#[test]
fn a_lowered_maximum_is_a_planned_reduction() {
    let mut problem = house(&[4]);
    let w = add_service(&mut problem, "chat", 1, 10.0, |_| 5.0);
    problem.services[w].max_replicas = 2;
    for gpu in ["a0/0", "a0/1", "a0/2"] {
        run_replica(&mut problem, "chat", &[gpu]);
    }
    let plan = planned(&problem);
    let stops: Vec<_> = plan.committed.replicas.iter().filter(|r| r.verb == Verb::Stop).collect();
    assert_eq!(stops.len(), 1);
    assert_eq!((stops[0].gpus[0].as_str(), stops[0].until), ("a0/2", AS_OF));
    assert!(texts(&plan).contains("more than its maximum of 2"), "{}", texts(&plan));
}

#[test]
fn loading_and_protected_replicas_are_not_stopped() {
    let mut problem = house(&[2]);
    add_service(&mut problem, "chat", 1, 10.0, |_| 0.0);
    problem.pools[0].marginal_per_gpu_hour = 3.0;
    run_replica(&mut problem, "chat", &["a0/0"]);
    run_replica(&mut problem, "chat", &["a0/1"]);
    problem.residents[0].ready_at = at(8, 7);
    problem.residents[1].protected_until = Some(at(8, 25));
    let plan = planned(&problem);
    let until: Vec<_> = plan.committed.replicas.iter().map(|r| r.until).collect();
    assert_eq!(until, [at(8, 10), at(8, 30)]);
}

#[test]
fn stops_are_counted() {
    let mut problem = house(&[4]);
    add_service(&mut problem, "chat", 1, 10.0, |_| 0.0);
    problem.pools[0].marginal_per_gpu_hour = 3.0;
    for gpu in ["a0/0", "a0/1", "a0/2"] {
        run_replica(&mut problem, "chat", &[gpu]);
    }
    let stops = |problem: &Problem| planned(problem).committed.replicas.iter().filter(|r| r.verb == Verb::Stop).count();
    assert_eq!(stops(&problem), 3);
    problem.policy.stops_max = Some(1);
    assert_eq!(stops(&problem), 1);
}

#[test]
fn a_dear_move_is_not_made_and_a_cheap_one_is() {
    let moves = |cost: f64| {
        let mut problem = house(&[2]);
        add_pool(&mut problem, "b", &[2]);
        add_service(&mut problem, "chat", 1, 10.0, |_| 8.0);
        problem.variants[0].start_cost = cost;
        problem.variants[0].stop_cost = cost;
        problem.pools[0].marginal_per_gpu_hour = 1.0;
        run_replica(&mut problem, "chat", &["a0/0"]);
        let plan = planned(&problem);
        plan.committed.replicas.iter().filter(|r| r.verb == Verb::Stop).count()
    };
    // A day on the dear pool costs about 24.
    assert_eq!((moves(20.0), moves(5.0)), (0, 1));
}

#[test]
fn memory_and_unusable_gpus_are_respected() {
    let mut problem = house(&[2]);
    add_pool(&mut problem, "b", &[1]);
    add_service(&mut problem, "chat", 1, 10.0, |_| 100.0);
    problem.pools[1].memory = Bytes::from_gib(24);
    problem.gpus[0].availability = Availability::Failed("XID 79".into());
    let plan = planned(&problem);
    assert!(plan.committed.replicas.iter().all(|r| r.gpus[0].as_str() == "a0/1"));
    assert_eq!(plan.heirs.len(), 2);
    assert!(plan.outlook.iter().all(|o| !o.replicas.contains_key(&id::<PoolId>("b"))));
}

#[test]
fn a_fragmented_pool_is_split_and_the_reason_reported() {
    let mut problem = house(&[2, 2]);
    // One replica an island stays: two GPUs are free, but not in one island.
    add_service(&mut problem, "small", 1, 10.0, |_| 20.0);
    add_service(&mut problem, "large", 2, 10.0, |_| 10.0);
    problem.services[1].shortfall_per_request = 1e-6;
    run_replica(&mut problem, "small", &["a0/0"]);
    run_replica(&mut problem, "small", &["a1/0"]);
    problem.variants[0].stop_cost = 5.0;
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    assert!(plan.committed.replicas.iter().all(|r| r.verb == Verb::Keep));
    assert!(texts(&plan).contains("planned in smaller parts"), "{}", texts(&plan));
    // Where it pays, a replica moves to make room.
    problem.services[1].shortfall_per_request = 0.01;
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    assert_eq!(plan.committed.replicas.iter().filter(|r| r.variant.as_str() == "large").count(), 1, "{}", texts(&plan));
    assert_eq!(plan.committed.replicas.iter().filter(|r| r.verb == Verb::Stop).count(), 1);
}

/// Field case 57: no time at all is a time-out or a labelled plan, never an error and never called optimal beyond its gap.
#[test]
fn limits_are_labelled() {
    let mut problem = house(&[4, 4]);
    add_service(&mut problem, "chat", 2, 10.0, |t| if t < at(9, 0) { 7.0 } else { 31.0 });
    add_job(&mut problem, "train", 4, 5.0);
    add_job(&mut problem, "tune", 3, 5.0);
    problem.policy.watchdog = Span(0);
    match solve(&problem) {
        Answer::TimedOut => {}
        Answer::Planned(plan) => {
            assert_sound(&problem, &plan);
            assert!(plan.report.status == SolveStatus::Feasible || plan.report.gap <= problem.policy.mip_gap + 1e-9);
        }
        Answer::Failed(why) => panic!("{why}"),
    }
    problem.policy.watchdog = Span(60);
    problem.services[0].demand[0].planned = f64::NAN;
    assert!(matches!(solve(&problem), Answer::Failed(why) if why.contains("demand of chat")));
}

#[test]
fn residents_of_another_size_are_an_answer_not_a_panic() {
    let mut problem = house(&[4]);
    add_service(&mut problem, "chat", 2, 10.0, |_| 5.0);
    run_replica(&mut problem, "chat", &["a0/0"]);
    assert!(matches!(solve(&problem), Answer::Failed(why) if why.contains("runs on 1 GPUs, but 2")));
}

#[test]
fn an_empty_house_gets_an_empty_plan() {
    let problem = house(&[]);
    let plan = planned(&problem);
    assert!(plan.committed.replicas.is_empty() && plan.heirs.is_empty());
    assert_eq!(plan.outlook.len(), problem.steps.len() - 6);
}

#[test]
fn the_same_problem_gives_the_same_bytes() {
    let problem = random::problem(7);
    let (one, two) = (planned(&problem), planned(&problem));
    assert_eq!(fleet::canonical_bytes(&one), fleet::canonical_bytes(&two));
}

#[test]
fn no_plan_beats_the_relaxation() {
    let problem = random::problem(11);
    let plan = planned(&problem);
    assert!(relaxation(&problem).unwrap() <= plan.report.objective.total() + 1e-6);
}
