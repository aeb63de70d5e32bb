//! Columns that line up: a borderless table whose cells know their width before they are painted.
//!
//! Terminal tables usually draw borders and wrap inside cells; the texts here need neither, but they need styles that do not count as width.

use crate::look::{paint, shorten};
use anstyle::Style;

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

#[derive(Debug, Clone, Default)]
struct Cell {
    text: String,
    style: Style,
}

/// Rows of cells, aligned by column.
#[derive(Debug, Clone)]
pub struct Grid {
    align: Vec<Align>,
    gap: usize,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// A grid of these columns, `gap` blanks apart.
    #[must_use]
    pub fn new(align: &[Align], gap: usize) -> Self {
        Self { align: align.to_vec(), gap, rows: Vec::new() }
    }

    /// Adds a row in one style. Missing cells are empty, further ones are dropped.
    pub fn row<T: Into<String>>(&mut self, style: Style, cells: impl IntoIterator<Item = T>) {
        self.styled_row(cells.into_iter().map(|text| (text.into(), style)));
    }

    /// Adds a row with a style a cell.
    pub fn styled_row(&mut self, cells: impl IntoIterator<Item = (String, Style)>) {
        let mut row: Vec<Cell> = cells.into_iter().map(|(text, style)| Cell { text, style }).take(self.align.len()).collect();
        row.resize_with(self.align.len(), Cell::default);
        self.rows.push(row);
    }

    /// Width of each column.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        (0..self.align.len()).map(|c| self.rows.iter().map(|r| r[c].text.chars().count()).max().unwrap_or(0)).collect()
    }

    /// The lines, none wider than `width`: the widest column of words is shortened as far as it takes.
    #[must_use]
    pub fn lines(&self, width: usize, ascii: bool) -> Vec<String> {
        let mut widths = self.widths();
        let gaps = self.gap * widths.iter().filter(|w| **w > 0).count().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            let words = (0..widths.len()).filter(|c| self.align[*c] == Align::Left && widths[*c] > 8);
            let Some(widest) = words.max_by_key(|c| widths[*c]) else { break };
            widths[widest] -= 1;
        }
        self.rows.iter().map(|row| self.line(row, &widths, ascii)).collect()
    }

    fn line(&self, row: &[Cell], widths: &[usize], ascii: bool) -> String {
        let mut line = String::new();
        let mut blanks = 0;
        for (c, cell) in row.iter().enumerate() {
            if widths[c] == 0 {
                continue;
            }
            let text = shorten(&cell.text, widths[c], ascii);
            let pad = widths[c] - text.chars().count();
            let (before, after) = if self.align[c] == Align::Right { (pad, 0) } else { (0, pad) };
            if text.is_empty() {
                blanks += before;
            } else {
                line.push_str(&" ".repeat(blanks + before));
                line.push_str(&paint(&text, cell.style));
                blanks = 0;
            }
            blanks += after + self.gap;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_stand_right_and_words_left() {
        let mut grid = Grid::new(&[Align::Left, Align::Right], 2);
        grid.row(Style::new(), ["chat", "9"]);
        grid.row(Style::new(), ["ocr", "1,204"]);
        assert_eq!(grid.lines(80, false), ["chat      9", "ocr   1,204"]);
    }

    proptest! {
        /// Whatever the words, a line fits; numbers are never cut.
        #[test]
        fn lines_fit(words in prop::collection::vec("[a-zé]{0,60}", 1..6), width in 40_usize..160) {
            let mut grid = Grid::new(&[Align::Left, Align::Right, Align::Left], 2);
            for word in &words {
                grid.row(Style::new(), [word.clone(), "12,345".into(), word.clone()]);
            }
            for line in grid.lines(width, false) {
                prop_assert!(line.chars().count() <= width);
                prop_assert!(line.contains("12,345"));
            }
        }
    }
}
