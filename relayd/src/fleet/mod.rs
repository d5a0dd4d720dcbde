//! The sessions that other relays have put into the archive, and those that have ended, for viewers
//! of this relay. Relays of one archive need no connection to each other.
//!
//! Read in this order: `list` (which sessions there are), `copy_writer` (packets become a session
//! of this relay), `copy` (one session, followed in the archive while viewers are attached to it),
//! [`Fleet`] here.

mod copy;
mod copy_writer;
mod list;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use archive::catalog::last_owner;
use archive::name::SessionKey;
use archive::store::Store;
use daemon::error_text::describe_error;
use parking_lot::Mutex;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use viewer_proto::relay::Awaited;
use viewer_proto::session::{ListedSession, Seek};
use wire::SessionId;

use self::copy::SessionCopy;
use self::list::FleetList;
use crate::archiver::status::ArchiveStatus;
use crate::limits::{
    FLEET_ANSWER_TIMEOUT, FLEET_FILES, FLEET_LIST_INTERVAL, FLEET_STOP_TIMEOUT, MAX_SESSION_COPIES,
    MAX_SESSIONS_LOOKED_FOR,
};
use crate::publish::subscription::{Subscription, Subscriptions};
use crate::registry::Registry;
use crate::registry::session::Session;
use crate::store::pool::Pool;

/// The directory of copies, below the output.
const DIRECTORY: [&str; 2] = [".relayd", "copies"];

/// The sessions of an archive, as a relay shows them to its viewers.
#[derive(Debug)]
pub struct Fleet {
    store: Arc<dyn Store>,
    status: Arc<ArchiveStatus>,
    /// Directory of the copies.
    directory: PathBuf,
    pool: Arc<Pool>,
    state: Mutex<State>,
    /// Asks for a refresh of the list.
    wanted: Notify,
    /// Counts the refreshes.
    refreshes: watch::Sender<u64>,
    runtime: Handle,
    /// Number of connections of viewers.
    viewers: AtomicUsize,
    subscriptions: Mutex<Subscriptions>,
    /// The relay's own sessions. Empty: it is not started.
    registry: OnceLock<Weak<Registry>>,
    stop: CancellationToken,
    /// The threads that are waited for when the relay stops.
    threads: TaskTracker,
}

#[derive(Debug)]
struct State {
    list: FleetList,
    /// Time of the last attempt to refresh the list, whether it has succeeded or not.
    attempted: Option<Instant>,
    /// Whether the list could not be refreshed, or not in time.
    is_unavailable: bool,
    copies: Vec<Arc<SessionCopy>>,
    /// The sessions for which no copy can be made, for viewers that wait.
    refused: BTreeSet<SessionId>,
    next_copy: u64,
}

/// The threads that read the archive for viewers. Dropping it ends them.
#[derive(Debug)]
pub struct FleetThreads {
    runtime: Option<Runtime>,
    fleet: Arc<Fleet>,
}

/// A connection of a viewer: while there is one, the list is kept fresh.
#[derive(Debug)]
pub struct FleetViewer(Arc<Fleet>);

impl FleetThreads {
    /// Starts the threads, which count in `status`. `output` is that of the relay. Sessions that
    /// ended longer than `listed_for` ago are not shown.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(
        store: Arc<dyn Store>,
        status: Arc<ArchiveStatus>,
        output: &std::path::Path,
        listed_for: Duration,
    ) -> io::Result<Self> {
        let mut directory = output.to_owned();
        directory.extend(DIRECTORY);
        // Those of a relay that was killed.
        let _ = std::fs::remove_dir_all(&directory);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fleet-io")
            .enable_all()
            .build()?;
        let fleet = Arc::new(Fleet {
            store,
            status,
            directory,
            pool: Pool::new(FLEET_FILES),
            state: Mutex::new(State {
                list: FleetList::new(listed_for),
                attempted: None,
                is_unavailable: false,
                copies: Vec::new(),
                refused: BTreeSet::new(),
                next_copy: 0,
            }),
            wanted: Notify::new(),
            refreshes: watch::Sender::new(0),
            runtime: runtime.handle().clone(),
            viewers: AtomicUsize::new(0),
            subscriptions: Mutex::default(),
            registry: OnceLock::new(),
            stop: CancellationToken::new(),
            threads: TaskTracker::new(),
        });
        let own = Arc::clone(&fleet);
        fleet.spawn("fleet", move || {
            let refreshing = own.stop.run_until_cancelled(own.keep_fresh());
            own.runtime.block_on(refreshing);
        })?;
        Ok(Self {
            runtime: Some(runtime),
            fleet,
        })
    }

    /// The sessions, for viewers of the relay with these of its own, which are looked for at other
    /// relays when their producers are gone.
    #[must_use]
    pub fn fleet_of(&self, own: &Arc<Registry>) -> Arc<Fleet> {
        self.fleet.registry.get_or_init(|| Arc::downgrade(own));
        Arc::clone(&self.fleet)
    }
}

