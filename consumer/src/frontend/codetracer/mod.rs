//! Streams CodeTracer recordings, finished or while they are made: one session with one trace of
//! one stream for each recording, in which the records are events in their original order.
//!
//! Read in this order: [`run`] (a recording from a file, a directory or a pipe), `input` (the
//! thread that reads and follows it), `session` (items -> events -> packets), `sources` (copies of
//! source files), and [`serve`] (a socket on which recorders connect).
//!
//! Until a relay has acknowledged a packet, its records are in the recording's own file, if there
//! is one, and with a spool in the spool; of a pipe or a connection without a spool they are in
//! memory only.

mod config;
mod input;
mod session;
mod socket;
mod sources;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use codetracer::reader::{ReadError, RecordingReader};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

pub use self::config::{CodetracerConfig, CodetracerOptions};
use self::input::Input;
pub use self::input::{Follow, RecordingSource};
use self::session::RecordingSession;
pub use self::session::RecordingSummary;
pub use self::socket::{RecordingSocket, serve};
use self::sources::Sources;
use crate::limits::{MAX_RECORD_BYTES, RECORDING_SCAN_INTERVAL};
use crate::queue::{SessionClosed, SessionOpener};

/// Properties of the sessions of recordings.
#[derive(Debug, Clone)]
pub struct RecordingSettings {
    /// Name of the session. If absent, that of the directory, of the file, or of the recorded
    /// program.
    pub name: Option<String>,
    /// Name of the traced host.
    pub host: String,
    /// Interval at which pending records are sent as a packet, and beacons if there are none.
    pub live_timer: Duration,
    /// Usual size of a packet, in bytes; a single long record may exceed it.
    pub packet_bytes: usize,
    /// Tracefiles of a stream on the relay: maximum size in bytes, and number; 0: no limit.
    pub tracefiles: (u64, u64),
    /// Directory below which source files may be read when a recording names them and has no copies
    /// itself.
    pub source_root: Option<PathBuf>,
    /// Largest source file that is copied, in bytes.
    pub max_source_bytes: u64,
}

/// A recording cannot be read, or not to its end. What was read before is sent.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The system refuses to open or read it.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not the one any more whose begin was read.
    #[error("cannot read {} on: it was {what} while it was read", path.display())]
    Changed {
        /// The file that has changed.
        path: PathBuf,
        /// What has happened to it.
        what: &'static str,
    },
    /// The directory has a container, and no recording in another form.
    #[error(
        "cannot read {}: it holds a CodeTracer container (*.ct), which is not supported; record to a directory with \
         trace.json, or convert the container with CodeTracer's tools",
        .0.display()
    )]
    Container(PathBuf),
    /// The content is no recording.
    #[error("cannot read {}", path.display())]
    Content {
        /// The file whose content it is.
        path: PathBuf,
        /// The reason why the content is no recording.
        source: Box<ReadError>,
    },
    /// The uplink has stopped before the session was opened.
    #[error(transparent)]
    SessionClosed(#[from] SessionClosed),
}

/// Sends one recording, and waits until the relay has acknowledged everything or the session is
/// given up. When `stop` is cancelled, the session ends with what has been read by then.
/// `read_bytes` counts the bytes of the recording that have been packetized.
///
/// If the recording cannot be opened. A fault after its begin is in the summary.
pub async fn run(
    source: RecordingSource,
    follow: Follow,
    settings: &RecordingSettings,
    opener: &SessionOpener,
    read_bytes: &AtomicU64,
    stop: &CancellationToken,
) -> Result<RecordingSummary, RecordingError> {
    source.check()?;
    let name = source.session_name();
    let mut session =
        RecordingSession::open(opener, settings, Some(&name), opener.activity()).await?;
    let mut sources = Sources::of_recording(&source, settings);
    let mut input = RecordingInput {
        // Dropping it ends the thread that reads.
        read: input::start(source.clone(), follow),
        bytes: read_bytes,
    };
    let sent = send_recording(&mut input, settings, &mut session, &mut sources, stop).await;
    drop(input);
    let (is_partial, mut failure) = sent.unwrap_or((true, None));
    if let Some(error) = session.take_failure() {
        let (path, source) = (source.path(), Box::new(error));
        failure = Some(RecordingError::Content { path, source });
    }
    // If the session has been given up, the outcome says so.
    let _ = sources.send_all(&mut session).await;
    let mut summary = session.finish().await;
    summary.is_partial = is_partial;
    summary.failure = failure;
    Ok(summary)
}

/// The bytes of a recording.
struct RecordingInput<'a> {
    read: mpsc::Receiver<Input>,
    /// The number of bytes that have been packetized.
    bytes: &'a AtomicU64,
}

/// Sends records until the end of the recording. Returns whether it was stopped before, and why it
/// cannot be read on.
async fn send_recording(
    input: &mut RecordingInput<'_>,
    settings: &RecordingSettings,
    session: &mut RecordingSession,
    sources: &mut Sources,
    stop: &CancellationToken,
) -> Result<(bool, Option<RecordingError>), SessionClosed> {
    let mut reader = RecordingReader::new(MAX_RECORD_BYTES);
    let mut tick = interval(settings.live_timer);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_scan = Instant::now();
    let mut is_stopped = false;
    loop {
        if Instant::now() >= next_scan {
            sources.send_late(session).await?;
            next_scan = Instant::now() + RECORDING_SCAN_INTERVAL;
        }
        let read = tokio::select! {
            // The tick first: a recording that grows all the time must not delay packets.
            biased;
            _ = tick.tick() => {
                session.flush().await?;
                continue;
            }
            () = stop.cancelled(), if !is_stopped => {
                // What has been read is still sent.
                is_stopped = true;
                // Reads that are queued are still received; the thread ends at its next one.
                input.read.close();
                continue;
            }
            read = input.read.recv() => read,
        };
        let (pushed, length) = match read {
            Some(Input::Bytes(bytes)) => (reader.push(&bytes), bytes.len() as u64),
            Some(Input::End) => {
                reader.end();
                session.append_all(&mut reader).await?;
                return Ok((false, None));
            }
            Some(Input::Failed(error)) => return Ok((true, Some(error))),
            None => return Ok((true, None)),
        };
        session.append_all(&mut reader).await?;
        input.bytes.fetch_add(length, Ordering::Relaxed);
        sources.send_new(session).await?;
        if let Err(error) = pushed {
            session.fail(error);
        }
        if session.has_failed() || reader.is_complete() {
            return Ok((session.has_failed(), None));
        }
    }
}
