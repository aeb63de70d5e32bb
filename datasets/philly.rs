//! Philly, a training cluster of Microsoft (CC-BY-4.0; USENIX ATC 2019): 72,890 jobs `timestamp,duration,num_gpus,gpu_time,cluster`, and the
//! cluster's nodes in use minute by minute, `time,active,total`. Wall clock as published, most likely Pacific time; it is kept as if UTC.

use crate::Clock;
use crate::job_trace::{TraceJob, span};
use crate::rows::{Line, Parse};

/// Columns of the jobs.
pub(crate) const COLUMNS: [&str; 5] = ["timestamp", "duration", "num_gpus", "gpu_time", "cluster"];
/// Columns of the nodes in use.
pub(crate) const NODE_COLUMNS: [&str; 3] = ["time", "active", "total"];
/// More than any cluster has: a larger number is damage.
pub(crate) const GPUS_MAX: u32 = 1_000_000;

/// Reads the lines of the jobs, in the order of the file, which is not that of time.
pub(crate) fn parse() -> Parse<TraceJob> {
    let mut columns: Option<[usize; 5]> = None;
    let mut number = 0_u64;
    Box::new(move |line: Line<'_>| {
        let row = line.row()?;
        let Some([time, duration, gpus, gpu_time, cluster]) = columns else {
            columns = Some(row.columns(COLUMNS)?);
            return Ok(None);
        };
        number += 1;
        let (submitted, _) = Clock::Rfc3339.read(row.text(time)).ok_or_else(|| row.refuse(row.text(time), "a time like 2017-10-09 07:01:55"))?;
        let ran = row.amount(duration, "seconds the job ran")?;
        let gpus = row.parse(gpus, |n: &u32| *n <= GPUS_MAX, "a number of GPUs")?;
        row.amount(gpu_time, "GPU-seconds")?;
        let tenant = Some(row.text(cluster)).filter(|c| !c.is_empty()).map(str::to_owned);
        Ok(Some(TraceJob { ran: Some(span(ran)), tenant, ..TraceJob::new(format!("philly-{number}"), submitted, gpus) }))
    })
}

#[cfg(test)]
mod tests {
    use crate::{DatasetError, Format, TraceJob, read_jobs, read_jobs_from, read_occupancy};
    use fleet::Timestamp;
    use std::path::Path;

    #[test]
    fn damage_is_refused_with_its_place() {
        let good = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n";
        for bad in ["2017-10-09,66.0", "x,66.0,1,66.0,c", "2017-10-09 07:01:55,-1,1,66.0,c", "2017-10-09 07:01:55,1,-1,66.0,c", "2017-10-09 07:01:55,1,1,inf,c"]
        {
            let text = format!("{good}{bad}\n");
            let jobs: Result<Vec<TraceJob>, DatasetError> =
                read_jobs_from(std::io::Cursor::new(text), Path::new("p.csv"), Format::Philly, Timestamp(0)).unwrap().collect();
            let message = jobs.unwrap_err().to_string();
            assert!(message.contains("p.csv:3"), "{bad}: {message}");
        }
    }

    /// Rows, GPUs and hours as counted with other tools; the file ends in a blank line.
    #[test]
    fn the_published_jobs_are_read_whole() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/philly"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        let jobs: Vec<TraceJob> = read_jobs(&data.join("philly.csv.gz"), Format::Philly, Timestamp(0)).unwrap().collect::<Result<_, _>>().unwrap();
        let ran: i64 = jobs.iter().filter_map(|j| j.ran).map(|s| s.0).sum();
        assert_eq!((jobs.len(), jobs.iter().map(|j| j.gpus).sum::<u32>(), ran), (72_890, 95_363, 958_113_793));
        let (first, last) = (jobs.iter().map(|j| j.submitted).min().unwrap(), jobs.iter().map(|j| j.submitted).max().unwrap());
        assert_eq!((first.to_string().as_str(), last.to_string().as_str()), ("2017-09-04T10:30:41Z", "2017-12-22T08:02:11Z"));

        let nodes = read_occupancy(&data.join("philly_node_sequence.csv.gz"), Format::PhillyNodes).unwrap();
        assert_eq!(nodes.in_use.known(), 105_644);
        assert!((nodes.in_use.values.iter().flatten().sum::<f64>() - 33_065_327.0).abs() < 0.5);
        assert_eq!((nodes.in_use.start.to_string().as_str(), nodes.total.values[0]), ("2017-10-03T00:00:00Z", Some(420.0)));
    }
}
