//! `turnaround schema`: what files look like, for editors and validators.

use crate::{Failure, Outcome, Screen};
use std::io::Write;

/// Print the JSON Schema of the configuration, of plans or of problems
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  turnaround schema config > turnaround.schema.json\n  turnaround schema plan")]
pub(crate) struct Arguments {
    /// Of what
    of: Of,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Of {
    /// turnaround.toml
    Config,
    /// plan.json
    Plan,
    /// What a plan answers
    Problem,
}

pub(crate) fn run(arguments: &Arguments, screen: &Screen) -> Result<Outcome, Failure> {
    let schema = match arguments.of {
        Of::Config => config::schema(),
        Of::Plan => schemars::schema_for!(fleet::Plan).to_value(),
        Of::Problem => schemars::schema_for!(fleet::Problem).to_value(),
    };
    if screen.is_json() {
        screen.document(&schema)?;
    } else {
        // The text for people is the same document.
        let mut text = serde_json::to_string_pretty(&schema)?;
        text.push('\n');
        screen.show(&text)?;
    }
    std::io::stdout().flush()?;
    Ok(Outcome::Done)
}
