//! How a viewer follows recordings that a relay is still receiving: LTTng's live protocol as
//! `lttng-relayd`, `babeltrace` and `babeltrace2` speak it, versions 2.4 to 2.15, both ends.
//!
//! A viewer asks, the relay answers, in the order of the commands; a reply has no header and its form
//! follows from the command. A viewer attaches to sessions, learns their streams, fetches metadata,
//! and then asks each stream for its next index and the packet that this points at.
//!
//! This crate turns bytes into values and back and keeps each end's order of events. It knows no
//! socket, file or clock. `doc/live-protocol.md` describes the protocol byte by byte.
//!
//! Read in this order: [`command`] (the table of commands), the modules of the messages
//! ([`session`], [`stream`], [`index`], [`packet`], [`metadata`]); then the two ends: [`client`],
//! and [`server`] with what it asks of a [`relay`] and what ends it
//! ([`error`]). [`push`] is about the second connection, on which the relay says that there is more,
//! and [`beacon_interest`] about the little that a viewer says there.

pub mod beacon_interest;
pub mod client;
pub mod command;
mod cursor;
pub mod error;
pub mod index;
pub mod metadata;
pub mod packet;
pub mod push;
pub mod relay;
pub mod server;
pub mod session;
pub mod stream;
pub mod version;

pub use command::{Command, CommandCode};
pub use version::Minor;
