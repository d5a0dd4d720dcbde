//! A socket on which recorders connect: each connection is a recording, with the metadata on the
//! first line and a record on each line after it. The end of the input ends the recording.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use codetracer::events::Item;
use codetracer::reader::RecordingReader;
use daemon::connection_limit::{AdmittedConnection, ConnectionLimit};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::session::{RecordingSession, RecordingSummary};
use super::sources::Sources;
use super::{RecordingSettings, RecordingSource};
use crate::limits::{
    MAX_PENDING_LINE_BYTES, MAX_RECORD_LINE_BYTES, MAX_RECORDING_CONNECTIONS, MIN_RECONNECT_DELAY,
    MIN_SILENT_RECORDER_AGE, RECORDING_READ_BYTES,
};
use crate::local_socket::{self, SocketFile};
use crate::queue::{SessionClosed, SessionEnd, SessionOpener};

/// What all connections have in common.
#[derive(Debug)]
struct Shared {
    settings: RecordingSettings,
    opener: SessionOpener,
    /// Bytes of incomplete lines of all connections.
    pending_bytes: AtomicUsize,
    stop: CancellationToken,
}

/// A socket that recorders can connect to.
#[derive(Debug)]
pub struct RecordingSocket {
    listener: UnixListener,
    _file: SocketFile,
}

impl RecordingSocket {
    /// Listens at a path. The stale socket of a process that was killed is replaced. To be called
    /// on a tokio runtime.
    ///
    /// # Errors
    /// If another process listens there, or the path is not a socket.
    pub fn listen(path: &Path) -> io::Result<Self> {
        let (listener, _file) = local_socket::listen(path)?;
        Ok(Self { listener, _file })
    }
}

