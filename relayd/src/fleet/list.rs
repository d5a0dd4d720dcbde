//! Which sessions the archive has, from the objects below its days.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use archive::catalog::{CatalogError, FoundSession, WantedSession, list_sessions, read_listed};
use archive::document::CreatedDocument;
use archive::name::SessionKey;
use archive::store::Store;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use tracing::warn;
use viewer_proto::session::{ListedSession, TraceFormat};
use wire::{Micros, SessionId};

use crate::limits::{
    FIRST_FLEET_SESSION, FLEET_LIVE_TIMER, FLEET_WHOLE_LIST_INTERVAL, MAX_FLEET_DAYS,
    MAX_FLEET_SESSIONS,
};

/// Longest name of a host or session, in bytes, with a NUL. (`LTTNG_NAME_MAX`)
const MAX_NAME_BYTES: usize = 255;

/// Days of which the objects are listed each time: clocks differ, and a day ends.
const RECENT_DAYS: i64 = 1;

/// The sessions of the archive that are shown.
#[derive(Debug)]
pub(super) struct FleetList {
    /// Time since their end for which sessions are shown.
    listed_for: Duration,
    sessions: BTreeMap<SessionKey, FleetSession>,
    keys: BTreeMap<SessionId, SessionKey>,
    next: u64,
    /// Time at which all days were listed.
    whole: Option<Instant>,
}

#[derive(Debug, Clone)]
struct FleetSession {
    id: SessionId,
    document: CreatedDocument,
    /// Time of the end, in nanoseconds since 1970. None: the session has not ended.
    ended: Option<u64>,
}

/// The days that are to be listed.
#[derive(Debug)]
pub(super) struct WantedDays {
    first: Date,
    is_whole: bool,
    /// The earliest day on which a session was created that is read though it has ended.
    first_ended: Date,
}

/// The sessions that a list of days has.
#[derive(Debug)]
pub(super) struct ReadList {
    days: WantedDays,
    found: BTreeSet<SessionKey>,
    /// The sessions that are new, or have ended.
    read: Vec<(SessionKey, CreatedDocument, Option<u64>)>,
}

/// Whether a session is known, and whether its end is.
pub(super) type KnownSessions = BTreeMap<SessionKey, bool>;

fn days_ago(days: i64) -> Date {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    today.saturating_sub(days.days())
}

/// Lists sessions, and reads what is said of those that are new.
pub(super) async fn read(
    store: &dyn Store,
    days: WantedDays,
    known: KnownSessions,
) -> Result<ReadList, CatalogError> {
    let wanted = WantedSession {
        first_day: Some(days.first.to_string()),
        ..WantedSession::default()
    };
    let likely = [days_ago(0), days_ago(1)].map(|day| day.to_string());
    let found = list_sessions(store, &wanted, &likely).await?;
    let keys = found.iter().map(|found| found.session).collect();
    let is_new = |found: &FoundSession| match known.get(&found.session) {
        None => !found.has_ended() || found.day() >= days.first_ended.to_string().as_str(),
        Some(has_ended) => found.has_ended() && !has_ended,
    };
    let new: Vec<_> = found.into_iter().filter(is_new).collect();
    let new = new.into_iter().rev().take(MAX_FLEET_SESSIONS).collect();
    let (listed, failures) = read_listed(store, new).await;
    if let Some(error) = failures.first() {
        let error = daemon::error_text::describe_error(error);
        warn!(%error, failures = failures.len(), "some sessions of the archive cannot be read");
    }
    let listed = listed.into_iter();
    let listed = listed.filter(|listed| has_possible_names(&listed.created));
    let read = listed.map(|listed| {
        let ended = listed.ended.map(|ended| ended.ended);
        (listed.found.session, listed.created, ended)
    });
    Ok(ReadList {
        days,
        found: keys,
        read: read.collect(),
    })
}

/// Whether a producer could have given these names: viewers would refuse the list with others.
fn has_possible_names(document: &CreatedDocument) -> bool {
    let is_possible = |name: &String| name.len() < MAX_NAME_BYTES && !name.contains('\0');
    is_possible(&document.host) && is_possible(&document.name)
}

