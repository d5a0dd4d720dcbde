//! Between those who have packets and the uplink: what happens in a session, in order, bounded in
//! bytes.
//!
//! Whoever has something to trace opens a session ([`Outlet::open`]) and says what happens in it,
//! [`Step`] by step. The other end takes the steps to a relay. A step's room is given back when the
//! relay has acknowledged it, and not before: until then the packet is held here, and can be sent
//! again. When there is no room, [`SessionSender::send`] waits and [`SessionSender::try_send`] says
//! so: a relay that is slow, or away, is felt by the producer and never as memory.
//!
//! If this process dies, what is in the queue dies with it.

mod channel;
mod outlet;
mod step;

pub use channel::{
    Full, Gone, Queued, SessionEnd, SessionOutcome, SessionReceiver, SessionSender, Trying,
};
pub use outlet::{OpenedSession, Outlet, Room, outlet};
pub use step::{SessionDescription, Step, StreamKey, TraceKey};
