//! Recorded pages and past windows, fed as if live.

use crate::catalogue::read_page;
use fleet::{Scrape, Span, TargetId, Timestamp};
use std::iter::Peekable;

/// What begins a separator line of a recording. It is a legal comment, so a recording can be read by eye as one long page.
const SEPARATOR: &str = "### scrape ";

/// One scrape of a recording.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordedPage<'a> {
    /// When it was asked for, whole seconds.
    pub at: Timestamp,
    /// Which page of the recording, where it holds several.
    pub which: Option<&'a str>,
    /// The page, or nothing when the scrape failed.
    pub page: Option<&'a str>,
}

/// Splits a recording at its separator lines (`### scrape unix_s=... status=200 [page=...]`). Separators without a time are left out with
/// their page, and so is whatever stands before the first one.
#[must_use]
pub fn split_recording(recording: &str) -> Vec<RecordedPage<'_>> {
    // Positions just behind each line break, and the very start.
    let starts = std::iter::once(0).chain(recording.match_indices('\n').map(|(at, _)| at + 1)).filter(|at| recording[*at..].starts_with(SEPARATOR));
    let starts: Vec<usize> = starts.collect();
    let ends = starts.iter().skip(1).copied().chain([recording.len()]);
    starts.iter().zip(ends).filter_map(|(start, end)| read_separator(&recording[*start..end])).collect()
}

fn read_separator(part: &str) -> Option<RecordedPage<'_>> {
    let (head, page) = part.split_once('\n').unwrap_or((part, ""));
    let value = |key: &str| head.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let seconds = value("unix_s")?.split('.').next()?.parse().ok()?;
    Some(RecordedPage { at: Timestamp(seconds), which: value("page"), page: (value("status") == Some("200")).then_some(page) })
}

/// The scrapes of a recording of one target, as a live scraper would have made them.
pub fn recorded_scrapes<'a>(target: &'a TargetId, recording: &'a str) -> impl Iterator<Item = Scrape> + 'a {
    split_recording(recording).into_iter().map(move |recorded| match recorded.page {
        Some(page) => read_page(target, recorded.at, page),
        None => Scrape::failed(target.clone(), recorded.at, "the recorded scrape failed"),
    })
}

/// Past events (scrapes, windows, whatever carries a time), moved to another time and given out as they fall due. Pure: the caller says
/// what time it is.
#[derive(Debug)]
pub struct Replay<T, I: Iterator<Item = (Timestamp, T)>> {
    events: Peekable<I>,
    shift: Span,
}

impl<T, I: Iterator<Item = (Timestamp, T)>> Replay<T, I> {
    /// Replays `events` (ascending in time) at their own times.
    pub fn new(events: impl IntoIterator<IntoIter = I>) -> Self {
        Self { events: events.into_iter().peekable(), shift: Span::ZERO }
    }

    /// Moves them so that the next one falls due at `start`.
    #[must_use]
    pub fn starting_at(mut self, start: Timestamp) -> Self {
        if let Some((first, _)) = self.events.peek() {
            self.shift = Span(start.0 - first.0);
        }
        self
    }

    /// When the next event falls due; nothing when all are given out.
    pub fn next_due(&mut self) -> Option<Timestamp> {
        self.events.peek().map(|(at, _)| *at + self.shift)
    }

    /// The next event that is due by `now`, with the time it fell due at. What the event says of its own time is the caller's to move.
    pub fn due(&mut self, now: Timestamp) -> Option<(Timestamp, T)> {
        let shift = self.shift;
        self.events.next_if(|(at, _)| *at + shift <= now).map(|(at, event)| (at + shift, event))
    }
}

/// All of them, in order, at their moved times.
impl<T, I: Iterator<Item = (Timestamp, T)>> Iterator for Replay<T, I> {
    type Item = (Timestamp, T);
    fn next(&mut self) -> Option<Self::Item> {
        self.events.next().map(|(at, event)| (at + self.shift, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fleet::Signal;

    #[test]
    fn a_recording_is_split_at_its_separators() {
        let recording = concat!(
            "preface\n### scrape offset_s=0.072 unix_s=100.460 status=200 took_ms=60\nvllm:num_requests_running 1\n",
            "### scrape offset_s=5 unix_s=105.4 status=error took_ms=1\n",
            "### scrape offset_s=7 status=200\nvllm:num_requests_running 2\n",
            "### scrape unix_s=110.0 status=200 page=engine\nx ### scrape unix_s=1\nvllm:num_requests_running 3",
        );
        let pages = split_recording(recording);
        assert_eq!(
            pages.iter().map(|p| (p.at.0, p.which, p.page.is_some())).collect::<Vec<_>>(),
            [(100, None, true), (105, None, false), (110, Some("engine"), true)]
        );
        let target = TargetId::new("a").unwrap();
        let running: Vec<_> = recorded_scrapes(&target, recording).map(|scrape| scrape.scalar(Signal::RequestsRunning)).collect();
        assert_eq!(running, [Some(1.0), None, Some(3.0)]);
        assert!(split_recording("").is_empty());
    }

    #[test]
    fn events_fall_due_at_their_moved_times() {
        let mut replay = Replay::new([(Timestamp(10), 'a'), (Timestamp(20), 'b'), (Timestamp(20), 'c'), (Timestamp(90), 'd')]).starting_at(Timestamp(1_000));
        assert_eq!(replay.next_due(), Some(Timestamp(1_000)));
        assert_eq!(replay.due(Timestamp(999)), None);
        assert_eq!(replay.due(Timestamp(1_010)), Some((Timestamp(1_000), 'a')));
        assert_eq!(std::iter::from_fn(|| replay.due(Timestamp(1_010))).map(|(_, e)| e).collect::<String>(), "bc");
        assert_eq!(replay.next(), Some((Timestamp(1_080), 'd')));
        assert_eq!((replay.next_due(), replay.due(Timestamp(i64::MAX / 2))), (None, None));
    }
}
