use ctf::write::{EventDeclaration, FieldType, Value};
use wire::{Bits, PacketIndex, PacketSeqNum};

use super::*;
use crate::queue::{QueueCapacity, SessionDescription, SessionReceiver, session_channel};

const SIZE: usize = 4096;

/// A trace with streams of one class, and what has been queued.
struct Made {
    packetizer: Packetizer,
    steps: SessionReceiver,
    streams: Vec<StreamKey>,
    class: DeclaredEventClass,
    stream_class: DeclaredStreamClass,
}

async fn made(streams: usize, activity: &Activity) -> Made {
    let (opener, mut sessions) = session_channel(QueueCapacity::default());
    let description = SessionDescription::named("session");
    let queue = opener.open_session(description).unwrap();
    let steps = sessions.recv().await.unwrap().steps;
    let trace = TraceDeclaration::new(Uuid([7; 16]), "test");
    let mut packetizer = Packetizer::new(&trace, "path", queue, activity.clone())
        .await
        .unwrap();
    let stream_class = packetizer.declare_stream_class(0).unwrap();
    let declaration = EventDeclaration {
        fields: vec![("text".into(), FieldType::Text)],
        ..EventDeclaration::new(0, "event")
    };
    let class = packetizer
        .metadata()
        .event(&stream_class, &declaration)
        .unwrap();
    let mut keys = Vec::new();
    for number in 0..streams {
        let size = PacketSize::new(SIZE, 2 * SIZE);
        let name = format!("stream_{number}");
        keys.push(
            packetizer
                .add_stream(&stream_class, &name, size)
                .await
                .unwrap(),
        );
    }
    let mut made = Made {
        packetizer,
        steps,
        streams: keys,
        class,
        stream_class,
    };
    let first = made.taken();
    assert!(matches!(first.first(), Some(Step::AddTrace { path }) if path == "path"));
    assert_eq!(first.len(), 1 + streams);
    made
}

impl Made {
    fn taken(&mut self) -> Vec<Step> {
        std::iter::from_fn(|| Some(self.steps.try_next_step()?.step)).collect()
    }

    async fn append(&mut self, stream: usize, time: u64, text: &str) -> Result<(), PacketizeError> {
        let values = [Value::Text(text)];
        let event = EventRecord {
            time: Timestamp(time),
            process: 1,
            thread: 1,
            values: &values,
        };
        let class = self.class.clone();
        self.packetizer
            .append(self.streams[stream], &class, event)
            .await
    }

    async fn flush(&mut self, now: u64, even_if_idle: bool) -> Vec<Step> {
        self.packetizer
            .flush(Timestamp(now), even_if_idle)
            .await
            .unwrap();
        self.taken()
    }
}

fn index_of(step: &Step) -> PacketIndex {
    match step {
        Step::Packet { bytes, index, .. } => {
            assert_eq!(Bits(bytes.len() as u64 * 8), index.content_size);
            *index
        }
        other => panic!("{other:?} is no packet"),
    }
}

#[tokio::test]
async fn metadata_is_queued_before_the_packet_that_needs_it() {
    let mut made = made(1, &Activity::default()).await;
    made.append(0, 10, "a").await.unwrap();
    assert!(made.taken().is_empty());
    let steps = made.flush(20, false).await;
    let [Step::Metadata { .. }, packet] = &steps[..] else {
        panic!("{steps:?}");
    };
    let index = index_of(packet);
    assert_eq!((index.begin, index.end), (Timestamp(10), Timestamp(20)));
    assert_eq!(index.packet_size, Bits(SIZE as u64 * 8));
    // A class that is declared later is queued before its first packet, and no declaration is
    // repeated.
    let later = EventDeclaration::new(1, "later");
    let stream_class = made.stream_class.clone();
    made.packetizer
        .metadata()
        .event(&stream_class, &later)
        .unwrap();
    made.append(0, 30, "b").await.unwrap();
    let steps = made.flush(40, false).await;
    let [Step::Metadata { bytes, .. }, packet] = &steps[..] else {
        panic!("{steps:?}");
    };
    let text = String::from_utf8_lossy(bytes);
    assert!(
        text.contains("later") && !text.contains("packet_context"),
        "{text}"
    );
    assert_eq!(index_of(packet).packet_seq, Some(PacketSeqNum(1)));
}

