//! Writes everything that the relay has published to an archive (`--archive`): what is new in all
//! sessions as one commit object each second, and each session again as parts, after which commit
//! objects are deleted. `doc/archive.md` describes the objects, the package `archive` their bytes.
//!
//! The archiver follows streams as a viewer does, and reads packets back from their files: writers
//! do nothing for it. It has a thread that reads and compresses, and one for requests. What is
//! acknowledged to producers with `--durability=archive` is in [`Published::archived`], which is
//! set only after all commit objects up to that one are stored.
//!
//! Read in this order: `stream` (packets and metadata of one stream), `unindexed` (packets without
//! an index), `chunks`, `session` (one session), `known` (what was archived before), `totals` (how
//! much that is), `upload` (requests), [`ArchiverThread`] here, `orphans` (logs of other relays),
//! [`status`].
//!
//! [`Published::archived`]: crate::publish::published::Published::archived

mod chunks;
mod known;
mod orphans;
mod session;
pub mod status;
mod stream;
mod totals;
mod unindexed;
mod upload;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use archive::commit::CommitLog;
use archive::name::{BootId, SessionObject};
use archive::object::ObjectWriter;
use archive::record::{ObjectKind, ObjectRecord};
use archive::store::{ProbeError, Store, probe};
use daemon::error_text::describe_error;
use jiff::Timestamp;
use parking_lot::{Condvar, Mutex};
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};
use wire::SessionId;

use crate::limits::{
    ARCHIVE_BEACON_INTERVAL, ARCHIVE_COMMIT_BYTES, ARCHIVE_POLL_INTERVAL, ARCHIVE_PROBE_TIMEOUT,
    MAX_ARCHIVE_COMMITS, MAX_ARCHIVE_PARTS,
};
use crate::registry::archive_feed::ArchiveFeed;
use session::{ArchivedSession, CommittedSession, Owner, Part};
use status::ArchiveStatus;
pub(crate) use upload::Done;
use upload::Uploader;

/// Commit objects after which those are deleted that no part has made superfluous, because they had
/// nothing for one.
const COMMITS_BETWEEN_DELETIONS: u64 = 64;

/// When objects are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveTimes {
    /// Interval between commit objects.
    pub interval: Duration,
    /// Time after which a session is written again as a part.
    pub part_age: Duration,
}

/// The thread that archives.
#[derive(Debug)]
pub struct ArchiverThread {
    status: Arc<ArchiveStatus>,
    stop: Arc<Notify>,
    outcome: Arc<Outcome>,
}

/// The end of the thread, and whether all was archived.
#[derive(Debug, Default)]
struct Outcome {
    is_complete: Mutex<Option<bool>>,
    changed: Condvar,
}

/// The archive cannot be used.
#[derive(Debug, Error)]
pub enum ArchiveStartError {
    /// The store cannot be relied on, or it refuses requests.
    #[error("{}", describe_error(.0))]
    Probe(#[from] ProbeError),
    /// No thread can be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] io::Error),
}

/// Whether the store has passed the probe. It has not yet if it is away.
async fn is_reliable(store: &dyn Store) -> Result<bool, ProbeError> {
    match tokio::time::timeout(ARCHIVE_PROBE_TIMEOUT, probe(store)).await {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(ProbeError::Store(error))) if error.is_unknown() => {
            let error = describe_error(&error);
            warn!(%error, "archive not available: it is probed again, and nothing is acknowledged before");
            Ok(false)
        }
        Ok(Err(error)) => Err(error),
        Err(_) => {
            warn!(
                "archive not available: no answer; it is probed again, and nothing is acknowledged before"
            );
            Ok(false)
        }
    }
}

/// Archives the sessions of one relay.
pub(crate) struct Archiver {
    times: ArchiveTimes,
    boot: BootId,
    feed: Arc<ArchiveFeed>,
    uploader: Uploader,
    status: Arc<ArchiveStatus>,
    sessions: BTreeMap<SessionId, ArchivedSession>,
    log: CommitLog<Commit>,
    /// The sessions of which a part is due, and not begun.
    due_parts: VecDeque<SessionId>,
    /// Number of parts that are on their way.
    parts: usize,
    /// Number of requests that reclaim or end sessions, or delete objects.
    requests: usize,
    last_commit: Instant,
    /// Time at which the last commit object was made.
    last_object: Instant,
    has_stopped: bool,
    /// Whether the store has passed the probe.
    pub(crate) is_probed: bool,
    /// Whether the logs of relays that are gone are moved to parts.
    moves_orphans: bool,
}

/// A commit object that is on its way.
struct Commit {
    began: Instant,
    sessions: Vec<(SessionId, CommittedSession)>,
}

