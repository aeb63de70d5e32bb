//! Secrets, and addresses that may hold one.

use std::fmt;

/// What stands where a secret was.
const HIDDEN: &str = "***";

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself, for the one place that sends it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// How a request says who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// It does not (credentials inside an address are still sent).
    #[default]
    None,
    /// `Authorization: Bearer ...`
    Bearer(Secret),
    /// `Authorization: Basic ...`
    Basic {
        /// User name.
        user: String,
        /// Password.
        password: Secret,
    },
    /// `Authorization: Token ...`, as `InfluxDB` 2 wants it.
    Token(Secret),
}

/// An address as it may be shown: without user, password, query values and fragment. Works on texts that are no address, too.
#[derive(Clone, PartialEq, Eq)]
pub struct Redacted(String);

impl Redacted {
    /// What may be shown of an address.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let (address, fragment) = url.split_once('#').unwrap_or((url, ""));
        let (front, query) = match address.split_once('?') {
            Some((front, query)) => (front, Some(query)),
            None => (url, None),
        };
        let (scheme, rest) = match front.split_once("//") {
            Some((scheme, rest)) => (format!("{scheme}//"), rest),
            None => (String::new(), front),
        };
        // Whatever stands before the last `@` may be a password, even one with an unescaped slash in it. With an `@` behind the first `?`
        // or `#` alone, those may belong to a password and no part is safe to show.
        let mut shown = match rest.rsplit_once('@') {
            Some((_, place)) => format!("{scheme}{HIDDEN}@{place}"),
            None if query.is_some_and(|query| query.contains('@')) || fragment.contains('@') => return Self(format!("{scheme}{HIDDEN}")),
            None => format!("{scheme}{rest}"),
        };
        for (index, pair) in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()).enumerate() {
            shown.push(if index == 0 { '?' } else { '&' });
            if let Some((key, _)) = pair.split_once('=') {
                shown.push_str(key);
                shown.push('=');
            }
            shown.push_str(HIDDEN);
        }
        Self(shown.chars().filter(|c| !c.is_control()).collect())
    }
}

impl fmt::Debug for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_shown_of_an_address() {
        for (url, shown) in [
            ("http://gpu-1:8000/metrics", "http://gpu-1:8000/metrics"),
            ("https://ann:pa55@host/metrics", "https://***@host/metrics"),
            ("https://ann:pa/55@host/metrics", "https://***@host/metrics"),
            ("https://host/q?token=pa55&org=x#pa55", "https://host/q?token=***&org=***"),
            ("https://host/?pa55", "https://host/?***"),
            ("ann:pa55@host", "***@host"),
        ] {
            assert_eq!(Redacted::new(url).to_string(), shown);
        }
    }

    #[test]
    fn a_secret_never_shows() {
        let auth = Auth::Basic { user: "ann".into(), password: Secret::new("pa55") };
        let shown = format!("{auth:?} {} {:?}", Secret::new("pa55"), Some(Secret::new("pa55")));
        assert!(!shown.contains("pa55") && shown.contains("***"), "{shown}");
    }

    proptest::proptest! {
        #[test]
        fn a_password_never_survives(password in "SECRET[a-zA-Z0-9:/@?#&=]{0,12}|[a-zA-Z0-9:/@?#&=]{0,12}SECRET", host in "[a-z]{1,8}") {
            let url = format!("http://user:{password}@{host}/metrics");
            proptest::prop_assert!(!Redacted::new(&url).to_string().contains("SECRET"));
        }
    }
}
