//! Client traces of `ServeGen` (Alibaba Cloud Model Studio; Apache-2.0; "`ServeGen`: Workload Characterization and Generation of LLM Serving
//! in Production", arXiv 2505.09999), in their original format.
//!
//! A folder is one model; a file `chunk-N-trace.csv`, plain or gzipped, is one client. No header. Columns: window start (s, every 600), mean
//! request rate in the window (requests/s), coefficient of variation of the times between arrivals, name of the distribution fitted to
//! them, its two parameters. There is no calendar date: the caller says when the trace begins.

use crate::DatasetError;
use crate::demand::{Count, Demand, DemandOptions, Record};
use crate::rows::{for_each_row, numbered_files};
use fleet::{Series, Span, Timestamp};
use std::collections::BTreeMap;
use std::path::Path;

/// Length of a window of the traces.
const WINDOW: Span = Span(600);
/// Windows of a day.
const DAY_WINDOWS: usize = 144;
/// Length of a window of the token means.
const TOKEN_WINDOW: Span = Span::hours(6);
/// A window with less than this share of the median of the same windows of all days is a lost record: whole fleets do not fall silent for ten
/// minutes and come back, collectors do.
const LOST_SHARE: f64 = 0.02;

/// All clients of one model, summed.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientTraces {
    /// Number of client files.
    pub clients: usize,
    /// Requests/s in windows of ten minutes; missing where the record is lost.
    pub rate: Series,
    /// Windows whose record is lost.
    pub lost_windows: usize,
    /// Mean prompt tokens per request in windows of six hours, over the clients that are known; missing where none is.
    pub input_tokens: Option<Series>,
    /// Mean generated tokens per request, likewise.
    pub output_tokens: Option<Series>,
}

/// Reads and sums the client traces of `folder`, and their token means from `token_means` where given (a derived table with the columns
/// `category`, `model`, `client`, `window_start_s`, `mean_input_tokens`, `mean_output_tokens` among others). The folder's name is the model's.
///
/// # Errors
/// When a file cannot be read, a row is not of the format, no client is found or two clients differ in length.
pub fn read_servegen(folder: &Path, token_means: Option<&Path>, start: Timestamp) -> Result<ClientTraces, DatasetError> {
    let files = numbered_files(folder, client_number)?;
    let mut clients: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut windows = None;
    for (client, path) in &files {
        let rates = read_client(path)?;
        let expected = *windows.get_or_insert(rates.len());
        if rates.len() != expected || rates.is_empty() {
            return Err(DatasetError::Length { path: path.clone(), found: rates.len(), expected });
        }
        clients.insert(*client, rates);
    }
    let Some(windows) = windows else {
        return Err(DatasetError::Empty { path: folder.to_owned(), what: "client traces (chunk-N-trace.csv or .csv.gz)".into() });
    };
    let total: Vec<f64> = (0..windows).map(|i| clients.values().map(|rates| rates[i]).sum()).collect();
    let lost = lost_windows(&total);
    let values = total.iter().zip(&lost).map(|(rate, lost)| (!lost).then_some(*rate)).collect();
    let tokens = token_means.map(|path| read_tokens(path, folder, &clients, start)).transpose()?;
    let (input_tokens, output_tokens) = tokens.map_or((None, None), |(input, output)| (Some(input), Some(output)));
    let rate = Series { start, step: WINDOW, values };
    Ok(ClientTraces { clients: clients.len(), rate, lost_windows: lost.into_iter().filter(|l| *l).count(), input_tokens, output_tokens })
}

/// Whether a folder holds client traces.
pub(crate) fn is_folder(folder: &Path) -> Result<bool, DatasetError> {
    numbered_files(folder, client_number).map(|files| !files.is_empty())
}

/// All clients of a folder as counts of requests; a lost window is a gap.
pub(crate) fn counts(folder: &Path, options: &DemandOptions) -> Result<Demand, DatasetError> {
    let traces = read_servegen(folder, options.token_means.as_deref(), options.origin)?;
    let rates: Vec<(Timestamp, f64)> = traces.rate.values.iter().enumerate().filter_map(|(i, rate)| Some((traces.rate.time(i), (*rate)?))).collect();
    let count = move |(start, rate): (Timestamp, f64)| {
        let tokens = |series: &Option<Series>| series.as_ref().and_then(|s| s.at(start));
        let (input_tokens, output_tokens) = (tokens(&traces.input_tokens), tokens(&traces.output_tokens));
        Ok(Record::Count(Count { start, length: WINDOW, requests: rate * WINDOW.as_secs_f64(), input_tokens, output_tokens, model: None }))
    };
    Ok(Box::new(rates.into_iter().map(count)))
}

