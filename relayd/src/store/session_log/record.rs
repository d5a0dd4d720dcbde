//! The records of a session log, and the session that they describe.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use bytes::BufMut;
use relay_proto::Minor;
use relay_proto::chunk::CreateTraceChunk;
use relay_proto::resume::OpenStream;
use relay_proto::session::CreateSession;
use wire::{Field, Message, SeqNum, SessionId, StreamId, Text, TracePath, wire_struct};

use super::logged_session::{FilePosition, LoggedFiles, LoggedSession, Mark, StreamKey};
use crate::store::log_file::RecordError;

/// The protocol version in whose form commands are logged. Part of the format: it must not follow
/// newer versions.
const FORM: Minor = Minor(15);

/// Longest directory of a session, in bytes with its NUL.
const PATH_LIMIT: u32 = 4096;

/// A change of a session.
#[derive(Debug, Clone)]
pub enum Record {
    /// The chunk was created.
    Chunk(CreateTraceChunk),
    /// The chunk was closed.
    ChunkClosed,
    /// A stream was added.
    Stream(StreamId, OpenStream),
    /// The packets of a data stream continue otherwise than by one.
    Mark {
        /// Number of the stream, as its producer has chosen it.
        key: u64,
        /// The packet, and its position.
        mark: Mark,
        /// Position of the first packet that has no entry: marks before it are not needed any more.
        indexed: FilePosition,
    },
    /// A tracefile of a data stream is about to replace an older one of the same name, which is
    /// gone from then on.
    Replacing {
        /// Number of the stream, as its producer has chosen it.
        key: u64,
        /// The first packet of the new tracefile, and its position.
        mark: Mark,
    },
    /// Everything from a position on was removed from the tracefiles of a data stream.
    Rewound {
        /// Number of the stream, as its producer has chosen it.
        key: u64,
        /// Position of the first packet that was removed.
        at: FilePosition,
    },
    /// A piece of metadata is complete.
    Metadata {
        /// Number of the stream, as its producer has chosen it.
        key: u64,
        /// Length of all pieces, in bytes.
        bytes: u64,
    },
    /// A stream was closed.
    Closed {
        /// Key of the stream, which may be one of metadata.
        key: StreamKey,
        /// Number of the packet after the last one, or length of the metadata in bytes.
        at: u64,
    },
}

/// First byte of each record.
mod record_type {
    pub(super) const SESSION: u8 = 1;
    pub(super) const CHUNK: u8 = 2;
    pub(super) const CHUNK_CLOSED: u8 = 3;
    pub(super) const STREAM: u8 = 4;
    pub(super) const MARK: u8 = 5;
    pub(super) const REWOUND: u8 = 6;
    pub(super) const METADATA: u8 = 7;
    pub(super) const CLOSED: u8 = 8;
    pub(super) const REPLACING: u8 = 9;
}

wire_struct! {
    SessionHead [32 bytes] {
        id: SessionId,
        producer_high: u64,
        producer_low: u64,
        timeout: u32,
        directory_len: u32,
    }

    MarkFields [48 bytes] {
        key: u64,
        file: u64,
        packets: u64,
        seq: SeqNum,
        indexed_file: u64,
        indexed_packets: u64,
    }

    ReplacingFields [32 bytes] {
        key: u64,
        file: u64,
        packets: u64,
        seq: SeqNum,
    }

    RewoundFields [24 bytes] {
        key: u64,
        file: u64,
        packets: u64,
    }

    MetadataFields [16 bytes] {
        key: u64,
        bytes: u64,
    }

    ClosedFields [17 bytes] {
        is_metadata: u8,
        key: u64,
        at: u64,
    }
}

