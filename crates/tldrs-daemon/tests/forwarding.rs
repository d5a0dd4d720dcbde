//! Forwarding by the tldrs daemon: what the receiver of its traces gets.

#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tldrs_daemon::forward_queue::{ForwardItem, ForwardedTrace, trace_channel};
use tldrs_daemon::{Daemon, DaemonSettings, StopReason, Storage, WhenFull};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const RECEIVE_TIMEOUT: Duration = Duration::from_secs(30);

/// A daemon whose traces are forwarded to the test.
struct TestDaemon {
    directory: TempDir,
    stop: CancellationToken,
    running: JoinHandle<StopReason>,
    traces: Receiver<ForwardedTrace>,
}

impl TestDaemon {
    fn new(when_full: WhenFull) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut settings =
            DaemonSettings::new(directory.path().join("socket"), Storage::Directory(data));
        settings.when_full = when_full;
        let (forward, traces) = trace_channel();
        let daemon = Daemon::start(settings, Some(forward)).unwrap();
        let stop = CancellationToken::new();
        let running = tokio::spawn(daemon.run(stop.clone()));
        Self {
            directory,
            stop,
            running,
            traces,
        }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory.path().join("socket")).unwrap()
    }

    fn stored(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("data/{name}.jsonl"))
    }

    async fn trace(&mut self) -> ForwardedTrace {
        let trace = tokio::time::timeout(RECEIVE_TIMEOUT, self.traces.recv());
        trace.await.unwrap().unwrap()
    }
}

async fn next(trace: &mut ForwardedTrace) -> Option<ForwardItem> {
    let next = tokio::time::timeout(RECEIVE_TIMEOUT, trace.items.recv());
    next.await.unwrap()
}

