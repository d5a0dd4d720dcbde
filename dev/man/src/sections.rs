//! The sections of man pages that `--help` does not have: files, environment, signals and exit
//! status.

/// An entry of a section: its term, and what it means.
pub(crate) type Entry = (&'static str, &'static str);

/// The sections of one program. An empty one is left out.
pub(crate) struct Sections {
    /// Name of the program.
    pub(crate) program: &'static str,
    pub(crate) files: &'static [Entry],
    pub(crate) environment: &'static [Entry],
    pub(crate) signals: &'static [Entry],
    pub(crate) exit_status: &'static [Entry],
    /// Other pages, as SEE ALSO names them.
    pub(crate) see_also: &'static str,
}

const RUST_LOG: Entry = (
    "RUST_LOG",
    "Log levels by module, such as info,relayd::ingest=trace. Overrides -v.",
);

const NO_COLOR: Entry = (
    "NO_COLOR",
    "If not empty, nothing that is written to a terminal has colors.",
);

/// The sections of all programs.
pub(crate) const ALL: [Sections; 4] = [RELAYD, CONSUMER, TEST_LIVE, TLDRS];

const RELAYD: Sections = Sections {
    program: "relayd",
    files: &[
        (
            "/etc/lttng/lttng.conf, $LTTNG_HOME/.lttng/lttng.conf",
            "Configuration files of the system and of the user. Long options are set in the section [relayd], one \
             NAME=VALUE per line.",
        ),
        (
            "$LTTNG_HOME/lttng-traces",
            "Traces, unless --output names another directory.",
        ),
        (
            "/var/run/lttng/relayd (root), $LTTNG_HOME/.lttng/relayd",
            "Port files control.port, data.port and live.port, and the health socket health-PID.",
        ),
        (
            "/dev/log",
            "Socket of the syslog daemon or journald, for the log of a daemon (-d) without --log-file.",
        ),
    ],
    environment: &[
        (
            "LTTNG_HOME",
            "Parent directory of lttng-traces and .lttng. Default: $HOME.",
        ),
        (
            "LTTNG_RUNDIR",
            "Run directory. Default: /var/run/lttng for root, otherwise $LTTNG_HOME/.lttng.",
        ),
        (
            "LTTNG_RELAYD_HEALTH",
            "Path of the health socket. Default: relayd/health-PID in the run directory.",
        ),
        (
            "LTTNG_RELAYD_WORKING_DIRECTORY",
            "Same as --working-directory, which overrides it.",
        ),
        (
            "LTTNG_RELAYD_DISALLOW_CLEAR",
            "1: same as --disallow-clear; 0: no effect.",
        ),
        (
            "LTTNG_NETWORK_SOCKET_TIMEOUT",
            "Timeout in milliseconds of a peer that stops in the middle of a command, packet or reply. 0 or -1: the \
             defaults.",
        ),
        (
            "LTTNG_RELAYD_TCP_KEEP_ALIVE",
            "0: disable TCP keep-alive probes. The variables with the suffixes _IDLE_TIME, _PROBE_INTERVAL, \
             _MAX_PROBE_COUNT and _ABORT_THRESHOLD set their times (in seconds) and number.",
        ),
        (
            "NOTIFY_SOCKET, LISTEN_FDS",
            "Set by a service manager: where it is told that the relay is ready, and the ports that it has bound.",
        ),
        NO_COLOR,
        RUST_LOG,
    ],
    signals: &[
        (
            "SIGTERM, SIGINT",
            "Stop: accept no more connections, write what producers have sent, close all sessions, and exit with \
             status 0.",
        ),
        (
            "SIGHUP",
            "Open the file of --log-file again, and read the certificates of encrypted ports again. The relay goes on, \
             also without either.",
        ),
        (
            "SIGUSR2",
            "Drain: send the producers that can resume their sessions to another relay. The relay goes on, and serves \
             the others and viewers, until it is stopped.",
        ),
        ("SIGUSR1, SIGPIPE, SIGXFSZ", "Ignored."),
    ],
    exit_status: &[
        (
            "0",
            "The relay was stopped by a signal; or it runs in the background (-b, -d) and accepts connections; or \
             check-config found no fault, doctor no problem.",
        ),
        (
            "1",
            "Invalid option, configuration or environment variable; a port is in use; a directory, log file or \
             certificate cannot be used; check-config found a fault or a line that would be ignored; \
             doctor found a problem; or, when it was stopped, not everything was in the archive (--archive).",
        ),
    ],
    see_also: "consumer(1), test-live(1), lttng-relayd(8)",
};

