//! Which sessions of an archive are read, and opening them.

use archive::catalog::{
    FoundSession, OpenedSession, WantedSession, check_format, list_sessions, open_session,
    read_listed,
};
use archive::name::SessionKey;
use archive::store::Store;
use daemon::event_text::printable;
use futures_util::stream::{self, StreamExt};
use jiff::{Timestamp, ToSpan, Zoned};

use super::{ArchiveError, ArchiveOptions};
use crate::attach::target::{ArchiveTarget, SessionName};
use crate::near::{did_you_mean, near_names};
use crate::time::Nanoseconds;

/// Sessions that are opened at the same time, each by several requests.
const MAX_OPENING: usize = 4;
/// Largest number of sessions that are read together.
const MAX_SESSIONS: usize = 10_000;
/// Largest number of blocks of all sessions together: 150 bytes of memory each.
const MAX_BLOCKS: usize = 8_000_000;
/// Days, with the present one, on which a session was probably created.
const LIKELY_DAYS: i64 = 8;
/// Largest number of names that a message has.
const MAX_SHOWN_NAMES: usize = 5;
/// Most that the clocks of a relay and of a traced host may differ, in nanoseconds: a day.
const MAX_CLOCK_DIFFERENCE: i64 = 86_400_000_000_000;
/// A time in nanoseconds, in the year 2001. A clock that counts from the start of a host never
/// comes so far, and one that counts from 1970 has passed it.
const IS_SINCE_1970: i64 = 1_000_000_000_000_000_000;

/// A session that is read.
#[derive(Debug)]
pub(super) struct Session {
    /// The session's name for users: `HOST/SESSION`.
    pub(super) name: String,
    pub(super) key: SessionKey,
    /// Time of its creation, for users.
    pub(super) created: String,
    pub(super) opened: OpenedSession,
}

/// The sessions that are read, and what there is to say of the others.
#[derive(Debug, Default)]
pub(super) struct OpenedSessions {
    pub(super) sessions: Vec<Session>,
    pub(super) failures: Vec<String>,
}

/// The last days, and the next one: clocks differ.
fn likely_days() -> Vec<String> {
    let today = Zoned::now().with_time_zone(jiff::tz::TimeZone::UTC).date();
    let days = (-1..LIKELY_DAYS).map(|ago| today.saturating_sub(ago.days()).to_string());
    days.collect()
}

/// A time of an archive, for users.
pub(super) fn shown_time(nanoseconds: u64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or_default();
    format!("{time:.0}")
}

/// Lists the sessions that the target names.
pub(super) async fn find_sessions(
    store: &dyn Store,
    target: &ArchiveTarget,
    options: &ArchiveOptions,
) -> Result<Vec<FoundSession>, ArchiveError> {
    let names = target.session.as_ref();
    let end = options.end.map(Nanoseconds::get);
    let end = end.filter(|end| *end > IS_SINCE_1970);
    let last_day = end.and_then(|end| {
        let end = Timestamp::from_nanosecond(i128::from(end.saturating_add(MAX_CLOCK_DIFFERENCE)));
        Some(
            end.ok()?
                .to_zoned(jiff::tz::TimeZone::UTC)
                .date()
                .to_string(),
        )
    });
    let wanted = WantedSession {
        names: names.and_then(|session| Some((session.host.clone()?, session.name.clone()))),
        last_day,
        ..WantedSession::default()
    };
    let likely = likely_days();
    let (format, found) = tokio::join!(check_format(store), list_sessions(store, &wanted, &likely));
    format?;
    let is_wanted =
        |found: &FoundSession| names.is_none_or(|wanted| wanted.names(&found.host, &found.name));
    let mut found = found?;
    // The list selects sessions of one host. Long names in it are cut, but not those of samples.
    if names.is_some_and(|wanted| wanted.host.is_none()) {
        found.retain(is_wanted);
    }
    if found.is_empty() {
        let everything = list_sessions(store, &WantedSession::default(), &[]).await?;
        if everything.iter().any(is_wanted) {
            return Err(ArchiveError::NothingInTime(
                "all sessions were created after --end".to_owned(),
            ));
        }
        return Err(ArchiveError::NoSession(describe_missing(
            target,
            &everything,
        )));
    }
    Ok(found)
}

