//! Joins packets with their indexes. The bytes of a packet arrive on one connection and its index
//! on another, in either order; no other module knows that they arrive separately.

use std::collections::VecDeque;

use thiserror::Error;
use wire::{PacketIndex, SeqNum};

use crate::limits::{MAX_GAPS, MAX_JOINED_PACKETS, MAX_PENDING_PACKETS};

/// Packets whose bytes, index or both have arrived, in sequence order. `P` is the place of the
/// bytes.
///
/// An entry is ready when bytes and index have arrived and no earlier packet is pending: entries
/// leave in sequence order. No number is accepted twice.
#[derive(Debug)]
pub struct IndexJoiner<P> {
    pending: VecDeque<Pending<P>>,
    /// Number of pending packets that have no index.
    unindexed: usize,
    /// Number of pending packets that have only an index.
    without_bytes: usize,
    /// The bytes of all packets before this one have arrived or are lost. None: no packet has
    /// arrived.
    next_data: Option<SeqNum>,
    /// First and last packet of each run whose bytes are lost. Their indexes may still arrive.
    gaps: VecDeque<(SeqNum, SeqNum)>,
    /// All runs that have been removed from `gaps` end before this packet.
    forgotten: SeqNum,
}

/// A packet without an entry. Its bytes or its index have arrived, or both.
#[derive(Debug)]
struct Pending<P> {
    seq: SeqNum,
    place: Option<P>,
    index: Option<PacketIndex>,
}

/// An entry that can be written.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadyEntry<P> {
    /// Number of the packet.
    pub seq: SeqNum,
    /// Position of the packet's bytes.
    pub place: P,
    /// Index as the producer sent it.
    pub index: PacketIndex,
}

/// Outcome of adding an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexFate {
    /// The index waits for its packet, or was joined with it.
    Kept,
    /// The packet has been given up, and the index is dropped.
    Late,
}

/// The reason why the joiner rejects one half of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum JoinError {
    /// This half of the packet has arrived before.
    #[error("{half} of {seq} came twice")]
    Twice {
        /// Name of the half.
        half: &'static str,
        /// Number of the packet.
        seq: SeqNum,
    },
    /// Pending packets pile up.
    #[error("{0}: too many pending packets: {MAX_JOINED_PACKETS} before it are not complete")]
    TooMany(SeqNum),
}

impl<P> Default for IndexJoiner<P> {
    fn default() -> Self {
        Self {
            pending: VecDeque::new(),
            unindexed: 0,
            without_bytes: 0,
            next_data: None,
            gaps: VecDeque::new(),
            forgotten: SeqNum(0),
        }
    }
}

impl<P> IndexJoiner<P> {
    /// A joiner that has all packets before `next`.
    #[must_use]
    pub fn starting_at(next: SeqNum) -> Self {
        Self {
            next_data: Some(next),
            ..Self::default()
        }
    }

    /// The first packet that has no entry, of those of which bytes or index have arrived.
    #[must_use]
    pub fn first_pending(&self) -> Option<SeqNum> {
        self.pending.front().map(|packet| packet.seq)
    }

    /// Whether no packet and no index is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Number of packets that have no entry yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether some index waits for its packet.
    #[must_use]
    pub fn awaits_packets(&self) -> bool {
        self.without_bytes > 0
    }

    /// Whether so many packets wait for their indexes that no more should be read before these.
    #[must_use]
    pub fn lacks_indexes(&self) -> bool {
        self.lacks_indexes_after(0)
    }

    /// Whether so many packets would wait for their indexes after `packets` more.
    #[must_use]
    pub fn lacks_indexes_after(&self, packets: usize) -> bool {
        self.unindexed + packets >= MAX_PENDING_PACKETS
    }

    /// Whether so many indexes wait for their packets that no more should be read before these.
    #[must_use]
    pub fn lacks_packets(&self) -> bool {
        self.without_bytes >= MAX_PENDING_PACKETS
    }

    /// The first packet whose index has arrived and has not been written.
    #[must_use]
    pub fn first_index(&self) -> Option<SeqNum> {
        let mut pending = self.pending.iter();
        let first = pending.find(|packet| packet.index.is_some())?;
        Some(first.seq)
    }

