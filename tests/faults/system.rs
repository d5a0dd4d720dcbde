//! The system under test: a relay, a consumer with clients, and a viewer of each trace. Every
//! program may be killed and started again.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tests::babeltrace::Babeltrace;
use tests::disk::SmallDisk;
use tests::lab::Lab;
use tests::network::{Host, Network};
use tests::process::Process;
use tests::relay::free_addresses;
use tests::{binaries, test_live};

use crate::history::History;
use crate::load::{Event, TRACES, TraceNames};
use crate::program::Program;

/// The host name of the sessions.
const HOST: &str = "traced";

/// The time in which the system has to be complete again once nothing fails any more. After a
/// network cut of a minute, TCP may take as long to send again.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(150);

/// The time in which a viewer that has lost its connection is back and has shown what there is.
/// `test-live` tries to reconnect at least every 10 s, and gives up a session that is not listed
/// for 5 s.
const VIEWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What a viewer says if a session that it followed is gone.
const MISSING: &str = "the relay does not have it any more";

/// The size of a small disk, in KiB.
const SMALL_DISK: u32 = 24 << 10;

/// Where programs run and what they write to.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// The arguments of the relay besides its addresses and its output directory.
    pub relay: &'static [&'static str],
    /// The arguments of the consumer besides the relay and its directories.
    pub consumer: &'static [&'static str],
    /// The consumer has a spool.
    pub has_spool: bool,
    /// The names of the traces. Without names of their own, traces have no viewers.
    pub names: TraceNames,
    /// Relay and consumer run on two hosts, between which the network can be cut.
    pub has_network: bool,
    /// The relay writes to a small disk.
    pub has_small_output: bool,
    /// The spool is on a small disk.
    pub has_small_spool: bool,
}

/// The running programs. The fields are dropped in the order in which they need each other.
pub struct System {
    /// The relay, to which the consumer sends.
    pub relay: Program,
    /// The agent on the traced host.
    pub consumer: Program,
    /// The viewers of all traces, in the order in which the traces were begun.
    viewers: Vec<Viewer>,
    names: TraceNames,
    /// How many consumers ran before the present one.
    pub generation: u32,
    /// The times at which consumers were killed.
    pub consumer_kills: Vec<Instant>,
    /// The network between relay and consumer.
    pub network: Option<Arc<Network>>,
    /// The disk of the relay.
    pub output_disk: Option<SmallDisk>,
    /// The disk of the spool.
    pub spool_disk: Option<SmallDisk>,
    history: History,
    places: Arc<Places>,
}

/// The viewer of a trace.
struct Viewer {
    trace: String,
    program: Program,
    /// The session ended while neither the viewer nor a connection of it existed for long enough:
    /// only a part was shown.
    is_partial: bool,
    /// Whether the program is started only when the relay listens.
    waits_for_relay: bool,
}

/// What commands refer to.
struct Places {
    control: SocketAddr,
    data: SocketAddr,
    live: SocketAddr,
    output: PathBuf,
    spool: PathBuf,
    traces: PathBuf,
    lab: Lab,
}

impl Places {
    fn command(&self, network: Option<&Network>, host: Host, program: &Path) -> Command {
        match network {
            Some(network) => network.command(&self.lab, host, program),
            None => self.lab.command(program),
        }
    }
}

impl System {
    /// Makes a system whose programs are not started yet; `None` if the tests may not mount disks
    /// or create networks.
    #[must_use]
    pub fn new(setup: &Setup, history: &History) -> Option<Self> {
        // Built before the clock of the test runs.
        let _ = (
            binaries::relayd(),
            binaries::consumer(),
            binaries::test_live(),
        );
        let lab = Lab::new();
        let [output, spool, traces] = ["output", "spool", "traces"].map(|name| lab.directory(name));
        let disk = |at: &Path| SmallDisk::mount(at, SMALL_DISK);
        let (mut output_disk, mut spool_disk, mut network) = (None, None, None);
        if setup.has_small_output {
            output_disk = Some(disk(&output)?);
        }
        if setup.has_small_spool {
            spool_disk = Some(disk(&spool)?);
        }
        if setup.has_network {
            network = Some(Arc::new(Network::create()?));
        }
        let mut addresses = free_addresses();
        if network.is_some() {
            addresses = addresses.map(|address| Network::collector(address.port()));
        }
        let [control, data, live] = addresses;
        let places = Arc::new(Places {
            control,
            data,
            live,
            output,
            spool,
            traces,
            lab,
        });
        Some(Self {
            relay: relay(setup, history, &places, network.clone()),
            consumer: consumer(setup, history, &places, network.clone()),
            viewers: Vec::new(),
            names: setup.names,
            generation: 0,
            consumer_kills: Vec::new(),
            network,
            output_disk,
            spool_disk,
            history: history.clone(),
            places,
        })
    }

