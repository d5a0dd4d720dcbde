//! A directory is followed while our relay writes it: every event once and in order, whatever
//! becomes of the files meanwhile.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ctf::decode::Event as DecodedEvent;
use ctf::model::Uuid;
use ctf::write::{
    Appended, Event, EventClass, EventDeclaration, MetadataText, PacketSize, StreamClass,
    StreamWriter, Trace, metadata_packets,
};
use relay_proto::chunk::CloseCommand;
use relay_proto::reply::ReturnCode;
use relay_proto::stream::AddStream;
use relay_proto::{Command, Reply};
use rustix::process::Signal;
use test_live::attach::follow::{self, DirectorySource, FollowOptions};
use test_live::attach::{Packet, SourceEvent, TraceInfo};
use test_live::mux::{Mux, Stage};
use test_live::sink::{Loss, Lost, Origin, SinkError};
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{self, Producer, live_session};
use tests::relay::Relay;
use tests::{tracee, wait_until};
use tokio::sync::mpsc::{Receiver, channel, error::TryRecvError};
use wire::{Bits, Bytes, PacketIndex, StreamId, Timestamp};

/// Of the trace of a session: different sessions have different ones.
fn uuid(session: &str) -> Uuid {
    let mut uuid = [9; 16];
    uuid.iter_mut()
        .zip(session.bytes())
        .for_each(|(byte, letter)| *byte = letter);
    Uuid(uuid)
}

/// A producer whose packets hold events.
struct Tracer {
    uuid: Uuid,
    producer: Producer,
    text: MetadataText,
    class: StreamClass,
    event: EventClass,
    metadata: StreamId,
    streams: Vec<Stream>,
    /// Events so far: the time of each is ten times its number.
    events: u64,
}

struct Stream {
    id: StreamId,
    writer: StreamWriter,
    packets: u64,
}

impl Tracer {
    /// In a live session, with so many streams, whose tracefiles are limited so.
    fn new(relay: &Relay, name: &str, streams: u32, size: u64, count: u64) -> Self {
        let mut producer = Producer::open(relay, live_session(name));
        let uuid = uuid(name);
        let mut text = MetadataText::new(&Trace::new(uuid, "tracer"));
        let class = text.stream(0).unwrap();
        let event = text
            .event(&class, &EventDeclaration::new(0, "first"))
            .unwrap();
        let streams = (0..streams)
            .map(|cpu| Stream {
                id: producer.add(AddStream {
                    tracefile_size: Bytes(size),
                    tracefile_count: count,
                    ..producer::stream(&format!("chan_{cpu}"), "ust/uid/0/64-bit")
                }),
                writer: StreamWriter::new(&class, cpu.into(), cpu, PacketSize::new(4096, 4096)),
                packets: 0,
            })
            .collect();
        let metadata = producer.add(producer::stream("metadata", "ust/uid/0/64-bit"));
        producer.ask(Command::StreamsSent);
        let mut tracer = Self {
            uuid,
            producer,
            text,
            class,
            event,
            metadata,
            streams,
            events: 0,
        };
        tracer.send_metadata();
        tracer
    }

    fn send_metadata(&mut self) {
        let bytes = metadata_packets(self.uuid, self.text.take_new());
        self.producer.send_metadata(self.metadata, &bytes, 0);
    }

    /// A packet of so many events.
    fn packet(&mut self, stream: usize, events: u64) {
        let (data, index) = self.fill(stream, events);
        self.producer.data.write_all(&data).unwrap();
        self.send_index(stream, index);
    }

    /// The bytes and the index of a packet of so many events.
    fn fill(&mut self, stream: usize, events: u64) -> (Vec<u8>, PacketIndex) {
        let Stream {
            id,
            writer,
            packets,
        } = &mut self.streams[stream];
        let time = |number: u64| Timestamp(number * 10);
        writer.open(time(self.events)).unwrap();
        for _ in 0..events {
            let event = Event {
                time: time(self.events),
                process: 1,
                thread: 1,
                values: &[],
            };
            assert_eq!(writer.append(&self.event, &event), Ok(Appended::Written));
            self.events += 1;
        }
        let packet = writer.close(time(self.events)).unwrap();
        let data = producer::packet_of(*id, *packets, packet.bytes, 0);
        (data, packet.index)
    }

    fn send_index(&mut self, stream: usize, index: PacketIndex) {
        let Stream { id, packets, .. } = &mut self.streams[stream];
        let reply = self.producer.send_index(*id, *packets, index);
        assert_eq!(reply, Reply::Ended(ReturnCode::OK));
        *packets += 1;
    }