/// Opens the sessions that the target names and that may have something of the wanted time.
pub(super) async fn open_sessions(
    store: &dyn Store,
    target: &ArchiveTarget,
    options: &ArchiveOptions,
) -> Result<OpenedSessions, ArchiveError> {
    let mut found = find_sessions(store, target, options).await?;
    let mut all = OpenedSessions::default();
    let begin = options.begin.map(Nanoseconds::get);
    if let Some(begin) = begin.filter(|begin| *begin > IS_SINCE_1970) {
        let ended = found.extract_if(.., |found| found.has_ended()).collect();
        let (mut listed, failures) = read_listed(store, ended).await;
        let failures = failures.iter().map(|error| crate::with_sources(error));
        all.failures.extend(failures);
        listed.retain(|listed| {
            let ended = listed.ended.as_ref().map(|end| end.ended);
            let ended = ended.and_then(|ended| i64::try_from(ended).ok());
            ended.is_none_or(|ended| ended.saturating_add(MAX_CLOCK_DIFFERENCE) >= begin)
        });
        found.extend(listed.into_iter().map(|listed| listed.found));
        found.sort_by_key(|found| found.session);
        if found.is_empty() {
            return Err(ArchiveError::NothingInTime(
                "all sessions ended before --begin".to_owned(),
            ));
        }
    }
    if found.len() > MAX_SESSIONS {
        return Err(ArchiveError::Limit {
            what: "sessions",
            limit: MAX_SESSIONS,
        });
    }
    let opening = found.into_iter().map(|found| async move {
        let opened = open_session(store, found.session).await;
        (found, opened)
    });
    let mut opening = stream::iter(opening).buffered(MAX_OPENING);
    let mut blocks = 0;
    while let Some((found, opened)) = opening.next().await {
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) if error.is_of_store() => return Err(error.into()),
            Err(error) => {
                let name = found_name(&found);
                let error = crate::with_sources(&error);
                all.failures
                    .push(format!("session {name}: {error}; it is left out"));
                continue;
            }
        };
        let traces = opened.view.traces.iter();
        let streams = traces.flat_map(|trace| &trace.streams);
        blocks += streams.map(|stream| stream.blocks.len()).sum::<usize>();
        if blocks > MAX_BLOCKS {
            return Err(ArchiveError::Limit {
                what: "blocks of packets",
                limit: MAX_BLOCKS,
            });
        }
        all.add(&found, opened, target);
    }
    Ok(all)
}

impl OpenedSessions {
    fn add(&mut self, found: &FoundSession, opened: OpenedSession, target: &ArchiveTarget) {
        let mut name = found_name(found);
        let mut created = 0;
        if let Some(record) = &opened.view.session {
            // The names of the objects by which it was found are cut if they are long.
            let (host, session) = (record.host.to_string(), record.name.to_string());
            let wanted = target.session.as_ref();
            if wanted.is_some_and(|wanted| !wanted.names(&host, &session)) {
                return;
            }
            name = format!("{host}/{session}");
            created = record.created;
        }
        for error in &opened.failures {
            let error = crate::with_sources(error);
            self.failures.push(format!(
                "session {name}: {error}; what only this object has is not shown"
            ));
        }
        self.sessions.push(Session {
            name,
            key: found.session,
            created: shown_time(created),
            opened,
        });
    }

    /// What users should know about the sessions, and is no failure.
    pub(super) fn notices(&self, target: &ArchiveTarget) -> Vec<String> {
        let mut notices = Vec::new();
        if let (Some(_), [_, _, ..]) = (&target.session, &self.sessions[..]) {
            let created = self.sessions.iter().map(|session| session.created.as_str());
            let created: Vec<_> = created.take(MAX_SHOWN_NAMES).collect();
            let more = match self.sessions.len() - created.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            notices.push(format!(
                "{target}: {} sessions have this name, created at {}{more}; all are shown, and \
                 --begin and --end select times",
                self.sessions.len(),
                created.join(", ")
            ));
        }
        let running = self.sessions.iter().filter(|session| {
            session.opened.view.ended_at.is_none() && session.opened.view.session.is_some()
        });
        notices.extend(running.map(|session| {
            let Session { name, created, .. } = session;
            format!(
                "session {name}, created at {created}, has not ended: what the archive has of it by \
                 now is shown"
            )
        }));
        notices
    }
}

/// The name of a session for users, as its objects have it.
fn found_name(found: &FoundSession) -> String {
    printable(&format!("{}/{}", found.host, found.name))
}

/// Says that an archive has none of the sessions that `target` names, and which it has.
fn describe_missing(target: &ArchiveTarget, found: &[FoundSession]) -> String {
    let url = &target.url;
    let Some(wanted) = &target.session else {
        return format!("no session in {url}");
    };
    let mut known: Vec<SessionName> = Vec::new();
    for found in found {
        let name = SessionName {
            host: Some(found.host.clone()),
            name: found.name.clone(),
        };
        if !known.contains(&name) {
            known.push(name);
        }
        if known.len() == MAX_SESSIONS {
            break;
        }
    }
    let near = near_names(&wanted.name, known.iter().map(|known| &*known.name));
    let near = known.iter().filter(|known| near.contains(&&*known.name));
    let near = near.map(|known| format!("{url}/host/{known}"));
    let near: Vec<String> = near.take(MAX_SHOWN_NAMES).collect();
    let hint = match (&near[..], &known[..]) {
        ([], []) => "; it has no sessions".to_owned(),
        ([], known) => {
            let shown = known.iter().take(MAX_SHOWN_NAMES);
            let shown: Vec<String> = shown.map(ToString::to_string).collect();
            // The names come from the archive, and may have control characters.
            let listed = printable(&shown.join(", ")).to_string();
            let more = match known.len() - shown.len() {
                0 => "",
                _ => ", ...: test-live --list shows all",
            };
            format!("; there are: {listed}{more}")
        }
        (near, _) => did_you_mean(&near.iter().map(String::as_str).collect::<Vec<_>>()),
    };
    format!("no session {wanted} in {url}{hint}")
}
