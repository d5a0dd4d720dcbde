//! A recording of two sessions with known spans, gaps and losses. All times are at whole
//! milliseconds or microseconds, so that they can lie at the edges of columns of pixels.

use std::fs;
use std::path::{Path, PathBuf};

use tests::lab::Lab;

/// The begin of the first session, in nanoseconds since 1970.
pub(crate) const BEGIN: i64 = 1_700_000_000_000_000_000;
/// The begin of the second session after that of the first, in milliseconds.
const SECOND: u64 = 1500;
/// The end of a packet after its begin, in milliseconds.
const PACKET: u64 = 99;

const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 8; align = 8; } := u8;
typealias integer { size = 64; align = 8; } := u64;
trace { major = 1; minor = 8; byte_order = le; };
env { hostname = \"made\"; };
clock { name = c; freq = 1000000000; };
typealias integer { size = 64; align = 8; map = clock.c.value; } := time;
stream {
  packet.context := struct { time timestamp_begin; time timestamp_end; u64 content_size;
    u64 packet_size; u64 packet_seq_num; u64 events_discarded; };
  event.header := struct { u8 id; time timestamp; };
  event.context := struct { u64 _vpid; u64 _vtid; };
};
event { id = 0; name = \"job_begin\"; };
event { id = 1; name = \"job_end\"; };
event { id = 2; name = \"part_begin\"; };
event { id = 3; name = \"part_end\"; };
event { id = 4; name = \"mark\"; fields := struct { u64 _number; }; };
";

/// An event: class, and time in microseconds.
type Event = (u8, u64);

/// The packets of a thread.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    packets: u64,
    discarded: u64,
}

impl Stream {
    /// Adds a packet that begins at this time, in milliseconds.
    fn packet(&mut self, thread: u64, begin: u64, events: &[Event]) {
        let mut body = Vec::new();
        for (class, time) in events {
            body.push(*class);
            for word in [at(time * 1000), 7, thread] {
                body.extend(word.to_le_bytes());
            }
            if *class == 4 {
                body.extend(time.to_le_bytes());
            }
        }
        let bits = 8 * (6 * 8 + body.len() as u64);
        let times = [begin, begin + PACKET].map(|time| at(time * 1_000_000));
        let counts = [bits, bits, self.packets, self.discarded];
        for word in times.into_iter().chain(counts) {
            self.bytes.extend(word.to_le_bytes());
        }
        self.bytes.extend(body);
        self.packets += 1;
    }
}

fn at(nanoseconds: u64) -> u64 {
    BEGIN.cast_unsigned() + nanoseconds
}

/// The events of a round of 10 ms of the busy thread: a job with two parts, the second one with a
/// mark.
fn round(number: u64, begin: u64) -> Vec<Event> {
    let begin = begin * 1000;
    let mut events = vec![
        (0, begin),
        (2, begin + 1000),
        (3, begin + 2000 + number),
        (2, begin + 4000),
        (4, begin + 5000),
        (3, begin + 6000),
        (1, begin + 8000),
    ];
    if !number.is_multiple_of(3) {
        events.remove(4);
    }
    events
}

/// Writes the recording. The first session has a busy thread with a lost packet and discarded
/// events, and one whose last span does not end. The second begins after the first has ended.
pub(crate) fn write(lab: &Lab) -> PathBuf {
    let directory = lab.directory("made");
    let mut busy = Stream::default();
    for packet in 0..10 {
        match packet {
            5 => busy.packets += 1,
            7 => busy.discarded += 7,
            _ => {}
        }
        let rounds = packet * 10..packet * 10 + 10;
        let events: Vec<_> = rounds
            .flat_map(|number| round(number, number * 10))
            .collect();
        if packet != 5 {
            busy.packet(11, packet * 100, &events);
        }
    }
    let mut quiet = Stream::default();
    quiet.packet(12, 0, &[(0, 2000), (1, 42_000), (0, 70_000), (1, 70_001)]);
    quiet.packet(12, 600, &[(0, 600_000)]);
    write_session(&directory.join("first"), &[busy, quiet]);
    let mut late = Stream::default();
    for packet in 0..5 {
        let begin = SECOND + packet * 100;
        let events: Vec<_> = (0..10)
            .flat_map(|number| round(number, begin + number * 10))
            .collect();
        late.packet(21, begin, &events);
    }
    write_session(&directory.join("second"), &[late]);
    directory
}

/// Writes a recording of one thread with so many rounds.
pub(crate) fn write_long(lab: &Lab, rounds: u64) -> PathBuf {
    let directory = lab.directory("long");
    let mut stream = Stream::default();
    for packet in 0..rounds / 10 {
        let begin = packet * 100;
        let events: Vec<_> = (0..10)
            .flat_map(|number| round(number, begin + number * 10))
            .collect();
        stream.packet(11, begin, &events);
    }
    write_session(&directory, &[stream]);
    directory
}

fn write_session(directory: &Path, streams: &[Stream]) {
    fs::create_dir_all(directory).unwrap();
    fs::write(directory.join("metadata"), METADATA).unwrap();
    for (number, stream) in streams.iter().enumerate() {
        fs::write(directory.join(format!("stream_{number}")), &stream.bytes).unwrap();
    }
}
