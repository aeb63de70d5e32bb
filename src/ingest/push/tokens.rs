//! Who may push, and how fast.

use sha2::{Digest, Sha256};
use std::sync::{Mutex, PoisonError};
use subtle::{Choice, ConstantTimeEq};
use tokio::time::Instant;
use wire::Secret;

/// Seconds over which a rate may be uneven.
const BURST_S: f64 = 60.0;

/// The tokens that may push, kept as hashes.
pub struct Tokens {
    hashes: Vec<[u8; 32]>,
    /// For each token, lines it has sent lately and when that was reckoned.
    spent: Mutex<Vec<(f64, Option<Instant>)>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.hashes.len())
    }
}

impl Tokens {
    /// These tokens. Empty ones are left out: nobody enters without saying something.
    pub fn new(tokens: impl IntoIterator<Item = Secret>) -> Self {
        let hashes: Vec<[u8; 32]> = tokens.into_iter().filter(|token| !token.expose().is_empty()).map(|token| hash(token.expose().as_bytes())).collect();
        let spent = Mutex::new(vec![(0.0, None); hashes.len()]);
        Self { hashes, spent }
    }

    /// Which token an `Authorization` header brings. Takes the same time whichever it is, and whether it is one.
    pub(super) fn find(&self, header: &[u8]) -> Option<usize> {
        let (scheme, token) = header.split_at(header.iter().position(|byte| *byte == b' ')?);
        if !(scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"token")) {
            return None;
        }
        let said = hash(token.trim_ascii());
        let mut found = None;
        for (index, known) in self.hashes.iter().enumerate() {
            let same: Choice = known.ct_eq(&said);
            if bool::from(same) {
                found = Some(index);
            }
        }
        found
    }

    /// Whether a token may send this many lines more: a bucket that holds a minute's worth and drains at the allowed rate.
    pub(super) fn admit(&self, token: usize, lines: usize, lines_per_s_max: u32, now: Instant) -> bool {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((level, since)) = spent.get_mut(token) else { return false };
        let rate = f64::from(lines_per_s_max);
        let passed = since.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64());
        let drained = (*level - passed * rate).max(0.0);
        let lines = f64::from(u32::try_from(lines).unwrap_or(u32::MAX));
        let fits = drained + lines <= rate * BURST_S;
        *level = if fits { drained + lines } else { drained };
        *since = Some(now);
        fits
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_token_is_found_under_both_schemes_and_nothing_else_is() {
        let tokens = Tokens::new([Secret::new("one"), Secret::new(""), Secret::new("two")]);
        for (header, found) in [
            (&b"Bearer one"[..], Some(0)),
            (b"Token two", Some(1)),
            (b"token  two ", Some(1)),
            (b"Bearer three", None),
            (b"Bearer ", None),
            (b"Bearer", None),
            (b"Basic one", None),
            (b"one", None),
            (b"", None),
            (b"Bearer \xff", None),
        ] {
            assert_eq!(tokens.find(header), found, "{header:?}");
        }
        assert!(Tokens::new([Secret::new("")]).find(b"Bearer ").is_none());
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
    }

    #[test]
    fn a_rate_holds_over_a_minute_and_for_each_token_alone() {
        let tokens = Tokens::new([Secret::new("one"), Secret::new("two")]);
        let start = Instant::now();
        assert!(tokens.admit(0, 600, 10, start) && !tokens.admit(0, 1, 10, start) && tokens.admit(1, 600, 10, start));
        let later = start + Duration::from_secs(1);
        assert!(tokens.admit(0, 10, 10, later) && !tokens.admit(0, 1, 10, later));
        assert!(!tokens.admit(1, 601, 10, start + Duration::from_mins(10)));
    }
}
