//! The requests of an archiver, which run beside it: objects are created until that succeeds,
//! however long the store is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use archive::catalog::{self, OpenedSession, SessionTotal};
use archive::document::{
    CreatedDocument, EndedDocument, MAX_DOCUMENT_BYTES, OwnerDocument, to_json,
};
use archive::name::{BootId, MAX_NUMBER, SessionKey, SessionObject, parse_session_object};
use archive::store::{CreateError, ProbeError, RetryPolicy, Store, StoreError, StoreErrorKind};
use archive::store::{create_once, probe};
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;
use tracing::warn;
use wire::SessionId;

use super::known::KnownSession;
use super::status::{ArchiveStatus, RequestResult};
use super::totals::Totals;
use super::{ArchiveTimes, orphans};
use crate::limits::{ARCHIVE_REFUSED_INTERVAL, MAX_ARCHIVE_REQUESTS};

/// Maximum number of objects of one session that are listed to find its owners.
const MAX_SESSION_OBJECTS: usize = 1 << 20;

/// Number of times that the deletion of an object is tried.
const MAX_DELETE_ATTEMPTS: usize = 5;

/// A request that is done.
#[derive(Debug)]
pub(crate) enum Done {
    /// A commit object is stored.
    Commit(u64),
    /// A part of a session is stored.
    Part(SessionId),
    /// The objects by which a session is found are stored. `created` is the time of its creation.
    Opened {
        session: SessionId,
        owner: u32,
        created: u64,
        known: KnownSession,
    },
    /// This relay is the last owner of a session again, with this number.
    Reclaimed { session: SessionId, owner: u32 },
    /// The object that says that a session has ended is stored.
    Ended(SessionId),
    /// Commit objects are deleted.
    Deleted,
    /// Another relay has written an object of this one: nothing must be acknowledged any more.
    Fenced,
}

/// Makes requests. Clones share what they have.
#[derive(Debug, Clone)]
pub(super) struct Uploader {
    store: Arc<dyn Store>,
    status: Arc<ArchiveStatus>,
    done: UnboundedSender<Done>,
    /// Bounds the requests that open and end sessions, of which there may be thousands at once.
    permits: Arc<Semaphore>,
    totals: Arc<Totals>,
}

/// The object exists, and is not ours.
struct Foreign;

impl Uploader {
    pub(super) fn new(
        store: Arc<dyn Store>,
        status: Arc<ArchiveStatus>,
        done: UnboundedSender<Done>,
    ) -> Self {
        Self {
            store,
            status,
            done,
            permits: Arc::new(Semaphore::new(MAX_ARCHIVE_REQUESTS)),
            totals: Arc::default(),
        }
    }

    fn send(&self, done: Done) {
        // Nobody receives it if the relay has stopped.
        let _ = self.done.send(done);
    }

    /// Probes the store until that succeeds.
    ///
    /// # Errors
    /// If the store cannot be relied on.
    pub(super) async fn probe(&self) -> Result<(), ProbeError> {
        loop {
            match probe(&*self.store).await {
                Err(ProbeError::Store(error)) => {
                    self.pause(&error).await;
                    // A probe makes many requests.
                    tokio::time::sleep(ARCHIVE_REFUSED_INTERVAL).await;
                }
                probed => return probed.map(|_| ()),
            }
        }
    }

    /// Moves the logs of relays that are gone to parts, until the relay ends.
    pub(super) fn move_orphans(&self, boot: BootId, times: ArchiveTimes) {
        let (store, status) = (Arc::clone(&self.store), Arc::clone(&self.status));
        tokio::spawn(orphans::move_orphans(store, status, boot, times));
    }

    /// Creates an object, however often it takes.
    async fn create(&self, name: &str, bytes: &Bytes, is_part: bool) -> Result<(), Foreign> {
        let began = Instant::now();
        let policy = RetryPolicy {
            // After that the failure is reported, and the object tried again.
            timeout: ARCHIVE_REFUSED_INTERVAL,
            ..RetryPolicy::default()
        };
        loop {
            match create_once(&*self.store, name, bytes, policy).await {
                Ok(()) => {
                    let (len, took) = (bytes.len() as u64, began.elapsed());
                    self.status.count_stored(len, is_part, took);
                    return Ok(());
                }
                Err(CreateError::Foreign { .. }) => return Err(Foreign),
                Err(CreateError::Store(error)) => self.pause(&error).await,
            }
        }
    }

