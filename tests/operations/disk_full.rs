//! A full disk: producers are paused or sessions aborted, and no packet is lost or cut. The output
//! is on a tmpfs of 2 MiB, so that only root can run these tests.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

use relay_proto::Command;
use relay_proto::stream::AddStream;
use serde_json::Value;
use tests::babeltrace::{Babeltrace, numbers};
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::peers;
use tests::process::Process;
use tests::producer::{OK, Producer, TRACE_PATH, index, live_session, packet, stream};
use tests::relay::{Relay, port_options};
use tests::status_endpoint::StatusEndpoint;
use tests::traced_app::TracedApp;
use tests::tree::{INDEX_ENTRY, INDEX_HEADER, files, first_file};
use tests::viewer::{Viewer, by_channel};
use tests::{binaries, wait_until};
use viewer_proto::index::IndexStatus;
use viewer_proto::session::Seek;
use wire::{Bytes, StreamId};

const PACKET: usize = 3000;

/// Returns a relay with a status endpoint that writes to a tmpfs of 2 MiB, in a directory of its
/// own; `None` if the tmpfs cannot be mounted. The values are to be dropped in reverse order.
fn start_on_small_disk(options: &[&str]) -> Option<(Lab, SmallDisk, Relay, StatusEndpoint)> {
    let lab = Lab::new();
    let disk = SmallDisk::mount(&lab.directory("output"), 2048)?;
    let (relay, status) = StatusEndpoint::start_relay(&lab, options);
    Some((lab, disk, relay, status))
}

/// Sends packets `0..count`, until the relay aborts the session and closes the connection.
fn send_until_aborted(producer: &mut Producer, stream: StreamId, count: u64) {
    let mut packets = (0..count).map(|number| packet(stream, number, PACKET));
    let _ = packets.try_for_each(|packet| producer.data.write_all(&packet));
}

/// Checks that every index entry of a channel points at a whole packet, in sequence. Returns the
/// number of entries.
fn count_indexed_packets(output: &Path, channel: &str) -> usize {
    let tracefiles = files(output, "");
    let (mut entries, mut next) = (0, 0);
    let mut indexes: Vec<_> = tracefiles
        .iter()
        .filter(|(path, _)| path.contains(channel) && path.ends_with(".idx"))
        .collect();
    indexes.sort_by_key(|(path, _)| (path.len(), (*path).clone()));
    for (path, index) in indexes {
        let data = path.replace("/index/", "/").replace(".idx", "");
        let data = &tracefiles[&data];
        // An index file that was just created has no header yet.
        let whole = index.get(INDEX_HEADER..).unwrap_or_default();
        for entry in whole.chunks_exact(INDEX_ENTRY) {
            let offset = usize::try_from(u64::from_be_bytes(entry[..8].try_into().unwrap()));
            let offset = offset.unwrap();
            let packet = &data[offset..offset + PACKET];
            assert_eq!(
                packet,
                [u8::try_from(next % 251).unwrap(); PACKET],
                "{path} {offset}"
            );
            next += 1;
            entries += 1;
        }
    }
    entries
}

/// Sends packets and indexes in a thread, which ends when all indexes are answered. With `swapped`,
/// all pairs of packets but the first are sent in reverse order. The returned function joins the
/// thread.
fn send_in_background(
    mut producer: Producer,
    stream: StreamId,
    count: u64,
    swapped: bool,
) -> impl FnOnce() -> Producer {
    let sending = std::thread::spawn(move || {
        for pair in 0..count / 2 {
            let (one, two) = (pair * 2, pair * 2 + 1);
            let order = if swapped && pair > 0 {
                [two, one]
            } else {
                [one, two]
            };
            for number in order {
                producer.send_data(stream, number, PACKET);
            }
            for number in order {
                let reply = producer.send_index(stream, number, index(number, PACKET as u64));
                assert_eq!(reply, OK, "{number}");
            }
        }
        producer
    });
    move || sending.join().unwrap()
}

