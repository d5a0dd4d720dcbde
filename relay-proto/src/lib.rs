//! The protocol between producers of traces and relays, versions 2.1 to 2.15, as LTTng's
//! `lttng-sessiond` and `lttng-consumerd` speak it with `lttng-relayd`: both ends as state
//! machines.
//!
//! A producer opens two connections. On the control connection it sends [`Command`]s and receives a
//! [`Reply`] to each (except to metadata, which has none); on the data connection it sends packets
//! with a [`DataHeader`] each, and receives nothing. Packet and index of the same
//! [`SeqNum`](wire::SeqNum) belong together; either may arrive first.
//!
//! This crate encodes and decodes messages, and enforces the order of events at each end. It uses
//! no socket, file or clock. `doc/relay-protocol.md` describes the protocol byte by byte.
//!
//! ```
//! use relay_proto::producer::Producer;
//! use relay_proto::{Command, Version};
//!
//! let mut producer = Producer::default();
//! let mut bytes = Vec::new();
//! producer.send(&Command::Version(Version::OURS), &mut bytes)?;
//! // The program sends the bytes to the relay, and passes on what it receives, in any pieces.
//! let received: &[u8] = &[];
//! assert_eq!(producer.receive(&mut &received[..])?, None);
//! assert_eq!(producer.awaited(), 1);
//! # Ok::<(), relay_proto::producer::ProducerError>(())
//! ```
//!
//! Read in this order: [`command`] (the table of commands), the modules of the messages
//! ([`session`], [`stream`], [`index`], [`metadata`], [`chunk`], and [`resume`], an extension),
//! [`reply`], [`data`]; then the two ends: [`producer`], and [`server`] with the [`relay`] trait
//! that it calls and the errors that close a connection ([`error`]).

pub mod chunk;
pub mod command;
pub mod data;
pub mod error;
pub mod index;
pub mod metadata;
pub mod producer;
pub mod relay;
pub mod reply;
pub mod resume;
pub mod server;
pub mod session;
pub mod stream;
pub mod version;

pub use command::{Command, CommandCode, ControlHeader};
pub use data::{DataDecoder, DataEvent, DataHeader, WholePacket};
pub use reply::{Reply, ReturnCode};
pub use version::{Minor, Version};

/// The examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
