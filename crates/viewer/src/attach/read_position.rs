//! The read position in one stream: which packet was handed over last, and which index entries of a
//! new connection come after it.
//!
//! A new connection begins at the first packet that the relay still has. The entries up to the last
//! packet handed over are passed without fetching their packets. That packet is recognized by its
//! index entry, of which all fields are equal; of equal ones it is told by its number among the
//! packets of its time. If the relay does not have it any more (a ring of tracefiles overwrites the
//! oldest, another relay got only later ones), what follows is told by time: packets of a stream
//! are in order of time. Where their times have gone back, only the equal entry tells the place.

use viewer_proto::index::NextIndex;
use wire::{Bytes, PacketIndexV1_0};

/// The position up to which a stream has been handed over.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadPosition {
    /// Offset and index of the last packet that was handed over. Absent if there was none.
    last: Option<(Bytes, PacketIndexV1_0)>,
    /// The number of packets of the last one's time that were handed over one after the other, with
    /// the last one.
    same_time: u64,
    /// The number of entries of that time that the search has passed.
    passed_same_time: u64,
    /// Whether the relay is not the one that had the last packet.
    has_moved: bool,
    /// End and begin, in cycles, before which packets are not wanted while none was handed over.
    wanted_from: (u64, u64),
    /// Whether entries of a new connection have not reached the position yet.
    is_searching: bool,
    /// Whether a packet had an earlier time than the one before.
    goes_back: bool,
}

/// Where an index entry is, compared with the read position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryPlace {
    /// The packet was handed over on an earlier connection, or is older than what is wanted.
    HandedOver,
    /// The packet has not been handed over.
    New,
    /// The packet has not been handed over, and the relay no longer has the one handed over last:
    /// others between the two may be missing.
    NewAfterGap,
}

impl ReadPosition {
    /// Records that a packet has been handed over, or was given up.
    pub(super) fn record_packet(&mut self, index: &NextIndex) {
        self.same_time = match self.last.replace((index.offset, index.packet)) {
            Some((_, last)) if time(&last) == time(&index.packet) => self.same_time + 1,
            Some((_, last)) => {
                // For ever: times that have gone back once no longer tell the order of packets.
                self.goes_back |= time(&index.packet) < time(&last);
                1
            }
            None => 1,
        };
        self.is_searching = false;
    }

    /// Records that a watermark, in cycles, has been handed over. Packets that end before it were
    /// there before the stream was followed.
    pub(super) fn record_watermark(&mut self, until: u64) {
        self.wanted_from = self.wanted_from.max((until, until));
    }

    /// The next entries are those from the beginning of the stream, on a new connection. Packets
    /// that end before `wanted_from`, in cycles, are not wanted if no other was handed over.
    /// `has_moved` says that the relay may be another one, with other offsets.
    pub(super) fn search(&mut self, wanted_from: Option<u64>, has_moved: bool) {
        let wanted_from = (wanted_from.unwrap_or(0), 0);
        self.wanted_from = self.wanted_from.max(wanted_from);
        self.has_moved = has_moved;
        self.passed_same_time = 0;
        self.is_searching = self.last.is_some() || self.wanted_from > (0, 0);
    }

    /// Ends the search if only the packet that was handed over last could end it: the relay has no
    /// further entry. Returns whether it has done so, and other packets may be missing that only
    /// this relay had.
    pub(super) fn give_up_search(&mut self) -> bool {
        let is_given_up = self.is_searching && self.goes_back;
        self.is_searching &= !is_given_up;
        is_given_up && !self.has_moved
    }

    /// Whether entries are passed until the position is reached.
    pub(super) fn is_searching(&self) -> bool {
        self.is_searching
    }

    /// Compares the next entry of the stream with the position. The entries of a connection must be
    /// passed in their order, each once.
    pub(super) fn place(&mut self, index: &NextIndex) -> EntryPlace {
        if !self.is_searching {
            return EntryPlace::New;
        }
        let at = time(&index.packet);
        let Some((offset, last)) = self.last else {
            if at < self.wanted_from {
                return EntryPlace::HandedOver;
            }
            self.is_searching = false;
            return EntryPlace::New;
        };
        let is_same_time = at == time(&last);
        self.passed_same_time += u64::from(is_same_time);
        // Equal packets are those that have no length of time. Where the relay has overwritten some
        // of them, their number says nothing, and the offset does.
        let offset = (!self.has_moved && !has_length(&last)).then_some(offset);
        let is_last = self.passed_same_time >= self.same_time || offset == Some(index.offset);
        if index.packet == last && is_last {
            self.is_searching = false;
            return EntryPlace::HandedOver;
        }
        let is_behind =
            at > time(&last) || is_same_time && offset.is_some_and(|offset| index.offset > offset);
        if !is_behind || self.goes_back {
            return EntryPlace::HandedOver;
        }
        self.is_searching = false;
        match self.has_moved {
            // Another relay may not have what the lost one had acknowledged. An index entry has no
            // number of its packet: only the packets themselves tell whether any are missing, and
            // losses are counted by these numbers.
            true => EntryPlace::New,
            false => EntryPlace::NewAfterGap,
        }
    }
}