    /// Says that a stream has nothing up to now.
    fn beacon(&mut self, stream: usize) {
        let Stream { id, packets, .. } = &self.streams[stream];
        // A beacon that overtakes a packet says nothing; tracers repeat them.
        if let Some(last) = packets.checked_sub(1) {
            self.producer.settle(*id, last);
        }
        let beacon = PacketIndex {
            packet_size: Bits(0),
            content_size: Bits(0),
            ..producer::beacon(self.events * 10)
        };
        self.producer.send_index(*id, *packets, beacon);
    }

    fn end(mut self) {
        self.close_streams();
        self.producer.hang_up();
    }

    fn close_streams(&mut self) {
        for stream in &self.streams {
            let last = stream.packets.checked_sub(1);
            self.producer.close(stream.id, last);
        }
        self.producer.close(self.metadata, None);
    }
}

/// Whoever looks at a directory.
struct Watcher {
    handle: DirectorySource,
    events: Receiver<SourceEvent>,
    mux: Mux,
    seen: Seen,
    has_ended: bool,
}

#[derive(Default)]
struct Seen {
    /// Times in cycles, in order.
    events: Vec<u64>,
    names: Vec<String>,
    lost: Vec<Lost>,
    trouble: Vec<String>,
    traces: usize,
    streams: usize,
}

impl Watcher {
    fn new(directory: &Path, options: FollowOptions) -> Self {
        // Short, so that both sides wait for each other.
        let (sender, events) = channel(4);
        Self {
            handle: follow::spawn(directory.to_owned(), options, sender).unwrap(),
            events,
            mux: Mux::new(),
            seen: Seen::default(),
            has_ended: false,
        }
    }

    /// Takes what has come.
    fn take(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.handle_event(event),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    assert!(self.has_ended, "the source ended without a word");
                    break;
                }
            }
        }
        self.mux.run(&mut self.seen, &|| false).unwrap();
    }

    fn handle_event(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Trace { trace, name } => {
                self.seen.traces += 1;
                self.mux.add_trace(trace, name);
            }
            SourceEvent::Metadata { trace, bytes } => {
                self.mux
                    .extend_metadata(trace, &bytes, &mut self.seen)
                    .unwrap();
            }
            SourceEvent::Stream {
                stream,
                trace,
                name,
                backlog,
            } => {
                self.seen.streams += 1;
                self.mux.add_stream(stream, trace, name, backlog);
            }
            SourceEvent::Packet { stream, packet } => {
                self.mux.push_packet(stream, packet, &mut self.seen)
            }
            SourceEvent::Watermark { stream, until } => self.mux.advance_watermark(stream, until),
            SourceEvent::StreamEnd { stream } => self.mux.end_stream(stream),
            SourceEvent::TraceEnd { .. } => {}
            SourceEvent::Notice(what) | SourceEvent::Failed(what) => self.seen.trouble.push(what),
            SourceEvent::Done => self.has_ended = true,
        }
    }

    fn wait_for_events(&mut self, count: u64) {
        wait_until(&format!("{count} events are shown"), || {
            self.take();
            self.seen.events.len() as u64 >= count
        });
    }

    /// All that it has seen, once it says that this is all.
    fn finish(mut self) -> Seen {
        wait_until("the source has ended", || {
            self.take();
            self.has_ended
        });
        self.take();
        self.handle.join();
        assert_eq!(self.seen.trouble, [""; 0]);
        self.seen
    }
}

impl Stage for Seen {
    fn event(
        &mut self,
        event: &DecodedEvent<'_>,
        _: i64,
        _: Origin<'_>,
    ) -> Result<bool, SinkError> {
        self.events.push(event.cycles());
        self.names
            .push(event.class().name().unwrap_or_default().to_owned());
        Ok(true)
    }

    fn packet(&mut self, _: &Packet, _: Origin<'_>) -> Result<(), SinkError> {
        Ok(())
    }

    fn metadata(&mut self, _: &[u8], _: &TraceInfo) -> Result<(), SinkError> {
        Ok(())
    }

    fn lost(&mut self, loss: &Loss, _: Origin<'_>) -> Result<(), SinkError> {
        self.lost.push(loss.what);
        Ok(())
    }

    fn report_failure(&mut self, what: &str) {
        self.trouble.push(what.to_owned());
    }

    fn report_warning(&mut self, what: &str) {
        self.trouble.push(what.to_owned());
    }
}

