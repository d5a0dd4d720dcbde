//! Our viewer as it is installed.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::binaries;
use crate::lab::Lab;
use crate::process::{CompletedProcess, Process};
use crate::relay::Relay;
use crate::viewer::Viewer;

/// Our viewer with these arguments.
#[must_use]
pub fn command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = lab.command(binaries::test_live());
    command.args(arguments);
    command
}

/// Starts it with these arguments.
#[must_use]
pub fn start(lab: &Lab, arguments: &[&str]) -> Process {
    Process::start(&mut command(lab, arguments))
}

/// Runs it with these arguments on a directory.
#[must_use]
pub fn read(lab: &Lab, arguments: &[&str], directory: &Path) -> CompletedProcess {
    Process::start(command(lab, arguments).arg(directory)).wait()
}

/// The address of a session of a host.
#[must_use]
pub fn url(live: SocketAddr, host: &str, session: &str) -> String {
    format!("net://{live}/host/{host}/{session}")
}

/// Begins to show a session of a host with these arguments, and waits for it if it is not there.
#[must_use]
pub fn follow(
    lab: &Lab,
    relay: &Relay,
    (host, session): (&str, &str),
    arguments: &[&str],
) -> Process {
    let url = url(relay.live, host, session);
    let wait = ["--session-not-found", "continue", &url];
    Process::start(command(lab, arguments).args(wait))
}

/// Waits until a session is watched by so many.
pub fn wait_until_attached(relay: &Relay, session: &str, viewers: u32) {
    let mut watcher = Viewer::connect(relay.live);
    watcher.wait_for_listed(session, |listed| listed.viewers == viewers);
}
