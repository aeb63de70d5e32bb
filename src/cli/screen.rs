//! Standard output: texts for people, one JSON document for machines, never both.

use report::{Look, Palette};
use serde::Serialize;
use std::io::{ErrorKind, Write};

use crate::Failure;

/// Width when nobody tells: a pipe, a file, a test.
const WIDTH_DEFAULT: usize = 100;
/// Wider lines are hard to read.
const WIDTH_MAX: usize = 160;

/// Where output goes and how it looks.
pub(crate) struct Screen {
    json: bool,
    look: Look,
}

impl Screen {
    pub fn new(json: bool, ascii: bool) -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse::<usize>().ok());
        let terminal = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let width = columns.or(terminal).filter(|w| *w > 0).unwrap_or(WIDTH_DEFAULT).min(WIDTH_MAX);
        let look = Look::plain(width).with(Palette::terminal());
        Self { json, look: if ascii || terminal_is_ascii() { look.in_ascii() } else { look } }
    }

    /// Machines read the output.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Width, characters and styles.
    pub fn look(&self) -> Look {
        self.look
    }

    /// Shows a text to people. Styles are taken out where the output is no terminal or `NO_COLOR` is set.
    pub fn show(&self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { delivered(anstream::stdout().write_all(text.as_bytes())) }
    }

    /// Shows a sentence, broken to the width.
    pub fn say(&self, sentence: &str) -> Result<(), Failure> {
        self.show(&(report::wrap(sentence, self.look.width).join("\n") + "\n"))
    }

    /// Writes the document machines asked for.
    pub fn document(&self, value: &impl Serialize) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        delivered(std::io::stdout().write_all(text.as_bytes()))
    }
}

/// Says something beside the output, on standard error.
pub(crate) fn note(text: &str) {
    // When standard error is closed there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// A reader that had enough (`| head`) is no fault.
fn delivered(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// A terminal that says it shows nothing but ASCII. One that says nothing is believed to show more.
fn terminal_is_ascii() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
    let plain = locale.is_some_and(|l| l == "C" || l == "POSIX");
    console::Term::stdout().is_term() && (plain || std::env::var("TERM").is_ok_and(|t| t == "dumb"))
}
