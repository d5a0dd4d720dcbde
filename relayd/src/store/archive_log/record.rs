//! The records of the log of an archived session, and the session that they describe.

use std::collections::BTreeMap;

use archive::name::SessionKey;
use bytes::BufMut;
use relay_proto::session::TraceFormat;
use wire::{ChunkId, Field, FileName, Micros, SeqNum, Text, TracePath, wire_struct};

use crate::store::log_file::RecordError;
use crate::store::session_log::StreamKey;

/// Longest text in a record, in bytes with its NUL.
const MAX_TEXT: u32 = 4096;

/// The number of a chunk whose producer knows no chunks.
const NO_CHUNK: u64 = u64::MAX;

/// An archived session as its log describes it.
#[derive(Debug, Clone)]
pub struct LoggedArchive {
    /// The name of the session in the archive.
    pub key: SessionKey,
    /// Time at which the session was created, in nanoseconds since 1970.
    pub created: u64,
    /// Name of the traced host.
    pub host: Text,
    /// Name of the session.
    pub name: Text,
    /// Interval at which the producer sends its packets. Zero: the session is not live.
    pub live_timer: Micros,
    /// Format of the traces.
    pub trace_format: TraceFormat,
    /// Directory of the session, relative to the relay's output. None: the path of each stream
    /// contains it.
    pub directory: Option<TracePath>,
    /// Whether the producer has not ended the session, so that it may be at another relay.
    pub has_expired: bool,
    /// The streams that the session has had.
    pub streams: BTreeMap<StreamKey, StreamNames>,
    /// The chunks that it has had.
    pub chunks: BTreeMap<Option<ChunkId>, LoggedChunk>,
    /// The numbers of packets.
    pub marks: BTreeMap<TracefileKey, Vec<SeqMark>>,
}

/// The names of a stream's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamNames {
    /// Directory below the chunk.
    pub path: TracePath,
    /// Name of the file, to which a number is appended if `is_numbered`.
    pub name: FileName,
    /// Whether the size of tracefiles is limited.
    pub is_numbered: bool,
}

/// A chunk, by the names that its directory may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedChunk {
    /// Time at which the chunk began, as in the name of its directory.
    pub began: Text,
    /// Name of the directory, if the producer has given it.
    pub name: Option<FileName>,
    /// Whether the producer has had the chunk deleted.
    pub is_deleted: bool,
}

/// A tracefile of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TracefileKey {
    /// Number of the stream.
    pub stream: u64,
    /// Chunk of the file.
    pub chunk: Option<ChunkId>,
    /// Number in the name of the file. 0 without.
    pub file: u64,
}

/// A packet whose number is not one more than that of the packet before it in its tracefile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeqMark {
    /// Number of packets before it in the tracefile.
    pub packets: u64,
    /// Sequence number of the packet.
    pub seq: SeqNum,
}

/// A change of an archived session.
#[derive(Debug, Clone)]
pub enum ArchiveRecord {
    /// A stream was added.
    Stream(StreamKey, StreamNames),
    /// Streams may have files in this chunk from now on.
    Chunk(Option<ChunkId>, LoggedChunk),
    /// The producer has a chunk deleted.
    ChunkDeleted(Option<ChunkId>),
    /// The packets of a tracefile continue otherwise than by one, or begin. A mark of the first
    /// packet replaces those of an older tracefile of the same name.
    Mark(TracefileKey, SeqMark),
    /// The session has ended here because its producer did not come back in time.
    Expired,
}

/// First byte of each record.
mod record_type {
    pub(super) const SESSION: u8 = 1;
    pub(super) const STREAM: u8 = 2;
    pub(super) const CHUNK: u8 = 3;
    pub(super) const CHUNK_DELETED: u8 = 4;
    pub(super) const MARK: u8 = 5;
    pub(super) const EXPIRED: u8 = 6;
}

wire_struct! {
    SessionHead [52 bytes] {
        producer_high: u64,
        producer_low: u64,
        id: u64,
        created: u64,
        live_timer: Micros,
        ctf_version: u32,
        directory_len: u32,
        host_len: u32,
        name_len: u32,
    }

    StreamHead [18 bytes] {
        is_metadata: u8,
        number: u64,
        is_numbered: u8,
        path_len: u32,
        name_len: u32,
    }

    ChunkHead [16 bytes] {
        chunk: u64,
        began_len: u32,
        name_len: u32,
    }

    MarkFields [40 bytes] {
        stream: u64,
        chunk: u64,
        file: u64,
        packets: u64,
        seq: SeqNum,
    }
}

