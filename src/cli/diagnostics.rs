//! Failures as people and machines read them: what, where, why, what now.

use crate::{Failure, Screen, screen::note};
use config::ConfigError;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, SourceCode};
use std::fmt;

/// Writes a failure to standard error, and as JSON to standard output where that was asked for.
pub(crate) fn report(failure: &Failure, screen: &Screen) {
    note(text(failure, screen).trim_end());
    if screen.is_json() {
        // A closed output is already the end of the command.
        let _ = screen.document(&json(failure));
    }
}

/// The text with stars for what may be a secret: user and password of an address, its query, and the values of keys that speak of tokens, passwords
/// or secrets. Every byte keeps its place, so that what points into the text still does.
fn hide_secrets(text: &str) -> String {
    let stars = |part: &str| "*".repeat(part.len());
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let key = line.split('=').next().unwrap_or("").to_lowercase();
        let mut line = line.to_owned();
        let secret = ["token", "password", "secret"].iter().any(|word| key.contains(word)) && !key.contains("_env") && !key.contains("_file");
        if let (true, Some(open)) = (secret, line.find('"')) {
            let close = line[open + 1..].find('"').map_or(line.len(), |at| open + 1 + at);
            line = format!("{}{}{}", &line[..=open], stars(&line[open + 1..close]), &line[close..]);
        }
        if let Some(start) = line.find("://").map(|at| at + 3) {
            let end = line[start..].find(['"', '\'', ' ', '\n']).map_or(line.len(), |at| start + at);
            let address = &line[start..end];
            let user = address.rfind('@').unwrap_or(0);
            let query = address.find('?').unwrap_or(address.len()).max(user);
            let hidden = format!("{}{}{}", stars(&address[..user]), &address[user..query], stars(&address[query..]));
            line = format!("{}{hidden}{}", &line[..start], &line[end..]);
        }
        out.push_str(&line);
    }
    out
}

/// One fault of a configuration, with the text around it.
pub(crate) fn fault(fault: &ConfigError, text: &str, screen: &Screen) -> String {
    let text = &hide_secrets(text);
    render(&Report { text, fault: Some(fault), message: fault.message.clone(), help: Some(fault.help.clone()) }, screen)
}

fn text(failure: &Failure, screen: &Screen) -> String {
    match failure {
        Failure::Fault { message, help } | Failure::Usage { message, help } | Failure::Config { message, help } => {
            render(&Report { text: "", fault: None, message: message.clone(), help: help.clone() }, screen)
        }
        Failure::ConfigFaults { text, faults } => {
            let drawn: String = faults.iter().map(|f| fault(f, text, screen)).collect();
            let first = faults.first();
            let (file, code) = first.map_or(("", ""), |f| (f.file.as_str(), f.code));
            let plural = if faults.len() == 1 { "" } else { "s" };
            format!("{drawn}{} fault{plural} in {file}. More on one of them: turnaround explain {code}", faults.len())
        }
    }
}

fn json(failure: &Failure) -> serde_json::Value {
    let body = match failure {
        Failure::Fault { message, help } | Failure::Usage { message, help } | Failure::Config { message, help } => {
            serde_json::json!({ "message": message, "help": help })
        }
        Failure::ConfigFaults { faults, .. } => {
            let one = |f: &ConfigError| serde_json::json!({ "code": f.code, "message": f.message, "help": f.help, "file": f.file, "line": f.line });
            serde_json::json!({ "message": "the configuration has faults", "faults": faults.iter().map(one).collect::<Vec<_>>() })
        }
    };
    let mut body = body;
    body["exit_code"] = failure.code().into();
    serde_json::json!({ "error": body })
}

fn render(report: &Report<'_>, screen: &Screen) -> String {
    let look = screen.look();
    let colour = console::colors_enabled_stderr();
    let theme = match (look.ascii, colour) {
        (true, _) => GraphicalTheme::none(),
        (false, true) => GraphicalTheme::unicode(),
        (false, false) => GraphicalTheme::unicode_nocolor(),
    };
    let mut out = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(look.width).with_links(false).with_context_lines(1);
    // Rendering fails only when the text does not hold the span; the plain words are then still worth having.
    if handler.render_report(&mut out, report).is_err() {
        out = report.fault.map_or_else(|| report.message.clone(), ToString::to_string);
    }
    out
}

struct Report<'a> {
    text: &'a str,
    fault: Option<&'a ConfigError>,
    message: String,
    help: Option<String>,
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Report<'_> {}

impl Diagnostic for Report<'_> {
    fn code(&self) -> Option<Box<dyn fmt::Display + '_>> {
        self.fault.map(|f| Box::new(f.code) as Box<dyn fmt::Display>)
    }

    fn help(&self) -> Option<Box<dyn fmt::Display + '_>> {
        self.help.as_ref().map(|h| Box::new(h) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.fault.map(|_| self as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let fault = self.fault?;
        let span = LabeledSpan::new(Some(fault.label.clone()), fault.span.start, fault.span.len());
        Some(Box::new(std::iter::once(span)))
    }
}

impl SourceCode for Report<'_> {
    fn read_span<'a>(&'a self, span: &miette::SourceSpan, before: usize, after: usize) -> Result<Box<dyn miette::SpanContents<'a> + 'a>, miette::MietteError> {
        let contents = self.text.read_span(span, before, after)?;
        let file = self.fault.map_or_else(String::new, |f| f.file.clone());
        // The name of the file stands in the frame; miette only knows it from a named source.
        Ok(Box::new(miette::MietteSpanContents::new_named(file, contents.data(), *contents.span(), contents.line(), contents.column(), contents.line_count())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_become_stars_and_every_byte_keeps_its_place() {
        let text = "url = \"http://ann:pa55@host:8000/metrics?token=abc\"\ntoken = \"s3cret\"\ntoken_env = \"NAME\"\nname = \"chat\"\n";
        let hidden = hide_secrets(text);
        assert_eq!(hidden.len(), text.len());
        assert!(!hidden.contains("pa55") && !hidden.contains("ann") && !hidden.contains("abc") && !hidden.contains("s3cret"), "{hidden}");
        assert!(hidden.contains("@host:8000/metrics") && hidden.contains("token_env = \"NAME\"") && hidden.contains("name = \"chat\""), "{hidden}");
    }
}
