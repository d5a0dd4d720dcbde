//! `test-live`, the viewer of this project, as a process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::binaries;
use crate::lab::Lab;
use crate::process::{CompletedProcess, Process};
use crate::relay::Relay;
use crate::viewer::Viewer;

/// Returns the command `test-live` with these arguments.
#[must_use]
pub fn command(lab: &Lab, arguments: &[&str]) -> Command {
    let mut command = lab.command(binaries::test_live());
    command.args(arguments);
    command
}

/// Starts `test-live` with these arguments.
#[must_use]
pub fn start(lab: &Lab, arguments: &[&str]) -> Process {
    Process::start(&mut command(lab, arguments))
}

/// Runs `test-live` with these arguments on a directory until it exits.
#[must_use]
pub fn read(lab: &Lab, arguments: &[&str], directory: &Path) -> CompletedProcess {
    Process::start(command(lab, arguments).arg(directory)).wait()
}

/// Returns the URL of a live session of a host.
#[must_use]
pub fn url(live: SocketAddr, host: &str, session: &str) -> String {
    format!("net://{live}/host/{host}/{session}")
}

/// Starts to show a live session of a host. The viewer waits for the session if it does not exist
/// yet.
#[must_use]
pub fn follow(lab: &Lab, relay: &Relay, host: &str, session: &str, arguments: &[&str]) -> Process {
    let url = url(relay.live, host, session);
    let wait = ["--session-not-found", "continue", &url];
    Process::start(command(lab, arguments).args(wait))
}

/// Waits until a session has this number of viewers.
pub fn wait_until_attached(relay: &Relay, session: &str, viewers: u32) {
    Viewer::connect(relay.live).wait_for_listed(session, |listed| listed.viewers == viewers);
}