fn chunk_code(chunk: Option<ChunkId>) -> u64 {
    chunk.map_or(NO_CHUNK, |chunk| chunk.0)
}

fn chunk_id(code: u64) -> Option<ChunkId> {
    (code != NO_CHUNK).then_some(ChunkId(code))
}

fn read_text(from: &mut &[u8], length: u32, what: &'static str) -> Result<Text, RecordError> {
    Ok(Text::read_terminated(from, length, what, 1..=MAX_TEXT)?)
}

fn read_path(from: &mut &[u8], length: u32) -> Result<TracePath, RecordError> {
    let path = read_text(from, length, "path")?;
    TracePath::parse(&path).map_err(RecordError::Directory)
}

fn read_name(from: &mut &[u8], length: u32) -> Result<FileName, RecordError> {
    let name = read_text(from, length, "name")?;
    FileName::parse(&name).map_err(RecordError::Directory)
}

impl ArchiveRecord {
    /// Appends the body of the record.
    pub(super) fn encode(&self, to: &mut impl BufMut) {
        match self {
            Self::Stream(key, names) => {
                let (path, name) = (names.path.to_text(), names.name.to_text());
                to.put_u8(record_type::STREAM);
                StreamHead {
                    is_metadata: u8::from(key.is_metadata),
                    number: key.number,
                    is_numbered: u8::from(names.is_numbered),
                    path_len: path.terminated_len(),
                    name_len: name.terminated_len(),
                }
                .write(to);
                path.write_terminated(to);
                name.write_terminated(to);
            }
            Self::Chunk(chunk, logged) => {
                let name = logged.name.as_ref().map(FileName::to_text);
                to.put_u8(record_type::CHUNK);
                ChunkHead {
                    chunk: chunk_code(*chunk),
                    began_len: logged.began.terminated_len(),
                    name_len: name.as_ref().map_or(0, Text::terminated_len),
                }
                .write(to);
                logged.began.write_terminated(to);
                if let Some(name) = name {
                    name.write_terminated(to);
                }
            }
            Self::ChunkDeleted(chunk) => {
                to.put_u8(record_type::CHUNK_DELETED);
                chunk_code(*chunk).write(to);
            }
            Self::Mark(tracefile, mark) => {
                to.put_u8(record_type::MARK);
                MarkFields {
                    stream: tracefile.stream,
                    chunk: chunk_code(tracefile.chunk),
                    file: tracefile.file,
                    packets: mark.packets,
                    seq: mark.seq,
                }
                .write(to);
            }
            Self::Expired => to.put_u8(record_type::EXPIRED),
        }
    }

    /// Decodes the body of a record that is not the first of its log.
    fn decode(body: &[u8]) -> Result<Self, RecordError> {
        let mut from = body;
        Ok(match u8::read(&mut from)? {
            record_type::STREAM => {
                let head = StreamHead::read(&mut from)?;
                let key = StreamKey {
                    is_metadata: head.is_metadata != 0,
                    number: head.number,
                };
                let names = StreamNames {
                    path: read_path(&mut from, head.path_len)?,
                    name: read_name(&mut from, head.name_len)?,
                    is_numbered: head.is_numbered != 0,
                };
                Self::Stream(key, names)
            }
            record_type::CHUNK => {
                let head = ChunkHead::read(&mut from)?;
                let began = read_text(&mut from, head.began_len, "date")?;
                let name = match head.name_len {
                    0 => None,
                    length => Some(read_name(&mut from, length)?),
                };
                let logged = LoggedChunk {
                    began,
                    name,
                    is_deleted: false,
                };
                Self::Chunk(chunk_id(head.chunk), logged)
            }
            record_type::CHUNK_DELETED => Self::ChunkDeleted(chunk_id(u64::read(&mut from)?)),
            record_type::MARK => {
                let fields = MarkFields::read(&mut from)?;
                let tracefile = TracefileKey {
                    stream: fields.stream,
                    chunk: chunk_id(fields.chunk),
                    file: fields.file,
                };
                let mark = SeqMark {
                    packets: fields.packets,
                    seq: fields.seq,
                };
                Self::Mark(tracefile, mark)
            }
            record_type::EXPIRED => Self::Expired,
            other => return Err(RecordError::UnknownType(other)),
        })
    }
}

