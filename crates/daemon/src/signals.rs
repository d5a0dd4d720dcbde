//! The signals of a daemon: SIGTERM and SIGINT stop it, SIGHUP has it open its log file again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::logging::Log;

/// The exit status after a second signal: that of a program which SIGINT has killed, as shells
/// report it.
const INTERRUPTED: i32 = 130;

/// SIGTERM and SIGINT, caught. They do not end the process any more, not even after this value is
/// dropped.
#[derive(Debug)]
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Catches the signals from now on. To be called on a tokio runtime.
    ///
    /// # Errors
    /// If the system refuses to have them caught.
    pub fn catch() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next of the signals.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Calls `stop` at the first signal, and ends the process at once at the second, with status
    /// 130: for programs that may take long to stop.
    pub async fn stop_or_exit(mut self, stop: impl FnOnce()) {
        self.wait().await;
        stop();
        self.wait().await;
        std::process::exit(INTERRUPTED);
    }
}

/// Catches SIGHUP from now on, and opens the log file again at each. The signal does not end the
/// process any more. To be called on a tokio runtime.
///
/// # Errors
/// If the system refuses to have the signal caught.
pub fn reopen_log_on_hangup(log: Log) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let log = log.clone();
            // A thread that may block: the tasks of the program go on.
            let _ = tokio::task::spawn_blocking(move || log.reopen()).await;
        }
    });
    Ok(())
}
