//! Producers that send as fast as they can.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use relay_proto::command::CommandCode;
use relay_proto::index::SendIndex;
use relay_proto::{ControlHeader, DataHeader};
use tests::producer::{Producer, index, live_session};
use tests::relay::Relay;
use wire::{Field, SeqNum, StreamId};

use crate::process::cpu;

/// How a producer waits for replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Waits for the reply to each index, as LTTng's producers do.
    OneInFlight,
    /// Waits only while the maximum number of indexes is in flight.
    Pipelined,
}

/// Maximum number of indexes in flight of a pipelined producer.
const WINDOW: u64 = 1024;
/// Bytes of small packets that a pipelined producer sends with one call.
const BATCH_BYTES: usize = 256 << 10;

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
    pub(crate) manner: Manner,
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
        let before = cpu(id);
        start.wait();
        let begun = Instant::now();
        let senders: Vec<_> = running
            .into_iter()
            .map(|sender| sender.join().unwrap())
            .collect();
        let taken = begun.elapsed();
        let relay_cpu = cpu(id) - before;
        senders.into_iter().for_each(|mut sender| sender.end());
        Done { taken, relay_cpu }
    }
}

/// One producer.
pub(crate) struct Sender {
    producer: Producer,
    streams: Vec<StreamId>,
    /// Packets sent so far, of each stream.
    sent: u64,
    /// Packets to send, of each stream.
    packets: u64,
    payload: Vec<u8>,
    manner: Manner,
}

impl Sender {
    pub(crate) fn open(relay: &Relay, name: &str, load: &Load) -> Self {
        let mut producer = Producer::open(relay, live_session(name));
        let channels: Vec<_> = (0..load.streams)
            .map(|at| format!("channel_{at}"))
            .collect();
        let channels: Vec<_> = channels.iter().map(String::as_str).collect();
        let streams = producer.add_trace("trace", &channels);
        let is_ours = load.manner == Manner::Pipelined;
        // LTTng's producers leave Nagle's algorithm on.
        producer.data.set_nodelay(is_ours).unwrap();
        producer.control().set_nodelay(is_ours).unwrap();
        Self {
            producer,
            packets: (load.bytes / load.packet / load.producers / load.streams) as u64,
            streams,
            sent: 0,
            payload: vec![0x5a; load.packet],
            manner: load.manner,
        }
    }

    pub(crate) fn send_all(&mut self) {
        match self.manner {
            Manner::OneInFlight => {
                for _ in 0..self.packets {
                    self.send_round();
                }
            }
            Manner::Pipelined => self.send_pipelined(),
        }
    }

    /// Sends a packet of each stream, and waits for each reply before the next.
    pub(crate) fn send_round(&mut self) {
        for at in 0..self.streams.len() {
            self.send_one(at);
        }
        self.sent += 1;
    }

    /// Sends the next packet of a stream as LTTng does: header, payload, then the index.
    fn send_one(&mut self, at: usize) {
        let stream = self.streams[at];
        let mut head = Vec::with_capacity(DataHeader::SIZE);
        self.header(stream, self.sent).write(&mut head);
        self.producer.data.write_all(&head).unwrap();
        self.producer.data.write_all(&self.payload).unwrap();
        let mut command = Vec::with_capacity(INDEX_BYTES);
        self.write_index(stream, self.sent, &mut command);
        let mut control = self.producer.control();
        control.write_all(&command).unwrap();
        let mut reply = OK;
        control.read_exact(&mut reply).unwrap();
        assert_eq!(reply, OK);
    }

    fn send_pipelined(&mut self) {
        let (mut acknowledged, mut in_flight) = (0, 0);
        let batch = (BATCH_BYTES / self.payload.len()).max(1) as u64;
        let (mut heads, mut commands) = (Vec::new(), Vec::new());
        let total = self.packets * self.streams.len() as u64;
        let mut next = 0;
        while next < total {
            let count = batch.min(total - next);
            heads.clear();
            commands.clear();
            for number in next..next + count {
                let stream = self.streams[(number % self.streams.len() as u64) as usize];
                let seq = number / self.streams.len() as u64;
                self.header(stream, seq).write(&mut heads);
                self.write_index(stream, seq, &mut commands);
            }
            let mut slices: Vec<_> = heads
                .chunks(DataHeader::SIZE)
                .flat_map(|head| [IoSlice::new(head), IoSlice::new(&self.payload)])
                .collect();
            write_all_vectored(&mut self.producer.data, &mut slices);
            let mut control = self.producer.control();
            control.write_all(&commands).unwrap();
            next += count;
            in_flight += count;
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
        ControlHeader::new(CommandCode::SendIndex, SendIndex::SIZE as u64).write(to);
        SendIndex {
            stream,
            seq: Some(SeqNum(seq)),
            packet: index(seq, self.payload.len() as u64),
        }
        .write(to);
    }

    pub(crate) fn end(&mut self) {
        for stream in std::mem::take(&mut self.streams) {
            self.producer.close_stream(stream, self.sent.checked_sub(1));
        }
    }
}

/// Size of a `SEND_INDEX` command with its header.
const INDEX_BYTES: usize = ControlHeader::SIZE + SendIndex::SIZE;

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
        if read.is_multiple_of(OK.len()) {
            break;
        }
    }
    assert!(bytes[..read].chunks(OK.len()).all(|answer| answer == OK));
    (read / OK.len()) as u64
}

fn write_all_vectored(to: &mut TcpStream, mut slices: &mut [IoSlice<'_>]) {
    while !slices.is_empty() {
        // Linux fails a call with more slices (`IOV_MAX`).
        let count = slices.len().min(1024);
        let written = to.write_vectored(&slices[..count]).unwrap();
        IoSlice::advance_slices(&mut slices, written);
    }
}