impl ArchiverThread {
    /// Probes the store, and starts the thread, which archives the streams that are fed to it. If
    /// the store is away, the thread probes it later, before it archives anything.
    ///
    /// # Errors
    /// If the store cannot be relied on, or no thread can be started.
    pub fn start(
        store: Arc<dyn Store>,
        times: ArchiveTimes,
        feed: Arc<ArchiveFeed>,
    ) -> Result<Self, ArchiveStartError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("archive-io")
            .enable_all()
            .build()?;
        let is_probed = runtime.block_on(is_reliable(&*store))?;
        let status = Arc::<ArchiveStatus>::default();
        let (stop, outcome) = (Arc::<Notify>::default(), Arc::<Outcome>::default());
        let (mut archiver, received) = Archiver::new(store, times, feed, Arc::clone(&status));
        archiver.is_probed = is_probed;
        archiver.moves_orphans = true;
        info!(boot = %archiver.boot, "archive enabled");
        let (own_stop, own_outcome) = (Arc::clone(&stop), Arc::clone(&outcome));
        let thread = std::thread::Builder::new().name("archive".to_owned());
        thread.spawn(move || archiver.run(&runtime, received, &own_stop, &own_outcome))?;
        Ok(Self {
            status,
            stop,
            outcome,
        })
    }

    /// State and counters, for metrics.
    #[must_use]
    pub fn status(&self) -> &Arc<ArchiveStatus> {
        &self.status
    }

    /// Archives what is left and ends the thread. Returns whether all was archived within
    /// `timeout`.
    #[must_use]
    pub fn stop(self, timeout: Duration) -> bool {
        let due = std::time::Instant::now() + timeout;
        self.stop.notify_one();
        let mut is_complete = self.outcome.is_complete.lock();
        loop {
            if let Some(is_complete) = *is_complete {
                return is_complete;
            }
            let waited = self.outcome.changed.wait_until(&mut is_complete, due);
            if waited.timed_out() {
                return false;
            }
        }
    }
}

impl Archiver {
    /// The archiver of a relay, and the receiver of what is done for it.
    pub(crate) fn new(
        store: Arc<dyn Store>,
        times: ArchiveTimes,
        feed: Arc<ArchiveFeed>,
        status: Arc<ArchiveStatus>,
    ) -> (Self, UnboundedReceiver<Done>) {
        let (done, received) = unbounded_channel();
        let archiver = Self {
            times,
            boot: feed.boot(),
            feed,
            uploader: Uploader::new(store, Arc::clone(&status), done),
            status,
            sessions: BTreeMap::new(),
            log: CommitLog::default(),
            due_parts: VecDeque::new(),
            parts: 0,
            requests: 0,
            last_commit: Instant::now(),
            last_object: Instant::now(),
            has_stopped: false,
            is_probed: false,
            moves_orphans: false,
        };
        (archiver, received)
    }

    fn run(
        mut self,
        runtime: &Runtime,
        done: UnboundedReceiver<Done>,
        stop: &Notify,
        outcome: &Outcome,
    ) {
        let is_complete = runtime.block_on(self.archive(done, stop));
        *outcome.is_complete.lock() = Some(is_complete);
        outcome.changed.notify_all();
    }

    /// Probes the store, unless that was done at the start. Nothing is archived before. Returns
    /// false if the relay stops meanwhile, or the store cannot be relied on.
    async fn probe(&mut self, stop: &Notify) -> bool {
        if self.is_probed {
            return true;
        }
        let uploader = self.uploader.clone();
        let mut probing = std::pin::pin!(uploader.probe());
        let mut behind_since = None;
        let probed = loop {
            tokio::select! {
                probed = &mut probing => break probed,
                () = stop.notified() => return false,
                () = tokio::time::sleep(ARCHIVE_POLL_INTERVAL) => {}
            }
            if !self.feed.is_empty() {
                behind_since = behind_since.or(Some(Instant::now().into_std()));
                self.status.set_behind_since(behind_since);
            }
        };
        if let Err(error) = &probed {
            self.status.set_stopped(&error.to_string());
            stop.notified().await;
        }
        probed.is_ok()
    }