impl Drop for FleetThreads {
    fn drop(&mut self) {
        self.fleet.stop.cancel();
        self.fleet.threads.close();
        let Some(runtime) = self.runtime.take() else {
            return;
        };
        // Only threads in a file call that hangs do not end soon.
        let ended = runtime.block_on(async {
            tokio::time::timeout(FLEET_STOP_TIMEOUT, self.fleet.threads.wait()).await
        });
        if ended.is_err() {
            warn!("copies of sessions of the archive not removed: a file call hangs");
            // They may use it until the process ends.
            std::mem::forget(runtime);
            return;
        }
        runtime.shutdown_background();
    }
}

impl Drop for FleetViewer {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fleet {
    /// Counts a connection of a viewer.
    #[must_use]
    pub fn add_viewer(self: &Arc<Self>) -> FleetViewer {
        self.viewers.fetch_add(1, Ordering::Relaxed);
        FleetViewer(Arc::clone(self))
    }

    /// Subscribes to changes of the list.
    pub fn subscribe(&self, subscription: &Arc<Subscription>) {
        self.subscriptions.lock().add(subscription);
    }

    /// Removes a subscription. One that was not added is no error.
    pub fn unsubscribe(&self, subscription: &Arc<Subscription>) {
        self.subscriptions.lock().remove(subscription);
    }

    /// Whether [`prepare`](Self::prepare) is to be awaited.
    #[must_use]
    pub fn must_await(&self, awaited: Awaited) -> bool {
        let state = self.state.lock();
        match awaited {
            Awaited::Sessions => state.is_stale(Instant::now()),
            Awaited::Session(id, seek) => {
                let copy = state.copy(id, state.begin(id, seek));
                state.list.key_of(id).is_some()
                    && !state.refused.contains(&id)
                    && copy.is_none_or(|copy| !copy.is_ready())
            }
        }
    }

    /// Looks up what a command of a viewer needs. Failures are logged.
    pub async fn prepare(self: &Arc<Self>, awaited: Awaited) {
        let prepared = async {
            match awaited {
                Awaited::Sessions => self.wait_for_refresh().await,
                Awaited::Session(id, seek) => self.prepare_copy(id, seek).await,
            }
        };
        let prepared = tokio::time::timeout(FLEET_ANSWER_TIMEOUT, prepared).await;
        if prepared.is_err() || self.must_await(awaited) {
            let mut state = self.state.lock();
            match awaited {
                // Until it answers, nobody waits for it.
                Awaited::Sessions => state.is_unavailable = true,
                Awaited::Session(id, _) => _ = state.refused.insert(id),
            }
        }
    }

    /// The sessions, in the order of their ids, without those of `shown`.
    #[must_use]
    pub fn sessions(&self, shown: &BTreeSet<SessionKey>) -> Vec<ListedSession> {
        let state = self.state.lock();
        let listed = state.list.listed(shown);
        let listed = listed.map(|mut listed| {
            let copies = state.copies.iter();
            let copies = copies.filter(|copy| copy.id() == listed.session);
            for session in copies.filter_map(|copy| copy.session()) {
                listed.viewers += session.viewers().attached();
                let streams = u32::try_from(session.published_streams());
                listed.streams = streams.unwrap_or(u32::MAX);
            }
            listed
        });
        listed.collect()
    }

    /// Time at which a session of the archive was created, in nanoseconds since 1970. None: it is
    /// not listed.
    #[must_use]
    pub fn created(&self, key: SessionKey) -> Option<u64> {
        self.state.lock().list.created(key)
    }

    /// A session that is listed.
    #[must_use]
    pub fn find(&self, id: SessionId) -> Option<ListedSession> {
        self.state.lock().list.get(id)
    }

    /// The copy of a session, once it is [prepared](Self::prepare), and where a viewer begins in
    /// it: one that seeks the end of a session that has ended is shown all of it.
    #[must_use]
    pub fn session(&self, id: SessionId, seek: Seek) -> Option<(Arc<Session>, Seek)> {
        let mut state = self.state.lock();
        // A viewer that asks again may have more luck.
        state.refused.remove(&id);
        let begin = state.begin(id, seek);
        // It may have ended since it was prepared.
        let copy = state.copy(id, begin).or_else(|| state.copy(id, seek))?;
        copy.touch();
        Some((copy.session()?, copy.begin()))
    }

    /// Waits until the list has been refreshed.
    async fn wait_for_refresh(&self) {
        let mut refreshes = self.refreshes.subscribe();
        self.wanted.notify_one();
        // The sender lives as long as this.
        let _ = refreshes.changed().await;
    }

    async fn refresh(&self) {
        let (wanted, known) = self.state.lock().list.wanted();
        let read = list::read(&*self.store, wanted, known).await;
        let mut state = self.state.lock();
        state.attempted = Some(Instant::now());
        let was_unavailable = std::mem::replace(&mut state.is_unavailable, read.is_err());
        match read {
            Ok(read) => {
                if state.list.update(read) {
                    self.subscriptions.lock().notify();
                }
            }
            Err(error) => {
                self.status.count_list_failure();
                if !was_unavailable {
                    let error = describe_error(&error);
                    warn!(%error, "sessions of other relays not listed: the archive cannot be read");
                }
            }
        }
        drop(state);
        self.refreshes.send_modify(|count| *count += 1);
    }

