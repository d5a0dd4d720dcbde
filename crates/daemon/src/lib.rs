//! The parts that all programs of this workspace need around their main loops.
//!
//! The modules are independent of each other, but for the log file that a signal opens again and
//! the lines of spans: [`background`] (daemonize), [`signals`] (SIGTERM, SIGINT and SIGHUP),
//! [`fd_limit`], [`logging`] with `line_format` and `syslog`, [`notify`] (readiness, for a service
//! manager or the parent process), [`output`] (text for users), [`error_text`] (errors for users),
//! [`named_file`] (which file an error is of),
//! [`memory`] (returned to the system), [`host_clock`] (the clocks of the system), and as users
//! write them [`endpoint`] (addresses to listen on), [`mod@size`] (numbers of bytes), [`duration`]
//! and [`durability`]. [`checkup`] is what `doctor` commands share. [`connection_limit`] keeps
//! peers that do nothing from locking others out. Programs that show events to people share
//! [`event_text`] (the parts of a line), [`open_spans`] (indentation and durations) and
//! [`span_lines`] (spans of `tracing`). With the feature `progress` there is `progress` as well,
//! the bar of a conversion. None of them knows what the program does, or parses its command line.

pub mod background;
pub mod checkup;
pub mod connection_limit;
pub mod durability;
pub mod duration;
pub mod endpoint;
pub mod error_text;
pub mod event_text;
pub mod fd_limit;
pub mod host_clock;
mod line_format;
pub mod logging;
pub mod memory;
pub mod named_file;
pub mod notify;
pub mod open_spans;
pub mod output;
#[cfg(feature = "progress")]
pub mod progress;
pub mod signals;
pub mod size;
pub mod span_lines;
mod syslog;
