//! The boundary at which a stream goes over to another chunk. Bytes and indexes of the packets before the boundary
//! may still be in flight when the boundary is named, each on its own connection.

use wire::{PacketSeqNum, SeqNum};

/// A stream on its way to another chunk, or out of all. `T` stands for the chunk.
#[derive(Debug)]
pub(super) struct Rotation<T> {
    /// The first packet, by the tracer's count, that belongs there.
    pub(super) at: PacketSeqNum,
    /// The chunk that the stream goes to. None: it leaves its chunk for none.
    pub(super) target: Option<T>,
}

/// Last packet and last entry that a stream has written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The last packet whose bytes are all in its tracefile. None: no packet has come.
    pub(super) data: Option<SeqNum>,
    /// The last packet whose entry is in its index file.
    pub(super) indexed: Option<SeqNum>,
    /// Number of that packet by the tracer's count. None: the producer sends none, or no entry is written.
    pub(super) tracer_seq: Option<PacketSeqNum>,
}

impl<T> Rotation<T> {
    /// Whether the last packet that stays in the old chunk has its entry: then the stream goes over,
    /// and takes along the packets after it whose bytes have come already.
    ///
    /// A stream without any entry waits for one, whatever the boundary: its first packet stays in
    /// the old chunk, as it does with lttng-relayd, rather than leave an empty file there.
    pub(super) fn is_due(&self, progress: &Progress) -> bool {
        progress
            .tracer_seq
            .is_some_and(|last| is_at_or_past(last.0.wrapping_add(1), self.at.0))
    }
}

/// Whether `number` has come as far as `other`, on a counter that wraps around.
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
        };
        rotation.is_due(&Progress {
            tracer_seq: tracer_seq.map(PacketSeqNum),
            ..Progress::default()
        })
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
    fn packet_numbers_may_jump_over_the_boundary_and_wrap_around() {
        assert!(is_due(3, Some(9)));
        assert!(is_at_or_past(2, u64::MAX - 1));
        assert!(!is_at_or_past(u64::MAX - 1, 2));
    }
}
