//! A stream of a resumable session: which packets it has, and how it continues when its producer
//! has another connection.

use tracing::{debug, warn};
use wire::{ChunkId, SeqNum, StreamId};

use super::StreamWriter;
use crate::ingest::error::IngestError;
use crate::ingest::index_joiner::IndexJoiner;
use crate::limits::MAX_PENDING_PACKETS;
use crate::store::archive_log::StreamNumberLog;
use crate::store::session_log::{FilePosition, Mark, StreamLog};

/// The progress of a stream, as numbers of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    /// All packets before this one have their entries, or are lost.
    pub written: SeqNum,
    /// All packets before this one are as durable as `--durability` says.
    pub durable: SeqNum,
}

impl StreamWriter {
    /// Makes the stream one of a resumable session, whose changes are logged. `next` is the first
    /// packet to come.
    pub fn make_resumable(&mut self, log: StreamLog, next: SeqNum) {
        self.log = Some(log);
        self.restart_at(next);
    }

    /// Continues a stream that a relay before this one has written: all packets before `next` are
    /// in its files.
    pub fn restore(&mut self, log: StreamLog, next: SeqNum) {
        self.make_resumable(log, next);
        if let Some(last) = next.0.checked_sub(1) {
            self.lifecycle.skip_past(SeqNum(last), true);
        }
        if self.packets.files.end().packets == 0 {
            // Perhaps the log has not said yet that this tracefile was begun.
            self.add_mark(next);
        }
    }

    fn restart_at(&mut self, next: SeqNum) {
        self.skipped.clear();
        self.packets.reorder.restart_at(next);
        self.joiner = Some(IndexJoiner::starting_at(next));
    }

    /// The progress of the stream, after ready entries have been written.
    pub fn positions(&mut self) -> Positions {
        if let Err(error) = self.flush_entries() {
            warn!(stream = %self.id, %error, "index entries not written: reported as missing");
        }
        let written = self.written();
        Positions {
            written,
            durable: self.durable(written),
        }
    }

    /// The first packet without an entry that is not lost.
    fn written(&self) -> SeqNum {
        let next = self.packets.reorder.next().unwrap_or_default();
        let pending = self.joiner.as_ref().and_then(IndexJoiner::first_pending);
        pending.map_or(next, |pending| pending.min(next))
    }

