//! Puts the packets of a stream in sequence: the next packet passes at once, an early packet waits
//! for those before it. The window of early packets is bounded; when it is full, the packets that
//! are still missing are given up.

use std::collections::BTreeMap;

use wire::{Bytes, SeqNum};

use super::reorder_budget::EarlyBuffer;

/// Limits of the reorder window. A missing packet is given up when the early packets after it reach
/// one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReorderWindow {
    /// Maximum number of early packets.
    pub packets: usize,
    /// Maximum bytes of the payloads of all early packets.
    pub bytes: Bytes,
}

impl Default for ReorderWindow {
    fn default() -> Self {
        Self {
            packets: 64,
            bytes: Bytes(32 << 20),
        }
    }
}

/// Position of an arriving packet in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The packet is the next one.
    Now,
    /// Packets before it are missing.
    Early,
    /// The packet has arrived before, or has been given up.
    Over,
}

/// A packet that waits for its turn.
#[derive(Debug)]
pub struct EarlyPacket {
    /// Number of the packet.
    pub seq: SeqNum,
    /// Bytes that were sent.
    pub payload: EarlyBuffer,
    /// Number of zeros that follow the payload.
    pub padding: u32,
}

/// Packets that were given up, from first to last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostPackets {
    /// Number of the first packet.
    pub first: SeqNum,
    /// Number of the last packet, which may be the first.
    pub last: SeqNum,
}

impl LostPackets {
    /// Number of packets that were given up.
    #[must_use]
    pub fn count(self) -> u64 {
        // A run of all numbers would have one more than fits.
        (self.last.0 - self.first.0).saturating_add(1)
    }
}

/// The sequence of one stream: a bounded window in front of the next packet.
#[derive(Debug)]
pub struct Reorder {
    window: ReorderWindow,
    /// Number of the next packet. None before the first packet, which sets it, because the numbers
    /// of a stream need not begin at 0.
    next: Option<SeqNum>,
    waiting: BTreeMap<SeqNum, EarlyPacket>,
    waiting_bytes: u64,
}

impl Reorder {
    /// A sequence with this window, before its first packet.
    #[must_use]
    pub fn new(window: ReorderWindow) -> Self {
        Self {
            window,
            next: None,
            waiting: BTreeMap::new(),
            waiting_bytes: 0,
        }
    }

    /// Declares the first packet of the sequence, unless it has begun or another was declared
    /// before.
    pub fn declare_first(&mut self, seq: SeqNum) {
        self.next.get_or_insert(seq);
    }

    /// The position of a packet with this number.
    #[must_use]
    pub fn turn(&self, seq: SeqNum) -> Turn {
        match self.next {
            // The first packet that arrives is taken for the first of the stream.
            None => Turn::Now,
            Some(next) if seq == next => Turn::Now,
            Some(next) if seq < next => Turn::Over,
            // A second packet with this number.
            Some(_) if self.has_packet(seq) => Turn::Over,
            Some(_) => Turn::Early,
        }
    }

    /// Number of the next packet. None: the first one to arrive decides.
    #[must_use]
    pub fn next(&self) -> Option<SeqNum> {
        self.next
    }

    /// Continues with packet `next`, and drops all early packets.
    pub fn restart_at(&mut self, next: SeqNum) {
        *self = Self::new(self.window);
        self.next = Some(next);
    }

    /// Advances to the packet after one that has been written.
    pub fn advance_past(&mut self, seq: SeqNum) {
        // Never saturates: 2^64-1 means "none", and the stream writer rejects it.
        self.next = Some(SeqNum(seq.0.saturating_add(1)));
    }

    /// Keeps an early packet until it is the next in sequence.
    pub fn keep_packet(&mut self, early: EarlyPacket) {
        self.waiting_bytes += early.payload.len() as u64;
        self.waiting.insert(early.seq, early);
    }

    /// Takes the early packet that is the next in sequence. None: it has not arrived.
    pub fn take_ready_packet(&mut self) -> Option<EarlyPacket> {
        let first = self.waiting.first_entry()?;
        if Some(*first.key()) != self.next {
            return None;
        }
        let early = first.remove();
        self.waiting_bytes -= early.payload.len() as u64;
        Some(early)
    }

    /// Whether the early packets fill the window. `more` is the number of received bytes of an
    /// early packet that is still arriving.
    #[must_use]
    pub fn is_full(&self, more: usize) -> bool {
        self.waiting.len() >= self.window.packets
            || self.waiting_bytes + more as u64 > self.window.bytes.0
    }

    /// Number of early packets, and of their bytes.
    #[must_use]
    pub fn waiting_packets(&self) -> (usize, Bytes) {
        (self.waiting.len(), Bytes(self.waiting_bytes))
    }

    /// Whether no packet waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives up the packets that are missing before the first early packet, or before `arriving` if
    /// that has a lower number. None: no packet is missing there.
    pub fn give_up_missing(&mut self, arriving: Option<SeqNum>) -> Option<LostPackets> {
        let first_waiting = self.waiting.first_key_value().map(|(seq, _)| *seq);
        let until = match (first_waiting, arriving) {
            (Some(waiting), Some(arriving)) => waiting.min(arriving),
            (one, other) => one.or(other)?,
        };
        let first = self.next?;
        // The packet can be written as the next one.
        if first >= until {
            return None;
        }
        self.next = Some(until);
        Some(LostPackets {
            first,
            last: SeqNum(until.0 - 1),
        })
    }