#[test]
fn a_full_disk_pauses_the_producer_and_loses_no_packet() {
    let Some((_lab, disk, relay, status)) = start_on_small_disk(&[]) else {
        return;
    };
    let (producer, stream) = Producer::open_with_trace(&relay, live_session("waits"));
    let mut other = Producer::open(&relay, live_session("other"));
    let idle = other.add_trace(TRACE_PATH, &["idle_0"])[0];
    disk.fill(100);
    let join = send_in_background(producer, stream, 200, false);
    status.wait_for_metric("relayd_streams_paused", 1);
    assert_eq!(status.get("/readyz").0, 503);
    assert_eq!(status.get("/healthz").0, 200);
    let states: Vec<_> = status
        .json("/sessions")
        .as_array()
        .unwrap()
        .iter()
        .map(|session| session["state"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(states, ["paused", "recording"]);
    let kept = count_indexed_packets(&relay.output, "chan_0");
    assert!((1..200).contains(&kept), "{kept}");
    // Other producers are served, and viewers can read what is written.
    assert!(!other.is_pending(idle, u64::MAX));
    let (mut viewer, _, streams) = Viewer::attached(relay.live, "waits", Seek::Beginning);
    let seen = by_channel(&streams)["chan_0"];
    for _ in 0..kept {
        let ready = viewer.next_index(seen);
        assert_eq!(ready.status, IndexStatus::Ready);
        let len = u32::try_from(PACKET).unwrap();
        assert_eq!(viewer.packet(seen, ready.offset.0, len).1.len(), PACKET);
    }
    assert_eq!(viewer.next_index(seen).status, IndexStatus::Retry);
    let errors = status.metric("relayd_write_errors_total{kind=\"full\"}");
    assert_eq!(errors, 1, "repeated attempts count as one error");
    disk.free_space();
    let mut producer = join();
    producer.wait_while_pending(stream, 199);
    assert_eq!(count_indexed_packets(&relay.output, "chan_0"), 200);
    wait_until("the relay is ready again", || {
        status.get("/readyz").0 == 200
    });
    relay.wait_for_log(&[" WARN ", "producer resumed", "host/waits"]);
    let paused = relay.log();
    let paused: Vec<_> = paused
        .iter()
        .filter(|line| line.contains("producer paused"))
        .collect();
    assert_eq!(paused.len(), 1, "{paused:#?}");
    for part in [
        "host/waits",
        "stream ",
        "chan_0",
        "at byte",
        "No space left",
    ] {
        assert!(paused[0].contains(part), "{part}: {paused:?}");
    }
    drop((producer, other));
    let output = relay.output.clone();
    assert!(relay.stop().status.success());
    assert_eq!(count_indexed_packets(&output, "chan_0"), 200);
}

#[test]
fn a_disk_that_fills_up_at_any_offset_loses_no_packet() {
    let Some((_lab, disk, relay, status)) = start_on_small_disk(&[]) else {
        return;
    };
    // With packets out of order, in tracefiles of five packets, the disk fills up within payloads,
    // within index entries and when files are created.
    for left in 0..12 {
        let name = format!("left-{left}");
        let mut producer = Producer::open(&relay, live_session(&name));
        let channel = format!("{name}_");
        let stream = producer.add_stream(AddStream {
            tracefile_size: Bytes(5 * PACKET as u64),
            ..stream(&channel, TRACE_PATH)
        });
        producer.request(Command::StreamsSent);
        disk.fill(left * 4);
        let join = send_in_background(producer, stream, 40, true);
        status.wait_for_metric("relayd_streams_paused", 1);
        assert!(
            count_indexed_packets(&relay.output, &channel) < 40,
            "{name}"
        );
        disk.free_space();
        join().wait_while_pending(stream, 39);
        assert_eq!(count_indexed_packets(&relay.output, &channel), 40, "{name}");
        wait_until("the session has ended", || {
            status.json("/sessions")[0].is_null()
        });
    }
    assert_eq!(status.metric("relayd_packets_total"), 12 * 40);
    assert_eq!(status.metric("relayd_packets_lost_total"), 0);
}

#[test]
fn a_disk_that_fills_up_within_a_large_packet_loses_no_byte_of_it() {
    // The bytes of packets of this size go to their tracefile through a pipe, without being copied.
    const LARGE: usize = 300_000;
    for left in [0, 100, 290, 700] {
        let Some((_lab, disk, relay, status)) = start_on_small_disk(&[]) else {
            return;
        };
        let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("large"));
        producer.record_packet(stream, 0, LARGE);
        disk.fill(left);
        let sending = std::thread::spawn(move || {
            (1..5).for_each(|number| producer.send_packet(stream, number, LARGE));
            producer
        });
        status.wait_for_metric("relayd_streams_paused", 1);
        disk.free_space();
        sending.join().unwrap().wait_while_pending(stream, 4);
        let expected: Vec<u8> = (0..5).flat_map(|number| vec![number; LARGE]).collect();
        let written = first_file(&relay.output, "/chan_0");
        assert!(written == expected, "{left}: {} bytes", written.len());
    }
}

#[test]
fn a_rotation_on_a_full_disk_completes_when_space_is_freed() {
    let Some((_lab, disk, relay, status)) = start_on_small_disk(&[]) else {
        return;
    };
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("rotates"));
    producer.send_packet(stream, 0, PACKET);
    // These packets have no index before the rotation, which moves them to the new chunk.
    for number in 1..20 {
        producer.send_data(stream, number, PACKET);
    }
    status.wait_for_metric("relayd_packets_total", 20);
    assert_eq!(producer.create_chunk(1), OK);
    disk.fill(24);
    let rotating = std::thread::spawn(move || {
        let reply = producer.rotate_streams(Some(1), &[(stream, 1)]);
        (producer, reply)
    });
    status.wait_for_metric("relayd_streams_paused", 1);
    disk.free_space();
    let (mut producer, reply) = rotating.join().unwrap();
    assert_eq!(reply, OK);
    for number in 1..20 {
        let reply = producer.send_index(stream, number, index(number, PACKET as u64));
        assert_eq!(reply, OK);
    }
    producer.record_packet(stream, 20, PACKET);
    let mut lengths: Vec<_> = files(&relay.output, "/chan_0")
        .into_values()
        .map(|data| data.len() / PACKET)
        .collect();
    lengths.sort_unstable();
    assert_eq!(lengths, [1, 20]);
}

