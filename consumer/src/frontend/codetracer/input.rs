//! Reads a recording on a thread of its own, and follows it while it grows: a slow disk or a quiet
//! pipe blocks nothing else. The thread waits while the reads before have not been parsed
//! (backpressure).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use regular_file::{open_at, open_directory};
use rustix::fs::OFlags;
use tokio::sync::mpsc;

use super::RecordingError;
use crate::frontend::replay::sanitize_session_name;
use crate::limits::{MAX_QUEUED_READS, RECORDING_POLL_INTERVAL, RECORDING_READ_BYTES};

/// The files of a directory that may hold the records, in the order in which they are looked for.
const RECORD_FILES: [&str; 2] = ["trace.json", "trace.bin"];

/// Where a recording comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingSource {
    /// A directory with `trace.json` or `trace.bin`, which may appear later.
    Directory(PathBuf),
    /// A file with the records.
    File(PathBuf),
    /// The standard input of this process.
    Pipe,
}

/// What to do at the end of a file that does not say that it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Wait until the file has more.
    Growth,
    /// End the recording with the file.
    No,
}

/// What the thread has read.
#[derive(Debug)]
pub(super) enum Input {
    Bytes(Vec<u8>),
    /// The end of a pipe, or of a file that is not followed.
    End,
    Failed(RecordingError),
}

impl RecordingSource {
    /// Returns the source that an argument of the command line names; `-` is standard input.
    #[must_use]
    pub fn of_argument(path: PathBuf) -> Self {
        if path.as_os_str() == "-" {
            Self::Pipe
        } else if path.is_dir() {
            Self::Directory(path)
        } else {
            Self::File(path)
        }
    }

    /// Checks that there is something to be read.
    pub(super) fn check(&self) -> Result<(), RecordingError> {
        match self {
            Self::Directory(path) => match records_file(path) {
                None if has_container(path)? => Err(RecordingError::Container(path.clone())),
                _ => Ok(()),
            },
            Self::File(path) => File::open(path).map(drop).map_err(failed(path)),
            Self::Pipe => Ok(()),
        }
    }

    /// Returns the name of its session, unless the user gives one.
    pub(super) fn session_name(&self) -> String {
        const FALLBACK: &str = "recording";
        let name = match self {
            Self::Directory(path) => path.canonicalize().ok().and_then(|path| {
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned())
            }),
            Self::File(path) => path
                .file_stem()
                .map(|name| name.to_string_lossy().into_owned()),
            Self::Pipe => None,
        };
        sanitize_session_name(&name.unwrap_or_default(), FALLBACK)
    }

    /// Returns the size of the file with the records in bytes, if it is there. One that is being
    /// recorded may grow.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let file = match self {
            Self::Directory(path) => records_file(path)?,
            Self::File(path) => path.clone(),
            Self::Pipe => return None,
        };
        fs::metadata(file).ok().map(|found| found.len())
    }

    /// Returns what messages call it.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Directory(path) | Self::File(path) => path.clone(),
            Self::Pipe => "standard input".into(),
        }
    }
}

/// Starts the thread, which ends when the receiver is closed.
pub(super) fn start(source: RecordingSource, follow: Follow) -> mpsc::Receiver<Input> {
    let (input, received) = mpsc::channel(MAX_QUEUED_READS);
    let reader = InputReader { follow, input };
    // Not one of the runtime's threads: a read of a pipe cannot be cancelled, and the runtime would
    // wait for it.
    thread::spawn(move || reader.run(&source));
    received
}

struct InputReader {
    follow: Follow,
    input: mpsc::Sender<Input>,
}

/// Nobody wants more of the recording: the receiver is closed.
struct Stopped;

impl InputReader {
    fn run(&self, source: &RecordingSource) {
        let read = match source {
            RecordingSource::Pipe => self.read_pipe(),
            RecordingSource::File(path) => File::open(path)
                .map_err(failed(path))
                .and_then(|file| self.read_file(path, file, false)),
            RecordingSource::Directory(path) => self.read_directory(path),
        };
        if let Err(error) = read {
            let _ = self.input.blocking_send(Input::Failed(error));
        }
    }

