//! How a text is to look: its width, its characters and its styles, all given by the caller.

use anstyle::Style;

/// Styles by meaning. The default is none at all, which is what a pipe or a file gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Palette {
    /// Something begins.
    pub start: Style,
    /// Something changes place.
    pub change: Style,
    /// Something ends.
    pub stop: Style,
    /// Something is left unmet.
    pub short: Style,
    /// Titles and the row that matters.
    pub strong: Style,
    /// Context.
    pub dim: Style,
}

impl Palette {
    /// Colours from the sixteen that every terminal maps to its own light or dark scheme. They repeat what the symbols say.
    #[must_use]
    pub fn terminal() -> Self {
        use anstyle::AnsiColor::{Cyan, Green, Red, Yellow};
        Self {
            start: Green.on_default(),
            change: Cyan.on_default(),
            stop: Yellow.on_default(),
            short: Red.on_default().bold(),
            strong: Style::new().bold(),
            dim: Style::new().dimmed(),
        }
    }
}

/// How a text is to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns no line may exceed, as long as a single word fits.
    pub width: usize,
    /// Only ASCII characters.
    pub ascii: bool,
    /// Styles by meaning.
    pub palette: Palette,
}

/// The narrowest width texts are made for.
const WIDTH_MIN: usize = 60;

impl Look {
    /// A plain look of so many columns (at least 60).
    #[must_use]
    pub fn plain(width: usize) -> Self {
        Self { width: width.max(WIDTH_MIN), ascii: false, palette: Palette::default() }
    }

    /// The same in ASCII.
    #[must_use]
    pub fn in_ascii(self) -> Self {
        Self { ascii: true, ..self }
    }

    /// The same in those styles.
    #[must_use]
    pub fn with(self, palette: Palette) -> Self {
        Self { palette, ..self }
    }

    pub(crate) fn arrow(self) -> &'static str {
        if self.ascii { "->" } else { "→" }
    }

    pub(crate) fn dot(self) -> &'static str {
        if self.ascii { "," } else { " ·" }
    }
}

/// Paints a text. Nothing is added when the style is plain.
pub(crate) fn paint(text: &str, style: Style) -> String {
    if style.is_plain() || text.is_empty() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}

/// Breaks a text at spaces so that no line is wider than `width`, as long as its words fit.
#[must_use]
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Shortens a text to `width` characters; the last one then says so.
pub(crate) fn shorten(text: &str, width: usize, ascii: bool) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}{}", kept.trim_end(), if ascii { '~' } else { '…' })
}
