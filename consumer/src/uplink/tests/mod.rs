//! Sessions that are sent to a scripted relay.

mod reconnect;
mod relay;
mod relays;
mod resume;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wire::{Bits, ClassId, PacketIndex, PacketSeqNum, Timestamp};

use self::relay::{Script, Scripted};
use super::{UplinkSettings, run};
use crate::limits::MAX_TRACEFILES;
use crate::queue::{
    QueueCapacity, SessionDescription, SessionEnd, SessionOpener, SessionOutcome, SessionSender,
    Step, StreamKey, TraceKey, session_channel,
};
use crate::status::StatusRegistry;

const CAPACITY: QueueCapacity = QueueCapacity {
    session_bytes: 1 << 20,
    all_bytes: 1 << 20,
};

/// A running uplink, with the registry of its sessions.
struct Uplink {
    opener: SessionOpener,
    registry: StatusRegistry,
    give_up: CancellationToken,
    task: JoinHandle<()>,
}

impl Uplink {
    fn connect_to(url: &str, reconnect_timeout: Option<Duration>) -> Self {
        let (opener, sessions) = session_channel(CAPACITY);
        let settings = UplinkSettings {
            target: url.parse().unwrap(),
            reconnect_timeout,
        };
        let (registry, give_up) = (StatusRegistry::default(), CancellationToken::new());
        let running = run(sessions, settings, registry.clone(), give_up.clone());
        Self {
            opener,
            registry,
            give_up,
            task: tokio::spawn(running),
        }
    }

    fn open(&self, name: &str) -> SessionSender {
        self.opener.open_session(description(name)).unwrap()
    }

    /// Stops opening sessions, and waits until all have ended.
    async fn finish(self) {
        drop(self.opener);
        self.task.await.unwrap();
    }
}

/// Starts a relay with these scripts, and opens a session on it.
async fn start(scripts: &[Script]) -> (Scripted, Uplink, SessionSender) {
    let relay = Scripted::start(scripts).await;
    let uplink = Uplink::connect_to(&relay.url, None);
    let session = uplink.open("s");
    (relay, uplink, session)
}

fn description(name: &str) -> SessionDescription {
    SessionDescription {
        live_timer: Some(Duration::from_secs(1)),
        ..SessionDescription::named(name)
    }
}

fn trace(path: &str) -> Step {
    Step::AddTrace { path: path.into() }
}

fn stream(channel: &str) -> Step {
    Step::AddStream {
        trace: TraceKey(0),
        channel: channel.into(),
        class: ClassId(5),
    }
}

fn metadata(text: &'static str) -> Step {
    Step::Metadata {
        trace: TraceKey(0),
        bytes: Bytes::from(text),
    }
}

/// Returns a packet of 16 bytes, of which 10 are sent.
fn packet(stream: u32, number: u64) -> Step {
    Step::Packet {
        stream: StreamKey(stream),
        bytes: Bytes::from(vec![u8::try_from(number % 251).unwrap(); 10]),
        index: PacketIndex {
            packet_size: Bits(128),
            content_size: Bits(80),
            begin: Timestamp(number * 10),
            end: Timestamp(number * 10 + 10),
            events_discarded: 0,
            class: ClassId(5),
            instance: None,
            packet_seq: Some(PacketSeqNum(number)),
        },
    }
}

fn beacon(stream: u32, until: u64) -> Step {
    Step::Beacon {
        stream: StreamKey(stream),
        until: Timestamp(until),
    }
}

fn close(stream: u32) -> Step {
    Step::CloseStream {
        stream: StreamKey(stream),
    }
}

async fn send_steps(session: &SessionSender, steps: impl IntoIterator<Item = Step>) {
    for step in steps {
        session.send(step).await.unwrap();
    }
}

/// Returns the steps of a session with one stream and one packet.
fn one_packet() -> [Step; 4] {
    [trace("a"), stream("one"), metadata("m"), packet(0, 0)]
}

fn complete(acknowledged: u64) -> SessionOutcome {
    SessionOutcome {
        acknowledged,
        lost: 0,
        end: SessionEnd::Complete,
    }
}

