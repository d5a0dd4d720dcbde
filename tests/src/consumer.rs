//! `consumer replay` as a process.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::binaries;
use crate::lab::Lab;
use crate::process::Process;
use crate::relay::Relay;
use crate::replay::HOST;

/// Returns the command that replays the traces of a directory to a relay, as a session of [`HOST`].
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

/// A live replay that is paused before its first packet and before its end (`--hold`), until the
/// test continues it.
#[derive(Debug)]
pub struct HeldReplay {
    process: Process,
    stdin: std::process::ChildStdin,
}

impl HeldReplay {
    /// Starts the command and waits until the relay has the session and its streams.
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
        process.wait_for_stderr_text("waiting for Enter before the first packet");
        // The replay asks while it still connects.
        process.wait_for_stderr_text("connected session=");
        Self { process, stdin }
    }

    /// Continues: the replay sends its packets.
    ///
    /// # Panics
    /// If the replay has exited.
    pub fn start_sending(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }

    /// Continues, and waits until all packets are sent.
    ///
    /// # Panics
    /// If the replay has exited.
    pub fn send_packets(&mut self) {
        self.start_sending();
        self.process
            .wait_for_stderr_text("waiting for Enter before the end of the session");
    }

    /// Kills the replay by SIGKILL.
    pub fn kill(self) {
        self.process.signal(Signal::KILL);
    }

    /// Continues, which closes the session.
    ///
    /// # Panics
    /// If the replay has exited.
    #[must_use]
    pub fn close_session(mut self) -> Process {
        self.stdin.write_all(b"\n").unwrap();
        self.process
    }
}
