//! Reading `turnaround.toml`.

use crate::Failure;
use config::Config;
use std::{io::ErrorKind, path::Path};

/// A configuration with the text it came from. Paths in it are relative to where the program runs.
pub(crate) struct Loaded {
    pub config: Config,
    pub text: String,
}

/// Reads and resolves the file. Relative paths in it are taken from its own folder.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let help = match error.kind() {
            ErrorKind::NotFound => "turnaround init --sample writes one; --config names another",
            ErrorKind::InvalidData => "write it as UTF-8 text",
            _ => "make it readable for the user that runs this",
        };
        let reason = if error.kind() == ErrorKind::NotFound { "there is no such file".to_owned() } else { error.to_string() };
        Failure::Config { message: format!("cannot read the configuration {}: {reason}", path.display()), help: Some(help.to_owned()) }
    })?;
    match config::parse(&text, &path.display().to_string()) {
        Ok(mut config) => {
            let folder = path.parent().unwrap_or(Path::new(""));
            config.place(folder);
            Ok(Loaded { config, text })
        }
        Err(faults) => Err(Failure::ConfigFaults { text, faults }),
    }
}