    /// Adds a packet whose bytes have all arrived. Packets are added in sequence order.
    ///
    /// # Errors
    /// If too many packets are pending.
    pub fn add_packet(&mut self, seq: SeqNum, place: P) -> Result<(), JoinError> {
        // Does not wrap around: the stream writer rejects 2^64-1, which means "none".
        self.next_data = Some(SeqNum(seq.0.wrapping_add(1)));
        match self.find(seq) {
            Ok(at) => {
                if let Some(packet) = self.pending.get_mut(at)
                    && packet.place.is_none()
                {
                    packet.place = Some(place);
                    self.without_bytes -= 1;
                }
                Ok(())
            }
            Err(at) => {
                self.insert(at, seq, Some(place), None)?;
                self.unindexed += 1;
                Ok(())
            }
        }
    }

    /// Adds the index of a packet.
    ///
    /// # Errors
    /// If it has arrived before, or too many packets are pending.
    pub fn add_index(&mut self, seq: SeqNum, index: PacketIndex) -> Result<IndexFate, JoinError> {
        let half = "the index";
        match self.find(seq) {
            Ok(at) => match self.pending.get_mut(at) {
                Some(packet) if packet.index.is_none() => {
                    packet.index = Some(index);
                    self.unindexed -= 1;
                }
                _ => return Err(JoinError::Twice { half, seq }),
            },
            // Before the next arm, because the number of a lost packet is also below `next_data`.
            Err(_) if self.is_lost(seq) => return Ok(IndexFate::Late),
            Err(_) if self.next_data.is_some_and(|next| seq < next) => {
                return Err(JoinError::Twice { half, seq });
            }
            Err(at) => {
                self.insert(at, seq, None, Some(index))?;
                self.without_bytes += 1;
            }
        }
        Ok(IndexFate::Kept)
    }

    /// The index of a packet whose bytes have not arrived.
    #[must_use]
    pub fn pending_index(&self, seq: SeqNum) -> Option<&PacketIndex> {
        let packet = self.pending.get(self.find(seq).ok()?)?;
        packet.index.as_ref().filter(|_| packet.place.is_none())
    }

    /// The place of a packet whose index has not arrived.
    #[must_use]
    pub fn pending_packet(&self, seq: SeqNum) -> Option<&P> {
        let packet = self.pending.get(self.find(seq).ok()?)?;
        packet.place.as_ref().filter(|_| packet.index.is_none())
    }

    /// Gives up packets whose bytes will not arrive any more. Returns the number of their indexes,
    /// which are dropped.
    pub fn give_up_packets(&mut self, first: SeqNum, last: SeqNum) -> usize {
        let before = self.pending.len();
        self.pending
            .retain(|packet| !(first..=last).contains(&packet.seq) || packet.place.is_some());
        // Bounds the list. Every index of a run that is removed counts as late: a wrong one is
        // dropped instead of rejected.
        if self.gaps.len() == MAX_GAPS
            && let Some((_, last)) = self.gaps.pop_front()
        {
            self.forgotten = last;
        }
        self.gaps.push_back((first, last));
        self.next_data = Some(SeqNum(last.0.wrapping_add(1)));
        let dropped = before - self.pending.len();
        self.without_bytes -= dropped;
        dropped
    }

    /// Takes the ready entries, in order, up to the first whose bytes lie in another tracefile than
    /// those before it. With `is_single`, takes only the first. Empty: no entry is ready.
    pub fn take_ready_batch(
        &mut self,
        is_single: bool,
        shares_tracefile: impl Fn(&P, &P) -> bool,
    ) -> Vec<ReadyEntry<P>> {
        let Some(first) = self.next_ready_if(|_| true) else {
            return Vec::new();
        };
        let mut batch = vec![first];
        while !is_single
            && let Some(first) = batch.first()
            && let Some(next) = self.next_ready_if(|next| shares_tracefile(next, &first.place))
        {
            batch.push(next);
        }
        batch
    }

    /// Returns the batch that was taken last, because it could not be written. Its entries are
    /// ready again.
    pub fn return_batch(&mut self, batch: Vec<ReadyEntry<P>>) {
        for ReadyEntry { seq, place, index } in batch.into_iter().rev() {
            let (place, index) = (Some(place), Some(index));
            self.pending.push_front(Pending { seq, place, index });
        }
    }

