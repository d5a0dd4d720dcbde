//! LTTng's live protocol between viewers and relays, versions 2.4 to 2.15, as `lttng-relayd`,
//! `babeltrace` and `babeltrace2` speak it: both ends as state machines.
//!
//! A relay replies to a viewer's commands in their order. A reply has no header; its form follows
//! from the command. A viewer attaches to sessions, receives their streams, fetches metadata, and
//! then requests the next index of each stream and the packet that it points at.
//!
//! This crate encodes and decodes messages, and enforces the order of events at each end. It uses
//! no socket, file or clock. `doc/live-protocol.md` describes the protocol byte by byte.
//!
//! ```
//! use viewer_proto::client::Client;
//! use viewer_proto::Minor;
//!
//! let mut client = Client::new(Minor::OURS);
//! let mut bytes = Vec::new();
//! client.send(&client.connect_command(), &mut bytes)?;
//! // The program sends the bytes to the relay, and passes on what it receives, in any pieces.
//! let received: &[u8] = &[];
//! assert_eq!(client.receive(&mut &received[..])?, None);
//! assert!(client.awaits_reply());
//! # Ok::<(), viewer_proto::client::ClientError>(())
//! ```
//!
//! Read in this order: [`command`] (the table of commands), the modules of the messages
//! ([`session`], [`stream`], [`index`], [`packet`], [`metadata`]); then the two ends: [`client`],
//! and [`server`] with the [`relay`] traits that it calls and the errors that close a connection
//! ([`error`]). [`push`] is the second connection, on which the relay sends notifications, and
//! [`beacon_interest`] what a viewer sends there.

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

/// The examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
