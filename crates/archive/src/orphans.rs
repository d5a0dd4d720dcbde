//! Commit objects that a relay has left behind, because it died with its disk, become parts, so
//! that logs do not stay for ever and sessions are opened by few requests.
//!
//! Any relay may do this for any other, and several at once: blocks are copied as they are, copies
//! of a packet are identical for readers, and a commit object is deleted only after parts have all
//! that it has. A relay that was believed to be dead loses nothing by it either: its log goes on
//! after the objects that were deleted.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes as Buffer;
use thiserror::Error;

use crate::catalog::{
    CatalogError, list_commits, list_logs, owner_of_boot, read_directory, read_parts, read_run,
};
use crate::name::{BootId, MAX_NUMBER, SessionKey, SessionObject, parse_session_object};
use crate::object::{Directory, ObjectWriter};
use crate::record::{
    BlockPlace, ObjectKind, ObjectRecord, PacketsRecord, Record, SessionRecord, StreamKey,
};
use crate::session::coverage::Coverage;
use crate::store::{
    CreateError, Listed, RetryPolicy, Store, StoreError, StoreErrorKind, create_once,
};

/// Number of the first part that other relays make of an owner's log: its own parts count from 0.
const FIRST_PART: u32 = 50_000_000;

/// Stored bytes of blocks with which a part is complete.
const PART_BYTES: u64 = 64 << 20;

/// Stored bytes of blocks that are read by one request.
const RUN_BYTES: u64 = 4 << 20;

/// Bytes of decoded directories with which a round ends. The next one goes on from there.
const ROUND_BYTES: u64 = 64 << 20;

/// What was done with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Number of parts that were written.
    pub parts: u64,
    /// Number of commit objects that were deleted.
    pub commits: u64,
}

/// The reason why a log could not be moved to parts. What was not moved stays where it was.
#[derive(Debug, Error)]
pub enum MoveError {
    /// An object cannot be read.
    #[error(transparent)]
    Read(#[from] CatalogError),
    /// A commit object cannot be deleted.
    #[error(transparent)]
    Delete(#[from] StoreError),
    /// A part cannot be created. If it exists, another relay is moving this log.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// No object says that the relay has served a session of its log.
    #[error("its relay is no owner of session {0}")]
    NoOwner(SessionKey),
    /// Parts have all numbers.
    #[error("session {0} has too many parts")]
    NoNumber(SessionKey),
    /// A part cannot be made.
    #[error(transparent)]
    Make(#[from] std::io::Error),
}

/// The commit objects of one log that are moved together.
struct Log<'a> {
    store: &'a dyn Store,
    boot: BootId,
    commits: Vec<(Arc<str>, Directory)>,
    moved: Moved,
}

/// A block of a commit object, with its record, which becomes a block of a part.
struct Source<'a> {
    object: &'a Arc<str>,
    record: &'a Record,
    place: BlockPlace,
}

/// What the commit objects have of a session and parts have not.
#[derive(Default)]
struct Missing<'a> {
    session: Option<&'a SessionRecord>,
    /// Records without blocks, each once.
    records: Vec<&'a Record>,
    has_news: bool,
    sources: Vec<Source<'a>>,
}

/// The logs to which nothing was added since a time, but for that of the caller.
///
/// # Errors
/// If the store fails.
pub async fn find_orphans(
    store: &dyn Store,
    own: BootId,
    since: SystemTime,
) -> Result<Vec<BootId>, CatalogError> {
    let mut orphans = Vec::new();
    for boot in list_logs(store).await? {
        let commits = list_commits(store, boot).await?;
        let newest = commits.iter().map(|commit| commit.modified).max();
        if boot != own && newest.is_some_and(|newest| newest < since) {
            orphans.push(boot);
        }
    }
    Ok(orphans)
}

/// Moves a log to parts, object by object from the first on.
///
/// # Errors
/// If the store fails, an object is damaged, or another relay moves the same log.
pub async fn move_orphan(store: &dyn Store, boot: BootId) -> Result<Moved, MoveError> {
    let mut moved = Moved::default();
    loop {
        let (commits, is_all) = read_commits(store, list_commits(store, boot).await?).await?;
        let mut log = Log {
            store,
            boot,
            commits,
            moved,
        };
        log.move_round().await?;
        moved = log.moved;
        if is_all {
            return Ok(moved);
        }
    }
}

/// Reads directories of the first commit objects. Returns whether they are all.
async fn read_commits(
    store: &dyn Store,
    listed: Vec<Listed>,
) -> Result<(Vec<(Arc<str>, Directory)>, bool), CatalogError> {
    let (mut commits, mut bytes) = (Vec::new(), 0);
    for object in &listed {
        let (directory, len) = read_directory(store, object).await?;
        commits.push((object.name.as_str().into(), directory));
        bytes += len;
        if bytes >= ROUND_BYTES {
            break;
        }
    }
    let is_all = commits.len() == listed.len();
    Ok((commits, is_all))
}

