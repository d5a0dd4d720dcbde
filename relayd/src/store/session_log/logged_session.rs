//! A resumable session and its streams as the log of the session describes them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use relay_proto::chunk::CreateTraceChunk;
use relay_proto::resume::OpenStream;
use relay_proto::session::CreateSession;
use relay_proto::stream::AddStream;
use wire::{SeqNum, SessionId, StreamId, Text, TracePath};

use crate::limits::{MAX_JOINED_PACKETS, MAX_STREAMS};
use crate::store::log_file::RecordError;

/// Marks of a stream that may be needed: fewer than its packets without an entry, twice because
/// those are counted again at each mark only.
const MAX_MARKS: usize = 2 * MAX_JOINED_PACKETS;

/// A stream's number as its producer has chosen it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// Whether it is a metadata stream: those have numbers of their own.
    pub is_metadata: bool,
    /// The number that the producer has given to no other stream of this kind.
    pub number: u64,
}

/// A session as its log describes it.
#[derive(Debug, Clone)]
pub struct LoggedSession {
    /// Number of the session at the relay.
    pub id: SessionId,
    /// Address of the producer.
    pub producer: IpAddr,
    /// Time for which the session is kept without a connection, in seconds.
    pub timeout: u32,
    /// Directory of the session, relative to the relay's output.
    pub directory: TracePath,
    /// The command that opened the session.
    pub created: CreateSession,
    /// The chunk of the session. None: it has not been created.
    pub chunk: Option<CreateTraceChunk>,
    /// Whether the chunk has been closed, so that no stream will be added.
    pub is_chunk_closed: bool,
    /// The streams that the session has had.
    pub streams: BTreeMap<StreamKey, LoggedStream>,
    /// The files of these streams.
    pub files: LoggedFiles,
}

/// The files of the streams that a session has had: the directory and the channel of each stream.
#[derive(Debug, Clone, Default)]
pub struct LoggedFiles(BTreeSet<(Text, Text)>);

/// A stream as the log of its session describes it.
#[derive(Debug, Clone)]
pub struct LoggedStream {
    /// Number of the stream at the relay.
    pub id: StreamId,
    /// The command that added the stream.
    pub opened: OpenStream,
    /// The marks that say which packets lie where: at least the last one, and all from the first
    /// packet without an entry on.
    pub marks: VecDeque<Mark>,
    /// The first packet of a tracefile that was about to replace an older one of the same name.
    /// None: a [mark](Self::marks) says that it did.
    pub replacing: Option<Mark>,
    /// Length of the complete pieces of a metadata stream, in bytes.
    pub metadata_bytes: u64,
    /// End of a closed stream: number of the packet after its last one, or the length of the
    /// metadata in bytes. None: the stream is open.
    pub closed_at: Option<u64>,
}

/// A place in the tracefiles of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct FilePosition {
    /// Number of the tracefile among all that the stream has had.
    pub file: u64,
    /// Number of packets before it in the tracefile.
    pub packets: u64,
}

/// The packet at a position, if not the one after its predecessor: the first of a tracefile, or one
/// after lost packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Position of the packet.
    pub at: FilePosition,
    /// Sequence number of the packet.
    pub seq: SeqNum,
}

impl LoggedSession {
    /// Whether the chunk and all streams are closed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_chunk_closed && self.streams.values().all(|own| own.closed_at.is_some())
    }

    pub(super) fn add_stream(
        &mut self,
        id: StreamId,
        opened: &OpenStream,
    ) -> Result<(), RecordError> {
        if self.streams.len() >= MAX_STREAMS {
            return Err(RecordError::TooMany);
        }
        let key = StreamKey::of(opened);
        if self.streams.contains_key(&key) || !self.files.add(&opened.stream) {
            return Err(RecordError::Twice);
        }
        let begin = Mark {
            at: FilePosition::default(),
            seq: opened.first,
        };
        let stream = LoggedStream {
            id,
            opened: opened.clone(),
            marks: VecDeque::from([begin]),
            replacing: None,
            metadata_bytes: 0,
            closed_at: None,
        };
        self.streams.insert(key, stream);
        Ok(())
    }

    pub(super) fn data_stream(&mut self, number: u64) -> Result<&mut LoggedStream, RecordError> {
        let is_metadata = false;
        self.stream_mut(StreamKey {
            is_metadata,
            number,
        })
    }

    pub(super) fn stream_mut(&mut self, key: StreamKey) -> Result<&mut LoggedStream, RecordError> {
        let stream = self.streams.get_mut(&key);
        stream.ok_or(RecordError::UnknownStream)
    }
}