    /// Returns the socket on which the consumer's daemon listens for clients.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.places.lab.path().join("tldrs.socket")
    }

    /// Starts the relay and the first consumer, and waits until both are ready.
    pub fn start(&mut self) {
        self.relay.start();
        self.relay.wait_for_log(" listening ");
        self.start_viewers();
        self.consumer.start();
        self.consumer.wait_for_log("consumer::agent: ready");
    }

    /// Kills the consumer, and remembers the time.
    pub fn kill_consumer(&mut self) {
        self.consumer.kill();
        self.consumer_kills.push(Instant::now());
    }

    /// Begins the next generation, whose consumer is to be started, with a viewer of each of its
    /// traces.
    pub fn begin_generation(&mut self) {
        self.generation += 1;
        self.start_viewers();
    }

    /// Kills the viewer of a trace of the present generation and starts another one, which shows
    /// the trace from its beginning.
    pub fn replace_viewer(&mut self, trace: u32) {
        let trace = self.names.name(self.generation, trace);
        let viewer = self.viewers.iter_mut().find(|viewer| viewer.trace == trace);
        let viewer = viewer.expect("each trace has a viewer");
        if viewer.waits_for_relay {
            return;
        }
        viewer.program.kill();
        viewer.waits_for_relay = true;
        self.start_waiting_viewers();
    }

    /// Starts the relay, and the viewers that were to be started while there was none.
    pub fn start_relay(&mut self) {
        self.relay.start();
        self.start_waiting_viewers();
    }

    /// Starts the viewers that wait for the relay, if it runs, and waits until they are connected:
    /// before that they exit if the relay is killed.
    fn start_waiting_viewers(&mut self) {
        let waits = |viewer: &Viewer| viewer.waits_for_relay;
        if !self.relay.is_running() || !self.viewers.iter().any(waits) {
            return;
        }
        self.relay.wait_for_log(" listening ");
        for viewer in self.viewers.iter_mut().filter(|viewer| waits(viewer)) {
            viewer.waits_for_relay = false;
            viewer.program.start();
            viewer.program.wait_for_log(" connected ");
        }
    }

    fn start_viewers(&mut self) {
        if self.names == TraceNames::Reused {
            return;
        }
        for trace in 0..TRACES {
            let trace = self.names.name(self.generation, trace);
            let (places, network) = (Arc::clone(&self.places), self.network.clone());
            let url = test_live::url(places.live, HOST, &trace);
            let command = move || {
                // On the side of the consumer, so that a cut concerns the viewer, too.
                let program = binaries::test_live();
                let mut command = places.command(network.as_deref(), Host::Traced, program);
                command
                    .env("RUST_LOG", "viewer::attach::relay=info")
                    .args(["--strict", "--seek=beginning"])
                    .args(["--session-not-found=continue", &url]);
                command
            };
            let program = Program::new(&self.history, &format!("viewer of {trace}"), command);
            self.viewers.push(Viewer {
                trace,
                program,
                is_partial: false,
                waits_for_relay: true,
            });
        }
        self.start_waiting_viewers();
    }

    /// Waits until the consumer has ended all sessions. Clients must have disconnected.
    pub fn wait_until_sessions_end(&mut self) {
        let deadline = Instant::now() + RECOVERY_TIMEOUT;
        while let Some(open) = self.open_sessions() {
            self.relay.assert_runs();
            self.consumer.assert_runs();
            assert!(Instant::now() < deadline, "sessions do not end: {open}");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.history.record("all sessions have ended");
    }

    /// Waits until the viewers have attached. A relay does not know of a viewer that is about to
    /// connect to it for the first time: a session that is opened and completed meanwhile is not
    /// kept for it. It is kept if an earlier relay had it.
    pub fn wait_for_viewers_to_attach(&mut self) {
        if self.generation > 0 {
            // A session whose consumer was killed may never be opened, or be completed from the
            // spool.
            return;
        }
        for viewer in &mut self.viewers {
            let session = format!("({HOST}/{})", viewer.trace);
            let is_kept = |line: &String| {
                line.contains("session is resumable") && line.contains(session.as_str())
            };
            let mut earlier = self.relay.ended().iter().flat_map(|run| &run.stderr);
            if !earlier.any(is_kept) {
                viewer.program.wait_for_log("following session");
            }
        }
    }

    /// Waits until the viewers have shown all sessions. These must have ended.
    ///
    /// If consumer and relay were both killed, a session may have been opened and completed from
    /// the spool before its viewer was connected again, or the relay that had kept it for the
    /// viewer was killed, too. Then the viewer says that it misses something, or still waits for
    /// the session, or both: if the session that is gone had no trace yet, it waits for another one
    /// of that name.
    pub fn wait_for_viewers(&mut self) {
        let may_miss = self.generation > 0 && !self.relay.ended().is_empty();
        let deadline = Instant::now() + VIEWER_TIMEOUT;
        for viewer in &mut self.viewers {
            let has_session = find_sessions(&self.places.output, &viewer.trace) > 0;
            if has_session && may_miss {
                while viewer.program.is_running() && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(20));
                }
                let is_waiting = viewer.program.is_running();
                if is_waiting {
                    viewer.program.terminate();
                }
                let has_missed = viewer.program.reap_failed(MISSING);
                if !has_missed {
                    viewer.program.finish(RECOVERY_TIMEOUT);
                }
                viewer.is_partial = is_waiting || has_missed;
            } else if has_session {
                viewer.program.finish(RECOVERY_TIMEOUT);
            } else {
                // The consumer was killed before it had opened the session, or before it had an
                // event of it: the viewer still waits for it, or for another one after it has
                // missed this one.
                viewer.program.assert_runs();
                viewer.program.terminate();
                if !(may_miss && viewer.program.reap_failed(MISSING)) {
                    viewer.program.finish(RECOVERY_TIMEOUT);
                }
            }
        }
    }

    /// Returns what the consumer says about its sessions; `None` if it has none.
    fn open_sessions(&self) -> Option<String> {
        let mut status = self.places.lab.command(binaries::consumer());
        status
            .args(["status", "--json", "--socket"])
            .arg(self.places.lab.path().join("status.socket"));
        let ended = Process::start(&mut status).wait();
        if !ended.status.success() {
            return Some(ended.stderr.join("\n"));
        }
        let report = serde_json::from_slice(&ended.stdout_bytes);
        let report: serde_json::Value = report.expect("the status is JSON");
        let sessions = report["sessions"].as_array().expect("a list of sessions");
        (!sessions.is_empty()).then(|| report["sessions"].to_string())
    }

    /// Stops consumer and relay, which must have nothing left to do.
    pub fn stop(&mut self) {
        self.consumer.stop();
        self.relay.stop();
    }

    /// Returns the events of all recorded traces, as babeltrace2 reads them, which must have
    /// nothing to complain about.
    ///
    /// # Panics
    /// If it has.
    #[must_use]
    pub fn read_by_babeltrace(&self) -> Vec<Event> {
        let read = Babeltrace::Two.read(&self.places.output);
        assert_eq!(read.stderr, [""; 0]);
        assert!(read.status.success(), "{}", read.status);
        events(&read.stdout)
    }

    /// Returns the events of all recorded traces, as `test-live` reads them, which must have
    /// nothing to complain about.
    ///
    /// # Panics
    /// If it has.
    #[must_use]
    pub fn read_by_test_live(&self) -> Vec<Event> {
        let options = ["--quiet", "--strict"];
        let read = test_live::read(&self.places.lab, &options, &self.places.output);
        assert_eq!(read.stderr, [""; 0]);
        assert!(read.status.success(), "{}", read.status);
        events(&read.stdout)
    }

    /// Returns what each viewer has shown in each of its runs: the trace, whether the last run has
    /// shown all of it, and the events. The last run has ended with the session, the others were
    /// killed.
    pub fn shown_by_viewers(&self) -> impl Iterator<Item = (&str, bool, Vec<Vec<Event>>)> {
        self.viewers.iter().map(|viewer| {
            let runs = viewer.program.ended().iter().map(|run| {
                let is_whole = run.stdout_bytes.ends_with(b"\n");
                let lines = run.stdout.len() - usize::from(!is_whole && !run.stdout.is_empty());
                events(&run.stdout[..lines])
            });
            (viewer.trace.as_str(), !viewer.is_partial, runs.collect())
        })
    }

    /// Checks that relay and consumer, which have stopped, keep nothing of the sessions that have
    /// ended.
    ///
    /// # Panics
    /// If they do.
    pub fn assert_nothing_is_kept(&self) {
        let kept = self.places.output.join(".relayd");
        assert!(!kept.exists(), "the relay keeps {}", kept.display());
        let Ok(entries) = fs::read_dir(&self.places.spool) else {
            return;
        };
        let sessions = entries.filter_map(|entry| {
            let entry = entry.expect("the spool can be read");
            entry.path().is_dir().then(|| entry.file_name())
        });
        let sessions: Vec<_> = sessions.filter(|name| name != "lost+found").collect();
        assert!(sessions.is_empty(), "the spool keeps {sessions:?}");
    }

    /// Returns the name of the trace of an event.
    #[must_use]
    pub fn trace_of(&self, event: &Event) -> String {
        let id = event.connection;
        self.names.name(id.generation, id.trace)
    }

    /// Checks that every session has been resumed, not opened anew: no trace has more directories
    /// at the relay than sessions.
    ///
    /// # Panics
    /// If one has.
    pub fn assert_sessions_are_resumed(&self) {
        let max = match self.names {
            TraceNames::OfGeneration => 1,
            TraceNames::Reused => self.generation as usize + 1,
        };
        for generation in 0..=self.generation {
            for trace in (0..TRACES).map(|trace| self.names.name(generation, trace)) {
                let directories = find_sessions(&self.places.output, &trace);
                assert!(directories <= max, "{trace}: {directories} directories");
            }
        }
    }
}

