//! The plan as a file: canonical JSON that is complete at every instant.
//!
//! It is written beside its place, synced, and renamed over the file before it, so a reader sees the one or the other and never a part. A
//! full disk or a killed writer leaves the old plan. The file may be read by everybody (mode 0644).

use crate::PublishError;
use fleet::{Plan, canonical_bytes};
use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io::{self, ErrorKind, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Owner writes, everybody reads: consumers run as other users.
const MODE: u32 = 0o644;

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The file holds the plan now.
    Replaced,
    /// It held the plan already.
    Unchanged,
}

/// Makes the file hold `plan`, durably.
///
/// # Errors
/// When the plan could not be read back, the file holds a later plan, another plan of the same generation or no plan at all, another
/// process is writing, or the file system refuses. The file is then as it was.
pub fn write(path: &Path, plan: &Plan) -> Result<Written, PublishError> {
    let bytes = sound_bytes(plan)?;
    let folder = folder(path);
    let locked = lock(folder)?;
    match read(path)? {
        Some(held) if held.id == plan.id => return Ok(Written::Unchanged),
        Some(held) if held.generation >= plan.generation => {
            return Err(PublishError::Generation { id: plan.id.to_string(), offered: plan.generation, held: held.generation });
        }
        _ => {}
    }
    let beside = beside(path)?;
    let placed = place(&beside, path, &bytes);
    if placed.is_err() {
        // What is left of the attempt goes; should that fail, the next write truncates it.
        let _ = fs::remove_file(&beside);
    }
    placed?;
    locked.0.sync_all().map_err(file_error("sync the folder", folder))?;
    Ok(Written::Replaced)
}

/// The plan the file holds; nothing when there is no file or it is empty.
///
/// # Errors
/// When the file cannot be read, holds no plan, or one whose content is not what its id says.
pub fn read(path: &Path) -> Result<Option<Plan>, PublishError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_error("read", path)(error)),
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    let plan: Plan = serde_json::from_slice(&bytes).map_err(|error| PublishError::NotAPlan { path: path.to_owned(), detail: error.to_string() })?;
    let content = plan.content_id();
    if content != plan.id {
        return Err(PublishError::Fingerprint { path: path.to_owned(), id: plan.id.to_string(), content: content.to_string() });
    }
    Ok(Some(plan))
}

/// The plan as it is published, once it is certain that it reads back as itself.
pub(crate) fn sound_bytes(plan: &Plan) -> Result<Vec<u8>, PublishError> {
    let unsound = |detail: String| PublishError::Unsound { id: plan.id.to_string(), generation: plan.generation, detail };
    let content = plan.content_id();
    if content != plan.id {
        return Err(unsound(format!("its content has the fingerprint {content}")));
    }
    let mut bytes = canonical_bytes(plan);
    // JSON has no word for a number that is not finite and writes nothing in its place.
    let back: Plan = serde_json::from_slice(&bytes).map_err(|error| unsound(format!("it does not read back: {error}")))?;
    if &back != plan {
        return Err(unsound("it reads back as another plan".into()));
    }
    bytes.push(b'\n');
    Ok(bytes)
}

/// Writes and syncs the bytes beside their place, then puts them there.
fn place(beside: &Path, path: &Path, bytes: &[u8]) -> Result<(), PublishError> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(beside)?;
        file.write_all(bytes)?;
        // The umask may have taken some of the mode away.
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.sync_all()
    };
    write().map_err(file_error("write", beside))?;
    fs::rename(beside, path).map_err(file_error("replace", path))
}

/// The folder while it has one writer: us. The kernel takes the lock back when the process is gone, so a fixed name for the new file is safe.
struct Locked(File);