#[test]
fn metadata_for_a_full_disk_is_written_whole_when_space_is_freed() {
    let Some((_lab, disk, relay, _status)) = start_on_small_disk(&[]) else {
        return;
    };
    let mut producer = Producer::open(&relay, live_session("described"));
    let metadata = producer.add_stream(stream("metadata", TRACE_PATH));
    disk.fill(8);
    let text = vec![b'm'; 50_000];
    let sending = std::thread::spawn({
        let text = text.clone();
        move || {
            producer.send_metadata(metadata, &text, 0);
            producer.request(Command::StreamsSent);
            producer
        }
    });
    relay.wait_for_log(&["producer paused"]);
    disk.free_space();
    let _producer = sending.join().unwrap();
    let written = first_file(&relay.output, "/metadata");
    assert!(written == text, "{} bytes", written.len());
}

#[test]
fn on_disk_full_close_aborts_the_affected_session_only() {
    let Some((_lab, disk, relay, status)) = start_on_small_disk(&["--on-disk-full=close"]) else {
        return;
    };
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("closed"));
    let mut other = Producer::open(&relay, live_session("other"));
    let idle = other.add_trace(TRACE_PATH, &["idle_0"])[0];
    disk.fill(100);
    send_until_aborted(&mut producer, stream, 100);
    wait_until("the session has failed", || {
        status.json("/sessions")[0]["state"] == "failed"
    });
    relay.wait_for_log(&[
        "session aborted",
        "host/closed",
        "chan_0",
        "at byte",
        "No space left",
    ]);
    assert!(status.metric("relayd_write_errors_total{kind=\"full\"}") > 0);
    let data = first_file(&relay.output, "/chan_0");
    assert_eq!(data.len() % PACKET, 0, "the partial packet is removed");
    let refused = producer.send_index(stream, 99, index(99, PACKET as u64));
    assert_ne!(refused, OK);
    disk.free_space();
    (0..10).for_each(|number| other.send_packet(idle, number, PACKET));
    other.wait_while_pending(idle, 9);
    assert_eq!(count_indexed_packets(&relay.output, "idle_0"), 10);
    let mut again = Producer::open(&relay, live_session("again"));
    let stream = again.add_trace(TRACE_PATH, &["new_0"])[0];
    again.record_packet(stream, 0, PACKET);
    assert_eq!(status.get("/readyz").0, 200);
}

