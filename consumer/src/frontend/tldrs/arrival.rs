//! What is passed on to whoever forwards traces to a relay.
//!
//! Nothing of this exists unless somebody forwards. What waits is bounded in bytes: the room that a
//! text takes is given back when the text is dropped.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use wire::Timestamp;

use super::WhenFull;
use super::limits::{
    FORWARD_CAPACITY_BYTES, FORWARD_QUEUE_CAPACITY, FORWARD_TRACE_CAPACITY, READ_BYTES,
};
use crate::packetize::HostClock;

/// Something that happened in a trace.
#[derive(Debug)]
pub enum Arrival {
    /// A client has opened the trace.
    ClientOpened {
        /// The connection within the trace, counted from 0.
        client: u32,
        /// Its process; 0 if that is out of sight.
        pid: u32,
        /// Whom it runs as.
        uid: u32,
        /// The path of its program; empty if that cannot be told.
        exe: String,
    },
    /// Events.
    Lines {
        /// Whose.
        client: u32,
        /// When they were read.
        at: Timestamp,
        /// Complete lines as they are stored: checked, repaired, each with its line feed, all UTF-8.
        text: Bytes,
    },
    /// Events that are not here.
    Lost {
        /// Whose.
        client: u32,
        /// How many.
        count: u64,
        /// Why.
        reason: Cow<'static, str>,
    },
    /// A client that had opened the trace has gone.
    ClientClosed {
        /// Which.
        client: u32,
    },
}

/// A trace that a client has opened and nobody had open. It ends when its last client has gone.
#[derive(Debug)]
pub struct ForwardedTrace {
    /// As the client said it.
    pub id: String,
    /// As its file is called.
    pub name: String,
    /// What happens in it, in order.
    pub arrivals: mpsc::Receiver<Arrival>,
}

/// To whoever forwards traces.
pub type Forward = mpsc::Sender<ForwardedTrace>;

/// Both ends of the way to whoever forwards traces.
#[must_use]
pub fn forwarding() -> (Forward, mpsc::Receiver<ForwardedTrace>) {
    mpsc::channel(FORWARD_TRACE_CAPACITY)
}

/// The way from one trace to its forwarder.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    arrivals: mpsc::Sender<Arrival>,
    /// Of bytes.
    room: Arc<Semaphore>,
}

/// There is no room, or nobody there.
#[derive(Debug)]
pub(super) struct NotTaken;

/// Text, and the room that it takes.
struct Held {
    text: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// A trace to be forwarded, and the way to it.
pub(super) fn outlet(id: String, name: String) -> (Outlet, ForwardedTrace) {
    let (sender, arrivals) = mpsc::channel(FORWARD_QUEUE_CAPACITY);
    let outlet = Outlet {
        arrivals: sender,
        room: Arc::new(Semaphore::new(FORWARD_CAPACITY_BYTES)),
    };
    (outlet, ForwardedTrace { id, name, arrivals })
}

impl Outlet {
    /// Waits until what is read at once is likely to find room.
    pub(super) async fn wait_for_room(&self) {
        // Nobody closes it; and without room there is no harm in going on.
        let _ = self.room.acquire_many(permits(READ_BYTES)).await;
    }

    /// Sends the lines, as the policy is.
    pub(super) async fn lines(
        &self,
        client: u32,
        text: &[u8],
        when_full: WhenFull,
    ) -> Result<(), NotTaken> {
        match when_full {
            WhenFull::Block => self.send_lines(client, text).await,
            WhenFull::DropNewest => self.try_lines(client, text),
        }
    }

    async fn send_lines(&self, client: u32, text: &[u8]) -> Result<(), NotTaken> {
        let at = HostClock::now();
        let room = Arc::clone(&self.room).acquire_many_owned(permits(text.len()));
        let room = room.await.map_err(|_| NotTaken)?;
        self.send(held(client, at, text, room)).await
    }

    /// Leaves some room for those who come and go.
    fn try_lines(&self, client: u32, text: &[u8]) -> Result<(), NotTaken> {
        if self.arrivals.capacity() <= FORWARD_QUEUE_CAPACITY / 4 {
            return Err(NotTaken);
        }
        let room = Arc::clone(&self.room).try_acquire_many_owned(permits(text.len()));
        let at = HostClock::now();
        self.try_send(held(client, at, text, room.map_err(|_| NotTaken)?))
    }

    /// Sends it as soon as there is room, or if there is room, as the policy is.
    pub(super) async fn tell(&self, arrival: Arrival, when_full: WhenFull) -> Result<(), NotTaken> {
        match when_full {
            WhenFull::Block => self.send(arrival).await,
            WhenFull::DropNewest => self.try_send(arrival),
        }
    }

    /// Whether nobody takes anything any more.
    pub(super) fn is_gone(&self) -> bool {
        self.arrivals.is_closed()
    }

    async fn send(&self, arrival: Arrival) -> Result<(), NotTaken> {
        self.arrivals.send(arrival).await.map_err(|_| NotTaken)
    }

    fn try_send(&self, arrival: Arrival) -> Result<(), NotTaken> {
        self.arrivals.try_send(arrival).map_err(|_| NotTaken)
    }
}

fn held(client: u32, at: Timestamp, text: &[u8], room: OwnedSemaphorePermit) -> Arrival {
    let text = text.to_vec();
    let text = Bytes::from_owner(Held { text, _room: room });
    Arrival::Lines { client, at, text }
}

/// A line may be longer than all the room: then it takes all of it.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.min(FORWARD_CAPACITY_BYTES)).unwrap_or(u32::MAX)
}
