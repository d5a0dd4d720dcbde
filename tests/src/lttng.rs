//! LTTng on the traced host: a session daemon for one test, and the `lttng` commands to it.

use std::net::SocketAddr;

use crate::lab::Lab;
use crate::process::Process;
use crate::relay::Relay;
use crate::{peers, wait_until};

/// A session daemon of one test.
#[derive(Debug)]
pub struct SessionDaemon<'a> {
    lab: &'a Lab,
    _process: Process,
}

impl<'a> SessionDaemon<'a> {
    /// Starts `lttng-sessiond` without kernel tracing.
    ///
    /// # Panics
    /// If the daemon does not start.
    #[must_use]
    pub fn start(lab: &'a Lab) -> Self {
        let mut process = Process::start(
            lab.traced_command(peers::program("lttng-sessiond"))
                .arg("--no-kernel"),
        );
        let run = lab.path().join(".lttng");
        wait_until("the session daemon listens", || {
            assert!(
                process.is_running(),
                "lttng-sessiond: {:?}",
                process.stderr()
            );
            run.join("client-lttng-sessiond").exists() && run.join("lttng-ust-sock-8").exists()
        });
        Self {
            lab,
            _process: process,
        }
    }

    /// Starts a session daemon and creates a session with a channel `busy` of 4 KiB sub-buffers,
    /// which has all events of the traced application.
    ///
    /// # Panics
    /// If a program fails.
    #[must_use]
    pub fn start_with_session(
        lab: &'a Lab,
        relay: &Relay,
        session: &str,
        live_timer_us: Option<u32>,
    ) -> Self {
        Self::start_with_channel(lab, relay, session, live_timer_us, &["--subbuf-size=4k"])
    }

    /// Starts a session daemon as [`Self::start_with_session`] does, with these options of the
    /// channel.
    ///
    /// # Panics
    /// If a program fails.
    #[must_use]
    pub fn start_with_channel(
        lab: &'a Lab,
        relay: &Relay,
        session: &str,
        live_timer_us: Option<u32>,
        options: &[&str],
    ) -> Self {
        let daemon = Self::start(lab);
        daemon.create_session(session, relay, live_timer_us);
        daemon.enable_channel(session, "busy", options, true);
        daemon
    }

    /// Kills the consumer daemons, which send the traces, as if their host had died.
    ///
    /// # Panics
    /// If no consumer daemon runs.
    pub fn kill_consumers(&self) {
        let home = self.lab.path().display().to_string();
        let mut killed = 0;
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let arguments = std::fs::read_to_string(entry.path().join("cmdline"));
            let is_ours = |a: &String| a.starts_with("lttng-consumerd") && a.contains(&home);
            if arguments.is_ok_and(|arguments| is_ours(&arguments)) {
                let id = entry.file_name().to_str().and_then(|id| id.parse().ok());
                let id = rustix::process::Pid::from_raw(id.unwrap()).unwrap();
                rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
                killed += 1;
            }
        }
        assert!(killed > 0, "no consumer daemon runs");
    }

    /// Runs `lttng` with these arguments and returns the lines of its standard output.
    ///
    /// # Panics
    /// If the command fails.
    pub fn lttng(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = self.lab.traced_command(peers::program("lttng"));
        Process::start(command.arg("--no-sessiond").args(arguments))
            .wait()
            .expect_success()
    }

    /// Creates a session that sends its trace to a relay. The session is live if there is a timer,
    /// in microseconds.
    pub fn create_session(&self, name: &str, relay: &Relay, live_timer_us: Option<u32>) {
        let url = |address: SocketAddr| format!("tcp4://{address}");
        let control = format!("--ctrl-url={}", url(relay.control));
        let data = format!("--data-url={}", url(relay.data));
        let live = live_timer_us.map(|timer| format!("--live={timer}"));
        let mut arguments = vec!["create", name, &control, &data];
        arguments.extend(live.as_deref());
        self.lttng(&arguments);
    }

    /// Enables a channel of the session, with all events of the traced application or with none.
    pub fn enable_channel(&self, session: &str, name: &str, options: &[&str], events: bool) {
        let target = format!("--session={session}");
        let mut arguments = vec!["enable-channel", "--userspace", &target, name];
        arguments.extend(options);
        self.lttng(&arguments);
        let channel = format!("--channel={name}");
        let event = if events { "tracee:*" } else { "nothing:*" };
        self.lttng(&["enable-event", "--userspace", &target, &channel, event]);
    }
}
