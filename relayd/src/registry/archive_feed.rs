//! The streams that are to be archived, from the connections that add them to the archiver.
//! Sessions and streams may be over before the archiver looks at them: it holds them until all they
//! have is in the archive.

use std::io;
use std::sync::{Arc, OnceLock};

use archive::name::{BootId, SessionKey};
use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::warn;
use wire::{FileName, TracePath};

use super::Registry;
use super::recording::RecordingKey;
use super::session::{ArchivedAs, Session};
use super::stream::SessionStream;
use crate::publish::published::{Published, PublishedMetadata};
use crate::store::archive_log::{
    ArchiveLog, ArchiveRecord, LoggedArchive, StreamNames, StreamNumberLog,
};
use crate::store::chunk::Chunk;
use crate::store::session_log::StreamKey;

/// The streams that the archiver has not taken yet.
#[derive(Debug)]
pub struct ArchiveFeed {
    /// This run of the relay.
    boot: BootId,
    streams: Mutex<Vec<FedStream>>,
    /// Whether replies to producers guarantee that data is in the archive.
    is_guaranteed: bool,
}

/// A stream that is to be archived.
#[derive(Debug)]
pub struct FedStream {
    /// The session of the stream.
    pub session: Arc<Session>,
    /// Number by which the archive names the stream: that of its producer if the session is
    /// resumable, else that of the relay.
    pub key: StreamKey,
    /// Directory of the trace, below that of the chunk.
    pub path: TracePath,
    /// Name of its file.
    pub name: FileName,
    /// Whether the session is one of an earlier run of this relay, which may have archived some of
    /// it.
    pub is_restored: bool,
    /// What is archived.
    pub content: FedContent,
    /// Chunks of the session that were deleted before this relay was started.
    pub deleted_chunks: Vec<Arc<Chunk>>,
}

/// The content of a stream that is to be archived.
#[derive(Debug)]
pub enum FedContent {
    /// Packets.
    Packets(Arc<Published>),
    /// The metadata of a trace.
    Metadata(Arc<PublishedMetadata>),
}

impl ArchiveFeed {
    /// No streams yet. `is_guaranteed` says whether replies to producers guarantee that data is in
    /// the archive (`--durability=archive`).
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(is_guaranteed: bool) -> io::Result<Self> {
        let mut boot = [0; 16];
        getrandom(&mut boot, GetRandomFlags::empty())?;
        Ok(Self::of_boot(BootId(boot), is_guaranteed))
    }

    /// No streams yet, of this run of the relay.
    pub(crate) fn of_boot(boot: BootId, is_guaranteed: bool) -> Self {
        Self {
            boot,
            streams: Mutex::default(),
            is_guaranteed,
        }
    }

    /// This run of the relay, by which its log and those of its sessions that cannot be resumed are
    /// named.
    #[must_use]
    pub fn boot(&self) -> BootId {
        self.boot
    }

    pub(super) fn add(&self, stream: FedStream) {
        self.streams.lock().push(stream);
    }

    /// Whether no streams were added since the last time that they were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.lock().is_empty()
    }

    /// Takes the streams that were added since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<FedStream> {
        std::mem::take(&mut self.streams.lock())
    }
}

/// The identity in the archive of a session that can be resumed by this key.
fn resumable((daemon, id): RecordingKey) -> ArchivedAs {
    let producer = daemon.0;
    ArchivedAs {
        key: SessionKey { producer, id },
        created: now(),
        is_resumable: true,
        has_expired: false,
        log: OnceLock::new(),
        has_moved_here: OnceLock::new(),
    }
}

/// The time in nanoseconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0)
}

impl Registry {
    /// Whether replies to producers guarantee that data is in the archive.
    #[must_use]
    pub fn guarantees_archive(&self) -> bool {
        let feed = self.settings.archive.as_ref();
        feed.is_some_and(|feed| feed.is_guaranteed)
    }

    /// Has a stream archived, if there is an archive. To be called before its first packet.
    /// `is_restored` says whether an earlier run of this relay may have archived some of the
    /// session.
    pub fn archive(
        &self,
        session: &Arc<Session>,
        key: StreamKey,
        path: &TracePath,
        name: &FileName,
        stream: &SessionStream,
        is_restored: bool,
    ) {
        let Some(feed) = &self.settings.archive else {
            return;
        };
        let archived = session.hold_for_archive(|| self.archived_as(feed, session));
        if let Some(log) = archived.log.get() {
            let is_numbered = match stream {
                SessionStream::Data(stream) => {
                    let log = StreamNumberLog::new(Arc::clone(log), key.number);
                    stream.lock().log_numbers(log)
                }
                SessionStream::Metadata(_) => false,
            };
            let names = StreamNames {
                path: path.clone(),
                name: name.clone(),
                is_numbered,
            };
            log.append(ArchiveRecord::Stream(key, names));
        }
        let content = match stream {
            SessionStream::Data(stream) => {
                stream.published().keep_seqs();
                FedContent::Packets(Arc::clone(stream.published()))
            }
            SessionStream::Metadata(stream) => {
                stream.published().keep_withdrawn();
                FedContent::Metadata(Arc::clone(stream.published()))
            }
        };
        feed.add(FedStream {
            session: Arc::clone(session),
            key,
            path: path.clone(),
            name: name.clone(),
            is_restored,
            content,
            deleted_chunks: Vec::new(),
        });
    }

    /// Gives a session that is being restored its identity in the archive. To be called before its
    /// first stream.
    pub fn identify_restored(&self, session: &Session, key: RecordingKey) {
        let archived = session.identify_for_archive(|| resumable(key));
        archived.has_moved_here.get_or_init(|| false);
    }

    /// The identity of a session in the archive: that of its producer if it can be resumed, else
    /// that of this relay. The latter has a log, by which the next relay archives the rest.
    fn archived_as(&self, feed: &ArchiveFeed, session: &Session) -> ArchivedAs {
        if let Some(key) = session.resume_key() {
            return resumable(key);
        }
        let created = now();
        let key = SessionKey {
            producer: feed.boot.0,
            id: session.id().0,
        };
        let identity = session.identity();
        let logged = LoggedArchive {
            key,
            created,
            host: identity.host.clone(),
            name: identity.name.clone(),
            live_timer: identity.live_timer,
            trace_format: identity.trace_format,
            directory: identity.directory.clone(),
            has_expired: false,
            streams: Default::default(),
            chunks: Default::default(),
            marks: Default::default(),
        };
        let log = ArchiveLog::create(&self.settings.output, logged, &self.settings.pool);
        let log = log.inspect_err(|error| {
            warn!(%session, %error, "log of an archived session not written: if this relay is killed, the rest of the session is not archived");
        });
        ArchivedAs {
            key,
            created,
            is_resumable: false,
            has_expired: false,
            log: log.map(OnceLock::from).unwrap_or_default(),
            has_moved_here: OnceLock::new(),
        }
    }
}
