//! Following a directory while a relay writes it: every event is shown once and in order, whether
//! files are closed, replaced, rotated or left by a killed relay.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use ctf::decode::Event as DecodedEvent;
use ctf::model::Uuid;
use ctf::write::{
    Appended, DeclaredEventClass, DeclaredStreamClass, EventDeclaration, EventRecord, MetadataText,
    PacketSize, StreamWriter, TraceDeclaration, metadata_packets,
};
use relay_proto::Command;
use relay_proto::chunk::CloseCommand;
use relay_proto::stream::AddStream;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::producer::{self, OK, Producer, live_session};
use tests::relay::Relay;
use tests::{traced_app, wait_until};
use tokio::sync::mpsc::{Receiver, channel, error::TryRecvError};
use viewer::attach::follow::{self, FollowOptions};
use viewer::attach::{Packet, SourceEvent, SourceHandle, TraceInfo};
use viewer::mux::{Mux, Stage};
use viewer::sink::{Loss, Lost, Origin, SinkError};
use viewer::time::Nanoseconds;
use wire::{Bits, Bytes, PacketIndex, StreamId, Timestamp};

/// Returns the UUID of a session's trace, derived from the session name.
fn uuid(session: &str) -> Uuid {
    let mut uuid = [9; 16];
    uuid.iter_mut()
        .zip(session.bytes())
        .for_each(|(byte, letter)| *byte = letter);
    Uuid(uuid)
}

/// A producer of packets with events.
struct Tracer {
    uuid: Uuid,
    producer: Producer,
    text: MetadataText,
    class: DeclaredStreamClass,
    event: DeclaredEventClass,
    metadata: StreamId,
    streams: Vec<Stream>,
    /// The events so far. The time of an event in cycles is ten times its number.
    events: u64,
}

struct Stream {
    id: StreamId,
    writer: StreamWriter,
    packets: u64,
}