/// The time by which the packets of a stream are in order: end and begin, in cycles.
fn time(packet: &PacketIndexV1_0) -> (u64, u64) {
    (packet.end.0, packet.begin.0)
}

fn has_length(packet: &PacketIndexV1_0) -> bool {
    packet.begin < packet.end
}

#[cfg(test)]
mod tests {
    use viewer_proto::index::IndexStatus;
    use wire::{Bits, Timestamp};

    use super::EntryPlace::{HandedOver, New, NewAfterGap};
    use super::*;

    fn packet(offset: u64, begin: u64, end: u64) -> NextIndex {
        let mut index = NextIndex::without_packet(IndexStatus::Ready, 0);
        index.offset = Bytes(offset);
        index.packet.packet_size = Bits(128);
        index.packet.begin = Timestamp(begin);
        index.packet.end = Timestamp(end);
        index
    }

    /// The places of such packets after a reconnect, if `shown` were handed over.
    fn places(shown: &[NextIndex], packets: &[NextIndex]) -> Vec<EntryPlace> {
        places_at(false, shown, packets)
    }

    /// The places of such packets at another relay, if `shown` were handed over.
    fn moved(shown: &[NextIndex], packets: &[NextIndex]) -> Vec<EntryPlace> {
        places_at(true, shown, packets)
    }

    fn places_at(has_moved: bool, shown: &[NextIndex], packets: &[NextIndex]) -> Vec<EntryPlace> {
        let mut position = ReadPosition::default();
        shown.iter().for_each(|index| position.record_packet(index));
        position.search(None, has_moved);
        packets.iter().map(|index| position.place(index)).collect()
    }

    #[test]
    fn entries_up_to_the_last_packet_handed_over_are_passed() {
        let all: Vec<_> = (0..4)
            .map(|n| packet(16 * n, 10 * n, 10 * n + 10))
            .collect();
        assert_eq!(places(&all[..2], &all), [HandedOver, HandedOver, New, New]);
        let mut flagged = all[1];
        flagged.flags = 3;
        assert_eq!(places(&[flagged], &all[1..3]), [HandedOver, New]);
    }

    #[test]
    fn an_overwritten_entry_is_a_gap_before_the_first_later_packet() {
        let last = packet(16, 10, 20);
        let later = [packet(0, 30, 40), packet(16, 40, 50)];
        assert_eq!(places(&[last], &later), [NewAfterGap, New]);
        let overlapping = [packet(0, 5, 15), packet(32, 15, 25), packet(48, 25, 35)];
        assert_eq!(
            places(&[last], &overlapping),
            [HandedOver, NewAfterGap, New]
        );
    }

    #[test]
    fn packets_of_equal_times_are_told_apart_by_their_offset() {
        let all: Vec<_> = (0..4).map(|n| packet(16 * n, 0, 0)).collect();
        assert_eq!(
            places(&all[..3], &all),
            [HandedOver, HandedOver, HandedOver, New]
        );
        assert_eq!(places(&all[..2], &all[2..]), [NewAfterGap, New]);
        let zero_length = [packet(0, 5, 10), packet(16, 10, 10), packet(32, 10, 10)];
        assert_eq!(
            places(&zero_length[..2], &zero_length),
            [HandedOver, HandedOver, New]
        );
    }

    #[test]
    fn a_packet_of_a_stream_whose_clock_has_gone_back_is_found_by_its_entry_only() {
        let times = [(900, 950), (950, 990), (5, 10), (10, 20), (20, 30)];
        let all: Vec<_> = (0..)
            .zip(times)
            .map(|(n, (begin, end))| packet(16 * n, begin, end))
            .collect();
        let mut position = ReadPosition::default();
        all[..4]
            .iter()
            .for_each(|index| position.record_packet(index));
        position.search(None, false);
        let places: Vec<_> = all.iter().map(|index| position.place(index)).collect();
        assert_eq!(places, [[HandedOver; 4].as_slice(), &[New]].concat());
        assert!(!position.give_up_search());
        position.search(None, false);
        assert_eq!(position.place(&packet(0, 30, 40)), HandedOver);
        assert!(position.give_up_search() && !position.give_up_search());
        assert_eq!(position.place(&packet(16, 40, 50)), New);
        // What another relay does not have is known by the numbers of its packets.
        position.search(None, true);
        assert_eq!(position.place(&packet(0, 30, 40)), HandedOver);
        assert!(!position.give_up_search() && !position.is_searching());
    }