    /// The first packet that is not as durable as `--durability` says, of those before `written`.
    /// What write(2) has written survives the end of every process.
    #[expect(
        clippy::unused_self,
        reason = "levels that survive a power failure depend on the stream"
    )]
    fn durable(&self, written: SeqNum) -> SeqNum {
        written
    }

    /// Returns to the end of the last packet that has its entry, because the connections of the
    /// producer are lost: all packets after it will be sent again, when the stream is
    /// [reopened](Self::reopen). Returns the number of the next packet.
    ///
    /// # Errors
    /// If the files cannot be truncated, or the log cannot be written.
    pub fn rewind(&mut self) -> Result<SeqNum, IngestError> {
        self.is_detached = true;
        // What was kept is sent again with its packet.
        self.end_pause();
        self.drop_in_flight();
        if let Err(error) = self.flush_entries() {
            debug!(stream = %self.id, %error, "index entries not written: their packets are sent again");
        }
        // The entries may have paused the stream again.
        self.end_pause();
        let next = self.written();
        if self.lifecycle.is_closed() {
            return Ok(next);
        }
        let dropped = self.packets.files.drop_unindexed();
        dropped.map_err(|error| self.store_error(error))?;
        self.restart_at(next);
        self.count_early_packets();
        self.lifecycle.rewind();
        self.beacon_on_disk = None;
        let at = self.packets.files.end();
        // Marks of packets that were removed would be wrong for those that follow.
        self.unlogged.retain(|mark| mark.at <= at);
        if let Some(log) = &self.log {
            let logged = log.rewind(at);
            logged.map_err(|error| self.store_error(error))?;
        }
        Ok(next)
    }

    /// Rewinds the stream as [`rewind`](Self::rewind) does, for a producer that continues it and
    /// names it by `wire_id` from now on. What connections before still send is dropped.
    pub fn reopen(&mut self, wire_id: StreamId) -> Result<SeqNum, IngestError> {
        self.wire_id = wire_id;
        let next = self.rewind()?;
        self.is_detached = false;
        Ok(next)
    }

    /// Whether what arrives for a stream of this number was sent on a connection that has been
    /// lost.
    pub(super) fn is_outdated(&self, named: StreamId) -> bool {
        named != self.wire_id || self.is_detached
    }

    /// Number by which the producer names the stream.
    #[must_use]
    pub fn wire_id(&self) -> StreamId {
        self.wire_id
    }

    /// Gives up those of `count` packets from `first` on that have not arrived: the producer has
    /// dropped them. Packets before `first` may still be in flight.
    ///
    /// # Errors
    /// If the numbers are invalid, or early packets, their entries or the log cannot be written.
    pub fn skip_packets(&mut self, first: SeqNum, count: u64) -> Result<(), IngestError> {
        let end = first.0.checked_add(count).filter(|end| *end < u64::MAX);
        // Limited, so that a producer cannot make the list grow without sending packets.
        let (Some(end), true) = (end, self.skipped.len() < MAX_PENDING_PACKETS) else {
            return Err(IngestError::Unnumbered(self.id));
        };
        self.skipped.push((first, SeqNum(end)));
        self.give_up_skipped();
        self.write_ready_packets()?;
        self.flush_entries()?;
        self.log_marks()?;
        self.close_if_done();
        Ok(())
    }

    /// Gives up the packets that the producer has dropped, once they are the next in sequence.
    pub(super) fn give_up_skipped(&mut self) {
        while let Some(next) = self.packets.reorder.next() {
            self.skipped.retain(|(_, end)| *end > next);
            let mut skipped = self.skipped.iter();
            let range = skipped.find(|(first, _)| *first <= next).copied();
            // A packet that is arriving has not been dropped.
            let Some((_, end)) = range.filter(|_| !self.packets.has_in_flight()) else {
                break;
            };
            let Some(lost) = self.packets.reorder.give_up_missing(Some(end)) else {
                break;
            };
            self.record_lost(lost);
            let is_idle = self.joiner.as_ref().is_some_and(IndexJoiner::is_empty);
            self.lifecycle.skip_past(lost.last, is_idle);
        }
    }

    /// Closes the files for a relay that ends: the next one continues the stream. Viewers are not
    /// told that it has ended.
    pub fn suspend(&mut self) {
        if let Err(error) = self.rewind() {
            warn!(stream = %self.id, %error, "packets without an index not removed: the next start does it");
        }
        // Otherwise the log would say that the stream is closed.
        self.log = None;
        self.end_writing();
    }

    /// Closes a stream that was restored for viewers only: its producer has closed it, as the log
    /// says already.
    pub fn close_restored(&mut self) {
        self.log = None;
        self.close_now();
    }

    // The log.

    /// Notes that the next packet in the tracefiles is `seq`, which is not the one after its
    /// predecessor there, or begins a tracefile.
    pub(super) fn add_mark(&mut self, seq: SeqNum) {
        if let Some(log) = &self.number_log
            && let Some((chunk, file)) = self.packets.files.tracefile()
        {
            log.mark(chunk, file, self.packets.files.end().packets, seq);
        }
        if self.log.is_some() {
            let at = self.packets.files.end();
            self.unlogged.retain(|mark| mark.at < at);
            self.unlogged.push(Mark { at, seq });
        }
    }

    /// Has the numbers of packets logged for the archive, from the first one on. Returns whether
    /// the names of tracefiles have numbers.
    pub fn log_numbers(&mut self, log: StreamNumberLog) -> bool {
        if let Some((chunk, file)) = self.packets.files.tracefile() {
            // Almost all producers begin with 0.
            log.mark(chunk, file, 0, SeqNum(0));
        }
        self.number_log = Some(log);
        self.packets.files.are_numbered()
    }

    /// Logs the number of the first packet of the stream, unless it is 0.
    pub(super) fn log_first_number(&self, seq: SeqNum) {
        if let Some(log) = &self.number_log
            && seq > SeqNum(0)
            && self.lifecycle.progress().data.is_none()
            && let Some((chunk, file)) = self.packets.files.tracefile()
        {
            log.mark(chunk, file, 0, seq);
        }
    }

    /// Logs the number of the first packet that the stream will have in another chunk. To be called
    /// before it has a file there.
    pub(super) fn log_number_in(&mut self, chunk: Option<ChunkId>) {
        let Some(log) = &self.number_log else { return };
        let lifecycle = &self.lifecycle;
        let places = self.joiner.iter_mut().flat_map(IndexJoiner::places_mut);
        let mut seqs = places.map(|(seq, _)| seq);
        let carried = seqs.find(|seq| lifecycle.is_carried_over(*seq));
        if let Some(seq) = carried.or(self.packets.reorder.next()) {
            log.mark(chunk, 0, 0, seq);
        }
    }

    /// Logs that the tracefile that packet `seq` begins is about to replace an older one. Otherwise
    /// the next relay would find fewer packets than the log says, and ask for those that are gone.
    pub(super) fn log_replacing(&mut self, seq: SeqNum) -> Result<(), IngestError> {
        if self.log.is_none() {
            return Ok(());
        }
        self.log_marks()?;
        let at = FilePosition {
            file: self.packets.files.end().file + 1,
            packets: 0,
        };
        let logged = self.log.as_ref().map(|log| log.replacing(Mark { at, seq }));
        logged
            .transpose()
            .map_err(|error| self.store_error(error))?;
        Ok(())
    }

    /// Logs the marks: an entry must not be written before the log says which packet it belongs to.
    pub(super) fn log_marks(&mut self) -> Result<(), IngestError> {
        if self.unlogged.is_empty() {
            return Ok(());
        }
        let indexed = self.first_needed_mark();
        while let Some(mark) = self.unlogged.first().copied() {
            if let Some(log) = &self.log {
                let logged = log.mark(mark, indexed);
                logged.map_err(|error| self.store_error(error))?;
            }
            // One by one, so that none is logged twice when the next one fails.
            self.unlogged.remove(0);
        }
        Ok(())
    }

    /// The position up to which the log needs only the last mark.
    fn first_needed_mark(&self) -> FilePosition {
        let log = self.log.as_ref();
        // The next relay archives what this one has not: it needs to know the number of each
        // packet.
        if self.published.keeps_seqs() && log.is_some_and(StreamLog::has_room_for_marks) {
            return FilePosition::default();
        }
        self.packets.files.indexed_end()
    }

    /// Logs that the stream is closed. If that fails, the next relay closes it again.
    pub(super) fn log_close(&mut self) {
        let at = self.written().0;
        let logged = self.log.as_ref().map_or(Ok(()), |log| log.close(at));
        if let Err(error) = logged {
            warn!(stream = %self.id, %error, "end of the stream not logged");
        }
    }
}