impl Tracer {
    /// Opens a live session with `streams` streams, whose tracefiles are limited to `size` bytes
    /// and `count` files.
    fn new(relay: &Relay, name: &str, streams: u32, size: u64, count: u64) -> Self {
        let mut producer = Producer::open(relay, live_session(name));
        let uuid = uuid(name);
        let mut text = MetadataText::new(&TraceDeclaration::new(uuid, "tracer"));
        let class = text.stream(0).unwrap();
        let event = text
            .event(&class, &EventDeclaration::new(0, "first"))
            .unwrap();
        let streams = (0..streams)
            .map(|cpu| Stream {
                id: producer.add_stream(AddStream {
                    tracefile_size: Bytes(size),
                    tracefile_count: count,
                    ..producer::stream(&format!("chan_{cpu}"), "ust/uid/0/64-bit")
                }),
                writer: StreamWriter::new(&class, cpu.into(), cpu, PacketSize::new(4096, 4096)),
                packets: 0,
            })
            .collect();
        let metadata = producer.add_stream(producer::stream("metadata", "ust/uid/0/64-bit"));
        producer.request(Command::StreamsSent);
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

    /// Sends a packet of `events` events, and its index.
    fn send_packet(&mut self, stream: usize, events: u64) {
        let (data, index) = self.make_packet(stream, events);
        self.producer.data.write_all(&data).unwrap();
        self.send_index(stream, index);
    }

    /// Makes a packet of `events` events: its header and payload, and its index.
    fn make_packet(&mut self, stream: usize, events: u64) -> (Vec<u8>, PacketIndex) {
        let Stream {
            id,
            writer,
            packets,
        } = &mut self.streams[stream];
        let time = |number: u64| Timestamp(number * 10);
        writer.open(time(self.events)).unwrap();
        for _ in 0..events {
            let event = EventRecord {
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
        assert_eq!(reply, OK);
        *packets += 1;
    }

    /// Sends a beacon of a stream for the current time.
    fn send_beacon(&mut self, stream: usize) {
        let Stream { id, packets, .. } = &self.streams[stream];
        // Relays ignore a beacon that overtakes a packet; a tracer would repeat it.
        if let Some(last) = packets.checked_sub(1) {
            self.producer.wait_while_pending(*id, last);
        }
        let beacon = PacketIndex {
            packet_size: Bits(0),
            content_size: Bits(0),
            ..producer::beacon(self.events * 10)
        };
        self.producer.send_index(*id, *packets, beacon);
    }

    fn close(mut self) {
        self.close_streams();
        self.producer.disconnect();
    }

    fn close_streams(&mut self) {
        for stream in &self.streams {
            let last = stream.packets.checked_sub(1);
            self.producer.close_stream(stream.id, last);
        }
        self.producer.close_stream(self.metadata, None);
    }
}

/// A viewer that follows a directory, with its events decoded and in order.
struct Follower {
    handle: SourceHandle,
    events: Receiver<SourceEvent>,
    mux: Mux,
    seen: Seen,
    has_ended: bool,
}

#[derive(Default)]
struct Seen {
    /// The times of the events in cycles, in order.
    events: Vec<u64>,
    names: Vec<String>,
    lost: Vec<Lost>,
    trouble: Vec<String>,
    traces: usize,
    streams: usize,
}

impl Follower {
    fn new(directory: &Path, options: FollowOptions) -> Self {
        // A short channel, so that both ends have to wait.
        let (sender, events) = channel(4);
        Self {
            handle: follow::spawn(directory.to_owned(), options, sender).unwrap(),
            events,
            mux: Mux::new(),
            seen: Seen::default(),
            has_ended: false,
        }
    }

    /// Processes the source events that have arrived.
    fn process_available(&mut self) {
        loop {
            match self.events.try_recv() {
                Ok(event) => self.handle_event(event),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    assert!(self.has_ended, "the source ended without `Done`");
                    break;
                }
            }
        }
        self.mux.run(&mut self.seen, &|| false).unwrap();
    }

    fn handle_event(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Trace { trace, name, .. } => {
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
                ..
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
            SourceEvent::StreamHold { stream, is_holding } => {
                self.mux.set_holding(stream, is_holding);
            }
            SourceEvent::Notice(what) | SourceEvent::Missing(what) | SourceEvent::Failed(what) => {
                self.seen.trouble.push(what);
            }
            SourceEvent::CaughtUp => {}
            SourceEvent::Done => self.has_ended = true,
        }
    }

    fn wait_for_events(&mut self, count: u64) {
        wait_until(&format!("{count} events are shown"), || {
            self.process_available();
            self.seen.events.len() as u64 >= count
        });
    }

    /// Waits for the end of the source and returns everything that was shown.
    fn finish(mut self) -> Seen {
        wait_until("the source has ended", || {
            self.process_available();
            self.has_ended
        });
        self.process_available();
        self.handle.join();
        assert_eq!(self.seen.trouble, [""; 0]);
        self.seen
    }
}

impl Stage for Seen {
    fn event(
        &mut self,
        event: &DecodedEvent<'_>,
        _: Option<Nanoseconds>,
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
    fn assert_exactly(&self, events: u64) {
        let want: Vec<u64> = (0..events).map(|number| number * 10).collect();
        assert_eq!(self.events, want);
        assert!(self.lost.is_empty(), "{:?}", self.lost);
    }
}

fn options() -> FollowOptions {
    FollowOptions::default()
}

#[test]
fn a_stream_whose_clock_goes_back_is_followed_in_its_order() {
    let (_lab, relay) = Relay::start_in_new_lab();
    // A tracefile has two packets: the clock goes back within one.
    let mut tracer = Tracer::new(&relay, "back", 1, 2 * 4096, 9);
    let mut follower = Follower::new(&relay.output, options());
    tracer.events = 100;
    let mut want = Vec::new();
    for packet in 0..6 {
        if packet == 3 {
            tracer.events = 0;
            tracer.streams[0].writer =
                StreamWriter::new(&tracer.class, 0, 0, PacketSize::new(4096, 4096));
        }
        want.extend((tracer.events..tracer.events + 5).map(|number| number * 10));
        tracer.send_packet(0, 5);
        follower.wait_for_events(want.len() as u64);
    }
    tracer.close();
    let warnings = std::mem::take(&mut follower.seen.trouble);
    assert!(
        warnings.len() == 1 && warnings[0].contains("go backwards"),
        "{warnings:?}"
    );
    let seen = follower.finish();
    assert_eq!(seen.events, want);
    assert!(seen.lost.is_empty(), "{:?}", seen.lost);
}

// The relay closes the files of idle streams; then no lock tells that the stream is still written.
#[test]
fn streams_whose_files_are_closed_when_idle_have_not_ended() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut tracer = Tracer::new(&relay, "aside", 3, 0, 0);
    let mut follower = Follower::new(&relay.output, options());
    let before = relay.open_files();
    for _ in 0..2 {
        // The third stream never has a packet.
        for stream in 0..2 {
            tracer.send_packet(stream, 10);
        }
        tracer.send_beacon(0);
        tracer.send_beacon(2);
        let shown = tracer.events;
        follower.wait_for_events(shown - 10);
        wait_until("the idle files are closed", || relay.open_files() <= before);
        follower.process_available();
        assert!(!follower.has_ended);
    }
    let events = tracer.events;
    tracer.close();
    follower.finish().assert_exactly(events);
}

// The control connection may close the streams before the data connection brings their last packet,
// here the first one of a stream whose file is closed.
#[test]
fn a_packet_received_after_its_stream_was_closed_is_shown() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut tracer = Tracer::new(&relay, "late_half", 2, 0, 0);
    let mut follower = Follower::new(&relay.output, options());
    tracer.send_packet(0, 10);
    tracer.send_beacon(0);
    tracer.send_beacon(1);
    let (data, index) = tracer.make_packet(1, 10);
    tracer.send_index(1, index);
    tracer.close_streams();
    // Longer than one scan of the files takes.
    let until = Instant::now() + Duration::from_millis(500);
    wait_until("the source has not ended", || {
        follower.process_available();
        assert!(!follower.has_ended);
        Instant::now() > until
    });
    tracer.producer.data.write_all(&data).unwrap();
    let events = tracer.events;
    tracer.producer.disconnect();
    follower.finish().assert_exactly(events);
}

#[test]
fn every_event_of_a_directory_being_written_is_shown_once_and_in_order() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut tracer = Tracer::new(&relay, "live", 3, 0, 0);
    let mut follower = Follower::new(&relay.output, options());
    wait_until("the session is being written", || {
        follow::is_live(&relay.output).unwrap()
    });
    // The third stream has no packet yet.
    for round in 0..50 {
        tracer.send_packet(round % 2, 20);
        tracer.send_beacon((round + 1) % 2);
        tracer.send_beacon(2);
        if round % 10 == 0 {
            let shown = tracer.events;
            follower.wait_for_events(shown);
        }
    }
    let declaration = EventDeclaration::new(1, "second");
    tracer.event = tracer.text.event(&tracer.class, &declaration).unwrap();
    tracer.send_metadata();
    tracer.send_packet(2, 1);
    let events = tracer.events;
    tracer.close();
    let seen = follower.finish();
    seen.assert_exactly(events);
    assert_eq!((seen.traces, seen.streams), (1, 3));
    assert_eq!(seen.names.last().unwrap(), "second");
    assert!(!follow::is_live(&relay.output).unwrap());
    // A late follower shows the same events.
    let options = FollowOptions {
        silence: Some(Duration::ZERO),
        ..options()
    };
    Follower::new(&relay.output, options)
        .finish()
        .assert_exactly(events);
}

