//! Sessions of processes, from the run directory to the queue.

use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use trace_ring_core::format::{
    Mode, RING_CONSUMED_OFFSET, RING_LOST_OFFSET, RING_RELEASED_OFFSET, RING_STATE_ENDED,
    RING_STATE_OFFSET,
};

use super::written::*;
use crate::frontend::ring::{Coverage, RingSettings, run};
use crate::queue::{
    OpenedSession, QueueCapacity, QueuedStep, SessionEnd, SessionOutcome, Step, session_channel,
};

/// The frontend on a run directory, and the sessions that it opens.
struct Frontend {
    directory: tempfile::TempDir,
    sessions: UnboundedReceiver<OpenedSession>,
    stop: CancellationToken,
    running: JoinHandle<anyhow::Result<()>>,
}

impl Frontend {
    fn start(directory: tempfile::TempDir, coverage: Coverage) -> Self {
        let (opener, sessions) = session_channel(QueueCapacity::default());
        let stop = CancellationToken::new();
        let settings = RingSettings {
            directory: directory.path().to_owned(),
            host: "host".into(),
            base_path: String::new(),
            live_timer: Duration::from_millis(5),
            is_live: true,
            packet_bytes: 4096,
            tracefiles: (0, 0),
            is_spooled: false,
            max_events_per_second: None,
            pids: Vec::new(),
        };
        let running = tokio::spawn(run(settings, coverage, opener, stop.clone()));
        Self {
            directory,
            sessions,
            stop,
            running,
        }
    }

    fn new() -> Self {
        Self::start(tempfile::tempdir().unwrap(), Coverage::Drain)
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn next_session(&mut self) -> OpenedSession {
        self.sessions.recv().await.unwrap()
    }

    /// Stops the frontend. Returns the run directory, which is removed when it is dropped.
    async fn stop(self) -> tempfile::TempDir {
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        self.directory
    }
}

/// What a session has shown until its end: the number of its events by their size, and the
/// discarded events.
#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    packets: u64,
    discarded: u64,
    metadata: String,
}

/// Receives the steps of a session until its end, acknowledges them, and completes the session.
async fn complete(mut session: OpenedSession) -> Shown {
    let mut shown = Shown::default();
    while let Some(queued) = session.steps.next_step().await {
        match &queued.step {
            Step::Packet { index, .. } => {
                shown.packets += 1;
                shown.discarded = shown.discarded.max(index.events_discarded);
            }
            Step::Metadata { bytes, .. } => shown.metadata += &String::from_utf8_lossy(bytes),
            _ => {}
        }
        queued.acknowledge();
    }
    session.steps.report_outcome(SessionOutcome {
        acknowledged: shown.packets,
        lost: 0,
        end: SessionEnd::Complete,
    });
    shown
}

async fn wait_until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap();
}

async fn next_packet(session: &mut OpenedSession) -> QueuedStep {
    loop {
        let queued = session.steps.next_step().await.unwrap();
        if matches!(queued.step, Step::Packet { .. }) {
            return queued;
        }
    }
}

#[tokio::test]
async fn directory_of_a_dead_process_is_removed_when_everything_is_delivered() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 77);
    let mut ring = process.ring(0, Mode::Discard);
    ring.write_many(3);
    let session = frontend.next_session().await;
    assert_eq!(session.description.name, "written-77");
    let completing = tokio::spawn(complete(session));
    ring.write_many(2);
    let (path, _) = process.die();
    wait_until(|| !path.exists()).await;
    let shown = completing.await.unwrap();
    assert!(shown.metadata.contains("target:class1"));
    assert!(shown.metadata.contains("vpid = 77"));
    assert!(shown.metadata.contains("procname = \"written\""));
    frontend.stop().await;
}

#[tokio::test]
async fn process_that_was_dead_before_the_start_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let process = WrittenProcess::new(directory.path(), 78);
    process.ring(0, Mode::Discard).write_many(5);
    let (path, _) = process.die();
    let mut frontend = Frontend::start(directory, Coverage::Drain);
    complete(frontend.next_session().await).await;
    wait_until(|| !path.exists()).await;
    frontend.stop().await;
}

#[tokio::test]
async fn process_without_events_has_no_session_and_leaves_nothing() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 79);
    process.ring(0, Mode::Discard);
    let (path, _) = process.die();
    wait_until(|| !path.exists()).await;
    assert!(frontend.sessions.try_recv().is_err());
    frontend.stop().await;
}

#[tokio::test]
async fn events_stay_in_the_ring_until_their_packet_is_delivered() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 80);
    let mut ring = process.ring(0, Mode::Discard);
    ring.write_many(3);
    let mut session = frontend.next_session().await;
    let packet = next_packet(&mut session).await;
    // The next packet shows that the reader had every opportunity to release the first.
    ring.write();
    let next = next_packet(&mut session).await;
    assert_eq!(ring.word(RING_CONSUMED_OFFSET), 0);
    packet.acknowledge();
    wait_until(|| ring.word(RING_CONSUMED_OFFSET) == 3 * RECORD).await;
    next.acknowledge();
    wait_until(|| ring.word(RING_CONSUMED_OFFSET) == 4 * RECORD).await;
    let completing = tokio::spawn(complete(session));
    frontend.stop().await;
    completing.await.unwrap();
}

