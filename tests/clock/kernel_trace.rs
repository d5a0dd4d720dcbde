//! Kernel traces of made-up hosts, with the events of TCP packets that LTTng records.

use std::fs;
use std::path::{Path, PathBuf};

use tests::lab::Lab;

/// How the tracer records packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// `net_dev_queue` and `net_if_receive_skb` of LTTng 2.9 and later.
    Ipv4,
    Ipv6,
    /// `inet_sock_local_out` and `inet_sock_local_in` of an add-on.
    AddOn,
}

/// What the events of a TCP packet have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) recorded: Recorded,
    pub(crate) ports: [u16; 2],
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) identification: u16,
}

/// The kernel trace of a host, while its events are added in any order.
#[derive(Debug)]
pub(crate) struct KernelTrace {
    host: String,
    /// Nanoseconds from 1970 to the zero of the clock.
    clock_offset: i64,
    /// The time of each event, and its bytes.
    events: Vec<(u64, Vec<u8>)>,
}

impl KernelTrace {
    pub(crate) fn new(host: &str, clock_offset: i64) -> Self {
        Self {
            host: host.to_owned(),
            clock_offset,
            events: Vec::new(),
        }
    }

    /// A packet is sent by a network device.
    pub(crate) fn sent(&mut self, time: u64, device: &str, packet: &Packet) {
        let id = if packet.recorded == Recorded::AddOn {
            2
        } else {
            0
        };
        self.add(time, id, &packet.fields(device));
    }

    /// A packet is received by a network device.
    pub(crate) fn received(&mut self, time: u64, device: &str, packet: &Packet) {
        let id = if packet.recorded == Recorded::AddOn {
            3
        } else {
            1
        };
        self.add(time, id, &packet.fields(device));
    }

    /// An event that is no packet, with a number.
    pub(crate) fn numbered(&mut self, time: u64, number: u32) {
        self.add(time, 4, &number.to_le_bytes());
    }

    fn add(&mut self, time: u64, id: u16, fields: &[u8]) {
        let header = [&id.to_le_bytes()[..], &time.to_le_bytes()].concat();
        self.events.push((time, [&header, fields].concat()));
    }

    /// Writes the trace to a directory of the lab with this name and that of the host, and returns
    /// it.
    pub(crate) fn write(mut self, lab: &Lab, name: &str) -> PathBuf {
        self.events.sort();
        let directory = lab.directory(&format!("{name}-{}", self.host.escape_default()));
        let mut hash = [7; 16];
        for (place, byte) in self.host.bytes().enumerate() {
            hash[place % 16] ^= byte.rotate_left(3);
        }
        let boot = ctf::model::Uuid(hash);
        let metadata = METADATA
            .replace("@NET_DEVICE@", NET_DEVICE)
            .replace("@HOST@", &self.host)
            .replace("@BOOT@", &boot.to_string())
            .replace("@OFFSET@", &self.clock_offset.to_string());
        fs::write(directory.join("metadata"), metadata).unwrap();
        self.write_events(&directory.join("channel0_0"));
        directory
    }

    fn write_events(&self, file: &Path) {
        let first = self.events.first().map_or(0, |event| event.0);
        let last = self.events.last().map_or(0, |event| event.0);
        let events: Vec<u8> = self
            .events
            .iter()
            .flat_map(|event| event.1.clone())
            .collect();
        let size = (4 + 4 + 8 * 4 + events.len() as u64) * 8;
        let head = [
            &0xc1fc_1fc1_u32.to_le_bytes()[..],
            &0_u32.to_le_bytes(),
            &first.to_le_bytes(),
            &last.to_le_bytes(),
            &size.to_le_bytes(),
            &size.to_le_bytes(),
        ];
        fs::write(file, [head.concat(), events].concat()).unwrap();
    }
}

impl Packet {
    const FLAGS: u16 = 0x18;
    const WINDOW: u16 = 501;

    fn fields(&self, device: &str) -> Vec<u8> {
        let socket = 0xffff_8800_1d51_0e00_u64.to_le_bytes();
        if self.recorded == Recorded::AddOn {
            let header = [
                &self.sequence.to_be_bytes()[..],
                &self.acknowledgement.to_be_bytes(),
                &0xbeef_u16.to_be_bytes(),
                &Self::WINDOW.to_be_bytes(),
                &Self::FLAGS.to_be_bytes(),
            ];
            return [&socket[..], &header.concat()].concat();
        }
        let length = 1500_u32.to_le_bytes();
        let name = [device.as_bytes(), &[0]].concat();
        let fields = [&socket[..], &length, &name, &self.network_header()];
        fields.concat()
    }

