//! Many viewers of one session, as tasks of one thread. They speak the live protocol as `test-live`
//! does, and drop the packets that they read.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use viewer_proto::client::{Client, Head, Part};
use viewer_proto::index::{IndexStatus, NextIndex};
use viewer_proto::packet::GetPacket;
use viewer_proto::push::{Notification, PushClient};
use viewer_proto::session::{AttachSession, ListedSession, Seek};
use viewer_proto::stream::StreamRecord;
use viewer_proto::{Command, Minor};
use wire::{StreamId, ViewerId};

/// Intervals at which a viewer without a push connection polls: the first is doubled up to the
/// second while there are no packets.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(10);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of indexes or packets that a viewer with a push connection requests at once, and
/// of bytes of packets.
const MAX_PIPELINED_REQUESTS: u64 = 64;
const MAX_PREFETCH_BYTES: usize = 1 << 20;

/// Bytes that are read from a socket at once.
const READ_BYTES: usize = 64 << 10;

/// How the viewers learn of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discovery {
    /// The viewers poll, and wait for the reply to each request, as viewers of the plain protocol
    /// do.
    Polled,
    /// Over a push connection each. They request many packets at once.
    Pushed,
    /// Not at all: they stay attached and request nothing.
    Idle,
}

/// Viewers that are attached to a session. They leave when the value is dropped.
pub(super) struct ViewerLoad {
    /// Bytes of packets that each viewer has read.
    read: Vec<Arc<AtomicU64>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ViewerLoad {
    /// Attaches `count` viewers to the end of a session's streams. All are attached when this
    /// returns.
    pub(super) fn start(
        live: SocketAddr,
        session: &'static str,
        count: usize,
        discovery: Discovery,
    ) -> Self {
        let read: Vec<_> = (0..count).map(|_| Arc::<AtomicU64>::default()).collect();
        let (stop, is_stopped) = oneshot::channel();
        let (attached, is_attached) = channel();
        let counters = read.clone();
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                for counter in counters {
                    tokio::spawn(view(live, session, discovery, counter, attached.clone()));
                }
                // Else the count below would never end if a viewer failed.
                drop(attached);
                let _ = is_stopped.await;
            });
        });
        assert_eq!(is_attached.into_iter().take(count).count(), count);
        Self {
            read,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Bytes of packets that each viewer has read, in ascending order.
    pub(super) fn bytes_read(&self) -> Vec<u64> {
        let read = self.read.iter();
        // Relaxed, because the figures need not be of one instant.
        let mut read: Vec<_> = read.map(|bytes| bytes.load(Ordering::Relaxed)).collect();
        read.sort_unstable();
        read
    }
}

