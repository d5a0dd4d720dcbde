//! The relay daemon: takes trace streams from producers, writes CTF traces and their indexes, and
//! serves viewers while the recording runs. A drop-in for `lttng-relayd`.
//!
//! A packet's way through, one module after the other: [`net`] (sockets) → [`ingest`] (sequence) →
//! [`store`] (files) → [`registry`] (who may see it) → [`live`] (what a viewer gets). What producers
//! say beside the packets goes through [`producer`]; who keeps watch over the relay asks [`http`]. Read them in this order, after `ARCHITECTURE.md`.

pub mod cli;
pub mod config;
pub mod health;
pub mod http;
pub mod ingest;
pub mod limits;
pub mod live;
pub mod net;
pub mod producer;
pub mod publish;
pub mod registry;
pub mod service;
pub mod store;