impl LoggedArchive {
    /// The session that records describe, given their bodies.
    ///
    /// # Errors
    /// If they describe none.
    pub(super) fn decode<'a>(
        mut bodies: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, RecordError> {
        let first = bodies.next().ok_or(RecordError::NoSession)?;
        let mut session = Self::decode_head(first)?;
        for body in bodies {
            session.apply(ArchiveRecord::decode(body)?);
        }
        Ok(session)
    }

    fn decode_head(body: &[u8]) -> Result<Self, RecordError> {
        let mut from = body;
        if u8::read(&mut from)? != record_type::SESSION {
            return Err(RecordError::NoSession);
        }
        let head = SessionHead::read(&mut from)?;
        let producer = u128::from(head.producer_high) << 64 | u128::from(head.producer_low);
        let directory = match head.directory_len {
            0 => None,
            length => Some(read_path(&mut from, length)?),
        };
        Ok(Self {
            key: SessionKey {
                producer: producer.to_be_bytes(),
                id: head.id,
            },
            created: head.created,
            live_timer: head.live_timer,
            trace_format: match head.ctf_version {
                2 => TraceFormat::Ctf2,
                _ => TraceFormat::Ctf1,
            },
            directory,
            host: read_text(&mut from, head.host_len, "host")?,
            name: read_text(&mut from, head.name_len, "session")?,
            has_expired: false,
            streams: BTreeMap::new(),
            chunks: BTreeMap::new(),
            marks: BTreeMap::new(),
        })
    }

    fn encode_head(&self, to: &mut impl BufMut) {
        let producer = u128::from_be_bytes(self.key.producer);
        let directory = self.directory.as_ref().map(TracePath::to_text);
        to.put_u8(record_type::SESSION);
        SessionHead {
            producer_high: u64::try_from(producer >> 64).unwrap_or_default(),
            producer_low: u64::try_from(producer & u128::from(u64::MAX)).unwrap_or_default(),
            id: self.key.id,
            created: self.created,
            live_timer: self.live_timer,
            ctf_version: match self.trace_format {
                TraceFormat::Ctf1 => 1,
                TraceFormat::Ctf2 => 2,
            },
            directory_len: directory.as_ref().map_or(0, Text::terminated_len),
            host_len: self.host.terminated_len(),
            name_len: self.name.terminated_len(),
        }
        .write(to);
        if let Some(directory) = directory {
            directory.write_terminated(to);
        }
        self.host.write_terminated(to);
        self.name.write_terminated(to);
    }

    /// The bodies of the fewest records that describe the session.
    pub(super) fn bodies(&self) -> Vec<Vec<u8>> {
        let mut head = Vec::new();
        self.encode_head(&mut head);
        let streams = self.streams.iter();
        let streams = streams.map(|(key, names)| ArchiveRecord::Stream(*key, names.clone()));
        let chunks = self.chunks.iter().flat_map(|(id, chunk)| {
            let deleted = chunk.is_deleted.then_some(ArchiveRecord::ChunkDeleted(*id));
            std::iter::once(ArchiveRecord::Chunk(*id, chunk.clone())).chain(deleted)
        });
        let marks = self.marks.iter().flat_map(|(tracefile, marks)| {
            let marks = marks.iter();
            marks.map(|mark| ArchiveRecord::Mark(*tracefile, *mark))
        });
        let expired = self.has_expired.then_some(ArchiveRecord::Expired);
        let records = streams.chain(chunks).chain(marks).chain(expired);
        let bodies = records.map(|record| {
            let mut body = Vec::new();
            record.encode(&mut body);
            body
        });
        std::iter::once(head).chain(bodies).collect()
    }

    /// Applies a record to what is known of the session.
    pub(super) fn apply(&mut self, record: ArchiveRecord) {
        match record {
            ArchiveRecord::Stream(key, names) => _ = self.streams.insert(key, names),
            ArchiveRecord::Chunk(id, chunk) => _ = self.chunks.entry(id).or_insert(chunk),
            ArchiveRecord::ChunkDeleted(id) => {
                if let Some(chunk) = self.chunks.get_mut(&id) {
                    chunk.is_deleted = true;
                }
            }
            ArchiveRecord::Mark(tracefile, mark) => {
                let marks = self.marks.entry(tracefile).or_default();
                let kept = marks.partition_point(|known| known.packets < mark.packets);
                marks.truncate(kept);
                marks.push(mark);
            }
            ArchiveRecord::Expired => self.has_expired = true,
        }
    }
}