/// Accepts recordings on a socket until `stop` is cancelled, which ends all of them.
pub async fn serve(
    socket: RecordingSocket,
    settings: RecordingSettings,
    opener: SessionOpener,
    stop: CancellationToken,
) {
    let shared = Arc::new(Shared {
        settings,
        opener,
        pending_bytes: AtomicUsize::new(0),
        stop: stop.clone(),
    });
    let limit = ConnectionLimit::new(MAX_RECORDING_CONNECTIONS, MIN_SILENT_RECORDER_AGE);
    let mut recordings = JoinSet::new();
    while let Some(accepted) = stop.run_until_cancelled(socket.listener.accept()).await {
        match accepted {
            Ok((connection, _)) => {
                let Some(admitted) = stop.run_until_cancelled(limit.admit()).await else {
                    break;
                };
                let shared = Arc::clone(&shared);
                recordings.spawn(async move {
                    tokio::select! {
                        biased;
                        () = admitted.evicted() => {
                            warn!("connection without a recording closed: there are too many");
                        }
                        () = shared.receive_recording(connection, &admitted) => {}
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept a recording");
                // Out of file descriptors, for example.
                limit.make_room(Instant::now());
                stop.run_until_cancelled(sleep(MIN_RECONNECT_DELAY)).await;
            }
        }
        while recordings.try_join_next().is_some() {}
    }
    // No recorder can connect any more.
    drop(socket);
    while recordings.join_next().await.is_some() {}
}

impl Shared {
    async fn receive_recording(&self, connection: UnixStream, admitted: &AdmittedConnection) {
        let mut lines = PendingLines {
            shared: &self.pending_bytes,
            counted: 0,
        };
        match self.forward(connection, admitted, &mut lines).await {
            Ok(Some(session)) => {
                let name = session.name().to_owned();
                log_summary(&name, &session.finish().await);
            }
            // Nothing was sent.
            Ok(None) => {}
            Err(SessionClosed) => warn!("recording given up: the uplink has stopped"),
        }
    }

    /// Forwards what a connection sends, until it ends. The session is opened when there is
    /// something to be sent, because the metadata names it.
    async fn forward(
        &self,
        mut connection: UnixStream,
        admitted: &AdmittedConnection,
        lines: &mut PendingLines<'_>,
    ) -> Result<Option<RecordingSession>, SessionClosed> {
        let mut reader = RecordingReader::for_lines(MAX_RECORD_LINE_BYTES);
        let mut sources = Sources::of_recording(&RecordingSource::Pipe, &self.settings);
        let mut open: Option<RecordingSession> = None;
        let mut tick = interval(self.settings.live_timer);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut buffer = Vec::new();
        loop {
            let read = tokio::select! {
                // The tick first: a client that sends all the time must not delay packets and
                // beacons.
                biased;
                _ = tick.tick() => {
                    if let Some(session) = &mut open {
                        session.flush().await?;
                    }
                    continue;
                }
                () = self.stop.cancelled() => return Ok(open),
                read = read_some(&mut connection, &mut buffer) => read,
            };
            let has_ended = match read {
                Ok(length) => length == 0,
                Err(error) => {
                    warn!(%error, "recording cut: the connection has failed");
                    true
                }
            };
            if has_ended {
                reader.end();
            } else if let Err(error) = reader.push(&buffer) {
                warn!(%error, "recording cut");
                return Ok(open);
            }
            buffer.clear();
            // An idle connection keeps no buffer.
            buffer.shrink_to(0);
            let session = match &mut open {
                Some(session) => session,
                None => {
                    let Some(first) = reader.next_item() else {
                        if has_ended {
                            return Ok(None);
                        }
                        lines.limit(&mut reader);
                        continue;
                    };
                    // A recording may be silent for as long as its program is.
                    admitted.keep();
                    let program = match &first {
                        Ok(Item::Metadata(metadata)) => Path::new(&metadata.program).file_name(),
                        _ => None,
                    };
                    let name = program.unwrap_or_default().to_string_lossy().into_owned();
                    let activity = self.opener.activity();
                    let opened =
                        RecordingSession::open(&self.opener, &self.settings, Some(&name), activity);
                    let mut opened = opened.await?;
                    opened.append_read(first).await?;
                    info!(recording = opened.name(), "forwarded");
                    open.insert(opened)
                }
            };
            session.append_all(&mut reader).await?;
            if lines.limit(&mut reader) {
                session.count_malformed("too many incomplete lines");
            }
            sources.send_new(session).await?;
            if has_ended {
                return Ok(open);
            }
        }
    }
}

async fn read_some(connection: &mut UnixStream, buffer: &mut Vec<u8>) -> io::Result<usize> {
    connection.readable().await?;
    buffer.reserve(RECORDING_READ_BYTES);
    connection.read_buf(buffer).await
}

/// The incomplete line of a connection, counted with those of all others.
struct PendingLines<'a> {
    shared: &'a AtomicUsize,
    counted: usize,
}

impl PendingLines<'_> {
    /// Drops the line that is incomplete if there are too many bytes of such lines. Returns whether
    /// it has.
    fn limit(&mut self, reader: &mut RecordingReader) -> bool {
        self.count(reader.pending_bytes());
        let is_over = self.shared.load(Ordering::Relaxed) > MAX_PENDING_LINE_BYTES
            && self.counted > RECORDING_READ_BYTES;
        if is_over {
            reader.drop_pending_element();
            self.count(reader.pending_bytes());
        }
        is_over
    }

    fn count(&mut self, bytes: usize) {
        self.shared.fetch_add(bytes, Ordering::Relaxed);
        self.shared.fetch_sub(self.counted, Ordering::Relaxed);
        self.counted = bytes;
    }
}

impl Drop for PendingLines<'_> {
    fn drop(&mut self) {
        self.count(0);
    }
}

fn log_summary(name: &str, summary: &RecordingSummary) {
    let RecordingSummary {
        records,
        malformed,
        first_malformed,
        outcome,
        ..
    } = summary;
    if let Some(first) = first_malformed {
        warn!(
            recording = name,
            malformed, first, "elements are no records, and were dropped"
        );
    }
    let acknowledged = outcome.acknowledged;
    match &outcome.end {
        SessionEnd::Complete => {
            info!(
                recording = name,
                records, "forwarded completely: the relay has all packets"
            );
        }
        SessionEnd::Failed(why) => {
            let lost = outcome.lost;
            warn!(
                recording = name,
                lost, why, "packets are lost: the session has failed"
            );
        }
        SessionEnd::Spooled(_) => {
            let kept = "forwarded in part: the rest stays in the spool, for the next start";
            info!(recording = name, acknowledged, "{kept}");
        }
        SessionEnd::Abandoned => {
            warn!(
                recording = name,
                acknowledged, "session given up: the uplink has stopped"
            );
        }
    }
}
