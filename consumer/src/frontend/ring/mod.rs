//! Drains the shared-memory rings of traced programs (`trace-ring`): one session for each process.
//!
//! Read in this order: [`directory`] (the run directory, and opening files in it), [`user_budget`],
//! [`meta_reader`] and [`ring_reader`] (the files of a process, which may be hostile), [`producer`]
//! (a process), `session` (drains a process to its session). This module discovers processes, and
//! limits how many are read.
//!
//! A process is written to by nobody but its reader, and only to say how far it has read, and that
//! it is another reader than before. Each process has a session and a task of its own: whatever is
//! in its files, no other process is affected.

pub mod classes;
mod config;
pub mod directory;
pub mod meta_reader;
mod overload;
pub mod producer;
mod renewal;
pub mod ring_reader;
mod session;
mod trace;
pub mod user_budget;
mod user_rate;

use std::collections::{HashMap, HashSet};
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use ctf::write::TraceClock;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::SessionConfig;
use crate::limits::{
    BUSY_RING_POLL_INTERVAL, MAX_RING_PROCESSES, MAX_RING_PROCESSES_OF_USER,
    MIN_RING_PROCESSES_OF_USER, RING_CLEANUP_INTERVAL, RING_LOCK_TIMEOUT, RING_SCAN_IDLE_RATIO,
    RING_SCAN_INTERVAL, RING_STOP_SCAN_TIMEOUT,
};
use crate::packetize::HostClock;
use crate::queue::{Activity, SessionOpener};
pub use config::{RingConfig, RingOptions};
use directory::{DirectoryName, DirectoryWatch, FoundProcesses, RunDirectory};
use overload::Overload;
use producer::Producer;
use ring_reader::Role;
use session::{RingSession, SessionResult};
use user_budget::UserBudgets;
use user_rate::UserRate;

/// How rings are read, and the properties of their sessions.
#[derive(Debug, Clone)]
pub struct RingSettings {
    /// The run directory, which has a directory for each traced process.
    pub directory: PathBuf,
    /// Name of the traced host.
    pub host: String,
    /// Path below which the relay writes the sessions; empty: below the host's directory.
    pub base_path: String,
    /// Interval at which pending events are sent as a packet, and beacons for idle streams.
    pub live_timer: Duration,
    /// Whether viewers can attach to the sessions.
    pub is_live: bool,
    /// Usual size of a packet, in bytes; a single long event may exceed it.
    pub packet_bytes: usize,
    /// Tracefiles of a stream on the relay: maximum size in bytes, and number; 0: no limit.
    pub tracefiles: (u64, u64),
    /// Whether packets are delivered as soon as a spool has them: then a ring is full rather than
    /// its events in memory only.
    pub is_spooled: bool,
    /// Events per second of a process above which less important severities are left out.
    pub max_events_per_second: Option<u64>,
    /// Ids of the processes that are read; all if there are none.
    pub pids: Vec<u32>,
}

impl RingSettings {
    /// Returns the settings for live sessions with these properties, of all processes, below the
    /// host's directory and without a spool.
    #[must_use]
    pub fn new(directory: PathBuf, session: &SessionConfig) -> Self {
        Self {
            directory,
            host: session.host.clone(),
            base_path: String::new(),
            live_timer: session.live_timer(),
            is_live: true,
            packet_bytes: session.packet_bytes(),
            tracefiles: session.tracefiles(),
            is_spooled: false,
            max_events_per_second: None,
            pids: Vec::new(),
        }
    }
}

/// What all sessions share.
#[derive(Debug)]
struct Context {
    settings: RingSettings,
    coverage: Coverage,
    role: Role,
    run: RunDirectory,
    opener: SessionOpener,
    clock: TraceClock,
    activity: Activity,
    budgets: UserBudgets,
}

/// The processes that are read, and the end of the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All processes are read, and those that start later, until the frontend is stopped. Their
    /// rings are drained.
    Drain,
    /// All processes are read as with `Drain`, but beside a drainer.
    Observe,
    /// The present content of all flight recorders is read once.
    Snapshot,
}

/// Returns the run directory, unless an option names another: that of the programs with the same
/// environment.
#[must_use]
pub fn default_directory() -> PathBuf {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    match (variable("TRACE_RING_DIR"), variable("XDG_RUNTIME_DIR")) {
        (Some(directory), _) => directory.into(),
        (None, Some(directory)) => Path::new(&directory).join("ring"),
        (None, None) => "/run/ring".into(),
    }
}

