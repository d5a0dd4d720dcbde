//! Our agent as it is installed, replaying traces.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::binaries;
use crate::lab::Lab;
use crate::process::Process;
use crate::relay::Relay;
use crate::replay::HOST;

/// `consumer replay` of a directory to a relay, as a session of [`HOST`].
#[must_use]
pub fn replay_command(lab: &Lab, relay: &Relay, session: &str, directory: &Path) -> Command {
    let mut command = lab.command(binaries::consumer());
    command
        .args(["replay", "-v", "--hostname", HOST, "--session", session])
        .arg(format!("--ctrl-url=tcp://{}", relay.control))
        .arg(format!("--data-url=tcp://{}", relay.data))
        .arg(directory);
    command
}

/// A replay that is held before its first packet and before its end.
#[derive(Debug)]
pub struct HeldReplay {
    process: Process,
    stdin: std::process::ChildStdin,
}

impl HeldReplay {
    /// Opens a live session, and waits until the relay has its streams.
    ///
    /// # Panics
    /// If the relay refuses.
    #[must_use]
    pub fn open(mut command: Command) -> Self {
        command
            .args(["--hold", "--live=20000"])
            .stdin(Stdio::piped());
        let mut process = Process::start(&mut command);
        let stdin = process.stdin().unwrap();
        let mut held = Self { process, stdin };
        held.wait_for("its packets will follow");
        held
    }

    /// Sends all packets, and waits until that is done.
    ///
    /// # Panics
    /// If it has ended.
    pub fn send(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
        self.wait_for("all packets are sent");
    }

    /// Ends the session.
    ///
    /// # Panics
    /// If it has ended.
    #[must_use]
    pub fn end(mut self) -> Process {
        self.stdin.write_all(b"\n").unwrap();
        self.process
    }

    fn wait_for(&mut self, what: &str) {
        let says = |line: &str| line.contains(what).then_some(());
        self.process.wait_for_stderr(what, says);
    }
}
