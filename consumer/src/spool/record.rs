//! The records of the spool's files, as doc/spool.md describes them: values and their bytes,
//! without files.

use bytes::{BufMut, Bytes};
use record_log::Magic;
use relay_proto::session::TraceFormat;
use std::time::Duration;
use wire::{ClassId, DecodeError, Field, PacketIndex, Timestamp, wire_enum, wire_struct};

use crate::queue::{SessionDescription, SessionIdentity, Step, StreamKey, TraceKey};

/// The first bytes of a session log.
pub(super) const SESSION_LOG: Magic = *b"spool-s1";

/// The first bytes of a segment.
pub(super) const SEGMENT: Magic = *b"spool-p1";

/// The last byte of each body. It is not 0: so zeros at the end of a file are never the end of a
/// whole record.
const END: u8 = 1;

/// Longest packet that a record can hold, in bytes.
pub(super) const MAX_RECORD_PACKET_BYTES: usize = record_log::MAX_BODY_BYTES - 256;

wire_enum! {
    /// The kind of a record.
    pub(super) RecordKind {
        Session = 1,
        AddTrace = 2,
        AddStream = 3,
        Metadata = 4,
        CloseStream = 5,
        End = 6,
        Acknowledged = 7,
        Segment = 16,
        Packet = 17,
        Beacon = 18,
    }
}

wire_struct! {
    /// The beginning of every record but [`RecordKind::Session`] and [`RecordKind::Acknowledged`].
    #[derive(Copy)]
    pub(super) RecordHead [16 bytes] {
        /// The number of the step in its session, from 1. Of a segment: that of its first step.
        step: u64,
        /// The number of the last step before this that is in the session log; 0: none. Without
        /// that step, this one is of no use.
        after: u64,
    }

    /// The beginning of [`RecordKind::Session`]. The name, the host and the base path follow.
    SessionHead [72 bytes] {
        producer: [u8; 16],
        id: u64,
        created: u64,
        /// The live timer in microseconds; 0: none.
        live_timer: u64,
        trace_format: TraceFormat,
        tracefile_size: u64,
        tracefile_count: u64,
        name_length: u32,
        host_length: u32,
        base_path_length: u32,
    }

    /// The beginning of [`RecordKind::AddStream`]. The channel follows.
    StreamHead [12 bytes] {
        trace: u32,
        class: ClassId,
    }

    /// A stream, and the number of one of its packets.
    #[derive(Copy)]
    Position [12 bytes] {
        stream: u32,
        seq: u64,
    }
}

/// A step that the session log keeps as long as the session is open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StateStep {
    AddTrace {
        path: String,
    },
    AddStream {
        trace: TraceKey,
        channel: String,
        class: ClassId,
    },
    Metadata {
        trace: TraceKey,
        bytes: Bytes,
    },
    /// `packets`: the number of the stream's packets.
    CloseStream {
        stream: StreamKey,
        packets: u64,
    },
    /// The frontend has ended the session; with the numbers of packets of the streams.
    End {
        positions: Positions,
    },
}

/// Positions of streams: all packets before them.
pub(super) type Positions = Vec<(StreamKey, u64)>;

/// A record of the session log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LogRecord {
    Session(SessionDescription, SessionIdentity),
    Step(RecordHead, StateStep),
    /// A relay has acknowledged the packets before these.
    Acknowledged(Positions),
}

/// A record of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SegmentRecord {
    /// The first record: the segment's number, and the numbers of the next packets of all streams.
    Segment {
        head: RecordHead,
        identity: SegmentIdentity,
        positions: Positions,
    },
    Packet {
        head: RecordHead,
        stream: StreamKey,
        seq: u64,
        index: PacketIndex,
        bytes: Bytes,
    },
    Beacon {
        head: RecordHead,
        stream: StreamKey,
        until: Timestamp,
    },
}

/// The segment that a file is, with the session that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentIdentity {
    pub(super) producer: [u8; 16],
    pub(super) id: u64,
    pub(super) number: u64,
}

impl SegmentRecord {
    pub(super) fn head(&self) -> RecordHead {
        match self {
            Self::Segment { head, .. } | Self::Packet { head, .. } | Self::Beacon { head, .. } => {
                *head
            }
        }
    }
}

/// A record's body that is not one: with a good checksum, it is that of another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("a record with another content than its kind has")]
    Content,
}

