//! LTTng-UST under the same load: a session daemon of its own, and a session for each run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::lab::Lab;
use tests::lttng::SessionDaemon;
use tests::peers;

use super::Mode;

/// The tracepoints and the program that emits them.
const SOURCES: [(&str, &str); 2] = [
    ("tracepoints.h", include_str!("tracepoints.h")),
    ("tracepoints.c", include_str!("tracepoints.c")),
];

const SESSION: &str = "bench";

/// The session daemon and the traced program.
pub(super) struct Lttng<'a> {
    lab: &'a Lab,
    daemon: SessionDaemon<'a>,
    program: PathBuf,
}

impl<'a> Lttng<'a> {
    pub(super) fn start(lab: &'a Lab) -> Self {
        let sources = lab.directory("sources");
        for (name, text) in SOURCES {
            fs::write(sources.join(name), text).unwrap();
        }
        Self {
            lab,
            daemon: SessionDaemon::start(lab),
            program: compile(&sources),
        }
    }

    /// The command of the traced program, without its arguments.
    pub(super) fn command(&self) -> Command {
        self.lab.traced_command(&self.program)
    }

    /// Starts a session in which an event is enabled. Its buffers have the size of the rings that
    /// it is compared with.
    pub(super) fn start_session(&self, event: &str, mode: Mode) {
        let output = self.lab.directory("lttng");
        let output = format!("--output={}", output.display());
        let event = format!("bench:{event}");
        let size = format!("--subbuf-size={}", mode.ring_bytes() / Mode::SUB_BUFFERS);
        let count = format!("--num-subbuf={}", Mode::SUB_BUFFERS);
        let (kind, option) = match mode {
            Mode::Discard => (None, "--discard"),
            // The consumer daemon of a snapshot session reads nothing.
            Mode::Overwrite => (Some("--snapshot"), "--overwrite"),
        };
        let mut create = vec!["create", SESSION, &output];
        create.extend(kind);
        let channel = ["enable-channel", "--userspace", "events"];
        let of_session = ["--session", SESSION];
        let event = ["enable-event", "--userspace", "--channel=events", &event];
        for arguments in [
            &create[..],
            &[&channel[..], &of_session, &[&size, &count, option]].concat(),
            &[&event[..], &of_session].concat(),
            &["start", SESSION],
        ] {
            self.daemon.lttng(arguments);
        }
    }

    /// Ends the session. Returns the number of events that were discarded.
    pub(super) fn end_session(&self) -> u64 {
        self.daemon.lttng(&["stop", SESSION]);
        let shown = self.daemon.lttng(&["list", SESSION]);
        let count = |line: &String| {
            let (_, count) = line.split_once("Discarded events:")?;
            count.trim().parse::<u64>().ok()
        };
        let discarded = shown.iter().filter_map(count).sum();
        self.daemon.lttng(&["destroy", SESSION]);
        // The next session begins with an empty directory.
        let _ = fs::remove_dir_all(self.lab.path().join("lttng"));
        discarded
    }
}

/// Compiles the program in the directory of its sources.
fn compile(sources: &Path) -> PathBuf {
    let program = sources.join("tracepoints");
    let status = Command::new(peers::program("cc"))
        .args(["-O2", "-Wall", "-I.", "tracepoints.c", "-o", "tracepoints"])
        .args(["-llttng-ust", "-ldl", "-lpthread"])
        .current_dir(sources)
        .status()
        .unwrap();
    assert!(status.success(), "the tracepoints cannot be compiled");
    program
}