const CONSUMER: Sections = Sections {
    program: "consumer",
    files: &[
        (
            "$XDG_RUNTIME_DIR/consumer.socket, /run/user/UID/consumer.socket, /tmp/consumer-UID.socket",
            "Status socket of the agent, for consumer status.",
        ),
        (
            "$TRACE_RING_DIR, $XDG_RUNTIME_DIR/ring, /run/ring",
            "Run directory of shared-memory rings.",
        ),
        (
            "~/.local/share/tldrs",
            "Traces of the tldrs daemon in the agent (--tldrs).",
        ),
    ],
    environment: &[
        ("TRACE_RING_DIR", "Run directory of shared-memory rings."),
        (
            "XDG_RUNTIME_DIR",
            "Parent directory of the status socket and of the run directory of rings.",
        ),
        (
            "XDG_DATA_HOME",
            "Parent directory of the traces of the tldrs daemon in the agent. Default: ~/.local/share.",
        ),
        NO_COLOR,
        RUST_LOG,
    ],
    signals: &[
        (
            "SIGTERM, SIGINT",
            "Stop: send what is in the queue, end all sessions, and exit. A second one ends the process at once, with \
             status 130.",
        ),
        (
            "SIGHUP",
            "consumer serve: open the file of --log-file again. Other commands end.",
        ),
    ],
    exit_status: &[
        ("0", "The relay has acknowledged everything."),
        (
            "1",
            "Something was not acknowledged, or the command failed; consumer status: no agent runs.",
        ),
        ("2", "The command line or the configuration is invalid."),
        ("130", "A second signal ended the process."),
    ],
    see_also: "relayd(8), test-live(1), tldrs(1)",
};

const TEST_LIVE: Sections = Sections {
    program: "test-live",
    files: &[(
        "~/lttng-traces",
        "Traces of a relay or of LTTng on this host, for example. test-live writes nothing but what options name.",
    )],
    environment: &[
        NO_COLOR,
        ("TZ", "Time zone of the times that are shown and read."),
        RUST_LOG,
    ],
    signals: &[
        (
            "SIGTERM, SIGINT",
            "Stop: show the events whose order is certain, close the output, and exit. A second one ends the process at \
             once, with status 130.",
        ),
        (
            "SIGHUP",
            "test-live top: restore the terminal, and exit. Other commands end.",
        ),
    ],
    exit_status: &[
        ("0", "All events were shown."),
        ("1", "Something could not be read."),
        ("2", "The command line is invalid."),
        ("130", "A second signal ended the process."),
    ],
    see_also: "relayd(8), consumer(1), babeltrace2(1)",
};

const TLDRS: Sections = Sections {
    program: "tldrs",
    files: &[
        (
            "$XDG_DATA_HOME/tldrs, ~/.local/share/tldrs",
            "Traces, one file of JSON lines each.",
        ),
        (
            "$XDG_RUNTIME_DIR/tldrs.socket, /tmp/tldrs.socket",
            "Sockets on which the daemon listens.",
        ),
        (
            "/dev/log",
            "Socket of the syslog daemon or journald, for the log of a daemon (--daemonize) without --log-file.",
        ),
    ],
    environment: &[
        (
            "XDG_DATA_HOME",
            "Parent directory of the traces. Default: ~/.local/share.",
        ),
        ("XDG_RUNTIME_DIR", "Directory of the first socket."),
        (
            "NOTIFY_SOCKET, LISTEN_FDS",
            "Set by a service manager: where it is told that the daemon is ready, and the sockets that it has bound.",
        ),
        (
            "TRACE",
            "1: read by programs with trace-tef-tldrs, which then send their events.",
        ),
        NO_COLOR,
        RUST_LOG,
    ],
    signals: &[
        (
            "SIGTERM, SIGINT",
            "tldrs serve: store the events that clients have sent, make pending exports, and exit with status 0.",
        ),
        (
            "SIGHUP",
            "tldrs serve: open the file of --log-file again. Other commands end.",
        ),
    ],
    exit_status: &[
        ("0", "The command has done its work."),
        (
            "1",
            "The command failed: no such trace, a trace could not be removed, or the daemon cannot start.",
        ),
        ("2", "The command line is invalid."),
    ],
    see_also: "consumer(1), relayd(8), test-live(1)",
};
