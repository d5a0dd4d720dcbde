//! When a stream goes over to another chunk. Bytes and indexes of the packets before the boundary
//! may still be under way when the boundary is named, each on its own connection.

use wire::{PacketSeqNum, SeqNum};

use crate::store::chunk::Holding;

/// A stream on its way to another chunk, or out of all.
#[derive(Debug)]
pub struct Rotation {
    /// The first packet, by the tracer's count, that belongs there.
    pub at: PacketSeqNum,
    /// Where it goes.
    pub target: Option<Holding>,
}

/// How far a stream has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last packet whose bytes are all there.
    pub data: Option<SeqNum>,
    /// The last packet whose entry has been written.
    pub indexed: Option<SeqNum>,
    /// The tracer's number of that packet.
    pub tracer_seq: Option<PacketSeqNum>,
}

impl Rotation {
    /// The last packet that stays in the old chunk, once its entry has been written: then the
    /// stream goes over, and takes along the packets after it whose bytes have come already.
    ///
    /// A stream without any entry waits for one, whatever the boundary: its first packet stays in
    /// the old chunk, as it does with the reference, rather than leave an empty file there.
    #[must_use]
    pub fn pivot(&self, progress: &Progress) -> Option<SeqNum> {
        let last = progress.tracer_seq?;
        let is_reached = is_at_or_past(last.0.wrapping_add(1), self.at.0);
        progress.indexed.filter(|_| is_reached)
    }
}

/// Whether `number` has come as far as `other`, on a counter that wraps around.
pub(super) fn is_at_or_past(number: u64, other: u64) -> bool {
    number.wrapping_sub(other).cast_signed() >= 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(data: u64, indexed: u64) -> Progress {
        Progress {
            data: Some(SeqNum(data)),
            indexed: Some(SeqNum(indexed)),
            tracer_seq: Some(PacketSeqNum(indexed)),
        }
    }

    fn pivot(at: u64, progress: Progress) -> Option<u64> {
        let rotation = Rotation {
            at: PacketSeqNum(at),
            target: None,
        };
        rotation.pivot(&progress).map(|pivot| pivot.0)
    }

    #[test]
    fn a_stream_goes_over_when_the_last_packet_before_the_boundary_has_its_entry() {
        assert_eq!(pivot(3, progress(1, 1)), None);
        assert_eq!(pivot(3, progress(2, 1)), None);
        assert_eq!(pivot(3, progress(2, 2)), Some(2));
        assert_eq!(pivot(1, progress(5, 2)), Some(2));
    }

    #[test]
    fn a_stream_without_any_entry_waits_for_one() {
        assert_eq!(pivot(0, Progress::default()), None);
        assert_eq!(
            pivot(
                0,
                Progress {
                    data: Some(SeqNum(0)),
                    ..Progress::default()
                }
            ),
            None
        );
        assert_eq!(pivot(0, progress(0, 0)), Some(0));
    }

    #[test]
    fn numbers_may_jump_over_the_boundary_and_wrap_around() {
        let jumped = Progress {
            tracer_seq: Some(PacketSeqNum(9)),
            ..progress(1, 1)
        };
        assert_eq!(pivot(3, jumped), Some(1));
        assert!(is_at_or_past(2, u64::MAX - 1));
        assert!(!is_at_or_past(u64::MAX - 1, 2));
    }
}
