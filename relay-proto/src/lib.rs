//! What a producer of traces says to a relay, and what the relay answers: the protocol of LTTng's
//! `lttng-sessiond` and `lttng-consumerd` towards `lttng-relayd`, versions 2.1 to 2.15, both ends.
//!
//! A producer opens two connections. On *control* it sends [`Command`]s and waits for a [`Reply`]
//! to each (but for metadata, which has none); on *data* it sends packets behind a [`DataHeader`]
//! and hears nothing. Packet and index of the same [`SeqNum`](wire::SeqNum) belong together;
//! either may come first.
//!
//! This crate turns bytes into values and back and keeps each end's order of events. It knows no
//! socket, file or clock. `doc/relay-protocol.md` describes the protocol byte by byte.
//!
//! Read in this order: [`command`] (the table of commands), the modules of the messages
//! ([`session`], [`stream`], [`index`], [`metadata`], [`chunk`]), [`reply`], [`data`]; then the
//! two ends: [`producer`], and [`server`] with what it asks of a [`relay`] and what ends it
//! ([`error`]).

pub mod chunk;
pub mod command;
pub mod data;
pub mod error;
pub mod index;
pub mod metadata;
pub mod producer;
pub mod relay;
pub mod reply;
pub mod server;
pub mod session;
pub mod stream;
pub mod version;

pub use command::{Command, CommandCode, ControlHeader};
pub use data::{DataDecoder, DataEvent, DataHeader};
pub use reply::{Reply, ReturnCode};
pub use version::{Minor, Version};
