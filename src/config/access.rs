//! Who asks, and whom to trust: credentials by file or variable, certificates by file.

use crate::{
    error::{Code, Findings},
    resolved_sources::{Access, Credential, Secret, Tls},
    typed_sources::AccessKeys,
    written::At,
};
use std::path::PathBuf;

/// What a table says about access; `None` when it says two things at once, or half of one. `plain` tells that the address is without TLS.
pub(crate) fn access(keys: AccessKeys<'_>, plain: bool, findings: &mut Findings<'_>) -> Option<Access> {
    let token = secret("token", keys.token_file, keys.token_env, findings);
    let password = secret("password", keys.password_file, keys.password_env, findings);
    let tls = tls(keys, plain, findings);
    let (token, password) = (token.ok()?, password.ok()?);
    let credential = match (token, keys.user, password) {
        (None, None, None) => None,
        (Some(token), None, None) => Some(Credential::Bearer(token)),
        (None, Some(user), Some(password)) => Some(Credential::Basic { user: user.get().clone(), password }),
        (Some(_), user, _) => {
            let at = user.or(keys.password_file).or(keys.password_env)?;
            findings.refuse(Code::Conflict, at.span(), "both a token and a password are named", "one or the other", "remove the token, or user and password");
            return None;
        }
        (None, Some(user), None) => {
            let message = format!("user {:?} has no password", user.get());
            findings.refuse(Code::Conflict, user.span(), message, "half of a credential", "add password_file or password_env");
            return None;
        }
        (None, None, Some(_)) => {
            let at = keys.password_file.or(keys.password_env)?;
            findings.refuse(Code::Conflict, at.span(), "a password without a user", "half of a credential", "add user = \"...\"");
            return None;
        }
    };
    Some(Access { credential, tls: tls? })
}

/// A fault that the findings hold already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted;

/// Where a secret is found, if one is named at all.
pub(crate) fn secret(what: &str, file: Option<&At<String>>, variable: Option<&At<String>>, findings: &mut Findings<'_>) -> Result<Option<Secret>, Noted> {
    match (file, variable) {
        (None, None) => Ok(None),
        (Some(at), None) => path(at, &format!("{what}_file"), findings).map(|path| Some(Secret::File(path))).ok_or(Noted),
        (None, Some(at)) if is_variable(at.get()) => Ok(Some(Secret::Env(at.get().clone()))),
        (None, Some(at)) => {
            // The text is not repeated: it may be the secret itself.
            let message = format!("{what}_env does not hold the name of an environment variable");
            findings.refuse(Code::Shape, at.span(), message, "a name, not the secret", format!("write its name, such as {what}_env = \"METRICS_TOKEN\""));
            Err(Noted)
        }
        (Some(file), Some(_)) => {
            let message = format!("the {what} is in a file and in a variable");
            findings.refuse(Code::Conflict, file.span(), message, "one or the other", format!("remove {what}_file or {what}_env"));
            Err(Noted)
        }
    }
}

fn is_variable(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn tls(keys: AccessKeys<'_>, plain: bool, findings: &mut Findings<'_>) -> Option<Tls> {
    let mut sound = true;
    let mut file = |at: Option<&At<String>>, key: &str| {
        let path = at.and_then(|at| path(at, key, findings));
        sound &= at.is_some() == path.is_some();
        path
    };
    let tls = Tls { ca: file(keys.ca_file, "ca_file"), certificate: file(keys.cert_file, "cert_file"), key: file(keys.key_file, "key_file") };
    let half = match (keys.cert_file, keys.key_file) {
        (Some(at), None) => Some((at, "cert_file", "key_file")),
        (None, Some(at)) => Some((at, "key_file", "cert_file")),
        _ => None,
    };
    if let Some((at, named, missing)) = half {
        findings.refuse(Code::Conflict, at.span(), format!("{named} without {missing}"), "half of a pair", format!("add {missing} = \"...\""));
        return None;
    }
    if let Some(at) = keys.ca_file.or(keys.cert_file).filter(|_| plain) {
        findings.refuse(
            Code::Conflict,
            at.span(),
            "certificates are named, but the address begins with http://",
            "never used",
            "write https://, or remove them",
        );
        return None;
    }
    sound.then_some(tls)
}

/// A file's name.
pub(crate) fn path(at: &At<String>, key: &str, findings: &mut Findings<'_>) -> Option<PathBuf> {
    if at.get().trim().is_empty() {
        findings.refuse(Code::Shape, at.span(), format!("{key} is empty"), "no file", "write a path");
        return None;
    }
    Some(PathBuf::from(at.get()))
}
