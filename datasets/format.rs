//! The formats that are read: their names, where they come from, and how one is recognised.

use crate::rows::{Line, Lines};
use crate::{DatasetError, azure, burstgpt, helios, openb, parquet_table, philly, sageserve, servegen, table};
use fleet::Span;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

/// What a file of a format holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Requests or counts of them: [`crate::read_demand`].
    Demand,
    /// Jobs: [`crate::read_jobs`].
    Jobs,
    /// GPUs or nodes in use over time: [`crate::read_occupancy`].
    Occupancy,
    /// Nodes with GPUs: [`crate::read_nodes`].
    Nodes,
    /// Speeds of job types by GPU kind: [`crate::read_throughputs`].
    Speeds,
}

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// Azure's LLM inference trace of 2023.
    AzureLlm2023,
    /// Azure's LLM inference trace of 2024.
    AzureLlm2024,
    /// `BurstGPT`.
    BurstGpt,
    /// Mooncake's traces.
    Mooncake,
    /// A folder of `ServeGen` client traces.
    ServeGen,
    /// `SageServe`'s week.
    SageServe,
    /// Any table in CSV, by a mapping.
    Csv,
    /// Any table in Parquet, by a mapping.
    Parquet,
    /// Philly's jobs.
    Philly,
    /// Philly's nodes in use.
    PhillyNodes,
    /// Helios' job log.
    HeliosJobs,
    /// Helios' virtual clusters minute by minute.
    HeliosClusters,
    /// openb's pods.
    OpenbPods,
    /// openb's nodes.
    OpenbNodes,
    /// Gavel's job traces.
    GavelJobs,
    /// Gavel's throughputs.
    GavelThroughputs,
}

/// A format in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Columns, or fields.
    pub columns: &'static str,
    /// Who published it.
    pub source: &'static str,
    /// Licence of the published data.
    pub licence: &'static str,
    /// Whether it carries dates; else it counts from its start. `None`: the file says.
    pub dated: Option<bool>,
    /// A pause between requests longer than this is a lost record, not idleness. `None`: rows are counts, and a missing row is a gap.
    pub silence_max: Option<Span>,
}

/// What is nobody's in particular.
const ANY: &str = "anybody";
/// Its licence.
const OWN: &str = "its owner's";
/// A log of a busy service: at requests every second, a silent minute is a lost record.
const BUSY: Option<Span> = Some(Span::MINUTE);
/// A log of a service with nights: a silent hour is a lost record.
const NIGHTS: Option<Span> = Some(Span::HOUR);

impl Format {
    /// All of them, in the order of their documentation.
    pub const ALL: [Self; 16] = [
        Self::AzureLlm2023,
        Self::AzureLlm2024,
        Self::BurstGpt,
        Self::Mooncake,
        Self::ServeGen,
        Self::SageServe,
        Self::Csv,
        Self::Parquet,
        Self::Philly,
        Self::PhillyNodes,
        Self::HeliosJobs,
        Self::HeliosClusters,
        Self::OpenbPods,
        Self::OpenbNodes,
        Self::GavelJobs,
        Self::GavelThroughputs,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.describe().name
    }

