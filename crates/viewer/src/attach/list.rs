//! The list of a relay's sessions.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use viewer_proto::session::{ListedSession, TraceFormat};

use super::connection::Connection;
use super::error::AttachError;
use super::relay_selector::{RelaySelector, SelectedRelay};
use super::target::{RelayTarget, SessionName};
use crate::near::{did_you_mean, near_names};

/// Largest number of sessions whose names are compared with one that does not exist.
const MAX_COMPARED_SESSIONS: usize = 10_000;

/// Largest number of sessions that are suggested.
const MAX_SUGGESTED_SESSIONS: usize = 3;

/// The sessions of a relay, each once, in the relay's order. Shows as lines, one for each; as JSON
/// it is an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Listing {
    /// The sessions, in the relay's order.
    pub sessions: Vec<ListedName>,
}

/// A session name with all that a relay has under it. A recording of the kernel and of programs is
/// several sessions for the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedName {
    /// The URL by which the session can be followed.
    pub url: String,
    /// The name of the traced host.
    #[serde(rename = "host")]
    pub target_hostname: String,
    /// The name of the session on the traced host.
    #[serde(rename = "name")]
    pub session_name: String,
    /// Microseconds from one flush to the next. 0: it cannot be followed.
    #[serde(rename = "live_timer_us")]
    pub timer_us: u32,
    /// The number of streams, metadata streams included.
    #[serde(rename = "streams")]
    pub stream_count: u64,
    /// The number of viewers that follow the session.
    #[serde(rename = "viewers")]
    pub client_count: u32,
    /// The format of its traces: `ctf-1.8` or `ctf-2.0`.
    pub trace_format: &'static str,
}

impl Listing {
    /// Puts together what a relay lists: one entry for each name, with the streams of all sessions
    /// of that name.
    #[must_use]
    pub fn new(target: &RelayTarget, listed: &[ListedSession]) -> Self {
        let mut sessions: Vec<ListedName> = Vec::new();
        for session in listed {
            if !target.names(session) {
                continue;
            }
            let (host, name) = (session.host.to_string(), session.name.to_string());
            let same = |listed: &&mut ListedName| {
                listed.target_hostname == host && listed.session_name == name
            };
            if let Some(listed) = sessions.iter_mut().find(same) {
                listed.stream_count += u64::from(session.streams);
                // A viewer attaches to each session of a recording: a sum would count it several
                // times.
                listed.client_count = listed.client_count.max(session.viewers);
                continue;
            }
            sessions.push(ListedName {
                url: format!("{}/host/{host}/{name}", target.url),
                target_hostname: host,
                session_name: name,
                timer_us: session.live_timer.0,
                stream_count: u64::from(session.streams),
                client_count: session.viewers,
                trace_format: match session.trace_format {
                    TraceFormat::Ctf1 => "ctf-1.8",
                    TraceFormat::Ctf2 => "ctf-2.0",
                },
            });
        }
        Self { sessions }
    }
}

impl RelayTarget {
    /// Whether the target names this session, or any.
    #[must_use]
    pub fn names(&self, listed: &ListedSession) -> bool {
        let (host, name) = (listed.host.to_string(), listed.name.to_string());
        let session = self.session.as_ref();
        session.is_none_or(|session| session.names(&host, &name))
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sessions
            .iter()
            .try_for_each(|session| writeln!(f, "{session}"))
    }
}

impl fmt::Display for ListedName {
    /// Writes the line that `babeltrace2` writes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            url,
            timer_us,
            stream_count,
            client_count,
            ..
        } = self;
        write!(
            f,
            "{url} (timer = {timer_us}, {stream_count} stream(s), {client_count} client(s) connected)"
        )
    }
}

