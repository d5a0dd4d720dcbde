//! Rotation and closing of one stream as a state machine: when the stream enters another chunk, and
//! when it is closed. The writer reports which packets and entries it has written; the machine
//! knows neither files nor indexes, and a chunk only as `T`.

use wire::{PacketSeqNum, SeqNum};

use super::rotation::{Progress, Rotation, is_at_or_past};

/// The state of a stream between its beginning and its end.
#[derive(Debug)]
pub(super) struct Lifecycle<T> {
    phase: Phase,
    /// The boundary that the stream has not reached yet. None: no rotation is ahead.
    rotation: Option<Rotation<T>>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// No index will arrive any more, and no packet after this one.
    Closing {
        last: Option<SeqNum>,
    },
    Closed,
}

impl<T> Default for Lifecycle<T> {
    fn default() -> Self {
        Self {
            phase: Phase::Open,
            rotation: None,
            progress: Progress::default(),
        }
    }
}

impl<T> Lifecycle<T> {
    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Last packet and last entry, for the log.
    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Records that all bytes of this packet are in its tracefile.
    pub(super) fn record_packet(&mut self, seq: SeqNum) {
        self.progress.data = Some(seq);
    }

    /// Records that the entry of this packet has been written. Without the tracer's number, the
    /// last known one stays.
    pub(super) fn record_entry(&mut self, seq: SeqNum, tracer_seq: Option<PacketSeqNum>) {
        self.progress.indexed = Some(seq);
        self.progress.tracer_seq = tracer_seq.or(self.progress.tracer_seq);
    }

    /// Returns to the last packet that has its entry. A stream that was closing is open again: its
    /// producer did not learn that the relay knew of the end.
    pub(super) fn rewind(&mut self) {
        self.progress.data = self.progress.indexed;
        if !self.is_closed() {
            self.phase = Phase::Open;
        }
    }

    /// Records that no packet up to this one will arrive any more; with `is_indexed`, no index
    /// either.
    pub(super) fn skip_past(&mut self, last: SeqNum, is_indexed: bool) {
        self.progress.data = self.progress.data.max(Some(last));
        if is_indexed {
            self.progress.indexed = self.progress.indexed.max(Some(last));
        }
    }

    // Rotation.

    /// Whether a rotation is ahead: then each entry may be the last that stays in the old chunk.
    pub(super) fn has_boundary(&self) -> bool {
        self.rotation.is_some()
    }

    /// Whether the stream is to enter another chunk. A rotation to no chunk does not count: a
    /// stream that stopped without a packet may wait for it for long.
    pub(super) fn is_rotating(&self) -> bool {
        let rotation = self.rotation.as_ref();
        rotation.is_some_and(|rotation| rotation.target.is_some())
    }

    /// Begins a rotation: the stream is to enter `target` before packet `at`, by the tracer's
    /// count.
    pub(super) fn begin_rotation(&mut self, at: PacketSeqNum, target: Option<T>) {
        let before = self.rotation.as_ref();
        // The chunk stays deleted, whatever the new boundary is.
        self.rotation = Some(Rotation {
            at,
            target,
            is_from_deleted: before.is_some_and(|rotation| rotation.is_from_deleted),
        });
    }

    /// Records that the chunk which the stream is about to leave is deleted.
    pub(super) fn delete_left_chunk(&mut self) {
        if let Some(rotation) = &mut self.rotation {
            rotation.is_from_deleted = true;
        }
    }

    /// Takes the rotation if it is due. `first` is the tracer's number of the first packet that is
    /// ready for its entry. The caller [restores](Self::restore_rotation) a rotation that fails.
    pub(super) fn take_due_rotation(&mut self, first: Option<PacketSeqNum>) -> Option<Rotation<T>> {
        let progress = &self.progress;
        self.rotation
            .take_if(|rotation| rotation.is_due(progress, first))
    }

    /// Whether the first packet waits for its entry, because the stream is to take it along to the
    /// other chunk.
    pub(super) fn holds_first_entry(&self, first: Option<PacketSeqNum>) -> bool {
        let rotation = self.rotation.as_ref();
        rotation.is_some_and(|rotation| rotation.takes_first(&self.progress, first))
    }

    pub(super) fn restore_rotation(&mut self, rotation: Rotation<T>) {
        self.rotation = Some(rotation);
    }

    /// Whether a packet moves to the other chunk: all packets after the last one that has an entry
    /// do.
    pub(super) fn is_carried_over(&self, seq: SeqNum) -> bool {
        self.progress.indexed.is_none_or(|pivot| seq > pivot)
    }

    // The end.

    /// Begins to close the stream: no packet after `last` will arrive, and no index at all.
    pub(super) fn begin_closing(&mut self, last: Option<SeqNum>) {
        if self.is_open() {
            self.phase = Phase::Closing { last };
        }
    }