impl Drop for Locked {
    /// In so many words: a process that another thread is just starting shares the open folder until it runs its own program, and would
    /// keep the lock if ours were only closed.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

fn lock(folder: &Path) -> Result<Locked, PublishError> {
    let opened = File::open(folder).map_err(file_error("open the folder", folder))?;
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(PublishError::Busy { folder: folder.to_owned() }),
        Err(TryLockError::Error(error)) => {
            tracing::debug!(folder = %folder.display(), %error, "the file system has no locks: nothing keeps a second writer away");
        }
        Ok(()) => {}
    }
    Ok(Locked(opened))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// In the same folder, hence on the same file system: only there a rename replaces in one step.
fn beside(path: &Path) -> Result<PathBuf, PublishError> {
    let nameless = || file_error("write", path)(io::Error::new(ErrorKind::InvalidInput, "it is not the name of a file"));
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or_else(nameless)?);
    name.push(".new");
    Ok(path.with_file_name(name))
}

fn file_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PublishError {
    let path = path.to_owned();
    move |source| PublishError::File { operation, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::plan;
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
        sync::atomic::{AtomicBool, Ordering},
    };

    /// Set for a child process: the file it publishes to.
    const CHILD: &str = "PLAN_FILE_TEST_PATH";

    /// What a consumer in a hurry reads of a plan.
    #[derive(serde::Deserialize)]
    struct Head {
        generation: u64,
    }

    fn files_in(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn child(test: &str, before: &str, path: &Path) -> Command {
        let mut command = Command::new("sh");
        let exe = std::env::current_exe().unwrap();
        command.arg("-c").arg(format!("{before} exec \"$0\" --exact plan_file::tests::{test} --nocapture")).arg(exe).env(CHILD, path);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        command
    }

    #[test]
    fn holds_the_latest_plan_for_everybody_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        assert!(read(&path).unwrap().is_none());
        assert_eq!(write(&path, &plan(1, 0)).unwrap(), Written::Replaced);
        assert_eq!(write(&path, &plan(1, 0)).unwrap(), Written::Unchanged);
        assert_eq!(write(&path, &plan(3, 0)).unwrap(), Written::Replaced);
        for older in [plan(2, 0), plan(3, 1)] {
            assert!(matches!(write(&path, &older), Err(PublishError::Generation { held: 3, .. })));
        }
        assert_eq!(read(&path).unwrap(), Some(plan(3, 0)));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(files_in(folder.path()), ["plan.json"]);
    }

    #[test]
    fn what_is_not_a_plan_is_neither_replaced_nor_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        fs::write(&path, "my notes").unwrap();
        assert!(matches!(write(&path, &plan(1, 0)), Err(PublishError::NotAPlan { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "my notes");
        let mut edited = plan(1, 0);
        edited.advisory = !edited.advisory;
        fs::write(&path, canonical_bytes(&edited)).unwrap();
        assert!(matches!(read(&path), Err(PublishError::Fingerprint { .. })));
        fs::remove_file(&path).unwrap();
        assert!(matches!(write(&path, &edited), Err(PublishError::Unsound { .. })));
        let mut nan = plan(1, 0);
        nan.report.gap = f64::NAN;
        assert!(matches!(write(&path, &nan.sealed()), Err(PublishError::Unsound { .. })));
        assert!(files_in(folder.path()).is_empty());
        let nowhere = folder.path().join("none/plan.json");
        assert!(matches!(write(&nowhere, &plan(1, 0)), Err(PublishError::File { operation: "open the folder", .. })));
    }

    #[test]
    fn a_second_writer_is_told_and_waits_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let held = File::open(folder.path()).unwrap();
        held.lock().unwrap();
        let path = folder.path().join("plan.json");
        assert!(matches!(write(&path, &plan(1, 0)), Err(PublishError::Busy { .. })));
        held.unlock().unwrap();
        assert_eq!(write(&path, &plan(1, 0)).unwrap(), Written::Replaced);
    }

    /// A copy of the open folder stands for a process that was just started and has not yet run its own program: it shares the lock.
    #[test]
    fn the_lock_is_given_back_though_a_starting_process_shares_it() {
        let folder = tempfile::tempdir().unwrap();
        let locked = lock(folder.path()).unwrap();
        let shared = locked.0.try_clone().unwrap();
        assert!(matches!(lock(folder.path()), Err(PublishError::Busy { .. })));
        drop(locked);
        assert!(lock(folder.path()).is_ok());
        drop(shared);
    }

    /// Field case 65: a plan of 1 MB is rewritten all the time while a reader parses it; every read gives a complete plan with a valid
    /// checksum, and generations never go back.
    #[test]
    fn a_reader_never_sees_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        write(&path, &plan(1, 1_000_000)).unwrap();
        let done = AtomicBool::new(false);
        let generations = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut generation = 1;
                while !done.load(Ordering::Relaxed) {
                    generation += 1;
                    write(&path, &plan(generation, 1_000_000)).unwrap();
                }
                generation
            });
            let mut last = 0;
            for look in 0..3_000 {
                let seen = if look % 20 == 0 {
                    read(&path).unwrap().expect("a plan").generation
                } else {
                    // The whole document is parsed; its checksum, the slower part, is asked for every twentieth time.
                    serde_json::from_slice::<Head>(&fs::read(&path).unwrap()).unwrap().generation
                };
                assert!(seen >= last, "went back from {last} to {seen}");
                last = seen;
            }
            done.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert!(fs::metadata(&path).unwrap().len() > 1_000_000 && generations > 10, "{generations} generations are no test");
    }

    /// Not a test by itself: publishes ever later plans until its process is killed.
    #[test]
    fn child_that_publishes_until_killed() {
        let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
        let mut generation = read(&path).unwrap().map_or(0, |plan| plan.generation);
        loop {
            generation += 1;
            write(&path, &plan(generation, 200_000)).unwrap();
            println!("\npublished {generation}");
        }
    }

    /// Field case 65: the writer is killed twenty times; the file always holds a complete plan, not older than the last one published.
    #[test]
    fn a_killed_writer_leaves_a_whole_plan() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        let mut seed = 65_u64;
        for round in 0..20 {
            // Knuth's linear congruential generator: plans and idle turns to wait for before the kill.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut writer = child("child_that_publishes_until_killed", "", &path).spawn().unwrap();
            let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
            let mut published = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("published ")?.parse::<u64>().ok());
            let seen = published.by_ref().take(1 + usize::try_from(seed >> 61).unwrap()).last().expect("the child published something");
            for _ in 0..(seed >> 40) & 0x3_ffff {
                std::hint::spin_loop();
            }
            writer.kill().unwrap();
            writer.wait().unwrap();
            let last = published.last().unwrap_or(seen);
            let held = read(&path).unwrap().expect("a plan");
            assert!(held.generation >= last, "round {round}: {last} was published, {} is held", held.generation);
            // What the dead writer left behind is in nobody's way.
            write(&path, &plan(held.generation + 1, 0)).unwrap();
            assert_eq!(files_in(folder.path()), ["plan.json"]);
        }
    }

    /// Not a test by itself: publishes a plan larger than its process may write.
    #[test]
    fn child_without_room() {
        let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) else { return };
        match write(&path, &plan(2, 1_000_000)) {
            Ok(_) => println!("\nfound room"),
            Err(error) => println!("\nno room: {error}"),
        }
    }

    /// Field case 65: no room half-way through the file (a limit on file size stands for the full disk): the old plan stays, the error is
    /// reported, nothing is left over.
    #[test]
    fn without_room_the_old_plan_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        write(&path, &plan(1, 0)).unwrap();
        // The signal of the limit is ignored, so that the write itself fails as it does on a full disk.
        let output = child("child_without_room", "trap '' XFSZ; ulimit -f 600;", &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("no room: cannot write") && said.contains("the plan published before stays"), "{said}");
        assert_eq!(read(&path).unwrap(), Some(plan(1, 0)));
        assert_eq!(files_in(folder.path()), ["plan.json"]);
    }
}
