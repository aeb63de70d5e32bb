//! `[[source.trace]]` and `[source.nvml]`: recorded traffic, and the GPUs of this host.

use crate::{
    error::{Code, Findings},
    pages::{INTERVAL, INTERVAL_MAX},
    resolved::{NvmlConfig, TraceConfig, TraceFormat, TraceInput},
    typed, typed_sources,
    written::At,
};
use fleet::{Fleet, NodeId, Span, WorkloadId};
use std::path::PathBuf;

pub(crate) fn traces(typed: &typed::File, findings: &mut Findings<'_>) -> Vec<TraceConfig> {
    typed.source.trace.iter().filter_map(|table| trace(table, &typed.service, findings)).collect()
}

fn trace(table: &At<typed_sources::Trace>, declared: &[At<typed::Service>], findings: &mut Findings<'_>) -> Option<TraceConfig> {
    let typed = table.get();
    let names = || declared.iter().map(|table| table.get().name.get().as_str());
    let known = names().any(|name| name == typed.service.get());
    if !known {
        findings.dangling(typed.service.span(), "trace", "service", typed.service.get(), names());
    }
    let scale = typed.scale.as_ref().map_or(Some(1.0), |at| findings.positive(at, "scale"));
    let input = match (&typed.file, &typed.format, &typed.bundled) {
        (Some(file), Some(format), None) => match format.get().as_str() {
            "servegen" => TraceInput::File { path: PathBuf::from(file.get()), format: TraceFormat::ServeGen },
            "azure-llm-2023" => TraceInput::File { path: PathBuf::from(file.get()), format: TraceFormat::AzureLlm2023 },
            other => {
                findings.word(format.span(), "format", other, &["servegen", "azure-llm-2023"]);
                return None;
            }
        },
        (None, None, Some(name)) => TraceInput::Bundled(name.get().clone()),
        _ => {
            let help = "write file = \"...\" with format = \"servegen\" or \"azure-llm-2023\"; or bundled = \"...\"";
            findings.refuse(Code::Conflict, table.span(), "a trace is either a file with its format, or bundled", "one or the other", help);
            return None;
        }
    };
    let service = WorkloadId::new(typed.service.get().as_str()).ok().filter(|_| known);
    Some(TraceConfig { service: service?, input, scale: scale? })
}

pub(crate) fn nvml(typed: &typed::File, fleet: &Fleet, findings: &mut Findings<'_>) -> Option<NvmlConfig> {
    let typed = typed.source.nvml.as_ref()?.get();
    let interval = typed.interval.as_ref().map_or(Some(INTERVAL), |at| findings.span(at, "interval", Span(1), INTERVAL_MAX));
    let node = fleet.nodes.iter().find(|node| node.id.as_str() == typed.node.get());
    if node.is_none() && findings.fleet_is_sound() {
        findings.dangling(typed.node.span(), "source.nvml", "node", typed.node.get(), fleet.nodes.iter().map(|node| NodeId::as_str(&node.id)));
    }
    Some(NvmlConfig { library: typed.library.as_ref().map(PathBuf::from), interval: interval?, node: node?.id.clone() })
}
