//! Producers that send as fast as they can.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use relay_proto::command::CommandCode;
use relay_proto::index::SendIndex;
use relay_proto::{ControlHeader, DataHeader, Minor, Version};
use tests::producer::{Producer, index, live_session};
use tests::relay::Relay;
use wire::{Field, Message, SeqNum, StreamId};

use crate::process::cpu;

/// How a producer waits for replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendMode {
    /// Waits for the reply to each index, as LTTng's producers do.
    OneInFlight,
    /// Waits for the reply to each index, with TCP_NODELAY: without Nagle's algorithm.
    OneInFlightNoDelay,
    /// Waits only while the maximum number of indexes is in flight.
    Pipelined,
}

/// Time between two questions whether packets are still pending.
const PENDING_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of indexes in flight of a pipelined producer.
const WINDOW: u64 = 1024;
/// Bytes of small packets that a pipelined producer sends with one call.
pub(super) const BATCH_BYTES: usize = 256 << 10;

/// The load of one measurement.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) what: &'static str,
    /// Targets for throughput and processor time, relative to the reference.
    pub(crate) aims: [&'static str; 2],
    pub(crate) producers: usize,
    /// Number of streams of each producer.
    pub(crate) streams: usize,
    /// Size of each packet, in bytes.
    pub(crate) packet: usize,
    /// Bytes of all packets together.
    pub(crate) bytes: usize,
    pub(crate) send_mode: SendMode,
}

/// Result of a measurement.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) taken: Duration,
    pub(crate) relay_cpu: Duration,
}

impl Load {
    pub(crate) fn run(&self, relay: &mut Relay) -> Done {
        let senders: Vec<_> = (0..self.producers)
            .map(|number| Sender::open(relay, &format!("load-{number}"), self))
            .collect();
        let id = relay.process().id();
        // All senders begin together, and the time with them.
        let start = Arc::new(Barrier::new(senders.len() + 1));
        let running: Vec<_> = senders
            .into_iter()
            .map(|mut sender| {
                let start = Arc::clone(&start);
                thread::spawn(move || {
                    start.wait();
                    sender.send_all();
                    sender
                })
            })
            .collect();
        // Before the senders begin, so that nothing that the relay does for them is missed.
        let before = cpu(id);
        start.wait();
        let begun = Instant::now();
        let mut senders: Vec<_> = running
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .collect();
        senders.iter_mut().for_each(Sender::wait_until_read);
        let taken = begun.elapsed();
        let relay_cpu = cpu(id) - before;
        senders.iter_mut().for_each(Sender::end);
        Done { taken, relay_cpu }
    }
}

/// A producer and what it sends.
pub(crate) struct Sender {
    producer: Producer,
    streams: Vec<StreamId>,
    /// Packets sent so far, of all streams together. They are sent to the streams in turns.
    sent: u64,
    /// Packets to send, of all streams together.
    packets: u64,
    payload: Vec<u8>,
    send_mode: SendMode,
}

impl Sender {
    pub(crate) fn open(relay: &Relay, name: &str, load: &Load) -> Self {
        let mut producer = Producer::open(relay, live_session(name));
        let channels: Vec<_> = (0..load.streams)
            .map(|at| format!("channel_{at}"))
            .collect();
        let channels: Vec<_> = channels.iter().map(String::as_str).collect();
        let streams = producer.add_trace("trace", &channels);
        let mut sender = Self {
            producer,
            packets: (load.bytes / load.packet / load.producers) as u64,
            streams,
            sent: 0,
            payload: vec![0x5a; load.packet],
            send_mode: load.send_mode,
        };
        sender.set_send_mode(load.send_mode);
        sender
    }

    /// Sends differently from now on.
    pub(crate) fn set_send_mode(&mut self, send_mode: SendMode) {
        self.send_mode = send_mode;
        // LTTng's producers leave Nagle's algorithm on.
        let nodelay = send_mode != SendMode::OneInFlight;
        self.producer.data.set_nodelay(nodelay).unwrap();
        self.producer.control().set_nodelay(nodelay).unwrap();
    }

    /// Sends other packets from now on: `packets` more, of `bytes` bytes each.
    pub(crate) fn set_packets(&mut self, packets: u64, bytes: usize) {
        self.packets = self.sent + packets;
        self.payload.resize(bytes, 0x5a);
    }

    /// Sends all packets. Returns the time from each index to its reply, unless several are in
    /// flight.
    pub(crate) fn send_all(&mut self) -> Vec<Duration> {
        if self.send_mode == SendMode::Pipelined {
            self.send_pipelined();
            return Vec::new();
        }
        let left = self.packets - self.sent;
        (0..left).map(|_| self.send_one()).collect()
    }

    /// Waits until the relay has read all packets: it may answer an index before. To be called for
    /// one producer at a time: `lttng-relayd` reads no packets while it has commands to answer.
    pub(crate) fn wait_until_read(&mut self) {
        let (stream, seq) = self.place(self.sent - 1);
        while self.producer.is_pending(stream, seq) {
            thread::sleep(PENDING_INTERVAL);
        }
    }