#[test]
fn a_permanent_write_error_aborts_the_affected_session_only() {
    let lab = Lab::new();
    let mut command = lab.command(peers::program("prlimit"));
    command
        .arg("--fsize=20000")
        .arg(binaries::relayd())
        .arg("--http=0");
    let relay = Relay::start_from_command(&lab, command);
    let status = StatusEndpoint::of(&relay);
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("large"));
    let mut other = Producer::open(&relay, live_session("other"));
    let small = other.add_trace(TRACE_PATH, &["small_0"])[0];
    send_until_aborted(&mut producer, stream, 20);
    wait_until("the session has failed", || {
        status.json("/sessions")[0]["state"] == "failed"
    });
    assert_eq!(
        status.metric("relayd_write_errors_total{kind=\"too_large\"}"),
        1
    );
    other.record_packet(small, 0, PACKET);
    assert_eq!(status.json("/sessions")[1]["state"], "recording");
    assert!(relay.stop().status.success());
}

#[test]
fn a_stopping_relay_does_not_wait_for_disk_space() {
    let Some((_lab, disk, relay, status)) = start_on_small_disk(&[]) else {
        return;
    };
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("stopped"));
    disk.fill(50);
    for number in 0..40 {
        producer.send_data(stream, number, PACKET);
    }
    status.wait_for_metric("relayd_streams_paused", 1);
    let output = relay.output.clone();
    let ended = relay.stop();
    assert!(ended.status.success());
    assert!(
        ended
            .stderr
            .iter()
            .any(|line| line.contains("what waited is lost")),
        "{:#?}",
        ended.stderr
    );
    let data = first_file(&output, "/chan_0");
    assert_eq!(data.len() % PACKET, 0, "the partial packet is removed");
}

#[test]
fn lttng_is_paused_by_a_full_disk_and_loses_no_event_that_fits_its_buffers() {
    let Some((lab, disk, relay, status)) = start_on_small_disk(&[]) else {
        return;
    };
    let large = &["--subbuf-size=64k", "--num-subbuf=16"];
    let daemon = SessionDaemon::start_with_channel(&lab, &relay, "real", Some(50_000), large);
    daemon.lttng(&["start", "real"]);
    let mut app = TracedApp::start(&lab, "real");
    app.emit(50);
    wait_until("packets are recorded", || {
        status.metric("relayd_packets_total") > 0
    });
    disk.fill(4);
    app.emit(1000);
    wait_until("the producer is paused", || {
        status.metric("relayd_streams_paused") > 0
    });
    app.emit(1000);
    disk.free_space();
    app.end();
    daemon.lttng(&["stop", "real"]);
    daemon.lttng(&["destroy", "real"]);
    let read = Babeltrace::Two.read(&relay.output).expect_success();
    assert!(numbers(&read).into_iter().eq(0..2050), "{}", read.len());
}