fn relay(
    setup: &Setup,
    history: &History,
    places: &Arc<Places>,
    network: Option<Arc<Network>>,
) -> Program {
    let (places, arguments) = (Arc::clone(places), setup.relay);
    Program::new(history, "relayd", move || {
        let program = binaries::relayd();
        let mut command = places.command(network.as_deref(), Host::Collector, program);
        command.arg("-v").arg("-o").arg(&places.output);
        for (option, address) in [
            ("-C", places.control),
            ("-D", places.data),
            ("-L", places.live),
        ] {
            command.arg(option).arg(format!("tcp://{address}"));
        }
        command.args(arguments);
        command
    })
}

fn consumer(
    setup: &Setup,
    history: &History,
    places: &Arc<Places>,
    network: Option<Arc<Network>>,
) -> Program {
    let (places, arguments) = (Arc::clone(places), setup.consumer);
    let has_spool = setup.has_spool;
    Program::new(history, "consumer", move || {
        let program = binaries::consumer();
        let mut command = places.command(network.as_deref(), Host::Traced, program);
        let (control, data) = (places.control, places.data);
        let url = format!("net://{}:{}:{}", control.ip(), control.port(), data.port());
        let path = |option: &str, path: &Path| format!("{option}={}", path.display());
        command
            .args(["serve", "-v", "-U", &url, "--hostname", HOST])
            .arg("--clock-interval=0")
            .arg(path("--tldrs", &places.lab.path().join("tldrs.socket")))
            .arg(path("--tldrs-dir", &places.traces))
            .arg(path("--socket", &places.lab.path().join("status.socket")))
            .args(arguments);
        if has_spool {
            command.arg(path("--spool", &places.spool));
        }
        command
    })
}

/// Returns the number of session directories of a trace below the output directory. One without
/// content is not counted: a relay that is killed before it has told the producer of a session does
/// not remove its directory.
fn find_sessions(output: &Path, trace: &str) -> usize {
    let Ok(entries) = fs::read_dir(output.join(HOST)) else {
        return 0;
    };
    let prefix = format!("{trace}-");
    let is_session = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(&prefix) && has_content(&entry.path())
    };
    entries.flatten().filter(is_session).count()
}

/// Whether there is a file that is not empty at a path or below it.
fn has_content(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(entries) => entries.flatten().any(|entry| has_content(&entry.path())),
        Err(_) => fs::metadata(path).is_ok_and(|file| file.len() > 0),
    }
}

/// Returns the events of the load in printed lines. Other events, as those of connecting clients,
/// are left out.
///
/// # Panics
/// If an event says that others are missing, or its name was never sent.
fn events(lines: &[String]) -> Vec<Event> {
    let named = lines.iter().filter_map(|line| {
        assert!(!line.contains("tef:lost"), "{line}");
        let (_, rest) = line.split_once("name = \"")?;
        rest.split('"').next()
    });
    let events = named.map(|name| name.parse().unwrap_or_else(|error| panic!("{error}")));
    events.collect()
}
