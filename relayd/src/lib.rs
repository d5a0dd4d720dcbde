//! The relay daemon: takes trace streams from producers, writes CTF traces and their indexes, and
//! serves viewers while the recording runs. A drop-in for `lttng-relayd`.
//!
//! The path of a packet leads through one module after the other: [`net`] (sockets) → [`producer`]
//! (connections of producers) → [`ingest`] (sequence) → [`store`] (files) → [`publish`] (what
//! viewers may see) → [`live`] (what a viewer gets). [`registry`] has the sessions and streams.
//! [`archiver`] copies what is published to an archive, [`fleet`] shows viewers what is in it.
//! [`http`] answers the status endpoint.
//!
//! The modules are layers: `store -> publish -> ingest -> registry -> producer -> fleet -> live ->
//! net`. Each uses those to its left and none to its right. Read them in this order, after
//! `ARCHITECTURE.md`.

pub mod archive_commands;
pub mod archiver;
pub mod certs;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod drain;
pub mod fleet;
pub mod health;
pub mod http;
pub mod ingest;
pub mod limits;
pub mod live;
pub mod net;
pub mod producer;
pub mod publish;
pub mod registry;
pub mod running_relay;
pub mod service;
pub mod stopped_service;
pub mod store;
