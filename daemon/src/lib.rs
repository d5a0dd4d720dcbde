//! The parts around the main loops of all programs of this workspace.
//!
//! Each module stands alone: [`background`] (daemonize), [`signals`] (SIGTERM and SIGINT), [`fd_limit`],
//! [`logging`], [`notify`] (readiness, for a service manager or the parent process) and [`endpoint`]
//! (addresses to listen on, as users write them). None of them knows what the program does, or parses its
//! command line.

pub mod background;
pub mod endpoint;
pub mod fd_limit;
pub mod logging;
pub mod notify;
pub mod signals;
