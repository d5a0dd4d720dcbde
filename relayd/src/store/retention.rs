//! Retention (`--retain-age`, `--retain-size`): removes the sessions that nobody writes any more
//! when they are old, and the oldest of them when all sessions together are large. Also measures
//! the file system of the output, for metrics.
//!
//! A session is a directory two levels below the output, `HOST/SESSION-DATE` or
//! `SESSION/HOST-DATE`, with a trace in it. Recordings whose base paths begin with the same
//! directory count as one session. It is open while this relay has it in its registry, another
//! relay has locked its directory ([`session_directory`]), or a relay that has ended has left the
//! log of a session that can be resumed or archived, or the marker of a directory that was being
//! written.
//!
//! A thread of its own makes the file calls: a disk that hangs delays the removal and nothing else.
//! It also returns free memory to the system, which takes some milliseconds.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, SystemTime};

use daemon::memory::return_free_memory;
use rustix::fs::statvfs;
use tracing::{info, warn};

use super::archive_log::ArchiveLog;
use super::open_marker::is_marker;
use super::session_directory;
use super::session_log::SessionLog;
use crate::limits::{MAX_OUTPUT_DEPTH, MIN_RETAINED_AGE, RETENTION_INTERVAL, SPACE_INTERVAL};

/// Prefix of the name that a session's directory has while it is removed. Readers ignore hidden
/// directories. A number follows, not the name of the session, which may be as long as a name can
/// be.
const REMOVED: &str = ".relayd-removed-";

/// The directories, relative to the output, of the sessions that this relay has open.
pub type OpenDirectories = Box<dyn Fn() -> BTreeSet<PathBuf> + Send>;

/// Settings that say which sessions are removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionSettings {
    /// Time since the last write after which a session is removed. None: at no age.
    pub max_age: Option<Duration>,
    /// Maximum disk space of all sessions, in bytes. None: no maximum.
    pub max_bytes: Option<u64>,
}

/// The output as it was measured last, and what was removed of it.
#[derive(Debug, Default)]
pub struct OutputStatus {
    free: AtomicU64,
    size: AtomicU64,
    used: AtomicU64,
    removed_sessions: AtomicU64,
    removed_bytes: AtomicU64,
    errors: AtomicU64,
}

/// Numbers of the output, in bytes where they are not counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputNumbers {
    /// Space of the file system that the relay may still use.
    pub free: u64,
    /// Size of the file system.
    pub size: u64,
    /// Disk space of all sessions. 0 without retention, which measures it.
    pub used: u64,
    /// Sessions that were removed.
    pub removed_sessions: u64,
    /// Disk space of the sessions that were removed.
    pub removed_bytes: u64,
    /// Sessions that could not be examined or removed.
    pub errors: u64,
}

/// The thread that removes sessions. Dropping it lets the thread end.
#[derive(Debug)]
pub struct RetentionThread {
    status: Arc<OutputStatus>,
    _stop: Sender<()>,
}

/// A session's directory, as it was found on the disk.
#[derive(Debug, Default)]
struct FoundSession {
    bytes: u64,
    /// Time of the last write. None: the directory has no files.
    written: Option<SystemTime>,
    is_open: bool,
    /// Whether there is a trace in it.
    has_trace: bool,
}

impl RetentionSettings {
    fn is_enabled(self) -> bool {
        self != Self::default()
    }
}

impl OutputStatus {
    /// The numbers of the last measurement.
    #[must_use]
    pub fn numbers(&self) -> OutputNumbers {
        let load = |number: &AtomicU64| number.load(Ordering::Relaxed);
        OutputNumbers {
            free: load(&self.free),
            size: load(&self.size),
            used: load(&self.used),
            removed_sessions: load(&self.removed_sessions),
            removed_bytes: load(&self.removed_bytes),
            errors: load(&self.errors),
        }
    }

    fn measure_space(&self, output: &Path) {
        // An error leaves the figures of the last time: a metric is no reason to fail.
        if let Ok(space) = statvfs(output) {
            let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
            // Not `f_bfree`, a part of which only root may use.
            self.free.store(bytes(space.f_bavail), Ordering::Relaxed);
            self.size.store(bytes(space.f_blocks), Ordering::Relaxed);
        }
    }
}

