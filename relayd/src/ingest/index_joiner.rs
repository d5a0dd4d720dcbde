//! Joins packets with their indexes. The bytes of a packet come on one connection and its index on another, in
//! either order; no other module knows that they arrive apart.

use std::collections::VecDeque;

use thiserror::Error;
use wire::{PacketIndex, SeqNum};

use crate::limits::{MAX_GAPS, MAX_PENDING_PACKETS};

/// Packets of which one half, or both, are there, in sequence order. `P` is where the bytes lie.
///
/// A packet's entry is due when both are there and no earlier packet has only its bytes
/// there: entries leave in sequence order. No number is accepted twice.
#[derive(Debug)]
pub struct IndexJoiner<P> {
    waiting: VecDeque<(SeqNum, Pending<P>)>,
    /// The bytes of all packets before this one have come, or never will. None: no packet has come.
    next_data: Option<SeqNum>,
    /// Packets whose bytes never came: first and last of each run. Their index may still come.
    gaps: VecDeque<(SeqNum, SeqNum)>,
    /// Runs that have been forgotten end before this.
    forgotten: SeqNum,
}

#[derive(Debug)]
enum Pending<P> {
    Data(P),
    Index(PacketIndex),
    Both(P, PacketIndex),
}

/// An entry that is due.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadyEntry<P> {
    /// The packet.
    pub seq: SeqNum,
    /// Position of its bytes.
    pub place: P,
    /// Index as the producer sent it.
    pub index: PacketIndex,
}

/// Outcome of adding an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexFate {
    /// The index waits for its packet, or has found it.
    Kept,
    /// The packet has been given up: the index is dropped.
    Late,
}

/// Reason why the joiner refuses one half of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JoinError {
    /// The same half has come before.
    #[error("{half} of {seq} came twice")]
    Twice {
        /// Name of the half.
        half: &'static str,
        /// The packet.
        seq: SeqNum,
    },
    /// Pending packets pile up.
    #[error("{0}: too many pending packets: {MAX_PENDING_PACKETS} have no index or no bytes yet")]
    TooMany(SeqNum),
}

impl<P> Default for IndexJoiner<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            next_data: None,
            gaps: VecDeque::new(),
            forgotten: SeqNum(0),
        }
    }
}

impl<P> IndexJoiner<P> {
    /// Whether no packet and no index is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Packets that have no entry yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether some index waits for its bytes.
    #[must_use]
    pub fn awaits_packets(&self) -> bool {
        self.waiting
            .iter()
            .any(|(_, half)| matches!(half, Pending::Index(_)))
    }

    /// The first packet whose index has come and has not been written.
    #[must_use]
    pub fn first_index(&self) -> Option<SeqNum> {
        self.waiting
            .iter()
            .find(|(_, half)| !matches!(half, Pending::Data(_)))
            .map(|(seq, _)| *seq)
    }

    /// The bytes of a packet are all there. They come in sequence order.
    ///
    /// # Errors
    /// If too many packets wait for their index.
    pub fn add_packet(&mut self, seq: SeqNum, place: P) -> Result<(), JoinError> {
        self.next_data = Some(SeqNum(seq.0.wrapping_add(1)));
        match self.find(seq) {
            Ok(at) => {
                if let Some((_, half)) = self.waiting.get_mut(at)
                    && let Pending::Index(index) = *half
                {
                    *half = Pending::Both(place, index);
                }
                Ok(())
            }
            Err(at) => self.insert(at, seq, Pending::Data(place)),
        }
    }

    /// The index of a packet has come.
    ///
    /// # Errors
    /// If it came before, or too many wait for their bytes.
    pub fn add_index(&mut self, seq: SeqNum, index: PacketIndex) -> Result<IndexFate, JoinError> {
        let twice = JoinError::Twice {
            half: "the index",
            seq,
        };
        match self.find(seq) {
            Ok(at) => match self.waiting.get_mut(at) {
                Some((_, half @ Pending::Data(_))) => {
                    let Pending::Data(place) = std::mem::replace(half, Pending::Index(index))
                    else {
                        unreachable!("it was just matched");
                    };
                    *half = Pending::Both(place, index);
                    Ok(IndexFate::Kept)
                }
                _ => Err(twice),
            },
            // Asked before the next arm: a lost packet, too, is before `next_data`.
            Err(_) if self.is_lost(seq) => Ok(IndexFate::Late),
            Err(_) if self.next_data.is_some_and(|next| seq < next) => Err(twice),
            Err(at) => self
                .insert(at, seq, Pending::Index(index))
                .map(|()| IndexFate::Kept),
        }
    }

    /// The index of a packet whose bytes have not come.
    #[must_use]
    pub fn pending_index(&self, seq: SeqNum) -> Option<&PacketIndex> {
        match self.waiting.get(self.find(seq).ok()?)? {
            (_, Pending::Index(index)) => Some(index),
            _ => None,
        }
    }