    /// Takes the next ready entry, if the place of its bytes is wanted.
    fn next_ready_if(&mut self, is_wanted: impl Fn(&P) -> bool) -> Option<ReadyEntry<P>> {
        let is_ready = |packet: &mut Pending<P>| {
            packet.index.is_some() && packet.place.as_ref().is_some_and(&is_wanted)
        };
        let Pending { seq, place, index } = self.pending.pop_front_if(is_ready)?;
        let (place, index) = place.zip(index)?;
        Some(ReadyEntry { seq, place, index })
    }

    /// The index of the next ready entry.
    pub fn first_ready(&self) -> Option<&PacketIndex> {
        let first = self.pending.front()?;
        first.index.as_ref().filter(|_| first.place.is_some())
    }

    /// Drops the packets without an index, because no index will arrive any more, so that the
    /// entries after them become ready. Returns their number.
    pub fn drop_unindexed(&mut self) -> usize {
        let before = self.pending.len();
        self.pending.retain(|packet| packet.index.is_some());
        self.unindexed = 0;
        before - self.pending.len()
    }

    /// The places of all pending packets, in order, for a caller that moves the packets.
    pub fn places_mut(&mut self) -> impl Iterator<Item = (SeqNum, &mut P)> {
        let pending = self.pending.iter_mut();
        pending.filter_map(|packet| Some((packet.seq, packet.place.as_mut()?)))
    }

    /// The place of the packet in the list, or where it belongs. Without gaps in the numbers there
    /// is no search: a pipelined producer has hundreds of packets pending, and each is looked up
    /// four times.
    fn find(&self, seq: SeqNum) -> Result<usize, usize> {
        let (Some(first), Some(last)) = (self.pending.front(), self.pending.back()) else {
            return Err(0);
        };
        // The common case: a packet or index that is newer than all others.
        if last.seq < seq {
            return Err(self.pending.len());
        }
        let is_there = |at: &usize| (self.pending.get(*at)).is_some_and(|packet| packet.seq == seq);
        let ahead = seq.0.checked_sub(first.seq.0);
        match ahead
            .and_then(|ahead| usize::try_from(ahead).ok())
            .filter(is_there)
        {
            Some(at) => Ok(at),
            None => self.pending.binary_search_by_key(&seq, |packet| packet.seq),
        }
    }

    fn insert(
        &mut self,
        at: usize,
        seq: SeqNum,
        place: Option<P>,
        index: Option<PacketIndex>,
    ) -> Result<(), JoinError> {
        // A peer that sends only one half of its packets must not exhaust the memory.
        if self.pending.len() >= MAX_JOINED_PACKETS {
            return Err(JoinError::TooMany(seq));
        }
        self.pending.insert(at, Pending { seq, place, index });
        Ok(())
    }

    /// Whether the packet has been given up. Also true of every packet before the end of a run that
    /// has been forgotten, since it may have been.
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

    fn ready(joiner: &mut IndexJoiner<u64>) -> Vec<u64> {
        std::iter::from_fn(|| joiner.next_ready_if(|_| true))
            .map(|ready| ready.seq.0)
            .collect()
    }

    #[test]
    fn an_entry_is_ready_once_both_halves_have_arrived_in_either_order() {
        let mut joiner = IndexJoiner::default();
        joiner.add_packet(SeqNum(5), 0).unwrap();
        assert!(ready(&mut joiner).is_empty());
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
        assert!(ready(&mut joiner).is_empty());
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
        assert!(ready(&mut joiner).is_empty());
        joiner.add_index(SeqNum(0), index(0)).unwrap();
        assert_eq!(ready(&mut joiner), [0, 1, 2]);
    }