impl RetentionThread {
    /// Measures the output, and starts the thread that measures it from then on and removes
    /// sessions that are not `open`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(
        output: PathBuf,
        settings: RetentionSettings,
        open: OpenDirectories,
    ) -> io::Result<Self> {
        let status = Arc::<OutputStatus>::default();
        // Here too, because zeros would look like a full disk until the thread has run.
        status.measure_space(&output);
        let (stop, stopped) = channel();
        let of_thread = Arc::clone(&status);
        Builder::new().name("retention".to_owned()).spawn(move || {
            let rounds = RETENTION_INTERVAL.as_secs() / SPACE_INTERVAL.as_secs();
            for round in 0u64.. {
                of_thread.measure_space(&output);
                if settings.is_enabled() && round % rounds.max(1) == 0 {
                    let now = SystemTime::now();
                    remove_sessions(&output, settings, now, &open, &of_thread);
                }
                return_free_memory();
                // Nothing is ever sent: the channel ends when the relay does.
                if stopped.recv_timeout(SPACE_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        })?;
        Ok(Self {
            status,
            _stop: stop,
        })
    }

    /// The last measurement of the thread, and the counters of what it has removed.
    #[must_use]
    pub fn status(&self) -> &Arc<OutputStatus> {
        &self.status
    }
}

/// Removes the closed sessions that are too old at `now`, then the oldest while all are too large.
fn remove_sessions(
    output: &Path,
    settings: RetentionSettings,
    now: SystemTime,
    open: &OpenDirectories,
    status: &OutputStatus,
) {
    let report = |path: &Path, error: io::Error| {
        status.errors.fetch_add(1, Ordering::Relaxed);
        let path = path.display();
        warn!(%path, %error, "cannot examine or remove a session; it is kept");
    };
    let mut in_use = open();
    in_use.extend(SessionLog::trace_directories(output));
    in_use.extend(ArchiveLog::directories(output));
    let mut used = 0;
    let mut closed = Vec::new();
    for path in session_directories(output, &report) {
        let is_removed = path
            .file_name()
            .is_some_and(|name| name.as_bytes().starts_with(REMOVED.as_bytes()));
        if is_removed {
            // An earlier removal was interrupted.
            if let Err(error) = fs::remove_dir_all(&path) {
                report(&path, error);
            }
            continue;
        }
        match examine(&path) {
            Ok(found) => {
                used += found.bytes;
                // A file of the future has no age, and its session stays.
                let age = found.written.and_then(|at| now.duration_since(at).ok());
                let is_open = found.is_open || is_in_use(output, &path, &in_use);
                if let Some(age) = age.filter(|age| *age >= MIN_RETAINED_AGE)
                    && found.has_trace
                    && !is_open
                {
                    closed.push((age, path, found.bytes));
                }
            }
            Err(error) => report(&path, error),
        }
    }
    closed.sort();
    while let Some((age, path, bytes)) = closed.pop() {
        let is_old = settings.max_age.is_some_and(|max| age > max);
        let is_above = settings.max_bytes.is_some_and(|max| used > max);
        if !is_old && !is_above {
            break;
        }
        match remove(&path, || is_in_use(output, &path, &open())) {
            Ok(true) => {
                used = used.saturating_sub(bytes);
                status.removed_sessions.fetch_add(1, Ordering::Relaxed);
                status.removed_bytes.fetch_add(bytes, Ordering::Relaxed);
                let (path, seconds) = (path.display(), age.as_secs());
                info!(%path, bytes, age_seconds = seconds, is_old, "session removed by retention");
            }
            // A relay has it open.
            Ok(false) => {}
            Err(error) => report(&path, error),
        }
    }
    status.used.store(used, Ordering::Relaxed);
}

/// The directories two levels below the output. Hidden ones, which are no sessions, are left out,
/// but not those whose removal was interrupted. Directories that cannot be read are reported.
fn session_directories(output: &Path, report: &impl Fn(&Path, io::Error)) -> Vec<PathBuf> {
    let visible = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        !name.starts_with(b".") || name.starts_with(REMOVED.as_bytes())
    };
    let mut level = vec![output.to_owned()];
    for _ in 0..session_directory::COMPONENTS {
        let mut below = Vec::new();
        for parent in level {
            match subdirectories(&parent) {
                Ok(directories) => below.extend(directories.into_iter().filter(visible)),
                // Another relay has removed it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => report(&parent, error),
            }
        }
        level = below;
    }
    level
}

