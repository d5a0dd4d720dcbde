//! Decodes packets into events.
//!
//! [`StreamDecoder`] finds the events of one stream, [`PacketHead`] says what a packet is, [`Event`]
//! shows its fields to a [`Visitor`], [`Losses`] says what is missing before a packet.
//!
//! One decoder for each stream, which is given its packets in order: it keeps the stream's clock and
//! its counters from one to the next. Packets are whole, and stay with the caller, which lends the same
//! bytes to each call. To find an event is to pass all of it, so that an event that is shown has been
//! checked; its fields are decoded only when a visitor asks for them.
//!
//! A packet that is too large to be held whole is given in parts: [`StreamDecoder::begin_part`].
//!
//! Positions and sizes are in bits from the packet's first, times in cycles of the stream's clock, but
//! for [`Event::time`], which is in nanoseconds.
//!
//! After a [`DecodeError`] the rest of the packet cannot be found: events have no length of their own.
//! The events before it were good, and the next packet may be. Whether to go on is the caller's
//! choice; nothing of the stream's state is in doubt but its clock, which the next packet sets.

mod error;
mod event;
mod fields;
mod losses;
mod packet;
mod run;
mod stream;
mod visit;
mod walk;

pub use error::{DecodeError, FieldError};
pub use event::Event;
pub use fields::Fields;
pub use losses::{Losses, LostEvents};
pub use packet::{Counter, PacketHead};
pub use stream::{PartStep, StreamDecoder};
pub use visit::{NumberFormat, Visitor};
