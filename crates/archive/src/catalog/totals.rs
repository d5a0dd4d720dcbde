//! How much the archive has of many sessions: the log of a relay has all of its sessions, and is
//! read once for all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::error::CatalogError;
use super::list::read_document;
use super::open::{check_kept, fetch_directory, list_commits, list_objects};
use super::{MAX_REQUESTS, request};
use crate::document::OwnerDocument;
use crate::name::{BootId, SessionKey};
use crate::object::Directory;
use crate::record::Record;
use crate::session::SessionBuilder;
use crate::store::{Listed, Store};

/// How much the archive has of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionTotal {
    /// Number of packets, each counted once.
    pub packets: u64,
    /// Bytes of packets, their index entries and metadata.
    pub bytes: u64,
}

/// Counts what the archive has of these sessions, in parts and in the logs of their owners. Objects
/// that cannot be read count nothing.
///
/// # Errors
/// If the store fails, or the sessions have more than is read together.
pub async fn count_sessions(
    store: &dyn Store,
    sessions: &BTreeSet<SessionKey>,
) -> Result<BTreeMap<SessionKey, SessionTotal>, CatalogError> {
    let builders = sessions.iter().map(|key| (*key, SessionBuilder::new(*key)));
    let mut builders: BTreeMap<_, _> = builders.collect();
    let mut known = BTreeSet::new();
    let mut boots = BTreeSet::new();
    add_parts(store, &mut builders, &mut known, Some(&mut boots)).await?;
    for boot in boots {
        let commits = list_commits(store, boot).await?;
        add_objects(store, &mut builders, &commits).await?;
    }
    // What was deleted of the logs meanwhile is in parts that were stored since.
    add_parts(store, &mut builders, &mut known, None).await?;
    let totals = builders.into_iter().map(|(key, builder)| {
        let view = builder.finish();
        let total = SessionTotal {
            packets: view.packets(),
            bytes: view.raw_bytes(),
        };
        (key, total)
    });
    Ok(totals.collect())
}

/// Adds the parts that are not known, and the runs of relays that own the sessions.
async fn add_parts(
    store: &dyn Store,
    builders: &mut BTreeMap<SessionKey, SessionBuilder>,
    known: &mut BTreeSet<String>,
    mut boots: Option<&mut BTreeSet<BootId>>,
) -> Result<(), CatalogError> {
    // Collected, because the compiler cannot tell of a closure that it may be sent to another
    // thread.
    let listed = builders.keys().map(|key| list_objects(store, *key));
    let listed = listed.collect::<Vec<_>>();
    let mut new = Vec::new();
    for listed in request::all(listed).await {
        let (parts, owners) = listed?;
        new.extend(
            parts
                .into_iter()
                .filter(|part| known.insert(part.name.clone())),
        );
        let Some(boots) = &mut boots else { continue };
        for (_, owner) in owners {
            let document: Result<OwnerDocument, _> = read_document(store, &owner.name).await;
            match document {
                Ok(document) => boots.extend(document.boot().ok()),
                Err(error) if error.is_of_store() => return Err(error),
                Err(_) => {}
            }
        }
    }
    add_objects(store, builders, &new).await
}

async fn add_objects(
    store: &dyn Store,
    builders: &mut BTreeMap<SessionKey, SessionBuilder>,
    objects: &[Listed],
) -> Result<(), CatalogError> {
    for some in objects.chunks(MAX_REQUESTS) {
        let read = some.iter().map(|object| fetch_directory(store, object));
        let read = read.collect::<Vec<_>>();
        for (read, object) in request::all(read).await.into_iter().zip(some) {
            match read.and_then(|stored| stored.decode(object)) {
                Ok(directory) => add_directory(builders, &directory),
                Err(error) if error.is_of_store() => return Err(error),
                Err(_) => {}
            }
        }
        check_kept(builders.values())?;
    }
    Ok(())
}

/// Gives each session what a directory says of it.
fn add_directory(builders: &mut BTreeMap<SessionKey, SessionBuilder>, directory: &Directory) {
    let mut current = None;
    for record in &directory.records {
        if let Record::Session(session) = record {
            current = builders.get_mut(&session.session);
        }
        if let Some(builder) = &mut current {
            builder.add_own(0, record);
        }
    }
}