    /// Position of the bytes of a packet whose index has not come.
    #[must_use]
    pub fn pending_packet(&self, seq: SeqNum) -> Option<&P> {
        match self.waiting.get(self.find(seq).ok()?)? {
            (_, Pending::Data(place)) => Some(place),
            _ => None,
        }
    }

    /// The bytes of these packets will never come. Gives how many of their indexes were there.
    pub fn give_up_packets(&mut self, first: SeqNum, last: SeqNum) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|(seq, half)| {
            !(first..=last).contains(seq) || !matches!(half, Pending::Index(_))
        });
        // Of runs that are forgotten every index counts as late: a wrong one is dropped then, not refused.
        if self.gaps.len() == MAX_GAPS {
            self.forgotten = self
                .gaps
                .pop_front()
                .map_or(self.forgotten, |(_, last)| last);
        }
        self.gaps.push_back((first, last));
        self.next_data = Some(SeqNum(last.0.wrapping_add(1)));
        before - self.waiting.len()
    }

    /// The entries that are due, in order, as far as the bytes of each lie beside those of the first; with `is_single`
    /// only the first. Empty if none is due.
    pub fn take_ready_batch(
        &mut self,
        is_single: bool,
        is_beside: impl Fn(&P, &P) -> bool,
    ) -> Vec<ReadyEntry<P>> {
        let Some(first) = self.next_ready_if(|_| true) else {
            return Vec::new();
        };
        let mut batch = vec![first];
        while !is_single
            && let Some(first) = batch.first()
            && let Some(next) = self.next_ready_if(|next| is_beside(next, &first.place))
        {
            batch.push(next);
        }
        batch
    }

    /// The batch that was taken last could not be written: its entries are due again.
    pub fn return_batch(&mut self, batch: Vec<ReadyEntry<P>>) {
        for ready in batch.into_iter().rev() {
            let both = Pending::Both(ready.place, ready.index);
            self.waiting.push_front((ready.seq, both));
        }
    }

    /// The next entry that is due, if its bytes lie where it is wanted.
    fn next_ready_if(&mut self, is_wanted: impl Fn(&P) -> bool) -> Option<ReadyEntry<P>> {
        match self.waiting.front() {
            Some((_, Pending::Both(place, _))) if is_wanted(place) => {}
            _ => return None,
        }
        match self.waiting.pop_front() {
            Some((seq, Pending::Both(place, index))) => Some(ReadyEntry { seq, place, index }),
            _ => None,
        }
    }

    /// No more indexes will come: drops the packets that have none, so that what stands behind
    /// them is due. Gives how many.
    pub fn drop_unindexed(&mut self) -> usize {
        let before = self.waiting.len();
        self.waiting
            .retain(|(_, half)| !matches!(half, Pending::Data(_)));
        before - self.waiting.len()
    }

    /// The places of all packets that wait for their index, in order: they have moved.
    pub fn places_mut(&mut self) -> impl Iterator<Item = (SeqNum, &mut P)> {
        self.waiting
            .iter_mut()
            .filter_map(|(seq, half)| match half {
                Pending::Data(place) | Pending::Both(place, _) => Some((*seq, place)),
                Pending::Index(_) => None,
            })
    }

    fn find(&self, seq: SeqNum) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&seq, |(seq, _)| *seq)
    }

    fn insert(&mut self, at: usize, seq: SeqNum, half: Pending<P>) -> Result<(), JoinError> {
        // A peer that sends only one half of its packets must not take all memory.
        if self.waiting.len() >= MAX_PENDING_PACKETS {
            return Err(JoinError::TooMany(seq));
        }
        self.waiting.insert(at, (seq, half));
        Ok(())
    }

    /// Whether the packet has been given up; of those before the oldest run that is remembered it
    /// may have been.
    #[must_use]
    pub fn is_lost(&self, seq: SeqNum) -> bool {
        seq < self.forgotten
            || self
                .gaps
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&seq))
    }
}

#[cfg(test)]
mod tests {
    use wire::{Bits, ClassId, Timestamp};

    use super::*;

    fn index(end: u64) -> PacketIndex {
        PacketIndex {
            packet_size: Bits(8),
            content_size: Bits(8),
            begin: Timestamp(0),
            end: Timestamp(end),
            events_discarded: 0,
            class: ClassId(0),
            instance: None,
            packet_seq: None,
        }
    }

    fn due(joiner: &mut IndexJoiner<u64>) -> Vec<u64> {
        std::iter::from_fn(|| joiner.next_ready_if(|_| true))
            .map(|due| due.seq.0)
            .collect()
    }

    #[test]
    fn an_entry_is_due_once_both_halves_are_there_in_either_order() {
        let mut joiner = IndexJoiner::default();
        joiner.add_packet(SeqNum(5), 0).unwrap();
        assert!(due(&mut joiner).is_empty());
        assert_eq!(joiner.add_index(SeqNum(5), index(1)), Ok(IndexFate::Kept));
        assert_eq!(
            joiner.next_ready_if(|_| true),
            Some(ReadyEntry {
                seq: SeqNum(5),
                place: 0,
                index: index(1)
            })
        );
        joiner.add_index(SeqNum(6), index(2)).unwrap();
        assert!(joiner.awaits_packets());
        assert!(due(&mut joiner).is_empty());
        joiner.add_packet(SeqNum(6), 10).unwrap();
        assert_eq!(
            joiner.next_ready_if(|_| true),
            Some(ReadyEntry {
                seq: SeqNum(6),
                place: 10,
                index: index(2)
            })
        );
        assert!(joiner.is_empty());
    }

