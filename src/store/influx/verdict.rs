//! What an answer to a write means for the points that were sent. Pure, so that every answer ever seen can be tried.

use super::flux::short;
use std::time::Duration;
use wire::{Response, WireError};

/// What to do with the points of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All are kept.
    Written,
    /// All but some are kept, and those never will be: sending again is of no use.
    Partly {
        /// How many are lost, where the server says so.
        dropped: u64,
        /// Why.
        why: Lost,
        /// The server's words.
        words: String,
    },
    /// None is kept because of at least one that never will be: send in smaller parts until it stands alone.
    Unreadable {
        /// The server's words.
        words: String,
    },
    /// Send again after a while.
    Later {
        /// How the wait is measured.
        wait: Wait,
        /// What happened.
        words: String,
    },
}

/// Why points were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lost {
    /// Older than the bucket keeps.
    BeyondRetention,
    /// The field has another type, or the server cannot read the point.
    Refused,
    /// The local queue was full.
    QueueFull,
}

/// How long to wait before sending again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Ever longer: it is away or has a fault.
    Grow,
    /// As long as it asks for.
    Asked(Duration),
    /// Long: somebody must set it right. The token is read again.
    Token,
    /// Long: somebody must set it right.
    Somebody,
}

/// Reads an answer to a write of `points` points.
pub(crate) fn verdict(answer: &Result<Response, WireError>, points: usize) -> Verdict {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Verdict::Later { wait: Wait::Grow, words: error.to_string() },
    };
    let words = words(answer);
    let partial = words.contains("partial write") || words.contains("points beyond retention") || words.contains("outside retention policy");
    match answer.status {
        204 => Verdict::Written,
        // Whatever the status (400, 422 and 500 were seen, by version): the rest counts as written and a second attempt changes nothing.
        400..=599 if partial => Verdict::Partly { dropped: dropped(&words).unwrap_or(1).min(points as u64), why: why(&words), words },
        401 | 403 => Verdict::Later { wait: Wait::Token, words },
        404 => Verdict::Later { wait: Wait::Somebody, words },
        // In InfluxDB's own words; a stranger on the way that refuses everything must not cost a point.
        400 | 422 if told(answer) => Verdict::Unreadable { words },
        413 => Verdict::Unreadable { words },
        _ => Verdict::Later { wait: answer.retry_after.map_or(Wait::Grow, Wait::Asked), words },
    }
}

/// Whether the answer is `InfluxDB`'s: JSON with a message.
fn told(answer: &Response) -> bool {
    serde_json::from_slice::<serde_json::Value>(&answer.body).is_ok_and(|json| json["message"].is_string())
}

/// The status, and the message of `InfluxDB`'s JSON where the body is that.
fn words(answer: &Response) -> String {
    let json = serde_json::from_slice::<serde_json::Value>(&answer.body).ok();
    let message = json.as_ref().and_then(|json| json["message"].as_str()).map(short);
    let what = message.unwrap_or_else(|| short(&String::from_utf8_lossy(&answer.body)));
    format!("HTTP {}: {}", answer.status, if what.is_empty() { "(no words)" } else { &what })
}

/// `dropped=3`, `dropped 3 points`.
fn dropped(words: &str) -> Option<u64> {
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    words.split("dropped=").nth(1).and_then(number).or_else(|| words.split("dropped ").nth(1).and_then(number))
}

fn why(words: &str) -> Lost {
    if words.contains("retention") && !words.contains("field type conflict") { Lost::BeyondRetention } else { Lost::Refused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "what is judged is the outcome of an exchange")]
    fn answer(status: u16, body: &str, retry_after: Option<u64>) -> Result<Response, WireError> {
        let retry_after = retry_after.map(Duration::from_secs);
        let url = wire::Redacted::new("http://h");
        Ok(Response { status, content_type: None, retry_after, redirects: 0, http2: false, body: body.as_bytes().to_vec(), url })
    }

    /// Field case 29: Points older than the retention period block the queue
    #[test]
    fn points_beyond_retention_are_given_up_whatever_the_status() {
        let old = r#"{"code":"x","message":"partial write: points beyond retention policy dropped=3"}"#;
        for status in [400, 422, 500] {
            let Verdict::Partly { dropped: 3, why: Lost::BeyondRetention, .. } = verdict(&answer(status, old, None), 10) else { panic!("{status}") };
        }
        let real = r#"{"code":"unprocessable entity","message":"failure writing points to database: partial write: dropped 2 points outside retention policy of duration 24h0m0s - oldest point m at 2023-11-14T22:13:20Z dropped because it violates a Retention Policy Lower Bound at 2026-11-30T15:35:30.111356816Z dropped=2 for database: 1c38"}"#;
        assert!(matches!(verdict(&answer(422, real, None), 10), Verdict::Partly { dropped: 2, why: Lost::BeyondRetention, .. }));
    }

    /// Field case 31: Field changes between integer and float
    #[test]
    fn a_type_conflict_names_measurement_field_and_both_types() {
        let real = r#"{"code":"unprocessable entity","message":"failure writing points to database: partial write: field type conflict: input field \"v\" on measurement \"m\" is type float, already exists as type integer dropped=1"}"#;
        let Verdict::Partly { dropped: 1, why: Lost::Refused, words } = verdict(&answer(422, real, None), 10) else { panic!() };
        for part in ["\"v\"", "\"m\"", "float", "integer", "HTTP 422"] {
            assert!(words.contains(part), "{words}");
        }
    }

    /// Field case 33: Token revoked or quota hit: data silently lost, token printed
    #[test]
    fn nothing_else_gives_up_a_point() {
        let wait = |status, body, after| match verdict(&answer(status, body, after), 5) {
            Verdict::Later { wait, .. } => wait,
            other => panic!("{status}: {other:?}"),
        };
        assert_eq!((wait(401, "", None), wait(403, "", None), wait(404, "", None)), (Wait::Token, Wait::Token, Wait::Somebody));
        assert_eq!((wait(429, "", Some(30)), wait(503, "", Some(7))), (Wait::Asked(Duration::from_secs(30)), Wait::Asked(Duration::from_secs(7))));
        // Not an answer of InfluxDB: a proxy's page, a moved service.
        for status in [200, 301, 400, 405, 422, 500, 502, 599] {
            assert_eq!(wait(status, "<html>", None), Wait::Grow);
        }
        let error = WireError::Timeout { url: wire::Redacted::new("http://h"), timeout_ms: 5 };
        assert!(matches!(verdict(&Err(error), 5), Verdict::Later { wait: Wait::Grow, .. }));
        assert!(matches!(verdict(&answer(400, r#"{"message":"unable to parse 'm v= 1': missing field value"}"#, None), 5), Verdict::Unreadable { .. }));
        assert_eq!(verdict(&answer(204, "", None), 5), Verdict::Written);
    }
}
