//! Redirects, followed by hand: counted, bounded, and safe with credentials.

use crate::{Redacted, WireError};
use reqwest::{Method, StatusCode, Url, header};

/// One address of the way from the one asked to the one that answers.
pub(crate) struct Hop {
    /// Where to.
    pub url: Url,
    /// Whether credentials may go there: it is the origin that was asked.
    pub credentials: bool,
    /// Redirects that led here.
    pub redirects: usize,
}

impl Hop {
    /// The address asked.
    pub fn first(text: &str) -> Result<Self, WireError> {
        let refuse = |reason: String| WireError::Address { url: Redacted::new(text), reason };
        let url = Url::parse(text).map_err(|error| refuse(error.to_string()))?;
        match url.scheme() {
            "http" | "https" => Ok(Self { url, credentials: true, redirects: 0 }),
            scheme => Err(refuse(format!("{scheme} is another scheme"))),
        }
    }

    /// The address as it may be shown.
    pub fn shown(&self) -> Redacted {
        Redacted::new(self.url.as_str())
    }
}

/// Where an answer sends us on to; nothing when it is no redirect, or one that would change what is asked.
pub(crate) fn next_hop(method: &Method, from: &Hop, status: StatusCode, headers: &header::HeaderMap, redirects_max: usize) -> Result<Option<Hop>, WireError> {
    let reads = *method == Method::GET || *method == Method::HEAD;
    let follows = match status.as_u16() {
        301..=303 => reads,
        307 | 308 => true,
        _ => false,
    };
    let Some(location) = headers.get(header::LOCATION).filter(|_| follows) else { return Ok(None) };
    let refuse = |reason: String| WireError::Redirect { url: from.shown(), reason };
    if from.redirects >= redirects_max {
        return Err(refuse(format!("more redirects than redirects_max = {redirects_max}")));
    }
    let mut url = location.to_str().ok().and_then(|place| from.url.join(place).ok()).ok_or_else(|| refuse("its new place is no address".into()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refuse(format!("it leads to {}", Redacted::new(url.as_str()))));
    }
    if from.url.scheme() == "https" && url.scheme() == "http" {
        return Err(refuse("it leads from TLS to plain text".into()));
    }
    let same_origin = from.url.origin() == url.origin();
    // What stands in an address is a credential like any other; a new place may not bring its own.
    let (user, password) = if same_origin { (from.url.username(), from.url.password()) } else { ("", None) };
    let set = url.set_username(user).and_then(|()| url.set_password(password));
    set.map_err(|()| refuse("its new place is no address".into()))?;
    Ok(Some(Hop { url, credentials: from.credentials && same_origin, redirects: from.redirects + 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(method: &Method, from: &str, status: u16, to: &str) -> Result<Option<Hop>, WireError> {
        let headers = header::HeaderMap::from_iter([(header::LOCATION, to.parse().unwrap())]);
        next_hop(method, &Hop::first(from).unwrap(), StatusCode::from_u16(status).unwrap(), &headers, 1)
    }

    #[test]
    fn credentials_stay_with_the_origin_that_was_asked() {
        for (from, to, landed, credentials) in [
            ("http://h/metrics", "/metrics/", "http://h/metrics/", true),
            ("http://ann:pa55@h/metrics", "http://h/m", "http://ann:pa55@h/m", true),
            ("http://ann:pa55@h/metrics", "http://other/m", "http://other/m", false),
            ("http://h/metrics", "http://h:81/m", "http://h:81/m", false),
            ("http://h/metrics", "http://eve:x@other/m", "http://other/m", false),
            ("http://h/metrics", "https://h/m", "https://h/m", false),
        ] {
            let next = hop(&Method::GET, from, 307, to).unwrap().unwrap();
            assert_eq!((next.url.as_str(), next.credentials, next.redirects), (landed, credentials, 1), "{from} {to}");
        }
    }

    #[test]
    fn what_is_not_followed() {
        assert!(hop(&Method::GET, "http://h/a", 200, "/b").unwrap().is_none());
        assert!(hop(&Method::POST, "http://h/a", 302, "/b").unwrap().is_none());
        assert!(hop(&Method::POST, "http://h/a", 307, "/b").unwrap().is_some());
        for (from, to, why) in
            [("https://h/a", "http://h/b", "plain text"), ("http://h/a", "file:///etc/passwd", "leads to"), ("http://h/a", "http://[", "no address")]
        {
            let Err(error) = hop(&Method::GET, from, 301, to) else { panic!("{to} was followed") };
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(Hop::first("ftp://h/").is_err() && Hop::first("h:8000/metrics").is_err());
    }
}
