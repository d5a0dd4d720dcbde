//! Where the two halves of a packet meet. Its bytes came on one connection, its index on another,
//! in either order; nobody past this point knows that they were apart.

use std::collections::VecDeque;

use thiserror::Error;
use wire::{PacketIndex, SeqNum};

use crate::limits::{MAX_GAPS, MAX_PENDING_PACKETS};

/// Packets of which one half, or both, are there, in sequence order. `P` is where the bytes lie.
///
/// A packet's entry is due when both halves are there and no earlier packet has only its bytes
/// there: entries leave in sequence order. No number is accepted twice.
#[derive(Debug)]
pub struct Halves<P> {
    waiting: VecDeque<(SeqNum, Half<P>)>,
    /// All bytes before this have come, or never will.
    next_data: Option<SeqNum>,
    /// Packets whose bytes never came: first and last of each run. Their index may still come.
    gaps: VecDeque<(SeqNum, SeqNum)>,
    /// Runs that have been forgotten end before this.
    forgotten: SeqNum,
}

#[derive(Debug)]
enum Half<P> {
    Data(P),
    Index(PacketIndex),
    Both(P, PacketIndex),
}

/// An entry that is due.
#[derive(Debug, PartialEq, Eq)]
pub struct Due<P> {
    /// The packet.
    pub seq: SeqNum,
    /// Where its bytes lie.
    pub place: P,
    /// What its index says.
    pub index: PacketIndex,
}

/// What came of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexFate {
    /// It waits for its packet, or has found it.
    Kept,
    /// Its packet has been given up.
    Late,
}

/// Why a half cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HalfError {
    /// The same half has come before.
    #[error("{half} of {seq} came twice")]
    Twice {
        /// Which half.
        half: &'static str,
        /// The packet.
        seq: SeqNum,
    },
    /// Half packets pile up.
    #[error("{MAX_PENDING_PACKETS} packets have only one half there; {0} is one too many")]
    TooMany(SeqNum),
}

impl<P> Default for Halves<P> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            next_data: None,
            gaps: VecDeque::new(),
            forgotten: SeqNum(0),
        }
    }
}

impl<P> Halves<P> {
    /// Whether nothing waits for its other half.
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
    pub fn awaits_data(&self) -> bool {
        self.waiting
            .iter()
            .any(|(_, half)| matches!(half, Half::Index(_)))
    }

    /// The first packet whose index has come and has not been written.
    #[must_use]
    pub fn first_index(&self) -> Option<SeqNum> {
        self.waiting
            .iter()
            .find(|(_, half)| !matches!(half, Half::Data(_)))
            .map(|(seq, _)| *seq)
    }

    /// The bytes of a packet are all there. They come in sequence order.
    ///
    /// # Errors
    /// If too many packets wait for their index.
    pub fn data(&mut self, seq: SeqNum, place: P) -> Result<(), HalfError> {
        self.next_data = Some(SeqNum(seq.0.wrapping_add(1)));
        match self.find(seq) {
            Ok(at) => {
                if let Some((_, half)) = self.waiting.get_mut(at)
                    && let Half::Index(index) = *half
                {
                    *half = Half::Both(place, index);
                }
                Ok(())
            }
            Err(at) => self.insert(at, seq, Half::Data(place)),
        }
    }

    /// The index of a packet has come.
    ///
    /// # Errors
    /// If it came before, or too many wait for their bytes.
    pub fn index(&mut self, seq: SeqNum, index: PacketIndex) -> Result<IndexFate, HalfError> {
        let twice = HalfError::Twice {
            half: "the index",
            seq,
        };
        match self.find(seq) {
            Ok(at) => match self.waiting.get_mut(at) {
                Some((_, half @ Half::Data(_))) => {
                    let Half::Data(place) = std::mem::replace(half, Half::Index(index)) else {
                        unreachable!("it was just matched");
                    };
                    *half = Half::Both(place, index);
                    Ok(IndexFate::Kept)
                }
                _ => Err(twice),
            },
            Err(_) if self.is_lost(seq) => Ok(IndexFate::Late),
            Err(_) if self.next_data.is_some_and(|next| seq < next) => Err(twice),
            Err(at) => self
                .insert(at, seq, Half::Index(index))
                .map(|()| IndexFate::Kept),
        }
    }

    /// What the index of a packet says, if it waits for the bytes.
    #[must_use]
    pub fn waiting_index(&self, seq: SeqNum) -> Option<&PacketIndex> {
        match self.waiting.get(self.find(seq).ok()?)? {
            (_, Half::Index(index)) => Some(index),
            _ => None,
        }
    }

    /// Where the bytes of a packet lie, if they wait for the index.
    #[must_use]
    pub fn waiting_data(&self, seq: SeqNum) -> Option<&P> {
        match self.waiting.get(self.find(seq).ok()?)? {
            (_, Half::Data(place)) => Some(place),
            _ => None,
        }
    }