    /// Waits until the copy of a session is ready, which is begun if there is none.
    async fn prepare_copy(self: &Arc<Self>, id: SessionId, seek: Seek) {
        let copy = match self.begin_copy(id, seek) {
            Ok(Some(copy)) => copy,
            Ok(None) => return,
            Err(error) => {
                self.status.count_copy_failure();
                warn!(%error, "session of the archive not copied for viewers");
                return;
            }
        };
        copy.wait_until_ready().await;
    }

    fn begin_copy(
        self: &Arc<Self>,
        id: SessionId,
        seek: Seek,
    ) -> io::Result<Option<Arc<SessionCopy>>> {
        let mut state = self.state.lock();
        let begin = state.begin(id, seek);
        if let Some(copy) = state.copy(id, begin) {
            return Ok(Some(Arc::clone(copy)));
        }
        let Some(listed) = state.list.document_of(id) else {
            return Ok(None);
        };
        if state.copies.len() >= MAX_SESSION_COPIES {
            let limit = format!("viewers watch {MAX_SESSION_COPIES} others");
            return Err(io::Error::other(limit));
        }
        state.next_copy += 1;
        let directory = self.directory.join(state.next_copy.to_string());
        let copy = SessionCopy::new((id, begin), listed, directory, Arc::clone(&self.pool));
        let (fleet, own) = (Arc::clone(self), Arc::clone(&copy));
        self.spawn("fleet-copy", move || {
            let following = fleet.stop.run_until_cancelled(own.follow(&fleet));
            fleet.runtime.block_on(following);
            let mut state = fleet.state.lock();
            state.copies.retain(|other| !Arc::ptr_eq(other, &own));
            fleet.status.set_copies(state.copies.len());
            drop(state);
            own.remove();
        })?;
        state.copies.push(Arc::clone(&copy));
        self.status.set_copies(state.copies.len());
        Ok(Some(copy))
    }

    /// Starts a thread, which is waited for when the relay stops.
    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let token = self.threads.token();
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            run();
            drop(token);
        })?;
        Ok(())
    }

    /// Whether the end of a session is listed.
    pub(super) fn has_ended(&self, id: SessionId) -> bool {
        self.state.lock().list.has_ended(id)
    }

    pub(super) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(super) fn status(&self) -> &ArchiveStatus {
        &self.status
    }

    /// Refreshes the list when it is asked for, and from time to time while viewers are connected.
    async fn keep_fresh(&self) {
        let mut ticks = tokio::time::interval(FLEET_LIST_INTERVAL);
        loop {
            tokio::select! {
                () = self.wanted.notified() => {}
                _ = ticks.tick() => {}
            }
            let is_watched = self.viewers.load(Ordering::Relaxed) > 0;
            if is_watched || !self.state.lock().copies.is_empty() {
                self.refresh().await;
            }
            self.find_moved(is_watched).await;
        }
    }

    /// Finds the sessions whose producers have left for another relay.
    async fn find_moved(&self, has_viewers: bool) {
        let Some(registry) = self.registry.get().and_then(Weak::upgrade) else {
            return;
        };
        let Some(boot) = registry.boot() else { return };
        let mut sessions = registry.sessions();
        drop(registry);
        sessions.retain(|session| {
            let is_watched = has_viewers || session.viewers().attached() > 0;
            is_watched && session.is_detached() && !session.is_partial()
        });
        // Some at a time, of which those whose producers are dead are not the same each time.
        fastrand::shuffle(&mut sessions);
        sessions.truncate(MAX_SESSIONS_LOOKED_FOR);
        for session in sessions {
            let Some(archived) = session.archived_as() else {
                continue;
            };
            let owner = last_owner(&*self.store, archived.key).await;
            if owner.is_ok_and(|owner| owner.is_some_and(|owner| owner != boot)) {
                info!(%session, "session goes on at another relay: its viewers are disconnected");
                session.set_partial();
            }
        }
    }
}

impl State {
    /// Where the copy for a viewer begins: a session that has ended is shown as a whole.
    fn begin(&self, id: SessionId, seek: Seek) -> Seek {
        if self.list.has_ended(id) {
            Seek::Beginning
        } else {
            seek
        }
    }

    fn copy(&self, id: SessionId, begin: Seek) -> Option<&Arc<SessionCopy>> {
        let mut copies = self.copies.iter();
        copies.find(|copy| copy.id() == id && copy.begin() == begin)
    }

    /// Whether the list is to be refreshed before a viewer gets it.
    fn is_stale(&self, now: Instant) -> bool {
        let attempted = self.attempted;
        let is_old = attempted.is_none_or(|at| now.duration_since(at) >= FLEET_LIST_INTERVAL);
        is_old && !self.is_unavailable
    }
}
