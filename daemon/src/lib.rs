//! The parts that all programs of this workspace need around their main loops.
//!
//! The modules are independent of each other: [`background`] (daemonize), [`signals`] (SIGTERM and SIGINT), [`fd_limit`],
//! [`logging`], [`notify`] (readiness, for a service manager or the parent process), [`endpoint`] (addresses to listen
//! on) and [`mod@size`] (numbers of bytes), both as users write them, [`error_text`] (errors for users). None of them knows what the program does, or
//! parses its command line.

pub mod background;
pub mod endpoint;
pub mod error_text;
pub mod fd_limit;
pub mod logging;
pub mod notify;
pub mod signals;
pub mod size;