    /// Archives until the relay stops. Returns whether all is archived then.
    pub(crate) async fn archive(
        &mut self,
        mut done: UnboundedReceiver<Done>,
        stop: &Notify,
    ) -> bool {
        if !self.probe(stop).await {
            return self.feed.is_empty();
        }
        if self.moves_orphans {
            self.uploader.move_orphans(self.boot, self.times);
        }
        let mut is_stopping = false;
        let poll = self.times.interval.min(ARCHIVE_POLL_INTERVAL);
        let mut ticks = tokio::time::interval(poll);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.has_stopped {
            tokio::select! {
                // Only this: what follows looks at every session, and many are opened at once when
                // another relay has died.
                Some(done) = done.recv() => {
                    self.handle(done);
                    continue;
                }
                _ = ticks.tick() => {}
                () = stop.notified(), if !is_stopping => is_stopping = true,
            }
            self.add_streams();
            self.reclaim_sessions();
            self.commit(is_stopping);
            self.write_parts(is_stopping);
            self.end_sessions();
            if is_stopping && self.is_idle() {
                return true;
            }
        }
        false
    }

    fn add_streams(&mut self) {
        // First: a session whose producer is gone by now gets no streams but those.
        let sessions = self.sessions.values_mut();
        sessions.for_each(ArchivedSession::refresh_end);
        for fed in self.feed.take() {
            let id = fed.session.id();
            let (boot, uploader) = (self.boot, &self.uploader);
            let Some(archived) = fed.session.archived_as() else {
                // The registry sets it before it feeds the first stream.
                continue;
            };
            let session = self.sessions.entry(id).or_insert_with(|| {
                let is_restored = fed.is_restored;
                let session = ArchivedSession::new(Arc::clone(&fed.session), archived, is_restored);
                let (key, day_object) = (archived.key, session.day_object(false).to_string());
                let document = session.created_document();
                uploader.open(id, key, boot, day_object, document, is_restored);
                session
            });
            session.add_stream(fed);
        }
    }

    /// Becomes the last owner of the sessions whose producers have come back.
    fn reclaim_sessions(&mut self) {
        for (id, session) in &mut self.sessions {
            if let Some(owner) = session.begin_reclaim() {
                self.requests += 1;
                let document = session.owner_document(self.boot, Timestamp::now());
                let key = session.record.session;
                self.uploader.reclaim(*id, key, owner, document);
            }
        }
    }

    // Commit objects.

