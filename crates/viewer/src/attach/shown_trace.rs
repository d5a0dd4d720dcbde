//! What has been handed over of a trace and of its streams, on all connections to a relay.

use viewer_proto::session::Seek;

use super::read_position::ReadPosition;
use super::{Backlog, SourceEvent, StreamKey, TraceKey};

/// Length in bytes of the metadata by which a trace that has ended is recognized: the UUID is in
/// the first few hundred.
const METADATA_PREFIX_BYTES: usize = 4096;

/// Largest number of bytes of a trace's metadata that are kept, to compare them after a reconnect:
/// the limit of what is decoded.
const MAX_METADATA_BYTES: usize = 64 << 20;

/// Largest number of streams that have ended and are remembered, of one trace that is followed and
/// of all that have ended.
pub(super) const MAX_ENDED_STREAMS: usize = 4096;

/// Whether the receiver of the events knows of a trace or stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Unannounced,
    Followed,
    Ended,
}

/// What has been handed over of a trace, on all connections.
#[derive(Debug)]
pub(super) struct ShownTrace {
    pub(super) key: TraceKey,
    pub(super) phase: Phase,
    /// The name of the trace's session for users.
    pub(super) session: String,
    /// The trace's name for users: the session's, and its path.
    pub(super) name: String,
    /// The place where the session of the trace was attached first.
    pub(super) seek: Seek,
    /// The metadata that has been handed over, or as much of it as is kept.
    metadata: Vec<u8>,
    /// The length in bytes of the metadata that has been handed over.
    metadata_len: usize,
    /// Bytes at the end of the metadata that the relay has not sent on this connection. They are
    /// not handed over again when it sends them.
    unrepeated: usize,
    /// The first time, in cycles, that was handed over of any stream of the trace.
    first_time: Option<u64>,
    /// The streams that are not attached now.
    streams: Vec<ShownStream>,
}

/// What has been handed over of a stream, on all connections.
#[derive(Debug)]
pub(super) struct ShownStream {
    pub(super) key: StreamKey,
    pub(super) phase: Phase,
    /// The stream's name for users: its path and channel.
    pub(super) name: String,
    pub(super) backlog: Backlog,
    pub(super) position: ReadPosition,
    /// The watermark that has been passed on, in cycles.
    pub(super) watermark: Option<u64>,
    /// Whether the other streams do not wait for this one, because it has been gone for long.
    pub(super) is_released: bool,
    /// Whether the relay has broken the protocol on the stream: nothing more of it is passed on,
    /// and only its end is awaited.
    pub(super) is_broken: bool,
}

/// How a trace's metadata compares with that of a retained trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetadataMatch {
    None,
    /// The metadata is the same so far, and there is less of it.
    Prefix,
    Whole,
}

impl ShownTrace {
    /// A trace of which nothing has been handed over.
    pub(super) fn new(session: String, name: String, seek: Seek) -> Self {
        Self {
            key: TraceKey::fresh(),
            phase: Phase::Unannounced,
            session,
            name,
            seek,
            metadata: Vec::new(),
            metadata_len: 0,
            unrepeated: 0,
            first_time: None,
            streams: Vec::new(),
        }
    }

    /// Whether any metadata of the trace has been handed over.
    pub(super) fn has_metadata(&self) -> bool {
        self.metadata_len > 0
    }

    /// The metadata that has been handed over, or as much of it as is kept.
    pub(super) fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Takes the next metadata of the relay. Returns what has not been handed over, and records it.
    pub(super) fn take_new_metadata(&mut self, mut metadata: Vec<u8>) -> Vec<u8> {
        let repeated = self.unrepeated.min(metadata.len());
        self.unrepeated -= repeated;
        let new = metadata.split_off(repeated);
        self.record_metadata(&new);
        new
    }

