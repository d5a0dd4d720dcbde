//! The log: on standard error, in a file that logrotate may move away, or at the syslog daemon.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use thiserror::Error;
use tracing::level_filters::LevelFilter;
use tracing::{error, warn};
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

pub use crate::line_format::LogFormat;
use crate::line_format::{FieldFormat, LineFormat};
use crate::output::has_colors;
use crate::syslog::Syslog;

/// Where the log goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTarget<'a> {
    /// Standard error of the process.
    Stderr,
    /// A file, which is created or appended to.
    File(&'a Path),
    /// Standard error until that is closed, and the syslog daemon if there is one, under this
    /// program name. journald is such a daemon.
    Syslog(&'static str),
}

/// The log cannot be started.
#[derive(Debug, Error)]
pub enum LogError {
    /// The value of `RUST_LOG` is malformed.
    #[error("RUST_LOG={directives}")]
    Directives {
        /// The value of `RUST_LOG`.
        directives: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The file of the log cannot be created or opened.
    #[error("cannot open log file {}", .path.display())]
    File {
        /// The file as the user named it.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

/// The log of this process.
#[derive(Debug, Clone)]
pub struct Log {
    /// None: the log goes elsewhere.
    file: Option<Arc<LogFile>>,
}

/// A log file that can be opened again by its name.
#[derive(Debug)]
struct LogFile {
    /// Absolute: daemons change their working directory.
    path: PathBuf,
    file: Mutex<Arc<File>>,
}

/// Returns the lowest level that is logged when `-v` was given `verbose` times: warnings only if
/// not at all.
#[must_use]
pub fn level(verbose: u8) -> LevelFilter {
    match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    }
}

/// Starts the log of this process: what `RUST_LOG` selects if it is set and not empty, otherwise
/// `level` and above. To be called once.
///
/// # Errors
/// If `RUST_LOG` is malformed, or the log file cannot be opened.
pub fn start(
    level: LevelFilter,
    format: LogFormat,
    target: LogTarget<'_>,
) -> Result<Log, LogError> {
    let targets = match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => directives
            .parse()
            .map_err(|source| LogError::Directives { directives, source })?,
        _ => Targets::new().with_default(level),
    };
    let file = match target {
        LogTarget::File(path) => Some(Arc::new(LogFile::open(path)?)),
        LogTarget::Stderr | LogTarget::Syslog(_) => None,
    };
    let layers = match (&file, target) {
        (Some(file), _) => vec![file_layer(Arc::clone(file), format)],
        (None, LogTarget::Syslog(program)) => std::iter::once(stderr_layer(format))
            .chain(Syslog::open(program).map(|syslog| syslog_layer(syslog, format)))
            .collect(),
        (None, _) => vec![stderr_layer(format)],
    };
    tracing_subscriber::registry()
        .with(layers)
        .with(targets)
        .init();
    if target != LogTarget::Stderr {
        log_panics();
    }
    Ok(Log { file })
}

type BoxedLayer = Box<dyn Layer<Registry> + Send + Sync>;

fn stderr_layer(format: LogFormat) -> BoxedLayer {
    let is_colored = format == LogFormat::Text && has_colors(&io::stderr());
    layer(BoxMakeWriter::new(io::stderr), LineFormat::new(format))
        .with_ansi(is_colored)
        .boxed()
}

fn file_layer(file: Arc<LogFile>, format: LogFormat) -> BoxedLayer {
    let writer = BoxMakeWriter::new(move || file.current());
    layer(writer, LineFormat::new(format)).boxed()
}

fn syslog_layer(syslog: Syslog, format: LogFormat) -> BoxedLayer {
    // The syslog daemon notes the time.
    layer(BoxMakeWriter::new(syslog), LineFormat::without_time(format)).boxed()
}

/// Returns the layer of every target and form: one type, so that it is in the program once.
fn layer(
    writer: BoxMakeWriter,
    line: LineFormat,
) -> fmt::Layer<Registry, FieldFormat, LineFormat, BoxMakeWriter> {
    fmt::layer()
        .with_writer(writer)
        .fmt_fields(line.fields())
        .event_format(line)
        // Its own errors would be printed on standard error, which panics if that is a terminal
        // that is gone.
        .log_internal_errors(false)
        .with_ansi(false)
}

/// Sets that panics are logged as well: standard error of a daemon leads to `/dev/null`.
fn log_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        error!("{panic}");
        print(panic);
    }));
}

impl Log {
    /// Opens the log file again by its name, which logrotate has given to another file or to none.
    /// If that fails, the log stays in the file that is open, which is logged. Without a log file
    /// nothing happens.
    pub fn reopen(&self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.reopen() {
            let path = file.path.display();
            warn!(%path, %error, "log file not opened again; the log stays in the file that is open");
        }
    }
}

impl LogFile {
    fn open(path: &Path) -> Result<Self, LogError> {
        let absolute = std::path::absolute(path);
        let opened = absolute.and_then(|path| Ok((open_log_file(&path)?, path)));
        let (file, path) = opened.map_err(|source| LogError::File {
            path: path.to_owned(),
            source,
        })?;
        let file = Mutex::new(Arc::new(file));
        Ok(Self { path, file })
    }

    fn reopen(&self) -> io::Result<()> {
        // Opened before the lock is taken: the file system may be slow, and every line takes the
        // lock.
        let opened = Arc::new(open_log_file(&self.path)?);
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(())
    }

    fn current(&self) -> Arc<File> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // The caller writes without the lock, so that no thread waits for the disk of another one's
        // line.
        Arc::clone(&file)
    }
}

/// Opens a log file for appending. Group members may read it and others not: a log names hosts and
/// sessions.
fn open_log_file(path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a FIFO would wait for its reader.
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::CLOEXEC
        | OFlags::NOCTTY
        | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(0o640))?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn log_file_is_appended_to_and_opened_again_after_it_was_moved_away() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
        fs::write(&path, "before\n").unwrap();
        let log = Log {
            file: Some(Arc::new(LogFile::open(&path).unwrap())),
        };
        let write = |text: &str| {
            let file = log.file.as_ref().unwrap().current();
            (&*file).write_all(text.as_bytes()).unwrap();
        };
        write("one\n");
        fs::rename(&path, &moved).unwrap();
        write("two\n");
        log.reopen();
        write("three\n");
        assert_eq!(fs::read_to_string(&moved).unwrap(), "before\none\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn log_stays_in_its_file_if_the_name_cannot_be_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
        let file = LogFile::open(&path).unwrap();
        fs::rename(&path, &moved).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(file.reopen().is_err());
        (&*file.current()).write_all(b"kept\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "kept\n");
        let missing = LogFile::open(Path::new("/no/such/directory/log")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "cannot open log file /no/such/directory/log"
        );
    }
}
