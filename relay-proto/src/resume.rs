//! The commands of the resume extension: a session that outlives its connections. Only `relayd` and
//! `consumer` speak it; it is offered by [`RESUME`](crate::reply::RESUME).
//! (`doc/protocol-extensions.md`)

use bytes::BufMut;
use wire::{DecodeError, Field, Message, SeqNum, StreamId, wire_struct};

use crate::session::DaemonId;
use crate::stream::AddStream;
use crate::{Minor, ReturnCode};

wire_struct! {
    /// Has the relay keep the session when its connections are lost. Sent after `CREATE_SESSION`,
    /// before chunks and streams. (`MAKE_RESUMABLE`)
    #[derive(Copy)]
    pub MakeResumable [4 bytes] {
        /// How long the relay is to keep the session without a connection, in seconds. The relay
        /// has a maximum of its own.
        timeout: u32,
    }

    /// Continues a session that an earlier connection has made resumable, in place of
    /// `CREATE_SESSION`. The reply is that to `CREATE_SESSION` in its form since 2.11.
    /// (`RESUME_SESSION`)
    #[derive(Copy)]
    pub ResumeSession [24 bytes] {
        /// Id of the producer, as in `CREATE_SESSION`.
        daemon: DaemonId,
        /// Id of the session at its producer, as in `CREATE_SESSION`.
        id: u64,
    }

    /// The part of `OPEN_STREAM` before the fields of `ADD_STREAM`.
    OpenStreamHead [16 bytes] {
        key: u64,
        first: SeqNum,
    }

    /// Answers `OPEN_STREAM`.
    #[derive(Copy)]
    pub StreamOpened [20 bytes] {
        /// Id of the stream, assigned by the relay. None if the stream was refused or, with
        /// [`ReturnCode::OK`], if it has been closed already.
        stream: Option<StreamId>,
        /// Result of the command.
        code: ReturnCode,
        /// Number of the next packet that the relay expects; for a metadata stream, number of bytes
        /// that the relay has.
        next: u64,
    }

    /// Asks which packets of a stream the relay has. (`GET_POSITION`)
    #[derive(Copy)]
    pub GetPosition [8 bytes] {
        /// Id of the stream.
        stream: StreamId,
    }

    /// Answers `GET_POSITION`. For a metadata stream both positions count bytes.
    #[derive(Copy)]
    pub StreamPosition [20 bytes] {
        /// Result of the command.
        code: ReturnCode,
        /// All packets before this number are in the tracefile and have their index entry, or are
        /// lost.
        written: u64,
        /// All packets before this number are as durable as the relay makes them (`--durability`).
        /// At most `written`.
        durable: u64,
    }

    /// Tells the relay that packets will not come. (`SKIP_PACKETS`)
    #[derive(Copy)]
    pub SkipPackets [24 bytes] {
        /// Id of the stream.
        stream: StreamId,
        /// The first packet that will not come.
        first: SeqNum,
        /// Number of packets that will not come, from the first. Those of them that have arrived
        /// nevertheless, whole and with their indexes, are kept.
        count: u64,
    }
}

/// Adds a stream to a resumable session, or continues it, in place of `ADD_STREAM`. (`OPEN_STREAM`)
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenStream {
    /// Number of the stream that the producer has chosen: unique among the metadata streams of the
    /// session, or among its other streams.
    pub key: u64,
    /// Number of the first packet that the producer will send, if the relay does not know the
    /// stream. 0 for metadata.
    pub first: SeqNum,
    /// The properties of the stream, which do not change when it is continued.
    pub stream: AddStream,
}

impl Message<Minor> for OpenStream {
    const MAX_SIZE: usize = OpenStreamHead::SIZE + AddStream::MAX_SIZE;

    fn decode(minor: Minor, mut from: &[u8]) -> Result<Self, DecodeError> {
        let head = OpenStreamHead::read(&mut from)?;
        Ok(Self {
            key: head.key,
            first: head.first,
            // The fields of `ADD_STREAM` are the rest, in the form of the version.
            stream: AddStream::decode(minor, from)?,
        })
    }

    fn encode(&self, minor: Minor, to: &mut impl BufMut) {
        OpenStreamHead {
            key: self.key,
            first: self.first,
        }
        .write(to);
        self.stream.encode(minor, to);
    }
}
