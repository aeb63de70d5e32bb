//! Gangs, deadlines, preemption, completion.

use super::*;
use fleet::Verb;

#[test]
fn a_gang_takes_one_island() {
    let mut problem = house(&[3, 4]);
    add_job(&mut problem, "train", 4, 10.0);
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    let run = &plan.committed.jobs[0];
    assert_eq!(run.gpus.iter().map(GpuId::as_str).collect::<Vec<_>>(), ["a1/0", "a1/1", "a1/2", "a1/3"]);
    assert_eq!((run.from, run.ready_at), (AS_OF, at(8, 2)));
    // Seven GPUs, but none of its islands is large enough.
    problem.jobs[0].gang = 5;
    let plan = planned(&problem);
    assert!(plan.committed.jobs.is_empty());
    assert!(texts(&plan).contains("cannot run"), "{}", texts(&plan));
}

#[test]
fn two_gangs_above_half_an_island_do_not_share_it() {
    let mut problem = house(&[4, 4, 4]);
    for name in ["x", "y", "z", "u"] {
        add_job(&mut problem, name, 3, 30.0);
    }
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    assert_eq!(plan.committed.jobs.len(), 3);
    assert_eq!(plan.report.reasons.iter().filter(|r| r.text.contains("smaller parts")).count(), 0);
}

#[test]
fn the_deadline_goes_first() {
    let mut problem = house(&[2]);
    add_job(&mut problem, "late", 2, 3.0);
    add_job(&mut problem, "soon", 2, 3.0);
    problem.jobs[1].deadline = Some(at(12, 0));
    let plan = planned(&problem);
    assert_eq!(plan.committed.jobs[0].job.as_str(), "soon");
    assert!(plan.report.objective.lateness < 1e-6);
    assert!(rules(&plan).is_empty());
    // Too much of it: the rest is late, at its price.
    problem.jobs[1].remaining_s = 5.0 * 3_600.0;
    let plan = planned(&problem);
    assert!(rules(&plan).contains("job soon has"), "{}", rules(&plan));
}

/// Field case 71: whoever loses least makes room; a job without checkpoints never does.
#[test]
fn the_job_with_the_recent_checkpoint_makes_room() {
    let mut problem = house(&[6]);
    add_service(&mut problem, "burst", 2, 10.0, |t| if t < at(8, 10) { 0.0 } else { 10.0 });
    for (name, since, checkpoint) in [("A", 3_300.0, Some(3_600.0)), ("B", 120.0, Some(3_600.0)), ("C", 0.0, None)] {
        let j = add_job(&mut problem, name, 2, 40.0);
        problem.jobs[j].since_checkpoint_s = since;
        problem.jobs[j].checkpoint_s = checkpoint;
        problem.jobs[j].preemptible = checkpoint.is_some();
    }
    run_job(&mut problem, "A", &["a0/0", "a0/1"]);
    run_job(&mut problem, "B", &["a0/2", "a0/3"]);
    run_job(&mut problem, "C", &["a0/4", "a0/5"]);
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    assert!(plan.committed.shortfalls.is_empty());
    let stopped = &plan.committed.preemptions[0];
    // A five minutes on, right after its checkpoint, still in time for the burst: nothing is lost.
    assert_eq!((plan.committed.preemptions.len(), stopped.job.as_str(), stopped.at, stopped.redo_s), (1, "A", at(8, 5), 0.0));
    assert!(
        texts(&plan).contains("preempt A on a at 08:05: its 2 GPUs go to burst; 0.0 min since its last checkpoint, 0.0 GPU-minutes lost"),
        "{}",
        texts(&plan)
    );
    // With a slower start that is too late for A's checkpoint: B loses two minutes, A would lose 55.
    problem.variants[0].cold_start = Span::minutes(9);
    let plan = planned(&problem);
    let stopped = &plan.committed.preemptions[0];
    assert_eq!((stopped.job.as_str(), stopped.at, stopped.redo_s), ("B", AS_OF, 120.0));
    assert!((stopped.lost_gpu_minutes - 4.0).abs() < 1e-9);
    assert!(texts(&plan).contains("4.0 GPU-minutes lost"), "{}", texts(&plan));
    // Without A and B nobody makes room.
    problem.jobs.truncate(3);
    for j in 0..2 {
        problem.jobs[j].preemptible = false;
    }
    assert!(planned(&problem).committed.preemptions.is_empty());
}

#[test]
fn a_protected_run_waits_for_its_time() {
    let mut problem = house(&[2]);
    add_service(&mut problem, "burst", 2, 10.0, |_| 10.0);
    add_job(&mut problem, "A", 2, 40.0);
    run_job(&mut problem, "A", &["a0/0", "a0/1"]);
    problem.residents[0].protected_until = Some(at(8, 10));
    let plan = planned(&problem);
    assert_eq!(plan.committed.preemptions[0].at, at(8, 10));
    assert!((plan.committed.preemptions[0].redo_s - 600.0).abs() < 1e-9);
}

#[test]
fn a_complete_job_gives_its_gpus_to_the_next() {
    let mut problem = house(&[2]);
    add_job(&mut problem, "first", 2, 0.4);
    add_job(&mut problem, "second", 2, 5.0);
    problem.jobs[0].startup = Span::ZERO;
    problem.jobs[0].checkpoint_s = None;
    problem.jobs[0].preemptible = false;
    run_job(&mut problem, "first", &["a0/0", "a0/1"]);
    let plan = planned(&problem);
    assert_sound(&problem, &plan);
    let (first, second) = (&plan.committed.jobs[0], &plan.committed.jobs[1]);
    assert_eq!((first.verb, first.until, second.from), (Verb::Stop, at(8, 30), at(8, 30)));
    assert!(plan.committed.preemptions.is_empty());
    assert_eq!(plan.heirs[0].heir.as_deref(), Some("second"));
}

#[test]
fn a_job_before_its_time_does_not_run_and_its_gpus_are_held() {
    let mut problem = house(&[2]);
    add_job(&mut problem, "train", 2, 3.0);
    problem.jobs[0].earliest = at(8, 20);
    let plan = planned(&problem);
    assert_eq!(plan.committed.jobs[0].from, at(8, 20));
    assert_eq!(plan.committed.holds.len(), 2);
    assert!(plan.committed.holds.iter().all(|h| (h.from, h.until) == (AS_OF, at(8, 20))));
}

#[test]
fn a_start_up_beyond_the_committed_part_is_paid_in_the_outlook() {
    let mut problem = house(&[2]);
    add_job(&mut problem, "train", 2, 3.0);
    problem.jobs[0].startup = Span::minutes(150);
    let plan = planned(&problem);
    // Two and a half hours of loading, three of work, then nothing.
    assert_eq!(plan.committed.jobs[0].from, AS_OF);
    let shares: Vec<f64> = plan.outlook.iter().map(|o| o.jobs.values().map(|m| m.values().sum::<f64>()).sum()).collect();
    assert!(shares[..3].iter().all(|s| *s > 0.49) && shares[5..].iter().all(|s| *s == 0.0), "{shares:?}");
    assert!((plan.report.objective.value - 12.0).abs() < 0.2);
}