impl LogRecord {
    /// Appends the record to a file's bytes.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        let mut body = Vec::new();
        // The long part of a record is passed on as a slice, so that it is copied only once.
        let mut rest: &[u8] = &[];
        match self {
            Self::Session(description, identity) => {
                RecordKind::Session.write(&mut body);
                encode_session(description, identity, &mut body);
            }
            Self::Step(head, step) => {
                step.kind().write(&mut body);
                head.write(&mut body);
                match step {
                    StateStep::AddTrace { path } => rest = path.as_bytes(),
                    StateStep::AddStream {
                        trace,
                        channel,
                        class,
                    } => {
                        let (trace, class) = (trace.0, *class);
                        StreamHead { trace, class }.write(&mut body);
                        rest = channel.as_bytes();
                    }
                    StateStep::Metadata { trace, bytes } => {
                        trace.0.write(&mut body);
                        rest = bytes;
                    }
                    StateStep::CloseStream { stream, packets } => {
                        encode_positions(&[(*stream, *packets)], &mut body);
                    }
                    StateStep::End { positions } => encode_positions(positions, &mut body),
                }
            }
            Self::Acknowledged(positions) => {
                RecordKind::Acknowledged.write(&mut body);
                encode_positions(positions, &mut body);
            }
        }
        record_log::encode(&[&body, rest, &[END]], to);
    }

    pub(super) fn decode(body: &Bytes) -> Result<Self, RecordError> {
        let (kind, mut from) = split_kind(body)?;
        let from = &mut from;
        let record = match kind {
            RecordKind::Session => return decode_session(from),
            RecordKind::Acknowledged => return Ok(Self::Acknowledged(decode_positions(from)?)),
            _ => read_head(from)?,
        };
        let step = match kind {
            RecordKind::AddTrace => StateStep::AddTrace { path: text(from)? },
            RecordKind::AddStream => {
                let StreamHead { trace, class } = Field::read(from)?;
                StateStep::AddStream {
                    trace: TraceKey(trace),
                    class,
                    channel: text(from)?,
                }
            }
            RecordKind::Metadata => StateStep::Metadata {
                trace: TraceKey(Field::read(from)?),
                // Shares the memory of the body: metadata can have megabytes.
                bytes: body.slice_ref(from),
            },
            RecordKind::CloseStream => {
                let (stream, packets) = read_position(from)?;
                StateStep::CloseStream { stream, packets }
            }
            RecordKind::End => StateStep::End {
                positions: decode_positions(from)?,
            },
            _ => return Err(RecordError::Content),
        };
        Ok(Self::Step(record, step))
    }
}

impl StateStep {
    fn kind(&self) -> RecordKind {
        match self {
            Self::AddTrace { .. } => RecordKind::AddTrace,
            Self::AddStream { .. } => RecordKind::AddStream,
            Self::Metadata { .. } => RecordKind::Metadata,
            Self::CloseStream { .. } => RecordKind::CloseStream,
            Self::End { .. } => RecordKind::End,
        }
    }

    /// Returns the step for the uplink; none of the end of a session.
    pub(super) fn into_step(self) -> Option<Step> {
        Some(match self {
            Self::AddTrace { path } => Step::AddTrace { path },
            Self::AddStream {
                trace,
                channel,
                class,
            } => Step::AddStream {
                trace,
                channel,
                class,
            },
            Self::Metadata { trace, bytes } => Step::Metadata { trace, bytes },
            Self::CloseStream { stream, .. } => Step::CloseStream { stream },
            Self::End { .. } => return None,
        })
    }
}

impl SegmentRecord {
    /// Appends the record to a file's bytes.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        // Room for all that stands before the bytes of a packet.
        let mut body = Vec::with_capacity(128);
        let mut rest: &[u8] = &[];
        match self {
            Self::Segment {
                head,
                identity,
                positions,
            } => {
                RecordKind::Segment.write(&mut body);
                head.write(&mut body);
                identity.producer.write(&mut body);
                identity.id.write(&mut body);
                identity.number.write(&mut body);
                encode_positions(positions, &mut body);
            }
            Self::Packet {
                head,
                stream,
                seq,
                index,
                bytes,
            } => {
                RecordKind::Packet.write(&mut body);
                head.write(&mut body);
                encode_positions(&[(*stream, *seq)], &mut body);
                index.write(&mut body);
                rest = bytes;
            }
            Self::Beacon {
                head,
                stream,
                until,
            } => {
                RecordKind::Beacon.write(&mut body);
                head.write(&mut body);
                stream.0.write(&mut body);
                until.write(&mut body);
            }
        }
        record_log::encode(&[&body, rest, &[END]], to);
    }

    pub(super) fn decode(body: &Bytes) -> Result<Self, RecordError> {
        let (kind, mut from) = split_kind(body)?;
        let from = &mut from;
        let head = read_head(from)?;
        Ok(match kind {
            RecordKind::Segment => Self::Segment {
                head,
                identity: SegmentIdentity {
                    producer: Field::read(from)?,
                    id: Field::read(from)?,
                    number: Field::read(from)?,
                },
                positions: decode_positions(from)?,
            },
            RecordKind::Packet => {
                let (stream, seq) = read_position(from)?;
                Self::Packet {
                    head,
                    stream,
                    seq,
                    index: Field::read(from)?,
                    bytes: body.slice_ref(from),
                }
            }
            RecordKind::Beacon => Self::Beacon {
                head,
                stream: StreamKey(Field::read(from)?),
                until: Field::read(from)?,
            },
            _ => return Err(RecordError::Content),
        })
    }
}

