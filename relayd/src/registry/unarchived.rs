//! Sessions that a relay before this one has not archived completely, and that cannot be resumed
//! any more: the archiver gets their streams as they are on the disk, and ends them.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use relay_proto::session::DaemonId;
use thiserror::Error;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::Registry;
use super::archive_feed::{ArchiveFeed, FedContent, FedStream, now};
use super::session::{ArchivedAs, Session, SessionIdentity};
use crate::publish::published::{Published, PublishedMetadata};
use crate::store::StoreError;
use crate::store::archive_log::{ArchiveLog, FoundContent, LoggedArchive};
use crate::store::session_directory::SessionDirectory;
use crate::store::session_log::{LoggedSession, SessionLog};

/// The reason why a session cannot be archived further.
#[derive(Debug, Error)]
enum UnarchivedError {
    #[error("its directory {} does not exist", .0.display())]
    NoDirectory(PathBuf),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a file of it cannot be read: {0}")]
    Read(#[from] std::io::Error),
}

impl Registry {
    /// Has the sessions archived whose logs are below the output, if there is an archive. To be
    /// called after sessions were restored, before the relay accepts connections.
    pub fn archive_unfinished(&self) {
        let Some(feed) = &self.settings.archive else {
            return;
        };
        for log in ArchiveLog::open_all(&self.settings.output, &self.settings.pool) {
            let key = log.with_session(|session| session.key);
            if self.has_resumable((DaemonId(key.producer), key.id)) {
                // The relay died before it had removed the log of the resumable session.
                log.remove();
                continue;
            }
            if let Err(error) = self.archive_rest(feed, &log) {
                let path = log.path().display();
                error!(%path, %error, "session not archived further; its traces stay as they are");
                log.set_aside();
            }
        }
    }

    /// Has the next relay archive the rest of a session that cannot be resumed any more, if this
    /// one does not come to it. To be called before the log of the resumable session is removed.
    pub(super) fn log_ended_for_archive(&self, session: &Session, log: &SessionLog) {
        let Some(archived) = session.archived_as().filter(|_| session.awaits_archive()) else {
            return;
        };
        let log = log.with_session(|logged| self.create_log(logged, archived.created));
        if let Some(log) = log {
            let _ = archived.log.set(log);
        }
    }

    /// Has the rest of a session archived that a relay before this one has served, and that cannot
    /// be resumed any more.
    pub fn log_unresumable(&self, log: &SessionLog) {
        if self.settings.archive.is_some() {
            log.with_session(|logged| self.create_log(logged, now()));
        }
    }

    fn create_log(&self, logged: &LoggedSession, created: u64) -> Option<Arc<ArchiveLog>> {
        let settings = &self.settings;
        let session = LoggedArchive::of_resumable(logged, created, &settings.time_zone)?;
        let log = ArchiveLog::create(&settings.output, session, &settings.pool);
        let log = log.inspect_err(|error| {
            warn!(%error, "log of an archived session not written: if this relay is killed, the rest of the session is not archived");
        });
        log.ok()
    }

    fn archive_rest(
        &self,
        feed: &ArchiveFeed,
        log: &Arc<ArchiveLog>,
    ) -> Result<(), UnarchivedError> {
        let (output, pool) = (&self.settings.output, &self.settings.pool);
        let logged = log.with_session(LoggedArchive::clone);
        let mut locked = None;
        if let Some(directory) = &logged.directory {
            let absolute = output.join(directory);
            if !absolute.is_dir() {
                return Err(UnarchivedError::NoDirectory(absolute));
            }
            locked = Some(SessionDirectory::create(output, directory, pool)?);
        }
        let found = logged.find_files(output, pool)?;
        let identity = SessionIdentity {
            id: self.next_session(),
            name: logged.name,
            host: logged.host,
            live_timer: logged.live_timer,
            trace_format: logged.trace_format,
            directory: logged.directory,
            producer: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            recording: None,
        };
        let recording = self.recordings.of(None);
        let session = self.new_session(identity, locked, recording, CancellationToken::new());
        // Its producer is gone, and no stream will come.
        session.end_control(true);
        session.hold_for_archive(|| ArchivedAs {
            key: logged.key,
            created: logged.created,
            is_resumable: false,
            has_expired: logged.has_expired,
            log: OnceLock::from(Arc::clone(log)),
            has_moved_here: OnceLock::new(),
        });
        let streams = found.streams.len();
        for stream in found.streams {
            feed.add(FedStream {
                session: Arc::clone(&session),
                key: stream.key,
                path: stream.path,
                name: stream.name,
                is_restored: true,
                content: ended(stream.content),
                deleted_chunks: found.deleted.clone(),
            });
        }
        info!(%session, key = %logged.key, streams, "session of an earlier relay found: the rest of it is archived");
        Ok(())
    }
}

/// A stream that has ended, with this content.
fn ended(content: FoundContent) -> FedContent {
    match content {
        FoundContent::Packets(runs) => {
            let published = Arc::<Published>::default();
            published.keep_seqs();
            for run in runs {
                for (seq, offset, len) in run.unindexed_packets() {
                    published.add_unindexed_packet(&run.segment, seq, offset, len);
                }
                if run.extents.is_empty() {
                    let end = run.end;
                    published.add_tracefile(&run.segment, run.class, run.packets, end, run.seqs);
                }
            }
            published.end();
            FedContent::Packets(published)
        }
        FoundContent::Metadata(files) => {
            let published = Arc::<PublishedMetadata>::default();
            published.keep_withdrawn();
            for (source, received) in files {
                published.restart();
                published.set_received(&source, received);
            }
            published.end();
            FedContent::Metadata(published)
        }
    }
}
