//! Helios, four clusters of `SenseTime` (SC 2021). The job log (`HeliosData`, CC-BY-4.0) has the columns
//! `job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue`; the artifact (MIT) has virtual clusters minute by
//! minute, of which `time`, `total_gpu_num`, `running_gpu_num` and `pending_gpu_num` are read. Times are local, UTC+8, and are turned into UTC.

use crate::Clock;
use crate::job_trace::{TraceJob, span};
use crate::philly::GPUS_MAX;
use crate::rows::{Line, Parse};
use fleet::Span;

/// Columns of the job log that must be there.
pub(crate) const JOB_COLUMNS: [&str; 4] = ["job_id", "gpu_num", "submit_time", "duration"];
/// Columns of the virtual clusters that are read.
pub(crate) const CLUSTER_COLUMNS: [&str; 4] = ["time", "running_gpu_num", "pending_gpu_num", "total_gpu_num"];
/// Local time is so far ahead of UTC.
pub(crate) const ZONE: Span = Span::hours(8);

/// Reads the lines of the job log.
pub(crate) fn parse_jobs() -> Parse<TraceJob> {
    let mut columns: Option<([usize; 4], [Option<usize>; 4])> = None;
    Box::new(move |line: Line<'_>| {
        let row = line.row()?;
        let Some(([id, gpus, submitted, duration], [vc, user, state, queue])) = columns else {
            columns = Some((row.columns(JOB_COLUMNS)?, ["vc", "user", "state", "queue"].map(|name| row.column(name))));
            return Ok(None);
        };
        let local = Clock::Rfc3339.read(row.text(submitted)).ok_or_else(|| row.refuse(row.text(submitted), "a time like 2020-04-01 00:00:12"))?.0;
        let gpus = row.parse(gpus, |n: &u32| *n <= GPUS_MAX, "a number of GPUs")?;
        let said = |place: Option<usize>| place.map(|p| row.text(p)).filter(|t| !t.is_empty()).map(str::to_owned);
        let waited = queue.map_or(Ok(None), |place| row.amount_if_any(place, "seconds the job waited"))?;
        let mut job = TraceJob::new(row.text(id).to_owned(), local - ZONE, gpus);
        job.ran = Some(span(row.amount(duration, "seconds the job ran")?));
        job.waited = waited.map(span);
        job.tenant = said(vc).or_else(|| said(user));
        job.ended = said(state);
        Ok(Some(job))
    })
}

#[cfg(test)]
mod tests {
    use crate::{DatasetError, Format, TraceJob, read_jobs_from, read_occupancy};
    use fleet::{Span, Timestamp};
    use std::path::Path;

    fn read(text: &str) -> Result<Vec<TraceJob>, DatasetError> {
        read_jobs_from(std::io::Cursor::new(text.to_owned()), Path::new("h.csv"), Format::HeliosJobs, Timestamp(0))?.collect()
    }

    const HEADER: &str = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n";

    #[test]
    fn the_job_log_is_read_by_its_published_columns() {
        let jobs = read(&format!("{HEADER}77,u1,vc8Sj,8,32,1,COMPLETED,2020-05-01 08:00:00,2020-05-01 08:01:00,2020-05-01 09:01:00,3600,60\n")).unwrap();
        let job = &jobs[0];
        assert_eq!((job.name.as_str(), job.submitted.to_string().as_str(), job.gpus), ("77", "2020-05-01T00:00:00Z", 8));
        assert_eq!((job.ran, job.waited, job.tenant.as_deref(), job.ended.as_deref()), (Some(Span(3_600)), Some(Span(60)), Some("vc8Sj"), Some("COMPLETED")));
        let message = read(&format!("{HEADER}77,u,v,8,32,1,COMPLETED,,,,3600,60\n")).unwrap_err().to_string();
        assert!(message.contains("h.csv:2") && message.contains("2020-04-01"), "{message}");
    }

    #[test]
    fn the_published_clusters_are_read_whole() {
        let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/helios/Earth_vcs/vc3sl_cluster_sequence_vc.csv.gz"));
        if !path.is_file() {
            eprintln!("skipped: {} is not here", path.display());
            return;
        }
        let seen = read_occupancy(path, Format::HeliosClusters).unwrap();
        assert_eq!((seen.in_use.values.len(), seen.in_use.start.to_string().as_str()), (44_640, "2020-04-30T16:00:00Z"));
        let sum = |s: &fleet::Series| s.values.iter().flatten().sum::<f64>();
        assert!((sum(&seen.in_use) - 1_792_147.0).abs() < 0.5 && (sum(seen.waiting.as_ref().unwrap()) - 11_856.0).abs() < 0.5);
        assert_eq!(seen.total.values[0], Some(64.0));
    }
}
