//! Matches of packets: the same packet where it was sent and where it was received.

use std::collections::BTreeMap;

use clock_offset::PacketTimes;

use super::packets::{Direction, PacketEvent};

/// The packets from host to host.
#[derive(Debug, Default)]
pub(super) struct PacketMatches {
    /// By the numbers of the sender and of the receiver.
    pub(super) pairs: BTreeMap<(u16, u16), Vec<PacketTimes>>,
    /// The number of packets that were left out, because it is not certain which event of one host
    /// belongs to which of another.
    pub(super) ambiguous: u64,
}

/// A host that has seen a packet, and when first.
#[derive(Debug, Clone, Copy)]
struct Sighting {
    host: u16,
    time: i64,
}

impl PacketMatches {
    /// Matches events that are in their order.
    pub(super) fn of_events(events: &[PacketEvent]) -> Self {
        let mut matches = Self::default();
        for of_packet in events.chunk_by(|one, other| one.key == other.key) {
            matches.add(of_packet);
        }
        matches
    }

    /// Adds all events of one packet.
    fn add(&mut self, events: &[PacketEvent]) {
        let received = events.partition_point(|event| event.direction == Direction::Sent);
        let (sent, received) = events.split_at(received);
        let is_between_hosts = match (sent, received) {
            ([first, ..], [_, ..]) => events.iter().any(|event| event.host != first.host),
            _ => false,
        };
        if is_between_hosts && self.add_pairs(sent, received).is_none() {
            self.ambiguous += 1;
        }
    }

    /// Adds the pairs of hosts that a packet has passed. None if that is not certain.
    fn add_pairs(&mut self, sent: &[PacketEvent], received: &[PacketEvent]) -> Option<()> {
        let (sent, received) = (sightings(sent)?, sightings(received)?);
        // A router receives a packet and then sends it. Any router receives it after the host that
        // has only sent it, and sends it before the host that has only received it.
        let origin = at_most_one_beside(&sent, &received)?;
        let destination = at_most_one_beside(&received, &sent)?;
        let from_origin = origin.into_iter().flat_map(|origin| {
            let pair = move |receiver: &Sighting| (origin, *receiver);
            received.iter().map(pair)
        });
        let to_destination = destination.into_iter().flat_map(|destination| {
            // The pair of both is known.
            let is_router = |sender: &&Sighting| origin.is_none_or(|one| one.host != sender.host);
            let pair = move |sender: &Sighting| (*sender, destination);
            sent.iter().filter(is_router).map(pair)
        });
        for (sender, receiver) in from_origin.chain(to_destination) {
            let packets = self.pairs.entry((sender.host, receiver.host)).or_default();
            packets.push(PacketTimes {
                sent: sender.time,
                received: receiver.time,
            });
        }
        (origin.is_some() || destination.is_some()).then_some(())
    }
}

/// Returns the hosts of some events of one direction, in order. A host that has several network
/// devices on top of each other, as a bridge or a bond, sees one packet at each; the first time is
/// right for any of them. None if a device has seen the packet twice, because it was sent again.
fn sightings(events: &[PacketEvent]) -> Option<Vec<Sighting>> {
    let mut sightings: Vec<Sighting> = Vec::new();
    let mut last: Option<&PacketEvent> = None;
    for event in events {
        let place = (event.host, event.device);
        if last.is_some_and(|last| (last.host, last.device) == place) {
            return None;
        }
        last = Some(event);
        match sightings.last_mut() {
            Some(known) if known.host == event.host => known.time = known.time.min(event.time),
            _ => sightings.push(Sighting {
                host: event.host,
                time: event.time,
            }),
        }
    }
    Some(sightings)
}

/// Returns the one of some hosts that is not among others, if there is one. None if there are more.
fn at_most_one_beside(hosts: &[Sighting], others: &[Sighting]) -> Option<Option<Sighting>> {
    let mut beside = hosts.iter().filter(|one| {
        let found = others.binary_search_by_key(&one.host, |other| other.host);
        found.is_err()
    });
    let first = beside.next();
    beside.next().is_none().then_some(first.copied())
}

