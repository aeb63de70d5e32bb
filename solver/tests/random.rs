//! Random small problems.

use super::*;
use crate::bins::Bins;
use crate::program::Program;
use crate::search::search;
use crate::sets::Sets;
use proptest::prelude::*;

/// A small generator of its own, so that a seed names a problem for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let n = self.roll(from.len() as u64);
        from[usize::try_from(n).unwrap()]
    }
}

/// A problem of two pools, up to five islands, two services, four jobs, with residents.
pub(super) fn problem(seed: u64) -> Problem {
    let mut dice = Dice(seed.wrapping_mul(2_654_435_769).wrapping_add(12_345));
    for _ in 0..8 {
        dice.roll(2);
    }
    let sizes: Vec<u32> = (0..=dice.roll(3)).map(|_| dice.pick(&[2, 3, 4])).collect();
    let mut problem = house(&sizes);
    problem.steps.truncate(6 + dice.pick(&[0, 2, 5]));
    add_pool(&mut problem, "b", &[dice.pick(&[1, 2])]);
    problem.pools[0].marginal_per_gpu_hour = dice.pick(&[0.0, 1.0]);
    problem.policy.stops_max = dice.pick(&[None, Some(1), Some(3)]);
    for name in ["s", "m"] {
        let (low, high, rise) = (dice.pick(&[0.0, 7.0, 19.0]), dice.pick(&[3.0, 22.0, 40.0]), dice.pick(&[10, 30, 60, 180]));
        let w = add_service(&mut problem, name, dice.pick(&[1, 2, 3]), 10.0, |t| if t < AS_OF + Span::minutes(rise) { low } else { high });
        problem.services[w].min_replicas = dice.pick(&[0, 1, 3]);
        problem.services[w].max_replicas = dice.pick(&[3, 5]);
        problem.services[w].shortfall_per_request = dice.pick(&[0.0001, 0.002]);
        problem.variants[w].cold_start = Span::minutes(dice.pick(&[0, 4, 12, 70]));
        problem.variants[w].start_cost = dice.pick(&[0.0, 0.5]);
        problem.variants[w].stop_cost = dice.pick(&[0.0, 0.5]);
    }
    if dice.roll(2) == 0 {
        problem.services[0].capacity.insert(id("m"), Capacity { per_replica: 6.0, provenance: Provenance::Fitted });
    }
    for name in ["u", "v", "w", "x"].iter().take(usize::try_from(dice.roll(5)).unwrap()) {
        let j = add_job(&mut problem, name, dice.pick(&[1, 2, 3, 4]), dice.pick(&[0.1, 0.4, 1.5, 30.0]));
        let job = &mut problem.jobs[j];
        job.deadline = dice.pick(&[None, Some(at(8, 40)), Some(at(11, 20)), Some(at(40, 0)), Some(at(7, 0))]);
        job.earliest = dice.pick(&[at(7, 0), at(8, 0), at(8, 12), at(10, 30)]);
        job.checkpoint_s = dice.pick(&[None, Some(600.0), Some(3_600.0)]);
        job.preemptible = job.checkpoint_s.is_some() && dice.roll(3) > 0;
        job.since_checkpoint_s = dice.pick(&[0.0, 250.0]);
        job.startup = Span::minutes(dice.pick(&[0, 3, 90, 200]));
        job.speed.insert(id("b"), dice.pick(&[0.5, 2.0]));
    }
    seat(&mut problem, &mut dice);
    problem
}

/// Seats residents on the first GPUs that are free.
fn seat(problem: &mut Problem, dice: &mut Dice) {
    let mut free: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for gpu in &problem.gpus {
        free.entry(gpu.island.to_string()).or_default().push(gpu.id.to_string());
    }
    let variants: Vec<(String, u32)> = problem.variants.iter().map(|v| (v.id.to_string(), v.gpus)).collect();
    let jobs: Vec<(String, u32)> = problem.jobs.iter().filter(|j| j.earliest <= AS_OF).map(|j| (j.id.to_string(), j.gang)).collect();
    let islands: Vec<String> = free.keys().cloned().collect();
    let mut seat_one = |problem: &mut Problem, dice: &mut Dice, name: &str, gpus: u32, is_job: bool| {
        let island = &islands[usize::try_from(dice.roll(islands.len() as u64)).unwrap()];
        let free = free.get_mut(island).unwrap();
        if free.len() < gpus as usize || dice.roll(3) == 0 {
            return;
        }
        let taken: Vec<String> = free.drain(..gpus as usize).collect();
        let taken: Vec<&str> = taken.iter().map(String::as_str).collect();
        let run = if is_job { run_job } else { run_replica };
        run(problem, name, &taken);
        let last = problem.residents.last_mut().unwrap();
        last.ready_at = dice.pick(&[at(7, 0), at(8, 3), at(8, 20), at(10, 20)]);
        last.protected_until = dice.pick(&[None, Some(at(8, 12))]);
    };
    for (name, gpus) in jobs {
        seat_one(problem, dice, &name, gpus, true);
    }
    for (name, gpus) in variants.iter().cycle().take(5) {
        seat_one(problem, dice, name, *gpus, false);
    }
    let order: Vec<GpuId> = problem.gpus.iter().map(|g| g.id.clone()).collect();
    problem.residents.sort_by_key(|r| order.iter().position(|g| *g == r.gpus[0]));
}

/// The plan is sound, its money that of the program, and no worse than the best over single islands.
fn check(seed: u64) {
    let problem = problem(seed);
    problem.validate().unwrap();
    let (plan, program_money) = crate::plan(&problem).unwrap_or_else(|why| panic!("{seed}: {why:?}"));
    assert_sound(&problem, &plan);
    let money = plan.report.objective.total();
    assert!((money - program_money).abs() <= 1e-5 * (1.0 + money.abs()), "{seed}: the document says {money}, the program {program_money}");
    let sets = Sets::new(&problem).unwrap();
    let bins = Bins::by_island(&sets);
    let (best, _) = search(&Program::new(&sets, &bins), &problem.policy).unwrap();
    assert!((money - best.bound).abs() <= 1e-4 * (1.0 + money.abs()), "{seed}: {money} against {} over single islands", best.bound);
    assert!(plan.report.gap <= problem.policy.mip_gap + 1e-4, "{seed}: gap {}", plan.report.gap);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn every_small_problem_gets_a_sound_plan(seed: u32) {
        check(u64::from(seed));
    }
}

/// `HiGHS` once called a solution 14 % above its own bound optimal on this one.
#[test]
fn a_proof_that_its_solution_belies_is_not_believed() {
    check(2_448_692_596);
}