    /// In words.
    #[must_use]
    pub fn describe(self) -> Description {
        let demand =
            |name, columns, source, licence, dated, silence_max| Description { name, kind: Kind::Demand, columns, source, licence, dated, silence_max };
        let other = |name, kind, columns, source, licence, dated| Description { name, kind, columns, source, licence, dated: Some(dated), silence_max: None };
        match self {
            Self::AzureLlm2023 => demand("azure-llm-2023", azure::HEADER, "Azure/AzurePublicDataset", "CC-BY-4.0", Some(true), BUSY),
            Self::AzureLlm2024 => demand("azure-llm-2024", azure::HEADER, "Azure/AzurePublicDataset", "CC-BY-4.0", Some(true), NIGHTS),
            Self::BurstGpt => demand(
                "burstgpt",
                "Timestamp,[Session ID,Elapsed time,]Model,Request tokens,Response tokens,Total tokens,Log Type",
                "HPMLL/BurstGPT",
                "CC-BY-4.0",
                Some(false),
                NIGHTS,
            ),
            Self::Mooncake => {
                demand("mooncake", "JSON lines: timestamp, input_length, output_length, hash_ids", "kvcache-ai/Mooncake", "Apache-2.0", Some(false), BUSY)
            }
            Self::ServeGen => demand(
                "servegen",
                "a folder of chunk-N-trace.csv: start, rate, cv, distribution, shape, scale",
                "alibaba/ServeGen",
                "Apache-2.0",
                Some(false),
                None,
            ),
            Self::SageServe => {
                demand("sageserve", "t_s, then a column of prompt tokens a minute for each model and tier", "shashwatj07/SageServe", "MIT", Some(false), None)
            }
            Self::Csv => demand("csv", "a header; columns by --map, or by common names", ANY, OWN, None, NIGHTS),
            Self::Parquet => demand("parquet", "columns by --map, or by common names", ANY, OWN, None, NIGHTS),
            Self::Philly => other("philly", Kind::Jobs, "timestamp,duration,num_gpus,gpu_time,cluster", "msr-fiddle/philly-traces", "CC-BY-4.0", true),
            Self::PhillyNodes => other("philly-nodes", Kind::Occupancy, "time,active,total", "S-Lab-System-Group/HeliosArtifact", "MIT", true),
            Self::HeliosJobs => other(
                "helios",
                Kind::Jobs,
                "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
                "S-Lab-System-Group/HeliosData",
                "CC-BY-4.0",
                true,
            ),
            Self::HeliosClusters => other(
                "helios-clusters",
                Kind::Occupancy,
                "time, ..., total_gpu_num,running_gpu_num,pending_gpu_num, ...",
                "S-Lab-System-Group/HeliosArtifact",
                "MIT",
                true,
            ),
            Self::OpenbPods => other(
                "openb-pods",
                Kind::Jobs,
                "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
                "hkust-adsl/kubernetes-scheduler-simulator",
                "Apache-2.0",
                false,
            ),
            Self::OpenbNodes => {
                other("openb-nodes", Kind::Nodes, "sn,cpu_milli,memory_mib,gpu,model", "hkust-adsl/kubernetes-scheduler-simulator", "Apache-2.0", false)
            }
            Self::GavelJobs => other(
                "gavel",
                Kind::Jobs,
                "tab-separated: type, command, steps argument, needs data, steps, arrival (s), GPUs",
                "stanford-futuredata/gavel",
                "MIT",
                false,
            ),
            Self::GavelThroughputs => other("gavel-throughputs", Kind::Speeds, "JSON: GPU kind, job type, steps/s", "stanford-futuredata/gavel", "MIT", false),
        }
    }

    /// Recognises a file or folder by what it holds: bytes at its start, the names of its columns, its first row.
    ///
    /// # Errors
    /// When it cannot be read, or is of no format known here.
    pub fn detect(path: &Path) -> Result<Self, DatasetError> {
        if path.is_dir() {
            return if servegen::is_folder(path)? { Ok(Self::ServeGen) } else { Err(unknown(path, "holds no chunk-N-trace.csv")) };
        }
        let mut start = Vec::new();
        let read = |source| DatasetError::Read { path: path.to_owned(), source };
        File::open(path).map_err(read)?.take(4).read_to_end(&mut start).map_err(read)?;
        if start == parquet_table::MAGIC {
            return parquet_table::is_readable(path);
        }
        let mut lines = Lines::open(path)?;
        let Some(first) = lines.next()?.map(|line| line.text.to_owned()) else {
            return Err(DatasetError::Empty { path: path.to_owned(), what: "lines".into() });
        };
        let second = lines.next()?.map(|line| line.text.to_owned()).unwrap_or_default();
        by_lines(path, &first, &second).ok_or_else(|| unknown(path, &format!("begins with {:?}, which is of no format known here", excerpt(&first))))
    }

