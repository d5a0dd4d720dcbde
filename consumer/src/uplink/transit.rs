//! Packets in transit over QUIC: sent, each on a stream of its own, and not acknowledged by the
//! relay's end of the connection. Bounds how far packets of a trace stream may overtake each other,
//! since the relay has to buffer those that wait for an earlier one, and gives up the earlier one
//! when its buffer is full. Knows no socket and no clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use wire::StreamId;

use super::send_queue::PacketOrigin;
use crate::limits::{MAX_TRANSIT_BYTES, MAX_TRANSIT_PACKETS};

/// The packets of all streams in transit. `S` is what sends a packet.
#[derive(Debug)]
pub(super) struct Transit<S> {
    /// By the relay's id of the stream, in the order of their numbers, from the oldest packet that
    /// is in transit.
    streams: BTreeMap<StreamId, VecDeque<TransitPacket<S>>>,
    /// Bytes of the packets in `streams`: the relay may have to buffer them.
    bytes: usize,
}

/// A packet, from when it is sent until all packets before it have arrived or are abandoned.
#[derive(Debug)]
struct TransitPacket<S> {
    bytes: usize,
    origin: PacketOrigin,
    /// None once the packet has arrived or is abandoned.
    sender: Option<S>,
}

impl<S> Default for Transit<S> {
    fn default() -> Self {
        Self {
            streams: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<S> Transit<S> {
    /// Whether a packet of this stream and size may be sent now.
    pub(super) fn has_room(&self, stream: StreamId, bytes: usize) -> bool {
        let packets = self.streams.get(&stream).map_or(0, VecDeque::len);
        // A packet that alone exceeds the limit may be sent when no other is in transit.
        let fits = self.bytes == 0 || self.bytes + bytes <= MAX_TRANSIT_BYTES;
        packets < MAX_TRANSIT_PACKETS && fits
    }

    /// Adds a packet that is being sent. Packets of a stream are added in order.
    pub(super) fn add(&mut self, stream: StreamId, bytes: usize, origin: PacketOrigin, sender: S) {
        self.bytes += bytes;
        let sender = Some(sender);
        let packets = self.streams.entry(stream).or_default();
        packets.push_back(TransitPacket {
            bytes,
            origin,
            sender,
        });
    }

    /// Removes the packets that have arrived, according to `has_arrived`.
    ///
    /// # Errors
    /// The first error of `has_arrived`.
    pub(super) fn remove_arrived<E>(
        &mut self,
        mut has_arrived: impl FnMut(&mut S) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut some = false;
        for packet in self.streams.values_mut().flatten() {
            if let Some(sender) = &mut packet.sender
                && has_arrived(sender)?
            {
                // The packet itself stays until those before it have arrived, because the relay may
                // still buffer it.
                packet.sender = None;
                some = true;
            }
        }
        if some {
            self.remove_settled();
        }
        Ok(some)
    }

    /// Removes the packets that were cut at `limit` or before, and have not arrived. Their senders
    /// are passed to `abandon`.
    pub(super) fn remove_late(&mut self, limit: Instant, mut abandon: impl FnMut(PacketOrigin, S)) {
        let mut some = false;
        for packet in self.streams.values_mut().flatten() {
            if packet.origin.cut_at <= limit
                && let Some(sender) = packet.sender.take()
            {
                abandon(packet.origin, sender);
                some = true;
            }
        }
        if some {
            self.remove_settled();
        }
    }

    /// Returns when the next packet in transit becomes late, if each may take `deadline` from when
    /// it was cut.
    pub(super) fn next_late(&self, deadline: Duration) -> Option<Instant> {
        let in_transit = self.streams.values().flatten();
        let waiting = in_transit.filter(|packet| packet.sender.is_some());
        let first = waiting.map(|packet| packet.origin.cut_at).min()?;
        Some(first + deadline)
    }

    fn remove_settled(&mut self) {
        for packets in self.streams.values_mut() {
            while let Some(packet) = packets.pop_front_if(|packet| packet.sender.is_none()) {
                self.bytes -= packet.bytes;
            }
        }
        self.streams.retain(|_, packets| !packets.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use wire::SeqNum;

    use super::*;
    use crate::queue::StreamKey;

    fn origin(seq: u64, cut_at: Instant) -> PacketOrigin {
        let stream = StreamKey(0);
        PacketOrigin {
            stream,
            seq,
            relay_seq: SeqNum(seq),
            cut_at,
        }
    }

    fn add(transit: &mut Transit<u64>, stream: u64, seq: u64, bytes: usize) -> bool {
        let has_room = transit.has_room(StreamId(stream), bytes);
        if has_room {
            let origin = origin(seq, Instant::now());
            transit.add(StreamId(stream), bytes, origin, seq);
        }
        has_room
    }

    fn arrive(transit: &mut Transit<u64>, arrived: &[u64]) {
        let has_arrived = |seq: &mut u64| Ok::<_, Infallible>(arrived.contains(seq));
        transit.remove_arrived(has_arrived).unwrap();
    }

    #[test]
    fn packets_of_a_stream_overtake_each_other_only_within_the_window() {
        let mut transit = Transit::default();
        let window = MAX_TRANSIT_PACKETS as u64;
        assert!((0..window).all(|seq| add(&mut transit, 7, seq, 10)));
        assert!(!add(&mut transit, 7, window, 10));
        assert!(add(&mut transit, 8, 0, 10), "another stream");
        let later: Vec<_> = (1..window).collect();
        arrive(&mut transit, &later);
        assert!(!add(&mut transit, 7, window, 10), "packet 0 is missing");
        arrive(&mut transit, &[0]);
        assert!(add(&mut transit, 7, window, 10));
    }

    #[test]
    fn bytes_in_transit_are_bounded_but_a_single_packet_is_not() {
        let mut transit = Transit::default();
        assert!(add(&mut transit, 1, 0, 2 * MAX_TRANSIT_BYTES));
        assert!(!add(&mut transit, 2, 1, 1));
        arrive(&mut transit, &[0]);
        assert!(add(&mut transit, 2, 1, 1));
        assert!(!add(&mut transit, 2, 2, MAX_TRANSIT_BYTES));
    }

    #[test]
    fn late_packets_are_removed_and_make_room() {
        let mut transit = Transit::default();
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        for seq in 0..3 {
            let origin = origin(seq, begin + second * u32::try_from(seq).unwrap());
            transit.add(StreamId(1), 5, origin, seq);
        }
        arrive(&mut transit, &[1]);
        assert_eq!(transit.next_late(second), Some(begin + second));
        let mut late = Vec::new();
        transit.remove_late(begin + second, |origin, _| late.push(origin.seq));
        assert_eq!(late, [0]);
        assert_eq!(transit.bytes, 5);
        assert_eq!(transit.next_late(second), Some(begin + second * 3));
    }
}