/// Says that a relay has none of the sessions that `target` names, and which similar ones it has:
/// of nearly the same name, or of the same name on another host.
pub(super) fn describe_missing(target: &RelayTarget, listed: &[ListedSession]) -> String {
    let Some(wanted) = &target.session else {
        return "the relay has no live session".to_owned();
    };
    let listed = listed.iter().map(|listed| SessionName {
        host: Some(listed.host.to_string()),
        name: listed.name.to_string(),
    });
    let listed: Vec<SessionName> = listed.take(MAX_COMPARED_SESSIONS).collect();
    let near = near_names(&wanted.name, listed.iter().map(|listed| &*listed.name));
    let near = near.iter().flat_map(|name| {
        // Sessions of several hosts may have this name.
        let same = listed.iter().filter(move |listed| listed.name == *name);
        same.map(ToString::to_string)
    });
    let mut urls = Vec::new();
    for session in near {
        let url = format!("{}/host/{session}", target.url);
        if !urls.contains(&url) && urls.len() < MAX_SUGGESTED_SESSIONS {
            urls.push(url);
        }
    }
    let hint = match (&urls[..], &listed[..]) {
        ([], []) => "; it has no sessions".to_owned(),
        ([], _) => "; test-live --list shows those that it has".to_owned(),
        (urls, _) => did_you_mean(&urls.iter().map(String::as_str).collect::<Vec<_>>()),
    };
    format!("the relay has no live session {wanted}{hint}")
}

/// Asks the first relay of the target that answers for its sessions.
///
/// # Errors
/// If none can be reached within `connect_timeout`, or keeps to the protocol: that of the last one.
pub fn list(target: &RelayTarget, connect_timeout: Duration) -> Result<Listing, AttachError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| AttachError::Connect {
            relay: target.to_string(),
            source,
        })?;
    let sessions = runtime.block_on(async {
        let mut selector = RelaySelector::new(target);
        let mut last = Ok(Vec::new());
        while let Some(selected) = selector.select_next(target, connect_timeout).await {
            last = match selected {
                Ok(relay) => sessions_of(target, &relay, connect_timeout).await,
                Err(error) => Err(error),
            };
            if last.is_ok() {
                break;
            }
        }
        last
    })?;
    Ok(Listing::new(target, &sessions))
}

async fn sessions_of(
    target: &RelayTarget,
    relay: &SelectedRelay,
    connect_timeout: Duration,
) -> Result<Vec<ListedSession>, AttachError> {
    let mut connection = Connection::open(target, relay, connect_timeout).await?;
    connection.sessions().await
}

#[cfg(test)]
mod tests {
    use wire::{Micros, SessionId, Text};

    use super::*;
    use crate::attach::target::Target;

    fn listed(name: &str, streams: u32, viewers: u32) -> ListedSession {
        ListedSession {
            session: SessionId(1),
            live_timer: Micros(1_000_000),
            viewers,
            streams,
            host: Text::from("vm"),
            name: Text::from(name),
            trace_format: TraceFormat::Ctf1,
        }
    }

    fn listing(target: &str) -> Listing {
        let Ok(Target::Relay(target)) = target.parse() else {
            panic!("{target} is a relay")
        };
        let sessions = [listed("a", 5, 0), listed("b\n", 1, 2), listed("a", 5, 1)];
        Listing::new(&target, &sessions)
    }

    #[test]
    fn sessions_of_one_name_are_listed_as_one_line() {
        assert_eq!(
            listing("net://localhost:1").to_string(),
            "net://localhost:1/host/vm/a (timer = 1000000, 10 stream(s), 1 client(s) connected)\n\
             net://localhost:1/host/vm/b\\n (timer = 1000000, 1 stream(s), 2 client(s) connected)\n"
        );
    }

    #[test]
    fn a_missing_session_is_described_with_similar_ones_of_any_host() {
        let describe = |text: &str, listed: &[ListedSession]| {
            let Ok(Target::Relay(target)) = text.parse() else {
                panic!("{text} is a relay")
            };
            describe_missing(&target, listed)
        };
        let listed = [listed("app", 1, 0), listed("web", 1, 0)];
        assert_eq!(
            describe("net://h/host/vm/apq", &listed),
            "the relay has no live session vm/apq; did you mean net://h/host/vm/app?"
        );
        assert_eq!(
            describe("net://h/host/other/app", &listed),
            "the relay has no live session other/app; did you mean net://h/host/vm/app?"
        );
        assert_eq!(
            describe("net://h/host/vm/database", &listed),
            "the relay has no live session vm/database; test-live --list shows those that it has"
        );
        assert_eq!(
            describe("net://h/host/vm/app", &[]),
            "the relay has no live session vm/app; it has no sessions"
        );
    }

    #[test]
    fn a_listing_of_one_session_is_a_json_array() {
        let json = serde_json::to_string(&listing("net://h/host/vm/a")).unwrap();
        assert_eq!(
            json,
            r#"[{"url":"net://h/host/vm/a","host":"vm","name":"a","live_timer_us":1000000,"streams":10,"viewers":1,"trace_format":"ctf-1.8"}]"#
        );
    }
}