impl Drop for ViewerLoad {
    fn drop(&mut self) {
        // The runtime ends with that, and with it all viewers.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

async fn view(
    live: SocketAddr,
    session: &str,
    discovery: Discovery,
    read: Arc<AtomicU64>,
    attached: Sender<()>,
) {
    let (mut viewer, id) = Viewer::connect(live, read).await;
    let streams = viewer.attach(session).await;
    match discovery {
        Discovery::Polled => {
            attached.send(()).unwrap();
            viewer.poll(streams).await;
        }
        Discovery::Pushed => {
            let push = Push::connect(live, id).await;
            attached.send(()).unwrap();
            viewer.follow(push).await;
        }
        Discovery::Idle => {
            attached.send(()).unwrap();
            std::future::pending().await
        }
    }
}

/// The command connection of a viewer.
struct Viewer {
    socket: TcpStream,
    client: Client,
    received: BytesMut,
    /// Bytes of packets that have been read.
    read: Arc<AtomicU64>,
}

impl Viewer {
    async fn connect(live: SocketAddr, read: Arc<AtomicU64>) -> (Self, ViewerId) {
        let socket = TcpStream::connect(live).await.unwrap();
        // As `test-live` does: a request must not wait for the acknowledgement of the last.
        socket.set_nodelay(true).unwrap();
        let mut viewer = Self {
            socket,
            client: Client::new(Minor::OURS),
            received: BytesMut::new(),
            read,
        };
        let connect = viewer.client.connect_command();
        let mut id = None;
        viewer
            .request(&[connect], |part| {
                if let Part::Head(Head::Connected { viewer, .. }) = part {
                    id = viewer;
                }
            })
            .await;
        (viewer, id.unwrap())
    }

    /// Attaches to the end of a session's streams. Returns its streams of packets.
    async fn attach(&mut self, name: &str) -> Vec<StreamId> {
        let mut session: Option<ListedSession> = None;
        let commands = [Command::CreateViewerSession, Command::ListSessions];
        self.request(&commands, |part| match part {
            Part::Session(listed) if listed.name.as_bytes() == name.as_bytes() => {
                session = Some(listed);
            }
            _ => {}
        })
        .await;
        let attach = AttachSession {
            session: session.unwrap().session,
            offset: 0,
            seek: Seek::Last.code(),
        };
        let mut streams: Vec<StreamRecord> = Vec::new();
        self.request(&[Command::AttachSession(attach)], |part| {
            if let Part::Stream(stream) = part {
                streams.push(*stream);
            }
        })
        .await;
        // Packets are dropped unread, so that the metadata is not needed.
        streams.retain(|stream| stream.is_metadata == 0);
        streams.into_iter().map(|stream| stream.stream).collect()
    }

    /// Polls all streams until the relay ends the session.
    async fn poll(&mut self, mut streams: Vec<StreamId>) {
        let mut interval = MIN_POLL_INTERVAL;
        while !streams.is_empty() {
            let mut has_read = false;
            let mut at = 0;
            while let Some(stream) = streams.get(at).copied() {
                let index = self.next_indexes(stream, 1).await[0];
                match index.status {
                    IndexStatus::Ready => {
                        self.fetch(stream, &[index]).await;
                        has_read = true;
                    }
                    IndexStatus::HungUp => {
                        streams.swap_remove(at);
                    }
                    _ => at += 1,
                }
            }
            // As `test-live` does: often while there are packets, and seldom else.
            interval = if has_read {
                MIN_POLL_INTERVAL
            } else {
                (2 * interval).min(MAX_POLL_INTERVAL)
            };
            tokio::time::sleep(interval).await;
        }
    }

    /// Reads the packets that the relay notifies of, until it closes the push connection.
    async fn follow(&mut self, mut push: Push) {
        while let Some(notification) = push.receive().await {
            let Notification::Packets(available) = notification else {
                continue;
            };
            let mut unread = available.unread;
            while unread > 0 {
                let times = unread.min(MAX_PIPELINED_REQUESTS);
                unread -= times;
                let mut indexes = self.next_indexes(available.stream, times).await;
                indexes.retain(|index| index.status == IndexStatus::Ready);
                // By the largest, so that what is in flight stays within the limit.
                let largest = indexes.iter().map(length).max().unwrap_or(1);
                let at_once = MAX_PREFETCH_BYTES / (largest as usize).max(1);
                for indexes in indexes.chunks(at_once.max(1)) {
                    self.fetch(available.stream, indexes).await;
                }
            }
        }
    }

    async fn next_indexes(&mut self, stream: StreamId, times: u64) -> Vec<NextIndex> {
        let mut indexes = Vec::new();
        let commands = vec![Command::GetNextIndex(stream); times as usize];
        self.request(&commands, |part| {
            if let Part::Head(Head::Index(index)) = part {
                indexes.push(index);
            }
        })
        .await;
        indexes
    }

    /// Reads packets and drops them.
    async fn fetch(&mut self, stream: StreamId, indexes: &[NextIndex]) {
        let request = |index: &NextIndex| {
            Command::GetPacket(GetPacket {
                stream,
                offset: index.offset,
                len: length(index),
            })
        };
        let commands: Vec<_> = indexes.iter().map(request).collect();
        let read = Arc::clone(&self.read);
        self.request(&commands, |part| {
            if let Part::Bytes(bytes) = part {
                read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        })
        .await;
    }

    /// Sends all commands, then passes the parts of all replies to `handle`.
    async fn request(&mut self, commands: &[Command], mut handle: impl FnMut(Part<'_>)) {
        let mut bytes = Vec::new();
        for command in commands {
            self.client.send(command, &mut bytes).unwrap();
        }
        self.socket.write_all(&bytes).await.unwrap();
        let mut replies = 0;
        loop {
            let mut input = &self.received[..];
            while let Some(part) = self.client.receive(&mut input).unwrap() {
                match part {
                    Part::Done => replies += 1,
                    part => handle(part),
                }
            }
            let left = input.len();
            self.received.advance(self.received.len() - left);
            if replies == commands.len() {
                return;
            }
            self.received.reserve(READ_BYTES);
            let read = self.socket.read_buf(&mut self.received).await.unwrap();
            assert!(read > 0, "the relay has closed the connection");
        }
    }
}

fn length(index: &NextIndex) -> u32 {
    u32::try_from(index.packet.packet_size.0 / 8).unwrap()
}

/// The push connection of a viewer.
struct Push {
    socket: TcpStream,
    client: PushClient,
    received: Vec<Notification>,
}

impl Push {
    async fn connect(live: SocketAddr, viewer: ViewerId) -> Self {
        let mut socket = TcpStream::connect(live).await.unwrap();
        let mut hello = Vec::new();
        PushClient::connect_command(viewer).encode(&mut hello);
        socket.write_all(&hello).await.unwrap();
        Self {
            socket,
            client: PushClient::default(),
            received: Vec::new(),
        }
    }

    /// The next notification; some of those that have arrived together are returned in reverse
    /// order. None: the relay has closed the connection.
    async fn receive(&mut self) -> Option<Notification> {
        loop {
            if let Some(notification) = self.received.pop() {
                return Some(notification);
            }
            let mut buffer = [0; 4096];
            let read = self.socket.read(&mut buffer).await.ok()?;
            let received = self.client.extend(buffer.get(..read).filter(|_| read > 0)?);
            self.received.extend(received.map(Result::unwrap));
        }
    }
}