    /// Waits after a failed request.
    async fn pause(&self, error: &StoreError) {
        let result = match error.kind {
            StoreErrorKind::Unknown => RequestResult::Unknown,
            _ => RequestResult::Refused,
        };
        self.status.count_failure(result, error);
        // What is unknown was tried again for a while already.
        let pause = match result {
            RequestResult::Unknown => Duration::from_millis(100),
            _ => ARCHIVE_REFUSED_INTERVAL,
        };
        tokio::time::sleep(pause).await;
    }

    pub(super) fn commit(&self, number: u64, name: String, bytes: Bytes) {
        let own = self.clone();
        tokio::spawn(async move {
            own.send(match own.create(&name, &bytes, false).await {
                Ok(()) => Done::Commit(number),
                Err(Foreign) => own.fenced(&name),
            });
        });
    }

    pub(super) fn part(&self, session: SessionId, name: String, bytes: Bytes) {
        let own = self.clone();
        tokio::spawn(async move {
            own.send(match own.create(&name, &bytes, true).await {
                Ok(()) => Done::Part(session),
                Err(Foreign) => own.fenced(&name),
            });
        });
    }

    fn fenced(&self, name: &str) -> Done {
        let why = format!("another relay has written {name}, in the log of this one");
        self.status.set_stopped(&why);
        Done::Fenced
    }

    /// Creates the objects by which a session is found.
    pub(super) fn open(
        &self,
        session: SessionId,
        key: SessionKey,
        boot: BootId,
        day_object: String,
        document: CreatedDocument,
        is_restored: bool,
    ) {
        let own = self.clone();
        tokio::spawn(async move {
            let _permit = own.permits.acquire().await;
            let created = own.first_created(key).await;
            let first = created.unwrap_or(document.created);
            if created.is_none() {
                // Before the owner: a session that has one is listed.
                let listed = own.create(&day_object, &to_json(&document), false).await;
                if listed.is_err() {
                    warn!(
                        object = day_object,
                        "session listed by another relay already"
                    );
                }
            }
            let owner = OwnerDocument {
                boot: boot.to_string(),
                since: document.created,
                created: first,
            };
            let number = own.claim(key, &owner, own.last_owner(key).await + 1).await;
            // What a producer sends to a new session again is little: it is not looked up, because
            // nothing is acknowledged meanwhile.
            let known = if is_restored && number > 1 {
                KnownSession::of(&own.opened(key).await)
            } else {
                KnownSession::default()
            };
            own.send(Done::Opened {
                session,
                owner: number,
                created: first,
                known,
            });
        });
    }

    /// Makes this relay the last owner of a session again, because its producer has come back, and
    /// may have been at another relay meanwhile: otherwise nobody would list its end.
    pub(super) fn reclaim(
        &self,
        session: SessionId,
        key: SessionKey,
        owner: u32,
        document: OwnerDocument,
    ) {
        let own = self.clone();
        tokio::spawn(async move {
            let _permit = own.permits.acquire().await;
            let last = own.last_owner(key).await;
            let owner = match last == owner {
                true => owner,
                false => own.claim(key, &document, last + 1).await,
            };
            own.send(Done::Reclaimed { session, owner });
        });
    }

    /// Makes this relay an owner of a session, with the first number that is free. Returns the
    /// number.
    async fn claim(&self, key: SessionKey, document: &OwnerDocument, first: u32) -> u32 {
        let json = to_json(document);
        let mut number = first;
        loop {
            // Others may have put an owner with the last number there.
            number = if number > MAX_NUMBER { 1 } else { number };
            let name = key.object(SessionObject::Owner(number));
            if self.create(&name, &json, false).await.is_ok() {
                return number;
            }
            number += 1;
        }
    }

    /// What the archive has of a session.
    async fn opened(&self, key: SessionKey) -> OpenedSession {
        loop {
            match catalog::open_session(&*self.store, key).await {
                Ok(opened) => return opened,
                Err(error) => {
                    warn!(session = %key, %error, "session not read from the archive: it is tried again");
                    tokio::time::sleep(ARCHIVE_REFUSED_INTERVAL).await;
                }
            }
        }
    }