#[test]
fn a_producer_that_disconnects_while_paused_leaves_whole_packets_and_no_session() {
    let Some((_lab, disk, relay, status)) = start_on_small_disk(&[]) else {
        return;
    };
    let (mut producer, stream) = Producer::open_with_trace(&relay, live_session("dies"));
    disk.fill(30);
    producer.send_pipelined(stream, 40, PACKET);
    status.wait_for_metric("relayd_streams_paused", 1);
    let before = count_indexed_packets(&relay.output, "chan_0");
    drop(producer);
    disk.free_space();
    wait_until("the session has ended", || {
        status.json("/sessions")[0].is_null() && status.metric("relayd_streams") == 0
    });
    assert_eq!(status.metric("relayd_streams_paused"), 0);
    // Packets whose indexes were not answered may be lost with the producer, but only whole ones.
    let kept = count_indexed_packets(&relay.output, "chan_0");
    assert!(kept >= before, "{kept} of {before}");
    let data = first_file(&relay.output, "/chan_0");
    assert_eq!(data.len() % PACKET, 0);
}

/// Returns what `consumer status` prints of an agent with this socket.
fn consumer_status(lab: &Lab, socket: &str) -> String {
    let mut command = lab.command(binaries::consumer());
    let command = command.args(["status", "--socket", socket]);
    Process::start(command).wait().expect_success().join("\n")
}

#[test]
fn a_full_disk_is_seen_by_doctor_and_in_the_status_of_an_agent() {
    let Some((lab, disk, relay, _status)) = start_on_small_disk(&[]) else {
        return;
    };
    let path = |name: &str| lab.path().join(name).display().to_string();
    let (socket, clients) = (path("agent.socket"), path("tldrs.socket"));
    let mut command = lab.command(binaries::consumer());
    command
        .args(["serve", "-v", "--live=20000", "--clock-interval=0"])
        .args(["-U", &relay.producer_url(), "--socket", &socket])
        .arg(format!("--tldrs={clients}"))
        .arg(format!("--tldrs-dir={}", path("tldrs")));
    let mut agent = Process::start(&mut command);
    agent.wait_for_stderr_text("consumer::agent: ready");
    let mut client = UnixStream::connect(clients).unwrap();
    writeln!(client, "OPEN full").unwrap();
    let mut send = |events: usize| {
        for ts in 0..events {
            writeln!(
                client,
                r#"{{"ph":"i","name":"ev","ts":{ts},"pid":1,"tid":1}}"#
            )
            .unwrap();
        }
    };
    send(1);
    wait_until("the relay has acknowledged the first packet", || {
        let mut command = lab.command(binaries::consumer());
        command.args(["status", "--json", "--socket", &socket]);
        let printed = Process::start(&mut command).wait().expect_success();
        let status: Value = serde_json::from_str(&printed.concat()).unwrap();
        let acknowledged = status.pointer("/sessions/0/acknowledged");
        acknowledged.and_then(Value::as_u64) > Some(0)
    });
    disk.fill(0);
    // More than the rest of a page of the disk.
    send(1000);
    wait_until("the status shows that nothing is acknowledged", || {
        let status = consumer_status(&lab, &socket);
        status.contains("connected, but nothing acknowledged for ")
    });
    let mut doctor = lab.command(binaries::relayd());
    doctor.args(["doctor", "-o"]).arg(&relay.output);
    doctor.args(port_options(relay.addresses()));
    let ended = Process::start(&mut doctor).wait();
    let text = ended.stdout.join("\n");
    assert_eq!(ended.status.code(), Some(1), "{text}");
    assert!(text.contains("problem  output "), "{text}");
    assert!(text.contains("on a larger disk"), "{text}");
    disk.free_space();
    wait_until("the status shows a healthy connection", || {
        consumer_status(&lab, &socket).contains("  connected: ")
    });
}
