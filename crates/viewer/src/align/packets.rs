//! TCP packets in kernel traces of LTTng: which packet was sent or received, and when.
//!
//! The tracer records the headers of a packet when it is given to a network device and when a
//! device has received it (`net_dev_queue`; `net_if_receive_skb`, formerly `netif_receive_skb`).
//! The events of an older add-on have a part of the TCP header (`inet_sock_local_out`,
//! `inet_sock_local_in`). The fields are in structures and variants that differ from version to
//! version, but their names tell them apart.

use std::hash::{DefaultHasher, Hash, Hasher};

use ctf::decode::{NumberFormat, StreamDecoder, Visitor};
use ctf::directory::{StreamFiles, StreamReader, TraceDirectory};
use ctf::metadata::Trace;
use ctf::model::Scope;

/// The most events that wait for their matches, of all traces together: 80 MB.
const MAX_EVENTS: usize = 1 << 21;

/// What a packet has on its whole way. Checksums are not among it, because devices compute them,
/// nor are addresses, which routers change; numbers that an event does not have are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PacketKey {
    pub(super) ports: [u16; 2],
    pub(super) sequence: u32,
    pub(super) acknowledgement: u32,
    pub(super) flags: u16,
    pub(super) window: u16,
    /// The number of the IPv4 packet. One that is sent again has another.
    pub(super) identification: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    Sent,
    Received,
}

/// A host has sent or received a packet. The order brings together what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PacketEvent {
    pub(super) key: PacketKey,
    pub(super) direction: Direction,
    /// The number of the host.
    pub(super) host: u16,
    /// Tells network devices of the host apart.
    pub(super) device: u32,
    /// The time of the host's clock, in nanoseconds.
    pub(super) time: i64,
}

/// The events of packets of all traces. If there are too many, those of some packets are kept,
/// which are the same packets on each host.
#[derive(Debug)]
pub(super) struct PacketEvents {
    events: Vec<PacketEvent>,
    max: usize,
    /// The rank that the key of a packet needs to be kept.
    min_rank: u32,
}

impl Default for PacketEvents {
    fn default() -> Self {
        Self::with_max(MAX_EVENTS)
    }
}

impl PacketEvents {
    pub(super) fn with_max(max: usize) -> Self {
        Self {
            events: Vec::new(),
            max,
            min_rank: 0,
        }
    }

    pub(super) fn add(&mut self, event: PacketEvent) {
        while self.events.len() >= self.max {
            // No rank is above 64, so that this ends also if all are events of one packet.
            self.min_rank += 1;
            self.events
                .retain(|known| known.key.rank() >= self.min_rank);
        }
        if event.key.rank() >= self.min_rank {
            self.events.push(event);
        }
    }

    /// Whether some packets were left out.
    pub(super) fn is_partial(&self) -> bool {
        self.min_rank > 0
    }

    /// Returns the events in their order.
    pub(super) fn into_sorted(mut self) -> Vec<PacketEvent> {
        self.events.sort_unstable();
        self.events
    }

    /// Adds the events of a trace of this host.
    pub(super) fn read(&mut self, trace: &TraceDirectory, host: u16) {
        let declared = trace.metadata.trace();
        let mut add = |event: &ctf::decode::Event<'_>| {
            let direction = event.class().name().and_then(direction_of);
            if let Some(direction) = direction
                && let Ok(time) = i64::try_from(event.cycles())
                && let Some((key, device)) = HeaderFields::read(event)
            {
                self.add(PacketEvent {
                    key,
                    direction,
                    host,
                    device,
                    time,
                });
            }
        };
        for stream in &trace.streams {
            read_stream(declared, stream, &mut add);
        }
    }
}

impl PacketKey {
    /// Returns a number that half of all keys have one higher than the others, a quarter two, and
    /// so on.
    fn rank(&self) -> u32 {
        hash(self).leading_zeros()
    }
}

/// Whether a trace may have events of packets.
pub(super) fn has_packets(trace: &Trace) -> bool {
    let mut classes = trace.streams().flat_map(|stream| stream.events());
    classes.any(|class| class.name().and_then(direction_of).is_some())
}

fn direction_of(event_name: &str) -> Option<Direction> {
    match event_name {
        "net_dev_queue" | "inet_sock_local_out" => Some(Direction::Sent),
        "net_if_receive_skb" | "netif_receive_skb" | "inet_sock_local_in" => {
            Some(Direction::Received)
        }
        _ => None,
    }
}

