//! Placement: the counts of a bin become islands. What runs stays where it is; every stop names a replica, every start an island.
//!
//! A small search in order of time: in each step what ends, then what begins, the largest first. A stop prefers the island that becomes
//! emptiest, then the one of the latest GPU; a start prefers the fullest island that has room, then the first. Where this order leads
//! nowhere the next best is tried, up to a fixed number of moves.

use crate::program::Program;
use crate::sets::Sets;
use fleet::Timestamp;
use std::cmp::Reverse;

/// Moves tried for one bin before it is given up (and split).
const MOVES_MAX: u32 = 20_000;

/// What sits on GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sitter {
    /// A run of a job.
    Run(usize),
    /// A replica of a variant.
    Replica(usize),
}

/// Something in an island from one committed step to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    /// What.
    pub sitter: Sitter,
    /// Index into the residents when it runs already.
    pub resident: Option<usize>,
    /// Its island.
    pub island: usize,
    /// First step (0 when it runs already).
    pub from: usize,
    /// First step it no longer holds; the number of committed steps when it lasts.
    pub until: usize,
}

/// A change of the counts of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    /// The run of that job ends.
    End(usize),
    /// One replica of that variant stops.
    Stop(usize),
    /// It begins.
    Start(Sitter),
}

/// The seats of all bins, or the bins whose counts cannot be placed.
pub(crate) fn place(program: &Program, values: &[f64]) -> Result<Vec<Seat>, Vec<usize>> {
    let mut seats = Vec::new();
    let mut failed = Vec::new();
    for b in 0..program.bins.list.len() {
        match place_bin(program, values, b) {
            Some(placed) => seats.extend(placed),
            None => failed.push(b),
        }
    }
    if failed.is_empty() { Ok(seats) } else { Err(failed) }
}

fn place_bin(program: &Program, values: &[f64], b: usize) -> Option<Vec<Seat>> {
    let sets = program.sets;
    let islands = program.bins.list[b].islands.clone();
    let mut layout = Layout { sets, free: islands.iter().map(|i| i64::from(sets.islands[*i].size())).collect(), islands, seats: Vec::new(), left: MOVES_MAX };
    for resident in &sets.replicas {
        layout.seat_resident(Sitter::Replica(resident.variant), resident.resident, resident.island, resident.stoppable_from);
    }
    for (j, run) in sets.runs.iter().enumerate() {
        if let Some(run) = run {
            layout.seat_resident(Sitter::Run(j), run.resident, run.island, sets.problem.as_of);
        }
    }
    let moves = moves(program, values, b);
    layout.go(&moves).then(|| layout.seats.into_iter().map(|s| s.seat).collect())
}

/// What changes in a bin, in order.
fn moves(program: &Program, values: &[f64], b: usize) -> Vec<(usize, Move)> {
    let sets = program.sets;
    let whole = |index: usize| {
        #[expect(clippy::cast_possible_truncation, reason = "integer columns hold small whole numbers")]
        let n = values[index].round() as i64;
        n
    };
    let mut moves = Vec::new();
    for t in sets.near() {
        let mut starts = Vec::new();
        for v in 0..sets.problem.variants.len() {
            let Some(held) = program.columns.held.get(&(v, b, t)) else { continue };
            let before = match t.checked_sub(1) {
                Some(before) => whole(program.columns.held[&(v, b, before)].index),
                None => program.residents_in(v, b),
            };
            let change = whole(held.index) - before;
            moves.extend((0..-change).map(|_| (t, Move::Stop(v))));
            starts.extend((0..change).map(|_| Sitter::Replica(v)));
        }
        for j in 0..sets.problem.jobs.len() {
            let before = match t.checked_sub(1) {
                Some(before) => run_in(program, values, j, b, before),
                None => program.has_resident_run(j, b).then_some(Origin::Resident),
            };
            let now = run_in(program, values, j, b, t);
            if before != now {
                moves.extend(before.map(|_| (t, Move::End(j))));
                starts.extend(now.map(|_| Sitter::Run(j)));
            }
        }
        starts.sort_by_key(|s| (Reverse(sets.size(*s)), *s));
        moves.extend(starts.into_iter().map(|s| (t, Move::Start(s))));
    }
    moves
}

/// Where a run comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is under way.
    Resident,
    /// It begins in that step.
    Begun(usize),
}

/// The run of job `j` that covers step `t` in bin `b`.
pub(crate) fn run_in(program: &Program, values: &[f64], j: usize, b: usize, t: usize) -> Option<Origin> {
    let is_on = |column: Option<&crate::program::Column>| column.is_some_and(|c| values[c.index] > 0.5);
    if program.has_resident_run(j, b) && is_on(program.columns.kept.get(&(j, t))) {
        return Some(Origin::Resident);
    }
    (0..=t).find(|tau| is_on(program.columns.going.get(&(j, b, *tau, t)))).map(Origin::Begun)
}

impl Program<'_> {
    /// Replicas of `v` that run now in bin `b`.
    fn residents_in(&self, v: usize, b: usize) -> i64 {
        let islands = &self.bins.list[b].islands;
        self.sets.replicas.iter().filter(|r| r.variant == v && islands.contains(&r.island)).map(|_| 1).sum()
    }

    /// Whether job `j` runs now in bin `b`.
    pub(crate) fn has_resident_run(&self, j: usize, b: usize) -> bool {
        self.sets.runs[j].as_ref().is_some_and(|r| self.bins.list[b].islands.contains(&r.island))
    }
}

