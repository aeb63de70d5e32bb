//! Naming: seats in islands become GPUs. An occupant keeps its GPUs for as long as it stays; new ones take the lowest that are free,
//! gangs the first unbroken row of them.

use crate::placement::Seat;
use crate::sets::Sets;
use std::cmp::Reverse;

/// The GPUs of each seat, as indices into the problem's, in the order of the seats.
pub(crate) fn name(sets: &Sets, seats: &[Seat]) -> Vec<Vec<usize>> {
    let mut gpus: Vec<Vec<usize>> = vec![Vec::new(); seats.len()];
    for (island, spec) in sets.islands.iter().enumerate() {
        let here: Vec<usize> = (0..seats.len()).filter(|s| seats[*s].island == island).collect();
        name_island(sets, seats, &here, &spec.gpus, &mut gpus);
    }
    gpus
}

fn name_island(sets: &Sets, seats: &[Seat], here: &[usize], all: &[usize], gpus: &mut [Vec<usize>]) {
    for &s in here {
        if let Some(resident) = seats[s].resident {
            let held = &sets.problem.residents[resident].gpus;
            gpus[s] = held.iter().filter_map(|id| all.iter().copied().find(|g| sets.problem.gpus[*g].id == *id)).collect();
        }
    }
    for t in sets.near() {
        let mut starts: Vec<usize> = here.iter().copied().filter(|s| seats[*s].resident.is_none() && seats[*s].from == t).collect();
        starts.sort_by_key(|s| (Reverse(sets.size(seats[*s].sitter)), seats[*s].sitter, *s));
        for s in starts {
            let busy = |g: &usize| here.iter().any(|o| *o != s && seats[*o].from <= t && t < seats[*o].until && gpus[*o].contains(g));
            let free: Vec<bool> = all.iter().map(|g| !busy(g)).collect();
            gpus[s] = choose(&free, sets.size(seats[s].sitter) as usize).into_iter().map(|k| all[k]).collect();
        }
    }
}

/// Positions of `size` free GPUs: the first unbroken row, else the lowest.
fn choose(free: &[bool], size: usize) -> Vec<usize> {
    let row = (0..free.len()).find(|k| free.get(*k..*k + size).is_some_and(|row| row.iter().all(|f| *f)));
    match row {
        Some(first) => (first..first + size).collect(),
        None => free.iter().enumerate().filter(|(_, f)| **f).map(|(k, _)| k).take(size).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn a_gang_sits_in_a_row_where_it_can() {
        assert_eq!(choose(&[true, false, true, true], 2), [2, 3]);
        assert_eq!(choose(&[true, false, true, false], 2), [0, 2]);
        assert_eq!(choose(&[false, true, true], 1), [1]);
    }
}
