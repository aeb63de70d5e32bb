//! Local hours and weekends, for the zone of a workload's users.

use fleet::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// What the calendar says of one hour, in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LocalHour {
    /// 0..24; minutes of an odd offset are dropped.
    pub(crate) hour: u8,
    /// Saturday or Sunday.
    pub(crate) weekend: bool,
}

/// The zone by its IANA name, from the bundled database, so that every host answers alike.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" { Some(TimeZone::UTC) } else { TimeZoneDatabase::bundled().get(name).ok() }
}

/// The local hour that holds `at`. Instants beyond the calendar's range are read in UTC.
pub(crate) fn local_hour(at: Timestamp, zone: &TimeZone) -> LocalHour {
    let offset = jiff::Timestamp::from_second(at.0).map_or(0, |instant| i64::from(zone.to_offset(instant).seconds()));
    let local = Timestamp(at.0.saturating_add(offset));
    LocalHour { hour: u8::try_from(local.hour_of_day()).unwrap_or(0), weekend: local.weekday() >= 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summer_time_moves_the_hour_and_the_weekend_begins_at_local_midnight() {
        let berlin = zone("Europe/Berlin").unwrap();
        let at = |text: &str| local_hour(text.parse().unwrap(), &berlin);
        assert_eq!(at("2026-07-01T06:00:00Z").hour, 8);
        assert_eq!(at("2026-12-01T07:00:00Z").hour, 8);
        assert!(at("2026-12-04T23:00:00Z").weekend, "Friday 23:00 in UTC is Saturday in Berlin");
        assert!(zone("Mars/Olympus").is_none());
    }
}