/// Decodes what can be decoded of a stream. What cannot is reported when the events are shown.
fn read_stream(
    declared: &Trace,
    stream: &StreamFiles,
    add: &mut impl FnMut(&ctf::decode::Event<'_>),
) {
    let mut packets = StreamReader::new(stream);
    let mut decoder = StreamDecoder::new();
    let mut packet = Vec::new();
    while let Ok(true) = packets.next(&mut packet) {
        if decoder.begin_packet(declared, &packet).is_err() {
            continue;
        }
        while let Ok(true) = decoder.advance(declared, &packet) {
            if let Some(event) = decoder.event(declared, &packet) {
                add(&event);
            }
        }
    }
}

/// The fields of an event that tell packets apart.
#[derive(Debug, Default)]
struct HeaderFields {
    is_payload: bool,
    /// The name of the member that comes next.
    next: Option<Header>,
    key: PacketKey,
    device: u32,
    has_sequence: bool,
    has_acknowledgement: bool,
    has_flags: bool,
}

/// A field that is read.
#[derive(Debug, Clone, Copy)]
enum Header {
    SourcePort,
    DestinationPort,
    Sequence,
    Acknowledgement,
    Flags,
    Window,
    Identification,
    Device,
}

impl HeaderFields {
    /// Returns the packet that an event is of, and its device. None if it is not of TCP.
    fn read(event: &ctf::decode::Event<'_>) -> Option<(PacketKey, u32)> {
        let mut fields = Self::default();
        event.visit_fields(&mut fields).ok()?;
        let is_tcp = fields.has_sequence && fields.has_acknowledgement && fields.has_flags;
        is_tcp.then_some((fields.key, fields.device))
    }

    fn set(&mut self, field: Header, value: u64) {
        let [source, destination] = &mut self.key.ports;
        let (low, short) = ((value & 0xffff_ffff) as u32, (value & 0xffff) as u16);
        match field {
            Header::SourcePort => *source = short,
            Header::DestinationPort => *destination = short,
            Header::Sequence => (self.key.sequence, self.has_sequence) = (low, true),
            Header::Acknowledgement => {
                (self.key.acknowledgement, self.has_acknowledgement) = (low, true);
            }
            Header::Flags => (self.key.flags, self.has_flags) = (short, true),
            Header::Window => self.key.window = short,
            Header::Identification => self.key.identification = short,
            Header::Device => {}
        }
    }
}

impl Visitor for HeaderFields {
    fn begin_scope(&mut self, scope: Scope) {
        // Contexts may have fields of the same names.
        self.is_payload = scope == Scope::Payload;
    }

    fn member(&mut self, name: &str) {
        self.next = match name {
            _ if !self.is_payload => None,
            "source_port" | "source" => Some(Header::SourcePort),
            "dest_port" | "dest" => Some(Header::DestinationPort),
            "seq" => Some(Header::Sequence),
            "ack_seq" => Some(Header::Acknowledgement),
            "flags" => Some(Header::Flags),
            "window_size" | "window" => Some(Header::Window),
            "id" => Some(Header::Identification),
            "name" => Some(Header::Device),
            _ => None,
        };
    }

    fn unsigned(&mut self, value: u64, _: NumberFormat<'_>) {
        if let Some(field) = self.next.take() {
            self.set(field, value);
        }
    }

    fn text(&mut self, bytes: &[u8]) {
        if let Some(Header::Device) = self.next.take() {
            self.device = (hash(bytes) >> 32) as u32;
        }
    }
}

fn hash(of: &(impl Hash + ?Sized)) -> u64 {
    // The same each time, so that what is shown is, too.
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(packet: u32, host: u16, direction: Direction) -> PacketEvent {
        PacketEvent {
            key: PacketKey {
                sequence: packet,
                ..PacketKey::default()
            },
            direction,
            host,
            device: 0,
            time: i64::from(packet),
        }
    }

    #[test]
    fn of_too_many_events_those_of_the_same_packets_are_kept_of_each_host() {
        let mut events = PacketEvents::with_max(1000);
        let hosts = [(1, Direction::Sent), (2, Direction::Received)];
        for (host, direction) in hosts {
            for packet in 0..10_000 {
                events.add(event(packet, host, direction));
                assert!(events.events.len() <= 1000);
            }
        }
        assert!(events.is_partial());
        let kept = events.into_sorted();
        assert!(kept.len() > 400, "{}", kept.len());
        for of_packet in kept.chunk_by(|one, other| one.key == other.key) {
            let seen: Vec<_> = of_packet
                .iter()
                .map(|one| (one.host, one.direction))
                .collect();
            assert_eq!(seen, hosts);
        }
    }

    #[test]
    fn too_many_events_of_one_packet_are_left_out() {
        let mut events = PacketEvents::with_max(1000);
        for _ in 0..10_000 {
            events.add(event(7, 1, Direction::Sent));
            assert!(events.events.len() <= 1000);
        }
        assert_eq!(events.into_sorted(), []);
    }
}
