//! Real agents, each with a spool and numbered events.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use tests::lab::Lab;
use tests::process::Process;

use super::RECOVERY_TIMEOUT;
use crate::agent::{self, TRACE, event};

/// Time between two times that events are sent, and their number.
const INTERVAL: Duration = Duration::from_millis(250);
const EVENTS: u64 = 10;

/// Agents, and a client of all of them.
pub(super) struct Agents {
    agents: Vec<(Lab, Process)>,
    is_stopping: Arc<AtomicBool>,
    client: JoinHandle<u64>,
}

/// The name of an agent's host.
pub(super) fn host(agent: usize) -> String {
    format!("agent-{agent:02}")
}

impl Agents {
    pub(super) fn start(relays: &[String], count: usize, parent: &Path) -> Self {
        let agents = (0..count).map(|number| {
            let lab = Lab::new_in(parent);
            let config = lab.path().join("consumer.toml");
            let seconds = RECOVERY_TIMEOUT.as_secs();
            fs::write(&config, format!("[agent]\nstop-within-s = {seconds}\n")).unwrap();
            let list = super::list_from(relays, number % relays.len());
            let mut command = agent::command(&lab, &list, &host(number));
            command.arg("--config").arg(config);
            let mut process = Process::start(&mut command);
            process.wait_for_stderr_text("consumer::agent: ready");
            (lab, process)
        });
        let agents: Vec<_> = agents.collect();
        let streams = agents.iter().map(|(lab, _)| {
            let mut stream = UnixStream::connect(agent::socket(lab)).unwrap();
            writeln!(stream, "OPEN {TRACE}").unwrap();
            stream
        });
        let mut streams: Vec<_> = streams.collect();
        let is_stopping = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&is_stopping);
        let client = std::thread::spawn(move || {
            let mut sent = 0;
            while !is_over.load(Ordering::Relaxed) {
                let lines: String = (sent..sent + EVENTS).map(event).collect();
                for stream in &mut streams {
                    stream.write_all(lines.as_bytes()).unwrap();
                }
                sent += EVENTS;
                std::thread::sleep(INTERVAL);
            }
            sent
        });
        Self {
            agents,
            is_stopping,
            client,
        }
    }

    /// Ends all agents, which send everything before. Returns the number of events that each was
    /// sent.
    pub(super) fn stop(self) -> u64 {
        self.is_stopping.store(true, Ordering::Relaxed);
        let sent = self.client.join().unwrap();
        for (_, process) in &self.agents {
            process.signal(Signal::TERM);
        }
        for (_lab, process) in self.agents {
            let _ = process.wait_within(RECOVERY_TIMEOUT).expect_success();
        }
        sent
    }
}