impl FleetList {
    /// Nothing has been listed.
    pub(super) fn new(listed_for: Duration) -> Self {
        Self {
            listed_for,
            sessions: BTreeMap::new(),
            keys: BTreeMap::new(),
            next: FIRST_FLEET_SESSION,
            whole: None,
        }
    }

    /// What is to be listed, and what is known.
    pub(super) fn wanted(&self) -> (WantedDays, KnownSessions) {
        let is_whole = self
            .whole
            .is_none_or(|at| at.elapsed() >= FLEET_WHOLE_LIST_INTERVAL);
        let days = WantedDays {
            first: days_ago(if is_whole {
                MAX_FLEET_DAYS
            } else {
                RECENT_DAYS
            }),
            is_whole,
            first_ended: self.first_ended_day(),
        };
        let known = self.sessions.iter();
        let known = known.map(|(key, session)| (*key, session.ended.is_some()));
        (days, known.collect())
    }

    /// A session that was created earlier and ended in time is shown only if it was known before.
    fn first_ended_day(&self) -> Date {
        let days = self.listed_for.as_secs().div_ceil(86_400).saturating_add(1);
        days_ago(
            i64::try_from(days)
                .unwrap_or(MAX_FLEET_DAYS)
                .min(MAX_FLEET_DAYS),
        )
    }

    /// Takes over what was listed. Returns whether it differs from before.
    pub(super) fn update(&mut self, read: ReadList) -> bool {
        let mut has_changed = false;
        if read.days.is_whole {
            self.whole = Some(Instant::now());
            let before = self.sessions.len();
            self.sessions.retain(|key, _| read.found.contains(key));
            has_changed |= self.sessions.len() != before;
        }
        for (key, document, ended) in read.read {
            let next = &mut self.next;
            let session = self.sessions.entry(key).or_insert_with(|| {
                *next += 1;
                FleetSession {
                    id: SessionId(*next),
                    document,
                    ended: None,
                }
            });
            session.ended = ended;
            has_changed = true;
        }
        if has_changed {
            let oldest_end = self.oldest_end();
            self.sessions
                .retain(|_, session| session.ended.is_none_or(|ended| ended >= oldest_end));
            while self.sessions.len() > MAX_FLEET_SESSIONS {
                let oldest = self.sessions.iter();
                let oldest = oldest.min_by_key(|(_, session)| session.document.created);
                let Some(key) = oldest.map(|(key, _)| *key) else {
                    break;
                };
                self.sessions.remove(&key);
            }
            let sessions = self.sessions.iter();
            self.keys = sessions.map(|(key, session)| (session.id, *key)).collect();
        }
        has_changed
    }

    fn oldest_end(&self) -> u64 {
        let now = u128::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0);
        let oldest = now.saturating_sub(self.listed_for.as_nanos());
        u64::try_from(oldest).unwrap_or(u64::MAX)
    }

    /// The sessions that are shown, in the order of their ids.
    pub(super) fn listed<'a>(
        &'a self,
        hidden: &'a BTreeSet<SessionKey>,
    ) -> impl Iterator<Item = ListedSession> + 'a {
        let oldest_end = self.oldest_end();
        let shown = self.keys.values().filter(|key| !hidden.contains(key));
        let shown = shown.filter_map(|key| self.sessions.get(key));
        let shown =
            shown.filter(move |session| session.ended.is_none_or(|ended| ended >= oldest_end));
        shown.map(listed)
    }

    /// A session, whether it is shown or not.
    pub(super) fn get(&self, id: SessionId) -> Option<ListedSession> {
        let key = self.key_of(id)?;
        self.sessions.get(&key).map(listed)
    }

    pub(super) fn created(&self, key: SessionKey) -> Option<u64> {
        Some(self.sessions.get(&key)?.document.created)
    }

    pub(super) fn key_of(&self, id: SessionId) -> Option<SessionKey> {
        self.keys.get(&id).copied()
    }

    /// The session with this id, and what its relay has written when it was created.
    pub(super) fn document_of(&self, id: SessionId) -> Option<(SessionKey, CreatedDocument)> {
        let key = self.key_of(id)?;
        Some((key, self.sessions.get(&key)?.document.clone()))
    }

    /// Whether the end of a session is listed.
    pub(super) fn has_ended(&self, id: SessionId) -> bool {
        let session = self.key_of(id).and_then(|key| self.sessions.get(&key));
        session.is_some_and(|session| session.ended.is_some())
    }
}