    /// The bytes of these packets will never come. Gives how many of their indexes were there.
    pub fn lost(&mut self, first: SeqNum, last: SeqNum) -> usize {
        let before = self.waiting.len();
        self.waiting
            .retain(|(seq, half)| !(first..=last).contains(seq) || !matches!(half, Half::Index(_)));
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

    /// The next entry that is due, if its bytes lie where it is wanted.
    pub fn due_if(&mut self, is_wanted: impl Fn(&P) -> bool) -> Option<Due<P>> {
        match self.waiting.front() {
            Some((_, Half::Both(place, _))) if is_wanted(place) => {}
            _ => return None,
        }
        match self.waiting.pop_front() {
            Some((seq, Half::Both(place, index))) => Some(Due { seq, place, index }),
            _ => None,
        }
    }

    /// The entry that was due last could not be written: it is due again.
    pub fn not_yet(&mut self, due: Due<P>) {
        let both = Half::Both(due.place, due.index);
        self.waiting.push_front((due.seq, both));
    }

    /// No more indexes will come: drops the packets that have none, so that what stands behind
    /// them is due. Gives how many.
    pub fn drop_data(&mut self) -> usize {
        let before = self.waiting.len();
        self.waiting
            .retain(|(_, half)| !matches!(half, Half::Data(_)));
        before - self.waiting.len()
    }

    /// The places of all packets that wait for their index, in order: they have moved.
    pub fn places(&mut self) -> impl Iterator<Item = (SeqNum, &mut P)> {
        self.waiting
            .iter_mut()
            .filter_map(|(seq, half)| match half {
                Half::Data(place) | Half::Both(place, _) => Some((*seq, place)),
                Half::Index(_) => None,
            })
    }

    fn find(&self, seq: SeqNum) -> Result<usize, usize> {
        self.waiting.binary_search_by_key(&seq, |(seq, _)| *seq)
    }

    fn insert(&mut self, at: usize, seq: SeqNum, half: Half<P>) -> Result<(), HalfError> {
        if self.waiting.len() >= MAX_PENDING_PACKETS {
            return Err(HalfError::TooMany(seq));
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

    fn due(halves: &mut Halves<u64>) -> Vec<u64> {
        std::iter::from_fn(|| halves.due_if(|_| true))
            .map(|due| due.seq.0)
            .collect()
    }

    #[test]
    fn an_entry_is_due_once_both_halves_are_there_in_either_order() {
        let mut halves = Halves::default();
        halves.data(SeqNum(5), 0).unwrap();
        assert!(due(&mut halves).is_empty());
        assert_eq!(halves.index(SeqNum(5), index(1)), Ok(IndexFate::Kept));
        assert_eq!(
            halves.due_if(|_| true),
            Some(Due {
                seq: SeqNum(5),
                place: 0,
                index: index(1)
            })
        );
        halves.index(SeqNum(6), index(2)).unwrap();
        assert!(halves.awaits_data());
        assert!(due(&mut halves).is_empty());
        halves.data(SeqNum(6), 10).unwrap();
        assert_eq!(
            halves.due_if(|_| true),
            Some(Due {
                seq: SeqNum(6),
                place: 10,
                index: index(2)
            })
        );
        assert!(halves.is_empty());
    }

    #[test]
    fn entries_leave_in_sequence_order() {
        let mut halves = Halves::default();
        for seq in 0..3 {
            halves.data(SeqNum(seq), seq).unwrap();
        }
        halves.index(SeqNum(2), index(2)).unwrap();
        halves.index(SeqNum(1), index(1)).unwrap();
        assert!(due(&mut halves).is_empty());
        halves.index(SeqNum(0), index(0)).unwrap();
        assert_eq!(due(&mut halves), [0, 1, 2]);
    }

    #[test]
    fn no_index_is_accepted_twice() {
        let mut halves = Halves::default();
        halves.index(SeqNum(0), index(0)).unwrap();
        let twice = HalfError::Twice {
            half: "the index",
            seq: SeqNum(0),
        };
        assert_eq!(halves.index(SeqNum(0), index(0)), Err(twice));
        halves.data(SeqNum(0), 0).unwrap();
        assert_eq!(halves.index(SeqNum(0), index(0)), Err(twice));
        assert_eq!(due(&mut halves), [0]);
        assert_eq!(halves.index(SeqNum(0), index(0)), Err(twice));
    }

    #[test]
    fn the_index_of_a_lost_packet_is_dropped_when_it_comes() {
        let mut halves = Halves::default();
        halves.data(SeqNum(0), 0).unwrap();
        halves.index(SeqNum(0), index(0)).unwrap();
        halves.index(SeqNum(2), index(2)).unwrap();
        assert_eq!(due(&mut halves), [0]);
        assert_eq!(halves.lost(SeqNum(1), SeqNum(3)), 1);
        halves.data(SeqNum(4), 40).unwrap();
        halves.index(SeqNum(4), index(4)).unwrap();
        assert_eq!(due(&mut halves), [4]);
        assert_eq!(halves.index(SeqNum(1), index(1)), Ok(IndexFate::Late));
        assert_eq!(halves.index(SeqNum(3), index(3)), Ok(IndexFate::Late));
        assert!(halves.index(SeqNum(4), index(4)).is_err());
        assert!(halves.is_empty());
    }

    #[test]
    fn packets_without_index_go_when_no_more_can_come() {
        let mut halves = Halves::default();
        halves.data(SeqNum(0), 0).unwrap();
        halves.data(SeqNum(1), 1).unwrap();
        halves.index(SeqNum(1), index(1)).unwrap();
        halves.index(SeqNum(2), index(2)).unwrap();
        assert_eq!(halves.drop_data(), 1);
        assert_eq!(due(&mut halves), [1]);
        assert!(halves.awaits_data());
    }

    #[test]
    fn half_packets_do_not_pile_up_for_ever() {
        let mut halves = Halves::<u64>::default();
        for seq in 0..MAX_PENDING_PACKETS as u64 {
            halves.index(SeqNum(seq), index(seq)).unwrap();
        }
        let many = HalfError::TooMany(SeqNum(9999));
        assert_eq!(halves.index(SeqNum(9999), index(0)), Err(many));
    }
}
