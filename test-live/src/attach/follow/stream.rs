//! One stream: its tracefiles in order, and what has been read of them.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

use ctf::index::{Entry, FollowEvent};

use super::piece::{Piece, PieceError, packet_bytes};
use super::run::{Follow, MISSED, Stopped};
use super::scan::FileId;
use crate::attach::{Backlog, SourceEvent, StreamKey, TraceKey};

/// A stream that has been announced.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) key: StreamKey,
    pub(super) group: TraceKey,
    /// Its class and number, from its first packet.
    pub(super) identity: Option<(u64, u64)>,
    /// Whether its first packet has been looked at.
    pub(super) is_identified: bool,
    /// In order of time. The first is being read.
    pub(super) pieces: VecDeque<Piece>,
    /// Home and name of all pieces it has had.
    pub(super) names: BTreeSet<(PathBuf, OsString)>,
    /// Home and name without number.
    pub(super) stem: (PathBuf, String),
    /// Entries of the first piece whose packets have not been handed over.
    queue: VecDeque<Entry>,
    /// Whether an entry of the first piece has been taken.
    is_begun: bool,
    backlog: Backlog,
    /// No event from before this will come, in cycles.
    pub(super) promised: u64,
    pub(super) grown: Instant,
    /// Where the last packet begins that was found, in cycles.
    reached: u64,
    /// The scan that was the last when all pieces had been read.
    pub(super) drained: Option<u64>,
    /// Whether its index file is watched.
    is_watched: bool,
}

/// What is next for a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It has all been read for now.
    Wait,
    /// There is more, for which the reader has no room.
    Full,
    /// There is more.
    Again,
    /// It turned out to be a part of that one.
    PartOf(StreamKey),
}

impl Stream {
    pub(super) fn new(group: TraceKey, piece: Piece, backlog: Backlog) -> Self {
        let mut stream = Self {
            key: StreamKey::fresh(),
            group,
            identity: None,
            is_identified: false,
            pieces: VecDeque::new(),
            names: BTreeSet::new(),
            stem: (piece.home.clone(), piece.stem()),
            queue: VecDeque::new(),
            is_begun: false,
            backlog,
            promised: 0,
            grown: Instant::now(),
            reached: 0,
            drained: None,
            is_watched: false,
        };
        stream.insert(piece);
        stream
    }

    /// Takes a piece in, at its place in time. One without packets is the last.
    pub(super) fn insert(&mut self, mut piece: Piece) {
        piece.close();
        for other in &mut self.pieces {
            other.learn_begin();
        }
        self.names.insert((piece.home.clone(), piece.name()));
        self.drained = None;
        let from = usize::from(self.is_begun);
        let is_later = |other: &Piece| match (other.begin, piece.begin) {
            (Some(other), Some(begin)) => other > begin,
            // Entries are written in the order of packets: what has none yet is later.
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let later = self.pieces.iter().skip(from).position(is_later);
        let at = later.map_or(self.pieces.len(), |later| later + from);
        if at == 0 {
            self.is_watched = false;
            if let Some(front) = self.pieces.front_mut() {
                front.close();
            }
        }
        self.pieces.insert(at, piece);
    }

    /// Of pieces that were found without packets, the one that has got some is the earlier one.
    fn reorder(&mut self) -> Next {
        if self.is_begun || self.pieces.len() < 2 {
            return Next::Wait;
        }
        for piece in &mut self.pieces {
            piece.learn_begin();
        }
        if self.pieces.iter().all(|piece| piece.begin.is_none()) {
            return Next::Wait;
        }
        let pieces = self.pieces.make_contiguous();
        pieces.sort_by_key(|piece| (piece.begin.is_none(), piece.begin));
        self.is_watched = false;
        Next::Again
    }

    /// Whether all that has been found of it has been handed over.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    fn drop_front(&mut self) -> Option<FileId> {
        self.queue.clear();
        self.is_begun = false;
        self.is_watched = false;
        self.pieces.pop_front().map(|piece| piece.id)
    }
}

impl Follow {
    /// Hands over what is new of a stream.
    pub(super) fn visit(&mut self, stream: &mut Stream) -> Result<Next, Stopped> {
        for _ in 0..self.options.backlog.max(1) {
            if let Some(next) = stream.queue.front()
                && self.is_full(&stream.backlog, next)
            {
                return Ok(Next::Full);
            }
            if let Some(entry) = stream.queue.pop_front() {
                self.packet(stream, &entry)?;
                continue;
            }
            match self.look(stream)? {
                Next::Again => {}
                next => return Ok(next),
            }
        }
        Ok(Next::Again)
    }

    /// Whether the next packet has to wait for the reader: as long as any others of the stream do, and
    /// there are enough of them, or there is no memory for it.
    fn is_full(&self, backlog: &Backlog, next: &Entry) -> bool {
        let size = usize::try_from(packet_bytes(next)).unwrap_or(usize::MAX);
        let is_enough = backlog.len() >= self.options.backlog.max(1);
        is_enough || !backlog.is_empty() && !self.options.memory.has_room(size)
    }

