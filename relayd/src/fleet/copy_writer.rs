//! Writes a session of the archive as a session of a relay, by the same code as for a producer: a
//! registry of its own has it, with a directory of its own.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use archive::document::CreatedDocument;
use archive::name::SessionKey;
use archive::session::{Beacon, StreamUpdate};
use relay_proto::Minor;
use relay_proto::chunk::CreateTraceChunk;
use relay_proto::data::{DataEvent, DataHeader};
use relay_proto::index::SendIndex;
use relay_proto::metadata::SendMetadata;
use relay_proto::relay::{Refusal, Relay as _};
use relay_proto::session::{CreateSession, DaemonId, Recording, TraceFormat as ProducerFormat};
use relay_proto::stream::{AddStream, CloseStream, METADATA_CHANNEL};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use viewer_proto::session::{Seek, TraceFormat};
use wire::{
    Bytes, ChunkId, EpochSeconds, FileName, PacketIndex, SeqNum, SessionId, StreamId, Text,
    Timestamp, TraceId, TracePath,
};

use super::list::{live_timer, trace_format};
use crate::limits::{FIRST_FLEET_SESSION, FLEET_STREAM_IDS};
use crate::producer::Producer;
use crate::producer::data_connection::DataConnection;
use crate::registry::session::Session;
use crate::registry::{Registry, RegistrySettings};
use crate::store::pool::Pool;

/// The newest version of the protocol that the relay speaks.
const MINOR: Minor = Minor(15);
/// The only chunk: viewers see one trace for all chunks of a session.
const CHUNK: ChunkId = ChunkId(0);
/// Name of the files with metadata. Readers of the output know traces by the name `metadata`, and
/// would show a session twice.
const METADATA_FILE: &str = "copied-metadata";
/// Bytes of metadata that are written together.
const METADATA_PIECE_BYTES: usize = 1 << 20;

/// A session that is being copied.
#[derive(Debug)]
pub(super) struct CopyWriter {
    registry: Arc<Registry>,
    session: Arc<Session>,
    producer: Producer,
    data: DataConnection,
    /// The data streams, by their numbers in the archive.
    streams: BTreeMap<u64, CopiedStream>,
    traces: BTreeMap<TracePath, CopiedMetadata>,
}

#[derive(Debug)]
struct CopiedStream {
    id: StreamId,
    /// Number of the next packet, counted from 0 without a gap.
    next: u64,
    beacon: Timestamp,
    is_closed: bool,
}

#[derive(Debug)]
struct CopiedMetadata {
    id: StreamId,
    /// Length of the text that has been written, and its hash.
    written: usize,
    hash: u64,
    has_failed: bool,
}

/// The hash by which metadata is compared with what was written.
fn hash(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text);
    hasher.finish()
}

fn refused(refusal: Refusal) -> io::Error {
    io::Error::other(refusal.to_string())
}

impl CopyWriter {
    /// Creates the session, which has this id, and no streams yet.
    pub(super) fn new(
        (id, begin): (SessionId, Seek),
        (key, document): (SessionKey, &CreatedDocument),
        directory: PathBuf,
        pool: Arc<Pool>,
    ) -> io::Result<Self> {
        let registry = Registry::new(RegistrySettings {
            allows_clear: false,
            reorder_memory: 0,
            metadata_file: FileName::parse(&METADATA_FILE.into()).ok(),
            ..RegistrySettings::new(directory, pool)
        });
        let number = id.0.saturating_sub(FIRST_FLEET_SESSION);
        // A viewer may attach to both copies.
        let number = number.saturating_mul(2) + u64::from(begin == Seek::Last);
        let first = FIRST_FLEET_SESSION.saturating_add(number.saturating_mul(FLEET_STREAM_IDS));
        registry.reserve_session(SessionId(id.0 - 1));
        registry.reserve_stream(StreamId(first));
        registry.reserve_trace(TraceId(first));
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let mut producer = Producer::new(Arc::clone(&registry), local, CancellationToken::new());
        let created = document.created / 1_000_000_000;
        let mut daemon = key.producer;
        // Not the nil id, whatever the archive says.
        daemon[0] |= 1;
        let created = producer.create_session(
            MINOR,
            CreateSession {
                name: document.name.as_str().into(),
                host: document.host.as_str().into(),
                base_path: Text::default(),
                live_timer: live_timer(document),
                snapshot: false,
                recording: Some(Recording {
                    daemon: DaemonId(daemon),
                    id: key.id,
                    created: EpochSeconds(created),
                    name_has_date: false,
                    current_chunk: None,
                }),
                trace_format: match trace_format(document) {
                    TraceFormat::Ctf1 => ProducerFormat::Ctf1,
                    TraceFormat::Ctf2 => ProducerFormat::Ctf2,
                },
            },
        );
        let created = created.map_err(refused)?;
        producer
            .create_chunk(CreateTraceChunk {
                chunk: CHUNK,
                created: EpochSeconds(0),
                name: None,
            })
            .map_err(refused)?;
        let session = registry.session(created.session);
        let session = session.ok_or_else(|| io::Error::other("the session has ended"))?;
        let data = DataConnection::new(Arc::clone(&registry), local);
        Ok(Self {
            data: data.with_first_packet(SeqNum(0)),
            registry,
            session,
            producer,
            streams: BTreeMap::new(),
            traces: BTreeMap::new(),
        })
    }

    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Length of the metadata of a trace that is written.
    pub(super) fn metadata_len(&self, path: &TracePath) -> u64 {
        let trace = self.traces.get(path);
        trace.map_or(0, |trace| trace.written as u64)
    }

