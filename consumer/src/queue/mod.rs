//! The queue of each session between frontends and uplink, in order and bounded in bytes
//! (backpressure).
//!
//! A frontend opens a session ([`SessionOpener::open_session`]) and sends what happens in it as
//! [`Step`]s. The uplink takes the steps to a relay. A step counts against the queue's capacity until
//! the relay has acknowledged it: until then the packet is retained here, and can be sent again. When the
//! queue is full, [`SessionSender::send`] waits and [`SessionSender::try_send`] gives the step back: a
//! relay that is slow, or away, slows the producer down and never takes memory.
//!
//! If this process dies, what is in the queue is lost.

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
