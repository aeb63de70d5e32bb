//! openb, Alibaba's heterogeneous GPU cluster of 2023 (Apache-2.0 in the authors' simulator; USENIX ATC 2023): pods and nodes. Times count seconds
//! from the start of the trace; empty fields are common. Pods created before day 115 are the few survivors of older ones: use days 115 to 149.

use crate::job_trace::{TraceJob, span};
use crate::philly::GPUS_MAX;
use crate::rows::{Line, Lines, Parse, Row};
use crate::{Clock, DatasetError};
use fleet::{Bytes, Span, Timestamp};
use std::path::Path;

/// Columns of the pods.
pub(crate) const POD_COLUMNS: [&str; 8] = ["name", "num_gpu", "gpu_milli", "gpu_spec", "pod_phase", "creation_time", "deletion_time", "scheduled_time"];
/// Columns of the nodes.
pub(crate) const NODE_COLUMNS: [&str; 5] = ["sn", "cpu_milli", "memory_mib", "gpu", "model"];
/// A whole GPU.
const MILLI: f64 = 1_000.0;

/// Reads the lines of the pods; `origin` is the start of the trace.
pub(crate) fn parse_pods(origin: Timestamp) -> Parse<TraceJob> {
    let mut columns: Option<([usize; 8], Option<usize>)> = None;
    Box::new(move |line: Line<'_>| {
        let row = line.row()?;
        let Some((places, qos)) = columns else {
            columns = Some((row.columns(POD_COLUMNS)?, row.column("qos")));
            return Ok(None);
        };
        pod(&row, places, qos, origin).map(Some)
    })
}

fn pod(row: &Row<'_>, places: [usize; 8], qos: Option<usize>, origin: Timestamp) -> Result<TraceJob, DatasetError> {
    let [name, gpus, milli, spec, phase, created, deleted, scheduled] = places;
    let time = |place: usize| {
        let text = row.text(place);
        let at = || Clock::Seconds.read(text).ok_or_else(|| row.refuse(text, "seconds from the start of the trace"));
        if text.is_empty() { Ok(None) } else { at().map(|(at, _)| Some(at)) }
    };
    let created = time(created)?.ok_or_else(|| row.refuse("", "the time the pod was created, in seconds from the start of the trace"))?;
    let (deleted, scheduled) = (time(deleted)?, time(scheduled)?);
    let gpus = row.parse(gpus, |n: &u32| *n <= GPUS_MAX, "a number of GPUs")?;
    let milli = row.amount_if_any(milli, "thousandths of a GPU")?.unwrap_or(MILLI);
    let said = |place: usize| Some(row.text(place)).filter(|t| !t.is_empty()).map(str::to_owned);
    Ok(TraceJob {
        waited: scheduled.map(|at| at.since(created)),
        ran: scheduled.zip(deleted).map(|(from, to)| to.since(from)),
        gpu_share: if gpus == 0 { 1.0 } else { (milli / MILLI).clamp(0.0, 1.0) },
        kinds: row.text(spec).split('|').filter(|k| !k.is_empty()).map(str::to_owned).collect(),
        tenant: qos.and_then(said),
        ended: said(phase),
        ..TraceJob::new(row.text(name).to_owned(), origin + Span(created.0), gpus)
    })
}

/// A node of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceNode {
    /// Its name.
    pub name: String,
    /// GPUs in it.
    pub gpus: u32,
    /// Their kind; none in a node without GPUs.
    pub kind: Option<String>,
    /// Its memory.
    pub memory: Bytes,
}