#[tokio::test]
async fn ring_is_freed_before_the_delivery_rather_than_full() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 81);
    let mut ring = process.ring(0, Mode::Discard);
    ring.write();
    let mut session = frontend.next_session().await;
    let packet = next_packet(&mut session).await;
    ring.write_many(RECORDS * 3);
    wait_until(|| ring.word(RING_CONSUMED_OFFSET) > 0).await;
    packet.acknowledge();
    let completing = tokio::spawn(complete(session));
    frontend.stop().await;
    completing.await.unwrap();
}

#[tokio::test]
async fn losses_after_the_last_event_are_reported() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 82);
    let mut ring = process.ring(0, Mode::Discard);
    ring.write();
    let session = frontend.next_session().await;
    ring.set(RING_LOST_OFFSET, 9);
    process.set_lost_without_ring(4);
    process.die();
    assert_eq!(complete(session).await.discarded, 13);
    frontend.stop().await;
}

#[tokio::test]
async fn losses_without_a_ring_are_not_reported_again_by_the_next_drainer() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 87);
    process.set_lost_without_ring(4);
    let completing = tokio::spawn(complete(frontend.next_session().await));
    let directory = frontend.stop().await;
    assert_eq!(completing.await.unwrap().discarded, 4);
    process.set_lost_without_ring(6);
    process.die();
    let mut frontend = Frontend::start(directory, Coverage::Drain);
    assert_eq!(complete(frontend.next_session().await).await.discarded, 2);
    frontend.stop().await;
}

#[tokio::test]
async fn losses_without_a_ring_that_were_not_delivered_are_reported_by_the_next_drainer() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 88);
    process.set_lost_without_ring(4);
    let session = frontend.next_session().await;
    session.steps.report_outcome(SessionOutcome {
        end: SessionEnd::Failed("no relay".into()),
        ..SessionOutcome::default()
    });
    let directory = frontend.stop().await;
    process.die();
    let mut frontend = Frontend::start(directory, Coverage::Drain);
    assert_eq!(complete(frontend.next_session().await).await.discarded, 4);
    frontend.stop().await;
}

#[tokio::test]
async fn ring_that_cannot_be_read_is_not_removed_while_its_process_lives() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 89);
    let broken = process.ring(1, Mode::Discard);
    broken.file.set_len(0).unwrap();
    process.ring(0, Mode::Discard).write();
    let completing = tokio::spawn(complete(frontend.next_session().await));
    let broken = process.path.join("r1");
    let directory = frontend.stop().await;
    assert!(broken.exists());
    assert_eq!(completing.await.unwrap().discarded, 0);
    // When the process is dead, nobody needs the file.
    process.die();
    let frontend = Frontend::start(directory, Coverage::Drain);
    wait_until(|| !broken.exists()).await;
    frontend.stop().await;
}

#[tokio::test]
async fn ring_of_an_ended_thread_is_released() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 83);
    let mut ring = process.ring(0, Mode::Discard);
    ring.write();
    let completing = tokio::spawn(complete(frontend.next_session().await));
    ring.set(RING_STATE_OFFSET, RING_STATE_ENDED.into());
    wait_until(|| ring.word(RING_RELEASED_OFFSET) == 1).await;
    assert_eq!(ring.word(RING_CONSUMED_OFFSET), RECORD);
    // The next thread's ring has the same stream.
    process.ring(1, Mode::Discard).write();
    frontend.stop().await;
    completing.await.unwrap();
}

#[tokio::test]
async fn session_that_is_lost_leaves_its_events_in_the_rings() {
    let mut frontend = Frontend::new();
    let process = WrittenProcess::new(frontend.path(), 84);
    let mut ring = process.ring(0, Mode::Discard);
    ring.write_many(3);
    let session = frontend.next_session().await;
    let (path, _) = process.die();
    session.steps.report_outcome(SessionOutcome {
        end: SessionEnd::Failed("no relay".into()),
        ..SessionOutcome::default()
    });
    let _run = frontend.stop().await;
    assert!(path.exists());
    assert_eq!(ring.word(RING_CONSUMED_OFFSET), 0);
}

#[tokio::test]
async fn hostile_process_does_not_keep_others_from_being_read() {
    let mut frontend = Frontend::new();
    let hostile = WrittenProcess::new(frontend.path(), 85);
    for number in 0..8 {
        let mut ring = hostile.ring(number, Mode::Discard);
        ring.write_many(10);
        ring.put(0, &[0xff; 4000]);
        ring.set(trace_ring_core::format::RING_COMMIT_OFFSET, u64::MAX - 7);
    }
    std::fs::write(hostile.path.join("meta"), [0xff; 100]).unwrap();
    std::fs::create_dir(frontend.path().join("99-17-00000000")).unwrap();
    let honest = WrittenProcess::new(frontend.path(), 86);
    honest.ring(0, Mode::Discard).write();
    let session = loop {
        let session = frontend.next_session().await;
        if session.description.name == "written-86" {
            break session;
        }
        tokio::spawn(complete(session));
    };
    let completing = tokio::spawn(complete(session));
    let (path, _) = honest.die();
    wait_until(|| !path.exists()).await;
    completing.await.unwrap();
    frontend.stop().await;
}

#[tokio::test]
async fn second_drainer_of_a_run_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = crate::frontend::ring::directory::RunDirectory::open(directory.path()).unwrap();
    assert!(first.try_lock().unwrap());
    let second = crate::frontend::ring::directory::RunDirectory::open(directory.path()).unwrap();
    assert!(!second.try_lock().unwrap());
    first.unlock().unwrap();
    assert!(second.try_lock().unwrap());
}