impl Sets<'_> {
    /// GPUs it takes.
    pub(crate) fn size(&self, sitter: Sitter) -> u32 {
        match sitter {
            Sitter::Run(j) => self.job(j).gang,
            Sitter::Replica(v) => self.variant(v).gpus,
        }
    }
}

/// A seat while the search is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Placed {
    seat: Seat,
    stoppable_from: Timestamp,
    /// Last of its GPUs, for the order of stops; those not yet named count as last of all.
    latest: usize,
}

/// The state of a bin.
struct Layout<'a> {
    sets: &'a Sets<'a>,
    islands: Vec<usize>,
    /// Free GPUs of each island.
    free: Vec<i64>,
    seats: Vec<Placed>,
    /// Moves left to try.
    left: u32,
}

impl Layout<'_> {
    fn seat_resident(&mut self, sitter: Sitter, resident: usize, island: usize, stoppable_from: Timestamp) {
        let Some(local) = self.islands.iter().position(|i| *i == island) else { return };
        self.free[local] -= i64::from(self.sets.size(sitter));
        let gpus = &self.sets.problem.residents[resident].gpus;
        let latest = self.sets.problem.gpus.iter().rposition(|g| gpus.contains(&g.id)).unwrap_or(0);
        let seat = Seat { sitter, resident: Some(resident), island, from: 0, until: self.sets.committed };
        self.seats.push(Placed { seat, stoppable_from, latest });
    }

    fn is_live(&self, placed: &Placed) -> bool {
        placed.seat.until == self.sets.committed
    }

    /// Makes the moves; `false` when the order of preference and all others tried lead nowhere.
    fn go(&mut self, moves: &[(usize, Move)]) -> bool {
        let Some(((t, next), rest)) = moves.split_first() else { return true };
        let t = *t;
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        match *next {
            Move::End(j) => {
                let live = self.seats.iter().position(|s| s.seat.sitter == Sitter::Run(j) && self.is_live(s));
                live.is_some_and(|s| self.end(s, t, rest))
            }
            Move::Stop(v) => {
                let candidates = self.stoppable(v, t);
                candidates.into_iter().any(|s| self.end(s, t, rest))
            }
            Move::Start(sitter) => {
                let islands = self.with_room(sitter);
                islands.into_iter().any(|local| self.begin(sitter, local, t, rest))
            }
        }
    }

    fn end(&mut self, s: usize, t: usize, rest: &[(usize, Move)]) -> bool {
        let Some(local) = self.islands.iter().position(|i| *i == self.seats[s].seat.island) else { return false };
        let size = i64::from(self.sets.size(self.seats[s].seat.sitter));
        self.free[local] += size;
        self.seats[s].seat.until = t;
        if self.go(rest) {
            return true;
        }
        self.seats[s].seat.until = self.sets.committed;
        self.free[local] -= size;
        false
    }

    fn begin(&mut self, sitter: Sitter, local: usize, t: usize, rest: &[(usize, Move)]) -> bool {
        let size = i64::from(self.sets.size(sitter));
        let stoppable_from = match sitter {
            Sitter::Replica(v) => self.sets.start(t) + self.sets.variant(v).cold_start,
            Sitter::Run(_) => self.sets.start(t),
        };
        let seat = Seat { sitter, resident: None, island: self.islands[local], from: t, until: self.sets.committed };
        self.free[local] -= size;
        self.seats.push(Placed { seat, stoppable_from, latest: usize::MAX });
        if self.go(rest) {
            return true;
        }
        self.seats.pop();
        self.free[local] += size;
        false
    }

    /// One replica an island that may stop at `start(t)`, best first.
    fn stoppable(&self, v: usize, t: usize) -> Vec<usize> {
        let now = self.sets.start(t);
        let may =
            |s: &Placed| s.seat.sitter == Sitter::Replica(v) && self.is_live(s) && s.stoppable_from <= now && (s.seat.resident.is_some() || s.seat.from < t);
        let mut best: Vec<usize> = Vec::new();
        for (local, island) in self.islands.iter().enumerate() {
            let here = self.seats.iter().enumerate().filter(|(_, s)| s.seat.island == *island && may(s)).max_by_key(|(_, s)| s.latest);
            if let Some((s, _)) = here {
                best.push(s);
                debug_assert!(self.free[local] >= 0);
            }
        }
        let free_of = |s: usize| self.islands.iter().position(|i| *i == self.seats[s].seat.island).map_or(0, |local| self.free[local]);
        best.sort_by_key(|s| (Reverse(free_of(*s)), Reverse(self.seats[*s].latest)));
        best
    }

    /// Islands with room, fullest first; of those in the same state only the first.
    fn with_room(&self, sitter: Sitter) -> Vec<usize> {
        let size = i64::from(self.sets.size(sitter));
        let mut islands: Vec<usize> = (0..self.islands.len()).filter(|local| self.free[*local] >= size).collect();
        islands.sort_by_key(|local| (self.free[*local], *local));
        let mut seen = Vec::new();
        islands.retain(|local| {
            let state = self.state(*local);
            let is_new = !seen.contains(&state);
            seen.push(state);
            is_new
        });
        islands
    }

    fn state(&self, local: usize) -> (i64, Vec<(Sitter, Timestamp)>) {
        let here = self.seats.iter().filter(|s| s.seat.island == self.islands[local] && self.is_live(s));
        let mut sitters: Vec<_> = here.map(|s| (s.seat.sitter, s.stoppable_from)).collect();
        sitters.sort_unstable();
        (self.free[local], sitters)
    }
}