    /// Records that more metadata is handed over.
    pub(super) fn record_metadata(&mut self, bytes: &[u8]) {
        self.metadata_len += bytes.len();
        let room = MAX_METADATA_BYTES.saturating_sub(self.metadata.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.metadata.extend_from_slice(kept);
    }

    /// Keeps only as much of the metadata as tells the trace, which has ended, from others.
    pub(super) fn truncate_metadata(&mut self) {
        self.metadata.truncate(METADATA_PREFIX_BYTES);
        // Hundreds of such traces are remembered.
        self.metadata.shrink_to_fit();
    }

    /// Compares metadata from its beginning with what has been handed over.
    pub(super) fn compare_metadata(&self, metadata: &[u8]) -> MetadataMatch {
        let known = &self.metadata;
        if !known.starts_with(metadata) && !metadata.starts_with(known) {
            return MetadataMatch::None;
        }
        // Of a trace that has ended, the beginning is enough.
        let needed = match self.phase {
            Phase::Ended => known.len(),
            Phase::Unannounced | Phase::Followed => self.metadata_len,
        };
        if metadata.len() < needed {
            return MetadataMatch::Prefix;
        }
        MetadataMatch::Whole
    }

    /// Takes the metadata that a new connection has from the beginning. Returns what has not been
    /// handed over, and records it.
    pub(super) fn continue_metadata(&mut self, metadata: Vec<u8>) -> Vec<u8> {
        if self.phase == Phase::Ended {
            // It is handed over again, all of it, if there is anything new of the trace.
            self.metadata.clear();
            self.metadata_len = 0;
            self.unrepeated = 0;
            self.record_metadata(&metadata);
            return Vec::new();
        }
        self.unrepeated = self.metadata_len;
        self.take_new_metadata(metadata)
    }

    /// Records a time, in cycles, that has been handed over of a stream.
    pub(super) fn record_time(&mut self, time: u64) {
        let first = self.first_time.get_or_insert(time);
        *first = time.min(*first);
    }

    /// Whether anything has been handed over of the streams of the trace.
    pub(super) fn has_times(&self) -> bool {
        self.first_time.is_some()
    }

    /// The time, in cycles, before which packets of its streams were there before the viewer, and
    /// are not wanted. Absent if all packets are wanted.
    pub(super) fn wanted_from(&self) -> Option<u64> {
        self.first_time.filter(|_| self.seek == Seek::Last)
    }

    /// Keeps a stream that is not attached any more.
    pub(super) fn retain_stream(&mut self, stream: ShownStream) {
        if stream.phase == Phase::Unannounced {
            return;
        }
        let is_ended = |known: &ShownStream| known.phase == Phase::Ended;
        if is_ended(&stream) && self.streams.len() >= MAX_ENDED_STREAMS {
            let oldest = self.streams.iter().position(is_ended);
            oldest.map(|oldest| self.streams.remove(oldest));
        }
        self.streams.push(stream);
    }

    /// The number of streams that are not attached.
    pub(super) fn retained_streams(&self) -> usize {
        self.streams.len()
    }

    /// Finds the retained stream of this name, and removes it. One that is followed is preferred.
    pub(super) fn take_stream(&mut self, name: &str) -> Option<ShownStream> {
        let streams = self.streams.iter().enumerate();
        let found = streams
            .filter(|(_, known)| known.name == name)
            .max_by_key(|(place, known)| {
                (known.phase == Phase::Followed, std::cmp::Reverse(*place))
            })
            .map(|(place, _)| place)?;
        Some(self.streams.remove(found))
    }

    /// Ends the trace and its streams, none of which is attached. Returns the events that say so.
    pub(super) fn end(&mut self) -> Vec<SourceEvent> {
        let mut events = Vec::new();
        for stream in self.followed_streams() {
            stream.phase = Phase::Ended;
            let stream = stream.key;
            events.push(SourceEvent::StreamEnd { stream });
        }
        if self.phase == Phase::Followed {
            events.push(SourceEvent::TraceEnd { trace: self.key });
        }
        self.phase = Phase::Ended;
        events
    }

    /// The streams that are followed and not attached.
    pub(super) fn followed_streams(&mut self) -> impl Iterator<Item = &mut ShownStream> {
        let streams = self.streams.iter_mut();
        streams.filter(|stream| stream.phase == Phase::Followed)
    }

    /// Whether there are streams that are followed and not attached.
    pub(super) fn has_followed_streams(&self) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|stream| stream.phase == Phase::Followed)
    }
}

impl ShownStream {
    /// A stream of which nothing has been handed over.
    pub(super) fn new(name: String, backlog: Backlog) -> Self {
        Self {
            key: StreamKey::fresh(),
            phase: Phase::Unannounced,
            name,
            backlog,
            position: ReadPosition::default(),
            watermark: None,
            is_released: false,
            is_broken: false,
        }
    }
}