/// Reads the rings of all processes until `stop` is cancelled, then what is left in them, and waits
/// until all is delivered.
///
/// # Errors
/// If the run directory cannot be used, or another process drains it.
pub async fn run(
    settings: RingSettings,
    coverage: Coverage,
    opener: SessionOpener,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let path = settings.directory.clone();
    let opened = match coverage {
        Coverage::Drain => RunDirectory::create(&path),
        Coverage::Observe | Coverage::Snapshot => RunDirectory::open(&path),
    };
    let run = opened.with_context(|| format!("cannot use the run directory {}", path.display()))?;
    let role = match coverage {
        Coverage::Drain => Role::Drainer,
        Coverage::Observe | Coverage::Snapshot => Role::Observer,
    };
    if role == Role::Drainer && !lock(&run).await? {
        anyhow::bail!("cannot drain {}: another consumer does", path.display());
    }
    // Before the first scan: a directory that appears in between wakes the loop up.
    let watch = watch(&run);
    info!(directory = %path.display(), "rings");
    let context = Context {
        settings,
        coverage,
        role,
        run,
        activity: opener.activity(),
        opener,
        clock: HostClock::measure().trace_clock(),
        budgets: UserBudgets::default(),
    };
    let mut discovery = Discovery {
        context: Arc::new(context),
        known: HashMap::new(),
        rates: HashMap::new(),
        sessions: JoinSet::new(),
        crowded: HashSet::new(),
        next_scan: Instant::now(),
        cleaned: None,
        stop: stop.clone(),
    };
    while !stop.is_cancelled() {
        discovery.clean_up().await;
        stop.run_until_cancelled(sleep_until(discovery.next_scan))
            .await;
        discovery.scan().await;
        tokio::select! {
            () = stop.cancelled() => {}
            () = wait_for_entry(watch.as_ref()) => {}
            () = sleep(RING_SCAN_INTERVAL) => {}
            Some(ended) = discovery.sessions.join_next() => discovery.handle_end(ended),
        }
    }
    // Processes that have started meanwhile, and those for which there was no room.
    let until = Instant::now() + RING_STOP_SCAN_TIMEOUT;
    while (Instant::now() < until && discovery.scan().await) || !discovery.sessions.is_empty() {
        if let Some(ended) = discovery.sessions.join_next().await {
            discovery.handle_end(ended);
        }
    }
    Ok(())
}

/// Takes the lock of the drainer, which another process may hold for a moment.
async fn lock(run: &RunDirectory) -> io::Result<bool> {
    let until = Instant::now() + RING_LOCK_TIMEOUT;
    loop {
        if run.try_lock()? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        sleep(BUSY_RING_POLL_INTERVAL).await;
    }
}

/// Watches the run directory; without a watch, only the scans find new processes.
fn watch(run: &RunDirectory) -> Option<AsyncFd<std::os::fd::OwnedFd>> {
    let watch = run.watch().map(DirectoryWatch::into_descriptor);
    #[expect(
        deprecated,
        reason = "the replacement is unsafe, because a type may close its descriptor early; an OwnedFd does not"
    )]
    match watch.and_then(AsyncFd::new) {
        Ok(watch) => Some(watch),
        Err(error) => {
            warn!(%error, "run directory not watched; new processes are found once per second");
            None
        }
    }
}

/// Waits until the run directory has a new entry.
async fn wait_for_entry(watch: Option<&AsyncFd<std::os::fd::OwnedFd>>) {
    let Some(watch) = watch else {
        return std::future::pending().await;
    };
    let Ok(mut ready) = watch.readable().await else {
        return std::future::pending().await;
    };
    // What the events say is not needed: the directory is read as a whole.
    let mut events = [0; 4096];
    // Read until there is nothing more: the descriptor is reported again only for later events.
    while rustix::io::read(watch.get_ref(), &mut events).is_ok_and(|bytes| bytes > 0) {}
    ready.clear_ready();
}

/// A process directory that has been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KnownProcess {
    /// User id of its owner.
    uid: u32,
    state: ProcessState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessState {
    /// The process is read by a session.
    Read,
    /// There was no room for the process yet.
    Waiting,
    /// The process is not read any more, or cannot be.
    Done,
}

/// Finds the process directories and runs their sessions.
struct Discovery {
    context: Arc<Context>,
    known: HashMap<DirectoryName, KnownProcess>,
    rates: HashMap<u32, UserRate>,
    sessions: JoinSet<(DirectoryName, SessionResult)>,
    /// Users who have more entries than are looked at.
    crowded: HashSet<u32>,
    /// The earliest time of the next scan.
    next_scan: Instant,
    cleaned: Option<Instant>,
    stop: CancellationToken,
}

impl Discovery {
    /// Removes, once in a while, what processes have left that died before their directory was
    /// complete.
    async fn clean_up(&mut self) {
        let is_recent = |at: Instant| at.elapsed() < RING_CLEANUP_INTERVAL;
        if self.context.role == Role::Observer || self.cleaned.is_some_and(is_recent) {
            return;
        }
        self.cleaned = Some(Instant::now());
        let context = Arc::clone(&self.context);
        match file_call(move || context.run.remove_unfinished(SystemTime::now())).await {
            Ok(0) => {}
            Ok(removed) => info!(removed, "directories of processes that died at their start"),
            Err(error) => warn!(%error, "run directory not cleaned up"),
        }
    }