impl Log<'_> {
    /// Moves the sessions one after the other, and deletes the commit objects.
    async fn move_round(&mut self) -> Result<(), MoveError> {
        let records = self.commits.iter().flat_map(|(_, own)| &own.records);
        let sessions: BTreeSet<SessionKey> = records
            .filter_map(|record| match record {
                Record::Session(session) => Some(session.session),
                _ => None,
            })
            .collect();
        for session in sessions {
            self.moved.parts += self.move_session(session).await?;
        }
        for (name, _) in &self.commits {
            match self.store.delete(name).await {
                Err(error) if error.kind != StoreErrorKind::NotFound => return Err(error.into()),
                _ => self.moved.commits += 1,
            }
        }
        Ok(())
    }

    /// Writes what parts have not of a session. Returns the number of parts.
    async fn move_session(&self, session: SessionKey) -> Result<u64, MoveError> {
        let (names, parts) = read_parts(self.store, session).await?;
        let missing = self.missing(session, &parts);
        let Some(record) = missing.session else {
            return Ok(0);
        };
        let owner = owner_of_boot(self.store, session, self.boot).await?;
        let owner = owner.ok_or(MoveError::NoOwner(session))?;
        let used = names
            .iter()
            .filter_map(|name| match parse_session_object(name).ok()?.1 {
                SessionObject::Part { owner: of, number } if of == owner => Some(number),
                _ => None,
            });
        let used: HashSet<u32> = used.collect();
        // Not after the highest one: others may have put a part with the last number there.
        let mut free = (FIRST_PART..=MAX_NUMBER).filter(|number| !used.contains(number));
        let (mut sources, mut written) = (&missing.sources[..], 0);
        loop {
            let number = free.next().ok_or(MoveError::NoNumber(session))?;
            let mut stored = 0;
            let len = sources.iter().take_while(|source| {
                let has_room = stored < PART_BYTES;
                stored += u64::from(source.place.stored);
                has_room
            });
            let (now, later) = sources.split_at(len.count());
            let part = self.part(number, record, &missing.records, now).await?;
            let name = session.object(SessionObject::Part { owner, number });
            create_once(self.store, &name, &part, RetryPolicy::default()).await?;
            (written, sources) = (written + 1, later);
            if sources.is_empty() {
                return Ok(written);
            }
        }
    }

    /// Finds out what parts have not. Without news there is no session in it.
    fn missing(&self, session: SessionKey, parts: &[Directory]) -> Missing<'_> {
        let mut known = HashSet::new();
        let mut packets: BTreeMap<u64, Coverage> = BTreeMap::new();
        let parts = parts.iter().flat_map(|part| of_session(part, session));
        for record in parts {
            match record {
                Record::Packets(record) => _ = cover(&mut packets, record),
                record => _ = known.insert(encoded(record)),
            }
        }
        let mut missing = Missing::default();
        for (object, directory) in &self.commits {
            for record in of_session(directory, session) {
                let place = match record {
                    Record::Session(record) => {
                        missing.session.get_or_insert(record);
                        continue;
                    }
                    Record::Packets(record) if cover(&mut packets, record) => record.block,
                    Record::Packets(_) => continue,
                    Record::Metadata(record) => record.block,
                    record => {
                        missing.add(record, &mut known);
                        continue;
                    }
                };
                missing.has_news = true;
                missing.sources.push(Source {
                    object,
                    record,
                    place,
                });
            }
        }
        if !missing.has_news {
            missing.session = None;
        }
        missing
            .sources
            .sort_by_key(|source| stream_of(source.record));
        missing
    }

    /// Makes a part of blocks of commit objects.
    async fn part(
        &self,
        number: u32,
        session: &SessionRecord,
        records: &[&Record],
        mut sources: &[Source<'_>],
    ) -> Result<Buffer, MoveError> {
        let mut part = ObjectWriter::new(ObjectRecord {
            kind: ObjectKind::Part,
            boot: self.boot,
            number: u64::from(number),
        })?;
        part.add_record(&Record::Session(session.clone()));
        records.iter().for_each(|record| part.add_record(record));
        while let Some(first) = sources.first() {
            let mut end = first.place.end();
            let follows = sources.iter().skip(1).take_while(|next| {
                let is_next = Arc::ptr_eq(next.object, first.object)
                    && Some(next.place.offset.0) == end
                    && next.place.offset.0 - first.place.offset.0 < RUN_BYTES;
                end = next.place.end();
                is_next
            });
            let (run, later) = sources.split_at(1 + follows.count());
            sources = later;
            let places: Vec<_> = run.iter().map(|source| source.place).collect();
            let blocks = read_run(self.store, first.object, &places).await?;
            for source in run {
                part.add_stored(source.record, blocks.checked(&source.place)?)?;
            }
        }
        Ok(part.finish()?)
    }
}

impl<'a> Missing<'a> {
    /// Adds a record without block, once.
    fn add(&mut self, record: &'a Record, known: &mut HashSet<Vec<u8>>) {
        let bytes = encoded(record);
        let is_stream = matches!(record, Record::Stream(_));
        // Each part has the names of streams, also of those that other parts have named.
        let is_new = known.insert(bytes);
        if is_new || (is_stream && !self.records.contains(&record)) {
            self.has_news |= is_new;
            self.records.push(record);
        }
    }
}

/// The records about a session, with that of the session.
fn of_session(directory: &Directory, session: SessionKey) -> impl Iterator<Item = &Record> {
    let mut is_of_session = false;
    directory.records.iter().filter(move |record| {
        if let Record::Session(record) = record {
            is_of_session = record.session == session;
        }
        is_of_session
    })
}

/// Records that packets were found. Returns whether some of them are new.
fn cover(packets: &mut BTreeMap<u64, Coverage>, record: &PacketsRecord) -> bool {
    let end = record.first.0.saturating_add(u64::from(record.count));
    let known = packets.entry(record.stream).or_default();
    !known.insert(record.first.0, end).is_empty()
}

/// The order of the blocks of a part: metadata first, then stream by stream.
fn stream_of(record: &Record) -> (StreamKey, u64) {
    let (number, first, is_metadata) = match record {
        Record::Packets(record) => (record.stream, record.first.0, false),
        Record::Metadata(record) => (record.stream, record.offset.0, true),
        _ => (0, 0, false),
    };
    let key = StreamKey {
        number,
        is_metadata,
    };
    (key, first)
}

fn encoded(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests;
