//! The bytes of records.

use bytes::BufMut;
use wire::{Bytes, ChunkId, ClassId, DecodeError, FileName, SeqNum, Text, Timestamp, TracePath};
use wire::{Field, wire_struct};

use super::{
    BlockPlace, ChunkRecord, ChunkState, Encoding, MetadataRecord, ObjectKind, ObjectRecord,
    PacketsRecord, Record, RecordError, SessionRecord, StreamKey, StreamRecord,
};
use crate::name::{BootId, SessionKey};

/// Longest text in a record, in bytes: a path.
const MAX_TEXT_BYTES: u32 = 4096;

/// First byte of each record.
mod record_type {
    pub(super) const OBJECT: u8 = 1;
    pub(super) const SESSION: u8 = 2;
    pub(super) const CHUNK: u8 = 3;
    pub(super) const STREAM: u8 = 4;
    pub(super) const PACKETS: u8 = 5;
    pub(super) const METADATA: u8 = 6;
    pub(super) const SKIPPED: u8 = 7;
    pub(super) const STREAM_END: u8 = 8;
    pub(super) const SESSION_END: u8 = 9;
    pub(super) const BEACON: u8 = 10;
}

wire_struct! {
    ObjectFields [28 bytes] {
        kind: ObjectKind,
        boot: [u8; 16],
        number: u64,
    }

    SessionFields [48 bytes] {
        producer: [u8; 16],
        id: u64,
        created: u64,
        live_timer: u32,
        ctf_version: u32,
        host_len: u32,
        name_len: u32,
    }

    ChunkFields [12 bytes] {
        chunk: Option<ChunkId>,
        state: ChunkState,
    }

    StreamFields [17 bytes] {
        is_metadata: u8,
        number: u64,
        path_len: u32,
        name_len: u32,
    }

    BlockFields [24 bytes] {
        offset: Bytes,
        stored: u32,
        raw: u32,
        encoding: Encoding,
        checksum: u32,
    }

    PacketsFields [76 bytes] {
        stream: u64,
        chunk: Option<ChunkId>,
        first: SeqNum,
        count: u32,
        begin: Timestamp,
        end: Timestamp,
        packet_bytes: Bytes,
        block: BlockFields,
    }

    MetadataFields [52 bytes] {
        stream: u64,
        chunk: Option<ChunkId>,
        generation: u32,
        offset: Bytes,
        block: BlockFields,
    }

    SkippedFields [24 bytes] {
        stream: u64,
        first: SeqNum,
        count: u64,
    }

    BeaconFields [24 bytes] {
        stream: u64,
        until: Timestamp,
        class: ClassId,
    }

    StreamEndFields [17 bytes] {
        is_metadata: u8,
        number: u64,
        next: u64,
    }

    RecordHead [5 bytes] {
        record_type: u8,
        len: u32,
    }
}

impl BlockPlace {
    /// Offset of the byte after the block in its object. None: there is no such place.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.offset.0.checked_add(u64::from(self.stored))
    }

    /// Whether another block is the next one in the same object, so that both can be read at once.
    #[must_use]
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.end() == Some(next.offset.0)
    }

    fn fields(self) -> BlockFields {
        BlockFields {
            offset: self.offset,
            stored: self.stored,
            raw: self.raw,
            encoding: self.encoding,
            checksum: self.checksum,
        }
    }

    fn of(fields: &BlockFields) -> Self {
        Self {
            offset: fields.offset,
            stored: fields.stored,
            raw: fields.raw,
            encoding: fields.encoding,
            checksum: fields.checksum,
        }
    }
}

fn text_len(text: &[u8]) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

fn read_text(from: &mut &[u8], len: u32, what: &'static str) -> Result<Text, DecodeError> {
    Text::read(from, len, what, 0..=MAX_TEXT_BYTES)
}