/// The directories in a directory, without symbolic links to some.
fn subdirectories(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let mut directories = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

/// Whether one of these directories, relative to the output, is the directory of the session or
/// lies in it.
fn is_in_use(output: &Path, session: &Path, directories: &BTreeSet<PathBuf>) -> bool {
    let relative = session.strip_prefix(output).unwrap_or(session);
    directories.iter().any(|own| own.starts_with(relative))
}

fn examine(session: &Path) -> io::Result<FoundSession> {
    let mut found = FoundSession::default();
    let mut pending = vec![(session.to_owned(), 0)];
    while let Some((directory, depth)) = pending.pop() {
        if depth > MAX_OUTPUT_DEPTH {
            return Err(io::Error::other("too many levels of directories"));
        }
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            // That of a symbolic link itself.
            let about = entry.metadata()?;
            // Blocks, because files may have holes. stat(2) counts them in 512 bytes on all file
            // systems.
            found.bytes += about.blocks() * 512;
            if about.is_dir() {
                pending.push((entry.path(), depth + 1));
                continue;
            }
            let name = entry.file_name();
            found.is_open |= is_marker(name.as_bytes());
            found.has_trace |= name == "metadata";
            found.written = found.written.max(about.modified().ok());
        }
    }
    Ok(found)
}