    /// Whether the stream is closing and its last packet has been written.
    pub(super) fn has_last_packet(&self) -> bool {
        let Phase::Closing { last } = self.phase else {
            return false;
        };
        match (self.progress.data, last) {
            // No packet is named: the stream waits only for those whose index has come.
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(data), Some(last)) => data >= last,
        }
    }

    /// Closes the stream and drops a rotation ahead. Returns whether the stream was not closed
    /// before.
    pub(super) fn close(&mut self) -> bool {
        self.rotation = None;
        std::mem::replace(&mut self.phase, Phase::Closed) != Phase::Closed
    }

    /// Whether some packet up to `last` has not been written, or its entry where there are indexes.
    /// Numbers wrap around, "none" is 2^64-1, and the lower of the two numbers decides, as with
    /// lttng-relayd.
    pub(super) fn is_pending(&self, last: Option<SeqNum>, has_indexes: bool) -> bool {
        let number = |seq: Option<SeqNum>| seq.map_or(u64::MAX, |seq| seq.0);
        let data = number(self.progress.data);
        let reached = if has_indexes {
            data.min(number(self.progress.indexed))
        } else {
            data
        };
        !is_at_or_past(reached, number(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(lifecycle: &mut Lifecycle<&str>, seq: u64) {
        lifecycle.record_packet(SeqNum(seq));
        lifecycle.record_entry(SeqNum(seq), Some(PacketSeqNum(seq)));
    }

    #[test]
    fn a_rotation_is_due_once_the_last_packet_before_the_boundary_has_its_entry() {
        let mut lifecycle = Lifecycle::default();
        written(&mut lifecycle, 0);
        lifecycle.begin_rotation(PacketSeqNum(2), Some("next"));
        lifecycle.record_packet(SeqNum(1));
        assert!(lifecycle.take_due_rotation(None).is_none());
        assert!(lifecycle.is_rotating() && lifecycle.has_boundary());
        written(&mut lifecycle, 1);
        let due = lifecycle.take_due_rotation(None).unwrap();
        assert_eq!(due.target, Some("next"));
        // The files of the other chunk could not be made.
        lifecycle.restore_rotation(due);
        assert!(lifecycle.take_due_rotation(None).is_some());
        assert!(!lifecycle.has_boundary());
        assert!(!lifecycle.is_carried_over(SeqNum(1)) && lifecycle.is_carried_over(SeqNum(2)));
    }

    #[test]
    fn a_stream_that_has_no_entry_leaves_only_a_deleted_chunk_and_takes_its_packets_along() {
        let mut lifecycle = Lifecycle::default();
        lifecycle.begin_rotation(PacketSeqNum(0), None);
        assert!(!lifecycle.is_rotating() && lifecycle.has_boundary());
        assert!(lifecycle.take_due_rotation(None).is_none());
        lifecycle.delete_left_chunk();
        // The stream was stopped, and starts again in another chunk before it has left the deleted
        // one.
        lifecycle.begin_rotation(PacketSeqNum(1), Some("next"));
        lifecycle.record_packet(SeqNum(0));
        let (before, boundary) = (Some(PacketSeqNum(0)), Some(PacketSeqNum(1)));
        assert!(!lifecycle.holds_first_entry(before) && lifecycle.holds_first_entry(boundary));
        assert!(lifecycle.take_due_rotation(before).is_none());
        assert!(lifecycle.take_due_rotation(boundary).is_some());
        assert!(lifecycle.is_carried_over(SeqNum(0)) && !lifecycle.holds_first_entry(boundary));
    }

    #[test]
    fn a_closing_stream_is_complete_when_its_last_packet_is_written() {
        let mut lifecycle = Lifecycle::<&str>::default();
        assert!(lifecycle.is_open() && !lifecycle.has_last_packet());
        lifecycle.begin_closing(Some(SeqNum(1)));
        written(&mut lifecycle, 0);
        assert!(!lifecycle.is_open() && !lifecycle.has_last_packet());
        // The first word on where the stream ends counts.
        lifecycle.begin_closing(None);
        assert!(!lifecycle.has_last_packet());
        written(&mut lifecycle, 1);
        assert!(lifecycle.has_last_packet());
        lifecycle.begin_rotation(PacketSeqNum(0), Some("next"));
        assert!(lifecycle.close() && !lifecycle.close());
        assert!(lifecycle.is_closed() && !lifecycle.has_boundary());
    }

    #[test]
    fn data_is_pending_until_packet_and_entry_are_written() {
        let mut lifecycle = Lifecycle::<&str>::default();
        let last = Some(SeqNum(3));
        // "None" has come as far as any number does.
        assert!(!lifecycle.is_pending(None, true));
        for seq in 0..4 {
            lifecycle.record_packet(SeqNum(seq));
        }
        assert!(!lifecycle.is_pending(last, false));
        lifecycle.record_entry(SeqNum(2), None);
        assert!(lifecycle.is_pending(last, true));
        lifecycle.record_entry(SeqNum(3), None);
        assert!(!lifecycle.is_pending(last, true));
    }
}