/// Reads the nodes of openb.
///
/// # Errors
/// When the file cannot be read, a row is damaged, or there is none.
pub fn read_nodes(path: &Path) -> Result<Vec<TraceNode>, DatasetError> {
    let mut lines = Lines::open(path)?;
    let (mut columns, mut nodes) = (None::<[usize; 5]>, Vec::new());
    while let Some(line) = lines.next()? {
        let row = line.row()?;
        let Some([name, _, memory, gpus, kind]) = columns else {
            columns = Some(row.columns(NODE_COLUMNS)?);
            continue;
        };
        let memory = row.parse(memory, |n: &u64| *n < 1 << 40, "MiB of memory")?;
        let gpus = row.parse(gpus, |n: &u32| *n <= GPUS_MAX, "a number of GPUs")?;
        let kind = Some(row.text(kind)).filter(|k| !k.is_empty() && gpus > 0).map(str::to_owned);
        nodes.push(TraceNode { name: row.text(name).to_owned(), gpus, kind, memory: Bytes(memory << 20) });
    }
    if nodes.is_empty() { Err(DatasetError::Empty { path: path.to_owned(), what: "nodes".into() }) } else { Ok(nodes) }
}

/// Time a job of steps takes at so many a second.
pub(crate) fn time_of(steps: f64, per_second: f64) -> Option<Span> {
    (per_second > 0.0 && steps.is_finite()).then(|| span(steps / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, read_jobs, read_jobs_from};
    use std::collections::BTreeMap;

    const HEADER: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n";

    fn read(rows: &str) -> Result<Vec<TraceJob>, DatasetError> {
        read_jobs_from(std::io::Cursor::new(format!("{HEADER}{rows}")), Path::new("o.csv"), Format::OpenbPods, Timestamp(1_000))?.collect()
    }

    #[test]
    fn a_shared_gpu_a_choice_of_kinds_and_a_pod_never_run() {
        let pods = read("a,6000,12288,1,460,V100M16|V100M32,LS,Running,50,150,70\nb,1,1,8,1000,,BE,Pending,60,,\n").unwrap();
        assert_eq!((pods[0].submitted, pods[0].waited, pods[0].ran), (Timestamp(1_050), Some(Span(20)), Some(Span(80))));
        assert!((pods[0].gpu_share - 0.46).abs() < 1e-12);
        assert_eq!(pods[0].kinds, ["V100M16", "V100M32"]);
        assert_eq!((pods[1].gpus, pods[1].ran, pods[1].ended.as_deref()), (8, None, Some("Pending")));
        for bad in ["a,1,1,x,,,,,1,2,3", "a,1,1,1,,,,,,2,3", "a,1,1,1,,,,,-1,2,3", "a,1,1,1,NaN,,,,1,2,3"] {
            let message = read(bad).unwrap_err().to_string();
            assert!(message.contains("o.csv:2"), "{bad}: {message}");
        }
    }

    #[test]
    fn the_published_cluster_is_read_whole() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/openb-2023"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        let pods: Vec<TraceJob> =
            read_jobs(&data.join("openb_pod_list_default.csv.gz"), Format::OpenbPods, Timestamp(0)).unwrap().collect::<Result<_, _>>().unwrap();
        let pending = pods.iter().filter(|p| p.ended.as_deref() == Some("Pending")).count();
        assert_eq!((pods.len(), pods.iter().map(|p| p.gpus).sum::<u32>(), pending), (8_152, 7_433, 897));
        assert_eq!(pods.iter().filter(|p| p.waited.is_none()).count(), 897);
        let nodes = read_nodes(&data.join("openb_node_list_gpu_node.csv.gz")).unwrap();
        let mut kinds: BTreeMap<&str, u32> = BTreeMap::new();
        for node in &nodes {
            *kinds.entry(node.kind.as_deref().unwrap()).or_default() += node.gpus;
        }
        let expected = [("A10", 2), ("G2", 4_392), ("G3", 312), ("P100", 265), ("T4", 842), ("V100M16", 195), ("V100M32", 204)];
        assert_eq!((nodes.len(), kinds), (1_213, expected.into_iter().collect()));
        assert_eq!(read_nodes(&data.join("openb_node_list_all_node.csv.gz")).unwrap().len(), 1_523);
    }
}
