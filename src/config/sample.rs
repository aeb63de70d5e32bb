//! The configuration `turnaround init --sample` writes.

/// A commented configuration that runs as it is: the fleet and workloads of the demo, fed by the traffic that comes with the program.
#[must_use]
pub fn sample() -> String {
    include_str!("sample.toml").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, TraceInput, parse};

    fn read() -> Config {
        parse(&sample(), "turnaround.toml").unwrap_or_else(|errors| panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")))
    }

    #[test]
    fn runs_as_it_is() {
        let config = read();
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
        assert_eq!(config.fleet.gpus.len(), 24);
        assert_eq!(config.fleet.kinds.len(), 2);
        let services: Vec<_> = config.workloads.iter().filter(|workload| workload.service().is_some()).collect();
        assert_eq!(services.len(), 3);
        assert!(services.iter().all(|service| config.traces.iter().any(|trace| trace.service == service.id && matches!(trace.input, TraceInput::Bundled(_)))));
        assert!(config.all_unobserved_free() && config.targets.is_empty());
    }

    /// What is commented out must work when the comment is taken away, or the first thing a user does fails.
    #[test]
    fn runs_with_its_suggestions_too() {
        let text: String = sample().lines().map(|line| line.strip_prefix("#: ").map_or_else(|| line.to_owned(), str::to_owned) + "\n").collect();
        assert_ne!(text, sample());
        let config = parse(&text, "turnaround.toml").unwrap_or_else(|errors| panic!("{errors:#?}"));
        assert_eq!(config.targets.len(), 4);
        assert!(config.nvml.is_some() && config.store.influxdb.is_some());
        assert_eq!(config.sources.prometheus_apis.len(), 1);
    }
}