    fn packet(&mut self, stream: &mut Stream, entry: &Entry) -> Result<(), Stopped> {
        let Some(piece) = stream.pieces.front_mut() else {
            return Ok(());
        };
        match piece.packet(entry, &self.options.memory) {
            Ok(packet) => {
                stream.backlog.add_packet();
                self.send_event(SourceEvent::Packet {
                    stream: stream.key,
                    packet,
                })
            }
            Err(PieceError::Bad(what)) => self.send_event(SourceEvent::Notice(what)),
            Err(PieceError::Away) => Ok(()),
        }
    }

    /// Looks into the index of the first piece.
    fn look(&mut self, stream: &mut Stream) -> Result<Next, Stopped> {
        let key = stream.key;
        let Some(piece) = stream.pieces.front_mut() else {
            return Ok(Next::Wait);
        };
        if !stream.is_watched {
            self.watch.forget(key);
            self.watch.index(&piece.index_path(), key);
            // An index file that is not there yet has no directory, perhaps.
            stream.is_watched = piece.index_path().exists();
        }
        let event = match piece.poll() {
            // What came between the look and the question is found by a second look.
            Ok(FollowEvent::None | FollowEvent::Gone) => {
                let has_next = stream
                    .pieces
                    .get(1)
                    .is_some_and(|next| next.begin.is_some());
                let Some(piece) = stream.pieces.front_mut() else {
                    return Ok(Next::Wait);
                };
                if self.may_grow(piece, stream.group, has_next) {
                    return Ok(stream.reorder());
                }
                match piece.poll() {
                    Ok(FollowEvent::None | FollowEvent::Gone) => {
                        return Ok(self.next_piece(stream));
                    }
                    event => event,
                }
            }
            event => event,
        };
        match event {
            Ok(FollowEvent::Entries(entries)) => self.entries(stream, entries),
            Ok(FollowEvent::Beacon(until)) => {
                // Only a relay that locks what it writes has any.
                if let Some(group) = self.groups.get_mut(&stream.group) {
                    group.has_locks = true;
                }
                self.promise(stream, until.0)?;
                Ok(Next::Again)
            }
            Ok(FollowEvent::None | FollowEvent::Gone) => Ok(Next::Wait),
            Err(PieceError::Bad(what)) => {
                self.send_event(SourceEvent::Notice(what))?;
                Ok(self.next_piece(stream))
            }
            Err(PieceError::Away) => Ok(self.away(stream)),
        }
    }

    fn entries(&mut self, stream: &mut Stream, entries: Vec<Entry>) -> Result<Next, Stopped> {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Ok(Next::Again);
        };
        let Some(piece) = stream.pieces.front_mut() else {
            return Ok(Next::Wait);
        };
        if first.packet.begin.0 < stream.reached {
            // Found too late: what follows it has been shown, and it was counted as lost.
            return Ok(self.next_piece(stream));
        }
        // What these packets need has been written before their entries were.
        self.grow_metadata(piece.place)?;
        self.grown(stream.group, last.packet.end.0, piece.modified());
        stream.grown = Instant::now();
        if !stream.is_identified {
            let identity = self.identity(piece, first);
            let is_it = |other: &&Stream| {
                identity.is_some() && (other.group, other.identity) == (stream.group, identity)
            };
            if let Some(whole) = self.streams.values().find(is_it) {
                return Ok(Next::PartOf(whole.key));
            }
            stream.identity = identity;
            stream.is_identified = true;
        }
        stream.is_begun = true;
        stream.reached = last.packet.begin.0;
        stream.queue.extend(entries);
        Ok(Next::Again)
    }

    /// Says that nothing from before `until` will come on the stream.
    pub(super) fn promise(&mut self, stream: &mut Stream, until: u64) -> Result<(), Stopped> {
        if until <= stream.promised {
            return Ok(());
        }
        stream.promised = until;
        self.send_event(SourceEvent::Quiet {
            stream: stream.key,
            until,
        })
    }

    fn next_piece(&mut self, stream: &mut Stream) -> Next {
        if let Some(id) = stream.drop_front() {
            self.read_all_of(id);
        }
        if stream.pieces.is_empty() {
            stream.drained = Some(self.scans);
            self.scan_wanted = true;
            return Next::Wait;
        }
        Next::Again
    }

    /// The first piece is not where it was: it has moved, or been replaced or removed.
    fn away(&mut self, stream: &mut Stream) -> Next {
        let seen = stream.pieces.front().map_or(0, |piece| piece.seen);
        // A scan may miss what moves while it looks.
        if self.scans > seen + MISSED {
            return self.next_piece(stream);
        }
        self.scan_wanted = true;
        Next::Wait
    }
}