    /// Whether the packet with this number waits.
    #[must_use]
    pub fn has_packet(&self, seq: SeqNum) -> bool {
        self.waiting.contains_key(&seq)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn early(seq: u64) -> EarlyPacket {
        EarlyPacket {
            seq: SeqNum(seq),
            payload: vec![0; 10].into(),
            padding: 0,
        }
    }

    /// Lets a packet arrive as a stream does; gives the packets that pass and those given up.
    fn arrive(order: &mut Reorder, seq: u64) -> (Vec<u64>, Vec<LostPackets>) {
        let (mut passed, mut lost) = (Vec::new(), Vec::new());
        match order.turn(SeqNum(seq)) {
            Turn::Over => {}
            Turn::Now => {
                order.advance_past(SeqNum(seq));
                passed.push(seq);
            }
            Turn::Early => {
                order.keep_packet(early(seq));
                if order.is_full(0) {
                    lost.extend(order.give_up_missing(None));
                }
            }
        }
        while let Some(early) = order.take_ready_packet() {
            order.advance_past(early.seq);
            passed.push(early.seq.0);
        }
        (passed, lost)
    }

    #[test]
    fn packets_in_order_never_wait() {
        let mut order = Reorder::new(ReorderWindow::default());
        for seq in 7..1000 {
            assert_eq!(arrive(&mut order, seq), (vec![seq], vec![]));
            assert!(order.is_empty());
        }
    }

    #[test]
    fn a_declared_first_packet_is_waited_for() {
        let mut order = Reorder::new(ReorderWindow::default());
        order.declare_first(SeqNum(0));
        assert!(arrive(&mut order, 1).0.is_empty());
        assert_eq!(arrive(&mut order, 0).0, [0, 1]);
        order.declare_first(SeqNum(7));
        assert_eq!(arrive(&mut order, 2).0, [2]);
    }

    #[test]
    fn an_early_packet_waits_for_those_before_it() {
        let mut order = Reorder::new(ReorderWindow::default());
        assert_eq!(arrive(&mut order, 0).0, [0]);
        assert!(arrive(&mut order, 3).0.is_empty());
        assert!(arrive(&mut order, 2).0.is_empty());
        assert_eq!(arrive(&mut order, 1).0, [1, 2, 3]);
    }

    #[test]
    fn a_missing_packet_is_given_up_when_enough_has_come_after_it() {
        let mut order = Reorder::new(ReorderWindow {
            packets: 3,
            bytes: Bytes(1000),
        });
        arrive(&mut order, 0);
        assert_eq!(arrive(&mut order, 3), (vec![], vec![]));
        assert_eq!(arrive(&mut order, 4), (vec![], vec![]));
        let lost = LostPackets {
            first: SeqNum(1),
            last: SeqNum(2),
        };
        assert_eq!(arrive(&mut order, 6), (vec![3, 4], vec![lost]));
        assert_eq!(lost.count(), 2);
        assert_eq!(order.turn(SeqNum(1)), Turn::Over);
        assert_eq!(arrive(&mut order, 5).0, [5, 6]);
    }

    #[test]
    fn the_reorder_window_is_bounded_in_bytes_and_in_packets() {
        let mut order = Reorder::new(ReorderWindow {
            packets: 100,
            bytes: Bytes(25),
        });
        arrive(&mut order, 0);
        arrive(&mut order, 2);
        arrive(&mut order, 3);
        assert!(!order.is_full(5));
        assert!(order.is_full(6));
        assert_eq!(arrive(&mut order, 4).0, [2, 3, 4]);
    }

    #[test]
    fn a_second_packet_with_the_number_of_a_waiting_one_is_over() {
        let mut order = Reorder::new(ReorderWindow::default());
        arrive(&mut order, 0);
        arrive(&mut order, 2);
        assert_eq!(order.turn(SeqNum(2)), Turn::Over);
        assert_eq!(order.turn(SeqNum(0)), Turn::Over);
    }

    #[test]
    fn what_is_missing_before_an_arriving_packet_can_be_given_up_for_it() {
        let mut order = Reorder::new(ReorderWindow::default());
        arrive(&mut order, 0);
        arrive(&mut order, 5);
        let lost = order.give_up_missing(Some(SeqNum(3)));
        assert_eq!(
            lost,
            Some(LostPackets {
                first: SeqNum(1),
                last: SeqNum(2)
            })
        );
        assert_eq!(order.turn(SeqNum(3)), Turn::Now);
        assert_eq!(order.give_up_missing(Some(SeqNum(3))), None);
    }

    proptest! {
        #[test]
        fn any_order_within_the_window_comes_out_sorted_and_whole(
            shuffled in Just((1..60u64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut order = Reorder::new(ReorderWindow::default());
            let mut passed = arrive(&mut order, 0).0;
            for seq in shuffled {
                let (more, lost) = arrive(&mut order, seq);
                prop_assert!(lost.is_empty());
                passed.extend(more);
            }
            prop_assert_eq!(passed, (0..60).collect::<Vec<_>>());
        }

        #[test]
        fn what_passes_is_sorted_and_every_number_is_passed_lost_or_waiting(
            seqs in prop::collection::vec(0..300u64, 0..300),
            packets in 1..10usize,
        ) {
            let mut order = Reorder::new(ReorderWindow { packets, bytes: Bytes(u64::MAX) });
            let mut at = None;
            for seq in seqs {
                let (passed, lost) = arrive(&mut order, seq);
                // Each number from where it stood on is given up or passes, in order.
                let mut events: Vec<(u64, u64)> = passed.iter().map(|&p| (p, p)).collect();
                events.extend(lost.iter().map(|l| (l.first.0, l.last.0)));
                events.sort_unstable();
                for (first, last) in events {
                    prop_assert_eq!(first, at.unwrap_or(first));
                    at = Some(last + 1);
                }
                prop_assert!(order.waiting.len() < packets.max(1));
            }
        }
    }
}