    /// A complaint that this is not what is asked for.
    pub(crate) fn not_of(self, path: &Path, wanted: &str, remedy: &str) -> DatasetError {
        DatasetError::Format { path: path.to_owned(), problem: format!("{} is not {wanted}", self.name()), remedy: remedy.to_owned() }
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(60).collect()
}

fn unknown(path: &Path, problem: &str) -> DatasetError {
    let names = Format::ALL.map(Format::name).join(", ");
    DatasetError::Format {
        path: path.to_owned(),
        problem: problem.to_owned(),
        remedy: format!("name its format ({names}), or for a table of your own its columns: --format csv --map time=COLUMN,in=COLUMN,out=COLUMN"),
    }
}

fn by_lines(path: &Path, first: &str, second: &str) -> Option<Format> {
    if first.trim_start().starts_with('{') {
        return Some(if first.contains("\"input_length\"") { Format::Mooncake } else { Format::GavelThroughputs })
            .filter(|f| *f == Format::Mooncake || second.contains('"'));
    }
    if first.split('\t').count() == 7 {
        return Some(Format::GavelJobs);
    }
    let row = Line::new(path, 1, first).row().ok()?;
    let has = |names: &[&str]| names.iter().all(|name| row.column(name).is_some());
    if first.trim() == azure::HEADER {
        return Some(if azure::has_zone(second.split(',').next().unwrap_or_default()) { Format::AzureLlm2024 } else { Format::AzureLlm2023 });
    }
    let known: [(&[&str], Format); 7] = [
        (&burstgpt::COLUMNS, Format::BurstGpt),
        (&philly::COLUMNS, Format::Philly),
        (&helios::JOB_COLUMNS, Format::HeliosJobs),
        (&helios::CLUSTER_COLUMNS, Format::HeliosClusters),
        (&openb::POD_COLUMNS, Format::OpenbPods),
        (&openb::NODE_COLUMNS, Format::OpenbNodes),
        (&philly::NODE_COLUMNS, Format::PhillyNodes),
    ];
    let found = known.into_iter().find(|(columns, _)| has(columns)).map(|(_, format)| format);
    found.or_else(|| (row.text(0) == sageserve::TIME).then_some(Format::SageServe)).or_else(|| table::is_readable(&row).then_some(Format::Csv))
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL.into_iter().find(|f| f.name() == text).ok_or_else(|| format!("there is no format {text:?}; known: {}", names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lead_back() {
        for format in Format::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            let told = format.describe();
            assert!(!told.columns.is_empty() && !told.licence.is_empty() && !told.source.is_empty());
        }
        assert!("soup".parse::<Format>().unwrap_err().contains("mooncake"));
    }

    #[test]
    fn an_unknown_file_is_told_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        std::fs::write(&path, "a;b\n1;2\n").unwrap();
        let message = Format::detect(&path).unwrap_err().to_string();
        assert!(message.contains("--map time=COLUMN") && message.contains("mooncake") && message.contains("a;b"), "{message}");
        assert!(Format::detect(folder.path()).unwrap_err().to_string().contains("chunk-N"));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(Format::detect(&path), Err(DatasetError::Empty { .. })));
    }

    #[test]
    fn published_files_are_recognised() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        for (path, format) in [
            ("azure-llm-2023/AzureLLMInferenceTrace_code.csv.gz", Format::AzureLlm2023),
            ("servegen/language/m-large", Format::ServeGen),
            ("philly/philly.csv.gz", Format::Philly),
            ("philly/philly_node_sequence.csv.gz", Format::PhillyNodes),
            ("helios/Earth_vcs/vc3sl_cluster_sequence_vc.csv.gz", Format::HeliosClusters),
            ("openb-2023/openb_pod_list_default.csv.gz", Format::OpenbPods),
            ("openb-2023/openb_node_list_gpu_node.csv.gz", Format::OpenbNodes),
            ("gavel/traces_msr_seed0/6214e9.trace.gz", Format::GavelJobs),
            ("gavel/simulation_throughputs.json.gz", Format::GavelThroughputs),
        ] {
            assert_eq!(Format::detect(&data.join(path)).unwrap(), format, "{path}");
        }
    }
}