    /// Sends a packet of each stream, and waits for each reply before the next.
    pub(crate) fn send_round(&mut self) {
        for _ in 0..self.streams.len() {
            self.send_one();
        }
    }

    /// Sends the next packet as LTTng does: header, payload, then the index. Returns the time from
    /// the index to its reply.
    fn send_one(&mut self) -> Duration {
        let (stream, seq) = self.place(self.sent);
        self.sent += 1;
        let mut head = Vec::with_capacity(DataHeader::SIZE);
        self.header(stream, seq).write(&mut head);
        self.producer.data.write_all(&head).unwrap();
        self.producer.data.write_all(&self.payload).unwrap();
        let mut command = Vec::with_capacity(INDEX_BYTES);
        self.write_index(stream, seq, &mut command);
        let mut control = self.producer.control();
        let begun = Instant::now();
        control.write_all(&command).unwrap();
        let mut reply = OK;
        control.read_exact(&mut reply).unwrap();
        let taken = begun.elapsed();
        assert_eq!(reply, OK);
        taken
    }

    /// The stream of the packet with this number, and its sequence number there.
    fn place(&self, number: u64) -> (StreamId, u64) {
        let streams = self.streams.len() as u64;
        let stream = self.streams[(number % streams) as usize];
        (stream, number / streams)
    }

    fn send_pipelined(&mut self) {
        let (mut acknowledged, mut in_flight) = (0, 0);
        let batch = (BATCH_BYTES / self.payload.len()).max(1) as u64;
        let (mut heads, mut commands) = (Vec::new(), Vec::new());
        let total = self.packets - self.sent;
        let mut next = self.sent;
        while next < self.packets {
            let count = batch.min(self.packets - next);
            heads.clear();
            commands.clear();
            for number in next..next + count {
                let (stream, seq) = self.place(number);
                self.header(stream, seq).write(&mut heads);
                self.write_index(stream, seq, &mut commands);
            }
            // One payload for all packets: the producer must not be what limits the relay.
            let mut slices: Vec<_> = heads
                .chunks(DataHeader::SIZE)
                .flat_map(|head| [IoSlice::new(head), IoSlice::new(&self.payload)])
                .collect();
            write_all_vectored(&mut self.producer.data, &mut slices);
            let mut control = self.producer.control();
            control.write_all(&commands).unwrap();
            next += count;
            in_flight += count;
            // Replies are read only when they must be, because each call costs time.
            while in_flight >= WINDOW {
                let read = read_some(control);
                in_flight -= read;
                acknowledged += read;
            }
        }
        let control = self.producer.control();
        while acknowledged < total {
            acknowledged += read_some(control);
        }
        self.sent = self.packets;
    }

    fn header(&self, stream: StreamId, seq: u64) -> DataHeader {
        DataHeader {
            circuit: 0,
            stream,
            seq: SeqNum(seq),
            data_size: u32::try_from(self.payload.len()).unwrap(),
            padding_size: 0,
        }
    }

    fn write_index(&self, stream: StreamId, seq: u64, to: &mut Vec<u8>) {
        let code = CommandCode::SendIndex;
        ControlHeader::new(code, code.max_size() as u64).write(to);
        SendIndex {
            stream,
            seq: Some(SeqNum(seq)),
            packet: index(seq, self.payload.len() as u64),
        }
        .encode(MINOR, to);
    }

    pub(crate) fn end(&mut self) {
        let streams = std::mem::take(&mut self.streams);
        let count = streams.len() as u64;
        for (stream, number) in streams.into_iter().zip(0..) {
            let sent = self.sent.saturating_sub(number).div_ceil(count);
            self.producer.close_stream(stream, sent.checked_sub(1));
        }
    }
}

/// The protocol version that producers and relay agree on.
const MINOR: Minor = Minor(Version::OURS.minor);

/// Size of a `SEND_INDEX` command with its header.
const INDEX_BYTES: usize = ControlHeader::SIZE + <SendIndex as Message<Minor>>::MAX_SIZE;

/// The reply to an index that was accepted.
const OK: [u8; 4] = [0, 0, 0, 10];

/// Reads the replies that have arrived, at least one. Returns their number.
fn read_some(mut control: &TcpStream) -> u64 {
    let mut bytes = [0; 4096];
    let mut read = 0;
    loop {
        let more = control.read(&mut bytes[read..]).unwrap();
        assert!(more > 0, "the relay has closed the connection");
        read += more;
        // A reply may be cut between two calls.
        if read.is_multiple_of(OK.len()) {
            break;
        }
    }
    assert!(bytes[..read].chunks(OK.len()).all(|answer| answer == OK));
    (read / OK.len()) as u64
}

pub(super) fn write_all_vectored(to: &mut TcpStream, mut slices: &mut [IoSlice<'_>]) {
    while !slices.is_empty() {
        // Linux fails a call with more slices (`IOV_MAX`).
        let count = slices.len().min(1024);
        let written = to.write_vectored(&slices[..count]).unwrap();
        IoSlice::advance_slices(&mut slices, written);
    }
}