#[test]
fn all_complete_packets_of_a_killed_relay_are_shown() {
    let (_lab, mut relay) = Relay::start_in_new_lab();
    let mut tracer = Tracer::new(&relay, "killed", 2, 0, 0);
    let mut follower = Follower::new(&relay.output, options());
    for _ in 0..20 {
        tracer.send_packet(0, 10);
        tracer.send_beacon(1);
    }
    let complete = tracer.events;
    follower.wait_for_events(complete);
    // Half a packet, without index.
    let id = tracer.streams[0].id;
    let packet = producer::packet_of(id, 20, &[0xc1; 4096], 0);
    tracer.producer.data.write_all(&packet[..2000]).unwrap();
    relay.kill();
    follower.finish().assert_exactly(complete);
}

#[test]
fn a_stream_of_replaced_tracefiles_is_followed_as_one() {
    let (_lab, relay) = Relay::start_in_new_lab();
    // Two packets in each of three files.
    let mut tracer = Tracer::new(&relay, "ring", 1, 8192, 3);
    let mut follower = Follower::new(&relay.output, options());
    for _ in 0..40 {
        tracer.send_packet(0, 10);
        let shown = tracer.events;
        follower.wait_for_events(shown);
    }
    let events = tracer.events;
    tracer.close();
    follower.finish().assert_exactly(events);
}