fn client_number(name: &str) -> Option<u32> {
    let stem = name.strip_suffix(".gz").unwrap_or(name);
    stem.strip_prefix("chunk-")?.strip_suffix("-trace.csv")?.parse().ok()
}

fn read_client(path: &Path) -> Result<Vec<f64>, DatasetError> {
    let mut rates: Vec<f64> = Vec::new();
    for_each_row(path, |row| {
        row.expect_fields(6)?;
        let due = i64::try_from(rates.len()).unwrap_or(i64::MAX / WINDOW.0) * WINDOW.0;
        row.parse(0, |start: &i64| *start == due, &format!("the window that begins at {due} s"))?;
        rates.push(row.parse(1, |rate: &f64| rate.is_finite() && *rate >= 0.0, "a rate in requests/s")?);
        for (column, what) in [(2, "a coefficient of variation"), (4, "a shape"), (5, "a scale")] {
            row.parse(column, |x: &f64| x.is_finite() && *x >= 0.0, what)?;
        }
        Ok(())
    })?;
    Ok(rates)
}

/// Which windows are lost.
fn lost_windows(rates: &[f64]) -> Vec<bool> {
    let of_day = |window: usize| median(rates.iter().skip(window).step_by(DAY_WINDOWS).copied().collect());
    let medians: Vec<f64> = (0..DAY_WINDOWS).map(of_day).collect();
    rates.iter().enumerate().map(|(i, rate)| *rate < LOST_SHARE * medians[i % DAY_WINDOWS]).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

/// Columns of the token table that are read.
const TOKEN_COLUMNS: [&str; 5] = ["model", "client", "window_start_s", "mean_input_tokens", "mean_output_tokens"];

fn read_tokens(path: &Path, folder: &Path, clients: &BTreeMap<u32, Vec<f64>>, start: Timestamp) -> Result<(Series, Series), DatasetError> {
    let model = folder.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let windows = clients.values().map(Vec::len).max().unwrap_or(0).div_ceil(window_ratio());
    let mut columns: Option<[usize; 5]> = None;
    // (weighted sum, weight) of input and output by window.
    let mut sums = vec![[(0.0, 0.0); 2]; windows];
    for_each_row(path, |row| {
        let Some(columns) = &columns else {
            columns = Some(row.columns(TOKEN_COLUMNS)?);
            return Ok(());
        };
        if row.text(columns[0]) != model {
            return Ok(());
        }
        let client: u32 = row.parse(columns[1], |_| true, "a client's number")?;
        let begin: i64 = row.parse(columns[2], |s: &i64| *s >= 0 && s % TOKEN_WINDOW.0 == 0, "the start of a window of six hours")?;
        let index = usize::try_from(begin / TOKEN_WINDOW.0).unwrap_or(usize::MAX);
        let (Some(rates), Some(sum)) = (clients.get(&client), sums.get_mut(index)) else { return Ok(()) };
        let weight: f64 = rates.iter().skip(index * window_ratio()).take(window_ratio()).sum();
        for (part, column) in sum.iter_mut().zip(&columns[3..]) {
            if let Some(mean) = row.amount_if_any(*column, "a mean number of tokens")? {
                *part = (part.0 + mean * weight, part.1 + weight);
            }
        }
        Ok(())
    })?;
    let series = |part: usize| Series { start, step: TOKEN_WINDOW, values: sums.iter().map(|s| (s[part].1 > 0.0).then(|| s[part].0 / s[part].1)).collect() };
    Ok((series(0), series(1)))
}

/// Windows of a trace in a window of the token table.
fn window_ratio() -> usize {
    usize::try_from(TOKEN_WINDOW.0 / WINDOW.0).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn folder(rates: impl Fn(usize, usize) -> f64, clients: usize, windows: usize) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for client in 0..clients {
            let mut text = String::new();
            for i in 0..windows {
                writeln!(text, "{},{},1.2,Gamma,0.7,1.4", i * 600, rates(client, i)).unwrap();
            }
            std::fs::write(folder.path().join(format!("chunk-{client}-trace.csv")), text).unwrap();
        }
        folder
    }

    #[test]
    fn clients_are_summed_and_a_lost_window_is_missing_not_zero() {
        // An hour, and ten minutes by themselves.
        let (lost, alone) = (144 + 30, 2 * 144 + 7);
        let folder = folder(|client, i| if (lost..lost + 6).contains(&i) || i == alone { 0.0 } else { [2.0, 0.5][client] }, 2, 3 * 144);
        let traces = read_servegen(folder.path(), None, Timestamp(0)).unwrap();
        assert_eq!((traces.clients, traces.lost_windows, traces.rate.known()), (2, 7, 3 * 144 - 7));
        assert_eq!(traces.rate.values[lost - 1..=lost], [Some(2.5), None]);
        assert_eq!(traces.rate.values[alone - 1..=alone + 1], [Some(2.5), None, Some(2.5)]);
        let counts: Vec<_> = counts(folder.path(), &DemandOptions::default()).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!((counts.len(), counts[0].at(), counts[lost].at().0), (3 * 144 - 7, Timestamp(0), 600 * (144 + 36)));
        assert_eq!(traces.input_tokens, None);
    }

    #[test]
    fn tokens_are_weighted_by_requests() {
        let folder = folder(|client, _| [3.0, 1.0][client], 2, 144);
        let name = folder.path().file_name().unwrap().to_str().unwrap().to_owned();
        let table = folder.path().join("token_means.csv");
        let text = format!(
            "category,model,client,window_start_s,mean_input_tokens,mean_output_tokens\nlanguage,{name},0,0,100,10\nlanguage,{name},1,0,500,\nother,m,0,0,9,9\n"
        );
        std::fs::write(&table, text).unwrap();
        let traces = read_servegen(folder.path(), Some(&table), Timestamp(0)).unwrap();
        assert_eq!(traces.input_tokens.unwrap().values, [Some(200.0), None, None, None]);
        assert_eq!(traces.output_tokens.unwrap().values[0], Some(10.0));
    }

    #[test]
    fn a_damaged_row_is_refused_with_its_place() {
        for (bad, value) in
            [("600,x,0,,0,0", "\"x\""), ("1200,1,0,,0,0", "\"1200\""), ("600,1,0", "600,1,0"), ("600,NaN,0,,0,0", "NaN"), ("600,-1,0,,0,0", "-1")]
        {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("chunk-3-trace.csv"), format!("0,1,0,,0,0\n{bad}\n")).unwrap();
            let message = read_servegen(folder.path(), None, Timestamp(0)).unwrap_err().to_string();
            assert!(message.contains("chunk-3-trace.csv:2") && message.contains(value), "{bad}: {message}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(matches!(read_servegen(empty.path(), None, Timestamp(0)), Err(DatasetError::Empty { .. })));
    }

    #[test]
    fn a_file_cut_short_is_refused() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gz.write_all("0,1,0,,0,0\n600,1,0,,0,0\n".as_bytes()).unwrap();
        let bytes = gz.finish().unwrap();
        let path = folder.path().join("chunk-0-trace.csv.gz");
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read_servegen(folder.path(), None, Timestamp(0)).unwrap().rate.values.len(), 2);
        std::fs::write(&path, &bytes[..bytes.len() - 12]).unwrap();
        assert!(matches!(read_servegen(folder.path(), None, Timestamp(0)), Err(DatasetError::Read { .. })));
    }

    #[test]
    fn the_published_traces_are_read_whole() {
        let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data/servegen"));
        if !data.is_dir() {
            eprintln!("skipped: {} is not here", data.display());
            return;
        }
        let tokens = data.join("token_means.csv.gz");
        // Clients, requests and lost windows as counted with other tools.
        for (model, clients, requests, lost) in [("m-large", 160, 218_603_316.0, 0), ("m-mid", 103, 1_818_074_404.0, 102), ("m-small", 36, 415_871_062.0, 37)] {
            let traces = read_servegen(&data.join("language").join(model), Some(&tokens), Timestamp(0)).unwrap();
            let total: f64 = traces.rate.values.iter().flatten().sum::<f64>() * 600.0;
            assert_eq!((traces.clients, traces.rate.values.len(), traces.lost_windows), (clients, 2_016, lost), "{model}: {total:.0} requests");
            assert!((total - requests).abs() < 1e-3 * requests, "{total}");
            assert!(traces.input_tokens.unwrap().values.iter().flatten().all(|t| (50.0..20_000.0).contains(t)));
        }
    }
}
