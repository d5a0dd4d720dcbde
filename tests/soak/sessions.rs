//! Producers that open one session after the other, as fast as the relay accepts them.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::ops::AddAssign;
use std::sync::Mutex;
use std::time::Instant;

use fastrand::Rng;
use relay_proto::chunk::{CloseCommand, TraceChunkExists};
use relay_proto::{Command, Reply};
use tests::producer::{OK, Producer, beacon, index, live_session, packet};
use tests::relay::Relay;
use tests::viewer::Viewer;
use tests::wait_until;
use wire::{ChunkId, StreamId};

use super::recorded;

/// The channels of each session, with one stream each.
pub const CHANNELS: [&str; 3] = ["chan_0", "chan_1", "chan_2"];

/// Packet sizes in bytes.
const SIZES: [usize; 4] = [4096, 4096, 16 << 10, 128 << 10];

/// The number of viewers that read each session, whose files must not be removed before.
#[derive(Debug)]
pub struct Sessions(Mutex<HashMap<String, usize>>);

/// Totals of what producers have done.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Sessions that were closed.
    pub ended: u64,
    /// Sessions whose producers were killed.
    pub killed: u64,
    rotations: u64,
    packets: u64,
    bytes: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} sessions ended, {} killed, {} rotations, {} packets, {} MB",
            self.ended,
            self.killed,
            self.rotations,
            self.packets,
            self.bytes / 1_000_000
        )
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.ended += other.ended;
        self.killed += other.killed;
        self.rotations += other.rotations;
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl Sessions {
    pub fn new() -> Self {
        Self(Mutex::default())
    }

    /// Runs `view` while the session counts as viewed.
    pub fn while_viewed(&self, name: &str, view: impl FnOnce()) {
        *self.0.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        view();
        let mut viewed = self.0.lock().unwrap();
        let left = viewed.get_mut(name).unwrap();
        *left -= 1;
        if *left == 0 {
            viewed.remove(name);
        }
    }

    fn is_viewed(&self, name: &str) -> bool {
        self.0.lock().unwrap().contains_key(name)
    }
}

/// Records sessions until a time, and checks the files of each.
pub fn produce_sessions(relay: &Relay, sessions: &Sessions, number: u64, until: Instant) -> Counts {
    let mut rng = Rng::with_seed(number);
    let mut counts = Counts::default();
    for session in 0.. {
        if Instant::now() >= until && counts.ended > 0 && counts.killed > 0 {
            break;
        }
        // At least one session of each kind.
        let is_killed = session == 1 || (session > 1 && rng.u8(..4) == 0);
        let name = format!("soak-{number}-{session}");
        let mut sending = SessionInProgress::open(relay, &name, &mut rng);
        sending.send(&mut counts, until);
        let sent = sending.sent;
        if is_killed {
            sending.kill();
            counts.killed += 1;
        } else {
            sending.end();
            counts.ended += 1;
        }
        let mut looking = Viewer::connect(relay.live);
        wait_until("the session is not listed any more", || {
            let listed = looking.sessions();
            listed.iter().all(|listed| listed.name.to_string() != name)
        });
        recorded::check_session(&relay.output, &name, sent);
        wait_until("no viewer reads the session", || !sessions.is_viewed(&name));
        recorded::remove_session(&relay.output, &name);
    }
    counts
}

/// A session while it is produced.
struct SessionInProgress<'a> {
    rng: &'a mut Rng,
    producer: Producer,
    streams: Vec<StreamId>,
    /// Packets sent of each stream.
    sent: u64,
    chunk: u64,
}

impl<'a> SessionInProgress<'a> {
    fn open(relay: &Relay, name: &str, rng: &'a mut Rng) -> Self {
        let mut producer = Producer::open(relay, live_session(name));
        let streams = producer.add_trace("ust/uid/0/64-bit", &CHANNELS);
        Self {
            rng,
            producer,
            streams,
            sent: 0,
            chunk: 0,
        }
    }

    fn send(&mut self, counts: &mut Counts, until: Instant) {
        for round in 0..self.rng.u64(100..1500) {
            if round > 50 && Instant::now() >= until {
                return;
            }
            let size = *self.rng.choice(&SIZES).unwrap();
            for stream in self.streams.clone() {
                self.producer.send_packet(stream, self.sent, size);
            }
            self.sent += 1;
            let streams = self.streams.len() as u64;
            counts.packets += streams;
            counts.bytes += streams * size as u64;
            if self.rng.u8(..) < 8 {
                let beacon = beacon(self.sent * 10);
                let stream = self.streams[0];
                assert_eq!(self.producer.send_index(stream, self.sent, beacon), OK);
            }
            if self.rng.u16(..300) == 0 {
                self.rotate();
                counts.rotations += 1;
            }
        }
    }

    /// Rotates to the next chunk while packets are in flight.
    fn rotate(&mut self) {
        let next = self.chunk + 1;
        assert_eq!(self.producer.create_chunk(next), OK);
        let metadata = self.producer.metadata[0];
        let packets = self.streams.iter().map(|stream| (*stream, self.sent));
        let positions: Vec<_> = packets.chain([(metadata, 0)]).collect();
        assert_eq!(self.producer.rotate_streams(Some(next), &positions), OK);
        self.producer.send_metadata(metadata, b"/* CTF 1.8 */\n", 0);
        let completed = Some(CloseCommand::MoveToCompleted);
        let closed = self.producer.close_chunk(self.chunk, completed);
        assert!(closed.is_ok(), "{closed:?}");
        // No producer rotates again before the previous chunk is closed.
        let left = Command::TraceChunkExists(TraceChunkExists {
            chunk: ChunkId(self.chunk),
        });
        wait_until(
            "the chunk is closed",
            || matches!(self.producer.request(left.clone()), Reply::ChunkExists(answer) if answer.exists == 0),
        );
        self.chunk = next;
    }

    fn wait_while_pending(&mut self) {
        for stream in self.streams.clone() {
            self.producer.wait_while_pending(stream, self.sent - 1);
        }
    }

    fn end(mut self) {
        for stream in self.streams.clone() {
            self.producer.close_stream(stream, Some(self.sent - 1));
        }
        self.producer.close_stream(self.producer.metadata[0], None);
        self.producer.disconnect();
    }

    /// Disconnects in the middle of a packet. All packets that the relay has confirmed must be on
    /// disk afterwards.
    fn kill(mut self) {
        self.wait_while_pending();
        let (stream, size) = (self.streams[0], 64 << 10);
        let half = self.rng.usize(..size);
        let in_flight = packet(stream, self.sent, size);
        self.producer.data.write_all(&in_flight[..half]).unwrap();
        if self.rng.bool() {
            let other = self.streams[1];
            self.producer
                .send_index(other, self.sent, index(self.sent, 4096));
        }
    }
}
