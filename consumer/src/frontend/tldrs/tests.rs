use std::time::Duration;

use bytes::Bytes;
use tldrs_daemon::forward_queue::{ForwardItem, TraceSender, trace_channel};
use tokio::sync::mpsc::UnboundedReceiver;
use wire::{PacketIndex, Timestamp};

use super::*;
use crate::queue::{
    OpenedSession, QueueCapacity, SessionEnd, SessionOutcome, Step, session_channel,
};

const LIVE_TIMER: Duration = Duration::from_millis(5);

/// The sending end of a daemon, and the sessions that the forwarder opens.
struct TestForwarder {
    forward: TraceSender,
    sessions: UnboundedReceiver<OpenedSession>,
}

fn start_forwarder() -> TestForwarder {
    let (opener, sessions) = session_channel(QueueCapacity::default());
    let (forward, traces) = trace_channel();
    let settings = ForwardSettings {
        host: "host".into(),
        live_timer: LIVE_TIMER,
        packet_bytes: 4096,
        tracefiles: (0, 0),
    };
    tokio::spawn(run(traces, opener, settings));
    TestForwarder { forward, sessions }
}

impl TestForwarder {
    /// Opens a trace as a client does, which no other has open.
    async fn open_trace(&self, id: &str) -> mpsc::Sender<ForwardItem> {
        let (client, items) = mpsc::channel(16);
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
        client.send(opened).await.unwrap();
        client
    }

    async fn next_session(&mut self) -> OpenedSession {
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

/// Returns the steps before the packet with this text, or before the end of the session.
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
async fn event_is_sent_after_its_metadata_at_the_next_live_tick() {
    let mut forwarder = start_forwarder();
    let client = forwarder.open_trace("trace").await;
    let mut session = forwarder.next_session().await;
    assert_eq!(session.description.name, "trace");
    assert_eq!(session.description.live_timer, Some(LIVE_TIMER));
    client.send(line(EVENT)).await.unwrap();
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
async fn session_ends_after_the_last_client_disconnects() {
    let mut forwarder = start_forwarder();
    let client = forwarder.open_trace("trace").await;
    let mut session = forwarder.next_session().await;
    client
        .send(ForwardItem::ClientClosed { client: 0 })
        .await
        .unwrap();
    drop((client, forwarder.forward));
    let (_, last) = until(&mut session, "nothing has this").await;
    assert!(last.is_none(), "the steps end with the session");
}

#[tokio::test]
async fn trace_that_is_reopened_within_the_grace_period_stays_in_its_session() {
    let mut forwarder = start_forwarder();
    drop(forwarder.open_trace("trace").await);
    let mut session = forwarder.next_session().await;
    let other = forwarder.open_trace("other").await;
    assert_eq!(forwarder.next_session().await.description.name, "other");
    let again = forwarder.open_trace("trace").await;
    again.send(line(EVENT)).await.unwrap();
    assert!(until(&mut session, "first").await.1.is_some());
    assert!(forwarder.sessions.try_recv().is_err());
    drop(other);
}

#[tokio::test]
async fn session_that_is_given_up_blocks_no_client() {
    let mut forwarder = start_forwarder();
    let client = forwarder.open_trace("trace").await;
    let session = forwarder.next_session().await;
    session.steps.report_outcome(SessionOutcome {
        end: SessionEnd::Failed("no relay".into()),
        ..SessionOutcome::default()
    });
    for _ in 0..100 {
        client.send(line(EVENT)).await.unwrap();
    }
    drop(client);
    // A trace that is opened later gets another session.
    tokio::time::timeout(Duration::from_secs(60), async {
        loop {
            let client = forwarder.open_trace("trace").await;
            if forwarder.sessions.try_recv().is_ok() {
                break;
            }
            drop(client);
            tokio::time::sleep(LIVE_TIMER).await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn lost_events_are_counted_as_discarded_and_recorded_as_an_event() {
    let mut forwarder = start_forwarder();
    let client = forwarder.open_trace("trace").await;
    let mut session = forwarder.next_session().await;
    let reason = "no room for it".into();
    let count = 7;
    client
        .send(ForwardItem::Lost {
            client: 0,
            count,
            reason,
        })
        .await
        .unwrap();
    client.send(line("no event at all")).await.unwrap();
    let (_, index) = until(&mut session, "no room for it").await;
    assert!(index.unwrap().events_discarded >= 7);
    client.send(line(EVENT)).await.unwrap();
    let (_, index) = until(&mut session, "first").await;
    assert_eq!(index.unwrap().events_discarded, 8);
}
