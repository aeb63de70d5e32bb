//! `turnaround worker`: the daemon's long work, in a process that may be killed. Hidden: nobody calls it by hand.

use crate::{Failure, Outcome};

/// Read a work order on standard input, write its output on standard output
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

pub(crate) fn run(_: &Arguments) -> Result<Outcome, Failure> {
    daemon::worker_main(std::io::stdin().lock(), std::io::stdout().lock())?;
    Ok(Outcome::Done)
}