    fn read_pipe(&self) -> Result<(), RecordingError> {
        let mut pipe = io::stdin().lock();
        loop {
            match read_some(&mut pipe).map_err(failed(Path::new("standard input")))? {
                bytes if bytes.is_empty() => {
                    let _ = self.send(Input::End);
                    return Ok(());
                }
                bytes => {
                    if self.send(Input::Bytes(bytes)).is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads the records of a directory, which may be another user's: no link is followed.
    fn read_directory(&self, directory: &Path) -> Result<(), RecordingError> {
        let Some(path) = self.find_records(directory)? else {
            return Ok(());
        };
        let opened = open_directory(directory).and_then(|directory| {
            let name = path.file_name().unwrap_or_default();
            open_at(directory, name, OFlags::RDONLY)
        });
        self.read_file(&path, opened.map_err(failed(&path))?, true)
    }

    /// Waits until a directory has a file with records. `None` if the recording is to stop before.
    fn find_records(&self, directory: &Path) -> Result<Option<PathBuf>, RecordingError> {
        loop {
            if let Some(file) = records_file(directory) {
                return Ok(Some(file));
            }
            if has_container(directory)? {
                return Err(RecordingError::Container(directory.to_owned()));
            }
            if self.follow == Follow::No {
                let source = io::Error::from(io::ErrorKind::NotFound);
                let path = directory.join("trace.json");
                return Err(RecordingError::Read { path, source });
            }
            if self.wait().is_err() {
                return Ok(None);
            }
        }
    }

    /// Reads a file. Lines in a file that is named by itself end with the file: they never say that
    /// they are complete.
    fn read_file(
        &self,
        path: &Path,
        mut file: File,
        is_in_directory: bool,
    ) -> Result<(), RecordingError> {
        let identity = |found: &fs::Metadata| (found.dev(), found.ino());
        let opened = identity(&file.metadata().map_err(failed(path))?);
        let mut offset = 0;
        let mut first = None;
        loop {
            let bytes = read_some(&mut file).map_err(failed(path))?;
            if !bytes.is_empty() {
                offset += bytes.len() as u64;
                // The first byte that is no space tells lines from a list, which says where it
                // ends.
                first = first.or_else(|| bytes.iter().find(|b| !b.is_ascii_whitespace()).copied());
                if self.send(Input::Bytes(bytes)).is_err() {
                    return Ok(());
                }
                continue;
            }
            let is_lines = first.is_some_and(|first| first == b'{' || first == b'"');
            if self.follow == Follow::No || (is_lines && !is_in_directory) {
                let _ = self.send(Input::End);
                return Ok(());
            }
            // The open file stays as it was when a recorder writes a new one by this name, and
            // would be followed for ever.
            let change = match fs::metadata(path) {
                Ok(found) if identity(&found) != opened => Some("replaced"),
                Ok(found) if found.len() < offset => Some("truncated"),
                Ok(_) => None,
                Err(_) => Some("removed"),
            };
            if let Some(what) = change {
                let path = path.to_owned();
                return Err(RecordingError::Changed { path, what });
            }
            if self.wait().is_err() {
                return Ok(());
            }
        }
    }

    fn send(&self, input: Input) -> Result<(), Stopped> {
        self.input.blocking_send(input).map_err(|_| Stopped)
    }

    /// Waits before the next look at a file.
    fn wait(&self) -> Result<(), Stopped> {
        thread::sleep(RECORDING_POLL_INTERVAL);
        if self.input.is_closed() {
            return Err(Stopped);
        }
        Ok(())
    }
}

/// Returns the file of a directory that holds the records, if there is one.
fn records_file(directory: &Path) -> Option<PathBuf> {
    let files = RECORD_FILES.map(|name| directory.join(name));
    files.into_iter().find(|file| file.exists())
}

/// Whether a directory has a container.
fn has_container(directory: &Path) -> Result<bool, RecordingError> {
    let names = fs::read_dir(directory).map_err(failed(directory))?;
    let mut names = names
        .flatten()
        .map(|entry| PathBuf::from(entry.file_name()));
    Ok(names.any(|name| name.extension().is_some_and(|ending| ending == "ct")))
}

/// Reads what is there, up to a limit. Empty at the end.
fn read_some(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; RECORDING_READ_BYTES];
    loop {
        match from.read(&mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                return Ok(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the conversion of errors of the system about this path.
fn failed(path: &Path) -> impl Fn(io::Error) -> RecordingError {
    move |source| RecordingError::Read {
        path: path.to_owned(),
        source,
    }
}