impl Record {
    fn record_type(&self) -> u8 {
        match self {
            Self::Object(_) => record_type::OBJECT,
            Self::Session(_) => record_type::SESSION,
            Self::Chunk(_) => record_type::CHUNK,
            Self::Stream(_) => record_type::STREAM,
            Self::Packets(_) => record_type::PACKETS,
            Self::Metadata(_) => record_type::METADATA,
            Self::Skipped { .. } => record_type::SKIPPED,
            Self::StreamEnd { .. } => record_type::STREAM_END,
            Self::SessionEnd { .. } => record_type::SESSION_END,
            Self::Beacon { .. } => record_type::BEACON,
        }
    }

    /// Appends the bytes of the record to a directory.
    pub fn encode(&self, to: &mut Vec<u8>) {
        let at = to.len();
        let mut head = RecordHead {
            record_type: self.record_type(),
            len: 0,
        };
        head.write(to);
        self.encode_body(to);
        head.len = text_len(to.get(at + RecordHead::SIZE..).unwrap_or_default());
        // The head again, with the length that is known only now.
        if let Some(mut place) = to.get_mut(at..at + RecordHead::SIZE) {
            head.write(&mut place);
        }
    }

    fn encode_body(&self, to: &mut Vec<u8>) {
        match self {
            Self::Object(object) => ObjectFields {
                kind: object.kind,
                boot: object.boot.0,
                number: object.number,
            }
            .write(to),
            Self::Session(session) => encode_session(session, to),
            Self::Chunk(chunk) => ChunkFields {
                chunk: chunk.chunk,
                state: chunk.state,
            }
            .write(to),
            Self::Stream(stream) => encode_stream(stream, to),
            Self::Packets(packets) => PacketsFields {
                stream: packets.stream,
                chunk: packets.chunk,
                first: packets.first,
                count: packets.count,
                begin: packets.begin,
                end: packets.end,
                packet_bytes: packets.packet_bytes,
                block: packets.block.fields(),
            }
            .write(to),
            Self::Metadata(metadata) => MetadataFields {
                stream: metadata.stream,
                chunk: metadata.chunk,
                generation: metadata.generation,
                offset: metadata.offset,
                block: metadata.block.fields(),
            }
            .write(to),
            Self::Skipped {
                stream,
                first,
                count,
            } => SkippedFields {
                stream: *stream,
                first: *first,
                count: *count,
            }
            .write(to),
            Self::StreamEnd { stream, next } => StreamEndFields {
                is_metadata: u8::from(stream.is_metadata),
                number: stream.number,
                next: *next,
            }
            .write(to),
            Self::SessionEnd { at } => at.write(to),
            Self::Beacon {
                stream,
                until,
                class,
            } => BeaconFields {
                stream: *stream,
                until: *until,
                class: *class,
            }
            .write(to),
        }
    }

    /// Decodes the record at the front of `from`, and moves past it.
    ///
    /// # Errors
    /// If there is none.
    pub fn decode(from: &mut &[u8]) -> Result<Self, RecordError> {
        let mut at = *from;
        let head = RecordHead::read(&mut at)?;
        let (need, have) = (head.len as usize, at.len());
        let mut body = at.split_off(..need).ok_or(DecodeError::Truncated {
            what: "record",
            need,
            have,
        })?;
        let record = Self::decode_body(head.record_type, &mut body)?;
        if !body.is_empty() {
            return Err(RecordError::TooLong(head.record_type));
        }
        *from = at;
        Ok(record)
    }

