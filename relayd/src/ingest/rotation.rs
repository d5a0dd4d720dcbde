//! The boundary at which a stream enters another chunk. Bytes and indexes of the packets before the
//! boundary may still be in flight when the producer names it, each on its own connection.

use wire::{PacketSeqNum, SeqNum};

/// The rotation of a stream to another chunk, or to none. `T` stands for the chunk.
#[derive(Debug)]
pub(super) struct Rotation<T> {
    /// The first packet of the other chunk, by the tracer's count.
    pub(super) at: PacketSeqNum,
    /// The chunk that the stream enters. None: the stream is in no chunk afterwards.
    pub(super) target: Option<T>,
    /// Whether the chunk that the stream leaves is deleted: then no packet from the boundary on may
    /// stay in it.
    pub(super) is_from_deleted: bool,
}

/// Last packet and last entry that a stream has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The last packet whose bytes are all in its tracefile. None: no packet has arrived.
    pub(super) data: Option<SeqNum>,
    /// The last packet whose entry is in its index file.
    pub(super) indexed: Option<SeqNum>,
    /// The tracer's number of the packet of the last entry. None: the producer sends none, or no
    /// entry has been written.
    pub(super) tracer_seq: Option<PacketSeqNum>,
}

impl<T> Rotation<T> {
    /// Whether the last packet that stays in the old chunk has its entry. Then the stream enters
    /// the other chunk, with the packets whose bytes have arrived already.
    ///
    /// A stream without any entry waits for one, whatever the boundary: as with lttng-relayd, its
    /// first packet stays in the old chunk, so that no empty file remains there. From a chunk that
    /// is deleted it takes that packet along, unless the packet is before the boundary.
    pub(super) fn is_due(&self, progress: &Progress, first: Option<PacketSeqNum>) -> bool {
        match progress.tracer_seq {
            Some(last) => is_at_or_past(last.0.wrapping_add(1), self.at.0),
            None => self.takes_first(progress, first),
        }
    }

    /// Whether the first packet of the stream, whose tracer's number is known once its entry is
    /// ready, is to be taken along. No packet is before boundary 0.
    pub(super) fn takes_first(&self, progress: &Progress, first: Option<PacketSeqNum>) -> bool {
        self.is_from_deleted
            && progress.indexed.is_none()
            && (self.at.0 == 0 || first.is_some_and(|first| is_at_or_past(first.0, self.at.0)))
    }
}

/// Whether `number` is `other` or later, on a counter that wraps around.
pub(super) fn is_at_or_past(number: u64, other: u64) -> bool {
    number.wrapping_sub(other).cast_signed() >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_due(at: u64, tracer_seq: Option<u64>) -> bool {
        let rotation = Rotation::<()> {
            at: PacketSeqNum(at),
            target: None,
            is_from_deleted: false,
        };
        let progress = Progress {
            tracer_seq: tracer_seq.map(PacketSeqNum),
            ..Progress::default()
        };
        rotation.is_due(&progress, None)
    }

    #[test]
    fn a_stream_goes_over_when_the_last_packet_before_the_boundary_has_its_entry() {
        assert!(!is_due(3, Some(1)));
        assert!(is_due(3, Some(2)));
        assert!(is_due(1, Some(2)));
    }

    #[test]
    fn a_stream_without_any_entry_waits_for_one() {
        assert!(!is_due(0, None));
        assert!(is_due(0, Some(0)));
    }

    #[test]
    fn a_stream_leaves_a_deleted_chunk_before_its_first_packet_from_the_boundary_on() {
        let is_due = |at, first: Option<u64>| {
            let rotation = Rotation::<()> {
                at: PacketSeqNum(at),
                target: None,
                is_from_deleted: true,
            };
            rotation.is_due(&Progress::default(), first.map(PacketSeqNum))
        };
        assert!(is_due(0, None));
        assert!(!is_due(1, None) && !is_due(1, Some(0)));
        assert!(is_due(1, Some(1)));
    }

    #[test]
    fn packet_numbers_may_jump_over_the_boundary_and_wrap_around() {
        assert!(is_due(3, Some(9)));
        assert!(is_at_or_past(2, u64::MAX - 1));
        assert!(!is_at_or_past(u64::MAX - 1, 2));
    }
}