fn listed(session: &FleetSession) -> ListedSession {
    let document = &session.document;
    ListedSession {
        session: session.id,
        live_timer: live_timer(document),
        viewers: 0,
        // Known when a viewer attaches.
        streams: 0,
        host: document.host.as_str().into(),
        name: document.name.as_str().into(),
        trace_format: trace_format(document),
    }
}

/// The live timer of a copy. All copies are live: viewers refuse other sessions.
pub(super) fn live_timer(document: &CreatedDocument) -> Micros {
    match document.live_timer {
        0 => FLEET_LIVE_TIMER,
        timer => Micros(timer),
    }
}

pub(super) fn trace_format(document: &CreatedDocument) -> TraceFormat {
    match document.ctf_version {
        2 => TraceFormat::Ctf2,
        _ => TraceFormat::Ctf1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: SessionKey = SessionKey {
        producer: [1; 16],
        id: 1,
    };

    fn document(created: u64, name: &str) -> CreatedDocument {
        CreatedDocument {
            session: KEY.to_string(),
            host: "host".to_owned(),
            name: name.to_owned(),
            created,
            live_timer: 0,
            ctf_version: 1,
        }
    }

    fn now() -> u64 {
        u64::try_from(Timestamp::now().as_nanosecond()).unwrap()
    }

    fn update(list: &mut FleetList, found: &[(SessionKey, Option<u64>)], is_whole: bool) -> bool {
        let day = days_ago(0);
        list.update(ReadList {
            days: WantedDays {
                first: day,
                is_whole,
                first_ended: day,
            },
            found: found.iter().map(|(key, _)| *key).collect(),
            read: found
                .iter()
                .map(|(key, ended)| (*key, document(key.id, "name"), *ended))
                .collect(),
        })
    }

    fn ids(list: &FleetList) -> Vec<u64> {
        let none = BTreeSet::new();
        let listed = list.listed(&none);
        listed.map(|listed| listed.session.0).collect()
    }

    #[test]
    fn a_session_keeps_its_id_until_it_has_ended_for_long() {
        let mut list = FleetList::new(Duration::from_secs(60));
        assert!(update(&mut list, &[(KEY, None)], true));
        let listed = ids(&list);
        assert_eq!(listed.len(), 1);
        assert!(update(&mut list, &[(KEY, Some(now()))], false));
        assert_eq!(ids(&list), listed);
        assert!(list.has_ended(SessionId(listed[0])));
        assert!(update(
            &mut list,
            &[(KEY, Some(now() - 61_000_000_000))],
            false
        ));
        assert!(ids(&list).is_empty());
    }

    #[test]
    fn a_session_that_is_in_no_day_any_more_is_forgotten_by_a_whole_list_only() {
        let mut list = FleetList::new(Duration::from_secs(60));
        update(&mut list, &[(KEY, None)], true);
        assert!(!update(&mut list, &[], false));
        assert_eq!(ids(&list).len(), 1);
        assert!(update(&mut list, &[], true));
        assert!(ids(&list).is_empty());
    }

    #[test]
    fn the_newest_sessions_are_listed_if_they_are_too_many() {
        let mut list = FleetList::new(Duration::from_secs(60));
        let count = MAX_FLEET_SESSIONS as u64 + 5;
        let found: Vec<_> = (0..count)
            .map(|id| (SessionKey { id, ..KEY }, None))
            .collect();
        update(&mut list, &found, true);
        assert_eq!(ids(&list).len(), MAX_FLEET_SESSIONS);
        assert_eq!(list.created(SessionKey { id: 4, ..KEY }), None);
    }

    #[test]
    fn names_that_no_producer_has_are_not_listed() {
        assert!(has_possible_names(&document(1, "name")));
        for name in ["a\0b", &"n".repeat(MAX_NAME_BYTES)] {
            assert!(!has_possible_names(&document(1, name)));
        }
    }
}
