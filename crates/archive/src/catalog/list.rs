//! The sessions of an archive, by the objects that relays have put below the days.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;

use super::error::CatalogError;
use super::request;
use crate::document::{CreatedDocument, EndedDocument, MAX_DOCUMENT_BYTES};
use crate::name::{DAYS, DayObject, SessionKey, escape, unescape};
use crate::store::Store;

/// Largest number of days that are listed: more than a century.
const MAX_DAYS: usize = 40_000;
/// Largest number of objects below the days that are listed together: two for each session.
const MAX_DAY_OBJECTS: usize = 400_000;

/// Longest name of a host or session, in bytes: as in the records of objects.
const MAX_NAME_BYTES: usize = 4096;

/// The sessions that are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedSession {
    /// The names of host and session. Absent: all sessions.
    pub names: Option<(String, String)>,
    /// The first day on which a wanted session was created, `YYYY-MM-DD`.
    pub first_day: Option<String>,
    /// The last day on which a wanted session was created.
    pub last_day: Option<String>,
}

/// A session that an archive lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSession {
    /// The session.
    pub session: SessionKey,
    /// Name of the traced host, perhaps cut.
    pub host: String,
    /// Name of the session, perhaps cut.
    pub name: String,
    /// Day on which it was created, `YYYY-MM-DD`.
    day: String,
    /// The object that was written when the session was created, or `None` if that is missing.
    created: Option<String>,
    /// The object that was written at its end. Absent: it has not ended, or its relay died.
    ended: Option<String>,
}

/// A session with what is said of it where it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSession {
    /// The session.
    pub found: FoundSession,
    /// What its relay has written when it was created.
    pub created: CreatedDocument,
    /// What its relay has written at its end.
    pub ended: Option<EndedDocument>,
}

impl FoundSession {
    /// Day on which the session was created, `YYYY-MM-DD`.
    #[must_use]
    pub fn day(&self) -> &str {
        &self.day
    }

    /// Whether the end of the session is listed.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

/// Finds the wanted sessions, in order of the days on which they were created. The days in `likely`
/// are looked through while the list of all days is on its way, which saves waiting for that.
///
/// # Errors
/// If the archive cannot be listed.
pub async fn list_sessions(
    store: &dyn Store,
    wanted: &WantedSession,
    likely: &[String],
) -> Result<Vec<FoundSession>, CatalogError> {
    let is_wanted = |day: &str| {
        wanted.first_day.as_deref().is_none_or(|first| day >= first)
            && wanted.last_day.as_deref().is_none_or(|last| day <= last)
    };
    let likely: BTreeSet<&str> = likely.iter().map(String::as_str).collect();
    let first = likely.iter().filter(|day| is_wanted(day));
    let first = first.map(|day| list_day(store, day, wanted));
    let (days, mut objects) = tokio::join!(
        request::list_prefixes(store, DAYS, MAX_DAYS),
        request::all(first)
    );
    let days = days?;
    let days = days.iter().filter_map(|day| day.strip_prefix(DAYS));
    let others = days.filter(|day| !likely.contains(day) && is_wanted(day));
    objects.extend(request::all(others.map(|day| list_day(store, day, wanted))).await);
    let mut found: BTreeMap<(String, SessionKey), FoundSession> = BTreeMap::new();
    let mut count = 0;
    for of_day in objects {
        let of_day = of_day?;
        count += of_day.len();
        if count > MAX_DAY_OBJECTS {
            return Err(CatalogError::Limit {
                what: "sessions of the archive".to_owned(),
                limit: MAX_DAY_OBJECTS as u64,
            });
        }
        for object in of_day {
            let (name, key) = (object.to_string(), object.session);
            let listed = found.entry((object.day.clone(), key));
            let listed = listed.or_insert(FoundSession {
                session: key,
                day: object.day,
                host: unescape(&object.host),
                name: unescape(&object.name),
                created: None,
                ended: None,
            });
            let place = match object.is_end {
                true => &mut listed.ended,
                false => &mut listed.created,
            };
            *place = Some(name);
        }
    }
    Ok(found.into_values().collect())
}

async fn list_day(
    store: &dyn Store,
    day: &str,
    wanted: &WantedSession,
) -> Result<Vec<DayObject>, CatalogError> {
    let mut prefix = format!("{DAYS}{day}/");
    if let Some((host, name)) = &wanted.names {
        let (host, name) = (escape(host.as_bytes()), escape(name.as_bytes()));
        prefix.push_str(&format!("{host}/{name}/"));
    }
    let listed = request::list(store, &prefix, MAX_DAY_OBJECTS).await?;
    // What others have put there is ignored.
    Ok(listed
        .iter()
        .filter_map(|listed| listed.name.parse().ok())
        .collect())
}

/// Reads what is said of the sessions where they are listed. Failures are returned apart.
pub async fn read_listed(
    store: &dyn Store,
    found: Vec<FoundSession>,
) -> (Vec<ListedSession>, Vec<CatalogError>) {
    let read = found.into_iter().map(|found| async move {
        let Some(created) = &found.created else {
            return Ok(None);
        };
        let created = read_created(store, created, found.session);
        let ended = async {
            match &found.ended {
                Some(ended) => read_document(store, ended).await.map(Some),
                None => Ok(None),
            }
        };
        let (created, ended) = tokio::join!(created, ended);
        let (created, ended) = (created?, ended?);
        Ok(Some(ListedSession {
            found,
            created,
            ended,
        }))
    });
    let (mut sessions, mut failures) = (Vec::new(), Vec::new());
    for listed in request::all(read).await {
        match listed {
            Ok(listed) => sessions.extend(listed),
            Err(error) => failures.push(error),
        }
    }
    (sessions, failures)
}

/// Reads what was written when a session was created. Names that are longer than those of producers
/// are refused: readers hold the documents of many sessions.
async fn read_created(
    store: &dyn Store,
    name: &str,
    session: SessionKey,
) -> Result<CreatedDocument, CatalogError> {
    let document: CreatedDocument = read_document(store, name).await?;
    let fail = |reason: &str| CatalogError::Document {
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    if document.session != session.to_string() {
        return Err(fail("it is about another session"));
    }
    if document.host.len().max(document.name.len()) > MAX_NAME_BYTES {
        return Err(fail("a name is too long"));
    }
    Ok(document)
}

pub(super) async fn read_document<T: DeserializeOwned>(
    store: &dyn Store,
    name: &str,
) -> Result<T, CatalogError> {
    let bytes = request::get(store, name, MAX_DOCUMENT_BYTES).await?;
    serde_json::from_slice(&bytes).map_err(|error| CatalogError::Document {
        name: name.to_owned(),
        reason: error.to_string(),
    })
}