#[tokio::test]
async fn event_that_does_not_fit_starts_the_next_packet() {
    let mut made = made(1, &Activity::default()).await;
    let text = "x".repeat(1000);
    for time in 1..=4 {
        made.append(0, time, &text).await.unwrap();
    }
    let steps = made.taken();
    let [Step::Metadata { .. }, full] = &steps[..] else {
        panic!("{steps:?}");
    };
    assert_eq!(index_of(full).end, Timestamp(4));
    let rest = made.flush(9, false).await;
    assert_eq!(index_of(&rest[0]).begin, Timestamp(4));
}

#[tokio::test]
async fn streams_without_events_send_beacons_when_others_have_any() {
    let activity = Activity::default();
    let mut one = made(2, &activity).await;
    let mut other = made(1, &activity).await;
    assert!(other.flush(5, false).await.is_empty());
    one.append(1, 10, "a").await.unwrap();
    let steps = one.flush(20, false).await;
    let beacon = |stream, until| Step::Beacon {
        stream: StreamKey(stream),
        until: Timestamp(until),
    };
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[2], beacon(0, 20));
    // Those of other sessions too, with the metadata that viewers need for them; and once.
    let steps = other.flush(21, false).await;
    assert!(matches!(steps[0], Step::Metadata { .. }));
    assert_eq!(steps[1..], [beacon(0, 21)]);
    assert!(other.flush(30, false).await.is_empty());
    assert_eq!(other.flush(31, true).await, [beacon(0, 31)]);
}

#[tokio::test]
async fn event_older_than_the_last_beacon_gets_the_time_of_the_beacon() {
    let mut made = made(1, &Activity::default()).await;
    made.flush(50, true).await;
    made.append(0, 40, "late").await.unwrap();
    let steps = made.flush(45, false).await;
    let index = index_of(&steps[0]);
    assert_eq!((index.begin, index.end), (Timestamp(50), Timestamp(50)));
}

#[tokio::test]
async fn lost_events_are_reported_even_if_no_event_follows() {
    let mut made = made(1, &Activity::default()).await;
    made.packetizer.discard(StreamKey(0), 3);
    let steps = made.flush(10, false).await;
    let index = index_of(&steps[1]);
    assert_eq!(index.events_discarded, 3);
    assert!(made.flush(20, false).await.is_empty());
}

#[tokio::test]
async fn event_too_large_for_a_packet_affects_no_other() {
    let mut made = made(1, &Activity::default()).await;
    made.append(0, 1, "before").await.unwrap();
    let refused = made.append(0, 2, &"x".repeat(3 * SIZE)).await;
    assert!(matches!(
        refused,
        Err(PacketizeError::Event(PacketError::TooLong(_)))
    ));
    made.append(0, 3, "after").await.unwrap();
    let steps = made.flush(4, false).await;
    assert!(steps.len() >= 2, "{steps:?}");
}

#[tokio::test]
async fn finish_flushes_open_packets_and_leaves_the_streams_to_the_end_of_the_session() {
    let mut made = made(2, &Activity::default()).await;
    made.append(1, 1, "last").await.unwrap();
    let Made {
        packetizer,
        mut steps,
        ..
    } = made;
    let finishing = tokio::spawn(packetizer.finish(Timestamp(9)));
    let mut got = Vec::new();
    while let Some(queued) = steps.next_step().await {
        got.push(queued.step);
    }
    assert!(matches!(got[0], Step::Metadata { .. }));
    assert_eq!(index_of(&got[1]).end, Timestamp(9));
    assert_eq!(got.len(), 2, "{got:?}");
    steps.report_outcome(SessionOutcome::default());
    assert_eq!(finishing.await.unwrap(), SessionOutcome::default());
}