#[tokio::test]
async fn session_sends_its_commands_in_the_order_of_lttng() {
    let (relay, uplink, session) = start(&[Script::default()]).await;
    send_steps(&session, [trace("ust/a"), stream("one"), stream("two")]).await;
    let packets = [metadata("/* CTF 1.8 */"), packet(0, 0), packet(0, 1)];
    send_steps(&session, packets).await;
    assert_eq!(session.finish().await, complete(2));
    uplink.finish().await;
    let received = relay.received(0);
    let received = received.lock().unwrap();
    let want = [
        "create session",
        "create chunk",
        "add ust/a/one",
        "add ust/a/two",
        "add ust/a/metadata",
        "streams sent",
        "metadata",
        "index one 0",
        "index one 1",
        "begin round",
        "end round",
        "leave chunk: 2",
        "leave chunk: 1",
        "close chunk",
        "close one 1",
        "close two -1",
        "close metadata -1",
    ];
    assert_eq!(received.log, want);
    assert_eq!(
        received.packets_of("one"),
        [(vec![0; 10], 6), (vec![1; 10], 6)]
    );
    assert_eq!(received.metadata.values().next().unwrap(), b"/* CTF 1.8 */");
    let recording = received
        .session
        .as_ref()
        .unwrap()
        .recording
        .as_ref()
        .unwrap();
    assert!(!recording.daemon.is_nil());
}

#[tokio::test]
async fn streams_added_later_are_announced_before_their_packets() {
    let (relay, _uplink, session) = start(&[Script::default()]).await;
    send_steps(&session, one_packet()).await;
    let later = [stream("two"), packet(1, 0), close(0), packet(1, 1)];
    send_steps(&session, later).await;
    assert_eq!(session.finish().await, complete(3));
    let received = relay.received(0);
    let received = received.lock().unwrap();
    let place = |what: &str| received.log.iter().position(|line| line == what).unwrap();
    let again = received.log.iter().rposition(|line| line == "streams sent");
    assert!(place("add a/two") < again.unwrap());
    assert!(again.unwrap() < place("index two 0"));
    assert!(place("index one 0") < place("close one 0"));
    assert!(place("close one 0") < place("close chunk"));
    assert!(place("leave chunk: 1") < place("close two 1"));
}

#[tokio::test]
async fn beacon_is_sent_after_all_packets_of_its_stream_are_confirmed() {
    let (relay, _uplink, session) = start(&[Script::default()]).await;
    let begin = [trace("a"), stream("busy"), stream("idle"), metadata("m")];
    send_steps(&session, begin).await;
    let beacons = [beacon(1, 7), packet(0, 0), beacon(0, 20), beacon(0, 30)];
    send_steps(&session, beacons).await;
    assert_eq!(session.finish().await, complete(1));
    let received = relay.received(0);
    let received = received.lock().unwrap();
    // A stream without packets has nothing to wait for. Of several beacons the last is sent.
    assert!(received.log.contains(&"beacon idle 7".into()));
    assert!(received.log.contains(&"beacon busy 30".into()));
}

#[tokio::test]
async fn commands_are_pipelined() {
    let script = Script {
        silent_until: 100,
        ..Script::default()
    };
    let (_relay, _uplink, session) = start(&[script]).await;
    send_steps(&session, [trace("a"), stream("one"), metadata("m")]).await;
    send_steps(&session, (0..100).map(|number| packet(0, number))).await;
    assert_eq!(session.finish().await, complete(100));
}

/// Waits until the first connection has received something.
async fn relay_when(
    relay: &Scripted,
    is_so: impl Fn(&relay::ReceivedSession) -> bool,
) -> std::sync::Arc<std::sync::Mutex<relay::ReceivedSession>> {
    loop {
        let received = relay.connections.lock().unwrap().first().cloned();
        if let Some(received) = received
            && is_so(&received.lock().unwrap())
        {
            return received;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn packet_after_a_pause_is_unacknowledged_from_when_it_was_queued() {
    let slow = Script {
        always_pending: true,
        ..Script::default()
    };
    let (relay, uplink, session) = start(&[slow]).await;
    send_steps(&session, [trace("a"), stream("one"), metadata("m")]).await;
    relay_when(&relay, |received| !received.added.is_empty()).await;
    let sent = Instant::now();
    send_steps(&session, [packet(0, 0)]).await;
    relay_when(&relay, |received| received.packets.len() == 1).await;
    let (open, _) = uplink.registry.sessions();
    assert_eq!(open[0].queued_packets.get(), 1);
    let now = Instant::now();
    assert!(open[0].unacknowledged_for(now) <= now - sent);
    uplink.give_up.cancel();
    assert_eq!(session.finish().await.lost, 1);
    uplink.finish().await;
}

#[tokio::test]
async fn session_that_is_refused_fails() {
    let refusing = Script {
        refuse_session: true,
        ..Script::default()
    };
    let (_relay, _uplink, session) = start(&[refusing]).await;
    let outcome = session.finish().await;
    let SessionEnd::Failed(why) = outcome.end else {
        panic!("{outcome:?}");
    };
    assert!(why.contains("refuses the session \"s\""), "{why}");
}

#[tokio::test]
async fn relay_with_a_protocol_before_2_11_is_not_used() {
    let control = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = control.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = control.accept().await.unwrap();
            // 2.10
            let _ = socket.write_all(&[0, 0, 0, 2, 0, 0, 0, 10]).await;
            let _ = socket.read_to_end(&mut Vec::new()).await;
        }
    });
    let uplink = Uplink::connect_to(&format!("net://127.0.0.1:{port}:{port}"), None);
    let SessionEnd::Failed(why) = uplink.open("s").finish().await.end else {
        panic!("the session has not failed");
    };
    assert!(why.contains("2.10") && why.contains("2.11"), "{why}");
}

