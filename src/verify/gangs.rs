//! Jobs in the committed part: when a run may begin and end, and what a preemption costs.

use crate::tally::Tally;
use crate::{Code, Violation, agree};
use fleet::{JobSpec, JobWindow, Resident};

/// Release, minimum run, preemptions.
pub(crate) fn check(tally: &Tally) -> Vec<Violation> {
    let mut out = Vec::new();
    for job in &tally.problem.jobs {
        let mut runs: Vec<&JobWindow> = tally.runs().filter(|(w, _)| w.job == job.id).map(|(w, _)| w).collect();
        runs.sort_by_key(|w| (w.from, w.until));
        for pair in runs.windows(2).filter(|p| p[1].from < p[0].until) {
            out.push(Violation::new(Code::JobOverlap, format!("a run until {} and another from {}", pair[0].until, pair[1].from)).of(&job.id));
        }
        for (window, resident) in tally.runs().filter(|(w, _)| w.job == job.id) {
            check_run(tally, job, window, resident, &mut out);
        }
        check_preemption(tally, job, &mut out);
    }
    for p in tally.plan.committed.preemptions.iter().filter(|p| tally.problem.job(&p.job).is_none()) {
        out.push(Violation::new(Code::Reference, "a preemption of a job the problem does not know").of(&p.job));
    }
    out
}

fn check_run(tally: &Tally, job: &JobSpec, window: &JobWindow, resident: Option<&Resident>, out: &mut Vec<Violation>) {
    let new = |code, what: String| Violation::new(code, what).of(&job.id);
    if window.class != job.class {
        out.push(new(Code::Reference, format!("said to be {}, is {}", window.class.name(), job.class.name())));
    }
    let ends_early = window.until < tally.end && !tally.could_be_complete(job, window.until);
    match resident {
        None if window.from < job.earliest => out.push(new(Code::JobEarly, format!("begins at {}, not before {}", window.from, job.earliest))),
        None if ends_early => out.push(new(Code::MinimumRun, format!("a new run is ended at {}, before the job can be complete", window.until))),
        Some(r) if ends_early && (!job.preemptible || job.checkpoint_s.is_none()) => {
            out.push(new(Code::NotPreemptible, format!("stopped at {}, but has no checkpoint or may not be preempted (runs since {})", window.until, r.since)));
        }
        Some(Resident { protected_until: Some(p), .. }) if ends_early && window.until < *p => {
            out.push(new(Code::NotPreemptible, format!("stopped at {}, protected until {p}", window.until)));
        }
        _ => {}
    }
}

fn check_preemption(tally: &Tally, job: &JobSpec, out: &mut Vec<Violation>) {
    let new = |what: String| Violation::new(Code::Preemption, what).of(&job.id);
    let mut listed = tally.plan.committed.preemptions.iter().filter(|p| p.job == job.id);
    match (tally.preempted(job), listed.next()) {
        (None, None) => {}
        (None, Some(p)) => out.push(new(format!("listed at {}, but no run of it is stopped", p.at))),
        (Some((w, _)), None) => out.push(new(format!("stopped at {}, but not listed", w.until))),
        (Some((w, redo)), Some(p)) => {
            if p.at != w.until {
                out.push(new(format!("listed at {}, stopped at {}", p.at, w.until)));
            }
            let speed = job.speed.get(&w.pool).copied().unwrap_or(1.0);
            let lost = redo / speed * f64::from(job.gang) / 60.0;
            let cost = job.value_per_hour * redo / 3_600.0;
            for (what, found, real) in [("work to redo, s", p.redo_s, redo), ("GPU-minutes lost", p.lost_gpu_minutes, lost), ("money lost", p.cost, cost)] {
                if !agree(found, real) {
                    out.push(new(format!("{what}: not what the windows say")).figures(found, real));
                }
            }
        }
    }
    if listed.next().is_some() {
        out.push(new("listed twice".into()));
    }
}