    /// Starts the sessions of new processes. Returns whether it has started any.
    async fn scan(&mut self) -> bool {
        let begun = Instant::now();
        let context = Arc::clone(&self.context);
        // The table goes to the thread and comes back, which costs no copy and no lock.
        let known = std::mem::take(&mut self.known);
        let (found, known) = file_call(move || {
            let pids = &context.settings.pids;
            let is_wanted = |name: &DirectoryName| pids.is_empty() || pids.contains(&name.pid());
            let owner = |name: &DirectoryName| known.get(name).map(|known| known.uid);
            (context.run.find(is_wanted, owner), known)
        })
        .await;
        self.known = known;
        self.next_scan = Instant::now() + begun.elapsed() * RING_SCAN_IDLE_RATIO;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                warn!(%error, "run directory not read");
                return false;
            }
        };
        report_left_out(&found, &mut self.crowded);
        let names = found.in_turns();
        let listed: HashSet<_> = names.iter().map(|(name, _)| name).collect();
        // Names that are gone are forgotten, or the table would grow with each process that was
        // ever traced. A process that is read stays until its session has ended.
        self.known
            .retain(|name, known| known.state == ProcessState::Read || listed.contains(name));
        let mut has_started = false;
        for (name, uid) in &names {
            has_started |= self.start(name, *uid);
        }
        has_started
    }

    /// Starts the session of a process, unless it is known or there is no room.
    fn start(&mut self, name: &DirectoryName, uid: u32) -> bool {
        let known = self.known.get(name).map(|known| known.state);
        if !matches!(known, None | Some(ProcessState::Waiting)) {
            return false;
        }
        if !self.has_room_for(uid) {
            if known.is_none() {
                let process = name.as_str();
                warn!(process, "not read yet: too many traced processes");
                self.set_state(name, uid, ProcessState::Waiting);
            }
            return false;
        }
        let (role, budgets) = (self.context.role, &self.context.budgets);
        let producer = match Producer::open(&self.context.run, name, role, budgets) {
            Ok(producer) => producer,
            Err(fault) => {
                warn!(process = name.as_str(), "not read: {fault}");
                // Logged once: the directory is found again in each scan.
                self.set_state(name, uid, ProcessState::Done);
                return false;
            }
        };
        self.set_state(name, uid, ProcessState::Read);
        let rate = self.rates.entry(uid);
        let rate = rate.or_insert_with(|| UserRate::new(std::time::Instant::now()));
        let session = RingSession::new(Arc::clone(&self.context), producer, rate.clone());
        debug!(process = name.as_str(), uid, "found");
        let (name, stop) = (name.clone(), self.stop.clone());
        self.sessions
            .spawn(async move { (name, session.run(stop).await) });
        true
    }

    fn set_state(&mut self, name: &DirectoryName, uid: u32, state: ProcessState) {
        self.known.insert(name.clone(), KnownProcess { uid, state });
    }

    /// Whether one more process of this user may be read.
    fn has_room_for(&self, uid: u32) -> bool {
        let read = KnownProcess {
            uid,
            state: ProcessState::Read,
        };
        let of_user = self.known.values().filter(|known| **known == read).count();
        has_room(of_user, self.sessions.len(), is_only_user(uid))
    }

    fn handle_end(
        &mut self,
        ended: Result<(DirectoryName, SessionResult), tokio::task::JoinError>,
    ) {
        match ended {
            Ok((name, SessionResult::Removed)) => drop(self.known.remove(&name)),
            Ok((name, SessionResult::Kept)) => {
                if let Some(known) = self.known.get_mut(&name) {
                    known.state = ProcessState::Done;
                }
            }
            // The others go on.
            Err(error) => error!(%error, "reading of a process ended"),
        }
    }
}

/// Logs each user who has more entries than are looked at, once until there are fewer. `crowded`
/// are those that were logged.
pub(crate) fn report_left_out(found: &FoundProcesses, crowded: &mut HashSet<u32>) {
    for (uid, entries) in found.left_out() {
        if !crowded.contains(&uid) {
            warn!(
                uid,
                entries, "entries of the run directory not read: the user has too many"
            );
        }
    }
    *crowded = found.left_out().map(|(uid, _)| uid).collect();
}

/// Whether one more process may be read of a user who has so many of all that are read.
pub(crate) fn has_room(of_user: usize, of_all: usize, is_only_user: bool) -> bool {
    let is_of_few = of_user < MIN_RING_PROCESSES_OF_USER && of_all < 2 * MAX_RING_PROCESSES;
    let is_below = is_only_user || of_user < MAX_RING_PROCESSES_OF_USER;
    is_of_few || is_below && of_all < MAX_RING_PROCESSES
}

/// Whether the processes of this user are the only ones that this process reads.
pub(crate) fn is_only_user(uid: u32) -> bool {
    let own = rustix::process::getuid();
    !own.is_root() && own.as_raw() == uid
}

/// Makes a file call that may take long on a thread for them.
async fn file_call<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and nothing goes on.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests;
