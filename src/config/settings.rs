//! `[policy]`, `[publish]`, and time zones.

use crate::{
    error::{Code, Findings},
    resolved::{Policy, Publish},
    typed_settings as typed,
    written::{At, WrittenSpan},
};
use fleet::Span;
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// Where the HTTP interface listens unless said otherwise: this host only.
const LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9_464);
/// The committed part of a plan lasts two hours; a horizon must reach beyond it.
const HORIZON_MIN: Span = Span::hours(3);
/// Longest horizon: forecasts reach a week.
const HORIZON_MAX: Span = Span(7 * 86_400);
/// Days are needed for a season, a few for a weekday.
pub(crate) const DAYS: fn(i64) -> Span = |days| Span(days * 86_400);

/// A time zone by its IANA name.
pub(crate) fn zone(at: Option<&At<String>>, default: &str, findings: &mut Findings<'_>) -> String {
    let Some(at) = at else { return default.to_owned() };
    let database = jiff::tz::TimeZoneDatabase::bundled();
    if database.get(at.get()).is_err() {
        let names: Vec<String> = database.available().map(|name| name.to_string()).collect();
        findings.dangling(at.span(), "zone", "time zone", at.get(), names.iter().map(String::as_str));
    }
    at.get().clone()
}

pub(crate) fn policy(typed: &typed::Policy, findings: &mut Findings<'_>) -> Policy {
    let interval = span(typed.interval.as_ref(), "interval", Span::minutes(5), Span::MINUTE, Span::hours(1), findings);
    let watchdog = span(typed.watchdog.as_ref(), "watchdog", Span(60), Span(1), Span::hours(1), findings);
    let policy = Policy {
        interval,
        horizon: span(typed.horizon.as_ref(), "horizon", Span::DAY, HORIZON_MIN, HORIZON_MAX, findings),
        advisory: typed.advisory.unwrap_or(true),
        mip_gap: number(typed.mip_gap.as_ref(), "mip_gap", 0.01, 0.5, findings),
        nodes_max: typed.nodes_max.as_ref().map_or(2_000, |at| findings.count(at, "nodes_max", 1, 10_000_000).unwrap_or(2_000)),
        watchdog,
        worker_deadline: span(typed.worker_deadline.as_ref(), "worker_deadline", Span(120), Span(2), Span::hours(2), findings),
        validity: span(typed.validity.as_ref(), "validity", Span(interval.0 * 3), Span::MINUTE, Span::DAY, findings),
        stops_max: typed.stops_max.as_ref().and_then(|at| findings.count(at, "stops_max", 0, 1_000_000)),
        start_cost_factor: number(typed.start_cost.as_ref(), "start_cost", 1.0, 1_000.0, findings),
        stop_cost_hours: number(typed.stop_cost_hours.as_ref(), "stop_cost_hours", 0.02, 24.0, findings),
        learning_frozen: typed.learning_frozen.unwrap_or(false),
        shrink_before_season: typed.shrink_before_season.unwrap_or(false),
        delay_per_hour: number(typed.delay_per_hour.as_ref(), "delay_per_hour", 0.002, 1.0, findings),
        silent_after: span(typed.silent_after.as_ref(), "silent_after", Span::minutes(3), Span(5), Span::hours(6), findings),
        history: span(typed.history.as_ref(), "history", DAYS(42), DAYS(2), DAYS(730), findings),
    };
    at_least(typed.validity.as_ref(), "validity", policy.validity, typed.interval.as_ref(), "interval", policy.interval, findings);
    at_least(typed.worker_deadline.as_ref(), "worker_deadline", policy.worker_deadline, typed.watchdog.as_ref(), "watchdog", policy.watchdog, findings);
    policy
}

/// Notes a span that must not be shorter than another, at whichever of the two was written.
pub(crate) fn at_least(
    at: Option<&At<WrittenSpan>>,
    key: &str,
    value: Span,
    floor_at: Option<&At<WrittenSpan>>,
    floor_key: &str,
    floor: Span,
    findings: &mut Findings<'_>,
) {
    if let Some(at) = at.or(floor_at).filter(|_| value < floor) {
        let message = format!("{key} is {value}, shorter than {floor_key}, which is {floor}");
        findings.refuse(
            Code::MinAboveMax,
            at.span(),
            message,
            format!("{key} must reach {floor_key}"),
            format!("raise {key} to {floor} or more, or lower {floor_key}"),
        );
    }
}

pub(crate) fn publish(typed: &typed::Publish, findings: &mut Findings<'_>) -> Publish {
    let listen = typed.listen.as_ref().map_or(LISTEN, |at| match at.get().parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() || typed.allow_remote == Some(true) => address,
        Ok(address) => {
            let message = format!("listen is {address}, which other hosts can reach");
            findings.refuse(
                Code::Address,
                at.span(),
                message,
                "not a loopback address",
                "use 127.0.0.1, or add allow_remote = true: the interface has no password",
            );
            LISTEN
        }
        Err(_) => {
            let message = format!("listen: {:?} is not an address with a port", at.get());
            findings.refuse(Code::Address, at.span(), message, "not an address", "write it as 127.0.0.1:9464 or [::1]:9464");
            LISTEN
        }
    });
    Publish { plan_file: path(typed.plan_file.as_ref(), "plan_file", "plan.json", findings), listen }
}

pub(crate) fn path(at: Option<&At<String>>, key: &str, default: &str, findings: &mut Findings<'_>) -> PathBuf {
    let Some(at) = at else { return PathBuf::from(default) };
    if at.get().trim().is_empty() {
        findings.refuse(Code::Shape, at.span(), format!("{key} is empty"), "no file", format!("write a path, such as {default:?}"));
    }
    PathBuf::from(at.get())
}

pub(crate) fn span(at: Option<&At<WrittenSpan>>, key: &str, default: Span, min: Span, max: Span, findings: &mut Findings<'_>) -> Span {
    at.and_then(|at| findings.span(at, key, min, max)).unwrap_or(default)
}

fn number(at: Option<&At<f64>>, key: &str, default: f64, max: f64, findings: &mut Findings<'_>) -> f64 {
    at.and_then(|at| findings.number(at, key, 0.0..=max)).unwrap_or(default)
}
