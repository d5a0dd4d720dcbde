//! The `tldrs` daemon: local programs send it lines of the Trace Event Format through a Unix
//! socket; it keeps them, one file for each trace, and exports them.
//!
//! `doc/tldrs.md` describes the protocol and the guarantees of the daemon. Read in this order:
//! [`DaemonSettings`], [`Daemon`], `socket` (where it listens) and `client` (the commands and
//! events of one client). A client's bytes pass through `line_reader`, `line_validator` and `line`,
//! then `traces` and `trace`, which store them. `export`, `record` and `files` handle stored
//! traces. [`forward_queue`] hands traces to a forwarder, which takes them to a relay. All limits
//! are in [`limits`].
//!
//! The library and the program `tldrs` are two packages because cargo allows no cycle between
//! packages: the program needs the forwarder of package `consumer`, and the forwarder needs this
//! library.
//!
//! The daemon knows no relay. Of an event it knows only whether it is valid.

mod client;
mod daemon;
pub mod default_paths;
pub mod export;
pub mod files;
pub mod forward_queue;
pub mod limits;
mod line;
mod line_reader;
mod line_validator;
mod name;
mod open;
mod options;
mod peer;
mod poll_timer;
mod read_buffer;
pub mod record;
mod settings;
mod socket;
mod trace;
mod traces;
mod watch;

pub use daemon::{Daemon, StartError, StopReason};
pub use options::DaemonOptions;
pub use settings::{DaemonSettings, Storage, WhenFull};
pub use socket::SocketError;