    /// The headers of the packet, each with its type before it.
    fn network_header(&self) -> Vec<u8> {
        let mut header = match self.recorded {
            Recorded::Ipv6 => {
                let mut header = vec![2, 0x60, 1, 2, 3, 5, 200, 6, 64];
                header.extend([0x20; 32]);
                header
            }
            Recorded::Ipv4 | Recorded::AddOn => {
                let [high, low] = self.identification.to_be_bytes();
                let mut header = vec![1, 0x45, 0, 5, 220, high, low, 0x40, 0, 64, 6, 0xbe, 0xef];
                header.extend([10, 0, 0, 7, 10, 0, 0, 8]);
                header
            }
        };
        let [source, destination] = self.ports;
        header.push(1);
        header.extend(source.to_be_bytes());
        header.extend(destination.to_be_bytes());
        header.extend(self.sequence.to_be_bytes());
        header.extend(self.acknowledgement.to_be_bytes());
        header.extend((0x8000 | Self::FLAGS).to_be_bytes());
        header.extend(Self::WINDOW.to_be_bytes());
        // Checksum and urgent pointer.
        header.extend([0xde, 0xad, 0, 0]);
        header
    }
}

/// The fields are those of LTTng 2.13, and of the add-on of 2.1.
const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 16; align = 8; signed = false; byte_order = be; } := be16;
typealias integer { size = 32; align = 8; signed = false; byte_order = be; } := be32;
typealias integer { size = 4; align = 4; signed = false; byte_order = be; } := be4;
trace {
	major = 1;
	minor = 8;
	byte_order = le;
	packet.header := struct { uint32_t magic; uint32_t stream_id; };
};
env {
	hostname = "@HOST@";
	domain = "kernel";
	sysname = "Linux";
	tracer_name = "lttng-modules";
	tracer_major = 2;
	tracer_minor = 13;
};
clock {
	name = "monotonic";
	uuid = "@BOOT@";
	description = "Monotonic Clock";
	freq = 1000000000;
	offset = @OFFSET@;
};
typealias integer {
	size = 64; align = 8; signed = false; map = clock.monotonic.value;
} := uint64_clock_monotonic_t;
struct header_tcp {
	be16 _source_port; be16 _dest_port; be32 _seq; be32 _ack_seq; be4 _data_offset;
	integer { size = 3; align = 1; signed = false; byte_order = be; } _reserved;
	integer { size = 9; align = 1; signed = false; byte_order = be; base = 16; } _flags;
	be16 _window_size; be16 _checksum; be16 _urg_ptr;
};
struct inet_sock_template {
	uint64_t _sk; be32 _seq; be32 _ack_seq; be16 _check; be16 _window; be16 _flags;
};
stream {
	id = 0;
	event.header := struct { uint16_t id; uint64_clock_monotonic_t timestamp; };
	packet.context := struct {
		uint64_clock_monotonic_t timestamp_begin; uint64_clock_monotonic_t timestamp_end;
		uint64_t content_size; uint64_t packet_size;
	};
};
event { name = "net_dev_queue"; id = 0; stream_id = 0; fields := struct {@NET_DEVICE@}; };
event { name = "net_if_receive_skb"; id = 1; stream_id = 0; fields := struct {@NET_DEVICE@}; };
event { name = "inet_sock_local_out"; id = 2; stream_id = 0; fields := struct inet_sock_template; };
event { name = "inet_sock_local_in"; id = 3; stream_id = 0; fields := struct inet_sock_template; };
event { name = "numbered"; id = 4; stream_id = 0; fields := struct { uint32_t _number; }; };
"#;

/// The fields of events of network devices. Babeltrace takes no name of a structure with a variant
/// in two events.
const NET_DEVICE: &str = r#"
	uint64_t _skbaddr; uint32_t _len; string _name;
	enum : uint8_t { "_unknown" = 0, "_ipv4" = 1, "_ipv6" = 2 } _network_header_type;
	variant <_network_header_type> {
		struct { } _unknown;
		struct {
			be4 _version; be4 _ihl; uint8_t _tos; be16 _tot_len; be16 _id; be16 _frag_off; uint8_t _ttl;
			enum : uint8_t { "_unknown" = 0, "_icmp" = 1, "_unknown" = 2 ... 5, "_tcp" = 6,
				"_unknown" = 7 ... 16, "_udp" = 17, "_unknown" = 18 ... 255 } _protocol;
			be16 _checksum; uint8_t _saddr[4]; uint8_t _daddr[4];
			enum : uint8_t { "_unknown" = 0, "_tcp" = 1, "_udp" = 2, "_icmp" = 3 } _transport_header_type;
			variant <_transport_header_type> {
				struct { } _unknown; struct header_tcp _tcp; struct { } _udp; struct { } _icmp;
			} _transport_header;
		} _ipv4;
		struct {
			be4 _version; be4 _prio; uint8_t _flow_lbl[3]; be16 _payload_len; uint8_t _nexthdr;
			uint8_t _hop_limit; be16 _saddr[8]; be16 _daddr[8];
			enum : uint8_t { "_unknown" = 0, "_tcp" = 1, "_udp" = 2, "_icmp" = 3 } _transport_header_type;
			variant <_transport_header_type> {
				struct { } _unknown; struct header_tcp _tcp; struct { } _udp; struct { } _icmp;
			} _transport_header;
		} _ipv6;
	} _network_header;
"#;
