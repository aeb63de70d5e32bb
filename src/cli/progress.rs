//! Long work: a bar on a terminal, a line a phase elsewhere, on standard error only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// Time between two pictures of a spinner.
const SPIN: Duration = Duration::from_millis(120);

/// Something that takes a while.
pub(crate) struct Phase {
    bar: ProgressBar,
    name: String,
    start: Instant,
    terminal: bool,
}

impl Phase {
    /// Begins. `steps` are known, or zero for a spinner.
    pub fn begin(name: &str, steps: u64, quiet: bool) -> Self {
        let terminal = console::Term::stderr().is_term() && !quiet;
        let bar = if terminal { ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr()) } else { ProgressBar::hidden() };
        let pattern = if steps > 0 { "{msg:28} {bar:30} {pos}/{len}  {elapsed} (about {eta} left)" } else { "{spinner} {msg}  {elapsed}" };
        if let Ok(style) = ProgressStyle::with_template(pattern) {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        if terminal && steps == 0 {
            bar.enable_steady_tick(SPIN);
        }
        if !terminal && !quiet {
            eprintln!("{name} ...");
        }
        Self { bar, name: name.to_owned(), start: Instant::now(), terminal: terminal || quiet }
    }

    /// So many steps are done.
    pub fn at(&self, step: u64) {
        self.bar.set_position(step);
    }

    /// Ends.
    pub fn end(self) {
        self.bar.finish_and_clear();
        if !self.terminal {
            eprintln!("{} done, {:.1} s", self.name, self.start.elapsed().as_secs_f64());
        }
    }
}
