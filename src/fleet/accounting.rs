//! Accounting, one definition everywhere: every second of every GPU has exactly one name, and the names add up to the bill.

use crate::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a GPU's time was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HourKind {
    /// Useful for what cannot wait: served work / capacity at the service target.
    UsefulNow,
    /// Useful for what could: job progress not redone, served work of services that may wait.
    UsefulLater,
    /// Loading weights, starting up, or work done again after a preemption.
    LoadingOrRedo,
    /// Kept free or ready for a forecast burst.
    Held,
    /// None of the others.
    Idle,
    /// Could not be used.
    Failed,
}

impl HourKind {
    /// In the order reports show them.
    pub const ALL: [Self; 6] = [Self::UsefulNow, Self::UsefulLater, Self::LoadingOrRedo, Self::Held, Self::Idle, Self::Failed];

    /// Name in JSON and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UsefulNow => "useful_now",
            Self::UsefulLater => "useful_later",
            Self::LoadingOrRedo => "loading_or_redo",
            Self::Held => "held",
            Self::Idle => "idle",
            Self::Failed => "failed",
        }
    }
}

/// A booking that would break the sum.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum LedgerError {
    /// More was booked to one GPU's interval than it lasted.
    #[error("{booked} GPU-ms booked to an interval of {length} GPU-ms")]
    Overbooked {
        /// Sum of the parts.
        booked: u64,
        /// What there was.
        length: u64,
    },
    /// A part is negative or not finite.
    #[error("a share of {0} cannot be booked")]
    Share(f64),
}

/// GPU time by kind, and the bill. Whole milliseconds, so that sums are exact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
pub struct Ledger {
    gpu_ms: BTreeMap<HourKind, u64>,
    /// Money owed for all of it.
    bill: f64,
}

const MS_PER_HOUR: f64 = 3_600_000.0;

impl Ledger {
    /// Books one GPU's interval. `shares` are parts of it by kind; what they leave is booked to `rest`.
    ///
    /// # Errors
    /// When a share is negative or not finite, or the shares exceed one (beyond rounding).
    pub fn book(&mut self, length: Span, price_per_hour: f64, shares: &[(HourKind, f64)], rest: HourKind) -> Result<(), LedgerError> {
        let total = u64::try_from(length.0.max(0)).unwrap_or(0) * 1_000;
        let mut left = total;
        let mut booked = 0_u64;
        for (kind, share) in shares {
            if !share.is_finite() || *share < 0.0 {
                return Err(LedgerError::Share(*share));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "checked share of a span of milliseconds")]
            let part = (total as f64 * share).round() as u64;
            booked += part;
            // Rounding of several shares may exceed the whole by a millisecond each.
            if booked > total + shares.len() as u64 {
                return Err(LedgerError::Overbooked { booked, length: total });
            }
            let part = part.min(left);
            left -= part;
            *self.gpu_ms.entry(*kind).or_default() += part;
        }
        *self.gpu_ms.entry(rest).or_default() += left;
        self.bill += price_per_hour * length.as_hours();
        Ok(())
    }

    /// GPU-hours of one kind.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a fleet's year lie below 2^52")]
    pub fn hours(&self, kind: HourKind) -> f64 {
        self.gpu_ms.get(&kind).copied().unwrap_or(0) as f64 / MS_PER_HOUR
    }

    /// All GPU-hours.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a fleet's year lie below 2^52")]
    pub fn total_hours(&self) -> f64 {
        self.gpu_ms.values().sum::<u64>() as f64 / MS_PER_HOUR
    }

    /// Useful hours, of both kinds.
    #[must_use]
    pub fn useful_hours(&self) -> f64 {
        self.hours(HourKind::UsefulNow) + self.hours(HourKind::UsefulLater)
    }

    /// *Useful utilisation* = useful / all. `None` when there were no hours.
    #[must_use]
    pub fn useful_utilisation(&self) -> Option<f64> {
        let total = self.total_hours();
        (total > 0.0).then(|| self.useful_hours() / total)
    }

    /// Money owed.
    #[must_use]
    pub fn bill(&self) -> f64 {
        self.bill
    }

    /// *Cost per useful GPU-hour* = bill / useful hours. `None` when nothing was useful.
    #[must_use]
    pub fn cost_per_useful_hour(&self) -> Option<f64> {
        let useful = self.useful_hours();
        (useful > 0.0).then(|| self.bill / useful)
    }

    /// Joins another ledger into this one.
    pub fn merge(&mut self, other: &Self) {
        for (kind, ms) in &other.gpu_ms {
            *self.gpu_ms.entry(*kind).or_default() += ms;
        }
        self.bill += other.bill;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is booked, the rows add up to the calendar.
        #[test]
        fn rows_add_up(parts in prop::collection::vec((0.0_f64..0.2, 0.0_f64..0.2, 1_i64..100_000), 1..40)) {
            let mut ledger = Ledger::default();
            let mut seconds = 0;
            for (a, b, length) in parts {
                ledger.book(Span(length), 2.0, &[(HourKind::UsefulNow, a), (HourKind::LoadingOrRedo, b)], HourKind::Idle).unwrap();
                seconds += length;
            }
            prop_assert!((ledger.total_hours() - Span(seconds).as_hours()).abs() < 1e-9);
            prop_assert!((ledger.bill() - 2.0 * Span(seconds).as_hours()).abs() < 1e-6);
        }
    }

    #[test]
    fn refuses_to_book_more_than_there_was() {
        let mut ledger = Ledger::default();
        let shares = [(HourKind::UsefulNow, 0.7), (HourKind::Held, 0.7)];
        assert!(matches!(ledger.book(Span::HOUR, 1.0, &shares, HourKind::Idle), Err(LedgerError::Overbooked { .. })));
        assert!(Ledger::default().cost_per_useful_hour().is_none());
    }
}