/// Removes a session at once for readers and for other relays, then its files. Returns false, with
/// the session in its place, if another relay has it open, or this one by now.
fn remove(session: &Path, is_open: impl Fn() -> bool) -> io::Result<bool> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let directory = session_directory::open(session)?;
    // An error: the file system has no locks, and no other relay is assumed.
    if matches!(file_lock::try_lock_exclusive(&directory), Ok(false)) {
        return Ok(false);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let hidden = format!("{REMOVED}{}-{number}", std::process::id());
    let hidden = session.with_file_name(hidden);
    fs::rename(session, &hidden)?;
    // After the rename: from here on, this relay would create the directory anew.
    if is_open() {
        fs::rename(&hidden, session)?;
        return Ok(false);
    }
    fs::remove_dir_all(&hidden)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const BYTES: usize = 8192;

    /// Makes the trace of a session that was written `age` before `now`.
    fn make_session(output: &Path, name: &str, age: Duration, now: SystemTime) -> PathBuf {
        let session = output.join("host").join(name);
        let trace = session.join("ust/uid/1000/64-bit");
        fs::create_dir_all(&trace).unwrap();
        for file in ["metadata", "chan_0"] {
            let path = trace.join(file);
            fs::write(&path, vec![1; BYTES]).unwrap();
            let file = fs::File::options().write(true).open(&path).unwrap();
            file.set_modified(now - age).unwrap();
        }
        session
    }

    fn none_open() -> OpenDirectories {
        Box::new(BTreeSet::new)
    }

    fn settings(max_age: Option<Duration>, max_bytes: Option<u64>) -> RetentionSettings {
        RetentionSettings { max_age, max_bytes }
    }

    #[test]
    fn old_closed_sessions_are_removed_and_open_ones_are_kept() {
        let output = tempfile::tempdir().unwrap();
        let (output, now) = (output.path(), SystemTime::now());
        let old = make_session(output, "old", 3 * HOUR, now);
        let young = make_session(output, "young", HOUR, now);
        let open = make_session(output, "open", 9 * HOUR, now);
        fs::write(open.join("ust/.relayd-open-x"), "").unwrap();
        let other = output.join("host/not-a-trace");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("notes"), "").unwrap();
        let file = fs::File::options().write(true).open(other.join("notes"));
        file.unwrap().set_modified(now - 9 * HOUR).unwrap();
        let interrupted = make_session(output, ".relayd-removed-x", HOUR, now);
        let status = OutputStatus::default();
        remove_sessions(
            output,
            settings(Some(2 * HOUR), None),
            now,
            &none_open(),
            &status,
        );
        assert!(!old.exists() && !interrupted.exists());
        assert!(young.exists() && open.exists() && other.exists());
        let numbers = status.numbers();
        assert_eq!((numbers.removed_sessions, numbers.errors), (1, 0));
        assert!(numbers.removed_bytes >= 2 * BYTES as u64);
        assert!(!output.join("host/.relayd-removed-old").exists());
    }

    #[test]
    fn sessions_of_the_registry_are_kept_without_a_marker_also_if_they_begin_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let (output, now) = (directory.path(), SystemTime::now());
        let open = make_session(output, "open", 9 * HOUR, now);
        let begun = make_session(output, "begun", 9 * HOUR, now);
        let closed = make_session(output, "open-before", 9 * HOUR, now);
        let asked = AtomicU64::new(0);
        let registry: OpenDirectories = Box::new(move || {
            let is_first = asked.fetch_add(1, Ordering::Relaxed) == 0;
            let open = ["host/open/base/path", "host/begun"];
            let open = open.iter().take(if is_first { 1 } else { 2 });
            open.map(PathBuf::from).collect()
        });
        let status = OutputStatus::default();
        remove_sessions(
            output,
            settings(Some(HOUR), Some(0)),
            now,
            &registry,
            &status,
        );
        assert!(open.exists() && begun.exists() && !closed.exists());
        let left = fs::read_dir(output.join("host")).unwrap().count();
        assert_eq!((left, status.numbers().errors), (2, 0));
    }

    #[test]
    fn oldest_closed_sessions_are_removed_until_the_rest_fits_the_size() {
        let output = tempfile::tempdir().unwrap();
        let (output, now) = (output.path(), SystemTime::now());
        let sessions = [5, 4, 3, 2]
            .map(|hours: u32| make_session(output, &format!("{hours}-hours"), hours * HOUR, now));
        fs::write(sessions[0].join(".relayd-open-x"), "").unwrap();
        let fresh = make_session(output, "fresh", Duration::ZERO, now);
        let status = OutputStatus::default();
        let none = settings(None, Some(u64::MAX));
        remove_sessions(output, none, now, &none_open(), &status);
        let all = status.numbers().used;
        let one = examine(&sessions[1]).unwrap().bytes;
        remove_sessions(
            output,
            settings(None, Some(all - one - 1)),
            now,
            &none_open(),
            &status,
        );
        let left = sessions.each_ref().map(|session| session.exists());
        assert_eq!(left, [true, false, false, true]);
        assert_eq!(status.numbers().used, all - 2 * one);
        // Sessions that are open or that were just written stay, whatever the size.
        remove_sessions(
            output,
            settings(Some(Duration::ZERO), Some(0)),
            now,
            &none_open(),
            &status,
        );
        let left = sessions.each_ref().map(|session| session.exists());
        assert_eq!(left, [true, false, false, false]);
        assert!(fresh.exists());
        assert_eq!(status.numbers().errors, 0);
    }

    #[test]
    fn symbolic_links_do_not_lead_the_removal_out_of_the_output() {
        let directory = tempfile::tempdir().unwrap();
        let (output, now) = (directory.path().join("output"), SystemTime::now());
        let outside = make_session(&directory.path().join("outside"), "kept", 9 * HOUR, now);
        let session = make_session(&output, "old", 9 * HOUR, now);
        std::os::unix::fs::symlink(&outside, output.join("host/link")).unwrap();
        std::os::unix::fs::symlink(&outside, session.join("link")).unwrap();
        let link = session.join("link");
        let status = OutputStatus::default();
        // The link is as old as its session for the purpose of this test: only its target must
        // stay.
        let later = now + 9 * HOUR;
        remove_sessions(
            &output,
            settings(Some(HOUR), None),
            later,
            &none_open(),
            &status,
        );
        assert!(!session.exists() && fs::symlink_metadata(link).is_err());
        assert!(outside.join("ust/uid/1000/64-bit/metadata").exists());
        assert!(output.join("host/link").exists());
    }
}