    #[test]
    fn a_packet_is_recognized_if_the_relay_counts_offsets_from_another_place() {
        let moved = [packet(0, 10, 20), packet(16, 20, 30)];
        assert_eq!(places(&[packet(4096, 10, 20)], &moved), [HandedOver, New]);
    }

    #[test]
    fn equal_packets_are_counted_at_a_relay_with_other_offsets() {
        // Two packets of one event each at the same time, twice; and one that differs.
        let mut all: Vec<_> = [5, 5, 5, 5, 9, 9]
            .iter()
            .zip(0..)
            .map(|(at, n)| packet(16 * n, *at, *at))
            .collect();
        all[1].packet.packet_size = Bits(256);
        // The other relay has the same ones, at offsets that the lost one had for later ones.
        let there: Vec<_> = all
            .iter()
            .zip(0..)
            .map(|(index, n)| NextIndex {
                offset: Bytes(16 * (n + 1)),
                ..*index
            })
            .collect();
        for shown in 1..all.len() {
            let mut want = vec![HandedOver; shown];
            want.resize(all.len(), New);
            assert_eq!(moved(&all[..shown], &there), want, "{shown}");
        }
        // The times of a stream without a clock are all equal.
        let all: Vec<_> = (0..6).map(|n| packet(16 * n, 0, 0)).collect();
        let there: Vec<_> = (0..6).map(|n| packet(8 * n, 0, 0)).collect();
        let want = [[HandedOver; 4].as_slice(), &[New; 2]].concat();
        assert_eq!(moved(&all[..4], &there), want);
    }

    #[test]
    fn a_restarted_relay_with_other_offsets_has_the_last_packet_of_one_event() {
        let last = [packet(0, 10, 20), packet(16, 30, 30)];
        let there = [packet(64, 10, 20), packet(80, 30, 30), packet(96, 40, 40)];
        assert_eq!(places(&last, &there), [HandedOver, HandedOver, New]);
    }

    #[test]
    fn another_relay_without_the_last_packet_goes_on_with_the_first_later_one() {
        let all: Vec<_> = (0..5)
            .map(|n| packet(16 * n, 10 * n, 10 * n + 10))
            .collect();
        for change in [
            (|index| index.packet.content_size = Bits(8)) as fn(&mut NextIndex),
            |index| index.packet.packet_size = Bits(256),
            |index| index.packet.events_discarded = 1,
        ] {
            let last = packet(16, 30, 30);
            let mut other = last;
            change(&mut other);
            let there = [all[0], other, last, packet(48, 30, 30)];
            let want = [HandedOver, HandedOver, HandedOver, New];
            assert_eq!(moved(&[all[0], last], &there), want);
        }
        let without = [all[0], all[1], all[3], all[4]];
        let want = [HandedOver, HandedOver, New, New];
        assert_eq!(moved(&all[..3], &without), want);
        assert_eq!(moved(&all[..3], &all[3..]), [New, New]);
        assert_eq!(moved(&all[..3], &all[2..]), [HandedOver, New, New]);
        // Of a new stream everything is new.
        assert_eq!(moved(&[], &all[..2]), [New, New]);
    }

    #[test]
    fn packets_from_before_the_stream_was_followed_are_not_wanted() {
        let all: Vec<_> = (0..4)
            .map(|n| packet(16 * n, 10 * n, 10 * n + 10))
            .collect();
        let mut position = ReadPosition::default();
        position.search(Some(20), false);
        let places: Vec<_> = all.iter().map(|index| position.place(index)).collect();
        assert_eq!(places, [HandedOver, New, New, New]);
        let mut position = ReadPosition::default();
        position.record_watermark(20);
        position.search(None, false);
        let places: Vec<_> = all.iter().map(|index| position.place(index)).collect();
        assert_eq!(places, [HandedOver, HandedOver, New, New]);
        let mut position = ReadPosition::default();
        position.search(None, false);
        assert_eq!(position.place(&all[0]), New);
    }
}