    #[test]
    fn packets_are_found_among_numbers_with_and_without_gaps() {
        let mut joiner = IndexJoiner::<u64>::default();
        let mut added = Vec::new();
        for seq in [5, 6, 9, 12, 7, 2, 8, 3] {
            assert_eq!(joiner.pending_index(SeqNum(seq)), None);
            joiner.add_index(SeqNum(seq), index(seq)).unwrap();
            added.push(seq);
            for seq in 0..15 {
                let expected = added.contains(&seq).then(|| index(seq));
                assert_eq!(joiner.pending_index(SeqNum(seq)).copied(), expected);
            }
        }
        let pending = joiner.pending.iter().map(|packet| packet.seq.0);
        assert!(pending.eq([2, 3, 5, 6, 7, 8, 9, 12]));
    }

    #[test]
    fn a_batch_ends_where_the_tracefile_does_and_is_ready_again_if_it_cannot_be_written() {
        let mut joiner = IndexJoiner::default();
        // The place is the tracefile: three packets in one tracefile, one in the next.
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
        assert_eq!(ready(&mut joiner), [0]);
        assert_eq!(joiner.add_index(SeqNum(0), index(0)), Err(twice));
    }

    #[test]
    fn the_index_of_a_lost_packet_is_dropped_when_it_arrives() {
        let mut joiner = IndexJoiner::default();
        joiner.add_packet(SeqNum(0), 0).unwrap();
        joiner.add_index(SeqNum(0), index(0)).unwrap();
        joiner.add_index(SeqNum(2), index(2)).unwrap();
        assert_eq!(ready(&mut joiner), [0]);
        assert_eq!(joiner.give_up_packets(SeqNum(1), SeqNum(3)), 1);
        joiner.add_packet(SeqNum(4), 40).unwrap();
        joiner.add_index(SeqNum(4), index(4)).unwrap();
        assert_eq!(ready(&mut joiner), [4]);
        assert_eq!(joiner.add_index(SeqNum(1), index(1)), Ok(IndexFate::Late));
        assert_eq!(joiner.add_index(SeqNum(3), index(3)), Ok(IndexFate::Late));
        assert!(joiner.add_index(SeqNum(4), index(4)).is_err());
        assert!(joiner.is_empty());
    }

    #[test]
    fn packets_without_an_index_are_dropped_when_no_more_indexes_arrive() {
        let mut joiner = IndexJoiner::default();
        joiner.add_packet(SeqNum(0), 0).unwrap();
        joiner.add_packet(SeqNum(1), 1).unwrap();
        joiner.add_index(SeqNum(1), index(1)).unwrap();
        joiner.add_index(SeqNum(2), index(2)).unwrap();
        assert_eq!(joiner.drop_unindexed(), 1);
        assert_eq!(ready(&mut joiner), [1]);
        assert!(joiner.awaits_packets());
    }

    #[test]
    fn joiner_says_when_either_half_is_far_ahead_and_when_it_is_no_longer() {
        let mut joiner = IndexJoiner::default();
        let max = MAX_PENDING_PACKETS as u64;
        for seq in 0..max {
            assert!(!joiner.lacks_packets());
            joiner.add_index(SeqNum(seq), index(seq)).unwrap();
        }
        assert!(joiner.lacks_packets());
        // One packet is lost, and is not waited for.
        joiner.give_up_packets(SeqNum(0), SeqNum(0));
        assert!(!joiner.lacks_packets());
        for seq in 1..2 * max {
            assert!(!joiner.lacks_indexes());
            joiner.add_packet(SeqNum(seq), seq).unwrap();
            let _ = ready(&mut joiner);
        }
        assert!(joiner.lacks_indexes());
        assert!(!joiner.awaits_packets());
        joiner.add_index(SeqNum(max), index(max)).unwrap();
        assert!(!joiner.lacks_indexes());
        assert_eq!(ready(&mut joiner), [max]);
        assert_eq!(joiner.drop_unindexed(), MAX_PENDING_PACKETS - 1);
        assert!(joiner.is_empty() && !joiner.lacks_indexes());
    }

    #[test]
    fn pending_packets_of_a_stream_are_bounded() {
        let mut joiner = IndexJoiner::<u64>::default();
        for seq in 0..MAX_JOINED_PACKETS as u64 {
            joiner.add_index(SeqNum(seq), index(seq)).unwrap();
        }
        let many = JoinError::TooMany(SeqNum(9999));
        assert_eq!(joiner.add_index(SeqNum(9999), index(0)), Err(many));
    }
}