impl Seen {
    fn is_exactly(&self, events: u64) {
        let want: Vec<u64> = (0..events).map(|number| number * 10).collect();
        assert_eq!(self.events, want);
        assert!(self.lost.is_empty(), "{:?}", self.lost);
    }
}

fn options() -> FollowOptions {
    FollowOptions::default()
}

/// The relay closes the files of streams in which nothing happens; then no lock says that there may be
/// more.
#[test]
fn streams_whose_files_are_put_aside_have_not_ended() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut tracer = Tracer::new(&relay, "aside", 3, 0, 0);
    let mut watcher = Watcher::new(&relay.output, options());
    let before = relay.open_files();
    for _ in 0..2 {
        // The last one never has anything.
        for stream in 0..2 {
            tracer.packet(stream, 10);
        }
        tracer.beacon(0);
        tracer.beacon(2);
        let shown = tracer.events;
        watcher.wait_for_events(shown - 10);
        wait_until("the files are put aside", || relay.open_files() <= before);
        watcher.take();
        assert!(!watcher.has_ended);
    }
    let events = tracer.events;
    tracer.end();
    watcher.finish().is_exactly(events);
}

/// The two connections do not wait for each other: on the one a session may end before the other has
/// brought its last packet, which is the first of a stream whose file is put aside.
#[test]
fn a_packet_that_comes_after_its_stream_was_closed_is_shown() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut tracer = Tracer::new(&relay, "late_half", 2, 0, 0);
    let mut watcher = Watcher::new(&relay.output, options());
    tracer.packet(0, 10);
    tracer.beacon(0);
    tracer.beacon(1);
    let (data, index) = tracer.fill(1, 10);
    tracer.send_index(1, index);
    tracer.close_streams();
    // Longer than a look at the files takes.
    let until = Instant::now() + Duration::from_millis(500);
    wait_until("nothing has ended", || {
        watcher.take();
        assert!(!watcher.has_ended);
        Instant::now() > until
    });
    tracer.producer.data.write_all(&data).unwrap();
    let events = tracer.events;
    tracer.producer.hang_up();
    watcher.finish().is_exactly(events);
}

#[test]
fn every_event_is_shown_once_and_in_order_while_it_is_written() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut tracer = Tracer::new(&relay, "live", 3, 0, 0);
    let mut watcher = Watcher::new(&relay.output, options());
    wait_until("the session is being written", || {
        follow::is_live(&relay.output).unwrap()
    });
    // The last one has nothing to say.
    for round in 0..50 {
        tracer.packet(round % 2, 20);
        tracer.beacon((round + 1) % 2);
        tracer.beacon(2);
        if round % 10 == 0 {
            let shown = tracer.events;
            watcher.wait_for_events(shown);
        }
    }
    let declaration = EventDeclaration::new(1, "second");
    tracer.event = tracer.text.event(&tracer.class, &declaration).unwrap();
    tracer.send_metadata();
    tracer.packet(2, 1);
    let events = tracer.events;
    tracer.end();
    let seen = watcher.finish();
    seen.is_exactly(events);
    assert_eq!((seen.traces, seen.streams), (1, 3));
    assert_eq!(seen.names.last().unwrap(), "second");
    assert!(!follow::is_live(&relay.output).unwrap());
    // Who comes late sees the same.
    let options = FollowOptions {
        silence: Some(Duration::ZERO),
        ..options()
    };
    Watcher::new(&relay.output, options)
        .finish()
        .is_exactly(events);
}

#[test]
fn a_relay_that_is_killed_leaves_all_that_was_complete() {
    let lab = Lab::new();
    let mut relay = Relay::start(&lab);
    let mut tracer = Tracer::new(&relay, "killed", 2, 0, 0);
    let mut watcher = Watcher::new(&relay.output, options());
    for _ in 0..20 {
        tracer.packet(0, 10);
        tracer.beacon(1);
    }
    let complete = tracer.events;
    watcher.wait_for_events(complete);
    // Half of a packet, and no index.
    let id = tracer.streams[0].id;
    let packet = producer::packet_of(id, 20, &[0xc1; 4096], 0);
    tracer.producer.data.write_all(&packet[..2000]).unwrap();
    relay.process().signal(Signal::KILL);
    wait_until("it is dead", || !relay.process().is_running());
    watcher.finish().is_exactly(complete);
}

#[test]
fn a_ring_of_tracefiles_is_one_stream() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    // Two packets in each of three files.
    let mut tracer = Tracer::new(&relay, "ring", 1, 8192, 3);
    let mut watcher = Watcher::new(&relay.output, options());
    for _ in 0..40 {
        tracer.packet(0, 10);
        let shown = tracer.events;
        watcher.wait_for_events(shown);
    }
    let events = tracer.events;
    tracer.end();
    watcher.finish().is_exactly(events);
}

