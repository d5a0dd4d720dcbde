//! The bounded queue from each trace to the task that forwards it to a relay.
//!
//! Without forwarding there are no queues. A queue is bounded in bytes: a text counts against the
//! capacity until it is dropped.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use wire::Timestamp;

use crate::limits::{
    FORWARD_CAPACITY_BYTES, FORWARD_QUEUE_CAPACITY, FORWARD_TRACE_CAPACITY, READ_BYTES,
};
use crate::settings::WhenFull;

/// Something that happened in a trace.
#[derive(Debug)]
pub enum ForwardItem {
    /// A client has opened the trace.
    ClientOpened {
        /// The connection within the trace, counted from 0.
        client: u32,
        /// The client's process; 0 if the process is in another PID namespace.
        pid: u32,
        /// The user that the process runs as.
        uid: u32,
        /// The path of its program; empty if that is not known.
        exe: String,
    },
    /// Events of one client.
    Lines {
        /// The client that sent them.
        client: u32,
        /// When they were read from its socket.
        at: Timestamp,
        /// Complete lines as they are stored: checked, repaired, each with its line feed, all
        /// UTF-8.
        text: Bytes,
    },
    /// Events that are missing in the queue: refused, or dropped because the queue was full.
    Lost {
        /// The client that sent them.
        client: u32,
        /// Number of events that are missing.
        count: u64,
        /// Why they are missing, for the reader of the trace.
        reason: Cow<'static, str>,
    },
    /// A client that had opened the trace has disconnected.
    ClientClosed {
        /// The connection within the trace.
        client: u32,
    },
}

/// A trace that its first client has opened. It ends when its last client disconnects.
#[derive(Debug)]
pub struct ForwardedTrace {
    /// The trace's id, as the client gave it.
    pub id: String,
    /// The name of the trace's file, without its ending.
    pub name: String,
    /// The receiving end of the trace's queue.
    pub items: mpsc::Receiver<ForwardItem>,
}

/// Sends opened traces to the task that forwards them.
pub type TraceSender = mpsc::Sender<ForwardedTrace>;

/// Makes the channel of opened traces.
#[must_use]
pub fn trace_channel() -> (TraceSender, mpsc::Receiver<ForwardedTrace>) {
    mpsc::channel(FORWARD_TRACE_CAPACITY)
}

/// The sending end of one trace's queue.
#[derive(Debug, Clone)]
pub(crate) struct TraceForwarder {
    items: mpsc::Sender<ForwardItem>,
    /// A permit for each byte of text.
    byte_permits: Arc<Semaphore>,
}

/// The queue is full, or its receiver is gone.
#[derive(Debug)]
pub(crate) struct NotForwarded;

/// A text with the permits for its bytes.
struct PermittedText {
    text: Vec<u8>,
    _permits: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for PermittedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Makes the queue of a trace: the sending end, and the trace with the receiving end.
pub(crate) fn trace_forwarder(id: String, name: String) -> (TraceForwarder, ForwardedTrace) {
    let (sender, items) = mpsc::channel(FORWARD_QUEUE_CAPACITY);
    let forwarder = TraceForwarder {
        items: sender,
        byte_permits: Arc::new(Semaphore::new(FORWARD_CAPACITY_BYTES)),
    };
    (forwarder, ForwardedTrace { id, name, items })
}

impl TraceForwarder {
    /// Waits until the queue is likely to have capacity for the bytes of one read.
    pub(crate) async fn wait_for_capacity(&self) {
        // The semaphore is never closed. The permits are released at once: this wait only delays
        // the next read.
        let _ = self
            .byte_permits
            .acquire_many(permit_count(READ_BYTES))
            .await;
    }

    /// Queues lines; when the queue is full, waits or fails as the policy says.
    pub(crate) async fn send_lines(
        &self,
        client: u32,
        text: &[u8],
        when_full: WhenFull,
    ) -> Result<(), NotForwarded> {
        // The time of arrival, before any wait for capacity.
        let at = monotonic_now();
        let (permits, count) = (Arc::clone(&self.byte_permits), permit_count(text.len()));
        let permits = match when_full {
            WhenFull::Block => permits.acquire_many_owned(count).await.ok(),
            // Leaves a quarter of the queue to the items of clients that connect and disconnect.
            WhenFull::DropNewest if self.items.capacity() <= FORWARD_QUEUE_CAPACITY / 4 => None,
            WhenFull::DropNewest => permits.try_acquire_many_owned(count).ok(),
        };
        let _permits = permits.ok_or(NotForwarded)?;
        let text = text.to_vec();
        let text = Bytes::from_owner(PermittedText { text, _permits });
        self.send_item(ForwardItem::Lines { client, at, text }, when_full)
            .await
    }

    /// Queues an item other than lines; when the queue is full, waits or fails as the policy says.
    pub(crate) async fn send_item(
        &self,
        item: ForwardItem,
        when_full: WhenFull,
    ) -> Result<(), NotForwarded> {
        match when_full {
            WhenFull::Block => self.items.send(item).await.ok(),
            WhenFull::DropNewest => self.items.try_send(item).ok(),
        }
        .ok_or(NotForwarded)
    }

    /// Whether the receiver is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.items.is_closed()
    }
}

/// Returns the number of permits for a text. A line may be longer than the capacity; then it takes
/// all permits.
fn permit_count(bytes: usize) -> u32 {
    u32::try_from(bytes.min(FORWARD_CAPACITY_BYTES)).unwrap_or(u32::MAX)
}

/// Reads the monotonic clock, which is the clock of forwarded traces, in nanoseconds.
fn monotonic_now() -> Timestamp {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp(seconds * 1_000_000_000 + nanoseconds)
}
