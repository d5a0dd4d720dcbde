//! One session after the other, as fast as the relay takes them.

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

/// Streams of a session.
pub const CHANNELS: [&str; 3] = ["chan_0", "chan_1", "chan_2"];

/// Sizes of packets.
const SIZES: [usize; 4] = [4096, 4096, 16 << 10, 128 << 10];

/// Which sessions are being watched, and by how many.
#[derive(Debug)]
pub struct Sessions(Mutex<HashMap<String, usize>>);

/// What has been done.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Sessions that ended as they should.
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

    /// Does something while a session counts as watched.
    pub fn watching(&self, name: &str, watch: impl FnOnce()) {
        *self.0.lock().unwrap().entry(name.to_owned()).or_default() += 1;
        watch();
        let mut watched = self.0.lock().unwrap();
        let left = watched.get_mut(name).unwrap();
        *left -= 1;
        if *left == 0 {
            watched.remove(name);
        }
    }

    fn is_watched(&self, name: &str) -> bool {
        self.0.lock().unwrap().contains_key(name)
    }
}

/// Records sessions until the time has come, and looks at what is left of each.
pub fn produce(relay: &Relay, sessions: &Sessions, number: u64, until: Instant) -> Counts {
    let mut rng = Rng::with_seed(number);
    let mut counts = Counts::default();
    for session in 0.. {
        if Instant::now() >= until && counts.ended > 0 && counts.killed > 0 {
            break;
        }
        // One of each at least.
        let is_killed = session == 1 || (session > 1 && rng.u8(..4) == 0);
        let name = format!("soak-{number}-{session}");
        let mut sending = Sending::open(relay, &name, &mut rng);
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
        recorded::check(&relay.output, &name, sent);
        wait_until("nobody watches it", || !sessions.is_watched(&name));
        recorded::remove(&relay.output, &name);
    }
    counts
}

/// One session.
struct Sending<'a> {
    rng: &'a mut Rng,
    producer: Producer,
    streams: Vec<StreamId>,
    /// Of each stream.
    sent: u64,
    chunk: u64,
}

impl<'a> Sending<'a> {
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

    /// Goes over to the next chunk, while packets are under way.
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
        // No producer goes on to the next before.
        let left = Command::TraceChunkExists(TraceChunkExists {
            chunk: ChunkId(self.chunk),
        });
        wait_until(
            "the chunk has been left",
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

    /// What it was told that the relay has must be there afterwards, whatever was under way.
    fn kill(mut self) {
        self.wait_while_pending();
        let (stream, size) = (self.streams[0], 64 << 10);
        let half = self.rng.usize(..size);
        let under_way = packet(stream, self.sent, size);
        self.producer.data.write_all(&under_way[..half]).unwrap();
        if self.rng.bool() {
            let other = self.streams[1];
            self.producer
                .send_index(other, self.sent, index(self.sent, 4096));
        }
    }
}