impl LoggedFiles {
    /// Whether a stream, open or closed, has the files of this one: only one of the two could be
    /// restored.
    #[must_use]
    pub fn contains(&self, stream: &AddStream) -> bool {
        self.0.contains(&Self::key(stream))
    }

    /// Returns false if another stream has them.
    fn add(&mut self, stream: &AddStream) -> bool {
        self.0.insert(Self::key(stream))
    }

    fn key(stream: &AddStream) -> (Text, Text) {
        let path = TracePath::parse_rooted(&stream.path).map(|path| path.to_text());
        (path.unwrap_or_default(), stream.channel.clone())
    }
}

impl StreamKey {
    /// The key of a stream that is opened.
    #[must_use]
    pub fn of(opened: &OpenStream) -> Self {
        Self {
            is_metadata: opened.stream.is_metadata(),
            number: opened.key,
        }
    }
}

impl LoggedStream {
    pub(super) fn add_mark(
        &mut self,
        mark: Mark,
        indexed: FilePosition,
    ) -> Result<(), RecordError> {
        // One at the same position is outdated: more packets were lost there. Later ones were
        // rewound.
        let kept = self.marks.partition_point(|known| known.at < mark.at);
        if kept > MAX_MARKS {
            return Err(RecordError::TooMany);
        }
        self.marks.truncate(kept);
        self.marks.push_back(mark);
        self.replacing
            .take_if(|replacing| replacing.at.file <= mark.at.file);
        // The last mark before the first packet without an entry says which number that packet has.
        let needed = self.marks.partition_point(|mark| mark.at <= indexed);
        self.marks.drain(..needed.saturating_sub(1));
        Ok(())
    }

    /// Whether many more marks may be added.
    #[must_use]
    pub fn has_room_for_marks(&self) -> bool {
        self.marks.len() < MAX_MARKS / 2
    }

    /// The packets of a tracefile whose number does not follow on that of the packet before: their
    /// places in the tracefile, and their numbers.
    #[must_use]
    pub fn seqs_in(&self, file: u64) -> Vec<(u64, SeqNum)> {
        let begin = FilePosition { file, packets: 0 };
        let marks = self.marks.iter().filter(|mark| mark.at.file == file);
        let marks = marks.filter(|mark| mark.at.packets > 0);
        let marks = marks.map(|mark| (mark.at.packets, mark.seq));
        [(0, self.seq_at(begin))].into_iter().chain(marks).collect()
    }

    /// Number of the packet at a position, up to which all packets have an entry.
    #[must_use]
    pub fn seq_at(&self, at: FilePosition) -> SeqNum {
        if let Some(replacing) = self.replacing.filter(|mark| mark.at == at) {
            return replacing.seq;
        }
        let before = self.marks.partition_point(|mark| mark.at <= at);
        let mark = before.checked_sub(1).and_then(|last| self.marks.get(last));
        match mark {
            Some(mark) if mark.at.file == at.file => {
                SeqNum(mark.seq.0.saturating_add(at.packets - mark.at.packets))
            }
            // The tracefile has fewer packets than it had: the disk has lost some. They were
            // counted before.
            _ => self.marks.front().map_or(self.opened.first, |mark| {
                let missing = mark.at.packets.saturating_sub(at.packets);
                SeqNum(mark.seq.0.saturating_sub(missing))
            }),
        }
    }
}

#[cfg(test)]
mod tests;
