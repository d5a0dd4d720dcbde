//! Babeltrace 1 and 2 as processes: readers of directories and of live sessions.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::peers;
use crate::process::{CompletedProcess, Process};
use crate::relay::Relay;
use crate::viewer::hostname;

/// A version of Babeltrace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Babeltrace {
    /// The program `babeltrace`, version 1.5.
    One,
    /// The program `babeltrace2`, version 2.0.
    Two,
}

impl Babeltrace {
    fn command(self) -> Command {
        let program = match self {
            Self::One => "babeltrace",
            Self::Two => "babeltrace2",
        };
        let mut command = Command::new(peers::program(program));
        command.env("TZ", "UTC");
        command
    }

    /// Prints a directory, one line for each event, without the time since the event before.
    #[must_use]
    pub fn read(self, directory: &Path) -> CompletedProcess {
        self.read_with(&["--no-delta"], directory)
    }

    /// Prints a directory with these options.
    #[must_use]
    pub fn read_with(self, options: &[&str], directory: &Path) -> CompletedProcess {
        Process::start(self.command().args(options).arg(directory)).wait()
    }

    /// Starts to print a live session.
    #[must_use]
    pub fn follow(self, relay: &Relay, session: &str) -> Process {
        self.follow_at(relay.live, session)
    }

    /// Starts to print a live session of the relay with this address.
    #[must_use]
    pub fn follow_at(self, live: SocketAddr, session: &str) -> Process {
        Process::start(&mut self.command_at(live, session))
    }

    /// Returns the command of [`Self::follow`].
    #[must_use]
    pub fn follow_command(self, relay: &Relay, session: &str) -> Command {
        self.command_at(relay.live, session)
    }

    /// Starts to print a live session of a host.
    #[must_use]
    pub fn follow_host_at(self, live: SocketAddr, host: &str, session: &str) -> Process {
        Process::start(&mut self.command_of(live, host, session))
    }

    fn command_at(self, live: SocketAddr, session: &str) -> Command {
        self.command_of(live, &hostname(), session)
    }

    fn command_of(self, live: SocketAddr, host: &str, session: &str) -> Command {
        let url = format!("net://{live}/host/{host}/{session}");
        let mut command = self.command();
        command.args(["--no-delta", "-i", "lttng-live", &url]);
        command
    }

    /// Returns the lines that list the sessions of a relay.
    #[must_use]
    pub fn list(self, relay: &Relay) -> Vec<String> {
        let url = format!("net://{}", relay.live);
        Process::start(self.command().args(["-i", "lttng-live", &url]))
            .wait()
            .expect_success()
    }
}

/// Returns the value of the event field `number` in each printed line, in order.
///
/// # Panics
/// If a line has no such field.
#[must_use]
pub fn numbers(lines: &[String]) -> Vec<usize> {
    let number = |line: &String| {
        let (_, rest) = line.split_once("number = ")?;
        rest.split([',', ' ']).next()?.parse().ok()
    };
    lines
        .iter()
        .map(|line| number(line).unwrap_or_else(|| panic!("no number: {line}")))
        .collect()
}
