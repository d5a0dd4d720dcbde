//! Sessions that are opened, and steps that are queued within the capacity.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use relay_proto::session::TraceFormat;
use tokio::task::{unconstrained, yield_now};
use wire::PacketIndex;

use super::*;

const CAPACITY: QueueCapacity = QueueCapacity {
    session_bytes: 1000,
    all_bytes: 1500,
};

impl SessionDescription {
    /// Describes a session of this name that is not live.
    pub(crate) fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            host: "host".into(),
            base_path: String::new(),
            live_timer: None,
            trace_format: TraceFormat::Ctf1,
            tracefile_size: 0,
            tracefile_count: 0,
        }
    }
}

impl SessionSender {
    /// Queues a step if the capacity allows it now.
    pub(crate) fn try_send(&self, step: Step) -> Poll<Result<(), SessionClosed>> {
        // The runtime would make a task wait that sends many steps without yielding.
        let send = pin!(unconstrained(self.send(step)));
        send.poll(&mut Context::from_waker(Waker::noop()))
    }
}

fn open(opener: &SessionOpener) -> SessionSender {
    let description = SessionDescription::named("session");
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
    assert_eq!(sender.try_send(metadata(800)), Poll::Ready(Ok(())));
    assert_eq!(sender.try_send(metadata(800)), Poll::Pending);
    let taken = steps.next_step().await.unwrap();
    assert_eq!(sender.try_send(metadata(800)), Poll::Pending);
    drop(taken);
    assert_eq!(sender.try_send(metadata(800)), Poll::Ready(Ok(())));
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
    assert_eq!(one.try_send(metadata(800)), Poll::Ready(Ok(())));
    assert_eq!(other.try_send(metadata(800)), Poll::Pending);
    drop(steps.next_step().await);
    assert_eq!(other.try_send(metadata(800)), Poll::Ready(Ok(())));
}

#[tokio::test]
async fn step_larger_than_the_capacity_is_queued_alone() {
    let (opener, mut sessions) = session_channel(CAPACITY);
    let sender = open(&opener);
    let mut steps = sessions.recv().await.unwrap().steps;
    sender.send(metadata(5000)).await.unwrap();
    assert_eq!(sender.try_send(metadata(1)), Poll::Pending);
    drop(steps.next_step().await);
    assert_eq!(sender.try_send(metadata(1)), Poll::Ready(Ok(())));
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

#[tokio::test]
async fn packets_of_each_stream_are_numbered_from_zero() {
    let (opener, mut sessions) = session_channel(QueueCapacity::default());
    let sender = open(&opener);
    for stream in [0, 1, 0, 0, 1] {
        let step = Step::Packet {
            stream: StreamKey(stream),
            bytes: Bytes::from_static(b"packet"),
            index: PacketIndex::default(),
        };
        sender.send(step).await.unwrap();
    }
    let mut steps = sessions.recv().await.unwrap().steps;
    let mut numbers = Vec::new();
    while let Some(queued) = steps.try_next_step() {
        numbers.push(queued.seq);
    }
    assert_eq!(numbers, [0, 0, 1, 2, 1]);
}

#[tokio::test]
async fn sessions_of_one_process_have_one_producer_and_different_ids() {
    let (opener, mut sessions) = session_channel(QueueCapacity::default());
    let _senders = [open(&opener), open(&opener.clone())];
    let one = sessions.recv().await.unwrap().identity;
    let other = sessions.recv().await.unwrap().identity;
    assert_eq!((one.producer, one.id), (other.producer, 0));
    assert_eq!((other.id, other.is_recovered), (1, false));
}
