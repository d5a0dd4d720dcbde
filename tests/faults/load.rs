//! Clients of a `tldrs` socket that send numbered events: steadily, in bursts and with pauses. A
//! client whose daemon dies connects again and begins another sequence of numbers.

use std::fmt::{self, Write as _};
use std::io::{ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;

/// The number of traces to which clients send at a time.
pub const TRACES: u32 = 2;

/// The number of clients of each trace.
const CLIENTS: u32 = 2;

/// The interval at which a client tries to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(5);

/// The time after which a client that is blocked looks whether the test has failed.
const WRITE_TIMEOUT: Duration = Duration::from_millis(100);

/// One connection of a client to the daemon: all its events have consecutive numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId {
    /// How many daemons ran before the one that the client has connected to.
    pub generation: u32,
    /// The trace, below [`TRACES`].
    pub trace: u32,
    /// The client of the trace.
    pub client: u32,
    /// How many connections the client has had before.
    pub connection: u32,
}

/// An event, as its name identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The connection that has sent it.
    pub connection: ConnectionId,
    /// How many events the connection has sent before.
    pub number: u64,
}

/// What was sent through one connection.
#[derive(Debug)]
pub struct Sent {
    /// The connection on which the events were sent.
    pub id: ConnectionId,
    /// After each write: the time, and the number of events that were wholly written until then.
    pub progress: Vec<(Instant, u64)>,
}

/// The clients that are running, and what they share.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<Vec<Sent>>>,
}

struct Shared {
    socket: PathBuf,
    names: TraceNames,
    /// The generation of the daemon that runs or is about to start.
    generation: AtomicU32,
    /// Clients send what they have begun, and disconnect.
    is_stopping: AtomicBool,
    /// The test has failed: clients exit at once.
    is_aborted: AtomicBool,
}

/// The names of traces, and of their sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceNames {
    /// Each generation of the daemon has traces of its own, so that a viewer can name one of them.
    OfGeneration,
    /// All generations have the same traces: each one opens further sessions of the same names.
    Reused,
}

impl TraceNames {
    /// Returns the name of a trace of a generation.
    #[must_use]
    pub fn name(self, generation: u32, trace: u32) -> String {
        match self {
            Self::OfGeneration => format!("load-{generation}-{trace}"),
            Self::Reused => format!("load-{trace}"),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionId {
            generation,
            trace,
            client,
            connection,
        } = self.connection;
        let number = self.number;
        write!(f, "{generation}.{trace}.{client}.{connection}.{number}")
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("not an event of this test: {text}");
        let mut parts = text.split('.');
        let mut part = || parts.next().and_then(|part| part.parse().ok());
        let mut id_part = || part().and_then(|part: u64| u32::try_from(part).ok());
        let connection = ConnectionId {
            generation: id_part().ok_or_else(malformed)?,
            trace: id_part().ok_or_else(malformed)?,
            client: id_part().ok_or_else(malformed)?,
            connection: id_part().ok_or_else(malformed)?,
        };
        let number = part().ok_or_else(malformed)?;
        let is_last = parts.next().is_none();
        is_last
            .then_some(Self { connection, number })
            .ok_or_else(malformed)
    }
}

impl Load {
    /// Starts the clients of a daemon that will listen on `socket`.
    #[must_use]
    pub fn start(socket: &Path, names: TraceNames, random: &mut Rng) -> Self {
        let shared = Arc::new(Shared {
            socket: socket.to_owned(),
            names,
            generation: AtomicU32::new(0),
            is_stopping: AtomicBool::new(false),
            is_aborted: AtomicBool::new(false),
        });
        let ids = (0..TRACES).flat_map(|trace| (0..CLIENTS).map(move |client| (trace, client)));
        let clients = ids.map(|(trace, client)| {
            let (shared, mut random) = (Arc::clone(&shared), random.fork());
            std::thread::spawn(move || shared.run_client(trace, client, &mut random))
        });
        Self {
            clients: clients.collect(),
            shared,
        }
    }