    /// Number of the last owner of a session. 0: it has none.
    async fn last_owner(&self, key: SessionKey) -> u32 {
        self.owners(key).await.into_iter().max().unwrap_or(0)
    }

    /// Numbers of the owners of a session.
    async fn owners(&self, key: SessionKey) -> Vec<u32> {
        let prefix = key.prefix();
        let listed = loop {
            match self.store.list(&prefix, None, MAX_SESSION_OBJECTS).await {
                Ok(listed) => break listed,
                Err(error) => self.pause(&error).await,
            }
        };
        let owners = listed.iter().filter_map(|listed| {
            let (_, object) = parse_session_object(&listed.name).ok()?;
            match object {
                SessionObject::Owner(number) => Some(number),
                SessionObject::Part { .. } => None,
            }
        });
        owners.collect()
    }

    /// Time at which a session was created, of which the archive has an owner already.
    async fn first_created(&self, key: SessionKey) -> Option<u64> {
        let name = key.object(SessionObject::Owner(1));
        loop {
            match self.store.get(&name, MAX_DOCUMENT_BYTES).await {
                Ok(owner) => return OwnerDocument::parse(&owner).map(|owner| owner.created),
                Err(error) if error.kind == StoreErrorKind::NotFound => return None,
                Err(error) => self.pause(&error).await,
            }
        }
    }

    /// Says that a session has ended, by an object with this name and document. Unless its producer
    /// has ended it, another relay may serve it by now; then this relay says nothing. None: it has
    /// not ended, but this relay has no more of it.
    pub(super) fn end(
        &self,
        session: SessionId,
        key: SessionKey,
        owner: u32,
        is_ended_by_producer: bool,
        ended: Option<(String, EndedDocument)>,
    ) {
        let own = self.clone();
        // Before the permit, so that all that wait are counted together.
        if owner > 1 {
            self.totals.announce(key);
        }
        tokio::spawn(async move {
            let _permit = own.permits.acquire().await;
            if let Some((name, document)) = ended
                && (is_ended_by_producer || own.has_had_it_last(owner, key).await)
            {
                let document = own.total(key, owner, document).await;
                // That of another relay says the same.
                let _ = own.create(&name, &to_json(&document), false).await;
            } else if owner > 1 {
                own.totals.forget(key).await;
            }
            own.send(Done::Ended(session));
        });
    }

    /// Whether the producer of a session was at no other relay after this owner, and has not opened
    /// the session here again. Numbers of owners do not say it: a relay that was stopped may become
    /// an owner when the producer is elsewhere.
    async fn has_had_it_last(&self, own: u32, key: SessionKey) -> bool {
        let mut last = None;
        for number in self.owners(key).await {
            let name = key.object(SessionObject::Owner(number));
            let document = loop {
                match self.store.get(&name, MAX_DOCUMENT_BYTES).await {
                    Ok(bytes) => break OwnerDocument::parse(&bytes),
                    Err(error) if error.kind == StoreErrorKind::NotFound => break None,
                    Err(error) => self.pause(&error).await,
                }
            };
            last = last.max(document.map(|document| (document.since, number)));
        }
        last.is_none_or(|(_, number)| number == own)
    }

    /// Adds what earlier owners have archived of a session to the numbers of its last one.
    async fn total(&self, key: SessionKey, owner: u32, own: EndedDocument) -> EndedDocument {
        if owner == 1 {
            return own;
        }
        match self.totals.count(&*self.store, key).await {
            Some(SessionTotal { packets, bytes }) => EndedDocument {
                packets,
                bytes,
                ..own
            },
            None => own,
        }
    }

    /// Deletes commit objects that are in parts, one after the other.
    pub(super) fn delete(&self, names: Vec<String>) {
        let own = self.clone();
        tokio::spawn(async move {
            for name in names {
                if let Err(error) = own.delete_one(&name).await {
                    // It stays: readers find its packets in parts, and ignore it.
                    warn!(%error, "commit object not deleted");
                }
            }
            own.send(Done::Deleted);
        });
    }

    async fn delete_one(&self, name: &str) -> Result<(), StoreError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.store.delete(name).await {
                Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(()),
                Err(error) if error.is_unknown() && attempts < MAX_DELETE_ATTEMPTS => {
                    self.pause(&error).await;
                }
                deleted => return deleted,
            }
        }
    }
}
