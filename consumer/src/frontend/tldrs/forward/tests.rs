use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use wire::{PacketIndex, Timestamp};

use super::super::forward_queue::{ForwardItem, TraceSender, trace_channel};
use super::*;
use crate::queue::{
    OpenedSession, QueueCapacity, SessionEnd, SessionOutcome, Step, session_channel,
};

const LIVE_TIMER: Duration = Duration::from_millis(5);

/// A daemon's end of the way, and the sessions that come out at the other.
struct Made {
    forward: TraceSender,
    sessions: UnboundedReceiver<OpenedSession>,
}

fn made() -> Made {
    let all = 1 << 20;
    let (opener, sessions) = session_channel(QueueCapacity {
        session_bytes: all,
        all_bytes: all,
    });
    let (forward, traces) = trace_channel();
    let settings = Settings {
        host: "host".into(),
        live_timer: LIVE_TIMER,
        packet_bytes: 4096,
        tracefiles: (0, 0),
    };
    tokio::spawn(run(traces, opener, settings));
    Made { forward, sessions }
}

impl Made {
    /// A client opens a trace that nobody has open.
    async fn open(&self, id: &str) -> mpsc::Sender<ForwardItem> {
        let (way, items) = mpsc::channel(16);
        let trace = ForwardedTrace {
            id: id.into(),
            name: id.into(),
            items,
        };
        self.forward.send(trace).await.unwrap();
        let opened = ForwardItem::ClientOpened {
            client: 0,
            pid: 1,
            uid: 2,
            exe: "/bin/true".into(),
        };
        way.send(opened).await.unwrap();
        way
    }

    async fn session(&mut self) -> OpenedSession {
        self.sessions.recv().await.unwrap()
    }
}

fn line(text: &str) -> ForwardItem {
    ForwardItem::Lines {
        client: 0,
        at: Timestamp(0),
        text: Bytes::from(format!("{text}\n")),
    }
}

/// What happens until a packet with this text comes, or the session ends.
async fn until(session: &mut OpenedSession, text: &str) -> (Vec<Step>, Option<PacketIndex>) {
    let mut before = Vec::new();
    while let Some(queued) = session.steps.next_step().await {
        if let Step::Packet { bytes, index, .. } = &queued.step
            && bytes
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        {
            return (before, Some(*index));
        }
        before.push(queued.step);
    }
    (before, None)
}

const EVENT: &str = r#"{"ph":"X","name":"first","ts":1,"dur":2}"#;

#[tokio::test]
async fn an_event_is_on_its_way_at_the_next_tick_and_all_streams_say_so() {
    let mut made = made();
    let way = made.open("trace").await;
    let mut session = made.session().await;
    assert_eq!(session.description.name, "trace");
    assert_eq!(session.description.live_timer, Some(LIVE_TIMER));
    way.send(line(EVENT)).await.unwrap();
    let (before, index) = until(&mut session, "first").await;
    assert!(matches!(before[0], Step::AddTrace { .. }));
    assert!(matches!(before[1], Step::AddStream { .. }));
    let Step::Metadata { bytes, .. } = &before[2] else {
        panic!("{before:?}");
    };
    let text = String::from_utf8_lossy(bytes);
    assert!(text.contains("tef:complete") && text.contains("tef_trace_id = \"trace\""));
    assert_eq!(index.unwrap().events_discarded, 0);
}

#[tokio::test]
async fn the_session_ends_after_the_last_client() {
    let mut made = made();
    let way = made.open("trace").await;
    let mut session = made.session().await;
    way.send(ForwardItem::ClientClosed { client: 0 })
        .await
        .unwrap();
    drop((way, made.forward));
    let (steps, _) = until(&mut session, "nothing has this").await;
    assert!(matches!(steps.last(), Some(Step::CloseStream { .. })));
}

#[tokio::test]
async fn a_trace_that_is_opened_again_goes_on_in_its_session() {
    let mut made = made();
    drop(made.open("trace").await);
    let mut session = made.session().await;
    let other = made.open("other").await;
    assert_eq!(made.session().await.description.name, "other");
    let again = made.open("trace").await;
    again.send(line(EVENT)).await.unwrap();
    assert!(until(&mut session, "first").await.1.is_some());
    assert!(made.sessions.try_recv().is_err());
    drop(other);
}

#[tokio::test]
async fn a_session_that_is_given_up_keeps_no_client_waiting() {
    let mut made = made();
    let way = made.open("trace").await;
    let session = made.session().await;
    session.steps.report_outcome(SessionOutcome {
        end: SessionEnd::Failed("no relay".into()),
        ..SessionOutcome::default()
    });
    for _ in 0..100 {
        way.send(line(EVENT)).await.unwrap();
    }
    drop(way);
    // The next one has a chance of its own.
    tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let way = made.open("trace").await;
            if made.sessions.try_recv().is_ok() {
                break;
            }
            drop(way);
            tokio::time::sleep(LIVE_TIMER).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn what_is_lost_is_counted_and_told() {
    let mut made = made();
    let way = made.open("trace").await;
    let mut session = made.session().await;
    let reason = "no room for it".into();
    let (client, count) = (0, 7);
    way.send(ForwardItem::Lost {
        client,
        count,
        reason,
    })
    .await
    .unwrap();
    way.send(line("no event at all")).await.unwrap();
    let (_, index) = until(&mut session, "no room for it").await;
    assert!(index.unwrap().events_discarded >= 7);
    way.send(line(EVENT)).await.unwrap();
    let (_, index) = until(&mut session, "first").await;
    assert_eq!(index.unwrap().events_discarded, 8);
}
