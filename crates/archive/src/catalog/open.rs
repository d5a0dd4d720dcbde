//! Opens a session: the directories of its parts, and of the commit objects that have what is in no
//! part, become one view.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::error::CatalogError;
use super::list::read_document;
use super::request;
use crate::document::OwnerDocument;
use crate::name::{BootId, LOG, SessionKey, SessionObject, parse_commit, parse_session_object};
use crate::object::{Directory, Footer, MAX_DIRECTORY_BYTES, ObjectError, TAIL_BYTES};
use crate::session::{SessionBuilder, SessionView};
use crate::store::{Listed, Store};

/// Largest number of objects of one session, and of one log.
pub(super) const MAX_OBJECTS: usize = 200_000;
/// Most bytes of the decoded directories of the parts of one session.
const MAX_DIRECTORIES_BYTES: u64 = 512 << 20;
/// Most memory that what is read of sessions together takes, in bytes.
const MAX_KEPT_BYTES: u64 = 512 << 20;

/// A session that has been opened.
#[derive(Debug)]
pub struct OpenedSession {
    /// What is in the session.
    pub view: SessionView,
    /// The names of the objects, by their numbers in the view.
    pub objects: Vec<Arc<str>>,
    /// Objects that cannot be read. What is in no other object is missing in the view.
    pub failures: Vec<CatalogError>,
}

/// The objects of a session, as they are read one after the other.
pub(super) struct Reading<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) builder: SessionBuilder,
    pub(super) objects: Vec<Arc<str>>,
    pub(super) failures: Vec<CatalogError>,
}

/// Opens a session. What cannot be read of it is in [`OpenedSession::failures`].
///
/// # Errors
/// If the store fails, or the session has more objects than are read.
pub async fn open_session(
    store: &dyn Store,
    session: SessionKey,
) -> Result<OpenedSession, CatalogError> {
    let (parts, owners) = list_objects(store, session).await?;
    let known: BTreeSet<_> = parts.iter().map(|part| part.name.clone()).collect();
    let mut reading = Reading {
        store,
        builder: SessionBuilder::new(session),
        objects: Vec::new(),
        failures: Vec::new(),
    };
    reading.add_objects(parts).await?;
    // The parts of the last owner have all since it took over, and no more than that.
    if !owners.is_empty() && (owners.len() > 1 || !reading.builder.is_complete()) {
        reading.add_logs(&owners).await?;
        // Commit objects are deleted when parts have all of them. What was deleted before it was
        // listed or read is in parts that were stored after the first list, and are in this one.
        reading.failures.retain(|failure| !failure.is_not_found());
        let (mut parts, _) = list_objects(store, session).await?;
        parts.retain(|part| !known.contains(&part.name));
        reading.add_objects(parts).await?;
    }
    Ok(OpenedSession {
        view: reading.builder.finish(),
        objects: reading.objects,
        failures: reading.failures,
    })
}

/// Lists the parts of a session, and its owners.
pub(super) async fn list_objects(
    store: &dyn Store,
    session: SessionKey,
) -> Result<(Vec<Listed>, Vec<(u32, Listed)>), CatalogError> {
    let listed = request::list(store, &session.prefix(), MAX_OBJECTS).await?;
    let (mut parts, mut owners) = (Vec::new(), Vec::new());
    for listed in listed {
        // What others have put there is ignored.
        match parse_session_object(&listed.name) {
            Ok((_, SessionObject::Part { .. })) => parts.push(listed),
            Ok((_, SessionObject::Owner(number))) => owners.push((number, listed)),
            Err(_) => {}
        }
    }
    Ok((parts, owners))
}

/// Lists the runs of relays that have a log.
pub(crate) async fn list_logs(store: &dyn Store) -> Result<Vec<BootId>, CatalogError> {
    let prefixes = request::list_prefixes(store, LOG, MAX_OBJECTS).await?;
    let boots = prefixes.iter().filter_map(|prefix| {
        let boot = prefix.strip_prefix(LOG)?.trim_end_matches('/');
        boot.parse().ok()
    });
    Ok(boots.collect())
}

/// Lists the commit objects of a log, in the order of their numbers.
pub(crate) async fn list_commits(
    store: &dyn Store,
    boot: BootId,
) -> Result<Vec<Listed>, CatalogError> {
    let mut commits = request::list(store, &boot.log_prefix(), MAX_OBJECTS).await?;
    commits.retain(|commit| parse_commit(&commit.name).is_ok());
    Ok(commits)
}

/// Reads the directories of the parts of a session. Returns their names, too.
pub(crate) async fn read_parts(
    store: &dyn Store,
    session: SessionKey,
) -> Result<(Vec<String>, Vec<Directory>), CatalogError> {
    let (parts, _) = list_objects(store, session).await?;
    let (mut directories, mut bytes) = (Vec::new(), 0);
    for part in &parts {
        let (directory, len) = read_directory(store, part).await?;
        bytes += len;
        if bytes > MAX_DIRECTORIES_BYTES {
            return Err(CatalogError::Limit {
                what: format!("bytes of directories with {}", part.name),
                limit: MAX_DIRECTORIES_BYTES,
            });
        }
        directories.push(directory);
    }
    Ok((
        parts.into_iter().map(|part| part.name).collect(),
        directories,
    ))
}

/// The run of a relay that has begun last to archive a session. None: there is no such session.
///
/// # Errors
/// If the archive cannot be read.
pub async fn last_owner(
    store: &dyn Store,
    session: SessionKey,
) -> Result<Option<BootId>, CatalogError> {
    let (_, owners) = list_objects(store, session).await?;
    let mut last: Option<OwnerDocument> = None;
    for (_, owner) in owners {
        let document: OwnerDocument = read_document(store, &owner.name).await?;
        // By time: a relay that was stopped may have taken the next number late.
        if last
            .as_ref()
            .is_none_or(|last| document.since >= last.since)
        {
            last = Some(document);
        }
    }
    Ok(last.and_then(|last| last.boot().ok()))
}

