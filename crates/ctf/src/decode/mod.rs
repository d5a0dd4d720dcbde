//! Decodes packets into events.
//!
//! [`StreamDecoder`] finds the events of one stream, [`PacketHead`] says what a packet is,
//! [`Event`] shows its fields to a [`Visitor`], [`Losses`] says what is missing before a packet.
//!
//! Each stream has a decoder of its own, which takes the packets in order and keeps the stream's
//! clock and counters from one packet to the next. The caller owns the packet and lends the same
//! bytes to each call. Finding an event checks it to its end; its fields are decoded only when a
//! visitor asks for them.
//!
//! A packet that is too large for memory can be decoded in parts: [`StreamDecoder::begin_part`].
//!
//! Positions and sizes are in bits from the packet's first, times in cycles of the stream's clock,
//! but for [`Event::time`], which is in nanoseconds.
//!
//! After a [`DecodeError`] the rest of the packet cannot be decoded: events have no length field by
//! which to skip one. The events before the error are valid, and the next packet may be. The caller
//! decides whether to continue; of the stream's state only the clock is uncertain, and the next
//! packet sets it.

mod error;
mod event;
mod fields;
mod found;
mod losses;
mod packet;
mod run;
mod short_header;
mod stream;
mod visit;
mod walk;

pub use error::{DecodeError, FieldError};
pub use event::Event;
pub use fields::Fields;
pub use found::FoundEvents;
pub use losses::{Losses, LostEvents};
pub use packet::{Counter, PacketHead};
pub use stream::{PartStep, StreamDecoder};
pub use visit::{NumberFormat, Visitor};