impl Record {
    /// Appends the body of the record.
    pub(super) fn encode(&self, to: &mut impl BufMut) {
        match self {
            Self::Chunk(chunk) => {
                to.put_u8(record_type::CHUNK);
                chunk.encode(FORM, to);
            }
            Self::ChunkClosed => to.put_u8(record_type::CHUNK_CLOSED),
            Self::Stream(id, opened) => {
                to.put_u8(record_type::STREAM);
                id.write(to);
                opened.encode(FORM, to);
            }
            Self::Mark { key, mark, indexed } => {
                to.put_u8(record_type::MARK);
                MarkFields {
                    key: *key,
                    file: mark.at.file,
                    packets: mark.at.packets,
                    seq: mark.seq,
                    indexed_file: indexed.file,
                    indexed_packets: indexed.packets,
                }
                .write(to);
            }
            Self::Replacing { key, mark } => {
                to.put_u8(record_type::REPLACING);
                ReplacingFields {
                    key: *key,
                    file: mark.at.file,
                    packets: mark.at.packets,
                    seq: mark.seq,
                }
                .write(to);
            }
            Self::Rewound { key, at } => {
                to.put_u8(record_type::REWOUND);
                RewoundFields {
                    key: *key,
                    file: at.file,
                    packets: at.packets,
                }
                .write(to);
            }
            Self::Metadata { key, bytes } => {
                to.put_u8(record_type::METADATA);
                MetadataFields {
                    key: *key,
                    bytes: *bytes,
                }
                .write(to);
            }
            Self::Closed { key, at } => {
                to.put_u8(record_type::CLOSED);
                ClosedFields {
                    is_metadata: u8::from(key.is_metadata),
                    key: key.number,
                    at: *at,
                }
                .write(to);
            }
        }
    }

    /// Decodes the body of a record that is not the first of its log.
    fn decode(body: &[u8]) -> Result<Self, RecordError> {
        let mut from = body;
        let kind = u8::read(&mut from)?;
        Ok(match kind {
            record_type::CHUNK => Self::Chunk(CreateTraceChunk::decode(FORM, from)?),
            record_type::CHUNK_CLOSED => Self::ChunkClosed,
            record_type::STREAM => {
                let id = StreamId::read(&mut from)?;
                Self::Stream(id, OpenStream::decode(FORM, from)?)
            }
            record_type::MARK => {
                let fields = MarkFields::read(&mut from)?;
                Self::Mark {
                    key: fields.key,
                    mark: Mark {
                        at: FilePosition {
                            file: fields.file,
                            packets: fields.packets,
                        },
                        seq: fields.seq,
                    },
                    indexed: FilePosition {
                        file: fields.indexed_file,
                        packets: fields.indexed_packets,
                    },
                }
            }
            record_type::REPLACING => {
                let fields = ReplacingFields::read(&mut from)?;
                Self::Replacing {
                    key: fields.key,
                    mark: Mark {
                        at: FilePosition {
                            file: fields.file,
                            packets: fields.packets,
                        },
                        seq: fields.seq,
                    },
                }
            }
            record_type::REWOUND => {
                let fields = RewoundFields::read(&mut from)?;
                Self::Rewound {
                    key: fields.key,
                    at: FilePosition {
                        file: fields.file,
                        packets: fields.packets,
                    },
                }
            }
            record_type::METADATA => {
                let fields = MetadataFields::read(&mut from)?;
                Self::Metadata {
                    key: fields.key,
                    bytes: fields.bytes,
                }
            }
            record_type::CLOSED => {
                let fields = ClosedFields::read(&mut from)?;
                Self::Closed {
                    key: StreamKey {
                        is_metadata: fields.is_metadata != 0,
                        number: fields.key,
                    },
                    at: fields.at,
                }
            }
            other => return Err(RecordError::UnknownType(other)),
        })
    }
}

