//! Sessions that are opened, and steps that are queued within the capacity.

use bytes::Bytes;
use tokio::task::yield_now;

use super::*;

const CAPACITY: QueueCapacity = QueueCapacity {
    session_bytes: 1000,
    all_bytes: 1500,
};

fn open(opener: &SessionOpener) -> SessionSender {
    let description = SessionDescription {
        name: "session".into(),
        host: "host".into(),
        base_path: String::new(),
        live_timer: None,
        trace_format: relay_proto::session::TraceFormat::Ctf1,
        tracefile_size: 0,
        tracefile_count: 0,
    };
    opener.open_session(description).unwrap()
}

fn metadata(length: usize) -> Step {
    Step::Metadata {
        trace: TraceKey(0),
        bytes: Bytes::from(vec![b' '; length]),
    }
}

#[tokio::test]
async fn step_counts_against_the_capacity_until_it_is_dropped() {
    let (opener, mut sessions) = session_channel(CAPACITY);
    let sender = open(&opener);
    let mut steps = sessions.recv().await.unwrap().steps;
    sender.try_send(metadata(800)).unwrap();
    let refused = sender.try_send(metadata(800));
    assert_eq!(
        refused,
        Err(TrySendError::QueueFull(QueueFull(metadata(800))))
    );
    let taken = steps.next_step().await.unwrap();
    assert!(sender.try_send(metadata(800)).is_err());
    drop(taken);
    sender.try_send(metadata(800)).unwrap();
}

#[tokio::test]
async fn blocked_steps_are_queued_in_order() {
    let (opener, mut sessions) = session_channel(CAPACITY);
    let sender = open(&opener);
    let mut steps = sessions.recv().await.unwrap().steps;
    let sending = tokio::spawn(async move {
        for length in [700, 600, 500] {
            sender.send(metadata(length)).await.unwrap();
        }
    });
    for length in [700, 600, 500] {
        assert_eq!(steps.next_step().await.unwrap().step, metadata(length));
    }
    sending.await.unwrap();
    assert!(steps.next_step().await.is_none());
}

#[tokio::test]
async fn sessions_share_the_total_capacity() {
    let (opener, mut sessions) = session_channel(CAPACITY);
    let (one, other) = (open(&opener), open(&opener));
    let mut steps = sessions.recv().await.unwrap().steps;
    one.try_send(metadata(800)).unwrap();
    assert!(other.try_send(metadata(800)).is_err());
    drop(steps.next_step().await);
    other.try_send(metadata(800)).unwrap();
}

#[tokio::test]
async fn step_larger_than_the_capacity_is_queued_alone() {
    let (opener, mut sessions) = session_channel(CAPACITY);
    let sender = open(&opener);
    let mut steps = sessions.recv().await.unwrap().steps;
    sender.send(metadata(5000)).await.unwrap();
    assert!(sender.try_send(metadata(1)).is_err());
    drop(steps.next_step().await);
    sender.try_send(metadata(1)).unwrap();
}

#[tokio::test]
async fn session_that_is_given_up_wakes_blocked_senders_with_an_error() {
    let (opener, mut sessions) = session_channel(CAPACITY);
    let sender = open(&opener);
    let steps = sessions.recv().await.unwrap().steps;
    sender.send(metadata(1000)).await.unwrap();
    let waiting = tokio::spawn(async move {
        let sent = sender.send(metadata(1000)).await;
        (sent, sender.finish().await.end)
    });
    yield_now().await;
    let end = SessionEnd::Failed("no relay".into());
    steps.report_outcome(SessionOutcome {
        end: end.clone(),
        ..SessionOutcome::default()
    });
    assert_eq!(waiting.await.unwrap(), (Err(SessionClosed), end));
}