#[cfg(test)]
mod tests {
    use super::super::packets::PacketKey;
    use super::*;

    const SENT: Direction = Direction::Sent;
    const RECEIVED: Direction = Direction::Received;

    /// Matches events of one packet, each with direction, host, device and time.
    fn matched(events: &[(Direction, u16, u32, i64)]) -> (Vec<(u16, u16, i64, i64)>, u64) {
        let event = |&(direction, host, device, time): &(Direction, u16, u32, i64)| PacketEvent {
            key: PacketKey::default(),
            direction,
            host,
            device,
            time,
        };
        let mut events: Vec<_> = events.iter().map(event).collect();
        events.sort_unstable();
        let matches = PacketMatches::of_events(&events);
        let pairs = matches.pairs.iter().flat_map(|(&(from, to), packets)| {
            let pair = move |packet: &PacketTimes| (from, to, packet.sent, packet.received);
            packets.iter().map(pair)
        });
        (pairs.collect(), matches.ambiguous)
    }

    #[test]
    fn a_packet_is_matched_with_its_receiver() {
        let packet = [(SENT, 1, 0, 10), (RECEIVED, 2, 0, 500)];
        assert_eq!(matched(&packet), (vec![(1, 2, 10, 500)], 0));
        assert_eq!(matched(&packet[..1]), (vec![], 0));
        assert_eq!(matched(&packet[1..]), (vec![], 0));
    }

    #[test]
    fn packets_that_were_sent_again_are_left_out_and_counted() {
        let first = [(SENT, 1, 0, 10), (RECEIVED, 2, 0, 500)];
        for again in [(SENT, 1, 0, 900), (RECEIVED, 2, 0, 1500)] {
            let events = [first.as_slice(), &[again]].concat();
            assert_eq!(matched(&events), (vec![], 1), "{again:?}");
        }
    }

    #[test]
    fn devices_on_top_of_each_other_see_one_packet() {
        let packet = [
            (SENT, 1, 7, 12),
            (SENT, 1, 8, 10),
            (RECEIVED, 2, 8, 500),
            (RECEIVED, 2, 9, 510),
        ];
        assert_eq!(matched(&packet), (vec![(1, 2, 10, 500)], 0));
    }

    #[test]
    fn packets_within_a_host_are_no_matches() {
        let packet = [(SENT, 1, 0, 10), (RECEIVED, 1, 0, 11)];
        assert_eq!(matched(&packet), (vec![], 0));
    }

    #[test]
    fn a_router_receives_a_packet_before_it_sends_it() {
        let packet = [
            (SENT, 3, 0, 10),
            (RECEIVED, 1, 0, 500),
            (SENT, 1, 1, 501),
            (RECEIVED, 2, 0, 900),
        ];
        let pairs = vec![(1, 2, 501, 900), (3, 1, 10, 500), (3, 2, 10, 900)];
        assert_eq!(matched(&packet), (pairs, 0));
        // Without the origin.
        assert_eq!(matched(&packet[1..]), (vec![(1, 2, 501, 900)], 0));
        // Of two routers alone, it is not certain which is first.
        let packet = [packet[1], packet[2], (SENT, 2, 0, 3), (RECEIVED, 2, 0, 4)];
        assert_eq!(matched(&packet), (vec![], 1));
    }

    #[test]
    fn packets_with_several_senders_or_receivers_are_left_out() {
        let packet = [(SENT, 1, 0, 10), (SENT, 2, 0, 20), (RECEIVED, 3, 0, 30)];
        assert_eq!(matched(&packet), (vec![], 1));
        let packet = [(SENT, 1, 0, 10), (RECEIVED, 2, 0, 20), (RECEIVED, 3, 0, 30)];
        assert_eq!(matched(&packet), (vec![], 1));
    }
}
