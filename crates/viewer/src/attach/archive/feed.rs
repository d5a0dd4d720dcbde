//! One stream: the blocks that have not been fetched, and those that are on their way.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use archive::name::SessionKey;
use archive::record::PacketsRecord;
use archive::session::BlockUse;
use ctf::Timescale;
use wire::{Bits, PacketIndex, PacketSeqNum, Timestamp};

use super::fetch::{FetchedBlock, MAX_RUN_BYTES, Run, has_room};
use crate::attach::{Backlog, StreamKey};
use crate::time::Nanoseconds;

/// By this, copies of a packet are recognized: its number, times and size.
pub(super) type PacketIdentity = (PacketSeqNum, Timestamp, Timestamp, Bits);

/// A request for blocks.
#[derive(Debug)]
struct Request {
    /// The memory that the blocks take when they are decoded.
    bytes: u64,
    /// Absent until they arrive.
    blocks: Option<Vec<FetchedBlock>>,
}

/// The objects of a session, as the blocks of a feed count them.
#[derive(Debug)]
struct SessionObjects {
    /// Number of the first one.
    first: usize,
    session: SessionKey,
    names: Arc<[Arc<str>]>,
}

/// A stream, or a piece of one until it is known which pieces belong together.
#[derive(Debug)]
pub(super) struct Feed {
    /// Number of the session among those that are read.
    pub(super) session: usize,
    /// Number of the trace in the session's view.
    pub(super) trace_view: usize,
    /// Number of the stream in its session.
    pub(super) number: u64,
    /// The stream's name for users: the path of its trace and its file.
    pub(super) name: String,
    /// The number of its packets that no object has.
    pub(super) missing: u64,
    /// The objects with the blocks: those of the session, and of the sessions of other pieces.
    objects: Vec<SessionObjects>,
    /// The blocks that have not been requested.
    pub(super) blocks: VecDeque<BlockUse>,
    /// How cycles become nanoseconds. Absent before the metadata is known, or without a clock.
    pub(super) scale: Option<Timescale>,
    /// The key in all source events.
    pub(super) key: StreamKey,
    pub(super) backlog: Backlog,
    /// The end of what has been requested, in cycles.
    reached: Option<u64>,
    /// The first block, whether it has been requested or not.
    pub(super) first: Option<BlockUse>,
    /// The packets that have been sent on, if other streams of the session may have copies.
    pub(super) sent: Option<HashSet<PacketIdentity>>,
    /// What has been requested and not been sent on, the oldest first.
    requested: VecDeque<Request>,
    /// Number of the first of these requests among all of the stream.
    first_request: u64,
    /// The memory that they take.
    requested_bytes: u64,
    /// Whether the stream has been announced, and its end has not.
    pub(super) is_announced: bool,
    /// Number of its trace among those that were announced. Absent before.
    pub(super) open_trace: Option<usize>,
}

impl Feed {
    /// A stream of which nothing has been requested.
    pub(super) fn new(
        (session, trace_view, number): (usize, usize, u64),
        key: SessionKey,
        name: String,
        objects: Arc<[Arc<str>]>,
        blocks: VecDeque<BlockUse>,
        backlog: Backlog,
    ) -> Self {
        let first = blocks.front().cloned();
        let objects = SessionObjects {
            first: 0,
            session: key,
            names: objects,
        };
        Self {
            session,
            trace_view,
            number,
            name,
            missing: 0,
            objects: vec![objects],
            blocks,
            scale: None,
            key: StreamKey::fresh(),
            backlog,
            reached: None,
            first,
            sent: None,
            requested: VecDeque::new(),
            first_request: 0,
            requested_bytes: 0,
            is_announced: false,
            open_trace: None,
        }
    }

    /// The times of the first and the last packet that have not been requested, if packets say
    /// them.
    pub(super) fn span(&self) -> Option<(Nanoseconds, Nanoseconds)> {
        let scale = self.scale.as_ref()?;
        let records = self.blocks.iter().map(|used| &used.block.record);
        let begin = records.clone().map(|record| record.begin.0).min()?;
        let end = records.map(|record| record.end.0).max()?;
        let time = |cycles| Nanoseconds::of_cycles(scale, cycles);
        Some((time(begin)?, time(end)?))
    }

    /// Leaves out the blocks that have nothing between these times.
    pub(super) fn select_times(&mut self, begin: Option<Nanoseconds>, end: Option<Nanoseconds>) {
        let Some(scale) = self.scale.clone() else {
            return;
        };
        let time = |cycles| Nanoseconds::of_cycles(&scale, cycles);
        self.blocks.retain(|used| {
            let PacketsRecord {
                begin: of, end: to, ..
            } = &used.block.record;
            // Packets that do not say their times may have any.
            let (Some(of), Some(to)) = (time(of.0), time(to.0)) else {
                return true;
            };
            let has_times = used.block.record.end.0 != 0;
            !has_times || begin.is_none_or(|begin| to >= begin) && end.is_none_or(|end| of <= end)
        });
    }

