//! The queue of each session between frontends and uplink, in order and bounded in bytes
//! (backpressure).
//!
//! A frontend opens a session ([`SessionOpener::open_session`]) and sends what happens in it as
//! [`Step`]s. The uplink sends them to a relay. A step counts against the queue's capacity until
//! the relay has acknowledged it: until then the packet is retained here, and can be sent again. When the
//! queue is full, [`SessionSender::send`] waits and [`SessionSender::try_send`] returns the step: a relay
//! that is slow or away makes the producer wait, and does not make the queue grow.
//!
//! If this process dies, the packets in the queue are lost.

mod channel;
mod session_opener;
mod step;
#[cfg(test)]
mod tests;

pub use channel::{
    QueueCapacity, QueueFull, QueuedStep, SessionClosed, SessionEnd, SessionOutcome,
    SessionReceiver, SessionSender, TrySendError,
};
pub use session_opener::{OpenedSession, SessionOpener, session_channel};
pub use step::{SessionDescription, Step, StreamKey, TraceKey};