    fn decode_body(record_type: u8, from: &mut &[u8]) -> Result<Self, RecordError> {
        Ok(match record_type {
            record_type::OBJECT => {
                let ObjectFields { kind, boot, number } = ObjectFields::read(from)?;
                let boot = BootId(boot);
                Self::Object(ObjectRecord { kind, boot, number })
            }
            record_type::SESSION => Self::Session(decode_session(from)?),
            record_type::CHUNK => {
                let ChunkFields { chunk, state } = ChunkFields::read(from)?;
                Self::Chunk(ChunkRecord { chunk, state })
            }
            record_type::STREAM => Self::Stream(decode_stream(from)?),
            record_type::PACKETS => Self::Packets(decode_packets(from)?),
            record_type::METADATA => {
                let fields = MetadataFields::read(from)?;
                Self::Metadata(MetadataRecord {
                    stream: fields.stream,
                    chunk: fields.chunk,
                    generation: fields.generation,
                    offset: fields.offset,
                    block: BlockPlace::of(&fields.block),
                })
            }
            record_type::SKIPPED => {
                let fields = SkippedFields::read(from)?;
                Self::Skipped {
                    stream: fields.stream,
                    first: fields.first,
                    count: fields.count,
                }
            }
            record_type::STREAM_END => {
                let fields = StreamEndFields::read(from)?;
                Self::StreamEnd {
                    stream: StreamKey {
                        number: fields.number,
                        is_metadata: fields.is_metadata != 0,
                    },
                    next: fields.next,
                }
            }
            record_type::SESSION_END => Self::SessionEnd {
                at: u64::read(from)?,
            },
            record_type::BEACON => {
                let fields = BeaconFields::read(from)?;
                Self::Beacon {
                    stream: fields.stream,
                    until: fields.until,
                    class: fields.class,
                }
            }
            other => return Err(RecordError::Unknown(other)),
        })
    }
}

fn encode_session(session: &SessionRecord, to: &mut Vec<u8>) {
    let (host, name) = (session.host.as_bytes(), session.name.as_bytes());
    SessionFields {
        producer: session.session.producer,
        id: session.session.id,
        created: session.created,
        live_timer: session.live_timer,
        ctf_version: session.ctf_version,
        host_len: text_len(host),
        name_len: text_len(name),
    }
    .write(to);
    to.put_slice(host);
    to.put_slice(name);
}

fn decode_session(from: &mut &[u8]) -> Result<SessionRecord, RecordError> {
    let fields = SessionFields::read(from)?;
    Ok(SessionRecord {
        session: SessionKey {
            producer: fields.producer,
            id: fields.id,
        },
        created: fields.created,
        live_timer: fields.live_timer,
        ctf_version: fields.ctf_version,
        host: read_text(from, fields.host_len, "host")?,
        name: read_text(from, fields.name_len, "session name")?,
    })
}

fn encode_stream(stream: &StreamRecord, to: &mut Vec<u8>) {
    let (path, name) = (stream.path.to_text(), stream.name.to_text());
    StreamFields {
        is_metadata: u8::from(stream.stream.is_metadata),
        number: stream.stream.number,
        path_len: text_len(path.as_bytes()),
        name_len: text_len(name.as_bytes()),
    }
    .write(to);
    to.put_slice(path.as_bytes());
    to.put_slice(name.as_bytes());
}

fn decode_stream(from: &mut &[u8]) -> Result<StreamRecord, RecordError> {
    let fields = StreamFields::read(from)?;
    let path = read_text(from, fields.path_len, "path")?;
    let name = read_text(from, fields.name_len, "file name")?;
    Ok(StreamRecord {
        stream: StreamKey {
            number: fields.number,
            is_metadata: fields.is_metadata != 0,
        },
        path: TracePath::parse(&path)?,
        name: FileName::parse(&name)?,
    })
}

fn decode_packets(from: &mut &[u8]) -> Result<PacketsRecord, RecordError> {
    let fields = PacketsFields::read(from)?;
    let last = fields.first.0.checked_add(u64::from(fields.count));
    // The number after the last one must exist: positions are compared with it.
    if fields.count == 0 || last.is_none() {
        return Err(RecordError::Decode(DecodeError::Length {
            what: "block of packets",
            got: u64::from(fields.count),
            min: 1,
            max: u64::from(u32::MAX),
        }));
    }
    Ok(PacketsRecord {
        stream: fields.stream,
        chunk: fields.chunk,
        first: fields.first,
        count: fields.count,
        begin: fields.begin,
        end: fields.end,
        packet_bytes: fields.packet_bytes,
        block: BlockPlace::of(&fields.block),
    })
}
