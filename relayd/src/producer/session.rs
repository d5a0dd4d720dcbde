//! Opens the session of a control connection.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ctf::index::IndexFormat;
use relay_proto::Minor;
use relay_proto::ReturnCode;
use relay_proto::relay::{Refusal, SessionCreated};
use relay_proto::session::CreateSession;
use tokio_util::sync::CancellationToken;
use tracing::info;
use wire::{EpochSeconds, StreamId, TracePath};

use super::{MetadataStream, SessionChunks};
use crate::registry::Registry;
use crate::registry::session::{Session, SessionIdentity};
use crate::registry::stream::SessionStream;
use crate::store::chunk::Chunk;
use crate::store::layout::session_directory;
use crate::store::make_directory;
use crate::store::old_paths::OldPaths;
use crate::store::session_directory::SessionDirectory;
use crate::store::sync::position::DurablePosition;

/// A session and the state that only its control connection needs.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) session: Arc<Session>,
    /// Number of the control connection among those that the session has had.
    pub(super) generation: u64,
    /// The command that opened the session.
    pub(super) created: CreateSession,
    pub(super) is_snapshot: bool,
    /// Version of the index files. None if the producer sends no indexes.
    pub(super) index_format: Option<IndexFormat>,
    /// Session directory, relative to the relay's output. None for producers whose stream paths are
    /// relative to the output itself.
    pub(super) directory: Option<TracePath>,
    /// Translates stream paths that are relative to the relay's output. None if `directory` is set.
    pub(super) old_paths: Option<OldPaths>,
    /// Absolute path of the session directory, or of the output.
    pub(super) absolute: PathBuf,
    pub(super) chunks: SessionChunks,
    /// The stream whose metadata is being received, with the number that the producer has for it.
    /// None between SEND_METADATA commands.
    pub(super) metadata: Option<(StreamId, Arc<MetadataStream>)>,
    /// Streams that wait for space on the disk. Replies to the session's commands wait as well.
    pub(super) paused: BTreeMap<StreamId, SessionStream>,
    /// The durable positions of the streams about which the producer has asked.
    pub(super) durable: HashMap<StreamId, DurablePosition>,
}

/// The refusal of a command that needs a session, before one is opened.
pub(super) fn no_session() -> Refusal {
    Refusal::new(ReturnCode::UNKNOWN, "the connection has no session")
}

/// The refusal of a command after another session has taken over the session's directory, or
/// another connection the session.
pub(super) fn superseded() -> Refusal {
    Refusal::new(
        ReturnCode::UNKNOWN,
        "the session has ended, or another connection has taken it over",
    )
}

pub(super) fn create_session(
    registry: &Arc<Registry>,
    producer: IpAddr,
    connections: CancellationToken,
    minor: Minor,
    request: &CreateSession,
) -> Result<(OpenSession, SessionCreated), Refusal> {
    let fatal =
        |why: Box<dyn std::error::Error + Send + Sync>| Refusal::new(ReturnCode::FATAL, why);
    let settings = registry.settings();
    let directory = session_directory(request, settings.grouping, &settings.time_zone)
        .map_err(|error| fatal(error.into()))?;
    let old_paths = match directory {
        Some(_) => None,
        None => Some(
            OldPaths::new(settings.grouping, &request.name, now(), &settings.time_zone)
                .map_err(|error| fatal(error.into()))?,
        ),
    };
    let recording = request.recording.as_ref();
    // Producers with a nil id could share a recording by mistake.
    if recording.is_some_and(|recording| recording.daemon.is_nil()) {
        return Err(fatal("the session daemon's id is nil".into()));
    }
    let shared = registry
        .recordings()
        .of(recording.map(|recording| (recording.daemon, recording.id)));
    let mut chunks = SessionChunks::default();
    let absolute = match &directory {
        Some(directory) => settings.output.join(directory),
        None => settings.output.clone(),
    };
    let created = match &directory {
        Some(directory) => {
            SessionDirectory::create(&settings.output, directory, &settings.pool).map(Some)
        }
        None => make_directory(&absolute).map(|()| None),
    };
    let locked = created.map_err(|error| fatal(error.into()))?;
    if let Some(current) = recording.and_then(|recording| recording.current_chunk) {
        let chunk = shared
            .chunk(current)
            .ok_or_else(|| fatal(format!("unknown {current}").into()))?;
        chunks.begin_in(chunk);
    } else if directory.is_none() {
        chunks.begin_in(Chunk::whole_output(&settings.output));
    }
    let identity = SessionIdentity {
        id: registry.next_session(),
        name: request.name.clone(),
        host: request.host.clone(),
        live_timer: request.live_timer,
        trace_format: request.trace_format,
        directory: directory.clone(),
        producer,
        recording: recording.map(|recording| (recording.daemon, recording.id)),
    };
    let session = registry.new_session(identity, locked, shared, connections);
    registry
        .add_session(Arc::clone(&session))
        .map_err(|error| fatal(error.into()))?;
    info!(%session, peer = %producer, path = %absolute.display(), minor = minor.0, "session opened");
    let path = directory.as_ref().map(TracePath::to_text);
    let created = SessionCreated {
        session: session.id(),
        path: path.unwrap_or_default(),
    };
    let has_indexes = minor.has_indexes() && !request.snapshot;
    let index_format = has_indexes.then_some(if minor.numbers_packets() {
        IndexFormat::V1_1
    } else {
        IndexFormat::V1_0
    });
    let open = OpenSession {
        generation: session.generation(),
        session,
        created: request.clone(),
        is_snapshot: request.snapshot,
        index_format,
        directory,
        old_paths,
        absolute,
        chunks,
        metadata: None,
        paused: BTreeMap::new(),
        durable: HashMap::new(),
    };
    Ok((open, created))
}

/// The current time, in seconds since the epoch.
pub(super) fn now() -> EpochSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    EpochSeconds(since.unwrap_or_default().as_secs())
}
