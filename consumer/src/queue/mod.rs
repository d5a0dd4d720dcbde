//! The queue of each session between frontends and uplink, in order and bounded in bytes
//! (backpressure).
//!
//! A frontend opens a session ([`SessionOpener::open_session`]) and sends what happens in it as
//! [`Step`]s. The uplink sends them to a relay. A step counts against the queue's capacity until
//! the relay has acknowledged it: until then the packet is retained here, and can be sent again.
//! When the queue is full, [`SessionSender::send`] waits: a slow or disconnected relay blocks the
//! producer, and does not make the queue grow. No part of the queue looks into a packet.
//!
//! If this process dies, the packets in the queue are lost, unless the spool (`crate::spool`) has
//! them: it stands between two such queues, that of the frontend and that of the uplink.

mod acknowledgements;
mod activity;
mod channel;
mod delivery;
mod session_opener;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use acknowledgements::Acknowledgements;
pub use activity::Activity;
pub(crate) use activity::SeenActivity;
pub(crate) use channel::{Capacity, Permits, SpoolChannel, SpoolSender, spool_channel};
pub use channel::{
    QueueCapacity, QueuedStep, SessionClosed, SessionEnd, SessionOutcome, SessionReceiver,
    SessionSender,
};
pub use delivery::{Delivery, DeliveryReceipt};
pub use session_opener::{OpenedSession, SessionOpener, session_channel};
pub use step::{SessionDescription, SessionIdentity, Step, StreamKey, TraceKey};