#[tokio::test]
async fn names_that_crash_relays_are_never_sent() {
    let relay = Scripted::start(&[Script::default(); 8]).await;
    let uplink = Uplink::connect_to(&relay.url, None);
    let failed = async |description, steps: Vec<Step>| {
        let session = uplink.opener.open_session(description).unwrap();
        for step in steps {
            let _ = session.send(step).await;
        }
        matches!(session.finish().await.end, SessionEnd::Failed(_))
    };
    for name in ["", "a/b", ".a", &"n".repeat(300)] {
        assert!(failed(description(name), Vec::new()).await, "{name}");
    }
    let base_path = |base_path: &str| SessionDescription {
        base_path: base_path.into(),
        ..description("s")
    };
    for path in ["/a", "a/../b", &"p".repeat(5000)] {
        assert!(failed(base_path(path), Vec::new()).await, "{path}");
    }
    assert_eq!(relay.connections.lock().unwrap().len(), 0);
    for path in ["", "/a", "../a", "a/.."] {
        assert!(failed(description("s"), vec![trace(path)]).await, "{path}");
    }
    for channel in ["", "a/b", "..", "metadata"] {
        let steps = vec![trace("a"), stream(channel)];
        assert!(failed(description("s"), steps).await, "{channel}");
    }
}

#[tokio::test]
async fn packet_with_an_inconsistent_index_is_dropped_and_counted() {
    let (_relay, _uplink, session) = start(&[Script::default()]).await;
    send_steps(&session, one_packet()).await;
    for (packet_size, content_size) in [(0, 0), (72, 72), (129, 80), (128, 136), (1 << 40, 0)] {
        let mut step = packet(0, 1);
        if let Step::Packet { index, .. } = &mut step {
            index.packet_size = Bits(packet_size);
            index.content_size = Bits(content_size);
        }
        send_steps(&session, [step]).await;
    }
    send_steps(&session, [packet(7, 0)]).await;
    let outcome = session.finish().await;
    assert_eq!((outcome.acknowledged, outcome.lost), (1, 6));
}

#[tokio::test]
async fn tracefile_count_sent_to_a_relay_is_limited() {
    let relay = Scripted::start(&[Script::default()]).await;
    let uplink = Uplink::connect_to(&relay.url, None);
    let session = uplink.opener.open_session(SessionDescription {
        tracefile_size: 4096,
        ..description("s")
    });
    let session = session.unwrap();
    send_steps(&session, [trace("a"), stream("one"), metadata("m")]).await;
    assert_eq!(session.finish().await, complete(0));
    let received = relay.received(0);
    let received = received.lock().unwrap();
    let limits = received
        .added
        .iter()
        .map(|stream| (stream.tracefile_size.0, stream.tracefile_count));
    assert!(limits.eq([(4096, MAX_TRACEFILES), (0, 0)]));
}

#[tokio::test]
async fn unconfirmed_packets_fill_the_queue_and_block_the_sender() {
    let slow = Script {
        always_pending: true,
        ..Script::default()
    };
    let (relay, uplink, session) = start(&[slow]).await;
    send_steps(&session, [trace("a"), stream("one"), metadata("m")]).await;
    let mut number = 0;
    // Twice: after the first round the other steps have released their capacity.
    for _ in 0..2 {
        while session.try_send(packet(0, number)).is_ready() {
            number += 1;
        }
        relay_when(&relay, |received| received.packets.len() as u64 == number).await;
    }
    // All packets have arrived, and none is confirmed.
    assert!(session.try_send(packet(0, number)).is_pending());
    let (open, _) = uplink.registry.sessions();
    assert_eq!(open[0].queued_packets.get(), number);
    assert_eq!(open[0].acknowledged.get(), 0);
    uplink.give_up.cancel();
    let outcome = session.finish().await;
    assert_eq!((outcome.acknowledged, outcome.lost), (0, number));
    uplink.finish().await;
}