    /// Begins commit objects for what has been published, if they are due.
    fn commit(&mut self, is_stopping: bool) {
        let pending: u64 = self
            .sessions
            .values_mut()
            .map(ArchivedSession::pending)
            .sum();
        let now = Instant::now();
        if pending == 0 && self.log.in_flight() == 0 {
            self.status.set_behind_since(None);
            self.last_commit = now;
            if now.duration_since(self.last_object) < ARCHIVE_BEACON_INTERVAL || is_stopping {
                return;
            }
            // Viewers of other relays wait for the streams of idle sessions.
            let mut sessions = self.sessions.values();
            if !sessions.any(ArchivedSession::has_new_beacons) {
                return;
            }
        } else {
            let oldest = self.log.oldest().map(|commit| commit.began);
            self.status
                .set_behind_since(Some(oldest.unwrap_or(self.last_commit).into_std()));
            let is_due = now.duration_since(self.last_commit) >= self.times.interval;
            if !(is_due || is_stopping || pending >= ARCHIVE_COMMIT_BYTES) {
                return;
            }
        }
        while self.log.in_flight() < MAX_ARCHIVE_COMMITS {
            match self.commit_one(now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    // What was to be in it is not in the next one.
                    let why = format!("a commit object cannot be made: {error}");
                    self.status.set_stopped(&why);
                    self.has_stopped = true;
                    break;
                }
            }
        }
    }

    /// Begins one commit object. Returns whether there may be more for another one.
    fn commit_one(&mut self, now: Instant) -> io::Result<bool> {
        let number = self.log.next();
        let mut object = ObjectWriter::new(ObjectRecord {
            kind: ObjectKind::Commit,
            boot: self.boot,
            number,
        })?;
        let (mut committed, mut has_beacons) = (Vec::new(), false);
        for (id, session) in &mut self.sessions {
            if object.raw_len() >= ARCHIVE_COMMIT_BYTES {
                break;
            }
            let has_new_beacons = session.has_new_beacons();
            if session.owner != Owner::Opening && (session.pending() > 0 || has_new_beacons) {
                let added = session.commit(&mut object, ARCHIVE_COMMIT_BYTES);
                committed.extend(added.map(|added| (*id, added)));
                has_beacons |= has_new_beacons;
            }
        }
        if committed.is_empty() && !has_beacons {
            return Ok(false);
        }
        let is_full = object.raw_len() >= ARCHIVE_COMMIT_BYTES;
        let bytes = object.finish()?;
        let ids: Vec<SessionId> = committed.iter().map(|(id, _)| *id).collect();
        let began = std::mem::replace(&mut self.last_commit, now);
        self.last_object = now;
        let sessions = committed;
        self.log.begin(ids, Commit { began, sessions });
        self.uploader
            .commit(number, self.boot.commit(number), bytes);
        Ok(is_full)
    }

    // What is done.

    fn handle(&mut self, done: Done) {
        match done {
            Done::Commit(number) => {
                let now = Instant::now();
                for commit in self.log.stored(number) {
                    for (id, committed) in commit.sessions {
                        if let Some(session) = self.sessions.get_mut(&id) {
                            session.acknowledge(&committed, now);
                        }
                    }
                }
                // Those with nothing but beacons are in no part.
                if number % COMMITS_BETWEEN_DELETIONS == 0 {
                    self.delete_commits();
                }
            }
            Done::Part(id) => {
                self.part_stored(id);
                self.begin_parts();
            }
            Done::Opened {
                session,
                owner,
                created,
                known,
            } => {
                let session = self.sessions.get_mut(&session);
                if session.is_some_and(|own| own.set_opened(owner, created, known)) {
                    self.status.count_taken_over();
                }
            }
            Done::Reclaimed { session, owner } => {
                self.requests -= 1;
                if let Some(session) = self.sessions.get_mut(&session) {
                    session.set_reclaimed(owner);
                }
            }
            Done::Ended(id) => {
                self.requests -= 1;
                if let Some(archived) = self.sessions.remove(&id) {
                    archived.session.release_from_archive();
                    info!(session = %archived.session, key = %archived.record.session, "session archived");
                }
            }
            Done::Deleted => self.requests -= 1,
            Done::Fenced => self.has_stopped = true,
        }
    }

    fn part_stored(&mut self, id: SessionId) {
        self.parts -= 1;
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        session.part_stored();
        if let Some(end) = session.covered_commits() {
            self.log.cover(id, end);
        }
        self.delete_commits();
    }

    /// Deletes the commit objects of which parts have all.
    fn delete_commits(&mut self) {
        let deletable = self.log.take_deletable();
        if !deletable.is_empty() {
            self.requests += 1;
            let names = deletable.map(|number| self.boot.commit(number));
            self.uploader.delete(names.collect());
        }
    }

    // Parts.

    /// Finds the sessions of which a part is due, and begins as many as may be on their way.
    fn write_parts(&mut self, is_stopping: bool) {
        let now = Instant::now();
        let is_last = is_stopping && self.log.in_flight() == 0;
        let part_age = self.times.part_age;
        let sessions = self.sessions.iter_mut();
        let due = sessions.filter_map(|(id, session)| {
            let is_due = session.is_part_due(now, part_age, is_last);
            is_due.then_some(*id)
        });
        self.due_parts = due.collect();
        self.begin_parts();
    }

    /// Begins the parts that are due, as long as few are on their way.
    fn begin_parts(&mut self) {
        while self.parts < MAX_ARCHIVE_PARTS
            && let Some(id) = self.due_parts.pop_front()
        {
            self.begin_part(id);
        }
    }

    fn begin_part(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let Owner::Number(owner) = session.owner else {
            return;
        };
        let object = ObjectWriter::new(ObjectRecord {
            kind: ObjectKind::Part,
            boot: self.boot,
            number: u64::from(session.next_part()),
        });
        let part = object.and_then(|object| session.part(object, Timestamp::now()));
        let Part {
            number,
            bytes,
            is_complete,
        } = match part {
            Ok(part) => part,
            Err(error) => return session.postpone_part(Instant::now(), error),
        };
        session.set_covered_commits(is_complete.then_some(self.log.acknowledged()));
        self.parts += 1;
        let object = SessionObject::Part { owner, number };
        let name = session.record.session.object(object);
        self.uploader.part(id, name, bytes);
    }

    /// Lists the ends of the sessions that are in parts.
    fn end_sessions(&mut self) {
        for (id, session) in &mut self.sessions {
            let Owner::Number(owner) = session.owner else {
                continue;
            };
            if session.is_archived() && session.begin_end() {
                self.requests += 1;
                let is_ended = session.is_ended_by_producer();
                let ended = (is_ended || !session.is_forsaken()).then(|| {
                    let name = session.day_object(true).to_string();
                    (name, session.ended_document(Timestamp::now()))
                });
                let key = session.record.session;
                self.uploader.end(*id, key, owner, is_ended, ended);
            }
        }
    }

    /// Whether nothing is left to be archived, and nothing on its way.
    fn is_idle(&mut self) -> bool {
        self.log.in_flight() == 0
            && self.parts == 0
            && self.requests == 0
            && self.sessions.values_mut().all(ArchivedSession::is_done)
    }
}