    #[test]
    fn entries_leave_in_sequence_order() {
        let mut joiner = IndexJoiner::default();
        for seq in 0..3 {
            joiner.add_packet(SeqNum(seq), seq).unwrap();
        }
        joiner.add_index(SeqNum(2), index(2)).unwrap();
        joiner.add_index(SeqNum(1), index(1)).unwrap();
        assert!(due(&mut joiner).is_empty());
        joiner.add_index(SeqNum(0), index(0)).unwrap();
        assert_eq!(due(&mut joiner), [0, 1, 2]);
    }

    #[test]
    fn a_batch_ends_where_the_tracefile_does_and_is_due_again_if_it_cannot_be_written() {
        let mut joiner = IndexJoiner::default();
        // Where the bytes lie: three packets in one tracefile, one in the next.
        for (seq, tracefile) in [(0, 7), (1, 7), (2, 7), (3, 8)] {
            joiner.add_packet(SeqNum(seq), tracefile).unwrap();
            joiner.add_index(SeqNum(seq), index(seq)).unwrap();
        }
        let seqs =
            |batch: &[ReadyEntry<u64>]| batch.iter().map(|ready| ready.seq.0).collect::<Vec<_>>();
        let batch = joiner.take_ready_batch(false, |a, b| a == b);
        assert_eq!(seqs(&batch), [0, 1, 2]);
        joiner.return_batch(batch);
        let single = joiner.take_ready_batch(true, |a, b| a == b);
        assert_eq!(seqs(&single), [0]);
        assert_eq!(seqs(&joiner.take_ready_batch(false, |a, b| a == b)), [1, 2]);
        assert_eq!(seqs(&joiner.take_ready_batch(false, |a, b| a == b)), [3]);
        assert!(joiner.take_ready_batch(false, |a, b| a == b).is_empty());
    }

    #[test]
    fn no_index_is_accepted_twice() {
        let mut joiner = IndexJoiner::default();
        joiner.add_index(SeqNum(0), index(0)).unwrap();
        let twice = JoinError::Twice {
            half: "the index",
            seq: SeqNum(0),
        };
        assert_eq!(joiner.add_index(SeqNum(0), index(0)), Err(twice));
        joiner.add_packet(SeqNum(0), 0).unwrap();
        assert_eq!(joiner.add_index(SeqNum(0), index(0)), Err(twice));
        assert_eq!(due(&mut joiner), [0]);
        assert_eq!(joiner.add_index(SeqNum(0), index(0)), Err(twice));
    }

    #[test]
    fn the_index_of_a_lost_packet_is_dropped_when_it_comes() {
        let mut joiner = IndexJoiner::default();
        joiner.add_packet(SeqNum(0), 0).unwrap();
        joiner.add_index(SeqNum(0), index(0)).unwrap();
        joiner.add_index(SeqNum(2), index(2)).unwrap();
        assert_eq!(due(&mut joiner), [0]);
        assert_eq!(joiner.give_up_packets(SeqNum(1), SeqNum(3)), 1);
        joiner.add_packet(SeqNum(4), 40).unwrap();
        joiner.add_index(SeqNum(4), index(4)).unwrap();
        assert_eq!(due(&mut joiner), [4]);
        assert_eq!(joiner.add_index(SeqNum(1), index(1)), Ok(IndexFate::Late));
        assert_eq!(joiner.add_index(SeqNum(3), index(3)), Ok(IndexFate::Late));
        assert!(joiner.add_index(SeqNum(4), index(4)).is_err());
        assert!(joiner.is_empty());
    }

    #[test]
    fn packets_without_an_index_are_dropped_when_no_more_indexes_come() {
        let mut joiner = IndexJoiner::default();
        joiner.add_packet(SeqNum(0), 0).unwrap();
        joiner.add_packet(SeqNum(1), 1).unwrap();
        joiner.add_index(SeqNum(1), index(1)).unwrap();
        joiner.add_index(SeqNum(2), index(2)).unwrap();
        assert_eq!(joiner.drop_unindexed(), 1);
        assert_eq!(due(&mut joiner), [1]);
        assert!(joiner.awaits_packets());
    }

    #[test]
    fn pending_packets_of_a_stream_are_bounded() {
        let mut joiner = IndexJoiner::<u64>::default();
        for seq in 0..MAX_PENDING_PACKETS as u64 {
            joiner.add_index(SeqNum(seq), index(seq)).unwrap();
        }
        let many = JoinError::TooMany(SeqNum(9999));
        assert_eq!(joiner.add_index(SeqNum(9999), index(0)), Err(many));
    }
}