/// The number of a run of a relay among the owners of a session, the last one if it has several.
pub(crate) async fn owner_of_boot(
    store: &dyn Store,
    session: SessionKey,
    boot: BootId,
) -> Result<Option<u32>, CatalogError> {
    let (_, owners) = list_objects(store, session).await?;
    for (number, owner) in owners.iter().rev() {
        let document: OwnerDocument = read_document(store, &owner.name).await?;
        if document.boot().is_ok_and(|own| own == boot) {
            return Ok(Some(*number));
        }
    }
    Ok(None)
}

impl Reading<'_> {
    /// Adds what the logs of the owners have of the session.
    async fn add_logs(&mut self, owners: &[(u32, Listed)]) -> Result<(), CatalogError> {
        let store = self.store;
        // Collected here and below: the compiler cannot tell of a closure that it may be sent to
        // another thread.
        let documents = owners
            .iter()
            .map(|(_, owner)| read_document::<OwnerDocument>(store, &owner.name))
            .collect::<Vec<_>>();
        let mut boots: BTreeSet<BootId> = BTreeSet::new();
        for (document, (_, owner)) in request::all(documents).await.into_iter().zip(owners) {
            let boot = document.and_then(|document| {
                document.boot().map_err(|error| CatalogError::Document {
                    name: owner.name.clone(),
                    reason: error.to_string(),
                })
            });
            match boot {
                Ok(boot) => _ = boots.insert(boot),
                Err(error) => self.add_failure(error)?,
            }
        }
        let logs = boots.iter().map(|boot| list_commits(store, *boot));
        for log in request::all(logs.collect::<Vec<_>>()).await {
            self.add_objects(log?).await?;
        }
        Ok(())
    }

    /// Adds what the directories of objects say, in the given order.
    pub(super) async fn add_objects(&mut self, objects: Vec<Listed>) -> Result<(), CatalogError> {
        let store = self.store;
        for some in objects.chunks(super::MAX_REQUESTS) {
            let read = some.iter().map(|object| fetch_directory(store, object));
            let read = read.collect::<Vec<_>>();
            // One at a time is decoded, which takes many times the memory.
            for (read, object) in request::all(read).await.into_iter().zip(some) {
                match read.and_then(|stored| stored.decode(object)) {
                    Ok(directory) => {
                        if self.builder.add(self.objects.len(), &directory) {
                            self.objects.push(object.name.as_str().into());
                        }
                    }
                    Err(error) => self.add_failure(error)?,
                }
            }
            check_kept([&self.builder])?;
        }
        Ok(())
    }

    /// Goes on without an object, unless the others cannot be read either.
    fn add_failure(&mut self, error: CatalogError) -> Result<(), CatalogError> {
        if error.is_of_store() {
            return Err(error);
        }
        self.failures.push(error);
        Ok(())
    }
}

/// Makes sure that there is memory for what was read.
pub(super) fn check_kept<'a>(
    builders: impl IntoIterator<Item = &'a SessionBuilder>,
) -> Result<(), CatalogError> {
    let kept = builders.into_iter().map(SessionBuilder::kept_bytes);
    if kept.sum::<u64>() <= MAX_KEPT_BYTES {
        return Ok(());
    }
    Err(CatalogError::Limit {
        what: "bytes of what is read of sessions".to_owned(),
        limit: MAX_KEPT_BYTES,
    })
}

/// A directory as it is stored.
pub(super) struct StoredDirectory {
    footer: Footer,
    bytes: Bytes,
}

impl StoredDirectory {
    pub(super) fn decode(&self, object: &Listed) -> Result<Directory, CatalogError> {
        let decoded = self.footer.decode_directory(&self.bytes);
        decoded.map_err(|source| damaged(object, source))
    }
}

fn damaged(object: &Listed, source: ObjectError) -> CatalogError {
    CatalogError::Object {
        name: object.name.clone(),
        source,
    }
}

/// Reads the directory of an object. Returns how many bytes it takes, too.
pub(crate) async fn read_directory(
    store: &dyn Store,
    object: &Listed,
) -> Result<(Directory, u64), CatalogError> {
    let stored = fetch_directory(store, object).await?;
    Ok((stored.decode(object)?, u64::from(stored.footer.raw)))
}

/// Reads the directory of an object as it is stored.
pub(super) async fn fetch_directory(
    store: &dyn Store,
    object: &Listed,
) -> Result<StoredDirectory, CatalogError> {
    let len = object.bytes;
    let begin = len.saturating_sub(TAIL_BYTES);
    let tail = request::get_range(store, &object.name, begin..len).await?;
    let footer = Footer::at_end(&tail, len).map_err(|source| damaged(object, source))?;
    let bytes = match footer.directory_in(&tail) {
        // Not a part of the tail, most of which are blocks.
        Some(stored) => Bytes::copy_from_slice(stored),
        None => {
            if footer.stored > MAX_DIRECTORY_BYTES {
                return Err(CatalogError::Limit {
                    what: format!("bytes of the directory of {}", object.name),
                    limit: u64::from(MAX_DIRECTORY_BYTES),
                });
            }
            let begin = footer.directory.0;
            let end = begin.saturating_add(u64::from(footer.stored));
            request::get_range(store, &object.name, begin..end).await?
        }
    };
    Ok(StoredDirectory { footer, bytes })
}