    /// Adds the streams that are new. Those of a trace without metadata are added later.
    pub(super) fn add_streams(&mut self, streams: &BTreeMap<u64, StreamUpdate>) -> io::Result<()> {
        let mut has_new = false;
        for (number, stream) in streams {
            if self.streams.contains_key(number) {
                continue;
            }
            if !self.traces.contains_key(&stream.path) {
                let id = self.add_stream(METADATA_CHANNEL.into(), &stream.path)?;
                let metadata = CopiedMetadata {
                    id,
                    written: 0,
                    hash: hash(&[]),
                    has_failed: false,
                };
                self.traces.insert(stream.path.clone(), metadata);
            }
            let id = self.add_stream(stream.name.to_text(), &stream.path)?;
            let copied = CopiedStream {
                id,
                next: 0,
                beacon: Timestamp(0),
                is_closed: false,
            };
            self.streams.insert(*number, copied);
            has_new = true;
        }
        if has_new {
            self.producer.streams_sent().map_err(refused)?;
        }
        Ok(())
    }

    fn add_stream(&mut self, channel: Text, path: &TracePath) -> io::Result<StreamId> {
        let stream = AddStream {
            channel,
            path: path.to_text(),
            tracefile_size: Bytes(0),
            tracefile_count: 0,
            chunk: Some(CHUNK),
        };
        self.producer.add_stream(stream).map_err(refused)
    }

    /// Writes what the metadata of a trace has more than before.
    pub(super) fn write_metadata(&mut self, path: &TracePath, text: &[u8]) -> io::Result<()> {
        let Some(trace) = self.traces.get_mut(path) else {
            return Ok(());
        };
        let split = text.split_at_checked(trace.written);
        let Some((_, new)) = split.filter(|(before, _)| hash(before) == trace.hash) else {
            // After `lttng regenerate metadata`, for example.
            if !std::mem::replace(&mut trace.has_failed, true) {
                warn!(session = %self.session, %path, "metadata not copied from the archive: it does not continue what viewers have");
            }
            return Ok(());
        };
        for piece in new.chunks(METADATA_PIECE_BYTES) {
            let stream = trace.id;
            let head = SendMetadata { stream, padding: 0 };
            let producer = &mut self.producer;
            let sent = producer.begin_metadata(head, piece.len() as u64);
            let sent = sent.and_then(|()| producer.metadata_text(piece));
            let sent = sent.and_then(|()| producer.end_metadata());
            sent.map_err(refused)?;
        }
        trace.written = text.len();
        trace.hash = hash(text);
        Ok(())
    }

    /// Writes a packet of a stream with its index.
    pub(super) fn write_packet(
        &mut self,
        number: u64,
        packet: PacketIndex,
        bytes: &[u8],
    ) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        let data_size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        if stream.is_closed || data_size == 0 {
            return Ok(());
        }
        let seq = SeqNum(stream.next);
        stream.next += 1;
        stream.beacon = stream.beacon.max(packet.end);
        let header = DataHeader {
            circuit: 0,
            stream: stream.id,
            seq,
            data_size,
            padding_size: 0,
        };
        let payload = DataEvent::Payload { bytes, last: true };
        for event in [DataEvent::Begin(header), payload] {
            self.data.handle_event(event).map_err(io::Error::other)?;
        }
        let index = SendIndex {
            stream: stream.id,
            seq: Some(seq),
            packet,
        };
        self.producer.add_index(index).map_err(refused)
    }

    /// Writes the beacon of a stream, or closes a stream that has no further packet.
    pub(super) fn write_beacon(&mut self, number: u64, beacon: Beacon) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        if stream.is_closed || beacon.until <= stream.beacon {
            return Ok(());
        }
        stream.beacon = beacon.until;
        if beacon.until == Timestamp(u64::MAX) {
            return self.close_stream(number);
        }
        let index = SendIndex {
            stream: stream.id,
            seq: stream.next.checked_sub(1).map(SeqNum),
            packet: PacketIndex {
                begin: beacon.until,
                end: beacon.until,
                class: beacon.class,
                ..PacketIndex::default()
            },
        };
        self.producer.add_index(index).map_err(refused)
    }

    fn close_stream(&mut self, number: u64) -> io::Result<()> {
        let Some(stream) = self.streams.get_mut(&number) else {
            return Ok(());
        };
        if std::mem::replace(&mut stream.is_closed, true) {
            return Ok(());
        }
        let close = CloseStream {
            stream: stream.id,
            last: stream.next.checked_sub(1).map(SeqNum),
        };
        self.producer.close_stream(close).map_err(refused)
    }

    /// Publishes what was written, and does what is periodic. Returns false if the disk is full:
    /// call it again before anything else is written.
    pub(super) fn publish(&mut self) -> io::Result<bool> {
        if self.data.is_paused() {
            self.data.resume().map_err(io::Error::other)?;
        }
        self.data.write_ready_entries().map_err(io::Error::other)?;
        self.producer.write_ready_entries().map_err(refused)?;
        let is_resumed = self.producer.resume();
        let now = Instant::now();
        if self.registry.has_periodic_work(now) {
            self.registry.tick(now);
        }
        Ok(is_resumed && !self.data.is_paused())
    }

    /// Ends the session: viewers are told so when they have read everything.
    pub(super) fn end(mut self) {
        let numbers: Vec<u64> = self.streams.keys().copied().collect();
        for number in numbers {
            if let Err(error) = self.close_stream(number) {
                warn!(session = %self.session, %error, "stream of a copied session not closed");
            }
        }
        for trace in self.traces.values() {
            let close = CloseStream {
                stream: trace.id,
                last: None,
            };
            // It may have been closed with the last stream of its trace.
            let _ = self.producer.close_stream(close);
        }
        self.producer.end(false, Instant::now());
    }
}
