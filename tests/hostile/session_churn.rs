//! Sessions that come and go faster than a viewer can parse their metadata: it shows the sessions
//! that it knows all the same, and its memory is bounded.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ctf::model::Uuid;
use ctf::write::{
    Appended, DeclaredEventClass, EventDeclaration, EventRecord, FieldType, MetadataText,
    PacketSize, StreamWriter, TraceDeclaration, Value, Width, metadata_packets,
};
use tests::process::Process;
use tests::producer::{self, OK, Producer, TRACE_PATH, live_session};
use tests::relay::Relay;
use tests::{test_live, wait_until};
use wire::{StreamId, Timestamp};

/// Event classes of each session that comes and goes.
const CLASSES: u32 = 2000;
/// Threads that open sessions, the time between two of a thread, and the number that each keeps
/// open.
const THREADS: u32 = 2;
const INTERVAL: Duration = Duration::from_millis(50);
const OPEN_SESSIONS: usize = 16;
/// Events of the known session that must be shown meanwhile.
const EVENTS: usize = 50;
/// The most memory that the viewer of a relay may take. It has parsed the metadata of all open
/// sessions.
const MAX_VIEWER_KIB: u64 = 300 << 10;

/// Asks threads to stop.
#[derive(Default)]
struct StopThreads(AtomicBool);

/// Asks them when it is dropped.
struct StopGuard<'a>(&'a StopThreads);

impl StopThreads {
    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn when_dropped(&self) -> StopGuard<'_> {
        StopGuard(self)
    }
}

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// A session with one stream.
struct Tracer {
    producer: Producer,
    stream: StreamId,
    writer: StreamWriter,
    event: DeclaredEventClass,
    packets: u64,
}

impl Tracer {
    /// Opens a session whose metadata has this number of event classes with ten fields each.
    fn new(relay: &Relay, name: &str, classes: u32) -> Self {
        let mut uuid = [9; 16];
        let letters = name.bytes().rev();
        uuid.iter_mut()
            .zip(letters)
            .for_each(|(byte, letter)| *byte = letter);
        let mut text = MetadataText::new(&TraceDeclaration::new(Uuid(uuid), "tracer"));
        let class = text.stream(0).unwrap();
        let field = |number| {
            (
                format!("field_{number}"),
                FieldType::Unsigned(Width::Bits64),
            )
        };
        let declarations = (0..classes).map(|id| EventDeclaration {
            fields: (0..10).map(field).collect(),
            ..EventDeclaration::new(id, &format!("{name}:event_{id}"))
        });
        let declarations: Vec<_> = declarations
            .map(|declaration| text.event(&class, &declaration).unwrap())
            .collect();
        let mut producer = Producer::open(relay, live_session(name));
        let stream = producer.add_stream(producer::stream("chan_0", TRACE_PATH));
        let metadata = producer.add_stream(producer::stream("metadata", TRACE_PATH));
        producer.request(relay_proto::Command::StreamsSent);
        let bytes = metadata_packets(Uuid(uuid), text.take_new());
        producer.send_metadata(metadata, &bytes, 0);
        Self {
            producer,
            stream,
            writer: StreamWriter::new(&class, 0, 0, PacketSize::new(4096, 4096)),
            event: declarations.into_iter().next().unwrap(),
            packets: 0,
        }
    }

    /// Sends a packet with one event, at the present time.
    fn send_event(&mut self, number: u64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let time = Timestamp(now.as_nanos().try_into().unwrap());
        self.writer.open(time).unwrap();
        let event = EventRecord {
            time,
            process: 1,
            thread: 1,
            values: &[Value::Unsigned(number); 10],
        };
        assert_eq!(
            self.writer.append(&self.event, &event),
            Ok(Appended::Written)
        );
        let packet = self.writer.close(time).unwrap();
        let data = producer::packet_of(self.stream, self.packets, packet.bytes, 0);
        self.producer.data.write_all(&data).unwrap();
        let index = packet.index;
        let reply = self.producer.send_index(self.stream, self.packets, index);
        assert_eq!(reply, OK);
        self.packets += 1;
    }

    fn close(mut self) {
        let last = self.packets.checked_sub(1);
        self.producer.close_stream(self.stream, last);
        self.producer.disconnect();
    }
}

/// Opens sessions and closes them until it is to stop. Every second one has an event.
fn open_and_close_sessions(relay: &Relay, thread: u32, stop: &StopThreads) {
    let mut open = VecDeque::new();
    for number in (0..).take_while(|_| !stop.is_requested()) {
        let mut tracer = Tracer::new(relay, &format!("churn-{thread}-{number}"), CLASSES);
        if number % 2 == 0 {
            tracer.send_event(number);
        }
        open.push_back(tracer);
        if open.len() > OPEN_SESSIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.close();
        }
        thread::sleep(INTERVAL);
    }
}

/// Waits until a viewer has shown events of a session, while others come and go.
fn assert_shown(relay: &Relay, viewer: &Process) {
    let stop = StopThreads::default();
    thread::scope(|scope| {
        // Also when the wait has failed.
        let _stop = stop.when_dropped();
        for thread in 0..THREADS {
            let stop = &stop;
            scope.spawn(move || open_and_close_sessions(relay, thread, stop));
        }
        scope.spawn(|| {
            let mut known = Tracer::new(relay, "known", 1);
            for number in (0..).take_while(|_| !stop.is_requested()) {
                known.send_event(number);
                thread::sleep(INTERVAL);
            }
            known.close();
        });
        wait_until("events of a known session are shown", || {
            let lines = viewer.stdout();
            let known = lines.iter().filter(|line| line.contains("known:"));
            known.count() >= EVENTS
        });
    });
}

/// Returns the most memory that a process has taken, in KiB.
fn peak_memory_kib(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next();
    number.unwrap().parse().unwrap()
}

#[test]
fn a_viewer_of_all_sessions_shows_a_known_one_while_large_ones_come_and_go() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = format!("net://{}", relay.live);
    let mut viewer = test_live::start(&lab, &["--follow", &url]);
    viewer.wait_for_stderr_text("waiting for a live session");
    assert_shown(&relay, &viewer);
    let peak = peak_memory_kib(&viewer);
    assert!(peak < MAX_VIEWER_KIB, "{peak} KiB");
}

#[test]
fn a_viewer_of_a_directory_shows_a_known_session_while_large_ones_come_and_go() {
    let (lab, relay) = Relay::start_in_new_lab();
    let viewer = test_live::start(&lab, &["--follow", relay.output.to_str().unwrap()]);
    assert_shown(&relay, &viewer);
}

#[test]
fn a_session_beyond_the_limit_of_the_relay_is_shown_when_another_has_ended() {
    let (lab, relay) = Relay::start_in_new_lab();
    let url = format!("net://{}", relay.live);
    let mut viewer = test_live::start(&lab, &["--follow", &url]);
    viewer.wait_for_stderr_text("waiting for a live session");
    let open = |number| Tracer::new(&relay, &format!("many-{number}"), 1);
    let mut tracers: VecDeque<_> = (0..65).map(open).collect();
    viewer.wait_for_stderr_text("64 sessions are attached: further sessions wait");
    let attached = |viewer: &Process| {
        let lines = viewer.stderr();
        let following = lines
            .iter()
            .filter(|line| line.contains(": following session"));
        following.count()
    };
    assert_eq!(attached(&viewer), 64);
    tracers.pop_front().unwrap().close();
    wait_until("the last session is attached", || attached(&viewer) == 65);
}