    /// Adds the blocks of another piece of the stream, which is read no further by itself.
    pub(super) fn append(&mut self, other: &mut Self) {
        let mut blocks = std::mem::take(&mut other.blocks);
        if !other.requested.is_empty() {
            // Requested early, for a feed whose packets are sent nowhere.
            if let Some(first) = other.first.take() {
                blocks.push_front(first);
            }
        }
        if self.session != other.session {
            let last = self.objects.last();
            let first = last.map_or(0, |last| last.first + last.names.len());
            for used in &mut blocks {
                used.block.object += first;
            }
            let objects = std::mem::take(&mut other.objects).into_iter();
            self.objects.extend(objects.map(|objects| SessionObjects {
                first: first + objects.first,
                ..objects
            }));
        }
        self.blocks.append(&mut blocks);
        self.missing += std::mem::take(&mut other.missing);
    }

    /// The session and the name of the object that has a block.
    pub(super) fn object_of(&self, used: &BlockUse) -> Option<(SessionKey, &Arc<str>)> {
        let number = used.block.object;
        let mut objects = self.objects.iter().rev();
        let objects = objects.find(|objects| objects.first <= number)?;
        let name = objects.names.get(number - objects.first)?;
        Some((objects.session, name))
    }

    /// Whether a packet is a copy of one that has been sent. If not, it is remembered.
    pub(super) fn is_copy(&mut self, index: &PacketIndex) -> bool {
        let (Some(sent), Some(number)) = (&mut self.sent, index.packet_seq) else {
            return false;
        };
        !sent.insert((number, index.begin, index.end, index.packet_size))
    }

    /// The time from which on the events of other streams wait for the next block. Absent if that
    /// is not known.
    pub(super) fn needed_at(&self) -> Option<Nanoseconds> {
        let cycles = self.reached.or_else(|| self.begin())?;
        Nanoseconds::of_cycles(self.scale.as_ref()?, cycles)
    }

    /// The time at which the first packet that has not been requested begins, in cycles.
    pub(super) fn begin(&self) -> Option<u64> {
        self.blocks.front().map(|used| used.block.record.begin.0)
    }

    /// The bytes of packets that have been requested and not been decoded by the mux.
    pub(super) fn bytes_ahead(&self) -> u64 {
        self.requested_bytes + self.backlog.bytes() as u64
    }

    /// Whether something that has been requested has not been decoded.
    pub(super) fn has_ahead(&self) -> bool {
        !self.requested.is_empty() || !self.backlog.is_empty()
    }

    /// Whether everything has been sent on.
    pub(super) fn is_drained(&self) -> bool {
        self.blocks.is_empty() && self.requested.is_empty()
    }

    /// The decoded bytes of the next block.
    pub(super) fn next_bytes(&self) -> u64 {
        let next = self.blocks.front();
        next.map_or(0, |used| u64::from(used.block.record.block.raw))
    }

    /// Takes the next blocks, up to `limit` decoded bytes if there are several. Returns the number
    /// of the request, too.
    pub(super) fn begin_request(&mut self, limit: u64) -> Option<(u64, Run)> {
        let first = self.blocks.pop_front()?;
        let (session, object) = self.object_of(&first)?;
        let object = Arc::clone(object);
        let place = first.block.record.block;
        let (mut stored, mut bytes) = (u64::from(place.stored), u64::from(place.raw));
        let mut blocks = vec![first];
        while let (Some(last), Some(next)) = (blocks.last(), self.blocks.front()) {
            let (before, place) = (last.block.record.block, next.block.record.block);
            if next.block.object != last.block.object
                || !before.is_followed_by(&place)
                || !has_room(stored, bytes, &place, limit.min(MAX_RUN_BYTES))
            {
                break;
            }
            stored += u64::from(place.stored);
            bytes += u64::from(place.raw);
            blocks.extend(self.blocks.pop_front());
        }
        let ends = blocks.iter().map(|used| used.block.record.end.0);
        self.reached = self.reached.max(ends.max());
        self.requested_bytes += bytes;
        self.requested.push_back(Request {
            bytes,
            blocks: None,
        });
        let number = self.first_request + self.requested.len() as u64 - 1;
        let run = Run {
            session,
            object,
            blocks,
        };
        Some((number, run))
    }

    /// Keeps what has arrived for a request.
    pub(super) fn receive(&mut self, number: u64, blocks: Vec<FetchedBlock>) {
        let place = number.checked_sub(self.first_request);
        let place = place.and_then(|place| usize::try_from(place).ok());
        if let Some(requested) = place.and_then(|place| self.requested.get_mut(place)) {
            requested.blocks = Some(blocks);
        }
    }

    /// Takes the oldest blocks, if they have arrived, and the memory for which they were requested.
    pub(super) fn take_received(&mut self) -> Option<(u64, Vec<FetchedBlock>)> {
        let request = self.requested.front_mut()?;
        let (bytes, blocks) = (request.bytes, request.blocks.take()?);
        self.requested.pop_front();
        self.first_request += 1;
        self.requested_bytes -= bytes;
        Some((bytes, blocks))
    }
}