#[test]
fn what_a_ring_has_replaced_unread_is_counted_as_lost() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut tracer = Tracer::new(&relay, "late", 1, 8192, 3);
    let options = FollowOptions {
        backlog: 1,
        ..options()
    };
    tracer.packet(0, 10);
    let mut watcher = Watcher::new(&relay.output, options);
    watcher.wait_for_events(1);
    // Nobody takes anything meanwhile.
    for _ in 0..60 {
        tracer.packet(0, 10);
    }
    let events = tracer.events;
    tracer.end();
    let seen = watcher.finish();
    let lost: u64 = seen
        .lost
        .iter()
        .map(|lost| match lost {
            Lost::Packets(packets) => *packets,
            Lost::Events(_) => 0,
        })
        .sum();
    assert!(lost > 0);
    assert_eq!(seen.events.len() as u64 + lost * 10, events);
    assert!(seen.events.is_sorted());
}

#[test]
fn a_rotation_does_not_disturb_who_follows() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let mut tracer = Tracer::new(&relay, "rotated", 2, 0, 0);
    let mut watcher = Watcher::new(&relay.output, options());
    for chunk in 1..6 {
        for _ in 0..5 {
            tracer.packet(0, 10);
            tracer.beacon(1);
        }
        if chunk == 3 {
            tracer.packet(1, 10);
        }
        // As a tracer does that has nothing to say when it is flushed.
        tracer.packet(1, 0);
        let mut positions: Vec<_> = tracer
            .streams
            .iter()
            .map(|stream| (stream.id, stream.packets))
            .collect();
        positions.push((tracer.metadata, 0));
        tracer.producer.create_chunk(chunk);
        tracer.producer.rotate(Some(chunk), &positions);
        // The new chunk has all of it, cut elsewhere.
        let all = metadata_packets(tracer.uuid, tracer.text.as_str());
        tracer.producer.send_metadata(tracer.metadata, &all, 0);
        let archive = Some(CloseCommand::MoveToCompleted);
        tracer.producer.close_chunk(chunk - 1, archive);
        wait_until("the old chunk is archived", || {
            let session = relay.output.join("host/rotated-20261120-213831");
            !session.join(".tmp_old_chunk").exists()
        });
        if chunk % 2 == 0 {
            let shown = tracer.events;
            tracer.beacon(0);
            tracer.beacon(1);
            watcher.wait_for_events(shown);
        }
    }
    tracer.packet(0, 10);
    let events = tracer.events;
    tracer.end();
    let seen = watcher.finish();
    seen.is_exactly(events);
    assert_eq!(seen.traces, 1);
}

#[test]
fn sessions_that_come_later_are_followed_too() {
    let lab = Lab::new();
    let relay = Relay::start(&lab);
    let options = FollowOptions {
        wait: true,
        ..options()
    };
    let mut watcher = Watcher::new(&relay.output, options);
    for (number, name) in ["one", "two"].iter().enumerate() {
        let mut tracer = Tracer::new(&relay, name, 1, 0, 0);
        tracer.packet(0, 10);
        tracer.end();
        watcher.wait_for_events(10 * (number as u64 + 1));
    }
    assert_eq!(watcher.seen.traces, 2);
    assert!(!watcher.has_ended);
    watcher.handle.stop();
    drop(watcher.events);
    watcher.handle.join();
}

#[test]
fn a_directory_of_the_reference_is_followed_without_beacons() {
    const COUNT: usize = 300;
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let daemon = SessionDaemon::start(&lab);
    daemon.create("all", &relay, Some(100_000));
    daemon.channel("all", "busy", &["--subbuf-size=4k"], true);
    daemon.channel("all", "idle", &[], false);
    daemon.lttng(&["start", "all"]);
    let options = FollowOptions {
        idle: Duration::from_millis(500),
        silence: Some(Duration::from_secs(3)),
        wait: true,
        ..options()
    };
    let mut watcher = Watcher::new(&relay.output, options);
    tracee::run(&lab, COUNT, 2000, "followed");
    watcher.wait_for_events(COUNT as u64);
    daemon.lttng(&["destroy", "all"]);
    assert_eq!(watcher.seen.events.len(), COUNT);
    assert_eq!(watcher.seen.trouble, [""; 0]);
    assert!(watcher.seen.events.is_sorted());
}