impl LoggedSession {
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
            session.apply(&Record::decode(body)?)?;
        }
        Ok(session)
    }

    fn decode_head(body: &[u8]) -> Result<Self, RecordError> {
        let mut from = body;
        if u8::read(&mut from)? != record_type::SESSION {
            return Err(RecordError::NoSession);
        }
        let head = SessionHead::read(&mut from)?;
        let address = u128::from(head.producer_high) << 64 | u128::from(head.producer_low);
        let limit = 1..=PATH_LIMIT;
        let directory = Text::read_terminated(&mut from, head.directory_len, "directory", limit)?;
        let created = CreateSession::decode(FORM, from)?;
        if created
            .recording
            .as_ref()
            .is_none_or(|own| own.daemon.is_nil())
        {
            return Err(RecordError::NoId);
        }
        Ok(Self {
            id: head.id,
            // An IPv4 address is logged in the form of IPv6.
            producer: Ipv6Addr::from(address).to_canonical(),
            timeout: head.timeout,
            directory: TracePath::parse(&directory).map_err(RecordError::Directory)?,
            created,
            chunk: None,
            is_chunk_closed: false,
            streams: BTreeMap::new(),
            files: LoggedFiles::default(),
        })
    }

    fn encode_head(&self, to: &mut impl BufMut) {
        let address = match self.producer {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let address = address.to_bits();
        let directory = self.directory.to_text();
        to.put_u8(record_type::SESSION);
        SessionHead {
            id: self.id,
            producer_high: u64::try_from(address >> 64).unwrap_or_default(),
            producer_low: u64::try_from(address & u128::from(u64::MAX)).unwrap_or_default(),
            timeout: self.timeout,
            directory_len: directory.terminated_len(),
        }
        .write(to);
        directory.write_terminated(to);
        self.created.encode(FORM, to);
    }

    /// The bodies of the fewest records that describe the session.
    pub(super) fn bodies(&self) -> Vec<Vec<u8>> {
        let mut head = Vec::new();
        self.encode_head(&mut head);
        // Each record follows those that it needs when it is applied.
        let mut records: Vec<_> = self.chunk.iter().cloned().map(Record::Chunk).collect();
        if self.is_chunk_closed {
            records.push(Record::ChunkClosed);
        }
        for (key, stream) in &self.streams {
            records.push(Record::Stream(stream.id, stream.opened.clone()));
            let first = stream.marks.front().filter(|_| !key.is_metadata);
            let indexed = first.map(|mark| mark.at).unwrap_or_default();
            let marks = stream.marks.iter().filter(|_| !key.is_metadata);
            records.extend(marks.map(|mark| Record::Mark {
                key: key.number,
                mark: *mark,
                indexed,
            }));
            records.extend(stream.replacing.map(|mark| Record::Replacing {
                key: key.number,
                mark,
            }));
            if key.is_metadata {
                records.push(Record::Metadata {
                    key: key.number,
                    bytes: stream.metadata_bytes,
                });
            }
            if let Some(at) = stream.closed_at {
                records.push(Record::Closed { key: *key, at });
            }
        }
        let bodies = records.iter().map(|record| {
            let mut body = Vec::new();
            record.encode(&mut body);
            body
        });
        std::iter::once(head).chain(bodies).collect()
    }

    /// Applies a change.
    ///
    /// # Errors
    /// If it does not fit the changes before. Nothing has changed then.
    pub(super) fn apply(&mut self, record: &Record) -> Result<(), RecordError> {
        match record {
            Record::Chunk(chunk) => {
                if self.chunk.is_some() {
                    return Err(RecordError::Twice);
                }
                self.chunk = Some(chunk.clone());
            }
            Record::ChunkClosed => self.is_chunk_closed = true,
            Record::Stream(id, opened) => self.add_stream(*id, opened)?,
            Record::Mark { key, mark, indexed } => {
                self.data_stream(*key)?.add_mark(*mark, *indexed)?;
            }
            Record::Replacing { key, mark } => {
                self.data_stream(*key)?.replacing = Some(*mark);
            }
            Record::Rewound { key, at } => {
                let marks = &mut self.data_stream(*key)?.marks;
                marks.retain(|mark| mark.at <= *at);
            }
            Record::Metadata { key, bytes } => {
                let key = StreamKey {
                    is_metadata: true,
                    number: *key,
                };
                self.stream_mut(key)?.metadata_bytes = *bytes;
            }
            Record::Closed { key, at } => self.stream_mut(*key)?.closed_at = Some(*at),
        }
        Ok(())
    }
}
