//! `turnaround explain`: what a code means, offline.

use crate::{Failure, Outcome, Screen};
use config::Code;

/// Explain the code of a configuration fault, such as TA0107
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  turnaround explain TA0107\n  turnaround explain            every code")]
pub(crate) struct Arguments {
    /// The code; all of them without it
    code: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    let wanted = arguments.code.as_ref().map(|c| c.trim().to_ascii_uppercase());
    let found: Vec<Code> = Code::ALL.into_iter().filter(|c| wanted.as_ref().is_none_or(|w| w == c.as_str())).collect();
    if let (true, Some(code)) = (found.is_empty(), &arguments.code) {
        return Err(Failure::with_help(format!("there is no code {code:?}"), "turnaround explain without a code lists them all"));
    }
    screen.document(&found.iter().map(|c| serde_json::json!({ "code": c.as_str(), "explanation": c.explanation() })).collect::<Vec<_>>())?;
    for code in found {
        screen.say(&format!("{}  {}", code.as_str(), code.explanation()))?;
    }
    Ok(Outcome::Done)
}