/// Returns all lines up to something else, or to the end.
async fn lines(trace: &mut ForwardedTrace) -> (String, Option<ForwardItem>) {
    let mut lines = String::new();
    loop {
        match next(trace).await {
            Some(ForwardItem::Lines { text, .. }) => lines += std::str::from_utf8(&text).unwrap(),
            other => return (lines, other),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_is_forwarded_from_its_first_client_to_its_last() {
    let mut daemon = TestDaemon::new(WhenFull::Block);
    let mut one = daemon.connect();
    write!(one, "OPEN a/b\n{{\"a\":nan}}\r\nHELLO\n{{\"b\":1}}\n").unwrap();
    let mut trace = daemon.trace().await;
    assert_eq!((trace.id.as_str(), trace.name.as_str()), ("a/b", "a%2Fb"));
    let Some(ForwardItem::ClientOpened {
        client: 0,
        pid,
        exe,
        ..
    }) = next(&mut trace).await
    else {
        panic!("the first client")
    };
    assert_eq!(pid, std::process::id());
    assert_eq!(PathBuf::from(exe), std::env::current_exe().unwrap());
    let (text, then) = lines(&mut trace).await;
    assert_eq!(text, "{\"a\":\"nan\"}\n{\"b\":1}\n");
    let Some(ForwardItem::Lost {
        client: 0,
        count: 1,
        reason,
    }) = then
    else {
        panic!("{then:?}")
    };
    assert_eq!(reason, "no object at byte 0");

    let mut two = daemon.connect();
    write!(two, "OPEN a/b\n{{\"c\":1}}\n").unwrap();
    let opened = next(&mut trace).await;
    assert!(
        matches!(opened, Some(ForwardItem::ClientOpened { client: 1, .. })),
        "{opened:?}"
    );
    drop(one);
    let (mut text, closed) = lines(&mut trace).await;
    assert!(
        matches!(closed, Some(ForwardItem::ClientClosed { client: 0 })),
        "{closed:?}"
    );
    drop(two);
    let (more, closed) = lines(&mut trace).await;
    text += &more;
    assert_eq!(text, "{\"c\":1}\n");
    assert!(
        matches!(closed, Some(ForwardItem::ClientClosed { client: 1 })),
        "{closed:?}"
    );
    assert!(next(&mut trace).await.is_none(), "the trace has ended");

    writeln!(daemon.connect(), "OPEN a/b").unwrap();
    let mut again = daemon.trace().await;
    let opened = next(&mut again).await;
    assert!(
        matches!(opened, Some(ForwardItem::ClientOpened { .. })),
        "{opened:?}"
    );
    daemon.stop.cancel();
    assert_eq!(daemon.running.await.unwrap(), StopReason::Requested);
}

/// More events than the forward queue has capacity for.
const MANY: usize = 200_000;

fn many() -> String {
    format!("{{\"name\":\"{}\"}}\n", "x".repeat(50)).repeat(MANY)
}

#[tokio::test(flavor = "multi_thread")]
async fn full_forward_queue_blocks_the_client_and_loses_nothing() {
    let mut daemon = TestDaemon::new(WhenFull::Block);
    let (mut client, mut other) = (daemon.connect(), daemon.connect());
    let sending = tokio::task::spawn_blocking(move || {
        write!(client, "OPEN slow\n{}", many()).unwrap();
    });
    let mut trace = daemon.trace().await;
    assert!(matches!(
        next(&mut trace).await,
        Some(ForwardItem::ClientOpened { .. })
    ));
    // Other clients are not blocked.
    write!(other, "OPEN other\n{{}}\n").unwrap();
    let mut quick = daemon.trace().await;
    assert!(matches!(
        next(&mut quick).await,
        Some(ForwardItem::ClientOpened { .. })
    ));
    assert!(matches!(
        next(&mut quick).await,
        Some(ForwardItem::Lines { .. })
    ));
    assert!(!sending.is_finished());
    let (text, closed) = lines(&mut trace).await;
    assert!(text == many());
    assert!(
        matches!(closed, Some(ForwardItem::ClientClosed { .. })),
        "{closed:?}"
    );
    sending.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_events_are_counted_and_reported_before_the_next_event() {
    let mut daemon = TestDaemon::new(WhenFull::DropNewest);
    let mut client = daemon.connect();
    let sending = tokio::task::spawn_blocking(move || {
        write!(client, "OPEN slow\n{}", many()).unwrap();
        client
    });
    // The client is not blocked, although the receiver takes nothing.
    let mut client = sending.await.unwrap();
    let mut trace = daemon.trace().await;
    let stored = daemon.stored("slow");
    let all = u64::try_from(many().len()).unwrap();
    while stored.metadata().unwrap().len() < all {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(matches!(
        next(&mut trace).await,
        Some(ForwardItem::ClientOpened { .. })
    ));
    let mut count = 0;
    let mut taken = 0;
    let mut taking = tokio::spawn(async move {
        loop {
            match next(&mut trace).await {
                Some(ForwardItem::Lines { text, .. }) => {
                    taken += text.iter().filter(|byte| **byte == b'\n').count()
                }
                Some(ForwardItem::Lost { count: lost, .. }) => {
                    count += usize::try_from(lost).unwrap()
                }
                Some(ForwardItem::ClientClosed { .. }) => return (taken, count),
                other => panic!("{other:?}"),
            }
        }
    });
    writeln!(client, "{{\"last\":1}}").unwrap();
    drop(client);
    let (taken, count) = tokio::time::timeout(RECEIVE_TIMEOUT, &mut taking)
        .await
        .unwrap()
        .unwrap();
    assert!(count > 0);
    assert_eq!(taken + count, MANY + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn daemon_stores_events_when_the_forwarder_is_gone() {
    let daemon = TestDaemon::new(WhenFull::Block);
    drop(daemon.traces);
    let mut client = UnixStream::connect(daemon.directory.path().join("socket")).unwrap();
    write!(client, "OPEN t\n{{}}\nDIE\n").unwrap();
    assert_eq!(daemon.running.await.unwrap(), StopReason::ByClient);
    let stored = daemon.directory.path().join("data/t.jsonl");
    assert_eq!(std::fs::read_to_string(stored).unwrap(), "{}\n");
}
