//! The long part of a cycle, in a process of its own that may hang or die and is killed at its deadline.
//!
//! The order goes in on standard input as JSON, the output comes back on standard output as JSON. The worker has no other connection to the
//! world, so killing it loses nothing but its work.

use cycle::{WorkOrder, WorkOutput};
use std::{ffi::OsString, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};

/// Output of one worker that is read at most. A fleet of 10,000 GPUs writes some 20 MB.
const OUTPUT_BYTES_MAX: u64 = 256 << 20;
/// Standard error of a worker that is kept for the message.
const STDERR_BYTES_MAX: u64 = 16 << 10;

/// How work is run.
#[derive(Debug, Clone)]
pub enum Worker {
    /// In a child process: this program with these arguments, killed after this time.
    Process {
        /// The program and its arguments.
        command: Vec<OsString>,
        /// Time after which it is killed.
        deadline: Duration,
    },
    /// In this process, on a thread that may block (tests and one-off planning).
    InPlace,
}

/// Work that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error("the worker could not be started: {0}")]
    Start(std::io::Error),
    /// It was killed at its deadline.
    #[error("the worker was killed after {0:?}")]
    Deadline(Duration),
    /// It ended without a result.
    #[error("the worker ended with {status}: {stderr}")]
    Died {
        /// How it ended.
        status: String,
        /// What it said.
        stderr: String,
    },
    /// Its answer could not be read.
    #[error("the worker's answer is not usable: {0}")]
    Answer(String),
}

impl Worker {
    /// Runs one order.
    ///
    /// # Errors
    /// When the worker cannot be started, dies, hangs past its deadline or answers nonsense.
    pub async fn run(&self, order: WorkOrder) -> Result<WorkOutput, WorkerError> {
        match self {
            Self::InPlace => tokio::task::spawn_blocking(move || cycle::work(&order))
                .await
                .map_err(|e| WorkerError::Died { status: "a panic".into(), stderr: e.to_string() }),
            Self::Process { command, deadline } => {
                tokio::time::timeout(*deadline, run_process(command, &order)).await.unwrap_or(Err(WorkerError::Deadline(*deadline)))
            }
        }
    }
}

async fn run_process(command: &[OsString], order: &WorkOrder) -> Result<WorkOutput, WorkerError> {
    let (program, arguments) = command.split_first().ok_or_else(|| WorkerError::Answer("no program given".into()))?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Dropping the future at the deadline kills the process.
        .kill_on_drop(true)
        .spawn()
        .map_err(WorkerError::Start)?;
    let bytes = serde_json::to_vec(order).map_err(|e| WorkerError::Answer(e.to_string()))?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async move {
        if let Some(mut pipe) = stdin {
            // A worker that dies early closes the pipe; its status tells why.
            let _ = pipe.write_all(&bytes).await;
        }
    };
    let (mut answer, mut words) = (Vec::new(), Vec::new());
    let read_answer = async {
        if let Some(pipe) = stdout {
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut answer).await;
        }
    };
    let read_words = async {
        if let Some(pipe) = stderr {
            let _ = pipe.take(STDERR_BYTES_MAX).read_to_end(&mut words).await;
        }
    };
    tokio::join!(feed, read_answer, read_words);
    let status = child.wait().await.map_err(WorkerError::Start)?;
    if !status.success() {
        return Err(WorkerError::Died { status: status.to_string(), stderr: String::from_utf8_lossy(&words).trim().to_owned() });
    }
    serde_json::from_slice(&answer).map_err(|e| WorkerError::Answer(e.to_string()))
}

/// The other side: reads an order, does the work, writes the output. The entry of the hidden command `turnaround worker`.
///
/// # Errors
/// When the order cannot be read or the output cannot be written.
pub fn worker_main(input: impl std::io::Read, mut output: impl std::io::Write) -> std::io::Result<()> {
    let order: WorkOrder = serde_json::from_reader(std::io::BufReader::new(input))?;
    let bytes = serde_json::to_vec(&cycle::work(&order))?;
    output.write_all(&bytes)?;
    output.flush()
}