#[test]
fn unread_packets_of_replaced_tracefiles_are_counted_as_lost() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut tracer = Tracer::new(&relay, "late", 1, 8192, 3);
    let options = FollowOptions {
        backlog: 1,
        ..options()
    };
    tracer.send_packet(0, 10);
    let mut follower = Follower::new(&relay.output, options);
    follower.wait_for_events(1);
    // The follower is not run meanwhile.
    for _ in 0..60 {
        tracer.send_packet(0, 10);
    }
    let events = tracer.events;
    tracer.close();
    let seen = follower.finish();
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
fn a_rotation_does_not_interrupt_following() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let mut tracer = Tracer::new(&relay, "rotated", 2, 0, 0);
    let mut follower = Follower::new(&relay.output, options());
    for chunk in 1..6 {
        for _ in 0..5 {
            tracer.send_packet(0, 10);
            tracer.send_beacon(1);
        }
        if chunk == 3 {
            tracer.send_packet(1, 10);
        }
        // A packet without events, as a tracer sends when an idle stream is flushed.
        tracer.send_packet(1, 0);
        let mut positions: Vec<_> = tracer
            .streams
            .iter()
            .map(|stream| (stream.id, stream.packets))
            .collect();
        positions.push((tracer.metadata, 0));
        tracer.producer.create_chunk(chunk);
        tracer.producer.rotate_streams(Some(chunk), &positions);
        // The new chunk gets the whole metadata, in other packets.
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
            tracer.send_beacon(0);
            tracer.send_beacon(1);
            follower.wait_for_events(shown);
        }
    }
    tracer.send_packet(0, 10);
    let events = tracer.events;
    tracer.close();
    let seen = follower.finish();
    seen.assert_exactly(events);
    assert_eq!(seen.traces, 1);
}

#[test]
fn sessions_created_later_are_followed() {
    let (_lab, relay) = Relay::start_in_new_lab();
    let options = FollowOptions {
        wait: true,
        ..options()
    };
    let mut follower = Follower::new(&relay.output, options);
    for (number, name) in ["one", "two"].iter().enumerate() {
        let mut tracer = Tracer::new(&relay, name, 1, 0, 0);
        tracer.send_packet(0, 10);
        tracer.close();
        follower.wait_for_events(10 * (number as u64 + 1));
    }
    assert_eq!(follower.seen.traces, 2);
    assert!(!follower.has_ended);
    follower.handle.stop();
    drop(follower.events);
    follower.handle.join();
}

#[test]
fn a_directory_of_lttng_relayd_is_followed_without_beacons() {
    const COUNT: usize = 300;
    let lab = Lab::new();
    let relay = Relay::start_reference(&lab);
    let daemon = SessionDaemon::start_with_session(&lab, &relay, "all", Some(100_000));
    daemon.enable_channel("all", "idle", &[], false);
    daemon.lttng(&["start", "all"]);
    let options = FollowOptions {
        idle: Duration::from_millis(500),
        silence: Some(Duration::from_secs(3)),
        wait: true,
        ..options()
    };
    let mut follower = Follower::new(&relay.output, options);
    traced_app::run(&lab, COUNT, 2000, "followed");
    follower.wait_for_events(COUNT as u64);
    daemon.lttng(&["destroy", "all"]);
    assert_eq!(follower.seen.events.len(), COUNT);
    assert_eq!(follower.seen.trouble, [""; 0]);
    assert!(follower.seen.events.is_sorted());
}