/// Returns the kind of a record, and its body without kind and end.
fn split_kind(body: &[u8]) -> Result<(RecordKind, &[u8]), RecordError> {
    let Some((&END, mut body)) = body.split_last() else {
        return Err(RecordError::Content);
    };
    let kind = RecordKind::read(&mut body)?;
    Ok((kind, body))
}

/// Reads the numbers of a step. After the last of all numbers there is no next step.
fn read_head(from: &mut &[u8]) -> Result<RecordHead, RecordError> {
    let head = RecordHead::read(from)?;
    match head.step {
        u64::MAX => Err(RecordError::Content),
        _ => Ok(head),
    }
}

/// Reads a stream and the number of one of its packets, after which there is a next one.
fn read_position(from: &mut &[u8]) -> Result<(StreamKey, u64), RecordError> {
    let Position { stream, seq } = Field::read(from)?;
    match seq {
        u64::MAX => Err(RecordError::Content),
        _ => Ok((StreamKey(stream), seq)),
    }
}

fn encode_session(
    description: &SessionDescription,
    identity: &SessionIdentity,
    to: &mut impl BufMut,
) {
    let length = |text: &str| u32::try_from(text.len()).unwrap_or(u32::MAX);
    let timer = description.live_timer.map_or(0, |timer| timer.as_micros());
    let head = SessionHead {
        producer: identity.producer,
        id: identity.id,
        created: identity.created,
        live_timer: u64::try_from(timer).unwrap_or(u64::MAX),
        trace_format: description.trace_format,
        tracefile_size: description.tracefile_size,
        tracefile_count: description.tracefile_count,
        name_length: length(&description.name),
        host_length: length(&description.host),
        base_path_length: length(&description.base_path),
    };
    head.write(to);
    for text in [&description.name, &description.host, &description.base_path] {
        to.put_slice(text.as_bytes());
    }
}

fn decode_session(from: &mut &[u8]) -> Result<LogRecord, RecordError> {
    let head = SessionHead::read(from)?;
    let mut take = |length: u32| {
        let (text, rest) = from
            .split_at_checked(length as usize)
            .ok_or(RecordError::Content)?;
        *from = rest;
        text_of(text)
    };
    let name = take(head.name_length)?;
    let host = take(head.host_length)?;
    let base_path = take(head.base_path_length)?;
    let description = SessionDescription {
        name,
        host,
        base_path,
        live_timer: (head.live_timer > 0).then(|| Duration::from_micros(head.live_timer)),
        trace_format: head.trace_format,
        tracefile_size: head.tracefile_size,
        tracefile_count: head.tracefile_count,
    };
    let identity = SessionIdentity {
        producer: head.producer,
        id: head.id,
        created: head.created,
        // Only a process that finds the log of an earlier one decodes this record.
        is_recovered: true,
    };
    Ok(LogRecord::Session(description, identity))
}

fn encode_positions(positions: &[(StreamKey, u64)], to: &mut impl BufMut) {
    for &(StreamKey(stream), seq) in positions {
        Position { stream, seq }.write(to);
    }
}

/// Decodes all of the rest of a record.
fn decode_positions(from: &mut &[u8]) -> Result<Positions, RecordError> {
    let mut positions = Vec::with_capacity(from.len() / Position::SIZE);
    while !from.is_empty() {
        positions.push(read_position(from)?);
    }
    Ok(positions)
}

fn text(from: &[u8]) -> Result<String, RecordError> {
    text_of(from)
}

fn text_of(bytes: &[u8]) -> Result<String, RecordError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| RecordError::Content)
}