    /// Sets the generation of the daemon. It must not run: a client that has connected reads the
    /// generation.
    pub fn set_generation(&self, generation: u32) {
        self.shared.generation.store(generation, Ordering::SeqCst);
    }

    /// Lets the clients send what they have begun, and waits until they have disconnected.
    #[must_use]
    pub fn stop(mut self) -> Vec<Sent> {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        let clients = std::mem::take(&mut self.clients);
        let sent = clients.into_iter().map(|client| client.join().unwrap());
        sent.flatten().collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.shared.is_aborted.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

/// The daemon has closed the connection.
struct Disconnected;

impl Shared {
    fn run_client(&self, trace: u32, client: u32, random: &mut Rng) -> Vec<Sent> {
        let mut all = Vec::new();
        for connection in 0.. {
            let Some(stream) = self.connect() else { break };
            let id = ConnectionId {
                generation: self.generation.load(Ordering::SeqCst),
                trace,
                client,
                connection,
            };
            let mut sender = Sender {
                shared: self,
                stream,
                sent: Sent {
                    id,
                    progress: Vec::new(),
                },
            };
            let _ = sender.send_events(random);
            let _ = sender.stream.shutdown(Shutdown::Both);
            all.push(sender.sent);
        }
        all
    }

    /// Connects as soon as a daemon listens; `None` if the clients are to stop.
    fn connect(&self) -> Option<UnixStream> {
        while !self.is_ending() {
            if let Ok(stream) = UnixStream::connect(&self.socket) {
                stream.set_write_timeout(Some(WRITE_TIMEOUT)).unwrap();
                return Some(stream);
            }
            std::thread::sleep(CONNECT_INTERVAL);
        }
        None
    }

    fn is_ending(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst) || self.is_aborted.load(Ordering::SeqCst)
    }
}

/// A client that is connected to the daemon.
struct Sender<'a> {
    shared: &'a Shared,
    stream: UnixStream,
    sent: Sent,
}

impl Sender<'_> {
    /// Sends events until the clients are to stop, or the client closes this connection by itself.
    fn send_events(&mut self, random: &mut Rng) -> Result<(), Disconnected> {
        let ConnectionId {
            generation, trace, ..
        } = self.sent.id;
        let open = format!("OPEN {}\n", self.shared.names.name(generation, trace));
        self.write(open.as_bytes(), &[])?;
        let mut next = 0;
        while !self.shared.is_ending() {
            let (events, pause) = match random.u32(..1000) {
                0 => return Ok(()),
                1..=50 => (1, random.u64(20..300)),
                51..=150 => (random.u64(20..200), 0),
                _ => (random.u64(1..4), 2),
            };
            let mut lines = String::new();
            let mut ends = Vec::new();
            for number in next..next + events {
                self.append_event(&mut lines, number, random);
                ends.push(lines.len());
            }
            next += events;
            self.write(lines.as_bytes(), &ends)?;
            std::thread::sleep(Duration::from_millis(pause));
        }
        Ok(())
    }

    fn append_event(&self, lines: &mut String, number: u64, random: &mut Rng) {
        let event = Event {
            connection: self.sent.id,
            number,
        };
        let text = "-".repeat(random.usize(..200));
        writeln!(
            lines,
            r#"{{"ph":"i","name":"{event}","ts":{number},"args":{{"text":"{text}"}}}}"#
        )
        .expect("a string takes everything");
    }

    /// Writes all bytes, and records how many events are wholly written: those that end at `ends`.
    fn write(&mut self, bytes: &[u8], ends: &[usize]) -> Result<(), Disconnected> {
        let before = self.sent.progress.last().map_or(0, |(_, count)| *count);
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(Disconnected),
            }
            if self.shared.is_aborted.load(Ordering::SeqCst) {
                return Err(Disconnected);
            }
            let whole = ends.partition_point(|end| *end <= written);
            let progress = (Instant::now(), before + whole as u64);
            self.sent.progress.push(progress);
        }
        Ok(())
    }
}
